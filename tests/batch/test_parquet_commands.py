"""`promptools batch` and `promptools reparse` with Parquet: what they do with JSON Lines, in columns."""

import json
import resource
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from casebook import ROWS_FOLDERS, rows, tools_of
from upstream import running

from promptools.batch.columns import batch_schema, reparsed_file_schema
from promptools.cli import main
from promptools.testing.scripted_server import HttpAnswer, calls_as_text, completion, http_error

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]},
    },
}
PING = {"type": "function", "function": {"name": "ping", "description": "Ping.", "parameters": {"type": "object"}}}
LEAKED = calls_as_text("hermes", [("get_weather", {"days": "3"})])
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def batch(server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(source, output="out.parquet", *more):
        status = main(["batch", source, output, "--base-url", server.url, "--no-detect", *more])
        return status, capsys.readouterr()

    return run


def bodies(count, **more):
    return [{"model": "m", "messages": [{"role": "user", "content": f"{number}"}], **more} for number in range(count)]


def table(all_bodies):
    names = [f"r{number}" for number in range(len(all_bodies))]
    return pa.table({"custom_id": names, "url": [CHAT] * len(names), "body": all_bodies})


def results(path="out.parquet"):
    read = pq.read_table(path)
    assert read.schema == batch_schema()
    found = read.to_pylist()
    assert len({row["custom_id"] for row in found}) == len(found)
    return {row["custom_id"]: row for row in found}


def test_structs_reach_the_server_without_the_nulls_of_other_rows(batch, server, tmp_path):
    server.play(LEAKED)
    sent = [*bodies(2, tools=[TOOL, PING]), *bodies(1, temperature=0.5)]
    pq.write_table(table(sent), tmp_path / "in.parquet")
    status, printed = batch("in.parquet")
    assert status == 0, printed.err
    assert "3 results in out.parquet" in printed.out
    call = json.loads(results()["r0"]["response"]["body"])["choices"][0]["message"]["tool_calls"][0]
    assert call["function"] == {"name": "get_weather", "arguments": '{"days": 3}'}
    (plain,) = [seen.json for seen in server.seen if "tools" not in seen.json]
    assert plain == sent[2]
    assert "null" not in json.dumps([seen.json for seen in server.seen])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


def test_json_strings_reach_the_server_as_they_are(batch, server, tmp_path):
    server.play("hello")
    sent = {"model": "m", "messages": [{"role": "user", "content": "é\u2028"}], "stop": None, "seed": 2**70}
    pq.write_table(table([json.dumps(sent)]), tmp_path / "in.parquet")
    assert batch("in.parquet")[0] == 0
    assert [seen.json for seen in server.seen] == [sent]


@pytest.mark.parametrize(("source", "output"), [("in.jsonl", "out.parquet"), ("in.parquet", "out.jsonl")])
def test_one_may_be_json_lines(batch, server, tmp_path, source, output):
    server.play("hello")
    pq.write_table(table(bodies(30)), tmp_path / "in.parquet")
    lines = [{"custom_id": f"r{number}", "url": CHAT, "body": body} for number, body in enumerate(bodies(30))]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert batch(source, output)[0] == 0
    if output == "out.parquet":
        answers = {name: json.loads(row["response"]["body"]) for name, row in results().items()}
    else:
        read = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
        answers = {row["custom_id"]: row["response"]["body"] for row in read}
    assert sorted(answers) == sorted(f"r{number}" for number in range(30))
    assert {answer["choices"][0]["message"]["content"] for answer in answers.values()} == {"hello"}
    server.play("other")
    assert "has all results already" in batch(source, output)[1].err
    assert not server.seen


def test_rows_that_are_not_requests_and_errors_of_the_server(batch, server, tmp_path):
    server.play(http_error(400, "no"))
    pq.write_table(
        pa.table({
            "custom_id": ["a", None, "b", "c", "d"],
            "method": ["POST", None, "GET", None, None],
            "url": [CHAT, CHAT, CHAT, "/v1/files", CHAT],
            "body": [json.dumps(bodies(1)[0]), "{}", "{}", "{}", "{"],
        }),
        tmp_path / "in.parquet",
    )  # fmt: skip
    status, printed = batch("in.parquet")
    assert (status, len(server.seen)) == (1, 1)
    assert "5 failed: see out.errors.jsonl" in printed.out
    found = results()
    assert found["a"]["response"]["status_code"] == 400
    assert (found["b"]["response"], found["b"]["error"]["code"]) == (None, "invalid_line")
    errors = {row["line"]: row for row in map(json.loads, (tmp_path / "out.errors.jsonl").read_text().splitlines())}
    assert {line: row["custom_id"] for line, row in errors.items()} == {1: "a", 2: None, 3: "b", 4: "c", 5: "d"}
    assert errors[2]["message"] == "'custom_id' is None"
    assert errors[5]["message"].startswith("'body' is not valid JSON")


def test_the_same_id_twice_and_an_input_that_changed(batch, server, tmp_path):
    server.play("hello", http_error(401, "wrong key"))
    twice = table(bodies(3)).set_column(0, "custom_id", pa.array(["a", "b", "b"]))
    pq.write_table(twice, tmp_path / "in.parquet")
    status, printed = batch("in.parquet")
    assert (status, server.seen) == (2, [])
    assert "has the custom_id 'b' in lines 2 and 3" in printed.err
    pq.write_table(table(bodies(3)), tmp_path / "in.parquet")
    assert "1 results are in out.parquet.part" in batch("in.parquet", "out.parquet", "--concurrency", "1")[1].err
    pq.write_table(table(bodies(4)), tmp_path / "in.parquet")
    status, printed = batch("in.parquet")
    assert status == 2
    assert "input changed since" in printed.err


def test_an_id_that_parquet_cannot_have(batch, server, tmp_path):
    server.play("hello")
    lines = [{"custom_id": name, "url": CHAT, "body": bodies(1)[0]} for name in ("a", "\ud800")]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    status, printed = batch("in.jsonl")
    assert (status, server.seen) == (2, [])
    assert "'in.jsonl', line 2: Parquet cannot have this custom_id" in printed.err
    assert batch("in.jsonl", "out.jsonl")[0] == 0


@pytest.mark.exhaustive
def test_a_full_disk_loses_nothing(server, tmp_path):
    """The log has room for all results, and the output for none."""
    server.play(HttpAnswer(pieces=(json.dumps(completion("x" * 100)).encode(),)))
    pq.write_table(table(bodies(20)), tmp_path / "in.parquet")
    (tmp_path / "out.parquet.tmp").symlink_to("/dev/full")
    command = [sys.executable, "-B", "-m", "promptools", "batch", "in.parquet", "out.parquet", "--no-detect"]
    for size in (3000, None):

        def limit_files(size=size):
            if size:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        done = subprocess.run(
            [*command, "--base-url", server.url], cwd=tmp_path, preexec_fn=limit_files, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        if size:
            assert done.returncode == 1
            assert "cannot write 'out.parquet.part': File too large; nothing is lost" in done.stderr
            (tmp_path / "out.parquet.tmp").unlink(missing_ok=True)
            (tmp_path / "out.parquet.tmp").symlink_to("/dev/full")
    assert done.returncode == 1
    assert "cannot write 'out.parquet': No space left on device" in done.stderr
    assert "20 results are in out.parquet.part: run the same command to continue" in done.stderr
    assert "Traceback" not in done.stderr
    asked = len(server.seen)
    done = subprocess.run([*command, "--base-url", server.url], cwd=tmp_path, timeout=300, check=False)
    assert (done.returncode, len(server.seen)) == (0, asked)
    assert len(results(tmp_path / "out.parquet")) == 20


def reparse(folder, source, output, *more):
    return main(["reparse", str(folder / source), str(folder / output), *more])


@pytest.mark.exhaustive
def test_replies_are_read_as_those_of_lines(tmp_path):
    cases = rows(*ROWS_FOLDERS)[::4]
    replies = [{"id": number, "text": row.text, "tools": tools_of(row.tools)} for number, row in enumerate(cases)]
    replies = [row for row in replies if row["text"].encode(errors="ignore") == row["text"].encode(errors="replace")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in replies))
    columns = {key: [row[key] for row in replies] for key in ("id", "text")}
    tools = [None if row["tools"] is None else json.dumps(row["tools"]) for row in replies]
    pq.write_table(
        pa.table({**columns, "tools": pa.array(tools, pa.string())}), tmp_path / "in.parquet", row_group_size=200
    )
    status = reparse(tmp_path, "in.jsonl", "lines.jsonl", "--workers", "1")
    assert reparse(tmp_path, "in.parquet", "out.jsonl", "--workers", "1") == status
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "lines.jsonl").read_bytes()
    assert reparse(tmp_path, "in.jsonl", "mixed.parquet", "--workers", "1") == status
    assert reparse(tmp_path, "in.parquet", "out.parquet", "--workers", "3") == status
    read = pq.read_table(tmp_path / "out.parquet")
    assert read.schema == reparsed_file_schema()
    assert read == pq.read_table(tmp_path / "mixed.parquet")
    for line, row in zip((tmp_path / "lines.jsonl").read_text().splitlines(), read.to_pylist(), strict=True):
        assert as_line(row) == json.loads(line)


def as_line(row):
    """What the line of a row of results is."""
    line = {key: value for key, value in row.items() if value}
    line["id"] = int(row["id"])
    for call in line.get("calls", []):
        call["arguments"] = json.loads(call["arguments"])
    for owner in (line, *line.get("calls", [])):
        if fixes := owner.pop("fixes", None):
            places = [f" at {fix['path']}" if fix["path"] else "" for fix in fixes]
            owner["fixes"] = [f"{fix['kind']}: {fix['detail']}{at}" for fix, at in zip(fixes, places, strict=True)]
    return line


def test_replies_that_cannot_be_read(tmp_path, capsys):
    columns = {
        "text": ["one", None, "two", "three", LEAKED],
        "tools": [None, None, "[", "5", json.dumps([TOOL])],
        "dialect": [None, None, None, None, "none"],
        "custom_id": ["a", "b", "c", "d", "e"],
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    assert reparse(tmp_path, "in.parquet", "out.parquet", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"replies": 5, "with_calls": 0, "failed": 4}
    first, *failed = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert (first["custom_id"], first["content"], first["error"]) == ("a", "one", None)
    assert [(row["custom_id"], row["error"]["line"]) for row in failed] == [("b", 2), ("c", 3), ("d", 4), ("e", 5)]
    assert failed[0]["error"]["message"] == "'text' is None; it must be the reply, a string"
    assert failed[1]["error"]["message"].startswith("'tools' is not valid JSON")
    assert all(row["calls"] == row["malformed"] == row["fixes"] == [] for row in failed)


def test_what_a_row_cannot_have_is_an_error(tmp_path):
    lines = [{"id": {"run": 1}, "text": "a\ud800b"}, {"id": "\ud800", "custom_id": None, "text": "hello"}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert reparse(tmp_path, "in.jsonl", "out.parquet", "--workers", "1") == 1
    first, second = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert (first["id"], first["content"]) == ('{"run": 1}', None)
    assert "surrogates not allowed" in first["error"]["message"]
    assert (second["id"], second["custom_id"], second["content"]) == ("\\ud800", None, "hello")
