"""Whatever the request line and the Host field hold, the key goes to the base URL's authority or nowhere."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import HTTP, Canary, raw, request, serving
from upstream import completion, running

from promptools.errors import UsageError
from promptools.profiles import Config, Provider
from promptools.proxy import Proxy
from promptools.proxy.access import is_loopback
from promptools.proxy.asgi import RefusedError
from promptools.proxy.upstream_url import parse_base_url, read_request_target
from promptools.transport import installed_library

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def canary():
    canary = Canary()
    yield canary
    canary.close()


def keyed(base_url, **settings):
    config = Config(providers={"a": Provider("a", kind="vllm", base_url=base_url, api_key_env="A_KEY")})
    return Proxy(config=config, provider="a", **settings)


@pytest.fixture(params=HTTP, scope="module")
def proxy(request, server):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("A_KEY", "sk-secret")
        app = keyed(server.url)
    with serving(app, request.param) as port:
        yield port


@pytest.fixture(params=HTTP, scope="module")
def gated(request, server):
    with serving(Proxy(base_url=server.url, config=Config(), allowed_hosts=["Gate.Example"]), request.param) as port:
        yield port


ATTACKS = [
    "1/steal",
    ".evil.example/x",
    "@{there}/v1/chat/completions",
    ":{port}/v1/models",
    "v1/models",
    "http://{there}/v1/models",
    "HTTP://{there}/v1/chat/completions",
    "http://user@{there}/v1/models",
    "http://{here}@{there}/v1/models",
    "http://{here}.evil.example/v1/models",
    "http:{there}/v1/models",
    "http:///v1/models",
    "ftp://{here}/v1/models",
    "//{there}/v1/models",
    "//@{there}/v1/models",
    "/\\\\{there}/v1/models",
    "\\\\{there}\\v1\\models",
    "/v1/../../{there}/x",
    "/v1/%2e%2e/%2e%2e/admin",
    "/v1/files/a%2F..%2f..%2Fb",
    "/v1/..%5cadmin",
    "/v1/..;/admin",
    "/v1/models#@{there}/",
    "*",
    "?x",
    "#",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_target_that_is_not_below_our_own_authority_reaches_nobody(server, canary, proxy, method, attack):
    server.play(completion())
    target = attack.format(there=f"127.0.0.1:{canary.port}", here=f"127.0.0.1:{proxy}", port=canary.port)
    fields = (f"Host: 127.0.0.1:{proxy}", "Content-Type: application/json")
    status, answer = raw(proxy, request(f"{method} {target} HTTP/1.1", *fields, body=BODY))
    assert status == 400 or (status == 200 and b"hi" in answer)  # httptools hides the host of an absolute target
    assert not canary.heard
    assert all(seen.path.startswith("/v1/") and ".." not in seen.path for seen in server.seen)
    assert len(server.seen) == (status == 200)


@pytest.mark.parametrize("http", HTTP)
def test_digits_after_the_port_lead_to_no_other_port(canary, http, monkeypatch):
    monkeypatch.setenv("A_KEY", "sk-secret")
    port, digit = divmod(canary.port, 10)
    with serving(keyed(f"http://127.0.0.1:{port}/v1"), http) as here:
        for target in (f"{digit}/steal", f"{digit}/v1/chat/completions"):
            for method in ("GET", "POST"):
                status, _ = raw(here, request(f"{method} {target} HTTP/1.1", "Host: localhost", body=BODY))
                assert status == 400
    assert not canary.heard


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_methods_that_ask_for_another_host_or_for_the_request_are_refused(server, canary, proxy, method):
    server.play(completion())
    for target in (f"127.0.0.1:{canary.port}", "/v1/models"):
        status, _ = raw(proxy, request(f"{method} {target} HTTP/1.1", "Host: localhost"))
        assert status in {400, 405}
    assert not canary.heard
    assert not server.seen


@pytest.mark.parametrize("target", ["http://127.0.0.1:{port}/v1/models?a=%2F", "/v1/models?a=%2F"])
def test_our_own_authority_may_be_named(server, proxy, target):
    server.play(completion())
    line = f"GET {target.format(port=proxy)} HTTP/1.1"
    assert raw(proxy, request(line, f"Host: 127.0.0.1:{proxy}"))[0] == 200
    assert server.seen[0].path == "/v1/models?a=%2F"
    assert server.seen[0].headers["authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize("path", ["/v1/models/@cf/meta/m", "/v1/files/a%2Fb%20%5C", "/v1/a%2e/...", "/x?q=..\\@//"])
def test_odd_paths_pass_as_they_are(server, proxy, path):
    server.play(completion())
    assert raw(proxy, request(f"GET {path} HTTP/1.1", "Host: localhost"))[0] == 200
    assert server.seen[0].path.replace("%5C", "\\") == path.replace("%5C", "\\")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ((), 400),
        (("Host: localhost", "Host: localhost"), 400),
        (("Host: localhost", "Host: evil.example"), 400),
        (("Host: local host",), 400),
        (("Host: user@localhost",), 400),
        (("Host: localhost/v1",), 400),
        (("Host: localhost:x",), 400),
        (("Host:",), 400),
        (("Host: evil.example",), 403),
        (("Host: 127.0.0.1.evil.example",), 403),
        (("Host: localhost.evil.example:80",), 403),
        (("Host: 0.0.0.0",), 403),
        (("Host: 192.168.0.1",), 403),
        (("Host: [fe80::1]",), 403),
        (("Host: localhost",), 200),
        (("Host: LocalHost:1",), 200),
        (("Host: my.localhost.",), 200),
        (("Host: 127.9.9.9:80",), 200),
        (("Host: [::1]:80",), 200),
        (("Host: [::ffff:127.0.0.1]",), 200),
        (("Host: gate.example:80",), 200),
    ],
)
def test_over_loopback_only_loopback_names_and_allowed_ones_are_answered(server, gated, fields, status):
    server.play(completion())
    assert raw(gated, request("GET /v1/models HTTP/1.1", *fields))[0] == status
    assert bool(server.seen) == (status == 200)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("http://127.0.0.1.evil.example:8100", 403),
        ("null", 403),
        ("http://localhost:3000", 200),
        ("http://[::1]:3000", 200),
        ("https://gate.example", 200),
        ("app://obsidian.md", 200),
        ("vscode-webview://1k2", 200),
    ],
)
def test_a_web_page_of_another_origin_spends_no_key(server, monkeypatch, origin, status):
    """It need not read the answer to do harm; a bare server, and a proxy without a key, take its request."""
    monkeypatch.setenv("A_KEY", "sk-secret")
    server.play(completion())
    said = request("POST /v1/chat/completions HTTP/1.1", "Host: localhost", f"Origin: {origin}", body=BODY)
    with serving(keyed(server.url, allowed_hosts=["gate.example"])) as port:
        assert raw(port, said)[0] == status
    assert len(server.seen) == (status == 200)
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        assert raw(port, said)[0] == 200


def test_http_1_0_may_leave_the_host_out(server, proxy):
    server.play(completion())
    assert raw(proxy, request("GET /v1/models HTTP/1.0"))[0] == 200


def test_any_host_may_be_allowed_and_a_key_makes_the_check_needless(server):
    server.play(completion())
    for allowed in ({"allowed_hosts": ["*"]}, {"api_keys": ["k"]}):
        with serving(Proxy(base_url=server.url, config=Config(), **allowed)) as port:
            line = request("GET /v1/models HTTP/1.1", "Host: evil.example", "Authorization: Bearer k")
            assert raw(port, line)[0] == 200


BASES = [
    "http://base.example/v1",
    "http://base.example:81",
    "https://u:p@base.example:8443/a/b/v1/",
    "http://[::1]:9/v1",
]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    base=st.sampled_from(BASES),
    target=st.one_of(
        st.binary(max_size=30),
        st.lists(
            st.sampled_from(
                b"/ // \\ @ : .. %2e %2F %5c %00 evil.example 1 v1 ? # http:// here:8100 ; api/x \xc3".split()
            ),
            max_size=9,
        ).map(b"".join),
        st.binary(max_size=20).map(lambda tail: b"/v1/" + tail),
    ),
)
def test_whatever_the_target_the_url_keeps_the_base_urls_authority(base, target):
    module = installed_library().module
    upstream = parse_base_url(base, module)
    path, _, query = target.partition(b"?")
    try:
        made = upstream.url(
            *read_request_target({"method": "GET", "path": "/", "raw_path": path, "query_string": query}, "here:8100")
        )
    except RefusedError:
        return
    url, own = module.URL(made), module.URL(base)
    assert (url.scheme, url.netloc, url.userinfo) == (own.scheme, own.netloc, b"")
    assert ".." not in url.raw_path.decode().partition("?")[0].split("/")
    assert url.path.startswith(own.path.rstrip("/").removesuffix("/v1"))


@pytest.mark.parametrize(
    ("scope", "place"),
    [
        ({"raw_path": b"/up/v1/models", "root_path": "/up/"}, "/v1/models"),
        ({"raw_path": b"/up", "root_path": "/up"}, "/"),
        ({"raw_path": b"/v1/models", "root_path": "/v"}, "/v1/models"),
        ({"path": "/v1/a b?c#d%"}, "/v1/a%20b%3Fc%23d%25"),
        ({"raw_path": b"/v1/\xc3\xa9%C3%A9"}, "/v1/%C3%A9%C3%A9"),
    ],
)
def test_a_mounted_proxy_and_servers_that_tell_no_raw_path(scope, place):
    assert read_request_target({"method": "GET", "path": "/x", **scope}, "here") == (place, "")


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("http:///v1", r"is not a valid HTTP URL"),
        ("http://h:99999/v1", r"is not a valid HTTP URL"),
        ("http://h:x/v1", r"base URL"),
        ("http://h/v1?key=s3", r"base URL"),
        ("http://h/v1#s3", r"base URL"),
        ("http://h/v1/chat/completions/", r"base URL"),
    ],
)
def test_a_base_url_that_leads_nowhere_is_refused_at_the_start(base, said):
    with pytest.raises(UsageError, match=said) as raised:
        Proxy(base_url=base.replace("http://", "http://us3r:s3cret@"), config=Config())
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["evil.example", "127.1", "2130706433", "localhost.evil.example", "::2", "", "0.0.0.0"]
)
def test_names_that_are_not_this_machine(name):
    assert not is_loopback(name)


def test_a_target_too_long_for_a_url_is_refused(server, monkeypatch):
    monkeypatch.setenv("A_KEY", "k")
    server.play(completion())
    with serving(keyed(server.url)) as port:
        assert raw(port, request(f"GET /v1/{'{' * 40000} HTTP/1.1", "Host: localhost"))[0] == 414
