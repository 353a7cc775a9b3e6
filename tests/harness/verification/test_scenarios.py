"""The scenarios and their judge: right answers pass in each case, and every kind of wrong answer fails."""

import json
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from promptools.engine import parse
from promptools.harness.verification.judge import WantedCall, judge_call_of, judge_calls, judge_format, judge_text
from promptools.harness.verification.odd_schemas import ODDITIES, SETS, odd_tools
from promptools.harness.verification.scenarios import SCENARIOS, WEATHER, cases, suite_digest
from promptools.probing.findings import Answer, AnsweredCall
from promptools.schema import Tools

CASES = cases()


def outcome(case, change=lambda answer, body: answer, at=None):
    """Run a case with its right answers, changed in all of its requests or in the one `at`."""
    steps = case.start()
    ask, number = next(steps), 0
    try:
        while True:
            answer = change(ask.right, ask.body) if at in {None, number} else ask.right
            ask, number = steps.send(answer), number + 1
    except StopIteration as stop:
        return stop.value


def test_there_are_cases_of_all_scenarios():
    counts = {name: sum(case.scenario == name for case in CASES) for name in SCENARIOS}
    assert counts["valid calls by schema"] == len(ODDITIES) * SETS >= 200
    assert min(counts.values()) >= 6
    assert len({case.id for case in CASES}) == len(CASES)
    assert {case.scenario for case in CASES[: len(SCENARIOS)]} == set(SCENARIOS)


def test_the_cases_are_always_the_same():
    assert suite_digest() == suite_digest()
    assert [case.id for case in cases()] == [case.id for case in CASES]


def test_right_answers_pass():
    assert [case.id for case in CASES if outcome(case).share != 1 or outcome(case).failure] == []


def as_text(answer, body):
    """The call in the text, as a server leaves it there whose parser does not know it."""
    call = answer.calls[0]
    return Answer(content=f'{{"name": "{call.name}", "arguments": {call.arguments}}}', choices=1, finish_reason="stop")


def first_call(**changes):
    def change(answer, body):
        return replace(answer, calls=(replace(answer.calls[0], **changes), *answer.calls[1:]))

    return change


def doubled(answer, body):
    return replace(answer, calls=(*answer.calls, answer.calls[0]))


def other_text(text):
    return lambda answer, body: replace(answer, content=text)


def with_call(answer, body):
    return replace(answer, calls=(AnsweredCall("get_weather", '{"city": "Paris"}'),))


EVERYWHERE = {
    "empty": lambda answer, body: Answer(choices=1, finish_reason="stop"),
    "only reasoning": lambda answer, body: Answer(reasoning="I call it.", choices=1, finish_reason="stop"),
    "an error": lambda answer, body: Answer(500, error="Failed to parse tool call"),
    "no answer": lambda answer, body: Answer(None, error="timed out"),
    "prose": lambda answer, body: Answer(content="I am unable to do that.", choices=1, finish_reason="stop"),
}
CALLS = {
    "a call in the text": as_text,
    "another name": first_call(name="get_wether"),
    "arguments that are cut": first_call(arguments='{"city": "Pa'),
    "arguments that are a list": first_call(arguments="[]"),
    "arguments twice encoded": lambda answer, body: first_call(arguments=json.dumps(answer.calls[0].arguments))(
        answer, 0
    ),
    "arguments that are not a number": first_call(arguments='{"a": NaN}'),
}
NO_CALLS = {
    "a call": with_call,
    "markup": lambda answer, body: replace(answer, content=f"{answer.content}<|im_end|>"),
}
BREAKS = {
    **{name: {**EVERYWHERE, **CALLS} for name in SCENARIOS},
    "restraint": {**EVERYWHERE, **NO_CALLS, "a call as text": other_text('{"name": "set_timer", "arguments": {}}')},
    "results in the history": {**EVERYWHERE, **NO_CALLS, "another result": other_text("It is 40 degrees.")},
    "structured output": {
        **EVERYWHERE,
        **NO_CALLS,
        "a fence": lambda answer, body: replace(answer, content=f"```json\n{answer.content}\n```"),
        "another value": other_text('{"name": "Zoe", "age": 1, "member": true}'),
        "another key": other_text('{"name": "Zoe", "age": 1, "member": true, "x": 1}'),
        "half": lambda answer, body: replace(answer, content=answer.content[:-1]),
    },
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_wrong_answers_fail(scenario):
    for case in [case for case in CASES if case.scenario == scenario][:3]:
        for name, change in BREAKS[scenario].items():
            if scenario == "eight turns":
                continue
            seen = outcome(case, change)
            assert (seen.share, bool(seen.failure)) == (0, True), f"{case.id}: {name}"
            assert seen.answer is not None


def test_no_case_passes_without_an_answer():
    for change in EVERYWHERE.values():
        assert [case.id for case in CASES if outcome(case, change).share] == []


@pytest.mark.parametrize("at", range(8))
def test_each_of_eight_turns_counts(at):
    case = next(case for case in CASES if case.scenario == "eight turns")
    for change in [*EVERYWHERE.values(), *(CALLS if at % 2 == 0 else NO_CALLS).values()]:
        seen = outcome(case, change, at)
        # a call that did not come takes the answer from its result with it
        assert seen.share == (7 / 8 if at % 2 else 6 / 8)
        assert seen.failure.startswith(f"turn {at + 1}: ")


def test_a_turn_that_went_wrong_is_taken_out_of_the_conversation():
    case = next(case for case in CASES if case.scenario == "eight turns")
    steps = case.start()
    first = next(steps)
    second = steps.send(Answer(content="No.", choices=1, finish_reason="stop"))
    assert [message["role"] for message in second.body["messages"]] == ["user"]
    assert second.body["messages"] != first.body["messages"]


def test_one_half_of_streamed_and_whole_is_not_enough():
    case = next(case for case in CASES if case.scenario == "streamed and whole")
    for at, begin in enumerate(("no call came", "streamed: no call came")):
        seen = outcome(case, EVERYWHERE["prose"], at)
        assert seen.share == 0
        assert seen.failure.startswith(begin)


@pytest.mark.parametrize("change", [doubled, first_call(name="set_lamp")])
def test_a_call_too_many_or_of_another_tool(change):
    for scenario in ("right tool", "parallel calls", "right arguments"):
        case = next(case for case in CASES if case.scenario == scenario)
        assert outcome(case, change).share == 0


def test_parallel_calls_may_come_in_any_order_but_not_alone():
    case = next(case for case in CASES if case.scenario == "parallel calls")
    assert outcome(case, lambda answer, body: replace(answer, calls=answer.calls[::-1])).share == 1
    assert outcome(case, lambda answer, body: replace(answer, calls=answer.calls[:1])).share == 0
    assert outcome(case, lambda answer, body: replace(answer, calls=answer.calls[:1] * 2)).share == 0


# The judge by itself.


WANTED = WantedCall(WEATHER, WEATHER["function"]["parameters"], {"city": "Paris"})


def called(arguments, name="get_weather", content=""):
    return Answer(content=content, calls=(AnsweredCall(name, arguments),), choices=1, finish_reason="tool_calls")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (called('{"city": "paris."}'), ""),
        (called('{"city": "Paris", "unit": "C"}'), ""),
        (called('{"city": "Rome"}'), 'city is not "Paris"'),
        (called('{"city": 3}'), "$.city does not fit the schema"),
        (called("{}"), "$ does not fit the schema"),
        (called("{'city': 'Paris'}"), "the arguments are not JSON"),
        (called('"Paris"'), "the arguments are not an object"),
        (called('{"city": "Paris"}', "weather"), "'weather' was called instead of 'get_weather'"),
        (called('{"city": "Paris"}', content="</tool_call>"), "markup is in the text"),
        (Answer(content='{"name": "get_weather", "arguments": {"city": "Paris"}}'), "the call is in the content, as"),
        (Answer(content="I would", finish_reason="length"), "no call came and was cut off"),
        (Answer(usage={"completion_tokens": 30}), "30 tokens were generated, and no call and no text came"),
        (Answer(503, error="busy"), "HTTP 503: busy"),
    ],
)
def test_what_is_said_of_a_call(answer, says):
    seen = judge_calls(answer, [WANTED])
    assert seen.startswith(says)
    assert bool(seen) == bool(says)


def test_exact_text():
    exact = replace(WANTED, exact=True)
    assert judge_calls(called('{"city": "Paris"}'), [exact]) == ""
    assert judge_calls(called('{"city": "paris"}'), [exact]) != ""


def test_numbers_are_compared_by_value_and_are_not_booleans():
    wanted = WantedCall(WEATHER, {}, {"days": 1})
    seen = [judge_calls(called(f'{{"days": {value}}}'), [wanted]) for value in ("1", "1.0", "true", '"1"', "2")]
    assert [bool(each) for each in seen] == [False, False, True, True, True]


def test_a_forced_call_is_one_of_those_allowed():
    other = WantedCall({"function": {"name": "get_time"}}, {"required": ["city"]})
    assert judge_call_of(called('{"city": "Paris"}'), [WANTED, other]) == ""
    assert judge_call_of(called('{"city": "Rome"}', "get_time"), [WANTED, other]) == ""
    assert judge_call_of(called("{}", "get_time"), [other]) != ""
    assert judge_call_of(called('{"city": "Paris"}'), [other]) != ""


def test_text_and_format():
    assert judge_text(Answer(content="It is PARIS."), "Paris") == ""
    assert judge_text(Answer(content="It is Rome."), "Paris") != ""
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    seen = [
        judge_format(Answer(content=text), schema, {"age": 3})
        for text in ('{"age": 3}', '{"age": "3"}', "{}", "3 years")
    ]
    assert [bool(each) for each in seen] == [False, True, True, True]


# The odd schemas: what they mean is right, and promptools reads the right call as it is.


def test_the_values_fit_what_is_meant_and_nothing_else_does():
    for tool in odd_tools():
        Draft202012Validator.check_schema(tool.meant)
        validator = Draft202012Validator(tool.meant)
        assert validator.is_valid(tool.values), tool.name
        for name in tool.values:
            assert not validator.is_valid({**tool.values, name: object()}) or tool.meant["properties"][name] is True


def test_what_is_sent_is_odd():
    plain = {"a plain schema", "twenty more parameters", "five levels", "closed objects", "a schema that is true"}
    same_as_meant = {tool.oddity for tool in odd_tools() if tool.parameters == tool.meant}
    named = {name for name in ODDITIES if name.startswith("names ")}
    further = {"an enum of several types", "a constant", "a map", "a tree that refers to itself"}
    assert same_as_meant == plain | named | further | {"oneOf with a discriminator"}


def test_promptools_reads_the_right_call_of_each_odd_schema():
    changed = []
    for tool in odd_tools():
        tools = Tools([{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}}])
        text = f"<tool_call>{json.dumps({'name': tool.name, 'arguments': tool.values})}</tool_call>"
        reply = parse(text, tools)
        if [(call.name, call.arguments) for call in reply.calls] != [(tool.name, tool.values)]:
            changed.append((tool.oddity, tool.name))
    assert changed == []
