"""Write values as bare text, for dialects without quotes and without escapes."""

from __future__ import annotations

import re
from typing import Any

from promptools.dialects.settle import dump

NAME = re.compile(r"[^\W\d][\w.:/-]{0,127}\Z")
"""A name, or a key, that needs no quotes in any of these dialects."""


def bare(value: Any) -> str:
    """Write a string as it is, and anything else as JSON in which no tag stands."""
    return value if isinstance(value, str) else guarded(value)


def guarded(value: Any) -> str:
    """Write JSON in which no tag stands: `<` only occurs in strings, and may be escaped there."""
    return dump(value).replace("<", "\\u003c")
