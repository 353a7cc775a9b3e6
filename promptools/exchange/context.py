"""What an exchange is given: the client's request, where it may go, and the policies of whoever runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from promptools.exchange.front import CHAT, Front
from promptools.exchange.intake import MAX_REPLY
from promptools.exchange.look import Sights
from promptools.fallback import Breaker, Stop, WaitFor, Windows

if TYPE_CHECKING:
    from datetime import datetime

    from promptools.exchange.effects import Headers, Request
    from promptools.harmony.vocabulary import Vocabulary
    from promptools.modes.options import Options
    from promptools.profiles import Target
    from promptools.types import NewId, Reply, Seen


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request of the client, its body whole, the shell's clock when it came, and the API that it speaks."""

    request: Request
    at: float
    front: Front = CHAT


@dataclass(frozen=True, slots=True)
class Route:
    """Where a chat request goes, and what is known of that place."""

    target: Target
    url: str | None = None
    """The whole URL of the server's chat completions (None: the URL that the client's request carries)."""
    headers: Headers = field(default=(), repr=False)
    """Set on every send, in place of the client's fields of the same name; `authorization`, for one."""
    resolve: Callable[[Seen], Target] | None = None
    """Makes the target anew from what a look at the server found out; None: no look is taken."""


Router: TypeAlias = Callable[[str | None, str | None], Route]
"""`(model, provider)` of a request to its route; a `UsageError` from it becomes the client's 400."""


@dataclass(frozen=True, slots=True)
class Context:
    """What stays the same from request to request. Times are seconds."""

    route: Router
    new_id: NewId
    breaker: Breaker = field(default_factory=Breaker)
    windows: Windows = field(default_factory=Windows)
    sights: Sights = field(default_factory=Sights)
    options: Options | None = None
    """Defaults of the request's `promptools` key."""
    stop: Stop | None = None
    wait: WaitFor | None = None
    deadline: float | None = None
    """Bounds all sends of one request together."""
    max_tools: int | None = None
    """Tools that one request may offer (None: any number)."""
    max_reply: int = MAX_REPLY
    """Bytes of one reply that are held at most; what passes untouched is not held."""
    on_reply: Callable[[Reply], None] | None = None
    """Receives every reply that was read and handed over, failed ones too."""
    wall: Callable[[], datetime] | None = None
    """Tells the date and the time, with their zone."""
    vocabulary: Callable[[], Vocabulary | None] | None = None
    """Gives the vocabulary of gpt-oss, where there is one at hand."""
    log: Callable[[str], None] | None = None
    """Receives one line for each failed attempt; it never holds the model's or the user's words."""
