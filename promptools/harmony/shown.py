"""Tokens that a message shows as code are words: who explains the format calls no tool and says nothing new."""

from __future__ import annotations

import re

_RECENT = 24
_OPENS = re.compile(r"[\s(\[\"']`{1,2}\Z|\n(?P<fence>```)[\w-]{0,12}\r?\n\Z")
"""Inline code or a fence that has just been opened."""


class Shown:
    """Follows the words of one message. O(n), and next to nothing where no token follows."""

    def __init__(self) -> None:
        self._before = "\n"
        self._recent = ""
        """The end of the words, once it has a backtick."""
        self._closes = ""
        """What ends the code that shows a token."""

    def take(self, text: str) -> None:
        """Take words of the message."""
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
        opens = None if self._closes else _OPENS.search(self._recent)
        if opens is not None and token in {"start", "channel"}:
            self._closes = "`" if opens["fence"] else "`\n"
        return self._closes != ""
