"""What a check found out, and what checks know of the server that they ask."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from promptools.probing.answers import Answer, TrialRequest
from promptools.profiles import Profile

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
"""Verdicts on native tools that an app without promptools would notice."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: the verdict with its reason, and the facts of a profile that follow from it."""

    check: str
    verdict: Verdict
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"check": self.check, "verdict": self.verdict, "reason": self.reason, "facts": dict(self.facts)}


@dataclass(slots=True)
class Subject:
    """The model that is probed, what is known about it, and what was found out so far."""

    model: str
    profile: Profile
    max_tokens: int
    findings: dict[str, Finding] = field(default_factory=dict[str, Finding])
    reasoning_field: str | None = None
    """The field in which any answer so far had reasoning."""
    measure_context: bool = False

    def verdict(self, check: str) -> Verdict | None:
        """Return the verdict of a check that has run."""
        finding = self.findings.get(check)
        return finding.verdict if finding else None

    def chat(self, *messages: str | dict[str, Any], **keys: Any) -> TrialRequest:
        """Return a chat request; text is a user message."""
        return TrialRequest(self.body(*messages, **keys))

    def body(self, *messages: str | dict[str, Any], **keys: Any) -> dict[str, Any]:
        """Return the body of a chat request."""
        written = [{"role": "user", "content": text} if isinstance(text, str) else text for text in messages]
        return {"model": self.model, "messages": written, "max_tokens": self.max_tokens, **keys}


Steps: TypeAlias = "Generator[TrialRequest, Answer, list[Finding]]"
"""A check that runs: it yields requests, gets answers, and returns findings."""


def failure(check: str, answer: Answer, facts: Mapping[str, Any] | None = None) -> Finding:
    """Return the finding for an answer that is an error; a busy server shows nothing."""
    if answer.busy:
        return Finding(check, "not shown", f"the server was busy: {answer.describe_error()}")
    return Finding(check, "errors", answer.describe_error(), facts or {})
