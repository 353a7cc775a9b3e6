"""Summaries of exchanges for reports: counts, times and kinds, never text that a user or a model wrote.

Most of the facts come from the replies that promptools has read. If a request is forwarded unchanged, its reply is not
read. Instead, token counts, model and finish reasons are searched for in the first and last bytes of the response.
Since quotes inside a JSON string are always escaped, the text of a reply cannot be mistaken for the key of a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from promptools.errors import without_credentials
from promptools.exchange import Failed, Opened, Piece
from promptools.json_values import try_json
from promptools.numbers import as_count
from promptools.types import HealingCost, replaced_attempts

if TYPE_CHECKING:
    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received
    from promptools.modes.history import RepeatAction
    from promptools.types import Attempt, Call, Fix, Malformed


HEAD_BYTES = 1024
TAIL_BYTES = 2048
"""Number of bytes kept from the end of a response, to find its token counts and finish reasons.

From the beginning, `HEAD_BYTES` bytes are kept, to find the model.
"""
MAX_MODEL = 100
"""Maximum number of characters of a model's name that are reported."""

_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.){1,200}")')
_INPUT_TOKENS = re.compile(rb'"(?:prompt_tokens|prompt_eval_count)"\s*:\s*([0-9]{1,15})')
_OUTPUT_TOKENS = re.compile(rb'"(?:completion_tokens|eval_count)"\s*:\s*([0-9]{1,15})')
_FINISH_REASON = re.compile(rb'"(?:finish_reason|done_reason)"\s*:\s*"(\w{1,40})"')


@dataclass(slots=True)
class SendSummary:
    """A request that was sent to the server, with the facts about its response that may be reported."""

    sent: SentRequest
    ended_at: float
    """When the last part of the response arrived, or when the request was sent if there is no response."""
    status: int | None = None
    failure: str = ""
    """The kind of the connection's failure; empty if it did not fail."""
    first_piece_at: float | None = None
    _head: bytes = b""
    _tail: bytes = b""

    def add(self, received: Received) -> None:
        """Add a part of the response, or the failure of the connection."""
        self.ended_at = received.at
        if isinstance(received, Piece):
            data = received.data
            if self.first_piece_at is None:
                self.first_piece_at = received.at
                self._head = data[:HEAD_BYTES]
            self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
        elif isinstance(received, Opened):
            self.status = received.status
        elif isinstance(received, Failed):
            self.failure = received.kind

    @property
    def response_model(self) -> str:
        """The model that the server names in its response; empty if it names none."""
        match = _MODEL.search(self._head) or _MODEL.search(self._tail)
        return str(try_json(match[1], ""))[:MAX_MODEL] if match else ""

    @property
    def tokens(self) -> tuple[int, int]:
        """The numbers of tokens in the prompt and in the answer, as the response states them; 0 if it states none."""
        return _last_number(_INPUT_TOKENS, self._tail), _last_number(_OUTPUT_TOKENS, self._tail)

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """The distinct finish reasons in the response."""
        return tuple(dict.fromkeys(match.decode() for match in _FINISH_REASON.findall(self._tail)))


def _last_number(pattern: re.Pattern[bytes], data: bytes) -> int:
    numbers = pattern.findall(data)
    return int(numbers[-1]) if numbers else 0


@dataclass
class ExchangeSummary:
    """What may be reported about an exchange (a client's request and its response) after its end."""

    exchange: ObservedExchange
    end: ExchangeEnd
    sends: list[SendSummary] = field(default_factory=list[SendSummary])

    @property
    def seconds(self) -> float:
        """The seconds from the request to the end of the response."""
        return self.end.at - self.exchange.at

    @property
    def seconds_to_first_byte(self) -> float | None:
        """The seconds from the request to the first byte of the response's body; None if no byte was sent."""
        first = self.end.first_byte_at
        return None if first is None else first - self.exchange.at

    @property
    def provider(self) -> str:
        """The provider's name, or else the server's base URL; `none` if the request was refused before routing."""
        return without_credentials(self.end.provider.partition("?")[0]) or "none"

    @property
    def model(self) -> str:
        """The server's name for the model, shortened; `none` if the request names no model."""
        return self.end.model[:MAX_MODEL] or "none"

    @property
    def mode(self) -> str:
        """The mode that answered, or else the mode that was tried last.

        `forward` means that the request was sent unchanged, and `none` that nothing was sent.
        """
        if self.end.replies and self.end.replies[-1].trace.mode:
            return self.end.replies[-1].trace.mode
        if not self.sends:
            return "none"
        last = self.sends[-1].sent
        return "forward" if last.purpose == "forward" else last.mode

    @property
    def status(self) -> str:
        """The HTTP status of the response; `none` if the exchange ended without a response."""
        return str(self.end.status) if self.end.status is not None else "none"

    @property
    def error(self) -> str:
        """What went wrong, in one word; empty if nothing did.

        If a proxy tries another server, it closes the failed exchange early. The failed exchange is reported with its
        error, not as a disconnect by the client.
        """
        end = self.end
        if end.error_kind:
            return end.error_kind
        if end.status is not None and end.status >= 400:
            return "http"
        if isinstance(end.error, GeneratorExit):
            return "disconnected"
        if end.error is not None:
            return next((send.failure for send in reversed(self.sends) if send.failure), type(end.error).__name__)
        return "http" if end.status is None else ""

    @cached_property
    def tokens(self) -> tuple[int, int]:
        """The numbers of tokens in prompts and in answers, for all attempts together.

        If no attempt has usage data, these are the numbers that the last response states.
        """
        usages = [attempt.usage for attempt in self.attempts if attempt.usage]
        if not usages:
            return self.sends[-1].tokens if self.sends else (0, 0)
        keys = ("prompt_tokens", "completion_tokens")
        input_tokens, output_tokens = (sum(as_count(usage.get(key)) or 0 for usage in usages) for key in keys)
        return input_tokens, output_tokens

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts. A request that was forwarded successfully is not an attempt."""
        return [observed.attempt for observed in self.end.attempts]

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """The distinct finish reasons of the replies, or else of the last response."""
        reasons = (reply.finish_reason for reply in self.end.replies)
        known = tuple(dict.fromkeys(reason for reason in reasons if reason))
        return known or (self.sends[-1].finish_reasons if self.sends else ())

    @property
    def fallbacks(self) -> Iterator[tuple[Attempt, str]]:
        """Each attempt that failed and was followed by another attempt, paired with the mode of the next attempt."""
        return ((failed, following.mode) for failed, following in replaced_attempts(self.attempts))

    @property
    def healing(self) -> HealingCost:
        """The requests, tokens and seconds spent on attempts that failed and were followed by another attempt."""
        return HealingCost.of(self.attempts)

    @property
    def repeat_action(self) -> RepeatAction | None:
        """The action taken because the request's history repeats a call; None if it repeats no call.

        If several requests were sent to the server, the last action counts.
        """
        for send in reversed(self.sends):
            if send.sent.prepared is not None and send.sent.prepared.repeat_action is not None:
                return send.sent.prepared.repeat_action
        return None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls that the client received."""
        return tuple(call for reply in self.end.replies for call in reply.calls)

    @property
    def malformed(self) -> tuple[Malformed, ...]:
        """The distinct malformed calls of all attempts."""
        failed = (observed.failed_reply for observed in self.end.attempts)
        replies = (*(reply for reply in failed if reply), *self.end.replies)
        return tuple({id(entry): entry for reply in replies for entry in reply.malformed}.values())

    @property
    def fixes(self) -> list[tuple[str, Fix]]:
        """The repairs (fixes) of the calls and replies that the client received, each with the dialect of its call.

        For a fix of a whole reply, the dialect is empty.
        """
        of_calls = [(call.dialect, fix) for call in self.calls for fix in call.fixes]
        return [*of_calls, *(("", fix) for reply in self.end.replies for fix in reply.fixes)]


# The observer on which all of this package's reports are built.


class ExchangeFollower:
    """Base class of observers that call `report` with a summary of each exchange when it ends."""

    def __init__(self) -> None:
        self._open: dict[ObservedExchange, list[SendSummary]] = {}

    def began(self, exchange: ObservedExchange) -> None:
        """Start the summary of an exchange."""
        self._open[exchange] = []

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Add a request that was sent to the server."""
        self._open[exchange].append(SendSummary(sent, sent.at))

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Add a part of the response to the last request."""
        self._open[exchange][-1].add(received)

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:
        """Call `report` with the summary of an exchange that has ended."""
        self.report(ExchangeSummary(exchange, end, self._open.pop(exchange)))

    def report(self, summary: ExchangeSummary) -> None:
        """Report an exchange that has ended; a subclass must define this."""
        raise NotImplementedError
