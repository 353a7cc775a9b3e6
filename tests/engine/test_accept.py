"""`accept=` names the dialects in which a call is one: the markup of the others is text."""

from __future__ import annotations

import json

import pytest
from casebook import bare, feed

from promptools import StreamParser, UsageError, dialects, parse
from promptools.dialects.sample import TOOL, sample_text
from promptools.modes.native_mode import prepare_native
from promptools.modes.prompt_mode import prepare_prompt
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile, resolve
from promptools.transport.session import Session
from promptools.wire.chat_decoder import Delta

HERMES = sample_text(dialects.get("hermes"))
PRINTED = sorted(set(dialects.names()) - {"llama3_json", "xlam"})
"""Those that are read without being asked for under their own name."""
EACH = 12
"""Choices of dialects, of which each is left out once."""
KIN = {"tool_name_yaml": "tool_name_xml"}
"""A dialect that has the same tags."""


def said(text: str) -> str:
    """Leave out the token that ends a turn, which is nobody's markup of a call."""
    return text.removesuffix("<|call|>")


@pytest.mark.parametrize("at", range(EACH))
def test_a_dialect_that_is_not_accepted_is_text(at: int) -> None:
    """A few are left out at a time: the patterns of all that are accepted are compiled anew for each choice."""
    left_out = PRINTED[at::EACH]
    others = set(dialects.names()) - {*left_out, *(KIN[name] for name in left_out if name in KIN)}
    for name in left_out:
        text = sample_text(dialects.get(name))
        assert not {each.dialect for each in parse(text, [TOOL], accept=others).calls} & set(left_out), name
        assert parse(text, [TOOL], accept=[]).content == said(text), name


@pytest.mark.parametrize("name", dialects.names())
def test_what_is_expected_is_accepted_too(name: str) -> None:
    text = sample_text(dialects.get(name))
    usual = parse(text, [TOOL], expect=name)
    assert len(usual.calls) == 1
    assert bare(parse(text, [TOOL], expect=name, accept=[])) == bare(usual)
    assert parse(text, [TOOL], dialect=name, accept=[]).calls
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    assert bare(feed(pieces, [TOOL], expect=name, accept=[])[1]) == bare(usual)


def test_reasoning_is_told_from_words_all_the_same() -> None:
    reply = parse(f"<think>Hm.</think>{HERMES}", [TOOL], accept=["json"])
    assert (reply.reasoning, reply.content) == ("Hm.", HERMES)


def test_the_plain_way_is_not_gone_where_json_is_not_accepted() -> None:
    call = '{"tool": "get_weather", "arguments": {"city": "Oslo"}}'
    assert parse(call, [TOOL]).calls
    assert parse(call, [TOOL], accept=["hermes"]).content == call


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["hermes", "yaml"], "'yaml' is not a known dialect; known: .*harmony, hermes"),
        ("hermes", "expected the names"),
        (1, "expected the names"),
    ],
)
def test_wrong_names_are_refused(wrong: object, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        StreamParser([TOOL], accept=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("accept", "calls"), [(None, 1), (["hermes"], 1), (["json"], 0), ([], 0)])
def test_a_request_names_them(accept: list[str] | None, calls: int) -> None:
    assert len(read({"promptools": {"accept": accept}}, Profile(), HERMES)) == calls


def test_a_profile_names_them_and_a_request_overrules_it() -> None:
    profile = Profile(accept=("json",))
    assert read({}, profile, HERMES) == []
    assert len(read({"promptools": {"accept": ["hermes"]}}, profile, HERMES)) == 1


def test_prompt_mode_reads_the_dialect_that_it_asked_for() -> None:
    text = sample_text(dialects.get("json"))
    assert len(read({"promptools": {"accept": ["hermes"]}}, Profile(), text, prompt=True)) == 1


LEAKED = '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Oslo"}<|call|>'


@pytest.mark.parametrize(("accept", "calls"), [(None, 1), (["harmony"], 1), (["hermes"], 0)])
def test_what_a_harmony_parser_leaves_is_read_where_harmony_is_accepted(accept: list[str] | None, calls: int) -> None:
    assert len(read({"promptools": {"accept": accept}}, Profile(), LEAKED)) == calls


def read(body: dict[str, object], profile: Profile, text: str, *, prompt: bool = False) -> list[object]:
    ask = parse_request({"messages": [], "tools": [{"type": "function", "function": TOOL}], **body}, profile)
    prepare = prepare_prompt if prompt else prepare_native
    reader = ReplyReader(ask, prepare(ask), lambda: "made")
    reader.feed(Delta(content=text))
    reader.close("stop")
    if not reader.reply.calls:
        assert reader.reply.content == said(text)
    return list(reader.reply.calls)


def test_a_request_that_names_none_is_told_which_there_are() -> None:
    with pytest.raises(UsageError, match=r"promptools\.accept must be a list of dialects \(.*hermes.*, or null, not"):
        read({"promptools": {"accept": ["yaml"]}}, Profile(), "")
    with pytest.raises(UsageError, match=r"promptools\.accept must be"):
        read({"promptools": {"accept": "hermes"}}, Profile(), "")


def test_a_client_is_told_before_its_first_request() -> None:
    options = Session({"accept": ["hermes"]}).context.options
    assert options is not None
    assert options.accept == ("hermes",)
    with pytest.raises(UsageError, match=r"promptools\.accept must be"):
        Session({"accept": ["yaml"]})


def test_a_profile_is_told_where_it_is_looked_up() -> None:
    assert resolve("m", overrides={"accept": ["hermes"]}).profile.accept == ("hermes",)
    with pytest.raises(UsageError, match="overrides: accept: 'yaml' is not a known dialect; known: "):
        resolve("m", overrides={"accept": ["hermes", "yaml"]})


def test_the_command_line_names_them(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    from pathlib import Path

    from promptools.cli import main

    (Path(str(tmp_path)) / "reply").write_text(HERMES)
    (Path(str(tmp_path)) / "tools.json").write_text(json.dumps([TOOL]))
    given = ["parse", f"{tmp_path}/reply", "--tools", f"{tmp_path}/tools.json", "--json"]
    counts: list[int] = []
    for more in ([], ["--accept", "json"], ["--accept", "json", "--accept", "hermes"]):
        assert main([*given, *more]) == 0
        counts.append(len(json.loads(capsys.readouterr().out)["calls"]))
    assert counts == [1, 0, 1]
