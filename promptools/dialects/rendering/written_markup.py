"""Collect the markup that a dialect writes around calls and results, which no content may contain unescaped.

It is extracted from what the dialect renders, so it works for an app's own dialects too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from promptools import dialects
from promptools.errors import UsageError
from promptools.parsing.escape import is_valid_token
from promptools.types import Call, Result

if TYPE_CHECKING:
    from collections.abc import Iterator


_ID, _NAME, _KEY, _NUMBER, _TEXT = "qidqidqid", "qnameq", "qkeyq", "qnumq", "qtextq"
_CALL: Final = Call(_ID, _NAME, {_KEY: _TEXT, _NUMBER: 1}, f'{{"{_KEY}": "{_TEXT}", "{_NUMBER}": 1}}')
_RESULTS: Final = [Result(_ID, _NAME, _TEXT), Result(_ID, _NAME, _TEXT)]
_NAMES = re.compile(f"{_ID}|{_NAME}")
_DIGITS = re.compile("[0-9]+")
_VALUE = re.compile("|".join((_ID, _NAME, _KEY, _NUMBER, _TEXT)))
_TOKEN = re.compile(
    r"\]<\]\w+\[>\["  # MiniMax M3
    r"|</?[^\s<>\"'=]*(?:<[^\s<>\"'=]*>)?[^\s<>\"'=]*[>=]"  # a tag, closed or with its name after an equals sign
    r"|<[^\s<>\"'=]+\s"  # the beginning of a tag with attributes
    r"|\[/?[A-Z_]+\]"
    r"|✿[A-Z]+✿"
)
_CALL_LABEL = re.compile(r"[A-Z][\w ]*:|>>>|-> [\w/]+|[a-z]+\[(?=\{)")
_RESULT_LABEL = re.compile(r"\{name\} \w|[^\W\d]\w+\b|#+ \w|\[\{name\}\] \w|`{3}")
"""The beginning of a line of a result that only its text, or a code fence, tells from the content."""


class WrittenMarkup(NamedTuple):
    """Tokens and labels, as `promptools.parsing.escape` expects them."""

    tokens: frozenset[str]
    labels: frozenset[str]


NO_MARKUP: Final = WrittenMarkup(frozenset(), frozenset())


def written_markup(name: str) -> WrittenMarkup:
    """Return the markup of a dialect; none for one that can only be read."""
    return _markers(name, dialects.edition())


@lru_cache(maxsize=128)
def _markers(name: str, edition: dialects.Edition) -> WrittenMarkup:
    del edition  # a cache key: an app may remove a dialect and add another of the same name
    dialect = dialects.get(name)
    try:
        calls, results = dialect.render_calls([_CALL]), dialect.render_results(_RESULTS)
    except UsageError:
        return NO_MARKUP
    closers = (token for marker in (*dialect.closers, *dialect.stop) for token in _TOKEN.findall(marker))
    tokens = {*_tokens(calls), *_tokens(results), *closers}
    labels = {*_call_labels(calls), *_result_labels(results)}
    return WrittenMarkup(frozenset(filter(is_valid_token, tokens)), frozenset(labels))


def _tokens(text: str) -> Iterator[str]:
    return (token for token in _TOKEN.findall(text) if not _VALUE.search(token))


def _call_labels(text: str) -> Iterator[str]:
    matches = (_CALL_LABEL.match(line) for line in text.splitlines())
    return (match[0] for match in matches if match is not None)


def _result_labels(text: str) -> Iterator[str]:
    """Yield the labels of rendered results: lines that begin with text, up to the content."""
    for line in text.splitlines():
        fixed, content, _ = line.partition(_TEXT)
        label = _DIGITS.sub("{n}", _NAMES.sub("{name}", fixed)).rstrip()
        if _RESULT_LABEL.match(label):
            yield label if content else f"{label}\n"
