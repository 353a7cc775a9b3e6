"""Gemma 2 and 3: Python calls in a code fence labelled `tool_code`.

    ```tool_code
    print(default_api.get_weather(city="Oslo"))
    ```

Each statement must be a call of an offered tool, which may be printed, awaited or assigned; anything else makes the
fence code. Source: Google's guide to function calling with Gemma (2025-03).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.readers.literals.python_names import name_pattern
from promptools.dialects.readers.python_calls.marked_python import MarkedPythonCalls
from promptools.dialects.readers.python_calls.python_heads import begins_with_marker
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.parsing.parts import Candidate
from promptools.types import Result

FENCE_LABEL = "tool_code"


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

    name = "tool_code"
    models = "Gemma 2, Gemma 3, prompted as Google's guide says"
    heads: tuple[Head, ...] = (
        _statement(name_pattern("[A-Za-z_]", r"[\w.]", 63) + r"[ \t]{0,4}+(?:\Z|\()", NAME_GATE),
        _statement(_OTHER_STATEMENT, _OTHER_STATEMENT),
    )
    stop: tuple[str, ...] = ("```tool_output",)
    result_openers = ("```tool_output", "<start_of_turn>user", "<start_of_turn>tool")
    end_tokens = ("<eos>", "<end_of_turn>")
    opener, closer = "```tool_code\n", "\n```"

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the first statement; the label is as much evidence as a tag."""
        run = head[: len(head) - len(head.lstrip(head[:1]))] or "```"
        return PythonCallReader(head, _layout(run), rules, place, definite=definite or rules.strictness != "strict")

    def call_format(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "Write one call a line to call several." if parallel else "Call one function at a time."
        return f"""You can call functions. To do so, write a block like this, and nothing after it:

```tool_code
function_name(parameter="value", other=2)
```

{how_many}"""

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(
            f"```tool_output\n{'Error: ' if result.is_error else ''}{result.content}\n```" for result in results
        )


def _program_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether a program may be a call: only if parsing is lenient, or the request asked for this dialect."""
    if rules.strictness != "lenient" and rules.expect != "smolagents":
        return False
    return begins_with_marker(text, start, end, fresh=fresh, rules=rules)


class Smolagents(MarkedPythonCalls):
    """A program between `<code>` tags that is nothing but calls of tools; elsewhere such a program is code."""

    name = "smolagents"
    models = "any model used through smolagents' CodeAgent, SmolLM3 with Python tools"
    heads: tuple[Head, ...] = (
        Head(("<code>",), r"<code>\s{0,64}+(?:\Z|(?=[A-Za-z_#]))", body_starts="c", begins=_program_begins),
    )
    layout = CallLayout(closers=("</code>", "<end_code>"), brackets=False, one_per_line=True, statements=True)
    opener, closer = "<code>\n", "\n</code>"

    def call_format(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "Write one call a line to call several." if parallel else "Call one function at a time."
        return f"""You can call functions. To do so, write a block like this, and nothing after it:

<code>
function_name(parameter="value", other=2)
</code>

{how_many}"""
