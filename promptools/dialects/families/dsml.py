"""DSML: a dialect whose tags are also recognized if their bars (`｜`) are missing, doubled or in ASCII.

Models write all of these forms. The TOML table of the dialect declares the rest.
"""

from __future__ import annotations

from typing import Final

from promptools.dialects.contract import Dialect
from promptools.dialects.prefix_patterns import literal_text
from promptools.dialects.readers.tag_heads import LOOKAHEAD_PATTERN
from promptools.dialects.table import read_family

_WORD: Final = f"(?:{literal_text('DSML')}|{literal_text('GCML')})"
_OPENING: Final = (
    rf"< {{0,8}}(?:\Z|[|｜]{{1,4}}\s{{0,4}}(?:\Z|{_WORD}{LOOKAHEAD_PATTERN})"
    rf"|(?=[DG]){_WORD}\s{{0,4}}(?:\Z|[|｜]{LOOKAHEAD_PATTERN}))"
)


def dsml() -> Dialect:
    """Return the DSML dialect."""
    dialect = read_family("dsml")
    dialect.heads = (dialect.heads[0]._replace(literals=("<｜", "<|", "<D", "<G", "< "), pattern=_OPENING),)
    return dialect
