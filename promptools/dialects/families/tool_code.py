"""Gemma 2 and 3: Python calls in a code fence labelled `tool_code`.

    ```tool_code
    print(default_api.get_weather(city="Oslo"))
    ```

Each statement must be a call of an offered tool, which may be printed, awaited or assigned; anything else makes the
fence code. Source: Google's guide to function calling with Gemma (2025-03).
"""

from __future__ import annotations

from functools import lru_cache

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.readers.literals.python_names import name_pattern
from promptools.dialects.readers.python_calls.marked_python import EXAMPLE, MarkedPythonCalls
from promptools.dialects.readers.python_calls.python_heads import begins_with_marker
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.parsing.parts import Candidate

FENCE_LABEL = "tool_code"
_BLOCK = "You can call functions. To do so, write a block like this, and nothing after it:"


@lru_cache(maxsize=8)
def _layout(run: str) -> CallLayout:
    return CallLayout(closers=(run,), one_per_line=True, statements=True)


_OTHER_STATEMENT = (
    r"print[ \t]?(?:\Z|\()|await[ \t]|[A-Za-z_]\w{0,63}+[ \t]{0,4}+(?:\Z|=)|\[\s{0,16}+(?:\Z|\w)|#(?:\Z|[^#])"
)
"""The beginning of a statement that does not begin with a tool's name."""


def _statement(pattern: str, gate: str) -> Head:
    """Return the head of a fence whose first statement begins with `pattern`."""
    return Head(
        (),
        pattern,
        body_starts="",
        gate=gate,
        begins=begins_with_marker,
        at_line_start=True,
        fenced=True,
        fence_labels=(FENCE_LABEL,),
    )


class ToolCode(MarkedPythonCalls):
    """A fence labelled `tool_code` around Python calls."""

    result_openers = ("```tool_output", "<start_of_turn>user", "<start_of_turn>tool")
    end_tokens = ("<eos>", "<end_of_turn>")

    def __init__(self) -> None:
        super().__init__(
            "tool_code",
            {"```tool_code\n": "\n```"},
            models="Gemma 2, Gemma 3, prompted as Google's guide says",
            stop=("```tool_output",),
            closers=(),
            instructions={"format": f"{_BLOCK}\n\n```tool_code\n{EXAMPLE}\n```\n\n{{how_many}}"},
            result="```tool_output\n{content}\n```",
            error="```tool_output\nError: {content}\n```",
            results=("", "\n", ""),
        )
        self.heads = (
            _statement(name_pattern("[A-Za-z_]", r"[\w.]", 63) + r"[ \t]{0,4}+(?:\Z|\()", NAME_GATE),
            _statement(_OTHER_STATEMENT, _OTHER_STATEMENT),
        )

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the first statement; the label is as much evidence as a tag."""
        run = head[: len(head) - len(head.lstrip(head[:1]))] or "```"
        return PythonCallReader(head, _layout(run), rules, place, definite=definite or rules.strictness != "strict")
