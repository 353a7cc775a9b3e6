"""The questions: what the user says, which tools are offered, and which calls are expected.

Each file of `questions/` is one set of tools and its questions; docs/tasks/run-the-tests.md describes its keys.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

Kind = Literal["one", "several", "parallel", "nested", "enum", "none", "turns"]
"""What makes a question hard: see docs/reference/matrix.md."""
KINDS: tuple[Kind, ...] = get_args(Kind)

Half = Literal["chosen", "held"]
"""Whether the prompt wording was chosen with a question, or the question was held out to evaluate the choice."""

FOLDER = Path(__file__).parent / "questions"


@dataclass(frozen=True, slots=True)
class Due:
    """One expected call. Values may be patterns: see `score.matches`."""

    name: str
    arguments: Mapping[str, Any]
    """Required parameters."""
    optional: Mapping[str, Any]
    """Optional parameters, with the values that they must have."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request, and its right answer."""

    name: str
    kind: Kind
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    """Function definitions, without OpenAI's wrapper."""
    due: tuple[Due, ...]
    says: str | None
    """A regular expression that the text of an answer must match."""
    half: Half

    @property
    def digest(self) -> str:
        """Digest of the question, so that a result for an older text of the same name does not count."""
        asked = json.dumps([self.messages, self.tools], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:12]

    def offered(self) -> list[dict[str, Any]]:
        """Return the tools in the form of a request."""
        return [{"type": "function", "function": dict(tool)} for tool in self.tools]


def questions() -> list[Question]:
    """Return all questions, those with the same tools together: a server caches the common prefix of their prompts."""
    return [question for path in sorted(FOLDER.glob("*.toml")) for question in _ordered(path)]


def _ordered(path: Path) -> list[Question]:
    result = list(_read(path))
    return sorted(result, key=lambda question: (len(question.tools), [tool["name"] for tool in question.tools]))


def _read(path: Path) -> Iterator[Question]:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    tools = {tool["name"]: tool for tool in json.loads(table["tools"])}
    system = [{"role": "system", "content": table["system"]}] if "system" in table else []
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    for row in table["question"]:
        messages = json.loads(row["messages"]) if "messages" in row else [{"role": "user", "content": row["user"]}]
        yield Question(
            row["name"],
            row["kind"],
            (*system, *messages),
            tuple(tools[name] for name in row.get("offer", tools)),
            tuple(Due(call["name"], call.get("arguments", {}), call.get("optional", {})) for call in row["calls"]),
            row.get("says"),
            "held" if next(numbers[row["kind"]]) % 2 else "chosen",
        )
