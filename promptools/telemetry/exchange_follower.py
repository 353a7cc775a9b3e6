"""The observer that all of the package's reports are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.telemetry.exchange_summary import ExchangeSummary, SendSummary

if TYPE_CHECKING:
    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received


class ExchangeFollower:
    """An observer that summarizes each exchange, and calls `report` at its end."""

    def __init__(self) -> None:
        self._open: dict[ObservedExchange, list[SendSummary]] = {}

    def began(self, exchange: ObservedExchange) -> None:
        """Begin the account of an exchange."""
        self._open[exchange] = []

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Add a request to the server."""
        self._open[exchange].append(SendSummary(sent, sent.at))

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Add what has arrived to the last request."""
        self._open[exchange][-1].add(received)

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:
        """Report the exchange."""
        self.report(ExchangeSummary(exchange, end, self._open.pop(exchange)))

    def report(self, summary: ExchangeSummary) -> None:
        """Report an exchange that has ended."""
        raise NotImplementedError
