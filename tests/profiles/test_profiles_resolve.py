"""Where a request goes, what is known there, and why."""

import builtins
import socket
import subprocess
import sys
from copy import copy

import pytest

from promptools import dialects
from promptools.errors import UsageError, bad_url_message
from promptools.profiles import Config, Model, Profile, Provider, Target, api_key, resolve
from promptools.profiles.resolution import is_local

CONFIG = Config(
    file="promptools.toml",
    default_provider="local",
    providers={
        "local": Provider(
            "local",
            kind="vllm",
            base_url="http://gpu:8000/v1",
            api_key_env="LOCAL_KEY",
            default_model="oss",
            server_version="0.12.0",
            system_prompt="Be brief.",
            models={
                "openai/gpt-oss-20b": Model(
                    "openai/gpt-oss-20b", ("oss", "small"), facts={"n": False}, defaults={"temperature": 0.3}
                ),
                "house-model": Model("house-model", family="mistral"),
                "gpt-oss-lookalike": Model("gpt-oss-lookalike", family="none"),
            },
            facts={"modes": ("prompt",), "n": True},
            defaults={"temperature": 1.0, "max_tokens": 100},
        ),
        "ollama": Provider("ollama"),
        "hosted": Provider("hosted", base_url="https://api.example.com/v1", api_key_env="HOSTED_KEY"),
    },
    tools={"shell": {"dangerous": True}},
)


def why(target: Target, start: str) -> str:
    """Give the one reason that begins so."""
    (found,) = [each for each in target.reasons if each.startswith(start)]
    return found


def test_nothing_known_is_an_openai_compatible_server():
    target = resolve("some-model")
    assert (target.provider, target.base_url, target.model, target.api_key_env) == (None, None, "some-model", None)
    assert target.profile == Profile(raw="completions")
    assert target.reasons[:5] == (
        "no provider: the config has none",
        "base_url: the client's own",
        "kind 'openai-compatible': nothing says what server it is",
        "model 'some-model': asked for, sent as it is",
        "family: none matches the model's name",
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1:11434/v1", "http://ollama:11434/v1", "http://localhost:1234/v1"])
def test_the_server_is_never_guessed_from_its_address(url):
    assert resolve("gpt-oss:20b", base_url=url).profile.kind == "openai-compatible"


def test_the_default_provider_is_used_and_every_layer_says_why():
    target = resolve("oss", config=CONFIG)
    profile = target.profile
    assert (target.provider, target.model, target.base_url) == ("local", "openai/gpt-oss-20b", "http://gpu:8000/v1")
    assert (profile.kind, profile.family) == ("vllm", "gpt-oss")
    assert why(target, "provider") == "provider 'local': the default of promptools.toml"
    assert why(target, "model") == "model 'openai/gpt-oss-20b': asked for, by its alias 'oss' in promptools.toml"
    assert why(target, "kind") == "kind 'vllm': of provider 'local'"
    assert why(target, "family") == "family 'gpt-oss': by the model's name"
    assert profile.constrained == "structured_outputs"
    assert "vllm" in why(target, "constrained =")
    assert profile.result_parts is False
    assert "gpt-oss" in why(target, "result_parts =")
    assert profile.modes == ("prompt",)
    assert why(target, "modes") == "modes = ('prompt',): promptools.toml, provider 'local'"
    assert profile.n is False
    assert why(target, "n =") == "n = False: promptools.toml, model 'openai/gpt-oss-20b'"
    assert why(target, "tool_choice").startswith("tool_choice = ['auto', 'named', 'none', 'required']: vllm: ")
    assert target.defaults == {"temperature": 0.3, "max_tokens": 100}
    assert target.system_prompt == "Be brief."
    assert target.marks == {"shell": {"dangerous": True}}


def test_an_override_goes_over_everything():
    target = resolve("oss", config=CONFIG, overrides={"modes": ["native"], "dialect": "hermes"})
    assert target.profile.modes == ("native",)
    assert why(target, "modes") == "modes = ('native',): the request's override"
    assert why(target, "dialect") == "dialect = 'hermes': the request's override"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"mode": "native"}, r"overrides: mode: unknown key; did you mean 'modes'\? known: accept, agent_effort, "),
        ({"modes": "native"}, r"overrides: modes: expected an array, not 'native'"),
        ({"modes": ["nativ"]}, r"overrides: modes\.\"0\": 'nativ' is not valid here; did you mean 'native'\?"),
        ({"modes": []}, r"overrides: modes: name at least one mode"),
        ({"modes": ["native", "native"]}, r"overrides: modes: an entry occurs twice"),
        ({"n": "yes"}, r"overrides: n: expected true or false, not 'yes'"),
        ({"n": 1}, r"overrides: n: expected true or false, not 1"),
        ({"dialect": 3}, r"overrides: dialect: expected a string, not 3"),
        ({"wire": 3}, r"overrides: wire: expected a string, not 3"),
        ({"tool_names": "["}, r"overrides: tool_names: '\[' is not a valid regular expression"),
        ({"num_ctx": "fitt"}, r"overrides: num_ctx: 'fitt' is not valid here; did you mean 'fit'\?"),
        ({"num_ctx": True}, r"overrides: num_ctx: expected a whole number, not True"),
        ({"num_ctx": 4.5}, r"overrides: num_ctx: expected a string, not 4\.5"),
        ({"control_tokens": ["<"]}, r"overrides: control_tokens: '<' is not a control token"),
        ({"num_ctx": 0}, r"overrides: num_ctx: 0 is not a valid number of tokens; write 1 or more"),
        ({"num_ctx_limit": -1}, r"overrides: num_ctx_limit: -1 is not a valid number of tokens; write 1 or more"),
        ({"num_ctx_limit": "fit"}, r"overrides: num_ctx_limit: expected a whole number, not 'fit'"),
        ({"kind": "vllm"}, r"overrides: kind: not a fact: name the server's kind on the provider"),
        ({"family": "glm"}, r"overrides: family: not a fact: name the family on the model"),
        ([1], r"overrides: expected a table, not \[1\]"),
    ],
)
def test_an_override_that_does_not_fit_names_the_key(overrides, message):
    with pytest.raises(UsageError, match=message):
        resolve("x", overrides=overrides)


def test_versions_decide_which_facts_hold():
    field = {
        version: resolve("m", provider="vllm", server_version=version).profile.reasoning_field
        for version in (None, "0.15.2", "0.16.0", "0.32.0")
    }
    assert field == {
        None: "reasoning",
        "0.15.2": "reasoning_content",
        "0.16.0": "reasoning",
        "0.32.0": "reasoning",
    }
    assert resolve("m", config=CONFIG).profile.reasoning_field == "reasoning_content"
    assert resolve("m", config=CONFIG, server_version="0.32.0").profile.reasoning_field == "reasoning"
    assert resolve("m", config=CONFIG, server_version="0.32.0").server_version == "0.32.0"


def test_a_family_may_be_named_or_switched_off():
    assert resolve("house-model", config=CONFIG).profile.tool_ids == "alnum9"
    assert why(resolve("house-model", config=CONFIG), "family") == "family 'mistral': of model 'house-model'"
    assert resolve("gpt-oss-lookalike", config=CONFIG).profile.family is None


def test_grammars_are_kept_from_gpt_oss_where_they_garble_harmony():
    assert resolve("gpt-oss", provider="llamacpp").profile.constrained_ok is False
    assert resolve("gpt-oss", provider="sglang").profile.constrained_ok is True


@pytest.mark.parametrize("asked", [None, "default"])
def test_the_default_model(asked):
    target = resolve(asked, config=CONFIG)
    assert target.model == "openai/gpt-oss-20b"
    assert why(target, "model").startswith("model 'openai/gpt-oss-20b': the default of provider 'local', by its alias")


def test_default_without_a_default_model_names_file_and_key():
    with pytest.raises(UsageError, match=r"promptools\.toml: providers\.hosted\.default_model: missing, so 'default'"):
        resolve("default", provider="hosted", config=CONFIG)
    assert resolve(provider="hosted", config=CONFIG).model == ""
    assert why(resolve(provider="hosted", config=CONFIG), "model") == "model: none asked for"


def test_default_without_a_provider_is_a_name_like_any_other():
    assert resolve("default", base_url="http://localhost:30000/v1").model == "default"


def test_an_unlisted_model_is_sent_as_it_is():
    target = resolve("other", config=CONFIG)
    assert target.model == "other"
    assert why(target, "model") == "model 'other': asked for, sent as it is"
    assert why(resolve("house-model", config=CONFIG), "model").endswith("asked for, listed in promptools.toml")


def test_a_provider_whose_name_is_a_kind_is_that_kind_at_its_usual_address():
    target = resolve("llama3.2", provider="ollama", config=CONFIG)
    assert (target.provider, target.profile.kind) == ("ollama", "ollama")
    assert target.base_url == "http://127.0.0.1:11434/v1"
    assert why(target, "base_url") == "base_url 'http://127.0.0.1:11434/v1': where ollama listens by default"


def test_a_kind_alone_will_do_for_a_provider():
    target = resolve("m", provider="llama.cpp", base_url="http://box/v1")
    assert (target.provider, target.profile.kind, target.base_url) == ("llama.cpp", "llamacpp", "http://box/v1")
    assert why(target, "provider") == "provider 'llama.cpp': asked for, a kind of server"
    assert why(target, "base_url") == "base_url 'http://box/v1': asked for"


def test_an_unknown_provider_is_an_error_and_never_another_one():
    with pytest.raises(
        UsageError, match=r"provider 'locl': neither a provider of promptools\.toml nor a kind .*'local'"
    ):
        resolve("m", provider="locl", config=CONFIG)


def test_a_provider_of_no_kind_needs_an_address():
    with pytest.raises(UsageError, match=r"\(no file\): providers\.generic\.base_url: missing; a server of kind"):
        resolve("m", provider="generic")


def test_a_base_url_finds_its_provider_when_only_one_has_it():
    target = resolve("oss", base_url="http://GPU:8000/v1/", config=CONFIG)
    assert (target.provider, target.base_url) == ("local", "http://GPU:8000/v1/")
    assert why(target, "provider") == "provider 'local': promptools.toml has it at http://GPU:8000/v1/"
    other = resolve("oss", base_url="http://elsewhere/v1", config=CONFIG)
    assert (other.provider, other.model, other.api_key_env) == (None, "oss", None)
    assert why(other, "no provider") == "no provider: promptools.toml has none at http://elsewhere/v1"
    twice = Config(providers={name: Provider(name, base_url="http://a/v1") for name in "xy"})
    assert resolve("m", base_url="http://a/v1", config=twice).provider is None


def test_switching_the_provider_is_one_line():
    for name, kind in (("local", "vllm"), ("ollama", "ollama"), ("hosted", "openai-compatible")):
        config = Config("promptools.toml", name, CONFIG.providers)
        assert resolve("m", config=config).profile.kind == kind


def test_the_only_provider_is_the_default_one():
    config = Config("f.toml", None, {"ollama": Provider("ollama")})
    assert why(resolve("m", config=config), "provider") == "provider 'ollama': the only one in f.toml"


def test_several_providers_without_a_default_name_file_and_key():
    config = Config("f.toml", None, CONFIG.providers)
    with pytest.raises(UsageError, match=r"f\.toml: default_provider: missing, .* name one of hosted, local, ollama"):
        resolve("m", config=config)


def test_a_default_provider_that_is_not_there_names_file_and_key():
    for providers in ({}, CONFIG.providers):
        with pytest.raises(UsageError, match=r"f\.toml: default_provider: no provider 'lokal' in this file"):
            resolve("m", config=Config("f.toml", "lokal", providers))


def test_a_key_comes_from_the_environment():
    target = resolve("m", provider="hosted", config=CONFIG)
    assert api_key(target, {"HOSTED_KEY": "s3cret"}) == "s3cret"
    assert "s3cret" not in repr(target)


@pytest.mark.parametrize("environ", [{}, {"HOSTED_KEY": ""}])
def test_a_missing_key_is_an_error_where_one_is_needed(environ):
    target = resolve("m", provider="hosted", config=CONFIG)
    with pytest.raises(
        UsageError, match=r"provider 'hosted': the environment variable 'HOSTED_KEY' is not set; set it"
    ):
        api_key(target, environ)


def test_a_missing_key_is_not_an_error_where_none_is_needed():
    assert api_key(resolve("m", config=CONFIG), {}) is None
    assert api_key(resolve("m", config=CONFIG), {"LOCAL_KEY": "k"}) == "k"
    assert api_key(resolve("m"), {"OPENAI_API_KEY": "k"}) is None


def test_a_key_is_needed_on_a_known_kind_when_the_config_says_so():
    provider = Provider("vllm", api_key_env="K", facts={"needs_key": True})
    with pytest.raises(UsageError, match="'K' is not set"):
        api_key(resolve("m", config=Config(providers={"vllm": provider})), {})


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://192.168.1.5/v1", True),
        ("http://10.0.0.7/v1", True),
        ("http://gpu.local/v1", True),
        ("http://api.localhost/v1", True),
        ("http://gpu:8000/v1", False),
        ("https://api.example.com/v1", False),
        ("http://8.8.8.8/v1", False),
        ("http://[::1/v1", False),
        ("", False),
        (None, False),
    ],
)
def test_local_addresses(url, local):
    assert is_local(url) is local


def test_a_local_server_of_no_known_kind_needs_no_key():
    provider = Provider("box", base_url="http://127.0.0.1:9/v1", api_key_env="BOX_KEY")
    target = resolve("m", config=Config(providers={"box": provider}))
    assert api_key(target, {}) is None
    assert why(target, "needs_key").endswith("the address is on this machine or a private network")


def test_resolve_touches_no_network_and_no_file_but_the_packaged_facts(monkeypatch):
    resolve("gpt-oss", config=CONFIG)

    def refuse(*args, **kwargs):
        raise AssertionError("I/O")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", refuse)
        patch.setattr(builtins, "open", refuse)
        patch.setattr("io.open", refuse)
        target = resolve("oss", config=CONFIG)
    assert target.provider == "local"


def test_values_that_are_handed_over_are_the_profiles_own_types():
    profile = resolve("m", overrides={"tool_choice": ["none", "auto"], "constrained": "format"}).profile
    assert profile.tool_choice == frozenset({"auto", "none"})
    assert profile.constrained == "format"


def test_an_address_needs_its_scheme():
    with pytest.raises(UsageError) as raised:
        resolve("m", base_url="localhost:8000")
    assert str(raised.value) == "base_url: 'localhost:8000' is not a URL; did you mean 'http://localhost:8000/v1'?"
    config = Config("f.toml", None, {"x": Provider("x", base_url="gpu/v1")})
    with pytest.raises(UsageError, match=r"^f\.toml: providers\.x\.base_url: 'gpu/v1' is not a URL; did you mean"):
        resolve("m", config=config)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        ("localhost:8000/", "http://localhost:8000/v1"),
        ("//gpu-box:8000/llm/v1", "http://gpu-box:8000/llm/v1"),
        ("192.168.1.5", "http://192.168.1.5/v1"),
        ("[::1]:8080", "http://[::1]:8080/v1"),
        ("api.example.com", "https://api.example.com/v1"),
        ("api.example.com/v1", "https://api.example.com/v1"),
        ("me:secret@localhost:8000", "http://***@localhost:8000/v1"),
        ("ftp://localhost:8000", None),
        ("htp:localhost", None),
        ("a server", None),
        ("", None),
    ],
)
def test_an_address_without_a_scheme_is_told_with_the_url_that_was_probably_meant(text, meant):
    error = bad_url_message(text)
    assert "secret" not in error
    if meant:
        assert error.endswith(f" is not a URL; did you mean {meant!r}?")
    else:
        assert error == f"{text!r} is not a valid HTTP URL; write it as http://HOST:PORT/v1 or https://HOST/v1"


@pytest.mark.parametrize("num_ctx", ["fit", "server", 8192])
def test_a_context_is_a_word_or_a_number(num_ctx):
    assert resolve("x", overrides={"num_ctx": num_ctx}).profile.num_ctx == num_ctx


def test_ollama_is_asked_in_its_own_api_unless_a_config_says_otherwise():
    assert resolve("x", provider="ollama").profile.wire == "ollama"
    assert resolve("x", provider="ollama", overrides={"wire": "chat"}).profile.wire == "chat"


@pytest.mark.parametrize(
    ("provider", "version", "modes"),
    [
        ("vllm", None, ("native", "harmony", "prompt")),
        ("vllm", "0.32.0", ("native", "harmony", "prompt")),
        ("vllm", "0.28.0", ("harmony", "native", "prompt")),
        ("ollama", None, ("harmony", "native", "prompt")),
        ("llamacpp", None, ("native", "harmony", "prompt")),
        ("sglang", None, ("native", "harmony", "prompt")),
        ("lmstudio", None, ("native", "prompt", "harmony")),
        ("openai-compatible", None, ("native", "prompt")),
        ("transformers-serve", None, ("prompt", "native")),
    ],
)
def test_gpt_oss_is_asked_in_this_order(provider, version, modes):
    places = Config(providers={"here": Provider("here", kind=provider, base_url="http://h/v1")})
    profile = resolve("openai/gpt-oss-20b", provider="here", config=places, server_version=version).profile
    assert profile.modes == modes
    assert "harmony" not in modes or profile.raw
    assert "harmony" not in resolve("qwen3:8b", provider="here", config=places).profile.modes


# --- a dialect that is none


def with_dialect(provider="json", model="json"):
    entry = Model("small", facts={"dialect": model})
    given = {"kind": "vllm", "base_url": "http://gpu/v1", "models": {"small": entry}, "facts": {"dialect": provider}}
    return Config("my.toml", providers={"d": Provider("d", **given)})


@pytest.mark.parametrize(
    ("config", "overrides", "where"),
    [
        (with_dialect(provider="yaml"), {}, "my.toml: providers.d.profile.dialect"),
        (with_dialect(model="yaml"), {}, "my.toml: providers.d.models.small.profile.dialect"),
        (with_dialect(), {"dialect": "yaml"}, "overrides: dialect"),
    ],
)
def test_a_dialect_that_is_none_is_told_with_its_place(config, overrides, where):
    with pytest.raises(UsageError) as caught:
        resolve("small", config=config, overrides=overrides)
    assert str(caught.value) == (
        f"{where}: there is no dialect 'yaml'; `promptools dialects` lists all of them; one of your own is named in"
        " the config's `dialects`, or registered first"
    )


def test_a_dialect_that_the_app_registered_is_one():
    own = copy(dialects.get("hermes"))
    own.name = "yaml"
    dialects.register(own)
    try:
        target = resolve("small", config=with_dialect("yaml", "yaml"), overrides={"dialect": "yaml"})
    finally:
        dialects.unregister("yaml")
    assert target.profile.dialect == "yaml"


def test_no_dialect_is_loaded_to_know_its_name():
    code = (
        "from promptools import resolve; import sys; resolve('m', overrides={'dialect': 'hermes'}); "
        "print('promptools.dialects.families.hermes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
