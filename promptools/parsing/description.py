"""Describe a parsed reply as JSON, for the results of `promptools reparse`, snapshots and recorded replies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from promptools.types import Call, Fix, Malformed, Reply


def describe_reply(reply: Reply, verdict: str | None = None) -> dict[str, Any]:
    """Return the parsed reply as JSON, with `verdict` if it is given.

    Ids and spans are left out, since descriptions of replies are compared without them.
    """
    read = {
        "calls": [_describe_call(call) for call in reply.calls],
        "malformed": [_describe_malformed(malformed) for malformed in reply.malformed],
        "content": reply.content,
        "reasoning": reply.reasoning,
        "fixes": _describe_fixes(reply.fixes),
    }
    verdicts = {"verdict": verdict} if verdict else {}
    return {**verdicts, **{key: value for key, value in read.items() if value}}


def _describe_call(call: Call) -> dict[str, Any]:
    fixes = {"fixes": _describe_fixes(call.fixes)} if call.fixes else {}
    return {"name": call.name, "arguments": call.arguments, "dialect": call.dialect, **fixes}


def _describe_malformed(malformed: Malformed) -> dict[str, Any]:
    return {"name": malformed.name, "reason": malformed.reason, "dialect": malformed.dialect}


def _describe_fixes(fixes: Iterable[Fix]) -> list[str]:
    return [f"{fix.kind}: {fix.detail}{f' at {fix.path}' if fix.path else ''}" for fix in fixes]
