"""What a server sends beyond a response, or in place of one, reaches no other user, and shifts no later answer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from misbehaving_server import MARKER, misbehaving, new_marker
from misbehaviours import MISBEHAVIOURS, SINGLE, SURPLUS
from upstream import few_certificates

from promptools.profiles import Config
from promptools.proxy import Proxy

MESSAGES = [{"role": "user", "content": "hi"}]
PARAMETERS = {"type": "object", "properties": {}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}]
FLAT_TOOLS = [{"type": "function", "name": "f", "parameters": PARAMETERS}]
UPLOAD = [b"first piece", b"second piece", b"x" * 70_000]


@dataclass
class Route:
    name: str
    method: str
    path: str
    body: dict | None = None
    upload: str = ""
    """`length` or `chunks`: how its body is framed, which comes in pieces."""

    def pieces(self):
        return UPLOAD if self.upload else [json.dumps(self.body).encode()] if self.body is not None else [b""]

    def fields(self):
        if self.upload == "chunks":
            return [(b"transfer-encoding", b"chunked")]
        if self.body is None and not self.upload:
            return []
        kind = b"application/octet-stream" if self.upload else b"application/json"
        return [(b"content-length", b"%d" % sum(map(len, self.pieces()))), (b"content-type", kind)]


def both(name, path, **body):
    """Return a route, whole and streamed."""
    return [
        Route(f"{name} {kind}", "POST", path, {**body, "stream": kind == "streamed"}) for kind in ("whole", "streamed")
    ]


ROUTES = [
    *both("chat", "/v1/chat/completions", model="m", messages=MESSAGES),
    *both("chat with tools", "/v1/chat/completions", model="m", messages=MESSAGES, tools=TOOLS),
    *both("responses", "/v1/responses", model="m", input="hi"),
    *both("responses with tools", "/v1/responses", model="m", input="hi", tools=FLAT_TOOLS),
    *both("messages", "/v1/messages", model="m", messages=MESSAGES, max_tokens=9),
    *both("ollama", "/api/chat", model="m", messages=MESSAGES),
    *both("completions", "/v1/completions", model="m", prompt="hi"),
    Route("embeddings", "POST", "/v1/embeddings", {"model": "m", "input": "hi"}),
    Route("upload", "POST", "/v1/files", upload="length"),
    Route("upload in chunks", "PUT", "/v1/files/f", upload="chunks"),
    Route("models", "GET", "/v1/models"),
    Route("anything", "GET", "/metrics"),
    Route("head", "HEAD", "/v1/models"),
    Route("delete", "DELETE", "/v1/files/f"),
    Route("options", "OPTIONS", "/v1/files"),
]


@dataclass
class Answer:
    marker: bytes
    status: int = 0
    fields: list = field(default_factory=list)
    body: bytes = b""
    broke_off: bool = False

    @property
    def foreign(self):
        """The markers in it that are those of other requests."""
        return {*MARKER.findall(repr(self.fields).encode() + self.body)} - {self.marker}

    @property
    def is_right(self):
        return self.status == 200 and self.marker in repr(self.fields).encode() + self.body and not self.broke_off

    @property
    def is_clear_error(self):
        return self.status in {502, 504} and b"error" in self.body


async def ask(app, route, user, marker):
    """Return the answer to one request of a user, whose client stays until it is whole."""
    answer, pieces, over = Answer(marker), list(route.pieces()), asyncio.Event()
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer key-of-" + user.encode()), (b"x-marker", marker)]
    scope = {"type": "http", "http_version": "1.1", "method": route.method, "path": route.path, "query_string": b""}

    async def receive():
        if pieces:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            answer.status, answer.fields = message["status"], message["headers"]
        else:
            answer.body += message.get("body", b"")

    try:
        await app({**scope, "headers": [*headers, *route.fields()]}, receive, send)
    except app.upstream_client.library.module.RequestError:
        answer.broke_off = True
    over.set()
    return answer


async def play(server, app, route, misbehaviour):
    """Let two users ask by turns, with a server that misbehaves now and then: both ask after what went wrong."""
    server.misbehaviour = misbehaviour
    answers = []
    for user, is_bad in [
        ("a", False),
        ("a", True),
        ("b", False),
        ("a", False),
        ("b", True),
        ("a", False),
    ]:
        marker = new_marker(user)
        server.bad = marker if is_bad else b""
        answer = await asyncio.wait_for(ask(app, route, user, marker), 300)
        server.bad = b""
        server.end_request()
        answers.append((user, is_bad, answer))
    return answers


def check(route, answers, *, may_shift):
    for user, is_bad, answer in answers:
        shown = route.name, user, is_bad, answer
        of_others = {marker for marker in answer.foreign if not marker.startswith(b"mark-%b-" % user.encode())}
        assert not of_others, shown
        assert may_shift or not answer.foreign, shown
        if not may_shift and not is_bad:
            assert answer.is_right, shown
        elif not is_bad:
            assert answer.is_right or answer.is_clear_error or answer.foreign, shown
        if answer.status >= 500:
            assert SURPLUS not in answer.body, shown


def proxy_before(server, **settings):
    return Proxy(base_url=server.url, config=Config(), detect=False, **settings)


def routes_for(misbehaviour):
    """Return all routes, beginning with another one for each misbehaviour.

    What follows a response does so in two or three ways, one after the other in the table: each has half of the
    routes, other ones; the three together have all.
    """
    at = MISBEHAVIOURS.index(misbehaviour) % len(ROUTES)
    routes = ROUTES[at:] + ROUTES[:at]
    if misbehaviour in SINGLE:
        return routes
    return [route for place, route in enumerate(routes) if place // 2 % 2 == 0]


@pytest.mark.parametrize("misbehaviour", MISBEHAVIOURS, ids=lambda one: one.name)
def test_no_answer_reaches_another_user(misbehaviour, share):
    async def go():
        async with misbehaving() as server:
            for route in share(routes_for(misbehaviour)):
                proxy = proxy_before(server)
                answers = await play(server, proxy, route, misbehaviour)
                await proxy.aclose()
                check(route, answers, may_shift=misbehaviour.may_shift)

    with few_certificates():
        asyncio.run(go())


def test_the_table_is_long_and_has_no_name_twice():
    names = [one.name for one in MISBEHAVIOURS]
    assert len(set(names)) == len(names) >= 70


ASKED = [one for one in MISBEHAVIOURS if one.when == "asked"]


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
@pytest.mark.parametrize("misbehaviour", ASKED[::8], ids=lambda one: one.name)
def test_a_client_of_the_callers_crosses_nothing_either(name, misbehaviour):
    """Each request has a connection of its own, whatever the client's pool would keep."""
    module = pytest.importorskip(name)
    routes = [
        route for route in ROUTES if route.name in {"chat whole", "completions streamed", "head", "upload", "models"}
    ]

    async def go():
        async with misbehaving() as server, module.AsyncClient() as http:
            for route in routes:
                answers = await play(server, proxy_before(server, http_client=http), route, misbehaviour)
                check(route, answers, may_shift=False)
            asked = 6 * len(routes)
            assert server.connections >= asked, "some request has shared a connection"

    with few_certificates():
        asyncio.run(go())


@pytest.mark.parametrize(
    "misbehaviour", [one for one in MISBEHAVIOURS if "at once" in one.name][:12], ids=lambda one: one.name
)
def test_forty_requests_of_two_users_at_the_same_time(misbehaviour):
    route = next(route for route in ROUTES if route.name == "completions whole")

    async def go():
        async with misbehaving() as server:
            server.misbehaviour = misbehaviour
            proxy = proxy_before(server)
            for _ in range(5):
                markers = [(user, new_marker(user)) for user in "ab" * 4]
                server.bad = markers[0][1]
                answers = await asyncio.gather(*(ask(proxy, route, *one) for one in markers))
                for answer in answers[1:]:
                    assert answer.is_right, answer
                assert not answers[0].foreign
            await proxy.aclose()

    with few_certificates():
        asyncio.run(go())
