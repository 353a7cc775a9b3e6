"""Collect the markup that a dialect writes around calls and results. Content must not contain this markup unescaped.

The markup is extracted from what the dialect renders, so this works for an app's own dialects too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from promptools import dialects
from promptools.errors import UsageError
from promptools.parsing.escape import is_valid_token
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set


_ID, _NAME, _KEY, _NUMBER, _TEXT = "qidqidqid", "qnameq", "qkeyq", "qnumq", "qtextq"
_CALL: Final = Call(_ID, _NAME, {_KEY: _TEXT, _NUMBER: 1}, f'{{"{_KEY}": "{_TEXT}", "{_NUMBER}": 1}}')
_RESULTS: Final = [Result(_ID, _NAME, _TEXT), Result(_ID, _NAME, _TEXT)]
_NAMES = lazy_pattern(f"{_ID}|{_NAME}")
_DIGITS = lazy_pattern("[0-9]+")
_VALUE = lazy_pattern("|".join((_ID, _NAME, _KEY, _NUMBER, _TEXT)))
_TOKEN = lazy_pattern(
    r"\]<\]\w+\[>\["  # MiniMax M3
    r"|</?[^\s<>\"'=]*(?:<[^\s<>\"'=]*>)?[^\s<>\"'=]*[>=]"  # a tag, closed or with its name after an equals sign
    r"|<[^\s<>\"'=]+:(?=\s)"  # CWM, with or without the space
    r"|<[^\s<>\"'=]+\s"  # the beginning of a tag with attributes
    r"|\[/?[A-Z_]+\]"
    r"|\[unused[0-9]+\]"  # openPangu
    r"|✿[A-Z]+✿"
)
_CALL_LABEL = lazy_pattern(r"(?:\*\*)?[A-Z][\w ]*:|>>>|-> [\w/]+|[a-z]+\[(?=\{)|`{3}(?!json\b)\w+")
"""Matches how a line of a call may begin: a label such as `Action:`, or a code fence whose label is not `json`."""
_TOOL_TAG = lazy_pattern(rf"</?{_NAME}(?=>)")
_TAG_ENDS = (">", "/", " ", "\n")
"""What may follow the name in an opening tag: the end of the tag, or white space before attributes."""
_RESULT_LABEL = lazy_pattern(r"\{name\} \w|[^\W\d]\w+\b|#+ \w|\[\{name\}\] \w|`{3}")
"""Matches how a line of a result may begin if the line has no tags: with words, a heading or a code fence."""


class WrittenMarkup(NamedTuple):
    """Holds the markup of a dialect: tokens such as `<tool_call>`, and labels that begin a line, such as `Action:`.

    They have the form that `promptools.parsing.escape` expects.
    """

    tokens: frozenset[str]
    labels: frozenset[str]


NO_MARKUP: Final = WrittenMarkup(frozenset(), frozenset())


def written_markup(name: str, tool_names: Iterable[str] = ()) -> WrittenMarkup:
    """Return the markup of a dialect, for tools with these names; `NO_MARKUP` for a dialect that can only be read."""
    markup, tool_tags, own_names = _markers(name, dialects.edition())
    if not tool_tags:
        return markup
    tags = (tag.replace(_NAME, tool) for tool in (*tool_names, *own_names) for tag in tool_tags)
    return markup._replace(tokens=markup.tokens.union(filter(is_valid_token, tags)))


class _Markers(NamedTuple):
    """Holds the markup that a dialect writes.

    `markup` is the same for all tools. The other fields are for tags that are named after a tool.
    """

    markup: WrittenMarkup
    tool_tags: Set[str] = frozenset()
    """Tags that are named after the tool, with `_NAME` as the tool's name; empty if calls contain other tokens."""
    own_names: tuple[str, ...] = ()
    """Names that the dialect defines and that may be in the tags, such as `use_mcp_tool`."""


@lru_cache(maxsize=128)
def _markers(name: str, edition: dialects.Edition) -> _Markers:
    del edition  # a cache key: an app may remove a dialect and add another of the same name
    dialect = dialects.get(name)
    try:
        calls, results = dialect.render_calls([_CALL]), dialect.render_results(_RESULTS)
    except UsageError:
        return _Markers(NO_MARKUP)
    closers = (token for marker in (*dialect.closers, *dialect.stop) for token in _TOKEN.findall(marker))
    around_calls = {*_tokens(calls)}
    tokens = {*around_calls, *_tokens(results), *closers}
    labels = {*_call_labels(calls), *_result_labels(results)}
    markup = WrittenMarkup(frozenset(filter(is_valid_token, tokens)), frozenset(labels))
    if around_calls:
        return _Markers(markup)
    return _Markers(markup, _tool_tags(calls), tuple(word for head in dialect.heads for word in head.first_words))


def _tokens(text: str) -> Iterator[str]:
    return (token for token in _TOKEN.findall(text) if not _VALUE.search(token))


def _tool_tags(calls: str) -> Set[str]:
    """Return the tags named after the tool in a rendered call.

    An opening tag is returned several times, once with each of `_TAG_ENDS`; a closing tag only once, with `>`.
    """
    tags: set[str] = {*_TOOL_TAG.findall(calls)}
    return {tag + end for tag in tags for end in (_TAG_ENDS if tag[1] != "/" else _TAG_ENDS[:1])}


def _call_labels(text: str) -> Iterator[str]:
    matches = (_CALL_LABEL.match(line) for line in text.splitlines())
    return (match[0] for match in matches if match is not None)


def _result_labels(text: str) -> Iterator[str]:
    """Yield the label of each line in rendered results: the part of the line before the content."""
    for line in text.splitlines():
        fixed, content, _ = line.partition(_TEXT)
        label = _DIGITS.sub("{n}", _NAMES.sub("{name}", fixed)).rstrip()
        if _RESULT_LABEL.match(label):
            yield label if content else f"{label}\n"
