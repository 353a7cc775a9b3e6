"""Bodies of requests that only pass stream through: of any length, with nothing held, and answered at any time."""

import asyncio
import hashlib
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from serving import HTTP, raw, request, serving
from upstream import few_certificates

from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.transport import installed_library

pytestmark = pytest.mark.exhaustive

PATHS = ["/api/blobs/sha256:0a", "/v1/files"]
CHAT = "/v1/chat/completions"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nX-Its: own\r\n\r\nbig"
PIECE = b"0123456789abcdef" * 4096


@pytest.fixture(autouse=True, scope="module")
def certificates():
    with few_certificates():
        yield


class Server:
    """A server of one connection after the other, for each of which `talk` is called with its socket."""

    def __init__(self, talk):
        self.talk = talk
        self.ended = threading.Event()
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}/v1"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(300)
                try:
                    self.talk(connection)
                finally:
                    self.ended.set()


@contextmanager
def before(talk, kind="h11", **settings):
    """Run a proxy before a server."""
    server = Server(talk)
    with closing(server.sock), serving(Proxy(base_url=server.url, config=Config(), **settings), kind) as port:
        yield port, server


def read_head(sock):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        assert piece
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def fields_of(head):
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    return [(name.lower(), value.strip()) for name, _, value in lines]


def read_chunks(sock, data):
    while not data.endswith(b"0\r\n\r\n"):
        piece = sock.recv(65536)
        assert piece
        data += piece
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        out, data = out + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return out


def open_to(port):
    return socket.create_connection(("127.0.0.1", port), timeout=300)


def upload_head(path, *fields, method="POST"):
    return request(f"{method} {path} HTTP/1.1", "Host: localhost", *fields)


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("path", PATHS)
def test_a_body_arrives_while_it_is_still_being_sent(kind, path):
    """The server has the first half before the client sends the second."""
    half = threading.Event()
    seen = {}

    def talk(sock):
        head, rest = read_head(sock)
        seen["fields"] = fields_of(head)
        while len(rest) < 5:
            rest += sock.recv(100)
        half.set()
        while len(rest) < 10:
            rest += sock.recv(100)
        seen["body"] = rest
        sock.sendall(OK)

    with before(talk, kind, provider="ollama", detect=False) as (port, _), open_to(port) as sock:
        sock.sendall(upload_head(path, "Content-Length: 10") + b"first")
        assert half.wait(300)
        sock.sendall(b"again")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    assert seen["body"] == b"firstagain"
    assert (b"content-length", b"10") in seen["fields"]
    assert b"transfer-encoding" not in dict(seen["fields"])


@pytest.mark.parametrize("kind", HTTP)
def test_a_body_of_no_told_length_goes_on_in_chunks(kind):
    seen = {}

    def talk(sock):
        head, rest = read_head(sock)
        seen["fields"] = fields_of(head)
        seen["body"] = read_chunks(sock, rest)
        sock.sendall(OK)

    with before(talk, kind) as (port, _):
        data = b"5\r\nfirst\r\n7\r\n, again\r\n0\r\n\r\n"
        assert raw(port, upload_head("/v1/files", "Transfer-Encoding: chunked") + data)[0] == 200
    assert seen["body"] == b"first, again"
    assert (b"transfer-encoding", b"chunked") in seen["fields"]
    assert b"content-length" not in dict(seen["fields"])


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize(
    ("method", "fields", "length"),
    [("POST", ("Content-Length: 0",), [b"0"]), ("GET", (), []), ("DELETE", (), []), ("HEAD", (), [])],
)
def test_an_empty_body_stays_one_and_none_stays_none(kind, method, fields, length):
    seen = []

    def talk(sock):
        seen.extend(fields_of(read_head(sock)[0]))
        sock.sendall(b"HTTP/1.1 204 None\r\n\r\n")

    with before(talk, kind) as (port, _), open_to(port) as sock:
        sock.sendall(upload_head("/v1/files", *fields, method=method))
        assert sock.recv(1000).startswith(b"HTTP/1.1 204")
    assert [value for name, value in seen if name == b"content-length"] == length
    assert b"transfer-encoding" not in dict(seen)


@pytest.mark.parametrize("kind", HTTP)
def test_who_expects_100_continue_is_told_so_and_the_server_is_not_asked(kind):
    seen = {}

    def talk(sock):
        head, rest = read_head(sock)
        seen["fields"] = dict(fields_of(head))
        while len(rest) < 5:
            rest += sock.recv(100)
        sock.sendall(OK)

    with before(talk, kind) as (port, _), open_to(port) as sock:
        sock.sendall(upload_head("/v1/files", "Content-Length: 5", "Expect: 100-continue"))
        assert sock.recv(1000).startswith(b"HTTP/1.1 100")
        sock.sendall(b"hello")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    assert b"expect" not in seen["fields"]


@pytest.mark.parametrize("kind", HTTP)
def test_a_refused_request_that_expects_100_continue_gets_its_answer_alone(kind):
    with before(lambda sock: None, kind, api_keys=["k"]) as (port, server):
        with open_to(port) as sock:
            sock.sendall(upload_head("/v1/files", "Content-Length: 5", "Expect: 100-continue", "Connection: close"))
            answer = b""
            while piece := sock.recv(1000):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 401")
        assert answer.count(b"HTTP/1.1") == 1
        assert not server.ended.is_set()


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("fields", [("Content-Length: 1000000",), ("Transfer-Encoding: chunked",)])
def test_a_client_that_leaves_amid_its_body_takes_the_upstream_along(kind, fields):
    """The server sees the connection end, and not a body that looks whole."""
    begun = threading.Event()
    seen = []

    def talk(sock):
        read_head(sock)
        begun.set()
        try:
            while piece := sock.recv(65536):
                seen.append(piece)
        except OSError:
            pass

    with before(talk, kind) as (port, server):
        with open_to(port) as sock:
            sock.sendall(upload_head("/v1/files", *fields) + b"5\r\nhello\r\n")
            assert begun.wait(300)
        assert server.ended.wait(300)
    assert not b"".join(seen).endswith(b"0\r\n\r\n")


def answers_and_closes(sock):
    """Do as Go's HTTP server does: it reads no more, and gives the client the time to read."""
    read_head(sock)
    sock.sendall(TOO_LARGE)
    sock.shutdown(socket.SHUT_WR)
    held.wait(300)


def answers_and_reads_no_more(sock):
    read_head(sock)
    sock.sendall(TOO_LARGE)
    held.wait(300)


def answers_and_reads_on(sock):
    read_head(sock)
    sock.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" + TOO_LARGE)
    try:
        while sock.recv(1 << 20):
            pass
    except OSError:
        pass


held = threading.Event()


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("talk", [answers_and_closes, answers_and_reads_no_more, answers_and_reads_on])
def test_an_answer_that_comes_before_the_body_is_whole_reaches_a_client_that_still_sends(kind, talk):
    held.clear()
    size = 1 << 33
    with before(talk, kind) as (port, _), open_to(port) as sock:
        sock.sendall(upload_head("/v1/files", f"Content-Length: {size}"))
        answer = []

        def read():
            data = b""
            while not data.endswith(b"big") and (piece := sock.recv(1000)):
                data += piece
            answer.append(data)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        sent = 0
        while not answer and sent < size:
            try:
                sent += sock.send(PIECE)
            except OSError:
                break
        reading.join(300)
    held.set()
    assert answer[0].startswith(b"HTTP/1.1 413")
    assert b"x-its: own" in answer[0]
    assert sent < size


@pytest.mark.parametrize("kind", HTTP)
def test_an_answer_is_seen_while_the_client_pauses(kind):
    """Nothing is being written then, and the answer comes all the same."""
    with before(answers_and_reads_on, kind) as (port, _), open_to(port) as sock:
        sock.sendall(upload_head("/v1/files", "Content-Length: 1000") + b"half")
        assert sock.recv(1000).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("refused", [False, True], ids=["by the server", "by the proxy"])
def test_a_client_that_reads_only_after_it_has_sent_all_sees_an_early_answer(kind, refused):
    held.clear()
    with before(answers_and_closes, kind, api_keys=["k"] if refused else []) as (port, _), open_to(port) as sock:
        sock.sendall(upload_head("/v1/files", f"Content-Length: {400 * len(PIECE)}"))
        for _ in range(400):
            sock.sendall(PIECE)
        held.set()
        assert sock.recv(1000).startswith(b"HTTP/1.1 401" if refused else b"HTTP/1.1 413")


@pytest.mark.parametrize("kind", HTTP)
def test_a_server_that_closes_amid_a_body_without_an_answer_is_a_502(kind):
    with before(read_head, kind) as (port, _), open_to(port) as sock:
        sock.sendall(upload_head("/v1/files", "Content-Length: 1000") + b"half")
        assert sock.recv(1000).startswith(b"HTTP/1.1 502")


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("status", [301, 307])
def test_a_redirection_of_an_upload_passes_back_as_it_is(kind, status):
    def talk(sock):
        _, rest = read_head(sock)
        while len(rest) < 5:
            rest += sock.recv(100)
        sock.sendall(b"HTTP/1.1 %d Moved\r\nLocation: http://there.example/x\r\nContent-Length: 0\r\n\r\n" % status)

    with before(talk, kind) as (port, _):
        said, answer = raw(port, upload_head("/v1/files", "Content-Length: 5") + b"hello")
    assert said == status
    assert b"location: http://there.example/x" in answer


@pytest.mark.parametrize("kind", HTTP)
def test_only_what_an_exchange_reads_has_a_bound(kind):
    def talk(sock):
        _, rest = read_head(sock)
        while len(rest) < 5000:
            rest += sock.recv(65536)
        sock.sendall(OK)

    with before(talk, kind, max_body=1000) as (port, server):
        assert raw(port, request(f"POST {CHAT} HTTP/1.1", "Host: localhost", body=b"x" * 5000))[0] == 413
        assert not server.ended.is_set()
        assert raw(port, request("POST /v1/files HTTP/1.1", "Host: localhost", body=b"x" * 5000))[0] == 200


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_an_upload_of_300_mb_to_a_slow_server_leaves_the_memory_flat():
    """While the server reads nothing the client cannot send on, and all that it sent arrives in the end."""
    size = 300 << 20
    go = threading.Event()
    got = hashlib.sha256()
    stuck = threading.Event()

    def talk(sock):
        _, rest = read_head(sock)
        assert go.wait(300)
        got.update(rest)
        count = len(rest)
        while count < size:
            piece = sock.recv(1 << 20)
            assert piece
            got.update(piece)
            count += len(piece)
        sock.sendall(OK)

    server = Server(talk)
    command = [sys.executable, "-m", "promptools", "serve", "--base-url", server.url, "--port", "0", "--no-detect"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = next(int(line.rpartition(":")[2].partition("/")[0]) for line in process.stdout if "listening" in line)
        sent = hashlib.sha256()
        with open_to(port) as sock:
            sock.sendall(upload_head("/api/blobs/sha256:0a", f"Content-Length: {size}"))
            sock.settimeout(1)
            count = 0
            while count < size:
                try:
                    done = sock.send(PIECE)
                except TimeoutError:
                    stuck.set()
                    go.set()
                    sock.settimeout(300)
                    at_rest = count
                    continue
                sent.update(PIECE[:done])
                count += done
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)
        process.stdout.close()
        server.sock.close()
    assert stuck.is_set()
    assert at_rest < 100 << 20  # the buffers of two connections
    assert got.digest() == sent.digest()
    assert int(peak.split()[1]) < 200 << 10  # in KiB; the program alone takes some 80 MiB


def test_a_body_that_was_not_announced_goes_on_too():
    """In HTTP/2 neither a length nor chunks announce a body."""
    module = installed_library().module
    seen = []

    class Nothing(module.AsyncByteStream):
        async def __aiter__(self):
            yield b""

    async def answer(asked):
        seen.append((await asked.aread(), dict(asked.headers)))
        return module.Response(200, stream=Nothing())

    async def ask(http, *pieces):
        messages = [
            {"type": "http.request", "body": piece, "more_body": at + 1 < len(pieces)}
            for at, piece in enumerate(pieces)
        ]

        async def receive():
            return messages.pop(0) if messages else await asyncio.Event().wait()

        async def send(message):
            pass

        app = Proxy(base_url="http://up/v1", config=Config(), detect=False, http_client=http)
        scope = {"type": "http", "http_version": "2", "method": "PUT", "path": "/v1/x", "query_string": b""}
        await app({**scope, "headers": [(b"host", b"localhost")]}, receive, send)

    async def go():
        async with module.AsyncClient(transport=module.MockTransport(answer)) as http:
            await ask(http, b"whole")
            await ask(http, b"in ", b"pieces")
            await ask(http, b"")

    asyncio.run(go())
    assert [body for body, _ in seen] == [b"whole", b"in pieces", b""]
    assert [headers.get("transfer-encoding") for _, headers in seen] == [None, "chunked", None]


def test_the_errors_of_a_refused_body_are_json():
    with before(lambda sock: None, max_body=1000) as (port, _):
        _, answer = raw(port, upload_head(CHAT, "Content-Length: 1001"))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "body_too_large"
