"""An exchange as the inspector's page shows it: its row in the list, and its details.

Views are made only when the page asks for them, not by the code that runs exchanges. Bodies are decoded and replies
parsed here. The details of a request include its prompt, a curl command and a test case to copy. Secrets are masked
everywhere, even where a stream splits them.
"""

from __future__ import annotations

import json
import re
import shlex
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from promptools.engine import parse
from promptools.errors import UsageError, clip, without_credentials
from promptools.harmony.parser import Detokenizer
from promptools.harmony.tokens import raw_text
from promptools.json_values import is_array, is_object, try_json
from promptools.masking import SecretMask, is_secret
from promptools.proxy.inspector.exchange_store import DISCONNECTED, MAX_BODY
from promptools.proxy.inspector.reply_view import HARMONY, decode_reply, explain_choice, view_choice, view_reply
from promptools.types import HealingCost
from promptools.wire.json_body import as_list, as_object, as_text, is_shallow, split_content

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from promptools.exchange import Headers
    from promptools.exchange.observer import Purpose
    from promptools.profiles.profile import Api
    from promptools.proxy.app import Proxy
    from promptools.proxy.inspector.exchange_store import KeptBody, KeptExchange, KeptSend
    from promptools.transport import Session
    from promptools.types import Attempt, Trace
    from promptools.wire.raw_endpoints import RawPrompt


# The prompt of a request to the server, as the page shows it: the text for a raw endpoint, or messages and tools.


def view_prompt(send: KeptSend) -> dict[str, Any]:
    """Return the JSON data of a prompt: its `text` if it was sent as text or token ids, else `messages` and `tools`."""
    sent = send.sent
    prompt = sent.prepared.prompt if sent.prepared is not None else None
    if prompt is not None:
        return {"text": _prompt_text(prompt)}
    body = as_object(try_json(send.body.data))
    return {
        "messages": [_view_message(as_object(message)) for message in as_list(body.get("messages"))],
        "tools": [
            {"name": _tool_name(as_object(tool)), "text": _as_json(tool, indent=2)}
            for tool in as_list(body.get("tools"))
        ],
    }


def _prompt_text(prompt: RawPrompt) -> str:
    """Return the text of a prompt, even if it was sent as token ids."""
    if isinstance(prompt.content, str):
        return prompt.content
    if prompt.text is not None:
        return prompt.text
    if prompt.decode is None:
        return " ".join(map(str, prompt.content))
    detokenizer = Detokenizer(prompt.decode)
    return "".join(map(raw_text, [*detokenizer.feed(prompt.content), *detokenizer.close()]))


def last_question(data: bytes) -> str:
    """Return the text of the last user message in a client's request, in any API; empty if there is none."""
    body = as_object(try_json(data))
    messages = as_list(body.get("messages")) or as_list(body.get("input"))
    for message in map(as_object, reversed(messages)):
        text = split_content(message.get("content"))[0] if message.get("role") == "user" else ""
        if text.strip():
            return " ".join(text.split())
    return " ".join(as_text(body.get("input")).split())


def _view_message(message: dict[str, Any]) -> dict[str, Any]:
    text, others = split_content(message.get("content"))
    calls = [as_object(as_object(call).get("function")) for call in as_list(message.get("tool_calls"))]
    return {
        "role": as_text(message.get("role")),
        "text": text,
        "others": [as_text(part.get("type")) or "part" for part in others],
        "calls": [{"name": as_text(call.get("name")), "arguments": _as_json(call.get("arguments"))} for call in calls],
    }


def _tool_name(tool: dict[str, Any]) -> str:
    return as_text(as_object(tool.get("function")).get("name")) or as_text(tool.get("name"))


def _as_json(value: Any, indent: int | None = None) -> str:
    if isinstance(value, str):
        return value
    return (
        json.dumps(value, ensure_ascii=False, indent=indent) if is_shallow(value) else "nested too deeply to be shown"
    )


# What the page copies: a request as a curl command, and a reply as a test case.


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONNECTION_FIELDS = frozenset({"host", "content-length", "accept-encoding", "connection", "user-agent", "accept"})
_SDK_FIELDS = ("x-stainless-",)
_KEY_FIELDS = {"authorization": "Bearer ", "x-api-key": "", "api-key": "", "x-goog-api-key": ""}


def as_curl(method: str, url: str, headers: Headers, body: KeptBody, *, needs_key: bool = False) -> str:
    """Return a curl command that repeats a request, with $KEY in place of the key; empty if the body was cut off.

    If `needs_key` is true, the command sends a key even if the kept request has none, because the proxy may have
    removed the key.
    """
    if body.left_out:
        return ""
    words = ["curl", "-sS", "-X", shlex.quote(method), shlex.quote(url)]
    if needs_key and not any(name.lower() in _KEY_FIELDS for name, _ in headers):
        headers = (*headers, ("authorization", ""))
    for name, value in headers:
        lower = name.lower()
        if lower in _CONNECTION_FIELDS or lower.startswith(_SDK_FIELDS) or not _TOKEN.fullmatch(name):
            continue
        if lower in _KEY_FIELDS:
            words += ["-H", f'"{lower}: {_KEY_FIELDS[lower]}$KEY"']
        elif not is_secret(name):
            words += ["-H", shlex.quote(f"{name}: {value}")]
    if body.size:
        words += ["--data-binary", shlex.quote(body.data.decode("utf-8", "replace"))]
    return " ".join(words)


def as_case(name: str, text: str, tools: list[Any] | None, options: Mapping[str, Any]) -> str:
    """Return a test case as a line of JSON: a reply's text, the arguments for `parse`, and what `parse` returns."""
    reply = parse(text, tools, **options)
    row = {
        "name": name,
        "text": text,
        "tools": tools,
        "options": dict(options),
        "calls": [[call.name, call.arguments] for call in reply.calls],
        "content": reply.content,
        "reasoning": reply.reasoning,
        "malformed": [piece.reason for piece in reply.malformed],
    }
    return json.dumps(row, ensure_ascii=False)


# Mask secrets that a body contains in pieces: each event of a stream has only a few characters of a text.
#
# A string in an event continues the string at the same place in the JSON of an earlier event. So all strings at one
# place are read as one text. What is masked in this text is masked in the strings over which it is spread; everything
# else stays unchanged.


_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_DATA = re.compile(r"\s*(?:data:)?\s*")


def mask_body(text: str, mask: SecretMask) -> str:
    """Return a body, whole or streamed, with its secrets masked, even those that are spread over several strings."""
    if mask.pattern is None:
        return text
    places: dict[str, list[tuple[int, int, str]]] = {}
    for start, document in _documents(text):
        for place, begins, ends, string in _strings(document):
            places.setdefault(place, []).append((start + begins, start + ends, string))
    changes: list[tuple[int, int, str]] = []
    for strings in places.values():
        masked = mask.pieces([string for _, _, string in strings])
        changes += [
            (start, end, json.dumps(shown, ensure_ascii=False))
            for (start, end, string), shown in zip(strings, masked, strict=True)
            if shown != string
        ]
    parts, at = list[str](), 0
    for start, end, shown in sorted(changes):
        parts += [text[at:start], shown]
        at = end
    return "".join((*parts, text[at:]))


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and the text of each JSON value in a body: the whole body, or each line of a stream."""
    if try_json(text, strict=False) is not None:
        yield 0, text
        return
    start = 0
    for line in text.splitlines(keepends=True):
        found = _DATA.match(line)
        begins = found.end() if found else 0
        yield start + begins, line[begins:]
        start += len(line)


def _strings(document: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield the path, the start, the end and the value of each string in a document."""
    value = try_json(document, strict=False)
    if value is None:
        return
    tokens = list(_STRING.finditer(document))
    known = list(_walk(value, ""))
    if len(known) != len(tokens):  # a name occurs twice in an object, so the paths are not known
        known = [(f"string {number}", "") for number in range(len(tokens))]
    for (place, _), token in zip(known, tokens, strict=True):
        if place is not None:
            yield place, token.start(), token.end(), json.loads(token[0], strict=False)


def _walk(value: Any, place: str) -> Iterator[tuple[str | None, str]]:
    """Yield the path and value of each string, keys included, in the order of the document; a key's path is None."""
    if isinstance(value, str):
        yield place, value
    elif is_object(value):
        for name, entry in value.items():
            yield None, name
            yield from _walk(entry, f"{place}/{name}")
    elif is_array(value):
        for entry in value:  # in a stream, each choice or call has the index of what it continues
            index = entry.get("index", "") if is_object(entry) else ""
            yield from _walk(entry, f"{place}/{index}")


MAX_PREVIEW = 120
MODE_REASONS = ("modes", "raw mode", "harmony_last", "dialect =", "template_dialect =")
"""Prefixes of the sentences in `Target.reasons` that explain the choice of the mode."""


def view_summary(kept: KeptExchange) -> dict[str, Any]:
    """Return the JSON data of an exchange for its row in the page's list."""
    end, now = kept.end, max((send.last_at or send.sent.at for send in kept.sends), default=kept.observed.at)
    replies = end.replies if end else ()
    calls = [call for reply in replies for call in reply.calls]
    attempts = [send for send in kept.sends if send.sent.purpose != "template"]
    view = {
        "id": kept.observed.id,
        "request_id": kept.observed.request_id,
        "number": kept.number,
        "change": kept.change,
        "at": round(kept.wall_time * 1000),
        "api": kept.observed.api,
        "model": end.model if end else "",
        "provider": without_credentials(end.provider) if end else "",
        "state": _state(kept),
        "status": end.status if end else None,
        "mode": _mode(kept),
        "attempts": len(attempts),
        "ms": _ms((end.at if end else now) - kept.observed.at),
        "calls": [call.name for call in calls],
        "fixes": sum(len(call.fixes) for call in calls) + sum(len(reply.fixes) for reply in replies),
        "malformed": sum(len(reply.malformed) for reply in replies),
        "repeated": _repeated(kept),
        "question": _question(kept),
        "error": kept.error,
    }
    masked: dict[str, Any] = SecretMask(kept.secrets).value(view)
    return masked


def view_exchange(kept: KeptExchange, proxy: Proxy, origin: str) -> dict[str, Any]:
    """Return the JSON data of an exchange with all details; `origin` is the proxy's own URL, without a path."""
    end, trace, mask = kept.end, _trace(kept), SecretMask(kept.secrets)
    attempts = _attempts_by_send(kept.sends, trace)
    url = origin + _client_path(kept.observed.api)
    request = kept.observed.request
    view = {
        **view_summary(kept),
        "request": {
            "method": request.method,
            "url": url,
            "headers": _pairs(request.headers),
            **_view_body(kept.body, mask),
            "curl": as_curl(request.method, url, request.headers, kept.body, needs_key=proxy.access.requires_key),
        },
        "why": _why(kept, attempts),
        "reasons": _reasons(kept, proxy.session),
        "notes": list(trace.notes) if trace else [],
        "healing": HealingCost.of([each.attempt for each in end.attempts] if end else ()).to_dict(),
        "sends": [_view_send(kept, send, attempts.get(send.sent.number), mask) for send in kept.sends],
        "replies": [view_reply(reply) for reply in end.replies] if end else [],
        "response": {
            "text": mask_body(end.response.decode("utf-8", "replace"), mask) if end else "",
            "left_out": end is not None and len(end.response) >= MAX_BODY,
        },
        **_bench(kept),
    }
    masked: dict[str, Any] = mask.value(view)
    return masked


def _question(kept: KeptExchange) -> str:
    """Return the beginning of the last question. It is extracted only once, since summaries are made very often."""
    if "question" not in kept.computed:
        kept.computed["question"] = clip(last_question(kept.body.data), MAX_PREVIEW)
    return kept.computed["question"]


def _repeated(kept: KeptExchange) -> bool:
    """Return whether the request's history contains the same call with the same result more than once."""
    return any(send.sent.prepared is not None and send.sent.prepared.repeat_action for send in kept.sends)


def _state(kept: KeptExchange) -> str:
    if kept.end is None:
        return "running"
    if kept.error or kept.end.status is None:
        return "disconnected" if kept.error == DISCONNECTED else "failed"
    failed = kept.end.status >= 400 or kept.end.error_kind or any(reply.malformed for reply in kept.end.replies)
    healed = any(call.fixes for reply in kept.end.replies for call in reply.calls)
    trace = _trace(kept)
    repeated = trace is not None and len(trace.attempts) > 1
    return "failed" if failed else "healed" if healed or repeated else "ok"


def _mode(kept: KeptExchange) -> str:
    trace = _trace(kept)
    if trace is not None and trace.mode:
        return trace.mode
    last = kept.sends[-1].sent if kept.sends else None
    return "" if last is None else "unchanged" if last.purpose == "forward" else last.mode


def _trace(kept: KeptExchange) -> Trace | None:
    """Return the trace of the last reply, which lists all attempts."""
    return kept.end.replies[-1].trace if kept.end and kept.end.replies else None


def _attempts_by_send(sends: list[KeptSend], trace: Trace | None) -> dict[int, Attempt]:
    """Map the numbers of requests to the attempts that sent them; empty if requests and attempts cannot be matched.

    A request that only renders a prompt belongs to the same attempt as the next request.
    """
    last_of_attempt = [
        send.sent
        for send, following in zip_longest(sends, sends[1:])
        if send.sent.purpose != "template" or following is None or following.sent.mode != send.sent.mode
    ]
    attempts = trace.attempts if trace else ()
    if len(attempts) != len(last_of_attempt):
        return {}
    return {sent.number: attempt for sent, attempt in zip(last_of_attempt, attempts, strict=True)}


def _why(kept: KeptExchange, attempts: dict[int, Attempt]) -> list[str]:
    """Return one sentence for each request to the server, with the request's mode or purpose and its outcome."""
    lines: list[str] = []
    for send in kept.sends:
        if send.sent.purpose == "template":
            lines.append("the server rendered its chat template, for raw mode")
            continue
        forwarded = send.sent.purpose == "forward"
        what = "no tools are involved, so the request was passed on as it is" if forwarded else f"{send.sent.mode} mode"
        lines.append(f"{what}: {_outcome(send, attempts.get(send.sent.number), done=kept.end is not None)}")
    return lines


def _outcome(send: KeptSend, attempt: Attempt | None, *, done: bool) -> str:
    if attempt is not None:
        return f"{attempt.outcome}: {attempt.why}" if attempt.why else attempt.outcome
    if send.failed:
        return send.failed
    if send.opened is None:
        return "no response yet"
    if send.opened.status >= 400:
        return f"HTTP {send.opened.status}"
    return "answered" if done else "answering"


def _reasons(kept: KeptExchange, session: Session) -> list[dict[str, Any]]:
    """Return the reasons for the known facts about the server and the model, as JSON data.

    In each reason, `mode` says whether the reason explains the choice of the mode.
    """
    if kept.end is None:
        return []
    provider = kept.end.provider
    named = provider if provider in session.config.providers else session.provider
    trace = _trace(kept)
    try:
        target = session.resolve_target(
            kept.end.model or None,
            base_url=provider if "://" in provider else None,
            provider=named,
            detection=trace.seen if trace else None,
        )
    except UsageError:
        return []
    asked = trace is not None  # a request that was passed on used no mode
    return [{"text": reason, "mode": asked and reason.startswith(MODE_REASONS)} for reason in target.reasons]


def _view_send(kept: KeptExchange, send: KeptSend, attempt: Attempt | None, mask: SecretMask) -> dict[str, Any]:
    sent, began = send.sent, kept.observed.at
    done = kept.end is not None
    return {
        "number": sent.number,
        "purpose": sent.purpose,
        "mode": sent.mode,
        "dialect": (sent.prepared.dialect if sent.prepared else None) or "",
        "start": _ms(sent.at - began),
        "opened": _ms(send.opened.at - began) if send.opened else None,
        "first": _ms(send.first_at - began) if send.first_at is not None else None,
        "end": _ms(send.last_at - began) if send.last_at is not None else None,
        "ok": attempt.outcome == "answered" if attempt else bool(send.opened and send.opened.status < 400),
        "outcome": _outcome(send, attempt, done=done),
        "notes": list(sent.prepared.notes) if sent.prepared else [],
        "request": {
            "method": sent.request.method,
            "url": sent.request.url,
            "headers": _pairs(sent.request.headers),
            **_view_body(send.body, mask),
            "curl": as_curl(sent.request.method, sent.request.url, sent.request.headers, send.body),
        },
        "prompt": view_prompt(send),
        "response": {
            "status": send.opened.status if send.opened else None,
            "headers": _pairs(send.opened.headers) if send.opened else [],
            "failed": send.failed,
            **_view_body(send.response, mask),
        },
        "reply": _view_raw_reply(send, kept.observed.api, mask),
    }


def _view_raw_reply(send: KeptSend, client_api: str, mask: SecretMask) -> dict[str, Any]:
    """Return the JSON data of a raw reply: its choices, with the meaning of each part of their text."""
    if send.sent.purpose == "template" or send.opened is None or not 200 <= send.opened.status < 300:
        return {"choices": [], "usage": None, "problem": ""}
    reply = decode_reply(send, _reply_api(send.sent.purpose, send.sent.reply_api, client_api))
    request, prepared = send.sent.tool_request, send.sent.prepared
    choices = [
        view_choice(
            index,
            choice,
            explain_choice(choice, request, prepared) if request is not None and prepared is not None else None,
        )
        for index, choice in sorted(reply.choices.items())
    ]
    for choice in choices:
        texts = mask.pieces([part["text"] for part in choice["parts"]])
        choice["parts"] = [{**part, "text": text} for part, text in zip(choice["parts"], texts, strict=True)]
    return {"choices": choices, "usage": reply.usage, "problem": reply.problem}


def _reply_api(purpose: Purpose, api: Api, client_api: str) -> Api:
    """Return the API in whose format a response is: Ollama's if an Ollama request was forwarded, else `api`."""
    return "ollama" if purpose == "forward" and client_api == "ollama" else api


def _bench(kept: KeptExchange) -> dict[str, Any]:
    """Return the last reply that has text, as a test case and as input for the page's parser.

    If no reply has text, the test case is empty, and the input is None.
    """
    for send in reversed(kept.sends):
        request, prepared = send.sent.tool_request, send.sent.prepared
        if request is None or prepared is None or send.opened is None or send.opened.status >= 300:
            continue
        choice = decode_reply(send, send.sent.reply_api).choices.get(0)
        tools = request.tools.to_openai()
        if choice is None or not choice.content or not is_shallow(tools):
            continue
        options: dict[str, Any] = {
            "dialect": HARMONY if prepared.dialect == HARMONY else None,
            "expect": None if prepared.dialect == HARMONY else prepared.dialect,
            "strictness": None if request.options.strictness == "balanced" else request.options.strictness,
            "accept": list(request.accepted_dialects) if request.accepted_dialects is not None else None,
            "json_answer": request.json_answer or None,
            "finish_reason": choice.finish_reason,
        }
        options = {name: value for name, value in options.items() if value is not None}
        text = prepared.prefill + choice.content
        name = f"{kept.observed.id} {send.sent.mode}"
        return {
            "case": as_case(name, text, tools, options),
            "bench": {"text": text, "tools": json.dumps(tools, ensure_ascii=False, indent=2), **options},
        }
    return {"case": "", "bench": None}


def _view_body(body: KeptBody, mask: SecretMask) -> dict[str, Any]:
    return {"text": mask_body(body.data.decode("utf-8", "replace"), mask), "size": body.size, "left_out": body.left_out}


def _pairs(headers: Headers) -> list[list[str]]:
    return [[name, value] for name, value in headers]


def _client_path(api: str) -> str:
    known = {"chat": "/v1/chat/completions", "ollama": "/api/chat"}
    return known.get(api) or (api if api.startswith("/") else f"/v1/{api}")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
