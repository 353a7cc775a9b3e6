"""Split text into tokens, which are tags and the text between them, for all readers of tags.

`TagNames` reads one tag in any spelling of its format, `TagTokenizer` and `PatternTokenizer` split text into tokens,
and `TokenBuffer` keeps the tokens and looks ahead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from promptools.dialects.prefix_patterns import beginnings
from promptools.dialects.reply_markers import reply_markers
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern

# The names of the tags of one format; one tag is read in any spelling of these names.
#
# Most families write `function` or `invoke` around `parameter`, and models mix them: `<function=f>`, `<function
# name="f">`, `<invoke name='f'>`, `<｜DSML｜invoke name="f">`, `<parameter name=k>`, `<parameter=k` and `</parameter`
# without their bracket, `</ parameter >`. So all of these share `SHARED_NAMES`. A format with other names has its own
# `TagNames`, which are read in as many spellings; no other tag has a meaning there.


TAG_LIMIT = 1600
"""The maximum length of a tag, including its attributes."""
CLOSER_AND_TAG_LIMIT = 512
"""The maximum length of a parameter's closing tag and a damaged tag after it, taken together."""

TagKind = Literal[
    "wrap", "call", "param", "key", "type", "value", "element", "cdata", "separator", "reasoning", "noise", "end", "cut"
]

BARS = r"[|｜]{1,4}\s{0,4}"
# Replies with missing bars: vllm#30541, vllm#40806.
DSML = rf"(?:{BARS}(?:DSML|GCML)\s{{0,4}}[|｜]{{0,4}}|(?:DSML|GCML)\s{{0,4}}[|｜]{{1,4}})\s{{0,4}}"
"""The pattern of what precedes the names of DeepSeek's tags; the bars may be lost, doubled, or in ASCII."""
DSML_MARKS: Final = ("DSML", "GCML")  # GigaChat 3.5 writes GCML

NAMING_ELEMENTS: Final = frozenset(("tool_name", "name", "parameters"))
"""Elements of Anthropic's format of 2023 that hold the name of the tool, or enclose its parameters."""

# MiniCPM5's replies hold its tokenizer's letters for a space and a line break (vLLM 0.32).
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
"""The pattern of attributes up to the end of the text. The last attribute may be incomplete."""
_NEXT_LINE = r"(?=[ \t]{0,4}\r?\n[\sĠĊ]{0,8}(?:[^\s>/]|/(?=[^>])))"
"""The pattern of what comes after a tag that has lost its bracket, if the value begins on the next line."""
_ATTRIBUTES = lazy_pattern(rf"(?P<attributes>(?:{_ATTRIBUTE}){{0,6}})[\sĠĊ]{{0,8}}(?P<empty>/?)>")
_PLAIN = "[^<>=\\n\"'“”‘’]{1,200}"
_PLAIN_ATTRIBUTE = (
    rf"[\sĠĊ]{{0,8}}[A-Za-z_][\w:-]{{0,40}}\s{{0,8}}=\s{{0,8}}(?:\"{_PLAIN}\"|'{_PLAIN}'|[“”‘’]{_PLAIN}[“”‘’])"
)
"""The pattern of an attribute whose value is in complete quotes and has no `<`, `>`, `=`, quotes or line breaks.

It is used for tags that have lost their bracket: such a value cannot run on into the text after the attribute.
"""
# `<parameter name="city"` and `<invoke name="f"` without their bracket, followed by a tag or by the value
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
# `<parameter=command=create</parameter>`: Qwen3-Coder behind OpenHands
_TWICE = lazy_pattern(rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?P<bare>{_NAME}{{1,128}})=")
_WORD = lazy_pattern(rf"\s{{1,8}}(?P<bare>{_NAME}{{1,128}}?)[\sĠĊ]{{0,8}}>")  # `<function bash>`
# `<parameter=start date>`, where a tool has such a parameter
_SPACED = lazy_pattern(
    rf"[\sĠĊ]{{0,8}}=[\sĠĊ]{{0,8}}(?P<bare>{_NAME}{{1,128}}+(?:[ \t]{{1,4}}+{_NAME}{{1,128}}+){{1,16}}+)\s{{0,8}}>"
)
_CLOSING_REST = lazy_pattern(r"[^<>]{0,64}>|[ \t]{0,4}(?=\s{0,8}<)")
"""Matches what follows the name in a closing tag; the bracket may be missing if another tag follows."""
_QUOTED = lazy_pattern(r'"[^"]*(?:"|\Z)')
_UNFINISHED = lazy_pattern(
    r"<\s{0,8}/?\s{0,8}(?:[|｜]{1,4}\s{0,4}(?:D(?:S(?:M?)?)?|G(?:C(?:M?)?)?)?\Z"
    rf"|(?:{DSML})?(?P<word>[A-Za-z_][\w.:-]*)?(?P<after>[\s\S]?))"
)
_PAIR = lazy_pattern(r"([A-Za-z_][\w:-]*)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|[“”‘’]([^“”‘’]*)[“”‘’]|([^\s<>\"'“”‘’=/]+))")


class Tag(NamedTuple):
    """A tag: its text, its kind, its name and its attributes.

    `kind` "noise": a token around calls that carries no meaning; "end": an end-of-turn token; "cut": the end of the
    text, which may be an unfinished tag.
    """

    raw: str
    kind: TagKind
    close: bool = False
    name: str | None = None
    """The name of the tool or parameter, as written in the tag; for the kind "element", the tag's own name."""
    empty: bool = False
    """Whether the tag is self-closing, as `<tag/>` is."""
    attributes: dict[str, str] = {}  # noqa: RUF012  never changed

    @property
    def role(self) -> str:
        """The kind of the tag, followed by a slash if it is a closing tag."""
        return f"{self.kind}/" if self.close else self.kind


@dataclass(frozen=True, eq=False)
class TagNames:
    """Holds the names of a format's tags.

    `spaces`: the namespaces that may precede a name. `marked_wrappers`: names of wrappers that are recognized only
    after a namespace or DeepSeek's bars, because the names alone are too common. `name_attribute` and `key_attribute`:
    the attributes that name a tool and a parameter.
    """

    wrappers: tuple[str, ...]
    calls: tuple[str, ...]
    params: tuple[str, ...]
    spaces: tuple[str, ...] = ()
    marked_wrappers: tuple[str, ...] = ()
    dsml: bool = False
    """Whether DeepSeek's bars, such as those in `<｜DSML｜invoke`, may precede a name."""
    name_attribute: str = "name"
    key_attribute: str = "name"
    naming_element: str = ""
    """The element in a call that names its tool."""
    naming_elements: frozenset[str] = NAMING_ELEMENTS
    """Elements in a call that are not parameters: they hold the tool's name, or enclose the parameters."""
    closer_start: str = "</"
    """The text with which an unfinished closing tag begins."""
    tag_limit: int = TAG_LIMIT
    """The maximum length of a tag."""
    tokens: Mapping[str, tuple[TagKind, bool]] = field(default_factory=dict[str, tuple[TagKind, bool]])
    """The tokens without a name, each with its kind and whether it is a closing tag."""
    words: tuple[str, ...] = field(init=False)
    marks: tuple[str, ...] = field(init=False)
    lost_opening_tag: re.Pattern[str] = field(init=False)
    """Matches a call's opening tag that has lost its first bracket."""
    begun_tokens: frozenset[str] = field(init=False)
    """All proper prefixes of the `tokens`. They show whether the end of the text may be an incomplete token."""
    _start: re.Pattern[str] = field(init=False)
    closer_and_tag: re.Pattern[str] = field(init=False)
    """Matches a parameter's closing tag and the tag after it, which may be damaged."""
    _token: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        any_wrapper, any_call, any_param = map(_any_name, (self.wrappers, self.calls, self.params))
        space = "|".join((*map(re.escape, self.spaces), *([DSML] if self.dsml else [])))
        # MiniCPM5's tokenizer loses the space before `name` (vLLM 0.32).
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
        object.__setattr__(self, "begun_tokens", beginnings(self.tokens))
        object.__setattr__(self, "_token", lazy_pattern(_any_name(self.tokens)))
        object.__setattr__(self, "_start", lazy_pattern(start))
        object.__setattr__(self, "closer_and_tag", lazy_pattern(closer_and_tag))

    def read_tag(self, text: str, at: int, spaced_keys: Collection[str] = ()) -> Tag | None:
        """Read the tag of a wrapper, a call or a parameter at `at`; return None if there is none.

        `spaced_keys`: the names of parameters that contain white space.
        """
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
        """Read a token without a name at `at`; return None if there is none."""
        match = self._token.match(text, at)
        return Tag(match[0], *self.tokens[match[0]]) if match is not None else None

    def may_become_tag(self, tail: str, elements: Collection[str] | None) -> bool:
        """Return whether more text may turn `tail` into a tag.

        `elements`: the names of elements that are read as tags, besides the format's own tags; None for all elements.
        """
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
        """Return whether a text that was not read as a tag begins like the tag of a call or a parameter."""
        lead = self._start.match(strip_blank(text))
        return lead is not None and lead["wrap"] is None

    def find_damaged_tag(self, text: str) -> tuple[bool, int]:
        """Search a text for a parameter's closing tag with a damaged opening tag directly after it.

        Return whether such a tag was found, and the offset from which to search again when more text has come.
        """
        at = 0
        for match in self.closer_and_tag.finditer(text):
            if self.read_tag(text, match.start("tag")) is None:
                return True, match.end()
            at = match.end()
        return False, max(at, len(text) - CLOSER_AND_TAG_LIMIT)


def is_blank(text: str) -> bool:
    """Return whether a text is only white space, or letters that tokenizers write for white space, such as `Ġ`."""
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
    """Return whether every angle bracket in the text is inside quotes; the last quote may still be open."""
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
        "dots_function_call",  # dots
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
"""The names of tags that most model families write. They are kept together, because models mix them."""


# A tokenizer whose tags are the matches of one pattern; everything between is text.


_WINDOW = 2048
"""How many characters are searched for a tag in one step. The limit avoids copies of a long text after a short call."""


@dataclass(frozen=True, slots=True)
class PatternTokenizer:
    """Splits text at the matches of a pattern."""

    pattern: re.Pattern[str]
    """Matches any whole tag."""
    unfinished: re.Pattern[str]
    r"""Matches an unfinished tag at the end of the text (`\Z`)."""
    longest: int
    """The length of the longest tag, which must be less than `_WINDOW`."""
    make_tag: Callable[[re.Match[str]], Tag]

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`: a tag, or the text up to the next tag; None if more text is needed."""
        match = self.pattern.search(text, at, at + _WINDOW)
        if match is not None:
            return self.make_tag(match) if match.start() == at else text[at : match.start()]
        if len(text) - at > _WINDOW:
            return text[at : at + _WINDOW - self.longest]
        cut = self.unfinished.search(text, max(at, len(text) - self.longest))
        if cut is None or cut.start() > at:
            return text[at:] if cut is None else text[at : cut.start()]
        return Tag(cut[0], "cut") if final else None


# The tags of `call(name) / parameter(key) value / end` markup, found in text that comes in pieces.
#
# `TagNames` reads one tag; here the text is split at the tags. A tag has at most `TagNames.tag_limit` characters, so no
# character is looked at more than that many times.


_OPENING, _CLOSING_DATA = "<![CDATA[", "]]>"
_ELEMENT = lazy_pattern(r"<(/?)\s{0,4}([A-Za-z_][\w.:-]{0,63})\s{0,4}(/?)>")


class TagTokenizer:
    """Splits text into tags and the text between them. Examines a character at most `TagNames.tag_limit` times."""

    def __init__(self, names: TagNames = SHARED_NAMES) -> None:
        self._names = names
        self._markers = reply_markers()
        self.elements: Collection[str] | None = ()
        """The names of elements that are read as tags, besides the format's own tags; None for all elements."""
        self.spaced_keys: Collection[str] = ()
        """The names of parameters that contain white space."""
        self.splits_cdata = False
        """Whether CDATA sections are split into tokens."""
        self._in_cdata = False

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`: a tag, or the text up to the next tag; None if more text is needed."""
        if self._in_cdata:
            return self._cdata_content(text, at, final=final)
        if self.splits_cdata and text.startswith(_OPENING[: len(text) - at], at):
            return self._cdata_start(text, at, final=final)
        if text[at] != "<":
            end = text.find("<", at)
            return text[at:] if end < 0 else text[at:end]
        tag = self._names.read_tag(text, at, self.spaced_keys) or self._element(text, at)
        if tag is not None:
            return tag
        if len(text) - at <= self._names.tag_limit and self._unfinished(text[at:]):
            return Tag(text[at:], "cut") if final else None
        end = text.find("<", at + 1)
        return text[at:] if end < 0 else text[at:end]

    def _cdata_start(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        if len(text) - at < len(_OPENING):
            return text[at:] if final else None
        self._in_cdata = True
        return Tag(_OPENING, "cdata")

    def _cdata_content(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the next token in a CDATA section: a piece of the content, or the end of the section."""
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
        token = self._names.read_token(text, at)
        if token is not None:
            return token
        match = _ELEMENT.match(text, at)
        if match is None or (self.elements is not None and match[2] not in self.elements):
            return None
        return Tag(match[0], "element", bool(match[1]), match[2], bool(match[3]))

    def _unfinished(self, tail: str) -> bool:
        """Return whether more text may turn `tail` into a tag."""
        begun = tail in self._markers.begun_turn_ends or tail in self._names.begun_tokens
        return begun or self._names.may_become_tag(tail, self.elements)


# The text of a candidate as tokens: each is a tag, or text between two tags.
#
# The text arrives in pieces, and a token is read as soon as it is complete. All tokens are kept, so that what turns out
# not to be a call can be returned as text unchanged, and a position is an index into the tokens. When a state looks
# ahead (`after`), tokens after the current one are read. Each token is read only once, so that all of this is O(n).


class Tokenizer(Protocol):
    """Splits text into tokens."""

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`; None if more text is needed. `final`: whether the text is complete."""
        ...


def raw_text(token: Tag | str) -> str:
    """Return the text of a token."""
    return token if isinstance(token, str) else token.raw


class TokenBuffer:
    """Holds the tokens of a text, the index of the current token, and the text that is not yet split into tokens."""

    def __init__(self, tokenizer: Tokenizer, text: str = "", blank: Callable[[str], bool] = is_blank) -> None:
        self.tokens: list[Tag | str] = []
        self.index = 0
        self._tokenizer = tokenizer
        self._is_blank = blank
        self._text = text
        self._at = 0
        """The offset in `_text` of the first character that is not yet split into tokens."""
        self.final = False
        """Whether the text is complete, so that no more text will come."""
        self._blank_to: dict[int, int] = {}
        """Maps the index of a token to the index after the white-space tokens that are known to follow that token."""

    # --- text in and out -----------------------------------------------------------------------------------------

    def add(self, piece: str, start: int) -> None:
        """Add `piece[start:]` to the text."""
        if self._at == len(self._text):
            self._text, self._at = piece, start
        else:
            self._text, self._at = self.rest + piece[start:], 0

    @property
    def rest(self) -> str:
        """The text that is not yet split into tokens."""
        return self._text[self._at :]

    @property
    def rest_size(self) -> int:
        """The length of the text that is not yet split into tokens."""
        return len(self._text) - self._at

    def text(self, start: int, end: int | None = None) -> str:
        """Return the text of the tokens in `[start, end)`."""
        return "".join(map(raw_text, self.tokens[start:end]))

    def put_back(self, count: int) -> None:
        """Put back the last `count` characters of the current token and all text after it, to be read again."""
        raw = raw_text(self.tokens[self.index])
        again = raw[len(raw) - count :] + self.text(self.index + 1)
        self.tokens[self.index :] = [raw[: len(raw) - count]]
        self._blank_to.clear()
        if len(again) <= self._at:
            self._at -= len(again)
        else:
            self.restore(again)

    def restore(self, text: str) -> None:
        """Put text before the text that is not yet split into tokens."""
        self._text, self._at = text + self.rest, 0

    def feed_to(self, reader: Candidate) -> bool:
        """Feed the text that is not yet split into tokens to another reader.

        Return whether that reader now knows whether the text is a call.
        """
        if not self.rest_size:
            return False
        end = reader.feed(self._text, self._at)
        self._at = len(self._text) if end is None else end
        if end is None:
            return False
        if len(reader.unread) <= end:
            self._at -= len(reader.unread)
        else:
            self.restore(reader.unread)
        return True

    # --- tokens ------------------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Read one more token; return whether a complete token was available."""
        if self._at >= len(self._text):
            return False
        token = self._tokenizer.next(self._text, self._at, final=self.final)
        if token is None:
            return False
        self._at += len(token if isinstance(token, str) else token.raw)
        self.tokens.append(token)
        return True

    def advance(self) -> None:
        """Go to the next token."""
        self.index += 1

    def after(self, index: int) -> int | NeedMore | None:
        """Return the index of the first token after `index` that is not white space.

        Return None if the text ends before such a token, and `NEED_MORE` if the token has not arrived yet.
        """
        at = self._blank_to.get(index, index + 1)
        while at < len(self.tokens) or self.read():
            token = self.tokens[at]
            if not (isinstance(token, str) and self._is_blank(token)):
                return at
            at += 1
            self._blank_to[index] = at
        return None if self.final else NEED_MORE
