"""What llama.cpp forces by a grammar: a call that must come, and the form of an answer. Both shut real calls out.

The model of these tests writes its calls in a fence, as Qwen2.5-Coder does, which this server's template does not know.
"""

import pytest
from asking import ask as put
from configs import default_config
from scenes import ANSWER, QUESTION, RESULT, WEATHER

from promptools.client import OpenAI
from promptools.lab import llamacpp_server
from promptools.lab.script import ScriptedReply

pytestmark = pytest.mark.exhaustive

ARGUMENTS = '{"city": "Paris"}'
FENCED = f'```json\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n```'
CALL = ("get_weather", ARGUMENTS)
NAMED = {"type": "function", "function": {"name": "get_weather"}}
SKY = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "sky", "schema": SKY, "strict": True}}
FITS = '{"sky": "sunny"}'
CONTEXT = 2048
HISTORY = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}]},
    {"role": "tool", "tool_call_id": "a", "content": RESULT},
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    lines = [
        ScriptedReply(QUESTION, FENCED, endless_blanks=True),
        ScriptedReply(RESULT, ANSWER),
        ScriptedReply("Fits at once?", FITS),
        ScriptedReply("Bare?", f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}'),
        ScriptedReply("Write this answer as", FITS),  # words of ours: the model is asked for its answer again
    ]
    with llamacpp_server.serve(lines, folder=tmp_path_factory.mktemp("forced"), context=CONTEXT, slots=1) as running:
        yield running


def alone(http, server, *messages, **keys):
    said = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    body = {"model": server.name, "messages": said, "tools": [WEATHER], **keys}
    got = http.post(f"{server.base_url}/chat/completions", json=body).json()
    return got["choices"][0], got["usage"]


def test_alone_a_forced_call_fills_the_context_with_blank_lines(http, server):
    choice, usage = alone(http, server, QUESTION, tool_choice="required")
    assert (choice["finish_reason"], usage["total_tokens"]) == ("length", CONTEXT)
    assert (choice["message"]["content"].rstrip(), choice["message"].get("tool_calls")) == (FENCED, None)


def test_alone_a_named_tool_is_no_more_than_a_wish(http, server):
    choice, _ = alone(http, server, "Fits at once?", tool_choice=NAMED)
    assert choice["message"] == {"role": "assistant", "content": FITS}


def test_alone_the_form_of_an_answer_makes_a_call_impossible(http, server):
    choice, _ = alone(http, server, "Bare?", response_format=FORM)
    assert '"sky"' in choice["message"]["content"]
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_forced_call_is_made_and_costs_no_more_than_any(connect, ask, server, choice):
    got = ask(connect(server), server.name, QUESTION, tools=[WEATHER], tool_choice=choice)
    assert (got.calls, got.content, got.finish_reason) == ([CALL], "", "tool_calls")
    assert got.attempts == [("native", "answered")]
    assert got.usage["completion_tokens"] < 100


def test_where_it_is_forced_all_the_same_a_stream_ends_in_time(server):
    forcing = {"tool_choice": ["auto", "none", "required"]}
    with OpenAI(config=default_config(server), overrides=forcing, max_retries=0, timeout=300) as client:
        messages = [{"role": "user", "content": QUESTION}]
        trace = {"promptools": {"trace": True}}
        got = put(client, server.name, messages, "streamed", tools=[WEATHER], tool_choice="required", extra_body=trace)
    assert (got.calls, got.finish_reason, got.attempts) == ([CALL], "tool_calls", [("native", "answered")])
    assert any(note.startswith("the read was ended after a whole call") for note in got.trace["notes"])


@pytest.mark.parametrize("form", [FORM, {"type": "json_object"}])
@pytest.mark.parametrize("question", [QUESTION, "Bare?"])
def test_beside_the_form_of_an_answer_calls_are_made(connect, ask, server, question, form):
    got = ask(connect(server), server.name, question, tools=[WEATHER], response_format=form)
    assert (got.calls, got.content, got.finish_reason) == ([CALL], "", "tool_calls")
    assert got.attempts == [("native", "answered")]


def test_the_answer_after_the_results_comes_in_its_form(connect, ask, server):
    got = ask(connect(server), server.name, *HISTORY, tools=[WEATHER], response_format=FORM)
    assert (got.content, got.calls, got.finish_reason) == (FITS, [], "stop")
    assert got.attempts == [("native", "format"), ("native", "answered")]


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_an_answer_in_its_form_is_asked_for_once(connect, ask, server, mode):
    options = {"mode": mode}
    got = ask(connect(server), server.name, "Fits at once?", tools=[WEATHER], response_format=FORM, options=options)
    assert (got.content, got.attempts) == (FITS, [(mode, "answered")])


def test_the_clients_own_parsing_gets_its_object(connect, server):
    from pydantic import BaseModel

    class Sky(BaseModel):
        sky: str

    client = connect(server)
    made = client.chat.completions.parse(model=server.name, messages=HISTORY, tools=[STRICT], response_format=Sky)
    assert made.choices[0].message.parsed == Sky(sky="sunny")


STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True, "parameters": {
    **WEATHER["function"]["parameters"], "additionalProperties": False}}}  # fmt: skip
