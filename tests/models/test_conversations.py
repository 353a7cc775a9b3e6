"""The conversations for real models: the suite, the simulated tools, the judge, and what is kept."""

import json
import re
from collections import Counter
from dataclasses import asdict, replace

import jsonschema
import pytest
from due_calls import first

from benchmarks.models.conversations.conversation import COUNTS, Rule, Turn, conversations
from benchmarks.models.conversations.judge import judge, judge_turn
from benchmarks.models.conversations.simulated import SimulatedTools
from benchmarks.models.conversations.transcript import Said, Transcript, TurnHeld
from benchmarks.models.question import Due
from benchmarks.models.score import meets

ALL = conversations()
BY_NAME = {each.name: each for each in ALL}


def made(due):
    return {"name": due.name, "arguments": first(due.arguments)}


def right(turn):
    """The turn as it should go."""
    calls = [made(due) for due in turn.due]
    replies = [calls] if turn.together else [[call] for call in calls]
    return TurnHeld([*(Said(each) for each in replies), Said(content=turn.answer)])


def test_the_numbers_of_each_kind_are_fixed():
    assert Counter(each.kind for each in ALL) == COUNTS
    assert len(ALL) >= 80
    assert len(BY_NAME) == len(ALL)


def test_a_third_of_each_kind_is_held_back():
    held = Counter(each.kind for each in ALL if each.part == "held")
    assert held == {kind: count // 3 for kind, count in COUNTS.items()}


@pytest.mark.parametrize("talk", ALL, ids=lambda talk: talk.name)
def test_a_conversation_is_well_formed(talk):
    offered = {tool["name"]: tool["parameters"] for tool in talk.tools}
    for schema in offered.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for turn in talk.turns:
        calls = [made(due) for due in turn.due]
        for call, due in zip(calls, turn.due, strict=True):
            jsonschema.validate(call["arguments"], offered[call["name"]])
            assert {*due.arguments, *due.optional} <= offered[due.name]["properties"].keys()
            assert [meets(other, due) for other in calls] == [other == call for other in calls], "calls are told apart"
    assert (talk.kind == "thirty") == (len(talk.tools) == 30)
    assert (talk.kind == "eight") == (len(talk.turns) == 8)
    assert (talk.kind == "restraint") <= (not any(turn.due for turn in talk.turns))


@pytest.mark.parametrize("talk", ALL, ids=lambda talk: talk.name)
def test_what_is_right_is_answered_and_what_the_answers_must_hold_is_in_the_results(talk):
    verdicts = judge(talk, [*map(right, talk.turns)])
    assert [verdict.outcome for verdict in verdicts] == ["answered"] * len(talk.turns)
    assert all(verdict.clean for verdict in verdicts)
    tools = SimulatedTools(talk)
    for turn in talk.turns:
        results = [tools.result(due.name, json.dumps(first(due.arguments))) for due in turn.due]
        assert all(not result.startswith('{"error') and "error:" not in result for result in results[-1:])
        assert [*map(is_error, results)].count(True) == (1 if talk.kind == "mended" else 0)
        known = Turn("", (), tuple(each for each in turn.says if isinstance(each, float | int)), (), "", False)
        if turn.due and talk.kind != "long":
            given = " ".join([*results, turn.user])
            assert judge_turn(known, TurnHeld([Said(content=given)])).outcome == "answered", (turn.says, given)


def is_error(result):
    return result.startswith(("error", '{"error"'))


@pytest.mark.parametrize("talk", [each for each in ALL if each.kind == "long"], ids=lambda talk: talk.name)
def test_a_long_result_has_eight_kilobytes(talk):
    (turn,) = talk.turns
    result = SimulatedTools(talk).result(turn.due[0].name, json.dumps(first(turn.due[0].arguments)))
    assert 7500 < len(result) < 9000


def test_a_conversation_that_was_changed_has_another_digest():
    talk = BY_NAME["one_weather"]
    assert talk.digest == replace(talk, turns=(replace(talk.turns[0], answer="other"),)).digest
    assert talk.digest != replace(talk, turns=(replace(talk.turns[0], user="other"),)).digest
    assert talk.digest != replace(talk, rules=talk.rules[1:]).digest


# the simulated tools


def test_the_rules_decide_on_results():
    tools = SimulatedTools(BY_NAME["mended_busy"])
    oslo = '{"city": "Oslo, Norway"}'
    assert "busy" in tools.result("get_weather", oslo)
    assert '"temperature": 9' in tools.result("get_weather", oslo)
    assert '"temperature": 9' in tools.result("get_weather", oslo)
    assert "no weather station" in tools.result("get_weather", '{"city": "Osloville"}')


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("get_rain", "{}", "error: there is no tool 'get_rain'"),
        ("get_weather", "{", "error: the arguments are not valid JSON"),
        ("get_weather", "{}", "error: missing arguments: city"),
        ("get_weather", "[]", "error: missing arguments: city"),
    ],
)
def test_a_call_that_is_wrong_has_an_error_for_a_result(name, arguments, result):
    assert SimulatedTools(BY_NAME["one_weather"]).result(name, arguments) == result


def test_a_call_that_no_rule_fits_finds_nothing():
    talk = replace(BY_NAME["one_weather"], rules=(Rule("get_weather", {"city": "Rome"}, ("sun",)),))
    assert SimulatedTools(talk).result("get_weather", '{"city": "Oslo"}') == "error: nothing found"


# the judge, rule by rule

PARIS = {"name": "get_weather", "arguments": {"city": "Paris"}}
OSLO = {"name": "get_weather", "arguments": {"city": "Oslo"}}
DUE = (Due("get_weather", {"city": "Paris"}, {"unit": "celsius"}),)
ASKED = Turn("Weather in Paris?", DUE, (18, "sunny"), ("rain",), "", False)
TALK = Turn("Thanks!", (), (), (), "", False)
GOOD = "It is sunny in Paris, with 18 °C."


def held(*replies):
    return TurnHeld([Said(reply) if isinstance(reply, list) else Said(content=reply) for reply in replies])


@pytest.mark.parametrize(
    ("turn", "replies", "outcome", "needless"),
    [
        (ASKED, [[PARIS], GOOD], "answered", 0),
        (ASKED, [[{**PARIS, "arguments": {"city": "Paris", "unit": "celsius"}}], GOOD], "answered", 0),
        (TALK, ["You are welcome!"], "answered", 0),
        # calls that are needless: once more, another, along with the right one, or where none is due
        (ASKED, [[PARIS], [PARIS], GOOD], "answered", 1),
        (ASKED, [[OSLO], [PARIS], GOOD], "answered", 1),
        (ASKED, [[PARIS, OSLO], GOOD], "answered", 1),
        (TALK, [[PARIS], "You are welcome!"], "answered", 1),
        # calls that are missing, have wrong arguments, or more of them than may be
        (ASKED, [GOOD], "calls", 0),
        (ASKED, [[OSLO], GOOD], "calls", 1),
        (ASKED, [[{**PARIS, "arguments": {"city": "Paris", "unit": "fahrenheit"}}], GOOD], "calls", 1),
        (ASKED, [[{**PARIS, "arguments": '{"city": "Pa'}], GOOD], "calls", 1),
        (ASKED, [[{**PARIS, "name": "get_rain"}], GOOD], "calls", 1),
        # it never stops calling, with the due call among them or not
        (ASKED, [[PARIS], [PARIS], [PARIS], [PARIS]], "not ended", 3),
        (TALK, [[PARIS], [PARIS], [PARIS]], "not ended", 3),
        (TALK, [], "not ended", 0),
        # answers that are none
        (ASKED, [[PARIS], " \n"], "empty", 0),
        (TALK, [""], "empty", 0),
        (ASKED, [[PARIS], '{"temperature": 18, "sky": "sunny"}'], "no text", 0),
        (ASKED, [[PARIS], '```json\n[{"temperature": 18, "sky": "sunny"}]\n```'], "no text", 0),
        (ASKED, [[PARIS], '{"name": "get_weather"}\n{"temperature": 18, "sky": "sunny"}'], "no text", 0),
        (ASKED, [[PARIS], '{"temperature": 18, "sky": "sunny"} is what it says.'], "answered", 0),
        (ASKED, [[PARIS], "[sunny, 18 degrees]"], "answered", 0),
        # answers that lack something, or hold what they must not
        (ASKED, [[PARIS], "It is sunny in Paris."], "wrong", 0),
        (ASKED, [[PARIS], "It is 18 °C in Paris."], "wrong", 0),
        (ASKED, [[PARIS], "It is sunny in Paris, with 180 °C."], "wrong", 0),
        (ASKED, [[PARIS], f"{GOOD} There is rain in Oslo."], "wrong", 0),
    ],
)
def test_a_turn_is_judged(turn, replies, outcome, needless):
    verdict = judge_turn(turn, held(*replies))
    assert (verdict.outcome, verdict.needless) == (outcome, needless)
    assert verdict.answered == (outcome == "answered")
    assert verdict.clean == (outcome == "answered" and not needless)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (Said(content=GOOD, printed=True), "no text"),
        (Said(content=GOOD, echoed=True), "our words"),
        (Said(content=GOOD), "answered"),
    ],
)
def test_an_answer_that_prints_a_call_or_repeats_the_prompt_is_none(said, outcome):
    assert judge_turn(ASKED, TurnHeld([Said([PARIS]), said])).outcome == outcome


def test_an_error_ends_a_turn():
    verdict = judge_turn(ASKED, TurnHeld([Said([PARIS])], "500: out of memory"))
    assert (verdict.outcome, verdict.calls, verdict.needless) == ("error", 1, 0)


def test_equal_calls_that_are_due_twice_are_counted_twice():
    turn = replace(ASKED, due=DUE * 2)
    assert judge_turn(turn, held([PARIS], [PARIS], GOOD)).clean
    assert judge_turn(turn, held([PARIS], GOOD)).outcome == "calls"
    assert judge_turn(turn, held([PARIS], [PARIS], [PARIS], GOOD)).needless == 1


def test_a_turn_that_was_not_reached_is_not_answered():
    talk = BY_NAME["chat_weather"]
    verdicts = judge(talk, [right(talk.turns[0])])
    assert [verdict.outcome for verdict in verdicts] == ["answered", "error", "error"]


NUMBERS = [
    (18, "18", True),
    (18, "18.", True),
    (18, "18°C", True),
    (18, "18.0 degrees", True),
    (18, "18.5 degrees", False),
    (18, "118", False),
    (18, "1,018", False),
    (18, "2.18", False),
    (3, "There are three.", True),
    (3, "thirty-three", False),
    (1000, "1000 watts", True),
    (1000, "1,000 watts", True),
    (1000, "1.000 Watt", True),
    (1000, "10000", False),
    (2102650, "2,102,650 people", True),
    (2102650, "2102650", True),
    (2102650, "2 102 650", True),
    (2102650, "about 2.1 million", True),
    (2102650, "2.10 million", True),
    (2102650, "2.2 million", False),
    (2102650, "some 12.1 million", False),
    (310.4, "310.40 EUR", True),
    (310.4, "310,4 EUR", True),
    (310.4, "310 EUR", False),
    (9200, "9.200,00 Euro", True),
]


@pytest.mark.parametrize(("number", "text", "held"), NUMBERS)
def test_a_number_is_found_however_it_is_written(number, text, held):
    turn = replace(TALK, says=(number,))
    assert (judge_turn(turn, TurnHeld([Said(content=text)])).outcome == "answered") is held


def test_a_transcript_is_read_as_it_was_written():
    row = Transcript(
        "m", "native", "w", "one_weather", "d", [TurnHeld([Said([PARIS]), Said(content="x")], "e")], ["native"], 2
    )
    assert Transcript.from_dict(json.loads(json.dumps(asdict(row)))) == row
    assert re.fullmatch(r"[0-9a-f]{12}", BY_NAME["one_weather"].digest)
