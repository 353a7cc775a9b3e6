"""Responses in Anthropic's Messages API: events, or one JSON body. They have a single choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.exchange.downstream.response_writer import JsonWriter, SseWriter, encode_json
from promptools.wire.chat_decoder import Envelope
from promptools.wire.json_types import as_list
from promptools.wire.messages.message_body import encode_content, encode_message, encode_stop, encode_usage
from promptools.wire.messages.message_events import MESSAGE_STOP, PING, BlockWriter
from promptools.wire.sse import encode_comment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.downstream.commit_point import ChoiceWriter
    from promptools.exchange.downstream.response_writer import Summary
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.types import Reply


def _encode_event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), encode_json(event))


class MessagesSseWriter(SseWriter):
    """Writes the events of a message."""

    heartbeat = _encode_event(PING)

    def __init__(self, request: ToolRequest, *, begun: bool = False) -> None:
        super().__init__(request, begun=begun)
        self._blocks: BlockWriter | None = None
        self._stop: dict[str, Any] = {}

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:
        """End the choice; the rest is written by `end`, with the usage."""
        self._stop = _encode_stop(self._request, reply, envelope)
        return super().finish(index, reply, envelope, extra, valid=valid)

    def end(self, summary: Summary) -> bytes:
        """Return the end of the last block, and the events that end the message."""
        blocks = self._blocks.close() if self._blocks is not None else []
        last = {**(self._held_chunk or {}), "delta": self._stop, "usage": encode_usage(summary.usage)}
        return encode_comment(summary.note) + self._encode([*blocks, _with_report(last, summary), MESSAGE_STOP])

    def _encode(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        return b"".join(map(_encode_event, bodies))

    def _make_writer(self, index: int, envelope: Envelope) -> ChoiceWriter:  # noqa: ARG002 one signature for all writers
        self._blocks = BlockWriter(envelope)
        return self._blocks


class MessagesJsonWriter(JsonWriter):
    """Collects a whole message and writes it as one JSON body."""

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:  # noqa: ARG002 one signature for all writers
        """Store the message."""
        stop = _encode_stop(self._request, reply, envelope)
        self._choices[index] = {**encode_message(envelope), "content": encode_content(reply), **stop}
        return b""

    def end(self, summary: Summary) -> bytes:
        """Return the whole message, with the usage."""
        message = self._choices.get(0) or encode_message(Envelope())
        return encode_json(_with_report({**message, "usage": encode_usage(summary.usage)}, summary))


def _encode_stop(request: ToolRequest, reply: Reply, envelope: Envelope) -> dict[str, Any]:
    stop = request.body.get("stop")
    return encode_stop(reply, envelope.stop_reason, [stop] if isinstance(stop, str) else as_list(stop))


def _with_report(body: dict[str, Any], summary: Summary) -> dict[str, Any]:
    return body if summary.report is None else body | {"promptools": summary.report}
