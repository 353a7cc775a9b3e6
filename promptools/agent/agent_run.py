"""One run of an agent: its client, which observers follow, its loop, its driver, and its tape."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from promptools.agent.compaction.context_capture import ContextCapture
from promptools.agent.harness_errors import TerminatingError
from promptools.agent.loop.client_requests import mode_of, with_observers, with_options
from promptools.agent.loop.conversation import Conversation
from promptools.agent.loop.drivers import drive, drive_async
from promptools.agent.loop.reply_requests import RequestSettings
from promptools.agent.loop.tool_loop import LoopSettings, RunLoop
from promptools.agent.policies.reply_capture import ReplyCapture
from promptools.agent.run_events import Transcript
from promptools.agent.tape.tape_player import ReplayedToolbox, TapePlayer
from promptools.agent.tape.tape_writer import TapeWriter
from promptools.errors import UsageError

if TYPE_CHECKING:
    from promptools.agent.compaction.compaction_plan import Compaction
    from promptools.agent.functions.toolbox import Toolbox
    from promptools.agent.limits.run_limits import RunLimits
    from promptools.agent.policies.agent_policy import AgentPolicy
    from promptools.agent.run_events import RunEvent
    from promptools.exchange import Observer

TEXT_MODES = frozenset({"harmony", "raw"})
"""Modes whose prompt is a text, which holds no images."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What a run needs."""

    client: Any
    """A client, or the name of a provider."""
    toolbox: Toolbox
    policy: AgentPolicy
    limits: RunLimits
    compaction: Compaction | None
    create: dict[str, Any]
    """The parameters of each request."""
    messages: list[dict[str, Any]] = field(repr=False)
    state: Any = None
    tape: TapeWriter | None = None
    player: TapePlayer | None = None
    """Answers the requests, and the calls, in place of the server and the tools."""
    own_ids: bool = False
    """Whether calls get ids that are the same in each run; those that the parser makes are random."""

    def transcript(self, *, stream: bool = False) -> Transcript:
        """Run with a sync client to the end."""
        *_, last = self.events(stream=stream)
        return cast("Transcript", last)

    async def transcript_async(self, *, stream: bool = False) -> Transcript:
        """Run with an async client to the end."""
        events = [event async for event in self.events_async(stream=stream)]
        return cast("Transcript", events[-1])

    def events(self, *, stream: bool) -> Iterator[RunEvent]:
        """Run with a sync client; yield the events, the last of which is the transcript."""
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
        """Run with an async client."""
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
        """Yield the client that observers follow, and the loop; write the beginning and the end of the tape."""
        client = self.player.client(client) if self.player else client
        tape, session = self.tape, getattr(client, "promptools", None)
        if tape is not None and session is None:
            raise UsageError("a tape records what promptools' clients send: pass one, or promptools.wrap(client)")
        capture = ReplyCapture() if self.policy.checks == "paper" and session is not None else None
        context = ContextCapture() if self.compaction is not None and session is not None else None
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
        """The options that declare namespaces where a model knows them: those of gpt-oss in the system message."""
        namespaces = dict(self.toolbox.namespaces)
        return {"tools_in": "auto", "namespaces": namespaces} if namespaces else {}

    def _record(self, loop: RunLoop, event: RunEvent) -> None:
        if self.tape:
            self.tape.add_messages(loop.conversation.messages)
            if isinstance(event, Transcript):
                self.tape.end(event)
