"""`promptools serve` as a process of its own, before a real HTTP server."""

import subprocess
import sys

import pytest
from upstream import Answer, running

from promptools.transport import installed

pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(server):
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--base-url", server.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield next(line.split()[1] for line in process.stdout if line.startswith("listening "))
    process.terminate()
    process.wait(timeout=10)
    process.stdout.close()


@pytest.mark.parametrize("path", ["/models", "/chat/completions"])
def test_the_servers_own_headers_are_the_only_ones(server, proxy, path):
    server.play(Answer(pieces=(b"{}",), headers={"Access-Control-Allow-Origin": "https://a.example"}))
    with installed().module.Client(timeout=10) as http:
        answer = http.post(proxy + path, json={"model": "m", "messages": []})
    assert [value.partition("/")[0] for value in answer.headers.get_list("server")] == ["BaseHTTP"]
    assert len(answer.headers.get_list("date")) == 1
    assert answer.headers.get_list("access-control-allow-origin") == ["https://a.example"]
