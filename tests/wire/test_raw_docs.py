"""The page about harmony mode says what the code does."""

import re
from pathlib import Path
from typing import get_args

from promptools.modes.harmony_mode import PREFILLS, RECOMMENDED_SAMPLING
from promptools.modes.options import Prefill
from promptools.profiles.profile import Raw
from promptools.wire.parameters import PARAMETERS, rule_for

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "harmony-mode.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## What happens to each parameter")[2].partition("## ")[0]
BEGINS = PAGE.partition("## How the reply begins")[2].partition("## ")[0]
ROWS = {
    key: cells
    for keys, *cells in re.findall(r"^\| (`.*?) \| (.*) \| (.*) \| (.*) \|$", TABLE, re.MULTILINE)
    for key in re.findall(r"`(\w+)`", keys)
}


def test_every_parameter_has_its_row():
    assert set(ROWS) == set(PARAMETERS)


def test_every_row_tells_the_fates():
    for key, cells in ROWS.items():
        for endpoint, cell in zip(get_args(Raw), cells, strict=True):
            what = rule_for(key, endpoint)
            assert cell.startswith(what.handling), (key, endpoint)
            if what.target:
                assert f"`{what.target}`" in cell, (key, endpoint)


def test_every_way_to_begin_is_told():
    _, *rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", BEGINS, re.MULTILINE)
    assert {name for name, _ in rows} == set(get_args(Prefill))
    for name, text in PREFILLS.items():
        assert text in dict(rows)[name].replace("\\|", "|")


def test_the_advised_sampling_is_told():
    said = " ".join(PAGE.split())
    for key, value in RECOMMENDED_SAMPLING.items():
        assert f"`{key}` {value:g}" in said
