"""The servers of a batch: the one of a client, or all base URLs of its provider, in turn."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from promptools.batch.request_answering import BatchAnswer, RequestAnswerer, TemporaryFailureError
from promptools.batch.request_line import BatchRequest

if TYPE_CHECKING:
    import openai

    from promptools.client import AsyncOpenAI

CONNECT_SECONDS = 10.0
"""Maximum number of seconds until a connection is made."""
PAUSE_SECONDS = 5.0
"""Seconds for which a server gets no request after it failed, if another one can take it."""


class RequestServers:
    """Sends each request to that server of the client's provider which has the fewest under way.

    `model` replaces the model of each request (None: its own); `default_model` is for requests that name none. The
    client must not retry by itself (`max_retries=0`). `clock` returns seconds.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        *,
        model: str | None = None,
        default_model: str | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        clients = [client, *(client.copy(base_url=url) for url in _replicas(client))]
        answerers = (RequestAnswerer(one, model=model, default_model=default_model) for one in clients)
        self._servers = [_BatchServer(answerer) for answerer in answerers]
        self._clock = clock

    async def answer(self, request: BatchRequest) -> BatchAnswer:
        """Send a request once and return its result; see `RequestAnswerer.answer`."""
        now = self._clock()
        ready = [server for server in self._servers if server.paused_until <= now]
        server = min(ready or self._servers, key=lambda server: (server.in_flight, server.taken))
        server.in_flight += 1
        server.taken += 1
        try:
            return await server.answerer.answer(request)
        except TemporaryFailureError:
            server.paused_until = self._clock() + PAUSE_SECONDS
            raise
        finally:
            server.in_flight -= 1


class _BatchServer:
    def __init__(self, answerer: RequestAnswerer) -> None:
        self.answerer = answerer
        self.in_flight = 0
        self.taken = 0
        self.paused_until = float("-inf")


def answer_timeout(seconds: float) -> openai.Timeout:
    """Return a timeout of `seconds` for an answer, and of less for the connection."""
    import openai

    return openai.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


def _replicas(client: AsyncOpenAI) -> tuple[str, ...]:
    """Return the further base URLs of the client's provider, if the client has its first one."""
    session = client.promptools
    provider = session.config.providers.get(session.provider or "")
    if provider is None or not provider.base_url:
        return ()
    return provider.replicas if _without_slash(str(client.base_url)) == _without_slash(provider.base_url) else ()


def _without_slash(url: str) -> str:
    return url.rstrip("/")
