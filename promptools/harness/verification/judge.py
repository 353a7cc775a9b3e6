"""Grade answers. The rules are the same for answers of the server alone and for answers through promptools.

Only what an OpenAI client receives is graded. Each `judge_...` function returns the first problem in one line, or an
empty string if the answer is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from jsonschema import Draft202012Validator

from promptools.errors import clip
from promptools.json_values import is_array, is_object, reject_constant
from promptools.probing.checks import find_call, find_loss
from promptools.probing.findings import MAX_EVIDENCE, Answer, AnsweredCall

_CONTROL = re.compile(r"<[|｜][a-z_▁]{1,64}[|｜]>|</?tool_call>|\[TOOL_CALLS\]", re.IGNORECASE)
"""Matches markup of chat templates, which no app would show to a user."""


@dataclass(frozen=True, slots=True)
class WantedCall:
    """A call that the answer must contain."""

    tool: Mapping[str, Any]
    """The tool as the request declares it."""
    meant: Mapping[str, Any]
    """The schema that the arguments must conform to, in JSON Schema 2020-12. The schema in `tool` means the same, but
    may be written oddly, for example with the type names of Python."""
    values: Mapping[str, Any] | None = None
    """Values that the arguments must contain; None if it is enough that the arguments conform to the schema.

    The call may have other arguments as well, if these conform to the schema."""
    exact: bool = False
    """Whether text in `values` must be matched exactly. If false, letter case, blanks and a final period may differ."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return str(self.tool["function"]["name"])


def judge_calls(answer: Answer, wanted: Sequence[WantedCall]) -> str:
    """Return what is wrong with an answer that must have exactly the calls `wanted`, in any order."""
    if answer.failed:
        return answer.describe_error()
    if not answer.calls:
        return _why_no_call(answer, wanted[0])
    if len(answer.calls) != len(wanted):
        return f"{_count(len(answer.calls))} instead of {len(wanted)}: {_names(answer)}"
    problems = [_first_problem(answer.calls, order) for order in permutations(wanted)]
    if "" not in problems:
        return problems[0]
    return _stray_markup(answer.content)


def judge_call_of(answer: Answer, choices: Sequence[WantedCall]) -> str:
    """Return what is wrong with an answer that must contain one or more calls, each like one of `choices`."""
    if answer.failed:
        return answer.describe_error()
    if not answer.calls:
        return _why_no_call(answer, choices[0])
    for call in answer.calls:
        problems = [_problem_of(call, wanted) for wanted in choices]
        if "" not in problems:
            return problems[0]
    return ""


def judge_text(answer: Answer, says: str) -> str:
    """Return what is wrong with an answer that must be text without a call.

    The regular expression `says` must match somewhere in the text.
    """
    if answer.failed:
        return answer.describe_error()
    if answer.calls:
        return f"a call that is not wanted: {answer.calls[0]}"
    if not answer.content.strip():
        return find_loss(answer) or "the answer is empty"
    if re.search(says, answer.content, re.IGNORECASE) is None:
        return f"the text is not an answer: {answer.describe_text()}"
    return _stray_markup(answer.content)


def judge_format(answer: Answer, schema: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return what is wrong with an answer whose text must be JSON that conforms to `schema` and contains `values`."""
    if answer.failed:
        return answer.describe_error()
    if answer.calls:
        return f"a call that is not wanted: {answer.calls[0]}"
    try:
        value = json.loads(answer.content, parse_constant=reject_constant)
    except (ValueError, RecursionError):
        return f"the text is not JSON: {answer.describe_text()}"
    return _misfit(value, schema) or _difference(value, values, _same_text)


def _why_no_call(answer: Answer, wanted: WantedCall) -> str:
    """Return why an answer has no call: for example, the call was left in the text, or the model wrote only text."""
    cut = " and was cut off" if answer.cut else ""
    return find_call(answer, dict(wanted.tool)) or find_loss(answer) or f"no call came{cut}: {answer.describe_text()}"


def _first_problem(calls: Sequence[AnsweredCall], order: Sequence[WantedCall]) -> str:
    pairs = zip(calls, order, strict=True)
    return next((problem for call, wanted in pairs if (problem := _problem_of(call, wanted))), "")


def _problem_of(call: AnsweredCall, wanted: WantedCall) -> str:
    if call.name != wanted.name:
        return f"{clip(call.name, 60)!r} was called instead of {wanted.name!r}"
    try:
        arguments = json.loads(call.arguments, parse_constant=reject_constant)
    except (ValueError, RecursionError):
        return f"the arguments are not JSON: {call}"
    if not is_object(arguments):
        return f"the arguments are not an object: {call}"
    if misfit := _misfit(arguments, wanted.meant):
        return f"{misfit}: {call}"
    same = str.__eq__ if wanted.exact else _same_text
    difference = "" if wanted.values is None else _difference(arguments, wanted.values, same)
    return f"{difference}: {call}" if difference else ""


def _misfit(value: Any, schema: Mapping[str, Any]) -> str:
    """Return where a value violates its schema; empty if it conforms."""
    validator: Any = Draft202012Validator(schema)
    error = next(iter(validator.iter_errors(value)), None)
    if error is None:
        return ""
    return f"{error.json_path} does not fit the schema ({clip(error.message, MAX_EVIDENCE)})"


def _difference(value: Any, wanted: Mapping[str, Any], same: Callable[[str, str], bool]) -> str:
    """Describe the first key of `wanted` that `value` lacks or has with a different value; empty if there is none."""
    for name, expected in wanted.items():
        if name not in value:
            return f"{name} is missing"
        if not _equal(value[name], expected, same):
            return f"{name} is not {clip(json.dumps(expected, ensure_ascii=False), 80)}"
    return ""


def _equal(value: Any, expected: Any, same: Callable[[str, str], bool]) -> bool:
    if isinstance(expected, str):
        return isinstance(value, str) and same(value, expected)
    if is_object(expected):
        return is_object(value) and not _difference(value, expected, same)
    if is_array(expected):
        return (
            is_array(value)
            and len(value) == len(expected)
            and all(_equal(one, other, same) for one, other in zip(value, expected, strict=True))
        )
    return isinstance(value, bool) == isinstance(expected, bool) and value == expected


def _same_text(one: str, other: str) -> bool:
    """Return whether two texts are equal apart from letter case, blanks and a final period."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return " ".join(text.split()).removesuffix(".").casefold()


def _stray_markup(text: str) -> str:
    found = _CONTROL.search(text)
    return f"markup is in the text: {clip(text[found.start() :], 80)!r}" if found else ""


def _count(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls} calls"


def _names(answer: Answer) -> str:
    return ", ".join(clip(call.name, 60) for call in answer.calls)
