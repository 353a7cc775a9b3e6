"""Find tool results that report a failed call, by a field that some clients send or by the text of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from promptools.json_values import is_object, try_json
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptools.modes.history import Turn
    from promptools.types import Result

_ERROR_TEXT = lazy_pattern(r"\s*(?:[A-Za-z.]*Error|error|ERROR)(?: executing tool [^:\n]+)?:")
"""Matches the beginning of an error: `error:`, Python's `ValueError:`, or FastMCP's `Error executing tool NAME:`."""


class AnsweredStep(NamedTuple):
    """Holds the names of the tools whose calls failed in one reply, and of the tools whose calls all succeeded."""

    failed: tuple[str, ...]
    succeeded: tuple[str, ...]


def answered_steps(turns: Sequence[Turn]) -> Iterator[AnsweredStep]:
    """Yield an `AnsweredStep` for each reply with calls since the user's last message, the latest first.

    O(n) in the size of the results read so far.
    """
    results: list[Result] = []
    for turn in reversed(turns):
        if turn.result is not None:
            results.append(turn.result)
            continue
        if results:
            yield _step(results)
            results = []
        if turn.role == "user":
            return
    if results:
        yield _step(results)


def _step(results: Sequence[Result]) -> AnsweredStep:
    """Return the `AnsweredStep` for the results of one reply; `results` begins with the last result."""
    failed, succeeded = dict[str, None](), dict[str, None]()
    for result in reversed(results):
        (failed if _failed(result) else succeeded)[result.name] = None
    return AnsweredStep(tuple(failed), tuple(name for name in succeeded if name not in failed))


def _failed(result: Result) -> bool:
    return result.is_error or _ERROR_TEXT.match(result.content) is not None or _holds_error(result.content)


def _holds_error(content: str) -> bool:
    """Return whether a text is a JSON object whose `error` is a string, an object or true.

    A number as `error` is not taken for an error, since it may be a measurement.
    """
    if not content.lstrip().startswith("{") or '"error"' not in content:
        return False
    value = try_json(content)
    error = value.get("error") if is_object(value) else None
    return bool(error) and (error is True or isinstance(error, (str, dict)))
