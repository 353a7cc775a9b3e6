"""The state machine of Harmony: pieces of text in, messages out, whatever is missing, doubled or misplaced.

    between --<|start|>--> header --<|message|>--> content --<|end|>, <|call|>, <|return|>--> between

In strict mode any other transition raises. In lenient mode each has a reading, and a repair that names it:

    between   text is held in `_pieces` while it may be a header without its first token; if it proves to be none,
              the state is `astray`: text that belongs to no message, until the next token
    header    parts are collected in `_pieces` until `<|message|>`; without that, the header ends before the bracket of
              the arguments, or after its known parts if it is cut off or too long (`MAX_HEADER`)
    content   text is emitted as it comes; a suffix that may be `assistant` is held in `_tail`, since it would be the
              first word of a header without `<|start|>`. Tokens shown as code or in a string are text
              (`quoted_tokens.py`)
    doubt     `<|channel|>` in content: either text, or a header where `<|end|>` and `<|start|>` are missing. What
              follows is held in `_pieces` until that is clear

A message is `HarmonyStart`, any number of `ContentChunk`, and `HarmonyEnd`; `Aside` belongs to no message. Invariant:
the raw text of all items tiles what was fed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from promptools.errors import BadHeader, MissingSentinel, clip
from promptools.harmony.control_tokens import Role
from promptools.harmony.parsing.header import Header, IsTool, parse_header
from promptools.harmony.parsing.header_text import (
    ASSISTANT,
    HEADER_DEBRIS,
    HEADER_PARTS,
    MAX_HEADER,
    OPENING_BRACKET,
    addressed_header_end,
    has_routing,
    header_end,
)
from promptools.harmony.parsing.quoted_tokens import QuotedTokens
from promptools.harmony.parsing.tokenizer import MESSAGE_ENDS, HarmonyToken, Piece, raw_text

STRIPPED_TOKENS = "its control tokens were stripped"


class HarmonyStart(NamedTuple):
    """The beginning of a message."""

    header: Header
    raw: str


class ContentChunk(NamedTuple):
    """A chunk of the message's content, verbatim."""

    raw: str


class HarmonyEnd(NamedTuple):
    """The end of a message: by a token, by the next message (`start`, `channel`), or by the end of the text.

    `cut`: the text ended in its content; `header`: it ended before that.
    """

    reason: Literal["end", "call", "return", "endoftext", "start", "channel", "cut", "header"]
    raw: str


class Aside(NamedTuple):
    """Text that belongs to no message."""

    kind: Literal["space", "token", "debris", "words"]
    raw: str


Item: TypeAlias = "HarmonyStart | ContentChunk | HarmonyEnd | Aside"

_SPEAKS = re.compile(f"(?:{'|'.join(ASSISTANT[:size] for size in range(len(ASSISTANT), 0, -1))})\\Z")
"""The first word of a header, or its beginning, at the end of a text."""


_CHANNEL = "<|channel|>"
_TAGGED = re.compile(r"(?<!\|)>[{\[]")
"""A bracket right after a tag does not begin the content: more of the header follows."""


class MessageMachine:
    """The states. `role` is that of headers without one: a completion begins inside a header of the assistant.

    `known` tells whether a recipient is an offered tool (None: the tools are unknown).
    """

    def __init__(self, role: Role | None = None, *, strict: bool = False, known: IsTool | None = None) -> None:
        self._role: Role | None = role
        self._strict = strict
        self._known = known
        self._offset = 0
        """The offset of the current piece, in characters."""
        self._state: Literal["between", "astray", "header", "content", "doubt"] = (
            "header" if strict and role else "between"
        )
        self._pieces: list[Piece] = []
        """The header so far, or what may be one."""
        self._pieces_size = 0
        self._pieces_start = 0
        """The offset of these pieces."""
        self._tail = ""
        """The suffix of the content that may be the first word of a header."""
        self._is_empty = False
        """The message has no content yet."""
        self._quoted_tokens = QuotedTokens()
        self._before_first_message = True
        """No message has begun yet."""
        self._repairs: list[str] = []
        self._turn_over = False
        """The turn is over: text that follows is debris."""

    def feed(self, pieces: Iterable[Piece]) -> Iterator[Item]:
        """Feed pieces, and yield items. O(n) in characters. Strict: raises `MissingSentinel` and `BadHeader`."""
        for piece in pieces:
            yield from self._token(piece) if isinstance(piece, HarmonyToken) else self._text(piece)
            self._offset += len(raw_text(piece))

    def close(self) -> Iterator[Item]:
        """End the text, and yield the remaining items."""
        match self._state:
            case "between" | "astray":
                yield from self._emit_aside()
            case "header":
                yield from self._end_unfinished_header("header", "")
            case _:  # content, or doubt
                yield from self._end_content("cut", "")

    def feed_content(self, text: str) -> bool:
        """Feed text without control tokens if it can only be content, as most of a reply is; return whether it was."""
        if self._state != "content" or self._tail or not text:
            return False
        if not self._strict and _SPEAKS.search(text, max(0, len(text) - len(ASSISTANT))):
            return False
        self._is_empty = False
        self._quoted_tokens.feed(text)
        self._offset += len(text)
        return True

    # --- text ----------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> Iterator[Item]:
        match self._state:
            case "content":
                yield from self._content(text)
            case "astray":
                yield from self._stray_text(text)
            case "header":
                self._add(text)
                yield from self._check_header_end()
            case "between":
                yield from self._between(text)
            case _:  # doubt
                self._add(text)
                yield from self._resolve_doubt()

    def _content(self, text: str) -> Iterator[Item]:
        content = self._hold_suffix(text)
        if content:
            yield self._emit_content(content)

    def _emit_content(self, raw: str) -> ContentChunk:
        self._is_empty = False
        self._quoted_tokens.feed(raw)
        return ContentChunk(raw)

    def _stray_text(self, text: str) -> Iterator[Item]:
        """Emit text that belongs to no message, except a suffix that may be the first word of a header."""
        certain = self._hold_suffix(text)
        if certain:
            yield Aside("debris" if self._turn_over else "words", certain)

    def _hold_suffix(self, text: str) -> str:
        """Return the text so far, except a suffix that may be the first word of a header, which is held back."""
        text = self._tail + text
        speaker = None if self._strict else _SPEAKS.search(text, max(0, len(text) - len(ASSISTANT)))
        end = speaker.start() if speaker is not None else len(text)
        self._tail = text[end:]
        return text[:end]

    def _add(self, piece: Piece) -> None:
        if not self._pieces:
            self._pieces_start = self._offset
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, str) and isinstance(piece, str):
            self._pieces[-1] = last + piece
        else:
            self._pieces.append(piece)
        self._pieces_size += len(raw_text(piece))

    def _raw(self) -> str:
        return "".join(map(raw_text, self._pieces))

    def _between(self, text: str) -> Iterator[Item]:
        """Emit white space between two messages, and collect other text."""
        words = text if self._pieces else text.lstrip()
        space = text[: len(text) - len(words)]
        if space:
            yield Aside("space", space)
        if not words:
            return
        if self._strict:
            at = self._offset + len(space)
            raise BadHeader(f"text outside of messages, at character {at}: a message begins with <|start|>")
        self._add(words)
        yield from self._check_bare_header()

    def _check_bare_header(self) -> Iterator[Item]:
        """Decide whether text between two messages may be a header without its first token."""
        raw = self._raw()
        end = addressed_header_end(raw)
        if end is None:
            return
        if end < 0:
            yield from self._emit_aside(astray=True)
        else:
            self._repairs.append("no <|message|>")
            yield from self._begin_at(raw, end)

    def _check_header_end(self) -> Iterator[Item]:
        """End the header if it has lost its `<|message|>`: at a bracket, or at its limit."""
        if self._strict:
            if self._pieces_size > MAX_HEADER:
                raise MissingSentinel(
                    f"the header at character {self._pieces_start} has no <|message|> in {MAX_HEADER} characters"
                )
            return
        last = self._pieces[-1]
        assert isinstance(last, str)
        raw = self._raw()
        bracket = OPENING_BRACKET.search(last) if _TAGGED.search(raw) is None else None
        at = len(raw) - len(last) + bracket.start() if bracket is not None else len(raw)
        if bracket is not None and at <= MAX_HEADER and ("<|channel|>" in raw[:at] or has_routing(raw[:at])):
            self._repairs.append("no <|message|>")
            yield from self._begin_at(raw, at)
        elif len(raw) > MAX_HEADER:
            yield from self._end_unfinished_header("cut", "")

    def _begin_at(self, raw: str, at: int) -> Iterator[Item]:
        """Begin a message whose header ends at `raw[at]`, without a token."""
        kept: list[Piece] = []
        pieces = iter(self._pieces)
        left = at
        while left:
            piece = next(pieces)
            text = raw_text(piece)
            kept.append(piece if len(text) <= left else text[:left])
            left -= min(left, len(text))
        self._pieces = kept
        yield self._begin(glued=True)
        yield from self._content(raw[at:])

    def _resolve_doubt(self) -> Iterator[Item]:
        """Decide whether a header begins inside content, the end of the message being lost."""
        raw = self._raw()
        end = addressed_header_end(raw)
        if end is None:
            return
        if end < 0:
            yield from self._header_as_content()
        else:
            yield HarmonyEnd("channel", "")
            self._repairs += ["no <|end|>", "no <|message|>"]
            yield from self._begin_at(raw, end)

    def _header_as_content(self) -> Iterator[Item]:
        """Emit what looked like a header as content."""
        raw = self._raw()
        self._pieces, self._pieces_size, self._state = [], 0, "content"
        yield self._emit_content(raw)

    # --- tokens --------------------------------------------------------------------------------------------------

    def _token(self, token: HarmonyToken) -> Iterator[Item]:
        match self._state:
            case "between" | "astray":
                yield from self._token_between(token)
            case "header":
                yield from self._token_in_header(token)
            case "content":
                yield from self._token_in_content(token)
            case _:  # doubt
                yield from self._token_in_doubt(token)

    def _token_between(self, token: HarmonyToken) -> Iterator[Item]:
        if token.name in MESSAGE_ENDS:
            yield from self._emit_aside()
            if self._strict:
                raise MissingSentinel(f"{_token_text(token)} at character {self._offset}, where no message is open")
            self._before_first_message = False
            yield Aside("token", token.raw)
            return
        if token.name == "start":
            yield from self._emit_aside()
        else:
            if self._strict:
                raise MissingSentinel(
                    f"{_token_text(token)} at character {self._offset}, without the <|start|> of its message"
                )
            yield from self._text_before_token()
            if not (self._before_first_message and self._role):
                self._repairs.append("no <|start|>")
        self._state = "header"
        yield from self._token_in_header(token)

    def _text_before_token(self) -> Iterator[Item]:
        """Keep text before a header's first token if it belongs to the header, else emit it."""
        words, self._tail = self._raw() + self._tail, ""
        keeps = header_end(words) == len(words)
        self._pieces = [] if keeps else [words]
        yield from self._emit_aside()
        if keeps and words:
            self._add(words)

    def _token_in_header(self, token: HarmonyToken) -> Iterator[Item]:
        if token.name == "message":
            self._add(token)
            yield self._begin()
        elif token.name in MESSAGE_ENDS:
            yield from self._end_unfinished_header(token.name, token.raw)
        elif token.name == "start" and self._pieces and self._pieces_size <= MAX_HEADER and has_routing(self._raw()):
            yield from self._end_unfinished_header("start", "")
            self._state = "header"
            self._add(token)
        else:
            self._add(token)

    def _token_in_content(self, token: HarmonyToken) -> Iterator[Item]:
        if token.raw and not self._strict and self._quoted_tokens.is_content(token.name):
            tail, self._tail = self._tail, ""
            yield self._emit_content(tail + token.raw)
        elif token.name in MESSAGE_ENDS:
            yield from self._end_content(token.name, token.raw)
        elif token.name == "start":
            if self._strict:
                raise MissingSentinel(f"<|start|> at character {self._offset}, inside a message that has no <|end|>")
            yield from self._end_content("start", "")
            if token.raw:
                self._repairs.append("no <|end|>")
            self._state = "header"
            self._add(token)
        elif token.name == "message" and self._is_empty and not self._tail and not self._strict:
            yield Aside("token", token.raw)
        elif token.name == "channel" and not self._strict:
            tail, self._tail = self._tail, ""
            if tail not in {"", ASSISTANT}:
                yield self._emit_content(tail)
            elif tail:
                self._add(tail)
            self._state = "doubt"
            self._add(token)
        else:
            tail, self._tail = self._tail, ""
            yield self._emit_content(tail + token.raw)

    def _token_in_doubt(self, token: HarmonyToken) -> Iterator[Item]:
        raw = self._raw()
        if token.name == "message" and has_routing(raw):
            yield HarmonyEnd("channel", "")
            self._repairs.append("no <|end|>")
            self._add(token)
            yield self._begin()
        elif token.name in {"channel", "constrain"} and self._pieces_size <= MAX_HEADER and has_routing(raw):
            self._add(token)
        else:
            yield from self._header_as_content()
            yield from self._token_in_content(token)

    # --- messages ------------------------------------------------------------------------------------------------

    def _begin(self, *, glued: bool = False) -> HarmonyStart:
        raw = self._raw()
        bare = any(isinstance(piece, HarmonyToken) and not piece.raw for piece in self._pieces)
        header = parse_header(self._pieces, self._role, self._known, glued=glued or bare)
        if self._strict and header.repairs:
            raise BadHeader(
                f"the header {clip(raw, 120)!r} at character {self._pieces_start}: {'; '.join(header.repairs)}"
            )
        repairs = (
            (STRIPPED_TOKENS,) if bare else header.repairs
        )  # its words are misplaced only because the tokens are gone
        header = replace(header, repairs=(*self._repairs, *repairs))
        self._repairs = []
        self._pieces, self._pieces_size, self._tail = [], 0, ""
        self._state, self._is_empty, self._before_first_message, self._turn_over = "content", True, False, False
        self._quoted_tokens = QuotedTokens(call=header.is_call)
        return HarmonyStart(header, raw)

    def _end_content(self, by: str, raw: str) -> Iterator[Item]:
        if self._state == "doubt":
            yield from self._header_as_content()
        if self._tail:
            yield ContentChunk(self._tail)
        self._tail, self._state = "", "between"
        self._turn_over = by in {"return", "endoftext"}
        if by == "cut" and self._strict and self._role is None:
            raise MissingSentinel(f"the text ends at character {self._offset}, inside a message that has no <|end|>")
        yield HarmonyEnd(by, raw)  # type: ignore[arg-type]  # the names of tokens

    def _end_unfinished_header(self, by: str, raw: str) -> Iterator[Item]:
        """End a header that has no `<|message|>`: what follows its known parts is the content."""
        header = self._raw()
        if self._strict:
            then = "the text ends" if by == "header" else f"<|{by}|> follows"
            raise MissingSentinel(
                f"the header {clip(header, 80)!r} at character {self._pieces_start} has no <|message|>: {then}"
            )
        parts = HEADER_PARTS.match(header[: MAX_HEADER + 1])  # a fixed limit, so that chunks make no difference
        end = parts.end() if parts is not None else 0
        calls = "to=" in header[:end]
        if by == "header" and header_end(header) == len(header) and not has_routing(header):
            # the text ended inside its words
            self._pieces, self._pieces_size, self._repairs = [], 0, []
            yield Aside("token", header)
            return
        if not has_routing(header[:end]) or (calls and by == "cut"):
            yield from self._drop_header(header, end, long=by == "cut")
            if raw:
                yield Aside("token", raw)
            return
        self._repairs.append("no <|message|>")
        if end < len(header) and not calls:  # text is no arguments
            yield from self._begin_at(header, end)
        else:
            yield self._begin(glued=True)
            by = by if by == "cut" else "header"  # it has no content
        if by != "cut":  # a long one goes on
            yield from self._end_content(by, raw)

    def _drop_header(self, header: str, end: int, *, long: bool) -> Iterator[Item]:
        """Emit a header that names nothing; what follows a long one may begin another."""
        self._repairs = []
        if "<|start|>" in header[:end]:
            yield Aside("token", header[:end])
        elif (
            self._role and not long and header.startswith(_CHANNEL)
        ):  # at the beginning of a completion it is no mention
            end = len(_CHANNEL)
            yield Aside("token", _CHANNEL)
        else:
            end = 0
        self._pieces, self._pieces_size, self._state = [], 0, "between"
        if long:
            yield from self._between(header[end:])
        else:
            self._add(header[end:])
            yield from self._emit_aside()

    def _emit_aside(self, *, astray: bool = False) -> Iterator[Item]:
        """Emit what is held between messages."""
        words = self._raw() + self._tail
        self._pieces, self._pieces_size, self._tail = [], 0, ""
        self._state = "astray" if astray else "between"
        if astray:
            yield from self._stray_text(words)
        elif words:
            debris = self._turn_over or (not self._before_first_message and HEADER_DEBRIS.fullmatch(words))
            yield Aside("debris" if debris else "words", words)


def _token_text(token: HarmonyToken) -> str:
    return f"<|{token.name}|>"
