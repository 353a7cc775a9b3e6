"""`promptools serve --workers`: processes that share one socket, are replaced, and drain together."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from upstream import Answer, completion, running

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found in /proc"),
]

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
KEY = "s3cret-key-1234"


@contextmanager
def serve(server, *arguments):
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--no-detect"]
    command += ["--base-url", server.url] if server else []
    environment = {**os.environ, "PROMPTOOLS_API_KEY": KEY}
    with subprocess.Popen(
        [*command, "--workers", "2", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        url = next(line.split()[1] for line in process.stdout if line.startswith("listening "))
        try:
            yield process, url
        finally:
            process.kill()


def workers(process):
    """The ids of the worker processes that are alive."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    ids = [int(number) for number in path.read_text().split()]
    return {number for number in ids if b"spawn_main" in _command(number)}


def _command(number):
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


def ask(url):
    with httpx.Client(timeout=300, headers={"x-api-key": KEY}) as http:
        return http.post(f"{url}/chat/completions", json=ASK)


def until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


def test_a_worker_that_dies_is_replaced_and_all_drain_together(server):
    server.play(completion())
    with serve(server) as (process, url):
        assert ask(url).status_code == 200
        until(lambda: len(workers(process)) == 2)
        before = workers(process)
        victim = min(before)
        assert KEY.encode() not in _command(victim)
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(workers(process) - before) == 1)
        assert ask(url).status_code == 200

        began, free = threading.Event(), threading.Event()
        server.play(Answer(pieces=(b"{}",), first=lambda: began.set() or free.wait(300)))
        answers = []
        client = threading.Thread(target=lambda: answers.append(ask(url)))
        client.start()
        assert began.wait(300)
        process.send_signal(signal.SIGTERM)
        until(lambda: len(workers(process)) == 1)  # the idle one has ended
        free.set()
        client.join(300)
        assert answers[0].status_code == 200
        assert process.wait(300) == -signal.SIGTERM
        errors = process.stderr.read()
    assert f"worker {victim} ended (-9); it is replaced" in errors
    assert "Traceback" not in errors


def test_workers_end_with_their_parent(server):
    server.play(completion())
    with serve(server) as (process, url):
        assert ask(url).status_code == 200
        until(lambda: len(workers(process)) == 2)
        alive = workers(process)
        process.kill()
        process.wait(300)
        until(lambda: not any(b"spawn_main" in _command(number) for number in alive))


def test_a_hangup_reaches_all_workers(server, tmp_path):
    config = tmp_path / "promptools.toml"
    text = f'[providers.a]\nkind = "vllm"\nbase_url = "{server.url}"\ndetect = false\n'
    config.write_text(text)
    with serve(None, "--config", str(config)) as (process, url):
        server.play(completion())
        assert ask(url).status_code == 200
        until(lambda: len(workers(process)) == 2)
        config.write_text(f"{text}[proxy]\nrequests_per_minute = 1\n")
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reader.start()
        until(lambda: process.send_signal(signal.SIGHUP) or sum("was reloaded" in line for line in lines) >= 2)
        assert len(workers(process)) == 2
        assert 429 in {ask(url).status_code for _ in range(3)}


def test_a_second_signal_ends_all_at_once(server):
    began, free = threading.Event(), threading.Event()
    server.play(Answer(pieces=(b"{}",), first=lambda: began.set() or free.wait(300)))
    with serve(server) as (process, url):
        failed = threading.Event()

        def fail():
            # what was asked ends with a 503 if there is time to write it, else the connection breaks
            with suppress(httpx.HTTPError):
                assert ask(url).status_code == 503
            failed.set()

        client = threading.Thread(target=fail)
        client.start()
        assert began.wait(300)
        process.send_signal(signal.SIGTERM)
        until(lambda: len(workers(process)) == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == -signal.SIGTERM
        assert failed.wait(300)
        free.set()
        assert "Traceback" not in process.stderr.read()


def test_the_workers_count_together(tmp_path, monkeypatch):
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running() as server, serve(server) as (process, url):
        server.play(*[completion("hi")] * 8)
        assert [ask(url).status_code for _ in range(8)] == [200] * 8
        page = httpx.get(f"{url.removesuffix('/v1')}/metrics", headers={"x-api-key": KEY}).text
        counts = [line for line in page.splitlines() if line.startswith("promptools_requests_total{")]
        assert sum(float(line.rpartition(" ")[2]) for line in counts) == 8
        assert [*tmp_path.glob("promptools-metrics-*")]
        process.terminate()
        assert process.wait(300) == -signal.SIGTERM
    assert not [*tmp_path.glob("promptools-metrics-*")]
