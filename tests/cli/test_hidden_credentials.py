"""What the commands print of a base URL that holds a user name and a password."""

import contextlib
import json

import pytest

from promptools.cli import main
from promptools.errors import UsageError
from promptools.profiles import Config, Provider, resolve
from promptools.profiles.resolution import api_key
from promptools.transport import installed_library
from promptools.transport.http_library import split_credentials

CONFIG = '[providers.a]\nbase_url = "http://us3r:p4ss@127.0.0.1:1/v1"\nkind = "vllm"\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ("providers", "--config", "c.toml"),
        ("providers", "--config", "c.toml", "--json"),
        ("providers", "a", "--config", "c.toml"),
        ("providers", "a", "--config", "c.toml", "--json"),
        ("providers", "--base-url", "http://us3r:p4ss@127.0.0.1:1/v1"),
        ("providers", "--base-url", "http://us3r:p4ss@127.0.0.1:1/v1", "--config", "c.toml", "--json"),
        ("providers", "--base-url", "http://us3r:p4ss@127.0.0.2:1/v1", "--config", "c.toml"),
        ("providers", "--base-url", "us3r:p4ss@127.0.0.1/v1"),
        ("detect", "--base-url", "http://us3r:p4ss@127.0.0.1:1/v1"),
        ("detect", "--base-url", "http://us3r:p4ss@127.0.0.1:1/v1", "--json"),
        ("detect", "--base-url", "us3r:p4ss@127.0.0.1:1/v1"),
        ("serve", "--base-url", "us3r:p4ss@127.0.0.1:1/v1"),
        ("serve", "--base-url", "http://us3r:p4ss@127.0.0.1:x/v1"),
    ],
)
def test_no_command_prints_them(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(CONFIG)
    with contextlib.suppress(SystemExit):  # as argparse ends a process
        main(arguments)
    shown = "".join(capsys.readouterr())
    assert "127.0.0." in shown
    assert "us3r" not in shown
    assert "p4ss" not in shown


def test_detect_sends_them_as_basic_authorization(capsys):
    from upstream import running

    with running() as server:
        main(["detect", "--base-url", server.url.replace("//", "//us3r:p4ss@"), "--json"])
        assert {each.headers["authorization"] for each in server.looks} == {"Basic dXMzcjpwNHNz"}
    assert json.loads(capsys.readouterr().out)["base_url"] == server.url


def test_a_missing_key_is_told_without_them():
    provider = Provider("a", base_url="http://us3r:p4ss@far.example/v1", api_key_env="NONE")
    target = resolve(provider="a", config=Config(providers={"a": provider}))
    with pytest.raises(UsageError, match="NONE") as raised:
        api_key(target, {})
    assert "p4ss" not in str(raised.value)
    assert "p4ss" not in str(target.reasons)


@pytest.mark.parametrize(
    ("base_url", "url", "authorization"),
    [
        ("http://h:1/v1", "http://h:1/v1", None),
        ("http://h", "http://h", None),
        ("http://@h/v1", "http://h/v1", None),
        ("http://:@h/v1", "http://h/v1", None),
        ("http://u@h/@cf/v1", "http://h/@cf/v1", "Basic dTo="),
        ("https://u%40x:p%3Aq@h:1", "https://h:1", "Basic dUB4OnA6cQ=="),
        ("http://u:p@q@h/", "http://h/", "Basic dTpwQHE="),
    ],
)
def test_a_base_url_is_split_as_httpx_reads_it(base_url, url, authorization):
    module = installed_library().module
    assert split_credentials(base_url) == (url, authorization)
    if base_url.count("@") < 2 or "/@" in base_url:
        read, made = module.URL(base_url), module.URL(url)
        assert (read.host, read.port) == (made.host, made.port)
        with module.Client() as http:
            sent = http._build_request_auth(module.Request("GET", base_url))
        request = next(sent.sync_auth_flow(module.Request("GET", base_url)))
        assert request.headers.get("authorization") == authorization
