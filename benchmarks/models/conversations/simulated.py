"""Tools whose results follow from rules: the same calls have the same results."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from benchmarks.models.conversations.conversation import Conversation, Rule
from benchmarks.models.score import matches


class SimulatedTools:
    """The tools of one conversation, which count how many times each rule has decided."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._used: Counter[int] = Counter()

    def result(self, name: str, arguments: str) -> str:
        """Return the result of a call, or an error in the words of an app."""
        tool = next((tool for tool in self._conversation.tools if tool["name"] == name), None)
        if tool is None:
            return f"error: there is no tool {name!r}"
        try:
            given = json.loads(arguments)
        except ValueError:
            return "error: the arguments are not valid JSON"
        missing = [key for key in tool["parameters"]["required"] if not isinstance(given, dict) or key not in given]
        if missing:
            return f"error: missing arguments: {', '.join(missing)}"
        for number, rule in enumerate(self._conversation.rules):
            if rule.tool == name and _fits(rule, given):
                text = rule.texts[min(self._used[number], len(rule.texts) - 1)]
                self._used[number] += 1
                return text
        return "error: nothing found"


def _fits(rule: Rule, arguments: dict[str, Any]) -> bool:
    return all(name in arguments and matches(arguments[name], expected) for name, expected in rule.when.items())
