"""Results that report a failed call: how apps and tools write errors where the API has no field for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.json_values import is_object, try_json
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.modes.history import Turn
    from promptools.types import Result

_ERROR_TEXT = lazy_pattern(r"\s*(?:[A-Za-z.]*Error|error|ERROR)(?: executing tool [^:\n]+)?:")
"""`error:`, Python's `ValueError:`, and FastMCP's `Error executing tool NAME:`."""


def is_first_failure(turns: Sequence[Turn]) -> bool:
    """Whether the results at the end of the conversation contain the first error since the user's last message.

    O(n) in the size of the results since then.
    """
    latest = True
    failed = False
    for turn in reversed(turns):
        if turn.result is None:
            if turn.role == "user" or not failed:
                break
            latest = False
        elif _failed(turn.result):
            if not latest:
                return False
            failed = True
    return failed


def _failed(result: Result) -> bool:
    return result.is_error or _ERROR_TEXT.match(result.content) is not None or _holds_error(result.content)


def _holds_error(content: str) -> bool:
    """Whether a text is a JSON object whose `error` is a text, an object or true; a number may be a measurement."""
    if not content.lstrip().startswith("{") or '"error"' not in content:
        return False
    value = try_json(content)
    error = value.get("error") if is_object(value) else None
    return bool(error) and (error is True or isinstance(error, (str, dict)))
