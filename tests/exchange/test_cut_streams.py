"""Streams that the server cuts at quoted tags, as vLLM's parser `hermes` does: nothing goes out that cannot be kept."""

import json

import pytest
from scripted import WEATHER, ask, play, reply, stream, target

from promptools.profiles import resolve

TARGET = target(cuts_streams=True)
CITY = "Paris, on the Seine, below the bridge"
PARIS = {"city": CITY}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
OPENER, CLOSER = "<tool_call>", "</tool_call>"


def hermes(arguments):
    return f'{OPENER}\n{{"name": "get_weather", "arguments": {arguments}}}\n{CLOSER}'


def said(text, size=5, finish="tool_calls", **usage):
    """Stream a reply as vLLM 0.28 to 0.32 do: text up to the first opener, then JSON up to the next closer."""
    deltas = []
    content, opener, rest = text.partition(OPENER)
    deltas += [content[at : at + size] for at in range(0, len(content), size)]
    body, closed, _ = rest.partition(CLOSER)
    _, name, arguments = body.partition('"arguments": ')
    if opener and name:
        head = {"name": "get_weather"}
        deltas.append({"tool_calls": [{"index": 0, "id": "abc", "type": "function", "function": head}]})
        arguments = arguments.strip().removesuffix("}") if closed else arguments
        for at in range(0, len(arguments), size):
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + size]}}]})
    return stream(*deltas, finish=finish if opener and name else "stop", usage=usage or None)


def calls(seen):
    return [json.loads(call["arguments"]) for call in seen.choice().calls.values()]


def call_chunks(seen):
    return [chunk for chunk in seen.choice().chunks if chunk["delta"].get("tool_calls")]


CUT = [
    pytest.param(hermes(f'{{"city": "{CITY}, where {CLOSER} ends a call"}}'), id="a closing tag in a string"),
    pytest.param(hermes(f'{{"city": "{CITY} {OPENER}{{}}{CLOSER} and on"}}'), id="a block in a string"),
    pytest.param(hermes(f'{{"city": "{CITY}')[: -len(CLOSER) - 2], id="the end in a string"),
    pytest.param(hermes(f'{{"city": "{CITY}')[:-1], id="a string that never ends"),
]


@pytest.mark.parametrize("text", CUT)
def test_what_was_cut_is_never_begun(text):
    seen = play(ask(WEATHER, stream=True), [said(text), stream(FENCED)], target=TARGET)
    assert calls(seen) == [{"city": "Paris"}]
    assert seen.choice().finish == ["tool_calls"]
    assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["truncated", "answered"]


@pytest.mark.parametrize("text", CUT)
def test_after_words_it_is_an_end_at_a_limit(text):
    seen = play(ask(WEATHER, stream=True), [said(f"I look.\n{text}")], target=TARGET)
    assert (seen.choice().calls, seen.choice().finish) == ({}, ["length"])
    assert seen.choice().content.startswith('I look.\n{"city": "Paris')


def test_a_whole_call_goes_out_at_its_end():
    text = json.dumps(PARIS)
    seen = play(ask(WEATHER, stream=True), [said(f"I look.\n{hermes(text)}\nDone.")], target=TARGET)
    (chunk,) = call_chunks(seen)
    assert chunk["delta"]["tool_calls"][0]["function"]["arguments"] == text
    assert (seen.choice().content, seen.choice().finish) == ("I look.\n", ["tool_calls"])


def test_live_means_by_whole_members():
    text = json.dumps({**PARIS, "days": 3})
    live = ask(WEATHER, stream=True, promptools={"arguments": "live"})
    seen = play(live, [said(hermes(text), size=1)], target=TARGET)
    pieces = [chunk["delta"]["tool_calls"][0]["function"]["arguments"] for chunk in call_chunks(seen)]
    assert "".join(pieces) == text
    assert f'{{"city": "{CITY}"' in pieces


def test_where_the_server_is_right_they_go_out_as_they_come():
    seen = play(ask(WEATHER, stream=True), [said(hermes(json.dumps(PARIS)))])
    assert len(call_chunks(seen)) > 4
    assert calls(seen) == [PARIS]


QUOTED = f"The tag `{OPENER}` begins a call, and everything that follows it is lost."


def test_where_words_were_lost_the_reply_says_that_it_is_not_whole():
    counts = {"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69}
    seen = play(ask(WEATHER, stream=True), [said(QUOTED, **counts)], target=TARGET)
    assert (seen.choice().content, seen.choice().finish) == ("The tag `", ["length"])
    assert seen.reply.trace.attempts[0].outcome == "empty_calls"


def test_where_nothing_is_out_yet_the_words_are_asked_for_again():
    counts = {"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69}
    held = ask(WEATHER, stream=True, promptools={"hold": "all"})
    seen = play(held, [said(QUOTED, **counts), stream(QUOTED)], target=TARGET)
    assert (seen.choice().content, seen.choice().finish) == (QUOTED, ["stop"])


@pytest.mark.parametrize(
    ("facts", "body", "tokens"),
    [
        ({}, {}, 60),
        ({"cuts_streams": True}, {}, 12),
        ({"cuts_streams": True}, {"include_reasoning": False}, 60),
    ],
    ids=["another server", "few tokens", "hidden thoughts"],
)
def test_tokens_that_are_not_a_sign(facts, body, tokens):
    counts = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    seen = play(ask(WEATHER, stream=True, **body), [said("Four.", **counts)], target=target(**facts))
    assert (seen.choice().content, seen.choice().finish) == ("Four.", ["stop"])


def test_a_whole_reply_is_not_doubted():
    counts = {"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69}
    seen = play(ask(WEATHER), [reply("Four.", usage=counts)], target=TARGET)
    assert seen.message["content"] == "Four."


@pytest.mark.parametrize(
    ("kind", "model", "cuts"),
    [
        ("vllm", "qwen3-8b", True),
        ("vllm", "hermes-3", True),
        ("vllm", "our-own-name", True),
        ("vllm", "gpt-oss-20b", False),
        ("vllm", "mistral-small", False),
        ("vllm", "qwen3-coder-30b", False),
        ("llamacpp", "qwen3-8b", False),
        ("ollama", "qwen3:8b", False),
        ("sglang", "qwen3-8b", False),
    ],
)
def test_who_is_known_to_do_it(kind, model, cuts):
    assert resolve(model, base_url="http://localhost:1/v1", provider=kind).profile.cuts_streams is cuts
