"""Check that a reply, in any of the forms that apps receive, has exactly the expected tool calls."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any, cast

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object, try_json
from promptools.testing.scripted_server import CallLike, name_and_text
from promptools.types import Call, Reply

_Named = tuple[str, Any]


def assert_calls(reply: Any, expected: Sequence[CallLike]) -> None:
    """Fail unless `reply` has exactly the `expected` calls, in their order. Names and arguments are compared.

    `reply` is a `Reply`; a completion, a message or tool calls of the openai SDK; or one of these in JSON form.
    Arguments are compared as values, so the order of keys does not matter.
    """
    __tracebackhide__ = True
    got = [_normalize(call) for call in calls_of(reply)]
    wanted = [_normalize(call) for call in expected]
    if got != wanted:
        raise AssertionError(_describe(wanted, got, _text_of(reply)))


def calls_of(reply: Any) -> list[CallLike]:
    """Return the calls of a reply, in any form that `assert_calls` accepts; raise `UsageError` for other values."""
    if isinstance(reply, Reply):
        return list(reply.calls)
    message = _message_of(_plain(reply))
    calls: Any = reply if message is None else message.get("tool_calls") or []
    if not is_array(calls) and not isinstance(calls, tuple):
        raise UsageError(f"{clip(repr(reply))} is not a reply, a completion, a message or a list of calls")
    return [_call_of(call) for call in cast("Sequence[Any]", calls)]


def _call_of(call: Any) -> CallLike:
    if isinstance(call, Call):
        return call
    if isinstance(call, tuple):
        return cast("CallLike", call)
    data = _plain(call)
    function = data.get("function", data) if is_object(data) else None
    if not is_object(function) or "name" not in function:
        raise UsageError(f"{clip(repr(call))} is not a call")
    return function["name"], function.get("arguments") or "{}"


def _message_of(data: Any) -> dict[str, Any] | None:
    """Return the message of a completion; return a message unchanged, and None for any other value."""
    if not is_object(data):
        return None
    choices = data.get("choices")
    if is_array(choices) and choices:
        data = _plain(choices[0]).get("message")
    return data if is_object(data) else {}


def _plain(value: Any) -> Any:
    """Return an SDK object in its JSON form, and any other value unchanged."""
    dump = getattr(value, "model_dump", None)
    return dump(warnings=False) if callable(dump) else value


def _text_of(reply: Any) -> str:
    if isinstance(reply, Reply):
        return reply.content
    message = _message_of(_plain(reply))
    content = message.get("content") if message else None
    return content if isinstance(content, str) else ""


def _normalize(call: CallLike) -> _Named:
    """Return the name and the parsed arguments of a call; arguments that are not JSON remain text."""
    name, text = name_and_text(call)
    return name, try_json(text, text)


def _describe(wanted: list[_Named], got: list[_Named], text: str) -> str:
    lines = difflib.ndiff(_lines(wanted), _lines(got))
    shown = "\n".join(line.rstrip() for line in lines if not line.startswith("?"))
    content = f"\nthe text of the reply: {clip(repr(text), 500)}" if text.strip() else ""
    return f"the calls are not those expected (-: expected, +: got):\n{shown}{content}"


def _lines(calls: list[_Named]) -> list[str]:
    if not calls:
        return ["no call"]
    return [
        line
        for name, arguments in calls
        for line in f"{name} {json.dumps(arguments, ensure_ascii=False, indent=2, sort_keys=True)}".splitlines()
    ]
