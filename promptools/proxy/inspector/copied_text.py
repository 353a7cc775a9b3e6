"""What the page copies: a request as a curl command, and a reply as a test case."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

from promptools.engine import parse
from promptools.masking import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange import Headers
    from promptools.proxy.inspector.exchange_store import KeptBody

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONNECTION_FIELDS = frozenset({"host", "content-length", "accept-encoding", "connection", "user-agent", "accept"})
_SDK_FIELDS = ("x-stainless-",)
_KEY_FIELDS = {"authorization": "Bearer ", "x-api-key": "", "api-key": "", "x-goog-api-key": ""}


def as_curl(method: str, url: str, headers: Headers, body: KeptBody, *, needs_key: bool = False) -> str:
    """Return a shell command that sends a request again, with $KEY in place of its key; empty if its body was cut.

    With `needs_key` it sends one even if the kept request has none: the proxy removes the keys of its own clients.
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
    """Return a line of JSON with a reply, the arguments of `parse`, and what `parse` makes of it."""
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
