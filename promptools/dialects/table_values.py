"""What a value in a dialect's table may be: predicates, and the texts of what is expected instead.

They accept whatever TOML can hold, and never raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from promptools.dialects.readers.json_block.block_markers import GAP_CHARACTERS
from promptools.json_values import is_array, is_object

MIN_MARKER: Final = 2
MAX_MARKER: Final = 128
"""Characters of a marker: no more than this is ever held back."""
SUFFIX: Final = "{suffix}>"
"""The end of a tag of reasoning that may have any suffix."""


class TableKey(NamedTuple):
    """One key of a table: the text of what its value must be, the predicate that checks it, and what it is for."""

    expected: str
    is_valid: Callable[[Any], bool]
    meaning: str = ""

    def means(self, meaning: str) -> TableKey:
        """Return the key with its meaning."""
        return self._replace(meaning=meaning)


def is_text(value: Any) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def is_texts(value: Any) -> bool:
    """Return whether a value is a list of texts."""
    return is_array(value) and all(isinstance(item, str) for item in value)


def is_marker(value: Any) -> bool:
    """Return whether a value can be a marker."""
    return isinstance(value, str) and MIN_MARKER <= len(value) <= MAX_MARKER and value == value.strip()


def is_name(value: Any) -> bool:
    """Return whether a value can be the name of a dialect."""
    return isinstance(value, str) and value.isidentifier()


def is_label(value: Any) -> bool:
    """Return whether a value can begin a line: words that begin with a letter."""
    return is_marker(value) and value[0].isalpha() and all(char.isalnum() or char in " _.:/-" for char in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_white_space(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _is_openers(value: Any) -> bool:
    if not is_object(value) or not value:
        return False
    return all(is_marker(opener) and (closer == "" or is_marker(closer)) for opener, closer in value.items())


def _is_json_openers(value: Any) -> bool:
    if not is_object(value) or not value:
        return False
    marked = {opener: closer for opener, closer in value.items() if opener or closer}
    return not marked or (_is_openers(marked) and are_json_closers(list(marked.values())))


def are_json_closers(value: Any) -> bool:
    """Return whether a value is texts that can come after JSON: surplus brackets and separators are a part of it."""
    return is_texts(value) and not any(text.lstrip().startswith(tuple(GAP_CHARACTERS)) for text in value)


def _is_text_not_empty(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_texts_not_empty(value: Any) -> bool:
    return is_texts(value) and bool(value)


def _is_literal(value: Any) -> bool:
    return isinstance(value, str) and MIN_MARKER <= len(value) <= MAX_MARKER and bool(value.strip())


def _are_literals(value: Any) -> bool:
    return is_array(value) and all(map(_is_literal, value))


def _are_tags(value: Any) -> bool:
    return is_object(value) and all(is_marker(closer) and _is_tag(opener, closer) for opener, closer in value.items())


def _are_optional_tags(value: Any) -> bool:
    return is_object(value) and all(
        is_marker(opener) and (closer == "" or is_marker(closer)) for opener, closer in value.items()
    )


def _is_tag(opener: str, closer: str) -> bool:
    """Return whether these can be tags around reasoning: with a suffix, or both without."""
    starts = opener.removesuffix(SUFFIX), closer.removesuffix(SUFFIX)
    return all(map(is_marker, starts)) and opener.endswith(SUFFIX) == closer.endswith(SUFFIX)


def _are_markers(value: Any) -> bool:
    return is_array(value) and all(map(is_marker, value))


SIZES: Final = f"{MIN_MARKER} to {MAX_MARKER} characters without white space around"
TEXT: Final = TableKey("a text", is_text)
TEXT_NOT_EMPTY: Final = TableKey("a text that is not empty", _is_text_not_empty)
TEXTS: Final = TableKey("a list of texts", is_texts)
TEXTS_NOT_EMPTY: Final = TableKey("a list of texts that is not empty", _is_texts_not_empty)
FLAG: Final = TableKey("true or false", _is_flag)
NAME: Final = TableKey("a name of letters, digits and _", is_name)
WHITE_SPACE: Final = TableKey("a text of white space", _is_white_space)
LABEL: Final = TableKey(f"words that begin with a letter, {SIZES}", is_label)
MARKERS: Final = TableKey(f"a list of texts, each {SIZES}", _are_markers)
LITERALS: Final = TableKey(f"a list of texts, each {MIN_MARKER} to {MAX_MARKER} characters", _are_literals)
TAGS: Final = TableKey(f"a table of opening tags and their closing tags, each {SIZES}", _are_tags)
OPTIONAL_TAGS: Final = TableKey(f"a table of opening tags and their closing tags, each {SIZES}", _are_optional_tags)
NO_BRACKET: Final = f"beginning with none of {' '.join(GAP_CHARACTERS)}"
JSON_OPENERS: Final = TableKey(
    f"a table of openers and their closers, each {SIZES}, the closers {NO_BRACKET}", _is_json_openers
)
JSON_CLOSERS: Final = TableKey(f"a list of texts {NO_BRACKET}", are_json_closers)
OPENERS: Final = TableKey(f"a table of openers and their closers, each {SIZES}", _is_openers)


def one_of(*words: str) -> TableKey:
    """Return a key whose value is one of these words."""

    def is_one(value: Any) -> bool:
        return isinstance(value, str) and value in words

    *others, last = map(repr, words)
    return TableKey(f"{', '.join(others)} or {last}", is_one)


def texts(*sizes: int) -> TableKey:
    """Return a key whose value is a list of texts, with one of these lengths."""
    numbers = {1: "one text", 2: "two texts", 3: "three texts"}

    def are_texts(value: Any) -> bool:
        return is_array(value) and is_texts(value) and len(value) in sizes

    return TableKey(f"a list of {' or '.join(numbers[size].removesuffix(' texts') for size in sizes)} texts", are_texts)


def template(*keys: str) -> TableKey:
    """Return a key whose value is a template with at least one of these keys in it."""

    def is_template(value: Any) -> bool:
        return isinstance(value, str) and any(f"{{{key}}}" in value for key in keys)

    return TableKey(f"a text with {' or '.join(f'{{{key}}}' for key in keys)} in it", is_template)


def text_table(*keys: str) -> TableKey:
    """Return a key whose value is a table of texts, with some of these keys."""

    def is_table(value: Any) -> bool:
        return is_object(value) and all(key in keys and isinstance(text, str) for key, text in value.items())

    return TableKey(f"a table of texts; its keys are {', '.join(keys)}", is_table)
