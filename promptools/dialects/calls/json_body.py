"""Read the JSON of calls: either whole calls, or the arguments of a call whose name is given elsewhere.

`JsonBody` finds the end of a JSON value while the text is streamed, and `read_calls` reads the value as calls.
`read_arguments` reads the arguments of a call whose name is in a field of a server's response or in a message's header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from promptools.dialects.calls.envelope import (
    JsonNode,
    NotACall,
    UnresolvedCall,
    guess_name,
    member_node,
    read_node,
    unresolved_calls,
)
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import PLAUSIBLE_NAME, malformed_call, resolve_call, unknown_tool_message
from promptools.json_values import is_object
from promptools.jsontext.brackets import BracketScanner
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.jsontext.read import Unreadable, read_complete_object
from promptools.parsing.parts import Part
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed, MalformedReason

# The body: its end is found while the text is streamed, then the body is read as calls.
#
# `JsonBody` only finds where the value ends. `read_calls` turns its text into parts that tile it: a call or malformed
# call for each object, and the markup between them. For a body that cannot be read, `unreadable_part` decides whether
# it is a malformed call or no call.


UNREADABLE_REASONS = ("invalid_json", "truncated", "limit")
"""Values of `Malformed.reason` for a call whose JSON could not be read.

Such JSON may be readable if another place is taken as its end.
"""


class JsonBody:
    """Finds the end of a JSON value that starts with `{` or `[`.

    An object that is complete in the first piece is parsed directly as strict JSON, which is fast. The end of a list,
    or of any other object, is found by counting brackets.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._extent: BracketScanner | None = None
        self.node: JsonNode | None = None
        self.strict = True
        """Whether the value may be strict JSON; False once the value is complete and known not to be strict JSON."""

    def feed(self, piece: str, start: int, stop: int) -> int | None:
        """Read `piece[start:stop]`; return the index in `piece` just past the value, or None if the value continues."""
        if stop < len(piece):
            end = self._read(piece[start:stop], 0)
            return None if end is None else end + start
        return self._read(piece, start)

    def _read(self, piece: str, start: int) -> int | None:
        if self.node is not None:  # only the last bracket was missing, and more text comes
            self.node, self._extent = None, BracketScanner()
            self._extent.feed(self.raw)
        first = self._extent is None
        if self._extent is None:
            parsed = read_complete_object(piece, start) if piece[start] == "{" else None
            if parsed is not None:
                value, end, fixes, closed, places, mended = parsed
                self.node = JsonNode(value, piece, start, end, not fixes, places, fixes, closed, mended)
                self._pieces.append(piece[start:] if closed else piece[start:end])
                return None if closed else end
            self._extent = BracketScanner()
        stop = self._extent.feed(piece, start)
        if first and stop is not None and piece[start] == "{":
            self.strict = False
        self._pieces.append(piece[start:stop])
        return stop

    @property
    def has_text(self) -> bool:
        """Whether any text of the value has arrived. Unlike `raw`, this does not join the pieces."""
        return any(self._pieces)

    @property
    def raw(self) -> str:
        """The value's text so far. Reading this joins the pieces, so read it only when the value is complete."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def calls(
        self,
        options: ParseOptions,
        evidence: Evidence,
        *,
        close: bool = False,
        stopped: bool = False,
        name: str | None = None,
    ) -> list[Part]:
        """Read the value as calls, like `read_calls`. If `feed` has parsed the value, it is not parsed again."""
        return read_calls(
            self.raw, options, evidence, node=self.node, strict=self.strict, close=close, stopped=stopped, name=name
        )

    def extend(self, text: str) -> None:
        """Add text to a value that does not end with a bracket, such as a string, without searching for its end."""
        self._pieces.append(text)
        self.node = None


def read_calls(
    raw: str,
    options: ParseOptions,
    evidence: Evidence,
    *,
    node: JsonNode | None = None,
    close: bool = False,
    stopped: bool = False,
    name: str | None = None,
    strict: bool = True,
    keys: tuple[str, str] | None = None,
) -> list[Part]:
    """Read the JSON value at the start of `raw` as calls; return parts that together cover the value's text. O(n).

    If the value cannot be read, the result is a single part with all of `raw`. `close` says that the text ended inside
    the value, so that closing brackets may be missing. `stopped` says that the model finished, as the finish reason
    shows. `name` is the tool that the markup around the value names. `strict=False` says that the value is known not to
    be strict JSON. `keys` are the keys that the model's family uses for the name and the arguments; if the key for the
    name is empty, the tool's name is the object's only key, and the arguments are its value. Raises `NotACall` if the
    value contains anything but calls.
    """
    try:
        if node is None or (node.closers_supplied and not close):
            node, fixes, closed = read_node(raw, 0, len(raw), options.anchors, close=close, strict=strict)
        else:
            fixes, closed = node.fixes, node.closers_supplied
        if node.value == [] and evidence.wrapped:  # an empty list calls nothing, and is markup, not content
            return [Part("markup", raw[: node.end - node.start])]
        if not node.exact and options.strictness == "strict" and not evidence.expected:
            raise NotACall("strict allows no repair of the body")
        raw_calls = [_by_keys(call, keys) if keys else call for call in _unresolved_calls(node, name, options)]
    except Unreadable as error:
        return [unreadable_part(raw, options, evidence, error.kind, error.reason, name or _guess_by_key(raw, keys))]
    if fixes and any(call.fixes for call in raw_calls):
        fixes = ()  # each element of a list was read by itself and has its own fixes
    if closed and not _may_supply_closers(raw_calls, closed, stopped):
        return [unreadable_part(raw, options, evidence, "truncated", "the text ended inside its arguments", name)]
    parts = _split_parts(raw[: node.end - node.start], node.start, raw_calls, fixes, options, evidence)
    if closed and any(part.malformed for part in parts):  # what is missing may have been cut off
        return [unreadable_part(raw, options, evidence, "truncated", "the text ended inside its arguments", name)]
    return parts


def _guess_by_key(raw: str, keys: tuple[str, str] | None, limit: int = 2000) -> str | None:
    """Find the tool's name near the start of unreadable JSON, under the family's key for names; None if not found."""
    if keys is None or not keys[0]:
        return None
    match = re.search(rf'"{re.escape(keys[0])}"\s*:\s*"([^"\\\n]{{1,128}})"', raw[:limit])
    return match[1] if match is not None else None


def _unresolved_calls(node: JsonNode, name: str | None, options: ParseOptions) -> list[UnresolvedCall]:
    if name is not None and (is_object(node.value) or isinstance(node.value, str)):
        return [UnresolvedCall(node, name or None, node, {})]
    return unresolved_calls(node, options.anchors, options.tools)


def _by_keys(unresolved: UnresolvedCall, keys: tuple[str, str]) -> UnresolvedCall:
    """Read an object using the keys of the model's family, unless the usual keys made it a complete call."""
    members = unresolved.node.value
    if not is_object(members) or (unresolved.name is not None and unresolved.arguments is not None):
        return unresolved
    name_key, arguments_key = keys
    if not name_key:
        key = next(iter(members), "")
        alone = len(members) == 1 and is_object(members[key])
        return (
            unresolved._replace(name=key, arguments=member_node(unresolved.node, key), name_key="key")
            if alone
            else unresolved
        )
    name = members.get(name_key)
    if not isinstance(name, str):
        return unresolved
    flat = {key: value for key, value in members.items() if key != name_key}
    arguments = member_node(unresolved.node, arguments_key) if arguments_key in members else None
    return UnresolvedCall(unresolved.node, name.strip(), arguments, flat, unresolved.fixes, name_key)


def _may_supply_closers(unresolved: list[UnresolvedCall], closed: int, stopped: bool) -> bool:
    """Return whether missing closing brackets may be added.

    A bracket of the object around the arguments may always be added. Brackets of the arguments may be added only if the
    model finished (`stopped`).
    """
    last = unresolved[-1]
    if last.arguments is None:
        return stopped and bool(last.siblings)
    around = 0 if last.arguments is last.node else 1  # without an envelope, the arguments lack the bracket
    return closed <= around or (stopped and bool(last.arguments.value))


def _split_parts(
    raw: str,
    base: int,
    unresolved: list[UnresolvedCall],
    fixes: tuple[Fix, ...],
    options: ParseOptions,
    evidence: Evidence,
) -> list[Part]:
    """Split `raw` into a part for each call and parts for the markup around the calls.

    `base` is the offset at which `raw` begins in the text that the calls' nodes refer to.
    """
    parts: list[Part] = []
    at = 0
    for call in unresolved:
        outcome = resolve_call(call._replace(fixes=(*fixes, *call.fixes)) if fixes else call, options, evidence)
        start, end = (call.node.start - base, call.node.end - base) if len(unresolved) > 1 else (0, len(raw))
        if start > at:
            parts.append(Part("markup", raw[at:start]))
        parts.append(call_part(outcome, raw[start:end]))
        at = end
    if at < len(raw):
        parts.append(Part("markup", raw[at:]))
    return parts


def call_part(outcome: Call | Malformed, raw: str) -> Part:
    """Return the part for a call or a malformed call whose text is `raw`."""
    if isinstance(outcome, Call):
        return Part("call", raw, call=outcome)
    return Part("malformed", raw, malformed=outcome)


def unreadable_part(
    raw: str, options: ParseOptions, evidence: Evidence, reason: MalformedReason, text: str, named: str | None = None
) -> Part:
    """Return a malformed part if the unreadable JSON was certainly meant as a call; else raise `NotACall`.

    `named` is the tool that the markup around the JSON names.
    """
    spelled = named or guess_name(raw)
    name: str | None = None
    if spelled is not None:
        match = options.tools.find(spelled) if options.tools is not None else None
        name = match[0].name if match else (spelled if options.tools is None else None)
    if options.strictness == "strict" and not evidence.expected:
        raise NotACall(f"it cannot be read ({text})")
    if name is None and not evidence.expected and not (evidence.wrapped and reason == "truncated"):
        raise NotACall(f"it cannot be read ({text}) and names no offered tool")
    if name is None and spelled is None and not evidence.wrapped:
        raise NotACall(f"it cannot be read ({text}) and names no tool")
    return Part("malformed", raw, malformed=malformed_call(reason, text, evidence.dialect, name or spelled))


def is_unreadable(parts: Sequence[Part]) -> bool:
    """Return whether the parts contain a call that could not be read."""
    return any(part.malformed is not None and part.malformed.reason in UNREADABLE_REASONS for part in parts)


def as_invalid_json(part: Part, dialect: str) -> Part:
    """Change the reason of a malformed part from "truncated" to "invalid_json"; leave any other part unchanged.

    The text was not cut off, since a marker after the JSON has arrived, or the model has finished.
    """
    if part.malformed is None or part.malformed.reason != "truncated":
        return part
    malformed = malformed_call(
        "invalid_json", "a string or bracket in it is never closed", dialect, part.malformed.name
    )
    return Part("malformed", part.raw, malformed=malformed)


# Read the arguments of a call whose name is known from elsewhere: a field of the server's response, or a header.
#
# Seen from servers: two concatenated objects in a call's arguments (litellm#33678), parts of a header in names
# (vllm#32587), and arguments that are encoded twice, begin twice (sglang#23071), or are followed by a stray bracket.


_RESIDUE = lazy_pattern(r"[\]}) \t\r\n]*(?:assistant|analysis|commentary|final)*[ \t\r\n]*\Z")
"""Matches surplus brackets, then words such as `assistant` and `final`.

The words are what SGLang leaves of the header of gpt-oss's next message.
"""
_FIRST_KEY = lazy_pattern(r'\{\s*"[^"]*"')


MAX_CONCATENATED = 16
"""Maximum number of concatenated objects that are read. For each of them, the rest of the text is read again."""


class ParsedArguments(NamedTuple):
    """Holds the calls that were read from the text of a call's arguments, and the offset at which each call ends."""

    calls: list[Call | Malformed]
    """One call, or several if a server concatenated the arguments of several calls."""
    ends: list[int]
    """The offset at which the text of each call ends. Text after the last end belongs to no call."""

    def add(self, outcomes: list[Call | Malformed], end: int) -> None:
        """Add the calls of a value that ends at offset `end`."""
        for outcome in outcomes:
            _add_call(self.calls, outcome)
        self.ends.extend([end] * (len(self.calls) - len(self.ends)))
        self.ends[-1] = end  # if the object was a duplicate, it was merged into the call before


def read_arguments(
    name: str, text: str, options: ParseOptions, evidence: Evidence, *, ended: bool, content_follows: bool = False
) -> ParsedArguments:
    """Read the arguments of a call to the tool `name`. O(n).

    `ended` says that the model finished the arguments, so that missing closing brackets may be added. If it is False,
    incomplete arguments count as cut off. `content_follows` says that content may follow in the same text.
    """
    body = text.strip() or "{}"
    size = len(text.rstrip())
    read = ParsedArguments([], [])
    count = 0

    def with_malformed(reason: MalformedReason, what: str) -> ParsedArguments:
        """Return the calls read so far, and a malformed call for the rest of the text."""
        malformed = malformed_call(reason, what, evidence.dialect, _strip_header(name) or None)
        return ParsedArguments([*read.calls, malformed], [*read.ends, len(text)])

    while body:
        count += 1
        try:
            node, fixes = _read_value(body, options, ended=ended)
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
        read.add(_resolve(name, node, fixes, options, evidence), end)
    return read


def _read_value(body: str, options: ParseOptions, *, ended: bool) -> tuple[JsonNode, tuple[Fix, ...]]:
    """Read the JSON value in `body`. Text may precede the value. Raises `Unreadable`."""
    anchors = options.anchors
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
    """Return whether the value is a string that contains text rather than JSON.

    Plain text without quotes may be the argument that the model meant (continue#10221). Plain text in quotes comes from
    a server that constrains only the envelope of a call, as vLLM 0.32 does if a call, or a call to one named tool, is
    required.
    """
    return isinstance(value, str) and bool(value.strip()) and value.lstrip()[0] not in '{["'


def _begins_twice(body: str) -> bool:
    """Return whether broken arguments repeat their beginning because a server joined two deltas (sglang#23071)."""
    first = _FIRST_KEY.match(body)
    return first is not None and body.find(first[0], first.end()) >= 0


def _read_after_text(body: str, anchors: frozenset[str]) -> tuple[JsonNode, tuple[Fix, ...]]:
    """Read arguments that follow reasoning text (ollama#12064). If there are none, return all text as a string."""
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
    """Return whether the text after the arguments is more arguments, or a leftover that servers are known to cause."""
    return rest.startswith(("{", "<|", "</")) or _RESIDUE.match(rest) is not None


def _tail_fix(rest: str) -> Fix:
    if rest.startswith("<"):
        return Fix("marker", "a marker followed the arguments")
    return Fix("closer", f"{rest.strip()!r} followed the arguments")


def _resolve(
    name: str, node: JsonNode, fixes: tuple[Fix, ...], options: ParseOptions, evidence: Evidence
) -> list[Call | Malformed]:
    """Resolve the call with the arguments `node`.

    If `name` cannot be a tool's name, the arguments must show which tool is called, or contain whole calls.
    """
    tools = options.tools
    if PLAUSIBLE_NAME.match(_strip_header(name)) and ("<" not in name or tools is None or tools.find(name) is not None):
        readings = [[UnresolvedCall(node, name, node, {}, fixes)]]
    else:
        readings = [[UnresolvedCall(node, None, node, {}, fixes)], _inner_calls(node, fixes, options)]
    why = "it names no tool"
    for reading in readings:
        try:
            if reading:
                return [resolve_call(call, options, evidence) for call in reading]
        except NotACall as no:
            why = str(no)
    return [_unknown_tool(name, why, options, evidence)]


def _inner_calls(node: JsonNode, fixes: tuple[Fix, ...], options: ParseOptions) -> list[UnresolvedCall]:
    """Return the calls that the arguments themselves contain; empty if there are none."""
    try:
        return [
            call._replace(fixes=(*fixes, *call.fixes))
            for call in unresolved_calls(node, options.anchors, options.tools)
        ]
    except (NotACall, Unreadable):
        return []


def _unknown_tool(name: str, why: str, options: ParseOptions, evidence: Evidence) -> Malformed:
    """Return a malformed call, because `name` is not the name of a tool, or because the arguments are not accepted.

    `why` is the reason, for example that the arguments are a tool's definition.
    """
    tool = _strip_header(name)
    if options.tools is not None and options.tools.find(name) is not None:
        return malformed_call("invalid_arguments", why, evidence.dialect, tool)
    message = (
        unknown_tool_message(tool, options.tools) if options.tools is not None else f"The call was not run: {why}."
    )
    return Malformed(0, "", "unknown_tool", message, name=tool, dialect=evidence.dialect)


def _strip_header(name: str) -> str:
    return name.partition("<")[0].strip()


def _add_call(calls: list[Call | Malformed], outcome: Call | Malformed) -> None:
    """Add a call to the calls that were read from one text; if it repeats the last of them, merge the two.

    SGLang writes a call of MiniMax-M2 twice (sglang#23071).
    """
    last = calls[-1] if calls else None
    if isinstance(last, Call) and isinstance(outcome, Call):
        if (last.name, last.arguments) == (outcome.name, outcome.arguments):
            calls[-1] = replace(last, fixes=(*last.fixes, Fix("duplicate", "the arguments came twice")))
            return
        outcome = replace(outcome, fixes=(*outcome.fixes, Fix("json", "glued to the arguments of another call")))
    calls.append(outcome)
