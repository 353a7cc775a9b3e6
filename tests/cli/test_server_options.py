"""Every command that talks to a server takes the same options for it, and says the same when it is down."""

import json
import socket

import pytest
from upstream import completion, running

from promptools.cli import build_parser, main
from promptools.errors import UsageError

URL = "http://127.0.0.1:9/v1"
KEY = "s3cret-of-the-environment"

# what each of them needs besides a server
COMMANDS = {
    "demo": [],
    "serve": [],
    "detect": [],
    "probe": [],
    "chat": ["Hi"],
    "agent": ["Hi"],
    "batch": ["in.jsonl", "out.jsonl"],
    "discover": ["--output", "found"],
    "eval aime": ["tasks.jsonl", "--output", "log"],
    "eval bfcl": ["--output", "run"],
    "eval mcp": ["tasks.jsonl", "--output", "log"],
    "eval swe": ["tasks.jsonl", "--output", "run"],
    "render": ["request.json", "--mode", "raw"],
}
ASKED = {
    "probe": ["--model", "m", "--checks", "request"],
    "chat": ["--model", "m", "--no-detect"],
    "agent": ["--model", "m", "--no-detect", "--sandbox", "local", "--yes"],
    "batch": ["--no-detect", "--patience", "0.1"],
    "discover": ["--model", "m", "--no-detect", "--no-plots", "--no-validate", "--max-requests", "2"],
    "eval aime": ["--model", "m", "--no-detect", "--tools", "none", "--repeats", "1"],
    "demo": ["--model", "m"],
    "detect": [],
}
"""Commands that are run here as they are, with what makes the run short."""
ANSWERED = sorted(ASKED.keys() - {"demo", "detect"})


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PROMPTOOLS_CONFIG", "PPXAI_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    request = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    (tmp_path / "in.jsonl").write_text(json.dumps(request))
    (tmp_path / "request.json").write_text(json.dumps(body))
    (tmp_path / "tasks.jsonl").write_text('{"question": "One and one?", "answer": 2}')


def parse(command, *words):
    return vars(build_parser().parse_args([*command.split(), *words]))


def ask(command, *words):
    return main([*command.split(), *words, *COMMANDS[command], *ASKED[command]])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_url_comes_first_or_after_its_option(command):
    needed = COMMANDS[command]
    named = parse(command, *needed, "--base-url", URL)
    assert named["base_url"] == URL
    assert parse(command, URL, *needed) == named
    assert parse(command, "--verbose", URL, *needed) == {**named, "verbose": True}
    assert parse(command, "HTTP://127.0.0.1:9", *needed)["base_url"] == "HTTP://127.0.0.1:9/v1"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_has_the_same_options(command, capsys):
    needed = COMMANDS[command]
    found = parse(command, *needed, "--json", "--quiet", "--api-key-env", "NAME")
    assert (found["json"], found["quiet"]) == (True, True)
    keys = found["api_key_env"], parse(command, *needed, "--api-key", "KEY", "--verbose")["api_key"]
    # of the proxy's clients there may be several, each with a key
    assert keys == ((["NAME"], ["KEY"]) if command == "serve" else ("NAME", "KEY"))
    with pytest.raises(SystemExit):
        parse(command, "--help")
    told = " ".join(capsys.readouterr().out.split())
    assert f"usage: promptools {command} [-h] [URL] " in told
    assert "other users of this machine can see arguments" in told


@pytest.mark.parametrize(
    ("words", "what", "value"),
    [
        (["chat", "--base-url", URL, "https://example.com"], "message", "https://example.com"),
        (["chat", "--", "https://example.com"], "message", "https://example.com"),
        (["chat", "Read https://example.com"], "message", "Read https://example.com"),
        (["batch", "https://example.com/in.jsonl", "out.jsonl"], "input", "https://example.com/in.jsonl"),
        (["eval", "aime", "https://example.com/t", "--output", "log"], "file", ["https://example.com/t"]),
        (["chat", "--system", "https://example.com", "Hi"], "system", "https://example.com"),
        (["batch", "--ray", "http://ray", "in", "out"], "ray", "http://ray"),
    ],
)
def test_a_url_that_is_meant_otherwise(words, what, value):
    assert vars(build_parser().parse_args(words))[what] == value


@pytest.mark.parametrize("command", COMMANDS)
def test_a_local_address_without_a_scheme_is_an_error_that_has_the_url(command, capsys):
    with pytest.raises(SystemExit):
        parse(command, "127.0.0.1:9", *COMMANDS[command])
    assert "'127.0.0.1:9' is not a URL; did you mean 'http://127.0.0.1:9/v1'?" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["detect", "probe"])
def test_without_a_server(command, capsys):
    assert main([command]) == 2
    assert capsys.readouterr().err == f"promptools {command}: name the server by its URL, such as http://HOST:PORT/v1\n"


@pytest.mark.parametrize("command", ANSWERED)
def test_the_key_of_the_environment_is_sent(server, command, monkeypatch, capsys):
    monkeypatch.setenv("A_KEY", KEY)
    server.play(*[completion("2")] * 40)
    ask(command, server.url, "--api-key-env", "A_KEY", "--json")
    assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {KEY}"}
    assert KEY not in "".join(capsys.readouterr())


@pytest.mark.parametrize("command", ASKED)
def test_a_key_that_is_not_set_is_named(server, command, capsys):
    server.play(completion("2"))
    assert ask(command, server.url, "--api-key-env", "A_KEY_THAT_IS_NOT_SET") == 2
    assert "the environment variable 'A_KEY_THAT_IS_NOT_SET' of --api-key-env is not set" in capsys.readouterr().err
    assert not server.seen


@pytest.mark.parametrize("command", ANSWERED)
def test_stdout_is_one_json_document(server, command, capsys):
    server.play(*[completion("2")] * 40)
    ask(command, server.url, "--json", "--verbose")
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.parametrize("command", ANSWERED)
def test_quiet_is_quiet(server, command, capsys):
    server.play(*[completion("2")] * 40)
    ask(command, server.url, "--quiet")
    out, err = capsys.readouterr()
    assert err == ""
    assert out.strip()


@pytest.fixture
def dead():
    """The base URL of a port that nobody listens at, and nobody else can take."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


@pytest.mark.parametrize("command", ASKED)
def test_a_server_that_is_down_is_one_line(dead, command, capsys):
    assert ask(command, dead, "--quiet") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"promptools {command.split()[0]}: ")
    assert err.count(dead) == 1
    assert "start " in err


def test_a_batch_says_at_once_that_its_server_is_away(dead, capsys):
    assert ask("batch", dead) == 1
    waits, failed = [line for line in capsys.readouterr().err.splitlines() if "no answer" in line]
    assert waits.endswith("; waiting for it, 0.1 s at most (--patience)")
    assert failed.startswith("promptools batch: the server has answered no request for 0.1 s: no answer from ")


def test_serve_prints_one_json_document(server, capsys, monkeypatch):
    from promptools.cli import serve_command

    monkeypatch.setattr(serve_command, "_serve", lambda proxy, listener, arguments: listener.close())
    assert main(["serve", server.url, "--port", "0", "--json", "--inspect"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["listening"].startswith("http://127.0.0.1:")
    assert told["inspector"] == told["listening"].removesuffix("/v1") + "/inspect"
    assert f"forwarding to {server.url}" in err
    assert main(["serve", server.url, "--port", "0", "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("listening http://127.0.0.1:")


def test_serve_asks_for_the_keys_of_a_variable(monkeypatch, server):
    from promptools.cli.serve_command import build_proxy

    words = ["serve", server.url, "--api-key-env", "CLIENTS"]
    arguments = build_parser().parse_args(words)
    arguments.verbose = arguments.quiet = False
    with pytest.raises(UsageError, match="'CLIENTS' is not set"):
        build_proxy(arguments)
    monkeypatch.setenv("CLIENTS", "one, two")
    assert build_proxy(arguments).access.requires_key


def test_probe_cannot_print_two_documents(capsys):
    assert main(["probe", URL, "--json", "--write", "-"]) == 2
    assert "--json and --write - both print to stdout" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("how", ["argument", "config"])
def test_a_proxy_does_not_forward_to_itself(capsys, tmp_path, monkeypatch, host, how):
    monkeypatch.setattr("promptools.cli.serve_command._serve", None)  # if it came so far, it would never end
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://localhost:{port}/v1"
    where = [url]
    if how == "config":
        (tmp_path / "promptools.toml").write_text(f'[providers.one]\nbase_url = "{url}"\n')
        where = ["--config", "promptools.toml"]
    words = ["serve", *where, "--host", host, "--port", str(port), "--no-api-key", "--no-detect"]
    assert main(words) == 2
    assert f"{url} is the address of this proxy: name the server behind it" in capsys.readouterr().err
