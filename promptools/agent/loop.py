"""The loop of asking and calling, as a generator without I/O: shells do the asking and run the tools."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.agent.events import CallEvent, IterationLimitError, ResultEvent, Transcript
from promptools.errors import UsageError
from promptools.types import Call, Result
from promptools.wire.chunks import add_usage

if TYPE_CHECKING:
    from promptools.agent.reply import Gathered
    from promptools.agent.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model with these keys of a request; is sent what was `Gathered`."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """Run a tool; is sent its `Result`."""

    call: Call
    work: Callable[[], Any]


Step: TypeAlias = Ask | Run | CallEvent | ResultEvent
Loop: TypeAlias = Generator[Step, Any, Transcript]


class Conversation:
    """What has been said and done so far."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages
        self.calls: list[Call] = []
        self.results: list[Result] = []
        self.usage: dict[str, Any] | None = None
        self.iterations = 0
        self.last: Gathered | None = None

    def heard(self, reply: Gathered, *, reasoning: bool) -> None:
        """Take in a reply; calls without an id get one, because results are told apart by it."""
        for number, call in enumerate(reply.calls):
            call.id = call.id or f"call{self.iterations:03}{number:02}"
        self.messages.append(reply.message(reasoning=reasoning))
        self.usage = add_usage(self.usage, reply.usage)
        self.last = reply

    def done(self, result: Result) -> None:
        """Take in a tool's result."""
        self.results.append(result)
        self.messages.append({"role": "tool", "tool_call_id": result.call_id, "content": result.content})

    def transcript(self) -> Transcript:
        """Give all of it."""
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
) -> Loop:
    """Ask, run the calls, ask again, until a reply holds no call; `IterationLimitError` after `max_iterations` replies.

    A forced `tool_choice` holds for the first reply only: held on to, it would never let the model answer.
    """
    if max_iterations < 1:
        raise UsageError(f"max_iterations is {max_iterations!r}; at least one reply has to be asked for")
    so_far = Conversation(messages)
    offered = {"tools": toolbox.tools.to_openai()} if toolbox.tools else {}
    while True:
        reply: Gathered = yield Ask({**create, **offered, "messages": list(so_far.messages)})
        so_far.iterations += 1
        so_far.heard(reply, reasoning=reasoning)
        if not reply.calls:
            return so_far.transcript()
        if so_far.iterations == max_iterations:
            raise _limit(so_far, max_iterations)
        for raw in reply.calls:
            call, work = toolbox.read(raw.id, raw.name, raw.arguments)
            so_far.calls.append(call)
            yield CallEvent(call)
            result: Result = work if isinstance(work, Result) else (yield Run(call, work))
            so_far.done(result)
            yield ResultEvent(result)
        if create.get("tool_choice") not in (None, "auto", "none"):
            create = {**create, "tool_choice": "auto"}


def _limit(so_far: Conversation, limit: int) -> IterationLimitError:
    names = ", ".join(repr(call.name) for call in so_far.last.calls) if so_far.last else ""
    return IterationLimitError(
        f"the model still calls tools ({names}) after {limit} replies; raise max_iterations, or look at"
        " the error's transcript for why it goes round",
        transcript=so_far.transcript(),
    )
