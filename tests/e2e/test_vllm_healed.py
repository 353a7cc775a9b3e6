"""The same servers and models as in `test_vllm_alone`, with promptools between: a correct call, or an honest error.

Every test runs four times: with our transport inside the official client and with the proxy before the server, the
answer whole and streamed. Every request is the first that its provider sees.
"""

import itertools
import json
from typing import Any

import pytest
from asking import FORMS, ask
from newcomers import WAYS, Newcomers
from rig_vllm import BAD_HEADER, BOOTS, LONG_CITY, QUOTED_TAG, TALK
from rigs import RIGS
from scenes import ANSWER, QUESTION, RESULT, WEATHER

from promptools.client import OpenAI
from promptools.fallback import Breaker

pytestmark = pytest.mark.vllm

CALL = ("get_weather", '{"city": "Paris"}')
ROME = ("get_weather", '{"city": "Rome"}')
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ALL = ["vllm-hermes-bare", "vllm-hermes", "vllm-harmony", "vllm-harmony-bare", "vllm-harmony-old"]
TAKES_TOOLS = ["vllm-hermes", "vllm-harmony", "vllm-harmony-old"]
GPT_OSS = ["vllm-harmony", "vllm-harmony-bare", "vllm-harmony-old"]
ORDERS = {"vllm-harmony": ["native", "harmony"], "vllm-harmony-old": ["harmony", "native"]}
"""Modes before prompt mode: by its version, which it is asked for."""


@pytest.fixture(scope="session")
def newcomers(proxies, tmp_path_factory):
    made = Newcomers("vllm", proxies, tmp_path_factory.mktemp)
    yield made
    made.close()


@pytest.fixture(params=list(itertools.product(WAYS, FORMS)), ids="-".join)
def put(request, servers, newcomers):
    """Ask a server by its name, with the tool, as a client that has seen nothing yet does."""

    def asked(kind, *said, **keys):
        return newcomers.ask(servers[kind], *request.param, *said, **{"tools": [WEATHER], **keys})

    return asked


def modes(got):
    """Return the modes that were tried; only the last may have answered."""
    assert got.error is None
    assert [outcome for _, outcome in got.attempts if outcome == "answered"] == ["answered"]
    assert got.attempts[-1][1] == "answered"
    return [mode for mode, _ in got.attempts]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "prompt") for kind in ALL),
        *((kind, "native") for kind in TAKES_TOOLS),
        *((kind, "harmony") for kind in GPT_OSS),
        *((kind, "raw") for kind in ALL if kind not in GPT_OSS),
    ],
)
def test_a_whole_conversation_in_each_mode(put, kind, mode):
    first = put(kind, QUESTION, options={"mode": mode})
    assert (first.calls, first.finish_reason) == ([CALL], "tool_calls")
    assert set(modes(first)) == {mode}, "once vLLM has said how much it holds"
    result = {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT}
    second = put(kind, QUESTION, first.message(), result, options={"mode": mode})
    assert (second.calls, second.finish_reason, second.content) == ([], "stop", ANSWER)


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_a_budget_that_is_refused_is_left_out(put, kind):
    extra = {"thinking": {"type": "enabled", "budget_tokens": 5}}
    got = put(kind, QUESTION, options={"mode": "native"}, extra_body=extra)
    assert (got.calls, got.attempts) == ([CALL], [("native", "unknown_param"), ("native", "answered")])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_an_empty_list_of_tools_is_left_out(servers, newcomers, way, kind):
    """Without a trace the request is forwarded as it is, and then worded as the server takes it."""
    server = servers[kind]
    client = newcomers.inside(server).with_options(breaker=Breaker()) if way == "client" else newcomers.before(server)
    talk = [{"role": "user", "content": "Say little"}]
    for attempts in ("2", "1"):
        raw = client.chat.completions.with_raw_response.create(model=server.name, messages=talk, tools=[])
        assert raw.parse().choices[0].message.content == TALK
        assert raw.headers["x-promptools-attempts"] == attempts


@pytest.mark.parametrize("kind", TAKES_TOOLS)
def test_where_vllm_is_right_nothing_else_is_tried(put, kind):
    got = put(kind, QUESTION)
    assert (got.calls, modes(got)) == ([CALL], [RIGS[kind].mode])
    seen = got.trace["seen"]
    assert (seen["version"], seen["context"]) == (BOOTS[kind].version, 16384)


@pytest.mark.parametrize("choice", ["auto", "required", NAMED, None])
@pytest.mark.parametrize("kind", ["vllm-hermes-bare"])
def test_without_the_flags_raw_mode_does(put, choice, kind):
    got = put(kind, QUESTION, **({} if choice is None else {"tool_choice": choice}))
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")
    assert modes(got)[-1] == "raw"


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("kind", TAKES_TOOLS)
def test_a_forced_call_comes(put, kind, choice):
    got = put(kind, QUESTION, tool_choice=choice, max_tokens=400)
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_a_forced_call_with_odd_arguments_is_asked_for_again(put, kind):
    got = put(kind, "Odd in Paris?", tool_choice="required", max_tokens=400)
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")
    assert modes(got)[-1] == "prompt"


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("kind", ["vllm-harmony-bare"])
def test_a_swallowed_call_is_asked_for_again(put, choice, kind):
    got = put(kind, QUESTION, tool_choice=choice, max_tokens=400)
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")
    assert modes(got) == ["native", "harmony"]


@pytest.mark.parametrize("kind", ["vllm-harmony", "vllm-harmony-old"])
def test_a_header_that_never_ends_is_asked_for_again(put, kind):
    got = put(kind, "Half a header in Paris?")
    assert (got.calls, got.finish_reason, got.content.strip()) == ([CALL], "tool_calls", "")
    assert modes(got) == [*ORDERS[kind], "prompt"]


@pytest.mark.parametrize("kind", ["vllm-harmony", "vllm-harmony-old"])
def test_words_without_a_header_are_an_answer(put, kind):
    got = put(kind, "Header in Paris?")
    assert (got.calls, got.finish_reason, got.content) == ([], "stop", BAD_HEADER)
    assert modes(got) == [RIGS[kind].mode]


@pytest.mark.parametrize("kind", ["vllm-harmony", "vllm-harmony-old"])
def test_an_answer_whose_start_is_missing_is_read_in_harmony_mode(put, kind):
    got = put(kind, "No start in Paris?")
    assert (got.calls, got.finish_reason, got.content) == ([], "stop", "x")
    assert modes(got) == ORDERS[kind][: ORDERS[kind].index("harmony") + 1]


PROMPTED = {"capabilities": {"native_tool_calling": False}}
UNTOLD = ("harmony", "overflow")
"""Nobody has told what it holds, so it is asked for all that gpt-oss was made for."""
SETTINGS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "taken for the newest": ({"kind": "vllm", "detect": False}, [("native", "harmony"), UNTOLD]),
    "prompt mode is wanted": ({"kind": "vllm", **PROMPTED}, [("prompt", "harmony")]),
    "prompt mode is wanted of a server that nobody knows": (PROMPTED, [("prompt", "harmony"), UNTOLD]),
    "nobody knows the server": ({}, [("native", "harmony"), ("prompt", "harmony"), UNTOLD]),
}
"""What a config of ppxai's says, and what fails before harmony mode answers."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("named", SETTINGS)
@pytest.mark.parametrize("kind", ["vllm-harmony-old"])
def test_harmony_error_falls_back_to_harmony_mode(servers, tmp_path, kind, named, form):
    server, (settings, failed) = servers[kind], SETTINGS[named]
    path = tmp_path / "ppxai-config.json"
    provider = {"base_url": server.base_url, "models": {server.name: {}}, **settings}
    path.write_text(json.dumps({"providers": {"here": provider}}), encoding="utf-8")
    with OpenAI(provider="here", config=path, api_key="none", max_retries=0, timeout=300) as client:
        said = [{"role": "user", "content": "No start at all in Paris?"}]
        body = {"promptools": {"trace": True, "hold": "all"}}
        got = ask(client, server.name, said, form, tools=[WEATHER], extra_body=body)
    assert got.attempts == [*failed, ("harmony", "answered")]
    assert (got.calls, got.content) == ([], "x")


@pytest.mark.parametrize("kind", ["vllm-hermes", "vllm-harmony", "vllm-harmony-old"])
def test_an_argument_without_quotes_is_mended(put, kind):
    got = put(kind, "Broken in Paris?")
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_an_argument_that_never_ends_is_not_a_call_until_it_is_whole(put, kind):
    got = put(kind, "Unclosed in Paris?")
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_an_end_tag_inside_an_argument(put, kind):
    got = put(kind, "Closer in Paris?")
    assert got.calls == [("get_weather", '{"city": "Paris </tool_call>"}')]


@pytest.mark.parametrize(
    ("question", "end"),
    [
        ("Long closer in Paris?", "</tool_call> ends a call"),
        ("Long end in Paris?", "ends"),
        ("Long call in Paris?", "ends"),
    ],
)
@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_arguments_that_the_server_cuts_are_whole_or_asked_for_again(put, kind, question, end):
    got = put(kind, question)
    assert (got.calls, got.finish_reason) == ([("get_weather", f'{{"city": "{LONG_CITY}{end}"}}')], "tool_calls")


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_words_after_a_quoted_tag_are_there_or_the_reply_is_not_whole(put, kind):
    got = put(kind, "What is the tag?")
    assert (got.content, got.finish_reason) in ((QUOTED_TAG, "stop"), ("The tag `", "length"))


@pytest.mark.parametrize(
    ("question", "calls", "content"),
    [
        ("Draft in Paris?", [], TALK),
        ("Draft only in Paris?", [], TALK),
        ("Thought into a call in Paris?", [CALL], ""),
        ("Think in Paris?", [CALL], ""),
    ],
)
@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_a_call_in_a_thought_is_none_unless_it_ends_the_text(put, kind, question, calls, content):
    got = put(kind, question)
    assert (got.calls, got.content.strip()) == (calls, content)


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_a_call_in_another_dialect_is_found(put, kind):
    got = put(kind, "Leak in Paris?")
    assert (got.calls, got.content.strip(), modes(got)) == ([CALL], "Let me look.", ["native"])


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_thoughts_in_the_text_are_reasoning(put, kind):
    got = put(kind, "Think in Paris?")
    assert (got.calls, got.content.strip()) == ([CALL], "")
    assert got.reasoning.strip() == "Need the tool."


@pytest.mark.parametrize("kind", ["vllm-harmony"])
def test_a_tool_without_its_namespace(put, kind):
    assert put(kind, "No prefix in Paris?").calls == [CALL]


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_several_calls(put, kind):
    assert put(kind, "Two cities?").calls == [CALL, ROME]
    assert put(kind, "Two cities?", parallel_tool_calls=False).calls == [CALL]


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_a_cut_call_is_never_handed_over(put, mode, kind):
    got = put(kind, "Cut in Paris?", max_tokens=80, options={"mode": mode, "arguments": "whole"})
    assert (got.calls, got.finish_reason) == ([], "length")


@pytest.mark.parametrize("kind", ["vllm-hermes", "vllm-hermes-bare"])
def test_broken_arguments_in_the_history_do_not_brick_the_conversation(put, kind):
    broken = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Par'}}
    history = [
        {"role": "assistant", "content": None, "tool_calls": [broken]},
        {"role": "tool", "tool_call_id": "a", "content": RESULT},
    ]
    assert put(kind, QUESTION, *history).content == ANSWER


@pytest.mark.parametrize("kind", ALL)
def test_plain_talk_passes(put, kind):
    got = put(kind, "Say little")
    assert (got.content, got.calls, got.finish_reason) == (TALK, [], "stop")


@pytest.mark.parametrize("kind", ALL)
def test_tool_choice_none_gives_no_call(put, kind):
    got = put(kind, "Say little", tool_choice="none")
    assert (got.content, got.calls) == (TALK, [])


@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_a_prompt_that_is_too_long_is_one_clear_error(put, kind):
    got = put(kind, "x" * 20000)
    assert "maximum context length is 16384 tokens" in (got.error or "")
    assert got.status == 400


@pytest.mark.parametrize("kind", GPT_OSS)
def test_what_no_mode_can_mend_is_not_a_call(put, kind):
    got = put(kind, "Break always?")
    assert got.calls == []
    assert got.error is not None or got.finish_reason == "stop"


@pytest.mark.parametrize("kind", ["vllm-hermes-bare"])
def test_a_mode_that_keeps_failing_is_left_out_for_a_while(servers, connect, ask, kind):
    server = servers[kind]
    client = connect(server, fresh=True, kind="vllm")
    told = [ask(client, server.name, QUESTION, tools=[WEATHER]) for _ in range(4)]
    assert [got.calls for got in told] == [[CALL]] * 4
    assert len(told[0].attempts) == 2
    assert told[-1].attempts == [("raw", "answered")]
