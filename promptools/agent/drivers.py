"""The drivers of the tool loop: one for a sync client, one for an async client."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from promptools.agent.reply_collector import AccumulatedReply
from promptools.agent.run_events import ReasoningEvent, RunEvent, TextEvent, Transcript
from promptools.agent.tool_loop import RequestReply, RunTool, ToolLoop, converse
from promptools.agent.toolbox import Dispatch, Toolbox, exception_result, success_result
from promptools.errors import Exhausted, ModelError, UpstreamError, UsageError
from promptools.schema.documents.json_guards import is_object
from promptools.types import Attempt
from promptools.wire.chat_decoder import decode_chunk, decode_reply
from promptools.wire.json_types import as_object

if TYPE_CHECKING:
    from promptools.schema import ToolLike
    from promptools.types import Call, Result


@overload
def run_tools(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[ToolLike],
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
    tools: Iterable[ToolLike],
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
    tools: Iterable[ToolLike],
    max_iterations: int = 10,
    *,
    model: str = "default",
    dispatch: Dispatch | None = None,
    stream: bool = False,
    **create: Any,
) -> Transcript | Iterator[RunEvent]:
    """Run a conversation in which the model may call Python functions, until it answers.

    `client` is an OpenAI client, promptools' or the SDK's. `tools` are Python functions (their type hints are the
    schema), or tool dicts that `dispatch` runs: functions by name, or one function of `(name, arguments)`.
    `model="default"` is the provider's default model. Other keywords are passed to `create`. An unknown tool, bad
    arguments and a tool's exception go back to the model as results.

    Returns the `Transcript`; with `stream=True` an iterator of text, reasoning, call and result events that ends with
    it. Raises `IterationLimitError` after `max_iterations` replies, `UsageError`, and what the client raises;
    promptools' own errors, which cross the client as HTTP, are raised as themselves.
    """
    loop = _loop(client, messages, Toolbox(tools, dispatch), max_iterations, {"model": model, **create})
    events = _drive(client, loop, stream=stream)
    return events if stream else cast("Transcript", list(events)[-1])


@overload
def run_tools_async(
    client: Any,
    messages: Iterable[Any],
    tools: Iterable[ToolLike],
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
    tools: Iterable[ToolLike],
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
    tools: Iterable[ToolLike],
    max_iterations: int = 10,
    *,
    model: str = "default",
    dispatch: Dispatch | None = None,
    stream: bool = False,
    **create: Any,
) -> Awaitable[Transcript] | AsyncIterator[RunEvent]:
    """Do what `run_tools` does, with an async client; functions may be async, the others run in a thread.

    Returns an awaitable of the `Transcript`; with `stream=True` an async iterator of the events.
    """
    loop = _loop(client, messages, Toolbox(tools, dispatch), max_iterations, {"model": model, **create})
    events = _drive_async(client, loop, stream=stream)
    return events if stream else _last(events)


async def _last(events: AsyncIterator[RunEvent]) -> Transcript:
    return cast("Transcript", [event async for event in events][-1])


def _loop(client: Any, messages: Iterable[Any], toolbox: Toolbox, limit: int, create: dict[str, Any]) -> ToolLoop:
    listed = [_as_dict(message) for message in messages]
    session = getattr(client, "promptools", None)
    if session is not None and "on_malformed" not in session.settings:
        create = _with_malformed_calls(create)
    return converse(listed, toolbox, limit, create, reasoning=session is not None)


def _with_malformed_calls(create: dict[str, Any]) -> dict[str, Any]:
    """Have our client return calls whose arguments do not fit, so that the model gets the error as a tool result."""
    body: dict[str, Any] = create.get("extra_body") or {}
    ours: Any = body.get("promptools") or {}
    if not is_object(ours):  # the client reports it
        return create
    return {**create, "extra_body": {**body, "promptools": {"on_malformed": "call", **ours}}}


def _as_dict(message: Any) -> dict[str, Any]:
    """Return a message as a dict; the SDK's message objects are accepted too."""
    if isinstance(message, Mapping):
        return dict(cast("Mapping[str, Any]", message))
    dump = getattr(message, "model_dump", None)
    if dump is None:
        raise UsageError(f"a message is {message!r}; wanted is a dict or one of the SDK's message objects")
    plain: dict[str, Any] = dump(exclude_none=True)
    return plain


def _drive(client: Any, loop: ToolLoop, *, stream: bool) -> Iterator[RunEvent]:
    result: Any = None
    while True:
        try:
            step = loop.send(result)
        except StopIteration as stop:
            yield stop.value
            return
        result = None
        match step:
            case RequestReply(body):
                result = AccumulatedReply()
                yield from _request_reply(client, body, result, stream=stream)
            case RunTool(call, work):
                result = _run_tool(call, work)
            case _:
                yield step


def _request_reply(
    client: Any, body: dict[str, Any], reply: AccumulatedReply, *, stream: bool
) -> Iterator[TextEvent | ReasoningEvent]:
    try:
        answer: Any = _require_sync(client.chat.completions.create(**body, **_streaming(body, stream=stream)))
        if not stream:
            yield from reply.feed(decode_reply(answer.model_dump(warnings=False)))
            return
        with answer:
            for chunk in answer:
                yield from reply.feed(decode_chunk(chunk.model_dump(warnings=False)))
    except Exception as error:
        _raise_promptools_error(error)
        raise


def _run_tool(call: Call, work: Any) -> Result:
    try:
        value = work()
    except Exception as error:  # noqa: BLE001 - whatever a tool raises goes to the model
        return exception_result(call, error)
    if inspect.isawaitable(value):
        cast("Any", value).close()
        raise UsageError(f"tool {call.name!r} is async; use run_tools_async() with an async client")
    return success_result(call, value)


async def _drive_async(client: Any, loop: ToolLoop, *, stream: bool) -> AsyncIterator[RunEvent]:
    result: Any = None
    while True:
        try:
            step = loop.send(result)
        except StopIteration as stop:
            yield stop.value
            return
        result = None
        match step:
            case RequestReply(body):
                result = AccumulatedReply()
                async for event in _request_reply_async(client, body, result, stream=stream):
                    yield event
            case RunTool(call, work):
                result = await _run_tool_async(call, work)
            case _:
                yield step


async def _request_reply_async(
    client: Any, body: dict[str, Any], reply: AccumulatedReply, *, stream: bool
) -> AsyncIterator[TextEvent | ReasoningEvent]:
    try:
        answer: Any = await _require_awaitable(
            client.chat.completions.create(**body, **_streaming(body, stream=stream))
        )
        if not stream:
            for event in reply.feed(decode_reply(answer.model_dump(warnings=False))):
                yield event
            return
        async with answer:
            async for chunk in answer:
                for event in reply.feed(decode_chunk(chunk.model_dump(warnings=False))):
                    yield event
    except Exception as error:
        _raise_promptools_error(error)
        raise


async def _run_tool_async(call: Call, work: Any) -> Result:
    import anyio.to_thread

    try:
        value = await anyio.to_thread.run_sync(work)
        if inspect.isawaitable(value):
            value = await value
    except Exception as error:  # noqa: BLE001 - whatever a tool raises goes to the model
        return exception_result(call, error)
    return success_result(call, value)


def _require_sync(answer: Any) -> Any:
    if not inspect.isawaitable(answer):
        return answer
    cast("Any", answer).close()
    raise UsageError("run_tools() was given an async client; use run_tools_async() with it")


def _require_awaitable(answer: Any) -> Awaitable[Any]:
    if inspect.isawaitable(answer):
        return answer
    raise UsageError("run_tools_async() was given a client that blocks; use run_tools() with it")


def _streaming(body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    if not stream:
        return {}
    return {"stream": True, "stream_options": {"include_usage": True, **(body.pop("stream_options", None) or {})}}


def _raise_promptools_error(error: Exception) -> None:
    """Raise promptools' own error if `error` is one that crossed the client as HTTP; else return."""
    details = as_object(getattr(error, "body", None))
    message = str(details.get("message"))
    if "attempts" not in details:
        return
    match details.get("type"):
        case "UsageError":
            raise UsageError(message) from error
        case "ModelError":
            raise ModelError(message) from error
        case "UpstreamError":
            raise UpstreamError(message, kind=str(details.get("code"))) from error
        case "Exhausted":
            raise Exhausted(message, attempts=[Attempt(**attempt) for attempt in details["attempts"]]) from error
        case _:
            return
