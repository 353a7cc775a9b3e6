"""Run a conversation in which the model calls Python functions, until it answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, cast, overload

from promptools.errors import UsageError
from promptools.harness.agent.conversation import Conversation, as_messages, with_options
from promptools.harness.agent.drivers import drive, drive_async
from promptools.harness.agent.loop_effects import LoopGenerator
from promptools.harness.agent.policies import UNCHECKED_POLICY
from promptools.harness.agent.reply_requests import RequestSettings
from promptools.harness.agent.run_events import RunEvent, Transcript
from promptools.harness.agent.run_limits import NO_LIMITS
from promptools.harness.agent.tool_loop import LoopSettings, RunLoop
from promptools.harness.agent.toolbox import AgentToolLike, Dispatch, Toolbox


@overload
def run_tools(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[AgentToolLike],
    max_iterations: int = 10,
    *,
    model: str = ...,
    dispatch: Dispatch | None = ...,
    stream: Literal[False] = ...,
    **create: Any,
) -> Transcript: ...
@overload
def run_tools(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[AgentToolLike],
    max_iterations: int = 10,
    *,
    model: str = ...,
    dispatch: Dispatch | None = ...,
    stream: Literal[True],
    **create: Any,
) -> Iterator[RunEvent]: ...
def run_tools(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[AgentToolLike],
    max_iterations: int = 10,
    *,
    model: str = "default",
    dispatch: Dispatch | None = None,
    stream: bool = False,
    **create: Any,
) -> Transcript | Iterator[RunEvent]:
    """Run a conversation in which the model may call Python functions, until it answers.

    `client` is an OpenAI client, either promptools' or the SDK's. `tools` are Python functions, whose type hints become
    the schema, or tool dicts, which `dispatch` runs. `dispatch` maps tool names to functions, or is a single function
    that takes the name and the arguments of a call. `model="default"` is the provider's default model. Other keywords
    are passed to `create`. If a call names an unknown tool or has bad arguments, or if its tool raises an exception,
    the model receives the error as the result of the call.

    Returns the `Transcript`. With `stream=True`, returns an iterator of events (text, reasoning, calls, results), the
    last of which is the `Transcript`. Raises `UsageError`, any error of the client, and `IterationLimitError` if the
    last of `max_iterations` replies still calls tools. Errors of promptools, such as `UpstreamError`, keep their own
    type, even if the client reports them as errors of its SDK.
    """
    loop = _loop(client, messages, Toolbox(tools, dispatch), max_iterations, {"model": model, **create})
    events = drive(client, loop, stream=stream)
    return events if stream else cast("Transcript", list(events)[-1])


@overload
def run_tools_async(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[AgentToolLike],
    max_iterations: int = 10,
    *,
    model: str = ...,
    dispatch: Dispatch | None = ...,
    stream: Literal[False] = ...,
    **create: Any,
) -> Awaitable[Transcript]: ...
@overload
def run_tools_async(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[AgentToolLike],
    max_iterations: int = 10,
    *,
    model: str = ...,
    dispatch: Dispatch | None = ...,
    stream: Literal[True],
    **create: Any,
) -> AsyncIterator[RunEvent]: ...
def run_tools_async(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[AgentToolLike],
    max_iterations: int = 10,
    *,
    model: str = "default",
    dispatch: Dispatch | None = None,
    stream: bool = False,
    **create: Any,
) -> Awaitable[Transcript] | AsyncIterator[RunEvent]:
    """Like `run_tools`, with an async client. Functions may be async; sync functions run in threads.

    Returns an awaitable of the `Transcript`. With `stream=True`, returns an async iterator of the events.
    """
    loop = _loop(client, messages, Toolbox(tools, dispatch), max_iterations, {"model": model, **create})
    events = drive_async(client, loop, stream=stream)
    return events if stream else _last(events)


async def _last(events: AsyncIterator[RunEvent]) -> Transcript:
    return cast("Transcript", [event async for event in events][-1])


def _loop(client: Any, messages: Iterable[Any], toolbox: Toolbox, limit: int, create: dict[str, Any]) -> LoopGenerator:
    if limit < 1:
        raise UsageError(f"max_iterations is {limit!r}; at least one reply must be requested")
    session = getattr(client, "promptools", None)
    requests = RequestSettings(
        with_options(create, {}, session), UNCHECKED_POLICY, clock=time.monotonic, marks=session is not None
    )
    settings = LoopSettings(requests, replace(NO_LIMITS, steps=limit), reasoning=session is not None)
    return RunLoop(settings, Conversation(as_messages(messages)), toolbox).run()
