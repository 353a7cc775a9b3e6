"""The parser of model replies: `StreamParser` for chunks, `parse` for a whole reply.

This package searches a reply for calls and decides where they begin and end. `parser` runs the `machine`. The machine's
states are functions over `ParserState` (`state`), in one module for each subject: `prose`, `reasoning`, `tags` and
`candidates`. A whole reply that ends in one plain call is read by `plain_call` instead. `promptools.dialects` defines
the forms of calls, and `promptools.parsing` the parts of a reply.
"""

from promptools.engine.parser import StreamParser, parse

__all__ = ["StreamParser", "parse"]
