"""Calls as YAML between two tags: a mapping of a name and its arguments, or a list of such mappings.

    <tool_calls>
    - name: get_weather
      arguments:
        city: Oslo
    </tool_calls>

Seen from Granite 4 (one mapping) and Apriel 1.5 (a list).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final, NamedTuple

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.envelope import JsonNode, NotACall, UnresolvedCall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call, resolve_call
from promptools.dialects.contract import Head, trace_entry
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.elements.element_value import read_json_object
from promptools.dialects.readers.elements.yaml_mapping import read_mapping
from promptools.parsing.parts import NEED_MORE, CandidateBase, NeedMore, Part, TriedStrategy
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

YAML_ALIAS: Final = "yaml"
"""The alias of its heads."""
_NAME = r"[\"']?[^\W\d][\w.:/-]{0,127}+[\"']?"
_FIRST_NAME = lazy_pattern(r"<\w+>\s*(?:- )?name:[ \t]*[\"']?([\w.:/-]+)[\"']?")
_ITEM = lazy_pattern(r"^- ", re.MULTILINE)
_CALL = lazy_pattern(
    r"\s*name:[ \t]*[\"']?([\w.:/-]+)[\"']?[ \t\r]*(?:\n(?:arguments|parameters):[ \t\r]*(\{.*\}\s*|\n[\s\S]*)?)?",
)
_STRICT = "strict allows no repair of the body"
_FIX = Fix("json", "YAML instead of JSON")


def yaml_head(opener: str) -> Head:
    """Return the head of calls in YAML after a tag."""
    dash = r"(?:-(?:\Z| ))?"
    pattern = sequence(
        literal_text(opener), r"\s{0,64}", dash + literal_text("name:"), r"[ \t]{0,8}", _NAME, r"[ \t]{0,8}\r?", r"\n"
    )
    return Head((opener,), pattern, body_starts="", begins=_begins_call, alias=f"{YAML_ALIAS}{opener}")


def _begins_call(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | NeedMore:
    """Return whether the first name is an offered tool's, on a line of its own."""
    del fresh
    if text[end - 1] != "\n" or (match := _FIRST_NAME.match(text, start, end)) is None:
        return NEED_MORE if end == len(text) else False
    return rules.tools is not None and rules.tools.find(match[1]) is not None


class _YamlCall(NamedTuple):
    raw: str
    name: str
    arguments: str


class YamlReader(CandidateBase):
    """Reads a block of YAML, fed from its opening tag on, up to its closing tag. O(n)."""

    def __init__(self, opener: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._opener = opener
        self._closer = f"\n</{opener[1:]}"  # one that a value quotes is indented
        self._rules = rules
        self._place = place
        self._pieces: list[str] = []
        self._tail = ""

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        seen = self._tail + piece[start:]
        at = seen.find(self._closer)
        if at < 0:
            self._pieces.append(piece[start:])
            self._tail = seen[1 - len(self._closer) :]
            return None
        end = start + at - len(self._tail) + len(self._closer)
        self._pieces.append(piece[start:end])
        raw = "".join(self._pieces)
        self._decide(raw, raw[len(self._opener) : -len(self._closer)])
        return end

    def close(self, finish_reason: str | None) -> None:
        """Report that it was cut off: the text is over, and lines may be missing."""
        del finish_reason
        raw = "".join(self._pieces)
        match = _FIRST_NAME.match(raw)
        malformed = malformed_call(
            "truncated", "the text ended before its closer", self._place.dialect, match[1] if match else None
        )
        if self._is_strict:
            self._give_up(raw, _STRICT)
        else:
            self._finish(raw, [Part("malformed", raw, malformed=malformed)])

    @property
    def _is_strict(self) -> bool:
        return self._rules.strictness == "strict" and not self._place.expected

    def _decide(self, raw: str, body: str) -> None:
        if self._is_strict:
            self._give_up(raw, _STRICT)
            return
        try:
            parts = [call_part(self._resolve(item), item.raw) for item in _split_calls(body)]
        except NotACall as no:
            self._give_up(raw, str(no))
        else:
            self._finish(raw, [Part("markup", self._opener), *parts, Part("markup", self._closer)])

    def _give_up(self, raw: str, why: str) -> None:
        self.parts = [Part("text", raw)]
        self.tries.append(TriedStrategy(self._place.dialect, "text", why, len(raw)))

    def _resolve(self, item: _YamlCall) -> Call | Malformed:
        tools = self._rules.tools
        resolved = tools.find(item.name) if tools is not None else None
        if tools is None or resolved is None:
            raise NotACall(f"no tool {item.name!r} is offered")
        name = resolved[0].name
        values, fixes = self._arguments(name, item.arguments)
        if values is None:
            why = "its arguments are neither YAML nor JSON of its parameters"
            return malformed_call("invalid_json", why, self._place.dialect, name)
        node = JsonNode(values, "", 0, 0, exact=False)
        return resolve_call(UnresolvedCall(node, item.name, node, {}, (_FIX, *fixes)), self._rules, self._place)

    def _arguments(self, tool: str, text: str) -> tuple[dict[str, Any] | None, list[Fix]]:
        """Read arguments; those that are strings are typed by the schema."""
        assert self._rules.tools is not None
        fixes: list[Fix] = []
        if text.lstrip().startswith("{"):
            body = read_json_object(text)
            return (None, fixes) if body is None else (body[0], [*body[1]])
        lines = read_mapping(text, self._rules.tools.keys(tool))
        for key, value in (lines or {}).items():
            if isinstance(value, str) and lines is not None:
                lines[key], more = read_parameter(self._rules, tool, key, value)
                fixes += more
        return lines, fixes

    def _finish(self, raw: str, parts: list[Part]) -> None:
        self.parts = parts
        self.tries.append(trace_entry(self._place.dialect, len(raw), parts))


def _split_calls(body: str) -> list[_YamlCall]:
    """Split the body into its calls. Raise `NotACall` if it is not calls."""
    starts = [match.start() for match in _ITEM.finditer(body)] if body.lstrip().startswith("-") else []
    bounds = [0, *starts[1:], len(body)]
    pieces = [body[at:end] for at, end in pairwise(bounds)]
    items: list[_YamlCall] = []
    for raw in pieces:
        text = _dedent(_ITEM.sub("  ", raw, count=1)).rstrip()
        match = _CALL.fullmatch(text)
        if match is None:
            raise NotACall("what it holds is no call")
        items.append(_YamlCall(raw, match[1], _dedent((match[2] or "").strip("\n"))))
    return items


def _dedent(text: str) -> str:
    """Remove the indent that all lines share."""
    lines = text.split("\n")
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)
