"""The agent: a model with tools that works on a task until it answers, or a limit is reached."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.agent.agent_run import AgentRun
from promptools.agent.compaction.compaction_plan import Compaction
from promptools.agent.functions.toolbox import AgentToolLike, Dispatch, Toolbox
from promptools.agent.harness_errors import MaxContextWindowOverflow
from promptools.agent.limits.run_limits import RunLimits
from promptools.agent.loop.client_requests import as_messages
from promptools.agent.policies.agent_policy import AgentPolicy, PolicyName, find_policy
from promptools.agent.run_events import Transcript
from promptools.agent.tape.tape_player import Tape, TapePlayer, read_tape
from promptools.agent.tape.tape_writer import TapeWriter
from promptools.errors import UsageError
from promptools.harness.toolsets.discovered_tools import read_discovered_tools

if TYPE_CHECKING:
    import os

    from promptools.agent.run_events import RunEvent

Task: TypeAlias = "str | Iterable[Any]"
"""A text, or messages."""
TapePath: TypeAlias = "str | os.PathLike[str]"


class Agent:
    """A model with tools. Its runs are independent of each other.

    `client` is promptools' client, any other OpenAI client, or the name of a provider of the config. `tools` are Python
    functions, tool dicts that `dispatch` runs, `AgentTool`s and `Toolset`s. `policy` is `"default"`, `"paper"` or an
    `AgentPolicy`. `compaction` is a `Compaction`, True for its defaults, or False for none; the default is True, but
    False with the paper's checks. `discovered` is the folder of `promptools discover`, or its `tools.json`: tools are
    declared under the names that the model knows, and `toolbox.not_offered` are the discovered ones that nothing runs.
    Other keywords are parameters of each request.
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
        **create: Any,
    ) -> None:
        self.client = client
        self.policy = find_policy(policy)
        self.limits = limits or RunLimits()
        if compaction is None:
            compaction = self.policy.checks != "paper"
        self.compaction = (Compaction() if compaction else None) if isinstance(compaction, bool) else compaction
        self.toolbox = Toolbox(tools, dispatch, read_discovered_tools(discovered) if discovered else ())
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

        `state` is for tools with a `RunContext`. `tape` is a file that the run is recorded in. A run that ends because
        the context overflows is tried again from its beginning, `overflow_retries` times. Raises `TerminatingError`s
        with their transcripts, and what the client raises.
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
        """Do what `run` does; yield events as they happen, the last of which is the transcript."""
        return self._start(self.messages(task), state, tape).events(stream=True)

    async def arun(
        self,
        task: Task,
        *,
        state: Any = None,
        tape: TapePath | None = None,
        overflow_retries: int = 0,
    ) -> Transcript:
        """Do what `run` does with an async client; tools may be async, the others run in threads."""
        messages = self.messages(task)
        while True:
            try:
                return await self._start(messages, state, tape).transcript_async()
            except MaxContextWindowOverflow:
                overflow_retries -= 1
                if overflow_retries < 0:
                    raise

    def astream(self, task: Task, *, state: Any = None, tape: TapePath | None = None) -> AsyncIterator[RunEvent]:
        """Do what `stream` does with an async client."""
        return self._start(self.messages(task), state, tape).events_async(stream=True)

    def resume(self, tape: TapePath, message: str | None = None, *, state: Any = None) -> Transcript:
        """Go on where a tape's last run was interrupted, or reached a limit, and record on in the same tape.

        `message` is what the user says besides. Raises what `resumed` and `run` raise.
        """
        return self.run(self.resumed(tape, message), state=state, tape=tape)

    async def aresume(self, tape: TapePath, message: str | None = None, *, state: Any = None) -> Transcript:
        """Do what `resume` does with an async client."""
        return await self.arun(self.resumed(tape, message), state=state, tape=tape)

    def resumed(self, tape: TapePath, message: str | None = None) -> list[dict[str, Any]]:
        """Return the messages with which a tape's last run goes on, for `stream` and `astream`.

        Calls that were not run have a result that says so; `message`, of the user, is the last one. Raises `UsageError`
        if the run has its answer.
        """
        recorded = read_tape(tape)
        if recorded.ended == "answer":
            raise UsageError(f"the run of {str(tape)!r} is complete: its last message is the answer")
        return [*recorded.messages, *([{"role": "user", "content": message}] if message else [])]

    def replay(self, tape: TapePath, *, state: Any = None) -> Transcript:
        """Repeat the last run of a tape without its server and its tools, with a sync client of promptools.

        Raises `TapeMismatch` with the difference if this agent sends another request than the recorded one.
        """
        recorded = read_tape(tape)
        return self._replayed(recorded, state).transcript(stream=recorded.streamed)

    async def areplay(self, tape: TapePath, *, state: Any = None) -> Transcript:
        """Do what `replay` does with an async client."""
        recorded = read_tape(tape)
        return await self._replayed(recorded, state).transcript_async(stream=recorded.streamed)

    def messages(self, task: Task) -> list[dict[str, Any]]:
        """Return the messages of a task, after the instructions unless it begins with some."""
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
