"""`promptools batch` on a scripted server: results, errors, faults of the server and of the files."""

import gzip
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from upstream import running

from promptools.batch import request_pool
from promptools.cli import main
from promptools.testing.scripted_server import HttpAnswer, calls_as_text, completion, http_error, json_answer

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]},
    },
}
LEAKED = calls_as_text("hermes", [("get_weather", {"days": "3"})])


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(request_pool, "FIRST_WAIT", 0.05)


def line(custom_id, *, url="/v1/chat/completions", **body):
    chat = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in url else {}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "m", **chat, **body}})


@pytest.fixture
def batch(server, tmp_path, monkeypatch, capsys):
    """Write the lines of an input, run the batch, and return its status and what was printed."""
    monkeypatch.chdir(tmp_path)

    def run(lines, *more, output="out.jsonl"):
        (tmp_path / "in.jsonl").write_text("\n".join(lines))
        status = main(["batch", "in.jsonl", output, "--base-url", server.url, "--no-detect", *more])
        return status, capsys.readouterr()

    return run


def rows(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def by_id(path):
    results = rows(path)
    assert len({row["custom_id"] for row in results}) == len(results)
    return {row["custom_id"]: row for row in results}


def test_results_with_repaired_calls(batch, server, tmp_path):
    server.play(LEAKED)
    status, printed = batch([line(f"r{number}", tools=[TOOL]) for number in range(20)])
    assert status == 0
    assert "20 results in out.jsonl" in printed.out
    results = by_id(tmp_path / "out.jsonl")
    assert sorted(results) == sorted(f"r{number}" for number in range(20))
    for result in results.values():
        assert set(result) == {"id", "custom_id", "response", "error"}
        assert (result["error"], result["response"]["status_code"]) == (None, 200)
        (call,) = result["response"]["body"]["choices"][0]["message"]["tool_calls"]
        assert (call["function"]["name"], call["function"]["arguments"]) == ("get_weather", '{"days": 3}')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_other_endpoints_are_passed_on(batch, server, tmp_path):
    server.play({"object": "list", "data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 4}})
    lines = [line("e", url="/v1/embeddings", input="hi"), line("c", url="/v1/completions", prompt="hi")]
    status, printed = batch(lines, "--json")
    assert status == 0
    assert sorted((seen.path, seen.json["model"]) for seen in server.seen) == [
        ("/v1/completions", "m"),
        ("/v1/embeddings", "m"),
    ]
    assert by_id(tmp_path / "out.jsonl")["e"]["response"]["body"]["data"] == [{"embedding": [0.5]}]
    assert json.loads(printed.out)["prompt_tokens"] == 8


def test_invalid_lines_do_not_stop_the_rest(batch, server, tmp_path):
    server.play("hello")
    lines = [line("a"), "{", line("b", stream=True), '{"custom_id": 1}', line("c", url="/v1/files"), "", line("d")]
    status, printed = batch(lines)
    assert status == 1
    assert "4 failed: see out.errors.jsonl" in printed.out
    results = by_id(tmp_path / "out.jsonl")
    assert sorted(results) == ["a", "b", "c", "d"]
    assert results["b"]["error"] == {"code": "invalid_line", "message": "'stream' is set in the body"}
    errors = {row["line"]: row for row in rows(tmp_path / "out.errors.jsonl")}
    assert {number: row["custom_id"] for number, row in errors.items()} == {2: None, 3: "b", 4: None, 5: "c"}
    assert all(row["code"] == "invalid_line" and row["message"] and row["advice"] for row in errors.values())
    assert len(server.seen) == 2


def test_the_same_id_twice_names_both_lines(batch, server, tmp_path):
    server.play("hello")
    status, printed = batch([line("a"), "", line("b"), line("c"), line("b")])
    assert status == 2
    assert "has the custom_id 'b' in lines 3 and 5" in printed.err
    assert not server.seen
    assert not (tmp_path / "out.jsonl.part").exists()


def test_the_errors_of_the_server_are_results(batch, server, tmp_path):
    server.play(http_error(400, "messages are missing"))
    status, _ = batch([line("a")])
    assert status == 1
    response = by_id(tmp_path / "out.jsonl")["a"]["response"]
    assert (response["status_code"], response["body"]["error"]["message"]) == (400, "messages are missing")
    (error,) = rows(tmp_path / "out.errors.jsonl")
    assert error == {
        "custom_id": "a",
        "line": 1,
        "code": "http_error",
        "status_code": 400,
        "message": "messages are missing",
        "advice": "correct the request",
    }


def test_a_response_that_is_not_json(batch, server, tmp_path):
    server.play(HttpAnswer(pieces=(b"<html>",), type="text/html"))
    status, _ = batch([line("a")])
    assert status == 1
    assert by_id(tmp_path / "out.jsonl")["a"]["error"]["code"] == "invalid_response"


def test_a_server_with_too_much_to_do_gets_the_requests_again(batch, server, tmp_path):
    busy = http_error(429, "too many requests")
    busy.headers["Retry-After"] = "1"
    away = [http_error(503), http_error(502), http_error(529), HttpAnswer(then="cut"), http_error(500)]
    server.play("one", "two", busy, "three", *away, "four")
    status, _ = batch([line(f"r{number}", tools=[TOOL]) for number in range(60)])
    assert status == 0
    results = by_id(tmp_path / "out.jsonl")
    assert len(results) == 60
    assert {result["response"]["status_code"] for result in results.values()} == {200}


def test_a_refused_key_ends_the_run_and_loses_nothing(batch, server, tmp_path):
    server.play("hello", "hello", http_error(401, "wrong key"))
    lines = [line(f"r{number}") for number in range(20)]
    status, printed = batch(lines, "--concurrency", "1")
    assert status == 1
    assert "the server refuses the API key: wrong key; set another one" in printed.err
    assert "2 results are in out.jsonl.part: run the same command to continue" in printed.err
    assert not (tmp_path / "out.jsonl").exists()
    server.play("hello")
    status, printed = batch(lines, "--concurrency", "1")
    assert status == 0
    assert "20 results in out.jsonl (2 of earlier runs)" in printed.out
    assert len(by_id(tmp_path / "out.jsonl")) == 20
    assert len(server.seen) == 18


def test_a_server_that_is_away_for_too_long(batch, monkeypatch, tmp_path):
    status, printed = batch([line("a")], "--base-url", "http://127.0.0.1:9/v1", "--patience", "0.1")
    assert status == 1
    assert "the server has answered no request for 0.1 s" in printed.err
    assert not (tmp_path / "out.jsonl").exists()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answered = 0
    body = json.dumps(completion("hello")).encode()

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)
        type(self).answered += 1
        if type(self).answered == 30:
            self.server.stop.set()

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.stop = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def end(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Print nothing."""


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_a_server_that_goes_away_is_waited_for(batch, tmp_path, seconds):
    Handler.answered = 0
    first = Server(0)
    port = first.server_address[1]
    back = threading.Event()
    later = []

    def restart():
        first.stop.wait(300)
        first.end()
        with socket.socket() as kept:  # nothing listens meanwhile, and nobody else can take the port
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("127.0.0.1", port))
            back.wait(seconds)
            later.append(Server(port))

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        status, _ = batch([line(f"r{number}") for number in range(400)], "--base-url", f"http://127.0.0.1:{port}/v1")
    finally:
        first.stop.set()
        thread.join()
        later[0].end()
    assert status == 0
    results = by_id(tmp_path / "out.jsonl")
    assert len(results) == 400
    assert all(result["response"]["status_code"] == 200 for result in results.values())


def test_compressed_files_on_another_file_system(batch, server, tmp_path):
    server.play("hello", http_error(400))
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress("\n".join(line(f"r{n}") for n in range(9)).encode()))
    command = ["batch", f"file://{tmp_path}/in.jsonl.gz", f"file://{tmp_path}/out.jsonl.gz"]
    assert main([*command, "--base-url", server.url, "--no-detect"]) == 1
    with gzip.open(tmp_path / "out.jsonl.gz", "rt") as file:
        assert len({json.loads(text)["custom_id"] for text in file}) == 9
    with gzip.open(tmp_path / "out.errors.jsonl.gz", "rt") as file:
        assert len(file.readlines()) == 8
    assert not (tmp_path / "out.jsonl.gz.part").exists()


def test_a_finished_batch_is_not_run_again(batch, server, tmp_path):
    server.play("hello")
    assert batch([line("a"), line("b")])[0] == 0
    server.play("other")
    status, printed = batch([line("a"), line("b")])
    assert status == 0
    assert "out.jsonl has all results already" in printed.err
    status, printed = batch([line("a"), line("c")])
    assert status == 2
    assert "has no results of 1 requests of 'in.jsonl'" in printed.err
    assert not server.seen


def test_an_input_that_changed_is_refused(batch, server, tmp_path):
    server.play("hello", http_error(401))
    assert batch([line("a"), line("b")], "--concurrency", "1")[0] == 1
    status, printed = batch([line("a"), line("c")])
    assert status == 2
    assert "is the log of another batch: input changed since" in printed.err


def test_a_dry_run_sends_nothing(batch, server, tmp_path):
    server.play("hello")
    lines = [line("a", tools=[TOOL]), line("b", model="other"), line("c", url="/v1/embeddings", input=["x" * 5000])]
    status, printed = batch(lines, "--dry-run", "--json")
    assert status == 0
    counted = json.loads(printed.out)
    assert counted["requests"] == 3
    assert counted["urls"] == {"/v1/chat/completions": 2, "/v1/embeddings": 1}
    assert counted["models"] == ["m", "other"]
    assert counted["text"]["largest_line"] == 3
    assert counted["text"]["unit"] in {"characters", "tokens of o200k_base"}
    if counted["text"]["unit"] == "characters":
        assert counted["text"]["largest"] == 5000
    status, printed = batch([*lines, "{"], "--dry-run", "--model", "mine")
    assert status == 1
    assert "mine" in printed.out
    assert "Nothing was sent" in printed.out
    assert not server.seen
    assert not server.looks
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_the_model_of_all_requests(batch, server):
    server.play("hello")
    assert batch([line("a"), line("b", model=None)], "--model", "mine")[0] == 0
    assert [seen.json["model"] for seen in server.seen] == ["mine", "mine"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["missing.jsonl", "out.jsonl"], "cannot read 'missing.jsonl': no such file"),
        (["in.jsonl", "missing/out.jsonl"], "there is no folder 'missing' for the output"),
        (["in.jsonl", "in.jsonl"], "must be different files"),
        (["in.jsonl", "."], "'.' is a folder"),
        (["empty.jsonl", "out.jsonl"], "'empty.jsonl' has no requests"),
        (["missing.parquet", "out.jsonl"], "cannot read 'missing.parquet': no such file"),
        (["in.jsonl", "out.parquet.gz"], "Parquet is compressed inside"),
        (["in.jsonl", "out.jsonl", "--log", "in.jsonl"], "must be different files"),
    ],
)
def test_files_that_cannot_be(tmp_path, monkeypatch, capsys, arguments, error):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text(line("a"))
    (tmp_path / "empty.jsonl").write_text("\n")
    assert main(["batch", *arguments, "--base-url", "http://127.0.0.1:9/v1", "--no-detect"]) == 2
    assert error in capsys.readouterr().err


def test_a_full_disk_is_an_error_and_loses_nothing(server, tmp_path):
    server.play(json_answer(completion("x" * 1000)))
    (tmp_path / "in.jsonl").write_text("\n".join(line(f"r{number}") for number in range(40)))
    command = [sys.executable, "-m", "promptools", "batch", "in.jsonl", "out.jsonl", "--base-url", server.url]
    # a module that is compiled meanwhile would be cut off in the cache of all processes
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for limit in (20_000, 60_000, None):

        def limit_files(limit=limit):
            if limit:  # what is written beyond it fails in the middle of a line, as on a disk that is full
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run(
            [*command, "--no-detect"],
            cwd=tmp_path,
            env=environment,
            preexec_fn=limit_files,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if limit == 20_000:
            assert done.returncode == 1
            assert "cannot write 'out.jsonl.part': File too large; nothing is lost" in done.stderr
            assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert len(by_id(tmp_path / "out.jsonl")) == 40
    assert len(server.seen) < 40 + 2 * 32


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_no_server_is_named(tmp_path, monkeypatch, capsys, more):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL", "PROMPTOOLS_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "in.jsonl").write_text(line("a"))
    assert main(["batch", "in.jsonl", "out.jsonl", *more]) == 2
    assert "name a server with --base-url or --provider" in capsys.readouterr().err


def test_a_request_without_a_model_is_an_error_of_its_own(batch, server, tmp_path):
    server.play({"data": [{"id": "one"}, {"id": "two"}]}, "hello")
    status, printed = batch([line("a", model="one"), line("b", model=None)])
    assert status == 1
    assert "the server lists 'one', 'two'" in printed.err
    results = by_id(tmp_path / "out.jsonl")
    assert results["a"]["response"]["status_code"] == 200
    assert results["b"]["error"]["code"] == "no_model"
    assert [seen.json["model"] for seen in server.seen if seen.method == "POST"] == ["one"]


def test_requests_without_a_model(batch, server):
    server.play({"data": [{"id": "only"}]}, "hello")
    assert batch([line("a", model=None), line("b", model="")])[0] == 0
    assert [seen.json["model"] for seen in server.seen if seen.method == "POST"] == ["only", "only"]
    status, printed = batch([line("c", model=None)], "--base-url", "http://127.0.0.1:9/v1", output="other.jsonl")
    assert status == 1
    assert printed.err == (
        "promptools batch: no answer from http://127.0.0.1:9/v1 (Connection refused);"
        " start the server there, or name another with --base-url\n"
    )
