r"""GigaChat 3 and 3.1: `function call<|role_sep|>`, then one object.

    Let me look.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}<|message_sep|>
    <|function_call|>{"name": "get_weather", "arguments": {"city": "Oslo"}}

If a server strips the tokens, `function call` is left, at the beginning of a line. Source: the chat templates of GigaChat 3 (2025-11).
"""  # noqa: E501

from __future__ import annotations

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.json_block.marked_json import MarkedJson
from promptools.parsing.parts import Candidate
from promptools.types import Fix

SEPARATOR = "<|message_sep|>"
_LINE = "function call"
UNMARKED = Closers(right=(), wrong=(SEPARATOR,), openers=(), required=False)


class GigaChat(MarkedJson):
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
            result_openers=("function result<|role_sep|>",),
        )
        line = sequence(literal_text(_LINE), r"\s{0,16}")
        self.heads = (*self.heads, Head((), line, body_starts="{", gate="function", at_line_start=True, tier="B"))

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the opening bracket."""
        if head.startswith(_LINE) and "<" not in head:
            lost = Fix("marker", "the markers around its header are missing")
            return JsonBlockReader(head, UNMARKED, rules, place, definite=definite, fixes=[lost])
        return super().candidate(head, rules, place, definite=definite)
