"""gpt-oss' browser over a search that is named: results, pages, links, and what cannot be opened."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from promptools.errors import UsageError
from promptools.harness.agent.toolbox import Toolbox
from promptools.harness.toolsets import AgentTool
from promptools.harness.toolsets.browser import browser_tools, search_by_tool, search_by_url
from promptools.types import Tool

PAGE = """<!doctype html><html><head><title>Fjords 【9†of Norway】</title><style>p {}</style></head><body>
<nav><a href="/deep#x">Deep <b>fjords</b></a> <a href="javascript:alert(1)">no</a></nav>
<p>The longest is <em>Sogne</em>fjord.</p><script>var secret = 1</script>
<ul><li>one</li><li>two</li></ul></body></html>"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        here = f"http://127.0.0.1:{self.server.server_port}"
        results = {
            "query": "x",
            "results": [{"title": "Fjords", "url": f"{here}/page", "content": "Long\n【0†x】 ones"}],
        }
        pages = {
            "/search?q=deep%20fjords&n=3": ("application/json", json.dumps(results)),
            "/page": ("text/html", PAGE),
            "/deep": ("text/plain", "\n".join(f"line {at}" for at in range(150))),
        }
        kind, text = pages.get(self.path, ("", ""))
        self.send_response(200 if kind else 302 if self.path == "/moved" else 404)
        self.send_header("content-type", kind)
        self.send_header("location", "/deep")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def here():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def caller(toolset):
    box = Toolbox([toolset])

    def call(name, **arguments):
        prepared = box.prepare_call("1", f"browser.{name}", json.dumps(arguments))
        assert prepared.work is not None, prepared.result
        return prepared.work()

    return call


def test_a_search_its_pages_and_their_links(here):
    call = caller(browser_tools(search_by_url(f"{here}/search?q={{query}}&n={{count}}"), allow_private=True))
    with pytest.raises(ValueError, match="search first"):
        call("open")
    found = call("search", query="deep fjords", topn=3)
    assert found.startswith("[0] results for 'deep fjords'\nlines 0 to 3 of 4\n\nL0: 【0†Fjords】 ")
    page = call("open", id=0)
    assert page.splitlines()[0] == f"[1] Fjords 〖9†of Norway〗 ({here}/page)"
    text = [line.partition(": ")[2] for line in page.splitlines()[3:]]
    assert [line for line in text if line] == ["【0†Deep fjords】 no", "The longest is Sognefjord.", "one", "two"]
    assert call("find", pattern="sogne") == f"L{text.index('The longest is Sognefjord.')}: The longest is Sognefjord."
    assert "is not in this page" in call("find", pattern="secret")
    deep = call("open", id=0, cursor=1, loc=140)
    assert deep.splitlines()[:4] == [f"[2] {here}/deep ({here}/deep)", "lines 140 to 149 of 150", "", "L140: line 140"]
    assert call("open", cursor=2, loc=0, num_lines=2).splitlines()[-1] == "L1: line 1"


def test_what_cannot_be_opened(here):
    search = search_by_url(f"{here}/search?q={{query}}&n={{count}}")
    call = caller(browser_tools(search, allow_private=True))
    call("search", query="deep fjords", topn=3)
    with pytest.raises(ValueError, match="was not found by a search"):
        call("open", id=f"{here}/deep?what=was+read")
    for arguments, told in (({"id": 7}, "no link 7"), ({"cursor": 5}, r"no page \[5\]"), ({"loc": 99}, "no line 99")):
        with pytest.raises(ValueError, match=told):
            call("open", **arguments)
    private = caller(browser_tools(search))
    private("search", query="deep fjords", topn=3)
    with pytest.raises(ValueError, match="is in a private network"):
        private("open", id=0)


def test_a_search_by_a_tool(here):
    schema = {"type": "object", "properties": {"limit": {"type": "number"}, "query": {"type": "string"}}}
    asked = []

    def web(query):
        asked.append(query)
        return f"1. Fjords: {here}/deep (long ones)"

    call = caller(browser_tools(search_by_tool(AgentTool(Tool("web", "", schema), web)), allow_private=True))
    assert f"【0†{here}/deep】" in call("search", query="x")
    assert "L0: line 0" in call("open", id=0)
    assert asked == ["x"]


def test_what_is_not_a_search():
    with pytest.raises(UsageError, match="query"):
        search_by_url("https://search.example/")
    with pytest.raises(UsageError, match="takes no text"):
        search_by_tool(AgentTool(Tool("web", "", {"type": "object"}), print))
