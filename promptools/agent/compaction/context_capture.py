"""An observer that keeps what the exchange knows of the last prompt: its tokens, and the size of the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.exchange.upstream import available_context
from promptools.wire.json_body import as_count

if TYPE_CHECKING:
    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received


class ContextCapture:
    """Follows the exchanges of one run, which come one after the other."""

    def __init__(self) -> None:
        self.size: int | None = None
        """Tokens of the context, of the config, or as detected; None: not known."""
        self.prompt_tokens: int | None = None
        """Tokens of the last prompt. The usage of a reply counts the prompts of all attempts. None: not known."""

    def began(self, exchange: ObservedExchange) -> None:  # noqa: ARG002 - the protocol's
        """Forget the prompt before."""
        self.prompt_tokens = None

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:  # noqa: ARG002
        """Keep what the profile of the server and the model says."""
        if sent.tool_request is not None:
            self.size = available_context(sent.tool_request)

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Do nothing."""

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:  # noqa: ARG002
        """Keep the tokens of the last attempt's prompt."""
        usage = end.attempts[-1].attempt.usage if end.attempts else None
        self.prompt_tokens = as_count((usage or {}).get("prompt_tokens"))
