"""The tables of states: what each tag does, as the reader passes the calls that its dialect writes."""

import json
from pathlib import Path

import pytest

from promptools import dialects
from promptools.cli import main
from promptools.dialects.readers.pair_dialect import PairDialect
from promptools.dialects.readers.tag_dialect import TagDialect
from promptools.dialects.readers.tag_reader import ENDED
from promptools.dialects.states import states

BY_TAGS = tuple(name for name in dialects.BUILT_IN if states(dialects.get(name)))


def test_the_states_of_keys_and_values():
    assert states(dialects.get("glm")) == (
        ("outside", "<tool_call>{name}", "in name"),
        ("in name", "<arg_key>", "in key"),
        ("in key", "</arg_key>", "after key"),
        ("after key", "<arg_value>", "in value"),
        ("in value", "</arg_value>", "in call"),
        ("in call", "<arg_key>", "in key"),
        ("in call", "</tool_call>", "ended"),
        ("in name", "</tool_call>", "ended"),
    )


def test_the_states_of_tags():
    assert states(dialects.get("anthropic")) == (
        ("before calls", "<function_calls>", "before calls"),
        ("before calls", '<invoke name="{name}">', "in call"),
        ("in call", '<parameter name="{key}">', "in value"),
        ("in value", "</parameter>", "in call"),
        ("in call", "</invoke>", "between"),
        ("between", "</function_calls>", "ended"),
        ("between", '<invoke name="{name}">', "in call"),
    )


def test_the_states_of_an_element():
    assert states(dialects.get("tool_name_xml")) == (
        ("outside", "<{name}>", "in call"),
        ("in call", "<{key}>", "in value"),
        ("in value", "</{key}>", "in call"),
        ("in call", "</{name}>", "ended"),
    )


def test_every_table_of_tags_has_states():
    tables = {name for name in dialects.BUILT_IN if isinstance(dialects.get(name), TagDialect | PairDialect)}
    assert {"glm", "qwen3_coder"} <= tables <= set(BY_TAGS)
    assert "hermes" not in BY_TAGS


@pytest.mark.parametrize("name", BY_TAGS)
def test_each_state_is_reached_and_leads_to_the_end(name):
    rows = states(dialects.get(name))
    first, reached = rows[0].state, {row.then for row in rows}
    assert {row.state for row in rows} - {first} <= reached
    assert ENDED in reached
    assert reached - {ENDED} <= {row.state for row in rows}
    assert len({(row.state, row.tag) for row in rows}) == len(rows)


def test_the_page_shows_those_of_glm():
    page = (Path(__file__).parents[2] / "docs/why/readers-of-tags.md").read_text("utf-8")
    shown = [line.strip("│").split("│") for line in page.splitlines() if line.startswith("│")]
    assert [tuple(map(str.strip, row)) for row in shown[1:]] == list(states(dialects.get("glm")))


def run(capsys, *arguments):
    status = main(list(arguments))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_command_shows_them(capsys):
    status, out, _ = run(capsys, "dialects", "--states", "glm")
    assert status == 0
    assert all(word in out for row in states(dialects.get("glm")) for word in row)
    status, out, _ = run(capsys, "dialects", "--states", "glm", "--json")
    assert [tuple(row.values()) for row in json.loads(out)["states"]] == list(states(dialects.get("glm")))


def test_the_command_refuses_what_has_none(capsys):
    status, _, err = run(capsys, "dialects", "--states", "hermes")
    assert (status, "'hermes' are not read tag by tag" in err) == (2, True)
    status, _, err = run(capsys, "dialects", "--states")
    assert (status, "promptools dialects --states NAME" in err) == (2, True)
