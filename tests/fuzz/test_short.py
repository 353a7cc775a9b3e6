"""The short form of `make fuzz`: a fixed number of inputs for each dialect, the same on every run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz import properties, upstream
from fuzz.arguments import AWKWARD_NAMES
from fuzz.check import failures
from fuzz.grammar import written_name
from fuzz.inputs import ReplyInput
from fuzz.minimise import minimised
from fuzz.replies import DIALECTS, make
from promptools import dialects
from promptools.types import Call

EACH = 12
"""Inputs for one dialect."""
SERVERS = 150
"""Answers of servers, and requests of clients."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_damaged_replies_keep_every_promise(dialect: str) -> None:
    for number in range(EACH):
        given = make(f"short:{number}", dialect, tables=False)
        assert list(failures(given)) == [], f"seed short:{number}: {given}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_of_a_tool_with_an_odd_name_is_known_by_the_name_in_its_text(dialect: str) -> None:
    for name in AWKWARD_NAMES:
        text = dialects.get(dialect).render_calls([Call("c", name, {"a": "b"}, '{"a": "b"}')])
        tools = [{"name": name, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
        written = ((written_name(dialect, name), {"a": "b"}),)
        given = ReplyInput(text, dialect, tools, {"expect": dialect}, "stop", (), written, "none")
        assert written[0][0] in text
        assert list(failures(given)) == [], f"{name}: {given}"


def test_odd_answers_of_a_server_reach_the_client_whole() -> None:
    for number in range(SERVERS):
        given = upstream.make(f"short:{number}")
        assert list(failures(given)) == [], f"seed short:{number}: {given}"


def test_odd_requests_are_served_or_refused_with_a_reason() -> None:
    for number in range(SERVERS):
        given = upstream.make_request(f"short:{number}")
        assert list(failures(given)) == [], f"seed short:{number}: {given}"


def test_a_seed_makes_the_same_input_everywhere() -> None:
    given = make("same:1", "hermes")
    assert make("same:1", "hermes") == given
    assert (given.text[:40], given.cuts, given.mutations) == (
        "<think>Hm.</think>Here it comes:\n<tool_c",
        (106, 212, 279),
        ("whole",),
    )


def test_a_finding_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_exclamation(parsed: properties.Parsed) -> None:
        assert "!" not in parsed.whole[1].content

    monkeypatch.setattr("fuzz.properties.PROPERTIES", (no_exclamation,))
    monkeypatch.setattr("fuzz.minimise.ABOUT_THE_TEXT", {"no_exclamation"})
    given = ReplyInput("Well, this is it! And more.", "hermes", [{"name": "ping"}], {"expect": "json"}, "stop", (3, 9))
    (found,) = failures(given)
    assert minimised(given, found) == replace(given, text="!", tools=[], options={}, finish_reason=None, cuts=())


def test_what_the_parser_raises_is_found_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(parsed: properties.Parsed) -> None:
        parsed.feed([1], None)  # type: ignore[list-item]

    monkeypatch.setattr("fuzz.properties.PROPERTIES", (raises, properties.tiles))
    (found,) = failures(ReplyInput("x", "hermes", None))
    assert found.key == ("raises", "UsageError in engine/parser.py:feed")
