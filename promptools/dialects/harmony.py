"""Harmony, the format of gpt-oss: reasoning, answers and calls are messages, each with a header.

    <|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather
    <|constrain|>json<|message|>{"city": "Oslo"}<|call|>                                      (in one line)

`promptools.harmony` reads and writes the format; this module makes it a dialect. Source: openai/harmony,
docs/format.md (0.0.8); for what models and servers make of it see `promptools.harmony.machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.base import Channels, Textual, Tier
from promptools.dialects.settle import Place, Rules
from promptools.harmony import bare
from promptools.harmony.names import FUNCTIONS, Names
from promptools.harmony.opening import token_begins
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.harmony.header import Known
    from promptools.harmony.render import Message
    from promptools.parsing.segments import Cutter
    from promptools.schema import Tools

# every reply is searched for Harmony, so what only a Harmony reply needs is imported with the first one


class Harmony(Textual):
    """`<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`."""

    name = "harmony"
    models = "gpt-oss, Beam"
    tier: Tier = "S"

    def __init__(self) -> None:
        self.channels = CHANNELS

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Raise NotImplementedError: the dialect has no heads."""
        raise NotImplementedError(f"{self.name} is read by its channels")

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        from promptools.harmony.convert import convert
        from promptools.harmony.render import text_of

        message = convert([], tools).messages[-1]
        how_many = "" if parallel else " Call one tool at a time."
        when = " You must call a tool in this turn." if required else ""
        return f"{text_of(message)}\n\nCalls to these tools must go to the commentary channel.{how_many}{when}"

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        from promptools.harmony.render import render

        return render((_call(call) for call in calls), then=None, escape=str)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        from promptools.harmony.render import render

        return render((_result(result) for result in results), then=None, escape=str)


def _call(call: Call) -> Message:
    from promptools.harmony.render import Message
    from promptools.harmony.tokens import escape_json

    recipient = Names([call.name]).place(call.name).recipient
    return Message("assistant", escape_json(call.arguments_json), "", "commentary", recipient, "<|constrain|>json")


def _result(result: Result) -> Message:
    from promptools.harmony.render import Message

    recipient = Names([result.name]).place(result.name).recipient
    return Message("tool", result.content, recipient, "commentary", "assistant")


def known_in(rules: Rules) -> Known | None:
    """Return a predicate for recipients whose tool is offered; None if the offered tools are not known."""
    tools = rules.tools
    if tools is None:
        return None
    return lambda name: tools.get(name) is not None or tools.get(name.removeprefix(f"{FUNCTIONS}.")) is not None


def _begins(text: str, at: int, rules: Rules, *, first: bool, final: bool) -> bool | None:
    if text[at] == "<":  # one of the markers
        return token_begins(text, at, first=first, final=final)
    return bare.begins(text, at, known_in(rules), first=first, final=final)


def _cutter(rules: Rules, inside: bool) -> Cutter:
    from promptools.dialects.cutter import HarmonyCutter

    del inside  # it makes no difference to a lenient parser
    return HarmonyCutter(known_in(rules))


CHANNELS = Channels(
    markers=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"),
    bare=bare.HEADER,
    begins=_begins,
    cutter=_cutter,
)
