"""Asking, measuring, planning, summing up and comparing, without a model."""

import json

import openai
import pytest
from upstream import chunk, completion, running, sse, unary

from promptools.errors import UpstreamError, UsageError
from promptools.harness.verification.asking import Asked, Asker
from promptools.harness.verification.comparison import compare, differences, read_run
from promptools.harness.verification.measuring import Row, SideResult, VerificationLog, measure, run_case
from promptools.harness.verification.page import render_html, summary_rows
from promptools.harness.verification.planning import Speed, plan, speed_of
from promptools.harness.verification.scenarios import cases
from promptools.harness.verification.summary import beyond_chance, summarize, to_dict
from promptools.masking import SecretMask
from promptools.probing.findings import Answer

BODY = {"messages": [{"role": "user", "content": "Hi"}]}


# Asking.


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def asker(server):
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        yield Asker(client, "m", {"temperature": 0.5, "top_k": 3}, traced=False)


def asked(server, asker, answer, **keys):
    server.play(answer)
    return asker.ask({**BODY, **keys}, 5).answer


def test_a_whole_answer_and_its_cost(server, asker):
    server.play(unary(completion("Fine.", [("f", '{"a": 1}')])))
    seen = asker.ask(BODY, 5)
    assert (seen.answer.content, [(call.name, call.arguments) for call in seen.answer.calls]) == (
        "Fine.",
        [("f", '{"a": 1}')],
    )
    assert not seen.answer.failed
    sent = json.loads(server.seen[-1].body)
    assert (sent["temperature"], sent["top_k"], "promptools" in sent) == (0.5, 3, False)


def test_arguments_that_are_an_object_are_none_that_an_app_can_read(server, asker):
    body = completion("", [("f", "{}")])
    body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = {"a": 1}
    assert "not text, but dict" in asked(server, asker, unary(body)).error


def without_finish():
    body = completion("Hi")
    body["choices"][0]["finish_reason"] = None
    return body


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (unary({"error": {"message": "broken"}}, status=500), "broken"),
        (unary({"object": "chat.completion", "choices": []}), "no choices"),
        (unary(without_finish()), "no finish_reason"),
    ],
)
def test_answers_that_are_errors(server, asker, answer, error):
    seen = asked(server, asker, answer)
    assert seen.failed
    assert error in seen.error


def piece(index, **function):
    return {"tool_calls": [{"index": index, "function": function}]}


def test_a_stream_is_put_together(server, asker):
    deltas = [{"content": "A"}, {"content": "B"}, piece(0, name="f", arguments=""), piece(0, arguments='{"a":'),
              piece(1, name="g", arguments="{}"), piece(0, arguments="1}")]  # fmt: skip
    seen = asked(server, asker, sse(*map(chunk, deltas), chunk({}, "tool_calls")), stream=True)
    assert seen.content == "AB"
    assert [(call.name, call.arguments) for call in seen.calls] == [("f", '{"a":1}'), ("g", "{}")]
    assert not seen.failed


def test_a_stream_without_an_end_is_an_error(server, asker):
    seen = asked(server, asker, sse(chunk({"content": "A"})), stream=True)
    assert seen.error == "the stream ended without a finish_reason"


def test_a_key_that_the_server_repeats_is_not_kept(server):
    key = "sk-0123456789"
    with openai.OpenAI(base_url=server.url, api_key=key, max_retries=0) as client:
        server.play(unary({"error": {"message": f"the key {key} is not known"}}, status=401))
        result = run_case(CASES[0], Asker(client, "m", {}, traced=False), lambda: 5)
    assert "is not known" in result.failure
    assert key not in result.failure + result.reply


def test_no_server_ends_the_run():
    with (
        openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0) as client,
        pytest.raises(UpstreamError),
    ):
        Asker(client, "m", {}, traced=False).ask(BODY, 5)


# Measuring.


CASES = cases(["right tool", "restraint"])
RIGHT = {json.dumps(ask.body): ask.right for case in CASES for ask in case.asks()}
LOST = Answer(content="No.", choices=1, finish_reason="stop")


class Scripted:
    """Stands for a server that answers at once: right, but for the cases that it loses."""

    mask = SecretMask(())

    def __init__(self, lost=(), then=lambda: None):
        self.lost = {json.dumps(ask.body) for case in CASES if case.id in lost for ask in case.asks()}
        self.then = then
        self.asked = 0

    def ask(self, body, timeout):
        assert timeout > 0
        self.asked += 1
        self.then()
        key = json.dumps(body)
        return Asked(LOST if key in self.lost else RIGHT[key], 0.5, 100, 20, ("native: answered",))


def measured(log, alone, through, **options):
    keys = {"repeats": 1, "workers": 2, "timeout": 9, "seconds": 100, "progress": lambda row, done, total: None}
    return measure(CASES, {"alone": alone, "through": through}, log, **{**keys, **options})


def test_both_sides_are_asked_and_summed_up(tmp_path):
    lost = {case.id for case in CASES if case.scenario == "right tool"}
    alone, through = Scripted(lost), Scripted()
    shown = []
    with VerificationLog(None, {}) as log:
        rows = measured(log, alone, through, progress=lambda row, done, total: shown.append((done, total)))
    assert shown == [(done, 20) for done in range(1, 21)]
    assert (alone.asked, through.asked) == (20, 20)
    summary = summarize(rows)
    tool, restraint = summary.scenarios
    assert (tool.name, tool.cases, tool.alone.right, tool.through.right) == ("right tool", 10, 0, 10)
    assert (tool.verdict, restraint.verdict, summary.overall.verdict) == ("promptools", "same", "promptools")
    assert (tool.alone.seconds, tool.alone.prompt_tokens, tool.through.completion_tokens) == (5.0, 1000, 200)
    assert summary.conclusion.startswith("promptools makes a difference here: +50.0 points [")
    assert "It is better at: right tool." in summary.conclusion
    assert len(tool.failures) == 3
    assert {row.alone.reply for row in tool.failures} == {"No."}
    page = render_html(summary, {"model": "<m>", "base_url": "u"})
    assert "&lt;m&gt; at u" in page
    assert page.count("<h3>") == 3
    assert [row[0] for row in summary_rows(summary)] == ["right tool", "restraint", "all"]


@pytest.mark.parametrize(("cases", "better"), [(5, "too few cases"), (6, "promptools")])
def test_a_few_cases_have_no_verdict(cases, better):
    scenario, overall = summary_rows(summarize(rows_of(*[(0, 1)] * cases)))
    assert (scenario[-1], overall[-1]) == (better, better)


def test_an_interrupted_run_continues_with_what_is_missing(tmp_path):
    path, settings = tmp_path / "log.jsonl", {"model": "m"}
    calls = 0

    def break_off():
        nonlocal calls
        calls += 1
        if calls >= 7:
            raise UpstreamError("gone")

    with VerificationLog(path, settings) as log, pytest.raises(UpstreamError):
        measured(log, Scripted(then=break_off), Scripted(), workers=1)
    first = len(log.rows)
    assert first == 6
    alone = Scripted()
    with VerificationLog(path, settings) as log:
        assert len(log.rows) == first
        rows = measured(log, alone, Scripted())
    assert (len(rows), alone.asked) == (20, 20 - first)
    with pytest.raises(UsageError, match="is the log of another run"):
        VerificationLog(path, {"model": "other"})


def test_repeats():
    with VerificationLog(None, {}) as log:
        rows = measured(log, Scripted(), Scripted(), repeats=3)
    assert len(rows) == 60
    summary = summarize(rows)
    assert (summary.overall.cases, summary.overall.alone.requests) == (20, 60)


def test_nothing_counts_that_ends_after_the_time():
    clock = iter(range(10_000))
    with VerificationLog(None, {}) as log:
        rows = measured(log, Scripted(), Scripted(), workers=1, seconds=30, now=lambda: next(clock))
    assert len(rows) == 5  # the clock is read five times for each case, and the sixth one ends at 30


def test_three_tries_of_a_request_end_with_the_run():
    given = []

    class Patient(Scripted):
        def ask(self, body, timeout):
            given.append(timeout)
            return super().ask(body, timeout)

    with VerificationLog(None, {}) as log:
        measured(log, Patient(), Patient(), workers=1, timeout=9, seconds=24, now=lambda: 0)
    assert set(given) == {8}


def test_each_side_goes_first_in_half_of_the_cases():
    order = []
    askers = [Scripted(then=lambda name=name: order.append(name)) for name in ("alone", "through")]
    with VerificationLog(None, {}) as log:
        measured(log, *askers, workers=1)
    assert order.count("alone") == 20
    assert order[::2].count("alone") == 10


# Planning.


def test_the_plan_is_as_long_as_the_time():
    trial = CASES[0]
    results = [run_case(trial, Scripted(), lambda: 9) for _ in range(2)]
    speed = speed_of(trial, results)
    assert speed.completion_tokens == 20
    assert speed.seconds == pytest.approx(1.0 / 60)
    whole = plan(CASES, speed, (), repeats=1, workers=1, seconds=1000)
    assert (len(whole.cases), whole.left_out, whole.requests) == (20, 0, 40)
    part = plan(CASES, speed, (), repeats=1, workers=1, seconds=10)
    assert 0 < len(part.cases) < 20
    assert part.seconds <= 10
    assert len(part.cases) + part.left_out == 20
    assert len(plan(CASES, speed, (), repeats=1, workers=4, seconds=10).cases) > len(part.cases)
    conversation = next(case for case in cases(["eight turns"]))
    mixed = plan([*CASES[:3], conversation, *CASES[3:]], speed, (), repeats=1, workers=1, seconds=10)
    assert conversation.id not in {case.id for case in mixed.cases}
    assert len(mixed.cases) > 3
    resumed = plan(CASES, speed, {case.id for case in CASES[:15]}, repeats=2, workers=1, seconds=1000)
    assert (len(resumed.cases), resumed.requests) == (20, 20)
    assert len(plan(CASES, Speed(0.3, 40, 1000), (), repeats=1, workers=1, seconds=1).cases) == 1


# Summing up and comparing.


def side(share):
    return SideResult(share, "" if share == 1 else "wrong", "text", 1, 1.0, 10, 5)


def rows_of(*pairs, scenario="right tool"):
    return [
        Row(f"{scenario}: {number}", scenario, 0, side(one), side(other)) for number, (one, other) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("pairs", "verdict", "says"),
    [
        ([(1, 1)] * 100, "same", "The server alone is as good: use it (+0.0 points"),
        ([(0, 0)] * 100, "same", "The server alone is as good: use it (+0.0 points"),
        ([(1, 1), (0, 0)] * 50, "same", "The server alone is as good: use it (+0.0 points"),
        ([(1, 1)] * 20, "same", "No difference was shown"),
        ([(1, 1)] * 97 + [(0, 1)] * 3, "same", "No difference was shown"),
        ([(0, 1)] * 3, "too few cases", "No difference was shown"),
        ([(1, 0)] * 5, "too few cases", "No difference was shown"),
        ([(1, 1)] * 80 + [(0, 1)] * 20, "promptools", "promptools makes a difference here: +20.0 points"),
        ([(1, 1)] * 80 + [(1, 0)] * 20, "server alone", "The server alone is better: use it"),
        ([(0.5, 1)] * 20, "promptools", "promptools makes a difference here: +50.0 points"),
    ],
)
def test_what_follows(pairs, verdict, says):
    summary = summarize(rows_of(*pairs))
    assert summary.overall.verdict == verdict
    assert summary.conclusion.startswith(says)


def test_a_loss_that_wins_elsewhere_is_a_loss():
    rows = [*rows_of(*[(0, 1)] * 20), *rows_of(*[(1, 0)] * 60, scenario="restraint")]
    conclusion = summarize(rows).conclusion
    assert conclusion.startswith("The server alone is better: use it (-50.0 points")
    assert "promptools is better at: right tool." in conclusion


def test_a_win_that_costs_elsewhere_is_told_with_its_cost():
    rows = [*rows_of(*[(0, 1)] * 40), *rows_of(*[(1, 0)] * 20, scenario="restraint")]
    conclusion = summarize(rows).conclusion
    assert "It is better at: right tool." in conclusion
    assert "The server alone is better at: restraint." in conclusion


def test_more_decisions_need_more_evidence():
    shares, baseline = [1.0] * 6 + [0.0] * 200, [0.0] * 206
    assert beyond_chance(shares, baseline, 1) == 1
    assert beyond_chance(shares, baseline, 24) == 0


def test_what_promptools_loses_is_seen_first():
    rows = rows_of(*[(0, 1)] * 5, (0, 0), *[(1, 0)] * 5)
    shown = summarize(rows).overall.failures
    assert [(row.alone.share, row.through.share) for row in shown] == [(1, 0), (0, 1), (0, 0)]
    assert summarize(rows_of((1, 1))).overall.failures == ()


def written(path, rows, **about):
    path.write_text(json.dumps(to_dict(summarize(rows), rows, {"suite": "s", "model": "m", **about})))
    return path


def test_a_result_is_read_as_it_was_written(tmp_path):
    rows = rows_of((1, 1), (0, 1), (0.5, 0))
    run = read_run(written(tmp_path / "a.json", rows, date="today"))
    assert list(run.rows) == rows
    assert run.about["date"] == "today"


def outcomes(tmp_path, before, after):
    runs = (read_run(written(tmp_path / f"{name}.json", rows)) for name, rows in (("a", before), ("b", after)))
    return {(change.scenario, change.side): change.outcome for change in compare(*runs)}


def test_a_loss_and_a_gain(tmp_path):
    good, bad = rows_of(*[(1, 1)] * 20), rows_of(*[(0, 1)] * 20)
    for scenario in ("right tool", "all"):
        assert outcomes(tmp_path, good, bad)[scenario, "alone"] == "loss"
        assert outcomes(tmp_path, bad, good)[scenario, "alone"] == "gain"
        assert outcomes(tmp_path, good, bad)[scenario, "through"] == "same"
    assert set(outcomes(tmp_path, good, rows_of(*[(1, 1)] * 18, (0, 1), (1, 0))).values()) == {"same"}


def test_only_cases_of_both_runs_are_compared(tmp_path):
    before = rows_of(*[(1, 1)] * 20)
    after = [*before[:10], *rows_of(*[(0, 0)] * 20, scenario="restraint")]
    assert set(outcomes(tmp_path, before, after).values()) == {"same"}
    with pytest.raises(UsageError, match="no case in common"):
        outcomes(tmp_path, before, rows_of((1, 1), scenario="restraint"))


def test_runs_of_other_scenarios_are_refused(tmp_path):
    one = read_run(written(tmp_path / "a.json", rows_of((1, 1))))
    other = read_run(written(tmp_path / "b.json", rows_of((1, 1)), suite="t", model="n"))
    with pytest.raises(UsageError, match="different scenarios"):
        compare(one, other)
    assert differences(one, other) == [("model", "m", "n")]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": []}', '{"rows": [{"case": "x"}]}', '{"rows": [1]}'])
def test_files_that_are_not_a_result(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a result of promptools verify --json"):
        read_run(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_run(tmp_path / "none.json")
