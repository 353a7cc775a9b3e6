"""A run's conversation: its messages, calls, results, steps and tokens, and how the messages reach a client."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from promptools.errors import UsageError
from promptools.harness.agent.run_events import Transcript
from promptools.json_values import is_object
from promptools.transport import Session, intercept
from promptools.transport.session import as_observers
from promptools.wire.chat_encoder import add_usage
from promptools.wire.json_body import split_content

if TYPE_CHECKING:
    from promptools.exchange import Observer
    from promptools.harness.agent.loop_effects import AccumulatedReply
    from promptools.harness.agent.run_events import StepEvent
    from promptools.types import Call, Result


# Images in the results of tools, and how messages are changed for clients or models that take no images there.
#
# A result with images is a tool message with a list of parts. promptools' clients send the images in a form that the
# server accepts. For any other client, the images are moved into a user message after the results, because the API
# accepts only text in results.


Message = dict[str, Any]
FOLLOW = "(The images of this result follow in the next message.)"
NOT_SHOWN = "[The images of this result are not shown: this model, or its server, takes none.]"
_REFUSED_LATER = frozenset({401, 403, 408, 429, 502, 503, 504})
"""HTTP statuses, such as 401 and 429, of errors that do not depend on the request's content. Images in the request
cannot have caused such an error."""


def result_content(result: Result, *, shown: bool) -> str | list[Message]:
    """Return the content of the tool message for a result. If `shown` is false, a note replaces the images."""
    if not result.images:
        return result.content
    if not shown:
        return f"{result.content}\n{NOT_SHOWN}"
    return [{"type": "text", "text": result.content}, *map(dict, result.images)]


def has_images(messages: Sequence[Message]) -> bool:
    """Return whether any tool message contains images."""
    return any(_images(message) for message in messages)


def without_images(messages: Sequence[Message]) -> list[Message]:
    """Return the messages, with a note in place of the images in each tool message."""
    return [
        {**message, "content": f"{split_content(message['content'])[0]}\n{NOT_SHOWN}"} if _images(message) else message
        for message in messages
    ]


def images_after_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with all images of tool messages moved into user messages.

    After each series of consecutive tool messages, one user message holds their images. The Chat Completions API
    accepts only text in tool messages.
    """
    made: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if waiting and message.get("role") != "tool":
            made.append({"role": "user", "content": waiting})
            waiting = []
        images = _images(message)
        text = f"{split_content(message['content'])[0]}\n{FOLLOW}" if images else ""
        made.append({**message, "content": text} if images else message)
        waiting = [*waiting, *images]
    return [*made, {"role": "user", "content": waiting}] if waiting else made


def may_refuse_images(error: Exception) -> bool:
    """Return whether the images in a request may have caused an error.

    This is true if the error has an HTTP status that can depend on the request's content, such as 400 or 500. It is
    false for a failed login, a rate limit or a time-out, for example.
    """
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    return isinstance(status, int) and status not in _REFUSED_LATER


def _images(message: Message) -> tuple[Message, ...]:
    return split_content(message.get("content"))[1] if message.get("role") == "tool" else ()


# What the model wrote, kept with the message that was read from it.


class ReadMessage(dict[str, Any]):
    """An assistant message that also keeps, in `written`, the raw text that the model wrote.

    Harmony mode sends this text back to gpt-oss unchanged. Once the message is changed, `written` is empty, because the
    text no longer matches the message. A new dict made from the message, such as a shortened one, has no raw text.
    """

    __slots__ = ("_read", "_written")

    def __init__(self, message: Mapping[str, Any] | Iterable[tuple[str, Any]], written: str = "") -> None:
        super().__init__(message)  # `dataclasses.asdict` makes a copy from pairs, without a text
        self._read = copy.deepcopy(dict(self))
        self._written = written

    @property
    def written(self) -> str:
        """The raw text that the model wrote; empty if the message was changed."""
        return self._written if self == self._read else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.written)


def written_texts(messages: Iterable[Message]) -> dict[str, str]:
    """Map the position of each message, as a string, to the raw text that the model wrote for the message.

    Messages without raw text, such as the user's, are left out.
    """
    texts = {str(at): message.written for at, message in enumerate(messages) if isinstance(message, ReadMessage)}
    return {at: text for at, text in texts.items() if text}


def with_written(messages: Iterable[Message], written: Mapping[str, str]) -> list[Message]:
    """Return the messages with their raw texts attached; `written` maps positions, as strings, to raw texts."""
    return [
        ReadMessage(message, written[str(at)]) if str(at) in written else message for at, message in enumerate(messages)
    ]


_OWN_ID = re.compile(r"call([0-9]{3,})[0-9]{2}")
"""Matches a call id made by `Conversation`, such as `call01200`: at least three digits for the number of the reply, and
two for the number of the call in the reply."""


class Conversation:
    """The messages, calls and results of a run so far. The task is the last user message that the run began with."""

    def __init__(self, messages: list[dict[str, Any]], *, own_ids: bool = False) -> None:
        self.messages = messages
        self.task = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=-1)
        """Position of the task in `messages`; -1 if there is no task."""
        self.calls: list[Call] = []
        self.results: list[Result] = []
        self.steps: list[StepEvent] = []
        self.usage: dict[str, Any] | None = None
        self.iterations = 0
        self.last: AccumulatedReply | None = None
        self.shows_images = True
        """Whether images in tool results are shown to the model."""
        self._own_ids = own_ids
        self._first_id = _next_own_id(messages)

    def add_usage(self, usage: dict[str, Any] | None) -> None:
        """Add the tokens of a reply to the run's total. This must also be called for replies that were not used."""
        self.usage = add_usage(self.usage, usage)

    def add_reply(self, reply: AccumulatedReply, *, reasoning: bool) -> None:
        """Add a reply. A call without an id gets an id, because a result refers to its call by id."""
        for number, call in enumerate(reply.calls):
            own = f"call{self._first_id + self.iterations:03}{number:02}"
            call.id = own if self._own_ids else call.id or own
        self.iterations += 1
        message = reply.message(reasoning=reasoning)
        self.messages.append(ReadMessage(message, reply.written) if reply.written else message)
        self.last = reply

    def add_result(self, result: Result) -> None:
        """Add a tool's result."""
        self.results.append(result)
        content = result_content(result, shown=self.shows_images)
        self.messages.append({"role": "tool", "tool_call_id": result.call_id, "content": content})

    @property
    def written(self) -> dict[str, str]:
        """Maps the position of each of the model's messages to its raw text.

        Messages that were changed since they were received, or that have no raw text, are left out.
        """
        return written_texts(self.messages)

    def replace(self, messages: list[dict[str, Any]], task: int) -> None:
        """Replace the messages with fewer or shorter ones; `task` is the position of the task in the new list."""
        self.messages, self.task = messages, task

    def drop_images(self) -> None:
        """Replace the images in all results with a note, and do the same for later results."""
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
    """Return the number to use in the ids of the next reply's calls.

    The number is higher than all such numbers in the messages, because the messages of a resumed run already contain
    ids of this form. If an id occurred twice, one result would belong to two calls.
    """
    calls = (call for message in messages for call in message.get("tool_calls") or () if is_object(call))
    numbers = (int(match[1]) for call in calls if (match := _OWN_ID.fullmatch(str(call.get("id")))))
    return max(numbers, default=-1) + 1


# What the loop sends through a client: messages as dicts, and the options and observers of promptools' own clients.


def as_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the messages as dicts; message objects of the SDK are accepted."""
    return [_as_dict(message) for message in messages]


def with_options(create: dict[str, Any], options: Mapping[str, Any], session: Any) -> dict[str, Any]:
    """Return the request parameters with promptools' options added; without a `session`, return them unchanged.

    `session` is the session of a promptools client; it is None for any other client. Settings of the client or the
    request take precedence over `options`. By default, a call whose arguments do not conform to the tool's schema is
    still returned as a call, so that the model reads the error as the call's result.
    """
    if session is None:
        return create
    unset = {name: value for name, value in options.items() if session.settings.get(name) is None}
    malformed = {} if "on_malformed" in session.settings else {"on_malformed": "call"}
    body: dict[str, Any] = create.get("extra_body") or {}
    ours: Any = body.get("promptools") or {}
    if not is_object(ours):  # the client reports it
        return create
    merged = {**malformed, **unset, **ours}
    return {**create, "extra_body": {**body, "promptools": merged}} if merged else create


def for_request(body: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request for one of promptools' clients, with options added for this request alone."""
    extra: dict[str, Any] = body.get("extra_body") or {}
    ours: Any = extra.get("promptools") or {}
    given = {name: value for name, value in options.items() if value}
    if not given or not is_object(ours):
        return body
    return {**body, "extra_body": {**extra, "promptools": {**ours, **given}}}


def mode_of(create: Mapping[str, Any], session: Any) -> object:
    """Return the mode that the request sets, or else the mode that the promptools client sets.

    Return None if neither sets a mode, or if the client is not one of promptools'.
    """
    if session is None:
        return None
    body: Mapping[str, Any] = create.get("extra_body") or {}
    ours: Any = body.get("promptools")
    return (is_object(ours) and ours.get("mode")) or session.settings.get("mode")


def with_observers(client: Any, observers: Sequence[Observer]) -> Any:
    """Return a copy of a promptools client with `observers` added. The client may come from `promptools.wrap`."""
    session: Session = client.promptools.with_settings(
        {"observer": [*as_observers(client.promptools.settings.get("observer")), *observers]}
    )
    copied = client.with_options()
    copied.__dict__["_client"] = intercept(copied.__dict__["_client"], session)
    copied.__dict__["promptools"] = session
    return copied


def _as_dict(message: Any) -> dict[str, Any]:
    if isinstance(message, ReadMessage):
        return ReadMessage(message, message.written)
    if isinstance(message, Mapping):
        return dict(cast("Mapping[str, Any]", message))
    dump = getattr(message, "model_dump", None)
    if dump is None:
        raise UsageError(f"a message is {message!r}; expected a dict or one of the SDK's message objects")
    plain: dict[str, Any] = dump(exclude_none=True)
    return plain
