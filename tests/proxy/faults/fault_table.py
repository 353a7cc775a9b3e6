"""What upstreams do wrong: each fault is a function that answers one request, byte by byte."""

import gzip
import json
import zlib

from raw_server import head, in_chunk, reset, stall
from upstream import chunk, completion

PARIS = '{"city": "Paris"}'
RIGHT = completion("It is sunny.")
SSE = "text/event-stream"


def events(*bodies, done=True):
    return b"".join(b"data: %s\n\n" % json.dumps(body).encode() for body in bodies) + (b"data: [DONE]\n\n" * done)


def text(words):
    return chunk({"content": words})


def call(arguments, **more):
    function = {"arguments": arguments, **({"name": "get_weather"} if more else {})}
    return chunk({"tool_calls": [{"index": 0, "function": function, **more}]})


BEGINNING = events(chunk({"role": "assistant", "content": ""}), text("It is "), done=False)
HALF_CALL = events(call('{"city": "Pa', id="a", type="function"), done=False)
GOOD = events(text("It is sunny."), chunk({}, "stop"))
HALF_JSON = json.dumps(RIGHT).encode()[:-60]


def killed(connection, request):
    """The process dies in the middle of a text."""
    if request.get("stream"):
        connection.sendall(head(SSE, chunked=True) + in_chunk(BEGINNING))
    else:
        connection.sendall(head(length=len(HALF_JSON) + 60) + HALF_JSON)
    reset(connection)


def killed_in_a_call(connection, request):
    """The process dies in the middle of a call."""
    body = json.dumps(completion(None, [("get_weather", PARIS)])).encode()
    cut = body.index(b"Par")
    if request.get("stream"):
        connection.sendall(head(SSE, chunked=True) + in_chunk(BEGINNING + HALF_CALL))
    else:
        connection.sendall(head(length=len(body)) + body[:cut])
    reset(connection)


def killed_in_a_line(connection, request):
    """The process dies in the middle of a line."""
    if request.get("stream"):
        connection.sendall(head(SSE, chunked=True) + in_chunk(BEGINNING + events(text("sunny"), done=False)[:-20]))
    else:
        connection.sendall(head(chunked=True) + in_chunk(HALF_JSON))
    reset(connection)


def ended_in_a_call(connection, request):
    """The stream ends in the middle of a call, as if it were complete."""
    if request.get("stream"):
        connection.sendall(head(SSE, chunked=True) + in_chunk(HALF_CALL) + in_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    else:
        body = json.dumps(completion(None, [("get_weather", '{"city": "Pa')])).encode()
        connection.sendall(head(length=len(body)) + body)


def half_a_line(connection, request):
    """The stream ends inside a line."""
    data = BEGINNING + HALF_CALL + b'data: {"id": "chatcmpl-1", "choices": [{"ind'
    if request.get("stream"):
        connection.sendall(head(SSE, chunked=True) + in_chunk(data) + b"0\r\n\r\n")
    else:
        connection.sendall(head(length=len(HALF_JSON)) + HALF_JSON)


def stalled(connection, request):
    """Nothing comes after the beginning."""
    if request.get("stream"):
        connection.sendall(head(SSE, chunked=True) + in_chunk(BEGINNING))
    else:
        connection.sendall(head(length=len(HALF_JSON) + 60) + HALF_JSON)
    stall(connection)


def stalled_at_once(connection, request):
    """Nothing comes at all."""
    stall(connection)


def error_under_200(connection, request):
    """An error has the status 200."""
    body = json.dumps({"error": {"message": "the model is gone", "code": 500}}).encode()
    connection.sendall(head(length=len(body)) + body)


def error_in_the_stream(connection, request):
    """An error is an event among the others."""
    body = BEGINNING + events({"error": {"message": "the model is gone", "type": "server_error", "code": 500}})
    connection.sendall(head(SSE, length=len(body)) + body)


def a_page(connection, request):
    """A gateway answers with a page."""
    body = b"<html><body>It works!</body></html>"
    connection.sendall(head("text/html", length=len(body)) + body)


def nothing(connection, request):
    """The body is empty."""
    connection.sendall(head(length=0))


def no_answer(connection, request):
    """The connection is closed."""


def stream_as_json(connection, request):
    """A stream has the content type of JSON."""
    connection.sendall(head(length=len(GOOD)) + GOOD)


def json_as_stream(connection, request):
    """JSON has the content type of a stream."""
    body = json.dumps(RIGHT).encode()
    connection.sendall(head(SSE, length=len(body)) + body)


def json_as_text(connection, request):
    """JSON has the content type of a page."""
    body = json.dumps(RIGHT).encode()
    connection.sendall(head("text/html", length=len(body)) + body)


def closed(connection, request):
    """The connection is closed in the middle of a text, where that is how a response ends."""
    body = BEGINNING if request.get("stream") else HALF_JSON
    connection.sendall(head(SSE if request.get("stream") else "application/json") + body)


def closed_in_a_call(connection, request):
    """The same, in the middle of a call."""
    body = json.dumps(completion(None, [("get_weather", PARIS)])).encode()
    data, kind = (HALF_CALL, SSE) if request.get("stream") else (body[: body.index(b"Par")], "application/json")
    connection.sendall(head(kind) + data)


def no_end(connection, request):
    """A stream ends after a whole event, with neither a finish reason nor [DONE]; JSON ends in the middle."""
    data, kind = (BEGINNING, SSE) if request.get("stream") else (HALF_JSON, "application/json")
    connection.sendall(head(kind, chunked=True) + in_chunk(data) + b"0\r\n\r\n")


def bad_chunks(connection, request):
    """What follows the first chunk is none."""
    data, kind = (BEGINNING, SSE) if request.get("stream") else (HALF_JSON, "application/json")
    connection.sendall(head(kind, chunked=True) + in_chunk(data) + b"zz\r\nthis is no chunk\r\n")


def half_a_chunk(connection, request):
    """The connection is closed inside a chunk."""
    data, kind = (GOOD, SSE) if request.get("stream") else (json.dumps(RIGHT).encode(), "application/json")
    connection.sendall(head(kind, chunked=True) + in_chunk(data)[:-40])


def half_a_gzip(connection, request):
    """Compressed content ends early."""
    body, kind = (GOOD, SSE) if request.get("stream") else (json.dumps(RIGHT).encode(), "application/json")
    data = gzip.compress(body)[: len(gzip.compress(body)) // 3]
    connection.sendall(head(kind, "Content-Encoding: gzip", length=len(data)) + data)


def two_lengths(connection, request):
    """Where the response ends is uncertain."""
    body = json.dumps(RIGHT).encode()
    connection.sendall(head("application/json", f"Content-Length: {len(body) - 9}", length=len(body)) + body)


def a_head_that_is_too_long(connection, request):
    """The header has 200 KB."""
    connection.sendall(head("application/json", *(f"X-{n}: {'x' * 1000}" for n in range(200)), length=2) + b"{}")


def no_http(connection, request):
    """Another protocol is spoken."""
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def answer_of(request):
    return (GOOD, SSE) if request.get("stream") else (json.dumps(RIGHT).encode(), "application/json")


def interim(connection, request):
    """Interim responses come before the answer."""
    data, kind = answer_of(request)
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" + hints + head(kind, length=len(data)) + data)


def http_1_0(connection, request):
    """The server speaks HTTP/1.0, and ends its answer by closing the connection."""
    data, kind = answer_of(request)
    connection.sendall(head(kind).replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Connection: close\r\n", b"") + data)


def a_long_head(connection, request):
    """The header has 80 KB, in a hundred fields."""
    data, kind = answer_of(request)
    connection.sendall(head(kind, *(f"X-{n}: {'x' * 800}" for n in range(100)), length=len(data)) + data)


def bytes_that_are_no_text(connection, request):
    """Between the words are bytes that are not UTF-8."""
    data, kind = answer_of(request)
    data = data.replace(b"It is ", b"It \xff\xfe is ")
    connection.sendall(head(kind, length=len(data)) + data)


def no_gzip(connection, request):
    """What is no gzip is said to be."""
    body = json.dumps(RIGHT).encode()
    connection.sendall(head("application/json", "Content-Encoding: gzip", length=len(body)) + body)


def bomb(connection, request):
    """Some kilobytes become 16 megabytes."""
    connection.sendall(head("application/json", "Content-Encoding: gzip", length=len(BOMB)) + BOMB)


def bomb_as_stream(connection, request):
    """The same, in a stream."""
    connection.sendall(head(SSE, "Content-Encoding: gzip", length=len(STREAM_BOMB)) + STREAM_BOMB)


def compressed(prefix, filling, count, suffix):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(prefix), *(packer.compress(filling) for _ in range(count)), packer.compress(suffix)]
    return b"".join(parts) + packer.flush()


MEGABYTE = b"a" * (1 << 20)
_before, _after = json.dumps(completion("|")).encode().split(b"|")
BOMB = compressed(_before, MEGABYTE, 16, _after)
_before, _after = events(text("|")).split(b"|")
STREAM_BOMB = compressed(_before, MEGABYTE, 16, _after)

FAULTS = [
    killed, killed_in_a_line, killed_in_a_call, ended_in_a_call, half_a_line, error_under_200, error_in_the_stream,
    a_page, nothing, no_answer, stream_as_json, json_as_stream, json_as_text, no_gzip, bomb, bomb_as_stream,
    closed, closed_in_a_call, no_end, bad_chunks, half_a_chunk, half_a_gzip, two_lengths, a_head_that_is_too_long,
    no_http, interim, http_1_0, a_long_head, bytes_that_are_no_text,
]  # fmt: skip
HARMLESS = {
    stream_as_json, json_as_stream, json_as_text, interim, http_1_0, a_long_head, bytes_that_are_no_text
}  # fmt: skip
"""Faults after which there may be an answer, which is then the right one."""
SERVED = {interim, http_1_0, a_long_head}
"""Those after which there must be one."""
CUT = {ended_in_a_call}
"""Faults after which there may be an answer without calls that says that it was cut off."""
BROKEN = [
    killed, killed_in_a_line, half_a_line, closed, closed_in_a_call, no_end, bad_chunks, half_a_chunk, half_a_gzip
]  # fmt: skip
"""Faults that break a stream off after a part of its text."""
NO_ANSWERS = [
    killed, no_answer, a_page, nothing, error_under_200, bad_chunks, half_a_chunk, no_http, no_gzip, closed,
    two_lengths, a_head_that_is_too_long,
]  # fmt: skip
"""Faults after which there is nothing to answer with, whatever the route."""


# --- an Ollama


LINES = b"".join(
    json.dumps({"model": "m", "message": {"role": "assistant", "content": word}, "done": False}).encode() + b"\n"
    for word in ("It ", "is ")
)
LAST_LINE = b'{"message": {"role": "assistant", "content": "sunny."}, "done": true, "model": "m"}'
NDJSON = "application/x-ndjson"


def killed_ollama(connection, request):
    """The process dies between two lines."""
    connection.sendall(head(NDJSON, chunked=True) + in_chunk(LINES))
    reset(connection)


def no_last_line(connection, request):
    """The stream ends without its last line."""
    connection.sendall(head(NDJSON, chunked=True) + in_chunk(LINES) + b"0\r\n\r\n")


def half_a_last_line(connection, request):
    """The stream ends inside its last line."""
    connection.sendall(head(NDJSON, chunked=True) + in_chunk(LINES + LAST_LINE[:-30]) + b"0\r\n\r\n")


def no_line_break(connection, request):
    """The last line is whole, but for its line break."""
    connection.sendall(head(NDJSON, chunked=True) + in_chunk(LINES + LAST_LINE) + b"0\r\n\r\n")
