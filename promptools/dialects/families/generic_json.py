"""The default dialect: a JSON list of calls, or one JSON object per call, in a code fence or bare.

    ```json
    [
      {"tool": "get_weather", "arguments": {"city": "Oslo"}}
    ]
    ```

The dialect is of tier B (a call becomes text if text follows), since its only markers are braces, which also occur in
prose. The position of a brace decides whether a call begins there (see `promptools.engine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head, Textual, Tier
from promptools.dialects.prompt import describe, explain_tools
from promptools.dialects.readers.bare_json import LIST_HEAD, OBJECT_HEAD, EncodedReplyReader, bare_json_candidate
from promptools.jsontext.text import dump
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_STRING = r'"\s{0,8}(?:\Z|[{\[]\s{0,8}(?:\Z|\\\Z|\\"))'


def _string_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    del start, options
    return fresh and (True if text.startswith('\\"', end - 2) else NEED_MORE)


class GenericJson(Textual):
    """The default dialect: `{"tool": ..., "arguments": {...}}`, and all spellings of this that models write."""

    name = "json"
    models = "any model that is told to in its prompt; what many fall back to"
    tier: Tier = "B"
    heads: tuple[Head, ...] = (
        OBJECT_HEAD,
        LIST_HEAD,
        Head(('"',), _STRING, body_starts="", gate=_STRING, begins=_string_begins, alias='"', at_start=True),
    )
    closers: tuple[str, ...] = ("<|python_tag|>",)  # Llama 3.1 prints it before bare JSON

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the text after `head`, which is a code fence, a quote, or empty."""
        if head == '"':
            return EncodedReplyReader(options, evidence, definite=definite)
        return bare_json_candidate(head, options, evidence, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = "\n\n".join(describe(tool) for tool in tools)
        return explain_tools(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render all calls as one list in one code fence, since small models end their turn after a fence."""
        written = ",\n  ".join(f'{{"tool": {dump(call.name)}, "arguments": {call.arguments_json}}}' for call in calls)
        return f"```json\n[\n  {written}\n]\n```"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        return "\n\n".join(
            f"Tool {'error' if result.is_error else 'result'} ({result.name}):\n{result.content}" for result in results
        )
