"""Real llama.cpp servers, one of a kind a worker, and promptools before them: inside the client, or as a proxy."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from scenes import gpt_oss, hermes

from promptools.cli.gather import Answer
from promptools.client import OpenAI
from promptools.lab.llamacpp import can_serve, serve
from promptools.lab.server import Server
from promptools.lab.weather import prompt_mark
from promptools.profiles import Config, Provider

Connect = Callable[..., openai.OpenAI]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if not can_serve():
                item.add_marker(pytest.mark.skip(reason="xllamacpp or gguf is not installed here"))


@pytest.fixture(scope="session")
def prompted() -> str:
    """A phrase that stands in every request of prompt mode, and nowhere else."""
    return prompt_mark()


@pytest.fixture(scope="session")
def harmony_server(tmp_path_factory: pytest.TempPathFactory, prompted: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("harmony")
    with serve(gpt_oss(prompted), template="harmony", name="gpt-oss-scripted", folder=folder) as server:
        yield server


@pytest.fixture(scope="session")
def hermes_server(tmp_path_factory: pytest.TempPathFactory, prompted: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hermes")
    with serve(hermes(prompted), template="hermes", name="hermes-scripted", folder=folder, slots=8) as server:
        yield server


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory: pytest.TempPathFactory, prompted: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("plain")
    with serve(hermes(prompted), template="plain", name="plain-scripted", folder=folder) as server:
        yield server


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60, trust_env=False) as client:
        yield client


def config_of(server: Server) -> Config:
    box = Provider("box", kind="llamacpp", base_url=server.base_url, default_model=server.name)
    return Config(default_provider="box", providers={"box": box})


class Proxies:
    """`promptools serve` before servers, one process each."""

    def __init__(self) -> None:
        self._shared: dict[str, str] = {}
        self._running: list[subprocess.Popen[str]] = []

    def before(self, server: Server) -> str:
        """Give the URL of a proxy that all tests of the session share."""
        if server.base_url not in self._shared:
            self._shared[server.base_url] = self.fresh(server)
        return self._shared[server.base_url]

    def fresh(self, server: Server) -> str:
        """Give the URL of a proxy that has seen nothing yet."""
        command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--provider", "llamacpp"]
        process = subprocess.Popen([*command, "--base-url", server.base_url], stdout=subprocess.PIPE, text=True)
        self._running.append(process)
        assert process.stdout is not None
        return next(line.split()[1] for line in process.stdout if line.startswith("listening "))

    def stop(self) -> None:
        for process in self._running:
            process.terminate()
            process.wait(timeout=10)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="session")
def proxies() -> Iterator[Proxies]:
    running = Proxies()
    yield running
    running.stop()


@pytest.fixture(params=["client", "proxy"])
def connect(request: pytest.FixtureRequest, proxies: Proxies) -> Iterator[Connect]:
    """Make a client whose requests go through promptools: the transport inside it, or a proxy before the server."""
    made: list[openai.OpenAI] = []

    def make(server: Server, *, fresh: bool = False) -> openai.OpenAI:
        if request.param == "client":
            client: openai.OpenAI = OpenAI(config=config_of(server), max_retries=0, timeout=60)
        else:
            url = proxies.fresh(server) if fresh else proxies.before(server)
            client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@dataclass
class Got:
    """One answer, streamed or whole, as an app sees it."""

    answer: Answer
    headers: Any

    @property
    def content(self) -> str:
        return self.answer.reply.content

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(call.name, call.arguments) for call in self.answer.reply.calls]

    @property
    def ids(self) -> list[str]:
        return [call.id for call in self.answer.reply.calls]

    @property
    def finish_reason(self) -> str | None:
        return self.answer.reply.finish_reason

    @property
    def attempts(self) -> list[tuple[str, str]]:
        return [(each["mode"], each["outcome"]) for each in self.answer.attempts]

    def message(self) -> dict[str, Any]:
        return self.answer.reply.message(reasoning=False)


@pytest.fixture(params=["whole", "streamed"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Got]:
    """Ask through a client of the official SDK, and put the answer together."""
    stream = request.param == "streamed"

    def put(client: openai.OpenAI, model: str, *said: Any, options: dict[str, Any] | None = None, **keys: Any) -> Got:
        messages: list[Any] = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
        raw: Any = client.chat.completions.with_raw_response.create(
            model=model,
            messages=messages,
            stream=stream,
            extra_body={"promptools": {"trace": True, **(options or {})}},
            **keys,
        )
        answer = Answer()
        for part in raw.parse() if stream else [raw.parse()]:
            list(answer.take(part))
        return Got(answer, raw.headers)

    return put
