"""Judge a reply against its request: it goes to the client, back to the model to be mended, or to another mode."""

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
    "answered",  # the reply is what was asked for
    "malformed",  # calls, but none that can be used
    "truncated",  # the only calls were cut off
    "unknown_tool",  # only calls of tools that were not offered
    "no_call",  # a call was required, or a certain one, and is not there
    "forbidden",  # nothing but calls, under tool_choice none
    "swallowed",  # the server lost the reply: nothing is left of what the model said
    "empty_calls",  # the server speaks of calls and sends none, but there is content
    "format",  # an answer that is not in the form that `response_format` asks for
    "cut",  # the stream ended without a finish reason
]
HARMONY_CALL = IDS["call"]
"""`<|call|>`, the token that ends a gpt-oss call; vLLM gives it as `stop_reason`, parsed or not."""
NEITHER = (
    "Cannot find <|channel|>commentary or <|channel|>final in the response above."
    " In your next step, be careful with the channel format."
)
"""What a model that speaks Harmony is told when it only thought (HarmonyReAct's words, as its code has them)."""
FAILED = "Failed to process response: "
"""What goes before an error there."""
HEADER_WORDS = frozenset(("code", "json", "assistant", "analysis", "commentary", "final"))
"""What vLLM calls the tool where it misread a malformed header (measured on 0.28 and 0.32); no tool was offered so."""
_MARKUP = re.compile(r"[<>{}]")
"""What stands in no name: vLLM 0.28 gives all that it finds behind `to=` for one, arguments too."""
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
NO_NAMES: Mapping[str, str] = MappingProxyType({})
MOST_COMPARED = 1000
"""Names that a wrong one is compared with: it costs some 10 us each."""
FEW = 3
"""An empty answer of up to so many tokens is an empty answer: the end-of-turn token costs one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a reply."""

    kind: VerdictKind
    reply: Reply
    """What the client gets if nothing better comes: everything that was said, by `on_malformed`."""
    why: str = ""
    """In words, for the trace."""
    again: bool = False
    """May asking again with `feedback` help? Never for a call that was cut off."""
    elsewhere: bool = False
    """May another mode, or another try, help?"""
    feedback: tuple[dict[str, Any], ...] = ()
    """What to add to the conversation when asking again, in the client's shape: what was said, and what to mend."""

    @property
    def ok(self) -> bool:
        """Tell whether the reply is what was asked for."""
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
    """Judge a complete reply; `raw` is its reader's, `usage` that of this send alone, `names` those of its `Upstream`.

    `harmony`: the reply was read from Harmony by us, so no server can have lost anything of it. Valid calls beside
    malformed ones are an answer. In the verdict's reply a call is never one that was cut off.
    """
    reply = _say_length(ask, reply, usage)
    sent = {name: other for other, name in names.items()}
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
    """Judge an answer by the form that it was to have; one that was cut would be cut again."""
    why = "" if reply.finish_reason in {"length", "content_filter"} else misfit(ask, reply.content)
    if not why:
        return Verdict("answered", reply)
    feedback = _say(reply, raw or reply.content, in_words(ask, "Write this answer as"), harmony=harmony)
    return Verdict("format", reply, why, feedback=feedback)


def _answers_none(ask: Ask, reply: Reply) -> bool:
    """Tell whether words answer a request that forbade calls: a call beside them is no loss."""
    return ask.choice.kind == "none" and bool(reply.content.strip())


def _say_length(ask: Ask, reply: Reply, usage: Mapping[str, Any] | None) -> Reply:
    """Set `length` where the server hid it: some call a reply that ran into `max_tokens` `tool_calls` or `stop`."""
    limit = ask.max_tokens
    spent = as_count((usage or {}).get("completion_tokens"))
    cut = any(each.reason == "truncated" for each in reply.malformed)
    if cut and limit is not None and spent is not None and spent >= limit and reply.finish_reason is not None:
        return replace(reply, finish_reason="length")
    return reply


def _as_text(reply: Reply, raw: str) -> Reply:
    """Give everything as content, byte for byte, and no calls."""
    cut = reply.finish_reason == "length" or any(each.reason == "truncated" for each in reply.malformed)
    finish = "content_filter" if reply.finish_reason == "content_filter" else "length" if cut else "stop"
    return replace(reply, calls=(), content=raw or reply.content, finish_reason=finish)


def _handed_over(ask: Ask, reply: Reply, raw: str) -> Reply:
    """Give the failed calls that may still be handed over as calls; without any, everything as content.

    A call of an unknown tool is the client's to refuse, unless the request named the tool to call. A call that does
    not fit goes only where `on_malformed` says so, and never to a tool that is `strict`.
    """
    calls = [each.call for each in reply.malformed if each.call is not None and _may_pass(ask, each, raw)]
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
    """Whether a call of an unknown tool is in a fence: an example, once the model was asked and it stays."""
    at = raw.find(failed.raw) if failed.dialect != NATIVE and failed.raw else -1
    return at >= 0 and len(_FENCE.findall(raw, 0, at)) % 2 == 1


def _malformed(ask: Ask, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool) -> Verdict:
    reasons = {each.reason for each in reply.malformed}
    what = ", ".join(f"{each.name or 'a call'}: {each.reason}" for each in reply.malformed)
    if "truncated" in reasons:
        # asked again it would be cut again; another mode costs fewer tokens at best where the server set the limit
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
    """Whether the server took a part of a header for a tool: what was read here from text is what the model wrote."""
    name = failed.name or ""
    return failed.dialect == NATIVE and (name in HEADER_WORDS or _MARKUP.search(name) is not None)


def _mend(ask: Ask, reply: Reply, raw: str, sent: Mapping[str, str], *, harmony: bool) -> tuple[dict[str, Any], ...]:
    """Write what was said and what to mend: as calls with failed results where the calls can be written at all.

    Calls bear the client's names, as in all messages, and the mode gives them those of the wire; words are ours alone.
    """
    failed = reply.malformed
    if harmony and ask.options.harmony_react:
        errors = " ".join(_message(ask, each, sent) for each in failed)
        # its paper tells the model the same of a call that cannot be parsed as of none, its code what went wrong
        return _as_thought((reply.reasoning, raw, f"{FAILED}{errors}", NEITHER))
    written = [each.call or (_as_made(place, each) if harmony else None) for place, each in enumerate(failed)]
    calls = [call for call in written if call is not None]
    if len(calls) == len(failed):
        said = {
            "role": "assistant",
            "content": reply.content or None,
            **_thoughts(reply, harmony=harmony),
            "tool_calls": [call_json(call) for call in calls],
        }
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": _message(ask, each, sent)}
            for call, each in zip(calls, failed, strict=True)
        ]
        return (said, *results)
    return _say(reply, raw, " ".join(_message(ask, each, sent) for each in failed), harmony=harmony)


def _as_made(place: int, failed: Malformed) -> Call | None:
    """Give a call as the model made it: Harmony has a place for arguments that are no JSON."""
    return Call(f"failed{place}", failed.name, {}, failed.raw) if failed.name else None


def _thoughts(reply: Reply, *, harmony: bool) -> dict[str, str]:
    """Give what the model thought, where it is to see that again: gpt-oss goes on from its thoughts."""
    return {"reasoning": reply.reasoning} if harmony and reply.reasoning else {}


def _say(reply: Reply, raw: str, text: str, *, harmony: bool) -> tuple[dict[str, Any], ...]:
    """Give a turn of the model with what it said, if anything, and one of the user."""
    words = reply.content if harmony else raw  # not the headers: it gets others, and its own would be ordinary text
    said = {"role": "assistant", "content": words, **_thoughts(reply, harmony=harmony)}
    user = {"role": "user", "content": text}
    return (said, user) if words.strip() or "reasoning" in said else (user,)


def _as_thought(parts: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Give a turn in which the model has thought all this: what it said, and what is wrong with it."""
    return ({"role": "assistant", "content": "", "reasoning": "\n\n".join(filter(str.strip, parts))},)


def _message(ask: Ask, failed: Malformed, sent: Mapping[str, str]) -> str:
    """Say what is wrong with a call, with the tools where the name was wrong; names are those that the model knows."""
    if failed.reason != "unknown_tool":
        return failed.message
    name = failed.name or ""
    if ask.offered.get(name) is None:  # else the model took the client's own name from somewhere, and there is none
        name = sent.get(name, name)
    if ask.choice.kind == "named":
        return f"{name!r} must not be called now. {_forced(ask, sent)}"
    names = _names(ask, sent)
    near = difflib.get_close_matches(name[:100], names if len(names) <= MOST_COMPARED else [], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"There is no tool {name!r}, so nothing was done.{hint} The tools are: {listed(names)}."


def _names(ask: Ask, sent: Mapping[str, str]) -> list[str]:
    """Give the offered tools as the model knows them."""
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
    """Judge a reply without content and calls: lost by the server, forbidden by the request, or simply empty."""
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
