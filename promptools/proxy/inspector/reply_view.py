"""A model's raw reply as the inspector shows it: decoded from any API, with the meaning of each part.

The reply is parsed by the parser that reads replies for clients, with the options of the request. The command
`promptools parse --explain` prints the same explanation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.engine.parser import ExplainingParser, Explanation, describe_place, explain
from promptools.exchange.upstream import ReplyDecoder, is_stream
from promptools.json_values import try_json
from promptools.modes.history import quotable_texts
from promptools.modes.structured_calls import CollectedChoice
from promptools.modes.tool_names import rename_tools
from promptools.schema import Tools
from promptools.types import Call, Fix, Malformed, Reply
from promptools.wire.json_body import as_object

if TYPE_CHECKING:
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles.profile import Api
    from promptools.proxy.inspector.exchange_store import KeptSend

HARMONY = "harmony"
MAX_TRIES_SHOWN = 200
FIX_WORDS = {
    "json": "the JSON was repaired",
    "closer": "a missing end was added",
    "unwrap": "a wrapper around the call was removed",
    "alias": "a parameter had another of its names",
    "split": "a key held the parameter's value too",
    "name": "the tool's name was spelled differently",
    "infer": "no tool was named, and the arguments fit only this one",
    "coerce": "a value was converted to the type that the schema wants",
    "marker": "the markers around the call were irregular",
    "duplicate": "a key occurred twice, and its last value counts",
    "escape": "text that was escaped in the request was restored",
    "unchecked": "the arguments were not checked against the schema",
}
MALFORMED_WORDS = {
    "truncated": "the text ended inside the call",
    "invalid_json": "the arguments are not JSON, even with every repair",
    "invalid_arguments": "the arguments do not fit the tool's schema",
    "unknown_tool": "no tool of this name was offered",
    "not_an_object": "the arguments are JSON, but not an object",
    "limit": "nested too deeply, or a number too long to read",
}


@dataclass(frozen=True, slots=True)
class RawReply:
    """The decoded response of a server."""

    choices: dict[int, CollectedChoice]
    usage: dict[str, Any] | None
    problem: str
    """The error that the body reports, or why the body is not a reply; empty if the body is a good reply."""


def decode_reply(send: KeptSend, api: Api) -> RawReply:
    """Decode the kept part of a successful response's body."""
    opened = send.opened
    asked = as_object(try_json(send.body.data)).get("stream") is True
    streamed = opened is not None and is_stream(opened.headers, asked=asked)
    decoder = ReplyDecoder(streamed, api, choices=send.sent.choices)
    choices: dict[int, CollectedChoice] = {}
    for delta in [*decoder.feed(send.response.data), *decoder.close()]:
        choices.setdefault(delta.index or 0, CollectedChoice()).add(delta)
    error = decoder.server_error.message if decoder.server_error else decoder.decode_error
    return RawReply(choices, decoder.usage, error or "")


def new_parser(request: ToolRequest, prepared: PreparedRequest, *, reasoning: bool) -> ExplainingParser:
    """Return a parser with the options of the parser that read the reply for the client.

    `reasoning` says whether the server sent reasoning in a separate field.
    """
    known = request.profile.in_reasoning if prepared.in_reasoning is None else prepared.in_reasoning
    sent_names = {name: sent_name for sent_name, name in prepared.client_names.items()}
    harmony = prepared.dialect == HARMONY
    return ExplainingParser(
        Tools([]) if request.choice.kind == "none" else rename_tools(request.tools, sent_names),
        dialect=HARMONY if harmony else None,
        expect=None if harmony else prepared.dialect,
        strictness=request.options.strictness,
        in_reasoning=known and not reasoning,
        json_answer=request.json_answer,
        rescue=request.options.rescue,
        accept=request.accepted_dialects,
        sources=quotable_texts(request.messages),
        restore=prepared.restore,
    )


def explain_choice(choice: CollectedChoice, request: ToolRequest, prepared: PreparedRequest) -> Explanation:
    """Parse the text of a choice in the same way as for the client, and explain the result."""
    parser = new_parser(request, prepared, reasoning=bool(choice.reasoning))
    return explain(parser, prepared.prefill + choice.content, choice.finish_reason)


def view_choice(index: int, choice: CollectedChoice, explanation: Explanation | None) -> dict[str, Any]:
    """Return the JSON data of a choice; without an explanation, all of its text counts as content."""
    view: dict[str, Any] = {
        "index": index,
        "finish_reason": choice.finish_reason,
        "reasoning": choice.reasoning,
        "native_calls": [{"name": call.name, "arguments": call.arguments} for call in choice.calls],
    }
    if explanation is None:
        return {**view, "parts": [{"kind": "content", "text": choice.content}] if choice.content else []}
    return {**view, **view_explanation(explanation)}


def view_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return the JSON data of a parsed text: its parts, the reply, and the first attempts to read a call.

    At most `MAX_TRIES_SHOWN` attempts are included.
    """
    text, reply = explanation.text, explanation.reply
    labels = {call.span: f"{call.name} · {call.dialect}" for call in reply.calls}
    labels |= {piece.span: MALFORMED_WORDS[piece.reason] for piece in reply.malformed}
    labels |= {piece.span: piece.why for piece in reply.discarded}
    return {
        "parts": [
            {"kind": kind, "text": text[span.start : span.end], "label": labels.get(span, ""), "start": span.start}
            for span, kind in explanation.parts
        ],
        "tries": [
            {
                "strategy": attempt.strategy,
                "on": describe_place(text, attempt.span),
                "span": list(attempt.span),
                "outcome": attempt.outcome,
                "why": attempt.why,
                "cost": attempt.cost,
            }
            for attempt in explanation.tries[:MAX_TRIES_SHOWN]
        ],
        "tries_left_out": max(0, len(explanation.tries) - MAX_TRIES_SHOWN),
        "read": view_reply(reply),
    }


def view_reply(reply: Reply) -> dict[str, Any]:
    """Return the JSON data of a reply as the app received it, with each fix described in words."""
    return {
        "content": reply.content,
        "reasoning": reply.reasoning,
        "calls": [_view_call(call) for call in reply.calls],
        "malformed": [_view_malformed(piece) for piece in reply.malformed],
        "fixes": list(map(fix_in_words, reply.fixes)),
        "finish_reason": reply.finish_reason,
    }


def fix_in_words(fix: Fix) -> str:
    """Return a fix as a sentence."""
    place = f" (at {fix.path})" if fix.path else ""
    return f"{FIX_WORDS[fix.kind]}: {fix.detail}{place}" if fix.detail else f"{FIX_WORDS[fix.kind]}{place}"


def _view_call(call: Call) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": call.arguments_json,
        "dialect": call.dialect,
        "unknown_tool": call.unknown_tool,
        "fixes": list(map(fix_in_words, call.fixes)),
    }


def _view_malformed(piece: Malformed) -> dict[str, Any]:
    return {
        "name": piece.name or "",
        "why": MALFORMED_WORDS[piece.reason],
        "message": piece.message,
        "dialect": piece.dialect,
        "raw": piece.raw,
    }
