"""One weather conversation with the official client (question, call, result, answer), and a record of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from promptools.agent.reply import Gathered
from promptools.cli.gather import Answer
from promptools.errors import clip
from promptools.lab import weather
from promptools.wire.shapes import as_object

_TURNS = 4
_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Route:
    """How to run the conversation, and the outcome that is expected."""

    title: str
    base_url: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The request's `promptools` key."""
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More keys of the request: `temperature`, `max_tokens`."""
    stream: bool = False
    key: str = "none"
    direct: bool = False
    """Without promptools: any outcome is fine."""
    breaks: bool = False
    """Direct, and it must fail: otherwise the demo shows nothing."""
    mode: str | None = None
    """The expected mode of the first reply (None: any)."""
    mended: bool = False
    """Whether an attempt must have failed before."""
    answer: str | None = None
    """The expected answer (None: any)."""
    lenient: bool = False
    """Whether the model may call nothing, another tool or too often. Then only the arguments of its calls to the
    offered tool and the mode are checked."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the app received it; without arguments if they were no JSON object."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of a route."""

    title: str
    fine: bool
    server: str
    app: str
    why: str
    direct: bool
    calls: tuple[Call, ...]
    """The calls that the app received, in order."""


@dataclass(slots=True)
class _Notes:
    """What has happened so far."""

    server: list[str] = field(default_factory=list[str])
    app: list[str] = field(default_factory=list[str])
    why: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])
    modes: list[str | None] = field(default_factory=list[str | None])
    failed: int = 0
    answer: str | None = None
    error: bool = False


def hold(route: Route) -> Seen:
    """Run the conversation to its end, or until it fails. Never raises for anything that a server does."""
    import openai

    notes = _Notes()
    client = openai.OpenAI(base_url=route.base_url, api_key=route.key, max_retries=0, timeout=_TIMEOUT)
    messages: list[Any] = [{"role": "user", "content": weather.QUESTION}]
    try:
        for _ in range(_TURNS):
            reply = _turn(client, route, messages, notes)
            message = reply.message(reasoning=False)
            messages.append(message)
            if not message.get("tool_calls"):
                _end(reply, notes)
                break
            messages.extend(_run(call, notes) for call in message["tool_calls"])
    except openai.APIError as error:
        notes.error = True
        status = getattr(error, "status_code", None)
        notes.server.append(f"{f'HTTP {status}' if status else 'error'}: {clip(_words(error), 160)}")
        notes.app.append(type(error).__name__)
    finally:
        client.close()
    server, app, why = ("\n".join(part) for part in (notes.server, notes.app, notes.why))
    return Seen(route.title, _fine(route, notes), server, app, why, route.direct, tuple(notes.calls))


def _turn(client: Any, route: Route, messages: list[Any], notes: _Notes) -> Gathered:
    """Send one request, and return the reply."""
    extra = {} if route.direct else {"extra_body": {"promptools": {**route.options, "trace": True}}}
    raw = client.chat.completions.with_raw_response.create(
        model=route.model, messages=messages, tools=[weather.TOOL], stream=route.stream, **route.sampling, **extra
    )
    answer = Answer()
    parsed: Any = raw.parse()
    for part in parsed if route.stream else (parsed,):
        for _ in answer.take(part):
            pass
    if route.direct:
        notes.server.append(f"{raw.status_code}, {_said(answer.reply)}")
    attempts = answer.attempts
    if attempts:
        notes.server.extend(f"{attempt['mode']}: {attempt['status']}, {attempt['outcome']}" for attempt in attempts)
        reasons = (f"{attempt['mode']}: {clip(attempt['why'] or attempt['outcome'], 110)}" for attempt in attempts)
        notes.why.append(" -> ".join(reasons))
    answered = [attempt for attempt in attempts if attempt["outcome"] == "answered"]
    notes.modes.append(answered[-1]["mode"] if answered else None)
    notes.failed += len(attempts) - len(answered)
    return answer.reply


def _said(reply: Gathered) -> str:
    """Return a reply in one line: its finish reason, its calls, and the raw content."""
    called = "".join(f" {call.name}" for call in reply.calls)
    content = f": {clip(reply.content, 200)!r}" if reply.content else ""
    return f"{reply.finish_reason}{called}{content}"


def _end(reply: Gathered, notes: _Notes) -> None:
    """Record the answer that ends the conversation."""
    notes.answer = reply.content
    none = "" if notes.calls else "no call, "
    cut = " (cut off)" if reply.finish_reason == "length" else ""
    notes.app.append(f"{none}answer{cut}: {clip(reply.content, 100)!r}")


def _run(call: Mapping[str, Any], notes: _Notes) -> dict[str, Any]:
    """Execute a call, as an app would; return its result message."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    notes.app.append(f"call: {name}({clip(arguments, 80)})")
    parsed: dict[str, Any] = {}
    try:
        parsed = dict(json.loads(arguments))
        result = weather.get_weather(str(parsed["city"]))
    except (ValueError, KeyError, TypeError) as error:
        result = f"error: {error!r}"
    notes.calls.append(Call(name, parsed))
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


def _fine(route: Route, notes: _Notes) -> bool:
    """Whether there was exactly the expected call and then the answer; a lenient route requires less."""
    if route.direct:
        return notes.error if route.breaks else True
    if notes.error:
        return False
    mode = notes.modes[0]
    if route.lenient:
        return all(_fits(call) for call in notes.calls) and (mode is None or route.mode in (None, mode))
    called = [call.name == weather.NAME and "paris" in str(call.arguments.get("city")).lower() for call in notes.calls]
    return (
        called == [True]
        and bool(notes.answer)
        and route.answer in (None, notes.answer)
        and route.mode in (None, mode)
        and (notes.failed > 0 or not route.mended)
    )


def _fits(call: Call) -> bool:
    """Whether the arguments of a call to the offered tool match its schema; other calls are fine."""
    from jsonschema import Draft202012Validator

    validator: Any = Draft202012Validator(weather.TOOL["function"]["parameters"])
    return call.name != weather.NAME or bool(validator.is_valid(call.arguments))


def _words(error: Any) -> str:
    return str(as_object(error.body).get("message") or error.message)
