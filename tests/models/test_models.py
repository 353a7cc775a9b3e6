"""A dozen questions to real models on a real llama.cpp: nothing is lost against the page of results."""

import functools

import pytest
from real_models import file_of

from benchmarks.models.ask import ALONE, AS_IT_COMES, NATIVE, PROMPT, RAW, ask, client_of
from benchmarks.models.catalogue import MODELS
from benchmarks.models.conversations.app import client_of as client_before
from benchmarks.models.conversations.kept_answers import KeptAnswers
from benchmarks.models.question import questions
from benchmarks.models.rows import QUESTIONS
from promptools.lab.llamacpp_server import serve_file

KINDS = ("one", "several", "parallel", "enum", "none", "turns")
NO_TOOLS = frozenset({"smollm2", "gemma-270m"})
"""Models whose chat template does not show them tools: raw mode is refused, and says so."""
ROUNDING = 2
"""Answers that may differ from the page: another processor rounds otherwise, and a close choice falls the other way."""

pytestmark = pytest.mark.models


def dozen():
    """Return two questions of each kind, with few tools: two cores read them in a second.

    The held-back ones, which every model of the page was asked.
    """
    few = [each for each in questions() if len(each.tools) <= 3 and each.half == "held"]
    return [each for kind in KINDS for each in [one for one in few if one.kind == kind][:2]]


DOZEN = dozen()
WAYS = {way.name: way for way in (ALONE, NATIVE, AS_IT_COMES, RAW, PROMPT)}
SPARED = {"notes_soup", "music_pause", "music_two_playlists", "mail_junk"}
"""Questions that Qwen2.5-Coder-0.5B has wrong as it comes and in raw mode; another of each kind stays."""
EIGHT = [each for each in DOZEN if each.name not in SPARED]
ASKED = {**dict.fromkeys(WAYS, DOZEN), AS_IT_COMES.name: EIGHT, RAW.name: EIGHT, PROMPT.name: DOZEN[1::2]}
"""At least one of each kind, and all of the dozen that Qwen2.5-Coder-0.5B has right in the way: what it has wrong says
nothing in the comparison with the page, and takes longest, since it goes on to the limit or is asked again.
"""
FEWER = [way for way, asked in ASKED.items() if len(asked) < len(DOZEN)]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """The name of a model that is here."""
    file_of(request.param)
    return request.param


@pytest.fixture(scope="module")
def server(model):
    """A real llama.cpp with the model."""
    # one thread: several wait for each other at every step, which takes minutes on a machine with other work
    with serve_file(file_of(model), name=model, threads=1) as server:
        yield server


@pytest.fixture(scope="module")
def answers(model, server, tmp_path_factory):
    """What comes of the dozen in a way, by question; what two ways send alike, the model answers once."""
    with KeptAnswers(tmp_path_factory.mktemp("answers") / "answers.jsonl", lambda: server.url) as kept:

        @functools.cache
        def asked(way_name):
            way = WAYS[way_name]
            if way is RAW and model in NO_TOOLS:
                pytest.skip("the model's template has no tools")
            with client_before(way, kept) as client:
                return {each.name: ask(client, model, each, way) for each in ASKED[way_name]}

        yield asked


def test_they_are_twelve_and_of_each_kind_in_every_way():
    assert len(DOZEN) == 12
    assert [AS_IT_COMES.name, RAW.name, PROMPT.name] == FEWER
    for asked in ASKED.values():
        assert {each.kind for each in asked} == {*KINDS}


@pytest.mark.parametrize("way", FEWER)
def test_what_is_not_asked_in_a_way_is_not_right_on_the_page(way):
    left_out = {each.name for each in DOZEN} - {each.name for each in ASKED[way]}
    rows = [row for row in QUESTIONS.read() if (row.model, row.way) == ("qwen-0.5b", way)]
    assert {row.question for row in rows} >= left_out
    assert [row.question for row in rows if row.question in left_out and row.outcome == "right"] == []


@pytest.mark.parametrize("way", WAYS)
def test_no_question_fails(answers, way):
    assert [row.content for row in answers(way).values() if row.outcome == "error"] == []


def test_the_calls_that_the_server_leaves_in_the_text_reach_the_app(answers, model):
    left = [name for name, row in answers(ALONE.name).items() if row.printed]
    if model.startswith("qwen"):
        assert len(left) >= 3, "it prints its calls where its template asks for tags, which llama.cpp does not read"
    lost = [name for name in left if not answers(NATIVE.name)[name].calls]
    assert not lost


@pytest.mark.parametrize("choice", ["required", "named"])
def test_a_required_call_is_begun_in_raw_mode(server, model, choice):
    """The model goes on with a call whose beginning is written for it, in the format of its own template."""
    if model in NO_TOOLS:
        pytest.skip("the model's template has no tools")
    question = next(each for each in DOZEN if each.kind == "one")
    tool = question.offered()[0]
    with client_of(server.base_url, RAW) as client:
        reply = client.chat.completions.create(
            model=model,
            messages=question.messages,
            tools=question.offered(),
            tool_choice="required"
            if choice == "required"
            else {"type": "function", "function": {"name": tool["function"]["name"]}},
            temperature=0,
            max_tokens=200,
            extra_body={"promptools": {"mode": "raw", "trace": True, "on_malformed": "call"}},
        )
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == tool["function"]["name"]
    assert {attempt["mode"] for attempt in reply.model_extra["promptools"]["attempts"]} == {"raw"}


def test_raw_mode_is_refused_where_the_template_has_no_tools(server, model):
    if model not in NO_TOOLS:
        pytest.skip("the model's template has tools")
    with client_of(server.base_url, RAW) as client:
        row = ask(client, model, DOZEN[0], RAW)
    assert row.outcome == "error"
    assert "the model's template does not show it the tools, so raw mode is not possible" in row.content


@pytest.mark.parametrize("way", [way.name for way in (ALONE, AS_IT_COMES, RAW, PROMPT)])
def test_as_many_are_right_as_on_the_page(answers, model, way):
    names = {each.name for each in ASKED[way]}
    page = {row.question: row.outcome for row in QUESTIONS.read() if (row.model, row.way) == (model, way)}
    if not names <= page.keys():
        pytest.skip(f"the page has no answers of {model} asked this way")
    before = {name for name in names if page[name] == "right"}
    now = {name for name, row in answers(way).items() if row.outcome == "right"}
    assert len(now) >= len(before) - ROUNDING, f"no longer right: {sorted(before - now)}"
