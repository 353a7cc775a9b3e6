"""Detection of control tokens that are content: shown as code, or inside a string of a call's arguments."""

from __future__ import annotations

import re

_RECENT = 24
_QUOTES = re.compile(r'"|\\(?:.|\Z)', re.DOTALL)
_OPENS = re.compile(r"[\s(\[\"']`{1,2}\Z|\n(?P<fence>```)[\w-]{0,12}\r?\n\Z")
"""Inline code or a fence that has just been opened."""


class QuotedTokens:
    """Tracks the content of one message, with its arguments if it is a call. O(n); cheap unless a token follows."""

    def __init__(self, *, call: bool = False) -> None:
        self._values = ArgumentStrings() if call else None
        self._previous = "\n"
        self._recent = ""
        """The end of the content, if it has a backtick."""
        self._code_closers = ""
        """Characters that end the code in which a token was shown."""

    def feed(self, text: str) -> None:
        """Feed content of the message."""
        if self._values is not None:
            self._values.unread.append(text)
        if self._recent or self._code_closers or "`" in text:
            self._track_code(text)
        self._previous = text

    def _track_code(self, text: str) -> None:
        if self._code_closers and any(closer in text for closer in self._code_closers):
            self._code_closers = ""
        recent = ((self._recent or self._previous[-1:]) + text)[-_RECENT:]
        self._recent = recent if "`" in recent else ""

    def is_content(self, token: str) -> bool:
        """Whether a token that follows is content; one that ends the whole reply never is."""
        if token in {"return", "endoftext"}:
            return False
        if self._values is not None and self._values.contains(token):
            return True
        opens = None if self._code_closers else _OPENS.search(self._recent)
        if opens is not None and token in {"start", "channel"}:
            self._code_closers = "`" if opens["fence"] else "`\n"
        return self._code_closers != ""


class ArgumentStrings:
    """Tracks the JSON strings of a call's arguments: a token inside one is part of the value."""

    def __init__(self) -> None:
        self.unread: list[str] = []
        self._json: bool | None = None
        self._inside = False
        self._last = ""
        """The last character that is not white space."""

    def contains(self, token: str) -> bool:
        """Whether a token that follows is in a string; after a bracket, an end is an end even if a quote is open."""
        text, self.unread = "".join(self.unread), []
        stripped = text.strip()
        if stripped:
            self._last = stripped[-1]
            self._json = stripped[0] == "{" if self._json is None else self._json
        if self._json:
            for quote in _QUOTES.finditer(text):
                self._inside ^= quote[0] == '"'
        return self._inside and not (token in {"call", "end"} and self._last in {"}", "]"})
