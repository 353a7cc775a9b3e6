"""One upstream request: the mode's Chat Completions body, encoded for the API that the server speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from promptools.wire.ollama.request import PATH, own_context, write_request
from promptools.wire.raw import completions, generate, llamacpp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.modes.ask import Ask
    from promptools.modes.mode import Upstream
    from promptools.profiles.profile import Api
    from promptools.wire.raw.fates import Prompt


@dataclass(frozen=True, slots=True)
class Letter:
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


def write_letter(upstream: Upstream, ask: Ask) -> Letter:
    """Encode a mode's request for the profile's API; one that this API cannot express goes to Chat Completions.

    A raw prompt goes to the profile's raw endpoint.
    """
    if upstream.prompt is not None:
        return _raw_letter(upstream.body, upstream.prompt, ask)
    match ask.profile.wire:
        case "chat":
            return Letter(upstream.body, upstream.path)
        case "ollama":
            written = write_request(upstream.body, num_ctx=_context(ask))
            if written.body is None:
                return Letter(upstream.body, upstream.path, notes=written.notes)
            return Letter(written.body, PATH, "ollama", written.notes, _context_limit(ask))
        case _:
            assert_never(ask.profile.wire)


def _raw_letter(body: Mapping[str, Any], prompt: Prompt, ask: Ask) -> Letter:
    raw = ask.profile.raw
    assert raw is not None, "a prompt is written only where there is a raw endpoint to take it"
    match raw:
        case "completions":
            written = completions.write_request(body, prompt, ids=ask.profile.raw_ids)
            return Letter(written.body, completions.PATH, "completions", written.notes)
        case "llamacpp":
            written = llamacpp.write_request(body, prompt)
            return Letter(written.body, llamacpp.PATH, "llamacpp", written.notes)
        case "generate":
            written = generate.write_request(body, prompt, num_ctx=_context(ask))
            return Letter(written.body, generate.PATH, "generate", written.notes, _context_limit(ask))
        case _:
            assert_never(raw)


def _context_limit(ask: Ask) -> int | None:
    ours = ask.profile.num_ctx == "fit" and own_context(ask.body) is None
    return ask.profile.num_ctx_limit if ours else None


def _context(ask: Ask) -> int | None:
    """Return the context to request, in tokens; None leaves it to the server."""
    num_ctx = ask.profile.num_ctx
    return num_ctx if isinstance(num_ctx, int) else ask.num_ctx
