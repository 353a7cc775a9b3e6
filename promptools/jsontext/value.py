"""A JSON value and its text: what reading yields, strict or repaired, and how a value is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from promptools.jsontext.strict import MemberSpans
    from promptools.types import Fix

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
"""Made once: `json.dumps` would make one per call."""


class ParsedValue(NamedTuple):
    """A JSON value that ends at `end`, and how it was read."""

    value: Any
    end: int
    fixes: tuple[Fix, ...] = ()
    supplied_closers: int = 0
    """Closing brackets missing at the end of the text that were supplied, innermost first."""
    member_spans: MemberSpans | None = None
    """The spans of an object's member values in its text as strict JSON, if they are known."""
    repaired_text: str | None = None
    """That text, if it was repaired; None if it is the model's own, or not at hand."""


def dump(value: Any) -> str:
    """Encode JSON as a model would: on one line, without ASCII escapes."""
    return _ENCODER.encode(value)
