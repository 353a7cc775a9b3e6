"""HTTP as real clients write it: each request reaches the server as if it were an ordinary one."""

import importlib.util
import json
import socket

import pytest
from serving import request, serving
from upstream import completion, running

from promptools.profiles import Config
from promptools.proxy import Proxy

CHAT = "/v1/chat/completions"
HELLO = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def protocols():
    from promptools.cli.http_server import http_protocol

    return ["h11", *([http_protocol()] if importlib.util.find_spec("httptools") else [])]


@pytest.fixture(scope="module", params=protocols(), ids=lambda kind: kind if isinstance(kind, str) else "serve")
def port(request, server):
    with serving(Proxy(base_url=server.url, config=Config()), request.param) as port:
        yield port


def ask(port, *pieces):
    """Send pieces, of which the last lets the connection be closed, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=300) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            sock.sendall(piece)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize("pieces", [1, 2, 40])
def test_an_offer_of_http2_is_not_taken_and_the_request_is_whole(server, port, pieces):
    """As Java's HTTP client makes it with every request."""
    server.play(completion("hello"))
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAB")
    data = request(f"POST {CHAT}?a=1 HTTP/1.1", "Host: localhost", *offer, body=HELLO)
    data += request(f"POST {CHAT}?a=2 HTTP/1.1", "Host: localhost", "Connection: close", body=HELLO)
    size = len(data) // pieces + 1
    answer = ask(port, *(data[start : start + size] for start in range(0, len(data), size)))
    assert (answer.count(b"HTTP/1.1 200 OK"), answer.count(b"hello")) == (2, 2)
    assert [(seen.path, seen.body) for seen in server.seen] == [(f"{CHAT}?a=1", HELLO), (f"{CHAT}?a=2", HELLO)]
    assert not {"upgrade", "http2-settings"} & {name.lower() for name in server.seen[0].headers}


@pytest.mark.parametrize("tools", [[], [{"type": "function", "function": {"name": "f"}}]], ids=["plain", "tools"])
def test_a_whole_answer_has_a_length_and_no_chunks(server, port, tools):
    """Clients of HTTP/1.0, such as ApacheBench, know no chunks."""
    server.play(completion("hello"))
    body = json.dumps({**json.loads(HELLO), **({"tools": tools} if tools else {})}).encode()
    head, _, content = ask(port, request(f"POST {CHAT} HTTP/1.0", "Host: localhost", body=body)).partition(b"\r\n\r\n")
    assert json.loads(content)["choices"][0]["message"]["content"] == "hello"
    assert f"content-length: {len(content)}" in head.decode().lower().split("\r\n")
