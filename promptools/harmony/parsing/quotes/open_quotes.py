"""Control tokens inside quotation marks or inline code, in reasoning and in text for the user.

    The user wants the line "A call ends with <|call|>; <|start|>assistant<|channel|>final..." in a file.

Marks nest, since models also quote JSON without escaping its quotes: a mark opens before a word and closes after one.
Quotation marks end with their paragraph and inline code with its line, so not much is held for one that never closes.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from promptools.harmony.parsing.header import IsTool, parse_header
from promptools.harmony.parsing.tokenizer import MESSAGE_ENDS, HarmonyToken, Piece, raw_text
from promptools.patterns import lazy_pattern

_MARKS = lazy_pattern(r"\\(?:.|\Z)|\n[ \t\r]{0,8}+(?P<blank>\n)?|`+|[\"'“”]", re.DOTALL)
_BEFORE_OPENING = frozenset(" \t\r\n([{<>:=,;/-—\"'“`*_")
_BEFORE_ITEM = frozenset("([{<:=,")
"""After one of these a mark opens, even if it could close another."""
_HEADER = lazy_pattern(r"(?:[\w.=:<|>-]|[ \t]){0,256}")
"""What a header may hold."""
_AFTER_CLOSING = frozenset(" \t\r\n)]}<>:=,;./-—!?\"'”`*_")

TurnStage: TypeAlias = Literal["between", "header", "call", "none"]
"""Where text after a token in doubt is, if a message follows: before it, in its header, or in a call's arguments."""


class Settled(NamedTuple):
    """What a token in doubt is."""

    is_content: bool
    taken: int
    """Characters of the last piece that were read to find out."""


class OpenQuotes:
    """Tracks the marks that are open at the end of a message's content, as far as a token follows. O(n)."""

    def __init__(self, known: IsTool | None = None) -> None:
        self.unread: list[str] = []
        self._marks = Marks()
        self._known = known

    def doubt(self, tail: str, token: HarmonyToken) -> QuoteDoubt | None:
        """Return the doubt about a token after the content and `tail`; None: no mark is open, or it is only words."""
        text, self.unread = "".join(self.unread), []
        following = token.raw[:1] or "a"  # without tokens, `assistant` begins a header
        self._marks.read(text, following=following if not tail else "")
        marks = self._marks.copy()
        marks.read(tail, following=following)
        return QuoteDoubt(marks, token, self._known) if marks.depths and token.raw else None


class Marks:
    """The marks that are open at the end of a text."""

    def __init__(self) -> None:
        self.depths: dict[str, int] = {}
        """How many of each kind are open; a kind is the mark that opens it."""
        self._before: str = "\n"
        self._held: str = ""
        """The end of the text, whose meaning depends on what follows."""

    def copy(self) -> Marks:
        """Return a copy, to read on without changing this one."""
        marks = Marks()
        marks.depths, marks._before, marks._held = dict(self.depths), self._before, self._held
        return marks

    def read(self, text: str, *, following: str = "", waiting: set[str] | None = None) -> Settled | None:
        """Read text up to the mark that closes the last one of a kind in `waiting`, or until none of these can close.

        `following`: the character after the text, if it is known. Return None if all of the text was read.
        """
        offset = -len(self._held)
        text, self._held = self._held + text, ""
        end = len(text)
        for mark in _MARKS.finditer(text):
            if mark.end() == len(text) and not following and mark["blank"] is None:
                end = mark.start()
                self._held = text[end:]
                break
            kind = self._apply(mark, text[mark.start() - 1] if mark.start() else self._before, following)
            if waiting is None:
                continue
            taken = max(0, offset + mark.end())
            if kind in waiting and kind not in self.depths:
                return Settled(is_content=True, taken=taken)
            if mark[0][0] == "\n":
                waiting &= self.depths.keys()
                if not waiting:
                    return Settled(is_content=False, taken=taken)
        self._before = text[end - 1] if end else self._before
        return None

    def _apply(self, mark: re.Match[str], before: str, following: str) -> str:
        """Apply a mark, or the end of a line; return its kind if it closed one."""
        text = mark[0]
        if text[0] == "\n":
            self.depths.pop("`", None)
            if mark["blank"]:
                self.depths.clear()
        elif text[0] == "`":
            if len(text) < 3:  # more of them are a fence, which `QuotedTokens` knows
                return self._close("`") if "`" in self.depths else self._open("`")
        elif text in "“”":
            return self._open("“") if text == "“" else self._close("“")
        elif text[0] != "\\":
            after = mark.string[mark.end() : mark.end() + 1] or following
            closes = text in self.depths and not before.isspace() and after in _AFTER_CLOSING
            opens = before in _BEFORE_OPENING and before != text and not after.isspace()
            if closes and not (opens and before in _BEFORE_ITEM):
                return self._close(text)
            if opens:
                return self._open(text)
        return ""

    def _open(self, kind: str) -> str:
        self.depths[kind] = self.depths.get(kind, 0) + 1
        return ""

    def _close(self, kind: str) -> str:
        left = self.depths.pop(kind, 0) - 1
        if left > 0:
            self.depths[kind] = left
        return kind


class QuoteDoubt:
    """A token inside marks that are open: content if those of one kind are all closed before their paragraph ends.

    A thought may leave a mark open, as in `the '90s` or `5" pipes`, which the answer would close. So the token counts
    if the next message begins right after it; a call, if that is all that follows, or messages are.
    """

    def __init__(self, marks: Marks, token: HarmonyToken, known: IsTool | None = None) -> None:
        self._marks = marks
        self._known = known
        self._waiting = set(marks.depths)
        self._ends_message = token.name in MESSAGE_ENDS
        self._turn: TurnStage = "between" if self._ends_message else "header"
        self._header: list[Piece] = [] if self._ends_message else [token]
        """The pieces of the next message's header, with the token that begins it."""
        marks.read(token.raw)

    @property
    def may_go_on(self) -> bool:
        """Whether it begins a call in a message that no token has ended; see `Doubt`."""
        return not self._ends_message and self._is_of_call()

    def feed(self, piece: Piece) -> Settled | None:
        """Read a piece; see `Doubt`."""
        if self._turn != "none" and self._next_message_begins(piece):
            return Settled(is_content=False, taken=0)
        return self._marks.read(raw_text(piece), waiting=self._waiting) if self._turn == "none" else None

    def _next_message_begins(self, piece: Piece) -> bool:
        """Return whether the token ended a message, or began one; the stage is `none` if it did not."""
        name = piece.name if isinstance(piece, HarmonyToken) else ""
        if self._turn == "call":
            self._turn = "between" if name in MESSAGE_ENDS else "call"
            return name == "start"
        if self._turn == "between":
            if name != "start":
                self._turn = "between" if not raw_text(piece).strip() else "none"
                return False
            self._turn, called = "header", self._is_of_call()
            self._header = [piece]
            return called
        if name == "message":
            self._turn = "call"
            return not self._is_of_call()
        if isinstance(piece, str) and isinstance(self._header[-1], str):
            self._header[-1] += piece
        else:
            self._header.append(piece)
        if name not in {"", "channel", "constrain"} or not _HEADER.fullmatch("".join(map(raw_text, self._header[1:]))):
            self._turn = "none"
        return False

    def _is_of_call(self) -> bool:
        """Whether the header so far is that of a call, or of its result: what a text about calls shows."""
        header = parse_header(self._header, "assistant", self._known)
        return header.is_call or header.role == "tool"

    def close(self) -> bool:
        """Whether the last mark was at the end of the text."""
        settled = self._marks.read("", following=" ", waiting=self._waiting) if self._turn == "none" else None
        return settled is not None and settled.is_content
