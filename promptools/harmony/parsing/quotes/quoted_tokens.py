"""Detection of control tokens that are content: shown as code, in a string of a call's arguments, in quotation marks.

Models write files and think about the format itself, so a token is no proof that a message ends. Code that begins with
a token shows it. Any other token inside quotes is in *doubt*: it is content if the quotes are closed after it, and else
it counts. What follows the token is held until that is clear; `open_value.py` has the arguments, `open_quotes.py` the
prose. A token that was generated as such (in token ids) is treated like its text: gpt-oss writes files with either.
"""

from __future__ import annotations

from promptools.harmony.parsing.header import IsTool
from promptools.harmony.parsing.quotes.held_quote import Doubt
from promptools.harmony.parsing.quotes.open_quotes import OpenQuotes
from promptools.harmony.parsing.quotes.open_value import OpenValue
from promptools.harmony.parsing.tokenizer import HarmonyToken
from promptools.parsing.emitter import begins_block_quote, line_start
from promptools.patterns import lazy_pattern

_RECENT = 24
_OPENS = lazy_pattern(r"[\s(\[\"']`{1,2}\Z|\n(?P<fence>```)[\w-]{0,12}\r?\n\Z")
"""Inline code or a fence that has just been opened."""


class QuotedTokens:
    """Tracks the content of one message, with its arguments if it is a call. O(n); cheap unless a token follows."""

    def __init__(self, known: IsTool | None = None, *, call: bool = False) -> None:
        self._open = OpenValue() if call else OpenQuotes(known)
        self._is_prose = not call
        self._line = ""
        """The beginning of the last line, in prose."""
        self._previous = "\n"
        self._recent = ""
        """The end of the content, if it has a backtick."""
        self._code_closers = ""
        """Characters that end the code in which a token was shown."""

    def feed(self, text: str) -> None:
        """Feed content of the message."""
        self._open.unread.append(text)
        if self._is_prose:
            self._line = line_start(self._line, text)
        if self._recent or self._code_closers or "`" in text:
            self._track_code(text)
        self._previous = text

    def _track_code(self, text: str) -> None:
        if self._code_closers and any(closer in text for closer in self._code_closers):
            self._code_closers = ""
        recent = ((self._recent or self._previous[-1:]) + text)[-_RECENT:]
        self._recent = recent if "`" in recent else ""

    def is_content(self, token: str) -> bool:
        """Whether a token that follows is in code or in a block quote; one that ends the whole reply never is."""
        if token in {"return", "endoftext"}:
            return False
        opens = None if self._code_closers else _OPENS.search(self._recent)
        if opens is not None and token in {"start", "channel"}:
            self._code_closers = "`" if opens["fence"] else "`\n"
        elif not self._code_closers and token in {"start", "channel"} and begins_block_quote(self._line):
            self._code_closers = "\n"  # a quoted line that shows a message, up to its end
        return self._code_closers != ""

    def doubt(self, tail: str, token: HarmonyToken) -> Doubt | None:
        """Return the doubt about a token after the content and `tail`; None: it counts."""
        return self._open.doubt(tail, token)
