"""What the fuzzer found once holds now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.check import Failure, Input, failures
from fuzz.inputs import ReplyInput
from fuzz.seeds import keep, kept
from fuzz.upstream import ExchangeInput

SEEDS = list(kept())


@pytest.mark.parametrize("given", [given for _, given in SEEDS], ids=[name for name, _ in SEEDS])
def test_a_finding_that_was_kept(given: Input) -> None:
    assert list(failures(given)) == []


def test_a_finding_reads_back_as_it_was_kept(tmp_path: Path) -> None:
    given = ReplyInput("<tool_call>\ud83d\x00", "hermes", [{"name": "ping"}], {"expect": "hermes"}, "stop", (3,))
    path = keep(given, Failure("tiles", "why"), tmp_path)
    assert json.loads(path.read_text("utf-8"))["property"] == "tiles"
    assert [each for _, each in kept(tmp_path)] == [given]


def test_an_answer_of_a_server_reads_back_too(tmp_path: Path) -> None:
    given = ExchangeInput({"model": "m"}, "\udcff", "hermes", words=("x",))
    keep(given, Failure("answered", "why"), tmp_path)
    assert [each for _, each in kept(tmp_path)] == [given]
