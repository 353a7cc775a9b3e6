"""The tape of a run: a file that records each request and reply as sent over the wire, and the conversation.

Each line of the file is a JSON object, a row. The value of its key `row` is one of:

    run        the format, the task's messages, the parameters of the requests
    exchange   a request of the agent: what was sent to the server, and what came back
    messages   messages added to the conversation; with `from`, they replace all messages from that position on
    end        why the run ended

A row with messages may have `written`, which maps positions of messages to the raw text that the model wrote for them.

`TapeWriter` records a run. `read_tape` reads a tape's last run, to replay it or to continue where it ended.
Credentials are never written. The argument `redact` of `TapeWriter` holds regular expressions for other text to redact.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promptools
from promptools.errors import UsageError, without_credentials
from promptools.exchange import DetectionCache, Failed, Opened, Piece
from promptools.harness.agent.conversation import with_written, written_texts
from promptools.harness.agent.harness_errors import HarnessError
from promptools.harness.agent.toolbox import PreparedCall, Toolbox
from promptools.json_values import is_array, is_object, try_json
from promptools.masking import MIN_SECRET_LENGTH, secrets_in
from promptools.recording.redaction import REDACTED, Redactor
from promptools.transport import Session, intercept, library_of
from promptools.types import Result, ServerInfo
from promptools.wire.json_body import split_content

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received
    from promptools.harness.agent.harness_errors import TerminatingError
    from promptools.harness.agent.run_events import Transcript


# Recording.


FORMAT = 1
_KEPT_HEADERS = frozenset({"content-type"})


class TapeWriter:
    """Records runs in a file, the tape, as an observer of the client. If the file exists, rows are appended to it."""

    def __init__(self, path: str | os.PathLike[str], *, redact: Sequence[str | re.Pattern[str]] = ()) -> None:
        self.path = Path(path)
        self._plain_redactor = self._redactor = Redactor(redact)
        self._secrets: set[str] = set()
        self._written: list[dict[str, Any]] = []
        self._sent: list[dict[str, Any]] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            _end_line(self._file)
        except OSError as error:
            raise UsageError(f"cannot record in {str(path)!r}: {error.strerror}") from error

    # --- the run ---------------------------------------------------------------------------------------------------

    def begin(self, messages: list[dict[str, Any]], create: dict[str, Any], api_key: object = None) -> None:
        """Write the first row of a run. The client's `api_key` is redacted in this row and all later ones.

        Other secrets become known from the headers and the URL of a request. They are redacted in the row of this
        request and in all later rows.
        """
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
                **_message_fields(messages),
            }
        )

    def add_messages(self, messages: list[dict[str, Any]]) -> None:
        """Write the messages of the conversation that are new or have changed."""
        start = next(
            (at for at, (old, new) in enumerate(zip(self._written, messages, strict=False)) if old != new),
            min(len(self._written), len(messages)),
        )
        if start == len(messages) == len(self._written):
            return
        replaced = {"from": start} if start < len(self._written) else {}
        self._written = list(messages)
        self._write({"row": "messages", **replaced, **_message_fields(messages[start:])})

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

    # --- the methods of an observer of exchanges -------------------------------------------------------------------

    def began(self, exchange: ObservedExchange) -> None:
        """Begin the record of an exchange: a request of the agent, and all requests to the server that it leads to."""
        self._sent = []
        self._hide(secrets_in(exchange.request.headers, exchange.request.url) | exchange.secrets)

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Begin the record of one request to the server."""
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
        """Collect a part of the server's response."""
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
        """Write the row of the exchange."""
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


def _end_line(file: int) -> None:
    """End the last line if its line end is missing, so that the next row begins a new line.

    The line end is missing if the process that wrote the line was killed.
    """
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")


def _message_fields(messages: list[dict[str, Any]]) -> dict[str, Any]:
    written = written_texts(messages)
    return {"messages": messages, **({"written": written} if written else {})}


def json_or_text(body: bytes) -> Any:
    """Return a body as JSON, or as text if it is not JSON."""
    return try_json(body, as_text(body))


def as_text(data: bytes) -> str:
    """Decode bytes so that the text can be encoded to the same bytes again."""
    return data.decode("utf-8", "surrogateescape")


# Read a tape: replay its run without a server and without its tools, or continue where it ended.
#
# A replay sends the same requests through the same client, and the tape answers them. A request that differs from the
# one on the tape raises `TapeMismatch`, with the difference.


NOT_RUN = "Error: not run: the run was interrupted."
CUT_OFF = "Error: the run was interrupted before this call had a result; it may have run, in part or as a whole."
ERROR_PREFIX = "Error: "
"""The text with which the result of a failed call begins."""


class TapeMismatch(HarnessError):
    """A replayed run differs from its tape.

    If a request differs, `difference` is a unified diff of the recorded request and the one that was sent now.
    """

    def __init__(self, message: str, *, difference: str = "") -> None:
        super().__init__(f"{message}\n{difference}" if difference else message)
        self.difference = difference


@dataclass(frozen=True, slots=True)
class Tape:
    """The last run that a tape file records."""

    path: Path
    task: list[dict[str, Any]]
    """The messages that the run began with."""
    messages: list[dict[str, Any]]
    """The conversation as far as it went. For each call that had no result, a result is added that says that the call
    was not run, or was interrupted."""
    results: dict[str, Any] = field(repr=False)
    """Maps call ids to the results of the calls, each a text or a list of content parts."""
    exchanges: list[dict[str, Any]] = field(repr=False)
    date: str = ""
    ended: str | None = None
    """Why the run ended; None if it was interrupted."""

    @property
    def streamed(self) -> bool:
        """Whether the replies were streamed."""
        bodies = [request["body"] for exchange in self.exchanges for request in exchange["requests"]]
        return any(is_object(body) and body.get("stream") is True for body in bodies)


def read_tape(path: str | os.PathLike[str]) -> Tape:
    """Read the last run of a tape. Raises `UsageError` for a file that is not a tape."""
    task: list[dict[str, Any]] | None = None
    messages: list[dict[str, Any]] = []
    exchanges: list[dict[str, Any]] = []
    results: dict[str, Any] = {}
    date, ended = "", None
    for row in _rows(Path(path)):
        match row.get("row"):
            case "run":
                if row.get("format") != FORMAT:
                    raise UsageError(f"{str(path)!r} is a tape of format {row.get('format')!r}; expected {FORMAT}")
                task, messages, exchanges = _messages(row), _messages(row), []
                results, date, ended = {}, row["date"], None
            case "messages":
                messages = [*messages[: row.get("from", len(messages))], *_messages(row)]
                for message in row["messages"]:
                    if message.get("role") == "tool":
                        results.setdefault(message["tool_call_id"], message["content"])
            case "exchange":
                exchanges.append(row)
            case "end":
                ended = row["ended"]
            case _:
                pass
    if task is None:
        raise UsageError(f"{str(path)!r} is not a tape: it has no row of a run")
    closed = _with_closed_calls(messages, CUT_OFF if ended is None else NOT_RUN)
    return Tape(Path(path), task, closed, results, exchanges, date, ended)


def _messages(row: dict[str, Any]) -> list[dict[str, Any]]:
    return with_written(row["messages"], row.get("written") or {})


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    cut = 0
    """The number of the latest non-empty line if this is not valid JSON, else 0. Such a line is allowed only at the end
    of the file or before the next run, because a process that is killed leaves its last line unfinished."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = try_json(line)
        if cut and not (is_object(row) and row.get("row") == "run"):
            raise UsageError(f"{str(path)!r} is not a tape: line {cut} is not valid JSON")
        cut = number if row is None else 0
        if isinstance(row, dict):
            yield row


def _with_closed_calls(messages: list[dict[str, Any]], result: str) -> list[dict[str, Any]]:
    """Return the messages; each unanswered call of the last reply gets the text `result` as its result."""
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    turns = [message for message in messages if message.get("role") == "assistant"]
    last = turns[-1] if turns else dict[str, Any]()
    missing = [call["id"] for call in last.get("tool_calls") or () if call["id"] not in answered]
    return [*messages, *({"role": "tool", "tool_call_id": own, "content": result} for own in missing)]


class ReplayedToolbox(Toolbox):
    """The tools of an agent in a replay. Calls are not run; their results come from the tape."""

    def __init__(self, toolbox: Toolbox, results: dict[str, Any]) -> None:
        self.__dict__.update(toolbox.__dict__)
        self._results = results

    def prepare_call(self, call_id: str, name: str, arguments_json: str) -> PreparedCall:
        """Return a call with its recorded result."""
        prepared = super().prepare_call(call_id, name, arguments_json)
        if prepared.work is None:
            return prepared
        content = self._results.get(call_id)
        if content is None:
            raise TapeMismatch(f"the tape holds no result of {prepared.call.name!r} ({call_id})")
        text, images = split_content(content)
        failed = text.startswith(ERROR_PREFIX)
        result = Result(call_id, prepared.call.name, text, is_error=failed, images=images)
        return PreparedCall(prepared.call, None, result)


class TapePlayer:
    """Answers the requests of a client with the replies that a tape recorded."""

    def __init__(self, tape: Tape) -> None:
        self.results = tape.results
        self._requests = [
            request
            for exchange in tape.exchanges
            for request in exchange["requests"]
            if request["status"] is not None or len(exchange["requests"]) > 1
        ]
        self._position = 0
        self._seen = next((exchange["seen"] for exchange in tape.exchanges if exchange["seen"]), None)

    def client(self, client: Any) -> Any:
        """Return a copy of one of promptools' clients, sync or async, whose requests are answered from the tape.

        Raises `UsageError` for any other client.
        """
        if getattr(client, "promptools", None) is None:
            raise UsageError("a tape is replayed through a client of promptools, or promptools.wrap(client)")
        library = library_of(client.__dict__["_client"])
        is_async = isinstance(client.__dict__["_client"], library.module.AsyncClient)
        http_client = library.module.AsyncClient if is_async else library.module.Client
        seen = ServerInfo.from_dict(self._seen) if self._seen else ServerInfo(why="not known from the tape")
        known = client.promptools.context.learned
        session = Session(
            {**client.promptools.settings, "observer": None},
            _KnownServer(seen),
            learned=known and known.without_learning(),
        )
        copied = client.with_options(max_retries=0)
        transport = library.module.MockTransport(partial(self._answer, library.module))
        copied.__dict__["_client"] = intercept(http_client(transport=transport), session)
        copied.__dict__["promptools"] = session
        return copied

    def _answer(self, module: Any, request: Any) -> Any:
        number = self._position + 1
        if self._position == len(self._requests):
            raise TapeMismatch(f"the run sends request {number}, but the tape holds no more than {number - 1}")
        recorded = self._requests[self._position]
        self._position = number
        sent = {
            "method": request.method,
            "url": without_credentials(str(request.url)),
            "body": json_or_text(request.read()),
        }
        wanted = {key: recorded[key] for key in sent}
        if not _same(wanted, sent):
            lines = difflib.unified_diff(_lines(wanted), _lines(sent), "recorded", "sent now", lineterm="")
            raise TapeMismatch(f"request {number} differs from the tape", difference="\n".join(lines))
        if recorded["status"] is None:
            raise module.RemoteProtocolError(recorded.get("failed", "the recorded request got no response"))
        return module.Response(
            recorded["status"],
            headers=recorded.get("headers"),
            content=recorded["reply"].encode("utf-8", "surrogateescape"),
        )


class _KnownServer(DetectionCache):
    """A stand-in for the cache of detected servers, which always returns what the tape recorded."""

    def __init__(self, seen: ServerInfo) -> None:
        super().__init__()
        self._seen = seen

    def get(self, root: str, model: str = "", kind: str = "", *, at: float = 0.0) -> ServerInfo | None:  # noqa: ARG002
        """Return what the tape recorded about the server."""
        return self._seen


def _same(recorded: Any, sent: Any) -> bool:
    """Return whether two requests are the same, except for redacted text."""
    if isinstance(recorded, str) and REDACTED in recorded:
        parts, at = recorded.split(REDACTED), 0
        for part in parts if isinstance(sent, str) else ():
            at = sent.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return isinstance(sent, str)
    if is_object(recorded) and is_object(sent):
        return recorded.keys() == sent.keys() and all(_same(recorded[key], sent[key]) for key in recorded)
    if is_array(recorded) and is_array(sent):
        return len(recorded) == len(sent) and all(map(_same, recorded, sent))
    return bool(recorded == sent)


def _lines(request: dict[str, Any]) -> list[str]:
    """Return a request as lines of JSON; a prompt in it is split at its line breaks."""
    return json.dumps(request, ensure_ascii=False, indent=2).replace("\\n", "\n").splitlines()
