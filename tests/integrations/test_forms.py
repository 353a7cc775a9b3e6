"""Structured output of real clients: each asks in its own ways for an object, of a server that enforces no form.

A program of `forms/` asks the server alone and through `promptools serve`, in one piece and streamed. Alone it reads an
answer that is as it should be, and not all of those that are not; through the proxy it reads each, from one request.
"""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import form_server
import integration_results
import pytest
from form_server import CALLING, WANTED, FormServer
from integration_results import FORM_CLIENTS, FormClient, FormRow
from programs import proxy_before, run_ways

KEPT = integration_results.read_forms(integration_results.KEPT_FORMS)
WRITTEN = os.environ.get("PROMPTOOLS_RESULTS")
ALONE, THROUGH = "alone", "through"
NAMES = {"plain": "the arguments", "fenced": "fenced", "sentence": "in a sentence", "slip": "with slips"}
TRIED = {"WAYS": ("plain", ["fenced", "sentence", "slip"]), "CALLS": (CALLING, ["plain", "fenced", "slip"])}
"""The answer that each client reads alone, and those that are tried; by how it asks."""

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="session")
def addresses() -> Iterator[tuple[FormServer, str]]:
    """The server, and the address of a proxy before it."""
    server = FormServer()
    with proxy_before(server.url) as proxy:
        yield server, proxy
    server.close()


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, id=client.program, marks=getattr(pytest.mark, client.environment))
        for client in FORM_CLIENTS
    ],
)
def test_structured_output(client: FormClient, addresses: tuple[FormServer, str], tmp_path: Path) -> None:
    server, proxy = addresses
    server.play()
    words: list[str] = []
    for kind, (read, answers) in TRIED.items():
        words += [kind, f"{server.root}={read}-{ALONE}"]
        words += [f"{at}={answer}-{how}" for answer in answers for at, how in ((server.root, ALONE), (proxy, THROUGH))]
    told = run_ways(client.program, client.kind, client.environment, words, tmp_path)
    by_way = {key: list(rows) for key, rows in groupby(told, key=lambda row: (row["api"], row["stream"]))}
    reads = {key: read_alone(rows) for key, rows in by_way.items()}
    asked = Counter(request.json["model"] for request in server.requests)
    assert {name: times for name, times in asked.items() if times != 1} == {}
    check(
        client,
        [FormRow(client.program, way, reads[way, False], reads[way, True]) for way, streamed in by_way if not streamed],
    )


def read_alone(rows: list[dict[str, object]]) -> str:
    """Return which answers a client reads alone in one way; check that it reads what it should."""
    told = {str(row["server"]).partition("=")[2]: row for row in rows}
    (read, answers) = next(tried for tried in TRIED.values() if f"{tried[1][-2]}-{ALONE}" in told)
    assert told[f"{read}-{ALONE}"].get("answer") == WANTED, told
    for answer in answers:
        assert told[f"{answer}-{THROUGH}"].get("answer") == WANTED, told[f"{answer}-{THROUGH}"]
    alone = [answer for answer in answers if told[f"{answer}-{ALONE}"].get("answer") == WANTED]
    assert len(alone) < len(answers), "this way needs no promptools"
    return ", ".join(NAMES[answer] for answer in alone)


def check(client: FormClient, rows: list[FormRow]) -> None:
    """Compare rows with the page's, or write them down for the page."""
    assert rows
    if WRITTEN:
        with Path(WRITTEN).open("a", encoding="utf-8") as file:
            file.writelines(f"{row.to_json()}\n" for row in rows)
    else:
        kept = [row for row in KEPT if row.program == client.program]
        assert rows == kept, "the page tells otherwise: make results-integrations"


def test_every_answer_is_tried() -> None:
    assert {*form_server.ANSWERS} == {answer for _, answers in TRIED.values() for answer in answers}
