"""Read a JSON value as raw calls: the spellings of the envelope, wrappers, lists, and calls inside calls.

An envelope is the object around the arguments: `{"name": ..., "arguments": {...}}`. Models spell its keys in dozens of
ways, put it into a list or a wrapper (`{"tool_calls": [...]}`), nest it under `function`, or leave it out. `said_in`
walks through all of these and returns one `Said` per call: the name, the arguments, and the other keys, each with its
offsets in the source.

Nothing here decides whether a call is *accepted* (see `settle`); it only tells what the JSON would call. A `Node` keeps
where a value is in the source, and whether that text is strict JSON, so that arguments that need no fix go out in the
model's own spelling.

Spellings were collected from model cards and from what servers' parsers accept (2023 to 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.errors import clip
from promptools.parsing.extent import Extent
from promptools.parsing.strict import Places, members
from promptools.parsing.tolerant import Unreadable, read
from promptools.schema.graph import is_array, is_object
from promptools.types import Fix

NAME_KEYS = (
    "tool",
    "name",
    "tool_name",
    "function",
    "function_name",
    "action",
    "command",
    "recipient_name",
    "toolName",
)
UNSURE_NAME_KEYS = frozenset({"action", "command"})
"""Name keys that are parameters just as often: `{"command": "ls -l"}` names no tool."""
ARGUMENT_KEYS = (
    "arguments",
    "parameters",
    "args",
    "input",
    "action_input",
    "params",
    "kwargs",
    "tool_input",
    "parameter",
    "toolInput",
    "inputs",
)
WRAPPER_KEYS = ("tool_calls", "tool_call", "function_call", "calls", "actions", "tool_uses")
ASIDE_KEYS = frozenset(
    {"id", "type", "index", "tool_call_id", "call_id", "thought", "thoughts", "reasoning", "explanation", "content"}
)

"""Keys beside a call that are no arguments."""

RECORD_KEYS = frozenset({
    "result", "results", "output", "outputs", "observation", "stdout", "stderr", "exit_code", "exitcode",
    "returncode", "return_code", "success", "error", "status", "status_code", "ts", "time", "datetime", "timestamp",
    "@timestamp", "date", "started_at", "finished_at", "ended_at", "completed_at", "created_at", "updated_at",
    "duration", "duration_s", "duration_ms", "elapsed", "elapsed_s", "elapsed_ms", "took", "took_ms", "latency",
    "latency_ms", "level", "severity", "loglevel", "log_level", "logger", "msg", "pid", "hostname", "trace_id",
    "span_id", "request_id",
})  # fmt: skip
"""Keys of the record of an earlier call: in a log, or in a history with its results. A model that makes a call knows
none of their values. Null and empty values do not count, nor does the `status` of items of OpenAI's Responses API."""

if TYPE_CHECKING:
    from promptools.schema import Tools

FIRST_KEYS = frozenset((*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPER_KEYS, *ASIDE_KEYS, "role"))
"""Keys that may come first in a call anywhere in prose."""

_ARGUMENTS = frozenset(ARGUMENT_KEYS)
_WRAPPERS = frozenset((*WRAPPER_KEYS, "function"))

_NO_KEYS: frozenset[str] = frozenset()

NESTING = 16
"""Levels of wrappers that are unwrapped: no model writes more, only an attack does."""

RETRIES = 4
"""Offsets that are tried for the list in a wrapper: its key may also occur in a string before it."""


@cache
def _named() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of a name and its key, in any quotes; the most reliable key first."""
    return tuple(re.compile(rf"""(["']){key}\1\s*+:\s*+(["'])([^"']{{1,256}})\2""") for key in NAME_KEYS)


class Node(NamedTuple):
    """A JSON value and its span `source[start:end]`; `exact` if that text is the value as strict JSON."""

    value: Any
    source: str
    start: int
    end: int
    exact: bool
    places: Places | None = None
    """The spans of the values of an exact object's members, if known already."""
    fixes: tuple[Fix, ...] = ()
    closed: int = 0
    """The number of missing closing brackets that were supplied; it and `fixes` are set if a value was read at once."""
    mended: str | None = None
    """Its text as strict JSON if it was repaired while it was read; then `places` are offsets in this text."""

    def text(self) -> str | None:
        """Return the value's text as strict JSON if it is known: the model's own, or that with its errors repaired."""
        return self.source[self.start : self.end] if self.exact else self.mended


class Said(NamedTuple):
    """A call as one JSON object spells it, not judged yet. `node`: the object; `arguments`: None without such a key."""

    node: Node
    name: str | None
    arguments: Node | None
    flat: Mapping[str, Any]
    """The other members, which may be arguments written beside the name."""
    fixes: tuple[Fix, ...] = ()
    name_key: str = ""
    record: frozenset[str] = _NO_KEYS
    """Keys beside the call that only the record of an earlier call has."""


class NoCall(Exception):
    """Raised where a value is no call; the message says why."""


def node_of(
    source: str, start: int, end: int, anchors: frozenset[str], *, close: bool = False, strict: bool = True
) -> tuple[Node, tuple[Fix, ...], int]:
    """Read the value that starts at the bracket `source[start]`: its node, the fixes, the number of closers supplied.

    O(n) in characters. `strict=False`: it is known not to be strict JSON. Raises `Unreadable`.
    """
    value = read(source[start:end], anchors=anchors, close=close, strict=strict)
    exact = not value.fixes and not value.closed
    node = Node(value.value, source, start, start + value.end, exact, value.places, mended=value.mended)
    return node, value.fixes, value.closed


def child(node: Node, key: str) -> Node:
    """Return a member of an object with its span: the whole object's if the text is not strict JSON."""
    value = node.value[key]
    if not node.exact:
        mended = None
        if node.mended is not None and node.places:
            start, end = node.places[key]
            mended = node.mended[start:end]
        return Node(value, node.source, node.start, node.end, exact=False, mended=mended)
    places = node.places
    if places is None:
        parsed = members(node.source, node.start)
        assert parsed is not None  # strict JSON, as `read` found
        places = parsed[1]
    start, end = places[key]
    return Node(value, node.source, start, end, exact=True)


def _wrapped(node: Node, key: str, anchors: frozenset[str]) -> Node:
    """Return the member that wraps calls; a list gets its own span even if the text is not strict JSON.

    Raises `NoCall` if that span is not found.
    """
    inner = child(node, key)
    if node.exact or not is_array(inner.value):
        return inner
    brackets = re.compile(rf"""{key}["'“”‘’]?\s*+:\s*+(?=\[)""").finditer(node.source, node.start, node.end)
    for bracket in islice(brackets, RETRIES):
        with suppress(Unreadable):
            calls, _, _ = node_of(node.source, bracket.end(), node.end, anchors, close=True)
            if calls.value == inner.value:
                return calls
    raise NoCall("where its list of calls stands is not certain")


def elements(node: Node, anchors: frozenset[str]) -> Iterator[tuple[Node, tuple[Fix, ...]]]:
    """Yield the elements of a list, each with its span and its fixes. O(n).

    Raises `NoCall` if an element is no object, `Unreadable` if it cannot be read by itself.
    """
    at = node.start + 1
    limit = node.end
    source = node.source
    while True:
        while at < limit and source[at] in " \t\r\n,":
            at += 1
        if at >= limit or source[at] == "]":
            return
        if source[at] not in "{[":
            raise NoCall("the list holds something that is no object")
        end = Extent().feed(source[at:limit], 0)
        if end is None:
            raise Unreadable(limit, "the text ended inside a call", "truncated")
        element, fixes, _ = node_of(source, at, at + end, anchors)
        if source[element.end : at + end].strip():
            raise NoCall("an element of the list is followed by something else")
        yield element, fixes
        at += end


def said_in(node: Node, anchors: frozenset[str], tools: Tools | None, depth: int = 0) -> list[Said]:
    """Read `node`, an object or a list, as raw calls, in order. O(n) for each level of wrappers.

    Raises `NoCall` if it holds none, or anything besides calls, and `Unreadable` for a list with broken calls.
    """
    if depth > NESTING:
        raise NoCall("wrapped too deep")
    if is_array(node.value):
        calls: list[Said] = []
        for element, fixes in elements(node, anchors):
            nested = said_in(element, anchors, tools, depth + 1)
            calls += [_with_fixes(call, fixes) for call in nested]
        if not calls:
            raise NoCall("an empty list")
        return calls
    if not is_object(node.value):
        raise NoCall("no object")
    return _said_in_object(node, anchors, tools, depth)


def _with_fixes(said: Said, fixes: tuple[Fix, ...]) -> Said:
    return said._replace(fixes=(*fixes, *said.fixes)) if fixes else said


def _said_in_object(node: Node, anchors: frozenset[str], tools: Tools | None, depth: int) -> list[Said]:
    keys: dict[str, Any] = node.value
    if _WRAPPERS.isdisjoint(keys):  # the fast path: most calls have no wrapper
        return [_said(node, tools)]
    for wrapper in WRAPPER_KEYS:
        inner = keys.get(wrapper)
        if (is_object(inner) or is_array(inner)) and inner and _only_asides(keys, wrapper):
            return said_in(_wrapped(node, wrapper, anchors), anchors, tools, depth + 1)
    function = keys.get("function")
    if is_object(function) and not any(isinstance(keys.get(key), str) for key in ("tool", "name")):
        inner_node = child(node, "function")
        calls = said_in(inner_node, anchors, tools, depth + 1)
        return [_with_what_is_beside(calls[0], node)] if len(calls) == 1 else calls
    return [_said(node, tools)]


def _with_what_is_beside(said: Said, node: Node) -> Said:
    """Return a call found under `function`, with the arguments that may be beside it (Groq's Llama fine-tunes)."""
    key = argument_key(node.value) if said.arguments is None and not said.flat else None
    said = said._replace(record=said.record | _recorded(node.value))
    if key is None:
        return said._replace(node=node)
    fix = Fix("unwrap", "the arguments stood beside the function")
    return said._replace(node=node, arguments=child(node, key), fixes=(*said.fixes, fix))


def _only_asides(keys: Mapping[str, Any], wrapper: str) -> bool:
    return all(key == wrapper or key in ASIDE_KEYS or key in ("role", "finish_reason") for key in keys)


def _said(node: Node, tools: Tools | None) -> Said:
    keys: dict[str, Any] = node.value
    for name_key in NAME_KEYS:
        name = keys.get(name_key)
        if isinstance(name, str):
            break
    else:
        return _unnamed(node, tools)
    flat = keys.copy()
    del flat[name_key]
    arguments = argument_key(keys)
    bare = name.strip()
    fixes = () if bare == name else (Fix("name", f"{clip(name)!r} to {clip(bare)!r}"),)
    return Said(node, bare, child(node, arguments) if arguments else None, flat, fixes, name_key, _recorded(keys))


def _recorded(keys: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of an object that tell the outcome of a call."""
    if RECORD_KEYS.isdisjoint(keys):
        return _NO_KEYS
    present = frozenset(key for key in RECORD_KEYS.intersection(keys) if keys[key] not in (None, ""))
    return present - {"status"} if "type" in keys else present


def argument_key(keys: Mapping[str, Any]) -> str | None:
    """Return the key that holds the arguments: the most reliable one if there are several, None if there is none."""
    if not _ARGUMENTS.isdisjoint(keys):
        for key in ARGUMENT_KEYS:
            if key in keys:
                return key
    return None


def _unnamed(node: Node, tools: Tools | None) -> Said:
    """Read an object without a name key: the tool's name as the only key, or bare arguments."""
    keys: dict[str, Any] = node.value
    if tools is not None and len(keys) == 1:
        (key,) = keys
        if (is_object(keys[key]) or keys[key] is None or _holds_json(keys[key])) and tools.find(key) is not None:
            return Said(node, key, child(node, key), {}, (), "key")
    arguments = argument_key(keys)
    if arguments is not None and is_object(keys[arguments]) and _only_asides(keys, arguments):
        return Said(node, None, child(node, arguments), {}, ())
    return Said(node, None, node, {}, ())


def _holds_json(value: object) -> bool:
    """Whether `value` is a string that holds an object as strict JSON, and nothing else. O(n)."""
    text = value.strip() if isinstance(value, str) else ""
    parsed = members(text)
    return parsed is not None and parsed[2] == len(text)


def name_guess(raw: str, limit: int = 2000) -> str | None:
    """Return the tool's name in the first `limit` characters of an unreadable envelope, None if there is none."""
    head = raw[:limit]
    match = next(filter(None, (pattern.search(head) for pattern in _named())), None)
    return match[3] if match else None
