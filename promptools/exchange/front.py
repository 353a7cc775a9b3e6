"""The APIs that clients speak to us: requests are converted to Chat Completions, responses written in the same API.

Nothing in between depends on which API it is.
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
    """The same API on the server's side; a request that concerns no tools is forwarded to such a server unchanged."""
    pieces: bool
    """Whether a call can be streamed in deltas."""
    path: str
    """Its route, relative to a server's API base, or to the server's root if it begins with `/`."""

    def read(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert a request to a Chat Completions body for a server with this profile; return it and notes on loss."""
        ...

    def outlet(self, ask: Ask, *, begun: bool = False) -> Outlet:
        """Return the writer for the response that `ask` wants; `begun` if part of a stream was already sent."""
        ...

    def error(self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = ()) -> bytes:
        """Encode one of our own errors."""
        ...

    def in_stream(self, error: bytes, said: str = "") -> bytes:
        """Encode an error inside a stream that has begun, with the comment `said` if the API has comments."""
        ...

    def server_error(self, failure: Failure) -> bytes:
        """Encode the error that the server responded with."""
        ...


class ChatFront:
    """OpenAI's Chat Completions."""

    wire: Wire = "chat"
    pieces = True
    path = "chat/completions"

    def read(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002 one signature for all fronts
        """Return the body unchanged."""
        return body, ()

    def outlet(self, ask: Ask, *, begun: bool = False) -> Outlet:
        """Return a writer of server-sent events, or of one JSON body."""
        return StreamOutlet(ask, begun=begun) if ask.stream else WholeOutlet(ask)

    def error(self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = ()) -> bytes:
        """Encode an error object that lists the attempts."""
        return dump(error_body(message, kind=kind, code=code, attempts=attempts))

    def in_stream(self, error: bytes, said: str = "") -> bytes:
        """Encode an `error` event, and a comment."""
        return b"event: error\ndata: %b\n\n" % error + (comment(said) if said else b"")

    def server_error(self, failure: Failure) -> bytes:
        """Return the error unchanged; one from Ollama's own APIs in the form of Ollama's /v1."""
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
        """Convert the request to Chat Completions."""
        return read_request(body, profile)

    def outlet(self, ask: Ask, *, begun: bool = False) -> Outlet:
        """Return a writer of NDJSON lines, or of one JSON body."""
        return LinesOutlet(ask, begun=begun) if ask.stream else AnswerOutlet(ask)

    def error(self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = ()) -> bytes:  # noqa: ARG002 one signature for all fronts
        """Encode the message alone: this API's errors have no other fields."""
        return dump({"error": message})

    def in_stream(self, error: bytes, said: str = "") -> bytes:  # noqa: ARG002 one signature for all fronts
        """Encode a line; NDJSON has no comments."""
        return error + b"\n"

    def server_error(self, failure: Failure) -> bytes:
        """Return an error of Ollama's unchanged; of any other server's, the text alone."""
        try:
            body: Any = json.loads(failure.body)
        except (ValueError, RecursionError):
            body = None
        return failure.body if as_text(as_object(body).get("error")) else dump({"error": failure.text or failure.why})


CHAT: Front = ChatFront()
OLLAMA: Front = OllamaFront()
