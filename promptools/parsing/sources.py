"""Texts of the conversation that a model may quote: whether a call in its reply is taken from one of them.

A page that shows a call, a log, a question about a call: whoever answers about them quotes them. The comparison leaves
out white space and the `>` of block quotes, since a model indents and wraps what it quotes; and a text is also searched
as it reads without its escapes, since a result is often JSON or HTML with the call inside a string of it.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator

SEARCHES = 64
"""Calls of one reply that are looked for. Of those after them the first ones tell whether the reply quotes."""
_QUOTE = re.compile(r"^[ \t]*+(?:>[ \t]?)++", re.MULTILINE)
_ESCAPES = re.compile(r"(?:\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))+")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_LEVELS = 2
"""Times that a text may be JSON inside a string of JSON."""


class Sources:
    """The texts that a reply may quote. They are not looked at before the first call is found.

    A search costs O(n) in the characters of the texts; there are at most `SEARCHES` for calls, and as many for
    beginnings of calls.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._given = texts
        self._texts: list[str] | None = None
        self._forms: list[str] | None = None
        self._known: dict[str, bool] = {}
        self._beginnings = SEARCHES
        self._quoted = False

    def hold(self, call: str) -> bool:
        """Whether `call`, from its opener to its closer, is in one of the texts."""
        key = _normal(call)
        known = self._known.get(key)
        if known is None:
            if len(self._known) == SEARCHES:
                return self._quoted
            known = self._known[key] = self._search(key, call)
            self._quoted = self._quoted or known
        return known

    def may_hold(self, beginning: str) -> bool:
        """Whether a call that begins like this may be in one of the texts."""
        if not self._beginnings or len(self._known) == SEARCHES:
            return True
        self._beginnings -= 1
        return self._search(_normal(beginning), beginning)

    def _search(self, key: str, text: str) -> bool:
        if self._texts is None:
            self._texts = [each for each in self._given if isinstance(each, str) and each]
        word = max(_WORD.findall(text), key=len, default="")  # no escape changes it: most searches end here
        if not any(word in each for each in self._texts):
            return False
        if self._forms is None:
            self._forms = [form for each in self._texts for form in _forms(each)]
        return any(key in each for each in self._forms)


def _normal(text: str) -> str:
    """Leave out what differs between a text and a quotation of it."""
    return "".join((_QUOTE.sub("", text) if ">" in text else text).split())


def _forms(text: str) -> Iterator[str]:
    """Yield the text as it is, without the escapes of JSON, and without those of HTML."""
    yield _normal(text)
    if "&" in text:
        yield _normal(html.unescape(text))
    for _ in range(_LEVELS):
        if "\\" not in text:
            break
        text = _ESCAPES.sub(_unescaped, text.replace("\\'", "'"))
        yield _normal(text)


def _unescaped(found: re.Match[str]) -> str:
    said: str = json.loads(f'"{found[0]}"')
    return said
