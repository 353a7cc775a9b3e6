"""Each mode with each client API, by the API's own SDK, over a real llama.cpp: a call, its result and the answer."""

import importlib
from contextlib import ExitStack
from pathlib import Path

import pytest
from serving import serving

from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.profiles import Config
from promptools.proxy import Proxy

CLIENTS = Path(__file__).parents[1] / "integrations" / "clients"
TEMPLATES = {"native": "hermes", "prompt": "hermes", "raw": "hermes", "harmony": "harmony"}
"""The chat templates of the models, by mode."""
SCRIPTS = {"hermes": weather.hermes_script, "harmony": weather.gpt_oss_script}
PROGRAMS = {"chat": "openai_sdk", "responses": "openai_sdk", "messages": "anthropic_sdk", "ollama": "ollama_sdk"}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here"),
]


@pytest.fixture(scope="module")
def servers():
    with ExitStack() as stack:
        yield {name: stack.enter_context(serve(SCRIPTS[name](), template=name, name="m")) for name in SCRIPTS}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PROGRAMS)
@pytest.mark.parametrize("mode", TEMPLATES)
def test_a_round_trip_in_each_mode(mode, api, stream, servers, monkeypatch):
    monkeypatch.syspath_prepend(CLIENTS)
    pytest.importorskip(PROGRAMS[api].partition("_")[0])
    ask = importlib.import_module(PROGRAMS[api]).WAYS[api]
    replies = []
    proxy = Proxy(base_url=servers[TEMPLATES[mode]].base_url, config=Config(), mode=mode, on_reply=replies.append)
    with serving(proxy) as port:
        assert ask(f"http://127.0.0.1:{port}", "m", stream) == weather.ANSWER
    assert [reply.trace.mode for reply in replies] == [mode, mode]
    assert [[(call.name, call.arguments) for call in reply.calls] for reply in replies] == [
        [("get_weather", {"city": "Paris"})],
        [],
    ]
