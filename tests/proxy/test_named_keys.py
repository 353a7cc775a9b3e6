"""Named API keys with limits of their own, from the environment, the config and files; web pages of other origins."""

import threading

import httpx
import pytest
from serving import HTTP, serving
from upstream import Answer, completion, running

from promptools.errors import UsageError
from promptools.profiles import Config, KeyOptions, Provider, ProxyOptions, load_config
from promptools.proxy import Proxy
from promptools.proxy.access import ApiKey, read_key_file

CHAT = "/v1/chat/completions"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PAGE = "https://app.example"


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    monkeypatch.delenv("PROMPTOOLS_API_KEY", raising=False)


def ask(port, key, path=CHAT, **fields):
    headers = {"authorization": f"Bearer {key}", **fields}
    return httpx.post(f"http://127.0.0.1:{port}{path}", json=ASK, headers=headers, timeout=300)


def proxy(server, keys, **options):
    config = Config(proxy=ProxyOptions(keys=keys))
    given = [ApiKey(f"key-of-{name}", name) for name in keys]
    return Proxy(base_url=server.url, config=config, detect=False, api_keys=[*given, "plain"], **options)


def test_each_name_has_its_own_rate(server, still):
    server.play(completion())
    with serving(proxy(server, {"ci": KeyOptions(requests_per_minute=1), "web": KeyOptions()})) as port:
        assert ask(port, "key-of-ci").status_code == 200
        refused = ask(port, "key-of-ci", "/v1/messages")
        assert [ask(port, key).status_code for key in ("key-of-web", "plain", "plain", "wrong")] == [200, 200, 200, 401]
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert "the key 'ci'" in refused.text
    assert "key-of-ci" not in refused.text
    assert len(server.seen) == 4


def test_a_key_at_its_limit_keeps_no_other_waiting(server):
    free, began = threading.Event(), threading.Event()
    server.play(Answer(pieces=(b"{}",), first=lambda: began.set() or free.wait(300)), completion())
    from promptools.proxy.admission import Limits

    keys = {"ci": KeyOptions(concurrency=1), "web": KeyOptions()}
    with serving(proxy(server, keys, limits=Limits(concurrency=2, queue=0))) as port:
        first = threading.Thread(target=ask, args=(port, "key-of-ci"))
        first.start()
        assert began.wait(300)
        refused = ask(port, "key-of-ci")
        assert ask(port, "key-of-web").status_code == 200
        free.set()
        first.join(300)
        assert ask(port, "key-of-ci").status_code == 200
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.headers["retry-after"] == "1"


def test_a_key_file_has_names_or_none():
    text = '# keys\nplain== other\n\nci = abc=def\n  web = "qu"\n'
    assert read_key_file(text, "f") == [
        ApiKey("plain=="),
        ApiKey("other"),
        ApiKey("abc=def", "ci"),
        ApiKey("qu", "web"),
    ]
    assert "abc" not in repr(read_key_file(text, "f"))
    with pytest.raises(UsageError, match="holds no API key"):
        read_key_file("# none\n", "f")


def test_names_come_from_the_config_and_keys_from_the_environment_or_a_file(tmp_path, monkeypatch):
    path = tmp_path / "promptools.toml"
    path.write_text(
        '[providers.a]\nbase_url = "http://127.0.0.1:9/v1"\n[proxy]\nkey_file = "keys"\n'
        '[proxy.keys.ci]\nenv = "CI_KEY"\nrequests_per_minute = 60\n[proxy.keys.web]\nconcurrency = 2\n'
    )
    config = load_config(path)
    (tmp_path / "keys").write_text("web = w1\nplain\n")
    with pytest.raises(UsageError, match=r"keys.ci.env: .*'CI_KEY' is not set"):
        Proxy(config=config)
    monkeypatch.setenv("CI_KEY", "c1,c2")
    app = Proxy(config=config)

    def name(key):
        return app.access.key_name({"headers": [(b"x-api-key", key)]})

    assert [name(key) for key in (b"c1", b"c2", b"w1", b"plain", b"none")] == ["ci", "ci", "web", "", ""]
    (tmp_path / "keys").write_text("plain\n")
    with pytest.raises(UsageError, match=r"keys.web: it has no key"):
        Proxy(config=config)
    (tmp_path / "keys").unlink()
    with pytest.raises(UsageError, match="key_file: cannot read"):
        Proxy(config=config)


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ([ApiKey("k", "a b")], "cannot be the name"),
        ([ApiKey("s3cret", "a"), ApiKey("s3cret", "b")], "'a' and 'b' have the same API key"),
    ],
)
def test_names_that_cannot_be_are_errors(keys, wrong):
    with pytest.raises(UsageError, match=wrong) as raised:
        Proxy(base_url="http://127.0.0.1:9/v1", config=Config(), api_keys=keys)
    assert "s3cret" not in str(raised.value)


# -- web pages


def preflight(port, origin):
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    return httpx.options(f"http://127.0.0.1:{port}{CHAT}", headers=headers)


@pytest.mark.parametrize("kind", HTTP)
def test_a_page_of_a_named_origin_may_use_the_proxy(server, kind):
    server.play(Answer(pieces=(b"{}",), headers={"Access-Control-Allow-Origin": "*"}))
    app = Proxy(base_url=server.url, config=Config(), detect=False, api_keys="k", cors_origins=PAGE)
    with serving(app, kind) as port:
        allowed = preflight(port, PAGE)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == PAGE
        assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
        assert "access-control-allow-origin" not in preflight(port, "https://evil.example").headers
        for key, status in (("k", 200), ("wrong", 401)):
            answer = ask(port, key, origin=PAGE)
            assert (answer.status_code, answer.headers.get_list("access-control-allow-origin")) == (status, [PAGE])
        assert "access-control-allow-origin" not in ask(port, "k", origin="https://evil.example").headers
    assert all(seen.method == "POST" for seen in server.seen)


def test_without_origins_no_page_may(server):
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, api_keys="k")) as port:
        assert preflight(port, PAGE).status_code == 401
        assert "access-control-allow-origin" not in ask(port, "k", origin=PAGE).headers


def test_without_a_key_only_a_named_origin_spends_the_providers(server, monkeypatch):
    monkeypatch.setenv("UPSTREAM", "provider-key-1234")
    server.play(completion())
    config = Config(providers={"a": Provider("a", base_url=server.url, api_key_env="UPSTREAM")})
    with serving(Proxy(config=config, detect=False, cors_origins=[PAGE])) as port:
        assert ask(port, "none", origin=PAGE).status_code == 200
        assert ask(port, "none", origin="https://evil.example").status_code == 403


@pytest.mark.parametrize("origin", ["*", "app.example", "https://app.example/path"])
def test_origins_that_cannot_be_are_errors(origin):
    with pytest.raises(UsageError, match="origin"):
        Proxy(base_url="http://127.0.0.1:9/v1", config=Config(), cors_origins=origin)
    if origin == "*":
        assert Proxy(base_url="http://127.0.0.1:9/v1", config=Config(), cors_origins=origin, api_keys="k")
