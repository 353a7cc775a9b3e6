"""Fields about the connection to the server end at the proxy; a response without a body leaves the client's open."""

import asyncio
import socket
import threading
from contextlib import closing

import pytest
from misbehaving_server import misbehaving, new_marker
from misbehaviours import Misbehaviour
from serving import HTTP, request, serving
from test_crossing import ROUTES, ask, proxy_before
from upstream import few_certificates

from promptools.profiles import Config
from promptools.proxy import Proxy

HOPS = {
    b"Connection": b"X-Hop, keep-alive",
    b"X-Hop": b"1",
    b"Keep-Alive": b"timeout=5",
    b"Proxy-Connection": b"keep-alive",
    b"Proxy-Authenticate": b"Basic",
    b"TE": b"trailers",
    b"Trailer": b"X-T",
    b"Upgrade": b"h2c",
}


@pytest.mark.parametrize("status", ["200 OK", "400 Bad", "429 Too Many", "500 Broken", "302 Found"])
def test_fields_about_the_connection_are_dropped_on_every_front(status):
    fields = [b"%b: %b" % pair for pair in HOPS.items()] + [b"X-Kept: 1"]

    async def go():
        async with misbehaving() as server:
            server.misbehaviour = Misbehaviour(
                "fields", lambda reply: [reply.whole(*fields, status=b"HTTP/1.1 " + status.encode())]
            )
            for route in ROUTES:
                proxy = proxy_before(server)
                server.bad = new_marker("a")
                answer = await ask(proxy, route, "a", server.bad)
                await proxy.aclose()
                names = {name.lower() for name, _ in answer.fields}
                assert not names & {name.lower() for name in HOPS}, (route.name, answer)
                if "chat whole" in route.name or route.path in {"/v1/completions", "/metrics"}:
                    assert (b"x-kept", b"1") in answer.fields, (route.name, answer)

    with few_certificates():
        asyncio.run(go())


BODILESS = {
    "/304": b"HTTP/1.1 304 Same\r\nContent-Length: 26\r\nETag: x\r\n\r\n",
    "/204": b"HTTP/1.1 204 None\r\nContent-Length: 26\r\n\r\n",
    "/both": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "/205": b"HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n",
    "/last": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast",
}


class Server:
    """Answers each request on each of its connections by its path."""

    def __init__(self):
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}/v1"
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self):
        self.sock.close()

    def _listen(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection):
        with connection:
            data = b""
            while piece := connection.recv(65536):
                data += piece
                while b"\r\n\r\n" in data:
                    head, _, data = data.partition(b"\r\n\r\n")
                    connection.sendall(BODILESS[head.split(b" ")[1].decode()])


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("path", ["/304", "/204", "/both", "/205"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_clients_connection_serves_the_next_request(kind, path, method):
    with few_certificates(), closing(Server()) as server:
        proxy = Proxy(base_url=server.url, config=Config(), detect=False)
        with serving(proxy, kind) as port, socket.create_connection(("127.0.0.1", port), timeout=300) as sock:
            sock.sendall(request(f"{method} {path} HTTP/1.1", "Host: localhost"))
            sock.sendall(request("GET /last HTTP/1.1", "Host: localhost", "Connection: close"))
            answer = b""
            while piece := sock.recv(65536):
                answer += piece
    status = b"200" if path == "/both" else path[1:].encode()
    assert [part.split(b" ")[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [status, b"200"]
    assert answer.endswith(b"\r\n\r\nlast")
    if path in {"/304", "/204"}:
        assert b"content-length: 26" not in answer.lower()
