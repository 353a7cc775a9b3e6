"""What real servers sent, replayed: each exchange recorded from the server that it names, body byte for byte."""

import json
from pathlib import Path

import pytest
from scripted import WEATHER, Answer, ask, play, reply, stream

from promptools.profiles import Target, resolve

HERE = Path(__file__).parent
RECORDED = {
    (path.stem, each["name"]): each for path in sorted(HERE.glob("*.json")) for each in json.loads(path.read_text())
}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Lima"}}\n```'
PARIS = '{"city": "Paris"}'
TIGHT = '{"city":"Paris"}'

CALLS = {
    ("vllm", "gpt-oss without a header"): ("Hello there with no header", "", []),
    # what the server got right goes through in one send: content, reasoning, arguments of each call
    ("vllm", "gpt-oss call"): ("", "Need the tool.", [PARIS]),
    ("vllm", "gpt-oss call, streamed"): ("", "Need the tool.", [PARIS]),
    ("vllm", "gpt-oss commentary and a call"): ("I will call two tools.", "", [PARIS]),
    ("vllm", "gpt-oss commentary and a call, streamed"): ("I will call two tools.", "", [PARIS]),
    ("vllm", "gpt-oss without functions."): ("", "", [PARIS]),
    ("vllm", "hermes call"): ("I'll check.\n", "", [PARIS]),
    ("vllm", "hermes call, streamed"): ("I'll check.\n", "", [PARIS]),
    ("vllm", "hermes two calls, streamed"): ("", "", [PARIS, '{"city": "Rome"}']),
    ("vllm", "hermes thoughts in content, streamed"): ("Hello.", "hmm", []),
    ("llamacpp", "gpt-oss call"): ("", "Need the tool.", [PARIS]),
    ("llamacpp", "gpt-oss call, streamed"): ("", "Need the tool.", [PARIS]),
    ("llamacpp", "hermes call, streamed"): ("I'll check.\n", "", [PARIS]),
    ("llamacpp", "hermes two calls, one allowed"): ("", "", [PARIS]),
    ("ollama", "call"): ("I'll check.\n", "", [TIGHT]),
    ("ollama", "call, streamed"): ("I'll check.\n", "", [TIGHT]),
    ("ollama", "two calls, streamed"): ("", "", [TIGHT, '{"city":"Rome"}']),
    ("ollama", "two calls, one allowed"): ("", "", [TIGHT]),
    ("ollama", "gpt-oss call, streamed"): ("", "Need the tool.", [TIGHT]),
    ("ollama", "gpt-oss preamble"): ("Checking now.", "", [TIGHT]),
    ("ollama", "qwen3-coder call"): ("Let me look.", "", ['{"city":"Paris","days":3}']),
    # calls that the server left in the text
    ("vllm", "hermes bare JSON"): ("", "", [PARIS]),
    ("vllm", "hermes bare JSON, streamed"): ("", "", [PARIS]),
    ("llamacpp", "hermes bare JSON"): ("", "", [PARIS]),
    ("ollama", "bare JSON, streamed"): ("", "", [PARIS]),
    ("others", "llama-cpp-python, never parsed"): ("I'll check.", "", [PARIS]),
    ("others", "llama-cpp-python, required"): ("I'll check.", "", [PARIS]),
    # calls that the server let through although none was allowed
    ("ollama", "tool_choice none"): ("I'll check.\n", "", []),
}

CUT = {
    # a call that the limit cut is content, never a call, and never asked for again
    ("vllm", "hermes required, cut"): '<tool_call>{"name": "get_weather", "arg',
    ("llamacpp", "gpt-oss cut arguments"): None,
    ("llamacpp", "gpt-oss cut arguments, streamed"): None,
    ("llamacpp", "hermes cut in a call"): "I'll check.\n{",
    ("others", "llama-cpp-python, streamed and cut"): 'I\'ll check.\n<tool_call>\n{"name": "get_wea',
    # thoughts, or a swallowed call, that the limit cut: the server says so, and that stands
    ("vllm", "gpt-oss cut thoughts"): "",
    ("vllm", "gpt-oss cut thoughts, streamed"): "",
    ("ollama", "cut in a call"): "",
    ("ollama", "cut in a call, streamed"): "",
}

FAILED = {
    # what the server did wrong: what it is taken for, and the mode that is asked next
    ("vllm", "gpt-oss HarmonyError"): ("harmony", "prompt"),
    ("vllm", "gpt-oss HarmonyError, streamed"): ("harmony", "prompt"),
    ("vllm", "gpt-oss cut arguments"): ("truncated", "prompt"),
    ("vllm", "gpt-oss cut arguments, streamed"): ("truncated", "prompt"),
    ("vllm", "gpt-oss doubled start"): ("swallowed", "prompt"),
    ("vllm", "gpt-oss doubled start, streamed"): ("swallowed", "prompt"),
    ("vllm", "gpt-oss unknown tool"): ("unknown_tool", "native"),
    ("vllm", "gpt-oss unknown tool, streamed"): ("unknown_tool", "native"),
    ("vllm", "gpt-oss no flags"): ("swallowed", "prompt"),
    ("vllm", "gpt-oss no flags, streamed"): ("swallowed", "prompt"),
    ("vllm", "gpt-oss no flags, required"): ("swallowed", "prompt"),
    ("vllm", "no flags"): ("no_native_tools", "prompt"),
    ("vllm", "no flags, streamed"): ("no_native_tools", "prompt"),
    ("vllm", "no flags, required"): ("no_native_tools", "prompt"),
    ("vllm", "no flags, named"): ("no_native_tools", "prompt"),
    ("vllm", "hermes required, arguments that are no objects"): ("malformed", "native"),
    ("vllm", "hermes required, arguments that are no objects, streamed"): ("malformed", "native"),
    ("vllm", "hermes named, arguments that are no object"): ("malformed", "native"),
    ("vllm", "hermes broken"): ("malformed", "native"),
    ("vllm", "hermes broken, streamed"): ("truncated", "prompt"),
    ("llamacpp", "gpt-oss without a header"): ("server_parser", "prompt"),
    ("llamacpp", "gpt-oss without a header, streamed"): ("server_parser", "prompt"),
    ("llamacpp", "gpt-oss doubled start"): ("swallowed", "prompt"),
    ("llamacpp", "gpt-oss doubled start, streamed"): ("swallowed", "prompt"),
    ("llamacpp", "hermes required, not met"): ("choice", "prompt"),
    ("llamacpp", "broken arguments in the history"): ("history", "native"),
    ("ollama", "broken"): ("swallowed", "prompt"),
    ("ollama", "broken, streamed"): ("swallowed", "prompt"),
    ("ollama", "unknown tool"): ("swallowed", "prompt"),
    ("ollama", "required, not met"): ("choice", "native"),
    ("ollama", "broken arguments in the history"): ("history", "native"),
    ("ollama", "gguf template, cut in a call"): ("server_parser", "prompt"),
    ("ollama", "template without tools"): ("no_native_tools", "prompt"),
    ("ollama", "template without tools, streamed"): ("no_native_tools", "prompt"),
    ("ollama", "gpt-oss cut arguments"): ("server_parser", "prompt"),
    ("ollama", "gpt-oss broken arguments"): ("server_parser", "prompt"),
    ("ollama", "gpt-oss broken arguments, streamed"): ("cut", "prompt"),
    ("ollama", "qwen3-coder broken"): ("server_parser", "prompt"),
    ("ollama", "qwen3-coder JSON body"): ("server_parser", "prompt"),
    ("ollama", "thinking without an end"): ("swallowed", "prompt"),
    ("ollama", "no thinking"): ("reasoning_param", "native"),
    ("others", "transformers serve, required"): ("choice", "prompt"),
}

OPEN = {
    # calls of which much has gone out when the limit cuts them
    ("llamacpp", "gpt-oss cut arguments, streamed"),
}

CONTROL = {
    # constrained decoding lets control characters into strings: the arguments of the call that is read from them
    ("vllm", "json_schema with a control character"): {"city": "]}}}G\x08"},
    ("vllm", "json_schema with another control character"): {"city": "}30N\x1a>"},
}

OTHERS = {
    ("vllm", "gpt-oss HarmonyError after content, streamed"),
    ("vllm", "unknown model"),
    ("vllm", "context overflow"),
    ("llamacpp", "gpt-oss call without tools"),
    ("ollama", "runner killed, streamed"),
    ("ollama", "unknown model"),
}


def played(name, *more, cut=0, whole=False):
    """Replay a recorded answer; `more` answers follow it."""
    recorded = RECORDED[name]
    headers = (("content-type", recorded["content_type"]),)
    request = recorded["request"] | ({"promptools": {"arguments": "whole"}} if whole else {})
    return play(request, [Answer(recorded["status"], recorded["body"].encode(), headers, cut), *more])


def after(name):
    """Return an answer that mends everything, in the form that the request wants."""
    return stream(FENCED) if RECORDED[name]["request"].get("stream") else reply(FENCED)


def said(seen):
    """Return what the client got: content, reasoning, calls, finish reason."""
    if "json" in seen.headers["content-type"]:
        message = seen.message
        calls = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        finish = seen.json["choices"][0]["finish_reason"]
        return message["content"] or "", message.get("reasoning", ""), calls, finish
    one = seen.choice()
    assert seen.done
    return one.content, one.reasoning, [each["arguments"] for each in one.calls.values()], *one.finish


def test_every_recording_is_used_once():
    assert {*CALLS, *CUT, *FAILED, *CONTROL, *OTHERS} == set(RECORDED)
    assert sum(map(len, (CALLS, CUT, FAILED, CONTROL, OTHERS))) == len(RECORDED)


def label(name):
    return " ".join(name)


@pytest.mark.parametrize("cut", [0, 1, 17])
@pytest.mark.parametrize("name", CALLS, ids=label)
def test_what_was_right_goes_through(name, cut):
    seen = played(name, cut=cut)
    content, reasoning, calls = CALLS[name]
    assert said(seen) == (content, reasoning, calls, "tool_calls" if calls else "stop")
    assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["answered"]
    assert json.dumps([call.arguments for call in seen.reply.calls]) == json.dumps([json.loads(each) for each in calls])


@pytest.mark.parametrize("cut", [0, 17])
@pytest.mark.parametrize("name", CUT, ids=label)
def test_what_was_cut_is_not_a_call(name, cut):
    seen = played(name, cut=cut, whole=name in OPEN)
    content, _, calls, finish = said(seen)
    assert calls == []
    assert finish == "length"
    assert CUT[name] in {None, content}
    assert len(seen.sent) == 1


@pytest.mark.parametrize("cut", [0, 1, 17])
@pytest.mark.parametrize("name", FAILED, ids=label)
def test_what_was_wrong_is_asked_for_again(name, cut):
    seen = played(name, after(name), cut=cut)
    kind, mode = FAILED[name]
    assert [(attempt.mode, attempt.outcome) for attempt in seen.reply.trace.attempts] == [
        ("native", kind),
        (mode, "answered"),
    ]
    content, _, calls, finish = said(seen)
    assert (content, calls, finish) == ("", ['{"city": "Lima"}'], "tool_calls")
    assert seen.bodies[1] != seen.bodies[0]


@pytest.mark.parametrize("cut", [0, 1, 17])
@pytest.mark.parametrize("name", OPEN, ids=label)
def test_what_has_gone_out_and_was_cut_stays_open(name, cut):
    seen = played(name, cut=cut)
    content, _, (call,), finish = said(seen)
    assert (content, finish, seen.reply.calls) == ("", "length", ())
    with pytest.raises(json.JSONDecodeError):
        json.loads(call)


@pytest.mark.parametrize("name", CONTROL, ids=label)
def test_control_characters_in_what_was_constrained_are_read(name):
    # the schema is the one that prompt mode forces vLLM into, where a call must come
    asked = {**ask(WEATHER, tool_choice="required"), "promptools": {"mode": "prompt"}}
    vllm = Target("vllm", None, "", None, resolve("tiny", provider="vllm").profile)
    seen = play(asked, [Answer(200, RECORDED[name]["body"].encode())], target=vllm)
    assert seen.bodies[0]["structured_outputs"]["json"]["properties"]["tool"] == {"const": "get_weather"}
    (call,) = seen.reply.calls
    assert call.arguments == json.loads(call.arguments_json) == CONTROL[name]
    assert [fix.detail for fix in call.fixes] == ["control character in a string"]


def test_an_error_after_content_comes_in_band():
    seen = played(("vllm", "gpt-oss HarmonyError after content, streamed"))
    assert seen.choice().content == "x"
    assert seen.events[-1]["error"]["code"] == "harmony"
    assert not seen.done


@pytest.mark.parametrize("server", ["vllm", "ollama"])
def test_an_unknown_model_is_the_servers_to_tell(server):
    seen = played((server, "unknown model"))
    assert seen.head.status == 404
    assert seen.body.decode() == RECORDED[server, "unknown model"]["body"]


def test_a_full_context_is_told_in_the_servers_words_and_in_ours():
    seen = played(("vllm", "context overflow"))
    assert seen.head.status == 400
    assert seen.headers["x-should-retry"] == "false"
    told = seen.json["error"]
    assert told["code"] == "context_length_exceeded"
    alone = json.loads(RECORDED["vllm", "context overflow"]["body"])["error"]
    assert told["type"] == alone["type"] == "BadRequestError"
    assert told["message"].startswith(
        f"{alone['message']} The conversation does not fit: the prompt has at least 2049 tokens, and the context holds"
        " 2048. Shorten it"
    )
    assert [attempt["outcome"] for attempt in told["attempts"]] == ["overflow"]


def test_a_call_without_tools_is_swallowed_and_asked_for_again():
    name = ("llamacpp", "gpt-oss call without tools")
    seen = played(name, reply("It is sunny."))
    assert seen.message["content"] == "It is sunny."
    assert seen.reply.trace.attempts[0].outcome == "swallowed"


def test_a_runner_that_died_after_content_passes_as_it_came_and_ends_in_an_error():
    name = ("ollama", "runner killed, streamed")
    seen = played(name)
    assert seen.body.decode().startswith(RECORDED[name]["body"])
    assert seen.events[-1]["error"]["code"] == "cut"
    assert not seen.done
