"""The recorder: an observer that writes a row for each attempt, in a separate thread.

During an exchange, only its bytes are collected; decoding, redaction and writing happen in the thread. Replies that are
not written yet take at most `MAX_HELD` bytes. An exchange that would exceed this limit is not recorded, since a
recording must not use up the proxy's memory. A disk error ends only the recording.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import re
import sys
import threading
import time
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promptools
from promptools.errors import UsageError, without_credentials
from promptools.exchange import Ended, Opened, Piece
from promptools.exchange.upstream import ReplyDecoder, is_stream
from promptools.harmony.parser import Detokenizer
from promptools.harmony.tokens import raw_text
from promptools.log import log
from promptools.masking import secrets_in
from promptools.modes.history import quotable_texts
from promptools.modes.options import Options
from promptools.profiles import Profile
from promptools.recording.redaction import Redactor
from promptools.recording.replay import FORMAT, decode_prepared, decode_request, parse_reply, read_reply, read_row
from promptools.schema.tool_definition import marks_of
from promptools.types import Span

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.wire.chat_decoder import Delta


# Make a row of one attempt: its bytes are decoded, and everything that no reader needs is left out.
#
# Prompts are left out too. They matter to a reader for one reason: a call that the reply only quotes from the
# conversation is read as text. So such passages are stored as `quotes`. They reveal nothing more, since the reply
# itself contains them.


FACTS = ("accept", "cuts_streams", "in_reasoning", "format_beside_tools", "swallows", "tool_ids")
"""The attributes of a `Profile` that affect how a reply is read."""
OPTIONS = ("strictness", "accept", "rescue", "hold", "arguments", "on_malformed", "harmony_react")
"""The attributes of `Options` that affect how a reply is read."""


@dataclass(slots=True, eq=False)
class CapturedAttempt:
    """The data about one attempt, as collected by the recorder."""

    exchange: ObservedExchange
    sent: SentRequest
    at: datetime
    opened: Opened | None = None
    chunks: list[bytes] = field(default_factory=list[bytes])
    ended: bool = False
    """Whether the response's body was read to its end."""
    broke: str | None = None
    """The kind of failure that broke off the response; None if it did not break off."""
    provider: str = ""
    model: str = ""
    context: Context = field(default_factory=copy_context)
    """Context variables of the exchange; the reply is read with these, since the exchange may have added dialects."""


def encode_attempt(attempt: CapturedAttempt, redactor: Redactor, *, messages: bool = False) -> dict[str, Any]:
    """Return the redacted row of an attempt; it includes the conversation only if `messages` is true."""
    sent = attempt.sent
    request, prepared = sent.tool_request, sent.prepared
    assert request is not None
    assert prepared is not None
    redactor = redactor.with_secrets(_secrets(attempt))
    decoder, deltas = _decode(attempt)
    tokens: dict[str, str] = {}
    replies = [
        _optional(
            index=index,
            pieces=_redact(_merge(choice, prepared, redactor, tokens), redactor),
            finish_reason=decoder.finish_reasons.get(index),
            stop_reason=decoder.stop_reasons.get(index),
        )
        for index, choice in sorted(deltas.items())
    ]
    row = {
        **_encode_origin(attempt, request),
        **_optional(failed=_failure(attempt, decoder)),
        "ended": decoder.ended,
        "request": _encode_request(request, messages=messages),
        **_optional(
            options=_changed(request.options, Options(), OPTIONS),
            profile=_changed(request.profile, Profile(), FACTS),
            prepared=_encode_prepared(prepared),
            usage=decoder.usage,
        ),
        "replies": replies,
    }
    row = {**redactor.value(row), **({"tokens": tokens} if tokens else {})}
    if not messages:
        row = _with_quotes(row, request.messages)
    row["expected"] = read_row(row)
    return row


def _secrets(attempt: CapturedAttempt) -> set[str]:
    """Return the secrets in the client's request, in the attempt's request and response, and in `exchange.secrets`."""
    requests = (attempt.exchange.request, attempt.sent.request)
    found = {secret for request in requests for secret in secrets_in(request.headers, request.url)}
    opened = secrets_in(attempt.opened.headers) if attempt.opened is not None else set[str]()
    return found | opened | attempt.exchange.secrets


def _redact(pieces: list[dict[str, Any]], redactor: Redactor) -> list[dict[str, Any]]:
    """Redact text that is spread over pieces.

    First, all pieces are redacted as one text. Then the pieces of each kind, such as the arguments of one call, are
    redacted as one text. The first pass alone could miss a key in a text that a call interrupts, or in the interleaved
    arguments of two calls.
    """
    places = [
        (call["call"], "arguments", f"call {call['call'].get('index')}") if "call" in call else (call, kind, kind)
        for call in pieces
        for kind in call
        if kind != "ids"
    ]
    groups: dict[str, list[tuple[dict[str, Any], str]]] = {"": []}
    for holder, name, group in places:
        groups.setdefault(group, []).append((holder, name))
        groups[""].append((holder, name))
    for strings in groups.values():
        redacted = redactor.pieces([holder[name] for holder, name in strings])
        for (holder, name), text in zip(strings, redacted, strict=True):
            holder[name] = text
    return pieces


def _encode_origin(attempt: CapturedAttempt, request: ToolRequest) -> dict[str, Any]:
    """Return the fields that say where a row comes from.

    They are the versions, time, exchange, attempt, provider, model, model family, mode and HTTP status.
    """
    return {
        "format": FORMAT,
        "promptools": promptools.__version__,
        "time": attempt.at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "exchange": attempt.exchange.id,
        "attempt": attempt.sent.number,
        "provider": without_credentials(attempt.provider),
        "model": attempt.model,
        "family": request.profile.family,
        "mode": attempt.sent.mode,
        "status": attempt.opened.status if attempt.opened else None,
    }


def _decode(attempt: CapturedAttempt) -> tuple[ReplyDecoder, dict[int, list[Delta]]]:
    """Decode the body of a successful response; return the decoder and the deltas of each choice."""
    sent, opened = attempt.sent, attempt.opened
    asked = sent.tool_request is not None and sent.tool_request.stream
    streamed = is_stream(opened.headers, asked=asked) if opened else asked
    decoder = ReplyDecoder(streamed, sent.reply_api, choices=sent.choices)
    deltas: dict[int, list[Delta]] = {}
    if opened is None or not 200 <= opened.status < 300:
        return decoder, deltas
    for chunk in attempt.chunks:
        for delta in decoder.feed(chunk):
            deltas.setdefault(delta.index or 0, []).append(delta)
    for delta in decoder.close() if attempt.ended else ():
        deltas.setdefault(delta.index or 0, []).append(delta)
    return decoder, deltas


def _failure(attempt: CapturedAttempt, decoder: ReplyDecoder) -> str | None:
    """Return, in one word, why the attempt has no complete reply; None if it has a complete reply."""
    opened = attempt.opened
    if opened is None or attempt.broke:
        return attempt.broke or "disconnected"
    if not 200 <= opened.status < 300:
        return "http"
    if decoder.server_error:
        return "server_error"
    return "garbled" if decoder.decode_error or decoder.limit_error else None


def _merge(
    deltas: list[Delta], prepared: PreparedRequest, redactor: Redactor, tokens: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the pieces of a choice in order, with adjacent pieces of the same kind joined.

    If the reply came as token ids, the only piece holds the ids, and their bytes are added to `tokens`. But if the text
    of the ids contains something to redact, the only piece holds this text.
    """
    decode = prepared.prompt.decode if prepared.prompt is not None else None
    ids = [token for delta in deltas for token in delta.ids or ()] if decode is not None else []
    pieces: list[dict[str, Any]] = []
    if decode is not None and ids:
        detokenizer = Detokenizer(decode)
        text = "".join(raw_text(piece) for piece in (*detokenizer.feed(ids), *detokenizer.close()))
        if redactor.matches(text):
            return [{"content": text}]
        tokens.update((str(token), _token_text(token, prepared)) for token in ids)
        return [{"ids": ids}]
    for delta in deltas:
        _append(pieces, "reasoning", delta.reasoning)
        _append(pieces, "content", delta.content + delta.refusal)
        for call in delta.tool_calls:
            last = pieces[-1].get("call") if pieces else None
            if last is not None and call.id is None and call.name is None and call.index == last.get("index"):
                last["arguments"] += call.arguments
            else:
                part = _optional(index=call.index, id=call.id, name=call.name)
                pieces.append({"call": {**part, "arguments": call.arguments}})
    return pieces


def _token_text(token: int, prepared: PreparedRequest) -> str:
    """Return the bytes of a token as hexadecimal digits; empty if the vocabulary lacks the token."""
    assert prepared.prompt is not None
    assert prepared.prompt.decode is not None
    try:
        return prepared.prompt.decode(token).hex()
    except (KeyError, IndexError, ValueError):
        return ""


def _append(pieces: list[dict[str, Any]], kind: str, text: str) -> None:
    if text and pieces and kind in pieces[-1]:
        pieces[-1][kind] += text
    elif text:
        pieces.append({kind: text})


def _encode_request(request: ToolRequest, *, messages: bool) -> dict[str, Any]:
    """Return the parts of a request that are needed to read the reply to it."""
    marks = {tool.name: marked for tool in request.tools if (marked := marks_of(tool))}
    choice = request.choice
    return {
        "stream": request.stream,
        "tools": request.tools.to_openai(),
        **_optional(
            marks=marks or None,
            offered=None if request.offered.names == request.tools.names else list(request.offered.names),
            other_tools=list(request.other_tools) or None,
            tool_choice=None if choice.kind == "auto" else [choice.kind, choice.name],
            parallel_tool_calls=None if request.parallel_calls else False,
            max_tokens=request.max_tokens,
            response_format=request.body.get("response_format"),
            json_answer=request.json_answer or None,
            legacy=request.legacy or None,
            messages=request.messages if messages else None,
        ),
    }


def _encode_prepared(prepared: PreparedRequest) -> dict[str, Any] | None:
    """Return the parts of a prepared request that are needed to read the reply to it; None if there are none."""
    return (
        _optional(
            dialect=prepared.dialect,
            names=dict(prepared.client_names) or None,
            prefill=prepared.prefill or None,
            in_reasoning=prepared.in_reasoning,
            turn_ends=list(prepared.turn_ends) or None,
            escaped=sorted(prepared.restore.forms) if prepared.restore is not None else None,
            examples=[{"name": call.name, "arguments": call.arguments} for call in prepared.examples] or None,
        )
        or None
    )


def _with_quotes(row: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with `quotes` added: texts in its replies that look like calls, but quote the conversation.

    When the row is read again, the quotes stand in for the conversation, which is not in the row. If that gives a
    different result from reading with the whole conversation, the row is marked `inexact`.
    """
    quotable = [{"role": "user", "content": text} for text in quotable_texts(messages) if text]
    if not quotable:
        return row
    request, prepared = decode_request(row), decode_prepared(row)
    informed = replace(request, body={**request.body, "messages": quotable})
    wanted = [read_reply(informed, prepared, row, reply) for reply in row["replies"]]
    if wanted == read_row(row):
        return row
    quotes: list[str] = []
    for reply in row["replies"]:
        text = prepared.prefill + "".join(piece.get("content", "") for piece in reply["pieces"])
        known = {call.span for call in parse_reply(informed, prepared, row, reply)[0].calls}
        quotes += (text[start:end].strip() for start, end in _calls_with_markup(request, prepared, row, reply, known))
    row = {**row, "request": {**row["request"], "quotes": list(filter(None, quotes))}}
    return row if wanted == read_row(row) else {**row, "inexact": True}


def _calls_with_markup(
    request: ToolRequest,
    prepared: PreparedRequest,
    row: dict[str, Any],
    reply: dict[str, Any],
    known: Container[Span],
) -> Iterator[Span]:
    """Yield the span of each call that is found in a reply but not in `known`, including the markup around the call."""
    read, _ = parse_reply(request, prepared, row, reply)
    calls = {call.span for call in read.calls} | {malformed.span for malformed in read.malformed}
    markup = {discarded.span for discarded in read.discarded}
    start = end = 0
    unknown = False
    for span in [*sorted(calls | markup), Span(sys.maxsize, sys.maxsize)]:
        if span.start > end:
            if unknown:
                yield Span(start, end)
            start, unknown = span.start, False
        end = max(end, span.end)
        unknown = unknown or (span in calls and span not in known)


def _changed(value: Any, defaults: Any, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the named attributes whose values differ from the defaults; None if there are none."""
    return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(defaults, name)} or None


def _optional(**values: Any) -> dict[str, Any]:
    """Return the keyword arguments that are not None."""
    return {key: value for key, value in values.items() if value is not None}


# The files of recordings: JSON lines in a directory. A new file begins when the current one is full, and the oldest
# files are deleted when all files together reach a limit.
#
# Several processes may write to one directory, each to its own files. Only the owner of a file can read it. If another
# process has deleted the current file because it was the oldest, this is noticed before the next row is written.


FILES = 10
"""Number of files among which the size limit is divided."""
_NAME = re.compile(r"\d{8}-\d{6}-\d+(?:-\d+)?\.jsonl")


class RecordingFiles:
    """Appends lines to files in a directory; deletes the oldest files when all together exceed about `limit` bytes."""

    def __init__(self, directory: str | os.PathLike[str], limit: int) -> None:
        self.directory = Path(directory)
        self._limit = limit
        self._descriptor: int | None = None
        self._path: Path | None = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot record in {str(directory)!r}: {error.strerror}") from error
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise UsageError(f"cannot record in {str(directory)!r}: no permission to write there")

    def write(self, line: bytes) -> None:
        """Append a line. Raises `OSError` if this fails; the file may then end in a partial line."""
        descriptor = self._current(len(line))
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def close(self) -> None:
        """Close the current file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = self._path = None

    def _current(self, size: int) -> int:
        if self._descriptor is not None:
            state = os.fstat(self._descriptor)
            if state.st_nlink and (not state.st_size or state.st_size + size <= self._limit // FILES):
                return self._descriptor
            self.close()
        self._delete_oldest()
        self._descriptor, self._path = self._open()
        return self._descriptor

    def _open(self) -> tuple[int, Path]:
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        number = 1
        while True:
            path = self.directory / f"{stem}{f'-{number}' if number > 1 else ''}.jsonl"
            try:
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600), path
            except FileExistsError:
                number += 1

    def _delete_oldest(self) -> None:
        """Delete the oldest files until there is room for a new file."""
        files = [(path.stat(), path) for path in self.directory.iterdir() if _NAME.fullmatch(path.name)]
        files.sort(key=lambda item: (item[0].st_mtime_ns, item[1].name))
        total = sum(state.st_size for state, _ in files)
        for state, path in files:
            if total + self._limit // FILES <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= state.st_size


DEFAULT_LIMIT = 256 * 2**20
"""Default for `limit`: the maximum size in bytes of all recordings in a directory."""
MIN_LIMIT = 1 << 16
MAX_HELD = 64 * 2**20
"""Maximum size in bytes of the replies held in memory."""


class Recorder:
    """Writes raw replies and the tools of their requests as JSON lines into `directory`.

    For example: `OpenAI(observer=Recorder("corpus"))`. Credentials are never written. `redact` holds regular
    expressions for other text to replace, in every string of a row. The conversation is written only if `messages` is
    true. If the files exceed `limit` bytes, the oldest are deleted. Raises `UsageError` for an invalid pattern, a
    `limit` that is too small, or a directory that cannot be written to.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        redact: Sequence[str | re.Pattern[str]] = (),
        messages: bool = False,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        if limit < MIN_LIMIT:
            raise UsageError(f"the limit of recordings is {limit} bytes; it must be at least {MIN_LIMIT}")
        self._redactor = Redactor(redact)
        self._messages = messages
        self._files = RecordingFiles(directory, limit)
        self._running: dict[ObservedExchange, list[CapturedAttempt]] = {}
        self._queue: queue.SimpleQueue[list[CapturedAttempt] | threading.Event | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        """A reentrant lock: the garbage collector may end a dropped exchange in a thread that holds the lock."""
        self._thread: threading.Thread | None = None
        self._held = 0
        self._stopped = False
        self._warned = False

    # --- what exchanges report -----------------------------------------------------------------------------------

    def began(self, exchange: ObservedExchange) -> None:
        """Start collecting the attempts of an exchange."""
        if not self._stopped:
            self._running[exchange] = []

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Note a request to the server; if it is an attempt, collect the response from now on."""
        if exchange in self._running:
            self._running[exchange].append(CapturedAttempt(exchange, sent, datetime.now(UTC)))

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Collect a piece of the response."""
        attempts = self._running.get(exchange)
        if not attempts or attempts[-1].sent.tool_request is None:
            return
        attempt = attempts[-1]
        if isinstance(received, Opened):
            attempt.opened = received
        elif isinstance(received, Piece):
            self._collect(exchange, attempt, received.data)
        elif isinstance(received, Ended):
            attempt.ended = True
        else:
            attempt.broke = received.kind

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:
        """Pass the attempts of an exchange to the thread that writes them."""
        attempts = [attempt for attempt in self._running.pop(exchange, ()) if attempt.sent.tool_request is not None]
        if not attempts or self._stopped:
            return
        for attempt in attempts:
            attempt.provider, attempt.model = end.provider, end.model
        if isinstance(end.error, GeneratorExit) and not attempts[-1].ended:
            attempts[-1].broke = attempts[-1].broke or "disconnected"
        self._start()
        self._queue.put(attempts)

    def _collect(self, exchange: ObservedExchange, attempt: CapturedAttempt, data: bytes) -> None:
        with self._lock:
            full = self._held + len(data) > MAX_HELD
            self._held += 0 if full else len(data)
        if not full:
            attempt.chunks.append(data)
            return
        self._release(self._running.pop(exchange))
        if not self._warned:
            self._warned = True
            log.warning("a reply was not recorded: more than %d bytes of replies wait to be written", MAX_HELD)

    def _release(self, attempts: list[CapturedAttempt]) -> None:
        with self._lock:
            self._held -= sum(len(chunk) for attempt in attempts for chunk in attempt.chunks)

    # --- the thread ----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until all exchanges that have ended are written."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done)
            done.wait()

    def close(self) -> None:
        """Write all exchanges that have ended, and close the file. The recorder may be used again, with a new file."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self.close)
            self._queue.put(None)
            thread.join()

    def _start(self) -> None:
        running = self._thread
        if running is not None:
            return
        thread = threading.Thread(target=self._run, name="promptools-recorder", daemon=True)
        with self._lock:
            if self._thread is not None:
                return
            self._thread = thread
            thread.start()
            atexit.register(self.close)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            for attempt in item:
                self._write(attempt)
            self._release(item)
        with contextlib.suppress(OSError):
            self._files.close()

    def _write(self, attempt: CapturedAttempt) -> None:
        if self._stopped:
            return
        try:
            row = attempt.context.run(encode_attempt, attempt, self._redactor, messages=self._messages)
            line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
            self._files.write(line)
        except OSError as error:
            self._stopped = True
            self._running.clear()
            log.error("recording stopped: %s; exchanges go on without it", error.strerror or error)  # noqa: TRY400
        except Exception as error:  # noqa: BLE001 - a recording must not fail an exchange; the text may hold the reply
            log.error("an attempt could not be recorded (%s)", type(error).__name__)  # noqa: TRY400
