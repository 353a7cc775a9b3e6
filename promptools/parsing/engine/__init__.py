"""The parser of model replies: `StreamParser` for chunks, `parse` for a whole reply."""

from promptools.parsing.engine.parser import StreamParser, parse

__all__ = ["StreamParser", "parse"]
