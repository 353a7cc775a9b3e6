"""The parser of model replies: `StreamParser` for chunks, `parse` for a whole reply.

This package searches a reply for calls and decides where they begin and end. `parser` runs the `machine`, whose states
are functions over `ParserState` (`state`), in modules by subject: `plain_call`, `prose`, `reasoning`, `tags` and
`candidates`. `promptools.dialects` knows the form of calls, `promptools.parsing` the parts of a reply.
"""

from promptools.engine.parser import StreamParser, parse

__all__ = ["StreamParser", "parse"]
