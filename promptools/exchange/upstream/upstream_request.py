"""One upstream request: the mode's Chat Completions body, encoded for the API that the server speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from promptools.wire.ollama.encode_request import PATH, encode_chat_request
from promptools.wire.ollama.encode_request import requested_context as own_context
from promptools.wire.raw import completions_endpoint, generate_endpoint, llamacpp_endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.modes.mode import PreparedRequest
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.profiles.profile import Api
    from promptools.wire.raw.raw_request import RawPrompt


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """The request to send."""

    body: dict[str, Any]
    path: str
    """The route relative to the API's base URL, or to the server's root if it begins with `/`."""
    wire: Api = "chat"
    """The API of the reply."""
    notes: tuple[str, ...] = ()
    """Notes for the trace on what could not be passed on."""
    context_limit: int | None = None
    """How far the context may be raised, in tokens; None if it cannot be requested, or is not up to us."""


def encode_request(upstream: PreparedRequest, request: ToolRequest) -> UpstreamRequest:
    """Encode a mode's request for the profile's API; one that this API cannot express goes to Chat Completions.

    A raw prompt goes to the profile's raw endpoint.
    """
    if upstream.prompt is not None:
        return _encode_raw_request(upstream.body, upstream.prompt, request)
    match request.profile.wire:
        case "chat":
            return UpstreamRequest(upstream.body, upstream.path)
        case "ollama":
            written = encode_chat_request(upstream.body, num_ctx=requested_context(request))
            if written.body is None:
                return UpstreamRequest(upstream.body, upstream.path, notes=written.notes)
            return UpstreamRequest(written.body, PATH, "ollama", written.notes, _context_limit(request))
        case _:
            assert_never(request.profile.wire)


def _encode_raw_request(body: Mapping[str, Any], prompt: RawPrompt, request: ToolRequest) -> UpstreamRequest:
    raw = request.profile.raw
    assert raw is not None, "a prompt is written only where there is a raw endpoint to take it"
    match raw:
        case "completions":
            written = completions_endpoint.encode_request(body, prompt, ids=request.profile.raw_ids)
            return UpstreamRequest(written.body, completions_endpoint.PATH, "completions", written.notes)
        case "llamacpp":
            written = llamacpp_endpoint.encode_request(body, prompt)
            return UpstreamRequest(written.body, llamacpp_endpoint.PATH, "llamacpp", written.notes)
        case "generate":
            written = generate_endpoint.encode_request(body, prompt, num_ctx=requested_context(request))
            return UpstreamRequest(
                written.body, generate_endpoint.PATH, "generate", written.notes, _context_limit(request)
            )
        case _:
            assert_never(raw)


def _context_limit(request: ToolRequest) -> int | None:
    ours = request.profile.num_ctx == "fit" and own_context(request.body) is None
    return request.profile.num_ctx_limit if ours else None


def requested_context(request: ToolRequest) -> int | None:
    """Return the context to request, in tokens; None leaves it to the server."""
    num_ctx = request.profile.num_ctx
    return num_ctx if isinstance(num_ctx, int) else request.num_ctx


def available_context(request: ToolRequest) -> int | None:
    """Return the tokens that a prompt and its reply may have together; None if that is not known.

    Of Ollama more than its default is requested where a prompt needs it, so there it is the most that may be.
    """
    profile = request.profile
    if profile.wire != "ollama":
        return profile.context
    own = own_context(request.body)
    if isinstance(own, int) and own > 0:
        return own
    if isinstance(profile.num_ctx, int):
        return profile.num_ctx
    return profile.num_ctx_limit if profile.num_ctx == "fit" and profile.context is not None else profile.context
