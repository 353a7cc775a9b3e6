"""Recover calls from the text of an error, which the failed attempt has already generated."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.exchange.registry import mode_of
from promptools.fallback import REMEDIES, salvage
from promptools.modes.checks import verify
from promptools.parsing.tolerant import Unreadable, read
from promptools.types import Call, Fix, Reply, Span
from promptools.wire.chat import Delta
from promptools.wire.shapes import is_object

if TYPE_CHECKING:
    from promptools.exchange.failure import Failure
    from promptools.exchange.plan import Plan
    from promptools.modes.ask import Ask
    from promptools.types import NewId, Tool

NOTE = "the call was read out of the server's error text"


def recover(plan: Plan, failure: Failure, new_id: NewId) -> Reply | None:
    """Return the reply that a failure still contains: what came before the error, and the calls in the error's text.

    None unless every call in the text is valid and the whole reply is what the request asked for.
    """
    text = salvage(failure.text) if "salvage" in REMEDIES[failure.kind] and plan.ask.choice.kind != "none" else None
    if text is None:
        return None
    if text.what == "arguments":
        call = _named(plan.ask, text.text, new_id)
        reply = Reply(calls=(call,)) if call else Reply()
    else:
        reply = _read(plan, text.text, new_id)
    if not reply.calls or reply.malformed:
        return None
    part = failure.part or Reply()
    whole = replace(
        reply,
        calls=(*part.calls, *reply.calls)[: None if plan.ask.parallel else 1],
        content=part.content or reply.content,
        reasoning=part.reasoning + reply.reasoning,
        finish_reason="tool_calls",
    ).with_trace(notes=(*reply.trace.notes, NOTE))
    verdict = verify(plan.ask, whole)
    return verdict.reply if verdict.ok else None


def _read(plan: Plan, text: str, new_id: NewId) -> Reply:
    """Parse reply text with the reader of the plan's mode."""
    mode = mode_of(plan.mode)
    reader = mode.reader(plan.ask, mode.body(plan.ask), new_id)
    reader.feed(Delta(content=text))
    reader.close("stop")
    return reader.reply


def _named(ask: Ask, text: str, new_id: NewId) -> Call | None:
    """Build a call from arguments without a name, if they fit one tool; never of a dangerous tool."""
    try:
        value = read(text, anchors=ask.offered.all_keys)
    except Unreadable:
        return None
    # Ollama 0.32 prints a stray `]` after the arguments (ollama#17638)
    stray = text[value.end :].strip()
    if not is_object(value.value) or stray.strip("]}"):
        return None
    tool, why = _tool(ask, value.value)
    if tool is None or tool.dangerous:
        return None
    checked = ask.offered.check(tool, value.value)
    if checked.errors:
        return None
    fixes = value.fixes + checked.fixes + ((Fix("closer", "a stray closer after the arguments"),) if stray else ())
    written = json.dumps(checked.arguments, ensure_ascii=False) if fixes else text.strip()
    return Call(new_id(), tool.name, checked.arguments, written, (*fixes, why), Span(0, 0), "")


def _tool(ask: Ask, arguments: dict[str, object]) -> tuple[Tool | None, Fix]:
    """Return the only tool that may be called, else the only one whose schema the arguments fit, and the fix note."""
    offered = ask.offered
    if len(offered) == 1:
        return offered[0], Fix("infer", "the server's error lost the name; only this tool may be called")
    match = offered.infer(arguments)
    return match[0] if match else None, Fix("infer", "the server's error lost the name; only this tool's schema fits")
