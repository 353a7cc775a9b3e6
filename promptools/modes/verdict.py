"""Decide what to do with a complete reply: return it to the client, ask for a correction, or try another mode.

A verdict says what is wrong with a reply, what the client gets if no attempt does better, and what may help: asking the
same mode again with feedback (`retry_with_feedback`), or another mode (`retry_elsewhere`). A call that was cut off is
never asked for again in the same mode, because it would be cut off again. A reply with both valid and malformed calls
counts as an answer; malformed calls that the server itself returned may be passed on with the valid ones.

Replies that the server lost are recognized by what remains of them:

- an empty answer that cost tokens;
- text that cost more tokens than it has bytes;
- a finish reason or stop reason that announces a call, without the call;
- a call whose tool name is a piece of a Harmony header.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from promptools.dialects.calls.resolve import malformed_call
from promptools.engine.message_router import COMPLETE_REASONS
from promptools.harmony.tokens import TOKEN_IDS
from promptools.jsontext.brackets import BracketScanner
from promptools.jsontext.strict import read_members
from promptools.modes.call_filter import FORBIDDEN_PREFIXES, is_header_part
from promptools.modes.response_format import Healed, check_answer, describe_format
from promptools.modes.structured_calls import NATIVE
from promptools.numbers import as_count
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import format_names
from promptools.types import Call, Discarded, Reply
from promptools.wire.chat_encoder import encode_call

if TYPE_CHECKING:
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import Malformed, ModeName


VerdictKind = Literal[
    "answered",  # the reply is what the request asked for
    "malformed",  # calls, none of them usable
    "truncated",  # the only calls were cut off
    "unknown_tool",  # only calls of tools that were not offered
    "no_call",  # a call, perhaps of a named tool, was required and is missing
    "forbidden",  # nothing but calls, and no call may be made
    "swallowed",  # the server lost the reply: nothing is left of the model's output
    "empty_calls",  # content without calls, although the server reports calls or has dropped some
    "format",  # an answer that does not fit `response_format`
    "cut",  # the stream ended without a finish reason
]
HARMONY_CALL = TOKEN_IDS["call"]
"""`<|call|>`, the token that ends a gpt-oss call; vLLM reports it as `stop_reason` even if it parsed no call."""
NO_CALL_OR_ANSWER = (
    "Cannot find <|channel|>commentary or <|channel|>final. In your next step, be careful with the channel format."
)
"""The feedback to a Harmony reply that is only reasoning.

The text is quoted from the paper on HarmonyReAct; HarmonyReAct's code adds "in the response above" to it.
"""
ERROR_PREFIX = "Failed to process response: "
"""The beginning of the messages with which HarmonyReAct reports an error to the model."""
_FENCE = lazy_pattern(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
NO_NAMES: Mapping[str, str] = MappingProxyType({})
MAX_COMPARED = 1000
"""Maximum number of names that an unknown name is compared with; each comparison takes about 10 microseconds."""
MAX_EMPTY_TOKENS = 3
"""Maximum number of tokens that an answer may take and still count as empty, including the end-of-turn token.

If an answer without text took more tokens, the server lost the model's output.
"""

MAX_HIDDEN_TOKENS = 12
"""Maximum excess of an answer's tokens over its bytes of text. If the excess is larger, the answer is incomplete.

The additional tokens can be Harmony headers, or tags around empty reasoning.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """States what is wrong with a reply, if anything, and what may help."""

    kind: VerdictKind
    reply: Reply
    """What the client gets if no attempt does better: everything the model wrote, in the form set by `on_malformed`."""
    reason: str = ""
    """The reason for the verdict, as text for the trace."""
    retry_with_feedback: bool = False
    """Whether asking again with `feedback` may help; always false for a call that was cut off."""
    retry_elsewhere: bool = False
    """Whether another mode, or another attempt, may help."""
    feedback: tuple[dict[str, Any], ...] = ()
    """Messages to add when asking again, in the client's format: the reply, and what to correct."""

    @property
    def ok(self) -> bool:
        """Whether the reply satisfies the request."""
        return self.kind == "answered"


def judge_reply(
    request: ToolRequest,
    reply: Reply,
    *,
    raw: str = "",
    stop_reason: str | int | None = None,
    usage: Mapping[str, Any] | None = None,
    mode: ModeName = "native",
    names: Mapping[str, str] = NO_NAMES,
    refused: bool = False,
    committed: bool = False,
) -> Verdict:
    """Return the verdict on a complete reply.

    `raw` is the model's text from the `ReplyReader`. `usage` is the usage of this attempt alone. `names` maps the tool
    names that were sent to the server to the client's names. `refused` says that the text is a refusal. `committed`
    says that part of the reply was already sent to the client. If `mode` is "harmony" or "raw", the reply is the text
    of a raw endpoint, so no parser of the server can have lost a part of the reply. The verdict's reply never contains
    a call that was cut off.
    """
    harmony = mode == "harmony"
    reply = _restore_length(request, reply, usage, harmony=harmony)
    sent = {name: sent_name for sent_name, name in names.items()}
    if (broken := _broken_end(request, reply, raw, stop_reason, harmony=harmony)) is not None:
        return broken
    if not reply.calls and reply.malformed:
        return _malformed(request, reply, raw, sent, harmony=harmony)
    if not reply.calls and reply.content.strip() in request.corrections:
        return _repeated_correction(request, reply)
    if not reply.calls and request.choice.forced:
        return _missing_call(request, reply, raw, sent, harmony=harmony)
    if not reply.calls and not reply.content.strip():
        return _empty_reply(request, reply, raw, usage, harmony=harmony)
    if not reply.calls and (lost := _lost_call(request, reply, raw, usage, mode)) is not None:
        return lost
    if not (reply.calls or refused) and (request.checks_response_format or request.heals_answer):
        return _check_format(request, reply, raw, harmony=harmony, committed=committed)
    return Verdict("answered", _with_unfit_beside(request, reply, raw))


def _broken_end(
    request: ToolRequest, reply: Reply, raw: str, stop_reason: str | int | None, *, harmony: bool
) -> Verdict | None:
    """Return the verdict on a reply whose end shows that the server failed; None for any other end."""
    # Ollama's /v1 ends a stream like this when its parser or its runner fails.
    if request.stream and reply.finish_reason is None:
        return Verdict("cut", _as_content(reply, raw), "the stream ended without a finish reason", retry_elsewhere=True)
    if stop_reason == HARMONY_CALL and not (
        harmony or reply.calls or reply.malformed or _answers_without_calls(request, reply)
    ):
        # vLLM 0.32 does this without its flags for tools, and for a request without tools.
        why = "the model ended with a call (stop_reason 200012) and the server sent none"
        return Verdict("swallowed", _as_content(reply, raw), why, retry_elsewhere=True)
    return None


def _repeated_correction(request: ToolRequest, reply: Reply) -> Verdict:
    """Return the verdict on an answer that only repeats the correction that was sent to the model.

    Without this verdict, the user would see promptools' own words as the model's answer. Observed with
    Qwen2.5-Coder-1.5B on llama.cpp in prompt mode.
    """
    kind: VerdictKind = "no_call" if request.choice.forced else "malformed"
    discarded = (*reply.discarded, Discarded(reply.content, "repeat"))
    why = "the model repeated the correction in place of an answer"
    return Verdict(kind, replace(reply, content="", discarded=discarded), why, retry_elsewhere=True)


def _lost_call(
    request: ToolRequest, reply: Reply, raw: str, usage: Mapping[str, Any] | None, mode: ModeName
) -> Verdict | None:
    """Return the verdict on a reply without calls if its finish reason or its tokens show that a call was lost."""
    if reply.finish_reason in {"tool_calls", "function_call"}:
        # seen with vLLM's parsers for Gemma 4 (vllm#53363) and DeepSeek-V3 (DeepSeek-V3#944)
        why = "the server's finish reason speaks of calls and there are none"
        return Verdict("empty_calls", _as_content(reply, ""), why, retry_elsewhere=True)
    if mode not in {"harmony", "raw"} and (why := _missing_tokens(request, reply, raw, usage)):
        rest = replace(_as_content(reply, ""), finish_reason="length" if request.stream else "stop")
        return Verdict("empty_calls", rest, why, retry_elsewhere=True)
    return None


def _check_format(request: ToolRequest, reply: Reply, raw: str, *, harmony: bool, committed: bool) -> Verdict:
    """Return the verdict on an answer that must have a `response_format`; heal the answer if possible.

    An answer that was cut off is accepted, since it would be cut off again. An answer without a JSON value is requested
    again only if the schema is known: under `json_object`, prose may be intended.
    """
    if reply.finish_reason in {"length", "content_filter"}:
        return Verdict("answered", reply)
    checked = check_answer(request, reply.content, convert=not committed)
    if isinstance(checked, Healed):
        return Verdict("answered", _with_healed(reply, checked))
    if committed and checked.value is not None:
        reply = _with_healed(reply, checked.value)
    wanted = describe_format(request, "Write this answer as")
    wanted = f"{checked.why[0].upper()}{checked.why[1:]}\n{wanted}" if request.heals_answer else wanted
    feedback = _text_feedback(reply, raw or reply.content, wanted, harmony=harmony)
    again = request.heals_answer and (checked.value is not None or request.answer_schema is not None)
    return Verdict("format", reply, checked.why, retry_with_feedback=again, feedback=feedback)


def _with_healed(reply: Reply, healed: Healed) -> Reply:
    """Copy a reply with its answer healed; record the text that was removed around the answer as discarded."""
    if not (healed.fixes or healed.cut):
        return reply
    cut = tuple(Discarded(text, "around") for text in healed.cut)
    return replace(reply, content=healed.text, fixes=(*reply.fixes, *healed.fixes), discarded=(*reply.discarded, *cut))


def _answers_without_calls(request: ToolRequest, reply: Reply) -> bool:
    """Return whether the reply has text and the request forbade calls. If so, a lost call does not matter."""
    return request.choice.kind == "none" and bool(reply.content.strip())


def _restore_length(request: ToolRequest, reply: Reply, usage: Mapping[str, Any] | None, *, harmony: bool) -> Reply:
    """Set the finish reason to `length` if the reply reached `max_tokens` and ends in a call that was cut off.

    Some servers report `tool_calls` or `stop` for such a reply. In such a reply, a Harmony call whose JSON stops early
    counts as cut off, even if the model seems to have ended the call.
    """
    limit, spent = request.max_tokens, as_count((usage or {}).get("completion_tokens"))
    # DeepSeek V4 Flash: `tool_calls` for a reply cut at the limit (MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#55).
    if limit is None or spent is None or spent < limit or reply.finish_reason is None:
        return reply
    malformed = tuple(map(_as_cut, reply.malformed)) if harmony else reply.malformed
    if not any(failed.reason == "truncated" for failed in malformed):
        return reply
    return replace(reply, malformed=malformed, finish_reason="length")


def _as_cut(failed: Malformed) -> Malformed:
    """If the JSON of a call stops early, mark the call as cut off; return any other call unchanged."""
    if failed.reason != "invalid_json" or not failed.raw.startswith("{") or BracketScanner().feed(failed.raw):
        return failed
    cut = malformed_call("truncated", "the text ended inside its arguments", failed.dialect, failed.name)
    return replace(failed, reason=cut.reason, message=cut.message)


def _as_content(reply: Reply, raw: str) -> Reply:
    """Copy the reply without its calls. Unless `raw` is blank, `raw` becomes the content, byte for byte."""
    cut = reply.finish_reason == "length" or any(failed.reason == "truncated" for failed in reply.malformed)
    finish = "content_filter" if reply.finish_reason == "content_filter" else "length" if cut else "stop"
    return replace(reply, calls=(), content=raw if raw.strip() else reply.content, finish_reason=finish)


def _with_failed_calls(request: ToolRequest, reply: Reply, raw: str) -> Reply:
    """Copy the reply with those failed calls that may be passed on; if none may, all its text becomes content.

    A call to an unknown tool is left for the client to refuse, unless the request named the tool to call. A call whose
    arguments do not match the schema is passed on if the server itself returned it as a call, or if `on_malformed` is
    `call`. The app then returns an error to the model. If the call became text instead, an agent would treat that text
    as the answer and stop.
    """
    calls = [
        _with_sent_arguments(failed)
        for failed in reply.malformed
        if _may_pass(request, failed, raw) or _is_servers_call(request, reply, failed)
    ]
    if not calls:
        return _as_content(reply, raw)
    if not request.parallel_calls:
        calls = calls[:1]
    notes = tuple(map(_handed_over_note, calls))
    return replace(reply, calls=tuple(calls)).with_trace(notes=reply.trace.notes + notes)


def _with_unfit_beside(request: ToolRequest, reply: Reply, raw: str) -> Reply:
    """Copy a reply that has valid calls, and add those calls from the server that failed the checks.

    The reply is not requested again, so without the failed calls the app would miss part of what the model asked for.
    The failed calls come last, since a stream has already sent the valid ones.
    """
    if not (reply.calls and reply.malformed and request.parallel_calls):
        return reply
    calls = [
        _with_sent_arguments(failed)
        for failed in reply.malformed
        if failed.dialect == NATIVE
        and (_is_servers_call(request, reply, failed) or _is_unknown_call(request, reply, failed, raw))
    ]
    notes = tuple(map(_handed_over_note, calls))
    return replace(reply, calls=(*reply.calls, *calls)).with_trace(notes=reply.trace.notes + notes) if calls else reply


def _is_unknown_call(request: ToolRequest, reply: Reply, failed: Malformed, raw: str) -> bool:
    """Return whether the server returned a complete call to a tool that the request does not declare."""
    if failed.reason != "unknown_tool" or _is_misread_header(failed):
        return False
    return reply.finish_reason in COMPLETE_REASONS and _may_pass(request, failed, raw)


def _handed_over_note(call: Call) -> str:
    return f"call of {call.name!r} handed over although it failed the checks"


def _may_pass(request: ToolRequest, failed: Malformed, raw: str) -> bool:
    if failed.call is None:
        return False
    if failed.reason == "unknown_tool":
        meant = not _is_in_fence(failed, raw)
        return meant and request.choice.kind in {"auto", "required"} and request.options.on_malformed != "error"
    tool = request.tools.get(failed.name or "")
    return request.options.on_malformed == "call" and not (tool is not None and tool.strict)


def _is_servers_call(request: ToolRequest, reply: Reply, failed: Malformed) -> bool:
    """Return whether the server returned a call to an offered tool with arguments that do not match the tool's schema.

    The reply must be complete. The arguments must be a single JSON object: if a server concatenated several objects, it
    is uncertain which of them is meant. The tool must not be strict, and `on_malformed` must be `content`.
    """
    if failed.call is None or failed.dialect != NATIVE or failed.reason != "invalid_arguments":
        return False
    tool = request.offered.get(failed.call.name)
    if tool is None or tool.strict or request.options.on_malformed != "content":
        return False
    return reply.finish_reason in COMPLETE_REASONS and _given_arguments(failed) is not None


def _given_arguments(failed: Malformed) -> tuple[dict[str, Any], str] | None:
    """Return a structured call's arguments, both parsed and as the server sent them; None if not strict JSON.

    Missing arguments count as `{}`, because vLLM sends an empty string for a call without arguments.
    """
    text = failed.raw.strip() or "{}"
    value, _, end = read_members(text)
    return (value, text) if end == len(text) else None


def _with_sent_arguments(failed: Malformed) -> Call:
    """Return a failed call with its arguments as the server sent them, instead of a partial repair.

    If any of these arguments was unescaped, the call is returned unchanged, since the app has never seen the escaped
    form.
    """
    call = failed.call
    assert call is not None
    given = _given_arguments(failed) if failed.dialect == NATIVE else None
    if given is None or any(fix.kind == "escape" for fix in call.fixes):
        return call
    arguments, text = given
    fixes = tuple(fix for fix in call.fixes if fix.kind == "name")
    return replace(call, arguments=arguments, arguments_json=text, fixes=fixes)


def _is_in_fence(failed: Malformed, raw: str) -> bool:
    """Return whether a call to an unknown tool is in a code fence; such a call is treated as an example."""
    at = raw.find(failed.raw) if failed.dialect != NATIVE and failed.raw else -1
    return at >= 0 and len(_FENCE.findall(raw, 0, at)) % 2 == 1


def _malformed(request: ToolRequest, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool) -> Verdict:
    reasons = {failed.reason for failed in reply.malformed}
    what = ", ".join(f"{failed.name or 'a call'}: {failed.reason}" for failed in reply.malformed)
    if "truncated" in reasons:
        # a retry would be cut again; another mode may cost fewer tokens, which can help where the server set the limit
        elsewhere = reply.finish_reason != "length"
        return Verdict("truncated", _as_content(reply, raw), what, retry_elsewhere=elsewhere)
    if not harmony and reasons == {"unknown_tool"} and all(map(_is_misread_header, reply.malformed)):
        what = f"the server took a part of a Harmony header for a tool ({what})"
        return Verdict("swallowed", _as_content(reply, raw), what, retry_elsewhere=True)
    kind: VerdictKind = "unknown_tool" if reasons == {"unknown_tool"} else "malformed"
    if kind == "unknown_tool" and request.choice.kind == "named":
        kind = "no_call"
    feedback = _correction(request, reply, raw, sent, harmony=harmony)
    return Verdict(
        kind,
        _with_failed_calls(request, reply, raw),
        what,
        retry_with_feedback=True,
        retry_elsewhere=True,
        feedback=feedback,
    )


def _is_misread_header(failed: Malformed) -> bool:
    """Return whether the server mistook part of a Harmony header for a tool name.

    False for every call that promptools itself parsed from text.
    """
    return failed.dialect == NATIVE and is_header_part(failed.name or "")


def _correction(
    request: ToolRequest, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool
) -> tuple[dict[str, Any], ...]:
    """Build the feedback: the failed calls with error results, or the text and a user message.

    The calls are used only if all of them can be encoded as calls. As in all messages, they have the client's tool
    names, since the mode renames calls later. Texts contain the names that were sent to the server.
    """
    failed = reply.malformed
    if harmony and request.options.harmony_react:
        errors = " ".join(_error_text(request, item, sent) for item in failed)
        # for an unparsable call, HarmonyReAct's paper sends the feedback for a missing call, its code the error
        return _reasoning_feedback((reply.reasoning, raw, f"{ERROR_PREFIX}{errors}", NO_CALL_OR_ANSWER))
    encoded = [item.call or (_unparsed_call(number, item) if harmony else None) for number, item in enumerate(failed)]
    calls = [call for call in encoded if call is not None]
    if len(calls) == len(failed):
        assistant = {
            "role": "assistant",
            "content": reply.content or None,
            **_reasoning_field(reply, harmony=harmony),
            "tool_calls": [encode_call(call) for call in calls],
        }
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": _error_text(request, item, sent)}
            for call, item in zip(calls, failed, strict=True)
        ]
        return (assistant, *results)
    return _text_feedback(reply, raw, " ".join(_error_text(request, item, sent) for item in failed), harmony=harmony)


def _unparsed_call(number: int, failed: Malformed) -> Call | None:
    """Return a failed call with its arguments only as text, because arguments in Harmony need not be JSON."""
    return Call(f"failed{number}", failed.name, {}, failed.raw) if failed.name else None


def _reasoning_field(reply: Reply, *, harmony: bool) -> dict[str, str]:
    """Return the message field with the reasoning, so that gpt-oss continues from it; empty outside harmony mode."""
    return {"reasoning": reply.reasoning} if harmony and reply.reasoning else {}


def _text_feedback(reply: Reply, raw: str, text: str, *, harmony: bool) -> tuple[dict[str, Any], ...]:
    """Return the feedback: an assistant message with the model's output, if any, and a user message with `text`."""
    content = reply.content if harmony else raw  # not the headers: rendered again, they would be ordinary text
    assistant = {"role": "assistant", "content": content, **_reasoning_field(reply, harmony=harmony)}
    user = {"role": "user", "content": text}
    return (assistant, user) if content.strip() or "reasoning" in assistant else (user,)


def _reasoning_feedback(parts: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Return an assistant message with only reasoning: the model's output, and what is wrong with the output."""
    return ({"role": "assistant", "content": "", "reasoning": "\n\n".join(filter(str.strip, parts))},)


def _error_text(request: ToolRequest, failed: Malformed, sent: Mapping[str, str]) -> str:
    """Return what is wrong with a call. If its tool is unknown, also list the tools by the names that were sent."""
    if failed.reason != "unknown_tool":
        return failed.message
    name = failed.name or ""
    if request.offered.get(name) is None:  # otherwise the model used a name that only the client knows
        name = sent.get(name, name)
    if request.choice.kind == "named":
        return f"{name!r} must not be called now. {_call_instruction(request, sent)}"
    names = _sent_names(request, sent)
    matches = difflib.get_close_matches(name[:100], names if len(names) <= MAX_COMPARED else [], n=1)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    return f"There is no tool {name!r}, so nothing was done.{hint} The tools are: {format_names(names)}."


def _sent_names(request: ToolRequest, sent: Mapping[str, str]) -> list[str]:
    """Return the names of the offered tools as they were sent to the model."""
    return [sent.get(name, name) for name in request.offered.names]


def _call_instruction(request: ToolRequest, sent: Mapping[str, str]) -> str:
    if request.choice.name is not None:
        return f"Call the tool {sent.get(request.choice.name, request.choice.name)} now; do not answer in plain text."
    return f"Call one of these tools now; do not answer in plain text: {format_names(_sent_names(request, sent))}."


def _missing_call(request: ToolRequest, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool) -> Verdict:
    why = f"no call, and tool_choice is {request.choice.kind}" + (
        f" ({request.choice.name})" if request.choice.name else ""
    )
    again = reply.finish_reason != "length"
    feedback = _text_feedback(reply, raw or reply.content, _call_instruction(request, sent), harmony=harmony)
    return Verdict(
        "no_call", _as_content(reply, raw), why, retry_with_feedback=again, retry_elsewhere=True, feedback=feedback
    )


def _missing_tokens(request: ToolRequest, reply: Reply, raw: str, usage: Mapping[str, Any] | None) -> str:
    """Return the evidence that the server dropped a part of the reply; empty if there is none.

    Ollama drops a call after text if the called tool was not offered. In a stream, vLLM's hermes parser drops all text
    after a quoted tag. A token is at least one byte, so a reply with fewer bytes than tokens is incomplete. A long text
    can hide a lost short call. If the request hides the reasoning, the result is empty, since the server counts the
    hidden tokens too.
    """
    profile, hides_thoughts = request.profile, request.body.get("include_reasoning") is False
    drops = profile.cuts_streams if request.stream else profile.wire == "ollama" and profile.swallows
    if not (drops and request.offered) or hides_thoughts:
        return ""
    spent = as_count((usage or {}).get("completion_tokens"))
    size = len(f"{raw or reply.content}{reply.reasoning}".encode(errors="replace"))
    if reply.finish_reason != "stop" or request.n > 1 or spent is None or spent <= size + MAX_HIDDEN_TOKENS:
        return ""
    return f"{spent} completion tokens, and only {size} bytes of text"


def _empty_reply(
    request: ToolRequest, reply: Reply, raw: str, usage: Mapping[str, Any] | None, *, harmony: bool
) -> Verdict:
    """Return the verdict on a reply without content or calls.

    Either its calls were forbidden, or the server lost its content, or the reply is really empty.
    """
    if reply.finish_reason in {"length", "content_filter"}:
        return Verdict("answered", reply)
    if any(note.startswith(FORBIDDEN_PREFIXES) for note in reply.trace.notes):
        feedback = _text_feedback(Reply(), "", "Answer in plain text; no tool may be called now.", harmony=harmony)
        why = "nothing but calls, and none may be made"
        written = "" if harmony and raw.startswith("<|") else raw  # a header alone is not text for a user
        return Verdict(
            "forbidden",
            _as_content(reply, written),
            why,
            retry_with_feedback=True,
            retry_elsewhere=True,
            feedback=feedback,
        )
    if harmony and reply.reasoning.strip():
        feedback = _reasoning_feedback((reply.reasoning, NO_CALL_OR_ANSWER))
        why = "thoughts, and neither a call nor an answer"
        return Verdict(
            "swallowed", _as_content(reply, raw), why, retry_with_feedback=True, retry_elsewhere=True, feedback=feedback
        )
    spent = as_count((usage or {}).get("completion_tokens"))
    # Ollama and LM Studio drop a call that they cannot parse (ollama#11381, lmstudio-bug-tracker#942).
    lost = reply.finish_reason in {"tool_calls", "function_call"} or (
        request.profile.swallows and (bool(reply.reasoning) or spent is None or spent > MAX_EMPTY_TOKENS)
    )
    if not lost:
        return Verdict("answered", reply)
    why = f"an empty answer, finish_reason {reply.finish_reason}"
    why += f", {spent} completion tokens" if spent is not None else ""
    return Verdict("swallowed", _as_content(reply, raw), why, retry_elsewhere=True)
