"""Write a log line for each exchange, as JSON or as `key=value`, without any text that a user or a model wrote."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from promptools.log import NAME
from promptools.telemetry.exchange_summary import ExchangeFollower
from promptools.wire.json_body import as_list

if TYPE_CHECKING:
    from promptools.telemetry.exchange_summary import ExchangeSummary

LogFormat = Literal["json", "text"]
LOGGER = f"{NAME}.exchanges"

_BARE = re.compile(r"[\w./:@,+-]+", re.ASCII)
"""Matches a value that needs no quotes."""


class ExchangeLog(ExchangeFollower):
    """Logs a line at level INFO for each exchange, to `logger` or else to the logger `promptools.exchanges`."""

    def __init__(self, style: LogFormat = "json", logger: logging.Logger | None = None) -> None:
        super().__init__()
        self._encode = encode_json if style == "json" else encode_text
        self._logger = logger or logging.getLogger(LOGGER)

    def report(self, summary: ExchangeSummary) -> None:
        """Log a line for an exchange that has ended."""
        if self._logger.isEnabledFor(logging.INFO):
            self.write(log_fields(summary))

    def write(self, fields: dict[str, Any]) -> None:
        """Log a line with these fields."""
        self._logger.info("%s", self._encode(fields))


def log_fields(summary: ExchangeSummary) -> dict[str, Any]:
    """Return the fields of an exchange's log line."""
    input_tokens, output_tokens = summary.tokens
    first_byte = summary.seconds_to_first_byte
    return {
        "time": now(),
        "id": summary.exchange.id,
        **({"request_id": summary.exchange.request_id} if summary.exchange.request_id else {}),
        "method": summary.exchange.request.method,
        "api": summary.exchange.api,
        "model": summary.model,
        "provider": summary.provider,
        "mode": summary.mode,
        "attempts": len(summary.attempts) or len(summary.sends),
        "failures": [attempt.outcome for attempt, _ in summary.fallbacks],
        "status": summary.end.status,
        "error": summary.error,
        "stream": summary.end.streamed,
        "seconds": round(summary.seconds, 4),
        "first_byte_seconds": None if first_byte is None else round(first_byte, 4),
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "calls": len(summary.calls),
        "malformed": len(summary.malformed),
        "repeated": summary.repeat_action or "",
        "notes": len({note for reply in summary.end.replies for note in reply.trace.notes}),
        "fixes": sorted({fix.kind for _, fix in summary.fixes}),
    }


def now() -> str:
    """Return the current time in UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def encode_json(fields: dict[str, Any]) -> str:
    """Encode the fields as a JSON object in ASCII, since a model's name may contain any character."""
    return json.dumps(fields)


def encode_text(fields: dict[str, Any]) -> str:
    """Encode the fields as `key=value`; fields without a value are left out."""
    kept = {key: value for key, value in fields.items() if value is not None and value not in ("", [])}
    return " ".join(f"{key}={_encode_value(value)}" for key, value in kept.items())


def _encode_value(value: Any) -> str:
    text = ",".join(map(str, as_list(value))) or (str(value) if isinstance(value, str) else json.dumps(value))
    return text if _BARE.fullmatch(text) else json.dumps(text)
