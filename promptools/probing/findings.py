"""The requests that checks send, the server's answers, and the findings derived from the answers."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from promptools.errors import clip
from promptools.fallback import FailureKind, classify
from promptools.json_values import is_object, try_json
from promptools.modes.structured_calls import CollectedChoice
from promptools.numbers import as_count
from promptools.profiles import Profile
from promptools.types import Attempt, ModeName, Reply
from promptools.wire.chat_decoder import REASONING_FIELDS, Delta, decode_chunk, decode_reply, error_of
from promptools.wire.json_body import as_list, as_object
from promptools.wire.sse import DONE, SseDecoder

# Requests and answers. A streamed answer has the same form as any other.


CHAT = "/chat/completions"
MAX_EVIDENCE = 160
"""Maximum number of characters of a server's text that a finding quotes."""
BUSY = frozenset({408, 429, 502, 503, 504})
"""HTTP statuses of a busy or unreachable server. They say nothing about the request."""


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A request that a check sends to `path` below the base URL.

    If `mode` is given, promptools sends the request in this mode. If not, the request goes directly to the server.
    """

    body: dict[str, Any]
    path: str = CHAT
    mode: ModeName | None = None


@dataclass(slots=True)
class AnsweredCall:
    """A structured call in an answer. `pieces` is the number of pieces in which its arguments arrived."""

    name: str = ""
    arguments: str = ""
    pieces: int = 0

    def parsed(self) -> dict[str, Any] | None:
        """Return the arguments as a dict; None if they are not a JSON object."""
        value = try_json(self.arguments)
        return value if is_object(value) else None

    def __str__(self) -> str:
        return clip(f"{self.name}({self.arguments})", MAX_EVIDENCE)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the server. `status` is None if no answer came.

    `error` is the error's text, from any part of the response or from the connection.
    """

    status: int | None = 200
    content: str = ""
    reasoning: str = ""
    reasoning_field: str | None = None
    calls: tuple[AnsweredCall, ...] = ()
    choices: int = 0
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: str | None = None
    reply: Reply | None = None
    """The reply as promptools read it; None if the request had no `mode`, or if there was no reply."""
    attempts: tuple[Attempt, ...] = ()
    """The attempts that promptools made; empty if the request had no `mode`."""
    raw: str = ""
    """The unparsed text from a raw endpoint, for a request with a `mode`; empty if no raw endpoint was used."""

    @property
    def failed(self) -> bool:
        """Whether the answer is an error, or no answer came."""
        return self.status is None or self.status >= 400 or self.error is not None

    @property
    def busy(self) -> bool:
        """Whether the status is that of a busy or unreachable server, which says nothing about the request."""
        return self.status in BUSY

    @property
    def kind(self) -> FailureKind:
        """The kind of failure, according to the error's text; `timeout` if no answer came."""
        return "timeout" if self.status is None else classify(self.error or "")

    @property
    def cut(self) -> bool:
        """Whether the token limit cut off the answer."""
        return self.finish_reason == "length"

    @property
    def completion_tokens(self) -> int:
        """The number of tokens that were generated, as counted by the server."""
        return as_count((self.usage or {}).get("completion_tokens")) or 0

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens in the prompt, as counted by the server."""
        return as_count((self.usage or {}).get("prompt_tokens")) or 0

    def describe_error(self) -> str:
        """Return the status and the error's text, clipped."""
        status = "no answer" if self.status is None else f"HTTP {self.status}"
        text = clip(" ".join((self.error or "").split()), MAX_EVIDENCE)
        return f"{status}: {text}" if text else status

    def describe_text(self) -> str:
        """Return the content, or else the reasoning, as evidence for a finding: quoted and clipped."""
        return repr(clip(self.content or self.reasoning, MAX_EVIDENCE))


def read_answer(status: int, body: bytes, *, streamed: bool = False) -> Answer:
    """Parse a response, whatever its status; `streamed` says whether a stream was requested."""
    text = body.decode("utf-8", "replace")
    if streamed and status == 200 and not text.lstrip().startswith("{"):
        return _collect(status, list(_chunks(body)), decode_chunk)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Answer(status, error=text.strip() or "an empty body")
    answer = _collect(status, [value], decode_reply)
    if answer.error is None and (status >= 400 or not answer.choices):
        return replace(answer, error=clip(text, 2_000))
    return answer


def _chunks(body: bytes) -> Iterator[Any]:
    decoder = SseDecoder()
    for event in (*decoder.feed(body), *decoder.close()):
        if not event.data or event.data.strip() == DONE:
            continue
        yield try_json(event.data, {"error": {"message": f"a chunk is not valid JSON: {clip(event.data)}"}})


@dataclass(slots=True)
class _Collected:
    """An answer assembled from chunks; only the first choice is read."""

    choice: CollectedChoice = field(default_factory=CollectedChoice)
    usage: dict[str, Any] | None = None
    error: str | None = None
    choices: set[int] = field(default_factory=set[int])

    def add(self, delta: Delta) -> None:
        self.usage = delta.usage or self.usage
        if delta.error is not None:
            self.error = delta.error.message
        if delta.index is not None:
            self.choices.add(delta.index)
        if delta.index == 0:
            self.choice.add(delta)


def _collect(status: int, bodies: list[Any], decode: Any) -> Answer:
    collected = _Collected()
    for body in bodies:
        for delta in decode(body):
            collected.add(delta)
    choice = collected.choice
    problem = error_of(bodies[0]) if bodies and status >= 400 else None
    return Answer(
        status,
        choice.content,
        choice.reasoning,
        next((name for body in bodies for name in _reasoning_fields(body)), None),
        tuple(AnsweredCall(call.name, call.arguments, len(call.pieces)) for call in choice.calls),
        len(collected.choices),
        choice.finish_reason,
        collected.usage,
        collected.error or (problem.message if problem else None),
    )


def _reasoning_fields(body: Any) -> Iterator[str]:
    for choice in as_list(as_object(body).get("choices")):
        data = as_object(choice)
        message = as_object(data.get("message") or data.get("delta"))
        yield from (name for name in REASONING_FIELDS if message.get(name))


# Findings, and what a check knows about the server.


Verdict = Literal[
    "works",  # done as asked
    "whole",  # arguments of a streamed call come in one piece
    "leaks",  # the call is in the text
    "swallows",  # tokens were spent, and nothing came back
    "broken",  # a structured call, or an answer in a format, that cannot be used
    "ignored",  # accepted, and not obeyed
    "accepted",  # accepted; whether it was obeyed cannot be seen
    "errors",  # refused, or failed
    "absent",  # there is no such endpoint
    "not shown",  # the model did nothing that would show it
]
PROBLEMS: frozenset[Verdict] = frozenset({"leaks", "swallows", "broken", "errors"})
"""Verdicts on native tool calling that indicate a problem for an app that does not use promptools."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: a verdict with its reason, and the facts for the model's profile that follow from it."""

    check: str
    verdict: Verdict
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as a dict that can be written as JSON."""
        return {"check": self.check, "verdict": self.verdict, "reason": self.reason, "facts": dict(self.facts)}


@dataclass(slots=True)
class Subject:
    """The model that the checks test, its known profile, and the findings so far."""

    model: str
    profile: Profile
    max_tokens: int
    findings: dict[str, Finding] = field(default_factory=dict[str, Finding])
    reasoning_field: str | None = None
    """The name of the field with the reasoning in earlier answers; None if no answer had any."""
    measure_context: bool = False

    def verdict(self, check: str) -> Verdict | None:
        """Return the verdict of an earlier check; None if that check did not run."""
        finding = self.findings.get(check)
        return finding.verdict if finding else None

    def chat(self, *messages: str | dict[str, Any], **keys: Any) -> TrialRequest:
        """Return a chat request. A string in `messages` becomes a user message; `keys` are added to the body."""
        return TrialRequest(self.body(*messages, **keys))

    def body(self, *messages: str | dict[str, Any], **keys: Any) -> dict[str, Any]:
        """Return the body of a chat request, with the same arguments as `chat`."""
        written = [{"role": "user", "content": text} if isinstance(text, str) else text for text in messages]
        return {"model": self.model, "messages": written, "max_tokens": self.max_tokens, **keys}


Steps: TypeAlias = "Generator[TrialRequest, Answer, list[Finding]]"
"""A running check: a generator that yields requests, is sent their answers, and returns findings."""


def failure(check: str, answer: Answer, facts: Mapping[str, Any] | None = None) -> Finding:
    """Return the finding for an answer that is an error. The finding includes `facts`, unless the server was busy."""
    if answer.busy:
        return Finding(check, "not shown", f"the server was busy: {answer.describe_error()}")
    return Finding(check, "errors", answer.describe_error(), facts or {})
