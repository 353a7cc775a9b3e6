"""One weather conversation with the official client (question, call, result, answer), and a record of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from promptools.cli.collected_reply import CollectedReply
from promptools.errors import clip
from promptools.harness.agent.loop_effects import AccumulatedReply
from promptools.lab import weather
from promptools.wire.json_body import as_object

_TURNS = 4
_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Scenario:
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
    must_fail: bool = False
    """Direct, and it must fail: otherwise the demo shows nothing."""
    mode: str | None = None
    """The expected mode of the first reply (None: any)."""
    needs_retry: bool = False
    """Whether an attempt must have failed before."""
    answer: str | None = None
    """The expected answer (None: any)."""
    lenient: bool = False
    """Whether the model may call nothing, another tool or too often. Then only the arguments of its calls to the
    offered tool and the mode are checked."""


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call as the app received it; without arguments if they were no JSON object."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The outcome of a route."""

    title: str
    fine: bool
    server: str
    app: str
    why: str
    direct: bool
    calls: tuple[ReceivedCall, ...]
    """The calls that the app received, in order."""


@dataclass(slots=True)
class _Record:
    """What has happened so far."""

    server: list[str] = field(default_factory=list[str])
    app: list[str] = field(default_factory=list[str])
    why: list[str] = field(default_factory=list[str])
    calls: list[ReceivedCall] = field(default_factory=list[ReceivedCall])
    modes: list[str | None] = field(default_factory=list[str | None])
    failed: int = 0
    answer: str | None = None
    error: bool = False


def run_scenario(scenario: Scenario) -> ScenarioResult:
    """Run the conversation to its end, or until it fails. Never raises for anything that a server does."""
    import openai

    notes = _Record()
    client = openai.OpenAI(base_url=scenario.base_url, api_key=scenario.key, max_retries=0, timeout=_TIMEOUT)
    messages: list[Any] = [{"role": "user", "content": weather.QUESTION}]
    try:
        for _ in range(_TURNS):
            reply = _send_turn(client, scenario, messages, notes)
            message = reply.message(reasoning=False)
            messages.append(message)
            if not message.get("tool_calls"):
                _record_answer(reply, notes)
                break
            messages.extend(_execute_call(call, notes) for call in message["tool_calls"])
    except openai.APIError as error:
        notes.error = True
        status = getattr(error, "status_code", None)
        notes.server.append(f"{f'HTTP {status}' if status else 'error'}: {clip(_error_message(error), 160)}")
        notes.app.append(type(error).__name__)
    finally:
        client.close()
    server, app, why = ("\n".join(part) for part in (notes.server, notes.app, notes.why))
    return ScenarioResult(
        scenario.title, _as_expected(scenario, notes), server, app, why, scenario.direct, tuple(notes.calls)
    )


def _send_turn(client: Any, scenario: Scenario, messages: list[Any], record: _Record) -> AccumulatedReply:
    extra = {} if scenario.direct else {"extra_body": {"promptools": {**scenario.options, "trace": True}}}
    raw = client.chat.completions.with_raw_response.create(
        model=scenario.model,
        messages=messages,
        tools=[weather.TOOL],
        stream=scenario.stream,
        **scenario.sampling,
        **extra,
    )
    answer = CollectedReply()
    parsed: Any = raw.parse()
    for part in parsed if scenario.stream else (parsed,):
        for _ in answer.add(part):
            pass
    if scenario.direct:
        record.server.append(f"{raw.status_code}, {_summarize(answer.reply)}")
    attempts = answer.attempts
    if attempts:
        record.server.extend(f"{attempt['mode']}: {attempt['status']}, {attempt['outcome']}" for attempt in attempts)
        reasons = (f"{attempt['mode']}: {clip(attempt['why'] or attempt['outcome'], 110)}" for attempt in attempts)
        record.why.append(" -> ".join(reasons))
    answered = [attempt for attempt in attempts if attempt["outcome"] == "answered"]
    record.modes.append(answered[-1]["mode"] if answered else None)
    record.failed += len(attempts) - len(answered)
    return answer.reply


def _summarize(reply: AccumulatedReply) -> str:
    """Return a reply in one line: its finish reason, its calls, and the raw content."""
    called = "".join(f" {call.name}" for call in reply.calls)
    content = f": {clip(reply.content, 200)!r}" if reply.content else ""
    return f"{reply.finish_reason}{called}{content}"


def _record_answer(reply: AccumulatedReply, record: _Record) -> None:
    record.answer = reply.content
    none = "" if record.calls else "no call, "
    cut = " (cut off)" if reply.finish_reason == "length" else ""
    record.app.append(f"{none}answer{cut}: {clip(reply.content, 100)!r}")


def _execute_call(call: Mapping[str, Any], record: _Record) -> dict[str, Any]:
    """Execute a call, as an app would; return its result message."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    record.app.append(f"call: {name}({clip(arguments, 80)})")
    parsed: dict[str, Any] = {}
    try:
        parsed = dict(json.loads(arguments))
        result = weather.get_weather(str(parsed["city"]))
    except (ValueError, KeyError, TypeError) as error:
        result = f"error: {error!r}"
    record.calls.append(ReceivedCall(name, parsed))
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


def _as_expected(scenario: Scenario, record: _Record) -> bool:
    """Whether there was exactly the expected call and then the answer; a lenient route requires less."""
    if scenario.direct:
        return record.error if scenario.must_fail else True
    if record.error:
        return False
    mode = record.modes[0]
    if scenario.lenient:
        return all(_arguments_valid(call) for call in record.calls) and (mode is None or scenario.mode in (None, mode))
    called = [call.name == weather.NAME and "paris" in str(call.arguments.get("city")).lower() for call in record.calls]
    return (
        called == [True]
        and bool(record.answer)
        and scenario.answer in (None, record.answer)
        and scenario.mode in (None, mode)
        and (record.failed > 0 or not scenario.needs_retry)
    )


def _arguments_valid(call: ReceivedCall) -> bool:
    """Whether the arguments of a call to the offered tool match its schema; other calls are fine."""
    from jsonschema import Draft202012Validator

    validator: Any = Draft202012Validator(weather.TOOL["function"]["parameters"])
    return call.name != weather.NAME or bool(validator.is_valid(call.arguments))


def _error_message(error: Any) -> str:
    return str(as_object(error.body).get("message") or error.message)
