r"""Inkling: a message for each call. The header of the message may contain the tool's name.

    <|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Oslo"}}<|end_message|>

The template prints the first `<|message_model|>`, so a reply may begin with the name. Reasoning and content are in
separate messages. Source: the parser `inkling` of vLLM 0.32.
"""  # noqa: E501

from __future__ import annotations

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prefix_patterns import any_of, literal_text, sequence
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import SPACE, MarkedJson
from promptools.dialects.table import read_family
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore

HEADER, INVOKE, END = "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"
_NAME = r"[\w.:/-]{1,128}+"


def _begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the reply begins with a name, which may be any word, and `<|content_invoke_tool_json|>`."""
    del start, options
    return (text[end] == "{" if end < len(text) else NEED_MORE) if fresh else False


_INVOKE = literal_text(INVOKE)
_HEADED = sequence(literal_text(HEADER), any_of(sequence(_NAME, _INVOKE), _INVOKE))
HEADS = (
    Head((INVOKE, HEADER), sequence(any_of(_HEADED, _INVOKE), SPACE)),
    Head(
        (),
        sequence(_NAME, _INVOKE, SPACE),
        body_starts="{",
        gate=NAME_GATE,
        begins=_begins,
        at_line_start=True,
        at_start=True,
    ),
)


class Inkling(MarkedJson):
    """The dialect of Inkling: one JSON object after `<|content_invoke_tool_json|>`."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the object after `head`, the text that begins the call."""
        return JsonBlockReader(
            head, self.closers_of(INVOKE), options, evidence, definite=definite, envelope_keys=self._envelope
        )


def inkling() -> DeclaredDialect:
    """Return the dialect of Inkling."""
    dialect = read_family("inkling", Inkling)
    dialect.heads = HEADS
    return dialect
