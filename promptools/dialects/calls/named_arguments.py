"""Read the arguments of a call whose name is known from elsewhere: a field of the server's response, or a header.

Seen in the wild: two concatenated objects in a call's arguments (litellm#33678), header residue in names (vllm#32587),
arguments encoded twice, begun twice (sglang#23071), or followed by a stray bracket.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from promptools.dialects.calls.envelope import JsonNode, NotACall, UnresolvedCall, read_node, unresolved_calls
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import PLAUSIBLE_NAME, malformed_call, resolve_call, unknown_tool_message
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.jsontext.read import Unreadable
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed, MalformedReason

_RESIDUE = lazy_pattern(r"[\]}) \t\r\n]*(?:assistant|analysis|commentary|final)*[ \t\r\n]*\Z")
"""Surplus brackets, and what filters leave of the header of gpt-oss' next message (SGLang)."""
_FIRST_KEY = lazy_pattern(r'\{\s*"[^"]*"')


MAX_CONCATENATED = 16
"""Concatenated objects that are read at most: each of them costs a pass over the rest of the text."""


class ParsedArguments(NamedTuple):
    """What a text of arguments holds: calls, and where each ends."""

    calls: list[Call | Malformed]
    """One call; several if a server concatenated their arguments."""
    ends: list[int]
    """The offset at which the text of each ends. Text after the last one belongs to no call."""

    def add(self, outcomes: list[Call | Malformed], end: int) -> None:
        """Add the calls of a value that ends at offset `end`."""
        for outcome in outcomes:
            _add_call(self.calls, outcome)
        self.ends.extend([end] * (len(self.calls) - len(self.ends)))
        self.ends[-1] = end  # a duplicate object was merged into the call before it


def read_arguments(
    name: str, text: str, rules: ParseOptions, place: Evidence, *, ended: bool, content_follows: bool = False
) -> ParsedArguments:
    """Read the arguments of a call of `name`. O(n).

    `ended`: the model finished them, so missing closing brackets may be supplied; else they count as cut off.
    `content_follows`: content may follow them in the same text.
    """
    body = text.strip() or "{}"
    size = len(text.rstrip())
    read = ParsedArguments([], [])
    count = 0

    def with_malformed(reason: MalformedReason, what: str) -> ParsedArguments:
        """Return what was read, and the rest of the text as malformed."""
        malformed = malformed_call(reason, what, place.dialect, _strip_header(name) or None)
        return ParsedArguments([*read.calls, malformed], [*read.ends, len(text)])

    while body:
        count += 1
        try:
            node, fixes = _read_value(body, rules, ended=ended)
        except Unreadable as error:
            return with_malformed(error.kind, error.reason)
        rest = body[node.end :].lstrip()
        tail = _is_tail(rest)
        if body[0] == '"' and _is_plain_string(node.value):
            return with_malformed("not_an_object", "its arguments are a string, not an object")
        if count > MAX_CONCATENATED or not (tail or content_follows):
            many = f"more than {MAX_CONCATENATED} objects are in its arguments"
            return with_malformed("invalid_json", many if tail else "text follows the arguments")
        if '"' in rest and any(fix.detail.startswith(UNESCAPED_QUOTES) for fix in fixes):
            return with_malformed("invalid_json", "text follows a string whose end is a guess")
        body = rest if rest.startswith("{") else ""
        if rest and not body:
            fixes = (*fixes, _tail_fix(rest) if tail else Fix("marker", "text followed the arguments"))
        end = len(text) if tail and not body else size - len(rest)
        read.add(_resolve(name, node, fixes, rules, place), end)
    return read


def _read_value(body: str, rules: ParseOptions, *, ended: bool) -> tuple[JsonNode, tuple[Fix, ...]]:
    """Read the value at the beginning of `body`, or after a text that precedes it. Raises `Unreadable`."""
    anchors = rules.anchors
    try:
        node, fixes, _ = read_node(body, 0, len(body), anchors)
    except Unreadable as error:
        if error.kind == "truncated" and ended:
            node, fixes, _ = read_node(body, 0, len(body), anchors, close=True)
            return node, fixes
        if error.kind != "invalid_json" or body[0] in '{["':
            raise
        return _read_after_text(body, anchors)
    if fixes and _begins_twice(body):
        raise Unreadable(0, "the arguments begin again inside themselves", "invalid_json")
    return node, fixes


def _is_plain_string(value: object) -> bool:
    """Whether the value is a JSON string that does not hold JSON itself.

    Plain text without quotes may be the argument that the model meant (ollama#10221). A quoted string comes from an
    engine that was asked for a call and constrains only its envelope (vLLM 0.32, required and named).
    """
    return isinstance(value, str) and bool(value.strip()) and value.lstrip()[0] not in '{["'


def _begins_twice(body: str) -> bool:
    """Whether broken arguments hold their own beginning twice: two deltas concatenated (sglang#23071)."""
    first = _FIRST_KEY.match(body)
    return first is not None and body.find(first[0], first.end()) >= 0


def _read_after_text(body: str, anchors: frozenset[str]) -> tuple[JsonNode, tuple[Fix, ...]]:
    """Read arguments after reasoning text (ollama#12064), or plain text that may be a tool's only string parameter."""
    start = body.find("{")
    if start > 0 and body.endswith("}"):
        try:
            node, fixes, _ = read_node(body, start, len(body), anchors)
        except Unreadable:
            pass
        else:
            if not body[node.end :].strip():
                return node, (Fix("marker", "there was text before the arguments"), *fixes)
    return JsonNode(body, body, 0, len(body), exact=False), ()


def _is_tail(rest: str) -> bool:
    """Whether what follows the arguments is known residue, or further arguments."""
    return rest.startswith(("{", "<|", "</")) or _RESIDUE.match(rest) is not None


def _tail_fix(rest: str) -> Fix:
    if rest.startswith("<"):
        return Fix("marker", "a marker followed the arguments")
    return Fix("closer", f"{rest.strip()!r} followed the arguments")


def _resolve(
    name: str, node: JsonNode, fixes: tuple[Fix, ...], rules: ParseOptions, place: Evidence
) -> list[Call | Malformed]:
    """Resolve the call whose arguments are `node`; if `name` is no tool name, look for one inside them."""
    tools = rules.tools
    if PLAUSIBLE_NAME.match(_strip_header(name)) and ("<" not in name or tools is None or tools.find(name) is not None):
        readings = [[UnresolvedCall(node, name, node, {}, fixes)]]
    else:
        readings = [[UnresolvedCall(node, None, node, {}, fixes)], _inner_calls(node, fixes, rules)]
    why = "it names no tool"
    for reading in readings:
        try:
            if reading:
                return [resolve_call(call, rules, place) for call in reading]
        except NotACall as no:
            why = str(no)
    return [_unknown_tool(name, why, rules, place)]


def _inner_calls(node: JsonNode, fixes: tuple[Fix, ...], rules: ParseOptions) -> list[UnresolvedCall]:
    """Return the calls that the arguments hold themselves, if they do."""
    try:
        return [
            call._replace(fixes=(*fixes, *call.fixes)) for call in unresolved_calls(node, rules.anchors, rules.tools)
        ]
    except (NotACall, Unreadable):
        return []


def _unknown_tool(name: str, why: str, rules: ParseOptions, place: Evidence) -> Malformed:
    """Return the malformed call for one that names no tool, or whose arguments are a tool's definition."""
    tool = _strip_header(name)
    if rules.tools is not None and rules.tools.find(name) is not None:
        return malformed_call("invalid_arguments", why, place.dialect, tool)
    message = unknown_tool_message(tool, rules.tools) if rules.tools is not None else f"The call was not run: {why}."
    return Malformed(0, "", "unknown_tool", message, name=tool, dialect=place.dialect)


def _strip_header(name: str) -> str:
    return name.partition("<")[0].strip()


def _add_call(calls: list[Call | Malformed], outcome: Call | Malformed) -> None:
    """Add one of several concatenated calls; a duplicate is merged (SGLang with MiniMax-M2, sglang#23071)."""
    last = calls[-1] if calls else None
    if isinstance(last, Call) and isinstance(outcome, Call):
        if (last.name, last.arguments) == (outcome.name, outcome.arguments):
            calls[-1] = replace(last, fixes=(*last.fixes, Fix("duplicate", "the arguments came twice")))
            return
        outcome = replace(outcome, fixes=(*outcome.fixes, Fix("json", "glued to the arguments of another call")))
    calls.append(outcome)
