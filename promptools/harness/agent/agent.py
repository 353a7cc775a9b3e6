"""The agent: a model with tools. It works on a task until the model answers or a limit is reached.

`Agent` holds the settings. `AgentRun` performs one run: it attaches observers to the client, drives the loop of
requests and tool calls, and records the run in a file, the tape.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from promptools.errors import UsageError
from promptools.harness.agent.compaction import Compaction, ContextCapture
from promptools.harness.agent.conversation import Conversation, as_messages, mode_of, with_observers, with_options
from promptools.harness.agent.drivers import drive, drive_async
from promptools.harness.agent.harness_errors import MaxContextWindowOverflow, TerminatingError
from promptools.harness.agent.policies import AgentPolicy, PolicyName, ReplyCapture, find_policy
from promptools.harness.agent.reply_requests import RequestSettings
from promptools.harness.agent.run_events import Transcript
from promptools.harness.agent.run_limits import RunLimits
from promptools.harness.agent.tape import ReplayedToolbox, Tape, TapePlayer, TapeWriter, read_tape
from promptools.harness.agent.tool_loop import LoopSettings, RunLoop
from promptools.harness.agent.toolbox import AgentToolLike, Approve, Dispatch, Toolbox
from promptools.harness.toolsets.discovered_tools import read_discovered_tools

if TYPE_CHECKING:
    import os

    from promptools.exchange import Observer
    from promptools.harness.agent.run_events import RunEvent


TEXT_MODES = frozenset({"harmony", "raw"})
"""Modes whose prompt is plain text, which cannot hold images."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """Performs one run of an agent, and holds the objects that the run needs."""

    client: Any
    """A client, or the name of a provider for which a client is made."""
    toolbox: Toolbox
    policy: AgentPolicy
    limits: RunLimits
    compaction: Compaction | None
    create: dict[str, Any]
    """Keyword arguments for the client's `create` in every request, besides the messages and tools."""
    messages: list[dict[str, Any]] = field(repr=False)
    state: Any = None
    tape: TapeWriter | None = None
    player: TapePlayer | None = None
    """In a replay, answers requests and supplies tool results, in place of the server and the tools. None in other
    runs."""
    own_ids: bool = False
    """Whether calls get numbered ids, such as `call01200`, instead of random ones. A replay then makes the same ids."""

    def transcript(self, *, stream: bool = False) -> Transcript:
        """Run the agent to the end with a sync client; return the transcript."""
        *_, last = self.events(stream=stream)
        return cast("Transcript", last)

    async def transcript_async(self, *, stream: bool = False) -> Transcript:
        """Like `transcript`, with an async client."""
        events = [event async for event in self.events_async(stream=stream)]
        return cast("Transcript", events[-1])

    def events(self, *, stream: bool) -> Iterator[RunEvent]:
        """Run the agent with a sync client; yield its events, the last of which is the transcript."""
        with ExitStack() as stack:
            client = self.client
            if isinstance(client, str):
                from promptools.client import OpenAI

                client = stack.enter_context(OpenAI(provider=client))
            observed, loop = stack.enter_context(self._start(client))
            for event in drive(observed, loop.run(), stream=stream):
                self._record(loop, event)
                yield event

    async def events_async(self, *, stream: bool) -> AsyncIterator[RunEvent]:
        """Like `events`, with an async client."""
        async with AsyncExitStack() as stack:
            client = self.client
            if isinstance(client, str):
                from promptools.client import AsyncOpenAI

                client = await stack.enter_async_context(AsyncOpenAI(provider=client))
            observed, loop = stack.enter_context(self._start(client))
            async for event in drive_async(observed, loop.run(), stream=stream):
                self._record(loop, event)
                yield event

    @contextmanager
    def _start(self, client: Any) -> Generator[tuple[Any, RunLoop]]:
        """Prepare a run; yield two things: a client that has the run's observers, and the loop of the run.

        If the run is recorded, the first row of the tape is written before the client is yielded. If a
        `TerminatingError` ends the run, the last row of the tape records the error.
        """
        client = self.player.client(client) if self.player else client
        tape, session = self.tape, getattr(client, "promptools", None)
        if tape is not None and session is None:
            raise UsageError("a tape records what promptools' clients send: pass one, or promptools.wrap(client)")
        capture = None if session is None else ReplyCapture()
        context = None if session is None else ContextCapture()
        observers: list[Observer] = [observer for observer in (capture, context, tape) if observer is not None]
        loop = self._loop(session, capture, context)
        try:
            if tape:
                tape.begin(self.messages, self.create, getattr(client, "api_key", None))
            yield with_observers(client, observers) if observers else client, loop
        except TerminatingError as error:
            if tape and error.transcript:
                tape.end(error.transcript, error)
            raise
        finally:
            if tape:
                tape.close()

    def _loop(self, session: Any, capture: ReplyCapture | None, context: ContextCapture | None) -> RunLoop:
        create = with_options(self.create, {**self._tool_options, **self.policy.request_options}, session)
        marks = session is not None
        requests = RequestSettings(create, self.policy, self.compaction, capture, context, time.monotonic, marks)
        if session is not None:
            requests = replace(requests, dialects=session.own_dialects)
        settings = LoopSettings(requests, self.limits, reasoning=session is not None, state=self.state)
        toolbox = ReplayedToolbox(self.toolbox, self.player.results) if self.player else self.toolbox
        conversation = Conversation(list(self.messages), own_ids=self.own_ids)
        conversation.shows_images = mode_of(create, session) not in TEXT_MODES
        return RunLoop(settings, conversation, toolbox)

    @property
    def _tool_options(self) -> dict[str, Any]:
        """The request option `namespaces`, which describes the tools' namespaces; an empty dict if there are none."""
        namespaces = dict(self.toolbox.namespaces)
        return {"namespaces": namespaces} if namespaces else {}

    def _record(self, loop: RunLoop, event: RunEvent) -> None:
        if self.tape:
            self.tape.add_messages(loop.conversation.messages)
            if isinstance(event, Transcript):
                self.tape.end(event)


Task: TypeAlias = "str | Iterable[Any]"
"""A task, given as text or as messages."""
TapePath: TypeAlias = "str | os.PathLike[str]"


class Agent:
    """A model with tools. Its runs are independent of each other.

    `client` is promptools' client, any other OpenAI client, or the name of a provider in the config. `tools` are Python
    functions, tool dicts, `AgentTool`s and `Toolset`s. `dispatch` runs the tools that are given as dicts. It is either
    a mapping from tool names to functions, or one function that takes `(name, arguments)`. Other keyword arguments
    become parameters of each request.

    `policy` decides which replies are used: `"default"`, `"paper"` or an `AgentPolicy`. `compaction` decides how a long
    conversation is shortened: a `Compaction`, True for default settings, or False to never shorten it. The default is
    True, or False if the policy's checks are `"paper"`.

    `discovered` is the folder that `promptools discover` wrote, or the `tools.json` in it. With it, tools are declared
    under the names that the model was trained on. `toolbox.not_offered` lists the discovered tools that no function
    runs.

    `approve` is a function that is called before each call is run. It returns None to allow the call,
    `Change(arguments)` to run it with other arguments, or `Deny(words)` to reject it.
    """

    def __init__(
        self,
        client: Any,
        tools: Iterable[AgentToolLike] = (),
        *,
        model: str = "default",
        policy: AgentPolicy | PolicyName = "default",
        limits: RunLimits | None = None,
        compaction: Compaction | bool | None = None,
        instructions: str = "",
        dispatch: Dispatch | None = None,
        discovered: str | os.PathLike[str] | None = None,
        approve: Approve | None = None,
        **create: Any,
    ) -> None:
        self.client = client
        self.policy = find_policy(policy)
        self.limits = limits or RunLimits()
        if compaction is None:
            compaction = self.policy.checks != "paper"
        self.compaction = (Compaction() if compaction else None) if isinstance(compaction, bool) else compaction
        self.toolbox = Toolbox(tools, dispatch, read_discovered_tools(discovered) if discovered else (), approve)
        self.instructions = "\n\n".join(filter(None, (instructions, self.toolbox.instructions)))
        self.create = {"model": model, **create}

    def run(
        self,
        task: Task,
        *,
        state: Any = None,
        tape: TapePath | None = None,
        overflow_retries: int = 0,
    ) -> Transcript:
        """Work on a task until the model answers; return the transcript.

        `state` is passed to tools that take a `RunContext`. `tape` is the file in which the run is recorded. If the
        context overflows, the run is started over, up to `overflow_retries` times. If the run ends without an answer, a
        `TerminatingError` is raised, which holds the transcript so far. Errors that the client raises are passed on.
        """
        messages = self.messages(task)
        while True:
            try:
                return self._start(messages, state, tape).transcript()
            except MaxContextWindowOverflow:
                overflow_retries -= 1
                if overflow_retries < 0:
                    raise

    def stream(self, task: Task, *, state: Any = None, tape: TapePath | None = None) -> Iterator[RunEvent]:
        """Like `run`, but yield events as they happen; the last one is the transcript."""
        return self._start(self.messages(task), state, tape).events(stream=True)

    async def arun(
        self,
        task: Task,
        *,
        state: Any = None,
        tape: TapePath | None = None,
        overflow_retries: int = 0,
    ) -> Transcript:
        """Like `run`, with an async client. Tools may be async; sync tools run in threads."""
        messages = self.messages(task)
        while True:
            try:
                return await self._start(messages, state, tape).transcript_async()
            except MaxContextWindowOverflow:
                overflow_retries -= 1
                if overflow_retries < 0:
                    raise

    def astream(self, task: Task, *, state: Any = None, tape: TapePath | None = None) -> AsyncIterator[RunEvent]:
        """Like `stream`, with an async client."""
        return self._start(self.messages(task), state, tape).events_async(stream=True)

    def resume(self, tape: TapePath, message: str | None = None, *, state: Any = None) -> Transcript:
        """Continue the last run in the file `tape`, after an interruption or a limit; append to the same file.

        `message` is added as the user's last message. Raises the same errors as `resumed` and `run`.
        """
        return self.run(self.resumed(tape, message), state=state, tape=tape)

    async def aresume(self, tape: TapePath, message: str | None = None, *, state: Any = None) -> Transcript:
        """Like `resume`, with an async client."""
        return await self.arun(self.resumed(tape, message), state=state, tape=tape)

    def resumed(self, tape: TapePath, message: str | None = None) -> list[dict[str, Any]]:
        """Return the messages that continue the last run in the file `tape`; pass them to `stream` or `astream`.

        If an interruption or a limit left a call without a result, a result is added that says that the call was not
        run or was interrupted. `message` is added as the user's last message. Raises `UsageError` if the run has
        already ended with an answer.
        """
        recorded = read_tape(tape)
        if recorded.ended == "answer":
            raise UsageError(f"the run of {str(tape)!r} is complete: its last message is the answer")
        return [*recorded.messages, *([{"role": "user", "content": message}] if message else [])]

    def replay(self, tape: TapePath, *, state: Any = None) -> Transcript:
        """Repeat the last run in the file `tape`, without the server and the tools.

        Replies and the results of calls come from the tape. The agent needs one of promptools' sync clients. Raises
        `TapeMismatch`, with the difference, if this agent sends a request that differs from the recorded one.
        """
        recorded = read_tape(tape)
        return self._replayed(recorded, state).transcript(stream=recorded.streamed)

    async def areplay(self, tape: TapePath, *, state: Any = None) -> Transcript:
        """Like `replay`, with an async client."""
        recorded = read_tape(tape)
        return await self._replayed(recorded, state).transcript_async(stream=recorded.streamed)

    def messages(self, task: Task) -> list[dict[str, Any]]:
        """Return a task as a list of messages.

        The agent's instructions come first, unless the task begins with a system or developer message.
        """
        messages = as_messages([{"role": "user", "content": task}] if isinstance(task, str) else task)
        if not messages:
            raise UsageError("there is no task: pass a text, or messages")
        if not self.instructions or messages[0].get("role") in {"system", "developer"}:
            return messages
        return [{"role": "system", "content": self.instructions}, *messages]

    def _replayed(self, recorded: Tape, state: Any) -> AgentRun:
        policy = replace(self.policy, wait=None, options={**self.policy.options, "date": recorded.date})
        run = self._start(recorded.task, state, None)
        return replace(run, policy=policy, player=TapePlayer(recorded), own_ids=True)

    def _start(self, messages: list[dict[str, Any]], state: Any, tape: TapePath | None) -> AgentRun:
        return AgentRun(
            self.client,
            self.toolbox,
            self.policy,
            self.limits,
            self.compaction,
            self.create,
            messages,
            state,
            None if tape is None else TapeWriter(tape),
            own_ids=tape is not None,
        )
