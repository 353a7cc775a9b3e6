"""The extension that records exchanges: it follows them, and writes the last of them when the proxy stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from anyio import to_thread

from promptools.exchange import Observer
from promptools.proxy.extension import Extension

if TYPE_CHECKING:
    from collections.abc import Callable


class ClosableObserver(Observer, Protocol):
    """An observer that has something to finish, such as a `promptools.recording.Recorder`."""

    @property
    def close(self) -> Callable[[], None]:
        """Finish; it may block."""
        ...


class RecordingExtension(Extension):
    """Records the exchanges of a proxy."""

    def __init__(self, recorder: ClosableObserver) -> None:
        self.observer = recorder
        self._recorder = recorder

    async def stop(self) -> None:
        """Write what has ended."""
        await to_thread.run_sync(self._recorder.close)
