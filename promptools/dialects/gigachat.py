r"""GigaChat 3 and 3.1: `function call<|role_sep|>`, then one object.

    Let me look.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}<|message_sep|>
    <|function_call|>{"name": "get_weather", "arguments": {"city": "Oslo"}}

If a server strips the tokens, `function call` is left, at the beginning of a line. Source: the chat templates of GigaChat 3 (2025-11).
"""  # noqa: E501

from __future__ import annotations

from promptools.dialects.base import Head
from promptools.dialects.blocks.marked import Marked
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.openings import then, token
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Candidate
from promptools.types import Fix

SEPARATOR = "<|message_sep|>"
_LINE = "function call"
UNMARKED = Closers(right=(), wrong=(SEPARATOR,), openers=(), needed=False)


class GigaChat(Marked):
    """One object after `function call<|role_sep|>`, or `<|function_call|>`."""

    def __init__(self) -> None:
        super().__init__(
            "gigachat",
            {
                "<|function_call|>": "",
                "function call<|role_sep|>": SEPARATOR,
                f"{SEPARATOR}\n\nfunction call<|role_sep|>": SEPARATOR,
            },
            models="GigaChat 3 and 3.1",
            tier="S",
            result="function result\n{content}",
        )
        line = then(token(_LINE), r"\s{0,16}")
        self.heads = (*self.heads, Head((), line, opens="{", gate="function", line=True, tier="B"))

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the opening bracket."""
        if head.startswith(_LINE) and "<" not in head:
            lost = Fix("marker", "the markers around its header are missing")
            return WrappedCandidate(head, UNMARKED, rules, place, firm=firm, fixes=[lost])
        return super().candidate(head, rules, place, firm=firm)
