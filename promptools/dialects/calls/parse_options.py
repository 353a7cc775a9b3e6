"""How a reply is parsed: the options for the whole reply, and the evidence for each candidate in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from promptools.parsing.quotable_texts import QuotableTexts
    from promptools.schema import Tools
    from promptools.types import RestoreArguments, Strictness

COMPLETE_FINISH_REASONS = frozenset(("stop", "tool_calls"))
"""Finish reasons of a complete reply. With any other finish reason, or without one, a reply may have been cut off."""


class ParseOptions(NamedTuple):
    """Holds the options for parsing a reply, which do not change within the reply."""

    tools: Tools | None
    strictness: Strictness
    expect: str | None
    json_answer: bool
    anchors: frozenset[str]
    rescue: bool | None = None
    """Whether a call that ends the reasoning of a reply without content counts; None: only in dialects that set
    `rescues`."""
    single_shot: bool = False
    """The reply is parsed at once, and the events are not consumed."""
    accept: frozenset[str] | None = None
    """The dialects whose calls count, besides the expected one; None: all dialects."""
    sources: QuotableTexts | None = None
    """Texts of the conversation: a call quoted from one of them does not count."""
    restore: RestoreArguments | None = None
    """Restores in arguments the text that was escaped in the request."""
    undeclared: bool = False
    """Whether calls of tools that were not offered count like those of offered tools, except for bare calls."""


class Evidence(NamedTuple):
    """Describes where a candidate was found, as evidence for or against a call.

    `wrapped`: inside an unmistakable wrapper. `expected`: in the dialect that the request asked for. `sentinel`: after
    a marker that prose cannot contain, so that even a call of a tool that is not offered is meant. `wrapper_first`: in
    a wrapper with no text before it. `at_start`: no text and no call precedes it, and no code fence is open.
    """

    dialect: str
    wrapped: bool
    expected: bool
    sentinel: bool = False
    wrapper_first: bool = False
    at_start: bool = False

    @property
    def implies_call(self) -> bool:
        """Whether the evidence alone shows that a call is meant, even if the call is malformed."""
        return self.expected or self.sentinel
