"""Kimi K3: calls in XTML, whose tags are words between the special tokens `<|open|>`, `<|close|>` and `<|sep|>`.

    <|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>
    Oslo<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>

A string is written unchanged, any other value as JSON. Attributes are escaped, but values are not, so a string may
contain tags, even a complete call. The arguments may also be written as one JSON object, between
`<|open|>json type="object"<|sep|>` and `<|close|>json<|sep|>`.

Source: the parsers `kimi_k3` of vLLM 0.32 and llama.cpp (2026).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head, Textual
from promptools.dialects.prefix_patterns import any_of, literal_text, sequence
from promptools.dialects.prompt import explain_tools, json_lines
from promptools.dialects.readers.markup_call import MarkupGrammar
from promptools.dialects.readers.markup_reader import MarkupReader
from promptools.dialects.readers.tags import Tag, TagKind, TagNames
from promptools.dialects.written_calls import escaped_json
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.schema.documents import type_name
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

OPEN, CLOSE, SEP = "<|open|>", "<|close|>", "<|sep|>"
TOOLS, END_TOOLS = f"{OPEN}tools{SEP}", f"{CLOSE}tools{SEP}"
END_CALL, END_ARGUMENT, END_JSON = (f"{CLOSE}{word}{SEP}" for word in ("call", "argument", "json"))

_MAX_ATTRIBUTES = 4000
"""The maximum length of a tag's attributes. A key may be a long text, but an unfinished tag must not cost too much."""
_ATTRIBUTES = rf"\s[^<>]{{0,{_MAX_ATTRIBUTES}}}+"
_TAG: Final = lazy_pattern(
    rf"{re.escape(OPEN)}(?:(?P<wrap>tools)|(?P<call>call)(?P<named>{_ATTRIBUTES})|(?P<param>argument)(?P<keyed>{_ATTRIBUTES})"
    rf"|(?P<json>json)(?:{_ATTRIBUTES})?){re.escape(SEP)}"
    rf"|{re.escape(CLOSE)}(?:(?P<end_wrap>tools)|(?P<end_call>call)|(?P<end_param>argument)|(?P<end_json>json)){re.escape(SEP)}"
)
_PARTIAL_TAG: Final = lazy_pattern(
    any_of(
        *(
            sequence(literal_text(f"{OPEN}{word}"), _ATTRIBUTES, literal_text(SEP))
            for word in ("call", "argument", "json")
        ),
        *map(literal_text, (TOOLS, f"{OPEN}json{SEP}", END_ARGUMENT, END_CALL, END_JSON, END_TOOLS)),
    )
    + r"\Z"
)
_BROKEN_TAG = lazy_pattern(r"[\s<|]{0,8}open\b")
"""Matches a broken opening tag, which may come after the closing tag of an argument."""
_BROKEN_OPENER = lazy_pattern(rf"{re.escape(END_ARGUMENT)}(?P<tag>{_BROKEN_TAG.pattern})")
_ATTRIBUTE = lazy_pattern(r'\s(\w+)\s*=\s*"([^"]*)"')
_ENTITIES = {"&quot;": '"', "&lt;": "<", "&gt;": ">", "&amp;": "&"}
_ENTITY = lazy_pattern("|".join(_ENTITIES))
_KINDS: Final[dict[str, TagKind]] = {"wrap": "wrap", "call": "call", "param": "param", "json": "noise"}


class XtmlNames(TagNames):
    """Reads the tags of XTML, which are between special tokens instead of angle brackets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "closer_and_tag", _BROKEN_OPENER)

    def read_tag(self, text: str, at: int, spaced_keys: Collection[str] = ()) -> Tag | None:
        """Read the tag of a block, a call or an argument at `text[at]`; None if no such tag is there."""
        del spaced_keys
        match = _TAG.match(text, at)
        if match is None:
            return None
        word = match.lastgroup or ""
        if word == "json":
            return Tag(match[0], "noise")
        if word.startswith("end_"):
            return Tag(match[0], _KINDS[word.removeprefix("end_")], close=True)
        if match["wrap"]:
            return Tag(match[0], "wrap")
        attributes = _attributes(match["named"] or match["keyed"])
        if match["call"]:
            return Tag(match[0], "call", name=attributes.get("tool"))
        kind = attributes.get("type")
        typed = {"string": "true" if kind == "string" else "false"} if kind else {}
        return Tag(match[0], "param", name=attributes.get("key"), attributes=typed)

    def may_become_tag(self, tail: str, elements: Collection[str] | None) -> bool:
        """Return whether more text may turn `tail` into a tag."""
        del elements
        return _PARTIAL_TAG.match(tail) is not None

    def begins_broken_tag(self, text: str) -> bool:
        """Return whether a text begins with an opening tag that cannot be read."""
        return _BROKEN_TAG.match(text) is not None


GRAMMAR: Final = MarkupGrammar(
    canonical=_TAG,
    wrapper=(TOOLS, END_TOOLS),
    closers=(END_CALL, END_ARGUMENT),
    json_closer=END_JSON,
    unwrapped=True,
    unclosed_value="marker",
    names=XtmlNames(
        wrappers=("tools",),
        calls=("call",),
        params=("argument",),
        naming_elements=frozenset(),
        closer_start=CLOSE[:3],
        tag_limit=_MAX_ATTRIBUTES + 50,
    ),
)
_CALL: Final = sequence(literal_text(f"{OPEN}call"), _ATTRIBUTES, literal_text(SEP), r"\s{0,64}+", "[<{]")
_BEGINNING = lazy_pattern(
    rf"(?:{re.escape(TOOLS)}\s{{0,64}})?{re.escape(OPEN)}call(?=[^<>]*\stool\s*=){_ATTRIBUTES}{re.escape(SEP)}\s{{0,64}}[<{{]"
)


def _begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a call begins at `start`, perhaps after the opening tag of its block.

    The tag of the call must have a `tool` attribute, and another tag or a JSON object must follow.
    """
    del fresh, options
    return _BEGINNING.match(text, start, end) is not None or (NEED_MORE if end == len(text) else False)


def _attributes(tag: str) -> dict[str, str]:
    return {key: _ENTITY.sub(lambda match: _ENTITIES[match[0]], text) for key, text in _ATTRIBUTE.findall(tag)}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


class KimiK3(Textual):
    """The dialect of Kimi K3: `<|open|>call tool="NAME"<|sep|>`, and an `argument` element for each argument."""

    name = "kimi_k3"
    models = "Kimi K3"
    tier = "S"
    heads = (
        Head(
            (OPEN,), any_of(sequence(literal_text(TOOLS), r"\s{0,64}+", _CALL), _CALL), body_starts="", begins=_begins
        ),
    )
    closers = (END_TOOLS, END_CALL, TOOLS)
    reasoning_tags: Mapping[str, str] = {
        f"{OPEN}think{SEP}": f"{CLOSE}think{SEP}",
        f"{OPEN} think {SEP}": f"{CLOSE} think {SEP}",  # from a detokenizer that puts spaces around tokens
    }
    answer_tags: Mapping[str, str] = {
        f"{OPEN}response{SEP}": f"{CLOSE}response{SEP}",
        f"{OPEN} response {SEP}": f"{CLOSE} response {SEP}",
    }
    end_tokens = ("<|end_of_msg|>", f"{CLOSE}message{SEP}")
    control_tokens = (CLOSE, SEP, END_ARGUMENT, END_JSON)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads from the first tag on, which begins a block of calls or a call."""
        del head
        return MarkupReader(GRAMMAR, options, evidence, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return explain_tools(self.render_calls, tools, json_lines(tools), parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them. A string that contains a tag is written as JSON."""
        return TOOLS + "".join(self._call(call, index) for index, call in enumerate(calls, 1)) + END_TOOLS

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        return "\n".join(f"Result of {result.name}:\n{result.content}" for result in results)

    def _call(self, call: Call, index: int) -> str:
        inner = "".join(_argument(key, value) for key, value in call.arguments.items())
        return f'{OPEN}call tool="{_escape(call.name)}" index="{index}"{SEP}{inner}{END_CALL}'


def _argument(key: str, value: Any) -> str:
    if isinstance(value, str):
        kind, text = ("json", escaped_json(value)) if "<|" in value else ("string", value)
    else:
        kind, text = type_name(value).replace("integer", "number"), escaped_json(value)
    return f'{OPEN}argument key="{_escape(key)}" type="{kind}"{SEP}{text}{END_ARGUMENT}'
