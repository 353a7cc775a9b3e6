r"""The names of the tags of one format, and the reading of one tag in any spelling of them.

Most families write `function` or `invoke` around `parameter`, and models mix them: `<function=f>`,
`<function name="f">`, `<invoke name='f'>`, `<｜DSML｜invoke name="f">`, `<parameter name=k>`, `<parameter=k` and
`</parameter` without their bracket, `</ parameter >`. So all of these share `SHARED_NAMES`. A format with other names
has `TagNames` of its own, in as many spellings, and no other tag means anything in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from promptools.patterns import lazy_pattern

TAG_LIMIT = 1600
"""Longest tag in characters, with its attributes."""

TagKind = Literal[
    "wrap", "call", "param", "key", "type", "value", "element", "cdata", "separator", "reasoning", "noise", "end", "cut"
]

BARS = r"[|｜]{1,4}\s{0,4}"
DSML = rf"(?:{BARS}(?:DSML|GCML)\s{{0,4}}[|｜]{{0,4}}|(?:DSML|GCML)\s{{0,4}}[|｜]{{1,4}})\s{{0,4}}"
"""What precedes the words of DeepSeek's tags, with bars lost, doubled, or in ASCII."""
DSML_MARKS: Final = ("DSML", "GCML")

NAMING_ELEMENTS: Final = frozenset(("tool_name", "name", "parameters"))
"""Elements of Anthropic's format of 2023, which names the tool and its parameters by elements."""

_BLANK = " \t\r\n\f\v\u00a0\u200b\ufeffĠĊ"
_QUOTES = "\"'“”‘’"
_KEY = r"[\sĠĊ]{0,8}[A-Za-z_][\w:-]{0,40}\s{0,8}"
# a value without quotes is taken whole: each part of it could be the next attribute's name
_ATTRIBUTE = (
    rf"{_KEY}=\s{{0,8}}"
    r"(?:\"[^\"]{0,1000}\"|'[^'<>]{0,200}'|[“”‘’][^“”‘’<>]{0,200}[“”‘’]|[^\s<>\"'“”‘’=/]{1,128}+)"
)
_MAY_BE_ATTRIBUTES = (
    rf"(?:{_ATTRIBUTE}){{0,5}}(?:{_KEY}(?:=\s{{0,8}}"
    r"(?:\"[^\"]{0,1000}|'[^'<>]{0,200}|[“”‘’][^“”‘’<>]{0,200}|[^\s<>\"'“”‘’=/]{1,128}+)?)?)?[\sĠĊ]{0,8}/?\Z"
)
"""Attributes up to the end of the text, where the last one may go on."""
_NEXT_LINE = r"(?=[ \t]{0,4}\r?\n[\sĠĊ]{0,8}(?:[^\s>/]|/(?=[^>])))"
"""A value on the next line, where a tag has lost its bracket."""
_ATTRIBUTES = lazy_pattern(rf"(?P<attributes>(?:{_ATTRIBUTE}){{0,6}})[\sĠĊ]{{0,8}}(?P<empty>/?)>")
_PLAIN = "[^<>=\\n\"'“”‘’]{1,200}"
_PLAIN_ATTRIBUTE = (
    rf"[\sĠĊ]{{0,8}}[A-Za-z_][\w:-]{{0,40}}\s{{0,8}}=\s{{0,8}}(?:\"{_PLAIN}\"|'{_PLAIN}'|[“”‘’]{_PLAIN}[“”‘’])"
)
"""An attribute that has all of its quotes: it holds no sign of what follows it."""
# `<parameter name="city"` and `<invoke name="f"` without their bracket: a tag follows, or the value does
_LOST = lazy_pattern(
    rf"(?P<attributes>(?:{_PLAIN_ATTRIBUTE}){{1,6}})(?P<lost>(?=[\sĠĊ]{{0,8}}<)"
    rf"|(?<=[\"'“”‘’])(?=[^\s<>/=\"'“”‘’ĠĊ]|/(?=[^>]))(?!{_MAY_BE_ATTRIBUTES})"
    rf"|{_NEXT_LINE}(?![\sĠĊ]{{0,8}}[A-Za-z_][\w:-]{{0,40}}\s{{0,8}}(?:=|\Z)))"
)
_NAME = rf"[^\s<>={{}}{_QUOTES}]"
_EQUALS = lazy_pattern(
    rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?:[{_QUOTES}]\s{{0,4}}(?P<quoted>[^<>\n{_QUOTES}]{{1,128}}?)\s{{0,4}}[{_QUOTES}]"
    rf"|(?P<bare>{_NAME}{{1,128}}?))"
    rf"(?:(?:\s{_ATTRIBUTE}){{0,4}}[\sĠĊ]{{0,8}}(?P<empty>/?)>"
    rf"|(?P<lost>(?=[\sĠĊ]{{0,8}}[<{{])|{_NEXT_LINE}(?!\s{_MAY_BE_ATTRIBUTES})))"
)
# `<parameter=command=create</parameter>`
_TWICE = lazy_pattern(rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?P<bare>{_NAME}{{1,128}})=")
_WORD = lazy_pattern(rf"\s{{1,8}}(?P<bare>{_NAME}{{1,128}}?)[\sĠĊ]{{0,8}}>")  # `<function bash>`
# `<parameter=start date>`, where a tool has such a parameter
_SPACED = lazy_pattern(
    rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?P<bare>{_NAME}{{1,128}}+(?:[ \t]{{1,4}}+{_NAME}{{1,128}}+){{1,16}}+)\s{{0,8}}>"
)
_CLOSING_REST = lazy_pattern(r"[^<>]{0,64}>|[ \t]{0,4}(?=\s{0,8}<)")
"""What follows a closing tag's name; its bracket may be missing where another tag follows."""
_QUOTED = lazy_pattern(r'"[^"]*(?:"|\Z)')
_UNFINISHED = lazy_pattern(
    r"<\s{0,8}/?\s{0,8}(?:[|｜]{1,4}\s{0,4}(?:D(?:S(?:M?)?)?|G(?:C(?:M?)?)?)?\Z"
    rf"|(?:{DSML})?(?P<word>[A-Za-z_][\w.:-]*)?(?P<after>[\s\S]?))"
)
_PAIR = lazy_pattern(r"([A-Za-z_][\w:-]*)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|[“”‘’]([^“”‘’]*)[“”‘’]|([^\s<>\"'“”‘’=/]+))")


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

    @property
    def role(self) -> str:
        """Its kind, with a slash after that of a closing tag."""
        return f"{self.kind}/" if self.close else self.kind


@dataclass(frozen=True, eq=False)
class TagNames:
    """The names of a format's tags.

    `spaces`: what may precede a name; `marked_wrappers`: names that open a block only after one of these, as alone they
    are too common; `name_attribute`, `key_attribute`: the attributes that name a tool and a parameter.
    """

    wrappers: tuple[str, ...]
    calls: tuple[str, ...]
    params: tuple[str, ...]
    spaces: tuple[str, ...] = ()
    marked_wrappers: tuple[str, ...] = ()
    dsml: bool = False
    """Names may follow DeepSeek's bars."""
    name_attribute: str = "name"
    key_attribute: str = "name"
    naming_element: str = ""
    """The element in a call that names its tool."""
    naming_elements: frozenset[str] = NAMING_ELEMENTS
    """Elements in a call that are none of its parameters."""
    closer_start: str = "</"
    """How the beginning of a closing tag that is cut short is recognized."""
    tag_limit: int = TAG_LIMIT
    """Longest tag in characters."""
    tokens: Mapping[str, tuple[TagKind, bool]] = field(default_factory=dict[str, tuple[TagKind, bool]])
    """Tokens without a name: the kind of each, and whether it closes."""
    words: tuple[str, ...] = field(init=False)
    marks: tuple[str, ...] = field(init=False)
    lost_opening_tag: re.Pattern[str] = field(init=False)
    """Matches a call's opening tag without its bracket."""
    longest_token: int = field(init=False)
    _start: re.Pattern[str] = field(init=False)
    _closer_and_tag: re.Pattern[str] = field(init=False)
    _token: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        any_wrapper, any_call, any_param = map(_any_name, (self.wrappers, self.calls, self.params))
        space = "|".join((*map(re.escape, self.spaces), *([DSML] if self.dsml else [])))
        start = (
            rf"<[\sĠĊ]{{0,8}}(?P<close>/?)[\sĠĊ]{{0,8}}(?P<space>{space or '(?!)'})?"
            rf"(?:(?P<wrap>{any_wrapper})|(?P<call>{any_call})|(?P<param>{any_param}))"
            r"(?:(?![\w.:-])|(?=[ĠĊ])|(?=[ĠĊ]?name\s{0,8}=))"
        )
        closer_and_tag = (
            rf"</[^\s<>/]{{0,24}}?(?:{any_param})>[\sĠĊ]{{0,64}}"
            rf"(?P<tag><?[^\s<>/]{{0,24}}?(?:{any_param}|{any_call})[^<>\n]{{1,200}}>)"
        )
        lost = rf"\s*(?:{any_call})\s*=\s*[\"']?([^\s<>\"'={{}}]{{1,128}})[\"']?\s*>"
        object.__setattr__(self, "words", (*self.wrappers, *self.calls, *self.params))
        object.__setattr__(self, "marks", DSML_MARKS if self.dsml else ())
        object.__setattr__(self, "lost_opening_tag", lazy_pattern(lost))
        object.__setattr__(self, "longest_token", max(map(len, self.tokens), default=0))
        object.__setattr__(self, "_token", lazy_pattern(_any_name(self.tokens)))
        object.__setattr__(self, "_start", lazy_pattern(start))
        object.__setattr__(self, "_closer_and_tag", lazy_pattern(closer_and_tag))

    def read_tag(self, text: str, at: int, spaced_keys: Collection[str] = ()) -> Tag | None:
        """Read the tag of a block, a call or a parameter at `at`; `spaced_keys`: parameters with white space."""
        lead = self._start.match(text, at)
        if lead is None or (lead["wrap"] in self.marked_wrappers and not lead["space"]):
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
        naming = self.key_attribute if kind == "param" else self.name_attribute
        name = groups.get("quoted") or groups.get("bare") or attributes.get(naming)
        return Tag(raw, kind, False, name.strip() if name else None, bool(groups.get("empty")), attributes)

    def read_token(self, text: str, at: int) -> Tag | None:
        """Read a token without a name at `at`."""
        match = self._token.match(text, at)
        return Tag(match[0], *self.tokens[match[0]]) if match is not None else None

    def may_become_tag(self, tail: str, elements: Collection[str] | None) -> bool:
        """Return whether more text may turn `tail` into a tag; `elements`: other names that count, None for all."""
        begun = _UNFINISHED.match(tail)
        if begun is None:
            return False
        if begun["word"] is None:
            return begun.end() == len(tail) and not begun["after"]
        word = begun["word"].rpartition(":")[2] if begun["word"].startswith(self.spaces) else begun["word"]
        if not begun["after"]:
            known = (*self.words, *self.spaces, *self.marks, *(elements or ()))
            return elements is None or any(name.startswith(word) or word.startswith(name) for name in known)
        relevant = word.startswith(self.words) or word in self.marks or elements is None or word in elements
        return relevant and _in_open_quote(tail[begun.start("after") :])

    def begins_broken_tag(self, text: str) -> bool:
        """Return whether a text begins with a tag of a call or a parameter that cannot be read."""
        lead = self._start.match(strip_blank(text))
        return lead is not None and lead["wrap"] is None

    def holds_damaged_tag(self, value: str) -> bool:
        """Return whether a value holds a parameter's closing tag and right after it a tag with a damaged opening."""
        starts = (match.start("tag") for match in self._closer_and_tag.finditer(value))
        return any(self.read_tag(value, at) is None for at in starts)


def is_blank(text: str) -> bool:
    """Return whether a text is white space, including the spellings of tokenizers."""
    return not text.strip(_BLANK)


def strip_blank(text: str) -> str:
    """Return the text from its first character that is not white space."""
    return text.lstrip(_BLANK)


def _any_name(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, names)) or "(?!)"


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
    return match if match is not None else _LOST.match(text, at)


def _in_open_quote(inside: str) -> bool:
    """Return whether every bracket is inside the quotes of an attribute."""
    bare = _QUOTED.sub("", inside)
    return "<" not in bare and ">" not in bare


def _attributes(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for match in _PAIR.finditer(text):
        pairs.setdefault(match[1], next(group for group in match.groups()[1:] if group is not None))
    return pairs


SHARED_NAMES: Final = TagNames(
    wrappers=(
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
    ),
    calls=("function", "invoke"),
    params=("parameter", "param"),
    spaces=("antml:", "atem:", "steptml:", "minimax:", "seed:"),
    marked_wrappers=("calls", "tool"),
    dsml=True,
    tokens={
        "<｜tool_calls_begin｜>": ("wrap", False),  # Step 3: with underscores where DeepSeek has another character
        "<｜tool_calls_end｜>": ("wrap", True),
        "<｜tool_call_begin｜>": ("noise", False),
        "<｜tool_call_end｜>": ("noise", False),
        "<｜tool_sep｜>": ("noise", False),
    },
)
"""What most families write; one vocabulary for all of them, since models mix them."""
