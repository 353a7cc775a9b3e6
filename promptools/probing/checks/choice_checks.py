"""`tool_choice`: whether its values are obeyed. Each is asked against what the question suggests."""

from __future__ import annotations

from promptools.probing.answers import Answer
from promptools.probing.checks.native_checks import find_call, find_loss
from promptools.probing.findings import Finding, Steps, Subject, Verdict, failure
from promptools.probing.questions import CALL, NO_CALL, TIME, WEATHER


def check_none(subject: Subject) -> Steps:
    """Ask for a call and forbid it."""
    check = "tool_choice none"
    answer = yield subject.chat(CALL, tools=[WEATHER], tool_choice="none")
    if answer.failed:
        return [_failed(check, answer, subject, "none")]
    if answer.calls:
        return [Finding(check, "ignored", f"a call came: {answer.calls[0]}", _without(subject, "none"))]
    if subject.verdict("native tools") != "works":
        return [Finding(check, "not shown", "no call came, but native tools have shown none either")]
    instead = find_call(answer) or find_loss(answer)
    return [Finding(check, "works", f"no call came; {instead}" if instead else "no call came")]


def check_required(subject: Subject) -> Steps:
    """Require a call where nothing suggests one."""
    check = "tool_choice required"
    answer = yield subject.chat(NO_CALL, tools=[WEATHER, TIME], tool_choice="required")
    if answer.failed:
        return [_failed(check, answer, subject, "required")]
    return [_judge_forced(check, answer, subject, {"get_weather", "get_time"}, "required")]


def check_named(subject: Subject) -> Steps:
    """Name the other tool than the question does."""
    check = "tool_choice named"
    choice = {"type": "function", "function": {"name": "get_time"}}
    answer = yield subject.chat(CALL, tools=[WEATHER, TIME], tool_choice=choice)
    if answer.failed:
        return [_failed(check, answer, subject, "named")]
    return [_judge_forced(check, answer, subject, {"get_time"}, "named")]


def _judge_forced(check: str, answer: Answer, subject: Subject, allowed: set[str], value: str) -> Finding:
    if answer.calls:
        call = answer.calls[0]
        if call.name in allowed:
            return Finding(check, "works", str(call))
        return Finding(check, "ignored", f"another tool was called: {call}", _without(subject, value))
    if answer.cut:
        return Finding(check, "not shown", f"cut after {answer.completion_tokens} tokens: {answer.describe_text()}")
    leak, loss = find_call(answer), find_loss(answer)
    verdict: Verdict = "leaks" if leak else "swallows" if loss else "ignored"
    reason = leak or loss or f"no call came: {answer.describe_text()}"
    return Finding(check, verdict, reason, _without(subject, value))


def _failed(check: str, answer: Answer, subject: Subject, value: str) -> Finding:
    """Return the finding for an error, which is about the value only if tools alone are no error."""
    about_value = subject.verdict("native tools") not in {None, "errors"}
    return failure(check, answer, _without(subject, value) if about_value else None)


def _without(subject: Subject, value: str) -> dict[str, object]:
    """Return the fact that a value is not obeyed, with those of the checks before."""
    kept: set[str] = {str(choice) for choice in subject.profile.tool_choice} - {value}
    for finding in subject.findings.values():
        if "tool_choice" in finding.facts:
            kept &= set(finding.facts["tool_choice"])
    return {"tool_choice": sorted(kept)}
