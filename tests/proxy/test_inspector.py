"""The inspector's data: what is kept and for how long, what is masked, who may see it, and what each view says."""

import json
import re
import shlex
import subprocess
import sys
import threading
from typing import get_args

import httpx
import pytest
from serving import serving
from upstream import Answer, chunk, completion, running, sse

from promptools import parse
from promptools.exchange import Ended, ExchangeEnd, Failed, ObservedExchange, Opened, Piece, Request, SentRequest
from promptools.masking import MASK, SecretMask, mask_headers, mask_url, secrets_in
from promptools.profiles import Config, Provider
from promptools.proxy import Proxy
from promptools.proxy.inspector import Inspector
from promptools.proxy.inspector.exchange_store import DISCONNECTED, MAX_BODY, ExchangeStore
from promptools.proxy.inspector.inspector import STATIC
from promptools.proxy.inspector.reply_view import FIX_WORDS, MALFORMED_WORDS
from promptools.types import FixKind, MalformedReason

pytest.importorskip("starlette")

KEY, PROVIDER_KEY = "k-of-the-proxy-1", "sk-operators-4242"
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
ASK = {**HELLO, "tools": [TOOL]}
FENCED = 'Let me look.\n```json\n{"tool": "get_weather", "arguments": {"city": "Oslo",}}\n```'
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def http():
    with httpx.Client(timeout=300, headers={"authorization": f"Bearer {KEY}"}) as client:
        yield client


class Page:
    """What a page with the key gets of an inspector."""

    def __init__(self, http, port):
        self.http, self.url = http, f"http://127.0.0.1:{port}"

    def ask(self, body, path=CHAT, **keys):
        return self.http.post(self.url + path, **({} if body is None else {"json": body}), **keys)

    def list(self):
        return self.http.get(f"{self.url}/inspect/api/exchanges").json()

    def detail(self, place=-1):
        found = self.list()["exchanges"][place]["id"]
        return self.http.get(f"{self.url}/inspect/api/exchanges/{found}").json()

    def parse(self, **body):
        return self.http.post(f"{self.url}/inspect/api/parse", json=body)


@pytest.fixture
def page(server, http):
    proxy = Proxy(base_url=server.url, config=Config(), api_keys=KEY, detect=False, extensions=[Inspector()])
    with serving(proxy) as port:
        yield Page(http, port)


# --- who may see it ------------------------------------------------------------------------------------------------


def test_data_needs_the_key_and_the_page_holds_none(server, page):
    server.play(completion())
    page.ask(HELLO)
    with httpx.Client() as stranger:
        for path in ("api/exchanges", "api/exchanges/x", "api/events", "api/parse", "api/", "nothing", "static/none"):
            assert stranger.get(f"{page.url}/inspect/{path}").status_code == 401
        assert stranger.delete(f"{page.url}/inspect/api/exchanges").status_code == 401
        assert stranger.post(f"{page.url}/inspect/api/parse", json={"text": "x"}).status_code == 401
        public = [stranger.get(f"{page.url}/inspect")]
        public += [stranger.get(f"{page.url}/inspect/static/{path.name}") for path in STATIC.iterdir()]
    assert {answer.status_code for answer in public} == {200}
    assert not any("Oslo" in answer.text or KEY in answer.text for answer in public)
    assert len(page.list()["exchanges"]) == 1


def test_the_page_runs_its_own_scripts_only(page):
    answer = httpx.get(f"{page.url}/inspect")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    sources = "".join(path.read_text(encoding="utf-8") for path in STATIC.iterdir())
    unsafe = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(")
    assert [word for word in unsafe if word in sources] == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", sources) == []  # nothing from elsewhere


def test_without_the_inspector_its_paths_are_the_servers(server):
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config(), detect=False)) as port:
        httpx.get(f"http://127.0.0.1:{port}/inspect")
    assert [seen.path for seen in server.seen] == ["/inspect"]


# --- what is masked ------------------------------------------------------------------------------------------------


def test_no_view_holds_a_key(server, http, monkeypatch):
    monkeypatch.setenv("A_KEY", PROVIDER_KEY)
    provider = Provider("a", kind="vllm", base_url=server.url, api_key_env="A_KEY")
    config = Config(providers={"a": provider})
    inspector = Inspector()
    proxy = Proxy(config=config, provider="a", api_keys=KEY, detect=False, extensions=[inspector])
    echo = completion(f"{FENCED} Your key is {PROVIDER_KEY}, your cookie {'c' * 20}.")
    server.play(Answer(200, (json.dumps(echo).encode(),), headers={"Set-Cookie": f"a={'s' * 20}"}))
    with serving(proxy) as port:
        page = Page(http, port)
        page.ask(ASK, headers={"Cookie": f"session={'c' * 20}"}, params={"api_key": "q" * 20})
        shown = json.dumps([page.list(), page.detail()])
        events = next_event(http, page)
    assert server.seen[0].headers["authorization"] == f"Bearer {PROVIDER_KEY}"
    for secret in (PROVIDER_KEY, KEY, "c" * 20, "s" * 20, "q" * 20):
        assert secret not in shown
        assert secret not in json.dumps(events)
    assert f"Bearer {MASK}" in shown
    assert '\\"authorization: Bearer $KEY\\"' in shown


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "Cookie", "Set-Cookie", "X-Auth-Token", "x-amz-token"])
def test_fields_of_credentials_are_masked_and_remembered(name):
    headers = ((name, "Bearer abcdefghijklmnop"), ("x-ratelimit-remaining-tokens", "1000000000000"))
    assert mask_headers(headers) == ((name, f"Bearer {MASK}"), headers[1])
    assert "abcdefghijklmnop" in secrets_in(headers, "")
    assert "1000000000000" not in secrets_in(headers, "")


def test_urls_and_passwords():
    url = "https://joe:hunter2hunter2@host/v1?key=abcdefghijklmnop&model=m"
    assert mask_url(url) == f"https://***@host/v1?key={MASK}&model=m"
    basic = (("authorization", "Basic am9lOmh1bnRlcjJodW50ZXIy"),)
    masked = SecretMask(secrets_in(basic, url)).value({"a": ["hunter2hunter2 abcdefghijklmnop"]})
    assert masked == {"a": [f"{'*' * 14} {'*' * 16}"]}
    assert SecretMask(()).value("none") == "none"


# --- what is kept --------------------------------------------------------------------------------------------------


def test_the_newest_are_kept(server, http):
    server.play(completion())
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[Inspector(max_exchanges=2)])
    with serving(proxy) as port:
        page = Page(http, port)
        for _ in range(3):
            page.ask(HELLO)
        assert [row["number"] for row in page.list()["exchanges"]] == [2, 3]
        http.delete(f"{page.url}/inspect/api/exchanges")
        assert page.list()["exchanges"] == []


def played(store, number, sizes):
    """Play exchanges into a store, each with bodies of these sizes."""
    for count in range(number):
        request = Request("POST", "http://s/v1/chat/completions", (), b"x" * sizes[0])
        exchange = ObservedExchange(str(count), request, "chat", 0.0)
        store.began(exchange)
        store.sent(exchange, SentRequest(1, "forward", "native", request, 0.0))
        store.received(exchange, Opened(200, (), 1.0))
        for size in sizes[1:]:
            store.received(exchange, Piece(b"y" * size, 2.0))
        store.received(exchange, Ended(3.0))
        store.ended(exchange, ExchangeEnd(4.0, "p", "m", 200))


def test_bytes_are_bounded_and_long_bodies_are_cut():
    store = ExchangeStore(max_bytes=8 * MAX_BODY)
    played(store, 20, (2 * MAX_BODY, MAX_BODY // 2, MAX_BODY, 5))
    kept = store.exchanges()
    assert 0 < len(kept) < 20
    assert store.size == sum(exchange.size for exchange in kept) <= store.max_bytes
    assert kept[-1].number == 20
    assert (len(kept[-1].body.data), kept[-1].body.left_out) == (MAX_BODY, MAX_BODY)
    response = kept[-1].sends[0].response
    assert (len(response.data), response.left_out) == (MAX_BODY, MAX_BODY // 2 + 5)


def test_what_is_dropped_while_it_runs_is_forgotten():
    store = ExchangeStore(max_exchanges=1)
    request = Request("POST", "http://s/v1/chat/completions", (), b"{}")
    first, second = (ObservedExchange(name, request, "chat", 0.0) for name in "ab")
    store.began(first)
    store.began(second)
    store.sent(first, SentRequest(1, "forward", "native", request, 0.0))
    store.received(first, Failed("closed", "gone", 1.0))
    store.ended(first, ExchangeEnd(4.0, "p", "m", 200))
    assert [kept.observed.id for kept in store.exchanges()] == ["b"]
    assert store.first == 2


@pytest.mark.parametrize(("status", "error"), [(503, "the request went on to another server"), (None, DISCONNECTED)])
def test_an_exchange_that_is_closed_early(status, error):
    store = ExchangeStore()
    exchange = ObservedExchange("a", Request("POST", "http://s/v1/chat/completions", (), b"{}"), "chat", 0.0)
    store.began(exchange)
    store.ended(exchange, ExchangeEnd(4.0, "p", "m", status, error=GeneratorExit()))
    assert store.get("a").error == error


def test_threads_may_play_into_it_at_once():
    store = ExchangeStore(max_exchanges=5)
    threads = [threading.Thread(target=played, args=(store, 200, (10, 10))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.size == sum(kept.size for kept in store.exchanges())


# --- what is shown -------------------------------------------------------------------------------------------------


def test_an_exchange_that_was_healed(server, page):
    error = {"error": {"message": "error parsing tool call: raw='x'", "code": 500}}
    server.play(Answer(500, (json.dumps(error).encode(),)), completion(FENCED))
    page.ask({**ASK, "promptools": {"mode": None}})
    (row,) = page.list()["exchanges"]
    assert (row["state"], row["mode"], row["attempts"], row["calls"], row["fixes"]) == (
        "healed", "prompt", 2, ["get_weather"], 1,
    )  # fmt: skip
    assert row["question"] == "Weather in Oslo?"
    detail = page.detail()
    assert [line.partition(":")[0] for line in detail["why"]] == ["native mode", "prompt mode"]
    assert any(reason["mode"] for reason in detail["reasons"])
    cost = detail["healing"]
    assert (cost["requests"], cost["input_tokens"], cost["output_tokens"]) == (1, 0, 0)
    assert 0 < cost["seconds"] * 1000 < detail["ms"]
    first, second = detail["sends"]
    assert (first["ok"], second["ok"]) == (False, True)
    assert first["start"] <= first["opened"] <= first["end"] <= second["start"] <= detail["ms"]
    assert [tool["name"] for tool in first["prompt"]["tools"]] == ["get_weather"]
    assert "get_weather" in second["prompt"]["messages"][0]["text"]
    (choice,) = second["reply"]["choices"]
    assert "".join(part["text"] for part in choice["parts"]) == FENCED
    assert [part["kind"] for part in choice["parts"] if part["kind"] != "discarded"] == ["content", "call"]
    assert choice["tries"]
    (call,) = detail["replies"][0]["calls"]
    assert call["fixes"] == [f"{FIX_WORDS['json']}: trailing comma"]
    assert json.loads(detail["response"]["text"])["choices"][0]["message"]["tool_calls"]


def test_a_call_that_is_made_over_and_over(server, page):
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    turn = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
    ]
    for turns in (1, 2):
        server.play(completion("It rains."))
        page.ask({**ASK, "messages": [*ASK["messages"], *turn * turns]})
    first, second = page.list()["exchanges"]
    assert (first["repeated"], second["repeated"]) == (False, True)
    assert any("was called 2 times with the same arguments" in note for note in page.detail()["notes"])


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", CHAT])
@pytest.mark.parametrize("streamed", [False, True])
def test_every_api_and_streams(server, page, path, streamed):
    deltas = [{"reasoning_content": "Think."}, {"content": FENCED[:20]}, {"content": FENCED[20:]}]
    server.play(sse(*map(chunk, deltas), chunk({}, "stop")) if streamed else completion(FENCED))
    tool = TOOL["function"]
    bodies = {
        "/v1/responses": {"model": "m", "input": "Weather in Oslo?", "tools": [{"type": "function", **tool}]},
        "/v1/messages": {
            **HELLO,
            "max_tokens": 99,
            "tools": [{"name": tool["name"], "input_schema": tool["parameters"]}],
        },
        CHAT: ASK,
    }
    answer = page.ask({**bodies[path], "stream": streamed}, path)
    assert answer.status_code == 200
    detail = page.detail()
    assert detail["question"] == "Weather in Oslo?"
    assert detail["request"]["url"] == page.url + path
    assert detail["response"]["text"] == answer.text
    (choice,) = detail["sends"][-1]["reply"]["choices"]
    assert [part["label"] for part in choice["parts"] if part["kind"] == "call"] == ["get_weather · json"]
    assert choice["reasoning"] == ("Think." if streamed else "")
    assert detail["calls"] == ["get_weather"]


def test_calls_that_the_server_parsed(server, page):
    server.play(completion(None, [("get_weather", '{"city": "Oslo"}')]))
    page.ask(ASK)
    detail = page.detail()
    (choice,) = detail["sends"][0]["reply"]["choices"]
    assert choice["native_calls"] == [{"name": "get_weather", "arguments": '{"city": "Oslo"}'}]
    assert (detail["state"], detail["case"]) == ("ok", "")


def test_errors_and_refusals(server, page):
    server.play(Answer(400, (b'{"error": {"message": "no such model"}}',)))
    page.ask(HELLO)
    assert (page.list()["exchanges"][-1]["state"], page.detail()["sends"][0]["response"]["status"]) == ("failed", 400)
    page.ask({**ASK, "promptools": {"mode": "nonsense"}})
    detail = page.detail()
    assert (detail["state"], detail["status"], detail["sends"]) == ("failed", 400, [])
    assert "nonsense" in detail["response"]["text"]
    page.ask({"model": "m"}, content=b"\xff{")
    assert page.detail()["request"]["text"].startswith("\ufffd")


LOST = b'{"error": {"message": "Unexpected token 173781 while expecting start token 200006"}}'


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_without_tools_whose_reply_is_lost_has_failed(server, page, streamed):
    lost = Answer(200, (b"data: " + LOST + b"\n\n",), "text/event-stream") if streamed else Answer(500, (LOST,))
    thought = sse(chunk({"reasoning_content": "Hm."})).pieces[:1] if streamed else ()
    lost.pieces = (*thought, *lost.pieces)
    server.play(lost, lost, lost)
    answer = page.ask({**HELLO, "stream": streamed})
    assert answer.status_code == (200 if streamed else 500)
    assert "while expecting start token" in answer.text
    detail = page.detail()
    assert (detail["state"], len(detail["sends"])) == ("failed", 3)
    users = [send["request"]["text"].count("user") for send in detail["sends"]]
    # none in a prompt that is sent as token ids, where the vocabulary was loaded by an earlier test
    assert users[0] == max(users) == 1, "nobody speaks in the user's name"


def test_a_server_that_is_not_there(http):
    proxy = Proxy(
        base_url="http://127.0.0.1:1/v1", config=Config(), api_keys=KEY, detect=False, extensions=[Inspector()]
    )
    with serving(proxy) as port:
        page = Page(http, port)
        assert page.ask(HELLO).status_code == 502
        detail = page.detail()
    assert (detail["state"], detail["status"]) == ("failed", None)
    assert detail["sends"][0]["outcome"].startswith("connect: ")


def test_a_request_that_goes_on_to_another_server(server, http):
    with running() as other:
        server.play(Answer(503, (b"{}",)))
        other.play(completion(FENCED))
        first = Provider("a", kind="vllm", base_url=server.url, failover=("b",))
        config = Config(
            providers={"a": first, "b": Provider("b", kind="vllm", base_url=other.url)}, default_provider="a"
        )
        with serving(Proxy(config=config, detect=False, extensions=[Inspector()])) as port:
            page = Page(http, port)
            assert page.ask(ASK).status_code == 200
            rows = page.list()["exchanges"]
            assert page.detail()["reasons"][0]["text"].startswith("provider 'b'")
    assert [(row["provider"], row["state"], row["status"]) for row in rows] == [
        ("a", "failed", 503),
        ("b", "healed", 200),
    ]


def test_a_client_that_leaves(server, page):
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))
    with page.http.stream("POST", page.url + CHAT, json={**HELLO, "stream": True}) as answer:
        next(answer.iter_raw())
    change = 0
    while page.list()["exchanges"][0]["state"] == "running":
        change = next_event(page.http, page, change)["change"]
    (row,) = page.list()["exchanges"]
    assert (row["state"], row["error"]) == ("disconnected", "the client disconnected")


def test_text_that_is_not_unicode_and_markup_pass_as_they_are(server, page):
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    said = json.dumps(completion(f"{hostile} \ud83d"))
    server.play(Answer(200, (said.encode(),)))
    tool = {"type": "function", "function": {"name": "get_weather", "description": hostile, "parameters": {}}}
    page.ask({**ASK, "tools": [tool]}, headers={"x-note": hostile})
    detail = page.detail()
    assert detail["replies"][0]["content"] == f"{hostile} \ud83d"
    assert ["x-note", hostile] in detail["request"]["headers"]


DEEP = 970
ODD_BODIES = [
    b"",
    b"[" * 100_000,
    b'{"messages": 5, "tools": "x", "input": {"a": 1}}',
    b'{"messages": [5, null, {"role": 5, "content": {"a": [1]}, "tool_calls": {"x": 1}}]}',
    b'{"messages": [{"tool_calls": [5, {"function": 5}]}]}',
    b'{"messages": [{"role": "user", "content": [5, {"type": "image_url"}, {"text": 5}]}], "tools": [5, {}]}',
    b'{"messages": [], "tools": [{"function": {"name": "f", "parameters": %b}}]}'
    % (b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
    b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [], "n": 3}',
]
ODD_ANSWERS = [
    b"",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"choices": 5, "usage": 5}',
    b'{"choices": [5, {"index": "x", "message": {"content": 5, "tool_calls": [{"function": {"arguments": {}}}]}}]}',
    b'{"choices": [{"index": 7, "message": {"content": "<tool_call>{\\"name\\": \\"x"}}], "usage": {"a": {"b": 1}}}',
    b'data: {"choices": [{"delta": {"content": "half',
]


@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=range(len(ODD_ANSWERS)))
def test_whatever_was_sent_and_answered_can_be_shown(server, page, answer):
    for number, body in enumerate(ODD_BODIES):
        server.play(Answer(200, (answer,), type="text/event-stream" if number % 2 else "application/json"))
        page.ask(None, content=body)
        detail = page.detail()
        assert detail["request"]["size"] == len(body)
        deep = [tool["text"] for send in detail["sends"] for tool in send["prompt"].get("tools", [])]
        assert b'{"a":{"a"' not in body or "nested too deeply to be shown" in deep
    assert len(page.list()["exchanges"]) == len(ODD_BODIES)


# --- what is copied ------------------------------------------------------------------------------------------------


def test_the_curl_command_sends_the_same_request(server, page):
    server.play(completion())
    body = {**HELLO, "messages": [{"role": "user", "content": 'it\'s $HOME `id` \\ "x"\n!'}]}
    page.ask(body, headers={"x-odd": "'; touch /tmp/x; '"})
    command = page.detail()["request"]["curl"]
    words = shlex.split(command)
    assert words[:5] == ["curl", "-sS", "-X", "POST", f"{page.url}{CHAT}"]
    assert "authorization: Bearer $KEY" in words
    assert json.loads(words[-1]) == body
    assert "x-odd: '; touch /tmp/x; '" in words
    echo = f"{shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
    script = command.replace("curl", echo, 1)
    done = subprocess.run(["sh", "-c", script], env={"KEY": KEY}, capture_output=True, text=True, check=True)
    sent = json.loads(done.stdout)
    assert f"authorization: Bearer {KEY}" in sent
    assert json.loads(sent[-1]) == body


def test_the_test_case_is_what_parse_returns(server, page):
    server.play(completion(FENCED))
    page.ask({**ASK, "promptools": {"mode": "prompt"}})
    detail = page.detail()
    row = json.loads(detail["case"])
    assert row["text"] == FENCED
    assert row["calls"] == [["get_weather", {"city": "Oslo"}]]
    reply = parse(row["text"], row["tools"], **row["options"])
    assert [[call.name, call.arguments] for call in reply.calls] == row["calls"]
    assert (reply.content, reply.reasoning) == (row["content"], row["reasoning"])
    assert page.parse(**detail["bench"]).json()["parts"] == detail["sends"][-1]["reply"]["choices"][0]["parts"]


# --- the bench -----------------------------------------------------------------------------------------------------


def test_the_bench_shows_every_strategy(page):
    text = 'It is ```json\n{"a": 1}\n``` and <tool_call>{"name": "get_weather"}</tool_call>'
    view = page.parse(text=text, tools=json.dumps([TOOL])).json()
    assert [call["name"] for call in view["read"]["calls"]] == ["get_weather"]
    assert {attempt["outcome"] for attempt in view["tries"]} >= {"call", "text"}
    nameless = page.parse(text='{"city": "Oslo"}', tools=json.dumps({"tools": [TOOL]}), strictness="lenient").json()
    assert nameless["read"]["calls"]
    assert page.parse(text="<tool_call>{", finish_reason="length").json()["read"]["malformed"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"text": "x", "tools": "{"}, 400, "not JSON"),
        ({"text": "x", "tools": "3"}, 400, "not a list"),
        ({"text": "x", "tools": "[3]"}, 400, ""),
        ({"text": "x", "tools": "[" * 900 + "]" * 900}, 400, "too deeply"),
        ({"text": "x", "dialect": "nonsense"}, 400, "nonsense"),
        ({"text": "x", "strictness": "nonsense"}, 400, "nonsense"),
        ([], 400, "JSON object"),
        ({"text": "x" * (4 * 2**20 + 1)}, 413, "at most"),
        ({"text": None, "tools": [], "accept": "x"}, 200, ""),
    ],
    ids=["json", "list", "tool", "deep", "dialect", "strictness", "body", "long", "types"],
)
def test_the_bench_names_what_is_wrong(page, body, status, text):
    answer = page.http.post(f"{page.url}/inspect/api/parse", json=body)
    assert (answer.status_code, text in answer.text) == (status, True)


def test_every_kind_has_words():
    assert set(FIX_WORDS) == set(get_args(FixKind))
    assert set(MALFORMED_WORDS) == set(get_args(MalformedReason))


# --- the events ----------------------------------------------------------------------------------------------------


def next_event(http, page, after=0):
    with http.stream("GET", f"{page.url}/inspect/api/events", params={"after": after}) as stream:
        line = next(line for line in stream.iter_lines() if line.startswith("data: "))
    return json.loads(line.removeprefix("data: "))


def test_events_tell_what_changed(server, page, http):
    server.play(completion())
    page.ask(HELLO)
    event = next_event(http, page)
    assert [row["number"] for row in event["exchanges"]] == [1]
    assert event["store"] == page.list()["store"]
    with http.stream("GET", f"{page.url}/inspect/api/events", params={"after": event["change"]}) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        page.ask(HELLO)
        later = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
    assert [row["number"] for row in later["exchanges"]] == [2]
    assert later["first"] == 1


def test_a_page_of_another_process_is_told_at_once(server, page, http):
    server.play(completion())
    page.ask(HELLO)
    change = page.list()["change"]
    url = f"{page.url}/inspect/api/events"
    with http.stream("GET", url, params={"after": change, "store": "of before"}) as stream:
        line = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert json.loads(line.removeprefix("data: "))["change"] == change


def test_an_exchange_is_shown_while_it_runs(server, page):
    go_on = threading.Event()
    server.play(
        sse(chunk({"content": "Let me"}), chunk({"content": " look."}, "stop"), between=lambda: go_on.wait(300))
    )
    asking = threading.Thread(target=page.ask, args=({**ASK, "stream": True},))
    asking.start()
    try:
        with httpx.Client(headers=page.http.headers) as other:
            page.http = other
            change, parts = 0, []
            while not parts:
                change = next_event(other, page, change)["change"]
                sends = page.detail()["sends"]
                parts = [part for send in sends for choice in send["reply"]["choices"] for part in choice["parts"]]
            assert "".join(part["text"] for part in parts).startswith("Let me")
            assert page.list()["exchanges"][0]["state"] == "running"
    finally:
        go_on.set()
        asking.join()


# --- the command ---------------------------------------------------------------------------------------------------


def test_serve_says_where_it_is_and_an_open_page_does_not_keep_it_from_stopping(server, http):
    options = ["--port", "0", "--base-url", server.url, "--no-detect", "--inspect", "--no-api-key"]
    command = [sys.executable, "-m", "promptools", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, inspector, listening = (process.stdout.readline().split() for _ in range(3))
        assert (inspector[0], listening[0]) == ("inspector", "listening")
        assert inspector[1] == listening[1].removesuffix("/v1") + "/inspect"
        assert "promptools inspector" in http.get(inspector[1]).text
        with http.stream("GET", f"{inspector[1]}/api/events") as stream:
            next(stream.iter_lines())
            process.terminate()
            process.wait(timeout=300)
        assert "anyone who can connect to this proxy can read all prompts" in process.stderr.read()
