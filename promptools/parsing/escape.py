r"""Escape markup in untrusted text so that the change is visible, and undo it exactly.

A token is markup wherever it occurs (`<|im_end|>`, `[TOOL_CALLS]`, `</tool_response>`), a label only at the beginning
of a line (`Observation:`). Escaping inserts a backslash after its first character: `<\|im_end|>`, `O\bservation:`.

Why `unescape` is exact: whether there is markup at an offset is decided as if the backslashes that `escape` may insert,
those after the first character of any token, were absent. So an escaped text has markup at the same places as before,
each with one more backslash, and `unescape` removes that one. Text that is escaped already gets a second backslash.

In a token, `{n}` matches a number and `{word}` letters, digits and `_:/.-`. In a label, `{name}` matches up to 128
characters without white space, and a trailing `\n` the end of the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, TypeAlias

LONGEST: Final = 128
"""Characters that a token may have."""
Written: TypeAlias = Callable[[str], None]
"""A callback that gets each escaped form."""

_SYMBOL = re.compile(r"\{(?:n|word|name)\}|.", re.DOTALL)
_HOLES: Final = {
    "{n}": "[0-9]+",
    "{word}": r"[\w:/.\\\u2581-]+",
    "{name}": r"\S{1,128}",
    "\n": r"(?=[ \t]*(?:[\r\n]|\Z))",
}
_LINE: Final = r"(?<![^\r\n\v\f\x85\u2028\u2029])[ \t]*"
"""The beginning of a line, after any character that some reader takes for a line break, and its indent."""


def fits(token: str) -> bool:
    """Whether `token` may be one: 2 to `LONGEST` characters, no backslash, no hole, digit or space at its beginning."""
    return 1 < len(token) <= LONGEST and "\\" not in token and not re.match(r"\s|\d|\{(?:n|word)\}", token)


@lru_cache(maxsize=256)
def markup(tokens: frozenset[str], labels: frozenset[str] = frozenset()) -> Markup:
    """Return the `Markup` of these tokens and labels, built once per set."""
    return Markup(tokens, labels)


class Markup:
    """A set of tokens and labels, to be found, escaped and unescaped in texts. Each method is O(n) in characters."""

    def __init__(self, tokens: Collection[str], labels: Collection[str] = ()) -> None:
        self._tokens = _Kind(tokens) if tokens else None
        self._kinds = [_Kind(labels, _LINE)] if labels else []
        if self._tokens is not None:
            self._kinds.append(self._tokens)

    def found(self, text: str) -> bool:
        """Whether `text` contains markup, escaped or not."""
        return any(kind.found(text) for kind in self._kinds)

    def live(self, text: str) -> list[str]:
        """Return the markup in `text` that is not escaped."""
        return [token for kind in self._kinds for token in kind.live(text)]

    def escape(self, text: str, written: Written | None = None) -> str:
        """Return `text` with its markup escaped, the same object if there is none; `written` gets each escaped form."""
        for kind in self._kinds:
            text = kind.escape(text, written)
        return text

    def escape_parts(self, texts: list[str], written: Written | None = None) -> list[str]:
        """Escape texts that may be read joined, where a token may span two of them."""
        if self._tokens is None or not self._tokens.found("".join(texts)):
            return [self.escape(text, written) for text in texts]
        for kind in self._kinds[:-1]:
            texts = [kind.escape(text, written) for text in texts]
        return self._tokens.escape_parts(texts, written)

    def escape_json(self, text: str) -> str:
        r"""Replace the first character of each token in JSON by its escape, such as `\u003c`: the value is the same."""
        return self._tokens.escape_json(text) if self._tokens is not None else text

    def unescape(self, text: str, only: Collection[str] | None = None, restored: Written | None = None) -> str:
        """Undo `escape`, of the forms in `only` alone if it is given; `restored` gets each form undone."""
        for kind in reversed(self._kinds):
            text = kind.unescape(text, only, restored)
        return text

    def may_be_in(self, written: str) -> bool:
        """Whether strings inside `written`, which is JSON, may contain markup: a cheap check of all of them at once."""
        return any(kind.may_be_in(written) for kind in self._kinds)


class _Kind:
    """Tokens or labels as patterns. A match ends after the first character; its last group is the rest of the token."""

    def __init__(self, texts: Collection[str], before: str = "") -> None:
        every: list[list[str]] = [_SYMBOL.findall(text) for text in texts]
        firsts = set[str]() if before else {symbols[0] for symbols in every}
        self._marked = re.compile(_pattern(every, firsts, before, ""))
        self._escaped = re.compile(_pattern(every, firsts, before, r"\\"))
        self._hints = tuple(_hint(symbols) for symbols in every) if before else ()
        self._quoted = tuple(text for text in texts if '"' in text)

    def found(self, text: str) -> bool:
        if self._hints and not any(hint in text for hint in self._hints):
            return False
        return self._marked.search(text) is not None

    def may_be_in(self, written: str) -> bool:
        if self._hints:
            return any(hint in written for hint in self._hints)
        if self._quoted:
            bare = written.replace("\\", "")  # JSON's backslashes, and those of a token that is escaped already
            if any(token in bare for token in self._quoted):
                return True
        return self._marked.search(written) is not None

    def live(self, text: str) -> list[str]:
        matches = self._marked.finditer(text)
        return [match[0][-1] + _rest(match) for match in matches if not _rest(match).startswith("\\")]

    def escape(self, text: str, written: Written | None) -> str:
        if not self.found(text):
            return text

        def mark(found: re.Match[str]) -> str:
            if written is not None:
                written(f"{found[0][-1]}\\{_rest(found)}")
            return f"{found[0]}\\"

        return self._marked.sub(mark, text)

    def escape_parts(self, texts: list[str], written: Written | None) -> list[str]:
        """Escape the joined text, then split it at the same borders as before."""
        whole = "".join(texts)
        ends: list[int] = []
        for match in self._marked.finditer(whole):
            ends.append(match.end())
            if written is not None:
                written(f"{match[0][-1]}\\{_rest(match)}")
        escaped: list[str] = []
        start = index = 0
        for text in texts:
            pieces: list[str] = []
            last, end = start, start + len(text)
            while index < len(ends) and ends[index] <= end:
                pieces += (whole[last : ends[index]], "\\")
                last, index = ends[index], index + 1
            escaped.append("".join((*pieces, whole[last:end])))
            start = end
        return escaped

    def escape_json(self, text: str) -> str:
        return self._marked.sub(lambda found: f"{found[0][:-1]}\\u{ord(found[0][-1]):04x}", text)

    def unescape(self, text: str, only: Collection[str] | None, restored: Written | None) -> str:
        def unmark(found: re.Match[str]) -> str:
            form = f"{found[0][-2:]}{_rest(found)}"
            if only is not None and form not in only:
                return found[0]
            if restored is not None:
                restored(form)
            return found[0][:-1]

        return self._escaped.sub(unmark, text) if self.found(text) else text


def _rest(found: re.Match[str]) -> str:
    assert found.lastindex is not None
    return found[found.lastindex]


def _hint(symbols: Sequence[str]) -> str:
    """Return the longest literal text that every occurrence of a label has after its first character."""
    runs = ("".join(run) for hole, run in groupby(symbols[1:], _HOLES.__contains__) if not hole)
    return max(runs, key=len, default="")


def _pattern(every: Iterable[Sequence[str]], firsts: Collection[str], before: str, stroke: str) -> str:
    """Build the pattern of a first character followed by `stroke`, where one of `every` begins."""
    tails: dict[str, list[list[str]]] = {}
    for symbols in every:
        first = re.escape(symbols[0]) if symbols[0] not in _HOLES else r"[^\s\\]"
        rest = [_atom(symbol, firsts) for symbol in symbols[1:-1]] + [_atom(symbol, ()) for symbol in symbols[1:][-1:]]
        if symbols[0] in _HOLES:
            rest.insert(0, r"\S{0,127}")
        tails.setdefault(first, []).append(rest)
    branches = (rf"{first}{stroke}(?=(\\*{_either(sorted(rests))}))" for first, rests in sorted(tails.items()))
    return f"{before}(?:{'|'.join(branches)})"


def _atom(symbol: str, firsts: Collection[str]) -> str:
    r"""Build the pattern of one symbol; after the first character of some token, backslashes may have been inserted."""
    if symbol in _HOLES:
        return _HOLES[symbol]
    return re.escape(symbol) + (r"\\*" if symbol in firsts else "")


def _either(rests: Sequence[Sequence[str]]) -> str:
    """Merge sorted sequences of patterns into a prefix tree, so that none is tried twice; the longest match wins."""
    prefix = ""
    while len(rests) and all(rest and rest[0] == rests[0][0] for rest in rests):
        prefix += rests[0][0]
        rests = [rest[1:] for rest in rests]
    longer = [rest for rest in rests if rest]
    if not longer:
        return prefix
    branches = "|".join(_either(list(group)) for _, group in groupby(longer, key=lambda rest: rest[0]))
    return f"{prefix}(?:{branches}){'?' if len(longer) < len(rests) else ''}"
