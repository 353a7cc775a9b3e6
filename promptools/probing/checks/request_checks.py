"""Keys of a request beside tools: an answer's format, several choices, usage, reasoning."""

from __future__ import annotations

import json
from typing import Any

from promptools.probing.answers import Answer
from promptools.probing.checks.native_checks import find_call, find_loss
from promptools.probing.findings import Finding, Steps, Subject, failure
from promptools.probing.questions import CALL, CHOICES, FORMAT, SCHEMA, SENTENCE, THINK, WEATHER
from promptools.profiles.profile import GENERIC
from promptools.wire.json_body import as_object


def check_format(subject: Subject) -> Steps:
    """Ask for a sentence, in a schema that no sentence fits."""
    check = "response_format"
    answer = yield subject.chat(SENTENCE, response_format=FORMAT)
    if answer.failed:
        return [failure(check, answer)]
    quoted = answer.describe_text()
    rest = _text_after_object(answer.content)
    if rest is not None and not rest.strip():
        new = subject.profile.kind == GENERIC and not subject.profile.constrained
        facts: dict[str, Any] = {"constrained": check} if new else {}
        return [Finding(check, "works", f"the answer fits the schema: {quoted}", facts)]
    if rest is not None:
        return [Finding(check, "broken", f"text follows what the schema wants: {quoted}")]
    if answer.cut:
        return [Finding(check, "not shown", f"cut after {answer.completion_tokens} tokens: {quoted}")]
    if answer.finish_reason is None:
        return [Finding(check, "errors", f"the answer ended without a finish_reason, and was lost or cut: {quoted}")]
    facts = {"constrained_ok": False} if subject.profile.constrained == check else {}
    loss = find_loss(answer)
    if loss is not None:
        return [Finding(check, "swallows", loss, facts)]
    return [Finding(check, "ignored", f"the answer does not fit the schema: {quoted}", facts)]


def check_format_beside_tools(subject: Subject) -> Steps:
    """Ask for a call with a schema for the answer, which may make calls impossible."""
    check = "response_format beside tools"
    if subject.verdict("native tools") != "works":
        return [Finding(check, "not shown", "native tools have shown no call without it")]
    answer = yield subject.chat(CALL, tools=[WEATHER], response_format=FORMAT)
    closed = {"format_beside_tools": False} if subject.profile.format_beside_tools else {}
    if answer.failed:
        return [failure(check, answer, closed)]
    if answer.calls:
        return [Finding(check, "works", f"a call came: {answer.calls[0]}")]
    leak = find_call(answer)
    reason = leak or f"no call came, though one came without the format: {answer.describe_text()}"
    return [Finding(check, "leaks" if leak else "ignored", reason, closed)]


def _text_after_object(text: str) -> str | None:
    """Return the text after an object that fits the schema; None if the text does not begin with one.

    Grammars may let control characters into strings, as xgrammar's does.
    """
    text = text.lstrip()
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(value, dict) and as_object(SCHEMA["properties"]).keys() == as_object(value).keys()
    return text[end:] if fits else None


def check_n(subject: Subject) -> Steps:
    """Ask for two choices. Servers refuse several of them at temperature 0."""
    answer = yield subject.chat(CHOICES, n=2, temperature=1)
    if answer.failed:
        return [failure("n", answer, {"n": False})]
    if answer.choices == 2:
        return [Finding("n", "works", "two choices came")]
    return [Finding("n", "ignored", f"two choices were asked for, and {answer.choices} came", {"n": False})]


def check_usage(subject: Subject) -> Steps:
    """Ask for the usage at the end of a stream."""
    check = "stream_options.include_usage"
    answer = yield subject.chat(CHOICES, stream=True, stream_options={"include_usage": True})
    if answer.failed:
        return [failure(check, answer, {"stream_usage": False} if answer.kind == "stream_options" else None)]
    if answer.usage:
        return [Finding(check, "works", "the stream ended with its usage")]
    return [Finding(check, "ignored", "the stream had no usage")]


def check_reasoning(subject: Subject) -> Steps:
    """Ask something to think about, with an effort, and see in which field the reasoning is."""
    answer = yield subject.chat(THINK, reasoning_effort="low")
    return [_judge_effort(answer), _judge_field(subject, answer)]


def _judge_effort(answer: Answer) -> Finding:
    check = "reasoning_effort"
    if answer.failed:
        return failure(check, answer, {"thinking": False} if answer.kind == "reasoning_param" else None)
    return Finding(check, "accepted", "the request was answered; what it changes cannot be seen")


def _judge_field(subject: Subject, answer: Answer) -> Finding:
    name = answer.reasoning_field or subject.reasoning_field
    if name is None:
        return Finding("reasoning field", "not shown", "no answer had reasoning apart from its content")
    same = name == subject.profile.reasoning_field
    facts = {} if same or subject.profile.kind != GENERIC else {"reasoning_field": name}
    return Finding("reasoning field", "works", f"reasoning is in {name!r}", facts)
