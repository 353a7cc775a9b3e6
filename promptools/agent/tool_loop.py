"""The loop of model requests and tool calls, as a generator without I/O.

`converse` yields steps and is sent their results: `RequestReply` (request a reply; gets an `AccumulatedReply`),
`RunTool` (run a tool; gets its `Result`), and events, which get nothing. It returns the `Transcript`. The sync and the
async driver (`promptools.agent.drivers`) share it, and differ only in how they carry out the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.agent.run_events import CallEvent, IterationLimitError, ResultEvent, Transcript
from promptools.errors import UsageError
from promptools.types import Call, Result
from promptools.wire.chat_encoder import add_usage

if TYPE_CHECKING:
    from promptools.agent.reply_collector import AccumulatedReply
    from promptools.agent.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class RequestReply:
    """Request a reply with this body; the result is an `AccumulatedReply`."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run a tool; the result is its `Result`."""

    call: Call
    function: Callable[[], Any]


Step: TypeAlias = RequestReply | RunTool | CallEvent | ResultEvent
ToolLoop: TypeAlias = Generator[Step, Any, Transcript]


class Conversation:
    """The messages, calls and results so far."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages
        self.calls: list[Call] = []
        self.results: list[Result] = []
        self.usage: dict[str, Any] | None = None
        self.iterations = 0
        self.last: AccumulatedReply | None = None

    def add_reply(self, reply: AccumulatedReply, *, reasoning: bool) -> None:
        """Add a reply. Calls without an id get one, because results refer to calls by id."""
        for number, call in enumerate(reply.calls):
            call.id = call.id or f"call{self.iterations:03}{number:02}"
        self.messages.append(reply.message(reasoning=reasoning))
        self.usage = add_usage(self.usage, reply.usage)
        self.last = reply

    def add_result(self, result: Result) -> None:
        """Add a tool's result."""
        self.results.append(result)
        self.messages.append({"role": "tool", "tool_call_id": result.call_id, "content": result.content})

    def transcript(self) -> Transcript:
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
        )


def converse(
    messages: list[dict[str, Any]],
    toolbox: Toolbox,
    max_iterations: int,
    create: dict[str, Any],
    *,
    reasoning: bool,
) -> ToolLoop:
    """Request replies and run their calls until a reply holds none; raise `IterationLimitError` after `max_iterations`.

    A forced `tool_choice` applies to the first reply only; otherwise the model could never answer.
    """
    if max_iterations < 1:
        raise UsageError(f"max_iterations is {max_iterations!r}; at least one reply has to be asked for")
    conversation = Conversation(messages)
    offered = {"tools": toolbox.tools.to_openai()} if toolbox.tools else {}
    while True:
        reply: AccumulatedReply = yield RequestReply({**create, **offered, "messages": list(conversation.messages)})
        conversation.iterations += 1
        conversation.add_reply(reply, reasoning=reasoning)
        if not reply.calls:
            return conversation.transcript()
        if conversation.iterations == max_iterations:
            raise _limit_error(conversation, max_iterations)
        for raw in reply.calls:
            call, work = toolbox.prepare_call(raw.id, raw.name, raw.arguments)
            conversation.calls.append(call)
            yield CallEvent(call)
            result: Result = work if isinstance(work, Result) else (yield RunTool(call, work))
            conversation.add_result(result)
            yield ResultEvent(result)
        if create.get("tool_choice") not in (None, "auto", "none"):
            create = {**create, "tool_choice": "auto"}


def _limit_error(conversation: Conversation, limit: int) -> IterationLimitError:
    names = ", ".join(repr(call.name) for call in conversation.last.calls) if conversation.last else ""
    return IterationLimitError(
        f"the model still calls tools ({names}) after {limit} replies; raise max_iterations, or look at"
        " the error's transcript for why it goes round",
        transcript=conversation.transcript(),
    )
