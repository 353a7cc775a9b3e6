"""The parser of replies: `StreamParser`, and `parse` for a whole one."""

from promptools.parsing.engine.parser import StreamParser, parse

__all__ = ["StreamParser", "parse"]
