"""The rest of arguments of which the beginning has gone out: what was mended at the end is written behind it."""

from __future__ import annotations

import json
import re
from typing import Any

from promptools.wire.shapes import is_object

_TOKEN = re.compile(r'[ \t\r\n]*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|("(?:[^"\\]|\\.)*\Z)|([^\s{}\[\],:"]+))')


def continued(sent: str, arguments: dict[str, Any]) -> str | None:
    """Return the JSON of `arguments` that begins with the text `sent`; None where there is none."""
    try:
        whole = sent + _rest(sent, arguments)
        return whole if json.loads(whole) == arguments else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _rest(sent: str, arguments: dict[str, Any]) -> str:
    """Write what is missing: the end of an open string, then what each open object and array has not got yet."""
    frames: list[tuple[Any, list[str]]] = []
    value: Any = arguments
    out: list[str] = []
    keyed = False
    for mark, string, open_string, scalar in _TOKEN.findall(sent):
        if string and is_object(frames[-1][0]) and not keyed:
            frames[-1][1].append(json.loads(string))
            value = frames[-1][0][frames[-1][1][-1]]
            keyed = True
        elif mark and mark in "{[":
            value = _at(frames, value)
            frames.append((value, []))
            keyed = False
        elif mark and mark in "}]":
            frames.pop()
            keyed = False
        elif mark == ",":
            keyed = False
        elif string or scalar or open_string:
            value = _at(frames, value)
            keyed = False
        if open_string:
            said = json.loads(f'{open_string}"')
            if not value.startswith(said):
                raise ValueError(said)
            out.append(_dump(value[len(said) :])[1:])
    for value, done in reversed(frames):
        rest = (
            [f"{_dump(key)}: {_dump(each)}" for key, each in value.items() if key not in done]
            if is_object(value)
            else [_dump(each) for each in value[len(done) :]]
        )
        out += [f"{', ' if done or place else ''}{each}" for place, each in enumerate(rest)]
        out.append("}" if is_object(value) else "]")
    return "".join(out)


def _at(frames: list[tuple[Any, list[str]]], value: Any) -> Any:
    """Return the value that comes next: an item of an array, or what the last key has."""
    if not frames or is_object(frames[-1][0]):
        return value
    items, done = frames[-1]
    done.append("")
    return items[len(done) - 1]


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
