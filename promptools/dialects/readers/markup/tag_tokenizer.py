r"""The tags of `call(name) / parameter(key) value / end` markup, in every spelling, found in text that comes in pieces.

One tokenizer serves all families, since models mix them: `<function=f>`, `<function name="f">`, `<invoke name='f'>`,
`<｜DSML｜invoke name="f">`, `<parameter name=k>`, `<parameter=k` without its bracket, `</ parameter >`. A tag has
at most `TAG_LIMIT` characters, so no character is looked at more often than that.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, NamedTuple

from promptools.dialects.reply_markers import reply_markers

_BLANK = " \t\r\n\f\v\u00a0\u200b\ufeffĠĊ"
TAG_LIMIT = 1600
"""Longest tag in characters, with its attributes."""

TagKind = Literal["wrap", "call", "param", "element", "cdata", "noise", "end", "cut"]

BARS = r"[|｜]{1,4}\s{0,4}"
DSML = rf"(?:{BARS}(?:DSML|GCML)\s{{0,4}}[|｜]{{0,4}}|(?:DSML|GCML)\s{{0,4}}[|｜]{{1,4}})\s{{0,4}}"
"""What precedes the words of DeepSeek's tags, with bars lost, doubled, or in ASCII."""

_QUOTES = "\"'“”‘’"
_WRAPS = (
    "tool_calls",
    "tool_call",
    "toolcalls",
    "toolcall",
    "function_calls",
    "function_call",
    "dots_function_call",
    "tvoe_calls",
    "calls",
    "tool",
)
_MARKED_ONLY = ("calls", "tool")
"""Words that open a block only after a namespace: alone they are too common."""
_CALLS = ("function", "invoke")
_PARAMS = ("parameter", "param")
_WORDS = (*_WRAPS, *_CALLS, *_PARAMS)
_MARKS = ("DSML", "GCML")
_NAMESPACES = ("antml:", "atem:", "steptml:", "minimax:", "seed:")

_TAG_START = re.compile(
    rf"<[\sĠĊ]{{0,8}}(?P<close>/?)[\sĠĊ]{{0,8}}(?P<space>{'|'.join(_NAMESPACES)}|{DSML})?"
    rf"(?:(?P<wrap>{'|'.join(_WRAPS)})|(?P<call>{'|'.join(_CALLS)})|(?P<param>{'|'.join(_PARAMS)}))"
    r"(?:(?![\w.:-])|(?=[ĠĊ])|(?=[ĠĊ]?name\s{0,8}=))"
)
_ATTRIBUTE = (
    r"[\sĠĊ]{0,8}[A-Za-z_][\w:-]{0,40}\s{0,8}=\s{0,8}"
    r"(?:\"[^\"]{0,1000}\"|'[^'<>]{0,200}'|[“”‘’][^“”‘’<>]{0,200}[“”‘’]|[^\s<>\"'“”‘’=/]{1,128})"
)
_ATTRIBUTES = re.compile(rf"(?P<attributes>(?:{_ATTRIBUTE}){{0,6}})[\sĠĊ]{{0,8}}(?P<empty>/?)>")
_NAME = rf"[^\s<>={{}}{_QUOTES}]"
_EQUALS = re.compile(
    rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?:[{_QUOTES}]\s{{0,4}}(?P<quoted>[^<>\n{_QUOTES}]{{1,128}}?)\s{{0,4}}[{_QUOTES}]"
    rf"|(?P<bare>{_NAME}{{1,128}}?))"
    rf"(?:(?:\s{_ATTRIBUTE}){{0,4}}[\sĠĊ]{{0,8}}(?P<empty>/?)>"
    rf"|(?P<lost>(?=[\sĠĊ]{{0,8}}[<{{])|(?=[ \t]{{0,4}}\r?\n[\sĠĊ]{{0,8}}[^\s>/])))"
)
# `<parameter=command=create</parameter>`
_TWICE = re.compile(rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?P<bare>{_NAME}{{1,128}})=")
_WORD = re.compile(rf"\s{{1,8}}(?P<bare>{_NAME}{{1,128}}?)[\sĠĊ]{{0,8}}>")  # `<function bash>`
# `<parameter=start date>`, where a tool has such a parameter
_SPACED = re.compile(
    rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?P<bare>{_NAME}{{1,128}}+(?:[ \t]{{1,4}}+{_NAME}{{1,128}}+){{1,16}}+)\s{{0,8}}>"
)
_CLOSING_REST = re.compile(r"[^<>]{0,64}>")
_CLOSER_AND_TAG = re.compile(
    rf"</[^\s<>/]{{0,24}}?(?:{'|'.join(_PARAMS)})>[\sĠĊ]{{0,64}}"
    rf"(?P<tag><?[^\s<>/]{{0,24}}?(?:{'|'.join((*_PARAMS, *_CALLS))})[^<>\n]{{1,200}}>)"
)
_OPENING, _CLOSING_DATA = "<![CDATA[", "]]>"
_QUOTED = re.compile(r'"[^"]*(?:"|\Z)')
_ELEMENT = re.compile(r"<(/?)\s{0,4}([A-Za-z_][\w.:-]{0,63})\s{0,4}(/?)>")
_PAIR = re.compile(r"([A-Za-z_][\w:-]*)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|[“”‘’]([^“”‘’]*)[“”‘’]|([^\s<>\"'“”‘’=/]+))")

_SECTION = re.compile(r"<｜(tool_calls_begin|tool_calls_end|tool_call_begin|tool_call_end|tool_sep)｜>")
"""Step 3's tokens: full-width bars, and underscores where DeepSeek has another character."""
_SECTIONS = tuple(
    f"<｜{token}｜>" for token in ("tool_calls_begin", "tool_calls_end", "tool_call_begin", "tool_call_end", "tool_sep")
)

_UNFINISHED = re.compile(
    r"<\s{0,8}/?\s{0,8}(?:[|｜]{1,4}\s{0,4}(?:D(?:S(?:M?)?)?|G(?:C(?:M?)?)?)?\Z"
    rf"|(?:{DSML})?(?P<word>[A-Za-z_][\w.:-]*)?(?P<after>[\s\S]?))"
)


class Tag(NamedTuple):
    """One tag.

    `kind` "noise": a token around calls that carries no meaning; "end": an end-of-turn token; "cut": what may have
    become a tag, at the end of the text.
    """

    raw: str
    kind: TagKind
    close: bool = False
    name: str | None = None
    """The tool, the parameter, or the element's own name."""
    empty: bool = False
    """It closes itself."""
    attributes: dict[str, str] = {}  # noqa: RUF012  never changed


class TagTokenizer:
    """Splits text into tags and the text between them. O(n) in characters, `TAG_LIMIT` times at worst."""

    def __init__(self) -> None:
        self._markers = reply_markers()
        self.elements: Collection[str] | None = ()
        """Other elements that count as tags; None for all."""
        self.spaced_keys: Collection[str] = ()
        """Names of parameters that hold white space."""
        self.splits_cdata = False
        """CDATA sections are tokenized."""
        self._in_cdata = False

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`: a tag, or the text up to the next one; None if more text is needed."""
        if self._in_cdata:
            return self._cdata_content(text, at, final=final)
        if self.splits_cdata and text.startswith(_OPENING[: len(text) - at], at):
            return self._cdata_start(text, at, final=final)
        if text[at] != "<":
            end = text.find("<", at)
            return text[at:] if end < 0 else text[at:end]
        tag = read_tag(text, at, self.spaced_keys) or self._element(text, at)
        if tag is not None:
            return tag
        if len(text) - at <= TAG_LIMIT and self._unfinished(text[at:]):
            return Tag(text[at:], "cut") if final else None
        end = text.find("<", at + 1)
        return text[at:] if end < 0 else text[at:end]

    def _cdata_start(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        if len(text) - at < len(_OPENING):
            return text[at:] if final else None
        self._in_cdata = True
        return Tag(_OPENING, "cdata")

    def _cdata_content(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the rest of a CDATA section, or its end."""
        end = text.find(_CLOSING_DATA, at)
        if end == at:
            self._in_cdata = False
            return Tag(_CLOSING_DATA, "cdata", close=True)
        if end > 0 or final:
            return text[at:end] if end > 0 else text[at:]
        held = 2 if text.endswith("]]") else 1 if text.endswith("]") else 0
        return text[at : len(text) - held] or None

    def _element(self, text: str, at: int) -> Tag | None:
        match = self._markers.turn_end.match(text, at)
        if match is not None:
            return Tag(match[0], "end")
        match = _SECTION.match(text, at)
        if match is not None:
            whole = match[1].startswith("tool_calls")
            return Tag(match[0], "wrap" if whole else "noise", match[1] == "tool_calls_end")
        match = _ELEMENT.match(text, at)
        if match is None or (self.elements is not None and match[2] not in self.elements):
            return None
        return Tag(match[0], "element", bool(match[1]), match[2], bool(match[3]))

    def _unfinished(self, tail: str) -> bool:
        """Return whether more text may turn `tail` into a tag."""
        if len(tail) < self._markers.longest_turn_end and any(
            literal.startswith(tail) for literal in (*self._markers.turn_ends, *_SECTIONS)
        ):
            return True
        begun = _UNFINISHED.match(tail)
        if begun is None:
            return False
        if begun["word"] is None:
            return begun.end() == len(tail) and not begun["after"]
        known = (*_WORDS, *_NAMESPACES, *_MARKS)
        if not begun["after"]:
            return self._may_begin(begun["word"], known)
        word = begun["word"].rpartition(":")[2] if begun["word"].startswith(_NAMESPACES) else begun["word"]
        relevant = word.startswith(_WORDS) or word in _MARKS or self.elements is None or word in self.elements
        inside = tail[begun.start("after") :]
        return relevant and _in_open_quote(inside)

    def _may_begin(self, word: str, known: Collection[str]) -> bool:
        if self.elements is None:
            return True
        word = word.rpartition(":")[2] if word.startswith(_NAMESPACES) else word
        return any(name.startswith(word) or word.startswith(name) for name in (*known, *self.elements))


def begins_broken_tag(text: str) -> bool:
    """Return whether a text begins with a tag of a call or a parameter that cannot be read."""
    lead = _TAG_START.match(strip_blank(text))
    return lead is not None and lead["wrap"] is None


def holds_damaged_tag(value: str) -> bool:
    """Return whether a value holds a parameter's closing tag and right after it a tag with a damaged opening."""
    starts = (match.start("tag") for match in _CLOSER_AND_TAG.finditer(value))
    return any(read_tag(value, at) is None for at in starts)


def is_blank(text: str) -> bool:
    """Return whether a text is white space, including the spellings of tokenizers."""
    return not text.strip(_BLANK)


def strip_blank(text: str) -> str:
    """Return the text from its first character that is not white space."""
    return text.lstrip(_BLANK)


def _in_open_quote(inside: str) -> bool:
    """Return whether every bracket is inside the quotes of an attribute."""
    bare = _QUOTED.sub("", inside)
    return "<" not in bare and ">" not in bare


def read_tag(text: str, at: int, spaced_keys: Collection[str] = ()) -> Tag | None:
    """Read the tag of a block, a call or a parameter at `at`; `spaced_keys`: parameters with white space."""
    lead = _TAG_START.match(text, at)
    if lead is None or (lead["wrap"] in _MARKED_ONLY and not lead["space"]):
        return None
    kind: TagKind = "wrap" if lead["wrap"] else "call" if lead["call"] else "param"
    tail = _match_rest(text, lead.end(), kind, close=bool(lead["close"]))
    if tail is None and kind == "param" and spaced_keys:
        tail = _SPACED.match(text, lead.end())
        tail = tail if tail is not None and tail["bare"] in spaced_keys else None
    if tail is None or tail.end() - at > TAG_LIMIT:
        return None
    raw = text[at : tail.end()]
    if lead["close"]:
        return Tag(raw, kind, close=True)
    groups = tail.groupdict()
    attributes = _attributes(groups.get("attributes") or "")
    name = groups.get("quoted") or groups.get("bare") or attributes.get("name")
    return Tag(raw, kind, False, name.strip() if name else None, bool(groups.get("empty")), attributes)


def _match_rest(text: str, at: int, kind: TagKind, *, close: bool) -> re.Match[str] | None:
    if close:
        return _CLOSING_REST.match(text, at)
    match = _ATTRIBUTES.match(text, at)
    if match is not None or kind == "wrap":
        return match
    match = _EQUALS.match(text, at)
    if match is None and kind == "param":
        match = _TWICE.match(text, at)
    if match is None and kind == "call":
        match = _WORD.match(text, at)
    return match


def _attributes(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for match in _PAIR.finditer(text):
        pairs.setdefault(match[1], next(group for group in match.groups()[1:] if group is not None))
    return pairs
