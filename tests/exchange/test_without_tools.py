"""Requests without tools to which a model writes a call all the same: nothing is lost, and no turn is added.

Agents leave out the tools in their last turn, and gpt-oss goes on calling. By itself the server answers HTTP 500.
"""

import json

import pytest
from scripted import JSON, SSE, Answer, ask, call, error, event, play, reply, stream, target, text_of

from promptools.exchange.client_api import CHAT_API
from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response
from promptools.exchange.runner import run

GPT_OSS = {"family": "gpt-oss", "raw": "completions", "modes": ("native", "harmony", "prompt")}
ARGUMENTS = '{"command": "ls -la"}'
CALL = f"<|channel|>commentary to=functions.ls <|constrain|>json<|message|>{ARGUMENTS}"
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
OLLAMA = f"error parsing tool call: raw='{ARGUMENTS}', err=unexpected end of JSON input"
VLLM = "Unexpected token 173781 while expecting start token 200006"
LLAMACPP = f"Failed to parse input at pos 0: {CALL}"
ERRORS = {"ollama": OLLAMA, "vllm": VLLM, "llamacpp": LLAMACPP}
HISTORY = [
    {"role": "user", "content": "List the files."},
    {"role": "assistant", "content": None, "tool_calls": [call("ls", {"command": "ls"})]},
    {"role": "tool", "tool_call_id": "call00001", "content": "a.txt"},
]
ANTHROPIC_HISTORY = [
    {"role": "user", "content": "List the files."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {"command": "ls"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}]},
]
RESPONSES_HISTORY = [
    {"role": "user", "content": "List the files."},
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"command": "ls"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
]
OLLAMA_HISTORY = [
    {"role": "user", "content": "List the files."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "ls", "arguments": {"command": "ls"}}}],
    },
    {"role": "tool", "tool_name": "ls", "content": "a.txt"},
]
FRONTS = {
    "chat": (CHAT_API, run, "/v1/chat/completions", "messages", HISTORY),
    "responses": (RESPONSES_API, serve_response, "/v1/responses", "input", RESPONSES_HISTORY),
    "messages": (MESSAGES_API, serve_message, "/v1/messages", "messages", ANTHROPIC_HISTORY),
    "ollama": (OLLAMA_API, run, "/api/chat", "messages", OLLAMA_HISTORY),
}


def completion(text, finish="stop", *, streamed=False):
    choice = {"index": 0, "text": text, "finish_reason": finish}
    body = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    if streamed:
        return Answer(200, event(body) + b"data: [DONE]\n\n", SSE)
    return Answer(200, json.dumps(body).encode(), JSON)


def answered(text, *, streamed):
    return stream(text) if streamed else reply(text)


def request(front, *, streamed, history):
    api, begin, path, key, turns = FRONTS[front]
    said = turns if history else [{"role": "user", "content": "List the files."}]
    body = {"model": "m", key: said, "stream": streamed}
    if front == "messages":
        body["max_tokens"] = 100
    return body, {"front": api, "begin": begin, "url": f"http://server{path}"}


def said_to_the_server(seen):
    """Return every text of a user that the server was sent, in whatever form."""
    turns = []
    for body in seen.bodies:
        if "prompt" in body:
            turns.append(
                [part.partition("<|end|>")[0] for part in body["prompt"].split("<|start|>user<|message|>")[1:]]
            )
        else:
            turns.append([message["content"] for message in body["messages"] if message["role"] == "user"])
    return turns


@pytest.mark.parametrize("history", [False, True], ids=["plain", "history"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("server", ERRORS)
@pytest.mark.parametrize("front", FRONTS)
def test_what_the_model_wrote_is_the_content(front, server, streamed, history):
    body, how = request(front, streamed=streamed, history=history)
    again = completion(THOUGHT + CALL, streamed=streamed)
    seen = play(body, [error(ERRORS[server]), again], target=target(**GPT_OSS), **how)
    assert text_of(front, seen, streamed=streamed) == ARGUMENTS
    assert [each.outcome for each in seen.reply.trace.attempts] == [
        "harmony" if server == "vllm" else "server_parser",
        "answered",
    ]
    assert "no tool was offered: the call of 'ls' is text" in seen.reply.trace.notes
    assert all(turns == ["List the files."] for turns in said_to_the_server(seen))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("server", ["ollama", "llamacpp"])
@pytest.mark.parametrize("front", FRONTS)
def test_what_the_error_holds_is_the_content_where_no_attempt_has_more(front, server, streamed):
    body, how = request(front, streamed=streamed, history=False)
    seen = play(body, [error(ERRORS[server])] * 2, **how)
    assert text_of(front, seen, streamed=streamed) == ARGUMENTS
    assert "the answer is what the model wrote, as far as the server's error text contains it" in seen.reply.trace.notes
    assert seen.reply.trace.attempts[-1].outcome == "server_parser"


@pytest.mark.parametrize("tools", [False, True], ids=["text", "a call"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_what_an_error_held_is_a_reply_with_a_model_and_an_id(front, streamed, tools):
    body, how = request(front, streamed=streamed, history=False)
    if tools:
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        function = {"name": "ls", "parameters": schema}
        body["tools"] = [
            {"name": "ls", "input_schema": schema}
            if front == "messages"
            else {"type": "function", **(function if front == "responses" else {"function": function})}
        ]
    seen = play(body, [error(LLAMACPP)] * 2, spare=tools, **how)
    sent = [json.loads(line) for line in seen.lines] if streamed and front == "ollama" else []
    heads = (sent or seen.events) if streamed else [seen.json]
    head = next(
        (each[key] for each in heads for key in ("response", "message") if "model" in each.get(key, {})), heads[0]
    )
    assert head["model"] == "m"
    if front != "ollama":
        assert head["id"] not in {"", "msg_"}


@pytest.mark.parametrize("text", ["ls -la", "{'a': 1}', err=x", '{"a": "\n"}'])
def test_what_the_error_holds_comes_byte_for_byte(text):
    failure = error(f"error parsing tool call: raw='{text}', err=invalid character")
    assert play(ask(), [failure, failure]).message["content"] == text


@pytest.mark.parametrize("status", [500, 400])
@pytest.mark.parametrize("front", FRONTS)
def test_an_error_without_the_models_words_is_the_servers_own(front, status):
    body, how = request(front, streamed=False, history=False)
    seen = play(body, [error(VLLM, status)] * 2, **how)
    assert seen.head.status == status
    assert VLLM in seen.body.decode()
    assert "attempts" not in seen.body.decode()
    alone = error(VLLM, status)
    assert seen.body == alone.body or front in {"messages", "ollama"}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_thoughts_alone_do_not_take_the_place_of_an_error(streamed):
    again = completion("<|channel|>analysis<|message|>Hm.<|end|>", streamed=streamed)
    seen = play(
        ask(stream=streamed, messages=HISTORY), [error(VLLM), again, error(VLLM), error(VLLM)], target=target(**GPT_OSS)
    )
    if streamed:
        assert VLLM in seen.events[-1]["error"]["message"]
        assert not seen.done
    else:
        assert seen.head.status == 500
        assert seen.body == error(VLLM).body
    assert all(len(turns) == 1 for turns in said_to_the_server(seen)[:2])


def test_a_better_attempt_is_the_answer():
    seen = play(ask(), [error(OLLAMA), reply("There is a.txt.")])
    assert seen.message["content"] == "There is a.txt."


def test_a_call_that_the_server_hands_over_is_passed_on_at_once():
    """As in a reply that is forwarded: Ollama reads calls of tools that it was not sent."""
    seen = play(ask(messages=HISTORY), [reply(calls=[call("ls", {"command": "ls"})], finish="tool_calls")])
    assert [each["function"]["name"] for each in seen.message["tool_calls"]] == ["ls"]
    assert len(seen.sent) == 1


@pytest.mark.parametrize("mode", ["native", "harmony", "prompt"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_no_mode_adds_a_turn(mode, streamed):
    """Nothing but a call, nothing but thoughts, and nothing at all are each no reason for words of ours."""
    for said in (CALL, "<|channel|>analysis<|message|>Hm.<|end|>", "<|channel|>commentary to=functions.ls<|message|>"):
        make = (
            (lambda text: completion(text, streamed=streamed))
            if mode == "harmony"
            else (lambda text: answered(text, streamed=streamed))
        )
        where = target(**{**GPT_OSS, "modes": (mode,)})
        seen = play(ask(stream=streamed, messages=HISTORY, promptools={"mode": mode}), [make(said)] * 3, spare=True,
                    target=where)  # fmt: skip
        first, *others = seen.bodies
        assert all(body == first for body in others)


def test_a_call_without_arguments_is_not_an_answer():
    bare = completion("<|channel|>commentary to=functions.ls<|message|>")
    seen = play(ask(), [error(VLLM), bare], target=target(**GPT_OSS))
    assert (seen.head.status, seen.body) == (500, error(VLLM).body)


def test_calls_after_words_are_words_too():
    said = f"<|channel|>commentary<|message|>I look.\n<|end|><|start|>assistant{CALL}"
    seen = play(ask(), [error(VLLM), completion(said)], target=target(**GPT_OSS))
    assert seen.message["content"] == f"I look.\n{ARGUMENTS}"


def test_under_tool_choice_none_calls_alone_are_text_when_all_is_used_up():
    from scripted import WEATHER

    called = reply(calls=[call("get_weather", {"city": "Paris"})], finish="tool_calls")
    seen = play(ask(WEATHER, tool_choice="none"), [called] * 3, spare=True)
    assert "tool_calls" not in seen.message
    assert seen.message["content"] == '{"city": "Paris"}'
