"""Recognize and parse the headers of Harmony messages, and define the items that a parsed message consists of.

    role [":" name] [" to=" recipient] [<|channel|> channel [" to=" recipient]] [[<|constrain|>] type]

Models drop tokens, and reorder, repeat, join or omit the parts of a header. So a header is recognized by its known
parts (`header_end`). Each word of a header is classified by what it is, not by its position (`parse_header`). Each
deviation is named in `repairs`. In text of an unknown format, a whole header shows that the text is Harmony, but the
mention of a token does not (`harmony_header_begins`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from promptools.errors import clip
from promptools.harmony.tokens import CHANNELS, HarmonyToken, Piece, Role
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern

# Recognition of a header at the beginning of a text, by its known parts rather than by tokens alone.
#
# Models drop `<|message|>`, `<|start|>` or other tokens. A header is then the longest prefix that consists of known
# parts: tokens, `assistant`, channels, content types, and `to=` with a recipient. The header ends at a bracket, or at
# other text.


MAX_HEADER = 256
"""Maximum number of characters of a header. A longer text is not a header, or is a header without `<|message|>`."""
ASSISTANT = "assistant"
HEADER_WORDS = (ASSISTANT, *CHANNELS, "json", "code")
"""The fixed words of headers."""
STRAY_PUNCTUATION = ".,:;!?"
"""Punctuation that models leave between two messages."""
HEADER_PARTS = lazy_pattern(rf"(?:<\|(?:start|channel|constrain)\|>|\s+|{'|'.join(HEADER_WORDS)}|to=\s?[^\s<{{\[]+)*")
"""Matches the known parts of a header: tokens, white space, `assistant`, channels, content types, `to=NAME`."""
HEADER_DEBRIS = lazy_pattern(rf"(?:[\s{STRAY_PUNCTUATION}]|assistant|analysis|commentary|final|json)*")
"""Matches what remains of a header that the model did not finish, such as `assistant` or `final.`."""

_TOKENS = ("<|channel|>", "<|constrain|>", "<|start|>")
_ADDRESS = lazy_pattern(r"to=\s?[^\s<{\[]")
_SPEAKER = lazy_pattern(f"(?:{'|'.join(ASSISTANT[:size] for size in range(len(ASSISTANT), 0, -1))})\\Z")
"""Matches `assistant`, or its first letters, at the end of a text."""
_OPENING_BRACKET = lazy_pattern(r"[{\[]")
_TAGGED = lazy_pattern(r"(?<!\|)>[{\[]")
"""Matches a bracket right after a tag, as in `<json>{`.

Such a bracket does not begin the content, because more of the header follows it.
"""
_TO = lazy_pattern(r"to=\s?[^\s<{\[]*")


def has_routing(raw: str) -> bool:
    """Return whether a header names a channel or a recipient, not only a role."""
    return "to=" in raw or any(channel in raw for channel in CHANNELS)


def header_end(raw: str) -> int | None:
    """Return the offset of the bracket, `{` or `[`, that follows a header at the beginning of `raw`.

    Before the bracket, only known parts of a header are accepted: tokens, `assistant`, channels, content types, and
    `to=` with a recipient. Return `len(raw)` if the header may continue after `raw`, and None if other text follows.
    """
    at = len(raw) - len(raw.lstrip(STRAY_PUNCTUATION))
    while True:
        rest = raw[at:].lstrip()
        at = len(raw) - len(rest)
        if not rest or rest[0] in "{[":
            return at
        part = next((part for part in (*_TOKENS, *HEADER_WORDS) if rest.startswith(part)), None)
        address = _TO.match(rest)
        if part is not None:
            at += len(part)
        elif address is not None:
            at += address.end()
        else:
            return len(raw) if may_continue(rest) else None


def may_continue(rest: str) -> bool:
    """Return whether `rest` is empty, or the first letters of a header's word, such as `comm` of `commentary`."""
    return any(part.startswith(rest) for part in (*HEADER_WORDS, "to= "))


def may_be_header(raw: str) -> bool:
    """Return whether the whole of `raw` may be the beginning of a header, so that more text must be awaited."""
    return len(raw) <= MAX_HEADER and header_end(raw) == len(raw)


def addressed_header_end(raw: str) -> int | None:
    """Return where a header with a recipient but no `<|message|>` ends; None if `raw` does not begin with one."""
    end = header_end(raw)
    return end if end is not None and end <= MAX_HEADER and _ADDRESS.search(raw[:end]) else None


def opening_bracket(raw: str, start: int) -> int:
    """Return the offset of the bracket that begins the content after a header, searched from `start` on; -1 if none."""
    bracket = _OPENING_BRACKET.search(raw, start)
    if bracket is None or _TAGGED.search(raw, 0, bracket.end()) is not None:
        return -1
    return bracket.start()


def words_start(header: str, known: IsTool | None) -> int:
    """Return where the content begins in `header`, a header without `<|message|>`; `len(header)` if it has no content.

    gpt-oss sometimes leaves out `<|message|>`, as in `<|channel|>final Here is the JSON: {"city": "Oslo"}`. The words
    after `final` then count as content if most of them are not names of tools. In a header with a recipient, no words
    are content.
    """
    parts = HEADER_PARTS.match(header)
    end = parts.end() if parts is not None else 0
    named = has_routing(header[:end]) and "to=" not in header
    if not named or not header[end - 1].isspace() or header[:end].rstrip().endswith("<|constrain|>"):
        return len(header)
    words = [word.strip(_EDGE) for word in header[end:].split() if word not in HEADER_WORDS]
    tools = [word for word in words if _TOOL.match(word) or (known is not None and known(word))]
    return end if len(words) - len(tools) > len(tools) else len(header)


def speaker_start(text: str) -> int:
    """Return the offset of `assistant`, or of its first letters, at the end of `text`; `len(text)` if there is none.

    This word may begin a header.
    """
    speaker = _SPEAKER.search(text, max(0, len(text) - len(ASSISTANT)))
    return speaker.start() if speaker is not None else len(text)


# Parsing of a header: role, channel, recipient and content type, in any form in which models write them.


IsTool: TypeAlias = Callable[[str], bool]
"""A function that returns whether a recipient is an offered tool."""

ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant")
CONTENT_TYPES = ("json", "code")
"""Content types that are recognized without `<|constrain|>`."""
NO_CHANNEL = "no channel"
"""The repair that is recorded for an assistant's message with neither channel nor recipient."""
NON_TOOL_RECIPIENTS = frozenset(("", "all", "user", "assistant"))
"""Recipients that are not tools."""

_GLUED = lazy_pattern(r"(?:assistant)?(?:commentary|analysis|final|json|code)\Z")
_TOOL = lazy_pattern(r"[A-Za-z_]\w*(?:[.:/][\w-]+)+\Z")
"""Matches a tool's name with a namespace; no channel, role or English word has this form."""
_MARKUP = lazy_pattern(r"(?<=.)[<>{]")
"""Matches markup that models write after a name, and that no name contains."""
_EDGE = ":;,>?!'\"`\\"


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a message's header. Missing fields are empty."""

    role: Role = "assistant"
    name: str = ""
    """In a tool's result, the tool's name with its namespace; else the name after the role, as in `user:ann`."""
    channel: str = ""
    recipient: str = ""
    content_type: str = ""
    """The type of the content, such as `json`, `code` or `<|constrain|>json`."""
    repairs: tuple[str, ...] = ()

    @property
    def is_call(self) -> bool:
        """Whether the message is a call: the assistant sends it to a tool, on any channel."""
        return self.role == "assistant" and self.recipient not in NON_TOOL_RECIPIENTS


def parse_header(
    pieces: Iterable[Piece], role: Role | None = None, known: IsTool | None = None, *, glued: bool = False
) -> Header:
    """Parse the header before a message. `role` is used if the header names no role.

    `glued` says that no token separates the words, so that the recipient may run into the next word of the header. O(n)
    in characters.
    """
    pieces = list(pieces)
    reader = _HeaderReader(role, known, glued, spaced=is_spaced(pieces))
    for piece in pieces:
        reader.feed(piece)
    return reader.build()


def is_spaced(pieces: Sequence[Piece]) -> bool:
    """Return whether a space follows each token of a header except the last, as LLM-jp's tokenizer decodes tokens."""
    spaced = False
    for piece, after in pairwise(pieces):
        if isinstance(piece, HarmonyToken):
            if not isinstance(after, str) or after[:1] != " ":
                return False
            spaced = True
    return spaced


@dataclass(slots=True)
class _HeaderReader:
    default_role: Role | None
    known: IsTool | None
    glued: bool
    spaced: bool
    """Whether a space follows each token. If so, these spaces are not recorded as deviations."""
    role: Role | None = None
    name: str = ""
    channels: list[str] = field(default_factory=list[str])
    content_types: list[str] = field(default_factory=list[str])
    recipients: list[str] = field(default_factory=list[str])
    """Recipients that follow `to=`."""
    unaddressed_tools: list[str] = field(default_factory=list[str])
    """Names of tools that do not follow `to=`."""
    repairs: list[str] = field(default_factory=list[str])
    after_token: str = "start"
    """The name of the last token before the current word."""
    is_first_word: bool = True
    """Whether the current word is the first one after `after_token`."""
    started: bool = False
    """Whether the header has its `<|start|>`."""
    unknown_author: str = ""
    """The first word after `<|start|>`, if it is not a known role."""
    expects_recipient: bool = False
    """Whether white space follows `to=`. If so, the next word is the recipient."""

    def feed(self, piece: Piece) -> None:
        if isinstance(piece, HarmonyToken):
            self._token(piece.name)
            return
        if self.after_token == "constrain" and self.is_first_word and piece[:1].isspace() and not self.spaced:
            self.repairs.append("a space after <|constrain|>")
        for word in piece.split():
            self._word(word)

    def build(self) -> Header:
        if self.unknown_author and "assistant" in self.recipients:  # only a result is sent to the assistant
            self.role, self.name = "tool", self.unknown_author
        elif self.unknown_author:
            self.repairs.insert(0, f"unexpected {clip(self.unknown_author, 40)!r}")
        role = self.role or self.default_role
        if role is None or (self.started and self.role is None):
            self.repairs.append("nobody speaks")
        if role == "tool" and self.content_types and not self.recipients:
            # a result has a recipient and no content type; so this is a call, with the tool's name in the role's place
            self.repairs.append(f"the tool {clip(self.name, 60)!r} in the role's place")
            role, self.name, self.recipients = "assistant", "", [self.name]
        recipient = self._choose_recipient(role or "assistant")
        channel = self.channels[-1] if self.channels else ""
        if not (channel or recipient) and role == "assistant":
            self.repairs.append(NO_CHANNEL)
        if len(self.channels) > 1:
            self.repairs.append(f"{len(self.channels)} channels")
        if len(self.content_types) > 1:
            self.repairs.append(f"{len(self.content_types)} types")
        kind = self.content_types[-1] if self.content_types else ""
        return Header(role or "assistant", self.name, channel, recipient, kind, tuple(self.repairs))

    def _token(self, name: str) -> None:
        if name == self.after_token and self.is_first_word and name != "start":
            self.repairs.append(f"<|{name}|> twice")
        elif name == "start" and (self.started or not self.is_first_word or self.after_token != "start"):
            self.repairs.append("<|start|> twice")
        self.after_token, self.is_first_word = name, True
        self.started = self.started or name == "start"

    def _word(self, word: str) -> None:
        first, self.is_first_word = self.is_first_word, False
        if self.expects_recipient:
            self.expects_recipient = False
            self._add_recipient(word)
            return
        before, to, rest = word.partition("to=")
        if to and (not before or before.endswith((*ROLES, *CHANNELS))):
            if before:
                self._add_word(before, first=first)
                self.repairs.append(f"{before!r} glued to what follows")
            self._add_recipient(rest)
            return
        self._add_word(word, first=first)

    def _add_recipient(self, word: str) -> None:
        if not word:
            self.expects_recipient = True
            self.repairs.append("nothing directly after `to=`")
            return
        self.recipients.append(word)

    def _add_word(self, word: str, *, first: bool) -> None:
        if self.after_token == "constrain" and first:
            self._add_constraint(word)
        elif self.after_token == "start" and first and self._parse_author(word):
            return
        elif word in ROLES:
            self.repairs.append(f"the role {word!r} in another place")
            self.role = self.role or word
        elif self._add_channel(word, own=first and self.after_token == "channel"):
            return
        elif word.strip(_EDGE) in CONTENT_TYPES:
            self.content_types.append(word.strip(_EDGE))
        elif self._add_tool(word):
            return
        elif self.after_token == "start" and first and self.started:
            self.unknown_author = word
        else:
            self.repairs.append(f"unexpected {clip(word, 40)!r}")

    def _parse_author(self, word: str) -> bool:
        """Set the role if the first word of a header is a role or a tool's name; return whether it is.

        A role that is glued to other text, such as `assistantfinal`, counts too.
        """
        author, _, name = word.partition(":")
        if author in ROLES:
            self.role, self.name = author, name
            return True
        for role in ROLES:
            if word.startswith(role):
                self.role = role
                self.repairs.append(f"{role!r} glued to what follows")
                self._add_word(word.removeprefix(role), first=True)
                return True
        if (self.started or self.default_role is None) and (
            _TOOL.match(word) or (self.known is not None and self.known(word))
        ):
            self.role, self.name = "tool", word
            return True
        return False

    def _add_channel(self, word: str, *, own: bool) -> bool:
        """Set the channel if the word is a channel or begins with one; return whether it does.

        `own` says that the word follows `<|channel|>`.
        """
        for channel in CHANNELS:
            if word == channel:
                self.channels.append(channel)
                if not own:
                    self.repairs.append(f"the channel {channel!r} in another place")
                return True
            if word.startswith(channel) and not (self.known is not None and self.known(word)):
                rest = word.removeprefix(channel)
                if own or rest in CONTENT_TYPES or rest.strip(_EDGE) == "":
                    self.channels.append(channel)
                    self.repairs.append(f"{clip(word, 40)!r} for {channel!r}")
                    if rest in CONTENT_TYPES:
                        self.content_types.append(rest)
                    return True
        return False

    def _add_constraint(self, word: str) -> None:
        if self._add_tool(word):
            return
        if word.strip(_EDGE) in CONTENT_TYPES:
            self.content_types.append(f"<|constrain|>{word.strip(_EDGE)}")
        elif not self._add_channel(word, own=False):
            self.content_types.append(f"<|constrain|>{word}")

    def _add_tool(self, word: str) -> bool:
        """Record a word without `to=` if it is a tool's name; return whether it is."""
        name = word.strip(_EDGE)
        if not (_TOOL.match(name) or (self.known is not None and self.known(name))):
            return False
        self.unaddressed_tools.append(name)
        return True

    def _choose_recipient(self, role: Role) -> str:
        """Return the recipient: names after `to=` take precedence over others, and offered tools over unknown ones."""
        if role != "assistant":
            return self.recipients[-1].strip(_EDGE) if self.recipients else ""
        addressed = [
            cleaned for name in self.recipients if (cleaned := self._clean_name(name)) not in NON_TOOL_RECIPIENTS
        ]
        others = [name for name in self.recipients if name in NON_TOOL_RECIPIENTS - {"all", ""}]
        if others:
            self.repairs.append(f"`to={others[0]}`")
        if len(addressed) > 1:
            self.repairs.append(f"{len(addressed)} recipients")
        if not addressed and self.unaddressed_tools:
            self.repairs.append(f"the recipient {clip(self.unaddressed_tools[-1], 60)!r} without `to=`")
        candidates = addressed or self.unaddressed_tools
        offered = [name for name in candidates if self.known is not None and self.known(name)]
        return (offered or candidates or [""])[-1]

    def _clean_name(self, word: str) -> str:
        name = _MARKUP.split(word)[0].strip(_EDGE)
        if self.glued and self.known is None:
            name = _GLUED.sub("", name) or name
        if name != word:
            self.repairs.append(f"the recipient {clip(word, 60)!r}")
        return name


# The items into which Harmony text is parsed. A message is `HarmonyStart`, any number of `ContentChunk`, `HarmonyEnd`.
#
# An `Aside` belongs to no message. The raw text of all items tiles the parsed text.


class HarmonyStart(NamedTuple):
    """The beginning of a message: its parsed header, and the raw text of the header."""

    header: Header
    raw: str


class ContentChunk(NamedTuple):
    """A chunk of the message's content, verbatim."""

    raw: str


class HarmonyEnd(NamedTuple):
    """The end of a message. `reason` is the name of the token that ended the message, or one of these words.

    `start`, `channel`: the next message began with this token. `cut`: the text ended inside the content. `header`: the
    message ended before its `<|message|>`.
    """

    reason: Literal["end", "call", "return", "endoftext", "start", "channel", "cut", "header"]
    raw: str


class Aside(NamedTuple):
    """Text outside of messages.

    The kinds: `space` is white space. `token` is a control token, or a header, that neither begins nor ends a message.
    `debris` is what is left of an unfinished header, or text after the end of the reply. `words` is any other text.
    """

    kind: Literal["space", "token", "debris", "words"]
    raw: str


Item: TypeAlias = "HarmonyStart | ContentChunk | HarmonyEnd | Aside"


# Detection of Harmony in text of an unknown format: a whole header is a sign, the mention of a token is not.


_HEADER = lazy_pattern(r"(?:<\|(?:start|channel|constrain)\|>[^<{\n]{0,120}(?:\n\s{0,3})?)+<\|message\|>")
"""Matches the tokens of a header, with a few words after each token, up to `<|message|>`."""
_NAMED = lazy_pattern(
    r"<\|(?:start|channel|constrain)\|>"
    r"(?:system|developer|user|assistant|functions\.|analysis|commentary|final|json|code|to=|<\|message\|>)"
)
"""Matches a token and the word that it introduces in a header, as in `<|channel|>final`.

In a sentence about tokens, other text follows the token.
"""
_SPACED = lazy_pattern(
    r"(?:<\|start\|> (?:assistant(?: to=[^\s<]{1,128})?|functions\.[^\s<]{1,128}))?"
    r"<\|channel\|> (?:analysis|commentary|final)"
    r"(?: to=[^\s<]{1,128})?(?: ?<\|constrain\|> \w{1,16}| (?:json|code))?<\|message\|>"
)
"""Matches a whole header with a space after each token, as LLM-jp's tokenizer decodes headers.

A sentence about tokens has spaces before the tokens, too.
"""
_HALF_TOKEN = lazy_pattern(r"<(?:\|\w{0,9}\|?)?\Z")
_UNFINISHED = lazy_pattern(
    rf"(?:<\|(?:start|channel|constrain)\|>[^<{{\n]{{0,120}}(?:\n\s{{0,3}})?)+(?:{_HALF_TOKEN.pattern}|\Z)|{_HALF_TOKEN.pattern}"
)
_SPEAKS = lazy_pattern(r"<\|start\|>\s?(?:system|developer|user|assistant|functions\.)")
_ASSISTANT_CHANNEL = "assistant<|channel|>"
_ENDED = lazy_pattern(r"<\|end\|>\s{0,4}")
_ENDS = lazy_pattern(r"<\|(?:end|return|call)\|>")


def harmony_header_begins(text: str, at: int, *, first: bool, final: bool) -> bool | NeedMore:
    """Return whether a header begins with the token at `text[at]`; `NEED_MORE` if this is not clear yet.

    `first` says that no text precedes the token, `final` that no more text will come.
    """
    ended = _ENDED.match(text, at)
    if ended is not None:  # `<|end|>` ends a message that the prompt began
        if ended.end() == len(text):
            return False if final else NEED_MORE
        at = ended.end()
    window = text[at : at + MAX_HEADER]
    more = not final and len(text) - at <= MAX_HEADER
    header = _HEADER.match(window)
    if header is not None:
        junk = (first or ended is not None) and not header[0][header[0].index(">") + 1].isspace()
        return junk or _NAMED.search(header[0]) is not None or _SPACED.match(window) is not None
    if window.startswith("<|message|>"):
        return first
    if ended is not None and not window.startswith("<"):
        return NEED_MORE if more and _ASSISTANT_CHANNEL.startswith(window) else window.startswith(_ASSISTANT_CHANNEL)
    if more and _UNFINISHED.match(window):
        return NEED_MORE
    parts = HEADER_PARTS.match(window)
    end = parts.end() if parts is not None else 0
    head, rest = window[:end], window[end:]
    if more and (may_continue(rest) or _HALF_TOKEN.match(rest)):
        return NEED_MORE
    if not has_routing(head):
        return bool(_SPEAKS.match(window)) and rest.startswith("<|")
    if not rest:  # a header, and nothing else
        return True
    if rest[0] in "{[" or rest.startswith("<|message|>"):
        return "to=" in head or "<|channel|>" in head
    if more and not _ENDS.search(rest):
        return NEED_MORE
    return bool(_ENDS.search(rest))
