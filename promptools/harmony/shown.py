"""Tokens that a message shows as code, or that stand in a value of its call, are words: they say nothing new."""

from __future__ import annotations

import re

_RECENT = 24
_QUOTES = re.compile(r'"|\\(?:.|\Z)', re.DOTALL)
_OPENS = re.compile(r"[\s(\[\"']`{1,2}\Z|\n(?P<fence>```)[\w-]{0,12}\r?\n\Z")
"""Inline code or a fence that has just been opened."""


class Shown:
    """Follows the words of one message, a call's or another's. O(n), and next to nothing where no token follows."""

    def __init__(self, *, call: bool = False) -> None:
        self._values = Values() if call else None
        self._before = "\n"
        self._recent = ""
        """The end of the words, once it has a backtick."""
        self._closes = ""
        """What ends the code that shows a token."""

    def take(self, text: str) -> None:
        """Take words of the message."""
        if self._values is not None:
            self._values.unread.append(text)
        if self._recent or self._closes or "`" in text:
            self._look(text)
        self._before = text

    def _look(self, text: str) -> None:
        if self._closes and any(each in text for each in self._closes):
            self._closes = ""
        recent = ((self._recent or self._before[-1:]) + text)[-_RECENT:]
        self._recent = recent if "`" in recent else ""

    def shows(self, token: str) -> bool:
        """Tell whether a token that follows is shown; the end of the whole reply never is."""
        if token in {"return", "endoftext"}:
            return False
        if self._values is not None and self._values.hold(token):
            return True
        opens = None if self._closes else _OPENS.search(self._recent)
        if opens is not None and token in {"start", "channel"}:
            self._closes = "`" if opens["fence"] else "`\n"
        return self._closes != ""


class Values:
    """Follows the JSON strings of a call's arguments: what stands in one is a value, and not what it looks like."""

    def __init__(self) -> None:
        self.unread: list[str] = []
        self._json: bool | None = None
        self._inside = False
        self._last = ""
        """The last character that is no white space."""

    def hold(self, token: str) -> bool:
        """Tell whether a token that follows is part of a value; behind a bracket an end is one, whatever quotes say."""
        text, self.unread = "".join(self.unread), []
        bare = text.strip()
        if bare:
            self._last = bare[-1]
            self._json = bare[0] == "{" if self._json is None else self._json
        if self._json:
            for found in _QUOTES.finditer(text):
                self._inside ^= found[0] == '"'
        return self._inside and not (token in {"call", "end"} and self._last in {"}", "]"})
