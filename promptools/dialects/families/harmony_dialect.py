"""Harmony, the format of gpt-oss: reasoning, answers and calls are messages, each with a header.

    <|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather
    <|constrain|>json<|message|>{"city": "Oslo"}<|call|>                                      (in one line)

`promptools.harmony` reads and writes the format; this module uses it to define the dialect. Source: openai/harmony,
docs/format.md (0.0.8). For how models and servers deviate from the format, see `promptools.harmony.parser`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import MessageFormat, MessageSplitter, Textual, Tier
from promptools.harmony import stripped_headers
from promptools.harmony.messages import harmony_header_begins
from promptools.harmony.recipients import FUNCTIONS, RecipientNames
from promptools.parsing.parts import Candidate, NeedMore
from promptools.types import Call, Malformed, Result

if TYPE_CHECKING:
    from promptools.harmony.messages import IsTool
    from promptools.harmony.renderer import Message
    from promptools.schema import Tools

# every reply is searched for Harmony, so what only Harmony replies need is imported with the first such reply


class HarmonyDialect(Textual):
    """Harmony: `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`."""

    name = "harmony"
    models = "gpt-oss, LLM-jp 4.1, Beam"
    tier: Tier = "S"
    end_tokens = ("<|end|>", "<|return|>", "<|call|>")  # Phi 3 and 4 and Granite 3 have the first, too

    def __init__(self) -> None:
        self.channels = CHANNELS

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Raise NotImplementedError: calls in Harmony are messages, so nothing is read this way."""
        raise NotImplementedError(f"{self.name} is read by its channels")

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        from promptools.harmony.conversation import convert
        from promptools.harmony.renderer import content_text

        functions = [replace(tool, free_text=None) for tool in tools]  # unexplained, free text is less safe than JSON
        message = convert([], functions).messages[-1]
        how_many = "" if parallel else " Call one tool at a time."
        when = " You must call a tool in this turn." if required else ""
        return f"{content_text(message)}\n\nCalls to these tools must go to the commentary channel.{how_many}{when}"

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        from promptools.harmony.renderer import render_messages

        return render_messages((_call(call) for call in calls), reply_role=None, escape=str)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        from promptools.harmony.renderer import render_messages

        return render_messages((_result(result) for result in results), reply_role=None, escape=str)


def _call(call: Call) -> Message:
    from promptools.harmony.renderer import Message
    from promptools.harmony.tokens import CONTROL_MARKUP

    recipient = RecipientNames([call.name]).address_of(call.name).recipient
    return Message(
        "assistant",
        CONTROL_MARKUP.escape_json(call.arguments_json),
        "",
        "commentary",
        recipient,
        "<|constrain|>json",
    )


def _result(result: Result) -> Message:
    from promptools.harmony.renderer import Message

    recipient = RecipientNames([result.name]).address_of(result.name).recipient
    return Message("tool", result.content, recipient, "commentary", "assistant")


def offered_recipients(options: ParseOptions) -> IsTool | None:
    """Return a function that tells whether a recipient is an offered tool; None if the offered tools are unknown."""
    tools = options.tools
    if tools is None:
        return None
    return lambda name: tools.get(name) is not None or tools.get(name.removeprefix(f"{FUNCTIONS}.")) is not None


def _header_begins(text: str, at: int, options: ParseOptions, *, first: bool, final: bool) -> bool | NeedMore:
    if text[at] == "<":  # one of the markers
        return harmony_header_begins(text, at, first=first, final=final)
    return stripped_headers.stripped_header_begins(text, at, offered_recipients(options), first=first, final=final)


def _make_splitter(options: ParseOptions, inside: bool) -> MessageSplitter:
    from promptools.dialects.families.harmony_messages import HarmonySplitter

    del inside  # the lenient parser finds out whether the text begins inside a header
    return HarmonySplitter(offered_recipients(options), options)


def _takes_text(name: str, options: ParseOptions) -> bool:
    tools = options.tools
    match = tools.find(name) if tools is not None and tools.any_free_text else None
    return match is not None and match[0].free_text is not None


def _read_body(
    name: str, body: str, options: ParseOptions, evidence: Evidence, *, ended: bool
) -> Call | Malformed | None:
    """Read a body that is free text or parameters between Beam's tags; return None for any other body.

    An example of free text is code for `python`. `harmony_xml` describes Beam's tags.
    """
    match = options.tools.find(name) if options.tools is not None else None
    if match is not None and match[0].free_text is not None:
        from promptools.dialects.families.harmony_free_text import read_free_text

        return read_free_text(name, match[0], body, options, evidence, ended=ended)
    begin = body.lstrip()[:1]
    if not ended or begin in ("", "{"):
        return None
    if begin != "<" and match is None and options.undeclared:
        from promptools.dialects.families.harmony_free_text import undeclared_call

        return undeclared_call(name, body, evidence)
    if begin == "<":
        from promptools.dialects.families.harmony_xml import OPENER, read_parameters

        if body.lstrip().startswith(OPENER):
            return read_parameters(name, body, options, evidence, ended=ended)
    return None


CHANNELS = MessageFormat(
    markers=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"),
    stripped_header=stripped_headers.STRIPPED_HEADER,
    begins=_header_begins,
    make_splitter=_make_splitter,
    takes_text=_takes_text,
    read_body=_read_body,
)
