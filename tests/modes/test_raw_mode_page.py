"""The page about raw mode says what the code does."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from promptools.modes.raw_mode import prepare_conversation, prepare_raw
from promptools.modes.tool_request import parse_request
from promptools.profiles import Config, kinds, resolve
from promptools.profiles.profile import TemplateEndpoint
from promptools.wire.chat_template import TEMPLATE_KEYS, RenderedPrompt, encode_template_request
from promptools.wire.parameters import PARAMETERS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "raw-mode.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (`.*?) \| (.*) \|$", re.MULTILINE)
ENDPOINTS: tuple[TemplateEndpoint, ...] = ("llamacpp", "tokenize", "ollama")
VALUES = {
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}],
    "chat_template_kwargs": {"enable_thinking": False},
    "reasoning_effort": "low",
    "reasoning": {"effort": "low"},
    "think": True,
    "stream_options": {"include_usage": True},
    "response_format": {"type": "json_object"},
    "stop": ["x"],
    "n": 2,
    "stream": True,
}


def rows(heading):
    section = PAGE.partition(heading)[2].partition("\n#")[0]
    return {key: cells.split(" | ") for keys, cells in ROW.findall(section) for key in re.findall(r"`(\w+)`", keys)}


RENDERED, OTHERS = rows("### The parameters of the template"), rows("### All other parameters")


def test_every_parameter_of_the_template_has_its_row():
    assert set(TEMPLATE_KEYS) <= set(RENDERED)
    assert not set(RENDERED) & set(OTHERS)
    assert {*RENDERED, *OTHERS} <= set(PARAMETERS)


@pytest.mark.parametrize("key", [key for key in TEMPLATE_KEYS if key not in {"model", "messages", "tools"}])
def test_what_is_rendered_is_in_the_request_to_render(key):
    body = {"model": "m", "messages": VALUES["messages"]}
    for endpoint, cell in zip(ENDPOINTS, RENDERED[key], strict=False):
        bare, asked = (encode_template_request(b, endpoint) for b in (body, {**body, key: VALUES.get(key, True)}))
        assert (asked.body != bare.body) == cell.startswith("rendered"), endpoint
        assert cell.startswith(("rendered", "dropped")), endpoint


@pytest.mark.parametrize("key", [key for key in PARAMETERS if key not in {*RENDERED, *OTHERS}])
@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "ollama"])
def test_every_other_parameter_reaches_the_rules_of_the_raw_endpoint(kind, key):
    profile = replace(resolve("qwen3:8b", provider=kind, config=Config()).profile, n=True, stream_usage=True)
    value = VALUES.get(key, 1)
    body = {"model": "m", "messages": VALUES["messages"], "tools": VALUES["tools"], "stream": True, key: value}
    request = parse_request(body, profile)
    rendered = RenderedPrompt("ping\n", "ping\n")
    assert prepare_raw(request, prepare_conversation(request), rendered).body[key] == value


@pytest.mark.parametrize("kind", kinds())
def test_every_server_that_renders_is_told(kind):
    profile = resolve("m", provider=kind, base_url="http://h/v1", config=Config()).profile
    table = PAGE.partition("## Which servers")[2].partition("\n\n- ")[0]
    told = [line for line in table.splitlines() if f"(`{profile.template_endpoint}`)" in line]
    assert bool(told) == (profile.template_endpoint is not None)


def test_every_endpoint_is_told():
    assert set(get_args(TemplateEndpoint)) == set(ENDPOINTS)
