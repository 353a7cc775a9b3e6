"""What a function's docstring says of its parameters in Google's, NumPy's or Sphinx' style, as griffe reads it."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

STYLES = ("google", "numpy", "sphinx")
_TOLD = frozenset(("parameters", "raises", "returns", "text"))


class Described(NamedTuple):
    """The description of a function, and those of its parameters."""

    text: str
    parameters: dict[str, str]


def described(docstring: str, names: Collection[str]) -> Described:
    """Read a docstring without indentation; where it tells of none of the parameters, all of it is the description.

    What it tells of them is left out of the description, unless it has sections that would go with it.
    """
    if not any(re.search(rf"\b{re.escape(name)}\b", docstring) for name in names):
        return Described(docstring, {})  # without the library, whose import takes 0.2 s
    try:
        griffe: Any = import_module("griffe")
    except ImportError:  # it was left out of the environment
        return Described(docstring, {})
    for style in STYLES:
        sections = griffe.Docstring(docstring, lineno=1).parse(style, warnings=False)
        told = [each for section in sections if section.kind.value == "parameters" for each in section.value]
        found = {each.name: " ".join(each.description.split()) for each in told if each.name in names}
        if found:
            return Described(_rest(sections) if _TOLD.issuperset(_kinds(sections)) else docstring, found)
    return Described(docstring, {})


def _kinds(sections: list[Any]) -> list[str]:
    return [section.kind.value for section in sections]


def _rest(sections: list[Any]) -> str:
    """Write what is told beside parameters: the text, and what is returned."""
    texts = [section.value for section in sections if section.kind.value == "text"]
    results = [each.description for section in sections if section.kind.value == "returns" for each in section.value]
    return "\n\n".join([*texts, *(f"Returns: {each}" for each in results if each)])
