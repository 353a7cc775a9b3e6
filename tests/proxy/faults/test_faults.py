"""What upstreams do wrong, on every front: the app gets a right answer, or an error in the form of its own API.

Never a hang, never a connection that breaks off, never half a call as a whole one, and never a key sent elsewhere. A
chat completion without tools is forwarded as it is: it gets what the server gives, or an error that is more than that.
"""

import gzip
import json
import zlib

import pytest
from fronts import FRONTS, KEY, Chat, Outcome
from raw_server import RawServer, head, in_chunk, reset, stall
from serving import Canary, serving
from upstream import chunk, completion, few_certificates

from promptools.profiles import Config
from promptools.proxy import Proxy

MAX_REPLY = 1 << 20
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
]  # fmt: skip
HARMLESS = {stream_as_json, json_as_stream, json_as_text}
"""Faults after which there may be an answer, which is then the right one."""
CUT = {ended_in_a_call}
"""Faults after which there may be an answer without calls that says that it was cut off."""


@pytest.fixture(scope="module")
def server():
    raw = RawServer()
    yield raw
    raw.close()


def proxy_of(server, **settings):
    return serving(Proxy(base_url=server.url, config=Config(), detect=False, max_reply=MAX_REPLY, **settings))


@pytest.fixture(scope="module")
def clients(server):
    with few_certificates(), proxy_of(server) as port:
        made = {name: front(port) for name, front in FRONTS.items()}
        yield made
        for one in made.values():
            one.close()


@pytest.fixture(scope="module")
def hasty(server):
    with few_certificates(), proxy_of(server, deadline=0.5) as port:
        made = {name: front(port) for name, front in FRONTS.items()}
        yield made
        for one in made.values():
            one.close()


ASKED = pytest.mark.parametrize("front", FRONTS)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
OFFERED = pytest.mark.parametrize("tools", [0, 1], ids=["plain", "tools"])


def check(outcome, fault):
    if fault in CUT and outcome.error is None:
        assert (outcome.cut, outcome.calls) == (True, [])
        return
    if fault in HARMLESS and outcome.error is None:
        assert (outcome.text, outcome.calls) == ("It is sunny.", [])
        return
    assert outcome.failed_well, repr(outcome)


CONVERTED = [(front, tools) for front in FRONTS for tools in (0, 1) if (front, tools) != ("chat", 0)]
"""The requests that are not forwarded as they are: tools, or another API than the server's."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(("front", "tools"), CONVERTED)
@STREAMED
def test_a_fault(server, clients, fault, front, stream, tools):
    server.play(fault)
    check(clients[front].ask(stream=stream, tools=tools), fault)


@pytest.fixture(scope="module")
def bare(server):
    client = Chat(server.port)
    yield client
    client.close()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in CUT], ids=lambda fault: fault.__name__)
@STREAMED
def test_a_forwarded_request_gets_what_the_server_gives(server, clients, bare, fault, stream):
    server.play(fault)
    outcome = of(clients["chat"], stream)
    assert outcome.failed_well or shown(outcome) == shown(of(bare, stream))


@pytest.mark.parametrize("fault", [killed, killed_in_a_line], ids=lambda fault: fault.__name__)
def test_a_forwarded_stream_that_breaks_off_ends_in_an_error(server, clients, fault):
    server.play(fault)
    assert of(clients["chat"], stream=True).failed_well


def of(client, stream):
    """Ask without tools; the SDK itself fails on much that is no answer."""
    try:
        return client.ask(stream=stream, tools=0)
    except Exception as error:  # noqa: BLE001
        return Outcome(error=error)


def shown(outcome):
    return outcome.text, outcome.calls, type(outcome.error), str(outcome.error)


@pytest.mark.parametrize("fault", [stalled, stalled_at_once], ids=lambda fault: fault.__name__)
@ASKED
@STREAMED
@OFFERED
def test_a_server_that_stalls(server, hasty, fault, front, stream, tools):
    server.play(fault)
    check(hasty[front].ask(stream=stream, tools=tools), fault)


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
@ASKED
@STREAMED
@OFFERED
def test_no_key_goes_to_another_host(server, clients, status, front, stream, tools):
    canary = Canary()

    def fault(connection, request):
        place = f"Location: http://localhost:{canary.port}/v1/chat/completions"
        connection.sendall(head("text/plain", place, status=status, length=0))

    server.play(fault)
    outcome = clients[front].ask(stream=stream, tools=tools)
    canary.close()
    assert KEY.encode() in server.heads[0]
    assert canary.heard == []
    assert outcome.failed_well, repr(outcome)


LONG = "x" * (1 << 20)


def long_arguments(connection, request):
    arguments = json.dumps({"city": LONG})
    if not request.get("stream"):
        body = json.dumps(completion(None, [("get_weather", arguments)])).encode()
        connection.sendall(head(length=len(body)) + body)
        return
    pieces = [arguments[at : at + 65536] for at in range(0, len(arguments), 65536)]
    body = events(call("", id="a", type="function"), *map(call, pieces), chunk({}, "tool_calls"))
    connection.sendall(head(SSE, length=len(body)) + body)


def long_text(connection, request):
    words = "It is sunny. " * SENTENCES
    if not request.get("stream"):
        body = json.dumps(completion(words)).encode()
        connection.sendall(head(length=len(body)) + body)
        return
    pieces = [words[at : at + 65536] for at in range(0, len(words), 65536)]
    body = events(*map(text, pieces), chunk({}, "stop"))
    connection.sendall(head(SSE, length=len(body)) + body)


SENTENCES = 50 * 2**20 // len("It is sunny. ")


@pytest.fixture(scope="module")
def patient(server):
    with few_certificates(), serving(Proxy(base_url=server.url, config=Config(), detect=False, max_tools=0)) as port:
        made = {name: front(port) for name, front in FRONTS.items()}
        yield made
        for one in made.values():
            one.close()


@ASKED
@STREAMED
def test_a_megabyte_of_arguments(server, patient, front, stream):
    server.play(long_arguments)
    ((name, arguments),) = patient[front].ask(stream=stream).calls
    assert (name, json.loads(arguments)) == ("get_weather", {"city": LONG})


@pytest.mark.exhaustive
@pytest.mark.parametrize(("front", "tools"), [("chat", 0), *((front, 1) for front in FRONTS)])
@STREAMED
def test_fifty_megabytes_of_text(server, patient, front, stream, tools):
    server.play(long_text)
    outcome = patient[front].ask(stream=stream, tools=tools)
    assert outcome.error is None, repr(outcome.error)
    assert outcome.text.strip() == ("It is sunny. " * SENTENCES).strip()


def an_answer(connection, request):
    body = json.dumps(RIGHT).encode()
    data, kind = (GOOD, SSE) if request.get("stream") else (body, "application/json")
    connection.sendall(head(kind, length=len(data)) + data)


@pytest.mark.exhaustive
@ASKED
@STREAMED
def test_ten_thousand_tools(server, patient, clients, front, stream):
    server.play(an_answer)
    outcome = patient[front].ask(stream=stream, tools=10_000)
    assert (outcome.error, outcome.text) == (None, "It is sunny.")
    refused = clients[front].ask(stream=stream, tools=10_000)
    assert refused.failed_well, repr(refused)
    assert refused.error.status_code == 400


@ASKED
@STREAMED
@OFFERED
def test_without_a_fault(server, clients, front, stream, tools):
    server.play(an_answer)
    outcome = clients[front].ask(stream=stream, tools=tools)
    assert (outcome.error, outcome.text, outcome.calls) == (None, "It is sunny.", [])


def test_the_bombs_are_bombs():
    assert len(gzip.decompress(BOMB)) > 16 * len(MEGABYTE) > 500 * len(BOMB)
