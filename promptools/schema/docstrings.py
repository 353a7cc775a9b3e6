"""Parameter descriptions from docstrings in Google, NumPy or Sphinx style, parsed by griffe."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

STYLES = ("google", "numpy", "sphinx")
_KNOWN_SECTIONS = frozenset(("parameters", "raises", "returns", "text"))


class ParsedDocstring(NamedTuple):
    """The description of a function, and those of its parameters."""

    text: str
    parameters: dict[str, str]


def parse_docstring(docstring: str, names: Collection[str]) -> ParsedDocstring:
    """Parse a docstring without indentation; one that describes none of the parameters is the description as a whole.

    Parameter sections are left out of the description, unless that would lose sections of another kind.
    """
    if not any(re.search(rf"\b{re.escape(name)}\b", docstring) for name in names):
        return ParsedDocstring(docstring, {})  # without griffe, whose import takes 0.2 s
    try:
        griffe: Any = import_module("griffe")
    except ImportError:  # griffe is not installed
        return ParsedDocstring(docstring, {})
    for style in STYLES:
        sections = griffe.Docstring(docstring, lineno=1).parse(style, warnings=False)
        parameters = [entry for section in sections if section.kind.value == "parameters" for entry in section.value]
        descriptions = {entry.name: " ".join(entry.description.split()) for entry in parameters if entry.name in names}
        if descriptions:
            known = all(section.kind.value in _KNOWN_SECTIONS for section in sections)
            return ParsedDocstring(_without_parameters(sections) if known else docstring, descriptions)
    return ParsedDocstring(docstring, {})


def _without_parameters(sections: list[Any]) -> str:
    """Return the docstring without its parameters: the text, and what the function returns."""
    texts = [section.value for section in sections if section.kind.value == "text"]
    results = [entry.description for section in sections if section.kind.value == "returns" for entry in section.value]
    return "\n\n".join([*texts, *(f"Returns: {result}" for result in results if result)])
