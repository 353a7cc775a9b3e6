"""What a scripted server answers: replies of a model, streamed if the request says so, or bytes as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from promptools.types import Call

CallLike: TypeAlias = "Call | tuple[str, Mapping[str, Any] | str]"
"""A call, or its tool's name with its arguments; text stands for arguments as the model wrote them."""
STREAMED_CHARACTERS = 8
"""Characters of text, reasoning and arguments in one chunk of a stream."""
_ENVELOPE: dict[str, Any] = {"id": "chatcmpl-1", "created": 1, "model": "m"}


@dataclass(slots=True)
class HttpAnswer:
    """An HTTP response: `pieces` are sent as chunks, with `pause` seconds after each; `then` is how it ends.

    `first` is called before the response begins, `between` before each piece but the first: with them a test can hold
    the server until something has happened, and measures no time.
    """

    status: int = 200
    pieces: tuple[bytes, ...] = ()
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    pause: float = 0.0
    before: float = 0.0
    """Seconds before it begins."""
    first: Callable[[], object] | None = None
    between: Callable[[], object] | None = None
    then: Literal["end", "cut", "hang"] = "end"
    """`end`; `cut`: the connection is closed without the last chunk; `hang`: it is, once the client has gone."""
    gzip: bool = False


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply of the model; its calls are native ones, as a server reports that has parsed them itself."""

    content: str | None = None
    calls: Sequence[CallLike] = ()
    reasoning: str = ""
    finish_reason: str | None = None
    """None: `tool_calls` if there are calls, else `stop`."""
    usage: Mapping[str, int] = field(
        default_factory=lambda: {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}
    )

    def answer(self, request: Mapping[str, Any]) -> HttpAnswer:
        """Return the response to a request: a stream if it asks for one."""
        if request.get("stream") is not True:
            return json_answer(self._completion())
        return sse_answer(*self._chunks())

    @property
    def _finish_reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")

    def _completion(self) -> dict[str, Any]:
        body = completion(self.content, [name_and_text(call) for call in self.calls], self._finish_reason)
        if self.reasoning:
            body["choices"][0]["message"]["reasoning_content"] = self.reasoning
        return {**body, "usage": dict(self.usage)}

    def _chunks(self) -> list[dict[str, Any]]:
        chunks = [chunk({"role": "assistant", "content": ""})]
        chunks += (chunk({"reasoning_content": piece}) for piece in _cut(self.reasoning))
        chunks += (chunk({"content": piece}) for piece in _cut(self.content or ""))
        for index, (name, text) in enumerate(map(name_and_text, self.calls)):
            function = {"name": name, "arguments": ""}
            head = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
            chunks.append(chunk({"tool_calls": [head]}))
            for piece in _cut(text):
                chunks.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        chunks.append(chunk(finish=self._finish_reason))
        return [*chunks, {**chunk(), "choices": [], "usage": dict(self.usage)}]


Scripted: TypeAlias = "HttpAnswer | ModelReply | str | Mapping[str, Any]"
"""What can be played: text is the content of a reply, an object the JSON body of a response."""


def as_answer(scripted: Scripted, request: Mapping[str, Any]) -> HttpAnswer:
    """Return the response to a request."""
    if isinstance(scripted, HttpAnswer):
        return scripted
    if isinstance(scripted, str):
        scripted = ModelReply(scripted)
    return scripted.answer(request) if isinstance(scripted, ModelReply) else json_answer(scripted)


def calls_as_text(dialect: str, calls: Sequence[CallLike]) -> str:
    """Return calls as a model writes them in a dialect, such as `hermes`."""
    from promptools import dialects

    made = [_as_call(number, call) for number, call in enumerate(calls)]
    return dialects.get(dialect).render_calls(made)


def http_error(status: int, message: str = "scripted error", **fields: Any) -> HttpAnswer:
    """Return an error response, with a body as OpenAI's; `fields` are added to its `error`."""
    return json_answer({"error": {"message": message, "type": "server_error", **fields}}, status=status)


# --- the bodies of Chat Completions ----------------------------------------------------------------------------------


def json_answer(body: Any, **options: Any) -> HttpAnswer:
    """Return a response with a JSON body; `options` are fields of `HttpAnswer`."""
    return HttpAnswer(pieces=(json.dumps(body).encode(),), **options)


def sse_answer(*events: Any, done: bool = True, **options: Any) -> HttpAnswer:
    """Return a stream with one event in a piece: JSON values, and text as it is; then `[DONE]` if `done`."""
    lines = [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode() for event in events]
    return HttpAnswer(pieces=(*lines, *([b"data: [DONE]\n\n"] if done else [])), type="text/event-stream", **options)


def completion(
    content: str | None = "hi",
    calls: Sequence[tuple[str, str]] | None = None,
    finish: str | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Return the body of a whole reply; `calls` are names with the text of their arguments."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {**_ENVELOPE, "object": "chat.completion", "choices": [choice], "usage": usage, **extra}


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    """Return one chunk of a stream."""
    choice = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish}
    return {**_ENVELOPE, "object": "chat.completion.chunk", "choices": [choice], **extra}


def name_and_text(call: CallLike) -> tuple[str, str]:
    """Return the name of a call's tool, and its arguments as text."""
    if isinstance(call, Call):
        return call.name, call.arguments_json
    name, arguments = call
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _as_call(number: int, call: CallLike) -> Call:
    if isinstance(call, Call):
        return call
    name, text = name_and_text(call)
    return Call(f"call_{number}", name, json.loads(text), text)


def _cut(text: str) -> list[str]:
    return [text[at : at + STREAMED_CHARACTERS] for at in range(0, len(text), STREAMED_CHARACTERS)]
