"""The parser of model replies: `StreamParser` for chunks, `parse` for a whole reply.

This package searches a reply for calls and decides where they begin and end. `parser` runs the `machine`, whose states
are functions over `ParserState` (`state`), in modules by subject: `prose`, `reasoning`, `tags` and `candidates`.
`plain_call` alone reads a whole reply that is one plain call. `promptools.dialects` knows the form of calls,
`promptools.parsing` the parts of a reply.
"""

from promptools.engine.parser import StreamParser, parse

__all__ = ["StreamParser", "parse"]
