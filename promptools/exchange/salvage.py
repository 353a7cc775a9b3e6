"""Recover calls that the model wrote in a failed attempt, from the text of the server's error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.fallback import REMEDIES, find_model_text
from promptools.json_values import is_object
from promptools.jsontext.read import Unreadable, read_value
from promptools.modes.registry import PREPARE
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.verdict import Verdict, judge_reply
from promptools.types import Call, Fix, Reply, Span
from promptools.wire.chat_decoder import Delta

if TYPE_CHECKING:
    from promptools.exchange.failures import Failure
    from promptools.exchange.plan import AttemptPlan
    from promptools.fallback import ModelText
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import NewId, Tool


RECOVERED_NOTE = "the call was read out of the server's error text"
RECOVERED_TEXT_NOTE = "the answer is what the model wrote, as far as the server's error text contains it"

MAX_VALUES = 300_000
"""Maximum number of commas and opening brackets in a text. No calls are read from a text with more."""
_SLICE = 1 << 16
"""Number of characters to parse at a time, because one search through a long text would block all other threads."""


def recover_calls(plan: AttemptPlan, failure: Failure, new_id: NewId) -> Reply | None:
    """Return the reply that a failure contains: what was read before the error, and the calls quoted in the error.

    Returns None unless every call in the text is valid and the whole reply satisfies the request.
    """
    forbidden = plan.request.choice.kind == "none" or not plan.request.takes_calls
    text = None if forbidden else _model_text(failure)
    if text is None or _holds_interpreter(text.text):
        return None
    if text.kind == "arguments":
        call = _infer_call(plan.request, text.text, new_id)
        reply = Reply(calls=(call,)) if call else Reply()
    else:
        reply = _parse_reply(plan, failure, text.text, new_id)
    if not reply.calls or reply.malformed:
        return None
    part = failure.partial_reply or Reply()
    whole = replace(
        reply,
        calls=(*part.calls, *reply.calls)[: None if plan.request.parallel_calls else 1],
        content=part.content or reply.content,
        reasoning=part.reasoning + reply.reasoning,
        finish_reason="tool_calls",
    ).with_trace(notes=(*reply.trace.notes, RECOVERED_NOTE))
    verdict = judge_reply(plan.request, whole)
    return verdict.reply if verdict.ok else None


def recover_text(plan: AttemptPlan, failure: Failure) -> Failure:
    """For a request that accepts no calls, return `failure` with a reply made from the model's text in the error.

    The result is still a failure, and other attempts are made first, because an error contains only part of a reply.
    """
    text = _model_text(failure)
    if text is None or not text.text.strip():
        return failure
    part = failure.partial_reply or Reply()
    is_read = text.kind == "reply" and not _holds_interpreter(text.text)
    read = _parse_reply(plan, failure, text.text, str) if is_read else Reply(content=text.text)
    content = read.content if read.content.strip() else text.text
    reasoning = part.reasoning + read.reasoning
    reply = Reply(content=content, reasoning=reasoning, finish_reason="stop").with_trace(notes=(RECOVERED_TEXT_NOTE,))
    return replace(failure, verdict=Verdict("swallowed", reply, failure.why, retry_elsewhere=True))


def _model_text(failure: Failure) -> ModelText | None:
    """Return the model's text that the error quotes. If the error was clipped, its whole message is searched anyway."""
    if "salvage" not in REMEDIES[failure.kind]:
        return None
    error = failure.server_error
    return find_model_text(error.whole_message if error is not None and error.is_clipped else failure.text)


def _holds_interpreter(text: str) -> bool:
    """Return whether parsing the text with `json` would block all threads for more than about 50 ms."""
    return sum(map(text.count, ",[{")) > MAX_VALUES


def _parse_reply(plan: AttemptPlan, failure: Failure, text: str, new_id: NewId) -> Reply:
    """Parse text as the reply to the failed request, in the mode in which the request was made.

    A request that was forwarded unchanged has no mode. Its reply is parsed in the plan's mode, or in native mode if the
    plan's mode is raw.
    """
    prepared = failure.prepared
    if prepared is None:  # no prompt was rendered for a forwarded request: read it as in native mode
        prepared = PREPARE["native" if plan.mode == "raw" else plan.mode](plan.request)
    reader = ReplyReader(plan.request, prepared, new_id)
    for start in range(0, len(text), _SLICE):
        reader.feed(Delta(content=text[start : start + _SLICE]))
    reader.close("stop")
    return reader.reply


def _infer_call(request: ToolRequest, text: str, new_id: NewId) -> Call | None:
    """Return a call made from arguments without a tool's name; None if they do not match exactly one tool.

    A call to a dangerous tool is never made.
    """
    try:
        value = read_value(text, declared_keys=request.offered.all_keys)
    except Unreadable:
        return None
    # Ollama 0.32 prints a stray `]` after the arguments (ollama#17638)
    stray = text[value.end :].strip()
    if not is_object(value.value) or stray.strip("]}"):
        return None
    tool, why = _infer_tool(request, value.value)
    if tool is None or tool.dangerous:
        return None
    checked = request.offered.check(tool, value.value)
    if checked.errors:
        return None
    fixes = value.fixes + checked.fixes + ((Fix("closer", "a stray closer after the arguments"),) if stray else ())
    written = json.dumps(checked.arguments, ensure_ascii=False) if fixes else text.strip()
    return Call(new_id(), tool.name, checked.arguments, written, (*fixes, why), Span(0, 0), "")


def _infer_tool(request: ToolRequest, arguments: dict[str, object]) -> tuple[Tool | None, Fix]:
    """Return the tool to which arguments belong, or None, and a fix that says how the tool was found.

    If a single tool is offered, that tool is returned. If several are offered, the only one whose schema the arguments
    match is returned.
    """
    offered = request.offered
    if len(offered) == 1:
        return offered[0], Fix("infer", "the server's error lost the name; only this tool may be called")
    match = offered.infer(arguments)
    return match[0] if match else None, Fix("infer", "the server's error lost the name; only this tool's schema fits")
