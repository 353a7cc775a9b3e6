"""A handful of conversations with real models on a real llama.cpp: what the smallest of them does reliably."""

import pytest
from real_models import file_of

from benchmarks.models.ask import AS_IT_COMES
from benchmarks.models.conversations import figures, run
from benchmarks.models.conversations.app import hold
from benchmarks.models.conversations.conversation import conversations
from benchmarks.models.conversations.judge import judge
from benchmarks.models.conversations.kept_answers import KeptAnswers
from benchmarks.models.rows import CONVERSATIONS
from promptools.lab.llamacpp_server import serve_file

pytestmark = pytest.mark.models

BY_NAME = {each.name: each for each in conversations()}
ASKED = ("one_weather", "one_stock")
"""One call and an answer. The 0.5B makes the call twice; then its profile (`on_repeat`) has it answer."""
UNASKED = ("restraint_capital", "restraint_drizzle", "restraint_meeting")
"""Questions that need no tool, which the 0.5B answers."""
HANDFUL = (*ASKED, *UNASKED)
ROUNDING = 1
"""Turns that may differ from the page: another processor rounds otherwise, and a close choice falls the other way."""


@pytest.fixture(scope="module", params=["qwen-0.5b", "qwen-1.5b"])
def model(request):
    """The name of a model that is here."""
    file_of(request.param)
    return request.param


@pytest.fixture(scope="module")
def kept(model, tmp_path_factory):
    """The transport to a real llama.cpp, which knows no answers yet."""
    file = file_of(model)
    # one thread: several wait for each other at every step, which takes minutes on a machine with other work
    with serve_file(file, name=file.stem, threads=1) as server:
        answers = tmp_path_factory.mktemp("answers") / "answers.jsonl"
        with KeptAnswers(answers, lambda: server.url) as kept:
            yield kept


def hold_all(kept, model):
    served = file_of(model).stem
    return {name: hold(kept, BY_NAME[name], AS_IT_COMES, served=served, model=model, words="") for name in HANDFUL}


@pytest.fixture(scope="module")
def transcripts(kept, model):
    return hold_all(kept, model)


def test_no_turn_ends_in_an_error_and_none_exceeds_its_replies(transcripts):
    for name, transcript in transcripts.items():
        for turn, held in zip(BY_NAME[name].turns, transcript.turns, strict=True):
            assert not held.error
            assert 1 <= len(held.replies) <= turn.most


def test_the_due_call_is_made_at_once(transcripts):
    for name in ASKED:
        (held,) = transcripts[name].turns
        (verdict,) = judge(BY_NAME[name], [held])
        assert verdict.calls - verdict.needless == 1, name
        assert held.replies[0].calls, name


def test_the_turn_ends_with_words(transcripts):
    for name in ASKED:
        (held,) = transcripts[name].turns
        assert held.final is not None, name
        assert held.final.content.strip(), name


def test_questions_that_need_no_tool_are_answered_without_one(transcripts):
    verdicts = {name: judge(BY_NAME[name], transcripts[name].turns) for name in UNASKED}
    assert {name: verdict.clean for name, (verdict,) in verdicts.items()} == dict.fromkeys(UNASKED, True)


def test_the_same_conversations_ask_nothing_anew(kept, model, transcripts):
    asked = kept.asked
    assert hold_all(kept, model) == transcripts
    assert kept.asked == asked


def test_as_many_turns_are_answered_as_on_the_page(transcripts, model):
    words = run.words_now(model, AS_IT_COMES.name)
    rows = [row for row in CONVERSATIONS.read() if (row.model, row.way, row.words) == (model, AS_IT_COMES.name, words)]
    page = {row.transcript.conversation: row.verdicts for row in figures.judged(rows, conversations())}
    if not transcripts.keys() <= page.keys():
        pytest.skip(f"the page has no conversations with {model} in today's words")
    before = sum(verdict.answered for name in HANDFUL for verdict in page[name])
    now = sum(verdict.answered for name in HANDFUL for verdict in judge(BY_NAME[name], transcripts[name].turns))
    assert now >= before - ROUNDING
