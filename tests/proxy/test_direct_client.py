"""The proxy's own HTTP client, before servers that speak HTTP/1.1 in every way that they do."""

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from serving import raw, request, serving
from upstream import completion, few_certificates

from promptools.profiles import Config
from promptools.proxy import Proxy, http1_connection
from promptools.proxy.http1_connection import DirectResponse, Http1Connection
from promptools.proxy.upstream_client import DirectClient, DirectRequest, UpstreamClient
from promptools.transport import driver, installed_library

MODULE = installed_library().module
CHAT = "/v1/chat/completions"
HELLO = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(autouse=True)
def certificates():
    with few_certificates():
        yield


async def read_request(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
    return head + await reader.readexactly(sum(lengths))


@asynccontextmanager
async def before(talk, **options):
    """Yield a client, and the URL of a server that calls `talk` for each of its connections."""
    connections = []

    async def accept(reader, writer):
        connections.append(writer)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, **options)
    http = MODULE.AsyncClient()
    client = DirectClient(http)
    try:
        yield client, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connections
    finally:
        client.close()
        await http.aclose()
        for writer in connections:
            writer.close()
        server.close()
        await asyncio.sleep(0)


def answering(answer, requests=1):
    """Answer with these bytes, so many times, and close the connection."""

    async def talk(reader, writer):
        for _ in range(requests):
            await read_request(reader)
            writer.write(answer)
            await writer.drain()

    return talk


async def ask(client, url, fields=(), body=b"{}", method="POST", owner=b"", **timeouts):
    built = client.library.build_request(method, f"{url}{CHAT}", tuple(fields), body, {"timeout": timeouts})
    response = await client.send(built, owner)
    try:
        return response, b"".join([piece async for piece in response.aiter_raw()])
    finally:
        await response.aclose()


def check(answer, requests=1, **settings):
    """Return the response to a request, and its body."""

    async def go():
        async with before(answering(answer, requests)) as (client, url, _):
            return await ask(client, url, **settings)

    return asyncio.run(go())


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Trailer: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"ok"),
        (CHUNKS, b"abcdefg"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: <x>\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 None\r\n\r\n", b""),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    ],
    ids=["length", "chunked", "end", "end 1.0", "both", "interim", "none", "no reason"],
)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "bytes"])
def test_every_framing_is_read_to_its_end(answer, body, split):
    async def talk(reader, writer):
        await read_request(reader)
        for piece in [answer[at : at + 1] for at in range(len(answer))] if split else [answer]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    async def go():
        async with before(talk) as (client, url, _):
            return await ask(client, url)

    response, got = asyncio.run(go())
    assert got == body
    assert response.status_code in {200, 204}
    assert "link" not in response.headers
    assert "x-trailer" not in response.headers


def test_fields_keep_their_case_and_bytes():
    answer = b"HTTP/1.1 200 OK\r\nX-Own:  \xe9 \r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 0\r\n\r\n"
    response, _ = check(answer)
    assert response.headers.raw[:3] == [(b"X-Own", b"\xe9"), (b"Set-Cookie", b"a"), (b"set-cookie", b"b")]
    assert response.headers["x-own"] == "é"
    assert response.headers.get("SET-COOKIE") == "a, b"
    with pytest.raises(KeyError):
        response.headers["x-none"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "RemoteProtocolError"),
        (CHUNKS[:-30], "RemoteProtocolError"),
        (b"SSH-2.0-OpenSSH\r\n", "RemoteProtocolError"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (http1_connection.MAX_HEAD + 1), "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "RemoteProtocolError"),
        (b"HTTP/1.1 101 Switching\r\n\r\n" + OK, "RemoteProtocolError"),
        (b"HTTP/1.1 104 Hints\r\nContent-Length: 5\r\n\r\nhello" + OK, "RemoteProtocolError"),
        (b"HTTP/1.1 104 Hints\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + OK, "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "RemoteProtocolError"),
    ],
    ids=[
        *("nothing", "half a head", "half a body", "half the chunks", "no HTTP", "upgrade", "long head", "no chunk"),
        *("unasked upgrade", "interim length", "interim chunks", "unknown coding", "two codings"),
    ],
)
def test_a_response_that_breaks_off_is_an_error_and_never_a_whole_one(answer, error):
    with pytest.raises(getattr(MODULE, error)):
        check(answer)


@pytest.mark.parametrize(
    "field",
    [
        ("x-a", "1\r\nevil: 1"),
        ("x-a", "1\nevil: 1"),
        ("x\r", "1"),
        ("x-a", "\0"),
        ("x-a", "1\r"),
        ("x ", "1"),
        ("", "1"),
    ],
)
def test_a_field_cannot_end_its_line(field):
    with pytest.raises(MODULE.LocalProtocolError):
        check(OK, fields=[field])


def test_a_request_is_framed_as_by_httpx():
    seen = []

    async def talk(reader, writer):
        for _ in range(3):
            seen.append(await read_request(reader))
            writer.write(OK)

    async def go():
        async with before(talk) as (client, url, _):
            await ask(client, f"{url}/a b", [("X-Own", "é")], b"x" * (1 << 17))
            await ask(client, url, [("host", "evil.example")], b"")
            await ask(client, url, body=b"", method="GET")
            return url.removeprefix("http://").encode()

    host = asyncio.run(go())
    head = b"POST /a%20b/v1/chat/completions HTTP/1.1\r\nHost: " + host
    assert seen[0].startswith(head + b"\r\nX-Own: \xe9\r\nContent-Length: 131072\r\n\r\nxxx")
    assert seen[1] == b"POST /v1/chat/completions HTTP/1.1\r\nHost: %b\r\nContent-Length: 0\r\n\r\n" % host
    assert seen[2] == b"GET /v1/chat/completions HTTP/1.1\r\nHost: %b\r\n\r\n" % host


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        (OK, 1),
        (CHUNKS, 1),
        (OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 3),
        (OK + OK, 3),
        (OK + b"\r\nnonsense", 3),
        (OK + b"\r\n", 3),
        (b"HTTP/1.1 204 None\r\n\r\n", 3),
        (b"HTTP/1.1 304 Same\r\nContent-Length: 2\r\n\r\n", 3),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n", 3),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 3),
    ],
    ids=["length", "chunked", "close", "two", "nonsense", "empty line", "204", "304", "two framings", "1.0"],
)
def test_a_connection_serves_several_requests_if_nothing_is_left_on_it(answer, count):
    async def go():
        async with before(answering(answer, 9)) as (client, url, connections):
            bodies = [(await ask(client, url))[1] for _ in range(3)]
            return bodies, len(connections)

    bodies, connections = asyncio.run(go())
    assert set(bodies) <= {b"ok", b"abcdefg", b""}
    assert connections == count


def test_a_connection_is_not_used_again_after_head():
    async def go():
        async with before(answering(OK.removesuffix(b"ok"), 9)) as (client, url, connections):
            answers = [await ask(client, url, body=b"", method="HEAD") for _ in range(2)]
            return [(response.headers["content-length"], body) for response, body in answers], len(connections)

    assert asyncio.run(go()) == ([("2", b"")] * 2, 2)


@pytest.mark.parametrize("late", [b"late", OK, b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_whatever_arrives_on_an_idle_connection_closes_it(late):
    async def go():
        closed = asyncio.Event()

        async def talk(reader, writer):
            await read_request(reader)
            writer.write(OK)
            await idle.wait()
            writer.write(late)
            assert await reader.read() == b""
            closed.set()

        idle = asyncio.Event()
        async with before(talk) as (client, url, _):
            await ask(client, url)
            idle.set()
            await asyncio.wait_for(closed.wait(), 300)

    asyncio.run(go())


def test_a_connection_on_which_something_arrived_while_the_event_loop_was_busy_is_not_used():
    listener, sent = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve():
        first, _ = listener.accept()
        with first:
            first.recv(65536)
            first.sendall(OK)
            asked.wait(300)
            first.sendall(OK.replace(b"ok", b"no"))
            sent.set()
            second, _ = listener.accept()
            with second:
                second.recv(65536)
                second.sendall(OK)

    asked = threading.Event()
    server = threading.Thread(target=serve, daemon=True)
    server.start()

    async def go():
        async with MODULE.AsyncClient() as http:
            client = DirectClient(http)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            await ask(client, url)
            asked.set()
            assert sent.wait(300)  # the loop learns nothing of it
            return await ask(client, url)

    with listener:
        assert asyncio.run(go())[1] == b"ok"
        server.join(300)


def test_owners_share_no_connection():
    async def go():
        async with before(answering(OK, 9)) as (client, url, connections):
            for owner in (b"a", b"b", b"a", b"b", b""):
                await ask(client, url, owner=owner)
            return len(connections)

    assert asyncio.run(go()) == 3


def test_a_server_that_sent_more_than_a_response_gets_new_connections(monkeypatch):
    async def go():
        more = [b"more", b"", b"", b"", b""]

        async def talk(reader, writer):
            while True:
                await read_request(reader)
                writer.write(OK + more.pop(0))

        async with before(talk) as (client, url, connections):
            for _ in range(3):
                await ask(client, url)
            (server,) = client._servers.values()
            distrusted = len(connections)
            server.distrusted_until = 0.0
            for _ in range(2):
                await ask(client, url)
            return distrusted, len(connections)

    assert asyncio.run(go()) == (3, 4)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
def test_only_what_changes_nothing_is_sent_again_on_a_connection_that_was_being_closed(method):
    async def go():
        seen = []

        async def talk(reader, writer):
            for answer in (OK, b""):
                seen.append((await read_request(reader)).partition(b" ")[0].decode())
                writer.write(answer)

        async with before(talk) as (client, url, _):
            await ask(client, url)
            try:
                status = (await ask(client, url, body=b"", method=method))[0].status_code
            except MODULE.RemoteProtocolError:
                status = 0
        return status, seen

    status, seen = asyncio.run(go())
    again = method in {"GET", "HEAD", "OPTIONS"}
    assert (status, seen) == (200 if again else 0, ["POST", *[method] * (1 + again)])


@pytest.mark.parametrize(
    "trailers", [b"X-Trailer: 1\r\n" * 20_000, b"X-T: " + b"x" * 200_000], ids=["many", "one that is long"]
)
def test_trailers_count_towards_the_limits_in_size(trailers):
    answer = CHUNKS.partition(b"X-Trailer")[0] + trailers + b"\r\n\r\n"
    with pytest.raises(MODULE.RemoteProtocolError, match="too long"):
        check(answer)


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 200 OK\r\nX: ", CHUNKS.removesuffix(b"\r\n"), CHUNKS.partition(b"3\r\nabc")[0] + b"9;x="],
    ids=["head", "trailers", "chunk extension"],
)
def test_what_surrounds_a_body_is_not_a_sign_of_life(begin):
    """The time of a read does not begin anew with each of its bytes; with those of a body it does."""

    async def go():
        connection = Http1Connection(asyncio.get_running_loop(), *[lambda *_: None] * 3)
        response = DirectResponse(connection, MODULE, "POST")

        async def read():
            await response.head()
            async for _ in response:
                pass

        async def waiting_after(data):
            response.feed(data)
            await asyncio.sleep(0)
            return response.waiting_since

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        first = await waiting_after(begin)
        assert first is not None
        assert {await waiting_after(b"x") for _ in range(50)} == {first}
        reading.cancel()

        response = DirectResponse(connection, MODULE, "POST")
        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        first = await waiting_after(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        assert await waiting_after(b"x") != first
        reading.cancel()

    asyncio.run(go())


def test_a_length_beside_chunks_does_not_go_on():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    response, body = check(answer)
    assert ("content-length" in response.headers, body) == (False, b"ok")


@pytest.mark.parametrize(("size", "problem"), [(4, "shorter"), (6, "longer")])
def test_a_streamed_body_of_another_length_than_it_says_is_an_error(size, problem):
    """An ASGI server may let it through; what is too much would be the beginning of another request."""

    class Body:
        length = 5

        async def __aiter__(self):
            yield b"x" * size

    async def go():
        async with before(answering(OK)) as (client, url, _):
            fields = [(b"a", b"b")]
            with pytest.raises(MODULE.LocalProtocolError, match=problem):
                await client.send(DirectRequest(client.library, "POST", url, fields, Body(), {}))

    asyncio.run(go())


@pytest.mark.parametrize("length", [9, None])
def test_a_connection_whose_request_was_answered_before_it_was_whole_is_not_used_again(length):
    """The server would read the next request as the rest of the first one's body."""

    class Body:
        async def __aiter__(self):
            yield b"half"
            await asyncio.Event().wait()

    Body.length = length

    async def go():
        async def talk(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await reader.read()

        async with before(talk) as (client, url, connections):
            response = await client.send(DirectRequest(client.library, "POST", url, [], Body(), {}))
            assert b"".join([piece async for piece in response.aiter_raw()]) == b"ok"
            assert (await asyncio.wait_for(ask(client, url), 120))[1] == b"ok"
            return len(connections)

    assert asyncio.run(go()) == 2


def test_a_server_that_takes_nothing_for_too_long_is_a_timeout():
    class Body:
        length = None

        async def __aiter__(self):
            while True:
                yield b"x" * (1 << 20)

    async def go():
        async def talk(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await held.wait()

        held = asyncio.Event()
        async with before(talk, limit=1 << 10) as (client, url, _):
            request = DirectRequest(client.library, "POST", url, [], Body(), {"timeout": {"write": 0.1}})
            with pytest.raises(MODULE.WriteTimeout):
                await asyncio.wait_for(client.send(request), 300)
            held.set()

    asyncio.run(go())


@pytest.mark.parametrize(("seconds", "connections"), [(3, 1), (4.5, 2)])
def test_a_connection_is_idle_for_less_than_the_five_seconds_of_servers(seconds, connections):
    async def go():
        async with before(answering(OK, 9)) as (client, url, opened):
            await ask(client, url)
            (server,) = client._servers.values()
            server.idle[0].idle_since -= seconds
            assert (await ask(client, url))[1] == b"ok"
            return len(opened)

    assert asyncio.run(go()) == connections


def test_a_connection_that_was_closed_while_the_event_loop_was_busy_is_not_used():
    listener, closed = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve():
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(OK)
            closed.set()

    server = threading.Thread(target=serve, daemon=True)
    server.start()

    async def go():
        async with MODULE.AsyncClient() as http:
            client = DirectClient(http)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            first = await client.send(client.library.build_request("POST", f"{url}{CHAT}", (), b"", {}))
            assert first.is_closed
            assert closed.wait(300)  # the loop learns nothing of it
            return await ask(client, url)

    with listener:
        assert asyncio.run(go())[1] == b"ok"
        server.join(300)


def test_a_response_that_is_left_takes_its_connection_along():
    async def go():
        ended = asyncio.Event()

        async def talk(reader, writer):
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            assert await reader.read() == b""
            ended.set()

        async with before(talk) as (client, url, _):
            built = client.library.build_request("POST", f"{url}{CHAT}", (), b"", {})
            response = await client.send(built)
            assert not response.is_closed
            await response.aclose()
            await asyncio.wait_for(ended.wait(), 300)
            assert not client._servers[("http", "127.0.0.1", int(url.rpartition(":")[2]))].idle

    asyncio.run(go())


def test_a_connection_that_is_made_just_as_its_client_leaves_is_closed(monkeypatch):
    made, connection_made = [], Http1Connection.connection_made

    def collect(connection, transport):
        made.append(transport)
        connection_made(connection, transport)

    monkeypatch.setattr(Http1Connection, "connection_made", collect)

    async def silent(reader, writer):
        await reader.read()

    async def go():
        async with before(silent) as (client, url, _):
            for turns in range(16):
                sending = asyncio.create_task(ask(client, url, connect=300.0))
                for _ in range(turns):
                    await asyncio.sleep(0)
                sending.cancel()
                await asyncio.wait((sending,))
            for _ in range(4):
                await asyncio.sleep(0)
            return [transport.is_closing() for transport in made]

    closed = asyncio.run(go())
    assert closed
    assert all(closed)


def test_a_slow_reader_slows_the_server_down():
    piece = b"x" * (1 << 16)
    size = 400

    async def go():
        async def talk(reader, writer):
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size * len(piece)))
            for _ in range(size):
                writer.write(piece)
                await writer.drain()

        async with before(talk) as (client, url, _):
            response = await client.send(client.library.build_request("POST", f"{url}{CHAT}", (), b"", {}))
            for _ in range(200):
                await asyncio.sleep(0)
            held, got = response._size, 0
            async for data in response.aiter_raw():
                held, got = max(held, len(data)), got + len(data)
            return held, got

    held, got = asyncio.run(go())
    assert got == size * len(piece)
    assert held <= 1 << 20


def test_timeouts_and_servers_that_are_not_there():
    async def silent(reader, writer):
        await read_request(reader)
        await reader.read()

    async def go():
        async with before(silent) as (client, url, _):
            with pytest.raises(MODULE.ReadTimeout):
                await ask(client, url, read=0.01)
            with pytest.raises(MODULE.ConnectTimeout):
                await ask(client, "http://10.255.255.1:9", connect=0.0)
            with pytest.raises(MODULE.UnsupportedProtocol):
                await ask(client, "ftp://there.example")
        with pytest.raises(MODULE.ConnectError):
            await ask(client, url)

    asyncio.run(go())


def test_a_server_that_closes_each_connection_unannounced_loses_no_request(monkeypatch):
    """As llama.cpp does after a stream: the request on the connection that was kept alive is sent again."""
    monkeypatch.setattr(driver, "STALE_CONNECTION_SECONDS", 60.0)  # a busy machine may pause for a second
    body = json.dumps(completion("hi")).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def go():
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            if sent_body:
                await asyncio.Event().wait()
            sent_body.append(1)
            return {"type": "http.request", "body": HELLO}

        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [(b"host", b"localhost")]}
        async with before(answering(answer)) as (_, url, connections):
            proxy = Proxy(base_url=f"{url}/v1", config=Config(), detect=False)
            for _ in range(10):
                sent_body = []
                await proxy(scope, receive, send)
            await proxy.aclose()
        return [message["status"] for message in sent if "status" in message], len(connections)

    statuses, connections = asyncio.run(go())
    assert statuses == [200] * 10
    assert connections == 10


def test_what_the_environment_puts_behind_a_proxy_goes_there(monkeypatch):
    async def go():
        seen = []

        async def talk(reader, writer):
            seen.append(await read_request(reader))
            writer.write(OK)

        async with before(talk) as (_, url, _connections):
            monkeypatch.setenv("HTTP_PROXY", url)
            monkeypatch.setenv("NO_PROXY", "")
            async with MODULE.AsyncClient() as http:
                _, body = await ask(DirectClient(http), "http://up.example")
        return seen, body

    seen, body = asyncio.run(go())
    assert body == b"ok"
    assert seen[0].startswith(b"POST http://up.example/v1/chat/completions HTTP/1.1\r\n")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_checks_the_certificate_as_httpx_does(tmp_path, monkeypatch):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def go():
        async with before(answering(OK, 2), ssl=context) as (client, url, connections):
            named = url.replace("http://127.0.0.1", "https://localhost")
            with pytest.raises(MODULE.ConnectError, match="certificate"):
                await ask(client, named)
            client._tls = ssl.create_default_context(cafile=str(certificate))
            assert [(await ask(client, named))[1] for _ in range(2)] == [b"ok", b"ok"]
            assert len(connections) == 1

    asyncio.run(go())


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize("http2", [False, True])
def test_a_client_of_the_callers_closes_each_connection_unless_it_speaks_http2(library, http2):
    """HTTP/2 forbids the field that says so, and does not need it."""
    module = pytest.importorskip(library)

    async def go():
        seen = []

        async def talk(reader, writer):
            while True:
                seen.append(await read_request(reader))
                writer.write(OK)

        async with before(talk) as (_, url, connections), module.AsyncClient() as http:
            vars(http._transport._pool)["_http2"] = http2  # what `http2=True` sets, if h2 is installed
            client = UpstreamClient(http)
            for _ in range(2):
                request = client.build_request("GET", url, [], b"")
                response = await client.send(request, client_authorization=None)
                await response.aread()
            return [b"connection: close" in head.lower() for head in seen], len(connections)

    assert asyncio.run(go()) == ([not http2] * 2, 1 if http2 else 2)


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize(
    "answer", [b"secret words\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n"]
)
def test_no_error_quotes_what_a_server_sent(library, answer, caplog):
    """h11 does: `illegal status line: bytearray(b'...')`."""
    module = pytest.importorskip(library)
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    async def go():
        async with before(answering(answer)) as (_, url, _connections), module.AsyncClient() as http:
            for client in (http, None):
                proxy = Proxy(base_url=f"{url}/v1", config=Config(), detect=False, http_client=client)
                scope = {"type": "http", "method": "GET", "path": "/v1/files", "headers": [(b"host", b"localhost")]}
                with suppress(module.RequestError, MODULE.RequestError):
                    await proxy(scope, receive, send)
                await proxy.aclose()

    asyncio.run(go())
    said = repr(sent) + caplog.text
    assert "illegal" in said
    assert "secret" not in said


@pytest.mark.parametrize("length", [5, None])
def test_without_httptools_httpx_sends_the_requests(monkeypatch, length):
    monkeypatch.setitem(sys.modules, "httptools", None)
    monkeypatch.delitem(sys.modules, "promptools.proxy.http1_connection", raising=False)
    seen = []

    async def talk(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readuntil(b"hello" if length else b"0\r\n\r\n")
        writer.write(OK)

    async def go():
        sent, pieces = [], [b"he", b"llo"]

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        framing = (b"content-length", b"5") if length else (b"transfer-encoding", b"chunked")
        scope = {"type": "http", "method": "POST", "path": "/v1/files", "headers": [(b"host", b"localhost"), framing]}
        async with before(talk) as (_, url, _connections):
            proxy = Proxy(base_url=f"{url}/v1", config=Config(), detect=False)
            await proxy(scope, receive, send)
            assert proxy.upstream_client.direct is None
            await proxy.aclose()
        return sent

    sent = asyncio.run(go())
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"ok")
    assert b"connection: close" in seen[0].lower()
    assert (b"content-length: 5" if length else b"transfer-encoding: chunked") in seen[0].lower()


def test_on_trio_httpx_sends_the_requests():
    pytest.importorskip("trio")
    body = json.dumps(completion("hi")).encode()

    async def go():
        sent, asked = [], []

        async def send(message):
            sent.append(message)

        async def receive():
            if asked:
                await anyio.sleep_forever()
            asked.append(1)
            return {"type": "http.request", "body": HELLO}

        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            port = listener.extra(anyio.abc.SocketAttribute.local_port)

            async def answer(stream):
                async with stream:
                    await stream.receive()
                    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    await stream.send(head % len(body) + body)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, answer)
                proxy = Proxy(base_url=f"http://127.0.0.1:{port}/v1", config=Config(), detect=False)
                scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [(b"host", b"localhost")]}
                await proxy(scope, receive, send)
                assert proxy.upstream_client.direct is None
                await proxy.aclose()
                tasks.cancel_scope.cancel()
        return sent

    sent = anyio.run(go, backend="trio")
    assert sent[0]["status"] == 200
    assert b"".join(message.get("body", b"") for message in sent) == body


def test_a_client_that_leaves_takes_its_upstream_along():
    """The server sees the end of the connection, which waits for nothing."""

    async def go():
        asked, ended = asyncio.Event(), asyncio.Event()

        async def talk(reader, writer):
            await read_request(reader)
            asked.set()
            await reader.read()
            ended.set()

        async with before(talk) as (_, url, _connections):
            proxy = Proxy(base_url=f"{url}/v1", config=Config(), detect=False)
            messages = [{"type": "http.request", "body": HELLO}]

            async def receive():
                if messages:
                    return messages.pop()
                await asked.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                raise AssertionError(message)

            scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [(b"host", b"localhost")]}
            await asyncio.wait_for(proxy(scope, receive, send), 300)
            await asyncio.wait_for(ended.wait(), 300)
            await proxy.aclose()

    asyncio.run(go())


def test_the_proxy_uses_it_under_uvicorn():
    body = json.dumps(completion("hi")).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    ready, done, urls = threading.Event(), threading.Event(), []

    async def serve():
        async with before(answering(answer)) as (_, url, _connections):
            urls.append(url)
            ready.set()
            await asyncio.to_thread(done.wait, 20)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(300)
        proxy = Proxy(base_url=f"{urls[0]}/v1", config=Config(), detect=False)
        with serving(proxy) as port:
            status, said = raw(port, request(f"POST {CHAT} HTTP/1.1", "Host: localhost", body=HELLO))
            assert (status, proxy.upstream_client.direct is not None) == (200, True)
            assert said.endswith(body)
    finally:
        done.set()
        thread.join(300)
