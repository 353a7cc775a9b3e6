"""The parser of model replies: `StreamParser` for chunks, `parse` for a whole reply.

This package searches a reply for calls and decides where they begin and end. `parser` runs the `machine`, whose states
are functions over `ParserState` (`state`), in modules by subject: `prose`, `reasoning`, `tags` and `candidates`.
A whole reply that ends in one plain call is read by `plain_call` instead. `promptools.dialects` knows the forms of
calls, and `promptools.parsing` has the parts of a reply.
"""

from promptools.engine.parser import StreamParser, parse

__all__ = ["StreamParser", "parse"]
