"""Where raw mode is offered, and why it is not."""

import pytest

from promptools import dialects
from promptools.profiles import Config, Model, Provider, family_dialect, resolve
from promptools.profiles.config import ToolModePolicy
from promptools.profiles.facts import families, load_builtin
from promptools.types import ServerInfo


def reason(target):
    (why,) = [each for each in target.reasons if each.startswith("raw mode is ")]
    return why


def at(kind, model="qwen3", **facts):
    house = Provider("house", kind=kind, base_url="http://host/v1", facts=facts)
    return resolve(model, config=Config(providers={"house": house}))


@pytest.mark.parametrize(
    ("kind", "endpoint"), [("llamacpp", "llamacpp"), ("vllm", "tokenize"), ("sglang", "tokenize"), ("ollama", "ollama")]
)
def test_after_native_mode_where_the_server_renders_its_template(kind, endpoint):
    target = at(kind)
    assert target.profile.modes == ("native", "raw", "prompt")
    assert reason(target) == f"raw mode is offered after native mode: its prompt is rendered by '{endpoint}'"


@pytest.mark.parametrize("kind", ["lmstudio", "openai-compatible", "transformers-serve"])
def test_not_where_nothing_renders_it(kind):
    target = at(kind)
    assert "raw" not in target.profile.modes
    assert reason(target) == "raw mode is not offered: nothing is known that renders the model's chat template"


def test_a_template_file_of_the_config(tmp_path):
    file = tmp_path / "promptools.toml"
    facts = {"chat_template": "templates/qwen.jinja"}
    house = Provider("house", kind="lmstudio", base_url="http://host/v1", facts=facts)
    target = resolve("qwen3", config=Config(file=str(file), providers={"house": house}))
    assert target.profile.modes == ("native", "raw", "prompt")
    assert target.profile.chat_template == str(tmp_path / "templates/qwen.jinja"), "relative to the config"
    assert target.profile.chat_template in reason(target)


def test_a_template_without_an_endpoint_to_continue_its_prompt(tmp_path):
    target = at("transformers-serve", chat_template=str(tmp_path / "t.jinja"))
    assert "raw" not in target.profile.modes
    assert reason(target) == "raw mode is not offered: no raw endpoint is known that would continue the prompt"


@pytest.mark.parametrize(
    ("kind", "version", "offered"),
    [
        ("ollama", "0.11.10", False), ("ollama", "0.11.11", True), ("ollama", "0.32.15", True), ("ollama", None, True),
        ("sglang", "0.5.11", False), ("sglang", "0.5.12", True), ("vllm", "0.28.0", True),
    ],
)  # fmt: skip
def test_versions(kind, version, offered):
    target = resolve("qwen3", provider=kind, config=Config(), server_version=version)
    assert ("raw" in target.profile.modes) is offered
    assert ("not offered" in reason(target)) is not offered


@pytest.mark.parametrize("capabilities", [("completion",), ("completion", "thinking")])
def test_not_for_a_model_of_ollamas_without_tools(capabilities):
    seen = ServerInfo(kind="ollama", version="0.32.15", capabilities=capabilities)
    target = resolve("m", base_url="http://host/v1", config=Config(), seen=seen)
    assert target.profile.modes == ("prompt",)
    assert reason(target).startswith("raw mode is not offered: the model's template shows it no tools")


@pytest.mark.parametrize("model", ["gemma-2-9b-it", "gemma-3-27b-it", "llama-2-7b-chat", "mistral-7b-instruct-v0.2"])
@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "ollama"])
def test_not_for_families_whose_template_has_no_tools(kind, model):
    target = at(kind, model)
    assert target.profile.modes == ("prompt", "native")
    assert "not offered: the model's template shows it no tools" in reason(target)


@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "ollama"])
def test_gpt_oss_has_harmony_mode(kind):
    target = at(kind, "openai/gpt-oss-20b")
    assert "harmony" in target.profile.modes
    assert "raw" not in target.profile.modes
    assert reason(target) == "raw mode is not offered: harmony mode renders this family's own format"


@pytest.mark.parametrize("listed", [("native",), ("native", "prompt"), ("prompt", "native")])
def test_modes_of_a_config_stay_as_they_are(listed):
    for target in (
        at("vllm", modes=listed),
        resolve("qwen3", provider="vllm", config=Config(), overrides={"modes": list(listed)}),
    ):
        assert target.profile.modes == listed
        assert reason(target) == "raw mode is not offered: `modes` is configured, and does not list it"


@pytest.mark.parametrize("listed", [("raw",), ("raw", "prompt"), ("prompt", "raw")])
def test_modes_of_a_config_that_list_it(listed):
    target = at("vllm", modes=listed)
    assert target.profile.modes == listed
    assert reason(target) == "raw mode is offered, as `modes` lists it: its prompt is rendered by 'tokenize'"
    assert reason(at("lmstudio", modes=listed)).startswith("raw mode is not offered: nothing is known that renders")


@pytest.mark.parametrize(
    ("native", "fallback", "modes"),
    [
        (True, True, ("native", "raw", "prompt")), (True, False, ("native",)),
        (False, True, ("prompt",)), (False, False, ("prompt",)),
    ],
)  # fmt: skip
def test_a_policy_of_ppxais(native, fallback, modes):
    calling = ToolModePolicy(native=native, fallback=fallback)
    for house in (
        Provider("house", kind="vllm", base_url="http://host/v1", calling=calling),
        Provider("house", kind="vllm", base_url="http://host/v1", models={"qwen3": Model("qwen3", calling=calling)}),
    ):
        target = resolve("qwen3", config=Config(providers={"house": house}))
        assert target.profile.modes == modes
        assert ("not offered" in reason(target)) is ("raw" not in modes)


# --- the dialect of a template


def test_the_dialect_of_a_template():
    assert family_dialect("qwen") == "hermes"
    assert family_dialect("mistral") == "mistral", "prompt mode asks for another, since its markers are control tokens"
    assert family_dialect("phi") is None, "prompt mode's JSON in a fence is no template's format"


@pytest.mark.parametrize("family", families())
def test_every_dialect_of_a_template_is_one(family):
    dialect = family_dialect(family)
    assert dialect is None or dialect in dialects.names()
    named = [fact.value for fact in load_builtin(family).facts if fact.key == "dialect"]
    assert load_builtin(family).template_dialect not in named, "then the fact is enough"
