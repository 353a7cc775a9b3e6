"""Read the text after a label as a tool's input: plain text, `key: value` lines, or the content of brackets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from promptools.dialects.base import tried
from promptools.dialects.body import part_of
from promptools.dialects.envelope import NoCall
from promptools.dialects.settle import STOPPED, Place, Rules, broken, checked
from promptools.dialects.values import value_of
from promptools.parsing.parts import Candidate, Part, Tried, Undecided
from promptools.schema.graph import is_array, is_object
from promptools.types import Call, Fix, Malformed, Tool

NOTHING = frozenset(("", "none", "null", "n/a", "{}", "()", "no input", "nothing"))
"""What models write for no input."""

_LABEL = re.compile(
    r"\s*[*_]{0,2}(?:Observation|Thought|Action|Final Answer|Question|Tool|Function|Answer)[ \w]{0,12}[*_]{0,2}\s{0,4}:"
)
_MEMBER = re.compile(r"[:\\\s`\"']{0,4}\{\s{0,16}[\"']?([^\W\d][\w.-]{0,80})[\"']?\s{0,4}:")
"""The beginning of an object, with stray quotes or backslashes before it."""
_NEXT_MEMBER = re.compile(r",\s{0,16}[\"']([^\W\d][\w.-]{0,80})[\"']\s{0,4}:")
_PAIR = re.compile(r"\s*[\"'`*-]{0,2}\s{0,2}(\w[\w.-]{0,80})[\"'`*]{0,2}\s{0,4}[:=]\s{0,4}(.*)")


class ByFirst(Undecided):
    """A body whose first character decides which candidate reads it."""

    def __init__(self, head: str, choose: Callable[[str], Candidate], *, firm: bool) -> None:
        super().__init__(firm=firm, head=head)
        self._choose = choose
        self._inner: Candidate | None = None

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        inner = self._begun(piece[start])
        end = inner.feed(piece, start)
        self._adopt(inner)
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        inner = self._begun("{")
        inner.close(finish_reason)
        self._adopt(inner)

    def _begun(self, first: str) -> Candidate:
        if self._inner is None:
            self._inner = self._choose(first)
        self._inner.head = self.head
        return self._inner

    def _adopt(self, inner: Candidate) -> None:
        self.parts, self.rest, self.head, self.firm = inner.parts, inner.rest, inner.head, inner.firm
        self.tries = inner.tries
        self.live, inner.live = [*self.live, *inner.live], []


class Answer(Undecided):
    """The label before a final answer, which is markup and no part of the answer."""

    def feed(self, piece: str, start: int) -> int | None:
        """Decide at once without reading anything: the label is all."""
        del piece
        self.close(None)
        return start

    def close(self, finish_reason: str | None) -> None:
        """Decide: the label is markup."""
        del finish_reason
        self.parts = [Part("markup", self.head)]


class LabelledCandidate(Undecided):
    """A tool's input after its label, up to the next label or an empty line; in brackets, to the end of the line."""

    def __init__(self, head: str, name: str, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(firm=firm, head=head)
        self._name = name
        self._rules = rules
        self._place = place
        self._lines: list[str] = []
        """The lines of the input, with their line ends."""
        self._line: list[str] = []
        self._ended = False

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        at = start
        while at < len(piece):
            end = piece.find("\n", at) + 1
            self._line.append(piece[at : end or len(piece)])
            if not end:
                return None
            at = end
            if self._takes():
                self._decide("stop")
                return at
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        if self._line and self._takes():
            self._decide("stop")
        else:
            self._decide(finish_reason)

    def _takes(self) -> bool:
        """Add the complete line, unless the input ended before it; return whether the input has ended."""
        line = "".join(self._line)
        self._line = []
        inline = not self._lines and line.lstrip().startswith("[")
        if self._lines and (not line.strip() or _LABEL.match(line)):
            self.rest = line
            self._ended = True
        else:
            self._lines.append(line)
            self._ended = inline
        return self._ended

    def _decide(self, finish_reason: str | None) -> None:
        text = "".join(self._lines)
        raw = text.rstrip()
        self.rest = text[len(raw) :] + self.rest
        try:
            outcome = self._outcome(raw, finish_reason)
        except NoCall as no:
            self.tries.append(Tried(self._place.dialect, "text", str(no), len(text)))
            self.parts, self.rest = [Part("text", self.head)], raw + self.rest
            return
        if not raw:  # the text of a call without input is its label
            raw, self.head = self.head, ""
        self.parts = [*([Part("markup", self.head)] if self.head else []), part_of(outcome, raw)]
        self.tries.append(tried(self._place.dialect, len(text), self.parts))

    def _outcome(self, raw: str, finish_reason: str | None) -> Call | Malformed:
        tools = self._rules.tools
        match = tools.find(self._name) if tools is not None else None
        if match is None:
            raise NoCall(f"no tool {self._name!r} is offered")
        tool, renamed = match
        cut = broken("truncated", "the text ended inside its input", self._place.dialect, tool.name)
        if finish_reason == "length":
            return cut
        text = raw.strip()
        if text.startswith("["):
            text = self._bracketed(text)
        arguments, fixes = read_input(text, tool, self._rules)
        fixes = [*([renamed] if renamed else []), *fixes]
        outcome = checked(tool, arguments, None, fixes, self._rules, self._place)
        if isinstance(outcome, Malformed) and not self._place.expected:
            raise NoCall(f"its words do not fit {tool.name!r}")
        return outcome if finish_reason in STOPPED or _is_string(text) else cut

    def _bracketed(self, said: str) -> str:
        """Return the content of brackets that follow the name; elsewhere `said` itself. Raises `NoCall`."""
        if "\n" in self.head:
            return said
        if not said.endswith("]"):
            raise NoCall("the bracket behind the name is not closed on its line")
        return said[1:-1].strip()


def _is_string(said: str) -> bool:
    """Whether `said` is a complete JSON string, so that it cannot have been cut off."""
    try:
        return said[:1] == '"' and isinstance(json.loads(said), str)
    except ValueError:
        return False


def read_input(said: str, tool: Tool, rules: Rules) -> tuple[dict[str, Any], list[Fix]]:
    """Read text as the arguments of a tool, with the fixes made. Raises `NoCall` if it cannot be any."""
    if said.casefold() in NOTHING:
        return {}, []
    pairs = _pairs(said, tool, rules)
    if pairs:
        return pairs, [Fix("json", "the arguments were lines, not JSON")]
    key = only_parameter(tool)
    if key is None:
        raise NoCall(f"words are no input of {tool.name!r}")
    member = _MEMBER.match(said)
    if member is not None and rules.tools is not None and member[1] in rules.tools.keys(tool.name):
        raise NoCall("it is JSON that cannot be read, and no words")
    try:
        text = json.loads(said) if said[0] == '"' else said
    except ValueError:
        text = said
    value, fixes = value_of(rules, tool.name, key, text)
    return {key: value}, [Fix("unwrap", f"the input was bare words: taken as {key!r}"), *fixes]


def _pairs(said: str, tool: Tool, rules: Rules) -> dict[str, Any] | None:
    """Read lines of `key: value`; None unless every line is one, each of another parameter of the tool."""
    assert rules.tools is not None
    pairs: dict[str, Any] = {}
    for line in said.splitlines():
        pair = _PAIR.fullmatch(line.rstrip().removesuffix(","))
        if pair is None or pair[1] not in rules.tools.keys(tool.name) or pair[1] in pairs:
            return None
        text = pair[2].strip()
        inner = _NEXT_MEMBER.search(text)
        if inner is not None and inner[1] in rules.tools.keys(tool.name):
            raise NoCall("it is JSON that cannot be read, and no lines")
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
        pairs[pair[1]] = value_of(rules, tool.name, pair[1], text)[0]
    return pairs


def only_parameter(tool: Tool) -> str | None:
    """Return the parameter that plain text is for: the only one, or else the first that is required."""
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    if not is_object(properties) or not properties:
        return None
    if len(properties) == 1:
        return next(iter(properties))
    return next((key for key in properties if is_array(required) and key in required), None)
