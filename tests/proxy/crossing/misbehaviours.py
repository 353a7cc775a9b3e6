"""What servers send that they should not: each misbehaviour has a name, and the steps that answer a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

SURPLUS = b"surplus-of-another-request"
"""Words of a server that belong to no response; no error may quote them."""


@dataclass(frozen=True)
class Reply:
    """What a right server answers to one request."""

    marker: bytes
    payload: bytes
    kind: bytes = b"application/json"
    method: bytes = b"GET"

    def head(self, *fields: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
        lines = [status, b"Content-Type: " + self.kind, b"X-Marker: " + self.marker, *fields, b"", b""]
        return b"\r\n".join(lines)

    def whole(self, *fields: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
        length = b"Content-Length: %d" % len(self.payload)
        return self.head(length, *fields, status=status) + self.body

    @property
    def body(self) -> bytes:
        return b"" if self.method == b"HEAD" else self.payload

    def with_length(self, length: bytes, *, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
        """Return a response whose Content-Length is not that of its body."""
        return self.head(b"Content-Length: " + length, status=status) + self.payload

    def chunked(self, *fields: bytes, end: bytes = b"0\r\n\r\n", coding: bytes = b"chunked") -> bytes:
        head = self.head(b"Transfer-Encoding: " + coding, *fields)
        return head if self.method == b"HEAD" else head + b"%x\r\n%b\r\n" % (len(self.payload), self.payload) + end

    def in_chunks(self, data: bytes) -> bytes:
        return self.head(b"Transfer-Encoding: chunked") + data


@dataclass(frozen=True)
class AfterEnd:
    """Bytes that are sent once the request is over, before the next one."""

    data: bytes


@dataclass(frozen=True)
class BeforeNext:
    """Bytes that are sent once the next request has arrived on the connection, before its answer."""

    data: bytes


CLOSE, RESET = "close", "reset"
Step: TypeAlias = bytes | AfterEnd | BeforeNext | str


@dataclass(frozen=True)
class Misbehaviour:
    """One way to misbehave."""

    name: str
    steps: Callable[[Reply], list[Step]]
    when: str = "asked"
    """`asked`: when the request is whole; `early`: before its body; `connected`: before it."""
    may_shift: bool = False
    """Whether a later request of the same user may get what is sent too late: it cannot be told from its answer."""


def _told(text: bytes) -> Callable[[Reply], list[Step]]:
    return lambda reply: [text, CLOSE]


def _of(head: bytes) -> Callable[[Reply], list[Step]]:
    """Send a head with these lines, and the right body."""
    return lambda reply: [head.replace(b"LENGTH", b"%d" % len(reply.payload)) + b"\r\n\r\n" + reply.payload, CLOSE]


LONG = b"x" * (200 << 10)
OK = b"HTTP/1.1 200 OK\r\n"

SINGLE: list[Misbehaviour] = [
    # lengths that are wrong
    Misbehaviour("a length that is one too small", lambda r: [r.with_length(b"%d" % (len(r.payload) - 1))]),
    Misbehaviour("a length of nothing, and a body", lambda r: [r.with_length(b"0")]),
    Misbehaviour("a length of one, and a body", lambda r: [r.with_length(b"1")]),
    Misbehaviour("a length that is too large", lambda r: [r.with_length(b"%d" % (len(r.payload) + 9)), CLOSE]),
    Misbehaviour("a negative length", lambda r: [r.with_length(b"-1")]),
    Misbehaviour("a length with a plus", lambda r: [r.with_length(b"+%d" % len(r.payload))]),
    Misbehaviour("a length in hexadecimal", lambda r: [r.with_length(b"0x%x" % len(r.payload))]),
    Misbehaviour("a length with a fraction", lambda r: [r.with_length(b"%d.0" % len(r.payload))]),
    Misbehaviour("an empty length", lambda r: [r.with_length(b"")]),
    Misbehaviour("a length beyond all integers", lambda r: [r.with_length(b"9" * 40)]),
    Misbehaviour("a list of lengths", lambda r: [r.with_length(b"%d, %d" % (len(r.payload), len(r.payload)))]),
    Misbehaviour("a list of different lengths", lambda r: [r.with_length(b"1, %d" % len(r.payload))]),
    Misbehaviour("the length twice", lambda r: [r.whole(b"Content-Length: %d" % len(r.payload))]),
    Misbehaviour("two different lengths", lambda r: [r.whole(b"Content-Length: 1")]),
    Misbehaviour("a space before the colon of the length", _of(OK + b"Content-Length : LENGTH")),
    Misbehaviour("a length in a folded line", _of(OK + b"X-A: b\r\n Content-Length: LENGTH")),
    # two framings
    Misbehaviour("chunks and a length", lambda r: [r.chunked(b"Content-Length: 3")]),
    Misbehaviour("chunks and a length of nothing", lambda r: [r.chunked(b"Content-Length: 0")]),
    Misbehaviour("a length and chunks that are none", lambda r: [r.whole(b"Transfer-Encoding: chunked"), CLOSE]),
    Misbehaviour("a length and an unknown coding", lambda r: [r.whole(b"Transfer-Encoding: xchunked"), CLOSE]),
    Misbehaviour("chunks twice", lambda r: [r.chunked(coding=b"chunked, chunked"), CLOSE]),
    Misbehaviour("chunks in two lines", lambda r: [r.chunked(b"Transfer-Encoding: chunked"), CLOSE]),
    Misbehaviour("chunks before another coding", lambda r: [r.chunked(coding=b"chunked, gzip"), CLOSE]),
    Misbehaviour("another coding before chunks", lambda r: [r.chunked(coding=b"gzip, chunked"), CLOSE]),
    Misbehaviour("the coding identity", lambda r: [r.whole(b"Transfer-Encoding: identity"), CLOSE]),
    Misbehaviour("a coding with a tab", lambda r: [r.chunked(coding=b"\x0bchunked"), CLOSE]),
    Misbehaviour("neither length nor end", lambda r: [r.head() + r.body, CLOSE]),
    # chunks
    Misbehaviour("a chunk with no size", lambda r: [r.in_chunks(b"\r\n" + r.payload), CLOSE]),
    Misbehaviour("a chunk of a negative size", lambda r: [r.in_chunks(b"-5\r\nhello\r\n0\r\n\r\n"), CLOSE]),
    Misbehaviour("a chunk size with 0x", lambda r: [r.in_chunks(b"0x5\r\nhello\r\n0\r\n\r\n"), CLOSE]),
    Misbehaviour("a chunk size beyond all integers", lambda r: [r.in_chunks(b"f" * 40 + b"\r\nhello"), CLOSE]),
    Misbehaviour("a chunk longer than its size", lambda r: [r.in_chunks(b"2\r\nhello\r\n0\r\n\r\n"), CLOSE]),
    Misbehaviour("a chunk shorter than its size", lambda r: [r.in_chunks(b"9\r\nhello\r\n0\r\n\r\n"), CLOSE]),
    Misbehaviour("chunks without an end", lambda r: [r.chunked(end=b""), CLOSE]),
    Misbehaviour("chunks with half an end", lambda r: [r.chunked(end=b"0\r\n"), CLOSE]),
    Misbehaviour("chunks that end twice", lambda r: [r.chunked(end=b"0\r\n\r\n0\r\n\r\n")]),
    Misbehaviour("chunks with padded sizes", lambda r: [r.chunked(end=b"0   \r\n\r\n")]),
    Misbehaviour("an endless chunk extension", lambda r: [r.in_chunks(b"5;" + LONG), CLOSE]),
    Misbehaviour("trailers", lambda r: [r.chunked(end=b"0\r\nX-Trailer: 1\r\nContent-Length: 5\r\n\r\n")]),
    Misbehaviour("trailers that are too long", lambda r: [r.chunked(end=b"0\r\n" + b"X-T: 1\r\n" * (32 << 10)), CLOSE]),
    Misbehaviour("a trailer with no colon", lambda r: [r.chunked(end=b"0\r\nnonsense\r\n\r\n"), CLOSE]),
    # first lines
    *(
        Misbehaviour(f"the first line {line.decode()}", _of(line + b"\r\nContent-Length: LENGTH"))
        for line in (
            b"HTTP/1.1 200OK",
            b"HTTP/1.1 2000 OK",
            b"HTTP/1.1 20 OK",
            b"HTTP/1.1 000 OK",
            b"HTTP/1.1 099 OK",
            b"HTTP/1.1 600 OK",
            b"HTTP/1.1 999 OK",
            b"HTTP/1.1 -200 OK",
            b"HTTP/1.1 OK",
            b"HTTP/1.1",
            b"HTTP/0.9 200 OK",
            b"HTTP/1.0 200 OK",
            b"HTTP/2.0 200 OK",
            b"HTTP/1.1.1 200 OK",
            b"http/1.1 200 ok",
            b"RTSP/1.0 200 OK",
            b"ICY 200 OK",
            b"GET / HTTP/1.1",
        )
    ),
    Misbehaviour("a body with no head", lambda r: [r.payload, CLOSE]),
    Misbehaviour("the greeting of SSH", _told(b"SSH-2.0-OpenSSH_9.9\r\n")),
    Misbehaviour("an alert of TLS", _told(b"\x15\x03\x01\x00\x02\x02\x46")),
    Misbehaviour("a frame of HTTP/2", _told(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\0" * 18)),
    Misbehaviour("a page", _told(b"<html><body>" + SURPLUS + b"</body></html>")),
    Misbehaviour("zeros", _told(b"\0" * 100)),
    Misbehaviour("empty lines first", lambda r: [b"\r\n\r\n" + r.whole()]),
    # fields
    Misbehaviour("a null in a name", lambda r: [r.whole(b"X\0A: b"), CLOSE]),
    Misbehaviour("a null in a value", lambda r: [r.whole(b"X-A: b\0c"), CLOSE]),
    Misbehaviour("a return in a value", lambda r: [r.whole(b"X-A: b\rContent-Length: 1"), CLOSE]),
    Misbehaviour("a field with no colon", lambda r: [r.whole(b"X-A"), CLOSE]),
    Misbehaviour("a field with no name", lambda r: [r.whole(b": b"), CLOSE]),
    Misbehaviour("a folded field", lambda r: [r.whole(b"X-A: b\r\n c"), CLOSE]),
    Misbehaviour("a head that is too long", lambda r: [r.whole(b"X-A: " + LONG), CLOSE]),
    Misbehaviour(
        "line feeds alone", lambda r: [r.head(b"Content-Length: %d" % len(r.payload)).replace(b"\r", b"") + r.body]
    ),
    Misbehaviour("a content coding that is none", lambda r: [r.whole(b"Content-Encoding: gzip")]),
    Misbehaviour("an upgrade that is only offered", lambda r: [r.whole(b"Upgrade: h2c", b"Connection: Upgrade")]),
    Misbehaviour(
        "fields about the connection", lambda r: [r.whole(b"Connection: X-A, keep-alive", b"X-A: 1", b"TE: x")]
    ),
    # what comes before a response
    Misbehaviour(
        "another protocol",
        lambda r: [r.head(b"Upgrade: x", b"Connection: Upgrade", status=b"HTTP/1.1 101 Now") + SURPLUS, CLOSE],
    ),
    Misbehaviour("another protocol without fields", lambda r: [b"HTTP/1.1 101 Now\r\n\r\n" + r.whole(), CLOSE]),
    Misbehaviour(
        "an interim response with a body",
        lambda r: [b"HTTP/1.1 103 Hints\r\nContent-Length: 5\r\n\r\nhello" + r.whole(), CLOSE],
    ),
    Misbehaviour(
        "an interim response with chunks",
        lambda r: [b"HTTP/1.1 102 Wait\r\nTransfer-Encoding: chunked\r\n\r\n" + r.whole(), CLOSE],
    ),
    Misbehaviour("a hundred interim responses", lambda r: [b"HTTP/1.1 102 Wait\r\n\r\n" * 100 + r.whole()]),
    Misbehaviour("endless interim responses", lambda r: [b"HTTP/1.1 102 Wait\r\n\r\n" * 10000, CLOSE]),
    Misbehaviour("an interim response and no other", lambda r: [b"HTTP/1.1 100 Continue\r\n\r\n", CLOSE]),
    # ends
    Misbehaviour("nothing", lambda r: [CLOSE]),
    Misbehaviour("a reset", lambda r: [RESET]),
    Misbehaviour("half a head", lambda r: [r.whole()[:20], CLOSE]),
    Misbehaviour("half a body", lambda r: [r.whole()[:-5], CLOSE]),
    Misbehaviour("half a body and a reset", lambda r: [r.whole()[:-5], RESET]),
    Misbehaviour("a response and a reset", lambda r: [r.whole(), RESET]),
    Misbehaviour("a response and an end that was not announced", lambda r: [r.whole(), AfterEnd(b""), CLOSE]),
    Misbehaviour("an end that is announced and does not come", lambda r: [r.whole(b"Connection: close")]),
    Misbehaviour("an end that is announced, and more", lambda r: [r.whole(b"Connection: close") + SURPLUS]),
    Misbehaviour(
        "HTTP/1.0 that stays open, and more",
        lambda r: [r.whole(b"Connection: keep-alive", status=b"HTTP/1.0 200 OK") + SURPLUS],
    ),
    # before the request is whole
    Misbehaviour("an answer before the body", lambda r: [r.whole()], "early"),
    Misbehaviour("an error before the body", lambda r: [r.whole(status=b"HTTP/1.1 413 Too Large")], "early"),
    Misbehaviour(
        "an answer before the body, and another after it", lambda r: [r.whole(), AfterEnd(r.whole())], "early"
    ),
    Misbehaviour("an answer before the body, and an end", lambda r: [r.whole(), CLOSE], "early"),
    Misbehaviour("an end before the body", lambda r: [CLOSE], "early"),
    Misbehaviour("an answer before the request", lambda r: [r.whole()], "connected"),
    Misbehaviour("an answer before the request, and an end", lambda r: [r.whole(), CLOSE], "connected"),
    Misbehaviour("half an answer before the request", lambda r: [r.whole()[:30]], "connected"),
    Misbehaviour("an end before the request", lambda r: [CLOSE], "connected"),
]

BASES: dict[str, Callable[[Reply], bytes]] = {
    "a whole response": lambda r: r.whole(),
    "chunks": lambda r: r.chunked(),
    "204": lambda r: r.head(status=b"HTTP/1.1 204 None"),
    "204 with a length": lambda r: r.head(b"Content-Length: 26", status=b"HTTP/1.1 204 None"),
    "304": lambda r: r.head(b"Content-Length: 26", status=b"HTTP/1.1 304 Same"),
    "an error": lambda r: r.whole(status=b"HTTP/1.1 400 Bad"),
}
MORE: dict[str, Callable[[Reply], bytes]] = {
    "text": lambda r: SURPLUS,
    "an empty line": lambda r: b"\r\n",
    "the response again": lambda r: r.whole(),
    "half a response": lambda r: r.whole()[:-4],
    "the body of another": lambda r: r.payload,
    "a chunk": lambda r: b"1a\r\n" + SURPLUS + b"\r\n0\r\n\r\n",
    "an interim response": lambda r: b"HTTP/1.1 100 Continue\r\n\r\n",
}
HOLDING = {"half a response", "an interim response"}
"""What keeps the next request waiting, if it comes too late: nothing says that it is not its answer."""
WHOLE = {"a whole response", "chunks", "an error"}
"""Responses after which a connection is used again."""


def surplus() -> list[Misbehaviour]:
    """Return all that may follow a response: with it, after it, and after the next request."""
    made: list[Misbehaviour] = []
    for base, begin in BASES.items():
        for more, rest in MORE.items():
            made.append(Misbehaviour(f"{base} and {more} at once", lambda r, b=begin, m=rest: [b(r) + m(r)]))
            made.append(
                Misbehaviour(f"{base} and {more} afterwards", lambda r, b=begin, m=rest: [b(r), AfterEnd(m(r))])
            )
            if more not in HOLDING:
                made.append(
                    Misbehaviour(
                        f"{base} and {more} too late",
                        lambda r, b=begin, m=rest: [b(r), BeforeNext(m(r))],
                        may_shift=base in WHOLE,
                    )
                )
    return made


MISBEHAVIOURS = SINGLE + surplus()
