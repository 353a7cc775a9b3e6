"""One JSON value inside the reply, collected as it comes, then read as calls."""

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
"""Reasons that tell of a body which another end of it might mend."""


class JsonBody:
    """Finds the end of a value that starts with `{` or `[`, without ever looking at a character twice.

    The first piece is tried as strict JSON, or nearly, at C speed; what does not end there is followed by its brackets.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._extent: Extent | None = None
        self.node: Node | None = None
        self.strict = True
        """It may be strict JSON; False once that was tried on the whole value."""

    def feed(self, piece: str, start: int, stop: int) -> int | None:
        """Take `piece[start:stop]`; give the index in `piece` just past the value, or None."""
        if stop < len(piece):
            end = self._take(piece[start:stop], 0)
            return None if end is None else end + start
        return self._take(piece, start)

    def _take(self, piece: str, start: int) -> int | None:
        if self.node is not None:  # all but its last bracket was there, and more comes
            self.node, self._extent = None, Extent()
            self._extent.feed(self.raw)
        first = self._extent is None
        if self._extent is None:
            found = whole(piece, start) if piece[start] == "{" else None
            if found is not None:
                value, end, fixes, closed, places, mended = found
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
        """Tell whether any of its text has come; what there is of it stays in pieces."""
        return any(self._pieces)

    @property
    def raw(self) -> str:
        """The value's text so far: for when it is read, since it puts the pieces together."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def calls(
        self, rules: Rules, place: Place, *, close: bool = False, stopped: bool = False, name: str | None = None
    ) -> list[Part]:
        """Read it as calls, as `read_calls` does, by what is known of it already."""
        return read_calls(
            self.raw, rules, place, node=self.node, strict=self.strict, close=close, stopped=stopped, name=name
        )

    def extend(self, text: str) -> None:
        """Add text without looking at it: the brackets do not tell where this body ends."""
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
    """Read the JSON value that `raw` starts with as calls: parts that tile it, or its beginning. O(n).

    `close`: the text ended inside it, so closers may be missing; `stopped`: the server said that the model was done;
    `name`: the tool that the markup around it names; `strict=False`: it is known to be no strict JSON;
    `keys`: what the family calls the name and the arguments; no name: it is the only key, its value the arguments.
    Raises `NoCall` when it is something else than calls.
    """
    if node is None or (node.closed and not close):
        try:
            node, fixes, closed = node_of(raw, 0, len(raw), rules.anchors, close=close, strict=strict)
        except Unreadable as error:
            return [unreadable(raw, rules, place, error.kind, error.reason, name)]
    else:
        fixes, closed = node.fixes, node.closed
    if node.value == [] and place.sentinel:  # nothing is called, and markup is nothing to show
        return [Part("markup", raw[: node.end - node.start])]
    if not node.exact and rules.strictness == "strict" and not place.expected:
        raise NoCall("strict takes no liberties with the body")
    try:
        said = [_by_keys(each, keys) if keys else each for each in _said(node, name, rules)]
    except Unreadable as error:
        return [unreadable(raw, rules, place, error.kind, error.reason, name)]
    if fixes and any(each.fixes for each in said):
        fixes = ()  # each element of a list was read by itself, and has its own
    if closed and not _may_close(said, closed, stopped):
        return [unreadable(raw, rules, place, "truncated", "the text ended inside its arguments", name)]
    parts = _tile(raw[: node.end - node.start], node.start, said, fixes, rules, place)
    if closed and any(part.malformed for part in parts):  # what is missing may have been cut
        return [unreadable(raw, rules, place, "truncated", "the text ended inside its arguments", name)]
    return parts


def _said(node: Node, name: str | None, rules: Rules) -> list[Said]:
    if name is not None and (is_object(node.value) or isinstance(node.value, str)):
        return [Said(node, name or None, node, {})]
    return said_in(node, rules.anchors, rules.tools)


def _by_keys(said: Said, keys: tuple[str, str]) -> Said:
    """Read an object in the family's own keys, where no others make a whole call of it."""
    given = said.node.value
    if not is_object(given) or (said.name is not None and said.arguments is not None):
        return said
    name_key, arguments_key = keys
    if not name_key:
        key = next(iter(given), "")
        alone = len(given) == 1 and is_object(given[key])
        return said._replace(name=key, arguments=child(said.node, key), name_key="key") if alone else said
    name = given.get(name_key)
    if not isinstance(name, str):
        return said
    flat = {key: value for key, value in given.items() if key != name_key}
    arguments = child(said.node, arguments_key) if arguments_key in given else None
    return Said(said.node, name.strip(), arguments, flat, said.fixes, name_key)


def _may_close(said: list[Said], closed: int, stopped: bool) -> bool:
    """Tell whether the missing closers may be supplied: around the arguments always, their own if the model stopped."""
    last = said[-1]
    if last.arguments is None:
        return stopped and bool(last.flat)
    around = 0 if last.arguments is last.node else 1  # without an envelope the arguments' own closer is the one missing
    return closed <= around or (stopped and bool(last.arguments.value))


def _tile(raw: str, base: int, said: list[Said], fixes: tuple[Fix, ...], rules: Rules, place: Place) -> list[Part]:
    """Cut `raw`, which stands at `base` in its source, into one part a call and the markup around them."""
    parts: list[Part] = []
    at = 0
    for each in said:
        outcome = settle(each._replace(fixes=(*fixes, *each.fixes)) if fixes else each, rules, place)
        start, end = (each.node.start - base, each.node.end - base) if len(said) > 1 else (0, len(raw))
        if start > at:
            parts.append(Part("markup", raw[at:start]))
        parts.append(part_of(outcome, raw[start:end]))
        at = end
    if at < len(raw):
        parts.append(Part("markup", raw[at:]))
    return parts


def part_of(outcome: Call | Malformed, raw: str) -> Part:
    """Wrap what came of a call."""
    if isinstance(outcome, Call):
        return Part("call", raw, call=outcome)
    return Part("malformed", raw, malformed=outcome)


def unreadable(
    raw: str, rules: Rules, place: Place, reason: MalformedReason, text: str, named: str | None = None
) -> Part:
    """Report a body that cannot be read, if it is certain enough that a call was meant; else raise `NoCall`.

    `named`: the tool that the markup around it names.
    """
    said = named or name_guess(raw)
    name: str | None = None
    if said is not None:
        found = rules.tools.find(said) if rules.tools is not None else None
        name = found[0].name if found else (said if rules.tools is None else None)
    if rules.strictness == "strict" and not place.expected:
        raise NoCall(f"it cannot be read ({text})")
    if name is None and not place.expected and not (place.wrapped and reason == "truncated"):
        raise NoCall(f"it cannot be read ({text}) and names no offered tool")
    if name is None and said is None and not place.wrapped:
        raise NoCall(f"it cannot be read ({text}) and names no tool")
    return Part("malformed", raw, malformed=broken(reason, text, place.dialect, name or said))


def is_unreadable(parts: Sequence[Part]) -> bool:
    """Tell whether one of the calls cannot be read."""
    return any(part.malformed is not None and part.malformed.reason in UNREADABLE for part in parts)


def not_cut(part: Part, dialect: str) -> Part:
    """Say of a body that reads as cut that it is broken: its closer came."""
    if part.malformed is None or part.malformed.reason != "truncated":
        return part
    said = broken("invalid_json", "a string or bracket in it is never closed", dialect, part.malformed.name)
    return Part("malformed", part.raw, malformed=said)
