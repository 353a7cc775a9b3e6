"""The API that a client's request comes in on: read into Chat Completions, answered in kind at the end.

Nothing between the two knows which it was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from promptools.exchange.failure import OLLAMAS
from promptools.exchange.ollama import AnswerOutlet, LinesOutlet
from promptools.exchange.outlet import Outlet, StreamOutlet, WholeOutlet, dump
from promptools.wire.chunks import error_body
from promptools.wire.ollama.front import read_request
from promptools.wire.shapes import as_object, as_text
from promptools.wire.sse import comment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.exchange.failure import Failure
    from promptools.modes.ask import Ask
    from promptools.profiles import Profile
    from promptools.profiles.profile import Wire
    from promptools.types import Attempt


class Front(Protocol):
    """One API that clients speak to us."""

    wire: Wire
    """The same API as servers speak it; a request that concerns no tools passes to such a server untouched."""
    pieces: bool
    """Whether a call can go out in pieces."""
    path: str
    """Its route below a server's API base, or from the server's root on when it begins with `/`."""

    def read(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Read a request as a Chat Completions body for a server of this profile, and say what was left out."""
        ...

    def outlet(self, ask: Ask, *, begun: bool = False) -> Outlet:
        """Make the outlet that the request asks for; `begun` when part of a stream has gone out already."""
        ...

    def error(self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = ()) -> bytes:
        """Write an error of ours."""
        ...

    def in_stream(self, error: bytes, said: str = "") -> bytes:
        """Write an error into a stream that has begun; `said` is a comment, where there can be one."""
        ...

    def server_error(self, failure: Failure) -> bytes:
        """Write the error that the server itself answered with."""
        ...


class ChatFront:
    """OpenAI's Chat Completions."""

    wire: Wire = "chat"
    pieces = True
    path = "chat/completions"

    def read(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002 one signature for all fronts
        """Give the body as it is."""
        return body, ()

    def outlet(self, ask: Ask, *, begun: bool = False) -> Outlet:
        """Make a stream of events, or a whole reply."""
        return StreamOutlet(ask, begun=begun) if ask.stream else WholeOutlet(ask)

    def error(self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = ()) -> bytes:
        """Write an error object, with what was tried."""
        return dump(error_body(message, kind=kind, code=code, attempts=attempts))

    def in_stream(self, error: bytes, said: str = "") -> bytes:
        """Write an event of its own, and a comment."""
        return b"event: error\ndata: %b\n\n" % error + (comment(said) if said else b"")

    def server_error(self, failure: Failure) -> bytes:
        """Give the error as it came, or as Ollama's own /v1 writes it where it came from another of its APIs."""
        if failure.wire not in OLLAMAS:
            return failure.body
        kind = {400: "invalid_request_error", 404: "not_found_error"}.get(failure.status or 0, "api_error")
        return dump({"error": {"message": failure.text, "type": kind, "param": None, "code": None}})


class OllamaFront:
    """Ollama's `/api/chat`."""

    wire: Wire = "ollama"
    pieces = False  # its arguments are an object
    path = "/api/chat"

    def read(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Write the request as Chat Completions have it."""
        return read_request(body, profile)

    def outlet(self, ask: Ask, *, begun: bool = False) -> Outlet:
        """Make a stream of lines, or a whole answer."""
        return LinesOutlet(ask, begun=begun) if ask.stream else AnswerOutlet(ask)

    def error(self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = ()) -> bytes:  # noqa: ARG002 one signature for all fronts
        """Write the text alone: clients of this API know no more of an error."""
        return dump({"error": message})

    def in_stream(self, error: bytes, said: str = "") -> bytes:  # noqa: ARG002 one signature for all fronts
        """Write a line of its own; lines know no comments."""
        return error + b"\n"

    def server_error(self, failure: Failure) -> bytes:
        """Give an Ollama's error as it came, and the text of another server's."""
        try:
            given: Any = json.loads(failure.body)
        except (ValueError, RecursionError):
            given = None
        return failure.body if as_text(as_object(given).get("error")) else dump({"error": failure.text or failure.why})


CHAT: Front = ChatFront()
OLLAMA: Front = OllamaFront()
