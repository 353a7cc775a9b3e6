"""A late event loop is not reported as a server that does not answer; a server that does not answer still is."""

import asyncio
import time

import pytest

from promptools.proxy.upstream_client import UpstreamClient, within

LIMIT = 0.2


async def serve_hello(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
    await writer.drain()
    writer.close()


async def ask_while(client, url, disturb):
    """Send a request with a short limit on the connection, and do something else as soon as it is under way."""
    direct = client.direct
    request = direct.library.build_request("GET", url, (), b"", {"timeout": {"connect": LIMIT, "read": 600.0}})
    sending = asyncio.ensure_future(direct.send(request))
    await asyncio.sleep(0)
    await disturb(sending)
    return await sending


async def blocked_once(_):
    time.sleep(3 * LIMIT)


async def busy(sending):
    while not sending.done():
        time.sleep(LIMIT / 2)
        await asyncio.sleep(0)


@pytest.mark.parametrize("disturb", [blocked_once, busy])
def test_a_late_loop_is_not_a_timeout_of_the_server(disturb):
    async def scenario():
        server = await asyncio.start_server(serve_hello, "127.0.0.1", 0)
        client = UpstreamClient()
        assert client.http is not None
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        response = await ask_while(client, url, disturb)
        status = response.status_code
        await response.aclose()
        await client.aclose()
        server.close()
        return status

    assert asyncio.run(scenario()) == 200


def test_a_server_that_does_not_answer_is_one(monkeypatch):
    async def scenario():
        loop, cancelled = asyncio.get_running_loop(), asyncio.Event()

        async def never(*_, **__):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        monkeypatch.setattr(loop, "create_connection", never)
        client = UpstreamClient()
        assert client.http is not None
        with pytest.raises(client.library.module.ConnectTimeout):
            await ask_while(client, "http://127.0.0.1:9/v1", lambda _: asyncio.sleep(0))
        await cancelled.wait()
        await client.aclose()

    asyncio.run(scenario())


def test_what_is_cancelled_or_fails_is_so_within_a_limit():
    async def scenario():
        cancelled = asyncio.Event()

        async def never():
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async def fail():
            raise OSError("refused")

        unused = []
        waiting = asyncio.ensure_future(within(600.0, never(), unused.append))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await cancelled.wait()
        await asyncio.sleep(0)
        assert [task.cancelled() for task in unused] == [True]
        with pytest.raises(OSError, match="refused"):
            await within(600.0, fail(), unused.append)
        with pytest.raises(OSError, match="refused"):
            await within(None, fail(), unused.append)
        assert len(unused) == 1

    asyncio.run(scenario())
