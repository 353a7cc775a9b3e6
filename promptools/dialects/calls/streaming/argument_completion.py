"""Complete arguments whose beginning has been streamed: what was repaired at the end is appended to it.

The text already sent is fixed, white space included. It is tokenized again to find the open objects and arrays and what
each has got so far; then the rest of `arguments` is written, innermost container first. The result is accepted only if
it parses to `arguments`, so a beginning that the repair contradicts gives None.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from promptools.json_values import is_object
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.types import Call

_TOKEN = lazy_pattern(r'[ \t\r\n]*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|("(?:[^"\\]|\\.)*\Z)|([^\s{}\[\],:"]+))')


def begin_with(call: Call, sent: str) -> Call | None:
    """Return a call, its arguments written so that they begin with the text `sent`; None where they do not."""
    if call.arguments_json.startswith(sent):
        return call
    text = complete_arguments(sent, call.arguments)
    return None if text is None else replace(call, arguments_json=text)


def complete_arguments(sent: str, arguments: dict[str, Any]) -> str | None:
    """Return JSON of `arguments` that begins with the text `sent`; None where there is none."""
    try:
        whole = sent + _missing_text(sent, arguments)
        return whole if json.loads(whole) == arguments else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _missing_text(sent: str, arguments: dict[str, Any]) -> str:
    """Encode what is missing: the end of an open string, then the rest of each open object and array."""
    frames: list[tuple[Any, list[str]]] = []
    value: Any = arguments
    out: list[str] = []
    keyed = False
    for bracket, string, open_string, scalar in _TOKEN.findall(sent):
        if string and is_object(frames[-1][0]) and not keyed:
            frames[-1][1].append(json.loads(string))
            value = frames[-1][0][frames[-1][1][-1]]
            keyed = True
        elif bracket and bracket in "{[":
            value = _next_value(frames, value)
            frames.append((value, []))
            keyed = False
        elif bracket and bracket in "}]":
            frames.pop()
            keyed = False
        elif bracket == ",":
            keyed = False
        elif string or scalar or open_string:
            value = _next_value(frames, value)
            keyed = False
        if open_string:
            prefix = json.loads(f'{open_string}"')
            if not value.startswith(prefix):
                raise ValueError(prefix)
            out.append(dump(value[len(prefix) :])[1:])
    for value, done in reversed(frames):
        rest = (
            [f"{dump(key)}: {dump(item)}" for key, item in value.items() if key not in done]
            if is_object(value)
            else [dump(item) for item in value[len(done) :]]
        )
        out += [f"{', ' if done or number else ''}{item}" for number, item in enumerate(rest)]
        out.append("}" if is_object(value) else "]")
    return "".join(out)


def _next_value(frames: list[tuple[Any, list[str]]], value: Any) -> Any:
    """Return the next value: the next item of an array, or the value of the last key."""
    if not frames or is_object(frames[-1][0]):
        return value
    items, done = frames[-1]
    done.append("")
    return items[len(done) - 1]
