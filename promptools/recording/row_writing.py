"""Make a row of one attempt: its bytes are decoded, and everything is left out that no reader needs.

Prompts are left out too. They matter to a reader in one way: a call that is quoted from the conversation is text. So
the passages of the reply that are such quotes are kept, as `quotes`; they are in the reply anyway.
"""

from __future__ import annotations

import sys
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import promptools
from promptools.errors import without_credentials
from promptools.exchange.upstream import ReplyDecoder, is_stream
from promptools.harmony.parser import Detokenizer
from promptools.harmony.tokens import raw_text
from promptools.masking import secrets_in
from promptools.modes.history import quotable_texts
from promptools.modes.options import Options
from promptools.profiles import Profile
from promptools.recording.redaction import Redactor
from promptools.recording.row_reading import (
    FORMAT,
    decode_prepared,
    decode_request,
    parse_reply,
    read_reply,
    read_row,
)
from promptools.schema.tool_definition import marks_of
from promptools.types import Span

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from promptools.exchange import ObservedExchange, Opened, SentRequest
    from promptools.modes.mode import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.wire.chat_decoder import Delta

FACTS = ("accept", "cuts_streams", "in_reasoning", "format_beside_tools", "swallows", "tool_ids")
"""The facts of a profile by which replies are read."""
OPTIONS = ("strictness", "accept", "rescue", "hold", "arguments", "on_malformed", "harmony_react")
"""The options by which replies are read."""


@dataclass(slots=True, eq=False)
class CapturedAttempt:
    """What an observer saw of one attempt."""

    exchange: ObservedExchange
    sent: SentRequest
    at: datetime
    opened: Opened | None = None
    chunks: list[bytes] = field(default_factory=list[bytes])
    ended: bool = False
    """Whether the body was read to its end."""
    broke: str | None = None
    """How it broke off."""
    provider: str = ""
    model: str = ""
    context: Context = field(default_factory=copy_context)
    """The context of the exchange, in which the reply is read: it may know dialects of its own."""


def encode_attempt(attempt: CapturedAttempt, redactor: Redactor, *, messages: bool = False) -> dict[str, Any]:
    """Return the row of an attempt, redacted; with its messages only if `messages`."""
    sent = attempt.sent
    request, prepared = sent.tool_request, sent.prepared
    assert request is not None
    assert prepared is not None
    redactor = redactor.with_secrets(_secrets(attempt))
    decoder, deltas = _decode(attempt)
    tokens: dict[str, str] = {}
    replies = [
        _optional(
            index=index,
            pieces=_redact(_merge(choice, prepared, redactor, tokens), redactor),
            finish_reason=decoder.finish_reasons.get(index),
            stop_reason=decoder.stop_reasons.get(index),
        )
        for index, choice in sorted(deltas.items())
    ]
    row = {
        **_encode_origin(attempt, request),
        **_optional(failed=_failure(attempt, decoder)),
        "ended": decoder.ended,
        "request": _encode_request(request, messages=messages),
        **_optional(
            options=_changed(request.options, Options(), OPTIONS),
            profile=_changed(request.profile, Profile(), FACTS),
            prepared=_encode_prepared(prepared),
            usage=decoder.usage,
        ),
        "replies": replies,
    }
    row = {**redactor.value(row), **({"tokens": tokens} if tokens else {})}
    if not messages:
        row = _with_quotes(row, request.messages)
    row["expected"] = read_row(row)
    return row


def _secrets(attempt: CapturedAttempt) -> set[str]:
    """Return the credentials of the client and of the provider, and those that the response sets."""
    requests = (attempt.exchange.request, attempt.sent.request)
    found = {secret for request in requests for secret in secrets_in(request.headers, request.url)}
    opened = secrets_in(attempt.opened.headers) if attempt.opened is not None else set[str]()
    return found | opened | attempt.exchange.secrets


def _redact(pieces: list[dict[str, Any]], redactor: Redactor) -> list[dict[str, Any]]:
    """Redact what is in several pieces: of one kind, whatever came in between, and of any kinds that follow each other.

    A call that interrupts a text, or arguments that are streamed after those of another call, must not hide a key.
    """
    places = [
        (call["call"], "arguments", f"call {call['call'].get('index')}") if "call" in call else (call, kind, kind)
        for call in pieces
        for kind in call
        if kind != "ids"
    ]
    groups: dict[str, list[tuple[dict[str, Any], str]]] = {"": []}
    for holder, name, group in places:
        groups.setdefault(group, []).append((holder, name))
        groups[""].append((holder, name))
    for strings in groups.values():
        redacted = redactor.pieces([holder[name] for holder, name in strings])
        for (holder, name), text in zip(strings, redacted, strict=True):
            holder[name] = text
    return pieces


def _encode_origin(attempt: CapturedAttempt, request: ToolRequest) -> dict[str, Any]:
    """Return where a row comes from."""
    return {
        "format": FORMAT,
        "promptools": promptools.__version__,
        "time": attempt.at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "exchange": attempt.exchange.id,
        "attempt": attempt.sent.number,
        "provider": without_credentials(attempt.provider),
        "model": attempt.model,
        "family": request.profile.family,
        "mode": attempt.sent.mode,
        "status": attempt.opened.status if attempt.opened else None,
    }


def _decode(attempt: CapturedAttempt) -> tuple[ReplyDecoder, dict[int, list[Delta]]]:
    """Decode the body of a successful response; return the decoder and the deltas of each choice."""
    sent, opened = attempt.sent, attempt.opened
    asked = sent.tool_request is not None and sent.tool_request.stream
    streamed = is_stream(opened.headers, asked=asked) if opened else asked
    decoder = ReplyDecoder(streamed, sent.reply_api, choices=sent.choices)
    deltas: dict[int, list[Delta]] = {}
    if opened is None or not 200 <= opened.status < 300:
        return decoder, deltas
    for chunk in attempt.chunks:
        for delta in decoder.feed(chunk):
            deltas.setdefault(delta.index or 0, []).append(delta)
    for delta in decoder.close() if attempt.ended else ():
        deltas.setdefault(delta.index or 0, []).append(delta)
    return decoder, deltas


def _failure(attempt: CapturedAttempt, decoder: ReplyDecoder) -> str | None:
    """Return why the attempt has no whole reply to judge, in one word."""
    opened = attempt.opened
    if opened is None or attempt.broke:
        return attempt.broke or "disconnected"
    if not 200 <= opened.status < 300:
        return "http"
    if decoder.server_error:
        return "server_error"
    return "garbled" if decoder.decode_error or decoder.limit_error else None


def _merge(
    deltas: list[Delta], prepared: PreparedRequest, redactor: Redactor, tokens: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the pieces of a choice in order, with neighbours of one kind joined.

    Token ids are kept with their bytes, in `tokens`, unless there is something to redact in their text.
    """
    decode = prepared.prompt.decode if prepared.prompt is not None else None
    ids = [token for delta in deltas for token in delta.ids or ()] if decode is not None else []
    pieces: list[dict[str, Any]] = []
    if decode is not None and ids:
        detokenizer = Detokenizer(decode)
        text = "".join(raw_text(piece) for piece in (*detokenizer.feed(ids), *detokenizer.close()))
        if redactor.matches(text):
            return [{"content": text}]
        tokens.update((str(token), _token_text(token, prepared)) for token in ids)
        return [{"ids": ids}]
    for delta in deltas:
        _append(pieces, "reasoning", delta.reasoning)
        _append(pieces, "content", delta.content + delta.refusal)
        for call in delta.tool_calls:
            last = pieces[-1].get("call") if pieces else None
            if last is not None and call.id is None and call.name is None and call.index == last.get("index"):
                last["arguments"] += call.arguments
            else:
                part = _optional(index=call.index, id=call.id, name=call.name)
                pieces.append({"call": {**part, "arguments": call.arguments}})
    return pieces


def _token_text(token: int, prepared: PreparedRequest) -> str:
    """Return the bytes of a token in hexadecimal digits; of one that is not in the vocabulary, none."""
    assert prepared.prompt is not None
    assert prepared.prompt.decode is not None
    try:
        return prepared.prompt.decode(token).hex()
    except (KeyError, IndexError, ValueError):
        return ""


def _append(pieces: list[dict[str, Any]], kind: str, text: str) -> None:
    if text and pieces and kind in pieces[-1]:
        pieces[-1][kind] += text
    elif text:
        pieces.append({kind: text})


def _encode_request(request: ToolRequest, *, messages: bool) -> dict[str, Any]:
    """Return the parts of a request by which its reply is read."""
    marks = {tool.name: marked for tool in request.tools if (marked := marks_of(tool))}
    choice = request.choice
    return {
        "stream": request.stream,
        "tools": request.tools.to_openai(),
        **_optional(
            marks=marks or None,
            offered=None if request.offered.names == request.tools.names else list(request.offered.names),
            other_tools=list(request.other_tools) or None,
            tool_choice=None if choice.kind == "auto" else [choice.kind, choice.name],
            parallel_tool_calls=None if request.parallel_calls else False,
            max_tokens=request.max_tokens,
            response_format=request.body.get("response_format"),
            json_answer=request.json_answer or None,
            legacy=request.legacy or None,
            messages=request.messages if messages else None,
        ),
    }


def _encode_prepared(prepared: PreparedRequest) -> dict[str, Any] | None:
    """Return what the mode made of the request, as far as its reply is read by it."""
    return (
        _optional(
            dialect=prepared.dialect,
            names=dict(prepared.client_names) or None,
            prefill=prepared.prefill or None,
            in_reasoning=prepared.in_reasoning,
            turn_ends=list(prepared.turn_ends) or None,
            escaped=sorted(prepared.restore.forms) if prepared.restore is not None else None,
            examples=[{"name": call.name, "arguments": call.arguments} for call in prepared.examples] or None,
        )
        or None
    )


def _with_quotes(row: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row with the calls in its replies that are quoted from the conversation, and so are text.

    A row that is read otherwise even with them is marked `inexact`.
    """
    quotable = [{"role": "user", "content": text} for text in quotable_texts(messages) if text]
    if not quotable:
        return row
    request, prepared = decode_request(row), decode_prepared(row)
    informed = replace(request, body={**request.body, "messages": quotable})
    wanted = [read_reply(informed, prepared, row, reply) for reply in row["replies"]]
    if wanted == read_row(row):
        return row
    quotes: list[str] = []
    for reply in row["replies"]:
        text = prepared.prefill + "".join(piece.get("content", "") for piece in reply["pieces"])
        known = {call.span for call in parse_reply(informed, prepared, row, reply)[0].calls}
        quotes += (text[start:end].strip() for start, end in _calls_with_markup(request, prepared, row, reply, known))
    row = {**row, "request": {**row["request"], "quotes": list(filter(None, quotes))}}
    return row if wanted == read_row(row) else {**row, "inexact": True}


def _calls_with_markup(
    request: ToolRequest,
    prepared: PreparedRequest,
    row: dict[str, Any],
    reply: dict[str, Any],
    known: Container[Span],
) -> Iterator[Span]:
    """Yield where a reply's calls are that are not `known`, with the markup around them."""
    read, _ = parse_reply(request, prepared, row, reply)
    calls = {call.span for call in read.calls} | {malformed.span for malformed in read.malformed}
    markup = {discarded.span for discarded in read.discarded}
    start = end = 0
    unknown = False
    for span in [*sorted(calls | markup), Span(sys.maxsize, sys.maxsize)]:
        if span.start > end:
            if unknown:
                yield Span(start, end)
            start, unknown = span.start, False
        end = max(end, span.end)
        unknown = unknown or (span in calls and span not in known)


def _changed(value: Any, defaults: Any, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the attributes that differ from the defaults."""
    return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(defaults, name)} or None


def _optional(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {key: value for key, value in values.items() if value is not None}
