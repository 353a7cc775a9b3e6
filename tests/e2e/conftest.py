"""Real llama.cpp servers, one of a kind for each worker."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from scenes import gpt_oss, hermes

from promptools.lab.server import Server, can_serve, serve
from promptools.lab.weather import prompt_mark


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
