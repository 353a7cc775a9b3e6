"""What an actor needs to answer requests as this process would: the server, its key, and the limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.batch.request_servers import answer_timeout
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.client import AsyncOpenAI
    from promptools.profiles import Config


@dataclass(frozen=True, slots=True)
class ActorSettings:
    """Settings of the client in an actor, and of its requests. The repr has no address and no key."""

    base_url: str = field(repr=False)
    api_key: str = field(repr=False)
    config: Config = field(repr=False)
    provider: str | None
    detect: bool
    mode: ModeName | None
    model: str | None
    """Replaces the model of each request."""
    default_model: str | None
    """The model of requests that name none."""
    timeout: float
    patience: float
    concurrency: int
    """Maximum number of requests under way in the actor."""

    @classmethod
    def of_client(cls, client: Any, **others: Any) -> ActorSettings:
        """Return settings with the server, key, config and provider that a client of promptools has found here."""
        session = client.promptools
        return cls(
            base_url=str(client.base_url),
            api_key=client.api_key,
            config=session.config,
            provider=session.provider,
            detect=session.detect,
            **others,
        )

    def open_client(self) -> AsyncOpenAI:
        """Build the client."""
        from promptools.client import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self.base_url,
            api_key=self.api_key,
            config=self.config,
            provider=self.provider,
            detect=self.detect,
            mode=self.mode,
            timeout=answer_timeout(self.timeout),
            max_retries=0,
        )
