"""Whether an answer is right: exact calls, with the alternatives that a question allows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, Literal

from benchmarks.models.question import Due, Question

Outcome = Literal["right", "no call", "needless call", "too few", "too many", "tool", "arguments", "answer", "error"]
"""Right, or the first thing that is wrong."""

CallMade = Mapping[str, Any]
"""A `name` and its `arguments`: an object, or the raw text if the arguments are not valid JSON."""


def judge(question: Question, calls: Sequence[CallMade], content: str) -> Outcome:
    """Return whether an answer is right, or what is wrong with it."""
    if not question.due:
        return _without_calls(question, calls, content)
    if not calls:
        return "no call"
    if len(calls) != len(question.due):
        return "too few" if len(calls) < len(question.due) else "too many"
    if sorted(call["name"] for call in calls) != sorted(due.name for due in question.due):
        return "tool"
    orders = permutations(question.due)
    if any(all(meets(call, due) for call, due in zip(calls, order, strict=True)) for order in orders):
        return "right"
    return "arguments"


def meets(call: CallMade, due: Due) -> bool:
    """Whether a call is the call that is due."""
    arguments = call["arguments"]
    if call["name"] != due.name or not isinstance(arguments, dict) or not due.arguments.keys() <= arguments.keys():
        return False
    expected = {**due.optional, **due.arguments}
    given = {name: value for name, value in arguments.items() if value is not None or name in due.arguments}
    return all(name in expected and matches(value, expected[name]) for name, value in given.items())


def matches(value: Any, expected: Any) -> bool:
    """Whether a value is the expected one.

    `{"any": [..]}` means alternatives, and `{"like": ".."}` means text that matches a regular expression. Case, extra
    blanks and a final full stop are ignored in text. Numbers are compared by their value.
    """
    match expected:
        case {"any": [*alternatives], **others} if not others:
            return any(matches(value, each) for each in alternatives)
        case {"like": str(pattern), **others} if not others:
            return isinstance(value, str) and re.search(pattern, _trimmed(value), re.IGNORECASE) is not None
        case dict():
            return isinstance(value, dict) and value.keys() == expected.keys() and _all_match(value, expected)
        case list():
            pairs = isinstance(value, list) and len(value) == len(expected) and zip(value, expected, strict=True)
            return bool(pairs) and all(matches(*pair) for pair in pairs)
        case bool() | None:
            return value is expected
        case int() | float():
            return isinstance(value, int | float) and not isinstance(value, bool) and value == expected
        case _:
            return isinstance(value, str) and _plain(value) == _plain(expected)


def _without_calls(question: Question, calls: Sequence[CallMade], content: str) -> Outcome:
    if calls:
        return "needless call"
    answer = content.strip()
    fits = question.says is None or re.search(question.says, answer, re.IGNORECASE) is not None
    return "right" if answer and fits else "answer"


def _all_match(value: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return all(matches(value[key], each) for key, each in expected.items())


def _trimmed(text: str) -> str:
    return text.strip().removesuffix(".")


def _plain(text: str) -> str:
    return " ".join(_trimmed(text).split()).casefold()
