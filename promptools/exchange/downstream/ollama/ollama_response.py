"""Responses in Ollama's own API: NDJSON lines, or one JSON body. They have a single choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.exchange.downstream.response_writer import JsonWriter, SseWriter, encode_json
from promptools.wire.ollama import encode_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.downstream.commit_point import ChoiceWriter
    from promptools.exchange.downstream.response_writer import Summary
    from promptools.types import Reply
    from promptools.wire.chat_decoder import Envelope

NDJSON = "application/x-ndjson"


class NdjsonWriter(SseWriter):
    """Writes a stream of newline-delimited JSON."""

    content_type = NDJSON
    heartbeat = b""

    def end(self, summary: Summary) -> bytes:
        """Return the last line, with token counts and durations."""
        last = self._held_chunk or {}
        figures = encode_response.encode_usage(summary.usage, self._last_extra, summary.seconds, summary.phases)
        return self._encode([_with_report(last | figures, summary)])

    def _encode(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        return b"".join(b"%b\n" % encode_json(self._shape(body)) for body in bodies)

    def _shape(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the form of a line in the client's route."""
        return body

    def _make_writer(self, index: int, envelope: Envelope) -> ChoiceWriter:  # noqa: ARG002 one signature for all writers
        return encode_response.LineWriter(envelope)


class OllamaJsonWriter(JsonWriter):
    """Collects a whole response and writes it as one JSON body."""

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:  # noqa: ARG002 one signature for all writers
        """Store the response body."""
        message = encode_response.encode_message(reply.content, reply.reasoning, reply.calls)
        self._choices[index] = encode_response.mark_done(
            encode_response.encode_line(envelope, message, logprobs=self._logprobs.get(index)), reply
        )
        self._envelope = self._envelope or envelope
        return b""

    def end(self, summary: Summary) -> bytes:
        """Return the whole response, with token counts and durations."""
        extra = self._envelope.extra if self._envelope else {}
        choice = self._choices.get(0, {})
        body = {**choice, **encode_response.encode_usage(summary.usage, extra, summary.seconds, summary.phases)}
        return encode_json(_with_report(self._shape(body), summary))

    def _shape(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the form of the response in the client's route."""
        return body


class GenerateNdjsonWriter(NdjsonWriter):
    """Writes the lines of `/api/generate`."""

    def _shape(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return encode_response.encode_generated(body)


class GenerateJsonWriter(OllamaJsonWriter):
    """Writes the whole response of `/api/generate`."""

    def _shape(self, body: dict[str, Any]) -> dict[str, Any]:
        return encode_response.encode_generated(body)


def _with_report(body: dict[str, Any], summary: Summary) -> dict[str, Any]:
    return body if summary.report is None else body | {"promptools": summary.report}
