"""The conversations: what the user says, the calls that are due, what the answers must hold, and the tools' results.

Each file of `suite/` holds the conversations of one kind, each file of `suite/worlds/` a set of tools with the rules
for their results; docs/tasks/run-the-tests.md describes the keys.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from benchmarks.models.question import Due

COUNTS = {
    "one": 12,
    "chain": 12,
    "mended": 9,
    "empty": 3,
    "long": 3,
    "refused": 3,
    "parallel": 9,
    "recall": 9,
    "chat": 6,
    "restraint": 12,
    "thirty": 6,
    "eight": 6,
}
"""The kinds of conversations, and how many there are of each kind."""

Part = Literal["chosen", "held"]
"""Whether wordings may be chosen with a conversation, or it is held back to judge the choice."""
HELD_EVERY = 3

SUITE = Path(__file__).parent / "suite"
WORLDS = SUITE / "worlds"
ALL_WORLDS = "all"
"""A world with the tools of all others."""
ALL_SYSTEM = "You are a helpful assistant. Today is Monday, 15 June 2026."

SPARE = 2
"""Replies that a turn may have beyond one for each due call and one for the answer."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the user, and what the model must do and say then."""

    user: str
    due: tuple[Due, ...]
    says: tuple[str | float, ...]
    """What the answer must contain: matches of regular expressions, and numbers, which may be written in any way."""
    lacks: tuple[str, ...]
    """Regular expressions that the answer must not match."""
    answer: str
    """An answer that is right."""
    together: bool
    """Whether no due call needs the result of another. The order is not judged."""

    @property
    def most(self) -> int:
        """Maximum number of replies of the model before the app gives up."""
        return len(self.due) + 1 + SPARE


@dataclass(frozen=True, slots=True)
class Rule:
    """What a tool returns for arguments that match `when`; the first rule that fits decides."""

    tool: str
    when: Mapping[str, Any]
    """Patterns for arguments, as `score.matches` takes them."""
    texts: tuple[str, ...]
    """The results of the first fitting call, the second and so on; the last is repeated."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation and its tools."""

    name: str
    kind: str
    part: Part
    system: str | None
    tools: tuple[Mapping[str, Any], ...]
    """Function definitions, without OpenAI's wrapper."""
    turns: tuple[Turn, ...]
    rules: tuple[Rule, ...]

    @property
    def digest(self) -> str:
        """A digest of what decides how the conversation goes, so that a transcript of an older text does not count."""
        said = [self.system, self.tools, [[turn.user, turn.most] for turn in self.turns], [*map(asdict, self.rules)]]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]

    def offered(self) -> list[dict[str, Any]]:
        """Return the tools in the form of a request."""
        return [{"type": "function", "function": dict(tool)} for tool in self.tools]

    def opening(self) -> list[dict[str, Any]]:
        """Return the messages before the user's first message."""
        return [{"role": "system", "content": self.system}] if self.system else []


@dataclass(frozen=True, slots=True)
class World:
    """A set of tools, and what they return."""

    system: str | None
    tools: Mapping[str, Mapping[str, Any]]
    optional: Mapping[str, Mapping[str, Any]]
    """For each tool, optional parameters that a call may have, with the values that mean the same as leaving them
    out."""
    rules: tuple[Rule, ...]


@cache
def conversations() -> tuple[Conversation, ...]:
    """Return all conversations, those with the same tools together: a server caches the beginning of their prompts."""
    found = [each for kind in COUNTS for each in _of_kind(kind)]
    return tuple(sorted(found, key=lambda each: (len(each.tools), [tool["name"] for tool in each.tools])))


@cache
def world(name: str) -> World:
    """Return a world by name."""
    if name == ALL_WORLDS:
        return _joined([world(path.stem) for path in sorted(WORLDS.glob("*.toml"))])
    table = _table(WORLDS / f"{name}.toml")
    return World(
        table.get("system"),
        {tool["name"]: tool for tool in json.loads(table["tools"])},
        table.get("optional", {}),
        tuple(map(_rule, table["result"])),
    )


def _joined(worlds: list[World]) -> World:
    return World(
        ALL_SYSTEM,
        {name: tool for each in worlds for name, tool in each.tools.items()},
        {name: values for each in worlds for name, values in each.optional.items()},
        tuple(rule for each in worlds for rule in each.rules),
    )


def _of_kind(kind: str) -> Iterator[Conversation]:
    for number, row in enumerate(_table(SUITE / f"{kind}.toml")["conversation"], 1):
        of = world(row["world"])
        yield Conversation(
            row["name"],
            kind,
            "chosen" if number % HELD_EVERY else "held",
            of.system,
            tuple(of.tools[name] for name in row.get("offer", of.tools)),
            tuple(_turn(turn, of) for turn in row["turn"]),
            (*map(_rule, row.get("result", ())), *of.rules),
        )


def _turn(row: Mapping[str, Any], of: World) -> Turn:
    due = (Due(call["name"], call["arguments"], of.optional.get(call["name"], {})) for call in row["calls"])
    says, lacks = row.get("says", ()), row.get("lacks", ())
    return Turn(row["user"], tuple(due), tuple(says), tuple(lacks), row["answer"], row.get("together", False))


def _rule(row: Mapping[str, Any]) -> Rule:
    texts = row["texts"] if "texts" in row else [row["text"]]
    if "filler" in row:
        lines = row["filler"].get("between", "\n").join(_numbered(**row["filler"]))
        texts = [text.replace("{filler}", lines) for text in texts]
    return Rule(row["tool"], row.get("when", {}), tuple(texts))


def _numbered(line: str, times: int, **_: str) -> Iterator[str]:
    """Yield a line `times` times, with two-digit numbers in place of `{n}`."""
    return (line.replace("{n}", str(number + 10)) for number in range(times))


def _table(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = _expanded(tomllib.loads(path.read_text(encoding="utf-8")))
    return table


def _expanded(value: Any) -> Any:
    """Replace each `{ begins = "Paris" }` by its meaning: this text alone, or with more words after it."""
    match value:
        case {"begins": str(text), **others} if not others:
            return {"any": [text, {"like": rf"^{text}\b"}]}
        case dict():
            return {key: _expanded(each) for key, each in value.items()}
        case list():
            return [_expanded(each) for each in value]
    return value
