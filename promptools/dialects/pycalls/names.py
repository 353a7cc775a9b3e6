r"""Names in Python calls as models write them: `book\_seat` where a model escapes what Markdown would read.

An escape is taken for what it escapes only where a name must be: no name holds a backslash.
"""

from __future__ import annotations

import re
from typing import Final

from promptools.dialects.settle import Rules
from promptools.errors import clip
from promptools.types import Fix

PROGRAM: Final = ("python", "py", "python3")
"""Labels of a fence that holds a program: calls only where it is the whole reply, and holds nothing else."""
ESCAPE: Final = r"\\(?:[_.-]|\Z)"
"""An escaped character of a name, or the beginning of one where the text ends."""
_ESCAPED = re.compile(r"\\([_.-])")
_FEW = "{0,16}+"


def name_of(first: str, rest: str, most: int) -> str:
    """Return the pattern of a name that begins with `first` and goes on with `most` of `rest`, some of them escaped."""
    more = f"{rest}{{0,{most}}}+"
    return rf"{first}{more}(?:{ESCAPE}{rest}{{0,32}}+){_FEW}"


def plain(name: str) -> str:
    """Return the name without Markdown's escapes."""
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name


def unescaped(name: str) -> tuple[Fix, ...]:
    """Return the fix for a name that is written with Markdown's escapes; none where it is not."""
    own = plain(name)
    return () if own == name else (Fix("name", f"{clip(name)!r} to {clip(own)!r}"),)


def is_offered(name: str, rules: Rules) -> bool:
    """Whether this is an offered tool's name, spelled as it was declared, perhaps in a namespace."""
    own = plain(name)
    if rules.tools is None:
        return False
    return rules.tools.get(own) is not None or ("." in own and rules.tools.find(own) is not None)
