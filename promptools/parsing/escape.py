r"""Markup in foreign text, made harmless where it can be seen, and given back exactly.

A token is markup wherever it occurs (`<|im_end|>`, `[TOOL_CALLS]`, `</tool_response>`), a label only at the beginning
of a line (`Observation:`). Escaped, a backslash follows its first character: `<\|im_end|>`, `O\bservation:`.

Why `unescape` is exact: whether a place is markup is decided by what it would be without the backslashes that `escape`
may write, which are those after the first character of any token. So an escaped text has its markup at the same places
as before, each with one backslash more, and `unescape` takes that one away. A text that is escaped already gets a
second one.

In a token `{n}` is a number and `{word}` letters, digits and `_:/.-`; in a label `{name}` is up to 128 characters
without a space, and a `\n` at its end the end of the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, TypeAlias

LONGEST: Final = 128
"""Characters of a token."""
Written: TypeAlias = Callable[[str], None]
"""Is told of each escaped form."""

_SYMBOL = re.compile(r"\{(?:n|word|name)\}|.", re.DOTALL)
_HOLES: Final = {
    "{n}": "[0-9]+",
    "{word}": r"[\w:/.\\\u2581-]+",
    "{name}": r"\S{1,128}",
    "\n": r"(?=[ \t]*(?:[\r\n]|\Z))",
}
_LINE: Final = r"(?<![^\r\n\v\f\x85\u2028\u2029])[ \t]*"
"""The beginning of a line, whatever is taken for a line break, and its indent."""


def fits(token: str) -> bool:
    """Whether this may be a token: two characters or more, no backslash, and no hole or digit at its beginning."""
    return 1 < len(token) <= LONGEST and "\\" not in token and not re.match(r"\s|\d|\{(?:n|word)\}", token)


@lru_cache(maxsize=256)
def markup(tokens: frozenset[str], labels: frozenset[str] = frozenset()) -> Markup:
    """Return the markup of these tokens and labels."""
    return Markup(tokens, labels)


class Markup:
    """A set of tokens and labels; `markup` makes each once."""

    def __init__(self, tokens: Collection[str], labels: Collection[str] = ()) -> None:
        self._tokens = _Kind(tokens) if tokens else None
        self._kinds = [_Kind(labels, _LINE)] if labels else []
        if self._tokens is not None:
            self._kinds.append(self._tokens)

    def found(self, text: str) -> bool:
        """Whether `text` holds markup, escaped or not. O(n) in characters, as all that is done here."""
        return any(kind.found(text) for kind in self._kinds)

    def live(self, text: str) -> list[str]:
        """Return the markup in `text` that is not escaped."""
        return [each for kind in self._kinds for each in kind.live(text)]

    def escape(self, text: str, written: Written | None = None) -> str:
        """Return `text` with its markup escaped: the same object where there is none."""
        for kind in self._kinds:
            text = kind.escape(text, written)
        return text

    def escape_parts(self, texts: list[str], written: Written | None = None) -> list[str]:
        """Escape texts that may be read as one: a token may lie across their borders."""
        if self._tokens is None or not self._tokens.found("".join(texts)):
            return [self.escape(text, written) for text in texts]
        for kind in self._kinds[:-1]:
            texts = [kind.escape(text, written) for text in texts]
        return self._tokens.escape_parts(texts, written)

    def escape_json(self, text: str) -> str:
        r"""Write the first character of each token in JSON as `\u003c` or the like: the value is the same."""
        return self._tokens.escape_json(text) if self._tokens is not None else text

    def unescape(self, text: str, only: Collection[str] | None = None, restored: Written | None = None) -> str:
        """Undo `escape`; with `only`, of these escaped forms alone. `restored` is called with each form undone."""
        for kind in reversed(self._kinds):
            text = kind.unescape(text, only, restored)
        return text

    def may_be_in(self, written: str) -> bool:
        """Whether strings in `written`, which is JSON, may hold markup: a quick look at all of them at once."""
        return any(kind.may_be_in(written) for kind in self._kinds)


class _Kind:
    """Markup of one kind, as patterns. A match ends behind the first character, its last group is what follows."""

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
            bare = written.replace("\\", "")  # JSON's strokes, and those of a token that is escaped already
            if any(each in bare for each in self._quoted):
                return True
        return self._marked.search(written) is not None

    def live(self, text: str) -> list[str]:
        every = self._marked.finditer(text)
        return [each[0][-1] + _rest(each) for each in every if not _rest(each).startswith("\\")]

    def escape(self, text: str, written: Written | None) -> str:
        if not self.found(text):
            return text

        def mark(found: re.Match[str]) -> str:
            if written is not None:
                written(f"{found[0][-1]}\\{_rest(found)}")
            return f"{found[0]}\\"

        return self._marked.sub(mark, text)

    def escape_parts(self, texts: list[str], written: Written | None) -> list[str]:
        """Escape in the whole, and cut it where it was cut before."""
        whole = "".join(texts)
        places: list[int] = []
        for found in self._marked.finditer(whole):
            places.append(found.end())
            if written is not None:
                written(f"{found[0][-1]}\\{_rest(found)}")
        escaped: list[str] = []
        start = at = 0
        for text in texts:
            pieces: list[str] = []
            last, end = start, start + len(text)
            while at < len(places) and places[at] <= end:
                pieces += (whole[last : places[at]], "\\")
                last, at = places[at], at + 1
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
    """Return the longest text that each place of a label holds behind its first character."""
    runs = ("".join(run) for hole, run in groupby(symbols[1:], _HOLES.__contains__) if not hole)
    return max(runs, key=len, default="")


def _pattern(every: Iterable[Sequence[str]], firsts: Collection[str], before: str, stroke: str) -> str:
    """Write the pattern of a first character, then `stroke`, at a place where one of `every` begins."""
    tails: dict[str, list[list[str]]] = {}
    for symbols in every:
        first = re.escape(symbols[0]) if symbols[0] not in _HOLES else r"[^\s\\]"
        rest = [_atom(each, firsts) for each in symbols[1:-1]] + [_atom(each, ()) for each in symbols[1:][-1:]]
        if symbols[0] in _HOLES:
            rest.insert(0, r"\S{0,127}")
        tails.setdefault(first, []).append(rest)
    begun = (rf"{first}{stroke}(?=(\\*{_either(sorted(rests))}))" for first, rests in sorted(tails.items()))
    return f"{before}(?:{'|'.join(begun)})"


def _atom(symbol: str, firsts: Collection[str]) -> str:
    r"""Write one symbol as a pattern; behind the first character of some token a backslash may have been put."""
    if symbol in _HOLES:
        return _HOLES[symbol]
    return re.escape(symbol) + (r"\\*" if symbol in firsts else "")


def _either(rests: Sequence[Sequence[str]]) -> str:
    """Write sorted sequences of patterns as one, in which none is tried twice; the longest that fits is taken."""
    same = ""
    while len(rests) and all(rest and rest[0] == rests[0][0] for rest in rests):
        same += rests[0][0]
        rests = [rest[1:] for rest in rests]
    longer = [rest for rest in rests if rest]
    if not longer:
        return same
    ways = "|".join(_either(list(group)) for _, group in groupby(longer, key=lambda rest: rest[0]))
    return f"{same}(?:{ways}){'?' if len(longer) < len(rests) else ''}"
