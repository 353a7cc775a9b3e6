"""The ollama package's answers from a real Ollama, and through our proxy before other real servers: one shape."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ollama as package
import pytest
import rig_ollama
from asking import Proxies
from scenes import QUESTION, WEATHER

from promptools.lab.server_process import Server

Ask = Callable[[package.Client, str], Any]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


SHORT = {"num_predict": 5}
ASKED: dict[str, Ask] = {
    "chat": lambda client, model: client.chat(model, [user("Say words")], options=SHORT),
    "chat streamed": lambda client, model: list(client.chat(model, [user("Say words")], options=SHORT, stream=True)),
    "tools": lambda client, model: client.chat(model, [user(QUESTION)], tools=[WEATHER]),
    "tools streamed": lambda client, model: list(client.chat(model, [user(QUESTION)], tools=[WEATHER], stream=True)),
    "generate": lambda client, model: client.generate(model, "Say words", options=SHORT),
    "generate streamed": lambda client, model: list(client.generate(model, "Say words", options=SHORT, stream=True)),
    "raw": lambda client, model: client.generate(model, "Say words", raw=True, options=SHORT),
    "load": lambda client, model: client.chat(model),
    "load to generate": lambda client, model: client.generate(model),
    "nothing to embed": lambda client, model: client.embed(model, []),
    "list": lambda client, model: client.list(),
    "ps": lambda client, model: client.ps(),
    "show": lambda client, model: client.show(model),
    "no such model": lambda client, model: client.show("nope"),
}
_LINE = {"model str", "created_at str", "done bool"}
_END = {*_LINE, "done_reason str"}
_FIGURES = {
    f"{name} int"
    for name in (
        "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration",
    )
}  # fmt: skip
_MESSAGE = {"message.role str", "message.content str"}
_CALL = {"message.tool_calls[].function.name str", "message.tool_calls[].function.arguments.city str"}
_DETAILS = {
    f"details.{name} str" for name in ("parent_model", "format", "family", "parameter_size", "quantization_level")
} | {"details.families[] str"}
_LISTED = {f"models[].{path}" for path in {"model str", "size int", "digest str", *_DETAILS}}
SHAPES: dict[str, set[str]] = {
    "chat": {*_END, *_MESSAGE, *_FIGURES},
    "chat streamed": {*_END, *_MESSAGE, *_FIGURES},
    "tools": {*_END, *_MESSAGE, *_CALL, *_FIGURES},
    "tools streamed": {*_END, *_MESSAGE, *_CALL, *_FIGURES},
    "generate": {*_END, "response str", "context[] int", *_FIGURES},
    "generate streamed": {*_END, "response str", "context[] int", *_FIGURES},
    "raw": {*_END, "response str", *_FIGURES},
    "load": {*_END, *_MESSAGE},
    "load to generate": {*_END, "response str"},
    "nothing to embed": {"model str", "embeddings[]"},
    "list": {*_LISTED, "models[].modified_at str"},
    "ps": {
        *_LISTED, "models[].name str", "models[].expires_at str", "models[].size_vram int",
        "models[].context_length int",
    },
    "show": {
        *_DETAILS, "modified_at str", "template str", "modelfile str", "parameters str", "capabilities[] str",
        "modelinfo",
    },
    "no such model": {"404"},
}  # fmt: skip
"""What Ollama 0.32.15 answers: the paths of the fields that are set, with their types."""
LOST = {"load_duration int", "context[] int"}
"""What docs/reference/ollama-api.md says is left out."""


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Yield the paths of the fields of an answer; those of a stream's parts together."""
    if isinstance(value, package.ResponseError):
        yield str(value.status_code)
    elif isinstance(value, list) and not at:
        for part in value:
            yield from paths(part)
    elif isinstance(value, package._types.SubscriptableBaseModel):
        yield from paths(value.model_dump(mode="json", exclude_unset=True), at)
    elif isinstance(value, dict) and at != "modelinfo":
        for key, each in value.items():
            yield from paths(each, f"{at}.{key}".removeprefix("."))
    elif isinstance(value, list):
        yield from [path for each in value for path in paths(each, f"{at}[]")] or [f"{at}[]"]
    elif value is not None:
        yield at if at == "modelinfo" else f"{at} {type(value).__name__}"


def shape(url: str, name: str, model: str) -> set[str]:
    with package.Client(url, timeout=300) as client:
        try:
            return set(paths(ASKED[name](client, model)))
        except package.ResponseError as error:
            return set(paths(error))


@pytest.fixture(params=ASKED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.ollama
def test_a_real_ollama(ollama: Server, name: str) -> None:
    shape(ollama.url, "load", "go")  # so that one is running
    assert shape(ollama.url, name, "go") == SHAPES[name]


@pytest.mark.ollama
def test_a_real_ollama_through_the_proxy(ollama: Server, proxies: Proxies, name: str) -> None:
    shape(ollama.url, "load", "go")
    assert shape(proxies.before(ollama.base_url, "ollama").removesuffix("/v1"), name, "go") == SHAPES[name]


def test_llamacpp_through_the_proxy(hermes_server: Server, proxies: Proxies, name: str) -> None:
    url = proxies.before(hermes_server.base_url, "llamacpp").removesuffix("/v1")
    got = shape(url, name, hermes_server.name)
    # llama.cpp serves its one model under any name, and this family is not known by its name
    unknown = {path for path in SHAPES[name] if "families" in path} | ({"404"} if name == "no such model" else set())
    assert SHAPES[name] - got <= LOST | unknown


@pytest.mark.ollama
@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (["list"], 0, "MODEL"),
        (["ps"], 0, "Forever"),
        (["show", "MODEL"], 0, "tools"),
        (["run", "MODEL", "Say words"], 0, "word119"),
        (["stop", "MODEL"], 0, ""),
        (["pull", "qwen3"], 1, "'pull' needs an Ollama server"),
        (["rm", "MODEL"], 1, "'delete' needs an Ollama server"),
        (["--version"], 0, "0.32.15"),
    ],
)
def test_the_ollama_program(
    hermes_server: Server, proxies: Proxies, tmp_path: Path, command: list[str], status: int, words: str
) -> None:
    """Ollama's own command line, which knows nothing else, on llama.cpp."""
    url = proxies.before(hermes_server.base_url, "llamacpp").removesuffix("/v1")
    words = words.replace("MODEL", hermes_server.name)
    done = subprocess.run(
        [rig_ollama.program(), *(hermes_server.name if word == "MODEL" else word for word in command)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OLLAMA_HOST": url, "HOME": str(tmp_path)},
    )
    assert done.returncode == status
    assert words in done.stdout + done.stderr


@pytest.mark.vllm
@pytest.mark.parametrize("server", ["vllm-hermes", "vllm-hermes-bare"])
def test_vllm_through_the_proxy(servers: Any, server: str, proxies: Proxies, name: str) -> None:
    url = proxies.before(servers[server].base_url, "vllm").removesuffix("/v1")
    got = shape(url, name, servers[server].name)
    unknown = {path for path in SHAPES[name] if "families" in path}
    # of a whole reply it is not known when it began
    unknown |= set() if name.endswith("streamed") else {"prompt_eval_duration int"}
    assert SHAPES[name] - got <= LOST | unknown
