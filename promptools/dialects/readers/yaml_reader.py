"""Read lines of YAML: arguments as `key: value`, and calls in YAML between two tags.

<tool_calls>
- name: get_weather
  arguments:
    city: Oslo
</tool_calls>
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final, NamedTuple

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.envelope import JsonNode, NotACall, UnresolvedCall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call, resolve_call
from promptools.dialects.contract import Head, trace_entry
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.element_value import read_json_object
from promptools.json_values import parse_finite_float, reject_constant, try_json
from promptools.jsontext.read import Unreadable, read_value
from promptools.parsing.parts import NEED_MORE, CandidateBase, NeedMore, Part, TriedStrategy
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

# The subset of YAML that models write as arguments: `key: value` lines, `|` blocks, lists of `- item`, and JSON.


_LINE = lazy_pattern(r"([\"']?)([\w.-]{1,80})\1:(?:[ \t]+(.*)|[ \t]*)")
_BLOCK = lazy_pattern(r"([|>])[-+]?\d?\s*")
_COMMENT = lazy_pattern(r"(?<!\s)\s++#.*")
NULLS = frozenset(("", "null", "~"))
MAX_DEPTH = 8


def read_mapping(text: str, keys: Collection[str]) -> dict[str, Any] | None:
    """Read lines of `key: value` as arguments; return None for any other text. O(n).

    Scalars stay strings, except values in inner mappings: their types follow from their spelling, as in JSON. `keys`:
    the parameters of the tool.
    """
    lines = [line.rstrip("\r") for line in text.strip("\r\n").split("\n")]
    filled = [line for line in lines if line.strip()]
    if not filled or " ".join(line.strip() for line in filled) in NULLS:
        return {}
    indent = _indent(filled[0])
    members: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            at += 1
            continue
        entry = _LINE.fullmatch(line[indent:]) if _indent(line) == indent else None
        if entry is None or entry[2] not in keys or entry[2] in members:
            return None
        end = at + 1
        while end < len(lines) and (
            not lines[end].strip() or _indent(lines[end]) > indent or _is_item(lines[end], indent)
        ):
            end += 1
        value = _read_value(entry[3] or "", lines[at + 1 : end], 0)
        if value is None:
            return None
        members[entry[2]] = value[0]
        at = end
    return members


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_item(line: str, indent: int) -> bool:
    return _indent(line) == indent and line.lstrip().startswith("- ")


def _belongs_to(line: str, indent: int) -> bool:
    return not line.strip() or _indent(line) > indent or _is_item(line, indent)


def _read_value(text: str, below: list[str], depth: int) -> tuple[Any] | None:
    """Read the value after a key, including the lines below it, as a one-tuple; None for unsupported YAML."""
    block = _BLOCK.fullmatch(text)
    if block is not None:
        return (_read_block(below, folded=block[1] == ">"),)
    filled = [line for line in below if line.strip()]
    if text and not filled:
        return (_read_scalar(text, depth),)
    if text and text[0] in "\"'{[":  # a value that continues on the lines below
        return (_read_scalar("\n".join((text, *below)).rstrip(), depth),)
    if text:
        return None
    if not filled:
        return ("",)
    if depth > MAX_DEPTH:
        return None
    return _read_list(below, depth) if filled[0].lstrip().startswith("- ") else _read_inner_mapping(below, depth)


def _read_scalar(text: str, depth: int) -> Any:
    """Read a scalar. Plain text and top-level JSON stay strings, because the schema gives them their types."""
    if text[0] in "\"'":
        end = len(text) - 1
        if text[0] == text[end] and end:
            if text[0] == "'":
                return text[1:end].replace("''", "'")
            return try_json(text, text[1:end], strict=False)
        return text
    if text[0] in "{[" and not depth:
        return text
    if text[0] in "{[":
        try:
            value = read_value(text)
        except Unreadable:
            return text
        return value.value if value.end == len(text) else text
    return _COMMENT.sub("", text).rstrip()


def _read_block(below: list[str], *, folded: bool) -> str:
    filled = [line for line in below if line.strip()]
    indent = min(map(_indent, filled), default=0)
    lines = [line[indent:] for line in below]
    while lines and not lines[-1].strip():
        lines.pop()
    return (" " if folded else "\n").join(lines)


def _read_list(below: list[str], depth: int) -> tuple[Any] | None:
    filled = [line for line in below if line.strip()]
    indent = _indent(filled[0])
    items: list[Any] = []
    group: list[str] = []
    for line in [*filled, None]:
        if line is None or _is_item(line, indent):
            if group:
                item = _read_item(group, indent, depth)
                if item is None:
                    return None
                items.append(item[0])
            group = [line] if line is not None else []
        else:
            group.append(line)
    return (items,)


def _read_item(group: list[str], indent: int, depth: int) -> tuple[Any] | None:
    first = group[0][indent + 2 :]
    if _LINE.fullmatch(first.lstrip()):
        return _read_inner_mapping([" " * (indent + 2) + first, *group[1:]], depth + 1)
    return _read_value(first.strip(), group[1:], depth + 1)


def _read_inner_mapping(below: list[str], depth: int) -> tuple[Any] | None:
    """Read a mapping inside a value. The type of each scalar in it follows from its spelling, as in JSON."""
    filled = [line for line in below if line.strip()]
    indent = _indent(filled[0])
    members: dict[str, Any] = {}
    at = 0
    while at < len(filled):
        entry = _LINE.fullmatch(filled[at][indent:]) if _indent(filled[at]) == indent else None
        if entry is None:
            return None
        end = at + 1
        while end < len(filled) and _belongs_to(filled[end], indent):
            end += 1
        value = _read_value(entry[3] or "", filled[at + 1 : end], depth + 1)
        if value is None:
            return None
        members[entry[2]] = _type_by_look(value[0])
        at = end
    return (members,)


def _type_by_look(value: Any) -> Any:
    if not isinstance(value, str) or value.startswith('"'):
        return value
    return try_json(value, value, parse_constant=reject_constant, parse_float=parse_finite_float)


# Calls as YAML between two tags: a mapping of a name and its arguments, or a list of such mappings.
#
# Seen in replies of Granite 4 (one mapping) and Apriel 1.5 (a list).


YAML_ALIAS: Final = "yaml"
"""The beginning of the `Head.alias` of heads that find YAML. The rest of the alias is the opening tag."""
_NAME = r"[\"']?[^\W\d][\w.:/-]{0,127}+[\"']?"
_FIRST_NAME = lazy_pattern(r"<\w+>\s*(?:- )?name:[ \t]*[\"']?([\w.:/-]+)[\"']?")
_ITEM = lazy_pattern(r"^- ", re.MULTILINE)
_CALL = lazy_pattern(
    r"\s*name:[ \t]*[\"']?([\w.:/-]+)[\"']?[ \t\r]*(?:\n(?:arguments|parameters):[ \t\r]*(\{.*\}\s*|\n[\s\S]*)?)?",
)
_STRICT = "strict allows no repair of the body"
_FIX = Fix("json", "YAML instead of JSON")


def yaml_head(opener: str) -> Head:
    """Return a `Head` that finds calls in YAML after the tag `opener`."""
    dash = r"(?:-(?:\Z| ))?"
    pattern = sequence(
        literal_text(opener), r"\s{0,64}", dash + literal_text("name:"), r"[ \t]{0,8}", _NAME, r"[ \t]{0,8}\r?", r"\n"
    )
    return Head((opener,), pattern, body_starts="", begins=_begins_call, alias=f"{YAML_ALIAS}{opener}")


def _begins_call(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the first name after the tag is the name of an offered tool, and ends its line."""
    del fresh
    if text[end - 1] != "\n" or (match := _FIRST_NAME.match(text, start, end)) is None:
        return NEED_MORE if end == len(text) else False
    return options.tools is not None and options.tools.find(match[1]) is not None


class _YamlCall(NamedTuple):
    raw: str
    name: str
    arguments: str


class YamlReader(CandidateBase):
    """Reads calls in YAML from their opening tag to their closing tag. O(n)."""

    def __init__(self, opener: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._opener = opener
        self._closer = f"\n</{opener[1:]}"  # a closing tag that a value quotes is indented
        self._options = options
        self._evidence = evidence
        self._pieces: list[str] = []
        self._tail = ""

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
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
        """Report that the block was cut off: the text has ended, and lines may be missing."""
        del finish_reason
        raw = "".join(self._pieces)
        match = _FIRST_NAME.match(raw)
        malformed = malformed_call(
            "truncated", "the text ended before its closer", self._evidence.dialect, match[1] if match else None
        )
        if self._is_strict:
            self._give_up(raw, _STRICT)
        else:
            self._finish(raw, [Part("malformed", raw, malformed=malformed)])

    @property
    def _is_strict(self) -> bool:
        return self._options.strictness == "strict" and not self._evidence.expected

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
        self.tries.append(TriedStrategy(self._evidence.dialect, "text", why, len(raw)))

    def _resolve(self, item: _YamlCall) -> Call | Malformed:
        tools = self._options.tools
        resolved = tools.find(item.name) if tools is not None else None
        if tools is None or resolved is None:
            raise NotACall(f"no tool {item.name!r} is offered")
        name = resolved[0].name
        values, fixes = self._arguments(name, item.arguments)
        if values is None:
            why = "its arguments are neither YAML nor JSON of its parameters"
            return malformed_call("invalid_json", why, self._evidence.dialect, name)
        node = JsonNode(values, "", 0, 0, exact=False)
        return resolve_call(UnresolvedCall(node, item.name, node, {}, (_FIX, *fixes)), self._options, self._evidence)

    def _arguments(self, tool: str, text: str) -> tuple[dict[str, Any] | None, list[Fix]]:
        """Return the arguments and the fixes.

        Strings in lines of YAML are converted to the schema's types. The arguments are None if they cannot be read.
        """
        assert self._options.tools is not None
        fixes: list[Fix] = []
        if text.lstrip().startswith("{"):
            body = read_json_object(text)
            return (None, fixes) if body is None else (body[0], [*body[1]])
        lines = read_mapping(text, self._options.tools.keys(tool))
        for key, value in (lines or {}).items():
            if isinstance(value, str) and lines is not None:
                lines[key], more = read_parameter(self._options, tool, key, value)
                fixes += more
        return lines, fixes

    def _finish(self, raw: str, parts: list[Part]) -> None:
        self.parts = parts
        self.tries.append(trace_entry(self._evidence.dialect, len(raw), parts))


def _split_calls(body: str) -> list[_YamlCall]:
    """Split the body into its calls. Raises `NotACall` if there is anything else in it."""
    starts = [match.start() for match in _ITEM.finditer(body)] if body.lstrip().startswith("-") else []
    bounds = [0, *starts[1:], len(body)]
    pieces = [body[at:end] for at, end in pairwise(bounds)]
    items: list[_YamlCall] = []
    for raw in pieces:
        text = _dedent(_ITEM.sub("  ", raw, count=1)).rstrip()
        match = _CALL.fullmatch(text)
        if match is None:
            raise NotACall("its content is not a call")
        items.append(_YamlCall(raw, match[1], _dedent((match[2] or "").strip("\n"))))
    return items


def _dedent(text: str) -> str:
    """Remove the indentation that all lines share."""
    lines = text.split("\n")
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)
