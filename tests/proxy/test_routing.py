"""Several servers at once: which one a request goes to, whose key it gets, and where it goes on to after a failure."""

import asyncio
import json
import socket
import threading
from contextlib import closing
from http.client import HTTPConnection

import pytest
from serving import serving
from upstream import Answer, chunk, completion, running, sse
from waiting import LIMITS

from promptools.errors import UsageError
from promptools.exchange import ResponseHead
from promptools.fallback.breaker import BreakerKey
from promptools.profiles import Config, Model, Provider, ProxyOptions
from promptools.proxy import Proxy, model_directory, request_sender
from promptools.proxy.routing import Failover
from promptools.transport import installed_library
from promptools.types import ServerInfo

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
SECRETS = {"Authorization": "Bearer s1", "X-Api-Key": "s2", "Cookie": "c=s3", "OpenAI-Organization": "s4"}
DEAD = "http://127.0.0.1:1/v1"
DOWN = Answer(503, (b'{"error": {"message": "overloaded"}}',))


@pytest.fixture(scope="module")
def servers():
    with running() as one, running() as two:
        yield one, two


@pytest.fixture
def gpu(servers):
    return listing(servers[0].play(completion("of gpu")))


@pytest.fixture
def laptop(servers):
    return listing(servers[1].play(completion("of laptop")))


@pytest.fixture
def http():
    with installed_library().module.Client(timeout=300) as client:
        yield client


def listing(server, *names):
    server.about = {"/v1/models": {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}}
    return server


def config(gpu, laptop, *, models=None, several=None, **fields):
    """A config with two providers, the first of which is the default; `fields` are of the first."""
    first = {"base_url": getattr(gpu, "url", gpu), "kind": "vllm", **fields}
    second = Provider("laptop", kind="vllm", base_url=laptop.url, models={"small": Model("small", ("tiny",))})
    providers = {"gpu": Provider("gpu", **first), "laptop": several or second}
    return Config(default_provider="gpu", providers=providers, proxy=ProxyOptions(models=models or {}))


def ask(http, port, model="m", path=CHAT, **body):
    messages = [{"role": "user", "content": "hello"}]
    return http.post(f"http://127.0.0.1:{port}{path}", json={"model": model, "messages": messages, **body})


def text(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


# -- names


@pytest.mark.parametrize("tools", [{}, {"tools": TOOLS}], ids=["plain", "tools"])
@pytest.mark.parametrize(
    ("name", "where", "sent"),
    [
        ("m", "gpu", "m"),
        ("small", "laptop", "small"),
        ("tiny", "laptop", "small"),
        ("gpu/small", "gpu", "small"),
        ("laptop/openai/gpt-oss-20b", "laptop", "openai/gpt-oss-20b"),
        ("laptop/", "gpu", "laptop/"),
        ("laptops/m", "gpu", "laptops/m"),
        ("fast", "laptop", "small"),
        ("listed", "laptop", "listed"),
        ("laptop/of-gpu", "gpu", "laptop/of-gpu"),
        ("both", "gpu", "both"),
    ],
)
def test_a_models_name_leads_to_a_provider(gpu, laptop, http, tools, name, where, sent):
    listing(gpu, "both", "laptop/of-gpu")
    listing(laptop, "listed", "both")
    with serving(Proxy(config=config(gpu, laptop, models={"fast": ("laptop/small",)}), api_keys=())) as port:
        assert text(ask(http, port, name, **tools)) == f"of {where}"
    assert [each.json["model"] for each in (gpu if where == "gpu" else laptop).seen] == [sent]
    assert not (laptop if where == "gpu" else gpu).seen


def test_a_body_whose_model_has_no_other_name_arrives_byte_for_byte(gpu, laptop, http):
    body = b'{ "messages": [],  "model":"m", "\xc3\xa9": 1.50 }'
    with serving(Proxy(config=config(gpu, laptop))) as port:
        for path in (CHAT, "/v1/embeddings", "/v1/completions"):
            headers = {"content-type": "application/json"}
            assert http.post(f"http://127.0.0.1:{port}{path}", content=body, headers=headers).status_code == 200
    assert [each.body for each in gpu.seen] == [body] * 3
    assert gpu.seen[1].headers["content-length"] == str(len(body))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/rerank"])
def test_what_passes_unread_is_routed_by_its_model(gpu, laptop, http, path):
    with serving(Proxy(config=config(gpu, laptop))) as port:
        ask(http, port, "tiny", path)
        ask(http, port, "gpu/other", path)
        ask(http, port, "none/other", path)
        http.get(f"http://127.0.0.1:{port}/health")
    assert [(each.path, each.json["model"]) for each in laptop.seen] == [(path, "small")]
    assert [each.path for each in gpu.seen] == [path, path, "/health"]
    assert gpu.seen[0].json["model"] == "other"


def test_a_post_without_a_body_goes_to_the_default_provider(gpu, laptop):
    with serving(Proxy(config=config(gpu, laptop))) as port, closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.putrequest("POST", "/v1/sleep")
        connection.putheader("content-type", "application/json")
        connection.endheaders()
        assert connection.getresponse().status == 200
    assert [(each.path, each.body) for each in gpu.seen] == [("/v1/sleep", b"")]


@pytest.mark.parametrize("options", [{"provider": "gpu"}, {"base_url": None}])
def test_a_proxy_of_one_server_routes_nothing(gpu, laptop, http, options):
    if "base_url" in options:
        options = {"base_url": gpu.url}
    with serving(Proxy(config=config(gpu, laptop), **options)) as port:
        for name in ("tiny", "laptop/m"):
            assert text(ask(http, port, name)) == "of gpu"
            ask(http, port, name, "/v1/embeddings")
        assert http.get(f"http://127.0.0.1:{port}/v1/models").json()["id"] == "chatcmpl-1"
    assert [each.json["model"] for each in gpu.seen[:4]] == ["tiny", "tiny", "laptop/m", "laptop/m"]
    assert not laptop.seen
    assert not laptop.looks


def test_a_request_may_choose_its_provider_only_if_it_is_allowed_to(gpu, laptop, http):
    for allowed in (False, True):
        with serving(Proxy(config=config(gpu, laptop), allow_provider=allowed)) as port:
            answer = ask(http, port, "gpu/x", promptools={"provider": "laptop"}, tools=TOOLS)
            assert answer.status_code == (200 if allowed else 400)
    assert laptop.seen[0].json["model"] == "gpu/x"


# -- keys


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_clients_key_goes_to_the_default_provider_only(gpu, laptop, http, path):
    http.headers.update(SECRETS)
    with serving(Proxy(config=config(gpu, laptop))) as port:
        ask(http, port, "m", path)
        ask(http, port, "tiny", path)
        http.get(f"http://127.0.0.1:{port}/v1/models")
    assert gpu.seen[0].headers["authorization"] == "Bearer s1"
    shown = [str(each.headers) for each in (*laptop.seen, *laptop.looks)]
    assert laptop.seen
    assert len(laptop.looks) >= 2
    assert not [secret for secret in ("s1", "s2", "c=s3", "s4") for headers in shown if secret in headers]


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_providers_key_goes_to_its_own_servers_only(gpu, laptop, http, monkeypatch, path):
    monkeypatch.setenv("GPU_KEY", "key-of-gpu-1234")
    http.headers.update(SECRETS)
    with serving(Proxy(config=config(gpu, laptop, api_key_env="GPU_KEY", failover=("laptop",)))) as port:
        gpu.play(DOWN)
        assert ask(http, port, "m", path).status_code == 200
        http.get(f"http://127.0.0.1:{port}/v1/models")
    assert {each.headers["authorization"] for each in (*gpu.seen, *gpu.looks)} == {"Bearer key-of-gpu-1234"}
    assert "key-of-gpu" not in "".join(str(each.headers) for each in (*laptop.seen, *laptop.looks))
    assert "s1" not in str(laptop.seen[0].headers)


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_password_of_one_address_is_not_sent_to_another(gpu, laptop, http, path):
    first = DEAD.replace("://", "://us3r:p4ss@")
    provider = Provider("gpu", kind="vllm", base_url=first, replicas=(gpu.url,))
    with serving(Proxy(config=Config(providers={"gpu": provider}))) as port:
        assert ask(http, port, "m", path).status_code == 200
    assert gpu.seen[0].headers["authorization"] is None


def test_a_web_page_may_not_spend_the_key_of_any_provider(gpu, laptop, http, monkeypatch):
    monkeypatch.setenv("LAPTOP_KEY", "k")
    settings = config(gpu, laptop)
    keyed = Provider("laptop", kind="vllm", base_url=laptop.url, api_key_env="LAPTOP_KEY")
    http.headers["Origin"] = "https://evil.example"
    for providers, status in ((settings.providers, 200), ({**settings.providers, "laptop": keyed}, 403)):
        with serving(Proxy(config=Config(default_provider="gpu", providers=providers))) as port:
            assert ask(http, port).status_code == status


def test_a_provider_whose_key_is_not_set_is_left_out(gpu, laptop, http, caplog):
    keyed = Provider("cloud", kind="vllm", base_url=laptop.url, api_key_env="NO_KEY", facts={"needs_key": True})
    settings = Config(
        default_provider="gpu",
        providers={"gpu": config(gpu, laptop).providers["gpu"], "cloud": keyed},
        proxy=ProxyOptions(models={"big": ("cloud/x", "gpu/y")}),
    )
    with serving(Proxy(config=settings)) as port:
        assert text(ask(http, port, "big")) == "of gpu"
        assert text(ask(http, port, "cloud/x")) == "of gpu"
    assert "provider 'cloud' is left out" in caplog.text
    assert not laptop.seen


# -- failover


@pytest.mark.parametrize("tools", [{}, {"tools": TOOLS}], ids=["plain", "tools"])
@pytest.mark.parametrize(
    ("status", "stream"),
    [(429, False), (500, True), (502, False), (503, False), (503, True), (504, False), (None, False), (None, True)],
)
def test_a_failed_request_goes_on_to_the_next_provider(gpu, laptop, http, caplog, status, tools, stream):
    gpu.play(Answer(status or 200, (b'{"error": {"message": "s3cret words"}}',)))
    laptop.play(sse(chunk({"content": "of laptop"}), chunk(finish="stop"))) if stream else None
    first = gpu if status else DEAD
    with serving(Proxy(config=config(first, laptop, failover=("laptop/small",)), detect=False)) as port:
        answer = ask(http, port, "m", stream=stream, **tools)
        assert "of laptop" in answer.text
        assert answer.status_code == 200
    assert laptop.seen[0].json["model"] == "small"
    line = next(line for line in caplog.messages if "failed (" in line and "the request goes to" in line)
    assert f"provider 'gpu' at {getattr(first, 'url', first)} failed (" in line
    assert f"the request goes to provider 'laptop' at {laptop.url}" in line
    assert "s3cret" not in line


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_other_errors_are_the_answer(gpu, laptop, http, status, path):
    gpu.play(Answer(status, (b'{"error": {"message": "no"}}',)))
    with serving(Proxy(config=config(gpu, laptop, failover=("laptop",)))) as port:
        assert ask(http, port, "m", path).status_code == status
    assert not laptop.seen


@pytest.mark.parametrize("first", ["dead", "down"])
def test_what_passes_unread_fails_over_too(gpu, laptop, http, first):
    gpu.play(DOWN)
    with serving(Proxy(config=config(gpu if first == "down" else DEAD, laptop, failover=("laptop",)))) as port:
        assert text(ask(http, port, "m", "/v1/completions")) == "of laptop"


RESPONSE = {"model": "m", "input": "hello", "tools": [{"type": "function", "name": "f", "parameters": {}}]}
MESSAGE = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [("/v1/responses", RESPONSE), ("/v1/messages", MESSAGE)])
def test_every_api_fails_over(gpu, laptop, http, path, body, stream):
    gpu.play(DOWN)
    laptop.play(sse(chunk({"content": "of laptop"}), chunk(finish="stop")) if stream else completion("of laptop"))
    with serving(Proxy(config=config(gpu, laptop, failover=("laptop/small",)), detect=False)) as port:
        answer = http.post(f"http://127.0.0.1:{port}{path}", json={**body, "stream": stream})
    assert answer.status_code == 200
    assert "of laptop" in answer.text
    assert [each.path for each in laptop.seen] == [CHAT]
    assert laptop.seen[0].json["model"] == "small"


def test_a_body_that_is_too_long_to_be_held_is_streamed_to_the_default_provider(gpu, laptop, http):
    body = json.dumps({"model": "laptop/small", "input": "x" * 100_000})
    pieces = (body[at : at + 10_000].encode() for at in range(0, len(body), 10_000))
    with serving(Proxy(config=config(gpu, laptop, failover=("laptop",)), max_body=20_000)) as port:
        url = f"http://127.0.0.1:{port}/v1/embeddings"
        for content in (body, pieces):
            assert http.post(url, content=content, headers={"content-type": "application/json"}).status_code == 200
    assert [each.body.decode() == body for each in gpu.seen] == [True, True]
    assert not laptop.seen


def test_exhausted_modes_lead_to_the_next_provider(gpu, laptop, http):
    broken = completion('<tool_call>{"name": "f", "arguments": {</tool_call>')
    gpu.play(broken)
    settings = config(gpu, laptop, failover=("laptop",), replicas=(gpu.url.replace("127.0.0.1", "localhost"),))
    with serving(Proxy(config=settings, detect=False)) as port:
        answer = ask(http, port, "m", tools=TOOLS, promptools={"on_malformed": "error"})
    assert "of laptop" in answer.text
    hosts = {each.headers["host"].partition(":")[0] for each in gpu.seen}
    assert len(gpu.seen) > 1
    assert hosts == {"127.0.0.1"}  # not its replica, which has the same model


def test_the_trace_says_what_happened(gpu, laptop, http):
    gpu.play(DOWN)
    replies = []
    app = Proxy(config=config(gpu, laptop, failover=("laptop",)), detect=False, on_reply=replies.append)
    with serving(app) as port:
        ask(http, port, "m", tools=TOOLS)
    assert replies[-1].trace.notes == (
        f"provider 'gpu' at {gpu.url} failed (HTTP 503); the request goes to provider 'laptop' at {laptop.url}",
    )


def test_the_last_failure_is_what_the_client_sees(gpu, laptop, http):
    gpu.play(DOWN)
    laptop.play(Answer(500, (b'{"error": {"message": "the last"}}',)))
    with serving(Proxy(config=config(gpu, laptop, failover=("laptop",)))) as port:
        for path in (CHAT, "/v1/embeddings"):
            answer = ask(http, port, "m", path)
            assert (answer.status_code, "the last" in answer.text) == (500, True)
    dead = Provider("laptop", kind="vllm", base_url=DEAD)
    providers = {**config(gpu, laptop, failover=("laptop",)).providers, "laptop": dead}
    with serving(Proxy(config=Config(default_provider="gpu", providers=providers))) as port:
        for path in (CHAT, "/v1/embeddings"):
            answer = ask(http, port, "m", path)
            assert answer.status_code == 502
            assert f"no answer from {DEAD}" in answer.text


@pytest.mark.parametrize(("path", "tools"), [(CHAT, {}), (CHAT, {"tools": TOOLS}), ("/v1/completions", {})])
def test_nothing_fails_over_once_the_client_has_got_a_byte(gpu, laptop, http, path, tools):
    gpu.play(sse(chunk({"content": "half a "}), chunk({"content": "sentence"}), done=False, then="cut"))
    with serving(Proxy(config=config(gpu, laptop, failover=("laptop",)), detect=False)) as port:
        body = {"model": "m", "stream": True, "messages": [], **tools}
        received = b""
        try:
            with http.stream("POST", f"http://127.0.0.1:{port}{path}", json=body) as answer:
                for piece in answer.iter_raw():
                    received += piece
        except installed_library().module.RemoteProtocolError:
            pass
    assert b"half a" in received
    assert not laptop.seen


def test_a_heartbeats_head_is_a_head(gpu, laptop, http):
    beaten = threading.Event()
    gpu.play(Answer(503, (b"{}",), first=lambda: beaten.wait(300)))
    settings = config(gpu, laptop, failover=("laptop",))
    with serving(Proxy(config=settings, detect=False, heartbeat=0.1)) as port:
        body = {"model": "m", "stream": True, "tools": TOOLS, "messages": []}
        with http.stream("POST", f"http://127.0.0.1:{port}{CHAT}", json=body) as answer:
            pieces = answer.iter_text()
            received = next(pieces)
            beaten.set()
            received += "".join(pieces)
    assert received.startswith(": ")
    assert "event: error" in received
    assert not laptop.seen


def test_once_a_heartbeat_is_sent_there_is_no_other_server(gpu, laptop, monkeypatch):
    monkeypatch.setattr(request_sender, "TICK_SECONDS", 0)
    failover = Failover()
    failover.choose(Proxy(config=config(gpu, laptop, failover=("laptop",))).served.table.find("m"))
    sent = []

    class Driver:
        finished = False

        def tick(self):
            return [ResponseHead(200, ()), b": keep-alive"]

    async def send(message):
        sent.append(message)
        if len(sent) == 2:
            raise ConnectionError  # which ends the clock

    asyncio.run(request_sender.ExchangeRelay(Driver(), send, failover).tick())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert not failover.rejects(503, ())
    assert not failover.recovers(ConnectionError(), unreachable=True)
    assert failover.base_url == gpu.url
    failover.committed = False
    assert failover.rejects(503, ())
    assert failover.base_url == laptop.url


def test_a_deadline_bounds_all_candidates_together(gpu, laptop, http):
    gone = threading.Event()
    gpu.play(Answer(pieces=(b"{}",), first=lambda: gone.wait(300)))
    with serving(Proxy(config=config(gpu, laptop, failover=("laptop",)), detect=False, deadline=0.2)) as port:
        answer = ask(http, port, "m", tools=TOOLS)
        gone.set()
    assert answer.status_code in {502, 504}
    assert not laptop.seen


# -- several addresses of one provider


def test_a_request_goes_to_the_address_with_the_least_to_do(gpu, laptop, http):
    release = threading.Event()
    arrived = threading.Event()
    gpu.play(
        Answer(pieces=(json.dumps(completion("of gpu")).encode(),), first=lambda: (arrived.set(), release.wait(300)))
    )
    provider = Provider("gpu", kind="vllm", base_url=gpu.url, replicas=(laptop.url,))
    app = Proxy(config=Config(providers={"gpu": provider}), detect=False)
    with serving(app) as port:
        busy = threading.Thread(target=ask, args=(http, port))
        busy.start()
        assert arrived.wait(300)
        with installed_library().module.Client(timeout=300) as other:
            assert [text(ask(other, port)) for _ in range(3)] == ["of laptop"] * 3
            assert other.post(f"http://127.0.0.1:{port}/v1/files", content=b"x").status_code == 200
        release.set()
        busy.join()
        assert text(ask(http, port)) == "of gpu"
    assert [replica.outstanding for replica in app.served.table.replicas()] == [0, 0]
    assert [each.path for each in laptop.seen][-1] == "/v1/files"


def test_an_address_that_cannot_be_reached_is_left_alone_for_a_while(gpu, laptop, http, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port_later = free.getsockname()[1]
    provider = Provider("gpu", kind="vllm", base_url=f"http://127.0.0.1:{port_later}/v1", replicas=(gpu.url,))
    app = Proxy(config=Config(providers={"gpu": provider}), detect=False)
    first, second = app.served.table.replicas()
    with serving(app) as port:
        assert text(ask(http, port)) == "of gpu"
        assert (first.unhealthy_until > 0, second.unhealthy_until) == (True, 0)
        until = first.unhealthy_until
        assert text(ask(http, port)) == "of gpu"
        assert first.unhealthy_until == until  # it was not tried
        first.unhealthy_until = 0  # the cool-down is over
        assert text(ask(http, port)) == "of gpu"
        assert first.unhealthy_until > until
        second.mark_unreachable(until)
        assert text(ask(http, port)) == "of gpu"  # all are unhealthy: tried all the same
        assert second.unhealthy_until == 0


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_that_may_have_changed_something_is_not_sent_twice(gpu, laptop, http, method):
    gpu.play(DOWN)
    provider = Provider("gpu", kind="vllm", base_url=gpu.url, replicas=(laptop.url,))
    with serving(Proxy(config=Config(providers={"gpu": provider}), detect=False)) as port:
        answer = http.request(
            method, f"http://127.0.0.1:{port}/v1/things", json={"name": "x"} if method == "POST" else None
        )
    assert answer.status_code == (200 if method == "GET" else 503)
    assert len(laptop.seen) == (method == "GET")


def test_a_body_that_is_streamed_is_sent_once(gpu, laptop, http):
    provider = Provider("gpu", kind="vllm", base_url=DEAD, replicas=(gpu.url,))
    with serving(Proxy(config=Config(providers={"gpu": provider}), detect=False)) as port:
        url = f"http://127.0.0.1:{port}/v1/files"
        assert http.post(url, content=b"x" * 100_000).status_code == 502
        assert not gpu.seen
        assert http.post(url, content=b"x" * 100_000).status_code == 200  # to the one that can be reached
    assert gpu.seen[0].body == b"x" * 100_000


# -- the list of models


def test_the_models_of_all_providers_are_listed_under_the_names_that_lead_to_them(gpu, laptop, http):
    listing(gpu, "both", "m")
    listing(laptop, "both", "small")
    gpu.about["/v1/models"]["data"][0]["max_model_len"] = 4096
    with serving(Proxy(config=config(gpu, laptop, models={"fast": ("laptop/small",)}))) as port:
        url = f"http://127.0.0.1:{port}/v1/models"
        listed = {each["id"]: each for each in http.get(url).json()["data"]}
        one = http.get(f"{url}/laptop%2Fboth").json()
        alias = http.get(f"{url}/laptop/small").json()
        missing = http.get(f"{url}/nope")
    owners = {name: each["owned_by"] for name, each in listed.items()}
    laptops = dict.fromkeys(("laptop/both", "small", "tiny", "fast"), "laptop")
    assert owners == {"both": "gpu", "gpu/both": "gpu", "m": "gpu", **laptops}
    assert listed["both"]["max_model_len"] == 4096
    assert one == {"id": "laptop/both", "object": "model", "created": 0, "owned_by": "laptop"}
    assert (alias["id"], alias["owned_by"]) == ("laptop/small", "laptop")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_a_provider_that_lists_nothing_is_left_out(gpu, laptop, http, caplog, monkeypatch):
    listing(gpu, "m")
    release = threading.Event()
    laptop.about = {"/v1/models": Answer(pieces=(b"{}",), first=lambda: release.wait(300))}
    with serving(Proxy(config=config(gpu, laptop), detect=False)) as port:
        url = f"http://127.0.0.1:{port}/v1/models"
        for seconds in LIMITS:
            monkeypatch.setattr(model_directory, "LIST_TIMEOUT", seconds)
            listed = http.get(url)
            if listed.status_code == 200:  # gpu was in time
                break
        assert [each["id"] for each in listed.json()["data"]] == ["m"]
        assert "provider 'laptop' is left out of the list of models: no answer" in caplog.messages
        gpu.about = {}
        answer = http.get(url)
        release.set()
    assert answer.status_code == 502
    assert "provider 'gpu' is left out of the list of models: HTTP 404" in caplog.text


def test_a_model_that_a_server_has_since_loaded_is_found(gpu, laptop, http, monkeypatch):
    monkeypatch.setattr(model_directory, "REFRESH_SECONDS", 0)
    with serving(Proxy(config=config(gpu, laptop))) as port:
        assert text(ask(http, port, "later")) == "of gpu"
        listing(laptop, "later")
        assert text(ask(http, port, "m")) == "of gpu"
        assert text(ask(http, port, "later")) == "of laptop"


@pytest.mark.parametrize("first", ["dead", "down"])
@pytest.mark.parametrize("asks", ["request", "list"])
def test_a_model_is_found_though_the_first_address_of_its_provider_fails(gpu, laptop, http, first, asks):
    listing(gpu, "small")
    listing(laptop, "only-here")
    with running() as broken:
        broken.play(DOWN)
        broken.about = {"/v1/models": DOWN}
        address = DEAD if first == "dead" else broken.url
        several = Provider("laptop", kind="vllm", base_url=address, replicas=(laptop.url,))
        app = Proxy(config=config(gpu, laptop, several=several))
        replicas = app.served.table.providers["laptop"].replicas
        with serving(app) as port:
            if asks == "request":
                assert text(ask(http, port, "only-here")) == "of laptop"
            else:
                listed = http.get(f"http://127.0.0.1:{port}/v1/models").json()["data"]
                assert {each["id"]: each["owned_by"] for each in listed}["only-here"] == "laptop"
    assert not gpu.seen
    assert [replica.unhealthy_until > 0 for replica in replicas] == [first == "dead", False]


def test_a_provider_that_does_not_list_its_models_keeps_its_requests(gpu, laptop, http):
    listing(laptop, "m")
    app = Proxy(config=config(DEAD, laptop, replicas=(DEAD.replace("127.0.0.1", "localhost"),)))
    with serving(app) as port:
        assert http.get(f"http://127.0.0.1:{port}/v1/models").status_code == 200
    assert [replica.unhealthy_until for replica in app.served.table.default.replicas] == [0, 0]


# -- reload


def test_a_reload_replaces_the_routes_and_a_bad_config_changes_nothing(gpu, laptop, http, tmp_path):
    path = tmp_path / "promptools.toml"
    app = Proxy(config=config(gpu, laptop))
    breaker, seen = app.session.context.breaker, app.session.context.detection_cache
    with serving(app) as port:
        assert text(ask(http, port, "laptop/x")) == "of laptop"
        replica = app.served.table.providers["laptop"].replicas[0]
        app.reload(config(gpu, laptop, models={"fast": ("laptop/small",)}))
        assert text(ask(http, port, "fast")) == "of laptop"
        assert app.served.table.providers["laptop"].replicas[0] is replica
        url = f'base_url = ["{gpu.url}", "{gpu.url}/chat/completions"]'
        for bad in ("providers = 1", '[providers.a]\nbase_ulr = "x"', f'[providers.a]\nkind = "vllm"\n{url}'):
            path.write_text(bad)
            with pytest.raises(UsageError, match=r"promptools\.toml"):
                app.reload(path)
            assert text(ask(http, port, "fast")) == "of laptop"
        path.write_text(f'[providers.b]\nkind = "vllm"\nbase_url = "{laptop.url}"')
        app.reload(path)
        assert text(ask(http, port, "gpu/x")) == "of laptop"
        assert app.base_url == laptop.url
    assert app.session.context.breaker is breaker
    assert app.session.context.detection_cache is seen


def test_what_is_known_of_a_provider_stays_unless_it_changes(gpu, laptop, http):
    app = Proxy(config=config(gpu, laptop))
    keys = [BreakerKey(name, "m", "native") for name in ("gpu", "laptop")]
    for key in keys:
        app.session.context.breaker.record_failure(key, 0.0, lasting=True)
    for server in (gpu, laptop):
        app.session.context.detection_cache.put(server.root, "m", ServerInfo(why="seen"))
    app.reload(config(gpu, laptop, kind="sglang"))
    assert [app.session.context.breaker.state(key, 1.0) for key in keys] == ["closed", "open"]
    assert app.session.context.detection_cache.get(gpu.root, "m") is None
    assert app.session.context.detection_cache.get(laptop.root, "m") is not None


def test_a_request_in_flight_keeps_the_config_that_it_began_with(gpu, laptop, http, monkeypatch):
    monkeypatch.setenv("GPU_KEY", "key-of-gpu-1234")
    arrived, release = threading.Event(), threading.Event()

    def wait():
        arrived.set()
        release.wait(300)

    gpu.play(Answer(503, (b"{}",), first=wait))
    app = Proxy(config=config(gpu, laptop, failover=("laptop",)), detect=False)
    answers = []
    with serving(app) as port:
        asking = threading.Thread(target=lambda: answers.append(ask(http, port, "m")))
        asking.start()
        assert arrived.wait(300)
        app.reload(Config(providers={"gpu": Provider("gpu", kind="vllm", base_url=gpu.url, api_key_env="GPU_KEY")}))
        release.set()
        asking.join()
    assert text(answers[0]) == "of laptop"
    assert "key-of-gpu" not in str(laptop.seen[0].headers)
