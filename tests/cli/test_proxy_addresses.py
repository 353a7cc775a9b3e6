"""Commands that find out what a server does by itself refuse a proxy, whatever it answers to them."""

import pytest
from serving import serving
from upstream import Answer, running, unary

from promptools.cli import main
from promptools.profiles import Config
from promptools.proxy import Proxy

KEY = "key-of-the-proxy"
COMMANDS = {
    "verify": ["--model", "m", "--yes", "--no-detect"],
    "probe": ["--model", "m", "--checks", "native"],
    "demo": ["--model", "m"],
}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running() as upstream:
        yield upstream


def refused(capsys, url, command, *arguments):
    assert main([command, url, *COMMANDS[command], *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("models", [Answer(200), Answer(404), Answer(500)], ids=lambda answer: answer.status)
def test_nothing_but_the_models_is_asked_of_a_proxy(capsys, server, command, models):
    server.about["/v1/models"] = models
    with serving(Proxy(base_url=server.url, config=Config(), detect=False)) as port:
        url = f"http://127.0.0.1:{port}/v1"
        said = refused(capsys, url, command)
    assert f"{url} is a promptools proxy, whose answers are not the server's own: name the server behind it" in said
    assert [(seen.path, *seen.body) for seen in server.looks] == [("/v1/models",)]
    assert not server.seen


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("given", [[], ["--api-key", KEY]], ids=["refused", "accepted"])
def test_a_proxy_with_a_key_is_refused_with_and_without_it(capsys, server, command, given):
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, api_keys=[KEY])) as port:
        said = refused(capsys, f"http://127.0.0.1:{port}/v1", command, *given)
    assert "is a promptools proxy" in said
    assert len(server.looks) == len(given) // 2


@pytest.mark.parametrize("command", COMMANDS)
def test_credentials_of_a_url_are_sent_and_not_shown(capsys, server, command):
    server.about["/v1/models"] = unary({"data": []}, headers={"x-promptools-proxy": "true"})
    said = refused(capsys, server.url.replace("://", "://me:s3cret@"), command)
    assert f"{server.url} is a promptools proxy" in said
    assert "s3cret" not in said
    assert server.looks[0].headers["authorization"] == "Basic bWU6czNjcmV0"
