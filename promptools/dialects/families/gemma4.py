"""Gemma 4 and FunctionGemma: `call:NAME{...}` between special tokens, with special tokens as string delimiters.

    <|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|>
    <start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:2}<end_function_call>

A server that strips the tokens leaves `call:get_weather{city:Oslo,days:2}`. Some calls have Gemini's namespace
`default_api:` before the name. Source: chat templates of Gemma 4 (2026-04) and FunctionGemma (2025-12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head, Textual, Tier
from promptools.dialects.readers.brace_calls import BraceCallReader, brace_value
from promptools.dialects.readers.marked_python import begins_with_marker
from promptools.dialects.readers.python_reader import CallLayout
from promptools.dialects.written_calls import results_as_text, tools_as_json
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_NAME = r"[A-Za-z_][\w.-]{0,63}+"
_KEY = r"[A-Za-z_][\w.-]{0,63}+(?:[ ]{1,2}+[\w.-]{1,64}+){0,8}+\s{0,4}+"
_BODY = rf"{_NAME}\{{\s{{0,16}}+(?:\}}|{_KEY}:)"
"""Matches a tool's name and the beginning of its arguments: `get_weather{city:` or `ping{}`."""
_BODY_CUT = rf"{_NAME}(?:\Z|\{{\s{{0,16}}+(?:\Z|{_KEY}\Z))"
_SPACE_NAME = rf"(?:{_NAME}:[ \t]?)?(?:default_api:)?"
_SPACE_CUT = rf"{_NAME}:[ \t]?(?:\Z|default_api:\Z)"
_LINE = lazy_pattern(rf"(?:({_NAME}):[ \t]?)??(default_api:)?({_NAME})\{{\s*(\}}?)")
_LEAK = lazy_pattern(rf"<(?:call|function)[:>](?:default_api:)?({_NAME})\{{")
_LEAK_LAYOUT = CallLayout(closers=("/>", "</call>", "</function>", ">"), brackets=False)


def _line_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a line begins with a call whose special tokens were stripped, such as `call:ping{}`."""
    del fresh
    if options.tools is None:
        return False
    call = _LINE.match(text, start)
    if call is None or text[end - 1] not in ":}":
        return NEED_MORE if end == len(text) else False
    prefix, namespace, name, empty = call.groups()
    if prefix is None and namespace is None:  # the name alone: it must be exactly an offered tool's, and have arguments
        return not empty and options.tools.get(name) is not None
    return (namespace is not None or prefix in ("call", "function")) and options.tools.find(name) is not None


def _leak_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a tag such as `<call:ping{`, made of parts of the special tokens, names an offered tool."""
    del fresh
    leak = _LEAK.match(text, start)
    if leak is None or end == len(text):
        return NEED_MORE
    return options.tools is not None and options.tools.find(leak[1]) is not None


class Gemma4(Textual):
    """The dialect of Gemma 4: `<|tool_call>call:NAME{key:<|"|>value<|"|>}<tool_call|>`."""

    name = "gemma4"
    models = "Gemma 4, and what leaks of Gemini's calls"
    tier: Tier = "S"
    opener, closer, quote = "<|tool_call>", "<tool_call|>", '<|"|>'
    heads: tuple[Head, ...] = (
        Head(
            ("<|tool_call>",),
            rf"<\|tool_call>\s{{0,64}}+(?:\Z|(?=call:|function:)|[a-z]{{1,8}}+\Z|(?=:?{_NAME}[:{{])|:?(?:{_NAME})?\Z)",
            body_starts="c",
            begins=begins_with_marker,
        ),
        Head(
            ("<call:", "<function:", "<call>"),
            r"<(?:call:|function:|call>)"
            rf"(?:(?=(?:default_api:)?{_BODY})|\Z|(?:default_api:)?{_BODY_CUT}|default_api:\Z)",
            body_starts="c",
            begins=_leak_begins,
            tier="B",
        ),
        Head(
            (),
            rf"{_SPACE_NAME}{_BODY}|{_SPACE_NAME}{_BODY_CUT}|{_SPACE_CUT}",
            body_starts="",
            gate=NAME_GATE,
            begins=_line_begins,
            at_line_start=True,
            first_words=("call:", "function:", "declaration:"),
            unindented=True,
            tier="B",
        ),
    )
    closers: tuple[str, ...] = ("<tool_call|>",)
    stop: tuple[str, ...] = ("<|tool_response>",)
    reasoning_tags: Mapping[str, str] = {"<|channel>thought\n": "<channel|>", "<|channel>": "<channel|>"}
    answer_tags: Mapping[str, str] = {"<|channel>thought<channel|>": ""}  # an empty thought, without its line break
    result_openers: tuple[str, ...] = ("<|tool_response>", "<|turn>user", "<|turn>tool")
    end_tokens: tuple[str, ...] = ("<turn|>", "<|tool_response>")
    control_tokens: tuple[str, ...] = ("<tool_response|>", "<|tool>", "<tool|>", '<|"|>')
    turn_tokens: tuple[str, ...] = ("<|turn>", "<escape>")

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the tool's name, perhaps after `call:`, and the object after it."""
        if head.startswith(("<call", "<function")):
            return BraceCallReader(head, _LEAK_LAYOUT, options, evidence, definite=definite)
        if head:
            return BraceCallReader(
                head, CallLayout(closers=(self.closer,), brackets=False), options, evidence, definite=definite
            )
        return BraceCallReader("", CallLayout(brackets=False), options, evidence, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        how_many = "To call several, write one after the other." if parallel else "Call one function at a time."
        when = (
            "You must call a function in this turn." if required else "If no function is needed, answer in plain text."
        )
        return f"""You can call functions. Write a call as the word `call`, a colon, the function's name, and its \
parameters in braces, like this, and nothing after it:

call:function_name{{parameter:{self.quote}a string{self.quote},other:2}}

Strings go between two {self.quote}, keys and other values are bare. {how_many} {when}

The functions are:

{tools_as_json(tools)}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "".join(
            f"{self.opener}call:{call.name}{brace_value(call.arguments, self.quote)}{self.closer}" for call in calls
        )

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        return results_as_text(results)


class FunctionGemma(Gemma4):
    """The dialect of FunctionGemma: `<start_function_call>call:NAME{key:<escape>value<escape>}<end_function_call>`."""

    name = "functiongemma"
    models = "FunctionGemma 270M"
    opener, closer, quote = "<start_function_call>", "<end_function_call>", "<escape>"
    heads: tuple[Head, ...] = (
        Head(
            ("<start_function_call>",),
            rf"<start_function_call>\s{{0,64}}+(?:\Z|(?=call:)|[a-z]{{1,4}}+\Z|(?=:?{_NAME}[:{{])|:?(?:{_NAME})?\Z)",
            body_starts="c",
            begins=begins_with_marker,
        ),
    )
    closers: tuple[str, ...] = ("<end_function_call>",)
    stop: tuple[str, ...] = ("<start_function_response>",)
    result_openers: tuple[str, ...] = ("<start_function_response>",)
    control_tokens: tuple[str, ...] = (
        "<start_function_response>",
        "<end_function_response>",
        "<start_function_declaration>",
        "<end_function_declaration>",
    )
