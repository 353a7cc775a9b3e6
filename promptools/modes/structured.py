"""A server's structured calls: put together from deltas of any looseness, then read like calls in text.

Seen in the wild: every parallel call at index 0 (ollama#15457), no index at all (ollama#7881), ids repeated on each
delta (lmdeploy#3412), the name in every chunk (vllm#13078), two objects glued into one call's arguments
(litellm#33678), header residue in names (vllm#32587), arguments encoded twice or followed by a stray bracket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from promptools.dialects.envelope import NoCall, Node, Said, node_of, said_in
from promptools.dialects.live import LiveArguments, agree
from promptools.dialects.settle import PLAUSIBLE_NAME, Place, Rules, broken, settle, unknown_message
from promptools.parsing.extent import Extent
from promptools.parsing.parts import Fragment, Part, Started
from promptools.parsing.tolerant import Unreadable
from promptools.types import Call, Fix, Malformed

if TYPE_CHECKING:
    from promptools.wire.chat import ToolDelta

NATIVE = "native"
"""The dialect of a call that the server itself took out of the model's text."""
_FIRST_KEY = re.compile(r'\{\s*"[^"]*"')
PLACE = Place(NATIVE, wrapped=True, expected=True)


@dataclass(slots=True)
class Slot:
    """One call as it comes."""

    index: int | None
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    whole: bool = False
    """The brackets of the arguments are closed."""
    number: int | None = None
    """Its place among the server's calls, once it has one."""
    _live: LiveArguments | None = None
    _extent: Extent | None = None

    def go_live(self, text: str, rules: Rules) -> list[Started | Fragment]:
        """Give what no later piece of the arguments can change; the name counts from the first piece on."""
        if self._live is None:
            self._live = LiveArguments(rules)
            text = self._head() + text
        return self._live.feed(text)

    @property
    def sent(self) -> str:
        """What `go_live` gave of the arguments."""
        return self._live.sent if self._live is not None else ""

    def settle_live(self, call: Call, rules: Rules) -> Call | Malformed:
        """Make a call begin with what went out of it; malformed where that cannot be."""
        (part,) = agree([Part("call", "", call=call)], f"{self._head()}{self.text}}}", rules)
        outcome = part.call or part.malformed
        assert outcome is not None
        return outcome

    def _head(self) -> str:
        """Write the beginning of an envelope around the arguments: what goes live is told from whole calls."""
        return f'{{"name": {json.dumps(self.name, ensure_ascii=False)}, "arguments": '

    def extend(self, text: str) -> None:
        """Take a piece of the arguments. O(n) in its length."""
        self.pieces.append(text)
        if self.whole:
            return
        start = 0
        if self._extent is None:
            start = len(text) - len(text.lstrip())
            if start == len(text) or text[start] not in "{[":
                return
            self._extent = Extent()
        self.whole = self._extent.feed(text, start) is not None

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)


class Assembler:
    """Sort deltas into calls. `known` tells whether a name is that of an offered tool."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known
        self._read = 0
        self.slots: list[Slot] = []

    def add(self, delta: ToolDelta) -> Slot:
        """Put `delta` where it belongs: to a call that is there, or to a new one."""
        slot = self._slot(delta)
        if slot is None:
            slot = Slot(delta.index)
            self.slots.append(slot)
        if delta.id and slot.id is None:
            slot.id = delta.id
        if delta.name and delta.name != slot.name and not slot.pieces:
            slot.name += delta.name
        if delta.arguments:
            slot.extend(delta.arguments)
        return slot

    def _slot(self, delta: ToolDelta) -> Slot | None:
        """Find the call that a delta goes on with; None when it begins one."""
        near = (slot for slot in reversed(self.slots) if delta.index is None or slot.index == delta.index)
        last = next(near, None)
        if last is None or (delta.id and delta.id == last.id):
            return last
        if delta.id and last.id:
            return next((slot for slot in near if slot.id == delta.id), None)
        return None if delta.name and self._begins(delta.name, last) else last

    def _begins(self, name: str, last: Slot) -> bool:
        """Tell whether a name without an id of its own begins a call, or is the last one's, said again or in pieces."""
        if last.whole:
            return True
        if name == last.name or not last.name:
            return False
        return bool(last.pieces) or self._known(name)

    def complete(self) -> list[Slot]:
        """Give the calls, from the front, that are whole and have another behind them; each once."""
        start = self._read
        while self._read < len(self.slots) - 1 and self.slots[self._read].whole:
            self._read += 1
        return self.slots[start : self._read]

    def rest(self) -> list[Slot]:
        """Give the calls that are left when the reply is over."""
        start, self._read = self._read, len(self.slots)
        return self.slots[start:]


def read_call(name: str, text: str, rules: Rules, *, ended: bool) -> list[Call | Malformed]:
    """Read one structured call; several when a server glued their arguments together. O(n).

    `ended`: the model was done with it, so that closing brackets may be supplied; else it is cut off.
    """
    body = text.strip() or "{}"
    found: list[Call | Malformed] = []
    while body:
        try:
            node, fixes = _node(body, rules, ended=ended)
        except Unreadable as error:
            found.append(broken(error.kind, error.reason, NATIVE, _clean(name) or None))
            break
        if body[0] == '"' and _is_words(node.value):
            found.append(
                broken("not_an_object", "its arguments are a string, not an object", NATIVE, _clean(name) or None)
            )
            break
        rest = body[node.end :].lstrip()
        body = rest if rest.startswith("{") else ""
        if rest and not body:
            fixes = (*fixes, _tail(rest))
        for outcome in _settled(name, node, fixes, rules):
            _add(found, outcome)
    return found


def _node(body: str, rules: Rules, *, ended: bool) -> tuple[Node, tuple[Fix, ...]]:
    """Read the value that `body` begins with, or that its words lead up to. Raises `Unreadable`."""
    anchors = rules.anchors
    try:
        node, fixes, _ = node_of(body, 0, len(body), anchors)
    except Unreadable as error:
        if error.kind == "truncated" and ended:
            node, fixes, _ = node_of(body, 0, len(body), anchors, close=True)
            return node, fixes
        if error.kind != "invalid_json" or body[0] in '{["':
            raise
        return _after_words(body, anchors)
    if fixes and _restarts(body):
        raise Unreadable(0, "the arguments begin again inside themselves", "invalid_json")
    if _is_tail(body[node.end :].lstrip()):
        return node, fixes
    raise Unreadable(node.end, "text follows the arguments", "invalid_json")


def _is_words(value: object) -> bool:
    """Tell whether a JSON string holds no JSON itself.

    Raw words may be what the model meant (ollama#10221). A JSON string is what comes of an engine that was asked for a
    call and constrains no more than its envelope (vLLM 0.32, required and named).
    """
    return isinstance(value, str) and bool(value.strip()) and value.lstrip()[0] not in '{["'


def _restarts(body: str) -> bool:
    """Tell whether broken arguments hold their own beginning twice: two increments glued together (sglang#23071)."""
    first = _FIRST_KEY.match(body)
    return first is not None and body.find(first[0], first.end()) >= 0


def _after_words(body: str, anchors: frozenset[str]) -> tuple[Node, tuple[Fix, ...]]:
    """Read arguments that follow thoughts (ollama#12064), or words that may be a tool's only, free string."""
    start = body.find("{")
    if start > 0 and body.endswith("}"):
        try:
            node, fixes, _ = node_of(body, start, len(body), anchors)
        except Unreadable:
            pass
        else:
            if not body[node.end :].strip():
                return node, (Fix("marker", "words stood before the arguments"), *fixes)
    return Node(body, body, 0, len(body), exact=False), ()


def _is_tail(rest: str) -> bool:
    """Tell whether what follows the arguments is known debris: stray brackets, a marker, or further arguments."""
    return not rest.strip("]}) \t\r\n") or rest.startswith(("{", "<|", "</"))


def _tail(rest: str) -> Fix:
    if rest.startswith("<"):
        return Fix("marker", "a marker followed the arguments")
    return Fix("closer", f"{rest.strip()!r} followed the arguments")


def _settled(name: str, node: Node, fixes: tuple[Fix, ...], rules: Rules) -> list[Call | Malformed]:
    """Decide the call that `node` holds the arguments of; a name that is none is looked for inside them."""
    tools = rules.tools
    if PLAUSIBLE_NAME.match(_clean(name)) and ("<" not in name or tools is None or tools.find(name) is not None):
        ways = [[Said(node, name, node, {}, fixes)]]
    else:
        ways = [[Said(node, None, node, {}, fixes)], _inside(node, fixes, rules)]
    why = "it names no tool"
    for way in ways:
        try:
            if way:
                return [settle(said, rules, PLACE) for said in way]
        except NoCall as no:
            why = str(no)
    return [_unknown(name, why, rules)]


def _inside(node: Node, fixes: tuple[Fix, ...], rules: Rules) -> list[Said]:
    """Read the arguments as calls of their own, if they are."""
    try:
        return [each._replace(fixes=(*fixes, *each.fixes)) for each in said_in(node, rules.anchors, rules.tools)]
    except (NoCall, Unreadable):
        return []


def _unknown(name: str, why: str, rules: Rules) -> Malformed:
    """Report a call that names no tool, or whose arguments are a tool's definition."""
    said = _clean(name)
    if rules.tools is not None and rules.tools.find(name) is not None:
        return broken("invalid_arguments", why, NATIVE, said)
    message = unknown_message(said, rules.tools) if rules.tools is not None else f"The call was not run: {why}."
    return Malformed(0, "", "unknown_tool", message, name=said, dialect=NATIVE)


def _clean(name: str) -> str:
    """Cut the residue of a header off a name."""
    return name.partition("<")[0].strip()


def _add(found: list[Call | Malformed], outcome: Call | Malformed) -> None:
    """Add what came of glued arguments; the same object twice is one call (SGLang with MiniMax-M2, sglang#23071)."""
    last = found[-1] if found else None
    if isinstance(last, Call) and isinstance(outcome, Call):
        if (last.name, last.arguments) == (outcome.name, outcome.arguments):
            found[-1] = replace(last, fixes=(*last.fixes, Fix("duplicate", "the arguments stood twice")))
            return
        outcome = replace(outcome, fixes=(*outcome.fixes, Fix("json", "glued to the arguments of another call")))
    found.append(outcome)
