"""`promptools batch` killed at random moments and run again: each custom_id exactly once in the output."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upstream import running

from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.testing.scripted_server import HttpAnswer, completion

CONCURRENCY = 8
TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object", "properties": {}}}}


def write_input(folder, requests):
    """Write the requests as JSON Lines, and as Parquet in two row groups."""
    with (folder / "in.jsonl").open("w") as file:
        for number in range(requests):
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": f"Please count. {number}"}],
                "max_tokens": 64,
                **({"tools": [TOOL]} if number % 2 else {}),
            }
            row = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(row) + "\n")
        file.write("no JSON\n")
    rows = [json.loads(text) for text in (folder / "in.jsonl").read_text().splitlines()[:-1]]
    columns = {key: [*(row[key] for row in rows), None] for key in ("custom_id", "url")}
    columns["body"] = [*(json.dumps(row["body"]) for row in rows), None]
    pq.write_table(pa.table(columns), folder / "in.parquet", row_group_size=requests // 2 + 1)


def start(folder, base_url, source="in.jsonl", output="out.jsonl"):
    command = [sys.executable, "-m", "promptools", "batch", source, output, "--base-url", base_url]
    return subprocess.Popen(
        [*command, "--no-detect", "--concurrency", str(CONCURRENCY)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_again_and_again(folder, base_url, requests, seed, times, end="jsonl"):
    """Kill the run at random sizes of its log, and then let it end; return the number of kills before the end."""
    chance = random.Random(seed)
    log = folder / f"out.{end}.part"
    marks = sorted(chance.random() * 0.9 for _ in range(times))
    kills = size_at_end = 0
    line_size = None
    for mark in [*marks, None]:
        process = start(folder, base_url, f"in.{end}", f"out.{end}")
        give_up = time.monotonic() + 300
        while mark is not None and process.poll() is None:
            assert time.monotonic() < give_up
            size = log.stat().st_size if log.exists() else 0
            if line_size is None and size > 5000:
                line_size = size / max(1, log.read_bytes().count(b"\n"))
            if line_size and size > mark * requests * line_size:
                time.sleep(chance.random() * 0.02)
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        out, err = process.communicate(timeout=300)
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 1, err  # for the line that is no JSON
            size_at_end += 1
            assert f"{requests} results in out.{end}" in out or "has all results already" in err
    assert size_at_end >= 1
    return kills


def check_output(folder, requests, end="jsonl"):
    if end == "parquet":
        results = pq.read_table(folder / "out.parquet").to_pylist()
    else:
        results = [json.loads(text) for text in (folder / "out.jsonl").read_bytes().splitlines()]
    assert sorted(row["custom_id"] for row in results) == sorted(f"r{number}" for number in range(requests))
    assert {row["response"]["status_code"] for row in results} == {200}
    (error,) = [json.loads(text) for text in (folder / "out.errors.jsonl").read_text().splitlines()]
    assert (error["line"], error["custom_id"]) == (requests + 1, None)
    names = ["in.jsonl", "in.parquet", "out.errors.jsonl", f"out.{end}"]
    assert sorted(os.listdir(folder)) == names  # noqa: PTH208 - names
    return results


@pytest.mark.parametrize(("seed", "times", "end"), [(1, 4, "jsonl"), (4, 3, "parquet")])
@pytest.mark.exhaustive
def test_killed_again_and_again_on_a_scripted_server(tmp_path, seed, times, end):
    requests = 50 * times
    write_input(tmp_path, requests)
    with running() as server:
        server.play(HttpAnswer(pieces=(json.dumps(completion("x" * 300)).encode(),), before=0.002))
        kills = kill_again_and_again(tmp_path, server.url, requests, seed, times, end)
        sent = len(server.seen)
    check_output(tmp_path, requests, end)
    assert kills == times
    # what was under way at a kill is sent again, and nothing else
    assert requests <= sent <= requests + kills * CONCURRENCY


@pytest.mark.e2e
@pytest.mark.exhaustive
@pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")
def test_killed_again_and_again_on_a_real_llamacpp(tmp_path_factory, tmp_path):
    requests = 100
    write_input(tmp_path, requests)
    call = '<tool_call>\n{"name": "count", "arguments": {}}\n</tool_call>'
    script = [ScriptedReply("Please count.", f"I count.\n{call}")]
    with serve(script, template="hermes", name="counting", folder=tmp_path_factory.mktemp("counting")) as server:
        kills = kill_again_and_again(tmp_path, server.base_url, requests, 3, times=2)
    assert kills == 2
    for row in check_output(tmp_path, requests):
        message = row["response"]["body"]["choices"][0]["message"]
        names = [call["function"]["name"] for call in message.get("tool_calls") or []]
        assert names == (["count"] if int(row["custom_id"][1:]) % 2 else [])


@pytest.mark.exhaustive
def test_interrupted(tmp_path):
    write_input(tmp_path, 150)
    with running() as server:
        server.play(HttpAnswer(pieces=(json.dumps(completion("hi")).encode(),), before=0.05))
        process = start(tmp_path, server.url)
        while len(server.seen) < 50:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 130
        assert "results are in out.jsonl.part: run the same command to continue" in err
        assert "Traceback" not in err
        _, err = start(tmp_path, server.url).communicate(timeout=300)
    check_output(tmp_path, 150)
