"""The inspector as an extension of the proxy: its routes, and the limits on their input.

A browser cannot send an API key when it opens a page. So the page itself is public, and contains no data: it asks for
the key, keeps it for the browser tab, and sends it with every request for data. The data comes from models, servers and
apps, and may be hostile. So the page inserts it only as text, and its content security policy allows no scripts but the
page's own.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from promptools import dialects
from promptools.engine.parser import ExplainingParser, explain
from promptools.errors import UsageError
from promptools.json_values import is_array, is_object, try_json
from promptools.proxy.extension import Extension
from promptools.proxy.inspector.exchange_store import MAX_BYTES, MAX_EXCHANGES, ExchangeStore
from promptools.proxy.inspector.exchange_view import as_case, view_exchange, view_summary
from promptools.proxy.inspector.reply_view import view_explanation
from promptools.wire.json_body import as_text, is_shallow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from promptools.proxy.app import Proxy

PATH = "/inspect"
STATIC = Path(__file__).with_name("static")
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
MAX_BENCH_BODY = 4 * 2**20
"""Maximum number of bytes in a request from the page's bench, where a reply and its tools are pasted to be parsed."""
POLL_SECONDS = 0.2
"""Seconds between two checks for changes, so that even a busy proxy sends a page at most five updates a second."""
STREAM_SECONDS = 2.0
"""Seconds after which a stream of events ends, and the page requests a new one.

The time is short because a proxy that stops waits for all open responses.
"""
POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
))  # fmt: skip
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_BENCH_OPTIONS = {"dialect": str, "expect": str, "strictness": str, "accept": list, "finish_reason": str}
_BENCH_SWITCHES = ("in_reasoning", "json_answer", "rescue")


class Inspector(Extension):
    """Extension that keeps the last exchanges in memory, and shows them on a page at `/inspect`."""

    paths = (PATH,)

    def __init__(self, *, max_exchanges: int = MAX_EXCHANGES, max_bytes: int = MAX_BYTES) -> None:
        self.store = ExchangeStore(max_exchanges=max_exchanges, max_bytes=max_bytes)
        self.observer = self.store
        self._files = {path.name: path for path in sorted(STATIC.iterdir()) if path.suffix in MEDIA_TYPES}
        self.public_paths = (PATH, f"{PATH}/", *(f"{PATH}/static/{name}" for name in self._files))

    def routes(self, proxy: Proxy) -> Sequence[BaseRoute]:
        """Return the routes of the page, and the routes of its data, which require the proxy's key."""
        from starlette.routing import Route

        return [
            Route(PATH, self._page),
            Route(f"{PATH}/static/{{name}}", self._file),
            Route(f"{PATH}/api/exchanges", partial(self._list, proxy)),
            Route(f"{PATH}/api/exchanges", self._clear, methods=["DELETE"]),
            Route(f"{PATH}/api/exchanges/{{id}}", partial(self._detail, proxy)),
            Route(f"{PATH}/api/events", self._events),
            Route(f"{PATH}/api/parse", partial(self._parse, proxy), methods=["POST"]),
        ]

    async def _page(self, _: Request) -> Response:
        return self._static("index.html")

    async def _file(self, request: Request) -> Response:
        return self._static(request.path_params["name"])

    def _static(self, name: str) -> Response:
        from starlette.responses import Response

        path = self._files.get(name)
        if path is None:
            return _json({"error": "there is no such file"}, 404)
        headers = {**HEADERS, "cache-control": "no-cache"}
        return Response(path.read_bytes(), headers=headers, media_type=MEDIA_TYPES[path.suffix])

    async def _list(self, proxy: Proxy, _: Request) -> Response:
        change, kept = self.store.change, self.store.exchanges()
        with dialects.using_own(proxy.session.known_dialects()):
            names = [*dialects.names()]
        view = {
            "store": self.store.id,
            "change": change,
            "exchanges": [view_summary(exchange) for exchange in kept],
            "max_exchanges": self.store.max_exchanges,
            "dialects": names,
        }
        return _json(view)

    async def _clear(self, _: Request) -> Response:
        self.store.clear()
        return _json({"change": self.store.change})

    async def _detail(self, proxy: Proxy, request: Request) -> Response:
        kept = self.store.get(request.path_params["id"])
        if kept is None:
            return _json({"error": "this exchange is not kept any more"}, 404)
        origin = str(request.base_url).rstrip("/")
        with dialects.using_own(proxy.session.known_dialects()):  # the thread gets a copy of the context
            return _json(await anyio.to_thread.run_sync(view_exchange, kept, proxy, origin))

    async def _events(self, request: Request) -> Response:
        from starlette.responses import StreamingResponse

        after = request.query_params.get("after", "0")
        change = int(after) if after.isdecimal() and len(after) < 16 else 0
        if request.query_params.get("store", self.store.id) != self.store.id:
            change = -1  # what the page knows comes from another process
        headers = {**HEADERS, "cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._changes(change), headers=headers, media_type="text/event-stream")

    async def _changes(self, after: int) -> AsyncIterator[bytes]:
        """Yield an event with the changed exchanges whenever there are changes after change number `after`."""
        deadline = anyio.current_time() + STREAM_SECONDS
        yield b": the exchanges that change\n\n"
        while anyio.current_time() < deadline:
            change = self.store.change
            if change != after:
                changed = [view_summary(kept) for kept in self.store.exchanges(after)]
                event = {"store": self.store.id, "change": change, "first": self.store.first, "exchanges": changed}
                yield b"data: %b\n\n" % json.dumps(event).encode()
                after = change
            await anyio.sleep(POLL_SECONDS)

    async def _parse(self, proxy: Proxy, request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BENCH_BODY:
                return _json({"error": f"the bench parses at most {MAX_BENCH_BODY} bytes"}, 413)
        try:
            with dialects.using_own(proxy.session.known_dialects()):
                return _json(await anyio.to_thread.run_sync(parse_for_bench, body))
        except UsageError as error:
            return _json({"error": str(error)}, 400)


def parse_for_bench(body: bytes) -> dict[str, Any]:
    """Parse a reply that was pasted into the page; return the JSON data of the result and of the attempts at parsing.

    Raises `UsageError` for invalid tools or options.
    """
    asked = _parse_object(body, "the request")
    text, tools = as_text(asked.get("text")), _tools(asked.get("tools"))
    options: dict[str, Any] = {
        name: asked[name] for name, kind in _BENCH_OPTIONS.items() if isinstance(asked.get(name), kind) and asked[name]
    }
    options |= {name: True for name in _BENCH_SWITCHES if asked.get(name) is True}
    arguments = {name: value for name, value in options.items() if name != "finish_reason"}
    explanation = explain(ExplainingParser(tools, **arguments), text, options.get("finish_reason"))
    return {**view_explanation(explanation), "case": as_case("from the bench", text, tools, options)}


def _tools(value: Any) -> list[Any] | None:
    """Return the tools in a JSON text, which is a list, one tool, or a request with tools; None for an empty text."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        parsed: Any = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the tools are not JSON: {error}") from None
    if is_object(parsed):
        parsed = parsed["tools"] if is_array(parsed.get("tools")) else [parsed]
    if not is_array(parsed):
        raise UsageError("the tools are not a list")
    if not is_shallow(parsed):
        raise UsageError("the tools are nested too deeply")
    return parsed


def _parse_object(body: bytes, what: str) -> dict[str, Any]:
    parsed = try_json(body)
    if not is_object(parsed):
        raise UsageError(f"{what} is not a JSON object")
    return parsed


def _json(value: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    headers = {**HEADERS, "cache-control": "no-store"}
    data = json.dumps(value, ensure_ascii=True)  # UTF-8 has no lone surrogates, which models' JSON may contain
    return Response(data, status, headers=headers, media_type="application/json")
