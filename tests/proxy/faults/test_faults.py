"""What upstreams do wrong, on every front: the app gets a right answer, or an error in the form of its own API.

Never a hang, never a connection that breaks off, never half a call as a whole one, and never a key sent elsewhere. A
chat completion without tools is forwarded as it is: it gets what the server gives, or an error that is more than that.
A stream of it that breaks off ends in an error, even if it ends as if it were complete.
"""

import gzip
import json

import httpx
import openai
import pytest
from fault_table import (
    BOMB,
    BROKEN,
    CUT,
    FAULTS,
    GOOD,
    HARMLESS,
    MEGABYTE,
    NO_ANSWERS,
    RIGHT,
    SERVED,
    SSE,
    call,
    events,
    half_a_last_line,
    killed_ollama,
    no_last_line,
    no_line_break,
    stalled,
    stalled_at_once,
    text,
)
from fronts import FRONTS, KEY, Chat, Outcome
from raw_server import RawServer, head, in_chunk
from serving import Canary, serving
from upstream import chunk, completion, few_certificates

from promptools.profiles import Config
from promptools.proxy import Proxy

MAX_REPLY = 1 << 20
SERVED_ROUTES = {
    "/api/tags": None,
    "/api/ps": None,
    "/api/show": {"model": "m"},
    "/api/embed": {"model": "m", "input": "hi"},
    "/api/generate": {"model": "m", "prompt": "hi", "stream": False},
    "/v1/responses/compact": {"model": "m", "input": "hi"},
}
"""Routes besides the four APIs for whose answers the server is asked, or may be."""


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


@pytest.fixture(scope="module", params=["deadline", pytest.param("attempt_timeout", marks=pytest.mark.exhaustive)])
def hasty(server, request):
    with few_certificates(), proxy_of(server, **{request.param: 0.3}) as port:
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
        assert (outcome.text.replace("\ufffd\ufffd ", ""), outcome.calls) == ("It is sunny.", [])
        return
    assert fault not in SERVED, repr(outcome)
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


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.__name__)
def test_a_forwarded_stream_that_breaks_off_ends_in_an_error(server, clients, fault):
    server.play(fault)
    assert of(clients["chat"], stream=True).failed_well


def test_a_long_forwarded_answer_that_breaks_off_is_a_broken_connection(server, clients):
    def fault(connection, request):
        body = json.dumps(completion("It is sunny. " * 200_000)).encode()[:-100]
        connection.sendall(head(chunked=True) + in_chunk(body))  # a reset could overtake it

    server.play(fault)
    assert isinstance(of(clients["chat"], stream=False).error, openai.APIConnectionError)


@pytest.mark.skipif("ollama" not in FRONTS, reason="Ollama's API is not served")
@pytest.mark.parametrize(
    "fault", [killed_ollama, no_last_line, half_a_last_line, no_line_break], ids=lambda fault: fault.__name__
)
def test_a_stream_of_an_ollama_that_breaks_off_ends_in_an_error(server, fault):
    server.play(fault)
    with proxy_of(server, provider="ollama") as port:
        client = FRONTS["ollama"](port)
        outcome = client.ask(stream=True, tools=0)
        client.close()
    if fault is no_line_break:
        assert (outcome.text, outcome.error) == ("It is sunny.", None)
    else:
        assert outcome.failed_well, repr(outcome)


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


SENTENCE = "It is sunny. "


def long_text(sentences):
    def answer(connection, request):
        words = SENTENCE * sentences
        if not request.get("stream"):
            body = json.dumps(completion(words)).encode()
            connection.sendall(head(length=len(body)) + body)
            return
        pieces = [words[at : at + 65536] for at in range(0, len(words), 65536)]
        body = events(*map(text, pieces), chunk({}, "stop"))
        connection.sendall(head(SSE, length=len(body)) + body)

    return answer


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
@pytest.mark.parametrize(
    ("front", "tools", "megabytes"), [("chat", 0, 20), ("chat", 1, 20), *((front, 1, 5) for front in FRONTS)]
)
@STREAMED
def test_megabytes_of_text(server, patient, front, stream, tools, megabytes):
    sentences = (megabytes << 20) // len(SENTENCE)
    server.play(long_text(sentences))
    outcome = patient[front].ask(stream=stream, tools=tools)
    assert outcome.error is None, repr(outcome.error)
    assert outcome.text.strip() == (SENTENCE * sentences).strip()


def an_answer(connection, request):
    body = json.dumps(RIGHT).encode()
    data, kind = (GOOD, SSE) if request.get("stream") else (body, "application/json")
    connection.sendall(head(kind, length=len(data)) + data)


@pytest.mark.exhaustive
@ASKED
def test_thousands_of_tools(server, patient, clients, front):
    server.play(an_answer)
    outcome = patient[front].ask(stream=False, tools=5_000)
    assert (outcome.error, outcome.text) == (None, "It is sunny.")
    refused = clients[front].ask(stream=True, tools=5_000)
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


@pytest.mark.parametrize("fault", NO_ANSWERS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("route", SERVED_ROUTES)
def test_a_fault_on_another_route(server, spare, route, fault):
    server.play(fault)
    body = SERVED_ROUTES[route]
    answer = spare.get(route) if body is None else spare.post(route, json=body)
    assert answer.status_code >= 400
    assert answer.json()["error"]


@pytest.fixture(scope="module")
def spare(server):
    """A plain client of a proxy before a server that is no Ollama."""
    with proxy_of(server, provider="vllm") as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        yield http


PASSED_ROUTES = [
    ("vllm", "/v1/embeddings"),
    ("vllm", "/v1/completions"),
    ("ollama", "/api/embed"),
    ("ollama", "/api/generate"),
]
"""Routes whose requests pass unread before a server of this kind."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("provider", "route"), PASSED_ROUTES)
def test_a_server_that_stalls_on_a_route_that_passes(server, provider, route, stream):
    body = {"model": "m", "input": "hi", "prompt": "hi", "stream": stream}
    settings = {"provider": provider, "attempt_timeout": 0.3}
    with proxy_of(server, **settings) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as http:
        server.play(stalled_at_once)
        answer = http.post(route, json=body)
        server.play(stalled)
        with pytest.raises(httpx.RemoteProtocolError):
            http.post(route, json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (504, "1")
    error = answer.json()["error"]
    assert "no answer from" in (error if provider == "ollama" else error["message"])
