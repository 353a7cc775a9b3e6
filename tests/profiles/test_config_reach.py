"""What a config reaches: which addresses are certainly this machine, and what a user's trust depends on."""

import time

import pytest

from promptools.profiles import parse_config, reach_of
from promptools.profiles.config_reach import is_loopback_host, is_loopback_url

LOCAL = (
    "http://127.0.0.1:8000/v1", "http://127.0.0.1", "https://127.255.255.254/", "http://localhost:11434/v1",
    "http://LocalHost/v1", "http://[::1]:8000/v1", "http://[::1]", "http://user:pass%40word@localhost:1/v1",
    "http://evil.example:80@127.0.0.1:8000/v1",  # the name before the @ is a user
)  # fmt: skip
REMOTE = (
    "http://gpu.example:8000/v1", "https://10.0.0.7/v1", "http://192.168.1.2/v1", "http://box.local/v1",
    # what begins or ends like this machine
    "http://127.0.0.1.evil.example/v1", "http://localhost.evil.example/v1", "http://evil.example/127.0.0.1",
    "http://localhost.", "http://evil.localhost/v1", "http://127.0.0.1@evil.example/v1", "http://xlocalhost/v1",
    "http://localhost:80@evil.example/v1", "http://a@localhost@evil.example/v1", "http://localhost%2eevil.example/v1",
    # what parsers of URLs do not agree on
    "http://127.0.0.1\\@evil.example/v1", "http://evil.example\\@127.0.0.1/v1", "http://evil.example#@127.0.0.1/v1",
    "http://evil.example?@127.0.0.1/v1", "http://evil.example/@127.0.0.1/v1", "http://127.0.0.1\t.evil.example/v1",
    "http://127.0.0.1\n.evil.example/v1", "http:// 127.0.0.1/v1", "http:/\\evil.example/v1", "http:\\\\127.0.0.1/v1",
    "http:///evil.example/v1", "//127.0.0.1/v1", "127.0.0.1:8000/v1", "http://127.0.0.1/v1?x=1", "http://127.0.0.1/#x",
    "http://127.0.0.1:8000:80/v1", "http://[::1].evil.example/v1", "http://[::1%25lo]/v1",
    # other ways to write an address, which only some resolvers read
    "http://2130706433/v1", "http://0x7f000001/v1", "http://0x7f.0.0.1/v1", "http://0177.0.0.1/v1", "http://127.1/v1",
    "http://127.0.0.01/v1", "http://[::ffff:127.0.0.1]/v1", "http://[0:0:0:0:0:0:0:1]/v1", "http://[::]/v1",
    "http://0.0.0.0:8000/v1", "http://0/v1", "http://128.0.0.1/v1", "http://127.0.0.256/v1",
    "http://１２７.0.0.1/v1", "http://127。0。0。1/v1", "http://①②⑦.0.0.1/v1", "http://lоcalhost/v1", "http://ｌocalhost/v1",
    # names that mean this machine only here and there
    "http://host.docker.internal:8000/v1", "http://ip6-localhost/v1",
    # no address, or none of HTTP
    "", "http://", "http:///v1", "$OPENAI_BASE_URL", "${SERVER}/v1", "http://${SERVER}/v1", "HTTP://127.0.0.1/v1",
    "ftp://127.0.0.1/v1", "unix:///run/vllm.sock", "file:///etc/passwd",
)  # fmt: skip


@pytest.mark.parametrize("url", LOCAL)
def test_this_machine(url):
    assert is_loopback_url(url)


@pytest.mark.parametrize("url", REMOTE)
def test_every_other_address_is_another_machine(url):
    assert not is_loopback_url(url)


def test_hosts():
    assert all(map(is_loopback_host, ("localhost", "127.0.0.1", "[::1]", "::1")))
    assert not any(map(is_loopback_host, ("*", "", "localhost.", "evil.example", "0.0.0.0", "127.1")))


@pytest.fixture
def reach(tmp_path):
    def reach(text, name="promptools.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return reach_of(parse_config(path.read_bytes(), path))

    return reach


BASE = """
default_provider = "gpu"
[providers.gpu]
kind = "vllm"
base_url = "http://gpu.example:8000/v1"
api_key_env = "GPU_KEY"
default_model = "a"
[providers.gpu.models.a]
defaults = { temperature = 0.1 }
[providers.laptop]
kind = "ollama"
[proxy]
requests_per_minute = 3
"""
CHANGES = {  # what is asked about again
    "another address": ("gpu.example:8000", "gpu.example:8001"),
    "another key": ("GPU_KEY", "AWS_SECRET_ACCESS_KEY"),
    "no key": ('api_key_env = "GPU_KEY"', ""),
    "a user in the address": ("http://gpu", "http://me:pw@gpu"),
    "another replica": ('"http://gpu.example:8000/v1"', '["http://gpu.example:8000/v1", "http://two.example/v1"]'),
    "a chat template": (
        "[providers.gpu.models.a]",
        '[providers.gpu.models.a]\nprofile = { chat_template = "~/.netrc" }',
    ),
    "a URL in the body": ("temperature = 0.1", 'tools = [{ type = "mcp", server_url = "https://evil.example/mcp" }]'),
    "the key of another provider": ('kind = "ollama"', 'kind = "ollama"\napi_key_env = "GPU_KEY"'),
    "another name": ("[providers.laptop]", '[providers."gpu 2"]'),
    "another usual address": ('kind = "ollama"', 'kind = "sglang"'),
    "Redis": ("requests_per_minute = 3", 'redis_url = "redis://evil.example"'),
    "pages": ("requests_per_minute = 3", 'cors_origins = ["https://evil.example"]'),
    "hosts": ("requests_per_minute = 3", 'allowed_hosts = ["*"]'),
    "a file of keys": ("requests_per_minute = 3", 'key_file = "/etc/hostname"'),
    "keys": ("requests_per_minute = 3", 'api_key_env = "HOME"'),
    "a named key": ("requests_per_minute = 3", 'keys.x.env = "HOME"'),
    "a dialect": ('default_provider = "gpu"', 'default_provider = "gpu"\ndialects = ["acme.toml"]'),
    "providers by request": ("requests_per_minute = 3", "allow_provider = true"),
}
EDITS = {  # what is not
    "another model": ('default_model = "a"', 'default_model = "b"'),
    "another default": ('default_provider = "gpu"', 'default_provider = "laptop"'),
    "the temperature": ("temperature = 0.1", "temperature = 0.9"),
    "a fact": ('kind = "ollama"', 'kind = "ollama"\nprofile = { modes = ["prompt"] }'),
    "a limit": ("requests_per_minute = 3", "requests_per_minute = 4"),
    "marks": ("[proxy]", "[tools.rm]\ndangerous = true\n[proxy]"),
    "a comment": ("[proxy]", "# words\n[proxy]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_trust_ends_with_what_matters(reach, change):
    old, new = CHANGES[change]
    assert old in BASE
    assert reach(BASE).digest != reach(BASE.replace(old, new)).digest


@pytest.mark.parametrize("edit", EDITS)
def test_trust_outlives_what_does_not(reach, edit):
    old, new = EDITS[edit]
    assert old in BASE
    assert reach(BASE).digest == reach(BASE.replace(old, new)).digest


def test_what_is_beyond_this_machine_is_known(reach):
    assert [str(entry) for entry in reach(BASE).entries] == [
        "provider 'gpu', server: http://gpu.example:8000/v1",
        "provider 'gpu', key in the variable: GPU_KEY",
        "provider 'laptop', server: http://127.0.0.1:11434/v1",
    ]
    assert [entry.value for entry in reach(BASE).asked_about] == ["http://gpu.example:8000/v1"]


REMOTE_PARTS = (
    '[providers.a]\nbase_url = ["http://127.0.0.1/v1", "http://evil.example/v1"]',
    '[providers.vllm]\ndefaults = { metadata = { hook = "http://evil.example" } }',
    '[providers.vllm.models.m]\ndefaults = { urls = [["//evil.example/x"]] }',
    '[providers.vllm]\ndefaults = { server_url = "https:evil.example/x" }',
    '[providers.vllm]\ndefaults = { server_url = "\\u0001 HTTPS:\\t/\\n/evil.example/x" }',
    '[providers.vllm]\ndefaults = { server_url = "/\\t/evil.example/x" }',
    '[proxy]\nredis_url = "redis://evil.example:6379/0"',
    '[proxy]\nredis_url = "redis://localhost?host=evil.example"',
    '[proxy]\nredis_url = "unix:///run/x@evil.example"',
    '[proxy]\ncors_origins = ["https://evil.example"]',
    '[proxy]\ncors_origins = ["*"]',
    '[proxy]\nallowed_hosts = ["evil.example"]',
)
LOCAL_PARTS = (
    '[providers.vllm]\ndefaults = { stop = ["//", "a:b", "https:", "see ftp: x"], hook = "http://localhost:1/x" }',
    '[providers.a]\nbase_url = ["http://127.0.0.1/v1", "http://[::1]:2/v1"]',
    '[proxy]\nredis_url = "redis://:pw@localhost:6379/0"',
    '[proxy]\nredis_url = "unix:///run/redis.sock"',
    '[proxy]\ncors_origins = ["http://localhost:3000"]\nallowed_hosts = ["localhost"]\napi_key_env = "KEYS"',
    "[tools.rm]\ndangerous = true",
)


@pytest.mark.parametrize("text", REMOTE_PARTS)
def test_parts_that_lead_elsewhere(reach, text):
    assert reach(text).asked_about


@pytest.mark.parametrize("text", LOCAL_PARTS)
def test_parts_that_stay_here(reach, text):
    assert not reach(text).asked_about


def test_what_is_shown_obeys_no_terminal_and_hides_no_letter(reach):
    shown = str(reach('[providers."\\u001b[2Jа"]\nbase_url = "http://me:secret@\\u202eоpenai.example/v1"').entries[0])
    assert shown.isascii()
    assert shown.isprintable()
    assert "secret" not in shown
    assert "\\u043e" in shown


@pytest.mark.clock
@pytest.mark.parametrize("text", ["a" * 1_000_000, "http://" + "a" * 1_000_000, ":" * 1_000_000, "/" * 1_000_000])
def test_a_long_text_costs_little(reach, text):
    started = time.process_time()
    assert reach(f'[providers.vllm]\nbase_url = "{text}"\ndefaults = {{ x = "{text}" }}').asked_about
    assert time.process_time() - started < 60
