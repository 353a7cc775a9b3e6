"""OpenAI's Responses API: encode responses for a client, complete or as events.

The module first encodes the response and its usage, then the items of the output, then the events of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.numbers import as_count
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Reasoning, Text
from promptools.wire.chat_encoder import finish_reason
from promptools.wire.json_body import as_list, as_object
from promptools.wire.responses_in import ClientTool, seal_reasoning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.types import Call, Reply
    from promptools.wire.responses_in import ResponsesRequest


ID_PREFIX = "resp_"
"""The prefix of the ids of responses."""
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Maps finish reasons to the API's reasons for an incomplete response."""


@dataclass(slots=True)
class ResponseFrame:
    """Holds the parts of a response that do not depend on its output: ids, time, model, and the request's settings."""

    request: ResponsesRequest
    token: str
    """A unique text that is part of the id of the response and of the ids of its items."""
    created_at: int
    model: str

    @property
    def id(self) -> str:
        """The response's id."""
        return ID_PREFIX + self.token

    def item_id(self, prefix: str, index: int) -> str:
        """Return the id of the output's item at `index`."""
        return f"{prefix}_{self.token}_{index}"

    def encode(self, status: str, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """Encode the response.

        The values are those of a response in progress, such as a `usage` of null, unless `fields` override them.
        """
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": output,
            "usage": None,
            **self.request.settings,
            **fields,
        }

    def encode_end(
        self, reply: Reply, output: list[dict[str, Any]], usage: Mapping[str, Any] | None, completed_at: int
    ) -> dict[str, Any]:
        """Encode the finished response whose answer is `reply`."""
        reason = incomplete_reason(reply)
        fields: dict[str, Any] = {"usage": encode_usage(usage)}
        if reason:
            return self.encode("incomplete", output, incomplete_details={"reason": reason}, **fields)
        return self.encode("completed", output, completed_at=completed_at, **fields)

    def tool(self, function_name: str) -> ClientTool:
        """Return the client's tool that a function stands for."""
        return self.request.tools.client_tool(function_name)


def incomplete_reason(reply: Reply) -> str | None:
    """Return the API's reason why a reply is incomplete; None if the reply is complete."""
    return _INCOMPLETE_REASONS.get(finish_reason(reply))


def encode_usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Encode the usage; null if the server reported none."""
    if not usage:
        return None
    spent, prompt, completion = usage, usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    read, written = as_count(spent.get("prompt_tokens")) or 0, as_count(spent.get("completion_tokens")) or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": as_count(as_object(prompt).get("cached_tokens")) or 0,
            "cache_write_tokens": as_count(as_object(prompt).get("cache_write_tokens")) or 0,
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": as_count(as_object(completion).get("reasoning_tokens")) or 0},
        "total_tokens": as_count(spent.get("total_tokens")) or read + written,
    }


# --- items -----------------------------------------------------------------------------------------------------------


def text_part(text: str = "", logprobs: Any = None) -> dict[str, Any]:
    """Encode a text as the single content part of a message."""
    return {"type": "output_text", "annotations": [], "logprobs": token_logprobs(logprobs), "text": text}


def token_logprobs(logprobs: Any) -> list[Any]:
    """Return the list of tokens from log probabilities in the form of Chat Completions; empty if there are none."""
    return as_list(as_object(logprobs).get("content"))


def message_item(item_id: str, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """Encode a message as an item of the output."""
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def reasoning_part(text: str, *, summary: bool) -> dict[str, Any]:
    """Encode reasoning as the single part of an item's content or, if `summary` is true, of its summary."""
    return {"type": "summary_text" if summary else "reasoning_text", "text": text}


def reasoning_item(frame: ResponseFrame, item_id: str, text: str, status: str) -> dict[str, Any]:
    """Encode reasoning as a summary or as content; also as `encrypted_content`, if the request asks for that."""
    summary = frame.request.summary
    parts = [reasoning_part(text, summary=summary)] if text else []
    item: dict[str, Any] = {"id": item_id, "type": "reasoning", "status": status, "summary": parts if summary else []}
    if not summary:
        item["content"] = parts
    return item | {"encrypted_content": seal_reasoning(text) if frame.request.sealed and text else None}


@dataclass(slots=True)
class CallItem:
    """An output item for a call; the call's arguments or input may still be arriving."""

    tool: ClientTool
    item_id: str
    call_id: str
    fragments: list[str] = field(default_factory=list[str])
    typed: Mapping[str, Any] | None = None
    """The fields of a call to a tool that the API defines by its type; such a call is always complete."""

    def encode(self, status: str) -> dict[str, Any]:
        """Encode the call with what has arrived so far."""
        if self.typed is not None:
            assert self.tool.typed is not None
            kind = f"{self.tool.typed.kind}_call"
            return {"id": self.item_id, "type": kind, "status": status, "call_id": self.call_id, **self.typed}
        text = "".join(self.fragments)
        item: dict[str, Any] = {"id": self.item_id, "type": "function_call", "status": status}
        item |= {"call_id": self.call_id, "name": self.tool.name}
        if self.tool.namespace:
            item["namespace"] = self.tool.namespace
        return item | ({"type": "custom_tool_call", "input": text} if self.tool.custom else {"arguments": text})


def complete_call(frame: ResponseFrame, index: int, call: Call) -> CallItem:
    """Return the item for a complete call; `index` is the position of the item in the output."""
    tool = frame.tool(call.name)
    if tool.typed is not None:
        fields = tool.typed.encode(call.arguments)
        if fields is not None:
            return CallItem(tool, frame.item_id(tool.typed.prefix, index), call.id, typed=fields)
        tool = ClientTool(call.name)  # the tool's own item cannot express arguments that do not fit
    text = tool.custom_input(call) if tool.custom else call.arguments_json
    return CallItem(tool, frame.item_id("ctc" if tool.custom else "fc", index), call.id, [text])


def encode_output(frame: ResponseFrame, reply: Reply, logprobs: Any = None) -> list[dict[str, Any]]:
    """Encode the output of a complete reply: the reasoning, the text, then the calls."""
    output: list[dict[str, Any]] = []
    status = "incomplete" if incomplete_reason(reply) else "completed"
    if reply.reasoning:
        cut = status if not (reply.content or reply.calls) else "completed"
        output.append(reasoning_item(frame, frame.item_id("rs", 0), reply.reasoning, cut))
    if reply.content.strip() or (reply.content and not output and not reply.calls):
        item_id = frame.item_id("msg", len(output))
        output.append(message_item(item_id, [text_part(reply.content, logprobs)], status))
    for call in reply.calls:
        output.append(complete_call(frame, len(output), call).encode("completed"))
    return output


# Encode the events of a reply as the events of a Responses stream, without their sequence numbers.
#
# The output is a list of items; each begins with `response.output_item.added` and ends with
# `response.output_item.done`:
#
#     reasoning   reasoning_text.delta* .done, or, as a summary: reasoning_summary_part.added,
#                 reasoning_summary_text.delta* .done, reasoning_summary_part.done
#     message     content_part.added, output_text.delta* .done, content_part.done
#     call        function_call_arguments.delta* .done, or custom_tool_call_input.delta .done;
#                 of a shell, shell_call_command.added .delta .done for each command
#
# Reasoning and text end where another item begins. Each call ends by itself, since a server may write several calls at
# the same time. White space beside calls or reasoning is not a message: it waits for text, and is dropped if no text
# follows. Reasoning of an attempt that failed is a separate item, which ends where the reasoning of the next attempt
# begins. The input of a custom tool is sent only when it is complete, since input that is cut off could be taken for
# the whole input. The same holds for calls of tools that the API defines by their type. If a function's arguments are
# cut off, they never get a `done`; the item of the call is in the final response, with the status `incomplete`.


StreamEvent = dict[str, Any]


class ResponseEvents:
    """Encodes the parser's events as events of a Responses stream, and keeps the resulting output."""

    def __init__(self, frame: ResponseFrame) -> None:
        self.reply: Reply | None = None
        """The whole reply; None until `finish` is called."""
        self._frame = frame
        self._items: list[dict[str, Any] | CallItem] = []
        self._open: _OpenText | None = None
        self._space: list[tuple[str, Any]] = []
        """White space, with its log probabilities, that is held back because a message may begin with it."""
        self._calls: dict[int, int] = {}
        """For each call that is being streamed, maps the call's index to the position of its item in the output."""
        self._discarded = 0
        """Number of items at the beginning of the output that belong to attempts that failed."""

    @property
    def discarded_ids(self) -> tuple[str, ...]:
        """The ids of the items from failed attempts.

        These items come first in the output, and contain only reasoning.
        """
        return (*(item["id"] for item in self.output[: self._discarded]),)

    @property
    def output(self) -> list[dict[str, Any]]:
        """The encoded items so far; calls that have not ended have the status `incomplete`."""
        return [item.encode("incomplete") if isinstance(item, CallItem) else item for item in self._items]

    def role(self, content: str | None = "") -> None:  # noqa: ARG002 one signature for all writers
        """Return None, since the item of a message states the role."""
        return

    def write(self, event: Event, logprobs: Any = None) -> list[StreamEvent]:
        """Encode a parser event. Return nothing for events that clients do not receive.

        If the event is a text, `logprobs` are the log probabilities of its tokens.
        """
        match event:
            case Text(text=text):
                return self._add_text(text, logprobs)
            case Reasoning(text=text):
                return [*self._switch("reasoning"), self._delta(text)]
            case CallStart(index=index, id=call_id, name=name):
                return self._start_call(index, call_id, name)
            case CallArgs(index=index, fragment=fragment) if index in self._calls:
                return self._extend_call(self._calls[index], fragment)
            case CallEnd(index=index) if index in self._calls:
                return self._end_call(self._calls.pop(index))
            case CallEnd(call=call):
                return self._add_call(call)
            case _:
                return []

    def discard_attempt(self) -> None:
        """Mark all items so far as parts of a failed attempt; open reasoning then ends where the next item begins."""
        self._discarded = len(self._items)

    def finish(self, reply: Reply, *, logprobs: Any = None) -> StreamEvent:  # noqa: ARG002 one signature for all writers
        """Keep the reply and return an empty event; the last event follows when the usage is known."""
        self.reply = reply
        return {}

    def end(self, status: str) -> list[StreamEvent]:
        """End the output. If the whole output is white space, it becomes a message."""
        space, self._space = self._space, []
        written = [] if self._items or not space else [*self._switch("message"), *(self._delta(*it) for it in space)]
        return [*written, *self.close(status)]

    def close(self, status: str = "completed") -> list[StreamEvent]:
        """End the open reasoning or text, if there is any."""
        text, self._open = self._open, None
        if text is None:
            return []
        item = text.encode("incomplete" if text.position < self._discarded else status)
        self._items[text.position] = item
        return [*text.end_events(), _item_event("done", text.position, item)]

    # --- reasoning and text

    def _switch(self, kind: str) -> list[StreamEvent]:
        """End the open item, and begin an item of the kind `kind`; do nothing if the open item is already of that kind.

        An open item of a failed attempt is ended in any case.
        """
        current = self._open
        if current is not None and current.kind == kind and current.position >= self._discarded:
            return []
        ended = self.close()
        self._open = _OpenText(self._frame, kind, len(self._items))
        item = self._open.encode("in_progress")
        self._items.append(item)
        return [*ended, _item_event("added", self._open.position, item), *self._open.begin_events()]

    def _add_text(self, text: str, logprobs: Any) -> list[StreamEvent]:
        writing = self._open is not None and self._open.kind == "message"
        if not writing and not text.strip():
            self._space.append((text, logprobs))
            return []
        pieces, self._space = [*self._space, (text, logprobs)], []
        return [*self._switch("message"), *(self._delta(*piece) for piece in pieces)]

    def _delta(self, text: str, logprobs: Any = None) -> StreamEvent:
        assert self._open is not None
        return self._open.delta(text, logprobs)

    # --- calls

    def _start_call(self, index: int, call_id: str, name: str) -> list[StreamEvent]:
        tool = self._frame.tool(name)
        if tool.custom or tool.typed is not None:
            return []  # such a call is sent whole, when it ends
        ended = self.close()
        position = len(self._items)
        call = CallItem(tool, self._frame.item_id("fc", position), call_id)
        self._items.append(call)
        self._calls[index] = position
        return [*ended, _item_event("added", position, call.encode("in_progress"))]

    def _extend_call(self, position: int, fragment: str) -> list[StreamEvent]:
        call = self._items[position]
        assert isinstance(call, CallItem)
        call.fragments.append(fragment)
        return [_call_event(call, position, "delta", fragment)]

    def _end_call(self, position: int) -> list[StreamEvent]:
        call = self._items[position]
        assert isinstance(call, CallItem)
        item = call.encode("completed")
        self._items[position] = item
        done = _call_event(call, position, "done", "".join(call.fragments))
        return [done, _item_event("done", position, item)]

    def _add_call(self, call: Call) -> list[StreamEvent]:
        """Encode a complete call that was not streamed."""
        ended = self.close()
        position = len(self._items)
        complete = complete_call(self._frame, position, call)
        if complete.typed is not None:
            item = complete.encode("completed")
            self._items.append(item)
            return [*ended, *_typed_events(item, position)]
        text, complete.fragments = complete.fragments[0], []
        added = _item_event("added", position, complete.encode("in_progress"))
        self._items.append(complete)
        # If arguments are only in `done`, without a `delta`, litellm passes on `{}` (litellm#25321).
        return [*ended, added, *self._extend_call(position, text), *self._end_call(position)]


class _OpenText:
    """An item of reasoning or text that is being streamed. All of its text is in a single part."""

    def __init__(self, frame: ResponseFrame, kind: str, position: int) -> None:
        self.kind = kind
        self.position = position
        self._frame = frame
        self._texts: list[str] = []
        self._logprobs: list[Any] = []
        self._summary = kind == "reasoning" and frame.request.summary
        self._item_id = frame.item_id("msg" if kind == "message" else "rs", position)
        index = "summary_index" if self._summary else "content_index"
        self._place: dict[str, Any] = {"item_id": self._item_id, "output_index": position, index: 0}
        names = {"message": "output_text", "reasoning": "reasoning_text"}
        self._name = "reasoning_summary_text" if self._summary else names[kind]

    def encode(self, status: str) -> dict[str, Any]:
        """Encode the item with what has arrived so far."""
        text = "".join(self._texts)
        if self.kind == "reasoning":
            return reasoning_item(self._frame, self._item_id, text, status)
        return message_item(self._item_id, [self._part(text)] if text else [], status)

    def begin_events(self) -> list[StreamEvent]:
        """Encode the event that begins the item's only part, whose text is still empty."""
        return [self._part_event("added", self._part(""))]

    def delta(self, text: str, logprobs: Any = None) -> StreamEvent:
        """Encode a piece of the text."""
        self._texts.append(text)
        event = {"type": f"response.{self._name}.delta", **self._place, "delta": text}
        if self.kind == "reasoning":
            return event
        tokens = token_logprobs(logprobs)
        self._logprobs += tokens
        return event | {"logprobs": tokens}

    def end_events(self) -> list[StreamEvent]:
        """Encode the events that end the text, and then the item's single part, which contains the text."""
        text = "".join(self._texts)
        event = {"type": f"response.{self._name}.done", **self._place, "text": text}
        if self.kind == "message":
            event["logprobs"] = self._logprobs
        return [event, self._part_event("done", self._part(text))]

    def _part(self, text: str) -> dict[str, Any]:
        if self.kind == "reasoning":
            return reasoning_part(text, summary=self._summary)
        return text_part(text, {"content": self._logprobs})

    def _part_event(self, what: str, part: dict[str, Any]) -> StreamEvent:
        name = "reasoning_summary_part" if self._summary else "content_part"
        return {"type": f"response.{name}.{what}", **self._place, "part": part}


def _item_event(what: str, position: int, item: dict[str, Any]) -> StreamEvent:
    return {"type": f"response.output_item.{what}", "output_index": position, "item": item}


def _call_event(call: CallItem, position: int, what: str, text: str) -> StreamEvent:
    name, key = ("custom_tool_call_input", "input") if call.tool.custom else ("function_call_arguments", "arguments")
    event = {"type": f"response.{name}.{what}", "item_id": call.item_id, "output_index": position}
    if what == "delta":
        return event | {"delta": text}
    return event | {key: text}


def _typed_events(item: dict[str, Any], position: int) -> list[StreamEvent]:
    """Encode a complete call to a tool that the API defines by its type; a shell's commands are sent one by one."""
    begun: dict[str, Any] = {**item, "status": "in_progress"}
    commands: list[str] = []
    match item["type"]:
        case "shell_call":
            commands = item["action"]["commands"]
            begun["action"] = {**item["action"], "commands": []}
        case "apply_patch_call" if "diff" in item["operation"]:
            begun["operation"] = {**item["operation"], "diff": ""}
        case _:
            pass
    told = [event for index, text in enumerate(commands) for event in _command_events(text, position, index)]
    return [_item_event("added", position, begun), *told, _item_event("done", position, item)]


def _command_events(command: str, position: int, index: int) -> list[StreamEvent]:
    place = {"output_index": position, "command_index": index}
    return [
        {"type": "response.shell_call_command.added", **place, "command": ""},
        {"type": "response.shell_call_command.delta", **place, "delta": command},
        {"type": "response.shell_call_command.done", **place, "command": command},
    ]
