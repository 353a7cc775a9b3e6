"""An observer that keeps the raw text of the last reply in harmony mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received


@dataclass(frozen=True, slots=True)
class HarmonyReply:
    """A reply as the model wrote it, with what the prompt had begun of it."""

    text: str
    finish_reason: str | None
    """The server's own."""


class ReplyCapture:
    """Follows the exchanges of one run, which come one after the other."""

    def __init__(self) -> None:
        self.last: HarmonyReply | None = None
        """The last reply; None if it was requested in another mode."""
        self._prefill = ""

    def began(self, exchange: ObservedExchange) -> None:  # noqa: ARG002 - the protocol's
        """Forget the reply before."""
        self.last = None

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:  # noqa: ARG002
        """Keep what the prompt has begun of the reply."""
        self._prefill = sent.prepared.prefill if sent.prepared is not None else ""

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Do nothing: the end has it all."""

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:  # noqa: ARG002
        """Keep the reply to the last attempt."""
        last = end.attempts[-1] if end.attempts else None
        if last is not None and last.attempt.mode == "harmony" and last.written:
            written = last.written[0]
            self.last = HarmonyReply(self._prefill + written.text, written.finish_reason)
