"""Requests that are too long, and answers that no HTTP server should give: each is answered, and nothing is lost."""

import asyncio
import json
import socket
import threading

import openai
import pytest
from serving import HTTP, raw, request, serving
from upstream import completion, running

from promptools import OpenAI
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.transport import installed_library

CHAT = "/v1/chat/completions"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


class Odd:
    """A server that answers every request with the same bytes."""

    def __init__(self, answer):
        self.answer = answer
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}/v1"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._reply, args=(connection,), daemon=True).start()

    def _reply(self, connection):
        with connection:
            connection.settimeout(300)
            read = b""
            while b"\r\n\r\n" not in read:
                read += connection.recv(65536)
            head, _, body = read.partition(b"\r\n\r\n")
            lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line]
            while len(body) < sum(lengths):
                body += connection.recv(65536)
            connection.sendall(self.answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


def of(status, body=b'{"odd": "body"}', *fields):
    head = [b"HTTP/1.1 " + status, b"Content-Type: application/json", b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join([*head, b"Connection: close", b"", b""]) + body


def ask(port, path=CHAT, body=HELLO):
    with installed_library().module.Client(timeout=300) as http:
        answer = http.post(f"http://127.0.0.1:{port}{path}", json=body)
    return answer.status_code, answer.headers, answer.content


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize(
    "status", ["999 Odd", "600 Odd", "777", "101 Switching Protocols", "099 Odd", "000 Odd", "99 X"]
)
@pytest.mark.parametrize(
    ("path", "tools"), [("/v1/models", None), (CHAT, None), (CHAT, TOOLS)], ids=["else", "plain", "tools"]
)
def test_a_status_that_is_none_is_a_502(kind, status, path, tools):
    with Odd(of(status.encode())) as odd, serving(Proxy(base_url=odd.url, config=Config(), detect=False), kind) as port:
        said, head, content = ask(port, path, {**HELLO, **({"tools": tools} if tools else {})})
    assert said == 502
    if status[:3] in {"999", "600", "777"}:
        assert content == b'{"odd": "body"}', content
        assert head["x-promptools-upstream-status"] == status[:3]
    else:  # the HTTP library does not read these at all, or as no answer yet
        assert json.loads(content)["error"]["type"] in {"UpstreamError", "Exhausted"} or content == b'{"odd": "body"}'


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_in_process_the_sdk_gets_the_status_as_it_is(tools):
    with Odd(of(b"999 Odd")) as odd:
        client = OpenAI(base_url=odd.url, api_key="k", max_retries=0, config=Config(), detect=False)
        with client, pytest.raises(openai.APIStatusError) as raised:
            client.chat.completions.create(**HELLO, **({"tools": tools} if tools else {}))
    assert raised.value.status_code == 999
    assert raised.value.response.json() == {"odd": "body"}


def passing(status, fields, body, path, kind="h11"):
    """Ask through a proxy whose HTTP client answers by itself, with what h11 would not read."""
    module = installed_library().module

    class Body(module.AsyncByteStream):
        async def __aiter__(self):
            yield body

    def answer(_):
        return module.Response(status, headers=fields, stream=Body())

    client = module.AsyncClient(transport=module.MockTransport(answer))
    with serving(
        Proxy(base_url="http://up.example/v1", config=Config(), detect=False, http_client=client), kind
    ) as port:
        return ask(port, path)


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("path", ["/v1/models", CHAT])
@pytest.mark.parametrize(
    "field",
    [
        (b"x-a", b"1\r\nset-cookie: evil=1"),
        (b"x-b", b"a\nb"),
        (b"x-c", b"\x00"),
        (b"x d", b"1"),
        (b"", b"1"),
        (b"x-e", b" blank "),
        (b"x-f", "é".encode()),
        (b"x-g", b"\x0b"),
    ],
)
def test_fields_that_cannot_be_written_are_left_out(kind, path, field):
    fields = [field, (b"x-kept", b"yes"), (b"content-type", b"application/json")]
    status, head, content = passing(200, fields, json.dumps(completion("hi")).encode(), path, kind)
    assert status == 200
    assert head["x-kept"] == "yes"
    assert "set-cookie" not in head
    assert json.loads(content)["choices"][0]["message"]["content"] == "hi"


@pytest.mark.parametrize("status", [100, 103, 199, 999])
@pytest.mark.parametrize("path", ["/v1/models", CHAT])
def test_an_informational_status_at_the_end_is_a_502_with_its_body(status, path):
    said, head, content = passing(status, [], b"odd", path)
    assert (said, content) == (502, b"odd")
    assert head["x-promptools-upstream-status"] == str(status)


# -- the length of a request


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("path", [CHAT])
def test_a_body_over_the_bound_is_refused_and_not_sent(server, kind, path):
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config(), max_body=1000), kind) as port:
        said = request(f"POST {path} HTTP/1.1", "Host: localhost", body=b"x" * 1000)
        assert raw(port, said)[0] == 200
        server.seen.clear()
        # the length is told: the answer waits for nothing
        for length in ("1001", "9" * 20):
            head = request(f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}")
            status, answer = raw(port, head)
            if length == "1001" or status != 400:  # a server may refuse so long a number itself
                assert status == 413
                error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
                assert error["code"] == "body_too_large"
                assert "--max-body" in error["message"]
        # it is not told
        chunks = request(f"POST {path} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked")
        assert raw(port, chunks + b"1f4\r\n%b\r\n" % (b"x" * 500) * 2 + b"1\r\nx\r\n")[0] == 413
    assert not server.seen


def test_no_more_of_a_long_body_is_kept_than_the_bound():
    """Of an endless body the proxy asks its server for no more pieces than it may hold."""
    asked = []
    sent = []

    async def receive():
        if sent:
            return {"type": "http.disconnect"}
        asked.append(1)
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [(b"host", b"localhost")]}
    proxy = Proxy(base_url="http://127.0.0.1:9/v1", config=Config(), max_body=1000)
    asyncio.run(proxy(scope, receive, send))
    assert sent[0]["status"] == 413
    assert len(asked) == 11
