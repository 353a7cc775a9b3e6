"""The user's `promptools.toml`: what it may say, where it is found, and how it fails."""

from pathlib import Path

import pytest

from promptools.errors import UsageError
from promptools.profiles import config, find_config, find_configs, load_config, resolve

WHOLE = """
default_provider = "local"

[tools.execute_shell]
dangerous = true
infer = false
aliases = { cmd = "command" }

[providers.local]
kind = "vLLM"
base_url = "http://127.0.0.1:8000/v1"
api_key_env = "VLLM_API_KEY"
default_model = "small"
server_version = "0.28.0"
system_prompt = "You are a careful assistant."
defaults = { temperature = 0.3 }

[providers.local.profile]
modes = ["prompt", "native"]
system_prompt_placement = "append"

[providers.local.models."openai/gpt-oss-20b"]
aliases = ["oss", "small"]
defaults = { max_tokens = 8192 }

[providers.local.models.house]
family = "qwen"
[providers.local.models.house.profile]
dialect = "json"

[providers.laptop]
kind = "ollama"
models = ["llama3.2", "qwen3:8b"]
"""


@pytest.fixture
def write(tmp_path):
    """Write a config file and give its path."""

    def write(text, name="promptools.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_everything_that_a_file_may_say(write):
    path = write(WHOLE)
    config = load_config(path)
    assert config.file == str(path)
    assert config.warnings == ()
    assert config.tools == {"execute_shell": {"dangerous": True, "infer": False, "aliases": {"cmd": "command"}}}
    small = resolve("default", config=config)
    assert small.model == "openai/gpt-oss-20b"
    assert small.profile.kind == "vllm"
    assert small.profile.modes == ("prompt", "native")
    assert small.profile.system_prompt_placement == "append"
    assert small.system_prompt == "You are a careful assistant."
    assert small.server_version == "0.28.0"
    assert small.api_key_env == "VLLM_API_KEY"
    assert small.defaults == {"temperature": 0.3, "max_tokens": 8192}
    house = resolve("house", config=config).profile
    assert (house.family, house.dialect) == ("qwen", "json")
    laptop = resolve("qwen3:8b", provider="laptop", config=config)
    assert laptop.reasons[3] == f"model 'qwen3:8b': asked for, listed in {path}"


def test_an_empty_file_says_nothing(write):
    assert resolve("m", config=load_config(write(""))).provider is None


def test_a_byte_order_mark_is_no_part_of_the_text(write):
    assert load_config(write("\ufeffdefault_provider = 'x'")).default_provider == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defualt_provider = 'x'", r": defualt_provider: unknown key; did you mean 'default_provider'\? known: "),
        ("default_provider = 3", r": default_provider: expected a string, not 3"),
        ("providers = []", r": providers: expected a table, not \[\]"),
        ("providers.x = 1", r": providers\.x: expected a table, not 1"),
        ("providers.x.base_ulr = ''", r": providers\.x\.base_ulr: unknown key; did you mean 'base_url'\?"),
        ("providers.x.api_key = 'k'", r": providers\.x\.api_key: unknown key; did you mean 'api_key_env'\?"),
        ("providers.x.base_url = true", r": providers\.x\.base_url: expected a string, not True"),
        ("providers.x.base_url = ['http://a', 3]", r': providers\.x\.base_url\."1": expected a string, not 3'),
        ("providers.x.base_url = ['http://a', 'http://a']", r": providers\.x\.base_url: an entry occurs twice"),
        ("providers.x.failover = 'x'", r": providers\.x\.failover: expected an array, not 'x'"),
        (
            "providers.laptop.kind = 'ollama'\nproviders.x.failover = ['lap/m']",
            r": providers\.x\.failover: 'lap/m' does not begin with a provider of this file; did you mean 'laptop'\?",
        ),
        ("providers.x.failover = ['x']", r": providers\.x\.failover: 'x' does not begin with a provider of"),
        (
            "providers.x.kind = 'vllm'\nproviders.y.failover = ['x/']",
            r"y\.failover: 'x/' names no model; write",
        ),
        (
            "providers.x.kind = 'vllm'\nproxy.models.m = 'x'",
            r": proxy\.models\.m: 'x' names no model",
        ),
        ("providers.x.kind = 'vllm'\nproxy.models.m = 'y/m'", r": proxy\.models\.m: 'y/m' does not begin with a provi"),
        ("proxy.models.m = []", r": proxy\.models\.m: an empty array; name a model as PROVIDER/MODEL"),
        ("proxy.models.m = 1", r": proxy\.models\.m: expected a string, not 1"),
        (
            "providers.x.kind = 'vlm'",
            r": providers\.x\.kind: 'vlm' is not a known kind of server; did you mean 'vllm'\?",
        ),
        ("providers.x.models = 3", r": providers\.x\.models: expected a table, not 3"),
        ("providers.x.models = [3]", r': providers\.x\.models\."0": expected a string, not 3'),
        ("providers.x.models = ['a', 'a']", r": providers\.x\.models: an entry occurs twice in \['a', 'a'\]"),
        ("providers.x.models.m.alias = 'a'", r": providers\.x\.models\.m\.alias: unknown key; did you mean 'aliases'"),
        ("providers.x.models.m.aliases = 'a'", r": providers\.x\.models\.m\.aliases: expected an array, not 'a'"),
        (
            "providers.x.models.'a/b'.family = 'qwn'",
            r': providers\.x\.models\."a/b"\.family: \'qwn\' is not a known model family; did',
        ),
        (
            "providers.x.models.m.profile.n = 2",
            r": providers\.x\.models\.m\.profile\.n: expected true or false, not 2",
        ),
        ("providers.x.profile.mode = 'x'", r": providers\.x\.profile\.mode: unknown key; did you mean 'modes'\?"),
        ("providers.x.profile = 1", r": providers\.x\.profile: expected a table, not 1"),
        ("providers.x.profile.kind = 'vllm'", r": providers\.x\.profile\.kind: not a fact: name the server's kind"),
        ("providers.x.defaults = 1", r": providers\.x\.defaults: expected a table, not 1"),
        ("tools.t.dangerus = true", r": tools\.t\.dangerus: unknown key; did you mean 'dangerous'\?"),
        ("tools.t.dangerous = 'yes'", r": tools\.t\.dangerous: expected true or false, not 'yes'"),
        ("tools.t.aliases.a = 1", r": tools\.t\.aliases\.a: expected a string, not 1"),
        ("[providers.x.models]\na.aliases = ['b']\nb.aliases = []", r"models\.a\.aliases: 'b' is already the name of"),
        (
            "[providers.x.models]\na.aliases = ['c']\nb.aliases = ['c']",
            r"models\.b\.aliases: 'c' is already an alias of",
        ),
        ("providers.x.models.a.aliases = ['default']", r"models\.a\.aliases: 'default' is already the word for"),
        ("default_provider = x", r"promptools\.toml: is not valid TOML: .*line 1"),
    ],
)
def test_every_mistake_names_the_file_and_the_key(write, text, message):
    path = write(text)
    with pytest.raises(UsageError, match=message) as caught:
        load_config(path)
    assert str(caught.value).startswith(str(path))


def test_addresses_failover_and_models_of_the_proxy(write):
    config = load_config(
        write("""
        [providers."a/b"]
        base_url = ["http://one/v1", "http://two/v1"]
        failover = ["c", "c/m", "a/c/m"]
        [providers.c]
        base_url = ""
        kind = "vllm"
        [providers."a/c"]
        kind = "ollama"
        [proxy.models]
        one = "a/b/m"
        more = ["c/m", "a/b/x/y"]
        """)
    )
    provider = config.providers["a/b"]
    assert (provider.base_url, provider.replicas) == ("http://one/v1", ("http://two/v1",))
    assert provider.failover == ("c", "c/m", "a/c/m")
    assert config.providers["c"].base_url is None
    assert config.proxy.models == {"one": ("a/b/m",), "more": ("c/m", "a/b/x/y")}
    assert resolve("m", base_url="http://two/v1/", config=config).provider == "a/b"
    assert "two" not in repr(provider)  # it may hold a password


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_config(tmp_path / "nowhere.toml")
    binary = tmp_path / "promptools.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"promptools\.toml: is not UTF-8"):
        load_config(binary)


def test_without_a_suffix_the_content_decides(write):
    assert load_config(write('  {"default_provider": "j"}', "config")).default_provider == "j"
    assert load_config(write("default_provider = 't'", "config")).default_provider == "t"
    with pytest.raises(UsageError, match="is not valid JSON"):
        load_config(write("default_provider = 't'", "config.json"))
    with pytest.raises(UsageError, match="is not valid TOML"):
        load_config(write("{}", "config.toml"))


PLACES = (
    "named.toml",
    "work/ppxai-named.json",
    "work/promptools.toml",
    "work/ppxai-config.json",
    "home/xdg/promptools/promptools.toml",
    "home/.ppxai/ppxai-config.json",
    "system/promptools.toml",
)
STANDINGS = ("given", "given", "untrusted", "untrusted", "own", "own", "own")


def found_path(*places):
    found = find_config(*places)
    return found and found.path


def test_the_search_order(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "SYSTEM_FOLDER", tmp_path / "system")
    cwd, home = tmp_path / "work", tmp_path / "home"
    environ = {
        "PROMPTOOLS_CONFIG": str(tmp_path / "named.toml"),
        "PPXAI_CONFIG_FILE": "ppxai-named.json",
        "XDG_CONFIG_HOME": str(home / "xdg"),
    }
    for place in PLACES:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    everything = find_configs(environ, cwd, home)
    assert [each.path for each in everything] == [tmp_path / place for place in PLACES]
    assert tuple(each.standing for each in everything) == STANDINGS
    for place in PLACES:
        path = tmp_path / place
        assert found_path(environ, cwd, home) == path
        path.unlink()
        environ.pop("PROMPTOOLS_CONFIG", None)
    assert find_config(environ, cwd, home) is None
    assert find_config({}, cwd, home) is None


def test_the_users_own_folder(tmp_path):
    path = tmp_path / ".config" / "promptools" / "promptools.toml"
    path.parent.mkdir(parents=True)
    path.touch()
    assert found_path({}, Path("/nowhere"), tmp_path) == path
    assert found_path({"PROMPTOOLS_CONFIG": "~/.config/promptools/promptools.toml"}, Path("/nowhere"), tmp_path) == path
    assert found_path({"XDG_CONFIG_HOME": str(tmp_path / ".config")}, Path("/nowhere"), None) == path
    assert found_path({}, Path("/nowhere"), None) is None


def test_a_file_that_the_variable_names_must_be_there(tmp_path):
    with pytest.raises(
        UsageError, match=r"PROMPTOOLS_CONFIG='gone\.toml': there is no such file; correct the variable"
    ):
        find_config({"PROMPTOOLS_CONFIG": "gone.toml"}, tmp_path, tmp_path)
    assert find_config({"PPXAI_CONFIG_FILE": "gone.json"}, tmp_path, tmp_path) is None
