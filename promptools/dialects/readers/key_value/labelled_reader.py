"""Read the text after a label as a tool's input: plain text, `key: value` lines, or the content of brackets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call, validate_call
from promptools.dialects.contract import trace_entry
from promptools.json_values import is_array, is_object
from promptools.parsing.parts import Candidate, CandidateBase, Part, TriedStrategy
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed, Tool

NO_INPUT = frozenset(("", "none", "null", "n/a", "{}", "()", "no input", "nothing"))
"""What models write for no input."""

_LABEL = lazy_pattern(
    r"\s*[*_]{0,2}(?:Observation|Thought|Action|Final Answer|Question|Tool|Function|Answer)[ \w]{0,12}[*_]{0,2}\s{0,4}:"
)
_MEMBER = lazy_pattern(r"[:\\\s`\"']{0,4}\{\s{0,16}[\"']?([^\W\d][\w.-]{0,80})[\"']?\s{0,4}:")
"""The beginning of an object, with stray quotes or backslashes before it."""
_NEXT_MEMBER = lazy_pattern(r",\s{0,16}[\"']([^\W\d][\w.-]{0,80})[\"']\s{0,4}:")
_PAIR = lazy_pattern(r"\s*[\"'`*-]{0,2}\s{0,2}(\w[\w.-]{0,80})[\"'`*]{0,2}\s{0,4}[:=]\s{0,4}(.*)")


class ByFirstCharacter(CandidateBase):
    """A body whose first character decides which candidate reads it."""

    def __init__(self, head: str, choose: Callable[[str], Candidate], *, definite: bool) -> None:
        super().__init__(definite=definite, head=head)
        self._choose = choose
        self._inner: Candidate | None = None

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        inner = self._chosen(piece[start])
        end = inner.feed(piece, start)
        self._copy_state(inner)
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        inner = self._chosen("{")
        inner.close(finish_reason)
        self._copy_state(inner)

    def _chosen(self, first: str) -> Candidate:
        if self._inner is None:
            self._inner = self._choose(first)
        self._inner.head = self.head
        return self._inner

    def _copy_state(self, inner: Candidate) -> None:
        self.parts, self.unread, self.head, self.definite = inner.parts, inner.unread, inner.head, inner.definite
        self.tries = inner.tries
        self.early, inner.early = [*self.early, *inner.early], []


class AnswerLabel(CandidateBase):
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


class LabelledCandidate(CandidateBase):
    """A tool's input after its label, up to the next label or an empty line; in brackets, to the end of the line."""

    def __init__(self, head: str, name: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite, head=head)
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
            if self._add_line():
                self._decide("stop")
                return at
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        if self._line and self._add_line():
            self._decide("stop")
        else:
            self._decide(finish_reason)

    def _add_line(self) -> bool:
        """Add the complete line, unless the input ended before it; return whether the input has ended."""
        line = "".join(self._line)
        self._line = []
        inline = not self._lines and line.lstrip().startswith("[")
        if self._lines and (not line.strip() or _LABEL.match(line)):
            self.unread = line
            self._ended = True
        else:
            self._lines.append(line)
            self._ended = inline
        return self._ended

    def _decide(self, finish_reason: str | None) -> None:
        text = "".join(self._lines)
        raw = text.rstrip()
        self.unread = text[len(raw) :] + self.unread
        try:
            outcome = self._resolve(raw, finish_reason)
        except NotACall as no:
            self.tries.append(TriedStrategy(self._place.dialect, "text", str(no), len(text)))
            self.parts, self.unread = [Part("text", self.head)], raw + self.unread
            return
        if not raw:  # the text of a call without input is its label
            raw, self.head = self.head, ""
        self.parts = [*([Part("markup", self.head)] if self.head else []), call_part(outcome, raw)]
        self.tries.append(trace_entry(self._place.dialect, len(text), self.parts))

    def _resolve(self, raw: str, finish_reason: str | None) -> Call | Malformed:
        tools = self._rules.tools
        match = tools.find(self._name) if tools is not None else None
        if match is None:
            raise NotACall(f"no tool {self._name!r} is offered")
        tool, renamed = match
        cut = malformed_call("truncated", "the text ended inside its input", self._place.dialect, tool.name)
        if finish_reason == "length":
            return cut
        text = raw.strip()
        if text.startswith("["):
            text = self._unbracket(text)
        arguments, fixes = read_input(text, tool, self._rules)
        fixes = [*([renamed] if renamed else []), *fixes]
        outcome = validate_call(tool, arguments, None, fixes, self._rules, self._place)
        if isinstance(outcome, Malformed) and not self._place.expected:
            raise NotACall(f"its text does not fit {tool.name!r}")
        return outcome if finish_reason in COMPLETE_FINISH_REASONS or _is_string(text) else cut

    def _unbracket(self, text: str) -> str:
        """Return the content of brackets that follow the name; elsewhere `text` itself. Raises `NotACall`."""
        if "\n" in self.head:
            return text
        if not text.endswith("]"):
            raise NotACall("the bracket after the name is not closed on its line")
        return text[1:-1].strip()


def _is_string(text: str) -> bool:
    """Whether `text` is a complete JSON string, so that it cannot have been cut off."""
    try:
        return text[:1] == '"' and isinstance(json.loads(text), str)
    except ValueError:
        return False


def read_input(input_text: str, tool: Tool, rules: ParseOptions) -> tuple[dict[str, Any], list[Fix]]:
    """Read text as the arguments of a tool, with the fixes made. Raises `NotACall` if it cannot be any."""
    if input_text.casefold() in NO_INPUT:
        return {}, []
    pairs = _read_pairs(input_text, tool, rules)
    if pairs:
        return pairs, [Fix("json", "the arguments were lines, not JSON")]
    key = main_parameter(tool)
    if key is None:
        raise NotACall(f"text is no input of {tool.name!r}")
    member = _MEMBER.match(input_text)
    if member is not None and rules.tools is not None and member[1] in rules.tools.keys(tool.name):
        raise NotACall("it is JSON that cannot be read, and no text")
    try:
        text = json.loads(input_text) if input_text[0] == '"' else input_text
    except ValueError:
        text = input_text
    value, fixes = read_parameter(rules, tool.name, key, text)
    return {key: value}, [Fix("unwrap", f"the input was plain text, read as {key!r}"), *fixes]


def _read_pairs(input_text: str, tool: Tool, rules: ParseOptions) -> dict[str, Any] | None:
    """Read lines of `key: value`; None unless every line is one, each of another parameter of the tool."""
    assert rules.tools is not None
    pairs: dict[str, Any] = {}
    for line in input_text.splitlines():
        pair = _PAIR.fullmatch(line.rstrip().removesuffix(","))
        if pair is None or pair[1] not in rules.tools.keys(tool.name) or pair[1] in pairs:
            return None
        text = pair[2].strip()
        inner = _NEXT_MEMBER.search(text)
        if inner is not None and inner[1] in rules.tools.keys(tool.name):
            raise NotACall("it is JSON that cannot be read, and no lines")
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
        pairs[pair[1]] = read_parameter(rules, tool.name, pair[1], text)[0]
    return pairs


def main_parameter(tool: Tool) -> str | None:
    """Return the parameter that plain text is for: the only one, or else the first that is required."""
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    if not is_object(properties) or not properties:
        return None
    if len(properties) == 1:
        return next(iter(properties))
    return next((key for key in properties if is_array(required) and key in required), None)
