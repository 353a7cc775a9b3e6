r"""Names in Python calls as models write them: `book\_seat` where a model escapes Markdown's special characters.

An escape is undone only where a name must be: no name holds a backslash.
"""

from __future__ import annotations

import re
from typing import Final

from promptools.dialects.settle import Rules
from promptools.errors import clip
from promptools.types import Fix

PROGRAM: Final = ("python", "py", "python3")
"""Labels of a fence around a program, which is calls only if it is the whole reply and holds nothing else."""
ESCAPE: Final = r"\\(?:[_.-]|\Z)"
"""An escaped character of a name, or the beginning of one at the end of the text."""
_ESCAPED = re.compile(r"\\([_.-])")
_FEW = "{0,16}+"


def name_of(first: str, rest: str, most: int) -> str:
    """Return the pattern of a name: `first`, then up to `most` of `rest`, some of them escaped."""
    more = f"{rest}{{0,{most}}}+"
    return rf"{first}{more}(?:{ESCAPE}{rest}{{0,32}}+){_FEW}"


def plain(name: str) -> str:
    """Return the name without Markdown's escapes."""
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name


def unescaped(name: str) -> tuple[Fix, ...]:
    """Return the fix for a name with Markdown's escapes; empty if it has none."""
    bare = plain(name)
    return () if bare == name else (Fix("name", f"{clip(name)!r} to {clip(bare)!r}"),)


def is_offered(name: str, rules: Rules) -> bool:
    """Return whether this is an offered tool's name, spelled as declared, perhaps in a namespace."""
    bare = plain(name)
    if rules.tools is None:
        return False
    return rules.tools.get(bare) is not None or ("." in bare and rules.tools.find(bare) is not None)
