"""Measure one worker of the proxy: processor time of requests and chunks, memory of open streams, calls of Redis.

`scale` is the benchmark of that name; it also writes the figures for `planning`. Processor time is that of the worker's
process, the lowest of several rounds. The cost of a chunk is computed from the difference between long and short
streams.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.scale.figures import FILE, Figures, RedisUse, StreamCost
from benchmarks.scale.rig import (
    BOUNDED_KEY,
    KEY,
    LIMITED_KEY,
    ProxyProcess,
    Streams,
    paced_streams,
    proxy,
    redis_server,
)
from benchmarks.table import Row, Table
from benchmarks.timing import seconds
from promptools.proxy.shared_state import _RENEW as RENEW_SCRIPT

ROUNDS = 5
STREAMS = 64
SHORT, LONG = 4, 154
GAP = 0.02
OPEN_STREAMS = (100, 500, 1000)
OPEN_SPREAD, OPEN_GAP, OPEN_CHUNKS = 6.0, 1.0, 12
REDIS_REQUESTS = 300
LEASES = 500
COST_REQUESTS = 1500
IDLE_SECONDS = 5.0
MESSAGES = [{"role": "user", "content": "What is the weather in Longyearbyen?"}]
CHAT: dict[str, Any] = {"model": "stub", "messages": MESSAGES}
TOOLS: dict[str, Any] = {**CHAT, "tools": samples.OPENAI}
RESPONSES: dict[str, Any] = {"model": "stub", "input": "What is the weather in Longyearbyen?"}
CHAT_PATH, RESPONSES_PATH = "/v1/chat/completions", "/v1/responses"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT_PATH, CHAT),
    "chat with three tools": (CHAT_PATH, TOOLS),
    "Responses, stored": (RESPONSES_PATH, RESPONSES),
}
IN_SCRIPTS = frozenset({"time", "hmget", "hset", "expire", "zremrangebyscore", "zcard", "zadd", "hdel", "hgetall"})
"""Commands that only the proxy's scripts run."""
OF_CONNECTIONS = frozenset({"client", "hello", "ping", "script", "info"})
"""Commands that open connections, and the commands of this benchmark."""


def scale() -> tuple[Table, ...]:
    """Measure everything, write the figures, and return them as tables."""
    figures, memory = measure_figures()
    figures.save()
    print(f"!!! {FILE} is written: `python -m benchmarks.scale` reads it", file=sys.stderr, flush=True)
    return _tables(figures, memory)


def measure_figures() -> tuple[Figures, dict[str, list[float]]]:
    """Return all figures, and for each kind the bytes of memory at each number of open streams."""
    with paced_streams() as streams:
        costs = {kind: _costs(streams, kind) for kind in KINDS}
        memory = {kind: _memory(streams, kind) for kind in KINDS}
        slopes = {kind: _slope(sizes) for kind, (sizes, _) in memory.items()}
        redis = _redis(streams)
    figures = Figures(
        machine=f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load {os.getloadavg()[0]:.1f} at the end",
        streams={kind: StreamCost(*costs[kind], slopes[kind]) for kind in KINDS},
        base_memory=memory["chat"][0][0],
        descriptors=memory["chat"][1],
        redis=redis.uses,
        idle_calls=redis.idle,
        call=redis.call,
        call_cost=redis.call_cost,
        lease=redis.lease,
        stored=redis.stored,
    )
    return figures, {kind: sizes for kind, (sizes, _) in memory.items()}


def job(kind: str, port: int, **more: Any) -> dict[str, Any]:
    """Return a job of streams of one kind."""
    path, body = KINDS[kind]
    return {"port": port, "path": path, "body": {**body, "stream": True}, **more}


def _costs(streams: Streams, kind: str) -> tuple[float, float]:
    """Return the processor time of a request and of a chunk."""
    spent: dict[int, list[float]] = {SHORT: [], LONG: []}
    count = {SHORT: 8 * STREAMS, LONG: STREAMS}
    with proxy(streams.port) as worker:
        streams.run(job(kind, worker.port, chunks=SHORT, gap=GAP, streams=STREAMS, spread=1))
        for number in range(ROUNDS):
            print(f"... scale, {kind}, round {number + 1} ", end="\r", file=sys.stderr, flush=True)
            for chunks, results in spent.items():
                begin = worker.spent()
                streams.run(job(kind, worker.port, chunks=chunks, gap=GAP, streams=count[chunks], spread=2))
                results.append((worker.spent() - begin) / count[chunks])
    chunk = (min(spent[LONG]) - min(spent[SHORT])) / (LONG - SHORT)
    return min(spent[SHORT]) - SHORT * chunk, chunk


def _memory(streams: Streams, kind: str) -> tuple[list[float], float]:
    """Return the memory without streams and with each number of open streams, and the descriptors of a stream."""
    sizes, descriptors = list[float](), 0.0
    for count in OPEN_STREAMS:
        print(f"... scale, {kind}, {count} open streams ", end="\r", file=sys.stderr, flush=True)
        with proxy(streams.port) as worker:
            streams.run(job(kind, worker.port, chunks=2, gap=GAP, streams=10, spread=0.5))
            idle, files = worker.resident(), worker.descriptors()
            sizes = sizes or [idle]
            streams.begin(job(kind, worker.port, chunks=OPEN_CHUNKS, gap=OPEN_GAP, streams=count, spread=OPEN_SPREAD))
            time.sleep(OPEN_SPREAD + 2)
            sizes.append(worker.resident())
            descriptors = (worker.descriptors() - files) / count
            measured = streams.end()
            assert measured["most_open"] == count, measured
    return sizes, descriptors


def _slope(sizes: list[float]) -> float:
    """Return the bytes of a stream: the slope of a line through the memory at 100, 500 and 1,000 open streams."""
    return float(np.polyfit(OPEN_STREAMS, sizes[1:], 1)[0])


@dataclass(frozen=True, slots=True)
class _Counted:
    calls: int
    commands: int


@dataclass(frozen=True, slots=True)
class _RedisFigures:
    """The part of `Figures` for which Redis is needed."""

    uses: dict[str, RedisUse]
    idle: float
    call: float
    call_cost: float
    lease: float
    stored: float


def _redis(streams: Streams) -> _RedisFigures:
    """Measure what requests and idle workers ask of Redis, and what that costs Redis and the worker."""
    with redis_server() as started:
        if isinstance(started, str):
            raise SystemExit(f"Redis {started}")
        url, client = started
        with proxy(streams.port, redis_url=url) as one, proxy(streams.port, redis_url=url) as other:
            kinds = _kinds(one, other)
            for ask in kinds.values():  # afterwards everything is loaded, and Redis knows every script
                ask()
            begin, at = _counts(client), time.monotonic()
            time.sleep(IDLE_SECONDS)
            idle = (_counts(client).calls - begin.calls) / (time.monotonic() - at) / 2
            idle_commands = (_counts(client).commands - begin.commands) / (time.monotonic() - at) / 2
            uses = {kind: _uses(client, ask, 2 * idle, 2 * idle_commands) for kind, ask in kinds.items()}
            call, call_cost = _call_costs(client, one)
            stored = _stored_bytes(client, one)
        return _RedisFigures(uses, idle, call, call_cost, _lease_cost(client), stored)


def _kinds(one: ProxyProcess, other: ProxyProcess) -> dict[str, Callable[[], object]]:
    """Return the kinds of requests, each as a function that sends one."""
    stored = one.ask(RESPONSES_PATH, RESPONSES, KEY)["id"]
    following = {**RESPONSES, "previous_response_id": stored}
    return {
        "chat": lambda: one.ask(CHAT_PATH, CHAT, KEY),
        "chat with three tools": lambda: one.ask(CHAT_PATH, TOOLS, KEY),
        "Responses, not stored": lambda: one.ask(RESPONSES_PATH, {**RESPONSES, "store": False}, KEY),
        "Responses, stored": lambda: one.ask(RESPONSES_PATH, RESPONSES, KEY),
        "Responses, stored, that follows another": lambda: one.ask(RESPONSES_PATH, following, KEY),
        "the same, through another worker": lambda: other.ask(RESPONSES_PATH, following, KEY),
        "chat, key with requests per minute": lambda: one.ask(CHAT_PATH, CHAT, LIMITED_KEY),
        "chat, key with requests in progress": lambda: one.ask(CHAT_PATH, CHAT, BOUNDED_KEY),
    }


def _uses(client: Any, ask: Callable[[], object], idle: float, idle_commands: float) -> RedisUse:
    """Return the calls of Redis per request, without those that idle workers make in the same time."""
    begin, at = _counts(client), time.monotonic()
    for _ in range(REDIS_REQUESTS):
        ask()
    time.sleep(0.1)  # a slot is released in the background
    took, end = time.monotonic() - at, _counts(client)
    calls = (end.calls - begin.calls - idle * took) / REDIS_REQUESTS
    return RedisUse(round(calls, 2), round((end.commands - begin.commands - idle_commands * took) / REDIS_REQUESTS, 2))


def _counts(client: Any) -> _Counted:
    stats = {name.removeprefix("cmdstat_"): row["calls"] for name, row in client.info("commandstats").items()}
    calls = sum(count for name, count in stats.items() if name not in IN_SCRIPTS | OF_CONNECTIONS)
    return _Counted(calls, sum(count for name, count in stats.items() if name not in OF_CONNECTIONS))


def _call_costs(client: Any, worker: ProxyProcess) -> tuple[float, float]:
    """Return the processor time of a call of Redis, in Redis and in the worker, from requests with a limited key."""
    calls, costs = list[float](), {KEY: list[float](), LIMITED_KEY: list[float]()}
    for _ in range(ROUNDS):
        for key, results in costs.items():
            begin, spent, used = _counts(client), worker.spent(), _spent(client)
            for _ in range(COST_REQUESTS):
                worker.ask(CHAT_PATH, CHAT, key)
            results.append((worker.spent() - spent) / COST_REQUESTS)
            if key == LIMITED_KEY:
                calls.append((_spent(client) - used) / (_counts(client).calls - begin.calls))
    return min(calls), max(0.0, min(costs[LIMITED_KEY]) - min(costs[KEY]))


def _stored_bytes(client: Any, worker: ProxyProcess) -> float:
    """Return Redis' memory for a stored response."""
    begin = client.info("memory")["used_memory"]
    for _ in range(COST_REQUESTS):
        worker.ask(RESPONSES_PATH, RESPONSES, KEY)
    return (client.info("memory")["used_memory"] - begin) / COST_REQUESTS


def _lease_cost(client: Any) -> float:
    """Return Redis' processor time to renew a lease; the script of the proxy renews many leases at once."""
    renew = client.register_script(RENEW_SCRIPT)
    leases = [f"{number:032x}" for number in range(LEASES)]
    renew(["promptools:{limits}:slots:benchmark"] * LEASES, leases)
    begin = _spent(client)
    for _ in range(REDIS_REQUESTS):
        renew(["promptools:{limits}:slots:benchmark"] * LEASES, leases)
    return (_spent(client) - begin) / (REDIS_REQUESTS * LEASES)


def _spent(client: Any) -> float:
    """Return Redis' processor time so far, in seconds, as Redis reports it."""
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def _tables(figures: Figures, memory: dict[str, list[float]]) -> tuple[Table, ...]:
    costs = [
        Row(
            kind,
            {
                "of a request": seconds(cost.request),
                "of a chunk": seconds(cost.chunk),
                "an open stream": f"{cost.memory / 1e3:.1f} KB",
                "memory at 0, 100, 500, 1,000 streams": ", ".join(f"{size / 1e6:.0f}" for size in memory[kind]) + " MB",
            },
            measured={"request_s": cost.request, "chunk_s": cost.chunk, "stream_b": cost.memory},
        )
        for kind, cost in figures.streams.items()
    ]
    redis = [
        Row(kind, {"calls of a request": f"{use.calls:.2f}", "commands with those of scripts": f"{use.commands:.2f}"},
            measured={"calls": use.calls, "commands": use.commands})
        for kind, use in figures.redis.items()
    ]  # fmt: skip
    redis += [
        Row("an idle worker, in a second", {"calls of a request": f"{figures.idle_calls:.2f}"}),
        Row("processor time of a call, of Redis", {"calls of a request": seconds(figures.call)}),
        Row("processor time of a renewed lease, of Redis", {"calls of a request": seconds(figures.lease)}),
        Row("memory of a stored response, of Redis", {"calls of a request": f"{figures.stored / 1e3:.1f} KB"}),
        Row("processor time of a call, of the worker", {"calls of a request": seconds(figures.call_cost)}),
    ]
    return (
        Table("scale", f"One worker of the proxy, {figures.machine}", costs),
        Table("scale_redis", "Calls of Redis", redis),
    )
