"""The conversation of a run: its messages, calls, results, steps and tokens so far."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from promptools.agent.loop.shown_images import result_content, without_images
from promptools.agent.run_events import Transcript
from promptools.json_values import is_object
from promptools.wire.chat_encoder import add_usage

if TYPE_CHECKING:
    from promptools.agent.loop.reply_collector import AccumulatedReply
    from promptools.agent.run_events import StepEvent
    from promptools.types import Call, Result


_OWN_ID = re.compile(r"call([0-9]{3,})[0-9]{2}")
"""The number of a reply, and of its call, in an id that was made here."""


class Conversation:
    """The messages, calls and results so far. The task is the last message of the user among those passed in."""

    def __init__(self, messages: list[dict[str, Any]], *, own_ids: bool = False) -> None:
        self.messages = messages
        self.task = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=-1)
        """The position of the task; -1 without one."""
        self.calls: list[Call] = []
        self.results: list[Result] = []
        self.steps: list[StepEvent] = []
        self.usage: dict[str, Any] | None = None
        self.iterations = 0
        self.last: AccumulatedReply | None = None
        self.shows_images = True
        """Whether the model is shown the images of results."""
        self._own_ids = own_ids
        self._first_id = _next_own_id(messages)

    def add_usage(self, usage: dict[str, Any] | None) -> None:
        """Add the tokens of a reply, whether it is used or not."""
        self.usage = add_usage(self.usage, usage)

    def add_reply(self, reply: AccumulatedReply, *, reasoning: bool) -> None:
        """Add a reply. Calls without an id get one, because results refer to calls by id."""
        for number, call in enumerate(reply.calls):
            own = f"call{self._first_id + self.iterations:03}{number:02}"
            call.id = own if self._own_ids else call.id or own
        self.iterations += 1
        self.messages.append(reply.message(reasoning=reasoning))
        self.last = reply

    def add_result(self, result: Result) -> None:
        """Add a tool's result."""
        self.results.append(result)
        content = result_content(result, shown=self.shows_images)
        self.messages.append({"role": "tool", "tool_call_id": result.call_id, "content": content})

    def replace(self, messages: list[dict[str, Any]], task: int) -> None:
        """Replace the messages by fewer or shorter ones; `task` is the task's position among them."""
        self.messages, self.task = messages, task

    def drop_images(self) -> None:
        """Replace the images of results by a note, those of later results too."""
        self.shows_images = False
        self.messages = without_images(self.messages)

    def transcript(self, ended: str = "answer") -> Transcript:
        """Return the conversation so far as a transcript."""
        return Transcript(
            messages=list(self.messages),
            content=self.last.content if self.last else "",
            reasoning=self.last.reasoning if self.last else "",
            calls=tuple(self.calls),
            results=tuple(self.results),
            iterations=self.iterations,
            finish_reason=self.last.finish_reason if self.last else None,
            usage=self.usage,
            ended=ended,
            steps=tuple(self.steps),
        )


def _next_own_id(messages: list[dict[str, Any]]) -> int:
    """Return the number of a reply whose calls get ids that are not in the messages, as those of a resumed run may be.

    An id that occurs twice would make one result that of two calls.
    """
    calls = (call for message in messages for call in message.get("tool_calls") or () if is_object(call))
    numbers = (int(match[1]) for call in calls if (match := _OWN_ID.fullmatch(str(call.get("id")))))
    return max(numbers, default=-1) + 1
