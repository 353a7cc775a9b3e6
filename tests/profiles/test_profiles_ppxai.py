"""A `ppxai-config.json` as it stands."""

import json

import pytest

from promptools.errors import UsageError
from promptools.profiles import api_key, load_config, resolve

WHOLE = {
    "__comment": "made for these tests, with every documented key",
    "$schema": "https://example.com/schema.json",
    "version": "1.3",
    "default_provider": "vllm-gpt-oss",
    "system_prompt": "You are helpful.",
    "system_prompt_mode": "append",
    "server": {"idle_timeout": 600, "port": 54320},
    "session": {"auto_restore": "prompt"},
    "context": {"max_injection_size": 100000},
    "bootstrap": {"files": ["AGENTS.md"], "enabled": True},
    "paths": {"sessions": "s"},
    "tui": {"theme": "dark"},
    "visualization": {},
    "tools": {"overrides": {"shell": "Runs a command."}},
    "providers": {
        "__comment_local": "a server of our own",
        "vllm-gpt-oss": {
            "name": "vLLM",
            "base_url": "http://localhost:8000/v1",
            "api_key_env": "VLLM_API_KEY",
            "coding_model": "openai/gpt-oss-120b",
            "default_model": "openai/gpt-oss-120b",
            "pricing": {"openai/gpt-oss-120b": {"input": 0.0, "output": 0.0}},
            "capabilities": {
                "__comment": "prompt-based, so that HarmonyError cannot happen",
                "web_search": False,
                "web_fetch": False,
                "weather": False,
                "realtime_info": False,
                "citations": False,
                "streaming": True,
                "native_tool_calling": False,
            },
            "generation_params": {"__comment": "low", "temperature": 0.3, "top_p": 0.9, "frequency_penalty": 0.1},
            "extra_body": {"reasoning_effort": "low"},
            "options": {"anything": 1},
            "web_search": {"preferred": "x"},
            "models": {
                "openai/gpt-oss-120b": {
                    "name": "gpt-oss 120b",
                    "description": "big",
                    "context_limit": 131072,
                    "max_tokens": 8192,
                    "generation_params": {"top_p": 0.8},
                    "extra_body": {"chat_template_kwargs": {"__comment": "x", "a": [{"__comment": 1, "b": 2}]}},
                },
                "native-one": {"tool_calling": {"mode": "native", "parallel_tool_calls": False}},
            },
        },
        "cloud": {
            "name": "Cloud",
            "base_url": "https://api.example.com/v1",
            "api_key_env": "CLOUD_KEY",
            "models": {"first": {}, "second": {}},
            "system_prompt": "Cloudy.",
            "system_prompt_mode": "replace",
        },
        "lmstudio": {"name": "LM Studio", "base_url": "http://localhost:1234/v1", "api_key_env": "", "models": ["a"]},
        "bare": {"base_url": "http://localhost:1/v1"},
    },
}


@pytest.fixture
def load(tmp_path):
    """Write data as a config file and load it."""

    def load(data):
        path = tmp_path / "ppxai-config.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return load_config(path)

    return load


def test_the_whole_file_is_understood_without_a_word(load):
    config = load(WHOLE)
    assert config.warnings == ()
    assert list(config.providers) == ["vllm-gpt-oss", "cloud", "lmstudio", "bare"]
    target = resolve("default", config=config)
    assert (target.provider, target.base_url) == ("vllm-gpt-oss", "http://localhost:8000/v1")
    assert target.model == "openai/gpt-oss-120b"
    assert target.profile.modes == ("prompt",)
    assert target.profile.family == "gpt-oss"
    assert target.profile.kind == "openai-compatible"
    assert target.profile.system_prompt_placement == "append"
    assert target.system_prompt == "You are helpful."
    assert target.defaults == {
        "temperature": 0.3,
        "top_p": 0.8,
        "frequency_penalty": 0.1,
        "reasoning_effort": "low",
        "max_tokens": 8192,
        "chat_template_kwargs": {"a": [{"b": 2}]},
    }
    assert api_key(target, {}) is None


def test_a_models_tool_calling_goes_over_its_providers(load):
    target = resolve("native-one", config=load(WHOLE))
    assert target.profile.modes == ("native", "prompt")
    assert target.defaults["parallel_tool_calls"] is False


def test_the_first_model_is_the_default_one_and_a_providers_prompt_goes_over_the_files(load):
    target = resolve("default", provider="cloud", config=load(WHOLE))
    assert target.model == "first"
    assert (target.system_prompt, target.profile.system_prompt_placement) == ("Cloudy.", "replace")
    with pytest.raises(UsageError, match="'CLOUD_KEY' is not set"):
        api_key(target, {})


def test_models_may_be_names_only_or_missing(load):
    config = load(WHOLE)
    studio = resolve(provider="lmstudio", config=config)
    assert (studio.model, studio.profile.kind, studio.api_key_env) == ("a", "lmstudio", None)
    assert resolve("anything", provider="bare", config=config).model == "anything"
    assert resolve(provider="bare", config=config).model == ""


BOTH, PROMPT, NATIVE = ("native", "prompt"), ("prompt",), ("native",)


@pytest.mark.parametrize(
    ("calling", "capability", "modes"),
    [
        (None, None, BOTH),
        (None, True, BOTH),
        (None, False, PROMPT),
        ({}, False, PROMPT),
        ({"mode": "auto"}, None, BOTH),
        ({"mode": "auto"}, False, PROMPT),
        ({"mode": "native"}, False, BOTH),
        ({"mode": "native", "fallback_on_failure": True}, None, BOTH),
        ({"mode": "native", "fallback_on_failure": False}, None, NATIVE),
        ({"fallback_on_failure": False}, True, NATIVE),
        ({"fallback_on_failure": False}, None, BOTH),
        ({"mode": "prompt_based"}, True, PROMPT),
    ],
)
@pytest.mark.parametrize("level", ["provider", "model"])
def test_what_is_said_about_tools(load, calling, capability, modes, level):
    provider = {"base_url": "http://localhost:1/v1", "models": {"m": {}}}
    if calling is not None:
        (provider if level == "provider" else provider["models"]["m"])["tool_calling"] = calling
    if capability is not None:
        provider["capabilities"] = {"native_tool_calling": capability}
    assert resolve("m", config=load({"providers": {"p": provider}})).profile.modes == modes


@pytest.mark.parametrize("empty", [True, False])
def test_fallback_on_empty(load, empty):
    calling = {"fallback_on_empty": empty, "strip_json_from_text": True, "api_path": "chat"}
    config = load({"providers": {"p": {"base_url": "http://localhost:1/v1", "tool_calling": calling}}})
    assert resolve("m", config=config).profile.swallows is empty


def test_our_own_keys_may_stand_in_it(load):
    provider = {
        "base_url": "http://localhost:8000/v1",
        "kind": "vllm",
        "server_version": "0.28.0",
        "profile": {"dialect": "hermes"},
        "models": {"big": {"aliases": ["b"], "family": "qwen", "profile": {"n": False}}},
    }
    target = resolve("b", config=load({"providers": {"p": provider}}))
    profile = target.profile
    assert (target.model, profile.kind, profile.family, profile.dialect, profile.n) == (
        "big", "vllm", "qwen", "hermes", False
    )  # fmt: skip
    assert target.server_version == "0.28.0"


def test_what_is_unknown_is_warned_about_by_name(load):
    data = {
        "colour": 1,
        "providers": {
            "p": {
                "base_url": "http://localhost:1/v1",
                "modles": {},
                "capabilities": {"telepathy": True},
                "tool_calling": {"speed": 1},
                "models": {"m": {"size": 3}},
            }
        },
    }
    config = load(data)
    file = config.file
    assert set(config.warnings) == {
        f"{file}: colour: unknown key, ignored",
        f"{file}: providers.p.modles: unknown key, ignored",
        f"{file}: providers.p.capabilities.telepathy: unknown key, ignored",
        f"{file}: providers.p.tool_calling.speed: unknown key, ignored",
        f"{file}: providers.p.models.m.size: unknown key, ignored",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", r"ppxai-config\.json: is not valid JSON: .*line 1"),
        ("[" * 100_000, r"ppxai-config\.json: is not valid JSON"),
        ([], r"ppxai-config\.json: expected a table, not \[\]"),
        ({"default_provider": 1}, r": default_provider: expected a string, not 1"),
        ({"providers": []}, r": providers: expected a table, not \[\]"),
        ({"providers": {"p": 1}}, r": providers\.p: expected a table, not 1"),
        ({"providers": {"p": {"base_url": 1}}}, r": providers\.p\.base_url: expected a string, not 1"),
        ({"providers": {"p": {"models": 1}}}, r": providers\.p\.models: expected a table, not 1"),
        ({"providers": {"p": {"models": {"m": 1}}}}, r": providers\.p\.models\.m: expected a table, not 1"),
        (
            {"providers": {"p": {"models": {"m": {"max_tokens": "8"}}}}},
            r": providers\.p\.models\.m\.max_tokens: expected a whole number, not '8'",
        ),
        (
            {"providers": {"p": {"capabilities": {"native_tool_calling": "no"}}}},
            r": providers\.p\.capabilities\.native_tool_calling: expected true or false, not 'no'",
        ),
        (
            {"providers": {"p": {"tool_calling": {"mode": "prompt"}}}},
            r": providers\.p\.tool_calling\.mode: 'prompt' is not valid here; did you mean 'prompt_based'\?",
        ),
        ({"providers": {"p": {"system_prompt_mode": "before"}}}, r"system_prompt_mode: 'before' is not valid here"),
        ({"providers": {"p": {"generation_params": 1}}}, r"generation_params: expected a table, not 1"),
    ],
)
def test_every_mistake_names_the_file_and_the_key(load, data, message):
    with pytest.raises(UsageError, match=message):
        load(data)


def test_a_provider_without_an_address_is_an_error_only_when_it_is_used(load):
    config = load({"providers": {"p": {"models": {}}, "q": {"base_url": "http://localhost:1/v1"}}})
    assert resolve("m", provider="q", config=config).base_url == "http://localhost:1/v1"
    with pytest.raises(UsageError, match=r"ppxai-config\.json: providers\.p\.base_url: missing"):
        resolve("m", provider="p", config=config)


ORDERS = {
    ("gpt-oss-20b", "vllm"): ("native", "harmony", "prompt"),
    ("gpt-oss-20b", "ollama"): ("harmony", "native", "prompt"),
    ("gpt-oss-20b", None): BOTH,
    ("gemma3", "vllm"): BOTH,
}


@pytest.mark.parametrize("level", ["provider", "model"])
@pytest.mark.parametrize(("model", "kind"), ORDERS)
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_harmony_mode_stays_where_a_model_has_it(load, model, kind, native, ends, level):
    """ppxai has no word for harmony mode, so only `fallback_on_failure` ends it."""
    calling = {"mode": "native" if native else "prompt_based", **({"fallback_on_failure": False} if ends else {})}
    provider = {"base_url": "http://localhost:1/v1", "models": {model: {}}, **({"kind": kind} if kind else {})}
    (provider if level == "provider" else provider["models"][model])["tool_calling"] = calling
    profile = resolve(model, config=load({"providers": {"p": provider}})).profile
    order = ORDERS[model, kind]
    if ends:
        assert profile.modes == (NATIVE if native else PROMPT)
    elif native:
        assert profile.modes == order
    else:
        assert profile.modes == ((*PROMPT, "harmony") if "harmony" in order else PROMPT)
    assert profile.harmony_last is not ends


def test_a_list_of_modes_is_all_that_may_be_tried(load):
    provider = {"base_url": "http://localhost:1/v1", "profile": {"modes": ["prompt"]}, "models": {"m": {}, "o": {}}}
    provider["models"]["o"] = {"profile": {"harmony_last": True, "modes": ["native"]}}
    config = load({"providers": {"p": provider}})
    assert resolve("m", config=config).profile.harmony_last is False
    assert resolve("o", config=config).profile.harmony_last is True
    assert (
        resolve("m", config=config, overrides={"modes": ["native"], "harmony_last": True}).profile.harmony_last is True
    )
    assert resolve("gpt-oss", base_url="http://h/v1").profile.harmony_last is True


def test_the_context_and_descriptions_of_tools(load):
    data = {
        "providers": {"p": {"base_url": "http://h/v1", "models": {"m": {"context_limit": 8192}, "other": {}}}},
        "tools": {
            "overrides": {"read": "all", "write": "all", "list": "all"},
            "provider_overrides": {"p": {"write": "p", "list": "p"}, "q": {"read": "q"}},
            "model_overrides": {"m": {"list": "m"}},
            "shell": {"require_consent": True},
        },
    }
    config = load(data)
    assert config.warnings == ()
    target = resolve("m", config=config)
    assert target.profile.context == 8192
    assert target.descriptions == {"read": "all", "write": "p", "list": "m"}
    assert resolve("other", config=config).descriptions == {"read": "all", "write": "p", "list": "p"}
    assert resolve("other", config=config).profile.context is None
    for wrong in ({"overrides": {"read": 1}}, {"model_overrides": {"m": "x"}}, {"overrides": []}):
        with pytest.raises(UsageError, match="overrides"):
            load({"tools": wrong})
    with pytest.raises(UsageError, match="context"):
        load({"providers": {"p": {"models": {"m": {"context_limit": 0}}}}})
