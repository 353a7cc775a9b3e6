"""The page of results tells what happens: each of its rows is played again and compared.

With PROMPTOOLS_RESULTS=FILE the rows are written to that file instead (`make results`).
"""

import os
from pathlib import Path

import pytest
import results
import telling
from asking import FORMS, ask
from rigs import PLAYED

ASKED = [each for each in PLAYED if not each.values[1].options]
"""A row that has options for us is not the same request without us."""
KEPT = {(row.rig, row.case): row for row in results.read(results.KEPT)} if results.KEPT.exists() else {}
WRITTEN = os.environ.get("PROMPTOOLS_RESULTS")


@pytest.mark.parametrize(("rig", "case"), ASKED)
def test_the_page_tells_what_a_server_does(clients, servers, rig, case):
    kept = KEPT.get((rig.name, case.name))
    row = play(clients, servers, rig, case)
    if WRITTEN:
        with Path(WRITTEN).open("a", encoding="utf-8") as told:
            told.write(f"{row.to_json()}\n")
        return
    if row != kept:  # a server that breaks down does not always have the time to say so in the stream
        row = play(clients, servers, rig, case)
    assert row == kept, "the page tells otherwise: make results"


def play(clients, servers, rig, case):
    model = servers[rig.name].name
    alone = {form: ask(clients.straight(rig), model, form=form, **case.body()) for form in FORMS}
    ours = {form: ask(clients.inside(rig), model, form=form, **case.body(), **case.ours()) for form in FORMS}
    return telling.row(rig, case, alone, ours)


@pytest.mark.skipif(bool(WRITTEN), reason="the page is being written")
def test_the_page_is_made_of_every_row():
    assert set(KEPT) == {(rig.name, case.name) for rig, case in (each.values for each in ASKED)}
    assert results.PAGE.read_text(encoding="utf-8") == results.page(results.merge(KEPT.values(), ()))
