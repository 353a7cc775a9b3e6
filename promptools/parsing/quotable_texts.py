"""Decide whether a call in a reply is quoted from the conversation.

If a web page, a log or a question contains a call, a model that talks about this text may quote the call. The
comparison ignores white space and the `>` of block quotes, since a model indents and wraps what it quotes. Each text is
also searched with its escapes decoded, since a tool's result is often JSON or HTML with the call inside a string.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator

from promptools.patterns import lazy_pattern

MAX_SEARCHES = 64
"""Maximum number of calls in a reply that are searched for in the conversation.

If one of these is quoted, all further calls count as quoted.
"""
_QUOTE = lazy_pattern(r"^[ \t]*+(?:>[ \t]?)++", re.MULTILINE)
_ESCAPES = lazy_pattern(r"(?:\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))+")
_WORD = lazy_pattern(r"[A-Za-z0-9_]+")
_JSON_LEVELS = 2
"""Number of times that JSON escapes are decoded, since a text may be JSON inside a string of JSON."""


class QuotableTexts:
    """The texts that a reply may quote; they are read only at the first search.

    A search is O(n) in the characters of the texts. At most `MAX_SEARCHES` searches are made for whole calls, and at
    most `MAX_SEARCHES` for beginnings of calls.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._given = texts
        self._texts: list[str] | None = None
        self._normalized: list[str] | None = None
        self._known: dict[str, bool] = {}
        self._prefix_searches_left = MAX_SEARCHES
        self._quoted = False

    def contain_call(self, call: str) -> bool:
        """Return whether one of the texts contains `call`.

        `call` is the text of a call from the opening tag to the closing tag.
        """
        key = _normalize(call)
        if not key:
            return False
        known = self._known.get(key)
        if known is None:
            if len(self._known) == MAX_SEARCHES:
                return self._quoted
            known = self._known[key] = self._search(key, call)
            self._quoted = self._quoted or known
        return known

    def may_contain_prefix(self, prefix: str) -> bool:
        """Return whether one of the texts may contain a call that begins with `prefix`.

        True is also returned once the allowed number of searches is used up.
        """
        if not self._prefix_searches_left or len(self._known) == MAX_SEARCHES:
            return True
        self._prefix_searches_left -= 1
        return self._search(_normalize(prefix), prefix)

    def _search(self, key: str, text: str) -> bool:
        if self._texts is None:
            self._texts = [source for source in self._given if isinstance(source, str) and source]
        word = max(_WORD.findall(text), key=len, default="")  # no escape changes a word: most searches end here
        if not any(word in source for source in self._texts):
            return False
        if self._normalized is None:
            self._normalized = [form for source in self._texts for form in _normalized_forms(source)]
        return any(key in source for source in self._normalized)


def _normalize(text: str) -> str:
    """Remove what may differ between a text and its quotation: white space, and `>` at the start of lines."""
    return "".join((_QUOTE.sub("", text) if ">" in text else text).split())


def _normalized_forms(text: str) -> Iterator[str]:
    """Yield normalized forms of the text: unchanged, with HTML escapes decoded, and with JSON escapes decoded."""
    yield _normalize(text)
    if "&" in text:
        yield _normalize(html.unescape(text))
    for _ in range(_JSON_LEVELS):
        if "\\" not in text:
            break
        text = _ESCAPES.sub(_decode_escapes, text.replace("\\'", "'"))
        yield _normalize(text)


def _decode_escapes(match: re.Match[str]) -> str:
    decoded: str = json.loads(f'"{match[0]}"')
    return decoded
