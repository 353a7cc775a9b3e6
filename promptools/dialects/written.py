"""Write calls as markup so that they are read back the same: values between tags, or all of them as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from promptools.dialects.settle import dump
from promptools.dialects.values import read
from promptools.types import Call, Result

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
_MARKUP = re.compile(r"<\s*/?\s*[A-Za-z!|｜\]]|[|｜]\s*>|\]<\]|</|<\Z")
"""What might be taken for a tag: such a value is written as JSON."""


def plain(key: str, value: Any) -> str | None:
    """Write a value as bare text; None where it could be read back as another."""
    if _KEY.match(key) is None:
        return None
    text = value if isinstance(value, str) else dump(value)
    if _MARKUP.search(text) is not None or "\r" in text:
        return None
    found, fixes = read(text, frozenset())
    return text if not fixes and _same(found, value) else None


def _same(one: Any, other: Any) -> bool:
    return one is other or json.dumps(one) == json.dumps(other)


def written(call: Call, parameter: Callable[[str, str], str]) -> str:
    """Write the parameters of a call, each by `parameter`; as one JSON object where one of them cannot be.

    The schema is not at hand, so what bare text would be read as anything else without it is no bare text.
    """
    lines: list[str] = []
    for key, value in call.arguments.items():
        text = plain(key, value)
        if text is None:
            return f"{call.arguments_json}\n"
        lines.append(parameter(key, text))
    return "".join(lines)


def results_in(results: Sequence[Result], before: str, after: str) -> str:
    """Write results between tags, one after the other."""
    return "\n".join(f"{before}{result.content}{after}" for result in results)
