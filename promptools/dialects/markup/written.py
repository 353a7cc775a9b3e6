"""Write calls as markup so that they are read back the same: values between tags, or all of them as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from promptools.dialects.settle import dump
from promptools.dialects.values import read
from promptools.types import Call, Result

KEY = "<parameter name>"
"""What stands in an example where the model puts its own word."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
_MARKUP = re.compile(r"<\s*/?\s*[A-Za-z!|｜\]]|[|｜]\s*>|\]<\]|</|<\Z")
"""What might be taken for a tag: such a value is written as JSON."""


def is_markup(text: str) -> bool:
    """Tell whether a text might hold a tag."""
    return _MARKUP.search(text) is not None


def plain(key: str, value: Any, *, typed: bool = False, edges: bool = True, markup: bool = False) -> str | None:
    """Write a value as bare text; None where it could be read back as another.

    `typed`: its tag says what it is; `edges`: white space around it is its own; `markup`: it may hold tags.
    """
    if _KEY.match(key) is None:
        return None
    text = value if isinstance(value, str) else dump(value)
    if ("\r" in text or is_markup(text)) and not markup:
        return None
    if text != text.strip() and not edges:
        return None
    if typed:
        return text
    found, fixes = read(text, frozenset())
    return text if not fixes and _same(found, value) else None


def _same(one: Any, other: Any) -> bool:
    return one is other or json.dumps(one) == json.dumps(other)


def written(
    call: Call,
    parameter: Callable[[str, str, bool], str],
    *,
    typed: bool = False,
    edges: bool = True,
    markup: bool = False,
) -> str:
    """Write the parameters of a call, each by `parameter`; as one JSON object where one of them cannot be.

    `parameter` is given the name, the text, and whether it is a string; the rest is as in `plain`. The schema is not at
    hand, so a value whose text could be read as another one is no bare text, unless `typed` tags say what it is.
    """
    lines: list[str] = []
    for key, value in call.arguments.items():
        text = plain(key, value, typed=typed, edges=edges, markup=markup)
        if text is None:
            return f"{call.arguments_json}\n" if edges else call.arguments_json
        lines.append(parameter(key, text, isinstance(value, str)))
    return "".join(lines)


def invoked(call: Call, before: str = "") -> str:
    """Write a call as `<invoke name="...">` with its parameters, `before` the words of each tag."""

    def parameter(key: str, text: str, _string: bool) -> str:
        return f'<{before}parameter name="{key}">{text}</{before}parameter>\n'

    return f'<{before}invoke name="{call.name}">\n{written(call, parameter)}</{before}invoke>'


def results_in(results: Sequence[Result], before: str, after: str) -> str:
    """Write results between tags, one after the other."""
    return "\n".join(f"{before}{result.content}{after}" for result in results)


def cdata(text: str) -> str:
    """Put a text with markup in it into sections of character data."""
    if not text or not ("&" in text or "<" in text or "]]>" in text or text != text.strip() or "\n" in text):
        return text
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def when_to_call(*, parallel: bool, required: bool, several: str = "Several calls stand one after the other.") -> str:
    """Tell the model how many calls it may make, and when."""
    how_many = several if parallel else "Make one call at a time."
    when = "Call a tool in this turn." if required else "If no tool is needed, answer in plain words."
    return f"{how_many} Write nothing after the calls, and never a result yourself. {when}"
