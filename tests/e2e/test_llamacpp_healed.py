"""The same servers and models as in `test_llamacpp_alone`, with promptools between: the app sees what it should.

Every test runs four times: with our transport inside the official client and with the proxy before the server, the
answer whole and streamed.
"""

import openai
import pytest
from conftest import config_of
from scenes import ANSWER, FENCED_CALL, QUESTION, RESULT, WEATHER, WORDS

from promptools.client import OpenAI

CALL = ("get_weather", '{"city": "Paris"}')
SERVERS = ["hermes_server", "harmony_server"]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_a_whole_conversation_in_either_mode(request, connect, ask, kind, mode):
    server = request.getfixturevalue(kind)
    client = connect(server)
    first = ask(client, server.name, QUESTION, tools=[WEATHER], options={"mode": mode})
    assert (first.calls, first.finish_reason) == ([CALL], "tool_calls")
    assert first.attempts == [(mode, "answered")]
    assert FENCED_CALL not in first.content
    result = {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT}
    second = ask(client, server.name, QUESTION, first.message(), result, tools=[WEATHER], options={"mode": mode})
    assert (second.calls, second.finish_reason, second.content) == ([], "stop", ANSWER)


def test_a_template_without_tools_needs_no_more_than_prompt_mode(connect, ask, plain_server):
    got = ask(connect(plain_server), plain_server.name, QUESTION, tools=[WEATHER], options={"mode": "prompt"})
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")


def test_a_call_that_the_server_left_in_the_text_is_found(connect, ask, hermes_server):
    got = ask(connect(hermes_server), hermes_server.name, "Leak in Paris?", tools=[WEATHER])
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")
    assert got.content.strip() == "Let me look."
    assert got.attempts == [("native", "answered")]


def test_text_before_a_call_stays(connect, ask, hermes_server):
    got = ask(connect(hermes_server), hermes_server.name, "Talk and call?", tools=[WEATHER])
    assert (got.calls, got.content.strip()) == ([CALL], "I'll check.")


@pytest.mark.parametrize("question", ["Break in Paris?", "Break at once?"])
def test_a_real_500_falls_back_to_prompt_mode(connect, ask, harmony_server, question):
    got = ask(connect(harmony_server, fresh=True), harmony_server.name, question, tools=[WEATHER])
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")
    (native, failed), last = got.attempts
    assert native == "native"
    assert failed != "answered"
    assert last == ("prompt", "answered")


def test_a_mode_that_keeps_failing_is_left_out_for_a_while(connect, ask, harmony_server):
    client = connect(harmony_server, fresh=True)
    told = [ask(client, harmony_server.name, "Break in Paris?", tools=[WEATHER]) for _ in range(6)]
    assert [got.calls for got in told] == [[CALL]] * 6
    assert len(told[0].attempts) == 2
    assert told[-1].attempts == [("prompt", "answered")]


def test_what_no_mode_can_mend_is_an_error_that_says_so(connect, ask, harmony_server):
    with pytest.raises(openai.APIError) as caught:
        ask(connect(harmony_server), harmony_server.name, "Break always?", tools=[WEATHER])
    assert "peg-native" in str(caught.value.body)


def test_a_swallowed_call_is_healed(ask, harmony_server):
    # prompted, this model calls natively all the same, and the server drops it: then native mode is tried
    overrides = {"modes": ["prompt", "native"]}
    with OpenAI(config=config_of(harmony_server), overrides=overrides, max_retries=0, timeout=60) as client:
        got = ask(client, harmony_server.name, "Swallow in Paris?", tools=[WEATHER])
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")
    (prompt, failed), last = got.attempts
    assert (prompt, last) == ("prompt", ("native", "answered"))
    assert failed != "answered"


def test_a_swallowed_call_without_another_mode_is_no_answer(connect, ask, harmony_server):
    options = {"mode": "prompt"}
    got = ask(connect(harmony_server), harmony_server.name, "Swallow in Paris?", tools=[WEATHER], options=options)
    assert (got.calls, got.content) == ([], "")
    assert "answered" not in [outcome for _, outcome in got.attempts]


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_a_truncated_call_is_never_handed_over(connect, ask, hermes_server, mode):
    options = {"mode": mode}
    got = ask(
        connect(hermes_server), hermes_server.name, "Cut in Paris?", tools=[WEATHER], max_tokens=30, options=options
    )
    assert (got.calls, got.finish_reason) == ([], "length")
    assert len(got.attempts) == 1, "a truncated call is not asked again"


def test_several_calls(connect, ask, hermes_server):
    client = connect(hermes_server)
    both = ask(client, hermes_server.name, "Two cities?", tools=[WEATHER])
    assert both.calls == [CALL, ("get_weather", '{"city": "Rome"}')]
    assert len(set(both.ids)) == 2
    one = ask(client, hermes_server.name, "Two cities?", tools=[WEATHER], parallel_tool_calls=False)
    assert one.calls == [CALL]


def test_tool_choice_none_gives_no_call(connect, ask, hermes_server):
    got = ask(connect(hermes_server), hermes_server.name, QUESTION, tools=[WEATHER], tool_choice="none")
    assert got.calls == []
    assert got.finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_forced_call_comes(connect, ask, hermes_server, choice):
    got = ask(connect(hermes_server), hermes_server.name, QUESTION, tools=[WEATHER], tool_choice=choice)
    assert got.calls == [CALL]


def test_plain_talk_passes(connect, ask, hermes_server):
    got = ask(connect(hermes_server), hermes_server.name, "Say words", tools=[WEATHER])
    assert (got.content, got.calls, got.finish_reason) == (WORDS, [], "stop")


def test_broken_arguments_in_the_history_do_not_brick_the_conversation(connect, ask, hermes_server):
    broken = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Par'}}
    history = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [broken]},
        {"role": "tool", "tool_call_id": "a", "content": RESULT},
    ]
    got = ask(connect(hermes_server), hermes_server.name, *history, tools=[WEATHER])
    assert got.content == ANSWER


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("options", [{"arguments": "live"}, {"hold": "all"}])
def test_however_it_is_handed_over_it_is_the_same_call(connect, ask, hermes_server, mode, options):
    got = ask(connect(hermes_server), hermes_server.name, QUESTION, tools=[WEATHER], options={"mode": mode, **options})
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")


def test_tokens_are_summed_over_all_sends(connect, harmony_server):
    client = connect(harmony_server, fresh=True)
    said = {"model": harmony_server.name, "messages": [{"role": "user", "content": "Break in Paris?"}]}
    got = client.chat.completions.create(**said, tools=[WEATHER], extra_body={"promptools": {"trace": True}})
    assert got.usage is not None
    report = got.model_extra["promptools"]
    spent = [each["usage"] for each in report.get("trace", report)["attempts"] if each["usage"]]
    assert got.usage.completion_tokens == sum(each["completion_tokens"] for each in spent) > 0


def test_several_choices(connect, hermes_server):
    said = {"model": hermes_server.name, "messages": [{"role": "user", "content": QUESTION}], "n": 2}
    got = connect(hermes_server).chat.completions.create(**said, tools=[WEATHER])
    assert [choice.index for choice in got.choices] == [0, 1]
    for choice in got.choices:
        (call,) = choice.message.tool_calls
        assert (call.function.name, call.function.arguments) == CALL


def test_the_headers_tell_the_mode(connect, ask, hermes_server):
    got = ask(connect(hermes_server), hermes_server.name, QUESTION, tools=[WEATHER], options={"mode": "prompt"})
    assert got.headers["x-promptools-mode"] == "prompt"
    assert got.headers["x-promptools-attempts"] == "1"


def test_a_request_without_tools_passes_untouched(connect, hermes_server):
    client = connect(hermes_server)
    raw = client.chat.completions.with_raw_response.create(
        model=hermes_server.name, messages=[{"role": "user", "content": "Say words"}]
    )
    assert raw.parse().choices[0].message.content == WORDS
    assert "x-promptools-mode" not in raw.headers
    assert [model.id for model in client.models.list()] == [hermes_server.name]
