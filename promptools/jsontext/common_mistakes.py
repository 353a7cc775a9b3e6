"""Repair the four mistakes that models make throughout a value, in one run of text at a time.

They are single quotes as Python prints them, Python's literals, trailing commas and unquoted keys. A *run* is text of
strict JSON and of these mistakes, brackets included, two levels deep. One match finds a run, and one call of the regex
engine lists the mistakes in it, so that a row of a table that is wrong in five places takes no step of the reader (see
`repair`). A run says nothing about grammar: whether a comma or a colon is due is left to `json`.
"""

from __future__ import annotations

import re
from typing import Final

from promptools.jsontext.strings import STRICT_STRING, FixLog
from promptools.patterns import lazy_pattern

PYTHON_LITERALS: Final = {"True": "true", "False": "false", "None": "null"}

_BLANKS = r"[ \t\n\r]*+"
_NEXT_ITEM = rf"(?={_BLANKS}[\"'\[{{\w-])"
_NEXT_ITEM_OR_CLOSER = rf"(?={_BLANKS}[\"'\[{{\w}}\]-])"
_SINGLE_QUOTED = r"'[^'\"\\\x00-\x1f]*+'"
"""A string in single quotes that contains no quote of any kind and no escape."""
_NOT_TRIPLE_QUOTES = r"(?!\"\"\"|''')"
_NUMBER = r"-?[0-9][0-9.eE+-]*+"
_LITERAL = r"(?:true|false|null)\b(?!\s*+:)"
_PYTHON_LITERAL = r"(?:True|False|None)\b(?!\s*+:)"
_UNQUOTED_KEY = rf"(?<![\w.+-])[^\W\d][\w$-]*+(?={_BLANKS}:)"
_BETWEEN_ITEMS = rf"[ \t\n\r:]++|,{_NEXT_ITEM}"


def _compile_run() -> re.Pattern[str]:
    """Compile what is matched at once. A comma at its end is never a trailing one: that is left to the reader."""
    scalar = rf"{_NOT_TRIPLE_QUOTES}(?:{STRICT_STRING}|{_SINGLE_QUOTED})|{_NUMBER}|{_LITERAL}|{_PYTHON_LITERAL}"
    item = run = scalar = rf"{scalar}|{_UNQUOTED_KEY}"
    for may_follow_comma in (_NEXT_ITEM_OR_CLOSER, _NEXT_ITEM_OR_CLOSER, _NEXT_ITEM):
        after_item = rf"{_BLANKS}(?::[ \t\n\r:]*+|,{may_follow_comma}{_BLANKS})?+"
        run = rf"(?:{item}){after_item}|{_BETWEEN_ITEMS}"
        item = rf"{scalar}|\{{(?!\{{)(?:{run})*+\}}|\[(?:{run})*+\]"
    return re.compile(rf"(?:{run})*+")


RUN: Final = _compile_run()
"""Strict JSON and common mistakes, with two levels of brackets."""
STRICT_RUN: Final = lazy_pattern(rf"(?:{_NUMBER}|{_LITERAL}|{_BETWEEN_ITEMS})*+")
"""Strict JSON up to a string or a bracket."""

_NEXT_MISTAKE = lazy_pattern(
    rf"((?:{STRICT_STRING}|[ \t\n\r:{{}}\[\]0-9.+-]++|(?<=[0-9.+-])[eE]++|{_LITERAL}|,(?!{_BLANKS}[}}\]]))*+)"
    rf"(?:({_PYTHON_LITERAL}|,)|({_SINGLE_QUOTED}|[^\W\d][\w$-]*+)|)"
)
"""What is strict in a run, and then a literal or a trailing comma, a string or a key, or nothing at its end."""
_REPAIRS: Final = {
    ",": ("trailing comma", " "),
    **{python: ("Python literal", literal) for python, literal in PYTHON_LITERALS.items()},
}
"""By literal or comma, the fix and what replaces it."""


def repair_run(text: str, start: int, end: int, fix_log: FixLog) -> tuple[list[str], list[str]]:
    """Repair the run `text[start:end]`; return its pieces, and what each of them becomes. O(n) in characters."""
    source: list[str] = []
    repaired: list[str] = []
    counts: dict[str, int] = {}
    for strict, token, bare in _NEXT_MISTAKE.findall(text, start, end):
        if token:
            detail, repair = _REPAIRS[token]
        elif bare.startswith("'"):
            detail, repair = "single quotes", f'"{bare[1:-1]}"'
        elif bare:
            detail, repair = "unquoted key", f'"{bare}"'
        else:
            detail, repair = "", ""
        counts[detail] = counts.get(detail, 0) + 1
        source += (strict, token or bare)
        repaired += (strict, repair)
    counts.pop("", None)
    for detail, count in counts.items():
        fix_log.add(detail, count=count)
    return source, repaired
