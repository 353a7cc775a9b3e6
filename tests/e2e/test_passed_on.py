"""What the proxy passes on without reading it, on real servers: `/v1/completions` and `/v1/embeddings`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from asking import Proxies
from rigs import Servers
from scenes import WORDS

from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.lab.server_process import Server

OLLAMA = pytest.param("ollama-go", marks=pytest.mark.ollama)
PROMPT: dict[str, Any] = {"prompt": "Say words", "max_tokens": 1000, "temperature": 0}


@pytest.fixture(params=["llamacpp-hermes", OLLAMA, pytest.param("vllm-hermes", marks=pytest.mark.vllm)])
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    return servers[request.param]


@pytest.fixture
def clients(server: Server, proxies: Proxies, request: pytest.FixtureRequest) -> Iterator[list[openai.OpenAI]]:
    """A client of the server, and one of a proxy before it."""
    kind = request.node.callspec.params["server"].partition("-")[0]
    with connected(server, proxies, kind) as made:
        yield made


@contextmanager
def connected(server: Server, proxies: Proxies, kind: str) -> Iterator[list[openai.OpenAI]]:
    urls = (server.base_url, proxies.before(server.base_url, kind))
    made = [openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300) for url in urls]
    yield made
    for client in made:
        client.close()


def test_a_completion(clients: list[openai.OpenAI], server: Server) -> None:
    straight, through = (client.completions.create(model=server.name, **PROMPT) for client in clients)
    assert through.choices[0].text.strip() == WORDS
    assert through.choices == straight.choices
    assert through.usage == straight.usage
    assert through.model_fields_set == straight.model_fields_set


def test_a_streamed_completion(clients: list[openai.OpenAI], server: Server) -> None:
    streams = [client.completions.create(model=server.name, stream=True, **PROMPT) for client in clients]
    straight, through = ([chunk.choices[0] for chunk in stream if chunk.choices] for stream in streams)
    assert len(through) > 20
    assert "".join(choice.text for choice in through).strip() == WORDS
    assert [choice.finish_reason for choice in through if choice.finish_reason] == ["stop"]
    assert "".join(choice.text for choice in straight) == "".join(choice.text for choice in through)


@pytest.fixture
def embedding(proxies: Proxies, tmp_path: Path) -> Iterator[list[openai.OpenAI]]:
    """A client of a llama.cpp with --embeddings and --pooling mean, and one of a proxy before it."""
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    options = {"embedding": True, "pooling_type": 1}
    with (
        serve([ScriptedReply("words", WORDS)], folder=tmp_path, options=options) as server,
        connected(server, proxies, "llamacpp") as made,
    ):
        yield made


@pytest.mark.parametrize("keys", [{"input": "words"}, {"input": ["words", "more words"], "encoding_format": "float"}])
def test_embeddings(embedding: list[openai.OpenAI], keys: Any) -> None:
    straight, through = (client.embeddings.create(model="scripted", **keys) for client in embedding)
    assert len(through.data) == (2 if isinstance(keys["input"], list) else 1)
    assert all(len(entry.embedding) > 8 for entry in through.data)
    assert through == straight


@pytest.mark.parametrize("server", ["llamacpp-hermes"], indirect=True)
def test_a_server_without_embeddings_has_its_own_error(clients: list[openai.OpenAI], server: Server) -> None:
    errors = []
    for client in clients:
        with pytest.raises(openai.APIStatusError, match="does not support embeddings") as raised:
            client.embeddings.create(model=server.name, input="words")
        errors.append((raised.value.status_code, raised.value.body))
    assert errors[0] == errors[1]
