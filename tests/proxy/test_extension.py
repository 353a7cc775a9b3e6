"""Extensions of the proxy: their pages never reach the server, need the proxy's key, and follow exchanges."""

import httpx
import pytest
from serving import serving

from promptools.proxy import Extension, Proxy

pytest.importorskip("starlette")


class Page(Extension):
    paths = ("/page", "/open")
    public_paths = ("/open",)

    def __init__(self):
        self.seen = []
        self.observer = self

    def routes(self, proxy):
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        return [Route(path, lambda _: PlainTextResponse(proxy.base_url)) for path in ("/page/one", "/open")]

    async def start(self, proxy):
        self.seen.append("start")

    async def stop(self):
        self.seen.append("stop")

    def began(self, exchange):
        self.seen.append("began")

    def sent(self, exchange, sent):
        pass

    def received(self, exchange, received):
        pass

    def ended(self, exchange, end):
        self.seen.append("ended")


@pytest.fixture
def page():
    return Page()


def test_pages_need_the_key_unless_they_are_public(page):
    proxy = Proxy(base_url="http://127.0.0.1:1/v1", api_keys="k1", detect=False, extensions=[page])
    with serving(proxy) as port:
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/open").text == "http://127.0.0.1:1/v1"
        assert httpx.get(f"{url}/open/more").status_code == 401  # below a public path
        assert httpx.get(f"{url}/page/one").status_code == 401
        assert httpx.get(f"{url}/page/one", headers={"x-api-key": "k1"}).status_code == 200
        assert httpx.get(f"{url}/page/two", headers={"x-api-key": "k1"}).status_code == 404
        assert httpx.get(f"{url}/pages", headers={"x-api-key": "k1"}).status_code == 502  # the server's
        answer = httpx.post(f"{url}/v1/chat/completions", json={"model": "m"}, headers={"x-api-key": "k1"})
        assert answer.status_code == 502
    assert page.seen == ["start", "began", "ended", "stop"]
