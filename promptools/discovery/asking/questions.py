"""The questions of each stage, and how one is told from another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from promptools.discovery.asking.intents import Intent

Stage = Literal["intent", "targeted", "list", "forced", "describe", "defined"]

TARGETED = (
    "{text} Do it now, with the tool that you would use, and give it all the arguments that it takes.",
    "{text} Make exactly one tool call for it, with precise arguments. Do not answer in words.",
)
LISTS = (
    "List the names of all tools that you can call, one in each line, without explanations.",
    "Which tools do you have for working in a repository? Give their exact names.",
    "What are the tools that you were trained to use? Name each with its namespace, if it has one.",
    "Name every function that you can call for files, searches, edits and commands.",
)
FORCED = (
    "Call the tool `{name}` now. Make up fitting arguments; answer with nothing but the call.",
    "Show that you can use `{name}`: make one call of it, with realistic arguments.",
    "Your next message must be a call of `{name}` in a Python repository.",
)
DESCRIPTIONS = (
    "Describe the tool `{name}`: list each of its parameters by name, with its type and what it does.",
    "Write the JSON Schema of the parameters of the tool `{name}`.",
    "Which arguments does `{name}` take? Name each, and say whether it is required.",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt of one stage, asked for the `repeat`-th time."""

    stage: Stage
    prompt: str
    repeat: int
    kind: str = ""
    subject: str = ""
    """The tool that it is about, or where tools are defined: `system`, `developer` or `request`."""
    tools: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def key(self) -> str:
        """A digest of all that is asked."""
        asked = [self.stage, self.prompt, self.repeat, self.subject, list(self.tools), dict(self.options)]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:20]


def intent_questions(intents: Sequence[Intent], repeats: int) -> list[Question]:
    """Return each intent, without tools."""
    return [Question("intent", own.text, repeat, own.kind) for repeat in range(repeats) for own in intents]


def targeted_questions(intents: Sequence[Intent], repeats: int) -> list[Question]:
    """Return the intents again, asking for a precise call."""
    return [
        Question("targeted", form.format(text=own.text), repeat, own.kind)
        for repeat in range(repeats)
        for own in intents
        for form in TARGETED
    ]


def list_questions(repeats: int) -> list[Question]:
    """Return questions for the names of the model's tools."""
    return [Question("list", text, repeat) for repeat in range(repeats) for text in LISTS]


def forced_questions(name: str, repeats: int) -> list[Question]:
    """Return requests to call the tool."""
    return [Question("forced", text.format(name=name), n, subject=name) for n in range(repeats) for text in FORCED]


def description_questions(name: str, repeats: int) -> list[Question]:
    """Return questions for the parameters of the tool."""
    return [
        Question("describe", text.format(name=name), n, subject=name) for n in range(repeats) for text in DESCRIPTIONS
    ]


def defined_questions(
    intents: Sequence[Intent],
    repeats: int,
    tools: Sequence[Mapping[str, Any]],
    placement: str,
    options: Mapping[str, Any],
) -> list[Question]:
    """Return each intent, with tools."""
    return [
        Question("defined", own.text, repeat, own.kind, placement, tools, options)
        for repeat in range(repeats)
        for own in intents
    ]
