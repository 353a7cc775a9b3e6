"""Calls of tools that a request does not declare: handed over where the option `undeclared` says so."""

import json

import pytest
from scripted import NOW, URL, WEATHER, Answer, ask, call, play, reply, stream, target

from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response

CALL = {"undeclared": "call"}
ARGUMENTS = '{"path": "."}'
TREE = ("print_tree", ARGUMENTS)
HERMES = f'<tool_call>\n{{"name": "print_tree", "arguments": {ARGUMENTS}}}\n</tool_call>'
CODER = "<tool_call>\n<function=print_tree>\n<parameter=path>\n.\n</parameter>\n</function>\n</tool_call>"
THOUGHT = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant"
HARMONY = f"{THOUGHT}<|channel|>analysis to=repo_browser.print_tree code<|message|>{ARGUMENTS}"
NATIVE = reply(calls=[TREE], finish="tool_calls")
STREAMED = stream({"tool_calls": [{"index": 0, **call(*TREE)}]}, finish="tool_calls")
FORMS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
OFFERED = pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["no tools", "another tool"])


def oss(**facts):
    return target(raw="llamacpp", modes=("native", "harmony"), family="gpt-oss", context=131_072, **facts)


def completion(text, streamed):
    end = {"stop": True, "stop_type": "word", "stopping_word": "<|call|>", "tokens_predicted": 9, "tokens_evaluated": 9}
    if not streamed:
        return Answer(200, json.dumps({"index": 0, "content": text, **end}).encode())
    parts = [{"index": 0, "content": letter, "stop": False} for letter in text] + [{"index": 0, "content": "", **end}]
    data = b"".join(b"data: %b\n\n" % json.dumps(part).encode() for part in parts)
    return Answer(200, data, (("content-type", "text/event-stream"),))


def calls(seen, *, streamed):
    if streamed:
        choice = seen.choice()
        return [(one["name"], one["arguments"]) for one in choice.calls.values()], choice.finish[0]
    choice = seen.json["choices"][0]
    given = choice["message"].get("tool_calls", ())
    return [(one["function"]["name"], one["function"]["arguments"]) for one in given], choice["finish_reason"]


@FORMS
@OFFERED
def test_the_servers_own_call(tools, streamed):
    body = ask(*tools, stream=streamed, promptools={**CALL, "trace": True})
    seen = play(body, [STREAMED if streamed else NATIVE])
    assert calls(seen, streamed=streamed) == ([TREE], "tool_calls")
    assert seen.reply.calls[0].unknown_tool
    report = seen.events[-1]["promptools"] if streamed else seen.json["promptools"]
    assert report["notes"] == ["the call of 'print_tree' was handed over: the tool is not declared"]
    assert report["choices"][0]["undeclared"] == ["call00001"]


@FORMS
@OFFERED
@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("text", [HERMES, f"I look.\n{HERMES}", CODER, f"I look.\n{CODER}"])
def test_a_call_in_text(text, mode, tools, streamed):
    facts = target(modes=(mode,), dialect="hermes")
    answer = stream(*text) if streamed else reply(text)
    seen = play(ask(*tools, stream=streamed, promptools=CALL), [answer], target=facts)
    (((name, arguments),), finish) = calls(seen, streamed=streamed)
    assert (name, json.loads(arguments), finish) == ("print_tree", {"path": "."}, "tool_calls")


@FORMS
@OFFERED
def test_in_harmony_mode(tools, streamed):
    body = ask(*tools, stream=streamed, promptools={**CALL, **({"mode": "harmony"} if tools else {})})
    seen = play(body, [completion(HARMONY, streamed)], target=oss())
    assert seen.sent[0].url == "http://server/completion"  # without tools the first mode to try
    assert calls(seen, streamed=streamed) == ([("repo_browser.print_tree", ARGUMENTS)], "tool_calls")
    assert "repo_browser" not in seen.bodies[0]["prompt"]


@pytest.mark.parametrize(
    ("body", "arguments"), [("print(1)", '{"input": "print(1)"}'), ("[1]", '{"input": "[1]"}'), ("", "{}")]
)
def test_free_text_is_the_input(body, arguments):
    text = f"{THOUGHT}<|channel|>analysis to=python code<|message|>{body}"
    seen = play(ask(promptools=CALL), [completion(text, streamed=False)], target=oss())
    assert calls(seen, streamed=False) == ([("python", arguments)], "tool_calls")


def test_as_an_option_of_the_client_it_goes_through_an_exchange():
    seen = play(ask(), [reply(HERMES)], options=CALL)
    assert calls(seen, streamed=False) == ([TREE], "tool_calls")


@pytest.mark.parametrize("options", [{}, {"undeclared": "auto"}, {**CALL, "strictness": "strict"}])
def test_otherwise_it_is_text_or_refused(options):
    handed = options.get("strictness") == "strict"
    seen = play(ask(promptools=options), [reply(HERMES)])
    assert calls(seen, streamed=False)[0] == ([TREE] if handed else [])
    assert seen.json["choices"][0]["message"]["content"] == (None if handed else HERMES)


@pytest.mark.parametrize(
    "text",
    [
        'A call looks like {"name": "print_tree", "arguments": {}}.',
        f"```json\n{ARGUMENTS}\n```",
        f"Write `{HERMES}` to call it.",
        '```json\n{"name": "print_tree", "arguments": {}}\n```',
        "print_tree(path='.')",
    ],
)
def test_what_may_be_text_is_text(text):
    seen = play(ask(promptools=CALL), [reply(text)])
    assert (calls(seen, streamed=False), seen.message["content"]) == (([], "stop"), text)


@pytest.mark.parametrize("choice", ["none", {"type": "function", "function": {"name": "get_weather"}}])
def test_what_the_request_forbids_is_forbidden(choice):
    answers = [NATIVE, reply("No.")] if choice == "none" else [NATIVE, NATIVE]
    seen = play(
        ask(WEATHER, tool_choice=choice, promptools=CALL), answers, target=target(modes=("native",)), spare=True
    )
    assert calls(seen, streamed=False)[0] == []


def test_a_declared_tool_that_must_not_be_called_now_is_refused():
    allowed = {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "function", "name": "now"}]}}
    paris = reply(calls=[("get_weather", {"city": "Paris"})])
    body = ask(WEATHER, NOW, tool_choice=allowed, promptools=CALL)
    seen = play(body, [paris, reply("No.")], target=target(modes=("native",)))
    assert (calls(seen, streamed=False)[0], seen.message["content"]) == ([], "No.")


def test_a_part_of_a_header_is_not_a_tool():
    seen = play(ask(WEATHER, promptools=CALL), [reply(calls=[("commentary", "{}")]), reply("Hi.")], spare=True)
    assert calls(seen, streamed=False)[0] == []


def test_one_that_was_cut_is_not_a_call():
    answer = completion(HARMONY[:-3], streamed=False)
    cut = json.loads(answer.body) | {"stop_type": "limit"}
    seen = play(ask(promptools=CALL), [Answer(200, json.dumps(cut).encode())], target=oss(), spare=True)
    assert calls(seen, streamed=False) == ([], "length")


def test_a_body_that_is_not_an_object_is_malformed():
    text = f'{THOUGHT}<|channel|>commentary to=functions.add json<|message|>{{"a": 1 2]}}'
    options = {**CALL, "corrections": 0}
    seen = play(ask(promptools=options), [completion(text, streamed=False), reply("Hi.")], target=oss(), spare=True)
    assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["malformed", "answered"]


def test_through_the_other_apis():
    front = {"url": "http://server/v1/responses", "front": RESPONSES_API, "begin": serve_response}
    seen = play({"model": "m", "input": "hi"}, [NATIVE], options=CALL, **front)
    (item,) = (item for item in seen.json["output"] if item["type"] == "function_call")
    assert (item["name"], item["arguments"]) == TREE
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    seen = play(body, [NATIVE], options=CALL, url=URL, front=MESSAGES_API, begin=serve_message)
    assert [(part["name"], part["input"]) for part in seen.json["content"]] == [("print_tree", {"path": "."})]
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    seen = play(body, [NATIVE], options=CALL, url="http://server/api/chat", front=OLLAMA_API)
    assert seen.json["message"]["tool_calls"][0]["function"]["name"] == "print_tree"
