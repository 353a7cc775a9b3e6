"""Run a batch on the nodes of a Ray cluster, through Ray Data.

`ray_session` connects this process to a cluster. `stream_chunks` is the only user of Ray Data: it reads items in one
task, processes them on any node, and yields the results. `ClusterAnswering` uses `stream_chunks` to send requests from
actors, which `ActorSettings` describe. `reparse_on_cluster` uses `stream_chunks` to read logged replies.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import ceil, inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from promptools.batch.answering import BatchAnswer, RequestServers, answer_timeout
from promptools.batch.files import is_local
from promptools.batch.input_survey import PendingRequests
from promptools.batch.offline import QUEUED_SHARE, EngineSettings, open_engine
from promptools.batch.reparsing import CHUNK, ReparsedLine, read_replies, reparse_lines
from promptools.batch.request_pool import AdaptiveLimit, FixedLimit, RequestPool
from promptools.dialects.table_file import DialectTable
from promptools.errors import PromptoolsError, UpstreamError, UsageError, clip, install_command, without_credentials
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.client import AsyncOpenAI
    from promptools.profiles import Config


# Connect this process to a cluster that is already running, or to a new one on this machine that ends with the process.


CLIENT_SCHEME = "ray://"
CONNECT_SECONDS = 10.0


def import_ray() -> Any:
    """Return the package `ray` with Ray Data; raise `UsageError` if it is not installed."""
    try:
        ray = import_module("ray")
        import_module("ray.data")
        import_module("pyarrow")
    except ImportError:
        raise UsageError(f"--ray needs Ray Data: {install_command('batch,ray')}") from None
    return ray


@contextmanager
def ray_session(address: str | None) -> Generator[Any, None, None]:
    """Connect to the cluster at `address`, unless already connected, and yield the package `ray`.

    Without an address, use `RAY_ADDRESS`, a cluster running on this machine, or a new cluster. Until the session ends,
    everything printed goes to stderr, because Ray also prints the errors of its processes, and stdout is only for
    results.

    Raises `UsageError` if the cluster cannot be used, and `PromptoolsError` if Ray raises an error in the block.
    """
    if address and address.startswith(CLIENT_SCHEME):
        raise UsageError(
            f"{without_credentials(address)!r} is a Ray Client server, through which files of this machine cannot be"
            " read; run the command on a node of the cluster, or with `ray job submit`"
        )
    ray = import_ray()
    connected = ray.is_initialized()
    with redirect_stdout(sys.stderr):
        if not connected:
            _connect(ray, address)
        for handler in logging.getLogger("ray.data").handlers:
            if isinstance(handler, logging.StreamHandler):  # errors are also raised; the session's log file has all
                handler.setLevel(logging.CRITICAL)
        try:
            with _errors_of(ray):
                yield ray
        finally:
            if not connected:
                ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    # a cluster that is started here must not send usage statistics
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # else Ray's core warns on stderr about arguments of actors in the object store, needlessly: this process keeps them
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    if address:
        _check_address(address)
    shown = f"the Ray cluster at {without_credentials(address)!r}" if address else "the Ray cluster"
    try:
        ray.init(address or None, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, ray.exceptions.AuthenticationError) as error:
        raise UsageError(
            f"cannot connect to {shown}: {_first_line(error)}; if it asks for a token, set RAY_AUTH_MODE=token, and"
            " RAY_AUTH_TOKEN unless ~/.ray/auth_token has it"
        ) from error
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"cannot connect to {shown}: {_first_line(error)}") from error


def _check_address(address: str) -> None:
    """Raise `UsageError` if nothing listens at HOST:PORT, because Ray itself would end the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():  # such as `auto`
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"there is no Ray cluster at {address!r}: {getattr(error, 'strerror', None) or error}; start one with `ray"
            " start --head`, or leave the address out"
        ) from error


@contextmanager
def _errors_of(ray: Any) -> Generator[None, None, None]:
    """Inside the block, replace Ray's errors, which contain the stack traces of several processes, with short ones."""
    try:
        yield
    except ray.exceptions.RayError as error:
        if isinstance(cause := getattr(error, "cause", None), PromptoolsError):
            raise cause from error
        raise PromptoolsError(
            f"Ray: {_first_line(error)}; nothing is lost: run the same command to continue"
        ) from error


def _first_line(error: BaseException) -> str:
    """Return the first line of an error, without stack traces.

    If a Ray task failed, return the first line of the task's exception.
    """
    cause = getattr(error, "cause", None)
    text = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else str(error) or type(error).__name__
    return clip(without_credentials(text.strip().splitlines()[0]))


# Items through Ray Data: one task reads them, an operation runs on chunks of them on any node, results stream back.
#
# A chunk is one row of the dataset, and each row is one block, so that Ray Data moves, runs and repeats whole chunks.
# It pauses the reading while chunks wait. If a process or a node ends, its chunks are run again: the results of a chunk
# are kept whole or not at all.


CELL = "chunk"
"""The name of the only column in each block (Arrow table) that passes through Ray Data."""
MAX_CHUNK_BYTES = 4 * 2**20
"""Number of bytes of pickled items at which a chunk is complete. The last item may make the chunk larger."""
MAX_FAILED_STARTS = 8
"""How many actors in a row may fail to start before Ray gives up."""
READ_AHEAD = 1
"""How many chunks of results are fetched ahead, before they are needed."""


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """Items that are read again at each iteration, in chunks of at most `size`."""

    items: Iterable[Any]
    size: int
    on_this_node: bool
    """Whether the items can be read only on the node of this process, like the lines of a local file."""


@dataclass(frozen=True, slots=True)
class ChunkOperation:
    """The operation on each chunk: a function, or a class that every actor instantiates."""

    call: Any
    """Takes a block with the items of a chunk, and returns a block with their results."""
    options: dict[str, Any]
    """Further arguments for `Dataset.map_batches`: the processes, their resources, and the arguments of `call`."""
    in_order: bool = False


def stream_chunks(ray: Any, source: ChunkSource, operation: ChunkOperation) -> Iterator[list[Any]]:
    """Run the operation on each chunk, and yield the list of the chunk's results.

    The lists are yielded in the order of the items if `operation.in_order` is true, else as they arrive.
    """
    dataset = ray.data.from_items([0], override_num_blocks=1)
    context = dataset.context
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = 1  # a block is closed once it has more bytes: after each row
    # a node may end while it starts actors
    context.max_consecutive_actor_init_deaths = MAX_FAILED_STARTS
    context.execution_options.preserve_order = operation.in_order
    # Reading claims no processor, so that it can run beside the operation on a node with only one.
    dataset = dataset.map_batches(
        _read_chunks,
        fn_args=(source.items, source.size),
        num_cpus=0,
        batch_size=None,
        batch_format="pyarrow",
        **_placement(ray, source),
    )
    # a row is a block, but with GPUs Ray Data requires the number of rows
    dataset = dataset.map_batches(operation.call, batch_size=1, batch_format="pyarrow", **operation.options)
    for block in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=READ_AHEAD):
        for cell in block.column(CELL):
            yield _decode(cell)


def path_for_tasks(path: str) -> str:
    """Return the absolute path of a local file, since Ray's tasks run in another folder."""
    return str(Path(path).absolute()) if is_local(path) else path


def decode_chunk(block: Any) -> list[Any]:
    """Return the chunk that a block contains."""
    (cell,) = block.column(CELL)
    return _decode(cell)


def encode_chunk(values: list[Any]) -> Any:
    """Return a block that contains one chunk."""
    pyarrow = import_module("pyarrow")
    return pyarrow.table({CELL: pyarrow.array([pickle.dumps(values)], pyarrow.large_binary())})


def _decode(cell: Any) -> list[Any]:
    # the cells come from processes of this run, to which Ray itself sends pickled functions
    values: list[Any] = pickle.loads(cell.as_buffer())  # noqa: S301
    return values


def _placement(ray: Any, source: ChunkSource) -> dict[str, Any]:
    if not source.on_this_node:
        return {}
    return {"label_selector": {"ray.io/node-id": ray.get_runtime_context().get_node_id()}}


def _read_chunks(_: Any, items: Iterable[Any], size: int) -> Iterator[Any]:
    chunk: list[Any] = []
    weight = 0
    for item in items:
        chunk.append(item)
        weight += len(pickle.dumps(item))
        if len(chunk) >= size or weight >= MAX_CHUNK_BYTES:
            yield encode_chunk(chunk)
            chunk, weight = [], 0
    if chunk:
        yield encode_chunk(chunk)


# What an actor needs to answer requests like this process: a server with its key, or an engine, and the limits.
#
# There are two kinds of `ActorSettings`: `ServerActorSettings`, for a client, and `EngineActorSettings`, for an engine.


class ActorSettings(Protocol):
    """What an actor needs to answer requests: `ServerActorSettings` for a server, `EngineActorSettings` for an engine.

    The settings are pickled for the actors and for the process that starts them.
    """

    def resources(self, ray: Any) -> dict[str, float]:
        """Return what Ray reserves for an actor, as arguments of `Dataset.map_batches`."""
        ...

    def default_actors(self, ray: Any) -> int:
        """Return the number of actors to use if none is given: as many as the cluster has room for."""
        ...

    def share(self, actors: int) -> int:
        """Return how many requests each of `actors` actors may have in progress."""
        ...

    def open_pool(self, actors: int) -> AbstractAsyncContextManager[RequestPool]:
        """Open the request pool of one actor; `actors` is the number of actors that share the work."""
        ...


ACTOR_CPUS = 0.25
"""Number of CPUs that Ray reserves for an actor.

An actor mostly waits, so it needs little. If a node is lost, its actor is then more likely to fit on another node.
"""
ENGINE_CPUS = 1
MAX_SEQUENCES = 256
"""The number of requests that an engine is assumed to compute concurrently if its arguments lack `max_num_seqs`.

This is vLLM's default on most GPUs. On large GPUs vLLM computes more, but at most as many as an actor's chunks contain.
"""
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Engine arguments whose product is the number of GPUs that one engine uses."""


@dataclass(frozen=True, slots=True)
class ServerActorSettings:
    """Settings of the client in an actor, and of its requests. Its repr shows neither the address nor the key."""

    base_url: str = field(repr=False)
    api_key: str = field(repr=False)
    config: Config = field(repr=False)
    dialects: tuple[Any, ...] = field(repr=False)
    """The tables of the app's own dialects, which are not in the config."""
    provider: str | None
    detect: bool
    mode: ModeName | None
    model: str | None
    """The model that replaces the model of each request; None if requests keep their models."""
    default_model: str | None
    """The model for requests that name no model."""
    timeout: float
    patience: float
    concurrency: int
    """Maximum number of requests under way in all actors together."""

    @classmethod
    def of_client(cls, client: Any, **others: Any) -> ServerActorSettings:
        """Return settings with the server, key, config and provider of a promptools client on this machine."""
        session = client.promptools
        return cls(
            base_url=str(client.base_url),
            api_key=client.api_key,
            config=session.config,
            dialects=session.settings.get("dialects", ()),
            provider=session.provider,
            detect=session.detect,
            **others,
        )

    def resources(self, ray: Any) -> dict[str, float]:
        """Return what Ray reserves for an actor: `ACTOR_CPUS` CPUs, and no GPU."""
        del ray
        return {"num_cpus": ACTOR_CPUS}

    def default_actors(self, ray: Any) -> int:
        """Return the number of nodes with room for an actor, but at most the number of concurrent requests."""
        return min(_count_rooms(ray, "CPU", ACTOR_CPUS, most=1), self.concurrency)

    def share(self, actors: int) -> int:
        """Return an equal share of the concurrent requests."""
        return max(1, self.concurrency // actors)

    @asynccontextmanager
    async def open_pool(self, actors: int) -> AsyncGenerator[RequestPool, None]:
        """Yield the pool that sends one actor's requests to the servers; `actors` is the number of actors."""
        async with self.make_client() as client:
            servers = RequestServers(client, model=self.model, default_model=self.default_model)
            yield RequestPool(servers.answer, AdaptiveLimit(self.share(actors)), patience=self.patience)

    def make_client(self) -> AsyncOpenAI:
        """Build the client of an actor."""
        from promptools.client import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self.base_url,
            api_key=self.api_key,
            config=self.config,
            dialects=self.dialects,
            provider=self.provider,
            detect=self.detect,
            mode=self.mode,
            timeout=answer_timeout(self.timeout),
            max_retries=0,
        )


@dataclass(frozen=True, slots=True)
class EngineActorSettings:
    """Settings of the engine in an actor; each actor has its own engine."""

    engine: EngineSettings
    patience: float
    concurrency: int | None
    """Maximum number of requests under way in all actors together. None means as many as the engines take."""

    @property
    def gpus(self) -> int:
        """The number of GPUs that an engine uses, on a cluster that has GPUs."""
        return prod(self._number(name, 1) for name in PARALLEL)

    def resources(self, ray: Any) -> dict[str, float]:
        """Return what Ray reserves for an actor: one CPU and, on a cluster with GPUs, the GPUs of its engine."""
        return {"num_cpus": ENGINE_CPUS, **({"num_gpus": self.gpus} if _has_gpus(ray) else {})}

    def default_actors(self, ray: Any) -> int:
        """Return how many engines fit on the GPUs of all nodes; without GPUs, return one for each node."""
        if _has_gpus(ray):
            return _count_rooms(ray, "GPU", self.gpus)
        return _count_rooms(ray, "CPU", ENGINE_CPUS, most=1)

    def share(self, actors: int) -> int:
        """Return an equal share of `concurrency` or, if it is None, the number of requests that an engine takes.

        An engine takes as many requests as it computes concurrently, and some more, which wait in a queue.
        """
        if self.concurrency is not None:
            return max(1, self.concurrency // actors)
        sequences = self._number("max_num_seqs", MAX_SEQUENCES) * self._number("data_parallel_size", 1)
        return round(sequences * (1 + QUEUED_SHARE))

    @asynccontextmanager
    async def open_pool(self, actors: int) -> AsyncGenerator[RequestPool, None]:
        """Load the model, and yield the request pool of one actor; `actors` is the number of actors in the run."""
        async with open_engine(self.engine) as engine:
            limit = engine.concurrency if self.concurrency is None else self.share(actors)
            yield RequestPool(engine.answer, FixedLimit(limit), patience=self.patience)

    def _number(self, name: str, default: int) -> int:
        value = self.engine.arguments.get(name, default)
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"engine argument {name!r} must be a whole number from 1 up, got {clip(repr(value))}")
        return value


def _has_gpus(ray: Any) -> bool:
    return bool(ray.cluster_resources().get("GPU"))


def _count_rooms(ray: Any, resource: str, size: float, *, most: float = inf) -> int:
    """Return how many actors that need `size` of a resource fit on all nodes together, but at least 1.

    At most `most` actors are counted for each node.
    """
    nodes: list[dict[str, Any]] = ray.nodes()
    rooms = (min(most, node["Resources"].get(resource, 0) // size) for node in nodes if node["Alive"])
    return max(1, int(sum(rooms)))


# Answer requests on the nodes of a cluster, in actors that each hold a client or an engine.


SURPLUS = 3
"""Ratio of the number of requests in an actor's chunks to the number that the actor may process concurrently."""
MAX_CHUNK = 32
"""Maximum number of requests in a chunk.

If an actor ends before all requests of a chunk have a result, all of them are sent again.
"""


class ClusterAnswering:
    """Answers requests with `actors` actors on a Ray cluster.

    If `actors` is None, `settings` determines how many there are. The limit on concurrent requests is divided among the
    actors.
    """

    def __init__(self, ray: Any, settings: ActorSettings, actors: int | None) -> None:
        self._ray = ray
        self._settings = settings
        self.actors = actors or settings.default_actors(ray)

    def __call__(self, pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        """Answer the requests, and call `record` with each result.

        If Ray repeats a chunk, `record` is called again with the chunk's results. Raises `UpstreamError` if a server is
        down for too long or refuses the key, or if an engine does not start.
        """
        size, at_once = chunk_plan(self._settings.share(self.actors))
        pending = replace(pending, source=path_for_tasks(pending.source))
        source = ChunkSource(pending, size, on_this_node=is_local(pending.source))
        options = {
            "compute": self._ray.data.ActorPoolStrategy(
                size=self.actors, max_tasks_in_flight_per_actor=at_once + 1, max_concurrent_calls_per_actor=at_once
            ),
            "fn_constructor_args": (self._settings, self.actors),
            **self._settings.resources(self._ray),
        }
        for results in stream_chunks(self._ray, source, ChunkOperation(AnsweringActor, options)):
            for result in results:
                if isinstance(result, BatchAnswer):
                    record(result)
                else:
                    raise UpstreamError(result)


def chunk_plan(concurrency: int) -> tuple[int, int]:
    """Return how many requests a chunk has, and how many chunks an actor processes concurrently.

    Together, the chunks of an actor have more than `concurrency` requests, so that those from other chunks can be sent
    while a chunk waits for its slowest requests.
    """
    size = max(1, min(MAX_CHUNK, concurrency // 4))
    return size, ceil(SURPLUS * concurrency / size)


class AnsweringActor:
    """Holds a client or an engine, and answers chunks of requests, several at a time."""

    def __init__(self, settings: ActorSettings, actors: int) -> None:
        self._opening = settings.open_pool(actors)
        self._lock = asyncio.Lock()
        self._pool: RequestPool | PromptoolsError | None = None

    async def __call__(self, block: Any) -> Any:
        """Return a block with the answers to a block of requests. The last item may be an error that ends the run."""
        try:
            pool = await self._open()
        except PromptoolsError as error:
            return encode_chunk([str(error)])
        results = await asyncio.gather(*map(pool.answer, decode_chunk(block)), return_exceptions=True)
        answers: list[BatchAnswer | str] = [result for result in results if isinstance(result, BatchAnswer)]
        for failure in results:
            if isinstance(failure, PromptoolsError):
                return encode_chunk([*answers, str(failure)])
            if isinstance(failure, BaseException):
                raise failure
        return encode_chunk(answers)

    async def _open(self) -> RequestPool:
        """Return the request pool, which is opened for the first chunk.

        The pool belongs to the event loop, and stays open until the process ends. If it cannot be opened, the same
        error is raised for every chunk.
        """
        async with self._lock:
            if self._pool is None:
                try:
                    self._pool = await self._opening.__aenter__()
                except PromptoolsError as error:
                    self._pool = error
        if isinstance(self._pool, PromptoolsError):
            raise self._pool
        return self._pool


# Read calls, content and reasoning from logged replies, on the nodes of a cluster.


@dataclass(frozen=True, slots=True)
class LogLines:
    """The lines or rows of a file and their numbers, read again at each iteration."""

    path: str

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the text of each line."""
        return read_replies(self.path)


def reparse_on_cluster(
    ray: Any, path: str, *, as_row: bool = False, dialects: Sequence[DialectTable] = ()
) -> Iterator[ReparsedLine]:
    """Yield the result for each line of the file, in order; each task uses one CPU of the cluster.

    A local file is read on the node of this process. `dialects` are the app's own dialects.
    """
    source = ChunkSource(LogLines(path_for_tasks(path)), CHUNK, on_this_node=is_local(path))
    operation = ChunkOperation(_reparse_block, {"num_cpus": 1, "fn_args": (as_row, dialects)}, in_order=True)
    for results in stream_chunks(ray, source, operation):
        yield from results


def _reparse_block(block: Any, as_row: bool, dialects: Sequence[DialectTable]) -> Any:
    return encode_chunk(list(reparse_lines(decode_chunk(block), as_row=as_row, dialects=dialects)))
