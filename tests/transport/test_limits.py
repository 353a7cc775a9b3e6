"""Replies without an end, over sockets: an error that says what to raise, or a pass, and memory that stays flat."""

import asyncio
import json
import select
import socket
import threading
import tracemalloc
import zlib
from contextlib import contextmanager, suppress

import pytest
from test_drivers import FAMILIES
from upstream import chunk, completion, few_certificates

from promptools import StreamParser
from promptools.errors import UsageError
from promptools.exchange.failures import SHOWN_ERROR
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.transport import Session, intercept
from promptools.transport.http_library import import_library
from promptools.transport.response_content import MAX_PIECE, Decompressor, supported_encodings

MB = 1 << 20
LIMIT = MB // 4
FLAT = 12 * MB
"""What such a limit, or a pass, may take at most: with what sockets, parsers and this test take, and a margin."""
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def head(kind, *more, status="200 OK"):
    fields = "".join(f"{each}\r\n" for each in more)
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{fields}Connection: close\r\n\r\n".encode()


def bomb():
    """The beginning of a gzip file, and a block to be repeated: a megabyte of blanks in a kilobyte."""
    pack = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    start = pack.compress(b"") + pack.flush(zlib.Z_FULL_FLUSH)
    return start, (pack.compress(b" " * MB) + pack.flush(zlib.Z_FULL_FLUSH)) * 8


START, BLOCK = bomb()
GZIP = "Content-Encoding: gzip"
SSE, JSON, NDJSON = "text/event-stream", "application/json", "application/x-ndjson"
WORDS = b"data: %b\n\n" % json.dumps(chunk({"content": "hello, " * 50})).encode()
ENDLESS = {
    "a gzip bomb": (head(JSON, GZIP) + START, BLOCK, False),
    "a gzip bomb, streamed": (head(SSE, GZIP) + START, BLOCK, True),
    "a body": (head(JSON) + b'{"x": "', b"x" * 65536, False),
    "a line of an event": (head(SSE) + b"data: ", b"x" * 65536, True),
    "an event of many lines": (head(SSE), b"data: x\n" * 8192, True),
    "an event between comments": (head(SSE), b"x\ndata: %b\n: x\n" % (b"x" * 500) * 128, True),
    "a line that is no event": (head(SSE), b"x" * 65536, True),
    "many calls": (
        head(SSE),
        b"data: %b\n\n" % json.dumps(chunk({"tool_calls": [{"index": 1, "id": "x" * 200}]})).encode() * 64,
        True,
    ),
    "thoughts": (head(SSE), b"data: %b\n\n" % json.dumps(chunk({"reasoning": "Hm. " * 999})).encode() * 8, True),
    "an error, compressed": (head(JSON, GZIP, status="500 Oops") + START, BLOCK, False),
    "an error": (head(JSON, status="500 Oops") + b'{"error": "', b"x" * 65536, False),
}


class Server:
    """Sends `start`, and then `part` over and over until the client goes; `full` once nobody takes it any more."""

    def __init__(self, start, part):
        self.start, self.part = start, part
        self.full = threading.Event()
        self.gone = threading.Event()

    def serve(self, connection):
        with connection, suppress(OSError):
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            connection.sendall(self.start)
            while self.part:
                if not select.select([], [connection], [], 0.3)[1]:
                    self.full.set()
                connection.sendall(self.part)
            while connection.recv(65536):  # closed with a part of the request unread, the reply would be lost
                pass
        self.gone.set()


@contextmanager
def endless(start, part):
    server = Server(start, part)

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=server.serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener, few_certificates():
        threading.Thread(target=accept, daemon=True).start()
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        yield server


@contextmanager
def flat():
    """Assert that what runs inside takes no more than `FLAT` bytes at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < FLAT
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """Import and compile all that a reply needs, so that it is not counted."""
    parser = StreamParser([TOOL["function"]])
    parser.feed("hello")
    parser.close()


@pytest.fixture(params=FAMILIES)
def family(request):
    return import_library(request.param)


def asked(family, colour, url, body, **settings):
    """Ask for a chat and read the answer to its end. On a busy machine a heartbeat would begin it before the error."""
    session = Session({"config": Config(), "detect": False, "max_reply": LIMIT, "heartbeat": 0, **settings})
    url += "/chat/completions"
    if colour == "sync":
        with intercept(family.module.Client(timeout=300), session) as http:
            answer = http.post(url, json=body)
            return answer.status_code, answer.text

    async def go():
        async with intercept(family.module.AsyncClient(timeout=300), session) as http:
            answer = await http.post(url, json=body)
            return answer.status_code, answer.text

    return asyncio.run(go())


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(("start", "part", "streamed"), ENDLESS.values(), ids=list(ENDLESS))
def test_a_reply_without_an_end_is_an_error(family, start, part, streamed, colour):
    with endless(start, part) as server, flat():
        status, text = asked(family, colour, server.url, {**HELLO, "tools": [TOOL], "stream": streamed}, hold="all")
        assert server.gone.wait(300)
    if b"500 Oops" in start:
        assert status == 500 or "crashed" in text
    else:
        assert "longer than 262,144 bytes" in text
        assert "max_reply" in text
        assert '"too_large"' in text


def test_what_is_held_until_the_end_has_a_limit_too(family):
    with endless(head(SSE), WORDS * 64) as server, flat():
        body = {**HELLO, "tools": [TOOL], "stream": True}
        status, text = asked(family, "sync", server.url, body, hold="all")
    assert status == 502
    assert "max_reply" in text


def test_a_stream_that_has_begun_ends_in_the_error(family):
    with endless(head(SSE), WORDS * 64) as server, flat():
        status, text = asked(family, "sync", server.url, {**HELLO, "tools": [TOOL], "stream": True})
    assert status == 200
    assert "hello," in text
    assert "event: error" in text
    assert "max_reply" in text


def test_the_next_mode_is_not_asked_for_the_same(family):
    with endless(*ENDLESS["a body"][:2]) as server:
        status, text = asked(family, "sync", server.url, {**HELLO, "tools": [TOOL]})
    assert status == 502
    assert len(json.loads(text)["error"]["attempts"]) == 1


PASSES = ["a gzip bomb", "a gzip bomb, streamed", "a body", "a line of an event", "a line that is no event"]


@pytest.mark.parametrize("name", PASSES)
def test_what_passes_untouched_has_no_limit(family, name):
    start, part, streamed = ENDLESS[name]
    session = Session({"config": Config(), "detect": False, "max_reply": LIMIT})
    with endless(start, part) as server, flat(), intercept(family.module.Client(timeout=300), session) as http:
        with http.stream("POST", f"{server.url}/chat/completions", json={**HELLO, "stream": streamed}) as answer:
            size = 0
            for piece in answer.iter_raw():
                size += len(piece)
                if size > 2 * FLAT:
                    break
        assert server.gone.wait(300)
    assert answer.status_code == 200


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("name", ["an error", "an error, compressed"])
@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["plain", "tools"])
def test_of_an_error_without_an_end_the_client_gets_the_start(family, name, colour, tools):
    start, part, _ = ENDLESS[name]
    with endless(start, part) as server, flat():
        status, text = asked(family, colour, server.url, {**HELLO, "tools": tools})
        assert server.gone.wait(300)
    assert status == 500
    assert "clipped by promptools" in text
    assert len(text) < 2 * SHOWN_ERROR


def test_headers_without_an_end_are_an_error(family):
    with endless(b"HTTP/1.1 200 OK\r\n", b"X-Field: x\r\n" * 1000) as server, flat():
        with pytest.raises(family.module.RemoteProtocolError):
            asked(family, "sync", server.url, {**HELLO, "tools": [TOOL]})
        assert server.gone.wait(300)


def test_a_slow_client_holds_the_server_back():
    serving = pytest.importorskip("serving", reason="it needs uvicorn").serving
    with (
        endless(head(SSE), WORDS * 64) as server,
        serving(Proxy(base_url=server.url, config=Config(), detect=False), http="auto") as port,
    ):
        for tools in ([], [TOOL]):
            server.full.clear()
            server.gone.clear()
            body = json.dumps({**HELLO, "tools": tools, "stream": True}).encode()
            with flat(), socket.create_connection(("127.0.0.1", port)) as client:
                request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
                client.sendall(request % (len(body), body))
                assert client.recv(100).startswith(b"HTTP/1.1 200")
                assert server.full.wait(300), "the server cannot write on"
            assert server.gone.wait(300)


def test_the_limit_is_a_number_of_bytes():
    for wrong in (0, -1, True, "64"):
        with pytest.raises(UsageError, match="max_reply"):
            Session({"config": Config(), "max_reply": wrong})


def test_what_is_under_the_limit_is_served(family):
    text = "x" * (LIMIT - 1000)
    body = json.dumps(completion(text)).encode()
    with endless(head(JSON, f"Content-Length: {len(body)}") + body, b"") as server:
        status, said = asked(family, "sync", server.url, {**HELLO, "tools": [TOOL]})
    assert status == 200
    assert json.loads(said)["choices"][0]["message"]["content"] == text


# -- decompression


PLAIN = b"".join(b"%d is a number\n" % number for number in range(20_000))


def packed(window):
    pack = zlib.compressobj(9, zlib.DEFLATED, window)
    return pack.compress(PLAIN) + pack.flush()


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", packed(zlib.MAX_WBITS | 16)),
        ("x-gzip", packed(zlib.MAX_WBITS | 16)),
        ("deflate", packed(zlib.MAX_WBITS)),
        ("deflate", packed(-zlib.MAX_WBITS)),
    ],
)
def test_what_was_compressed_comes_back_in_pieces_of_bounded_size(coding, data, size):
    inflate = Decompressor(coding)
    pieces = [piece for at in range(0, len(data), size) for piece in inflate.feed(data[at : at + size])]
    assert b"".join(pieces) == PLAIN
    assert max(map(len, pieces)) <= MAX_PIECE


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_gzip_in_several_members_is_one_body(size):
    data = packed(zlib.MAX_WBITS | 16) * 2 + b"\0" * 10
    inflate = Decompressor("gzip")
    pieces = [piece for at in range(0, len(data), size) for piece in inflate.feed(data[at : at + size])]
    assert b"".join(pieces) == PLAIN * 2


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_what_is_not_compressed_as_it_says_is_an_error(coding):
    with pytest.raises(zlib.error):
        list(Decompressor(coding).feed(b"\xff\xff\xff plain"))


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("gzip, deflate, br, zstd", "gzip, deflate"),
        ("br", "identity"),
        ("", "identity"),
        ("GZIP;q=0.5, *;q=0", "GZIP;q=0.5"),
        ("identity", "identity"),
    ],
)
def test_compression_is_asked_for_in_the_forms_that_are_undone_here(given, sent):
    assert supported_encodings(given) == sent


def test_what_is_compressed_otherwise_passes_as_it_came_or_is_an_error(family):
    body = b"\x1b\x02\x00not really brotli"
    with endless(head(JSON, "Content-Encoding: zz", f"Content-Length: {len(body)}") + body, b"") as server:
        session = Session({"config": Config(), "detect": False})
        with intercept(family.module.Client(timeout=300), session) as http:
            answer = http.post(f"{server.url}/chat/completions", json=HELLO)
            assert (answer.status_code, answer.headers["content-encoding"]) == (200, "zz")
            assert answer.content == body
            failed = http.post(f"{server.url}/chat/completions", json={**HELLO, "tools": [TOOL]})
    assert failed.status_code == 502
    assert "zz" in failed.text
