"""The state machine of Harmony: pieces of text in, messages out, whatever is missing, doubled or misplaced.

    between --<|start|>--> header --<|message|>--> content --<|end|>, <|call|>, <|return|>--> between

In strict mode any other transition raises. In lenient mode each has a reading, and a repair that names it:

    between   text is held in `_pieces` while it may be a header without its first token; if it proves to be none,
              the state is `astray`: text that belongs to no message, until the next token
    header    parts are collected in `_pieces` until `<|message|>`; without that, the header ends before the bracket of
              the arguments, or after its known parts if it is cut off or too long (`LIMIT`)
    content   text is emitted as it comes; a suffix that may be `assistant` is held in `_tail`, since it would be the
              first word of a header without `<|start|>`. Tokens shown as code or in a string are text (`shown.py`)
    doubt     `<|channel|>` in content: either text, or a header where `<|end|>` and `<|start|>` are missing. What
              follows is held in `_pieces` until that is clear

A message is `Begin`, any number of `Words`, and `Finish`; `Aside` belongs to no message. Invariant: the raw text
of all items tiles what was fed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from promptools.errors import BadHeader, MissingSentinel, clip
from promptools.harmony.front import BRACKET, DEBRIS, LIMIT, PARTS, SPEAKER, address_ends, end_of_header, names_much
from promptools.harmony.header import Header, Known, read_header
from promptools.harmony.scan import ENDS, Piece, Token, raw_of
from promptools.harmony.shown import Shown
from promptools.harmony.tokens import Role

BARE = "its control tokens were stripped"


class Begin(NamedTuple):
    """The beginning of a message."""

    header: Header
    raw: str


class Words(NamedTuple):
    """A chunk of the message's content, verbatim."""

    raw: str


class Finish(NamedTuple):
    """The end of a message: by a token, by the next message (`start`, `channel`), or by the end of the text.

    `cut`: the text ended in its content; `header`: it ended before that.
    """

    by: Literal["end", "call", "return", "endoftext", "start", "channel", "cut", "header"]
    raw: str


class Aside(NamedTuple):
    """Text that belongs to no message."""

    kind: Literal["space", "token", "debris", "words"]
    raw: str


Item: TypeAlias = "Begin | Words | Finish | Aside"

_SPEAKS = re.compile(f"(?:{'|'.join(SPEAKER[:size] for size in range(len(SPEAKER), 0, -1))})\\Z")
"""The first word of a header, or its beginning, at the end of a text."""


_CHANNEL = "<|channel|>"
_TAGGED = re.compile(r"(?<!\|)>[{\[]")
"""A bracket right after a tag does not begin the content: more of the header follows."""


class Machine:
    """The states. `role` is that of headers without one: a completion begins inside a header of the assistant.

    `known` tells whether a recipient is an offered tool (None: the tools are unknown).
    """

    def __init__(self, role: Role | None = None, *, strict: bool = False, known: Known | None = None) -> None:
        self._role: Role | None = role
        self._strict = strict
        self._known = known
        self._at = 0
        """The offset of the current piece, in characters."""
        self._state: Literal["between", "astray", "header", "content", "doubt"] = (
            "header" if strict and role else "between"
        )
        self._pieces: list[Piece] = []
        """The header so far, or what may be one."""
        self._size = 0
        self._began = 0
        """The offset of these pieces."""
        self._tail = ""
        """The suffix of the content that may be the first word of a header."""
        self._fresh = False
        """The message has no content yet."""
        self._shown = Shown()
        self._first = True
        """No message has begun yet."""
        self._repairs: list[str] = []
        self._returned = False
        """The turn is over: text that follows is debris."""

    def take(self, pieces: Iterable[Piece]) -> Iterator[Item]:
        """Feed pieces, and yield items. O(n) in characters. Strict: raises `MissingSentinel` and `BadHeader`."""
        for piece in pieces:
            yield from self._token(piece) if isinstance(piece, Token) else self._text(piece)
            self._at += len(raw_of(piece))

    def close(self) -> Iterator[Item]:
        """End the text, and yield the remaining items."""
        match self._state:
            case "between" | "astray":
                yield from self._asides()
            case "header":
                yield from self._unfinished("header", "")
            case _:  # content, or doubt
                yield from self._content_ends("cut", "")

    def says(self, text: str) -> bool:
        """Feed text without control tokens if it can only be content, as most of a reply is; return whether it was."""
        if self._state != "content" or self._tail or not text:
            return False
        if not self._strict and _SPEAKS.search(text, max(0, len(text) - len(SPEAKER))):
            return False
        self._fresh = False
        self._shown.take(text)
        self._at += len(text)
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
                yield from self._between(text)
            case _:  # doubt
                self._add(text)
                yield from self._doubted()

    def _content(self, text: str) -> Iterator[Item]:
        content = self._hold(text)
        if content:
            yield self._says(content)

    def _says(self, raw: str) -> Words:
        self._fresh = False
        self._shown.take(raw)
        return Words(raw)

    def _astray(self, text: str) -> Iterator[Item]:
        """Emit text that belongs to no message, except a suffix that may be the first word of a header."""
        certain = self._hold(text)
        if certain:
            yield Aside("debris" if self._returned else "words", certain)

    def _hold(self, text: str) -> str:
        """Return the text so far, except a suffix that may be the first word of a header, which is held back."""
        text = self._tail + text
        speaker = None if self._strict else _SPEAKS.search(text, max(0, len(text) - len(SPEAKER)))
        end = speaker.start() if speaker is not None else len(text)
        self._tail = text[end:]
        return text[:end]

    def _add(self, piece: Piece) -> None:
        if not self._pieces:
            self._began = self._at
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, str) and isinstance(piece, str):
            self._pieces[-1] = last + piece
        else:
            self._pieces.append(piece)
        self._size += len(raw_of(piece))

    def _raw(self) -> str:
        return "".join(map(raw_of, self._pieces))

    def _between(self, text: str) -> Iterator[Item]:
        """Emit white space between two messages, and collect other text."""
        words = text if self._pieces else text.lstrip()
        space = text[: len(text) - len(words)]
        if space:
            yield Aside("space", space)
        if not words:
            return
        if self._strict:
            at = self._at + len(space)
            raise BadHeader(f"text outside of messages, at character {at}: a message begins with <|start|>")
        self._add(words)
        yield from self._may_begin()

    def _may_begin(self) -> Iterator[Item]:
        """Decide whether text between two messages may be a header without its first token."""
        raw = self._raw()
        end = address_ends(raw)
        if end is None:
            return
        if end < 0:
            yield from self._asides(astray=True)
        else:
            self._repairs.append("no <|message|>")
            yield from self._begins_at(raw, end)

    def _grown(self) -> Iterator[Item]:
        """End the header if it has lost its `<|message|>`: at a bracket, or at its limit."""
        if self._strict:
            if self._size > LIMIT:
                raise MissingSentinel(f"the header at character {self._began} has no <|message|> in {LIMIT} characters")
            return
        last = self._pieces[-1]
        assert isinstance(last, str)
        raw = self._raw()
        bracket = BRACKET.search(last) if _TAGGED.search(raw) is None else None
        at = len(raw) - len(last) + bracket.start() if bracket is not None else len(raw)
        if bracket is not None and at <= LIMIT and ("<|channel|>" in raw[:at] or names_much(raw[:at])):
            self._repairs.append("no <|message|>")
            yield from self._begins_at(raw, at)
        elif len(raw) > LIMIT:
            yield from self._unfinished("cut", "")

    def _begins_at(self, raw: str, at: int) -> Iterator[Item]:
        """Begin a message whose header ends at `raw[at]`, without a token."""
        kept: list[Piece] = []
        pieces = iter(self._pieces)
        left = at
        while left:
            piece = next(pieces)
            text = raw_of(piece)
            kept.append(piece if len(text) <= left else text[:left])
            left -= min(left, len(text))
        self._pieces = kept
        yield self._begin(glued=True)
        yield from self._content(raw[at:])

    def _doubted(self) -> Iterator[Item]:
        """Decide whether a header begins inside content, the end of the message being lost."""
        raw = self._raw()
        end = address_ends(raw)
        if end is None:
            return
        if end < 0:
            yield from self._literal()
        else:
            yield Finish("channel", "")
            self._repairs += ["no <|end|>", "no <|message|>"]
            yield from self._begins_at(raw, end)

    def _literal(self) -> Iterator[Item]:
        """Emit what looked like a header as content."""
        raw = self._raw()
        self._pieces, self._size, self._state = [], 0, "content"
        yield self._says(raw)

    # --- tokens --------------------------------------------------------------------------------------------------

    def _token(self, token: Token) -> Iterator[Item]:
        match self._state:
            case "between" | "astray":
                yield from self._token_between(token)
            case "header":
                yield from self._token_in_header(token)
            case "content":
                yield from self._token_in_content(token)
            case _:  # doubt
                yield from self._token_in_doubt(token)

    def _token_between(self, token: Token) -> Iterator[Item]:
        if token.name in ENDS:
            yield from self._asides()
            if self._strict:
                raise MissingSentinel(f"{_said(token)} at character {self._at}, where no message is open")
            self._first = False
            yield Aside("token", token.raw)
            return
        if token.name == "start":
            yield from self._asides()
        else:
            if self._strict:
                raise MissingSentinel(f"{_said(token)} at character {self._at}, without the <|start|> of its message")
            yield from self._words_before()
            if not (self._first and self._role):
                self._repairs.append("no <|start|>")
        self._state = "header"
        yield from self._token_in_header(token)

    def _words_before(self) -> Iterator[Item]:
        """Keep text before a header's first token if it belongs to the header, else emit it."""
        words, self._tail = self._raw() + self._tail, ""
        keeps = end_of_header(words) == len(words)
        self._pieces = [] if keeps else [words]
        yield from self._asides()
        if keeps and words:
            self._add(words)

    def _token_in_header(self, token: Token) -> Iterator[Item]:
        if token.name == "message":
            self._add(token)
            yield self._begin()
        elif token.name in ENDS:
            yield from self._unfinished(token.name, token.raw)
        elif token.name == "start" and self._pieces and self._size <= LIMIT and names_much(self._raw()):
            yield from self._unfinished("start", "")
            self._state = "header"
            self._add(token)
        else:
            self._add(token)

    def _token_in_content(self, token: Token) -> Iterator[Item]:
        if token.raw and not self._strict and self._shown.shows(token.name):
            tail, self._tail = self._tail, ""
            yield self._says(tail + token.raw)
        elif token.name in ENDS:
            yield from self._content_ends(token.name, token.raw)
        elif token.name == "start":
            if self._strict:
                raise MissingSentinel(f"<|start|> at character {self._at}, inside a message that has no <|end|>")
            yield from self._content_ends("start", "")
            if token.raw:
                self._repairs.append("no <|end|>")
            self._state = "header"
            self._add(token)
        elif token.name == "message" and self._fresh and not self._tail and not self._strict:
            yield Aside("token", token.raw)
        elif token.name == "channel" and not self._strict:
            tail, self._tail = self._tail, ""
            if tail not in {"", SPEAKER}:
                yield self._says(tail)
            elif tail:
                self._add(tail)
            self._state = "doubt"
            self._add(token)
        else:
            tail, self._tail = self._tail, ""
            yield self._says(tail + token.raw)

    def _token_in_doubt(self, token: Token) -> Iterator[Item]:
        raw = self._raw()
        if token.name == "message" and names_much(raw):
            yield Finish("channel", "")
            self._repairs.append("no <|end|>")
            self._add(token)
            yield self._begin()
        elif token.name in {"channel", "constrain"} and self._size <= LIMIT and names_much(raw):
            self._add(token)
        else:
            yield from self._literal()
            yield from self._token_in_content(token)

    # --- messages ------------------------------------------------------------------------------------------------

    def _begin(self, *, glued: bool = False) -> Begin:
        raw = self._raw()
        bare = any(isinstance(piece, Token) and not piece.raw for piece in self._pieces)
        header = read_header(self._pieces, self._role, self._known, glued=glued or bare)
        if self._strict and header.repairs:
            raise BadHeader(f"the header {clip(raw, 120)!r} at character {self._began}: {'; '.join(header.repairs)}")
        repairs = (BARE,) if bare else header.repairs  # its words are misplaced only because the tokens are gone
        header = replace(header, repairs=(*self._repairs, *repairs))
        self._repairs = []
        self._pieces, self._size, self._tail = [], 0, ""
        self._state, self._fresh, self._first, self._returned = "content", True, False, False
        self._shown = Shown(call=header.is_call)
        return Begin(header, raw)

    def _content_ends(self, by: str, raw: str) -> Iterator[Item]:
        if self._state == "doubt":
            yield from self._literal()
        if self._tail:
            yield Words(self._tail)
        self._tail, self._state = "", "between"
        self._returned = by in {"return", "endoftext"}
        if by == "cut" and self._strict and self._role is None:
            raise MissingSentinel(f"the text ends at character {self._at}, inside a message that has no <|end|>")
        yield Finish(by, raw)  # type: ignore[arg-type]  # the names of tokens

    def _unfinished(self, by: str, raw: str) -> Iterator[Item]:
        """End a header that has no `<|message|>`: what follows its known parts is the content."""
        header = self._raw()
        if self._strict:
            then = "the text ends" if by == "header" else f"<|{by}|> follows"
            raise MissingSentinel(
                f"the header {clip(header, 80)!r} at character {self._began} has no <|message|>: {then}"
            )
        parts = PARTS.match(header[: LIMIT + 1])  # a fixed limit, so that chunks make no difference
        end = parts.end() if parts is not None else 0
        calls = "to=" in header[:end]
        if by == "header" and end_of_header(header) == len(header) and not names_much(header):
            # the text ended inside its words
            self._pieces, self._size, self._repairs = [], 0, []
            yield Aside("token", header)
            return
        if not names_much(header[:end]) or (calls and by == "cut"):
            yield from self._nobody(header, end, long=by == "cut")
            if raw:
                yield Aside("token", raw)
            return
        self._repairs.append("no <|message|>")
        if end < len(header) and not calls:  # text is no arguments
            yield from self._begins_at(header, end)
        else:
            yield self._begin(glued=True)
            by = by if by == "cut" else "header"  # it has no content
        if by != "cut":  # a long one goes on
            yield from self._content_ends(by, raw)

    def _nobody(self, said: str, end: int, *, long: bool) -> Iterator[Item]:
        """Emit a header that names nothing; what follows a long one may begin another."""
        self._repairs = []
        if "<|start|>" in said[:end]:
            yield Aside("token", said[:end])
        elif self._role and not long and said.startswith(_CHANNEL):  # at the beginning of a completion it is no mention
            end = len(_CHANNEL)
            yield Aside("token", _CHANNEL)
        else:
            end = 0
        self._pieces, self._size, self._state = [], 0, "between"
        if long:
            yield from self._between(said[end:])
        else:
            self._add(said[end:])
            yield from self._asides()

    def _asides(self, *, astray: bool = False) -> Iterator[Item]:
        """Emit what is held between messages."""
        words = self._raw() + self._tail
        self._pieces, self._size, self._tail = [], 0, ""
        self._state = "astray" if astray else "between"
        if astray:
            yield from self._astray(words)
        elif words:
            debris = self._returned or (not self._first and DEBRIS.fullmatch(words))
            yield Aside("debris" if debris else "words", words)


def _said(token: Token) -> str:
    return f"<|{token.name}|>"
