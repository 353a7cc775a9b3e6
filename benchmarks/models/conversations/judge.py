"""Judge, by rules and without a model, whether a turn was answered, and how many of its calls were needless."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.models.conversations.conversation import Conversation, Turn
from benchmarks.models.conversations.transcript import Said, TurnHeld
from benchmarks.models.question import Due
from benchmarks.models.score import CallMade, meets

Outcome = Literal["answered", "error", "not ended", "calls", "empty", "no text", "our words", "wrong"]
"""Answered, or the first thing that is wrong: the server failed; the model never stopped calling; a due call was not
made with the right arguments; the answer is empty, is JSON or a call, repeats the prompt, or does not hold what it
must."""

_SEPARATOR = "[,. \u00a0\u202f’']?"
_WORDS = {
    0: "zero",
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
    12: "twelve",
}
_JSON = json.JSONDecoder()
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one turn."""

    outcome: Outcome
    calls: int
    needless: int
    """Calls beyond those that were due: wrong ones, and right ones made again."""
    due: int

    @property
    def answered(self) -> bool:
        """Whether all due calls were made, and an answer came that holds what it must."""
        return self.outcome == "answered"

    @property
    def clean(self) -> bool:
        """Whether the turn was answered without a needless call."""
        return self.answered and not self.needless


def judge(conversation: Conversation, turns: Sequence[TurnHeld]) -> list[Verdict]:
    """Return the verdict on each turn of a conversation; a turn that was never reached counts as an error."""
    missing = [TurnHeld(error="not reached")] * (len(conversation.turns) - len(turns))
    return [judge_turn(turn, held) for turn, held in zip(conversation.turns, [*turns, *missing], strict=True)]


def judge_turn(turn: Turn, held: TurnHeld) -> Verdict:
    """Return the verdict on one turn."""
    met = _met(turn.due, held.calls)
    return Verdict(_outcome(turn, held, met), len(held.calls), len(held.calls) - met, len(turn.due))


def _outcome(turn: Turn, held: TurnHeld, met: int) -> Outcome:
    if held.error:
        return "error"
    if held.final is None:
        return "not ended"
    if met < len(turn.due):
        return "calls"
    return _answer(turn, held.final)


def _answer(turn: Turn, said: Said) -> Outcome:
    content = said.content.strip()
    if not content:
        return "empty"
    if said.printed or _is_json(content):
        return "no text"
    if said.echoed:
        return "our words"
    right = all(_holds(content, each) for each in turn.says) and not any(_holds(content, each) for each in turn.lacks)
    return "answered" if right else "wrong"


def _met(due: Sequence[Due], calls: Sequence[CallMade]) -> int:
    """Return how many due calls were made; each call counts for at most one of them."""
    open_calls = list(due)
    for call in calls:
        fit = next((each for each in open_calls if meets(call, each)), None)
        if fit is not None:
            open_calls.remove(fit)
    return len(due) - len(open_calls)


def _is_json(content: str) -> bool:
    """Whether an answer is only JSON objects or lists, in a fence or not, and so has no text for a user."""
    fence = _FENCE.match(content)
    rest = (fence[1] if fence else content).strip()
    while rest.startswith(("{", "[")):
        try:
            _, end = _JSON.raw_decode(rest)
        except ValueError:
            return False
        rest = rest[end:].strip()
    return not rest


def _holds(content: str, expected: str | float) -> bool:
    if isinstance(expected, str):
        return re.search(expected, content, re.IGNORECASE | re.MULTILINE) is not None
    return any(re.search(pattern, content) for pattern in _number_patterns(expected))


def _number_patterns(number: float) -> list[str]:
    """Return patterns for a number: in digits, maybe with thousands separators; rounded to millions; in words.

    Decimals follow a point or a comma, and zeros may follow them.
    """
    whole, _, decimals = f"{number:.10f}".rstrip("0").partition(".")
    digits = _SEPARATOR.join(f"{int(whole):,}".split(","))
    fraction = rf"[.,]{decimals}0*" if decimals else r"([.,]0+)?"
    patterns = [rf"(?<![\d.,]){digits}{fraction}(?!\d|[.,]\d)"]
    if number >= 1_000_000:
        million = f"{number / 1_000_000:.1f}".replace(".", "[.,]")
        patterns.append(rf"(?<![\d.,]){million}\d*\s+million")
    if number in _WORDS:
        patterns.append(rf"(?i)(?<![\w-]){_WORDS[int(number)]}(?![\w-])")
    return patterns
