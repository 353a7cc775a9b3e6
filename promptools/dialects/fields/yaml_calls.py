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

from promptools.dialects.base import Head, tried
from promptools.dialects.body import part_of
from promptools.dialects.envelope import NoCall, Node, Said
from promptools.dialects.fields.element_value import json_body
from promptools.dialects.fields.yaml_lines import mapping
from promptools.dialects.openings import then, token
from promptools.dialects.settle import Place, Rules, broken, settle
from promptools.dialects.values import value_of
from promptools.parsing.parts import Part, Tried, Undecided
from promptools.types import Call, Fix, Malformed

YAML: Final = "yaml"
"""The alias of its heads."""
_NAME = r"[\"']?[^\W\d][\w.:/-]{0,127}+[\"']?"
_FIRST = re.compile(r"<\w+>\s*(?:- )?name:[ \t]*[\"']?([\w.:/-]+)[\"']?")
_ITEM = re.compile(r"^- ", re.MULTILINE)
_CALL = re.compile(
    r"\s*name:[ \t]*[\"']?([\w.:/-]+)[\"']?[ \t\r]*(?:\n(?:arguments|parameters):[ \t\r]*(\{.*\}\s*|\n[\s\S]*)?)?",
)
_STRICT = "strict takes no liberties with the body"
_FIX = Fix("json", "YAML instead of JSON")


def yaml_head(opener: str) -> Head:
    """Return the head of calls in YAML after a tag."""
    dash = r"(?:-(?:\Z| ))?"
    pattern = then(token(opener), r"\s{0,64}", dash + token("name:"), r"[ \t]{0,8}", _NAME, r"[ \t]{0,8}\r?", r"\n")
    return Head((opener,), pattern, opens="", begins=_begins, alias=f"{YAML}{opener}")


def _begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Return whether the first name is an offered tool's, on a line of its own."""
    del fresh
    if text[end - 1] != "\n" or (match := _FIRST.match(text, start, end)) is None:
        return None if end == len(text) else False
    return rules.tools is not None and rules.tools.find(match[1]) is not None


class _Item(NamedTuple):
    raw: str
    name: str
    arguments: str


class YamlCandidate(Undecided):
    """Reads a block of YAML, fed from its opening tag on, up to its closing tag. O(n)."""

    def __init__(self, opener: str, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(firm=firm)
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
        match = _FIRST.match(raw)
        malformed = broken(
            "truncated", "the text ended before its closer", self._place.dialect, match[1] if match else None
        )
        if self._refuses:
            self._give_up(raw, _STRICT)
        else:
            self._tell(raw, [Part("malformed", raw, malformed=malformed)])

    @property
    def _refuses(self) -> bool:
        return self._rules.strictness == "strict" and not self._place.expected

    def _decide(self, raw: str, body: str) -> None:
        if self._refuses:
            self._give_up(raw, _STRICT)
            return
        try:
            parts = [part_of(self._outcome(item), item.raw) for item in _items(body)]
        except NoCall as no:
            self._give_up(raw, str(no))
        else:
            self._tell(raw, [Part("markup", self._opener), *parts, Part("markup", self._closer)])

    def _give_up(self, raw: str, why: str) -> None:
        self.parts = [Part("text", raw)]
        self.tries.append(Tried(self._place.dialect, "text", why, len(raw)))

    def _outcome(self, item: _Item) -> Call | Malformed:
        tools = self._rules.tools
        resolved = tools.find(item.name) if tools is not None else None
        if tools is None or resolved is None:
            raise NoCall(f"no tool {item.name!r} is offered")
        name = resolved[0].name
        values, fixes = self._arguments(name, item.arguments)
        if values is None:
            why = "its arguments are neither YAML nor JSON of its parameters"
            return broken("invalid_json", why, self._place.dialect, name)
        node = Node(values, "", 0, 0, exact=False)
        return settle(Said(node, item.name, node, {}, (_FIX, *fixes)), self._rules, self._place)

    def _arguments(self, tool: str, text: str) -> tuple[dict[str, Any] | None, list[Fix]]:
        """Read arguments; those that are strings are typed by the schema."""
        assert self._rules.tools is not None
        fixes: list[Fix] = []
        if text.lstrip().startswith("{"):
            body = json_body(text)
            return (None, fixes) if body is None else (body[0], [*body[1]])
        lines = mapping(text, self._rules.tools.keys(tool))
        for key, value in (lines or {}).items():
            if isinstance(value, str) and lines is not None:
                lines[key], more = value_of(self._rules, tool, key, value)
                fixes += more
        return lines, fixes

    def _tell(self, raw: str, parts: list[Part]) -> None:
        self.parts = parts
        self.tries.append(tried(self._place.dialect, len(raw), parts))


def _items(body: str) -> list[_Item]:
    """Split the body into its calls. Raise `NoCall` if it is not calls."""
    starts = [match.start() for match in _ITEM.finditer(body)] if body.lstrip().startswith("-") else []
    bounds = [0, *starts[1:], len(body)]
    pieces = [body[at:end] for at, end in pairwise(bounds)]
    items: list[_Item] = []
    for raw in pieces:
        text = _dedented(_ITEM.sub("  ", raw, count=1)).rstrip()
        match = _CALL.fullmatch(text)
        if match is None:
            raise NoCall("what stands in it is no call")
        items.append(_Item(raw, match[1], _dedented((match[2] or "").strip("\n"))))
    return items


def _dedented(text: str) -> str:
    """Remove the indent that all lines share."""
    lines = text.split("\n")
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)
