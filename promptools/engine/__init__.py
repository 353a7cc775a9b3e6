"""The parser of model replies: `StreamParser` for chunks, `parse` for a whole reply.

Here is what searches a reply for calls and decides where they begin and end. `parser` runs the `machine`, whose states
are functions over `ParserState` (`state`), in modules by subject: `plain_call`, `prose`, `reasoning`, `tags` and
`candidates`. What a dialect's call looks like belongs to `promptools.dialects`, what a part of a reply is to
`promptools.parsing`.
"""

from promptools.engine.parser import StreamParser, parse

__all__ = ["StreamParser", "parse"]
