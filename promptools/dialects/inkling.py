r"""Inkling: a message for each call, whose header may also hold the tool's name.

    <|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Oslo"}}<|end_message|>

The template prints the first `<|message_model|>`, so a reply may begin with the name. Reasoning and content are in
messages of their own: see `promptools.parsing.zones`. Source: the parser `inkling` of vLLM 0.32.
"""  # noqa: E501

from __future__ import annotations

from promptools.dialects.base import A_NAME, Head
from promptools.dialects.blocks.marked import SPACE, Marked
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.openings import either, then, token
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Candidate

HEADER, INVOKE, END = "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"
_NAME = r"[\w.:/-]{1,128}+"


def _begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether a name and the token after it come first; if the tools are not known, any word may be a name."""
    known = rules.tools is not None or text.find(INVOKE, start, end) >= 0
    return (text[end] == "{" if end < len(text) else None) if fresh and known else False


class Inkling(Marked):
    """One object after `<|content_invoke_tool_json|>`."""

    def __init__(self) -> None:
        super().__init__("inkling", {INVOKE: END}, models="Inkling", tier="S", arguments_key="args")
        invoke = token(INVOKE)
        headed = then(token(HEADER), either(then(_NAME, invoke), invoke))
        self.heads = (
            Head((INVOKE, HEADER), then(either(headed, invoke), SPACE)),
            Head((), then(_NAME, invoke, SPACE), opens="{", gate=A_NAME, begins=_begins, line=True, first=True),
        )

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the bracket after the header."""
        return WrappedCandidate(head, self.closers_of(INVOKE), rules, place, firm=firm, keys=self._envelope)
