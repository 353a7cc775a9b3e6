"""The recorder: an observer that writes a row for each attempt, in a thread of its own.

While an exchange runs, its bytes are only collected; decoding, redaction and writing happen in the thread. What is
collected and not yet written is bounded: beyond `MAX_HELD`, an attempt is left out, since a recording must not cost the
proxy its memory. An error of the disk ends the recording, and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import queue
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.exchange import Ended, Opened, Piece
from promptools.log import log
from promptools.recording.recording_files import RecordingFiles
from promptools.recording.redaction import Redactor
from promptools.recording.row_writing import CapturedAttempt, encode_attempt

if TYPE_CHECKING:
    import os
    import re
    from collections.abc import Sequence

    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received

DEFAULT_LIMIT = 256 * 2**20
"""The most bytes that recordings take on the disk, unless `limit` is set."""
MIN_LIMIT = 1 << 16
MAX_HELD = 64 * 2**20
"""The most bytes of replies that are held in memory."""


class Recorder:
    """Writes raw replies and their tools into JSON lines in `directory`: `OpenAI(observer=Recorder("corpus"))`.

    Credentials are never written. `redact` are regular expressions of what else is replaced, in every string. Messages
    are written only with `messages`. Beyond `limit` bytes, the oldest files are deleted. Raises `UsageError` for an
    invalid pattern and for a directory that cannot be written to.
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
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._held = 0
        self._stopped = False
        self._warned = False

    # --- what exchanges report -----------------------------------------------------------------------------------

    def began(self, exchange: ObservedExchange) -> None:
        """Begin to collect."""
        if not self._stopped:
            self._running[exchange] = []

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Begin an attempt; the bytes of other requests are not collected."""
        if exchange in self._running:
            self._running[exchange].append(CapturedAttempt(exchange, sent, datetime.now(UTC)))

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Collect what has arrived."""
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
        """Hand the attempts over to the thread."""
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
        """Wait until everything that has ended is written."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done)
            done.wait()

    def close(self) -> None:
        """Write what has ended, and close the file; a recorder that is used again opens another."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self.close)
            self._queue.put(None)
            thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="promptools-recorder", daemon=True)
                self._thread.start()
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
