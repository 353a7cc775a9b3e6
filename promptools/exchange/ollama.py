"""Responses in Ollama's own API: NDJSON lines, or one JSON body. They have a single choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.exchange.outlet import StreamOutlet, WholeOutlet, dump
from promptools.wire.ollama import answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.line import Writer
    from promptools.exchange.outlet import Account
    from promptools.types import Reply
    from promptools.wire.chat import Envelope

NDJSON = "application/x-ndjson"


class LinesOutlet(StreamOutlet):
    """Writes a stream of newline-delimited JSON."""

    content_type = NDJSON
    heartbeat = b""

    def end(self, account: Account) -> bytes:
        """Return the last line, with token counts and durations."""
        last = self._last or {}
        figures = answer.figures(account.usage, self._tail, account.seconds)
        return self._encoded([_told(last | figures, account)])

    def _encoded(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        return b"".join(b"%b\n" % dump(body) for body in bodies)

    def _writer(self, index: int, envelope: Envelope) -> Writer:  # noqa: ARG002 one signature for all streams
        return answer.LineWriter(envelope)


class AnswerOutlet(WholeOutlet):
    """Collects a whole response and writes it as one JSON body."""

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:  # noqa: ARG002 one signature for all outlets
        """Store the response body."""
        message = answer.message(reply.content, reply.reasoning, reply.calls)
        self._choices[index] = answer.ended(answer.line(envelope, message, logprobs=self._logprobs.get(index)), reply)
        self._envelope = self._envelope or envelope
        return b""

    def end(self, account: Account) -> bytes:
        """Return the whole response, with token counts and durations."""
        extra = self._envelope.extra if self._envelope else {}
        choice = self._choices.get(0, {})
        body = {**choice, **answer.figures(account.usage, extra, account.seconds)}
        return dump(_told(body, account))


def _told(body: dict[str, Any], account: Account) -> dict[str, Any]:
    return body if account.report is None else body | {"promptools": account.report}
