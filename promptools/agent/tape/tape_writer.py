"""The tape of a run: JSON lines, with each request and reply as they went over the wire, and the conversation.

    run        the format, the task's messages, the parameters of the requests
    exchange   a request of the agent: what was sent to the server, and what came back
    messages   messages that were added to the conversation; with `from`, those from that position on were replaced
    end        why the run ended

Credentials are never written; `redact` are regular expressions of what else is replaced.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promptools
from promptools.errors import UsageError, without_credentials
from promptools.exchange import Failed, Opened, Piece
from promptools.masking import MIN_SECRET_LENGTH, secrets_in
from promptools.recording.redaction import Redactor

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from promptools.agent.harness_errors import TerminatingError
    from promptools.agent.run_events import Transcript
    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received

FORMAT = 1
_KEPT_HEADERS = frozenset({"content-type"})


class TapeWriter:
    """Writes a tape, as an observer of the run's client; a file that is there already is continued."""

    def __init__(self, path: str | os.PathLike[str], *, redact: Sequence[str | re.Pattern[str]] = ()) -> None:
        self.path = Path(path)
        self._plain_redactor = self._redactor = Redactor(redact)
        self._secrets: set[str] = set()
        self._written: list[dict[str, Any]] = []
        self._sent: list[dict[str, Any]] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise UsageError(f"cannot record in {str(path)!r}: {error.strerror}") from error

    # --- the run ---------------------------------------------------------------------------------------------------

    def begin(self, messages: list[dict[str, Any]], create: dict[str, Any], api_key: object = None) -> None:
        """Write the beginning of a run; `api_key` is the client's, which may be in what is written before a request."""
        if isinstance(api_key, str) and len(api_key) >= MIN_SECRET_LENGTH:
            self._hide({api_key})
        self._written = list(messages)
        now = datetime.now().astimezone()
        self._write(
            {
                "row": "run",
                "format": FORMAT,
                "promptools": promptools.__version__,
                "time": now.astimezone(UTC).isoformat(timespec="seconds"),
                "date": now.date().isoformat(),
                "create": create,
                "messages": messages,
            }
        )

    def add_messages(self, messages: list[dict[str, Any]]) -> None:
        """Write what is new, or has changed, in the conversation."""
        start = next(
            (at for at, (old, new) in enumerate(zip(self._written, messages, strict=False)) if old != new),
            min(len(self._written), len(messages)),
        )
        if start == len(messages) == len(self._written):
            return
        replaced = {"from": start} if start < len(self._written) else {}
        self._written = list(messages)
        self._write({"row": "messages", **replaced, "messages": messages[start:]})

    def end(self, transcript: Transcript, error: TerminatingError | None = None) -> None:
        """Write the rest of the conversation, and how the run ended."""
        self.add_messages(transcript.messages)
        failure = {"error": type(error).__name__, "message": str(error)} if error else {}
        self._write({"row": "end", "ended": transcript.ended, "usage": transcript.usage, **failure})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # --- what the observer of exchanges is told --------------------------------------------------------------------

    def began(self, exchange: ObservedExchange) -> None:
        """Begin an exchange."""
        self._sent = []
        self._hide(secrets_in(exchange.request.headers, exchange.request.url) | exchange.secrets)

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Begin a request to the server."""
        self._hide(secrets_in(sent.request.headers, sent.request.url) | exchange.secrets)
        self._sent.append(
            {
                "purpose": sent.purpose,
                "mode": sent.mode,
                "method": sent.request.method,
                "url": without_credentials(sent.request.url),
                "body": json_or_text(sent.request.body),
                "status": None,
                "reply": [],
            }
        )

    def received(self, exchange: ObservedExchange, received: Received) -> None:  # noqa: ARG002 - the protocol's
        """Collect what has arrived."""
        if not self._sent:
            return
        sent = self._sent[-1]
        match received:
            case Opened(status, headers):
                sent["status"] = status
                sent["headers"] = {name.lower(): value for name, value in headers if name.lower() in _KEPT_HEADERS}
            case Piece(data):
                sent["reply"].append(data)
            case Failed(kind, why):
                sent["failed"] = f"{kind}: {why}"
            case _:
                pass

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:  # noqa: ARG002 - the protocol's
        """Write an exchange."""
        seen = next((reply.trace.seen for reply in end.replies if reply.trace.seen), None)
        requests = [
            {**sent, "reply": b"".join(sent["reply"]).decode("utf-8", "surrogateescape")} for sent in self._sent
        ]
        self._sent = []
        row = {"row": "exchange", "provider": without_credentials(end.provider), "model": end.model}
        self._write({**row, "seen": seen.to_dict() if seen else None, "requests": requests})

    def _hide(self, secrets: set[str]) -> None:
        if not secrets <= self._secrets:
            self._secrets |= secrets
            self._redactor = self._plain_redactor.with_secrets(self._secrets)

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is None:
            return
        line = json.dumps(self._redactor.value(row), default=str).encode() + b"\n"
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file, rest) :]


def json_or_text(body: bytes) -> Any:
    """Return a body as JSON, or as text if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return as_text(body)


def as_text(data: bytes) -> str:
    """Return bytes as text, from which they can be restored."""
    return data.decode("utf-8", "surrogateescape")
