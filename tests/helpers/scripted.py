"""A pump without I/O: plays what a server did into an exchange, and keeps what the client and the server saw."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from promptools.errors import UsageError
from promptools.exchange import (
    Abandon,
    Body,
    ClientRequest,
    Compute,
    Computed,
    Consult,
    Context,
    Done,
    Emit,
    Ended,
    Failed,
    Opened,
    Piece,
    Probe,
    Probed,
    Read,
    ReadBody,
    Request,
    ResponseHead,
    Route,
    Send,
    Tick,
    Wait,
    run,
)
from promptools.exchange.client_api import CHAT_API, ClientApi
from promptools.modes.options import Options
from promptools.profiles import Profile, Target
from promptools.profiles.server_detection import ProbeResponse as Told
from promptools.types import Reply

URL = "http://server/v1/chat/completions"
JSON = (("content-type", "application/json"),)
SSE = (("content-type", "text/event-stream"),)


@dataclass
class Answer:
    """What the server does with one send."""

    status: int = 200
    body: bytes = b""
    headers: tuple = JSON
    cut: int = 0
    """Bytes a piece (0: one piece)."""
    broken: Failed | None = None
    """How the body breaks off, or the send, without a body and with status 0."""
    takes: float = 0.0
    """Seconds until it comes."""
    every: float = 0.0
    """Seconds until each piece comes, and the end."""

    def pieces(self) -> Iterator[bytes]:
        step = self.cut or len(self.body) or 1
        for start in range(0, len(self.body), step):
            yield self.body[start : start + step]


def reply(content=None, *, calls=(), finish="stop", reasoning=None, usage=None, status=200, **extra) -> Answer:
    """Make a whole reply."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [call(*each) if isinstance(each, tuple) else each for each in calls]
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, **extra}],
        "usage": usage or {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19},
    }
    return Answer(status, json.dumps(body).encode())


def call(name, arguments, call_id="call00001") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def error(message: str, status: int = 500, **extra: Any) -> Answer:
    return Answer(status, json.dumps({"error": {"message": message, "type": "server_error", **extra}}).encode())


def stream(*deltas: Any, finish: str | None = "stop", done: bool = True, cut: int = 0, usage=None, **extra) -> Answer:
    """Make a stream: dicts are deltas, strings content deltas, bytes go in as they are."""
    out = []
    for delta in ({"role": "assistant", "content": ""}, *deltas):
        if isinstance(delta, bytes):
            out.append(delta)
            continue
        out.append(chunk({"content": delta} if isinstance(delta, str) else delta))
    if finish:
        out.append(chunk({}, finish, **extra))
    if usage:
        out.append(event({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}))
    if done:
        out.append(b"data: [DONE]\n\n")
    return Answer(200, b"".join(out), SSE, cut)


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **extra: Any) -> bytes:
    one = {"index": index, "delta": delta, "finish_reason": finish, **extra}
    return event({"id": "c", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [one]})


def event(body: Any) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


@dataclass
class Seen:
    """What came of a run."""

    sent: list[Request] = field(default_factory=list)
    looks: list[Probe] = field(default_factory=list)
    consulted: list[Request] = field(default_factory=list)
    timeouts: list[float | None] = field(default_factory=list)
    head: ResponseHead | None = None
    pieces: list[bytes] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    """When each of the pieces came."""
    waits: list[float] = field(default_factory=list)
    abandoned: int = 0
    computed: int = 0
    reply: Reply | None = None
    replies: list[Reply] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> Any:
        return self.json["choices"][0]["message"]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(each.body) for each in self.sent]

    @property
    def headers(self) -> dict[str, str]:
        assert self.head
        return dict(self.head.headers)

    @property
    def lines(self) -> list[str]:
        return [line for line in self.body.decode().split("\n") if line]

    @property
    def events(self) -> list[Any]:
        datas = [line[6:] for line in self.lines if line.startswith("data: ")]
        return [json.loads(each) for each in datas if each != "[DONE]"]

    @property
    def comments(self) -> list[str]:
        return [line[2:] for line in self.lines if line.startswith(": ")]

    @property
    def done(self) -> bool:
        return self.lines[-1] == "data: [DONE]"

    def choice(self, index: int = 0) -> Joined:
        return Joined([c for e in self.events for c in e.get("choices", ()) if c["index"] == index])


class Joined:
    """One choice of a stream, its chunks joined as a client joins them."""

    def __init__(self, chunks: list[dict[str, Any]]) -> None:
        deltas = [chunk["delta"] for chunk in chunks]
        self.chunks = chunks
        self.roles = [delta["role"] for delta in deltas if "role" in delta]
        self.content = "".join(delta.get("content") or "" for delta in deltas)
        self.reasoning = "".join(delta.get("reasoning") or "" for delta in deltas)
        self.finish = [chunk["finish_reason"] for chunk in chunks if chunk["finish_reason"]]
        self.calls: dict[int, dict[str, str]] = {}
        for each in (one for delta in deltas for one in delta.get("tool_calls", ())):
            slot = self.calls.setdefault(each["index"], {"id": "", "name": "", "arguments": ""})
            slot["id"] += each.get("id", "")
            slot["name"] += each["function"].get("name", "")
            slot["arguments"] += each["function"].get("arguments", "")


def target(**facts: Any) -> Target:
    place = {key: facts.pop(key) for key in ("provider", "model", "base_url") if key in facts}
    made = {"provider": "local", "base_url": None, "model": "", "api_key_env": None, **place}
    rest = {key: facts.pop(key) for key in ("defaults", "marks", "system_prompt") if key in facts}
    return Target(**made, profile=Profile(**facts), **rest)


def logged(mode: str, words: str) -> str:
    """Return the line that the log holds for a first send that failed."""
    return f"send 1 in {mode} mode failed: {words} (provider 'local', model 'm')"


def make_context(seen: Seen, **given: Any) -> Context:
    where = given.pop("target", None) or target()
    ids = (f"id{number:07d}" for number in count())
    options = given.pop("options", None)
    return Context(
        route=given.pop("route", lambda model, provider: Route(where)),
        new_id=given.pop("new_id", lambda: next(ids)),
        options=Options(**options) if isinstance(options, dict) else options,
        **{"on_reply": seen.replies.append, "log": seen.log.append, "warn": seen.warnings.append, **given},
    )


def play(
    body: Any,
    answers: Iterable[Answer],
    *,
    headers=(),
    at: float = 100.0,
    spare: bool = False,
    looked: dict[str, Any] | None = None,
    url: str = URL,
    front: ClientApi = CHAT_API,
    begin: Any = run,
    method: str = "POST",
    tick: float = 0.0,
    **context: Any,
) -> Seen:
    """Run one request against scripted answers; all are asked for, unless some may be `spare`.

    `tick` is the time between two ticks of the shell's clock (0: it has none, as in process). `looked` is what a look
    gets, by path: a JSON value, a `(status, body)`, None for no answer, or a function of the request's body that
    returns one of these; 404 where it is not.
    """
    seen = Seen()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = ClientRequest(Request(method, url, headers, data), at, front)
    exchange = begin(request, make_context(seen, **context))
    script = iter(answers)
    now, told, current, pieces = at, None, None, iter(())

    def emit(what: ResponseHead | bytes) -> Done:
        if isinstance(what, ResponseHead):
            assert seen.head is None, "one head"
            seen.head = what
        else:
            assert seen.head is not None, "the head comes first"
            assert what, "no empty bytes"
            seen.pieces.append(what)
            seen.at.append(now - at)
        return Done(now)

    def pass_time(seconds: float) -> None:
        nonlocal now
        until = now + seconds
        while tick and now + tick < until:
            now += tick
            given = exchange.send(Tick(now))
            while given is not effect:
                given = exchange.send(emit(given.data))
        now = until

    while True:
        try:
            effect = exchange.send(told)
        except StopIteration as stop:
            seen.reply = stop.value
            assert spare or next(script, None) is None, "an answer was never asked for"
            return seen
        match effect:
            case Send(sent, timeout):
                seen.sent.append(sent)
                seen.timeouts.append(timeout)
                current = next(script, None)
                assert current, f"one send more than scripted: {seen.log}"
                pass_time(current.takes)
                pieces = current.pieces()
                told = Opened(current.status, current.headers, now)
                if not current.status:
                    told = Failed(current.broken.kind, current.broken.text, now, current.broken.error)
            case Probe(requests, timeout):
                seen.looks.append(effect)
                now += 0.25
                told = Probed(tuple(told_of(each, looked or {}) for each in requests), now)
            case Read():
                pass_time(current.every)
                piece = next(pieces, None)
                if piece is None and current.broken:
                    told = Failed(current.broken.kind, current.broken.text, now, current.broken.error)
                else:
                    told = Ended(now) if piece is None else Piece(piece, now)
            case Abandon():
                seen.abandoned += 1
                told = Done(now)
            case Wait(seconds):
                seen.waits.append(seconds)
                pass_time(seconds)
                told = Done(now)
            case Compute(work):
                seen.computed += 1
                try:
                    told = Computed(work(), None, now)
                except UsageError as error:
                    told = Computed(None, error, now)
            case Consult(work, timeout):
                asked = partial(consulted, seen, looked or {})
                try:
                    told = Computed(work(asked), None, now)
                except UsageError as error:
                    told = Computed(None, error, now)
            case ReadBody():
                told = Body(data, now)
            case Emit(what):
                told = emit(what)


def consulted(seen: Seen, looked: dict[str, Any], request: Request) -> Any:
    """What a request gets that is sent in the middle of a computation."""
    seen.consulted.append(request)
    return told_of(request, looked)


def told_of(request: Request, looked: dict[str, Any]) -> Any:
    """What a look's request gets."""
    said = looked.get(urlsplit(request.url).path, (404, b"not here"))
    if callable(said):
        said = said(json.loads(request.body))
    if said is None or isinstance(said, tuple):
        return said and Told(*said)
    return Told(200, json.dumps(said).encode())


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
NOW = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object"}}}


def ask(*tools: Any, **more: Any) -> dict[str, Any]:
    """Make a request with tools."""
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "Weather in Paris?"}],
        **({"tools": list(tools)} if tools else {}),
        **more,
    }


def text_of(front: str, seen: Seen, *, streamed: bool) -> str:
    """Return the text that a client of the API gets."""
    assert seen.head.status == 200, seen.body
    if front == "chat":
        return seen.choice().content if streamed else seen.message["content"] or ""
    if front == "ollama":
        return "".join(json.loads(line)["message"]["content"] for line in seen.lines)
    if front == "messages":
        if not streamed:
            return "".join(block["text"] for block in seen.json["content"] if block["type"] == "text")
        return "".join(each["delta"].get("text", "") for each in seen.events if each["type"] == "content_block_delta")
    response = seen.events[-1]["response"] if streamed else seen.json
    items = [item for item in response["output"] if item["type"] == "message"]
    text = "".join(part["text"] for item in items for part in item["content"])
    if streamed:
        assert text == "".join(each["delta"] for each in seen.events if each["type"].endswith("output_text.delta"))
    return text
