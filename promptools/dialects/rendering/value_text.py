"""Write values as bare text, for dialects without quotes and escapes."""

from __future__ import annotations

import re
from typing import Any

from promptools.jsontext.value import dump

PLAIN_NAME = re.compile(r"[^\W\d][\w.:/-]{0,127}\Z")
"""A name, or a key, that needs no quotes in any of these dialects."""


def value_text(value: Any) -> str:
    """Return a string as it is, and anything else as JSON that contains no tag."""
    return value if isinstance(value, str) else escaped_json(value)


def escaped_json(value: Any) -> str:
    """Return JSON that contains no tag: `<` only occurs in strings, where it can be escaped."""
    return dump(value).replace("<", "\\u003c")
