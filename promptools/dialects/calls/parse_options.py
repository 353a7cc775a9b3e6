"""Define the options for parsing a reply, and the evidence that a text in the reply is a call."""

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
    """Whether a call counts if it ends the reasoning of a reply that has no content.

    None: such a call counts only in dialects that set `rescues`.
    """
    single_shot: bool = False
    """Whether the whole reply is parsed in one piece and only the result is used, not the events."""
    accept: frozenset[str] | None = None
    """The names of the dialects whose calls count in addition to calls in the expected dialect; None: all dialects."""
    sources: QuotableTexts | None = None
    """Texts of the conversation. A call that is quoted from one of these texts does not count."""
    restore: RestoreArguments | None = None
    """A function that restores, in arguments, the text that was escaped in the request."""
    undeclared: bool = False
    """Whether calls to tools that were not offered count as well.

    They count only if they are between the markers that a dialect has for calls.
    """


class Evidence(NamedTuple):
    """Describes where a possible call was found, as evidence for or against a call.

    `wrapped`: whether the possible call is inside something that shows a call, such as tags or a field of the response.
    `expected`: whether it is in the dialect that the request asked for. `sentinel`: whether it is after a marker that
    prose cannot contain, so that a call is meant even if its tool is not offered. `wrapper_first`: whether it is inside
    tags with no text before them. `at_start`: whether no text and no call precedes it and no code fence is open.
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
