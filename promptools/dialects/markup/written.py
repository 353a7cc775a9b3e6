"""Write calls as markup that is read back the same: values between tags, or all of them as one JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from promptools.dialects.settle import dump
from promptools.dialects.values import read
from promptools.types import Call, Result

KEY = "<parameter name>"
"""The placeholder of an example for the model's own text."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
_MARKUP = re.compile(r"<\s*/?\s*[A-Za-z!|｜\]]|[|｜]\s*>|\]<\]|</|<\Z")
"""What might be mistaken for a tag: such a value is written as JSON."""


def is_markup(text: str) -> bool:
    """Return whether a text might hold a tag."""
    return _MARKUP.search(text) is not None


def plain(key: str, value: Any, *, typed: bool = False, edges: bool = True, markup: bool = False) -> str | None:
    """Write a value as bare text; None if it could be read back as another.

    `typed`: its tag gives its type; `edges`: white space around it is kept; `markup`: it may hold tags.
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
    parsed, fixes = read(text, frozenset())
    return text if not fixes and _same(parsed, value) else None


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
    """Write the parameters of a call, each by `parameter`, or as one JSON object if one of them cannot be bare text.

    `parameter` takes the name, the text, and whether it is a string; the rest is as in `plain`. The schema is not at
    hand, so a value whose text could be read as another is not written as bare text, unless `typed` tags give its type.
    """
    lines: list[str] = []
    for key, value in call.arguments.items():
        text = plain(key, value, typed=typed, edges=edges, markup=markup)
        if text is None:
            return f"{call.arguments_json}\n" if edges else call.arguments_json
        lines.append(parameter(key, text, isinstance(value, str)))
    return "".join(lines)


def invoked(call: Call, before: str = "") -> str:
    """Write a call as `<invoke name="...">` with its parameters; `before`: the prefix of each tag's name."""

    def parameter(key: str, text: str, _string: bool) -> str:
        return f'<{before}parameter name="{key}">{text}</{before}parameter>\n'

    return f'<{before}invoke name="{call.name}">\n{written(call, parameter)}</{before}invoke>'


def results_in(results: Sequence[Result], before: str, after: str) -> str:
    """Write results between tags, one after the other."""
    return "\n".join(f"{before}{result.content}{after}" for result in results)


def cdata(text: str) -> str:
    """Wrap a text with markup in CDATA sections."""
    if not text or not ("&" in text or "<" in text or "]]>" in text or text != text.strip() or "\n" in text):
        return text
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def when_to_call(*, parallel: bool, required: bool, several: str = "Several calls stand one after the other.") -> str:
    """Return the sentences of the prompt on how many calls the model may make, and when."""
    how_many = several if parallel else "Make one call at a time."
    when = "Call a tool in this turn." if required else "If no tool is needed, answer in plain words."
    return f"{how_many} Write nothing after the calls, and never a result yourself. {when}"
