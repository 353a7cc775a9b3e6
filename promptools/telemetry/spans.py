"""OpenTelemetry spans of exchanges, with the attributes of the semantic conventions for generative AI.

    promptools chat            the exchange
    ├─ chat MODEL              one request to the server
    ├─ chat MODEL              the next attempt
    │  └─ parse reply          what was read from its reply
    └─ render prompt           a request to the server to render its chat template

The spans are created when the exchange ends, but with the times of the actual events. Their parent is the span that
was current when the exchange began, or else the span in the client's `traceparent` field. Requests to the server keep
the client's `traceparent`: nothing is written into a request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from promptools.errors import UsageError, install_command
from promptools.exchange.state import DEFAULT_PORTS
from promptools.telemetry.exchange_summary import ExchangeFollower
from promptools.types import ANSWERED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from promptools.exchange import ObservedExchange
    from promptools.telemetry.exchange_summary import ExchangeSummary, SendSummary
    from promptools.types import Attempt, Reply

_NANOSECONDS = 1_000_000_000
_TRACE_FIELDS = frozenset({"traceparent", "tracestate"})
_CLIENT_FAULTS = range(400, 500)
"""Statuses that blame the client, and so do not mark the span of the responding side as an error.

This follows the semantic conventions for HTTP.
"""


@dataclass(frozen=True, slots=True)
class _Start:
    """What must be recorded when an exchange begins, because it is no longer known when the exchange ends."""

    parent: Context
    offset: int
    """Nanoseconds to add to a time of an exchange's clock to get the time since 1970."""


class Spans(ExchangeFollower):
    """Makes OpenTelemetry spans for each exchange, with `tracer_provider` or else the global tracer provider.

    An exchange is a client's request with its response. If `server` is true, the client is another process, as in a
    proxy.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, server: bool = False) -> None:
        super().__init__()
        try:
            from opentelemetry import context, trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise UsageError(f"spans need OpenTelemetry: {install_command('otel')}") from error
        self._trace = trace
        self._current_context = context.get_current
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("promptools", tracer_provider=tracer_provider)
        self._kind = trace.SpanKind.SERVER if server else trace.SpanKind.INTERNAL
        self._starts: dict[ObservedExchange, _Start] = {}

    def began(self, exchange: ObservedExchange) -> None:
        """Remember the parent of the spans, and the time when the exchange began."""
        super().began(exchange)
        offset = time.time_ns() - int(exchange.at * _NANOSECONDS)
        self._starts[exchange] = _Start(self._find_parent(exchange), offset)

    def _find_parent(self, exchange: ObservedExchange) -> Context:
        current = self._current_context()
        if self._trace.get_current_span(current).get_span_context().is_valid:
            return current
        fields = {name.lower(): value for name, value in exchange.request.headers if name.lower() in _TRACE_FIELDS}
        return self._propagator.extract(fields, context=current)

    def report(self, summary: ExchangeSummary) -> None:
        """Make the spans of an exchange."""
        start = self._starts.pop(summary.exchange)
        span = self._start_span(
            f"promptools {summary.exchange.api}",
            start.parent,
            start.offset + int(summary.exchange.at * _NANOSECONDS),
            self._kind,
            exchange_attributes(summary),
        )
        if summary.error and summary.error != "disconnected" and summary.end.status not in _CLIENT_FAULTS:
            span.set_status(self._trace.StatusCode.ERROR, summary.error)
        context = self._trace.set_span_in_context(span, start.parent)
        for send, attempt, replies in _attempts_of_sends(summary):
            self._report_send(summary, send, attempt, replies, (context, start.offset))
        span.end(start.offset + int(summary.end.at * _NANOSECONDS))

    def _report_send(
        self,
        summary: ExchangeSummary,
        send: SendSummary,
        attempt: Attempt | None,
        replies: Sequence[Reply],
        start: tuple[Context, int],
    ) -> None:
        """Make the spans that record a request to the server and the parsing of its reply."""
        parent, offset = start
        rendering = send.sent.purpose == "template"
        name = "render prompt" if rendering else f"chat {summary.model}"
        attributes = send_attributes(summary, send, attempt)
        began_at, ended_at = (offset + int(at * _NANOSECONDS) for at in (send.sent.at, send.ended_at))
        span = self._start_span(name, parent, began_at, self._trace.SpanKind.CLIENT, attributes)
        if "error.type" in attributes:
            span.set_status(self._trace.StatusCode.ERROR, attributes["error.type"])
        if replies and send.first_piece_at is not None:
            parsed = self._start_span(
                "parse reply",
                self._trace.set_span_in_context(span, parent),
                offset + int(send.first_piece_at * _NANOSECONDS),
                self._trace.SpanKind.INTERNAL,
                parse_attributes(replies),
            )
            parsed.end(ended_at)
        span.end(ended_at)

    def _start_span(self, name: str, parent: Context, at: int, kind: Any, attributes: Mapping[str, Any]) -> Span:
        return self._tracer.start_span(name, parent, kind, attributes, start_time=at)


def exchange_attributes(summary: ExchangeSummary) -> dict[str, Any]:
    """Return the attributes of an exchange's span."""
    input_tokens, output_tokens = summary.tokens
    first_byte = summary.seconds_to_first_byte
    return _present(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": summary.provider,
            "gen_ai.request.model": summary.model,
            "gen_ai.response.finish_reasons": summary.finish_reasons,
            "gen_ai.usage.input_tokens": input_tokens or None,
            "gen_ai.usage.output_tokens": output_tokens or None,
            "http.request.method": summary.exchange.request.method,
            "http.response.status_code": summary.end.status,
            "error.type": summary.error or None,
            "promptools.id": summary.exchange.id,
            "promptools.api": summary.exchange.api,
            "promptools.mode": summary.mode,
            "promptools.attempts": len(summary.attempts) or len(summary.sends),
            "promptools.stream": summary.end.streamed,
            "promptools.first_byte_seconds": first_byte,
            "promptools.repeated": summary.repeat_action,
        }
    )


def send_attributes(summary: ExchangeSummary, send: SendSummary, attempt: Attempt | None) -> dict[str, Any]:
    """Return the attributes of the span for one request to the server."""
    usage = (attempt.usage or {}) if attempt else {}
    input_tokens, output_tokens = send.tokens if not usage else map(usage.get, ("prompt_tokens", "completion_tokens"))
    failed = attempt.outcome if attempt and attempt.outcome != ANSWERED else ""
    if not failed and (send.status or 0) >= 400:
        failed = "http"
    url = urlsplit(send.sent.request.url)
    return _present(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": summary.provider,
            "gen_ai.request.model": summary.model,
            "gen_ai.response.model": send.response_model or None,
            "gen_ai.response.finish_reasons": send.finish_reasons,
            "gen_ai.usage.input_tokens": input_tokens or None,
            "gen_ai.usage.output_tokens": output_tokens or None,
            "server.address": url.hostname,
            "server.port": _port(url),
            "http.response.status_code": send.status,
            "error.type": failed or send.failure or None,
            "promptools.send": send.sent.number,
            "promptools.purpose": send.sent.purpose,
            "promptools.mode": send.sent.mode,
        }
    )


def parse_attributes(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the attributes of the span that records the parsing of `replies`."""
    calls = [call for reply in replies for call in reply.calls]
    malformed = [entry for reply in replies for entry in reply.malformed]
    fixes = [fix for call in calls for fix in call.fixes] + [fix for reply in replies for fix in reply.fixes]
    dialects = {call.dialect for call in calls} | {entry.dialect for entry in malformed}
    return _present(
        {
            "promptools.calls": len(calls),
            "promptools.dialects": tuple(sorted(dialects - {""})),
            "promptools.fixes": tuple(sorted({fix.kind for fix in fixes})),
            "promptools.malformed": tuple(sorted({entry.reason for entry in malformed})),
        }
    )


def _present(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes without those that are None or an empty tuple."""
    return {name: value for name, value in attributes.items() if value is not None and value != ()}


def _port(url: Any) -> int | None:
    try:
        return url.port or DEFAULT_PORTS.get(url.scheme)
    except ValueError:
        return None


def _attempts_of_sends(summary: ExchangeSummary) -> list[tuple[SendSummary, Attempt | None, Sequence[Reply]]]:
    """Return `(request, attempt, replies)` for each request to the server.

    `attempt` is None for a request that is not an attempt, such as one to render the chat template.
    """
    by_number = {observed.sent: observed for observed in reversed(summary.end.attempts)}
    answered = [observed.sent for observed in summary.end.attempts if observed.attempt.outcome == ANSWERED]
    replies = summary.end.replies
    matched: list[tuple[SendSummary, Attempt | None, Sequence[Reply]]] = []
    for send in summary.sends:
        observed = by_number.get(send.sent.number)
        read: Sequence[Reply] = ()
        if observed is not None and observed.failed_reply is not None:
            read = (observed.failed_reply,)
        elif observed is not None and observed.sent in answered:
            at = answered.index(observed.sent)  # choices that were requested one by one have one reply each
            read = replies if len(answered) == 1 else replies[at : at + 1]
        matched.append((send, observed.attempt if observed else None, read))
    return matched
