"""The loop with Python behind it, over real clients and a real HTTP server, sync and async, streamed or not."""

import asyncio
import json
from datetime import date
from typing import Literal

import openai
import pytest
from pydantic import BaseModel
from upstream import chunk, completion, running, sse, unary

from promptools.client import OpenAI
from promptools.errors import Exhausted, ModelError, UpstreamError, UsageError
from promptools.harness.agent import (
    CallEvent,
    IterationLimitError,
    ReasoningEvent,
    ResultEvent,
    TextEvent,
    Transcript,
    run_tools,
    run_tools_async,
)
from promptools.profiles import Config, Provider

QUESTION = [{"role": "user", "content": "Weather in Paris?"}]
DICT_TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    },
}


def get_weather(city: str, unit: Literal["c", "f"] = "c") -> dict[str, object]:
    """Tell the weather in a city."""
    return {"city": city, "degrees": 21, "unit": unit}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


class Way:
    """Runs the loop one of four ways and gives the transcript and the events."""

    def __init__(self, colour, stream):
        self.colour = colour
        self.stream = stream

    def __call__(self, server, tools, messages=QUESTION, **kw):
        options = {"base_url": server.url, "api_key": "k", "max_retries": 0}
        if self.colour == "sync":
            with openai.OpenAI(**options) as client:
                if not self.stream:
                    return run_tools(client, messages, tools, **kw), []
                events = list(run_tools(client, messages, tools, stream=True, **kw))
                return events[-1], events[:-1]
        return asyncio.run(self.go(options, messages, tools, kw))

    async def go(self, options, messages, tools, kw):
        async with openai.AsyncOpenAI(**options) as client:
            if not self.stream:
                return await run_tools_async(client, messages, tools, **kw), []
            events = [event async for event in run_tools_async(client, messages, tools, stream=True, **kw)]
            return events[-1], events[:-1]

    def says(self, body):
        """Give the answer of the server in the form that this way asks for."""
        if not self.stream:
            return body
        message = body["choices"][0]["message"]
        calls = [{"index": i, **c} for i, c in enumerate(message.get("tool_calls", []))]
        deltas = [{"role": "assistant"}]
        deltas += [{"reasoning_content": message[k]} for k in ("reasoning_content",) if k in message]
        deltas += [{"content": piece} for piece in (message["content"] or "")]
        for call in calls:
            function = call["function"]
            deltas.append({"tool_calls": [{**call, "function": {"name": function["name"], "arguments": ""}}]})
            deltas += [
                {"tool_calls": [{"index": call["index"], "function": {"arguments": c}}]} for c in function["arguments"]
            ]
        end = chunk({}, finish=body["choices"][0]["finish_reason"])
        return sse(*map(chunk, deltas), end, {**chunk(), "choices": [], "usage": body["usage"]})


@pytest.fixture(params=[(c, s) for c in ("sync", "async") for s in (False, True)], ids=str)
def way(request):
    return Way(*request.param)


def ask(*calls, content=None):
    return completion(content, list(calls))


def test_a_whole_conversation(server, way):
    server.play(way.says(ask(("get_weather", '{"city": "Paris"}'))), way.says(completion("21 degrees.")))
    transcript, events = way(server, [get_weather], model="m", temperature=0)
    assert transcript.content == "21 degrees."
    assert transcript.iterations == 2
    assert transcript.finish_reason == "stop"
    assert transcript.usage["total_tokens"] == 10
    assert [call.arguments for call in transcript.calls] == [{"city": "Paris"}]
    assert json.loads(transcript.results[0].content) == {"city": "Paris", "degrees": 21, "unit": "c"}
    assert [m["role"] for m in transcript.messages] == ["user", "assistant", "tool", "assistant"]
    first, second = server.seen[0].json, server.seen[1].json
    assert first["temperature"] == 0
    assert first["tools"][0]["function"]["description"] == "Tell the weather in a city."
    assert first["tools"][0]["function"]["parameters"]["required"] == ["city"]
    assert second["messages"] == transcript.messages[:3]
    assert second["messages"][1]["tool_calls"][0]["id"] == second["messages"][2]["tool_call_id"] == "call_0"
    if way.stream:
        assert "".join(e.text for e in events if isinstance(e, TextEvent)) == "21 degrees."
        assert [type(e) for e in events[:2]] == [CallEvent, ResultEvent]
        assert first["stream_options"] == {"include_usage": True}


def test_the_given_messages_are_left_alone(server, way):
    server.play(way.says(completion("hi")))
    given = [*QUESTION]
    way(server, [get_weather], messages=given, model="m")
    assert given == QUESTION


def test_several_calls_in_order_and_ids_that_are_missing(server, way):
    first = ask(("get_weather", '{"city": "Rome"}'), ("get_weather", '{"city": "Oslo"}'), content="Let me see.")
    for call in first["choices"][0]["message"]["tool_calls"]:
        call["id"] = ""
    server.play(way.says(first), way.says(completion("done")))
    transcript, _ = way(server, [get_weather], model="m")
    assert [json.loads(r.content)["city"] for r in transcript.results] == ["Rome", "Oslo"]
    ids = [call["id"] for call in transcript.messages[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(ids)
    assert ids == [m["tool_call_id"] for m in transcript.messages[2:4]]
    assert transcript.messages[1]["content"] == "Let me see."


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("fly", "{}", "there is no tool 'fly'. The tools are: get_weather"),
        ("get_weather", '{"city": ', "are not JSON"),
        ("get_weather", "[1]", "must be a JSON object, not list"),
        ("get_weather", '{"town": 3}', "city"),
        ("get_weather", '{"city": "x", "unit": "kelvin"}', "unit"),
    ],
)
def test_what_cannot_be_run_goes_back_to_the_model(server, way, name, arguments, told):
    server.play(way.says(ask((name, arguments))), way.says(completion("sorry")))
    transcript, _ = way(server, [get_weather], model="m")
    assert transcript.results[0].is_error
    assert told in transcript.results[0].content
    assert server.seen[1].json["messages"][-1]["content"] == transcript.results[0].content
    assert transcript.content == "sorry"


def test_a_tools_exception_goes_back_to_the_model(server, way):
    def broken(city: str) -> str:
        raise RuntimeError(f"no {city}")

    server.play(way.says(ask(("broken", '{"city": "x"}'))), way.says(completion("sorry")))
    transcript, _ = way(server, [broken], model="m")
    assert transcript.results[0].content == "Error: RuntimeError: no x"
    assert transcript.results[0].is_error


def test_coerced_arguments_and_python_types(server, way):
    class Place(BaseModel):
        name: str

    seen = []

    def plan(where: Place, day: date, nights: int = 1):
        seen.append((where, day, nights))

    server.play(
        way.says(ask(("plan", '{"where": {"name": "Rome"}, "day": "2025-02-03", "nights": "2"}'))),
        way.says(completion("ok")),
    )
    transcript, _ = way(server, [plan], model="m")
    assert seen == [(Place(name="Rome"), date(2025, 2, 3), 2)]
    assert transcript.results[0].content == "null"
    assert transcript.calls[0].fixes[0].kind == "coerce"
    assert json.loads(transcript.calls[0].arguments_json) == transcript.calls[0].arguments


def test_a_dict_tool_with_a_dispatcher(server, way):
    for dispatch in (lambda name, arguments: f"{name}:{arguments['q']}", {"lookup": lambda q: f"lookup:{q}"}):
        server.play(way.says(ask(("lookup", '{"q": "x"}'))), way.says(completion("ok")))
        transcript, _ = way(server, [DICT_TOOL, get_weather], dispatch=dispatch, model="m")
        assert transcript.results[0].content == "lookup:x"
    with pytest.raises(UsageError, match="'lookup' has nothing to run"):
        way(server, [DICT_TOOL], model="m")


def test_the_limit_raises_with_the_transcript(server, way):
    ran = []

    def again(n: int) -> int:
        ran.append(n)
        return n

    server.play(way.says(ask(("again", '{"n": 1}'))))
    with pytest.raises(IterationLimitError, match=r"'again'.*after 3 replies") as caught:
        way(server, [again], max_iterations=3, model="m")
    assert isinstance(caught.value, ModelError)
    assert caught.value.transcript.iterations == 3
    assert len(ran) == len(caught.value.transcript.results) == 2
    assert len(server.seen) == 3
    with pytest.raises(UsageError, match="max_iterations"):
        way(server, [again], max_iterations=0, model="m")


def test_a_forced_choice_holds_once(server, way):
    server.play(way.says(ask(("get_weather", '{"city": "x"}'))), way.says(completion("ok")))
    way(server, [get_weather], tool_choice="required", model="m")
    assert [seen.json["tool_choice"] for seen in server.seen] == ["required", "auto"]


def test_reasoning_is_told_and_kept_for_our_clients(server, way):
    first = ask(("get_weather", '{"city": "x"}'))
    first["choices"][0]["message"]["reasoning_content"] = "Think."
    server.play(way.says(first), way.says(completion("ok")))
    transcript, events = way(server, [get_weather], model="m")
    assert "reasoning_content" not in transcript.messages[1]
    if way.stream:
        assert ReasoningEvent("Think.") in events


def test_without_tools_it_is_one_reply(server, way):
    server.play(way.says(completion("hi")))
    transcript, _ = way(server, [], model="m")
    assert transcript.content == "hi"
    assert "tools" not in server.seen[0].json


def test_our_errors_come_as_themselves(server, way):
    attempt = {"mode": "native", "status": 500, "outcome": "harmony", "why": "x", "seconds": 0.1, "usage": None}
    for kind, error in (
        ("UsageError", UsageError),
        ("ModelError", ModelError),
        ("UpstreamError", UpstreamError),
        ("Exhausted", Exhausted),
        ("Other", openai.APIStatusError),
    ):
        body = {"error": {"message": "told", "type": kind, "param": None, "code": "c", "attempts": [attempt]}}
        server.play(unary(body, status=502))
        with pytest.raises(error, match="told") as caught:
            way(server, [get_weather], model="m")
        if kind == "Exhausted":
            assert caught.value.attempts[0].outcome == "harmony"


def test_async_functions_run_in_the_async_twin_only(server):
    async def get_time(zone: str) -> str:
        await asyncio.sleep(0)
        return f"noon in {zone}"

    for stream in (False, True):
        way = Way("async", stream)
        server.play(way.says(ask(("get_time", '{"zone": "UTC"}'))), way.says(completion("ok")))
        transcript, _ = way(server, [get_time], model="m")
        assert transcript.results[0].content == "noon in UTC"
        way = Way("sync", stream)
        server.play(way.says(ask(("get_time", '{"zone": "UTC"}'))))
        with pytest.raises(UsageError, match="run_tools_async"):
            way(server, [get_time], model="m")


def test_the_wrong_client_is_named(server):
    server.play(completion())

    async def go():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
            run_tools(client, QUESTION, [get_weather])

    with pytest.raises(UsageError, match="run_tools_async"):
        asyncio.run(go())

    async def went():
        with openai.OpenAI(base_url=server.url, api_key="k") as client:
            await run_tools_async(client, QUESTION, [get_weather])

    with pytest.raises(UsageError, match="use run_tools"):
        asyncio.run(went())


def test_messages_may_be_the_sdks_objects(server):
    server.play(completion("hi"))
    with openai.OpenAI(base_url=server.url, api_key="k") as client:
        message = client.chat.completions.create(model="m", messages=QUESTION).choices[0].message
        transcript = run_tools(client, [*QUESTION, message], [get_weather], model="m")
        assert isinstance(transcript, Transcript)
        assert server.seen[1].json["messages"][1] == {"role": "assistant", "content": "hi"}
        with pytest.raises(UsageError, match="a message is 3"):
            run_tools(client, [3], [get_weather])


def test_with_our_client_calls_in_text_are_run_and_thoughts_kept(server):
    fenced = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
    first = completion(fenced)
    first["choices"][0]["message"]["reasoning_content"] = "Think."
    for stream in (False, True):
        way = Way("sync", stream)
        server.play(way.says(first), way.says(completion("21 degrees.")))
        with OpenAI(base_url=server.url, api_key="k", max_retries=0, config=Config(), mode="prompt") as client:
            if stream:
                *_, transcript = run_tools(client, QUESTION, [get_weather], model="m", stream=True)
            else:
                transcript = run_tools(client, QUESTION, [get_weather], model="m")
        assert transcript.content == "21 degrees."
        assert transcript.calls[0].arguments == {"city": "Paris"}
        assert transcript.messages[1]["reasoning_content"] == "Think."
        assert transcript.messages[1]["content"] is None
        roles = [message["role"] for message in server.seen[1].json["messages"]]
        assert roles == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("stream", [False, True])
def test_with_our_client_too_the_model_is_told_of_bad_arguments(server, stream):
    way = Way("sync", stream)
    bad = ask(("get_weather", '{"town": "Paris"}'))
    server.play(*(way.says(each) for each in (bad, ask(("get_weather", '{"city": "Paris"}')), completion("21."))))
    options = {"config": Config(), "mode": "native", "corrections": 0}
    with OpenAI(base_url=server.url, api_key="k", max_retries=0, **options) as client:
        told = run_tools(client, QUESTION, [get_weather], model="m", stream=stream)
        transcript = list(told)[-1] if stream else told
    assert transcript.content == "21."
    refused, given = transcript.results
    assert "city" in refused.content
    assert refused.is_error
    assert "degrees" in given.content


@pytest.mark.parametrize(("ours", "wrong"), [(None, None), ([1], "promptools")])
def test_options_that_are_none_are_as_good_as_no_options(server, ours, wrong):
    server.play(completion("hi"))
    with OpenAI(base_url=server.url, api_key="k", max_retries=0, config=Config()) as client:
        told = {"model": "m", "extra_body": {"promptools": ours}}
        if wrong is None:
            assert run_tools(client, QUESTION, [get_weather], **told).content == "hi"
        else:
            with pytest.raises(UsageError, match=wrong):
                run_tools(client, QUESTION, [get_weather], **told)


def test_what_our_client_was_told_to_do_with_bad_arguments_it_does(server):
    text = '```json\n{"tool": "get_weather", "arguments": {"town": "Paris"}}\n```'
    server.play(completion(text))
    options = {"config": Config(), "mode": "prompt", "corrections": 0, "on_malformed": "content"}
    with OpenAI(base_url=server.url, api_key="k", max_retries=0, **options) as client:
        reply = run_tools(client, QUESTION, [get_weather], model="m")
    assert (reply.calls, reply.content) == ((), text)
    assert len(server.seen) == 1


def test_a_call_of_the_servers_that_does_not_fit_gets_our_error(server):
    server.play(ask(("get_weather", '{"town": "Paris"}')), completion("I do not know."))
    options = {"config": Config(), "mode": "native", "corrections": 0, "on_malformed": "content"}
    with OpenAI(base_url=server.url, api_key="k", max_retries=0, **options) as client:
        assert run_tools(client, QUESTION, [get_weather], model="m").content == "I do not know."
    told = server.seen[1].json["messages"][-1]
    assert told["role"] == "tool"
    assert "city" in told["content"]


def test_the_default_model_is_the_providers(server):
    here = Provider("here", kind="llamacpp", base_url=server.url, default_model="tiny")
    server.play(completion("hi"))
    with OpenAI(config=Config(default_provider="here", providers={"here": here})) as client:
        assert run_tools(client, QUESTION, [get_weather]).content == "hi"
    assert server.seen[0].json["model"] == "tiny"
    with (
        OpenAI(base_url=server.url, api_key="k", config=Config()) as client,
        pytest.raises(UsageError, match="max_iterations"),
    ):
        run_tools(client, QUESTION, [get_weather], max_iterations=0)


def test_functions_that_pydantic_cannot_read_are_called_as_they_are(server):
    def odd(q: "Nowhere"):  # noqa: F821 - on purpose
        return f"odd:{q}"

    way = Way("sync", stream=False)
    for function, told in ((odd, "odd:x"), (max, "TypeError"), (lambda q: q, "x")):
        server.play(ask(("lookup", '{"q": "x"}')), completion("ok"))
        transcript, _ = way(server, [DICT_TOOL], dispatch={"lookup": function}, model="m")
        assert told in transcript.results[0].content
