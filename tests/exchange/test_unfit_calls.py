"""A call that the server handed over stays a call, though its arguments do not fit: the app's own error says so.

As content it would be the answer to an agent, which stops.
"""

import json

import pytest
from scripted import NOW, WEATHER, ask, call, error, play, reply, stream
from test_client_apis_agree import by_chat, by_messages, by_ollama, by_responses

NATIVE = {"promptools": {"mode": "native", "corrections": 0}}
WHOLE = ' {"days":  3}\n'
BAD = ("get_weather", WHOLE)
TEXT = '```json\n{"tool": "get_weather", "arguments": {"days": 3}}\n```'
FRONTS = {"chat": by_chat, "responses": by_responses, "messages": by_messages, "ollama": by_ollama}
STRICT = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}


def answer(*calls, streamed, finish="tool_calls", content=None, reasoning=None):
    made = [call(*each) if isinstance(each, tuple) else each for each in calls]
    if not streamed:
        return reply(content, calls=made, finish=finish, reasoning=reasoning)
    deltas = [{"reasoning": reasoning}] if reasoning else []
    deltas += [{"content": content}] if content else []
    deltas += [{"tool_calls": [{**one, "index": index}]} for index, one in enumerate(made)]
    return stream(*deltas, finish=finish)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_on_every_api(front, streamed):
    answers = [answer(BAD, streamed=streamed), answer(BAD, streamed=streamed), error("no such thing", 404)]
    got = FRONTS[front]([WEATHER["function"]], answers, streamed=streamed)
    assert (got.status, got.calls, got.text, got.failed) == (200, [("get_weather", {"days": 3})], "", False)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_it_comes_as_it_was_sent_and_is_marked(streamed):
    seen = play(ask(WEATHER, stream=streamed, **NATIVE), [answer(BAD, streamed=streamed)])
    if streamed:
        said = seen.choice()
        assert (said.calls[0]["id"], said.calls[0]["arguments"]) == ("call00001", WHOLE.strip())
        assert (said.content, said.finish) == ("", ["tool_calls"])
        assert seen.comments == ["promptools mode=native attempts=1 unfit=1"]
    else:
        assert seen.message["tool_calls"] == [call("get_weather", WHOLE.strip())]
        assert seen.json["choices"][0]["finish_reason"] == "tool_calls"
    assert seen.headers["x-promptools-unfit"] == "1"
    assert "call of 'get_weather' handed over although it failed the checks" in seen.reply.trace.notes
    (made,), (failed,) = seen.reply.calls, seen.reply.malformed
    assert (made.id, made.arguments, made.fixes) == (failed.call.id, {"days": 3}, ())


def test_nothing_of_a_repair_that_did_not_help_is_left():
    sent = '{"Days": "3"}'
    seen = play(ask(WEATHER, **NATIVE), [answer(("get_weather", sent), streamed=False)])
    assert seen.message["tool_calls"][0]["function"]["arguments"] == sent
    assert seen.reply.calls[0].arguments == {"Days": "3"}
    assert seen.reply.calls[0].fixes == ()


def test_the_name_is_the_offered_one():
    seen = play(ask(WEATHER, **NATIVE), [answer(("functions.get_weather", WHOLE), streamed=False)])
    assert seen.message["tool_calls"][0]["function"]["name"] == "get_weather"
    assert [fix.kind for fix in seen.reply.calls[0].fixes] == ["name"]


def test_only_when_every_attempt_has_failed():
    seen = play(ask(WEATHER), [answer(BAD, streamed=False), answer(("get_weather", {"city": "Paris"}), streamed=False)])
    assert seen.message["tool_calls"] == [call("get_weather", {"city": "Paris"})]
    assert "x-promptools-unfit" not in seen.headers
    seen = play(ask(WEATHER), [answer(BAD, streamed=False), answer(BAD, streamed=False), reply("Sunny.")])
    assert seen.message["content"] == "Sunny."
    assert "tool_calls" not in seen.message


def test_a_later_attempt_whose_call_is_text_does_not_take_its_place():
    seen = play(ask(WEATHER), [answer(BAD, streamed=False)] * 2 + [reply(TEXT)] * 2, spare=True)
    assert [each.mode for each in seen.reply.trace.attempts][-1] == "prompt"
    assert seen.message["tool_calls"] == [call("get_weather", WHOLE.strip())]
    assert not seen.message["content"]


def test_words_before_it_stay():
    seen = play(ask(WEATHER, stream=True), [answer(BAD, streamed=True, content="I look.")])
    assert (seen.choice().content, seen.choice().calls[0]["name"]) == ("I look.", "get_weather")
    assert seen.choice().finish == ["tool_calls"]


def test_of_several_without_parallel_calls_the_first():
    made = answer(BAD, {**call("get_weather", '{"days": 4}'), "id": "b"}, streamed=False)
    seen = play(ask(WEATHER, parallel_tool_calls=False, **NATIVE), [made])
    assert seen.message["tool_calls"] == [call("get_weather", WHOLE.strip())]


def test_a_named_choice_takes_its_tool():
    named = {"type": "function", "function": {"name": "get_weather"}}
    seen = play(ask(WEATHER, NOW, tool_choice=named, **NATIVE), [answer(BAD, streamed=False)])
    assert seen.message["tool_calls"] == [call("get_weather", WHOLE.strip())]


GOOD = {**call("get_weather", {"city": "Paris"}), "id": "good"}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("made", [(GOOD, BAD), (BAD, GOOD)], ids=["after it", "before it"])
def test_beside_a_call_that_fits(made, front, streamed):
    got = FRONTS[front]([WEATHER["function"]], [answer(*made, streamed=streamed)], streamed=streamed)
    calls = [("get_weather", {"city": "Paris"}), ("get_weather", {"days": 3})]
    assert (got.status, got.calls, got.text, got.failed) == (200, calls, "", False)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["get_weather", "book_flight"])
def test_beside_a_call_that_fits_it_is_marked(name, streamed):
    seen = play(ask(WEATHER, stream=streamed), [answer(GOOD, (name, WHOLE), streamed=streamed)])
    assert [made.name for made in seen.reply.calls] == ["get_weather", name]
    assert f"call of {name!r} handed over although it failed the checks" in seen.reply.trace.notes
    if streamed:
        assert seen.comments == ["promptools mode=native attempts=1 unfit=1"]
    else:
        assert seen.headers["x-promptools-unfit"] == "1"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("tools", "bad", "keys"),
    [
        pytest.param([STRICT], BAD, {}, id="a strict tool"),
        pytest.param([WEATHER], BAD, {"finish": "length"}, id="cut off"),
        pytest.param([WEATHER], ("get_weather", '{"days": 3'), {}, id="an open object"),
    ],
)
def test_what_is_left_out_beside_a_call_that_fits_is_a_warning(tools, bad, keys, streamed):
    seen = play(ask(*tools, stream=streamed), [answer(GOOD, bad, streamed=streamed, **keys)])
    assert [made.id for made in seen.reply.calls] == ["good"]
    assert "x-promptools-unfit" not in seen.headers
    note, *others = (note for note in seen.reply.trace.notes if note.startswith("the server's call of 'get_weather'"))
    assert note.startswith("the server's call of 'get_weather' is left out beside valid ones: ")
    assert not others
    assert [line.startswith(f"{note} (") for line in seen.warnings] == [True]


def test_without_parallel_calls_none_is_added():
    seen = play(ask(WEATHER, parallel_tool_calls=False), [answer(BAD, GOOD, streamed=False)])
    assert [made["id"] for made in seen.message["tool_calls"]] == ["good"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_call_without_arguments_is_one_of_an_empty_object(streamed):
    seen = play(ask(WEATHER, stream=streamed, **NATIVE), [answer(("get_weather", ""), streamed=streamed)])
    made = seen.choice().calls[0] if streamed else seen.message["tool_calls"][0]["function"]
    assert (made["name"], made["arguments"]) == ("get_weather", "{}")
    assert seen.headers["x-promptools-unfit"] == "1"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("tool", "made", "keys"),
    [
        pytest.param(STRICT, BAD, {}, id="a strict tool"),
        pytest.param(WEATHER, BAD, {"finish": "length"}, id="cut off"),
        pytest.param(WEATHER, BAD, {"finish": "content_filter"}, id="filtered"),
        pytest.param(WEATHER, ("get_weather", '{"days": 3'), {}, id="an open object"),
        pytest.param(WEATHER, ("get_weather", "{'days': 3}"), {}, id="not JSON"),
        pytest.param(WEATHER, ("get_weather", '{"days": 3, "days": 4}'), {}, id="a key twice"),
        pytest.param(WEATHER, ("get_weather", '{"days": 3}{"days": 4}'), {}, id="two objects"),
        pytest.param(WEATHER, ("get_weather", '["Paris"]'), {}, id="a list"),
        pytest.param(WEATHER, ("get_weather", '"Paris, France"'), {}, id="a string"),
    ],
)
def test_in_all_other_cases_it_is_text_with_a_warning(tool, made, keys, streamed):
    seen = play(ask(tool, stream=streamed, **NATIVE), [answer(made, streamed=streamed, **keys)])
    if streamed:
        said = seen.choice()
        content, calls, finish = said.content, said.calls, said.finish[0]
    else:
        content, calls = seen.message["content"], seen.message.get("tool_calls", {})
        finish = seen.json["choices"][0]["finish_reason"]
    assert not calls
    assert content.strip().endswith(made[1].strip())
    assert finish == {"length": "length", "content_filter": "content_filter"}.get(keys.get("finish"), finish)
    assert "x-promptools-unfit" not in seen.headers
    reasons = {failed.reason for failed in seen.reply.malformed}
    notes = {f"the server's call of 'get_weather' is returned as text: {reason}" for reason in reasons}
    assert notes <= set(seen.reply.trace.notes)
    assert notes
    for note in notes:
        assert any(line.startswith(f"{note} (") for line in seen.warnings)


def test_a_closed_thought_is_no_reason():
    made = answer(BAD, streamed=False, content="<think>I call it.</think>\n")
    assert play(ask(WEATHER, **NATIVE), [made]).message["tool_calls"]
    made = answer(BAD, streamed=False, reasoning="I call it.")
    assert play(ask(WEATHER, **NATIVE), [made]).message["tool_calls"]


def test_a_call_in_text_is_text_as_before():
    seen = play(ask(WEATHER, promptools={"mode": "prompt", "corrections": 0}), [reply(TEXT)])
    assert seen.message["content"] == TEXT
    assert "tool_calls" not in seen.message


def test_a_tool_that_is_not_offered_now_is_not_a_call_of_an_offered_one():
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "now"}]}
    options = {"promptools": {"mode": "native", "corrections": 0, "on_malformed": "error"}}
    seen = play(ask(WEATHER, NOW, tool_choice=allowed, **options), [answer(BAD, streamed=False)])
    assert seen.head.status == 502


def test_with_on_malformed_error_it_is_an_error():
    options = {"promptools": {"mode": "native", "corrections": 0, "on_malformed": "error"}}
    seen = play(ask(WEATHER, **options), [answer(BAD, streamed=False)])
    assert (seen.head.status, seen.json["error"]["code"]) == (502, "malformed")


def test_what_was_escaped_in_the_request_is_restored():
    end = "<|im_end|>"
    tool = {**WEATHER, "function": {**WEATHER["function"], "description": f"Weather {end}"}}
    messages = [{"role": "user", "content": f"Weather in {end}?"}]
    sent = json.dumps({"town": "<\\|im_end|>"})
    body = ask(tool, messages=messages, **NATIVE)
    seen = play(body, [answer(("get_weather", sent), streamed=False)])
    assert json.loads(seen.message["tool_calls"][0]["function"]["arguments"]) == {"town": end}
    assert [fix.kind for fix in seen.reply.calls[0].fixes] == ["escape"]
