r"""Names in Python calls as models write them: `book\_seat` where a model escapes Markdown's special characters.

An escape is undone only where a name must be: no name holds a backslash.
"""

from __future__ import annotations

import re
from typing import Final

from promptools.dialects.calls.resolve import ParseOptions
from promptools.errors import clip
from promptools.types import Fix

PROGRAM_LABELS: Final = ("python", "py", "python3")
"""Labels of a fence around a program, which is calls only if it is the whole reply and holds nothing else."""
ESCAPE_PATTERN: Final = r"\\(?:[_.-]|\Z)"
"""An escaped character of a name, or the beginning of one at the end of the text."""
_ESCAPED = re.compile(r"\\([_.-])")
_MAX_ESCAPES = "{0,16}+"


def name_pattern(first: str, rest: str, most: int) -> str:
    """Return the pattern of a name: `first`, then up to `most` of `rest`, some of them escaped."""
    more = f"{rest}{{0,{most}}}+"
    return rf"{first}{more}(?:{ESCAPE_PATTERN}{rest}{{0,32}}+){_MAX_ESCAPES}"


def unescape_name(name: str) -> str:
    """Return the name without Markdown's escapes."""
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name


def escape_fixes(name: str) -> tuple[Fix, ...]:
    """Return the fix for a name with Markdown's escapes; empty if it has none."""
    bare = unescape_name(name)
    return () if bare == name else (Fix("name", f"{clip(name)!r} to {clip(bare)!r}"),)


def is_offered_name(name: str, rules: ParseOptions) -> bool:
    """Return whether this is an offered tool's name, spelled as declared, perhaps in a namespace."""
    bare = unescape_name(name)
    if rules.tools is None:
        return False
    return rules.tools.get(bare) is not None or ("." in bare and rules.tools.find(bare) is not None)
