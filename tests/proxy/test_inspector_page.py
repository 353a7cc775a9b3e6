"""The inspector's page in a real headless Chromium, over a real llama.cpp whose parser fails, and scripted servers."""

import json
import threading
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from browsing import Tab, chromium, program
from serving import serving
from starlette.applications import Starlette
from starlette.routing import Mount
from upstream import Answer, chunk, completion, running, sse

from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.proxy.inspector import Inspector, inspector

pytestmark = pytest.mark.chromium

KEY = "k-of-the-proxy-1"
HEADERS = {"authorization": f"Bearer {KEY}"}
CHAT = "/v1/chat/completions"
ASK = {
    "model": "gpt-oss-20b",
    "messages": [{"role": "user", "content": weather.QUESTION}],
    "tools": [weather.TOOL],
}
HOSTILE = '<script>window.pwned=1</script><img src="x" onerror="window.pwned=2"><svg onload="window.pwned=3">'


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def healed():
    """A proxy before llama.cpp, with a chat, a healed exchange and a healed stream."""
    program()
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    with serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss-20b") as real:
        proxy = Proxy(base_url=real.base_url, config=Config(), api_keys=KEY, extensions=[Inspector()])
        with serving(proxy) as port:
            url = f"http://127.0.0.1:{port}"
            chat = {**ASK, "tools": None, "messages": [{"role": "user", "content": "Hi"}]}
            for body in (chat, ASK, {**ASK, "stream": True}):
                assert httpx.post(url + CHAT, json=body, headers=HEADERS, timeout=300).status_code == 200
            yield url


@pytest.fixture
def scripted(server):
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[Inspector()])
    with serving(proxy) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def open_tab(browser):
    tabs = []

    def begin(url, **context):
        tabs.append(Tab(browser, url, **context))
        return tabs[-1]

    yield begin
    for tab in tabs:
        assert tab.errors == []
        assert {address.partition("/inspect")[0] for address in tab.asked} == {tab.url}, "asked elsewhere"
        tab.close()


# --- who may see it ------------------------------------------------------------------------------------------------


def test_the_key_opens_the_page_for_this_tab_only(healed, open_tab):
    tab = open_tab(healed)
    tab.page.wait_for_selector("#login-form")
    assert tab.page.evaluate("document.activeElement.id") == "key"
    tab.page.fill("#key", "wrong")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("text=This key is not accepted.")
    tab.log_in(KEY)
    assert tab.page.locator("#list li").count() == 3
    tab.page.reload()
    tab.page.wait_for_selector("#list li")
    stored = tab.page.evaluate("[document.cookie, JSON.stringify(localStorage), location.href]")
    assert not [place for place in stored if KEY in place]
    assert not [address for address in tab.asked if KEY in address]
    other = tab.context.new_page()
    other.goto(f"{healed}/inspect")
    other.wait_for_selector("#login-form")


def test_without_a_key_there_is_nothing_to_ask_for(scripted, open_tab):
    tab = open_tab(scripted)
    tab.page.wait_for_selector("#empty")
    assert tab.text("#empty").startswith("No exchange yet.")


# --- exchanges -----------------------------------------------------------------------------------------------------


def test_a_healed_exchange_from_question_to_call(healed, open_tab):
    tab = open_tab(healed).log_in(KEY).select(1)
    assert tab.text("#list li >> nth=1").split("\n")[:2] == ["healed", "gpt-oss-20b"]
    detail = tab.text("#detail")
    assert "Mode: harmony" in detail
    assert "native mode: server_parser" in detail
    assert "modes = ('native', 'harmony', 'prompt')" in detail
    assert tab.page.locator(".timeline li").count() == 2
    assert "<|start|>system<|message|>" in tab.text(".prompt pre")
    parts = tab.page.locator(".raw pre .part").evaluate_all(
        "parts => parts.map((part) => [part.classList[1], part.dataset.label, part.textContent])"
    )
    assert ["call", "call · get_weather · harmony", '{"city": "Paris"}'] in parts
    assert ["reasoning", "reasoning", "The user wants weather: use the tool."] in parts
    assert "the markers around the call were irregular" in detail
    assert "What the app got" in detail


def test_an_exchange_is_shown_while_it_runs(server, scripted, open_tab):
    go_on = threading.Event()
    server.play(
        sse(chunk({"content": "Let me"}), chunk({"content": " look."}, "stop"), between=lambda: go_on.wait(300))
    )
    tab = open_tab(scripted)
    tab.page.wait_for_selector("#empty")
    asking = threading.Thread(target=httpx.post, args=(scripted + CHAT,), kwargs={"json": {**ASK, "stream": True}})
    asking.start()
    try:
        tab.page.wait_for_selector("#list .badge.running")
        tab.page.keyboard.press("j")
        tab.page.wait_for_selector(".raw pre >> text=Let me")
    finally:
        go_on.set()
        asking.join()
    tab.page.wait_for_selector("#list .badge.ok")
    tab.page.wait_for_selector(".raw pre >> text=Let me look.")


def test_keys(healed, open_tab):
    tab = open_tab(healed).log_in(KEY)
    page, keyboard = tab.page, tab.page.keyboard

    def focused():
        return page.evaluate("document.activeElement.id")

    def selected():
        return page.locator("#list [aria-selected=true]").evaluate_all("rows => rows.map((row) => row.id)")

    rows = page.locator("#list li").evaluate_all("rows => rows.map((row) => row.id)")
    for key, row in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        keyboard.press(key)
        assert selected() == [rows[row]]
    assert page.get_attribute("#list", "aria-activedescendant") == rows[1]
    page.wait_for_selector("#detail h2")
    keyboard.press("Enter")
    assert focused() == "detail"
    keyboard.press("Escape")
    assert focused() == "list"
    keyboard.press("ArrowUp")
    assert selected() == [rows[0]]
    keyboard.press("/")
    keyboard.type("unchanged j")
    assert (focused(), page.input_value("#filter"), page.locator("#list li").count()) == ("filter", "unchanged j", 0)
    keyboard.press("Backspace")
    assert page.locator("#list li").count() == 1
    keyboard.press("Escape")
    keyboard.press("?")
    assert page.locator("#keys").is_visible()
    keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    keyboard.press("b")
    assert focused() == "bench-text"
    page.go_back()
    page.wait_for_selector("#exchanges")
    assert selected() == [] if page.locator(f"#{rows[0]}").count() == 0 else [rows[0]]


def test_what_is_copied(healed, open_tab):
    tab = open_tab(healed, permissions=["clipboard-read", "clipboard-write"]).log_in(KEY).select(1)
    for button, beginning in (("Copy as curl", "curl -sS -X POST "), ("Copy as test case", '{"name": ')):
        tab.page.click(f".actions >> text={button}")
        tab.page.wait_for_selector("#status >> text=copied")
        assert tab.page.evaluate("navigator.clipboard.readText()").startswith(beginning)


def test_the_list_is_cleared(server, scripted, open_tab):
    server.play(completion())
    httpx.post(scripted + CHAT, json=ASK)
    tab = open_tab(scripted).select()
    tab.page.click("#clear")
    tab.page.wait_for_selector("#empty")
    assert "Select an exchange" in tab.text("#detail")


def test_a_proxy_that_comes_back(server, open_tab, monkeypatch):
    monkeypatch.setattr(inspector, "STREAM_SECONDS", 0.2)  # the proxy that stops waits for the page
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, extensions=[Inspector()])) as port:
        url = f"http://127.0.0.1:{port}"
        httpx.post(url + CHAT, json=ASK)
        tab = open_tab(url).select()
        tab.page.wait_for_selector(".connection.live")
    tab.page.wait_for_selector(".connection.offline")
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[Inspector()])
    config = uvicorn.Config(proxy, port=port, log_level="critical", loop="asyncio", ws="none")
    again = uvicorn.Server(config)
    thread = threading.Thread(target=again.run, daemon=True)
    thread.start()
    try:
        tab.page.wait_for_selector(".connection.live")
        httpx.post(url + CHAT, json={**ASK, "model": "another"})
        tab.page.wait_for_selector("#list >> text=another")
        assert tab.page.locator("#list li").count() == 1
    finally:
        again.should_exit = True
        thread.join(300)


# --- hostile text --------------------------------------------------------------------------------------------------


def test_hostile_text_is_text(server, scripted, open_tab):
    call = json.dumps({"name": HOSTILE, "arguments": {HOSTILE: HOSTILE}})
    tool = {"type": "function", "function": {"name": "get_weather", "description": HOSTILE, "parameters": {}}}
    said = completion(f"{HOSTILE}<tool_call>{call}</tool_call>", [(HOSTILE, json.dumps({"city": HOSTILE}))])
    said["choices"][0]["message"]["reasoning_content"] = HOSTILE
    server.play(Answer(200, (json.dumps(said).encode(),), headers={"X-Note": HOSTILE}))
    body = {"model": HOSTILE, "messages": [{"role": HOSTILE, "content": HOSTILE}, *ASK["messages"]], "tools": [tool]}
    httpx.post(scripted + CHAT, json=body, headers={"x-note": HOSTILE})
    server.play(Answer(500, (json.dumps({"error": {"message": HOSTILE}}).encode(),)))
    httpx.post(scripted + CHAT, json={**ASK, "messages": [{"role": "user", "content": HOSTILE}]})
    tab = open_tab(scripted)
    for place in range(2):
        tab.select(place)
        tab.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        assert "window.pwned=1" in tab.text("#detail")
        assert tab.page.locator("main script, main img, main svg").count() == 0
    tab.page.click("text=Bench")
    tab.page.fill("#bench-text", f"{HOSTILE}<tool_call>{call}</tool_call>")
    tab.page.wait_for_selector("#bench-result .raw pre")
    tab.page.fill("#bench-tools", HOSTILE)
    tab.page.wait_for_selector("#bench-result .error")
    assert tab.page.locator("main script, main img, main svg").count() == 0
    assert tab.page.evaluate("window.pwned") is None


# --- the bench -----------------------------------------------------------------------------------------------------


def test_the_bench_parses_as_one_types(scripted, open_tab):
    tab = open_tab(scripted)
    tab.page.click("text=Bench")
    tab.page.wait_for_selector("#bench-text")
    tab.page.focus("#bench-text")
    tab.page.keyboard.type('Hm. <tool_call>{"name": "get_weather", "arguments": {"city": "Oslo",}}')
    tab.page.wait_for_selector("#bench-result .part.call")
    assert "the JSON was repaired: trailing comma" in tab.text("#bench-result")
    assert "strategy" in tab.text("#bench-result table")
    tab.page.fill("#bench-tools", json.dumps([{"name": "ping", "parameters": {"type": "object"}}]))
    tab.page.wait_for_selector("#bench-result .part.call", state="detached")  # nobody offers the tool
    tab.page.fill("#bench-tools", "[")
    tab.page.wait_for_selector("#bench-result >> text=the tools are not JSON")
    tab.page.fill("#bench-tools", "")
    tab.page.fill("#bench-text", '<tool_call>{"name": "get_wea')
    tab.page.select_option("#bench-finish_reason", "length")
    tab.page.wait_for_selector("#bench-result .part.malformed")


def test_a_reply_of_an_exchange_goes_to_the_bench(healed, open_tab):
    tab = open_tab(healed).log_in(KEY).select(1)
    tab.page.click("text=Open in the bench")
    tab.page.wait_for_selector("#bench-result .part.call")
    assert tab.page.input_value("#bench-dialect") == "harmony"
    assert "commentary" in tab.page.input_value("#bench-text")


# --- for everybody -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(healed, open_tab, scheme):
    tab = open_tab(healed, color_scheme=scheme)
    tab.page.wait_for_selector("#login-form")
    assert tab.faults() == []
    tab.log_in(KEY).select(1)
    tab.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert tab.faults() == []
    tab.page.click("text=Open in the bench")
    tab.page.wait_for_selector("#bench-result .part.call")
    assert tab.faults() == []
    background = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 21, 26)") == (scheme == "dark")


@pytest.mark.parametrize("width", [360, 700, 1600])
def test_no_width_scrolls_sideways(healed, open_tab, width):
    tab = open_tab(healed, viewport={"width": width, "height": 800}).log_in(KEY).select(1)
    for view in ("Exchanges", "Bench"):
        tab.page.click(f"nav >> text={view}")
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_works_where_the_proxy_is_mounted(server, open_tab):
    server.play(completion())
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[Inspector()])

    @asynccontextmanager
    async def lifespan(_):
        async with proxy:
            yield

    with serving(Starlette(routes=[Mount("/models", proxy)], lifespan=lifespan)) as port:
        url = f"http://127.0.0.1:{port}/models"
        assert httpx.post(url + CHAT, json=ASK).status_code == 200
        tab = open_tab(url).select()
        assert "What the app got" in tab.text("#detail")
