"""The matrix tells what real servers do with scripted models: each of its rows is played again and compared.

With PROMPTOOLS_RESULTS=FILE the rows are written to that file instead (`make results`).
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import results
import telling
from asked import is_raw
from asking import FORMS
from rigs import PLAYED

from benchmarks.models.markdown import read_part

ASKED = [each for each in PLAYED if not each.values[1].options]
"""A row that has options for us is not the same request without us."""
KEPT = {(row.rig, row.case): row for row in results.read(results.KEPT)} if results.KEPT.exists() else {}
WRITTEN = os.environ.get("PROMPTOOLS_RESULTS")


@pytest.mark.asks("straight", "client", "raw")
@pytest.mark.parametrize(("rig", "case"), ASKED)
def test_the_page_tells_what_a_server_does(asked, rig, case):
    row = play(asked, rig, case)
    kept = _spoken(KEPT.get((rig.name, case.name)))
    if WRITTEN:
        with Path(WRITTEN).open("a", encoding="utf-8") as told:
            told.write(f"{row.to_json()}\n")
        return
    if _spoken(row) != kept:  # a server that breaks down does not do so in one way alone
        row = play(asked, rig, case, anew=True)
    assert _spoken(row) == kept, "the page tells otherwise: make results"


def play(asked, rig, case, **options):
    ways = ("straight", "client")
    alone, ours = ({form: asked(rig, case, way, form, **options)[0] for form in FORMS} for way in ways)
    raw = {form: asked(rig, case, "raw", form, **options)[0] for form in FORMS} if is_raw(rig, case) else None
    return telling.row(rig, case, alone, ours, raw)


def _spoken(row):
    """Leave out what depends on how busy a server is: why a stream broke, how many of the last braces vLLM sends."""
    if row is None:
        return None
    alone = re.sub(r"(an error in the stream): `[^`]*`", r"\1", row.alone)
    return replace(row, alone=re.sub(r"\}+\)", "})", alone))


@pytest.mark.skipif(bool(WRITTEN), reason="the page is being written")
def test_the_page_is_made_of_every_row():
    assert set(KEPT) == {(rig.name, case.name) for rig, case in (each.values for each in ASKED)}
    assert read_part(results.PAGE, results.TARGET) == results.part(results.merge(KEPT.values(), ()))
