r"""Escape markup in untrusted text so that the change is visible, and undo it exactly.

There are two kinds of markup. A token is markup wherever it occurs: `<|im_end|>`, `[TOOL_CALLS]`, `</tool_response>`. A
label is markup only at the beginning of a line: `Observation:`. Escaping inserts a backslash after the first character
of a token or label: `<\|im_end|>`, `O\bservation:`.

Why `unescape` is exact: `escape` inserts backslashes only after the first character of a token or label. Both functions
look for markup as if the backslashes at such places were absent. So an escaped text has markup at the same places as
before, each with one more backslash, which `unescape` removes. Text that was escaped before gets a second backslash.

A label that begins with three backticks stands for a code fence. It also matches other forms that may be read as this
fence: more than three backticks, tildes in place of backticks, letters in either case, and white space between the
backticks and the word after them. The backslash goes before the last two backticks or tildes, so that no run of three
is left in front of the word: ``` ``\``tool_code ```.

In a token, `{n}` matches a number, and `{word}` matches letters, digits and `_:/.-`. In a label, `{name}` matches up to
128 characters without white space, and a trailing `\n` matches the end of the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Final, TypeAlias

from promptools.patterns import lazy_pattern

MAX_TOKEN_LENGTH: Final = 128
"""Maximum number of characters of a token."""
EscapeCallback: TypeAlias = Callable[[str], None]
r"""A callback that gets each escaped form of a token or label, such as `<\|im_end|>`."""

FENCE: Final = "```"
_SYMBOL = lazy_pattern(r"\{(?:n|word|name)\}|.", re.DOTALL)
_HOLES: Final = {
    "{n}": "[0-9]+",
    "{word}": r"[\w:/.\\\u2581-]+",
    "{name}": r"\S{1,128}",
    "\n": r"(?=[ \t]*(?:[\r\n]|\Z))",
}
_LINE: Final = r"(?<![^\r\n\v\f\x85\u2028\u2029])[ \t]*"
"""The pattern of the beginning of a line, and its indent.

A line begins after every character that any reader of the text may treat as a line break.
"""


def is_valid_token(token: str) -> bool:
    """Return whether `token` can be escaped as a token.

    It must have 2 to `MAX_TOKEN_LENGTH` characters and no backslash, and must not begin with a digit, white space or a
    placeholder such as `{n}`.
    """
    return 1 < len(token) <= MAX_TOKEN_LENGTH and "\\" not in token and not re.match(r"\s|\d|\{(?:n|word)\}", token)


@lru_cache(maxsize=256)
def markup_escaper(tokens: frozenset[str], labels: frozenset[str] = frozenset()) -> MarkupEscaper:
    """Return the `MarkupEscaper` for these tokens and labels. The result is cached."""
    return MarkupEscaper(tokens, labels)


class MarkupEscaper:
    """Finds, escapes and unescapes a set of tokens and labels in texts. Each method is O(n) in characters."""

    def __init__(self, tokens: Collection[str], labels: Collection[str] = ()) -> None:
        self._tokens = _MarkupPatterns(tokens) if tokens else None
        fences = frozenset(label for label in labels if label.startswith(FENCE))
        kinds = (_MarkupPatterns(frozenset(labels) - fences, _LINE), _FencePatterns(fences))
        self._kinds: list[_MarkupPatterns] = [kind for kind in kinds if kind.texts]
        if self._tokens is not None:
            self._kinds.append(self._tokens)

    def is_in(self, text: str) -> bool:
        """Return whether `text` contains markup, escaped or not."""
        return any(kind.is_in(text) for kind in self._kinds)

    def find_unescaped(self, text: str) -> list[str]:
        """Return each occurrence of a token or label in `text` that is not escaped."""
        return [token for kind in self._kinds for token in kind.find_unescaped(text)]

    def escape(self, text: str, on_escape: EscapeCallback | None = None) -> str:
        """Return `text` with its markup escaped; without markup, `text` itself. `on_escape` gets each escaped form."""
        for kind in self._kinds:
            text = kind.escape(text, on_escape)
        return text

    def escape_parts(self, texts: list[str], on_escape: EscapeCallback | None = None) -> list[str]:
        """Escape texts that may be joined later; a token that spans two of them is escaped too."""
        if self._tokens is None or not self._tokens.is_in("".join(texts)):
            return [self.escape(text, on_escape) for text in texts]
        for kind in self._kinds[:-1]:
            texts = [kind.escape(text, on_escape) for text in texts]
        return self._tokens.escape_parts(texts, on_escape)

    def escape_json(self, text: str) -> str:
        r"""Escape the tokens in JSON text; the JSON value stays the same.

        The first character of each token is replaced with an escape such as `\u003c`.
        """
        return self._tokens.escape_json(text) if self._tokens is not None else text

    def unescape(
        self, text: str, only: Collection[str] | None = None, on_unescape: EscapeCallback | None = None
    ) -> str:
        """Undo `escape`, for all escaped forms or for those in `only`. `on_unescape` gets each form that was undone."""
        for kind in reversed(self._kinds):
            text = kind.unescape(text, only, on_unescape)
        return text

    def may_be_in_json(self, json_text: str) -> bool:
        """Return whether the strings of the JSON `json_text` may contain markup.

        The check is cheap, because the JSON is searched as one text.
        """
        return any(kind.may_be_in_json(json_text) for kind in self._kinds)


class _MarkupPatterns:
    """Holds the regular expressions that find tokens, or labels, in a text.

    A match ends after the first character of a token or label; its last group is the rest of the token or label.
    """

    def __init__(self, texts: Collection[str], before: str = "") -> None:
        self.texts = texts
        self._before = before
        self._hints = tuple(_longest_literal(_SYMBOL.findall(text)) for text in texts) if before else ()
        self._quoted = tuple(text for text in texts if '"' in text)

    @cached_property
    def _marked(self) -> re.Pattern[str]:
        return re.compile(self._pattern(""))

    @cached_property
    def _escaped(self) -> re.Pattern[str]:
        return re.compile(self._pattern(r"\\"))

    @cached_property
    def _gate(self) -> re.Pattern[str]:
        """A fast pattern for the first two characters of a token. If it finds nothing, the text has no token."""
        seconds: dict[str, set[str]] = {}
        for first, *rest in map(_SYMBOL.findall, self.texts):
            second = _atom(rest[0], ()) if rest and first not in _HOLES else ""
            seconds.setdefault(_first_atom(first), set()).add(second)
        branches = (
            first if "" in nexts else rf"{first}(?=\\*(?:{'|'.join(sorted(nexts))}))"
            for first, nexts in sorted(seconds.items())
        )
        return re.compile("|".join(branches))

    def _pattern(self, backslash: str) -> str:
        every: list[list[str]] = [_SYMBOL.findall(text) for text in self.texts]
        firsts = set[str]() if self._before else {symbols[0] for symbols in every}
        return _pattern(every, firsts, self._before, backslash)

    def is_in(self, text: str) -> bool:
        if self._hints:
            return any(hint in text for hint in self._hints) and self._marked.search(text) is not None
        begin = self._gate.search(text)
        return begin is not None and self._marked.search(text, begin.start()) is not None

    def may_be_in_json(self, json_text: str) -> bool:
        if self._hints:
            return any(hint in json_text for hint in self._hints)
        if self._quoted:
            bare = json_text.replace("\\", "")  # removes the backslashes of JSON, and those of tokens already escaped
            if any(token in bare for token in self._quoted):
                return True
        return self.is_in(json_text)

    def find_unescaped(self, text: str) -> list[str]:
        matches = self._marked.finditer(text)
        return [match[0][-1] + _rest_of_token(match) for match in matches if not _rest_of_token(match).startswith("\\")]

    def escape(self, text: str, on_escape: EscapeCallback | None) -> str:
        if not self.is_in(text):
            return text

        def mark(match: re.Match[str]) -> str:
            if on_escape is not None:
                on_escape(f"{match[0][-1]}\\{_rest_of_token(match)}")
            return f"{match[0]}\\"

        return self._marked.sub(mark, text)

    def escape_parts(self, texts: list[str], on_escape: EscapeCallback | None) -> list[str]:
        """Escape the joined text, then split it at the same borders as before."""
        whole = "".join(texts)
        ends: list[int] = []
        for match in self._marked.finditer(whole):
            ends.append(match.end())
            if on_escape is not None:
                on_escape(f"{match[0][-1]}\\{_rest_of_token(match)}")
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
        return self._marked.sub(lambda match: f"{match[0][:-1]}\\u{ord(match[0][-1]):04x}", text)

    def unescape(self, text: str, only: Collection[str] | None, on_unescape: EscapeCallback | None) -> str:
        def unmark(match: re.Match[str]) -> str:
            form = f"{match[0][-2:]}{_rest_of_token(match)}"
            if only is not None and form not in only:
                return match[0]
            if on_unescape is not None:
                on_unescape(form)
            return match[0][:-1]

        return self._escaped.sub(unmark, text) if self.is_in(text) else text


class _FencePatterns(_MarkupPatterns):
    """Holds the patterns for labels that begin with a code fence; `_MarkupPatterns` has those for other labels."""

    def __init__(self, labels: Collection[str]) -> None:
        super().__init__(labels, _LINE)
        self._hints = (FENCE[1:], "~~")  # the backslash goes before these two characters

    def _pattern(self, backslash: str) -> str:
        return _fence_pattern(self.texts, backslash)


def _rest_of_token(match: re.Match[str]) -> str:
    assert match.lastindex is not None
    return match[match.lastindex]


def _longest_literal(symbols: Sequence[str]) -> str:
    """Return the longest text without placeholders after a label's first character; each match contains this text."""
    runs = ("".join(run) for hole, run in groupby(symbols[1:], _HOLES.__contains__) if not hole)
    return max(runs, key=len, default="")


def _pattern(symbol_lists: Iterable[Sequence[str]], firsts: Collection[str], before: str, backslash: str) -> str:
    """Build a pattern that matches the first character of a token or label, followed by `backslash`.

    `symbol_lists` has the symbols of each token or label. A symbol is a character, or a placeholder such as `{n}`.
    """
    tails: dict[str, list[list[str]]] = {}
    for symbols in symbol_lists:
        first = _first_atom(symbols[0])
        rest = [_atom(symbol, firsts) for symbol in symbols[1:-1]] + [_atom(symbol, ()) for symbol in symbols[1:][-1:]]
        if symbols[0] in _HOLES:
            rest.insert(0, r"\S{0,127}")
        tails.setdefault(first, []).append(rest)
    branches = (rf"{first}{backslash}(?=(\\*{_prefix_tree(sorted(rests))}))" for first, rests in sorted(tails.items()))
    return f"{before}(?:{'|'.join(branches)})"


def _fence_pattern(labels: Iterable[str], backslash: str) -> str:
    """Build the pattern of a fence with one of `labels`.

    The pattern matches the fence up to its last two characters, then `backslash`; those two characters and the label
    must follow. An empty label, which is that of a closing fence, is matched only after backticks: tildes open a fence,
    but do not close a fence that backticks opened.
    """
    rests = sorted(label.removeprefix(FENCE) for label in labels)
    branches: list[str] = []
    for character, own in (("`", rests), ("~", [rest for rest in rests if rest.strip()])):
        patterns = "|".join("".join(map(_fence_atom, _SYMBOL.findall(rest))) for rest in own)
        if patterns:
            branches.append(rf"{character}+{backslash}(?=(\\*{character * 2}[ \t]*(?i:{patterns})))")
    return f"{_LINE}(?:{'|'.join(branches) or '(?!)'})"


def _fence_atom(symbol: str) -> str:
    return _HOLES.get(symbol) or re.escape(symbol)


def _first_atom(symbol: str) -> str:
    return r"[^\s\\]" if symbol in _HOLES else re.escape(symbol)


def _atom(symbol: str, firsts: Collection[str]) -> str:
    """Build the pattern of a character or a placeholder.

    `firsts` contains the characters that tokens begin with. After such a character, the pattern allows backslashes.
    """
    if symbol in _HOLES:
        return _HOLES[symbol]
    return re.escape(symbol) + (r"\\*" if symbol in firsts else "")


def _prefix_tree(rests: Sequence[Sequence[str]]) -> str:
    """Merge sorted sequences of patterns into a prefix tree, which tries no pattern twice.

    The tree finds the longest match.
    """
    prefix = ""
    while len(rests) and all(rest and rest[0] == rests[0][0] for rest in rests):
        prefix += rests[0][0]
        rests = [rest[1:] for rest in rests]
    longer = [rest for rest in rests if rest]
    if not longer:
        return prefix
    branches = "|".join(_prefix_tree(list(group)) for _, group in groupby(longer, key=lambda rest: rest[0]))
    return f"{prefix}(?:{branches}){'?' if len(longer) < len(rests) else ''}"
