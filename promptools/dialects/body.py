"""The JSON body of a call: its end is found while the text is streamed, then it is read as calls.

`JsonBody` only finds where the value ends. `read_calls` turns its text into parts that tile it: a call or malformed
call for each object, and the markup between them. For a body that cannot be read, `unreadable` decides whether that is
a malformed call or none.
"""

from __future__ import annotations

from collections.abc import Sequence

from promptools.dialects.envelope import NoCall, Node, Said, child, name_guess, node_of, said_in
from promptools.dialects.settle import Place, Rules, broken, settle
from promptools.parsing.extent import Extent
from promptools.parsing.parts import Part
from promptools.parsing.tolerant import Unreadable, whole
from promptools.schema.graph import is_object
from promptools.types import Call, Fix, Malformed, MalformedReason

UNREADABLE = ("invalid_json", "truncated", "limit")
"""Reasons for which the body may be readable if it ends elsewhere."""


class JsonBody:
    """Finds the end of a value that starts with `{` or `[`, without looking at any character twice.

    An object is first parsed as JSON, strict or nearly so, at C speed. If it does not end in the first piece, its end
    is found by counting brackets, as a list's always is.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._extent: Extent | None = None
        self.node: Node | None = None
        self.strict = True
        """It may be strict JSON; False once the whole value was parsed as such in vain."""

    def feed(self, piece: str, start: int, stop: int) -> int | None:
        """Read `piece[start:stop]`; return the index in `piece` just past the value, None if it goes on."""
        if stop < len(piece):
            end = self._take(piece[start:stop], 0)
            return None if end is None else end + start
        return self._take(piece, start)

    def _take(self, piece: str, start: int) -> int | None:
        if self.node is not None:  # only its last bracket was missing, and more text comes
            self.node, self._extent = None, Extent()
            self._extent.feed(self.raw)
        first = self._extent is None
        if self._extent is None:
            parsed = whole(piece, start) if piece[start] == "{" else None
            if parsed is not None:
                value, end, fixes, closed, places, mended = parsed
                self.node = Node(value, piece, start, end, not fixes, places, fixes, closed, mended)
                self._pieces.append(piece[start:] if closed else piece[start:end])
                return None if closed else end
            self._extent = Extent()
        stop = self._extent.feed(piece, start)
        if first and stop is not None and piece[start] == "{":
            self.strict = False
        self._pieces.append(piece[start:stop])
        return stop

    @property
    def begun(self) -> bool:
        """Whether any of its text has come; unlike `raw`, this does not join the pieces."""
        return any(self._pieces)

    @property
    def raw(self) -> str:
        """The value's text so far. Joins the pieces, so use it only once the value is read."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def calls(
        self, rules: Rules, place: Place, *, close: bool = False, stopped: bool = False, name: str | None = None
    ) -> list[Part]:
        """Read the value as calls with `read_calls`, reusing the node if it was parsed already."""
        return read_calls(
            self.raw, rules, place, node=self.node, strict=self.strict, close=close, stopped=stopped, name=name
        )

    def extend(self, text: str) -> None:
        """Add text without looking for the end: for a body that does not end with its brackets."""
        self._pieces.append(text)
        self.node = None


def read_calls(
    raw: str,
    rules: Rules,
    place: Place,
    *,
    node: Node | None = None,
    close: bool = False,
    stopped: bool = False,
    name: str | None = None,
    strict: bool = True,
    keys: tuple[str, str] | None = None,
) -> list[Part]:
    """Read the JSON value that `raw` starts with as calls, into parts that tile it, or the beginning of `raw`. O(n).

    `close`: the text ended inside it, so closing brackets may be missing; `stopped`: the finish reason says that the
    model was done; `name`: the tool that the markup around it names; `strict=False`: it is known not to be strict JSON;
    `keys`: the family's keys for the name and the arguments; with an empty name key, the tool's name is the only key,
    and its value the arguments. Raises `NoCall` if it is anything but calls.
    """
    if node is None or (node.closed and not close):
        try:
            node, fixes, closed = node_of(raw, 0, len(raw), rules.anchors, close=close, strict=strict)
        except Unreadable as error:
            return [unreadable(raw, rules, place, error.kind, error.reason, name)]
    else:
        fixes, closed = node.fixes, node.closed
    if node.value == [] and place.sentinel:  # an empty list calls nothing, and is markup, not content
        return [Part("markup", raw[: node.end - node.start])]
    if not node.exact and rules.strictness == "strict" and not place.expected:
        raise NoCall("strict takes no liberties with the body")
    try:
        raw_calls = [_by_keys(call, keys) if keys else call for call in _said(node, name, rules)]
    except Unreadable as error:
        return [unreadable(raw, rules, place, error.kind, error.reason, name)]
    if fixes and any(call.fixes for call in raw_calls):
        fixes = ()  # each element of a list was read by itself, and has its own fixes
    if closed and not _may_close(raw_calls, closed, stopped):
        return [unreadable(raw, rules, place, "truncated", "the text ended inside its arguments", name)]
    parts = _tile(raw[: node.end - node.start], node.start, raw_calls, fixes, rules, place)
    if closed and any(part.malformed for part in parts):  # what is missing may have been cut off
        return [unreadable(raw, rules, place, "truncated", "the text ended inside its arguments", name)]
    return parts


def _said(node: Node, name: str | None, rules: Rules) -> list[Said]:
    if name is not None and (is_object(node.value) or isinstance(node.value, str)):
        return [Said(node, name or None, node, {})]
    return said_in(node, rules.anchors, rules.tools)


def _by_keys(said: Said, keys: tuple[str, str]) -> Said:
    """Read an object by the family's own keys, unless the usual ones make a complete call of it already."""
    members = said.node.value
    if not is_object(members) or (said.name is not None and said.arguments is not None):
        return said
    name_key, arguments_key = keys
    if not name_key:
        key = next(iter(members), "")
        alone = len(members) == 1 and is_object(members[key])
        return said._replace(name=key, arguments=child(said.node, key), name_key="key") if alone else said
    name = members.get(name_key)
    if not isinstance(name, str):
        return said
    flat = {key: value for key, value in members.items() if key != name_key}
    arguments = child(said.node, arguments_key) if arguments_key in members else None
    return Said(said.node, name.strip(), arguments, flat, said.fixes, name_key)


def _may_close(said: list[Said], closed: int, stopped: bool) -> bool:
    """Whether missing closing brackets may be supplied: the envelope's always, the arguments' if the model stopped."""
    last = said[-1]
    if last.arguments is None:
        return stopped and bool(last.flat)
    around = 0 if last.arguments is last.node else 1  # without an envelope the missing bracket is the arguments' own
    return closed <= around or (stopped and bool(last.arguments.value))


def _tile(raw: str, base: int, said: list[Said], fixes: tuple[Fix, ...], rules: Rules, place: Place) -> list[Part]:
    """Split `raw`, which is at offset `base` of its source, into one part per call and the markup around them."""
    parts: list[Part] = []
    at = 0
    for call in said:
        outcome = settle(call._replace(fixes=(*fixes, *call.fixes)) if fixes else call, rules, place)
        start, end = (call.node.start - base, call.node.end - base) if len(said) > 1 else (0, len(raw))
        if start > at:
            parts.append(Part("markup", raw[at:start]))
        parts.append(part_of(outcome, raw[start:end]))
        at = end
    if at < len(raw):
        parts.append(Part("markup", raw[at:]))
    return parts


def part_of(outcome: Call | Malformed, raw: str) -> Part:
    """Return the part for a resolved call."""
    if isinstance(outcome, Call):
        return Part("call", raw, call=outcome)
    return Part("malformed", raw, malformed=outcome)


def unreadable(
    raw: str, rules: Rules, place: Place, reason: MalformedReason, text: str, named: str | None = None
) -> Part:
    """Return the malformed part for a body that cannot be read, if a call was certainly meant; else raise `NoCall`.

    `named`: the tool that the markup around it names.
    """
    spelled = named or name_guess(raw)
    name: str | None = None
    if spelled is not None:
        match = rules.tools.find(spelled) if rules.tools is not None else None
        name = match[0].name if match else (spelled if rules.tools is None else None)
    if rules.strictness == "strict" and not place.expected:
        raise NoCall(f"it cannot be read ({text})")
    if name is None and not place.expected and not (place.wrapped and reason == "truncated"):
        raise NoCall(f"it cannot be read ({text}) and names no offered tool")
    if name is None and spelled is None and not place.wrapped:
        raise NoCall(f"it cannot be read ({text}) and names no tool")
    return Part("malformed", raw, malformed=broken(reason, text, place.dialect, name or spelled))


def is_unreadable(parts: Sequence[Part]) -> bool:
    """Whether one of the calls could not be read."""
    return any(part.malformed is not None and part.malformed.reason in UNREADABLE for part in parts)


def not_cut(part: Part, dialect: str) -> Part:
    """Turn a truncated part into one of invalid JSON: its closing marker came, so it was not cut off."""
    if part.malformed is None or part.malformed.reason != "truncated":
        return part
    malformed = broken("invalid_json", "a string or bracket in it is never closed", dialect, part.malformed.name)
    return Part("malformed", part.raw, malformed=malformed)
