"""Real clients before the proxy: each makes a whole round trip with a tool, on servers whose own tools are broken.

A program of `clients/` asks in every API and form that its client has, first the servers alone, and then through
`promptools serve`. Only who has called the tool gets the right answer. What came of it is kept in results.jsonl, from
which docs/reference/integrations.md is made (`make results-integrations`).
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import coding_agents
import integration_results
import models
import pytest
from integration_results import CLIENTS, Client, Row
from programs import proxy_before, run_ways

from promptools.lab.llamacpp_server import can_serve, serve
from promptools.transport.endpoints import PROXY_ENDPOINTS

KEPT = integration_results.read(integration_results.KEPT)
WRITTEN = os.environ.get("PROMPTOOLS_RESULTS")
WORKS = integration_results.WORKS
FORMS = {False: "whole", True: "streamed"}
BREAKING, LEAKING = "gpt-oss-20b", "qwen3-coder"

SERVES_OLLAMA = any(endpoint.path == "/api/chat" for endpoint in PROXY_ENDPOINTS)

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, str]]:
    """The addresses of llama.cpp, alone and through the proxy; it fails on one model, and the other's calls leak."""
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    with ExitStack() as stack:
        lines = {BREAKING: (models.gpt_oss(), "harmony"), LEAKING: (models.leaking(), "hermes")}
        addresses: dict[str, str] = {}
        for name, (script, template) in lines.items():
            server = stack.enter_context(
                serve(script, template=template, name=name, context=4 * 16384, special=models.WORDS)
            )
            addresses[f"{name} alone"] = server.url
            addresses[name] = stack.enter_context(proxy_before(server.base_url))
        yield addresses


def chosen(*kinds: str) -> list[object]:
    return [
        pytest.param(client, id=client.program, marks=getattr(pytest.mark, client.environment))
        for client in CLIENTS
        if client.kind in kinds
    ]


@pytest.mark.parametrize("client", chosen("Python", "Node"))
def test_a_round_trip(client: Client, servers: dict[str, str], tmp_path: Path) -> None:
    names = [BREAKING, *([] if client.forced else [LEAKING])]
    asked = {f"{servers[key]}={name}": key for name in names for key in (f"{name} alone", name)}
    by_key: dict[tuple[str, bool, str], str] = {}
    for told in run_ways(client.program, client.kind, client.environment, [*asked], tmp_path):
        by_key[told["api"], told["stream"], asked[told["server"]]] = verdict(told)
    ways = dict.fromkeys((api, stream) for api, stream, _ in by_key)
    assert ways
    assert {api for api, _ in ways} == {*client.packages}
    for api, stream in ways:
        if api == "ollama" and not SERVES_OLLAMA:
            continue
        alone = [by_key[api, stream, f"{name} alone"] for name in names]
        through = [by_key[api, stream, name] for name in names]
        check(
            Row(
                client.packages[api],
                client.kind,
                api,
                FORMS[stream],
                *alone,
                *[""][: client.forced],
                "; ".join({*through}),
            )
        )


def verdict(told: dict[str, object]) -> str:
    """Return in a few words what came of a round trip."""
    answer = str(told.get("answer") or "")
    if "18" in answer and "Paris" in answer:
        return WORKS
    if "error" in told:
        return "an error"
    return "the call as text" if "get_weather" in answer else "no answer"


@pytest.mark.parametrize("client", chosen("agent"))
def test_an_agent(client: Client, servers: dict[str, str], tmp_path: Path) -> None:
    """A coding agent reads a file with a tool of its own."""
    ((api, package),) = client.packages.items()
    (tmp_path / "fruit.txt").write_text("quince\n", encoding="utf-8")
    printed = coding_agents.ask(client.environment, servers[BREAKING], tmp_path)
    assert models.NAMED in printed, printed
    alone = "" if client.retries else coding_agents.ask(client.environment, servers[f"{BREAKING} alone"], tmp_path)
    assert models.NAMED not in alone
    check(Row(package, client.kind, api, "streamed", "an error" if alone else "", "", WORKS))


@pytest.mark.parametrize("client", chosen("agent"))
def test_a_launched_agent(client: Client, servers: dict[str, str], tmp_path: Path) -> None:
    """`promptools launch` names the proxy to the agent, without a word in its settings."""
    (tmp_path / "fruit.txt").write_text("quince\n", encoding="utf-8")
    printed = coding_agents.launch(client.environment, f"{servers[f'{BREAKING} alone']}/v1", tmp_path)
    assert models.NAMED in printed, printed


def check(row: Row) -> None:
    """Compare a row with the page's, or write it down for the page."""
    assert row.through == WORKS
    assert WORKS not in {row.breaking, row.leaking}, "this client needs no promptools here"
    if WRITTEN:
        with Path(WRITTEN).open("a", encoding="utf-8") as file:
            file.write(f"{row.to_json()}\n")
    else:
        assert row in KEPT, "the page tells otherwise: make results-integrations"
