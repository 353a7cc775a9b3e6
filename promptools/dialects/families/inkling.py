r"""Inkling: a message for each call, whose header may also hold the tool's name.

    <|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Oslo"}}<|end_message|>

The template prints the first `<|message_model|>`, so a reply may begin with the name. Reasoning and content are in
messages of their own. Source: the parser `inkling` of vLLM 0.32.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.prefix_patterns import any_of, literal_text, sequence
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.json_block.marked_json import SPACE, MarkedJson
from promptools.parsing.parts import Candidate

HEADER, INVOKE, END = "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"
_NAME = r"[\w.:/-]{1,128}+"


def _begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether a name and the token after it come first; if the tools are not known, any word may be a name."""
    known = rules.tools is not None or text.find(INVOKE, start, end) >= 0
    return (text[end] == "{" if end < len(text) else None) if fresh and known else False


class Inkling(MarkedJson):
    """One object after `<|content_invoke_tool_json|>`."""

    reasoning_tags: Mapping[str, str] = {  # the template prints the header before it
        "<|content_thinking|>": END,
        f"{HEADER}<|content_thinking|>": END,
    }
    answer_tags: Mapping[str, str] = {
        "<|content_text|>": END,
        f"{HEADER}<|content_text|>": END,
        "<|content_tool_error|>": END,  # an error as text
        f"{HEADER}<|content_tool_error|>": END,
    }
    end_tokens = ("<|content_model_end_sampling|>",)

    def __init__(self) -> None:
        super().__init__("inkling", {INVOKE: END}, models="Inkling", tier="S", arguments_key="args")
        invoke = literal_text(INVOKE)
        headed = sequence(literal_text(HEADER), any_of(sequence(_NAME, invoke), invoke))
        self.heads = (
            Head((INVOKE, HEADER), sequence(any_of(headed, invoke), SPACE)),
            Head(
                (),
                sequence(_NAME, invoke, SPACE),
                body_starts="{",
                gate=NAME_GATE,
                begins=_begins,
                at_line_start=True,
                at_start=True,
            ),
        )

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the bracket after the header."""
        return JsonBlockReader(
            head, self.closers_of(INVOKE), rules, place, definite=definite, envelope_keys=self._envelope
        )
