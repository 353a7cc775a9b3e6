"""The figures of one worker of the proxy that all else is computed from, as `measuring` writes them to a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("figures.json")


@dataclass(frozen=True, slots=True)
class StreamCost:
    """What a stream of one kind costs a worker."""

    request: float
    """Seconds of processor time of a request, without its chunks."""
    chunk: float
    """Seconds of processor time of a chunk."""
    memory: float
    """Bytes of resident memory of a stream that is open."""


@dataclass(frozen=True, slots=True)
class RedisUse:
    """What a request of one kind asks of Redis."""

    calls: float
    """Commands that the proxy sends."""
    commands: float
    """All commands that Redis runs, including those in scripts."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures, and where they were measured."""

    machine: str
    streams: dict[str, StreamCost]
    base_memory: float
    """Bytes of resident memory of a worker without streams."""
    descriptors: float
    """File descriptors of a stream."""
    redis: dict[str, RedisUse]
    idle_calls: float
    """Commands that a worker without requests sends to Redis in a second."""
    call: float
    """Seconds of Redis' processor time for a command that the proxy sends."""
    call_cost: float
    """Seconds of the worker's processor time for such a command."""
    lease: float
    """Seconds of Redis' processor time to renew the lease of one request with a bounded key. While the request is in
    progress, its lease is renewed each second."""
    stored: float
    """Bytes of Redis' memory for a stored response of one sentence."""

    def save(self, path: Path = FILE) -> None:
        """Write the figures."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load_figures(path: Path = FILE) -> Figures:
    """Read the figures that were written last."""
    data = json.loads(path.read_text(encoding="utf-8"))
    data["streams"] = {kind: StreamCost(**cost) for kind, cost in data["streams"].items()}
    data["redis"] = {kind: RedisUse(**use) for kind, use in data["redis"].items()}
    return Figures(**data)
