"""The floor: the least that a proxy in Python does, aiohttp to aiohttp, with the JSON of both directions parsed.

`python -m benchmarks.proxies.floor URL` passes everything on to the server at URL. Prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp
from aiohttp import web

HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


class Floor:
    """Passes requests on."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        json.loads(body)
        fields = [pair for pair in request.headers.items() if pair[0].lower() not in HOP_BY_HOP]
        async with self.session.post(self.url + request.path, data=body, headers=fields) as answer:
            kept = [pair for pair in answer.headers.items() if pair[0].lower() not in HOP_BY_HOP]
            if answer.content_type != "text/event-stream":
                data = await answer.read()
                json.loads(data)
                return web.Response(status=answer.status, body=data, headers=kept)
            stream = web.StreamResponse(status=answer.status, headers=kept)
            await stream.prepare(request)
            rest = b""
            async for piece in answer.content.iter_any():
                *events, rest = (rest + piece).split(b"\n\n")
                for event in events:
                    if event.startswith(b"data: {"):
                        json.loads(event[6:])
                await stream.write(piece)
            return stream


async def main() -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", Floor(sys.argv[1], session).handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
