"""The loop that holds conversations, on scripted servers, and the answers that are kept."""

import json
from dataclasses import replace

import openai
import pytest
from upstream import Answer, Upstream

from benchmarks.models.ask import ALONE, AS_IT_COMES, NATIVE, RAW, prompted
from benchmarks.models.conversations import figures, report, run
from benchmarks.models.conversations import words as words_module
from benchmarks.models.conversations.app import STOPPED, client_of, hold
from benchmarks.models.conversations.conversation import conversations
from benchmarks.models.conversations.judge import judge
from benchmarks.models.conversations.kept_answers import KeptAnswers
from benchmarks.models.conversations.transcript import Said, Transcript, TurnHeld
from benchmarks.models.conversations.words import words_of
from benchmarks.models.rows import transcripts
from promptools import dialects
from promptools.testing.scripted_server import ModelReply

BY_NAME = {each.name: each for each in conversations()}
CODER = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M"
PARIS = ("get_weather", {"city": "Paris"})
OSLO = ("get_weather", {"city": "Oslo"})


@pytest.fixture
def server():
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def kept(server, tmp_path):
    with KeptAnswers(tmp_path / "answers.jsonl", lambda: server.root) as kept:
        yield kept


def held(kept, name, way=NATIVE):
    return hold(kept, BY_NAME[name], way, served="m", model="tiny", words="w")


def outcomes(name, transcript):
    return [verdict.outcome for verdict in judge(BY_NAME[name], transcript.turns)]


def test_a_conversation_is_held_to_its_end(server, kept):
    server.play(
        ModelReply(calls=[PARIS]),
        ModelReply("It is sunny in Paris, with 18 °C."),
        ModelReply("You are welcome!"),
        ModelReply(calls=[OSLO]),
        ModelReply("9 °C, and rain."),
    )
    transcript = held(kept, "chat_weather")
    assert outcomes("chat_weather", transcript) == ["answered"] * 3
    assert (transcript.requests, transcript.prompt_tokens, transcript.read_tokens, transcript.written_tokens) == (
        5,
        3,
        15,
        100,
    )
    assert transcript.modes == ["native"]
    last = server.seen[-1].json["messages"]
    assert [message["role"] for message in last] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
    ]
    assert json.loads(last[2]["content"])["temperature"] == 18


def test_one_that_never_stops_calling_is_given_up_and_goes_on(server, kept):
    server.play(ModelReply(calls=[PARIS]))
    transcript = held(kept, "chat_weather")
    assert outcomes("chat_weather", transcript) == ["not ended"] * 3
    assert [len(turn.replies) for turn in transcript.turns] == [4, 3, 4]
    assert [message["content"] for message in server.seen[-1].json["messages"]].count(STOPPED) == 2


def test_an_error_of_the_server_ends_the_turn(server, kept):
    server.play(Answer(400, (b'{"error": {"message": "no, not today"}}',)), ModelReply("You are welcome!"))
    transcript = held(kept, "chat_weather", ALONE)
    assert outcomes("chat_weather", transcript) == ["error", "answered", "calls"]
    assert "no, not today" in transcript.turns[0].error


def test_an_answer_in_the_words_of_the_prompt_is_marked(server, kept):
    server.play(ModelReply("Egypt."))
    assert outcomes("restraint_country", held(kept, "restraint_country", prompted("json"))) == ["answered"]
    ours = server.seen[-1].json["messages"][0]["content"].splitlines()[-1]
    assert len(ours.split()) > 2
    server.play(ModelReply(ours))
    with KeptAnswers(kept.file.with_name("others.jsonl"), lambda: server.root) as others:
        transcript = held(others, "restraint_country", prompted("json"))
    assert outcomes("restraint_country", transcript) == ["our words"]


def test_what_the_app_wrote_is_not_words_of_ours(server, kept):
    system = BY_NAME["restraint_capital"].system
    server.play(ModelReply(system))
    assert outcomes("restraint_capital", held(kept, "restraint_capital", prompted("json"))) == ["wrong"]


def test_a_call_that_is_left_in_the_text_is_marked(server, kept):
    server.play(ModelReply('<tool_call>{"name": "find_hotel", "arguments": {"city": "Lisbon"}}</tool_call>'))
    assert outcomes("restraint_capital", held(kept, "restraint_capital", ALONE)) == ["no text"]


# the answers that are kept


def test_what_was_asked_once_is_not_asked_again(server, tmp_path):
    server.play(
        ModelReply(calls=[PARIS]),
        ModelReply("Sunny, 18 °C."),
        ModelReply("Welcome!"),
        ModelReply(calls=[OSLO]),
        ModelReply("9 °C."),
    )
    file = tmp_path / "answers.jsonl"
    with KeptAnswers(file, lambda: server.root) as kept:
        first = held(kept, "chat_weather")
    assert outcomes("chat_weather", first) == ["answered"] * 3
    with file.open("a") as out:
        out.write('{"key": "of a run that was ki')
    with KeptAnswers(file, lambda: pytest.fail("no server is needed")) as kept:
        assert held(kept, "chat_weather") == first
    server.play(ModelReply("I do not know."))
    with KeptAnswers(file, lambda: server.root) as kept:  # its first request is one of the others
        assert outcomes("eight_city", held(kept, "eight_city"))[0] == "calls"
        asked = len(server.seen)
        assert asked == kept.asked - len(server.looks) > 0
        held(kept, "chat_weather")
        assert len(server.seen) == asked


def test_errors_of_the_server_are_not_kept(server, kept):
    server.play(Answer(503))
    with client_of(ALONE, kept) as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                client.models.list()
    assert kept.asked == 2


# the digest of the words


def test_ways_that_send_something_else_have_other_words():
    digests = [words_of(way, CODER) for way in (AS_IT_COMES, NATIVE, RAW, prompted("hermes"))]
    assert len({*digests}) == len(digests)
    assert words_of(AS_IT_COMES, CODER) == words_of(AS_IT_COMES, CODER)
    assert words_of(ALONE, CODER) == ""


def test_the_words_change_with_what_is_sent(monkeypatch):
    before = words_of(prompted("json"), CODER)
    words_module._digest.cache_clear()
    json_dialect = type(dialects.get("json"))
    render = json_dialect.render_results
    monkeypatch.setattr(json_dialect, "render_results", lambda self, results: render(self, results) + " Answer now.")
    assert words_of(prompted("json"), CODER) != before
    words_module._digest.cache_clear()


# figures and the page


def transcript_of(name, way, *turns, words="w"):
    return Transcript("qwen-0.5b", way, words, name, BY_NAME[name].digest, [*turns], ["prompt"], 2, 100, 250, 30, 1.5)


GOOD = TurnHeld([Said([{"name": "get_weather", "arguments": {"city": "Paris"}}]), Said(content="Sunny, 18 °C.")])
BAD = TurnHeld([Said([{"name": "get_weather", "arguments": {"city": "Paris"}}])] * 4)
NEEDLESS = TurnHeld([Said([{"name": "get_weather", "arguments": {"city": "Cairo"}}]), Said(content="Egypt.")])


def test_shares_and_means_are_of_turns_and_their_intervals_of_conversations():
    rows = [transcript_of("one_weather", "native", GOOD), transcript_of("chat_weather", "native", GOOD, BAD, BAD)]
    held = figures.judged(rows, conversations())
    answered = figures.share(held, lambda verdict: verdict.answered)
    assert (answered.estimate, answered.low, answered.high) == (0.5, pytest.approx(1 / 3), 1.0)
    assert figures.share(held, lambda verdict: True).estimate == 1
    assert figures.share(held, lambda verdict: True).low == pytest.approx(0.05**0.5)
    assert figures.share(held, lambda verdict: True, lambda verdict: False) is None
    assert figures.mean(held, lambda verdict: verdict.needless).estimate == (4 + 4) / 4


def test_transcripts_of_conversations_that_were_changed_do_not_count():
    row = replace(transcript_of("one_weather", "native", GOOD), digest="before")
    assert figures.judged([row], conversations()) == []


def test_the_page_has_the_figures_of_each_way_and_says_which_words_are_older():
    rows = [
        transcript_of("one_weather", "as it comes", GOOD),
        transcript_of("restraint_country", "as it comes", NEEDLESS),
        transcript_of("one_weather", "as it comes", BAD, words="older"),
    ]
    lines = [*report.section(rows, lambda model, way: "w", lambda model: [AS_IT_COMES, NATIVE, RAW])]
    about, title, *rest = lines
    assert f"{len(BY_NAME)} conversations" in about
    assert "qwen-0.5b" in title
    before, now = (line.split(" | ") for line in rest if line.startswith("| as it comes") and "%" in line)
    assert now[:2] == ["| as it comes (2 conversations)", "2 of 2 (22 to 100 %)"]
    assert now[4:] == ["0.50 (0.00 to 1.00)", "1 of 1 (5 to 100 %)", "2.0", "100", "30 |"]
    assert before[:2] == ["| as it comes, words of older (1 conversations)", "0 of 1 (0 to 95 %)"]
    assert rest[-1] == "\nNot measured with this model: native, raw mode."


def test_rows_are_replaced_by_newer_ones_of_the_same_words(tmp_path):
    rows = transcripts(tmp_path / "rows.jsonl")
    assert rows.read() == []
    for row in (
        one := transcript_of("one_weather", "native", GOOD),
        replace(one, turns=[BAD]),
        replace(one, words="x"),
    ):
        rows.add(row)
    assert rows.read() == [replace(one, turns=[BAD]), replace(one, words="x")]
    rows.remove(lambda row: row.words == "w")
    assert rows.read() == [replace(one, words="x")]


def test_the_ways_of_a_model_and_todays_words():
    assert run.ways_of("smollm2") == (AS_IT_COMES,)
    assert AS_IT_COMES in run.ways_of("a file of mine")
    assert run.words_now("qwen-0.5b", "as it comes") == words_of(AS_IT_COMES, CODER)
    assert run.words_now("qwen-0.5b", "server alone") == ""
