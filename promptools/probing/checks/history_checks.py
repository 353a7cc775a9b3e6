"""The conversation: results of tools, the order of roles, odd names of tools, and how much fits."""

from __future__ import annotations

import re
from typing import Any

from promptools.fallback import FailureKind
from promptools.fallback.overflow import read_overflow
from promptools.probing.answers import Answer
from promptools.probing.checks.native_checks import find_call
from promptools.probing.findings import Finding, Steps, Subject, failure
from promptools.probing.questions import ASK_CODE, CALL, CODE, DOTTED, DOTTED_CALL, FIRST_TURN, RESULT, SECOND_TURN
from promptools.probing.questions import WEATHER as WEATHER_TOOL
from promptools.profiles.profile import GENERIC

_VARIANTS: tuple[tuple[FailureKind, dict[str, Any], str], ...] = (
    ("null_content", {"null_content": False}, 'with content "" instead of null'),
    ("ids", {"tool_ids": "alnum9"}, "with an id of nine letters and digits"),
    ("history", {"history_arguments": "object"}, "with the arguments as an object"),
)
"""What else is tried when a past call is refused, its fact, and how it is described."""
_LONG = 1_200_000
"""Characters of the prompt that is to exceed the context."""


def check_results(subject: Subject) -> Steps:
    """Send a past call with its result; where that is refused, find out which form is not."""
    check = "tool results"
    answer = yield subject.chat(*_history({}), tools=[WEATHER_TOOL])
    if not answer.failed:
        return [_judge_result(check, answer)]
    if answer.busy or subject.verdict("native tools") == "errors":
        return [failure(check, answer)]
    first = answer
    # the variant that the error's text names comes first
    for _, facts, how in sorted(_VARIANTS, key=lambda variant: variant[0] != first.kind):
        answer = yield subject.chat(*_history(facts), tools=[WEATHER_TOOL])
        if not answer.failed:
            return [Finding(check, "works", f"only {how}; without: {first.describe_error()}", facts)]
    return [failure(check, first)]


def _judge_result(check: str, answer: Answer) -> Finding:
    if "18" in answer.content or "fog" in answer.content.lower():
        return Finding(check, "works", f"the answer has the result: {answer.describe_text()}")
    return Finding(check, "accepted", f"the answer does not have the result: {answer.describe_text()}")


def _history(facts: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    call_id = "a1b2c3d4e" if facts.get("tool_ids") else "call_probe_0001"
    arguments = {"city": "Paris"} if facts.get("history_arguments") else '{"city": "Paris"}'
    content = "" if facts.get("null_content") is False else None
    call = {"id": call_id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return (
        {"role": "user", "content": CALL},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": RESULT},
    )


def check_system(subject: Subject) -> Steps:
    """Put a word into the system message and ask for it."""
    answer = yield subject.chat({"role": "system", "content": CODE}, ASK_CODE)
    if answer.failed:
        return [failure("system message", answer, {"system_role": False} if _is_about_roles(answer) else None)]
    if re.search(r"\bheron\b", answer.content, re.IGNORECASE):
        return [Finding("system message", "works", "the answer knows its text")]
    return [Finding("system message", "accepted", f"the answer does not know its text: {answer.describe_text()}")]


def check_turns(subject: Subject) -> Steps:
    """Send two user messages in a row."""
    answer = yield subject.chat(FIRST_TURN, SECOND_TURN)
    if answer.failed:
        facts = {"alternate_roles": True} if _is_about_roles(answer) else None
        return [failure("messages of one role in a row", answer, facts)]
    return [Finding("messages of one role in a row", "accepted", "two user messages were answered")]


def _is_about_roles(answer: Answer) -> bool:
    return answer.kind in {"roles", "template"}


def check_names(subject: Subject) -> Steps:
    """Offer a tool whose name has a dot."""
    check = "tool names with a dot"
    if subject.verdict("native tools") == "errors":
        return [Finding(check, "not shown", "tools are refused under any name")]
    answer = yield subject.chat(DOTTED_CALL, tools=[DOTTED])
    if answer.failed:
        return [failure(check, answer)]
    names = {call.name for call in answer.calls}
    if "weather.now" in names:
        new = subject.profile.kind == GENERIC and not re.fullmatch(subject.profile.tool_names, "weather.now")
        facts = {"tool_names": r"[a-zA-Z0-9_.-]{1,64}"} if new else {}
        return [Finding(check, "works", "the call came back under its name", facts)]
    if names:
        return [Finding(check, "broken", f"the call came back under another name: {answer.calls[0]}")]
    leak = find_call(answer, DOTTED)
    return [Finding(check, "accepted", leak or f"the model did not call: {answer.describe_text()}")]


def check_context(subject: Subject) -> Steps:
    """Report the context that the server states; measure it only if asked to, with one very long prompt."""
    known = subject.profile.context
    if not subject.measure_context:
        if known:
            return [Finding("context", "works", f"{known} tokens, as the server or the config states")]
        return [Finding("context", "not shown", "the server does not state it; --context measures it")]
    answer = yield subject.chat("river " * (_LONG // 6), max_tokens=1)
    if not answer.failed:
        reason = f"a prompt of {_LONG} characters was taken, as {answer.prompt_tokens} tokens"
        return [Finding("context", "accepted", f"{reason}: it fits, or was truncated")]
    limit = read_overflow(answer.error or "").context if answer.kind == "overflow" else None
    if limit is None:
        return [failure("context", answer)]
    facts = {} if known == limit else {"context": limit}
    return [Finding("context", "works", f"{limit} tokens: {answer.describe_error()}", facts)]
