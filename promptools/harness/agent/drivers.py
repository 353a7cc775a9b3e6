"""Perform what an agent's loop asks for: requests, tool calls and pauses. `drive` is sync, `drive_async` is async."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from promptools.errors import Exhausted, ModelError, PromptoolsError, UpstreamError, UsageError
from promptools.harness.agent.loop_effects import (
    AccumulatedReply,
    LoopEffect,
    LoopGenerator,
    Pause,
    RequestReply,
    RunTools,
)
from promptools.harness.agent.toolbox import exception_result, success_result
from promptools.types import Attempt
from promptools.wire.chat_decoder import decode_chunk, decode_reply
from promptools.wire.json_body import as_object

if TYPE_CHECKING:
    from promptools.harness.agent.run_events import ReasoningEvent, RunEvent, TextEvent
    from promptools.harness.agent.toolbox import PreparedCall
    from promptools.types import Result


MAX_THREADS = 16
"""Maximum number of threads in which `drive` runs the calls of a reply at the same time."""


class LoopRunner:
    """Drives a loop: sends it the result of the last effect, or throws into it the exception that a request raised.

    An effect is a value that the loop yields: a request, tool calls, a pause or an event.
    """

    def __init__(self, loop: LoopGenerator) -> None:
        self._loop = loop
        self._error: Exception | None = None
        self.result: Any = None
        self.transcript: Any = None

    def advance(self) -> LoopEffect | None:
        """Return the next effect; None when the loop has returned its transcript."""
        error, self._error = self._error, None
        result, self.result = self.result, None
        try:
            return self._loop.throw(error) if error else self._loop.send(result)
        except StopIteration as stop:
            self.transcript = stop.value
            return None

    def fail(self, error: Exception) -> None:
        """Make the next `advance` throw this exception into the loop."""
        self._error = error

    def close(self) -> None:
        """Close the loop's generator, which ends the loop."""
        self._loop.close()


def drive(client: Any, loop: LoopGenerator, *, stream: bool) -> Iterator[RunEvent]:
    """Perform the requests, tool calls and pauses that a loop yields; yield its events, the transcript last."""
    runner = LoopRunner(loop)
    try:
        while (effect := runner.advance()) is not None:
            match effect:
                case RequestReply(body, quiet):
                    runner.result = reply = AccumulatedReply()
                    try:
                        for event in _request_reply(client, body, reply, stream=stream):
                            if not quiet:
                                yield event
                    except Exception as error:  # noqa: BLE001 - the loop decides what follows from it
                        runner.fail(promptools_error(error) or error)
                case RunTools(calls):
                    runner.result = _run_tools(calls)
                case Pause(seconds):
                    time.sleep(seconds)
                case _:
                    yield effect
        yield runner.transcript
    finally:
        runner.close()


def _request_reply(
    client: Any, body: dict[str, Any], reply: AccumulatedReply, *, stream: bool
) -> Iterator[TextEvent | ReasoningEvent]:
    answer: Any = _require_sync(client.chat.completions.create(**body, **_streaming(body, stream=stream)))
    if not stream:
        yield from reply.feed(decode_reply(answer.model_dump(warnings=False)))
        return
    with answer:
        for chunk in answer:
            yield from reply.feed(decode_chunk(chunk.model_dump(warnings=False)))


def _run_tools(calls: tuple[PreparedCall, ...]) -> list[Result]:
    if len(calls) == 1:
        return [_run_tool(calls[0])]
    with ThreadPoolExecutor(min(len(calls), MAX_THREADS), "promptools-tool") as pool:
        running = [pool.submit(copy_context().run, _run_tool, prepared) for prepared in calls]
        return [done.result() for done in running]


def _run_tool(prepared: PreparedCall) -> Result:
    assert prepared.work is not None
    try:
        value = prepared.work()
    except Exception as error:  # noqa: BLE001 - whatever a tool raises goes to the model
        return exception_result(prepared.call, error)
    if inspect.isawaitable(value):
        cast("Any", value).close()
        raise UsageError(
            f"tool {prepared.call.name!r} is async; use run_tools_async(), or Agent.arun(), with an async client"
        )
    return success_result(prepared.call, value)


async def drive_async(client: Any, loop: LoopGenerator, *, stream: bool) -> AsyncIterator[RunEvent]:
    """Like `drive`, with an async client. Async tools are awaited; sync tools run in threads."""
    import anyio

    runner = LoopRunner(loop)
    try:
        while (effect := runner.advance()) is not None:
            match effect:
                case RequestReply(body, quiet):
                    runner.result = reply = AccumulatedReply()
                    try:
                        async for event in _request_reply_async(client, body, reply, stream=stream):
                            if not quiet:
                                yield event
                    except Exception as error:  # noqa: BLE001 - as in `drive`
                        runner.fail(promptools_error(error) or error)
                case RunTools(calls):
                    runner.result = await _run_tools_async(calls)
                case Pause(seconds):
                    await anyio.sleep(seconds)
                case _:
                    yield effect
        yield runner.transcript
    finally:
        runner.close()


async def _request_reply_async(
    client: Any, body: dict[str, Any], reply: AccumulatedReply, *, stream: bool
) -> AsyncIterator[TextEvent | ReasoningEvent]:
    answer: Any = await _require_awaitable(client.chat.completions.create(**body, **_streaming(body, stream=stream)))
    if not stream:
        for event in reply.feed(decode_reply(answer.model_dump(warnings=False))):
            yield event
        return
    async with answer:
        async for chunk in answer:
            for event in reply.feed(decode_chunk(chunk.model_dump(warnings=False))):
                yield event


async def _run_tools_async(calls: tuple[PreparedCall, ...]) -> list[Result]:
    import anyio

    results: dict[int, Result] = {}

    async def run(position: int, prepared: PreparedCall) -> None:
        results[position] = await _run_tool_async(prepared)

    if len(calls) == 1:  # a task group would wrap exceptions in an `ExceptionGroup`
        await run(0, calls[0])
    else:
        async with anyio.create_task_group() as group:
            for position, prepared in enumerate(calls):
                group.start_soon(run, position, prepared)
    return [results[position] for position in range(len(calls))]


async def _run_tool_async(prepared: PreparedCall) -> Result:
    import anyio.to_thread

    assert prepared.work is not None
    try:
        value = await anyio.to_thread.run_sync(prepared.work)
        if inspect.isawaitable(value):
            value = await value
    except Exception as error:  # noqa: BLE001 - whatever a tool raises goes to the model
        return exception_result(prepared.call, error)
    return success_result(prepared.call, value)


def _require_sync(answer: Any) -> Any:
    if not inspect.isawaitable(answer):
        return answer
    cast("Any", answer).close()
    raise UsageError(
        "run_tools() was given an async client; use run_tools_async() with it, or Agent.arun(), astream(), aresume()"
        " and areplay()"
    )


def _require_awaitable(answer: Any) -> Awaitable[Any]:
    if inspect.isawaitable(answer):
        return answer
    raise UsageError(
        "run_tools_async() was given a client that blocks; use run_tools() with it, or Agent.run(), stream(), resume()"
        " and replay()"
    )


def _streaming(body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    if not stream:
        return {}
    return {"stream": True, "stream_options": {"include_usage": True, **(body.pop("stream_options", None) or {})}}


def promptools_error(error: Exception) -> PromptoolsError | None:
    """Return the promptools error behind an `error` that a client raised; None if there is none.

    The promptools error is the cause of `error`, or is rebuilt from the body of the HTTP response.
    """
    details = as_object(getattr(error, "body", None))
    message = str(details.get("message"))
    made: PromptoolsError | None = None
    if "attempts" in details:
        match details.get("type"):
            case "UsageError":
                made = UsageError(message)
            case "ModelError":
                made = ModelError(message)
            case kind if kind == "UpstreamError" or details.get("code") == "context_length_exceeded":
                made = UpstreamError(message, kind=str(details.get("code")))
            case "Exhausted":
                made = Exhausted(message, attempts=[Attempt(**attempt) for attempt in details["attempts"]])
            case _:
                pass
    elif isinstance(error.__cause__, PromptoolsError):
        return error.__cause__
    if made is not None:
        made.__cause__ = error
    return made
