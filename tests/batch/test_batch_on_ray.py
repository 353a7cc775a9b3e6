"""`promptools batch --ray` and `reparse --ray` on a real cluster of two nodes: nothing is lost, and nothing twice."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import environments
import pytest
from recipes.recipe import CannotMakeError

from promptools.cli import main
from promptools.testing.scripted_server import completion

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
KEY = "sk-of-the-test-4711"
PEAK = """
import resource, sys
from promptools.cli import main
status = main(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def ray_python():
    """The Python of an environment with Ray."""
    try:
        return environments.path_of("ray")
    except CannotMakeError as error:
        pytest.skip(f"Ray cannot be installed: {error}")


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


class Nodes:
    """The cluster of `ray_nodes.py`."""

    def __init__(self, python):
        script = [python, Path(__file__).with_name("ray_nodes.py")]
        self.process = subprocess.Popen(
            script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
        )
        first = self._answer()
        self.address, self.logs = first["address"], Path(first["logs"])

    def kill(self):
        """End the second node; return how many actors were on it."""
        return self._command("kill")["actors"]

    def add(self):
        self._command("add")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _command(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError(f"the cluster has ended: {self.process.wait()}")


@pytest.fixture(scope="module")
def nodes(ray_python):
    cluster = Nodes(ray_python)
    try:
        yield cluster
    finally:
        cluster.close()


class Echo(BaseHTTPRequestHandler):
    """Answers with the last message, after the server's `delay`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = body["messages"][-1]["content"]
        self.server.seen.append((text, self.headers["authorization"]))
        time.sleep(self.server.delay)
        answer = json.dumps(completion(f"echo {text}")).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


class EchoServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Echo)
        self.delay = 0.02
        self.seen = []
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address):
        """Print nothing: processes are killed here."""


@pytest.fixture
def servers():
    four = [EchoServer() for _ in range(4)]
    yield four
    for server in four:
        server.shutdown()
        server.server_close()


@pytest.fixture
def folder(tmp_path, servers):
    urls = json.dumps([server.url for server in servers])
    (tmp_path / "promptools.toml").write_text(f'[providers.four]\nbase_url = {urls}\napi_key_env = "KEY_OF_FOUR"\n')
    return tmp_path


def write_input(folder, requests):
    with (folder / "in.jsonl").open("w") as file:
        for number in range(requests):
            body = {"model": "m", "messages": [{"role": "user", "content": f"number {number}"}]}
            row = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(row) + "\n")
        file.write("no JSON\n")


def start(ray_python, address, folder, *more, **variables):
    """Start a batch with four actors, each of which takes seconds to load, or as many as `more` says."""
    command = [ray_python, "-m", "promptools", "batch", "in.jsonl", "out.jsonl", "--no-detect", "--ray", address]
    return subprocess.Popen(
        [*command, "--provider", "four", "--actors", "4", "--concurrency", "16", *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(KEY_OF_FOUR=KEY, **variables),
    )


def wait_for(condition, process, seconds=240):
    give_up = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            pytest.fail(process.communicate()[1])
        assert time.monotonic() < give_up
        time.sleep(0.02)


def contents(path):
    """Return the answer of each custom_id, each of which occurs once."""
    rows = [json.loads(text) for text in path.read_bytes().splitlines()]
    answers = {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in rows}
    assert len(answers) == len(rows)
    assert {row["response"]["status_code"] for row in rows} == {200}
    return answers


def seen(servers):
    return sum(len(server.seen) for server in servers)


def recorded(folder):
    log = folder / "out.jsonl.part"
    return max(0, log.read_bytes().count(b"\n") - 1) if log.exists() else 0


def recorded_texts(folder):
    """Return what the requests said whose results are recorded; a last row that was cut off does not count."""
    _, *rows, _ = (folder / "out.jsonl.part").read_bytes().split(b"\n")
    results = [row["result"] for row in map(json.loads, rows)]
    return {f"number {result['custom_id'].removeprefix('r')}" for result in results if result["error"] is None}


def finish(process):
    out, err = process.communicate(timeout=400)
    assert process.returncode == 1, err  # for the line that is no JSON
    assert "Traceback" not in err
    return out


def test_a_node_that_dies(ray_python, nodes, folder, servers, monkeypatch):
    requests = 600
    write_input(folder, requests)
    process = start(ray_python, nodes.address, folder)
    try:
        wait_for(lambda: recorded(folder) > requests // 4, process)
        assert nodes.kill() >= 1
        assert recorded(folder) < requests
        out = finish(process)
    finally:
        process.kill()
        process.communicate()
        nodes.add()
    assert out.startswith(f"{requests} results in out.jsonl")  # Ray prints elsewhere that actors have died
    answers = contents(folder / "out.jsonl")
    assert answers == {f"r{number}": f"echo number {number}" for number in range(requests)}
    # what was under way in the actors of the node is sent again: 4 requests and 1 chunk of results for each
    assert requests <= seen(servers) <= requests + 64
    assert all(len(server.seen) > requests // 8 for server in servers)
    # the same as here
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KEY_OF_FOUR", KEY)
    assert main(["batch", "in.jsonl", "here.jsonl", "--provider", "four", "--no-detect"]) == 1
    assert contents(folder / "here.jsonl") == answers
    assert (folder / "here.errors.jsonl").read_bytes() == (folder / "out.errors.jsonl").read_bytes()
    # the key is sent, and Ray does not have it
    assert {key for server in servers for _, key in server.seen} == {f"Bearer {KEY}"}
    logs = [path for path in nodes.logs.rglob("*") if path.is_file()]
    assert len(logs) > 10
    assert [path for path in logs if KEY.encode() in path.read_bytes()] == []


def test_a_driver_that_is_killed(ray_python, nodes, folder, servers):
    """Once: what a run takes from the log of another that was resumed is the same without Ray (test_batch_killed)."""
    requests = 400
    write_input(folder, requests)
    process = start(ray_python, nodes.address, folder, "--actors", "2")
    wait_for(lambda: recorded(folder) >= 100, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before, kept = recorded(folder), recorded_texts(folder)
    assert 100 <= before < requests
    assert len(kept) in {before, before - 1}  # all, but for the line that is no JSON
    out = finish(start(ray_python, nodes.address, folder, "--actors", "2"))
    assert f"{requests} results in out.jsonl ({before} of earlier runs)" in out
    assert contents(folder / "out.jsonl") == {f"r{number}": f"echo number {number}" for number in range(requests)}
    # What is recorded is not sent again; all else at most once more, however far the actors were ahead of the log
    times = Counter(text for server in servers for text, _ in server.seen)
    assert len(times) == requests
    assert {times[text] for text in kept} == {1}
    assert set(times.values()) <= {1, 2}


def test_servers_that_are_away_for_too_long(ray_python, nodes, folder, servers):
    write_input(folder, 20)
    for server in servers:
        server.shutdown()
        server.server_close()
    process = start(ray_python, nodes.address, folder, "--actors", "2", "--patience", "0.5")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert "the server has answered no request for 0.5 s: " in err
    assert "Traceback" not in err


def processes_with(variable):
    """Return the command lines of processes with an environment variable: those of a run and of Ray below it."""
    commands = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if variable.encode() in (folder / "environ").read_bytes():
                commands.append((folder / "cmdline").read_bytes())
    return commands


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_cluster_of_its_own_ends_with_the_command(ray_python, folder, number):
    write_input(folder, 400)
    process = start(ray_python, "local", folder, "--actors", "1", RUN_OF_THE_TEST=str(folder))
    wait_for(lambda: recorded(folder) >= 20, process)
    assert len(processes_with(f"RUN_OF_THE_TEST={folder}")) > 3
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "results are in out.jsonl.part: run the same command to continue" in err
        assert "Traceback" not in err
    give_up = time.monotonic() + 300
    while left := processes_with(f"RUN_OF_THE_TEST={folder}"):
        assert time.monotonic() < give_up, left
        time.sleep(0.2)


ACME = 'name = "acme"\n[openers]\n"((acme))" = "((/acme))"\n'


def write_replies(path, count):
    """With long ids, which are copied: what is carried counts here, and to read replies takes longer."""
    call = '<tool_call>{"name": "get_weather", "arguments": {"days": "3"}}</tool_call>'
    own = '((acme)){"name": "get_weather", "arguments": {"days": 4}}((/acme))'
    tool = {"name": "get_weather", "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}}}
    with path.open("w") as file:
        for number in range(count):
            row = {
                "id": f"{number} {'i' * 3600}",
                "text": "word " * 200 + call * (number % 3) + own * (number % 2),
                "tools": [tool],
            }
            file.write(json.dumps(row) + "\n")
            if number % 1000 == 7:
                file.write("no JSON\n\n")


def reparse(ray_python, nodes, folder, *more):
    command = [ray_python, "-c", PEAK, "reparse", "log.jsonl", "out.jsonl", "--ray", nodes.address]
    done = subprocess.run(
        [*command, *more], cwd=folder, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1, done.stderr
    return int(done.stdout.split()[-1])


def test_replies_are_read_as_in_one_process(ray_python, nodes, tmp_path):
    (tmp_path / "acme.toml").write_text(ACME)
    own = ["--dialect-file", str(tmp_path / "acme.toml")]
    peaks = []
    for count in (2_000, 8_000):
        write_replies(tmp_path / "log.jsonl", count)
        assert main(["reparse", str(tmp_path / "log.jsonl"), str(tmp_path / "one.jsonl"), "--workers", "1", *own]) == 1
        peaks.append(reparse(ray_python, nodes, tmp_path, *own))
        assert b'"dialect": "acme"' in (tmp_path / "out.jsonl").read_bytes()
        assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    size = (tmp_path / "log.jsonl").stat().st_size // 2**20
    assert size > 30
    assert peaks[1] - peaks[0] < size // 2, f"the memory of the driver grew from {peaks[0]} to {peaks[1]} MiB"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:10001"])
def test_there_is_no_such_cluster(ray_python, tmp_path, address):
    write_input(tmp_path, 1)
    command = [ray_python, "-m", "promptools", "batch", "in.jsonl", "out.jsonl", "--ray", address]
    done = subprocess.run(
        [*command, "--base-url", "http://127.0.0.1:9/v1"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert address in done.stderr
    assert "Traceback" not in done.stderr
