"""The failures are real: what vLLM's own server does with these models when nothing stands before it.

Facts of vLLM 0.32.0 and 0.28.0. A test that fails here after an update says that the server changed.
"""

import contextlib
import json

import httpx
import pytest
from rig_vllm import BAD_HEADER, LONG_CITY, QUOTED_TAG, choice, complete, deltas, ends, error, events, post
from scenes import ANSWER, FENCED_CALL, HERMES_CALL, QUESTION, RESULT, WEATHER

from promptools.lab.server_process import Server

pytestmark = pytest.mark.vllm

CALL = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CALL_TOKEN = 200012
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def server(request, servers) -> Server:
    return servers[request.param]


def asks(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server", [name], indirect=True)


@asks("vllm-hermes-bare")
class TestWithoutTheFlags:
    """vLLM as most people start it."""

    AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'

    @pytest.mark.parametrize("form", [{}, {"stream": True}])
    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            ({}, AUTO),
            ({"tool_choice": "auto"}, AUTO),
            ({"tool_choice": "required"}, 'tool_choice="required" requires --tool-call-parser to be set'),
            ({"tool_choice": NAMED}, 'tool_choice=function "get_weather" requires --tool-call-parser to be set'),
        ],
    )
    def test_tools_are_refused(self, http, server, keys, form, said):
        assert error(post(http, server, QUESTION, tools=[WEATHER], **keys, **form)) == (400, said, "BadRequestError")

    def test_tools_that_may_not_be_called_are_taken(self, http, server):
        got = choice(post(http, server, QUESTION, tools=[WEATHER], tool_choice="none"))
        assert got["message"]["content"] == HERMES_CALL

    def test_the_old_way_to_constrain_is_ignored(self, http, server):
        reply = complete(http, server, "Talk and call?", guided_json=SCHEMA, max_tokens=200)
        assert choice_of(reply)["text"] == f"I'll check.\n{HERMES_CALL}"

    def test_the_new_way_holds(self, http, server):
        told = {"choice": ["red", "green"]}
        reply = complete(http, server, "Talk and call?", structured_outputs=told, max_tokens=200)
        assert choice_of(reply)["text"] in told["choice"]

    def test_a_length_in_the_schema_lets_control_characters_through(self, http, server):
        def ask(schema):
            told = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
            return choice(post(http, server, "Control in Paris?", response_format=told))["message"]["content"]

        assert json.loads(ask(SCHEMA)) == {"city": "Paris"}
        short = {**SCHEMA, "properties": {"city": {"type": "string", "maxLength": 20}}}
        with pytest.raises(json.JSONDecodeError, match="control character"):
            json.loads(ask(short))

    def test_a_prompt_that_is_too_long(self, http, server):
        status, said, kind = error(post(http, server, "x" * 20000))
        assert (status, kind) == (400, "BadRequestError")
        assert said.startswith("This model's maximum context length is 16384 tokens. However, your prompt contains")

    def test_more_tokens_asked_for_than_are_left_are_fewer(self, http, server):
        assert choice(post(http, server, "Talk and call?", max_tokens=16384))["finish_reason"] == "stop"

    def test_more_tokens_asked_for_than_the_model_has_are_refused(self, http, server):
        status, said, kind = error(post(http, server, "Say words", max_tokens=16385))
        assert (status, kind) == (400, "BadRequestError")
        assert said.startswith("max_tokens=16385 cannot be greater than max_model_len=16384.")

    def test_a_model_that_is_not_there(self, http, server):
        body = {"model": "nope", "messages": [{"role": "user", "content": "Hi"}]}
        status, said, kind = error(http.post(f"{server.base_url}/chat/completions", json=body))
        assert (status, kind) == (404, "NotFoundError")
        assert said.startswith("The model `nope` does not exist.")


@asks("vllm-hermes")
class TestHermes:
    """With --enable-auto-tool-choice --tool-call-parser hermes."""

    def test_where_nothing_breaks_the_server_is_right(self, http, server):
        got = choice(post(http, server, QUESTION, tools=[WEATHER]))
        (call,) = got["message"].pop("tool_calls")
        assert call.pop("id").startswith("chatcmpl-tool-")
        assert call == {"type": "function", "function": CALL}
        message = {"role": "assistant", "content": None}
        assert got == {"index": 0, "message": message, "finish_reason": "tool_calls"}
        history = [{**message, "tool_calls": [{"id": "a", **call}]}, {"role": "tool", "tool_call_id": "a"}]
        history[1]["content"] = RESULT
        assert choice(post(http, server, QUESTION, *history, tools=[WEATHER]))["message"]["content"] == ANSWER

    def told_whole(self, http, server):
        """Ask until the arguments come: where tokens come several at a time, as from a busy server, it loses them."""
        for _ in range(5):
            told = events(post(http, server, "Talk and call?", tools=[WEATHER], stream=True))
            calls = [each["tool_calls"][0]["function"] for each in deltas(told) if each.get("tool_calls")]
            if any(call.get("arguments") for call in calls):
                return told
        pytest.fail("it lost the arguments five times")

    def test_a_streamed_call_begins_without_arguments(self, http, server):
        told = self.told_whole(http, server)
        first, *said = deltas(told)
        assert first == {"role": "assistant", "content": ""}
        heads = [each["tool_calls"][0] for each in said if each.get("tool_calls")]
        assert heads[0]["function"] == {"name": "get_weather"}
        assert "".join(head["function"]["arguments"] for head in heads[1:]) == CALL["arguments"]
        assert "".join(each.get("content") or "" for each in said).strip() == "I'll check."
        assert ends(told) == [("tool_calls", None)]
        assert told[-1] == "[DONE]"

    def test_broken_arguments_are_text_in_a_whole_answer(self, http, server):
        got = choice(post(http, server, "Unclosed in Paris?", tools=[WEATHER]))
        assert got["finish_reason"] == "stop"
        assert got["message"] == {"role": "assistant", "content": HERMES_CALL.replace('Paris"}}', "Par")}

    def test_streamed_they_are_a_call(self, http, server):
        told = events(post(http, server, "Unclosed in Paris?", tools=[WEATHER], stream=True))
        parts = [each["tool_calls"][0]["function"] for each in deltas(told) if each.get("tool_calls")]
        assert parts[0]["name"] == "get_weather"
        assert "".join(part.get("arguments", "") for part in parts) == '{"city": "Par'
        assert ends(told) == [("tool_calls", None)]

    def test_streamed_it_is_a_call_that_is_cut_there(self, http, server):
        told = events(post(http, server, "Long closer in Paris?", tools=[WEATHER], stream=True))
        parts = [each["tool_calls"][0]["function"] for each in deltas(told) if each.get("tool_calls")]
        assert "".join(part.get("arguments", "") for part in parts).strip() == f'{{"city": "{LONG_CITY}'.strip()
        assert ends(told) == [("tool_calls", None)]

    def test_streamed_all_after_a_quoted_tag_is_gone(self, http, server):
        told = events(post(http, server, "What is the tag?", tools=[WEATHER], stream=True))
        assert "".join(each.get("content") or "" for each in deltas(told)) == "The tag `"
        assert ends(told) == [("stop", None)]
        assert choice(post(http, server, "What is the tag?", tools=[WEATHER]))["message"]["content"] == QUOTED_TAG

    def test_a_draft_in_a_thought_is_a_call_and_the_rest_is_gone(self, http, server):
        got = choice(post(http, server, "Draft in Paris?", tools=[WEATHER]))
        assert got["message"]["content"] == "<think>\nI could call it: "
        assert got["message"]["tool_calls"][0]["function"] == CALL
        assert got["finish_reason"] == "tool_calls"

    def test_an_end_tag_inside_an_argument_makes_text_of_the_call(self, http, server):
        got = choice(post(http, server, "Closer in Paris?", tools=[WEATHER]))
        assert "tool_calls" not in got["message"]
        assert got["message"]["content"].startswith("<tool_call>")

    def test_a_call_in_another_dialect_stays_text(self, http, server):
        got = choice(post(http, server, "Leak in Paris?", tools=[WEATHER]))
        assert (got["finish_reason"], got["message"]["content"]) == ("stop", f"Let me look.\n{FENCED_CALL}")

    def test_thoughts_stay_in_the_text(self, http, server):
        got = choice(post(http, server, "Think in Paris?", tools=[WEATHER]))
        assert got["message"]["content"].startswith("<think>\nNeed the tool.\n</think>")
        assert got["message"]["tool_calls"][0]["function"] == CALL

    def test_a_cut_call_is_text(self, http, server):
        got = choice(post(http, server, "Cut in Paris?", tools=[WEATHER], max_tokens=80))
        assert got["finish_reason"] == "length"
        assert "tool_calls" not in got["message"]
        assert got["message"]["content"].startswith("<tool_call>")

    def test_a_call_that_must_come_has_the_envelope_alone(self, http, server):
        got = choice(post(http, server, "Odd in Paris?", tools=[WEATHER], tool_choice="required", max_tokens=300))
        (call,) = got["message"]["tool_calls"]
        assert call["function"] == {"name": "get_weather", "arguments": '["Paris"]'}

    def test_a_strict_tool_has_its_schema_too(self, http, server):
        strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
        strict["function"]["parameters"] = {**SCHEMA, "additionalProperties": False}
        got = choice(post(http, server, QUESTION, tools=[strict], tool_choice="required", max_tokens=300))
        (call,) = got["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}

    def test_a_named_tool_ends_like_text(self, http, server):
        got = choice(post(http, server, QUESTION, tools=[WEATHER], tool_choice=NAMED, max_tokens=300))
        (call,) = got["message"]["tool_calls"]
        assert call["function"]["name"] == "get_weather"
        assert got["finish_reason"] == "stop"

    def test_broken_arguments_in_the_history_are_taken(self, http, server):
        call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Par'}}
        history = [
            QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": RESULT},
        ]
        assert choice(post(http, server, *history, tools=[WEATHER]))["message"]["content"] == ANSWER

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            ({"tool_choice": "auto"}, "When using `tool_choice`, `tools` must be set."),
            ({"tools": []}, "`tools` must not be an empty array. Either provide at least one tool or omit the field"),
        ],
    )
    def test_a_request_that_makes_no_sense(self, http, server, keys, said):
        reply = post(http, server, QUESTION, **keys)
        assert reply.status_code == 400
        assert said in reply.text

    def test_a_budget_for_thoughts_needs_a_reasoning_parser(self, http, server):
        status, told, _ = error(post(http, server, "Say little", thinking_token_budget=5))
        assert status == 400
        assert told.startswith("thinking_token_budget is set but reasoning_config is not configured")

    def test_a_streamed_request_is_refused_under_200(self, http, server):
        told = events(post(http, server, "Say little", thinking_token_budget=5, stream=True))
        assert told[0]["error"]["message"].startswith("thinking_token_budget is set but reasoning_config")


@asks("vllm-harmony")
class TestGptOss:
    """With --enable-auto-tool-choice --tool-call-parser openai."""

    def test_where_nothing_breaks_the_server_is_right(self, http, server):
        got = choice(post(http, server, QUESTION, tools=[WEATHER]))
        (call,) = got["message"].pop("tool_calls")
        assert call.pop("id").startswith("chatcmpl-tool-")
        assert call == {"type": "function", "function": CALL}
        assert got["message"] == {"role": "assistant", "content": None, "reasoning": "Need the tool."}
        assert (got["finish_reason"], got["stop_reason"]) == ("tool_calls", CALL_TOKEN)

    def test_streamed_too(self, http, server):
        told = events(post(http, server, QUESTION, tools=[WEATHER], stream=True))
        said = deltas(told)
        assert "".join(each.get("reasoning") or "" for each in said) == "Need the tool."
        parts = [each["tool_calls"][0]["function"] for each in said if each.get("tool_calls")]
        # a busy server puts what it has not sent yet into one chunk, the arguments beside the name
        assert [part.get("name") for part in parts] == ["get_weather", *[None] * (len(parts) - 1)]
        assert "".join(part["arguments"] for part in parts) == CALL["arguments"]
        assert ends(told) == [("tool_calls", CALL_TOKEN)]

    def test_broken_arguments_pass(self, http, server):
        got = choice(post(http, server, "Broken in Paris?", tools=[WEATHER]))
        assert got["message"]["tool_calls"][0]["function"] == {**CALL, "arguments": '{"city": Paris}'}

    def test_a_tool_without_its_namespace_passes(self, http, server):
        got = choice(post(http, server, "No prefix in Paris?", tools=[WEATHER]))
        assert got["message"]["tool_calls"][0]["function"] == CALL

    @pytest.mark.parametrize("keys", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
    def test_a_call_that_was_not_asked_for_is_swallowed(self, http, server, keys):
        got = choice(post(http, server, QUESTION, **keys))
        assert got["message"] == {"role": "assistant", "content": None, "reasoning": "Need the tool."}
        assert (got["finish_reason"], got["stop_reason"]) == ("stop", CALL_TOKEN)

    def test_words_without_a_header_are_text_with_its_markers(self, http, server):
        got = choice(post(http, server, "Header in Paris?", tools=[WEATHER]))
        assert got["message"]["content"] == f"{BAD_HEADER}<|return|>"

    def test_half_a_header_too(self, http, server):
        got = choice(post(http, server, "Half a header in Paris?", tools=[WEATHER]))
        assert got["message"]["reasoning"] == "Need the tool."
        assert "tool_calls" not in got["message"]
        assert "to=functions.get_weather<|channel|>" in got["message"]["content"]

    def test_a_missing_start_loses_what_comes_after(self, http, server):
        got = choice(post(http, server, "No start in Paris?", tools=[WEATHER]))
        assert got["message"] == {"role": "assistant", "content": None, "reasoning": "Hm."}
        assert got["finish_reason"] == "stop"

    def test_raw_completions_show_the_markers_when_asked_to(self, http, server):
        reply = complete(http, server, QUESTION, max_tokens=100, skip_special_tokens=False)
        got = choice_of(reply)
        assert got["text"].startswith("<|channel|>analysis<|message|>Need the tool.<|end|><|start|>assistant")
        assert got["text"].endswith('<|message|>{"city": "Paris"}')
        assert got["stop_reason"] == CALL_TOKEN
        bare = choice_of(complete(http, server, QUESTION, max_tokens=100))["text"]
        assert bare.startswith("analysisNeed the tool.assistantcommentary")

    def test_raw_completions_take_markers_for_what_they_are(self, http, server):
        prompt = f"<|start|>user<|message|>{QUESTION}<|end|><|start|>assistant"
        got = choice_of(complete(http, server, prompt, max_tokens=100, return_token_ids=True))
        assert got["prompt_token_ids"][0] == 200006
        assert got["token_ids"][-1] == CALL_TOKEN


@asks("vllm-harmony-bare")
class TestGptOssWithoutTheFlags:
    """Not refused, and worse: the calls are gone."""

    def test_the_call_is_swallowed(self, http, server):
        got = choice(post(http, server, QUESTION, tools=[WEATHER]))
        assert got["message"] == {"role": "assistant", "content": None, "reasoning": "Need the tool."}
        assert (got["finish_reason"], got["stop_reason"]) == ("stop", CALL_TOKEN)

    def test_streamed_too(self, http, server):
        told = events(post(http, server, QUESTION, tools=[WEATHER], stream=True))
        assert not any(each.get("tool_calls") for each in deltas(told))
        assert not any(each.get("content") for each in deltas(told))
        assert ends(told) == [("stop", CALL_TOKEN)]

    def test_a_call_that_must_come_is_told_of_and_not_there(self, http, server):
        got = choice(post(http, server, QUESTION, tools=[WEATHER], tool_choice="required", max_tokens=100))
        assert got["finish_reason"] == "tool_calls"
        assert "tool_calls" not in got["message"]


@asks("vllm-harmony-old")
class TestHarmonyError:
    """vLLM 0.28.0, the last known to raise it."""

    SAID = "Unexpected token 173781 while expecting start token 200006"

    def test_it_is_a_500(self, http, server):
        reply = post(http, server, "No start in Paris?", tools=[WEATHER])
        assert error(reply) == (500, self.SAID, "InternalServerError")

    def broken_off(self, http, server):
        """Ask until it says why it broke off: now and then it resets the connection instead."""
        for _ in range(5):
            with contextlib.suppress(httpx.TransportError):
                return events(post(http, server, "No start in Paris?", tools=[WEATHER], stream=True))
        pytest.fail("it reset the connection five times")

    def test_streamed_it_comes_in_band(self, http, server):
        *said, last, done = self.broken_off(http, server)
        # on a busy machine the server takes all tokens at once: then the error comes before any text
        assert "Hm.".startswith("".join(each.get("reasoning") or "" for each in deltas(said)))
        told = {"message": self.SAID, "type": "InternalServerError", "param": None, "code": 500}
        assert (last, done) == ({"error": told}, "[DONE]")
        assert ends(said) == []

    def test_where_nothing_breaks_the_server_is_right(self, http, server):
        got = choice(post(http, server, QUESTION, tools=[WEATHER]))
        assert got["message"]["tool_calls"][0]["function"] == CALL


def choice_of(reply: httpx.Response) -> dict:
    """Return the one choice of raw completions."""
    assert reply.status_code == 200, reply.text
    (one,) = reply.json()["choices"]
    return one
