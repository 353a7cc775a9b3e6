"""Native tools: whether the server returns the calls of its model, whole, streamed and several at once."""

from __future__ import annotations

from typing import Any

from promptools.engine import parse
from promptools.errors import clip
from promptools.probing.answers import MAX_EVIDENCE, Answer, AnsweredCall
from promptools.probing.findings import Finding, Steps, Subject, failure
from promptools.probing.questions import CALL, INSIST, TWO_CALLS, WEATHER
from promptools.types import Reply

_FEW_TOKENS = 2
"""An empty answer of as few tokens is a model that had nothing to say."""


def check_native(subject: Subject) -> Steps:
    """Ask for a call up to three times, each time more clearly. The first answer that shows anything decides."""
    asks: tuple[tuple[str, dict[str, Any]], ...] = (
        (CALL, {}),
        (INSIST, {}),
        (INSIST, {"tool_choice": "required"}),
    )
    finding = Finding("native tools", "not shown", "")
    for question, keys in asks:
        answer = yield subject.chat(question, tools=[WEATHER], **keys)
        if answer.failed and keys and answer.kind == "tool_choice":
            break
        finding = judge_call("native tools", answer)
        if finding.verdict != "not shown" or answer.busy:
            break
    return [finding]


def check_streamed(subject: Subject) -> Steps:
    """Ask for the same call in a stream."""
    keys = {"stream": True, **({"stream_options": {"include_usage": True}} if subject.profile.stream_usage else {})}
    answer = yield subject.chat(CALL, tools=[WEATHER], **keys)
    finding = judge_call("streamed call", answer)
    if finding.verdict in {"errors", "not shown"}:
        return [finding]
    if answer.finish_reason is None:
        reason = "the stream ended without a finish_reason: its reply was lost or cut"
        return [Finding("streamed call", "errors", reason)]
    if finding.verdict == "works":
        finding = _with_pieces(answer.calls[0])
    return [finding]


def _with_pieces(call: AnsweredCall) -> Finding:
    if call.pieces > 1:
        return Finding("streamed call", "works", f"the arguments came in {call.pieces} pieces")
    return Finding("streamed call", "whole", "the arguments came in one piece")


def check_parallel(subject: Subject) -> Steps:
    """Ask for two calls at once, and then forbid the second."""
    answer = yield subject.chat(TWO_CALLS, tools=[WEATHER])
    if answer.failed:
        return [failure("parallel calls", answer)]
    leak, loss = find_call(answer), find_loss(answer)
    if not answer.calls and (leak or loss):
        return [Finding("parallel calls", "leaks" if leak else "swallows", leak or loss or "")]
    if len(answer.calls) < 2:
        reason = f"the answer had {_count(answer)}: {_evidence(answer)}"
        return [Finding("parallel calls", "not shown", reason)]
    findings = [Finding("parallel calls", "works", f"{len(answer.calls)} calls in one answer")]
    answer = yield subject.chat(TWO_CALLS, tools=[WEATHER], parallel_tool_calls=False)
    findings.append(_judge_one_call("parallel_tool_calls", answer))
    return findings


def _judge_one_call(check: str, answer: Answer) -> Finding:
    if answer.failed:
        return failure(check, answer, {"parallel_tool_calls": False})
    if len(answer.calls) > 1:
        reason = f"false was sent, and {len(answer.calls)} calls came"
        return Finding(check, "ignored", reason, {"parallel_tool_calls": False})
    if answer.calls:
        return Finding(check, "works", "false was sent, and one call came")
    return Finding(check, "not shown", f"false was sent, and the answer had no call: {_evidence(answer)}")


def judge_call(check: str, answer: Answer) -> Finding:
    """Judge the answer to a request for a call of `get_weather`."""
    if answer.failed:
        return failure(check, answer)
    if answer.calls:
        return _judge_structured(check, answer)
    leak = find_call(answer)
    if leak is not None:
        return Finding(check, "leaks", leak)
    if answer.cut:
        return Finding(check, "not shown", f"cut after {answer.completion_tokens} tokens: {_evidence(answer)}")
    loss = find_loss(answer)
    if loss is not None:
        return Finding(check, "swallows", loss)
    return Finding(check, "not shown", f"the model did not call: {_evidence(answer)}")


def _judge_structured(check: str, answer: Answer) -> Finding:
    call = answer.calls[0]
    arguments = call.parsed()
    if arguments is None and answer.cut:
        return Finding(check, "not shown", f"cut inside the call: {call}")
    if call.name != "get_weather":
        return Finding(check, "broken", f"no tool of that name was offered: {call}")
    if arguments is None:
        return Finding(check, "broken", f"the arguments are not a JSON object: {call}")
    city = arguments.get("city")
    if not isinstance(city, str):
        return Finding(check, "broken", f"the arguments do not fit the schema: {call}")
    other = "" if "paris" in city.casefold() else ", though Paris was asked for"
    return Finding(check, "works", f"{call}{other}")


def find_call(answer: Answer, offered: dict[str, Any] = WEATHER) -> str | None:
    """Return where in an answer's text a call is, and in which dialect; None if there is none."""
    for place, text in (("content", answer.content), ("reasoning", answer.reasoning)):
        reply: Reply = parse(text, [offered], finish_reason=answer.finish_reason)
        quoted = repr(clip(text, MAX_EVIDENCE))
        if reply.calls:
            return f"the call is in the {place}, as {reply.calls[0].dialect}: {quoted}"
        if reply.malformed:
            failed = reply.malformed[0]
            return f"a call is in the {place}, as {failed.dialect}, and malformed ({failed.reason}): {quoted}"
    return None


def find_loss(answer: Answer) -> str | None:
    """Return that tokens were generated and neither a call nor a text came, if it is so."""
    if answer.content.strip() or not (answer.reasoning or answer.completion_tokens > _FEW_TOKENS):
        return None
    reasoning = f", {_evidence(answer)} as reasoning" if answer.reasoning else ""
    return f"{answer.completion_tokens} tokens were generated, and no call and no text came{reasoning}"


def _count(answer: Answer) -> str:
    return "one call" if answer.calls else "no call"


def _evidence(answer: Answer) -> str:
    return str(answer.calls[0]) if answer.calls else answer.describe_text()
