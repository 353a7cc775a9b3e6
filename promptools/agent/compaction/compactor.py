"""Carry a compaction out, stage by stage, until the conversation is expected to fit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.agent.compaction import compaction_plan as plan
from promptools.agent.run_events import CompactionEvent, CompactionStage

if TYPE_CHECKING:
    from promptools.agent.compaction.compaction_plan import Compaction
    from promptools.agent.compaction.context_capture import ContextCapture
    from promptools.agent.loop.conversation import Conversation

AskSummary: TypeAlias = Callable[[list[dict[str, Any]]], Generator[Any, Any, str]]
"""Requests a summary with these messages; returns it, or an empty text if there is none."""
MOST_TOKENS = 1.0
"""Tokens of a character, at most: text in most scripts has fewer."""
STAGES: tuple[CompactionStage, ...] = ("reasoning", "results", "summary", "latest results")


class Compactor:
    """Makes a conversation shorter. How many tokens it has is known from the last prompt that the server counted.

    What was added since then, or removed, counts by its characters. That prompt also holds the tools, and the template:
    in a short conversation they are most of it, so a character never counts as more than `MOST_TOKENS`.
    """

    def __init__(
        self,
        settings: Compaction,
        conversation: Conversation,
        ask_summary: AskSummary,
        detected: ContextCapture | None = None,
    ) -> None:
        self.settings = settings
        self._known_context = settings.context
        self._detected = detected
        self._conversation = conversation
        self._ask_summary = ask_summary
        self._counted: tuple[int, int] | None = None
        """The tokens of the last prompt, and the characters of its conversation."""

    @property
    def context(self) -> int | None:
        """The tokens of the context: what the app or an error of the server says, else what detection knows."""
        return self._known_context or (self._detected.size if self._detected else None)

    def learn(self, prompt_tokens: int | None, characters: int, context: int | None = None) -> None:
        """Learn how many tokens the prompt of a conversation of so many characters has, and how many the context."""
        if prompt_tokens and characters:
            self._counted = prompt_tokens, characters
        self._known_context = context or self._known_context

    @property
    def is_due(self) -> bool:
        """Whether the conversation is expected to take up more of the context than it may."""
        return self._fits() is False

    def compact(self) -> Generator[Any, Any, bool]:
        """Make the conversation shorter until it is expected to fit; return whether anything changed."""
        changed = False
        for stage in STAGES:
            before = plan.size(self._conversation.messages)
            messages, task = yield from self._apply(stage)
            after = plan.size(messages)
            if after >= before:
                continue
            self._conversation.replace(messages, task)
            yield CompactionEvent(stage, before, after)
            changed = True
            if self._fits() is not False:
                return True
        return changed

    def _apply(self, stage: CompactionStage) -> Generator[Any, Any, tuple[list[dict[str, Any]], int]]:
        messages, task = self._conversation.messages, self._conversation.task
        latest, characters = plan.latest_turns(messages, self.settings.keep_turns), self.settings.result_characters
        match stage:
            case "reasoning":
                return plan.without_reasoning(messages, latest), task
            case "results":
                return plan.with_short_results(messages, 0, latest, characters), task
            case "latest results":
                return plan.with_short_results(messages, latest, len(messages), characters), task
            case _:
                return (yield from self._summarise(latest))

    def _summarise(self, latest: int) -> Generator[Any, Any, tuple[list[dict[str, Any]], int]]:
        messages, task = self._conversation.messages, self._conversation.task
        old = plan.old_messages(messages, task, latest)
        if not self.settings.summarise or all(plan.is_summary(messages[at]) for at in old):
            return messages, task
        room = plan.size(messages) // 2
        if self.context and self._counted:
            room = int(self.context * self.settings.threshold / self._tokens_per_character / 2)
        summary = yield from self._ask_summary(plan.summary_request(messages, task, old, room))
        return plan.with_summary(messages, task, old, summary) if summary else (messages, task)

    def _fits(self) -> bool | None:
        """Whether the conversation is expected to fit; None if nothing is known."""
        if self.context is None or self._counted is None:
            return None
        tokens, characters = self._counted
        added = plan.size(self._conversation.messages) - characters
        return tokens + added * self._tokens_per_character <= self.context * self.settings.threshold

    @property
    def _tokens_per_character(self) -> float:
        assert self._counted is not None
        tokens, characters = self._counted
        return min(tokens / characters, MOST_TOKENS)
