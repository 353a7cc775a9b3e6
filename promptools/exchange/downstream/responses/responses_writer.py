"""Responses of the Responses API: a stream of numbered events, or one JSON body. They have a single choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.exchange.downstream.response_writer import JsonWriter, SseWriter, encode_json
from promptools.wire.responses.output_items import ResponseFrame, encode_output, incomplete_reason
from promptools.wire.responses.response_events import ResponseEvents
from promptools.wire.sse import encode_comment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.downstream.commit_point import ChoiceWriter
    from promptools.exchange.downstream.response_writer import Summary
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.types import Reply
    from promptools.wire.chat_decoder import Envelope

OnResponse: TypeAlias = Callable[[dict[str, Any], tuple[str, ...]], None]
"""Called with each response that is complete or incomplete, not with failed ones.

Its output is that of the last attempt; the second argument is the ids of items of earlier ones, which were streamed.
"""


class ResponsesStreamWriter(SseWriter):
    """Writes the events of a response."""

    def __init__(self, request: ToolRequest, frame: ResponseFrame, on_response: OnResponse) -> None:
        super().__init__(request)
        self._frame = frame
        self._on_response = on_response
        self._events = ResponseEvents(frame)
        self._sequence_number = 0

    def end(self, summary: Summary) -> bytes:
        """End the open item and the response, with the usage; then the comment."""
        reply = self._events.reply
        assert reply is not None, "the choice was finished"
        ended = self._events.end("incomplete" if incomplete_reason(reply) else "completed")
        completed_at = self._frame.created_at + round(summary.seconds)
        output, discarded = self._events.output, self._events.discarded_ids
        body = self._frame.encode_end(reply, output, summary.usage, completed_at)
        self._on_response({**body, "output": output[len(discarded) :]}, discarded)
        last = {"type": f"response.{body['status']}", "response": _with_report(body, summary)}
        return self._encode([*ended, last]) + encode_comment(summary.note)

    def fail(self, message: str, code: str, request_id: str = "") -> bytes:
        """End the response with an error."""
        ended = self._events.end("incomplete")
        error = {"code": code, "message": message}
        named = {"request_id": request_id} if request_id else {}
        body = self._frame.encode("failed", self._events.output, error=error)
        last = {"type": "response.failed", "response": body}
        return self._encode([*ended, {"type": "error", **error, "param": None, **named}, last])

    def _encode(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        """Encode events with their sequence numbers; the beginning of the response is before the first."""
        events = list(bodies)
        if events and not self._sequence_number:
            begun = self._frame.encode("in_progress", [])
            names = ("response.created", "response.in_progress")
            events = [*({"type": name, "response": begun} for name in names), *events]
        return b"".join(map(self._encode_event, events))

    def _encode_event(self, event: Mapping[str, Any]) -> bytes:
        numbered = {**event, "sequence_number": self._sequence_number}
        self._sequence_number += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode_json(numbered))

    def _make_writer(self, index: int, envelope: Envelope) -> ChoiceWriter:  # noqa: ARG002 one signature for all writers
        self._frame.model = envelope.model or self._frame.model
        return self._events


class ResponsesJsonWriter(JsonWriter):
    """Collects a whole response and writes it as one JSON body."""

    def __init__(self, request: ToolRequest, frame: ResponseFrame, on_response: OnResponse) -> None:
        super().__init__(request)
        self._frame = frame
        self._on_response = on_response
        self._reply: Reply | None = None

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:  # noqa: ARG002 one signature for all writers
        """Keep the reply."""
        self._reply = reply
        self._frame.model = envelope.model or self._frame.model
        return b""

    def end(self, summary: Summary) -> bytes:
        """Return the whole response."""
        assert self._reply is not None, "the choice was finished"
        output = encode_output(self._frame, self._reply, self._logprobs.get(0))
        completed_at = self._frame.created_at + round(summary.seconds)
        body = self._frame.encode_end(self._reply, output, summary.usage, completed_at)
        self._on_response(body, ())
        return encode_json(_with_report(body, summary))


def _with_report(body: dict[str, Any], summary: Summary) -> dict[str, Any]:
    return body if summary.report is None else body | {"promptools": summary.report}
