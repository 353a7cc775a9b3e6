"""Raw mode goes first where a server's own parser and a model are known to break each other, and only where it can."""

import pytest

from promptools.profiles import Config, resolve
from promptools.types import ServerInfo

OLLAMA = "http://127.0.0.1:11434/v1"
CODER = "qwen3-coder:30b"


def modes(**more):
    return resolve(CODER, base_url=OLLAMA, config=Config(), **more).profile.modes


def seen(version="0.32.15", capabilities=("completion", "tools"), kind="ollama"):
    return ServerInfo(kind=kind, version=version, capabilities=capabilities, parser="qwen3-coder")


def test_ollama_and_qwen3_coder():
    assert modes(provider="ollama") == modes(seen=seen()) == ("raw", "native", "prompt")
    target = resolve(CODER, provider="ollama", config=Config())
    assert any(reason.startswith("raw mode is offered") for reason in target.reasons)
    assert any(reason.startswith("modes = ('raw', 'native', 'prompt'): qwen3-coder: ") for reason in target.reasons)


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_elsewhere_it_comes_after_native_mode(kind):
    assert modes(seen=seen(kind=kind)) == ("native", "raw", "prompt")


def test_an_ollama_that_cannot_render_has_no_raw_mode():
    target = resolve(CODER, base_url=OLLAMA, config=Config(), seen=seen("0.11.10"))
    assert target.profile.modes == ("native", "prompt")
    assert "raw mode is not offered: nothing is known that renders the model's chat template" in target.reasons


def test_a_template_without_tools_leaves_prompt_mode():
    assert modes(seen=seen(capabilities=("completion",))) == ("prompt",)


@pytest.mark.parametrize("listed", [["native"], ["prompt", "raw"]])
def test_modes_of_the_config_stay(listed):
    assert modes(provider="ollama", overrides={"modes": listed}) == tuple(listed)
