"""`promptools serve` as a process of its own, before a real HTTP server."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from upstream import Answer, chunk, running, sse

from promptools.transport import installed_library

pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@contextmanager
def serve(server, prepare=lambda: None):
    """Run the proxy; `prepare` is called in its process first."""
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--base-url", server.url]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background job ignores interrupts, and so would its children
        preexec_fn=lambda: (signal.signal(signal.SIGINT, signal.SIG_DFL), prepare()),  # noqa: PLW1509 takes no lock
    ) as process:
        yield process, next(line.split()[1] for line in process.stdout if line.startswith("listening "))
        process.terminate()
        process.wait(timeout=300)


@pytest.fixture(scope="module")
def proxy(server):
    with serve(server) as (_, url):
        yield url


@pytest.mark.parametrize("path", ["/models", "/chat/completions"])
def test_the_servers_own_headers_are_the_only_ones(server, proxy, path):
    server.play(Answer(pieces=(b"{}",), headers={"Access-Control-Allow-Origin": "https://a.example"}))
    with installed_library().module.Client(timeout=300) as http:
        answer = http.post(proxy + path, json={"model": "m", "messages": []})
    assert [value.partition("/")[0] for value in answer.headers.get_list("server")] == ["BaseHTTP"]
    assert len(answer.headers.get_list("date")) == 1
    assert answer.headers.get_list("access-control-allow-origin") == ["https://a.example"]


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process are read by Linux' prlimit")
def test_it_may_open_as_many_files_as_the_system_allows(server):
    """Each stream has two connections, and 1024 is the usual limit: too few for one worker."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serve(server, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, most), most))) as (process, url):
        with installed_library().module.Client(timeout=300) as http:
            assert http.get(url.removesuffix("/v1") + "/healthz").status_code == 200  # it serves: the limit is set
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (most, most)


def test_an_interrupted_stream_ends_the_proxy_without_a_traceback(server):
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))
    module = installed_library().module
    with serve(server) as (process, url), module.Client(timeout=300) as http:
        body = {"model": "m", "messages": [], "stream": True}
        with http.stream("POST", f"{url}/chat/completions", json=body) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            process.send_signal(signal.SIGINT)
            assert b"event: error\n" in b"".join(pieces)
        assert process.wait(timeout=300) == 130
        assert "Traceback" not in process.stderr.read()
