"""Where `promptools serve` listens, for whom, and what it says where it cannot."""

import argparse
import asyncio
import socket

import pytest

from promptools.cli import main, serve_command
from promptools.errors import UsageError
from promptools.profiles import Config, ProxyOptions, load_config
from promptools.proxy import Proxy, served_config

SERVE = ("serve", "--base-url", "http://127.0.0.1:9/v1")


@pytest.fixture(autouse=True)
def nobodys_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PROMPTOOLS_API_KEY", raising=False)


@pytest.fixture
def listening(monkeypatch):
    """Stop where the proxy would serve; gives the addresses that it listened on, and the proxies."""
    found = []

    def note(proxy, listener, _):
        with listener:
            found.append((listener.getsockname()[0], proxy))

    monkeypatch.setattr(serve_command, "_serve", note)
    return found


def told(capsys, *arguments):
    status = main([*SERVE, *arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "0", "::ffff:0.0.0.0", "0x0"])
def test_beyond_loopback_it_listens_with_an_api_key_only(capsys, listening, host):
    status, out, err = told(capsys, "--port", "0", "--host", host)
    assert (status, out) == (2, "")
    assert "without an API key" in err
    assert "--no-api-key" in err
    assert err.count("\n") == 1
    assert not listening


def test_a_name_of_this_machine_beyond_loopback_is_looked_up_first(capsys, listening, monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(serve_command.socket, "getaddrinfo", lambda *_, **__: found)
    status, _, err = told(capsys, "--port", "0", "--host", "lan.example")
    assert status == 2
    assert "lan.example can be reached from other machines" in err


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_on_loopback_it_needs_none(capsys, listening, host):
    status, out, err = told(capsys, "--port", "0", "--host", host)
    if "Cannot assign" in err:
        pytest.skip("no such address on this machine")
    assert (status, err) == (0, "")
    assert out.splitlines()[:2] == [
        "forwarding to http://127.0.0.1:9/v1",
        "server: it does not answer yet; requests fail until it does",
    ]
    assert not listening[0][1].access.requires_key


def test_responses_wait_for_no_acknowledgement_of_their_heads(capsys, monkeypatch):
    """Nagle's algorithm holds the body back until then: 40 ms for each response, to clients on this machine too."""

    async def accept(listener):
        loop = asyncio.get_running_loop()
        delayed = loop.create_future()

        class Connection(asyncio.Protocol):
            def connection_made(self, transport):
                option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                delayed.set_result(option == 0)
                transport.close()

        async with await loop.create_server(Connection, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await delayed

    found = []
    monkeypatch.setattr(serve_command, "_serve", lambda proxy, listener, _: found.append(asyncio.run(accept(listener))))
    assert told(capsys, "--port", "0", "--no-detect")[0] == 0
    assert found == [False]


def keys(given, tmp_path, monkeypatch):
    (tmp_path / "keys").write_text("k1\nk2\n")
    (tmp_path / "promptools.toml").write_text('[proxy]\napi_key_env = "MY_KEYS"\n' if given == "config" else "")
    if given == "environment":
        monkeypatch.setenv("PROMPTOOLS_API_KEY", "k1,k2")
    monkeypatch.setenv("MY_KEYS", "k1 k2")
    return {"file": ["--api-key-file", "keys"], "argument": ["--api-key", "k1", "--api-key", "k2"]}.get(given, [])


@pytest.mark.parametrize("given", ["file", "argument", "environment", "config"])
def test_keys_come_from_a_file_an_argument_the_environment_or_the_config(
    capsys, listening, tmp_path, monkeypatch, given
):
    status, out, err = told(capsys, "--port", "0", "--host", "0.0.0.0", *keys(given, tmp_path, monkeypatch))
    assert (status, err) == (0, "")
    assert "k1" not in out
    ((address, proxy),) = listening
    assert address == "0.0.0.0"
    for key in (b"k1", b"k2"):
        fields = [(b"host", b"any.example"), (b"authorization", b"Bearer " + key)]
        assert proxy.access.check({"headers": fields}) == "any.example"


def test_who_says_so_listens_beyond_loopback_without_one(capsys, listening):
    assert told(capsys, "--port", "0", "--host", "0.0.0.0", "--no-api-key")[0] == 0
    assert listening[0][0] == "0.0.0.0"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--port", "99999"], "a port is a number from 0 to 65535, not '99999'"),
        (["--port", "-1"], "a port is a number from 0 to 65535, not '-1'"),
        (["--port", "9" * 5000], "a port is a number"),
        (["--port", "http"], "a port is a number"),
        (["--port", "²"], "a port is a number"),
        (["--host", "no-such-host.invalid"], "cannot listen on 'no-such-host.invalid'"),
        (["--host", "a" * 70 + ".example"], "cannot listen on"),
        (["--host", "a\x00b"], "cannot listen on"),
        (["--host", "bücher..example"], "cannot listen on"),
        (["--api-key-file", "none"], "cannot read 'none'"),
        (["--api-key-file", "empty"], "'empty' holds no API key"),
        (["--max-body", "0"], "argument --max-body: '0' is not a valid number of bytes; write 1 or more"),
        (
            ["--base-url", "http://127.0.0.1:99999/v1"],
            "argument --base-url: 'http://127.0.0.1:99999/v1' is not a valid HTTP URL",
        ),
        (["--base-url", "http:///v1"], "is not a valid HTTP URL"),
        (
            ["--base-url", "localhost:8000"],
            "argument --base-url: 'localhost:8000' is not a URL; did you mean 'http://localhost:8000/v1'?",
        ),
        (
            ["--base-url", "http://127.0.0.1:9/v1/chat/completions"],
            "write the root of the API, without '/chat",
        ),
        (["--deadline", "0"], "argument --deadline: '0' is not a valid number of seconds; write one greater than 0"),
        (["--max-tools", "some"], "argument --max-tools: 'some' is not a valid number of tools"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(tmp_path, capsys, arguments, wrong):
    (tmp_path / "empty").write_text("\n")
    try:
        status = main([*SERVE, *arguments])
    except SystemExit as left:  # as argparse ends a process
        status = left.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert wrong in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_told_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = told(capsys, "--port", str(port))
    assert (status, out) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; name another with --port" in err
    assert err.count("\n") == 1


def test_all_that_the_config_says_of_the_proxy(tmp_path, monkeypatch):
    path = tmp_path / "promptools.toml"
    path.write_text(
        '[providers.a]\nbase_url = "http://127.0.0.1:9/v1"\n[proxy]\napi_key_env = "MY_KEYS"\n'
        'allowed_hosts = ["gate.example"]\nallow_provider = true\nmax_body = 1000\n'
    )
    own = load_config(path)
    assert own.proxy == ProxyOptions("MY_KEYS", ("gate.example",), allow_provider=True, max_body=1000)
    with pytest.raises(UsageError, match="MY_KEYS"):
        Proxy(config=own)
    monkeypatch.setenv("MY_KEYS", "k")
    proxy = Proxy(config=own)
    assert (proxy.access.requires_key, proxy.max_body, proxy.session.allow_provider) == (True, 1000, True)
    narrower = Proxy(config=own, max_body=10, allow_provider=False)
    assert (narrower.max_body, narrower.session.allow_provider) == (10, False)
    path.write_text("[proxy]\napi_keys = 1\n")
    with pytest.raises(UsageError, match="api_keys"):
        load_config(path)


def test_without_a_config_the_proxy_is_as_narrow_as_can_be():
    proxy = Proxy(base_url="http://127.0.0.1:9/v1", config=Config())
    assert (proxy.access.requires_key, proxy.max_body, proxy.session.allow_provider) == (
        False,
        served_config.MAX_BODY,
        False,
    )
    with pytest.raises(argparse.ArgumentTypeError):
        serve_command._port("65536")
    assert serve_command._port("65535") == 65535
