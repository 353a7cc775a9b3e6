"""`promptools reparse`: logged replies again, in several processes as in one."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from casebook import ROWS_FOLDERS, rows, tools_of

from promptools.batch import reparsing
from promptools.batch.files import read_lines
from promptools.batch.reparsing import reparse
from promptools.cli import main
from promptools.engine import parse
from promptools.errors import PromptoolsError

TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"days": "3"}}</tool_call>'


def write(path, replies):
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))


def read(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def run(tmp_path, *more):
    return main(["reparse", str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), *more])


def test_what_is_read_of_a_reply(tmp_path, capsys):
    replies = [
        {"id": 7, "text": f"Sure.\n{CALL}", "tools": [TOOL]},
        {"custom_id": "a", "text": "<think>Hm.</think>No."},
        {"text": CALL[:40], "tools": [TOOL], "finish_reason": "length"},
    ]
    write(tmp_path / "in.jsonl", replies)
    assert run(tmp_path, "--workers", "1") == 0
    first, second, third = read(tmp_path / "out.jsonl")
    (call,) = first["calls"]
    assert (first["id"], first["content"], call["name"], call["arguments"]) == (7, "Sure.", "get_weather", {"days": 3})
    assert call["fixes"]
    assert (second["custom_id"], second["reasoning"], second["content"]) == ("a", "Hm.", "No.")
    assert third["malformed"][0]["reason"] == "truncated"
    assert "3 replies in" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_several_processes_write_the_same_bytes_as_one(tmp_path):
    cases = rows(*ROWS_FOLDERS)[::4]  # enough for every process
    replies = [{"id": number, "text": row.text, "tools": tools_of(row.tools)} for number, row in enumerate(cases)]
    assert len(replies) > 600
    write(tmp_path / "in.jsonl", replies)
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write("no JSON\n\n{}\n")
    assert run(tmp_path, "--workers", "1") == 1
    one = (tmp_path / "out.jsonl").read_bytes()
    assert run(tmp_path, "--workers", "3") == 1
    assert (tmp_path / "out.jsonl").read_bytes() == one
    results = read(tmp_path / "out.jsonl")
    assert [row.get("id") for row in results] == [*range(len(replies)), None, None]
    for row, result in zip(cases, results, strict=False):
        reply = parse(row.text, tools_of(row.tools))
        assert [call["arguments"] for call in result.get("calls", [])] == [call.arguments for call in reply.calls]
        assert result.get("content", "") == (reply.content or "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "Expecting property name"),
        ("[1]", "the line is not a JSON object"),
        ('{"text": 7}', "'text' is 7; it must be the reply, a string"),
        ('{"text": "hi", "tools": "["}', "'tools' is not valid JSON: "),
        ('{"text": "hi", "tools": 5}', ""),
        ('{"text": "hi", "tools": [{"name": 5}]}', ""),
        ('{"text": "hi", "dialect": "none"}', "none"),
        ('{"text": "hi", "dialect": ["x"]}', ""),
    ],
)
def test_lines_that_cannot_be_read(tmp_path, capsys, line, message):
    (tmp_path / "in.jsonl").write_text(f'{{"text": "one"}}\n{line}\n{{"text": "two"}}\n')
    assert run(tmp_path, "--workers", "1", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"replies": 3, "with_calls": 0, "failed": 1}
    first, second, third = read(tmp_path / "out.jsonl")
    assert (first["content"], third["content"]) == ("one", "two")
    assert second["error"]["line"] == 2
    assert message in second["error"]["message"]


def test_files_that_cannot_be(tmp_path, capsys):
    assert run(tmp_path) == 2
    assert "no such file" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    assert main(["reparse", "same", "same"]) == 2
    (tmp_path / "in.jsonl").write_text('{"text": "hi"}')
    assert main(["reparse", str(tmp_path / "in.jsonl"), f"{tmp_path}/../{tmp_path.name}/in.jsonl"]) == 2
    assert "is the input" in capsys.readouterr().err
    for output, error in ((tmp_path, "is a folder"), (tmp_path / "missing" / "out.jsonl", "no such file or folder")):
        assert main(["reparse", str(tmp_path / "in.jsonl"), str(output)]) == 2
        assert error in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_tools_as_json_in_a_string(tmp_path):
    forms = [[TOOL], json.dumps([TOOL]), [], "[]", None, "null"]
    write(tmp_path / "in.jsonl", [{"text": CALL, "tools": tools} for tools in forms])
    assert run(tmp_path, "--workers", "1") == 0
    results = read(tmp_path / "out.jsonl")
    assert results[::2] == results[1::2]
    assert results[0]["calls"][0]["arguments"] == {"days": 3}
    assert results[4]["calls"][0]["arguments"] == {"days": "3"}


@pytest.mark.exhaustive
def test_killed_at_any_time_it_leaves_no_output_and_no_process(tmp_path):
    write(tmp_path / "in.jsonl", [{"id": number, "text": CALL * 20, "tools": [TOOL]} for number in range(1500)])
    for output in ("out.jsonl", "out.parquet"):
        command = [sys.executable, "-m", "promptools", "reparse", "in.jsonl", output, "--workers", "2"]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        workers = wait_for(lambda process=process: len(children(process.pid)) >= 2 and children(process.pid))
        time.sleep(random.Random(output).random())
        assert process.poll() is None
        process.kill()
        process.wait()
        assert not (tmp_path / output).exists()
        assert wait_for(lambda workers=workers: not any(map(is_running, workers)))
    lines = (tmp_path / "in.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "in.jsonl").write_text("".join(lines[:300]))  # what is left behind is in the way of these, too
    assert main(["reparse", str(tmp_path / "in.jsonl"), str(tmp_path / "out.parquet")]) == 0
    assert pq.read_table(tmp_path / "out.parquet", columns=["id"])["id"].to_pylist() == list(map(str, range(300)))
    assert not (tmp_path / "out.parquet.tmp").exists()


@pytest.mark.parametrize("started", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_interrupted(tmp_path, started):
    """While its processes start, and then while they read."""
    text = CALL * (20 if started > 1 else 1)  # they are busy for long
    write(tmp_path / "in.jsonl", [{"text": text, "tools": [TOOL]} for _ in range(10_000)])
    process = subprocess.Popen(
        [sys.executable, "-m", "promptools", "reparse", "in.jsonl", "out.parquet", "--workers", "2"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: len(children(process.pid)) >= started)
    time.sleep(started - 1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all of its processes
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_interrupt_waits_while_a_process_is_started():
    """Also where another thread takes the signal, as Arrow's do: half of what the process reads would be written."""
    done, started = threading.Event(), []
    threading.Thread(target=done.wait, daemon=True).start()

    def start():
        with reparsing._without_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            started.append("a process")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        done.set()
    assert started == ["a process"]


def children(process):
    """The processes that a process of this machine has started to read replies."""
    started = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(") ")[2].split()[1]
            if int(parent) == process and b"spawn_main" in (folder / "cmdline").read_bytes():
                started.append(int(folder.name))
    return started


def is_running(process):
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def wait_for(condition):
    give_up = time.monotonic() + 300
    while not (result := condition()):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    return result


def test_no_more_lines_are_read_than_the_processes_need(tmp_path):
    read_so_far = 0

    def lines():
        nonlocal read_so_far
        for number in range(1, 6_001):
            read_so_far = number
            yield number, b'{"text": "hi"}'

    for done, _ in enumerate(reparse(lines(), 2), 1):
        assert read_so_far - done < 8 * 256
    assert done == 6_000


def test_an_input_that_breaks_off_is_an_error(tmp_path):
    (tmp_path / "in.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(PromptoolsError, match="cannot read"):
        list(reparse(read_lines(str(tmp_path / "in.jsonl.gz")), 2))


def test_a_process_that_ends_is_an_error():
    before = set(multiprocessing.active_children())
    results = reparse(((number, b'{"text": "hi"}') for number in range(100_000)), 2)
    next(results)
    for process in set(multiprocessing.active_children()) - before:
        process.kill()
    with pytest.raises(PromptoolsError, match="a process that reads replies has ended"):
        list(results)
