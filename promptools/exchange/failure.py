"""What became of one send: a failure, and everything that may still be made of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from promptools.errors import clip
from promptools.fallback import FailureKind, Overflow, classify, read_overflow
from promptools.wire.chat import UpstreamProblem, error_of

if TYPE_CHECKING:
    from promptools.exchange.effects import Failed, Opened
    from promptools.modes.checks import Verdict, VerdictKind
    from promptools.profiles.profile import Api
    from promptools.types import Malformed, Reply


OLLAMAS: frozenset[Api] = frozenset({"ollama", "generate"})
"""APIs of Ollama's own, whose errors are a text alone."""
_RAW: frozenset[Api] = frozenset({"completions", "llamacpp", "generate"})
_NO_SUCH_REQUEST = frozenset({400, 404, 405, 415, 422, 501})


@dataclass(frozen=True, slots=True)
class Failure:
    """One send that came to nothing, or one choice of it."""

    kind: FailureKind
    why: str
    """One line for the trace."""
    text: str = ""
    """The server's error text, whole."""
    opened: Opened | None = None
    body: bytes = b""
    """The server's answer as it came, when it was an error."""
    wire: Api = "chat"
    """The API that it came in."""
    error: BaseException | None = None
    """The shell's own exception."""
    verdict: Verdict | None = None
    """The judgement over a reply that was read to its end."""
    part: Reply | None = None
    """What was read before it failed."""
    lost: bool = False
    """Did the server say that there was a call, and send none?"""
    overflow: Overflow = field(default_factory=Overflow)
    """The numbers of a prompt that is longer than the context."""
    limit: int | None = None
    """How far the context may be raised, in tokens, where it is too short and that is left to us."""

    @property
    def status(self) -> int | None:
        """Give the HTTP status of the answer."""
        return self.opened.status if self.opened else None


def of_status(opened: Opened, body: bytes, wire: Api = "chat") -> Failure:
    """Read an answer whose HTTP status is an error."""
    text = body.decode("utf-8", "replace")
    try:
        found = error_of(json.loads(text))
    except (ValueError, RecursionError):
        found = None
    return of_problem(found or UpstreamProblem(text), opened, body, wire=wire)


def of_problem(
    problem: UpstreamProblem, opened: Opened, body: bytes, part: Reply | None = None, wire: Api = "chat"
) -> Failure:
    """Read an error that the server reports, under whatever status."""
    said = clip(" ".join(problem.message.split())) or "an error without a text"
    overflow = read_overflow(problem.message, prompt=problem.prompt_tokens, context=problem.context_tokens)
    kind = classify(problem.message)
    # vLLM's parsers raise whatever Python raises, and only the 500 tells (vllm#10589, vllm#36849)
    if kind == "refused" and 500 in {opened.status, problem.status}:
        kind = "crashed"
    # Ollama refuses a request by its status; what it says after a 200 is that the model, or its parser, broke
    if kind == "refused" and wire in OLLAMAS and opened.status == 200:
        kind = "cut"
    if kind == "refused" and wire in _RAW and opened.status in _NO_SUCH_REQUEST:
        kind = "no_raw"
    return Failure(kind, said, problem.message, opened, body, wire, part=part, overflow=overflow)


def of_link(failed: Failed, opened: Opened | None = None, part: Reply | None = None) -> Failure:
    """Read a connection that was not made, or broke."""
    if failed.kind == "timeout":
        kind: FailureKind = "timeout"
    else:
        kind = "cut" if opened else "connect"
    return Failure(kind, f"{failed.kind}: {clip(failed.text)}", failed.text, opened, error=failed.error, part=part)


_KINDS: dict[VerdictKind, FailureKind] = {
    "malformed": "malformed",
    "truncated": "truncated",
    "unknown_tool": "unknown_tool",
    "no_call": "choice",
    "forbidden": "choice",
    "swallowed": "swallowed",
    "empty_calls": "empty_calls",
    "format": "format",
    "cut": "cut",
}


def of_verdict(verdict: Verdict, opened: Opened, *, lost: bool = False) -> Failure:
    """Read the judgement over a reply that is not what was asked for."""
    return Failure(_KINDS[verdict.kind], verdict.why, opened=opened, verdict=verdict, lost=lost)


def of_live(call: Malformed, reply: Reply, opened: Opened) -> Failure:
    """Read a call that failed after its beginning had gone to the client; nothing of the reply can be handed over."""
    why = f"{call.name or 'a call'}: {call.reason}, after its arguments had been streamed"
    return Failure("malformed", why, opened=opened, part=reply)
