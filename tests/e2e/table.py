"""The table of cases for all real servers, `cases.toml`: what the model says, what is asked, what the app must see.

A row:

    name          unique; the user's message is made of it, and is the model's cue
    why, source   why the row is so; where it was seen (a server's issue, or a measurement)
    hermes        what a model says whose template has Hermes tags
    harmony       what gpt-oss says
    coder         what Qwen3-Coder says
    text          what every model says that has no words of its own above; Harmony puts it into its final channel
    prompted      what each says instead where the tools are in the prompt
    tagged        the same, where the prompt asks for Hermes tags; a model that has none says what it always says
    answer        what it says when it has the results of its calls; then the conversation goes on to there
    request       keys of the body besides `model` and `messages`; tools by name, ["get_weather"] where none are given
    history       messages between the question and the answer, as JSON
    options       the `promptools` key of the request
    calls         [[name, arguments], ...] that the app must see, arguments as JSON
    opened        how the arguments begin of a last call that it sees in part, since the reply was cut off there
    content       text that it must see, but for white space around it; without the key nothing is checked
    reasoning     the same
    finish_reason what it must be: `tool_calls` beside calls, else `stop`, where nothing else is said
    error         a part of the error that it must see instead
    fixes         kinds of the fixes on record
    mode          the mode that answers, where it is not the rig's own; "" where none does, "any" where chance decides
    header        a header of Harmony's that is malformed, or nearly: such rows are played in harmony mode too
    streamed      keys of the above that are other when the answer is streamed
    begun         what each family goes on with after the beginning of a required call: [the beginning, the rest]
    raw           keys of the above that are other in raw mode, where the server neither forces nor reads a call
    on.RIG        keys of the above that are other on that rig, or on all of a server (`on.vllm`); `skip` says why the
                  row cannot be played there. In raw mode only `on.RIG.raw` holds

Only families with words can play a row. `{words}` and `{long}` are some 700 bytes and some 5 KB of words.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from promptools.lab.script import ScriptedReply

Family = Literal["hermes", "harmony", "coder", "think"]
"""`think` says what `hermes` says, after thoughts that the template has opened."""

WORDS = " ".join(f"word{number}" for number in range(100))
LONG = " ".join(f"word{number}" for number in range(700))


def _read() -> dict[str, Any]:
    text = (Path(__file__).parent / "cases.toml").read_text("utf-8")
    return tomllib.loads(text.replace("{words}", WORDS).replace("{long}", LONG))


BOOK = _read()
TOOLS: dict[str, Any] = {name: json.loads(text) for name, text in BOOK["tool"].items()}


@dataclass(frozen=True, slots=True)
class Case:
    """One row."""

    name: str
    why: str = ""
    source: str = ""
    hermes: str | None = None
    harmony: str | None = None
    coder: str | None = None
    text: str | None = None
    prompted: str | None = None
    tagged: str | None = None
    answer: str | None = None
    request: dict[str, Any] = field(default_factory=dict)
    history: str = "[]"
    options: dict[str, Any] = field(default_factory=dict)
    calls: list[list[Any]] = field(default_factory=list)
    opened: str = ""
    content: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    error: str = ""
    fixes: list[str] = field(default_factory=list)
    mode: str | None = None
    header: bool = False
    begun: dict[Family, tuple[str, str]] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    streamed: dict[str, Any] = field(default_factory=dict)
    skip: str | None = None
    on: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def question(self) -> str:
        return f"Case: {self.name}."

    @property
    def result(self) -> str:
        """What the tools of this row give back; the cue of `answer`."""
        return f"Result: {self.name}."

    @property
    def tools(self) -> list[Any]:
        return [TOOLS[name] for name in self.request.get("tools", ["get_weather"])]

    def body(self) -> dict[str, Any]:
        """Return the request's keys, but for the model."""
        messages = [{"role": "user", "content": self.question}, *json.loads(self.history)]
        keys = {**self.request, "tools": self.tools} if self.tools else {}
        return {"messages": messages, **keys}

    def ours(self, provider: str | None = None) -> dict[str, Any]:
        """Return what a request says to promptools; one without tools says nothing, and so passes untouched."""
        if not self.tools:
            return {}
        named = {} if provider is None else {"provider": provider}
        return {"extra_body": {"promptools": {"trace": True, **named, **self.options}}}

    def ends(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")

    def says(self, family: Family) -> str | None:
        """Return what a model of this family says; None where the row is not for it."""
        if family == "think":
            own = None if self.hermes is None else spoken(self.hermes, family)
        else:
            own = getattr(self, family)
        return own if own is not None or self.text is None else spoken(self.text, family)

    def when(self, form: str) -> Case:
        """Return the row as it is when the answer comes in this form."""
        return replace(self, **self.streamed) if form == "streamed" else self

    def seen(self, rig: str, family: Family) -> Case | None:
        """Return the row as it is on a rig; None where it is not played there."""
        here = replace(self, **{**self.on.get(rig.partition("-")[0], {}), **self.on.get(rig, {})})
        return None if here.skip or here.says(family) is None else here

    def in_raw_mode(self, rig: str, family: Family) -> Case | None:
        """Return the row as it is in raw mode on a rig; None where it is not played there."""
        row = ROWS[self.name]
        keys = dict(row.raw)
        for name in (rig.partition("-")[0], rig):
            keys |= row.on.get(name, {}).get("raw", {})
        mode = "" if row.mode == "" else "raw"
        here = replace(row, **{"mode": mode, **keys, "options": {**row.options, "mode": "raw"}})
        is_for_it = row.tools and "mode" not in row.options and here.says(family) is not None
        return here if is_for_it and not here.skip else None


def spoken(text: str, family: Family) -> str:
    """Write plain text as a model of this family says it."""
    match family:
        case "harmony":
            return f"<|channel|>final<|message|>{text}<|return|>"
        case "think":
            return text.removeprefix("<think>\n") if text.startswith("<think>") else f"Simple.\n</think>\n\n{text}"
        case _:
            return text


CASES = [Case(**row) for row in BOOK["case"]]
ROWS = {case.name: case for case in CASES}
PLACES = {case.name: place for place, case in enumerate(CASES)}


def played(rig: str, family: Family) -> Iterator[Case]:
    """Return the rows that are played on a rig, as they are there."""
    for case in CASES:
        here = case.seen(rig, family)
        if here is not None:
            yield here


def played_raw(rig: str, family: Family) -> Iterator[Case]:
    """Return the rows that are played in raw mode on a rig, as they are there."""
    for case in CASES:
        here = case.in_raw_mode(rig, family)
        if here is not None:
            yield here


HEADERS = [case for case in CASES if case.header]
"""Rows that are played in harmony mode on each server of gpt-oss: there its parser and its grammar have no say."""


def part_of(case: Case, parts: int) -> int:
    """Return which of `parts` has a row."""
    return PLACES[case.name] % parts


def lines(
    rig: str, family: Family, prompted: str, dialect: str, *, part: int = 0, parts: int = 1
) -> Iterator[ScriptedReply]:
    """Return the lines of a rig's model, for the rows of one of `parts`.

    `prompted` is a phrase that only our prompted requests, in `dialect`, hold.
    """
    headers = HEADERS if family == "harmony" else []
    shown = {case.name: case for case in (*headers, *played_raw(rig, family), *played(rig, family))}
    for case in shown.values():
        if part_of(case, parts) != part:
            continue
        yield ScriptedReply(case.question, case.says(family) or "")
        called = case.tagged if dialect == "hermes" else case.prompted
        if called is not None:
            yield ScriptedReply(case.question, spoken(called, family), setting=prompted)
        if family in case.begun:
            beginning, rest = case.begun[family]
            yield ScriptedReply(case.question, rest, setting=beginning)
        if case.answer is not None:
            yield ScriptedReply(case.result, spoken(case.answer, family))
