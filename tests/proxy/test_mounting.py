"""The proxy within another ASGI application: below a prefix, with the application's lifespan."""

from contextlib import asynccontextmanager

import pytest
from serving import HTTP, raw, request, serving
from upstream import completion, running

from promptools.profiles import Config, Provider
from promptools.proxy import Extension, Proxy
from promptools.transport import installed_library

pytest.importorskip("starlette")

CHAT = "/llm/v1/chat/completions"
HELLO = {"model": "m", "messages": []}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def http():
    with installed_library().module.Client(timeout=300) as client:
        yield client


class Page(Extension):
    paths = public_paths = ("/page",)

    def __init__(self):
        self.seen = []

    def routes(self, proxy):
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        return [Route("/page/one", lambda _: PlainTextResponse("one"))]

    async def start(self, proxy):
        self.seen.append("start")

    async def stop(self):
        self.seen.append("stop")


def mounted(proxy, prefix="/llm"):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    @asynccontextmanager
    async def lifespan(app):
        async with proxy:
            yield

    return Starlette(routes=[Mount(prefix, proxy)], lifespan=lifespan)


@pytest.mark.parametrize("kind", HTTP)
def test_below_a_prefix_all_is_as_at_the_root(server, http, kind):
    server.play(completion("hello"))
    page = Page()
    with serving(mounted(Proxy(base_url=server.url, config=Config(), extensions=[page])), kind) as port:
        url = f"http://127.0.0.1:{port}"
        assert http.post(url + CHAT, json=HELLO).json()["choices"][0]["message"]["content"] == "hello"
        for path in ("/v1/models?a=b%20c", "/props/a%2Fb", "/"):
            http.get(f"{url}/llm{path}")
        assert http.post(f"{url}/llm/v1/messages", json={}).json()["type"] == "error"
        assert http.get(f"{url}/llm/page/one").text == "one"
        assert http.get(f"{url}/page/one").status_code == 404
    paths = ["/v1/chat/completions", "/v1/models?a=b%20c", "/props/a%2Fb", "/"]
    assert [each.path for each in server.seen] == paths
    assert page.seen == ["start", "stop"]


@pytest.mark.parametrize("kind", HTTP)
def test_a_target_outside_of_the_prefix_is_never_the_proxys(server, kind):
    server.play(completion())
    with serving(mounted(Proxy(base_url=server.url, config=Config())), kind) as port:
        for target in ("/llm/../v1/models", "/llm/%2e%2e/v1/models", "/llmv1/models", "/v1/models"):
            status, _ = raw(port, request(f"GET {target} HTTP/1.1", "Host: localhost", "Connection: close"))
            assert status in {400, 404}
    assert not server.seen


def test_several_servers_below_a_prefix(server, http):
    server.play(completion("hello"))
    server.about = {"/v1/models": {"data": [{"id": "m"}]}}
    providers = {name: Provider(name, kind="vllm", base_url=server.url) for name in ("a", "b")}
    with serving(mounted(Proxy(config=Config(default_provider="a", providers=providers)), "/deep/llm")) as port:
        url = f"http://127.0.0.1:{port}/deep/llm/v1"
        assert http.post(f"{url}/chat/completions", json={**HELLO, "model": "b/x"}).status_code == 200
        assert http.post(f"{url}/embeddings", json={"model": "b/y"}).status_code == 200
        assert [each["id"] for each in http.get(f"{url}/models").json()["data"]] == ["m", "a/m", "b/m"]
        assert http.get(f"{url}/models/b/m").json()["owned_by"] == "b"
    assert [(each.path, each.json["model"]) for each in server.seen] == [
        ("/v1/chat/completions", "x"),
        ("/v1/embeddings", "y"),
    ]


def test_a_frameworks_own_routes_stay_beside_it(server, http):
    """An application that calls the proxy with a scope of its own, as frameworks with sub-applications do."""
    proxy = Proxy(base_url=server.url, config=Config())
    server.play(completion("hello"))

    async def app(scope, receive, send):
        if scope["type"] == "http" and scope["path"].startswith("/llm/"):
            # path without the prefix, and the prefix in root_path: as before ASGI 3's clarification
            await proxy({**scope, "root_path": "/llm", "path": scope["path"].removeprefix("/llm")}, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await proxy(scope, receive, send)

    with serving(app) as port:
        assert http.get(f"http://127.0.0.1:{port}/own").status_code == 204
        assert http.post(f"http://127.0.0.1:{port}{CHAT}", json=HELLO).status_code == 200
    assert [each.path for each in server.seen] == ["/v1/chat/completions"]
