"""Judge a complete reply against its request: answer the client, ask the model to correct it, or try another mode.

A verdict says what is wrong with a reply, what the client gets if no attempt does better, and what may help: asking the
same mode again with feedback (`again`), or another mode (`elsewhere`). A call that was cut off is never asked for again
in the same mode, since it would be cut again. Valid calls beside malformed ones are an answer.

Replies that the server lost are recognized by what it leaves of them: an empty answer that cost tokens, a finish or
stop reason of a call without the call, a tool named after a piece of a Harmony header.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from promptools.harmony.tokens import IDS
from promptools.modes.form import in_words, misfit
from promptools.modes.gate import FORBIDDEN
from promptools.modes.structured import NATIVE
from promptools.schema.spelling import listed
from promptools.types import Call, Reply
from promptools.wire.chunks import call_json
from promptools.wire.shapes import as_count

if TYPE_CHECKING:
    from promptools.modes.ask import Ask
    from promptools.types import Malformed

VerdictKind = Literal[
    "answered",  # the reply is what the request asked for
    "malformed",  # calls, none of them usable
    "truncated",  # the only calls were cut off
    "unknown_tool",  # only calls of tools that were not offered
    "no_call",  # a call, or one of a named tool, was required and is missing
    "forbidden",  # only calls, under tool_choice none
    "swallowed",  # the server lost the reply: nothing is left of the model's output
    "empty_calls",  # the server reports calls and sends none, but there is content
    "format",  # an answer that does not fit `response_format`
    "cut",  # the stream ended without a finish reason
]
HARMONY_CALL = IDS["call"]
"""`<|call|>`, the token that ends a gpt-oss call; vLLM reports it as `stop_reason`, whether or not it parsed it."""
NEITHER = (
    "Cannot find <|channel|>commentary or <|channel|>final in the response above."
    " In your next step, be careful with the channel format."
)
"""The feedback to a Harmony reply that is only reasoning (HarmonyReAct's wording, from its code)."""
FAILED = "Failed to process response: "
"""The prefix of an error in HarmonyReAct."""
HEADER_WORDS = frozenset(("code", "json", "assistant", "analysis", "commentary", "final"))
"""The tool names that vLLM reports for a malformed header (measured on 0.28 and 0.32); no offered tool has them."""
_MARKUP = re.compile(r"[<>{}]")
"""Characters of no tool name: vLLM 0.28 takes everything after `to=` for one, arguments too."""
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
NO_NAMES: Mapping[str, str] = MappingProxyType({})
MOST_COMPARED = 1000
"""The most names that an unknown one is compared with, at some 10 us each."""
FEW = 3
"""The most tokens of an answer that is truly empty: the end-of-turn token costs one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a reply, and what may help."""

    kind: VerdictKind
    reply: Reply
    """What the client gets if no attempt does better: everything the model wrote, by `on_malformed`."""
    why: str = ""
    """The reason, as text for the trace."""
    again: bool = False
    """Whether asking again with `feedback` may help; never for a call that was cut off."""
    elsewhere: bool = False
    """Whether another mode, or another attempt, may help."""
    feedback: tuple[dict[str, Any], ...] = ()
    """Messages to add when asking again, in the client's format: the reply, and what to correct."""

    @property
    def ok(self) -> bool:
        """Whether the reply is what the request asked for."""
        return self.kind == "answered"


def verify(
    ask: Ask,
    reply: Reply,
    *,
    raw: str = "",
    stop_reason: str | int | None = None,
    usage: Mapping[str, Any] | None = None,
    harmony: bool = False,
    names: Mapping[str, str] = NO_NAMES,
) -> Verdict:
    """Judge a complete reply.

    `raw` is its reader's, `usage` that of this attempt alone, `names` maps the sent tool names to the client's.
    `harmony`: the reply was parsed from Harmony here, so no server can have lost a part of it. No call in the verdict's
    reply is one that was cut off.
    """
    reply = _say_length(ask, reply, usage)
    sent = {name: sent_name for sent_name, name in names.items()}
    if ask.stream and reply.finish_reason is None:
        return Verdict("cut", _as_text(reply, raw), "the stream ended without a finish reason", elsewhere=True)
    if stop_reason == HARMONY_CALL and not (harmony or reply.calls or reply.malformed or _answers_none(ask, reply)):
        why = "the model ended with a call (stop_reason 200012) and the server sent none"
        return Verdict("swallowed", _as_text(reply, raw), why, elsewhere=True)
    if not reply.calls and reply.malformed:
        return _malformed(ask, reply, raw, sent, harmony=harmony)
    if not reply.calls and ask.choice.forced:
        return _no_call(ask, reply, raw, sent, harmony=harmony)
    if not reply.calls and not reply.content.strip():
        return _empty(ask, reply, raw, usage, harmony=harmony)
    if not reply.calls and reply.finish_reason in {"tool_calls", "function_call"}:
        why = "the server's finish reason speaks of calls and there are none"
        return Verdict("empty_calls", _as_text(reply, ""), why, elsewhere=True)
    if not reply.calls and ask.checks_form:
        return _formed(ask, reply, raw, harmony=harmony)
    return Verdict("answered", reply)


def _formed(ask: Ask, reply: Reply, raw: str, *, harmony: bool) -> Verdict:
    """Judge an answer by its `response_format`; one that was cut off passes, since it would be cut again."""
    why = "" if reply.finish_reason in {"length", "content_filter"} else misfit(ask, reply.content)
    if not why:
        return Verdict("answered", reply)
    feedback = _say(reply, raw or reply.content, in_words(ask, "Write this answer as"), harmony=harmony)
    return Verdict("format", reply, why, feedback=feedback)


def _answers_none(ask: Ask, reply: Reply) -> bool:
    """Return whether text answers a request that forbade calls, so that a lost call does not matter."""
    return ask.choice.kind == "none" and bool(reply.content.strip())


def _say_length(ask: Ask, reply: Reply, usage: Mapping[str, Any] | None) -> Reply:
    """Set `length` where the server hid it: some report `tool_calls` or `stop` for a reply that hit `max_tokens`."""
    limit = ask.max_tokens
    spent = as_count((usage or {}).get("completion_tokens"))
    cut = any(failed.reason == "truncated" for failed in reply.malformed)
    if cut and limit is not None and spent is not None and spent >= limit and reply.finish_reason is not None:
        return replace(reply, finish_reason="length")
    return reply


def _as_text(reply: Reply, raw: str) -> Reply:
    """Copy the reply with everything as content, byte for byte, and no calls."""
    cut = reply.finish_reason == "length" or any(failed.reason == "truncated" for failed in reply.malformed)
    finish = "content_filter" if reply.finish_reason == "content_filter" else "length" if cut else "stop"
    return replace(reply, calls=(), content=raw or reply.content, finish_reason=finish)


def _handed_over(ask: Ask, reply: Reply, raw: str) -> Reply:
    """Copy the reply with the failed calls that may still be passed on; without any, everything is content.

    A call of an unknown tool is left for the client to refuse, unless the request named the tool to call. A call that
    fails its schema is passed on only where `on_malformed` is `call`, and never to a `strict` tool.
    """
    calls = [failed.call for failed in reply.malformed if failed.call is not None and _may_pass(ask, failed, raw)]
    if not calls:
        return _as_text(reply, raw)
    if not ask.parallel:
        calls = calls[:1]
    notes = tuple(f"call of {call.name!r} handed over although it failed the checks" for call in calls)
    return replace(reply, calls=tuple(calls)).with_trace(notes=reply.trace.notes + notes)


def _may_pass(ask: Ask, failed: Malformed, raw: str) -> bool:
    if failed.reason == "unknown_tool":
        meant = not _is_shown(failed, raw)
        return meant and ask.choice.kind in {"auto", "required"} and ask.options.on_malformed != "error"
    tool = ask.tools.get(failed.name or "")
    return ask.options.on_malformed == "call" and not (tool is not None and tool.strict)


def _is_shown(failed: Malformed, raw: str) -> bool:
    """Whether a call of an unknown tool is in a code fence, and so an example if the model repeats it when asked."""
    at = raw.find(failed.raw) if failed.dialect != NATIVE and failed.raw else -1
    return at >= 0 and len(_FENCE.findall(raw, 0, at)) % 2 == 1


def _malformed(ask: Ask, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool) -> Verdict:
    reasons = {failed.reason for failed in reply.malformed}
    what = ", ".join(f"{failed.name or 'a call'}: {failed.reason}" for failed in reply.malformed)
    if "truncated" in reasons:
        # a retry would be cut again; another mode may cost fewer tokens, which can help where the server set the limit
        elsewhere = reply.finish_reason != "length"
        return Verdict("truncated", _as_text(reply, raw), what, elsewhere=elsewhere)
    if not harmony and reasons == {"unknown_tool"} and all(map(_misread, reply.malformed)):
        what = f"the server took a part of a Harmony header for a tool ({what})"
        return Verdict("swallowed", _as_text(reply, raw), what, elsewhere=True)
    kind: VerdictKind = "unknown_tool" if reasons == {"unknown_tool"} else "malformed"
    if kind == "unknown_tool" and ask.choice.kind == "named":
        kind = "no_call"
    feedback = _mend(ask, reply, raw, sent, harmony=harmony)
    return Verdict(kind, _handed_over(ask, reply, raw), what, again=True, elsewhere=True, feedback=feedback)


def _misread(failed: Malformed) -> bool:
    """Whether the server took a part of a Harmony header for a tool name; calls parsed here from text are exempt."""
    name = failed.name or ""
    return failed.dialect == NATIVE and (name in HEADER_WORDS or _MARKUP.search(name) is not None)


def _mend(ask: Ask, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool) -> tuple[dict[str, Any], ...]:
    """Build the feedback: calls with failed results where all calls can be encoded, else the text and a user message.

    Calls have the client's tool names, as in all messages, and the mode renames them; the texts have the sent names.
    """
    failed = reply.malformed
    if harmony and ask.options.harmony_react:
        errors = " ".join(_message(ask, item, sent) for item in failed)
        # its paper has the same feedback for an unparsable call as for none, its code has the error
        return _as_thought((reply.reasoning, raw, f"{FAILED}{errors}", NEITHER))
    encoded = [item.call or (_as_made(number, item) if harmony else None) for number, item in enumerate(failed)]
    calls = [call for call in encoded if call is not None]
    if len(calls) == len(failed):
        assistant = {
            "role": "assistant",
            "content": reply.content or None,
            **_thoughts(reply, harmony=harmony),
            "tool_calls": [call_json(call) for call in calls],
        }
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": _message(ask, item, sent)}
            for call, item in zip(calls, failed, strict=True)
        ]
        return (assistant, *results)
    return _say(reply, raw, " ".join(_message(ask, item, sent) for item in failed), harmony=harmony)


def _as_made(place: int, failed: Malformed) -> Call | None:
    """Return a call as the model wrote it: Harmony can hold arguments that are not JSON."""
    return Call(f"failed{place}", failed.name, {}, failed.raw) if failed.name else None


def _thoughts(reply: Reply, *, harmony: bool) -> dict[str, str]:
    """Return the reasoning where the model is to see it again: gpt-oss continues from its reasoning."""
    return {"reasoning": reply.reasoning} if harmony and reply.reasoning else {}


def _say(reply: Reply, raw: str, text: str, *, harmony: bool) -> tuple[dict[str, Any], ...]:
    """Build an assistant message with the model's output, if any, and a user message."""
    content = reply.content if harmony else raw  # not the headers: rendered again, they would be ordinary text
    assistant = {"role": "assistant", "content": content, **_thoughts(reply, harmony=harmony)}
    user = {"role": "user", "content": text}
    return (assistant, user) if content.strip() or "reasoning" in assistant else (user,)


def _as_thought(parts: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Build an assistant message with all parts as reasoning: the output, and what is wrong with it."""
    return ({"role": "assistant", "content": "", "reasoning": "\n\n".join(filter(str.strip, parts))},)


def _message(ask: Ask, failed: Malformed, sent: Mapping[str, str]) -> str:
    """Describe what is wrong with a call, and list the tools where the name was wrong, under their sent names."""
    if failed.reason != "unknown_tool":
        return failed.message
    name = failed.name or ""
    if ask.offered.get(name) is None:  # otherwise the model used a name that only the client knows
        name = sent.get(name, name)
    if ask.choice.kind == "named":
        return f"{name!r} must not be called now. {_forced(ask, sent)}"
    names = _names(ask, sent)
    matches = difflib.get_close_matches(name[:100], names if len(names) <= MOST_COMPARED else [], n=1)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    return f"There is no tool {name!r}, so nothing was done.{hint} The tools are: {listed(names)}."


def _names(ask: Ask, sent: Mapping[str, str]) -> list[str]:
    """Return the sent names of the offered tools."""
    return [sent.get(name, name) for name in ask.offered.names]


def _forced(ask: Ask, sent: Mapping[str, str]) -> str:
    if ask.choice.name is not None:
        return f"Call the tool {sent.get(ask.choice.name, ask.choice.name)} now; do not answer in words."
    return f"Call one of these tools now; do not answer in words: {listed(_names(ask, sent))}."


def _no_call(ask: Ask, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool) -> Verdict:
    why = f"no call, and tool_choice is {ask.choice.kind}" + (f" ({ask.choice.name})" if ask.choice.name else "")
    again = reply.finish_reason != "length"
    feedback = _say(reply, raw or reply.content, _forced(ask, sent), harmony=harmony)
    return Verdict("no_call", _as_text(reply, raw), why, again=again, elsewhere=True, feedback=feedback)


def _empty(ask: Ask, reply: Reply, raw: str, usage: Mapping[str, Any] | None, *, harmony: bool) -> Verdict:
    """Judge a reply without content and calls: lost by the server, forbidden by the request, or truly empty."""
    if reply.finish_reason in {"length", "content_filter"}:
        return Verdict("answered", reply)
    if any(note.startswith(FORBIDDEN) for note in reply.trace.notes):
        feedback = _say(Reply(), "", "Answer in words; no tool may be called now.", harmony=harmony)
        why = "nothing but calls, and none may be made"
        return Verdict(
            "forbidden", _as_text(reply, "" if harmony else raw), why, again=True, elsewhere=True, feedback=feedback
        )
    if harmony and reply.reasoning.strip():
        feedback = _as_thought((reply.reasoning, NEITHER))
        why = "thoughts, and neither a call nor an answer"
        return Verdict("swallowed", _as_text(reply, raw), why, again=True, elsewhere=True, feedback=feedback)
    spent = as_count((usage or {}).get("completion_tokens"))
    lost = reply.finish_reason in {"tool_calls", "function_call"} or (
        ask.profile.swallows and (bool(reply.reasoning) or spent is None or spent > FEW)
    )
    if not lost:
        return Verdict("answered", reply)
    why = f"an empty answer, finish_reason {reply.finish_reason}"
    why += f", {spent} completion tokens" if spent is not None else ""
    return Verdict("swallowed", _as_text(reply, raw), why, elsewhere=True)
