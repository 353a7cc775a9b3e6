"""The checks, grouped by subject: native tools, `tool_choice`, the conversation, other keys of a request, and modes.

No check does I/O. `CHECKS`, at the end, lists all checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from promptools.engine import parse
from promptools.errors import clip
from promptools.fallback import FailureKind
from promptools.fallback.overflow import read_overflow
from promptools.probing.findings import (
    BUSY,
    MAX_EVIDENCE,
    Answer,
    AnsweredCall,
    Finding,
    Steps,
    Subject,
    TrialRequest,
    Verdict,
    failure,
)
from promptools.profiles.profile import GENERIC
from promptools.types import ModeName, Reply
from promptools.wire.json_body import as_object

__all__ = ["CHECKS", "GROUPS"]


# The tools and questions of the checks. No question contains another, so that scripted models can tell them apart.


def tool(name: str, description: str) -> dict[str, Any]:
    """Return a tool definition with one parameter, a city."""
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city."}},
        "required": ["city"],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = tool("get_weather", "Return the current weather of a city.")
TIME = tool("get_time", "Return the current local time of a city.")
DOTTED = tool("weather.now", "Return the current weather of a city.")

PLAIN = "Say hello in one word."
CALL = "What is the weather in Paris right now? Look it up with get_weather."
INSIST = "Call get_weather with the city Paris. Answer with the call alone."
TWO_CALLS = "How is the weather in Paris and in Rome? Call get_weather once for each, both calls in one answer."
NO_CALL = "Thank you, that is all."
DOTTED_CALL = "What does weather.now return for Paris? Call it."
SENTENCE = "Describe Paris in one short sentence."
FIRST_TURN = "I have two questions."
SECOND_TURN = "How many days has a week?"
CODE = "The code word is heron."
ASK_CODE = "What is the code word? Answer with that word."
RESULT = "Paris: 18 degrees and fog"
THINK = "How many letters has the word river?"
CHOICES = "Name a colour."
CONTINUED = "One, two, three,"

SCHEMA = {
    "type": "object",
    "properties": {"probed_city": {"type": "string", "maxLength": 20}, "probed_size": {"enum": ["small", "large"]}},
    "required": ["probed_city", "probed_size"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "probed", "schema": SCHEMA, "strict": True}}


# Native tools: whether the server returns the calls of its model: in one body, in a stream, and several at once.


_FEW_TOKENS = 2
"""Maximum number of tokens that an empty answer takes if the model has nothing to say. If it took more tokens, a reply
was lost."""


def check_native(subject: Subject) -> Steps:
    """Ask for a call up to three times, more explicitly each time; the first conclusive answer gives the verdict."""
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
    """Ask for a call, and for a streamed answer, to see whether the server streams the call correctly."""
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
    """Ask for two calls in one answer; if both arrive, ask again with `parallel_tool_calls: false`."""
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
    """Return the finding for the answer to a request for a call to `get_weather`."""
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
    """Return a description of the call in an answer's text, even if the call is malformed; None if there is none.

    The description says where the call is (content or reasoning), and in which dialect.
    """
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
    """Return a description of what was lost from an answer without calls; None if nothing was lost.

    Something was lost if the answer has no content, but has reasoning or cost more than `_FEW_TOKENS` tokens.
    """
    if answer.content.strip() or not (answer.reasoning or answer.completion_tokens > _FEW_TOKENS):
        return None
    reasoning = f", {_evidence(answer)} as reasoning" if answer.reasoning else ""
    return f"{answer.completion_tokens} tokens were generated, and no call and no text came{reasoning}"


def _count(answer: Answer) -> str:
    return "one call" if answer.calls else "no call"


def _evidence(answer: Answer) -> str:
    return str(answer.calls[0]) if answer.calls else answer.describe_text()


# `tool_choice`: whether its values are obeyed. Each value requires something other than what the question suggests.


def check_none(subject: Subject) -> Steps:
    """Ask for a call in the question, and forbid calls with `tool_choice: none`."""
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
    """Ask a question that needs no tool, to see whether `tool_choice: required` leads to a call anyway."""
    check = "tool_choice required"
    answer = yield subject.chat(NO_CALL, tools=[WEATHER, TIME], tool_choice="required")
    if answer.failed:
        return [_failed(check, answer, subject, "required")]
    return [_judge_forced(check, answer, subject, {"get_weather", "get_time"}, "required")]


def check_named(subject: Subject) -> Steps:
    """Ask for a call to one tool, but name another in `tool_choice`, to see whether the server enforces that choice."""
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
    """Return the finding for a failed request with the value `value` of `tool_choice`.

    The finding's facts say that the server does not honor the value. It has no facts if requests with tools fail even
    without `tool_choice`, or if the check of native tools, which tests this, did not run.
    """
    about_value = subject.verdict("native tools") not in {None, "errors"}
    return failure(check, answer, _without(subject, value) if about_value else None)


def _without(subject: Subject, value: str) -> dict[str, object]:
    """Return the fact `tool_choice`: the profile's values, except `value` and values that earlier checks ruled out."""
    kept: set[str] = {str(choice) for choice in subject.profile.tool_choice} - {value}
    for finding in subject.findings.values():
        if "tool_choice" in finding.facts:
            kept &= set(finding.facts["tool_choice"])
    return {"tool_choice": sorted(kept)}


# The conversation: results of tools, the order of roles, odd names of tools, and the size of the context.


_VARIANTS: tuple[tuple[FailureKind, dict[str, Any], str], ...] = (
    ("null_content", {"null_content": False}, 'with content "" instead of null'),
    ("ids", {"tool_ids": "alnum9"}, "with an id of nine letters and digits"),
    ("history", {"history_arguments": "object"}, "with the arguments as an object"),
)
"""Other forms in which a request can contain the model's earlier call, tried if the server refuses the usual form.

The usual form has `null` as the content, any id, and the arguments as a JSON string. For each other form, there are
three values: the kind of error that suggests the form, the facts for the profile if the server accepts the form, and a
description.
"""
_LONG = 1_200_000
"""Number of characters of a prompt that should be longer than any context."""


def check_results(subject: Subject) -> Steps:
    """Send an earlier call with its result; if the server refuses it, find out which other form it accepts."""
    check = "tool results"
    answer = yield subject.chat(*_history({}), tools=[WEATHER])
    if not answer.failed:
        return [_judge_result(check, answer)]
    if answer.busy or subject.verdict("native tools") == "errors":
        return [failure(check, answer)]
    first = answer
    # the variant that the error's text names comes first
    for _, facts, how in sorted(_VARIANTS, key=lambda variant: variant[0] != first.kind):
        answer = yield subject.chat(*_history(facts), tools=[WEATHER])
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
    """Put a code word into the system message, and ask for the word."""
    answer = yield subject.chat({"role": "system", "content": CODE}, ASK_CODE)
    if answer.failed:
        return [failure("system message", answer, {"system_role": False} if _is_about_roles(answer) else None)]
    if re.search(r"\bheron\b", answer.content, re.IGNORECASE):
        return [Finding("system message", "works", "the answer knows its text")]
    return [Finding("system message", "accepted", f"the answer does not know its text: {answer.describe_text()}")]


def check_turns(subject: Subject) -> Steps:
    """Send two user messages in a row, to see whether the server accepts them."""
    answer = yield subject.chat(FIRST_TURN, SECOND_TURN)
    if answer.failed:
        facts = {"alternate_roles": True} if _is_about_roles(answer) else None
        return [failure("messages of one role in a row", answer, facts)]
    return [Finding("messages of one role in a row", "accepted", "two user messages were answered")]


def _is_about_roles(answer: Answer) -> bool:
    return answer.kind in {"roles", "template"}


def check_names(subject: Subject) -> Steps:
    """Offer a tool with a dot in its name, to see whether calls keep the name."""
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
    """Report the known context size or, if `measure_context` is set, measure it with one very long prompt."""
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


# Other keys of a request: the format of the answer, several choices, usage, reasoning.


def check_format(subject: Subject) -> Steps:
    """Ask for a sentence, but require JSON with `response_format`, to see whether the server enforces the schema."""
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
    """Ask for a call, and require a schema for the answer. A server that enforces the schema may prevent all calls."""
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
    """Return the text after an object that has exactly the keys of `SCHEMA`; None if `text` begins with no such object.

    Strings in the object may contain raw control characters, which grammars such as xgrammar's allow.
    """
    text = text.lstrip()
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(value, dict) and as_object(SCHEMA["properties"]).keys() == as_object(value).keys()
    return text[end:] if fits else None


def check_n(subject: Subject) -> Steps:
    """Ask for two choices, at temperature 1, since servers reject several choices at temperature 0."""
    answer = yield subject.chat(CHOICES, n=2, temperature=1)
    if answer.failed:
        return [failure("n", answer, {"n": False})]
    if answer.choices == 2:
        return [Finding("n", "works", "two choices came")]
    return [Finding("n", "ignored", f"two choices were asked for, and {answer.choices} came", {"n": False})]


def check_usage(subject: Subject) -> Steps:
    """Ask for the token usage at the end of a stream."""
    check = "stream_options.include_usage"
    answer = yield subject.chat(CHOICES, stream=True, stream_options={"include_usage": True})
    if answer.failed:
        return [failure(check, answer, {"stream_usage": False} if answer.kind == "stream_options" else None)]
    if answer.usage:
        return [Finding(check, "works", "the stream ended with its usage")]
    return [Finding(check, "ignored", "the stream had no usage")]


def check_reasoning(subject: Subject) -> Steps:
    """Ask a question that needs reasoning, with `reasoning_effort`, and find the field in which reasoning arrives."""
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


# Modes: the raw endpoint, and the call that an app gets through promptools in each mode that is possible.


COMPLETIONS = "/completions"
MODES: tuple[ModeName, ...] = ("native", "raw", "harmony", "prompt")
_MARKER = re.compile(r"<[|｜][^<>\s]{1,64}[|｜]>|</?[a-z_]*tool_calls?(?:_begin|_section)?>|\[TOOL_CALLS\]")
"""Matches special tokens that chat templates write around a call, such as `<|tool_call|>` and `[TOOL_CALLS]`."""
_ONE_MODE = "; nothing is left to try"
"""The words at the end of an attempt's reason that say that no other mode may be tried. They are removed in
findings."""


def mode_check(mode: ModeName) -> str:
    """Return the name of the check that tests a mode."""
    return f"mode {mode}"


def check_raw_endpoint(subject: Subject) -> Steps:
    """Ask `/v1/completions` to continue a text.

    Some servers wrongly apply the chat template. This shows in the number of prompt tokens, which is then at least as
    high as for the same text in a chat.
    """
    check = "raw completions"
    chat = yield subject.chat(CONTINUED, max_tokens=8)
    answer = yield TrialRequest({"model": subject.model, "prompt": CONTINUED, "max_tokens": 8}, path=COMPLETIONS)
    if answer.failed and answer.status in {404, 405, 501}:
        return [Finding(check, "absent", answer.describe_error())]
    if answer.failed:
        return [failure(check, answer)]
    if 0 < chat.prompt_tokens <= answer.prompt_tokens:
        reason = f"the prompt is put into the chat template: {answer.prompt_tokens} tokens, as in a chat"
        return [Finding(check, "ignored", reason)]
    if answer.content:
        return [Finding(check, "works", f"/v1/completions goes on with {answer.describe_text()}")]
    return [Finding(check, "accepted", "/v1/completions answers, here without text")]


def check_modes(subject: Subject) -> Steps:
    """Ask for a call through promptools in each mode that is possible with this server."""
    findings: list[Finding] = []
    raw_texts: list[str] = []
    for mode in MODES:
        why = _impossible(mode, subject)
        if why:
            findings.append(Finding(mode_check(mode), "absent", why))
            continue
        answer = yield TrialRequest(subject.body(CALL, tools=[WEATHER]), mode=mode)
        findings.append(_judge_mode(mode, answer))
        if mode in {"raw", "harmony"}:
            raw_texts.append(answer.raw)
    return [*findings, _judge_tokens(raw_texts)]


def _impossible(mode: ModeName, subject: Subject) -> str | None:
    profile = subject.profile
    left_out = "native" not in profile.modes and subject.verdict("native tools") != "works"
    if mode in {"native", "raw"} and left_out:
        return "the profile leaves native mode out, as of a model whose template shows it no tools"
    if mode in {"raw", "harmony"} and not profile.raw:
        return "no raw endpoint is known for this kind of server"
    if mode == "raw" and not (profile.template_endpoint or profile.chat_template):
        return "nothing is known that renders the model's chat template"
    if mode == "raw" and "harmony" in profile.modes:
        return "harmony mode does the same for this family"
    if mode == "harmony" and "harmony" not in profile.modes and profile.family != "gpt-oss":
        return "it is for gpt-oss, and nothing says that this is one"
    return None


def _judge_mode(mode: ModeName, answer: Answer) -> Finding:
    check = mode_check(mode)
    reply = answer.reply
    if reply is not None and reply.calls:
        call = reply.calls[0]
        fixes = ", ".join(dict.fromkeys(fix.kind for fix in call.fixes))
        dialect = f", as {call.dialect}" if call.dialect else ""
        repaired = f", with fixes: {fixes}" if fixes else ""
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return Finding(check, "works", f"{call.name}({arguments}){dialect}{repaired}")
    last = answer.attempts[-1] if answer.attempts else None
    if last is not None and last.status in BUSY:
        return Finding(check, "not shown", f"the server was busy: {last.why}")
    if last is not None and last.outcome != "answered":
        return Finding(check, "errors", f"{last.outcome}: {last.why.removesuffix(_ONE_MODE)}")
    if answer.failed:
        return failure(check, answer)
    return Finding(check, "not shown", f"the model did not call: {answer.describe_text()}")


def _judge_tokens(raw_texts: list[str]) -> Finding:
    check = "special tokens in raw completions"
    if not raw_texts:
        return Finding(check, "not shown", "no mode of a raw endpoint is possible here")
    markers = dict.fromkeys(marker for text in raw_texts for marker in _MARKER.findall(text))
    if markers:
        return Finding(check, "works", f"kept: {' '.join(list(markers)[:4])}")
    return Finding(check, "not shown", "the reply had none")


# The list of all checks.


CHECKS: dict[str, tuple[Callable[[Subject], Steps], ...]] = {
    "native": (check_native, check_streamed, check_parallel),
    "tool_choice": (check_none, check_required, check_named),
    "history": (check_results, check_system, check_turns, check_names),
    "request": (check_format, check_format_beside_tools, check_n, check_usage, check_reasoning),
    "raw": (check_raw_endpoint,),
    "modes": (check_modes,),
    "context": (check_context,),
}
"""Maps the names that `--checks` accepts to groups of checks.

The groups run in this order, because later checks read the findings of earlier ones.
"""

GROUPS = tuple(CHECKS)
