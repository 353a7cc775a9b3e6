"""The state machine of Harmony: pieces of text in, messages out, whatever is missing, doubled or in another place.

    between --<|start|>--> header --<|message|>--> content --<|end|>, <|call|>, <|return|>--> between

Strict, any other way raises. Lenient, each has a sensible reading, and a repair that names it. The raw text of all
items tiles what was fed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from promptools.errors import BadHeader, MissingSentinel, clip
from promptools.harmony.header import Header, Known, read_header
from promptools.harmony.render import CHANNELS, Role
from promptools.harmony.scan import ENDS, Piece, Token

BARE = "its control tokens were stripped"
LIMIT = 256
"""Characters of a header: what is longer has lost its `<|message|>`, or is none."""


class Begin(NamedTuple):
    """A message begins."""

    header: Header
    raw: str


class Words(NamedTuple):
    """A piece of the message's content, verbatim."""

    raw: str


class Finish(NamedTuple):
    """The message is over, by a token, by the next message (`start`, `channel`), or by the end of the text.

    `cut`: the text ended in its content; `header`: it ended before that.
    """

    by: Literal["end", "call", "return", "endoftext", "start", "channel", "cut", "header"]
    raw: str


class Aside(NamedTuple):
    """What is part of no message."""

    kind: Literal["space", "token", "debris", "words"]
    raw: str


Item: TypeAlias = "Begin | Words | Finish | Aside"

_BRACKET = re.compile(r"[{\[]")
HEADER_PARTS = re.compile(
    r"(?:<\|(?:start|channel|constrain)\|>|\s+|assistant|analysis|commentary|final|json|code|to=\s?[^\s<{\[]+)*"
)
"""The parts of a header that are known for such, from its beginning."""
_DEBRIS = re.compile(r"(?:\s|assistant|analysis|commentary|final|json)*")
_TO = re.compile(r"to=\s?[^\s<{\[]*")
_SPEAKER = "assistant"
_SPEAKS = re.compile(f"(?:{'|'.join(_SPEAKER[:size] for size in range(len(_SPEAKER), 0, -1))})\\Z")
"""The first word of a header, or its beginning, at the end of a text."""
_WORDS = (_SPEAKER, *CHANNELS, "json", "code")
_TOKENS = ("<|channel|>", "<|constrain|>", "<|start|>")


class Machine:
    """`role` speaks where no header says who: a completion begins inside a header of the assistant's.

    `known` tells whether a recipient is an offered tool (None: nobody knows which are).
    """

    def __init__(self, role: Role | None = None, *, strict: bool = False, known: Known | None = None) -> None:
        self._role = role
        self._strict = strict
        self._known = known
        self._state: Literal["between", "astray", "header", "content", "doubt"] = "between"
        self._pieces: list[Piece] = []
        """The header so far, or what may be one."""
        self._size = 0
        self._tail = ""
        """The end of the content that may be the first word of a header."""
        self._fresh = False
        """Nothing has been said in the message."""
        self._first = True
        """No message has begun."""
        self._repairs: list[str] = []
        self._returned = False
        """The turn was over: words that follow were said to nobody."""

    def take(self, pieces: Iterable[Piece]) -> Iterator[Item]:
        """Take pieces in their order. O(n) in characters. Strict: raises `MissingSentinel` and `BadHeader`."""
        for piece in pieces:
            if isinstance(piece, Token):
                yield from self._token(piece)
            else:
                yield from self._text(piece)

    def close(self) -> Iterator[Item]:
        """Say that the text is over."""
        match self._state:
            case "between" | "astray":
                yield from self._asides()
            case "header":
                yield from self._unfinished("header", "")
            case "content" | "doubt":
                yield from self._content_ends("cut", "")

    def says(self, text: str) -> bool:
        """Take text without control tokens, if all that it can be is content: of a long reply nearly every piece is."""
        if self._state != "content" or self._tail or not text:
            return False
        if not self._strict and _SPEAKS.search(text, max(0, len(text) - len(_SPEAKER))):
            return False
        self._fresh = False
        return True

    # --- text ----------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> Iterator[Item]:
        match self._state:
            case "content":
                yield from self._content(text)
            case "astray":
                yield from self._astray(text)
            case "header":
                self._add(text)
                yield from self._grown()
            case "between":
                self._add(text)
                yield from self._may_begin()
            case "doubt":
                self._add(text)
                yield from self._doubted()

    def _content(self, text: str) -> Iterator[Item]:
        said = self._hold(text)
        if said:
            self._fresh = False
            yield Words(said)

    def _astray(self, text: str) -> Iterator[Item]:
        """Pass words on that belong to no message; they may end with the first word of one."""
        said = self._hold(text)
        if said:
            yield Aside("debris" if self._returned else "words", said)

    def _hold(self, text: str) -> str:
        """Give what has come of words but for an end that may be the first word of a header."""
        text = self._tail + text
        found = None if self._strict else _SPEAKS.search(text, max(0, len(text) - len(_SPEAKER)))
        end = found.start() if found is not None else len(text)
        self._tail = text[end:]
        return text[:end]

    def _add(self, piece: Piece) -> None:
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, str) and isinstance(piece, str):
            self._pieces[-1] = last + piece
        else:
            self._pieces.append(piece)
        self._size += len(piece.raw if isinstance(piece, Token) else piece)

    def _raw(self) -> str:
        return "".join(each.raw if isinstance(each, Token) else each for each in self._pieces)

    def _may_begin(self) -> Iterator[Item]:
        """Decide whether words between two messages may be a header without its token."""
        raw = self._raw()
        if self._strict and self._role is None:
            if raw.strip():
                raise BadHeader(
                    f"text between two messages: {clip(raw.strip(), 60)!r}; a message begins with <|start|>"
                )
            return
        end = _plausible(raw)
        if end < 0 or self._size > LIMIT:
            yield from self._asides(astray=True)
        elif end < len(raw) and "to=" in raw[:end]:
            self._repairs.append("no <|message|>")
            yield from self._begins_at(raw, end)
        elif end < len(raw):
            yield from self._asides(astray=True)

    def _grown(self) -> Iterator[Item]:
        """Look whether the header has ended without its token."""
        if self._strict:
            return
        last = self._pieces[-1]
        assert isinstance(last, str)
        found = _BRACKET.search(last)
        raw = self._raw()
        if found is not None and ("<|channel|>" in raw or _names_much(raw)):
            self._repairs.append("no <|message|>")
            yield from self._begins_at(raw, len(raw) - len(last) + found.start())
        elif self._size > LIMIT:
            yield from self._unfinished("cut", "")

    def _begins_at(self, raw: str, at: int) -> Iterator[Item]:
        """Begin a message whose header ends at `raw[at]`, where no token stands."""
        rest = raw[at:]
        left = at
        kept: list[Piece] = []
        for piece in self._pieces:
            size = len(piece.raw if isinstance(piece, Token) else piece)
            if size > left:
                assert isinstance(piece, str)
                kept.append(piece[:left])
                break
            kept.append(piece)
            left -= size
        self._pieces = kept
        yield self._begin(glued=True)
        yield from self._content(rest)

    def _doubted(self) -> Iterator[Item]:
        """Decide whether a header begins inside content, where the end of the message is missing."""
        raw = self._raw()
        end = _plausible(raw)
        if end == len(raw) and self._size <= LIMIT:
            return
        if 0 <= end < len(raw) and "to=" in raw[:end]:
            yield Finish("channel", "")
            self._repairs += ["no <|end|>", "no <|message|>"]
            yield from self._begins_at(raw, end)
        else:
            yield from self._literal()

    def _literal(self) -> Iterator[Item]:
        """Take what looked like a header for content."""
        raw = self._raw()
        self._pieces, self._size, self._state = [], 0, "content"
        self._fresh = False
        yield Words(raw)

    # --- tokens --------------------------------------------------------------------------------------------------

    def _token(self, token: Token) -> Iterator[Item]:
        match self._state:
            case "between" | "astray":
                yield from self._token_between(token)
            case "header":
                yield from self._token_in_header(token)
            case "content":
                yield from self._token_in_content(token)
            case "doubt":
                yield from self._token_in_doubt(token)

    def _token_between(self, token: Token) -> Iterator[Item]:
        if token.name in ENDS:
            yield from self._asides()
            if self._strict:
                raise MissingSentinel(f"{_said(token)} where no message is open")
            self._first = False
            yield Aside("token", token.raw)
            return
        if token.name == "start":
            yield from self._asides()
        else:
            yield from self._words_before()
            if not (self._first and self._role):
                if self._strict:
                    raise MissingSentinel(f"{_said(token)} without the <|start|> of its message")
                self._repairs.append("no <|start|>")
        self._state = "header"
        yield from self._token_in_header(token)

    def _words_before(self) -> Iterator[Item]:
        """Keep the words before a header's first token that belong to it, and let the others go."""
        raw, self._tail = self._raw() + self._tail, ""
        words = raw.lstrip()
        keeps = _plausible(words) == len(words)
        self._pieces, self._size = [raw if not keeps else raw[: len(raw) - len(words)]], 0
        yield from self._asides()
        if keeps and words:
            self._add(words)

    def _token_in_header(self, token: Token) -> Iterator[Item]:
        if token.name == "message":
            self._add(token)
            yield self._begin()
        elif token.name in ENDS:
            yield from self._unfinished(token.name, token.raw)
        elif token.name == "start" and self._pieces and _names_much(self._raw()):
            yield from self._unfinished("start", "")
            self._state = "header"
            self._add(token)
        else:
            self._add(token)

    def _token_in_content(self, token: Token) -> Iterator[Item]:
        if token.name in ENDS:
            yield from self._content_ends(token.name, token.raw)
        elif token.name == "start":
            if self._strict:
                raise MissingSentinel("a message without its <|end|>: <|start|> stands in its content")
            yield from self._content_ends("start", "")
            if token.raw:
                self._repairs.append("no <|end|>")
            self._state = "header"
            self._add(token)
        elif token.name == "message" and self._fresh and not self._tail and not self._strict:
            yield Aside("token", token.raw)
        elif token.name == "channel" and not self._strict:
            tail, self._tail = self._tail, ""
            if tail not in {"", _SPEAKER}:
                yield Words(tail)
            elif tail:
                self._add(tail)
            self._state = "doubt"
            self._add(token)
        else:
            yield Words(self._tail + token.raw)
            self._tail, self._fresh = "", False

    def _token_in_doubt(self, token: Token) -> Iterator[Item]:
        raw = self._raw()
        if token.name == "message" and _names_much(raw):
            yield Finish("channel", "")
            self._repairs.append("no <|end|>")
            self._add(token)
            yield self._begin()
        elif token.name in {"channel", "constrain"} and self._size <= LIMIT and _names_much(raw):
            self._add(token)
        else:
            yield from self._literal()
            yield from self._token_in_content(token)

    # --- messages ------------------------------------------------------------------------------------------------

    def _begin(self, *, glued: bool = False) -> Begin:
        raw = self._raw()
        bare = any(isinstance(each, Token) and not each.raw for each in self._pieces)
        header = read_header(self._pieces, self._role, self._known, glued=glued or bare)
        if self._strict and header.repairs:
            raise BadHeader(f"the header {clip(raw, 120)!r}: {'; '.join(header.repairs)}")
        repairs = (BARE,) if bare else header.repairs  # the words stand where they stand because the tokens do not
        header = replace(header, repairs=(*self._repairs, *repairs))
        self._repairs = []
        self._pieces, self._size, self._tail = [], 0, ""
        self._state, self._fresh, self._first, self._returned = "content", True, False, False
        return Begin(header, raw)

    def _content_ends(self, by: str, raw: str) -> Iterator[Item]:
        if self._state == "doubt":
            yield from self._literal()
        if self._tail:
            yield Words(self._tail)
        self._tail, self._state = "", "between"
        self._returned = by in {"return", "endoftext"}
        if by == "cut" and self._strict and self._role is None:
            raise MissingSentinel("the text ends inside a message, before its <|end|>")
        yield Finish(by, raw)  # type: ignore[arg-type]  # the names of tokens

    def _unfinished(self, by: str, raw: str) -> Iterator[Item]:
        """End a header that has no `<|message|>`: what stands behind its known parts is the content."""
        said = self._raw()
        if self._strict:
            then = f"<|{by}|>" if by in ENDS or by == "start" else "the end of the text"
            raise MissingSentinel(f"a header without its <|message|>: {clip(said, 80)!r}, then {then}")
        found = HEADER_PARTS.match(said)
        end = found.end() if found is not None else 0
        if not _names_much(said[:end]):
            yield from self._nobody(said, end, astray=by == "cut")
            if raw:
                yield Aside("token", raw)
            return
        self._repairs.append("no <|message|>")
        if end < len(said):
            yield from self._begins_at(said, end)
        else:
            yield self._begin(glued=True)
            by = by if by == "cut" else "header"  # nothing was said in it
        if by != "cut":  # else it is long, and goes on
            yield from self._content_ends(by, raw)

    def _nobody(self, said: str, end: int, *, astray: bool) -> Iterator[Item]:
        """Let go of words behind a header that says nothing."""
        self._repairs = []
        if "<|start|>" in said[:end]:
            yield Aside("token", said[:end])
        else:
            end = 0
        self._pieces, self._size = [said[end:]], 0
        yield from self._asides(astray=astray)

    def _asides(self, *, astray: bool = False) -> Iterator[Item]:
        """Let go of what stands between messages."""
        raw = self._raw() + self._tail
        self._pieces, self._size, self._tail = [], 0, ""
        self._state = "astray" if astray else "between"
        words = raw.lstrip()
        space = raw[: len(raw) - len(words)]
        if space:
            yield Aside("space", space)
        if astray:
            yield from self._astray(words)
        elif words:
            debris = self._returned or (not self._first and _DEBRIS.fullmatch(words))
            yield Aside("debris" if debris else "words", words)


def _said(token: Token) -> str:
    return f"<|{token.name}|>"


def _names_much(raw: str) -> bool:
    """Tell whether a header says more than who speaks: a channel, or a recipient."""
    return "to=" in raw or any(channel in raw for channel in CHANNELS)


def _plausible(raw: str) -> int:
    """Give where a header ends that begins at the front of `raw`: its length while it may go on, -1 if it is none."""
    at = 0
    while True:
        rest = raw[at:].lstrip()
        at = len(raw) - len(rest)
        if not rest or rest[0] in "{[":
            return at
        known = next((each for each in (*_TOKENS, *_WORDS) if rest.startswith(each)), None)
        to = _TO.match(rest)
        if known is not None:
            at += len(known)
        elif to is not None:
            at += to.end()
        else:
            return len(raw) if any(each.startswith(rest) for each in (*_WORDS, "to=")) else -1
