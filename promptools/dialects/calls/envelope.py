"""Read a JSON value as raw calls, in all the forms that models write.

An envelope is the object around the arguments: `{"name": ..., "arguments": {...}}`. Models spell its keys in dozens of
ways, put it into a list or a wrapper (`{"tool_calls": [...]}`), nest it under `function`, or leave it out.
`unresolved_calls` reads all of these forms and returns an `UnresolvedCall` for each call: the name, the arguments and
the other keys, with their offsets in the source.

This module only says which tools the JSON names; `resolve_call` decides which calls are accepted. A `JsonNode` records
where a value is in the source and whether its text is strict JSON, so that arguments without fixes are returned as the
model wrote them.

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
from promptools.json_values import is_array, is_object
from promptools.jsontext.brackets import BracketScanner
from promptools.jsontext.read import Unreadable, read_value
from promptools.jsontext.strict import read_members
from promptools.jsontext.text import MemberSpans
from promptools.types import Fix

NAME_KEYS = (
    "tool",
    "name",
    "tool_name",
    "function",
    "function_name",
    "action",
    "command",
    "recipient_name",  # OpenAI's multi_tool_use
    "toolName",
)
AMBIGUOUS_NAME_KEYS = frozenset({"action", "command"})
"""Keys of `NAME_KEYS` that are just as often parameters: `{"command": "ls -l"}`, for example, does not name a tool."""
ARGUMENT_KEYS = (
    "arguments",
    "parameters",  # Llama 3.1 and later
    "args",  # ollama#18388
    "input",
    "action_input",  # LangChain's structured chat agent
    "params",
    "kwargs",
    "tool_input",
    "parameter",
    "toolInput",
    "inputs",
)
WRAPPER_KEYS = ("tool_calls", "tool_call", "function_call", "calls", "actions", "tool_uses")
METADATA_KEYS = frozenset(
    {"id", "type", "index", "tool_call_id", "call_id", "thought", "thoughts", "reasoning", "explanation", "content"}
)

"""Keys that may be next to the name of a call but are not arguments."""

RECORD_KEYS = frozenset({
    "result", "results", "output", "outputs", "observation", "stdout", "stderr", "exit_code", "exitcode",
    "returncode", "return_code", "success", "error", "status", "status_code", "ts", "time", "datetime", "timestamp",
    "@timestamp", "date", "started_at", "finished_at", "ended_at", "completed_at", "created_at", "updated_at",
    "duration", "duration_s", "duration_ms", "elapsed", "elapsed_s", "elapsed_ms", "took", "took_ms", "latency",
    "latency_ms", "level", "severity", "loglevel", "log_level", "logger", "msg", "pid", "hostname", "trace_id",
    "span_id", "request_id",
})  # fmt: skip
"""Keys that show that an object is a record of an earlier call, as in a log, and not a new call.

A model that makes a call cannot know the values of these keys. Keys with null or empty values do not count, nor does
the `status` of items of OpenAI's Responses API.
"""

if TYPE_CHECKING:
    from promptools.schema import Tools

FIRST_KEYS = frozenset((*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPER_KEYS, *METADATA_KEYS, "role"))
"""The keys that a call in the middle of prose may begin with."""

_ARGUMENTS = frozenset(ARGUMENT_KEYS)
_WRAPPERS = frozenset((*WRAPPER_KEYS, "function"))

_NO_KEYS: frozenset[str] = frozenset()

MAX_WRAPPERS = 16
"""Maximum number of nested wrappers around a call that are unwrapped. Only malicious input has more."""

MAX_HALF_DOUBLED = 16
"""Maximum number of elements of a list that may begin with `{{` but end with `}`.

To find the end of such an element, the whole rest of the list is scanned.
"""
MAX_LIST_OFFSETS = 4
"""Maximum number of places that are tried as the beginning of the list under a wrapper's key.

The key may also occur inside a string, so the first place may be wrong.
"""


@cache
def _name_patterns() -> tuple[re.Pattern[str], ...]:
    """Return patterns for a key and the tool's name after it, in any quotes; the most reliable keys come first."""
    return tuple(re.compile(rf"""(["']){key}\1\s*+:\s*+(["'])([^"']{{1,256}})\2""") for key in NAME_KEYS)


class JsonNode(NamedTuple):
    """A JSON value and its text, `source[start:end]`. `exact` says that this text is strict JSON."""

    value: Any
    source: str
    start: int
    end: int
    exact: bool
    member_spans: MemberSpans | None = None
    """For an object, maps each key to the span of the member's value; None if the spans are not known yet."""
    fixes: tuple[Fix, ...] = ()
    closers_supplied: int = 0
    """Number of missing closing brackets that were added. Like `fixes`, set only if the value came in one piece."""
    repaired: str | None = None
    """The value as strict JSON, if it had to be repaired when read. `member_spans` are then offsets in this text."""

    def text(self) -> str | None:
        """Return the text of the value as strict JSON, as written or as repaired; None if neither text is available."""
        return self.source[self.start : self.end] if self.exact else self.repaired


class UnresolvedCall(NamedTuple):
    """A call as it is written in a JSON object, not yet checked against the tools.

    `node` is the object. `arguments` is the value under a key for arguments; None if the object has no such key.
    """

    node: JsonNode
    name: str | None
    arguments: JsonNode | None
    siblings: Mapping[str, Any]
    """The members of the object except for the name; some of them may be arguments."""
    fixes: tuple[Fix, ...] = ()
    name_key: str = ""
    record_keys: frozenset[str] = _NO_KEYS
    """Keys next to the name that appear only in the record of an earlier call; see `RECORD_KEYS`."""


class NotACall(Exception):
    """Raised if a value is not a call; the message says why."""


def read_node(
    source: str, start: int, end: int, anchors: frozenset[str], *, close: bool = False, strict: bool = True
) -> tuple[JsonNode, tuple[Fix, ...], int]:
    """Read the JSON value that begins at `source[start]`; return its node, its fixes, and the number of brackets added.

    With `close`, missing closing brackets are added. `strict=False` says that the value is known not to be strict JSON.
    Raises `Unreadable`. O(n) in characters.
    """
    value = read_value(source[start:end], declared_keys=anchors, supply_closers=close, strict=strict)
    exact = not value.fixes and not value.supplied_closers
    node = JsonNode(
        value.value, source, start, start + value.end, exact, value.member_spans, repaired=value.repaired_text
    )
    return node, value.fixes, value.supplied_closers


def member_node(node: JsonNode, key: str) -> JsonNode:
    """Return the node of an object's member. If the object is not strict JSON, this node has the object's span."""
    value = node.value[key]
    if not node.exact:
        mended = None
        if node.repaired is not None and node.member_spans:
            start, end = node.member_spans[key]
            mended = node.repaired[start:end]
        return JsonNode(value, node.source, node.start, node.end, exact=False, repaired=mended)
    places = node.member_spans
    if places is None:
        _, places, _ = read_members(node.source, node.start)
    start, end = places[key]
    return JsonNode(value, node.source, start, end, exact=True)


def _wrapped_node(node: JsonNode, key: str, anchors: frozenset[str]) -> JsonNode:
    """Return the node of the member `key`, such as `tool_calls`, whose value contains calls.

    If the value is a list, the node has the span of the list, even if the object around it is not strict JSON. Raises
    `NotACall` if this span cannot be found.
    """
    inner = member_node(node, key)
    if node.exact or not is_array(inner.value):
        return inner
    brackets = re.compile(rf"""{key}["'“”‘’]?\s*+:\s*+(?=\[)""").finditer(node.source, node.start, node.end)
    for bracket in islice(brackets, MAX_LIST_OFFSETS):
        with suppress(Unreadable):
            calls, _, _ = read_node(node.source, bracket.end(), node.end, anchors, close=True)
            if calls.value == inner.value:
                return calls
    raise NotACall("where its list of calls is, is not certain")


def list_nodes(node: JsonNode, anchors: frozenset[str]) -> Iterator[tuple[JsonNode, tuple[Fix, ...]]]:
    """Yield the elements of a list, with their spans and fixes. O(n).

    Raises `NotACall` if an element is not an object, and `Unreadable` if an element cannot be read by itself.
    """
    at = node.start + 1
    limit = node.end
    source = node.source
    half_doubled = 0
    while True:
        while at < limit and source[at] in " \t\r\n,":
            at += 1
        if at >= limit or source[at] == "]":
            return
        if source[at] not in "{[":
            raise NotACall("the list holds something that is not an object")
        doubled = source.startswith("{{", at) and half_doubled < MAX_HALF_DOUBLED
        end = BracketScanner().feed(source[at:limit], 0)
        if end is None and not doubled:
            raise Unreadable(limit, "the text ended inside a call", "truncated")
        stop = limit if end is None else at + end
        element, fixes, _ = read_node(source, at, stop, anchors)
        if source[element.end : stop].strip():
            if not doubled:
                raise NotACall("an element of the list is followed by something else")
            half_doubled += 1  # one brace closes two here, so counting braces went too far
            stop = element.end
        yield element, fixes
        at = stop


def unresolved_calls(
    node: JsonNode, anchors: frozenset[str], tools: Tools | None, depth: int = 0
) -> list[UnresolvedCall]:
    """Read `node`, an object or a list, as raw calls, in order. O(n) for each level of wrappers.

    Raises `NotACall` if the value contains no calls, or anything besides calls; `Unreadable` if a list has broken
    calls.
    """
    if depth > MAX_WRAPPERS:
        raise NotACall("wrapped too deep")
    if is_array(node.value):
        calls: list[UnresolvedCall] = []
        for element, fixes in list_nodes(node, anchors):
            nested = unresolved_calls(element, anchors, tools, depth + 1)
            calls += [call._replace(fixes=(*fixes, *call.fixes)) for call in nested] if fixes else nested
        if not calls:
            raise NotACall("an empty list")
        return calls
    if not is_object(node.value):
        raise NotACall("no object")
    return _read_object(node, anchors, tools, depth)


def _read_object(node: JsonNode, anchors: frozenset[str], tools: Tools | None, depth: int) -> list[UnresolvedCall]:
    keys: dict[str, Any] = node.value
    if _WRAPPERS.isdisjoint(keys):  # the fast path: most calls have no wrapper
        return [_read_call(node, tools)]
    for wrapper in WRAPPER_KEYS:
        inner = keys.get(wrapper)
        if (is_object(inner) or is_array(inner)) and inner and _only_metadata(keys, wrapper):
            return unresolved_calls(_wrapped_node(node, wrapper, anchors), anchors, tools, depth + 1)
    function = keys.get("function")
    # The API's own object, printed as text: smolagents#122.
    if is_object(function) and not any(isinstance(keys.get(key), str) for key in ("tool", "name")):
        inner_node = member_node(node, "function")
        calls = unresolved_calls(inner_node, anchors, tools, depth + 1)
        return [_with_sibling_arguments(calls[0], node)] if len(calls) == 1 else calls
    return [_read_call(node, tools)]


def _with_sibling_arguments(unresolved: UnresolvedCall, node: JsonNode) -> UnresolvedCall:
    """Add arguments from the keys next to `function` to a call found under `function`.

    Groq's fine-tunes of Llama write such calls.
    """
    key = argument_key(node.value) if unresolved.arguments is None and not unresolved.siblings else None
    unresolved = unresolved._replace(record_keys=unresolved.record_keys | _record_keys_in(node.value))
    if key is None:
        return unresolved._replace(node=node)
    fix = Fix("unwrap", "the arguments were beside the function")
    return unresolved._replace(node=node, arguments=member_node(node, key), fixes=(*unresolved.fixes, fix))


def _only_metadata(keys: Mapping[str, Any], wrapper: str) -> bool:
    return all(key == wrapper or key in METADATA_KEYS or key in ("role", "finish_reason") for key in keys)


def _read_call(node: JsonNode, tools: Tools | None) -> UnresolvedCall:
    keys: dict[str, Any] = node.value
    for name_key in NAME_KEYS:
        name = keys.get(name_key)
        if isinstance(name, str):
            break
    else:
        return _read_unnamed(node, tools)
    flat = keys.copy()
    del flat[name_key]
    arguments = argument_key(keys)
    bare = name.strip()
    fixes = () if bare == name else (Fix("name", f"{clip(name)!r} to {clip(bare)!r}"),)
    return UnresolvedCall(
        node, bare, member_node(node, arguments) if arguments else None, flat, fixes, name_key, _record_keys_in(keys)
    )


def _record_keys_in(keys: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of an object that appear only in the record of an earlier call; see `RECORD_KEYS`."""
    if RECORD_KEYS.isdisjoint(keys):
        return _NO_KEYS
    present = frozenset(key for key in RECORD_KEYS.intersection(keys) if keys[key] not in (None, ""))
    return present - {"status"} if "type" in keys else present


def argument_key(keys: Mapping[str, Any]) -> str | None:
    """Return the object's key for arguments, the most reliable one if there are several; None if there is none."""
    if not _ARGUMENTS.isdisjoint(keys):
        for key in ARGUMENT_KEYS:
            if key in keys:
                return key
    return None


def _read_unnamed(node: JsonNode, tools: Tools | None) -> UnresolvedCall:
    """Read a call from an object that has no key, such as `name`, for the tool's name.

    The object's only key is the tool's name, or the arguments are under a key such as `arguments`, or the object itself
    is the arguments.
    """
    keys: dict[str, Any] = node.value
    if tools is not None and len(keys) == 1:
        (key,) = keys
        if (is_object(keys[key]) or keys[key] is None or _holds_json(keys[key])) and tools.find(key) is not None:
            return UnresolvedCall(node, key, member_node(node, key), {}, (), "key")
    arguments = argument_key(keys)
    if arguments is not None and is_object(keys[arguments]) and _only_metadata(keys, arguments):
        return UnresolvedCall(node, None, member_node(node, arguments), {}, ())
    return UnresolvedCall(node, None, node, {}, ())


def _holds_json(value: object) -> bool:
    """Return whether a value is a string that contains an object as strict JSON and nothing else. O(n)."""
    text = value.strip() if isinstance(value, str) else ""
    return read_members(text)[2] == len(text)


def guess_name(raw: str, limit: int = 2000) -> str | None:
    """Return the tool's name from the first `limit` characters of JSON that cannot be read; None if not found."""
    head = raw[:limit]
    match = next(filter(None, (pattern.search(head) for pattern in _name_patterns())), None)
    return match[3] if match else None
