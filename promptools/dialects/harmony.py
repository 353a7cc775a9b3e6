"""Harmony, the format of gpt-oss: each thought, answer and call is a message with a header.

    <|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather
    <|constrain|>json<|message|>{"city": "Oslo"}<|call|>                                      (in one line)

`promptools.harmony` reads and writes the format; here it becomes a dialect. Source: openai/harmony, docs/format.md
(0.0.8); what models and servers make of it: `promptools.harmony.machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, assert_never

from promptools.dialects.base import Channels, Head, Tier
from promptools.dialects.settle import Place, Rules
from promptools.harmony import bare
from promptools.harmony.convert import convert
from promptools.harmony.header import Header, Known
from promptools.harmony.items import ItemParser
from promptools.harmony.machine import Aside, Begin, Finish, Item, Words
from promptools.harmony.names import FUNCTIONS, Names
from promptools.harmony.opening import token_begins
from promptools.harmony.render import Message, render, text_of
from promptools.harmony.tokens import escape_json
from promptools.parsing.parts import Candidate
from promptools.parsing.segments import Beside, Ended, Opened, Said, Segment
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools


class Harmony:
    """`<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`."""

    name = "harmony"
    tier: Tier = "S"
    heads: tuple[Head, ...] = ()
    closers: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()

    @property
    def channels(self) -> Channels:
        """How its messages are told apart."""
        return CHANNELS

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Refuse: no head of it stands alone."""
        raise NotImplementedError(f"{self.name} is read by its channels")

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        told = convert([], tools).messages[-1]
        how_many = "" if parallel else " Call one tool at a time."
        when = " You must call a tool in this turn." if required else ""
        return f"{text_of(told)}\n\nCalls to these tools must go to the commentary channel.{how_many}{when}"

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls as the model would have."""
        return render((_call(each) for each in calls), then=None)

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return render((_result(each) for each in results), then=None)


class HarmonyCutter:
    """Cuts a reply of the assistant's into segments."""

    def __init__(self, rules: Rules, inside: bool) -> None:
        del inside  # it makes no difference to a lenient reading
        self._items = ItemParser("assistant", known=known_in(rules))

    def feed(self, text: str) -> list[Segment]:
        """Take a piece of text; give what became certain."""
        return [segment_of(each) for each in self._items.feed(text)]

    def close(self) -> list[Segment]:
        """Say that the text is over; give the rest."""
        return [segment_of(each) for each in self._items.close()]


def segment_of(item: Item) -> Segment:
    """Say what an item of the machine's is to the user."""
    match item:
        case Begin(header, raw):
            return _opened(header, raw)
        case Words(raw):
            return Said(raw)
        case Finish(by, raw):
            return Ended(raw, whole=by not in {"cut", "header"}, headless=by == "header")
        case Aside(kind, raw):
            return Beside("markup" if kind == "token" else kind, raw)
        case _:
            assert_never(item)


def _opened(header: Header, raw: str) -> Opened:
    fixes = tuple(Fix("marker", f"harmony: {each}") for each in header.repairs)
    exact = raw.endswith("<|message|>")
    if header.role != "assistant":
        return Opened("other", raw, fixes=fixes, exact=exact)
    if header.is_call:
        return Opened("call", raw, header.recipient.removeprefix(f"{FUNCTIONS}."), fixes, exact=exact)
    kind: Literal["thoughts", "words"] = "thoughts" if header.channel == "analysis" else "words"
    return Opened(kind, raw, fixes=fixes, final=header.channel == "final", vague=not header.channel, exact=exact)


def _call(call: Call) -> Message:
    recipient = Names([call.name]).place(call.name).recipient
    return Message("assistant", escape_json(call.arguments_json), "", "commentary", recipient, "<|constrain|>json")


def _result(result: Result) -> Message:
    recipient = Names([result.name]).place(result.name).recipient
    return Message("tool", result.content, recipient, "commentary", "assistant")


def known_in(rules: Rules) -> Known | None:
    """Tell by a recipient whether its tool is offered; None: nobody knows which are."""
    tools = rules.tools
    if tools is None:
        return None
    return lambda name: tools.get(name) is not None or tools.get(name.removeprefix(f"{FUNCTIONS}.")) is not None


def _begins(text: str, at: int, rules: Rules, *, first: bool, final: bool) -> bool | None:
    if text[at] == "<":  # one of the markers
        return token_begins(text, at, first=first, final=final)
    return bare.begins(text, at, known_in(rules), first=first, final=final)


CHANNELS = Channels(
    markers=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"),
    bare=bare.HEADER,
    begins=_begins,
    cutter=HarmonyCutter,
)
