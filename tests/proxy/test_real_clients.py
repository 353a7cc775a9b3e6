"""Real SDKs through the proxy, over a real llama.cpp that fails on its model's calls; `make integrations` has more."""

import importlib
import os
import shutil
import subprocess
from pathlib import Path

import environments
import pytest
from recipes.recipe import CannotMakeError
from serving import serving

from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.profiles import Config
from promptools.proxy import Proxy

CLIENTS = Path(__file__).parents[1] / "integrations" / "clients"
MODEL = "gpt-oss-20b"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here"),
]


@pytest.fixture(scope="module")
def address():
    with (
        serve(weather.gpt_oss_script(), template="harmony", name=MODEL) as server,
        serving(Proxy(base_url=server.base_url, config=Config())) as port,
    ):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("program", "api"),
    [("openai_sdk", "chat"), ("openai_sdk", "responses"), ("anthropic_sdk", "messages"), ("ollama_sdk", "ollama")],
)
def test_a_round_trip(program, api, stream, address, monkeypatch):
    monkeypatch.syspath_prepend(CLIENTS)
    pytest.importorskip(program.partition("_")[0])
    ask = importlib.import_module(program).WAYS[api]
    assert ask(address, f"{MODEL}-{api}-{stream}", stream) == weather.ANSWER


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """A folder with the programs of Node and their packages."""
    try:
        packages = environments.path_of("frameworks-node")
    except CannotMakeError as error:
        if os.environ.get("PROMPTOOLS_E2E") == "required":
            raise
        pytest.skip(f"no client of Node was tried: {error}")
    folder = tmp_path_factory.mktemp("node")
    (folder / "node_modules").symlink_to(packages)
    for file in CLIENTS.glob("*.mjs"):
        shutil.copy(file, folder)
    return folder


@pytest.mark.parametrize("program", ["openai_node", "vercel_ai"])
def test_a_round_trip_of_node(program, address, modules):
    command = ["node", "run_ways.mjs", program, f"{address}={MODEL}"]
    printed = subprocess.run(command, cwd=modules, check=True, capture_output=True, text=True, timeout=300).stdout
    rows = [line for line in printed.splitlines() if line.startswith("{")]
    assert len(rows) in {4, 6}
    assert [line for line in rows if weather.ANSWER not in line] == []
