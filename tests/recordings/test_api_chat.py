"""What a real Ollama said on /api/chat, replayed: each exchange recorded, body byte for byte, with what it was sent."""

import json
from pathlib import Path

import pytest
from scripted import Answer, play, target

from promptools.profiles import resolve

HERE = Path(__file__).parent
RECORDED = {each["name"]: each for each in json.loads((HERE / "api_chat" / "ollama.json").read_text())}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Lima"}}\n```'
PARIS = '{"city": "Paris"}'
SPAGHETTI = '{"city": "Paris", "days": 3}'
MARKED = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'

ANSWERED = {
    # what came in one send: content, reasoning, arguments of each call, finish reason
    "go hermes": ("I'll check.\n", "", [PARIS], "tool_calls"),
    "go hermes2": ("", "", [PARIS, '{"city": "Rome"}'], "tool_calls"),
    "go hermes_after": ("", "", [PARIS], "tool_calls"),
    "go hermes_noclose": ("", "", [PARIS], "tool_calls"),
    "go hermes_strargs": ("", "", [PARIS], "tool_calls"),
    "go hermes_types": ("", "", ['{"city": "12", "days": 3}'], "tool_calls"),
    "go hermes_think": ("", "I need the tool.", [PARIS], "tool_calls"),
    "go plainjson": ("", "", [PARIS], "tool_calls"),
    "go utf8": ("Grüße 你好 🙂🙃 café — done ✓.", "", [], "stop"),
    "go stream hermes": ("I'll check.\n", "", [PARIS], "tool_calls"),
    "go stream hermes2": ("", "", [PARIS, '{"city": "Rome"}'], "tool_calls"),
    "go stream hermes_think": ("", "I need the tool.", [PARIS], "tool_calls"),
    "go stream plainjson": ("", "", [PARIS], "tool_calls"),
    "go truncated num_predict": ("", "", [], "length"),
    "go call without tools in request": (f"I'll check.\n{MARKED}", "", [], "stop"),
    "go second turn object args": ("It is sunny in Paris.", "", [], "stop"),
    "go format json": ('{"city": "Paris", "sky": "clear"}', "", [], "stop"),
    "jinja hermes": ("I'll check.\n", "", [PARIS], "tool_calls"),
    "jinja hermes2": ("", "", [PARIS, '{"city": "Rome"}'], "tool_calls"),
    "jinja stream hermes": ("I'll check.\n", "", [PARIS], "tool_calls"),
    "gptoss weather": ("", "Need the tool.", [PARIS], "tool_calls"),
    "gptoss preamble": ("Checking now.", "", [PARIS], "tool_calls"),
    "gptoss stream weather": ("", "Need the tool.", [PARIS], "tool_calls"),
    "gptoss stream preamble": ("Checking now.", "", [PARIS], "tool_calls"),
    "gptoss think='high' weather": ("", "Need the tool.", [PARIS], "tool_calls"),
    "gptoss truncated in analysis": ("", "a b c d e f g h i j k l", [], "length"),
    "gptoss truncated in arguments": ("", "Need the tool.", [], "length"),
    "gptoss second turn": ("It is sunny in Paris.", "Have it.", [], "stop"),
    "gptoss second turn stream": ("It is sunny in Paris.", "Have it.", [], "stop"),
    "coder qwencoder": ("Let me look.", "", [SPAGHETTI], "tool_calls"),
    "coder stream qwencoder": ("Let me look.", "", [SPAGHETTI], "tool_calls"),
    "think think=True hermes_think": ("", "I need the tool.", [PARIS], "tool_calls"),
    "think think=False think": ("Hello.", "hmm", [], "stop"),
}

FAILED = {
    # what the server did wrong: what it is taken for, and the mode that is asked next
    "go hermes_bad": ("swallowed", "prompt"),
    "go hermes_unknown": ("swallowed", "prompt"),
    "go qwencoder": ("empty_calls", "prompt"),  # 36 tokens and 12 characters: the call after the text was dropped
    "go stream hermes_bad": ("swallowed", "prompt"),
    "jinja qwencoder": ("server_parser", "prompt"),
    "jinja truncated num_predict": ("server_parser", "prompt"),
    "notools tools on model without tools": ("no_native_tools", "prompt"),
    "notools tools on model without tools stream": ("no_native_tools", "prompt"),
    "gptoss badjson": ("server_parser", "prompt"),
    "gptoss badjson2": ("server_parser", "prompt"),
    "gptoss noheader": ("swallowed", "prompt"),
    "gptoss unknown_tool": ("unknown_tool", "native"),
    "gptoss nostart": ("swallowed", "prompt"),
    "gptoss stream badjson": ("server_parser", "prompt"),
    "gptoss stream badjson2": ("server_parser", "prompt"),
    "gptoss stream unknown_tool": ("unknown_tool", "native"),
    "coder qwencoder_bad": ("server_parser", "prompt"),
    "coder hermes": ("server_parser", "prompt"),
    "think think=None finalonly": ("swallowed", "prompt"),
    "go think=true on model without thinking": ("reasoning_param", "native"),
    "jinja context overflow": ("overflow", "native"),
}

OTHERS = {
    "coder stream hermes",
    "go context overflow truncate false",
    "gptoss no tools weather",
    "runner killed mid-stream",
    "unknown model",
}


def asked(name, *more, cut=0):
    """Replay a recorded answer to the same request in Chat Completions; `more` answers follow it."""
    recorded = RECORDED[name]
    headers = (("content-type", recorded["content_type"]),)
    answer = Answer(recorded["status"], recorded["body"].encode(), headers, cut)
    profile = resolve("none", provider="ollama").profile
    facts = {each: getattr(profile, each) for each in ("wire", "tool_choice", "n", "parallel_tool_calls", "swallows")}
    return play(recorded["request"], [answer, *more], target=target(**facts))


def line(content, *, done=True, **more):
    """Write a line of /api/chat, which is a whole reply too."""
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 9} if done else {"done": False}
    said = {"model": "m", "created_at": "2026-11-21T08:03:14Z", "message": {"role": "assistant", "content": content}}
    return json.dumps(said | end | more).encode() + b"\n"


def after(name):
    """Return an answer that mends everything, in the form that the request wants."""
    if RECORDED[name]["request"].get("stream"):
        body = line(FENCED[:9], done=False) + line(FENCED[9:], done=False) + line("")
        return Answer(200, body, (("content-type", "application/x-ndjson"),))
    return Answer(200, line(FENCED), (("content-type", "application/json; charset=utf-8"),))


def said(seen):
    """Return what the client got: content, reasoning, calls, finish reason."""
    if "json" in seen.headers["content-type"]:
        message = seen.message
        calls = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        return message["content"] or "", message.get("reasoning", ""), calls, seen.json["choices"][0]["finish_reason"]
    one = seen.choice()
    assert seen.done
    return one.content, one.reasoning, [each["arguments"] for each in one.calls.values()], *one.finish


def test_every_recording_is_used_once():
    assert {*ANSWERED, *FAILED, *OTHERS} == set(RECORDED)
    assert len(ANSWERED) + len(FAILED) + len(OTHERS) == len(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_the_request_is_written_as_the_recorded_one(name):
    recorded = RECORDED[name]
    seen = asked(name, *([after(name)] if name in FAILED else []))
    assert seen.sent[0].url == "http://server/api/chat"
    assert seen.bodies[0] == {"stream": False, **recorded["sent"], "truncate": False}


@pytest.mark.parametrize("cut", [0, 1, 17])
@pytest.mark.parametrize("name", ANSWERED)
def test_what_was_right_goes_through(name, cut):
    seen = asked(name, cut=cut)
    assert said(seen) == ANSWERED[name]
    assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["answered"]


@pytest.mark.parametrize("name", ["go hermes", "go stream hermes", "gptoss second turn stream"])
def test_the_counts_are_the_usage(name):
    recorded = RECORDED[name]
    last = json.loads(recorded["body"].strip().split("\n")[-1])
    usage = asked(name).reply.trace.attempts[0].usage
    assert usage == {
        "prompt_tokens": last["prompt_eval_count"],
        "completion_tokens": last["eval_count"],
        "total_tokens": last["prompt_eval_count"] + last["eval_count"],
    }


@pytest.mark.parametrize("cut", [0, 1, 17])
@pytest.mark.parametrize("name", FAILED)
def test_what_was_wrong_is_asked_for_again(name, cut):
    seen = asked(name, after(name), cut=cut)
    kind, mode = FAILED[name]
    assert [(attempt.mode, attempt.outcome) for attempt in seen.reply.trace.attempts] == [
        ("native", kind),
        (mode, "answered"),
    ]
    content, _, calls, finish = said(seen)
    assert (content, calls, finish) == ("", ['{"city": "Lima"}'], "tool_calls")
    assert [request.url for request in seen.sent] == ["http://server/api/chat"] * 2
    assert seen.bodies[1] != seen.bodies[0]


def test_a_context_that_the_request_names_is_not_raised():
    seen = asked("go context overflow truncate false")
    assert seen.head.status == 400
    assert seen.json["error"]["code"] == "context_length_exceeded"
    assert "the prompt has 30352 tokens, and the context holds 2048" in seen.json["error"]["message"]


def test_a_call_though_no_tools_were_sent_is_passed_on_as_by_the_server():
    _, _, calls, finish = said(asked("gptoss no tools weather"))
    assert (len(calls), finish) == (1, "tool_calls")


def test_an_error_after_content_comes_in_band():
    seen = asked("coder stream hermes")
    assert seen.choice().content == "I'll check."
    assert seen.events[-1]["error"]["code"] == "server_parser"
    assert not seen.done


def test_a_runner_that_died_after_content_is_an_error_in_the_stream():
    seen = asked("runner killed mid-stream")
    assert seen.choice().content == "word word word it"
    assert seen.events[-1]["error"]["code"] == "cut"
    assert "error was encountered while running the model" in seen.events[-1]["error"]["message"]
    assert not seen.done


def test_an_unknown_model_is_an_error_as_openai_writes_it():
    seen = asked("unknown model")
    assert seen.head.status == 404
    assert seen.json["error"] == {
        "message": "model 'nope' not found",
        "type": "not_found_error",
        "param": None,
        "code": None,
    }
