"""A request with tools to a server that does its job, and to one that cannot do tools."""

import json
from dataclasses import replace

import pytest
from scripted import NOW, SSE, WEATHER, Answer, ask, call, chunk, error, event, logged, play, reply, stream, target

NO_TOOLS = error('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', 400)
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
PARIS = {"city": "Paris"}


def test_a_native_call_goes_through_in_one_send():
    seen = play(ask(WEATHER), [reply(calls=[("get_weather", PARIS)], finish="tool_calls")])
    assert seen.message["tool_calls"] == [call("get_weather", PARIS)]
    assert seen.json["choices"][0]["finish_reason"] == "tool_calls"
    assert seen.json["usage"]["completion_tokens"] == 9
    assert seen.headers["x-promptools-mode"] == "native"
    assert seen.headers["x-promptools-attempts"] == "1"
    assert seen.bodies[0]["tools"] == [WEATHER]
    assert seen.replies == [seen.reply]
    assert seen.log == []


def test_a_server_without_tools_is_asked_in_prompt_mode():
    seen = play(ask(WEATHER), [NO_TOOLS, reply(FENCED)])
    assert seen.message["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert seen.message["content"] is None
    assert seen.headers["x-promptools-mode"] == "prompt"
    assert seen.headers["x-promptools-attempts"] == "2"
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & seen.bodies[1].keys()
    assert [each.outcome for each in seen.reply.trace.attempts] == ["no_native_tools", "answered"]
    assert seen.reply.trace.mode == "prompt"
    assert seen.reply.finish_reason == "tool_calls"
    assert seen.log == [logged("native", "no_native_tools (HTTP 400); prompt mode is tried")]


def test_streamed_it_is_the_same():
    seen = play(ask(WEATHER, stream=True), [NO_TOOLS, stream("Let me see.\n", FENCED[:20], FENCED[20:], cut=7)])
    said = seen.choice()
    assert said.content == "Let me see."
    assert said.calls == {0: {"id": "id0000000", "name": "get_weather", "arguments": '{"city": "Paris"}'}}
    assert said.finish == ["tool_calls"]
    assert said.roles == ["assistant"]
    assert seen.comments == ["promptools mode=prompt attempts=2"]
    assert seen.done
    assert seen.headers["content-type"].startswith("text/event-stream")


def test_content_goes_out_as_it_comes():
    seen = play(ask(WEATHER, stream=True), [stream("Hello", " there", ".", cut=1)])
    assert seen.choice().content == "Hello there."
    assert [each["choices"][0]["delta"].get("content") for each in seen.events] == ["", "Hello", " there", ".", None]


def test_the_callers_words_for_the_server_are_kept():
    headers = (("Authorization", "Bearer k"), ("Content-Length", "3"), ("X-Own", "1"))
    seen = play(ask(WEATHER, temperature=0.5, own={"a": 1}), [reply("hi")], headers=headers)
    assert seen.sent[0].headers == (("Authorization", "Bearer k"), ("X-Own", "1"))
    assert seen.bodies[0]["temperature"] == 0.5
    assert seen.bodies[0]["own"] == {"a": 1}


def test_the_servers_headers_and_envelope_are_kept():
    answer = reply("hi")
    answer.headers = (("Content-Type", "application/json"), ("content-length", "999"), ("X-Request-Id", "r1"))
    seen = play(ask(WEATHER), [answer])
    assert seen.headers["X-Request-Id"] == "r1"
    assert "content-length" not in seen.headers
    assert seen.json["id"] == "chatcmpl-1"
    assert seen.json["model"] == "m"
    assert seen.json["created"] == 7


def test_a_first_chunk_that_names_nothing_is_not_the_envelope():
    # Azure's content filter speaks first: no choices, an empty id, an empty model
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    seen = play(ask(WEATHER, stream=True), [Answer(200, event(first) + stream("Hello.").body, SSE)])
    assert {(each["id"], each["model"], each["created"]) for each in seen.events} == {("c", "m", 7)}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_without_id_and_model_gets_them(streamed):
    body = {"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}
    seen = play(ask(WEATHER, stream=streamed), [Answer(200, json.dumps(body).encode())])
    said = seen.events if streamed else [seen.json]
    assert {(each["id"], each["model"]) for each in said} == {("chatcmpl-id0000000", "m")}


def test_a_route_sets_the_url_the_key_and_the_model():
    from promptools.exchange import Route

    def route(model, provider):
        assert (model, provider) == ("alias", "other")
        return Route(
            target(model="real", defaults={"top_k": 3, "temperature": 1}),
            "http://elsewhere/v1/chat/completions",
            (("authorization", "Bearer new"), ("x-api-key", "")),
        )

    body = ask(WEATHER, promptools={"provider": "other"}, temperature=0)
    headers = (("Authorization", "Bearer old"), ("X-API-Key", "old"), ("accept", "*/*"))
    seen = play(body | {"model": "alias"}, [reply("hi")], route=route, headers=headers)
    sent = seen.sent[0]
    assert sent.url == "http://elsewhere/v1/chat/completions"
    assert sent.headers == (("accept", "*/*"), ("authorization", "Bearer new"))
    assert seen.bodies[0]["model"] == "real"
    assert (seen.bodies[0]["top_k"], seen.bodies[0]["temperature"]) == (3, 0)
    assert "promptools" not in seen.bodies[0]


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_a_forced_mode_is_the_only_one(mode):
    seen = play(ask(WEATHER, promptools={"mode": mode}), [reply("hi")])
    assert seen.headers["x-promptools-mode"] == mode
    assert ("tools" in seen.bodies[0]) == (mode == "native")


def test_a_forced_mode_does_not_fall_back_and_the_error_comes_through_as_it_was():
    seen = play(ask(WEATHER, promptools={"mode": "native"}), [NO_TOOLS])
    assert seen.head.status == 400
    assert seen.body == NO_TOOLS.body
    assert seen.headers["x-promptools-attempts"] == "1"


def test_a_forced_mode_without_tools_is_not_untouched():
    seen = play(ask(promptools={"mode": "prompt"}), [reply("hi")])
    assert seen.message["content"] == "hi"
    assert seen.headers["x-promptools-mode"] == "prompt"


def test_a_profile_without_a_mode():
    seen = play(ask(WEATHER), [], target=target(modes=()))
    assert seen.head.status == 400
    assert "lists no mode" in seen.json["error"]["message"]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({**ask(), "tools": {"name": "no list"}}, "'tools' must be a list"),
        (ask(WEATHER, promptools={"nope": 1}), "nope"),
        (ask(WEATHER, promptools=[]), "promptools"),
        (ask(WEATHER, tool_choice={"type": "function", "function": {"name": "gone"}}), "gone"),
    ],
)
def test_a_request_that_cannot_be_is_a_400_that_says_why(body, what):
    seen = play(body, [])
    assert seen.head.status == 400
    assert seen.headers["x-should-retry"] == "false"
    told = seen.json["error"]
    assert told["type"] == "UsageError"
    assert told.keys() == {"message", "type", "param", "code", "attempts"}
    assert what in told["message"]
    assert seen.reply is None


def test_lone_surrogates_survive():
    seen = play(
        ask(WEATHER), [Answer(body=json.dumps(json.loads(reply("x").body)).replace('"x"', '"a\\ud800b"').encode())]
    )
    assert seen.message["content"] == "a\ud800b"


def test_usage_chunk_only_for_who_asked():
    usage = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
    seen = play(ask(WEATHER, stream=True), [stream("hi", usage=usage)])
    assert seen.bodies[0]["stream_options"] == {"include_usage": True}
    assert all("usage" not in each for each in seen.events)
    assert seen.reply.trace.attempts[0].usage == usage
    seen = play(ask(WEATHER, stream=True, stream_options={"include_usage": True}), [stream("hi", usage=usage)])
    assert seen.events[-1]["usage"] == usage
    assert seen.events[-1]["choices"] == []


def test_usage_is_summed_over_the_sends():
    first = stream(b'data: {"error": {"message": "HarmonyError"}}\n\n', finish=None)
    seen = play(
        ask(WEATHER, NOW),
        [
            reply("", usage={"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}),
            reply("ok", usage={"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}),
        ],
    )
    assert seen.json["usage"] == {"prompt_tokens": 7, "completion_tokens": 21, "total_tokens": 28}
    assert [each.usage["prompt_tokens"] for each in seen.reply.trace.attempts] == [3, 4]
    assert first


def test_the_trace_on_request():
    seen = play(ask(WEATHER, promptools={"trace": True}), [NO_TOOLS, reply(FENCED.replace('"Paris"}', '"Paris",}'))])
    report = seen.json["promptools"]
    assert report["mode"] == "prompt"
    assert [each["outcome"] for each in report["attempts"]] == ["no_native_tools", "answered"]
    assert report["choices"][0]["fixes"]["id0000000"][0]["kind"] == "json"
    assert report["choices"][0]["dialects"] == {"id0000000": "json"}
    assert report["choices"][0]["tries"]
    assert report == json.loads(json.dumps(report))


def test_the_trace_is_on_the_last_chunk():
    usage = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
    body = ask(WEATHER, stream=True, promptools={"trace": True})
    seen = play(body, [stream("hi")])
    assert seen.events[-1]["promptools"]["mode"] == "native"
    assert seen.events[-1]["choices"][0]["finish_reason"] == "stop"
    seen = play(body | {"stream_options": {"include_usage": True}}, [stream("hi", usage=usage)])
    assert seen.events[-1]["promptools"]["mode"] == "native"
    assert seen.events[-1]["usage"] == usage


def test_what_stands_beside_the_last_chunk_goes_on():
    last = event({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "timings": {"n": 1}})
    seen = play(ask(WEATHER, stream=True), [Answer(200, chunk({"content": "hi"}) + last + b"data: [DONE]\n\n", SSE)])
    assert seen.events[-1]["timings"] == {"n": 1}


def test_what_stands_beside_the_usage_goes_on():
    """As llama.cpp sends it when the usage is asked for, which we do on our own."""
    usage = event({"id": "c", "choices": [], "usage": {"completion_tokens": 2}, "timings": {"n": 1}})
    body = chunk({"content": "hi"}) + chunk({}, "stop") + usage + b"data: [DONE]\n\n"
    seen = play(ask(WEATHER, stream=True), [Answer(200, body, SSE)])
    assert seen.events[-1]["timings"] == {"n": 1}
    assert "usage" not in seen.events[-1]


def test_what_is_not_known_of_a_choice_and_its_message_goes_on():
    cited = [{"type": "url_citation"}]
    message = {"role": "assistant", "content": "hi", "annotations": cited, "audio": None}
    one = {"index": 0, "message": message, "finish_reason": "stop", "stop_reason": "x"}
    seen = play(ask(WEATHER), [Answer(200, json.dumps({"id": "c", "choices": [one]}).encode())])
    assert seen.json["choices"][0]["stop_reason"] == "x"
    assert seen.message == {"role": "assistant", "content": "hi", "annotations": cited}


def test_what_is_not_known_of_a_streamed_choice_comes_at_its_end():
    body = chunk({"content": "hi", "annotations": [1]}) + chunk({"annotations": [2]}) + chunk({}, "stop", stop_reason=7)
    seen = play(ask(WEATHER, stream=True), [Answer(200, body + b"data: [DONE]\n\n", SSE)])
    (last,) = seen.events[-1]["choices"]
    assert (last["finish_reason"], last["stop_reason"], last["delta"]) == ("stop", 7, {"annotations": [1, 2]})
    assert all("annotations" not in event["choices"][0]["delta"] for event in seen.events[:-1])


def test_logprobs_go_on():
    one = {"content": [{"token": "a", "logprob": -1}]}
    two = {"content": [{"token": "b", "logprob": -2}], "refusal": None}
    body = chunk({"content": "  "}, logprobs=one) + chunk({"content": "b"}, logprobs=two) + chunk({"content": "c"})
    end = chunk({}, "stop", logprobs=one) + b"data: [DONE]\n\n"
    seen = play(ask(WEATHER, stream=True), [Answer(200, body + end, SSE)])
    told = [c["logprobs"] for c in seen.choice().chunks]
    assert told == [None, {"content": [*one["content"], *two["content"]], "refusal": []}, None, one]
    seen = play(ask(WEATHER), [reply("hi", logprobs=one)])
    assert seen.json["choices"][0]["logprobs"] == one


def test_functions_of_the_old_form():
    body = ask(functions=[WEATHER["function"]])
    seen = play(body, [reply(calls=[("get_weather", PARIS)], finish="tool_calls")])
    assert seen.message["function_call"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert seen.json["choices"][0]["finish_reason"] == "function_call"


def test_a_stream_asked_for_and_answered_whole():
    seen = play(ask(WEATHER, stream=True), [reply(calls=[("get_weather", PARIS)], finish="tool_calls")])
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris"}'
    assert seen.done


def test_a_whole_reply_asked_for_and_streamed():
    answer = stream("Hel", "lo")
    seen = play(ask(WEATHER), [answer])
    assert seen.message["content"] == "Hello"


def test_a_stream_that_was_not_asked_for_and_broke_off_is_not_an_answer():
    seen = play(ask(WEATHER), [stream("Hel", finish=None, done=False), reply("Hello")])
    assert seen.message["content"] == "Hello"
    assert [each.outcome for each in seen.reply.trace.attempts] == ["cut", "answered"]


def test_a_stream_without_a_content_type_or_junk_lines():
    answer = stream(b": ping\n\n", b"data: not json\n\n", "Hi")
    answer.headers = ()
    seen = play(ask(WEATHER, stream=True), [answer])
    assert seen.choice().content == "Hi"


def test_a_server_that_ends_without_saying_why():
    seen = play(ask(WEATHER, stream=True), [stream("Hi", finish=None)])
    assert seen.choice().finish == ["stop"]
    seen = play(ask(WEATHER), [reply("Hi", finish=None)])
    assert seen.json["choices"][0]["finish_reason"] == "stop"


def test_without_a_log_and_a_listener():
    seen = play(ask(WEATHER), [NO_TOOLS, reply(FENCED)], log=None, on_reply=None)
    assert seen.reply.calls
    assert (seen.log, seen.replies) == ([], [])


def test_a_description_of_the_config_goes_over_the_requests_own():
    where = replace(target(), descriptions={"get_weather": "Ask for one city.", "other": "x"})
    for mode in ("native", "prompt"):
        seen = play(ask(WEATHER, NOW, promptools={"mode": mode}), [reply("Sunny.")], target=where)
        sent = json.dumps(seen.bodies[0])
        assert "Ask for one city." in sent
        assert WEATHER["function"]["description"] not in sent
        assert NOW["function"]["description"] in sent
    odd = ask(tools=[7, {"type": "web_search"}, WEATHER])
    assert play(odd, [reply("Sunny.")], target=where, spare=True).head.status in {200, 400}
    assert play(ask(), [reply("Sunny.")], target=where).bodies[0] == ask()
