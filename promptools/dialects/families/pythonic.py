"""Pythonic: a list of Python calls, the trained format of Llama 3.2 and 4, ToolACE and many models fine-tuned for BFCL.

    [get_weather(city="Oslo", days=2), ping()]

Llama 4 may put the list between `<|python_start|>` and `<|python_end|>`. Without these tokens, the list is of tier B (a
call becomes text if text follows), since only a bracket shows where it begins. Source: Llama 4 and Llama 3.2 prompt
formats (Meta, 2025-04, 2024-09), the model card of ToolACE-8B (2024-08).
"""

from __future__ import annotations

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers import quoted_calls
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_python import (
    BARE_LIST,
    CallsOrJson,
    MarkedPythonCalls,
    list_begins,
    list_head,
    marker_head,
)
from promptools.dialects.readers.python_arguments import PROGRAM_LABELS
from promptools.dialects.readers.python_reader import CallLayout, PythonCallReader
from promptools.parsing.parts import Candidate, NeedMore

_TOKENS_LAYOUT = CallLayout(closers=("<|python_end|>",), spaced_names=True, one_per_line=True)
_TAG_LAYOUT = CallLayout(closers=("</tool_call>",), spaced_names=True, one_per_line=True)
_CLOSERS = Closers(right=_TOKENS_LAYOUT.closers, wrong=(), openers=("<|python_start|>",))
FENCES = (None, "", "json", "tool_call", "tool_code")
_DATA = (None, "", "json")


def _program_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a code fence such as ```python begins with a list of calls. The fence must be the whole reply."""
    return fresh and list_begins(text, start, end, fresh=fresh, options=options)


class Pythonic(MarkedPythonCalls):
    """The dialect of Llama 3.2 and 4: a list of Python calls, `[get_weather(city="Oslo"), ping()]`."""

    # Llama 4
    end_tokens = ("<|eot|>", "<|eom|>")
    turn_tokens = ("<|header_start|>assistant<|header_end|>",)
    result_openers = ("<|header_start|>ipython", "<|header_start|>tool", "<|header_start|>user")

    def __init__(self) -> None:
        super().__init__(
            "pythonic",
            {"[": "]"},
            models="Llama 3.2, Llama 4, ToolACE, Gemma 3, fine-tunes on BFCL",
            tier="B",
            closers=("<|python_end|>",),
            separator=", ",
            instructions={
                "format": "You can call {how_many}. To do so, answer with nothing but a list of calls in Python's"
                ' syntax:\n\n[function_name(parameter="value", other=2)]',
                "text": """{format}

Write each argument with its name, as a literal. {when}

The functions are:

{tools}""",
                "parallel": "one or more functions",
                "single": "one function",
            },
        )
        self.heads = (
            marker_head("<|python_start|>", json=True, spaced=True, tier="S"),
            marker_head("<tool_call>", tier="A"),
            list_head(fence_labels=FENCES),
            list_head(fence_labels=PROGRAM_LABELS)._replace(begins=_program_begins, at_start=True),
            quoted_calls.string_list_head(_DATA),
            *quoted_calls.string_heads(),
        )

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` for Python calls, JSON or quoted calls; `head` is the marker before them, if any."""
        if head == quoted_calls.LIST_ALIAS:
            return quoted_calls.QuotedCallsReader(options, evidence, definite=definite)
        if head == quoted_calls.STRING_ALIAS:
            return quoted_calls.QuotedReplyReader(options, evidence, definite=definite)
        if not head:
            return PythonCallReader(head, BARE_LIST, options, evidence, definite=definite)
        if head.startswith("<tool"):
            return PythonCallReader(head, _TAG_LAYOUT, options, evidence, definite=definite)
        return CallsOrJson(
            head,
            lambda: PythonCallReader(head, _TOKENS_LAYOUT, options, evidence, definite=definite),
            lambda: JsonBlockReader(head, _CLOSERS, options, evidence, definite=definite),
            definite=definite,
        )
