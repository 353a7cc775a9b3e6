"""What the recorder writes of an exchange, and that its rows are read as the exchange read the replies."""

import json

import pytest
from casebook import ROWS_FOLDERS, rows, tools_of
from many_rows import every_row
from scripted import WEATHER, Answer, ask, call, error, play, reply, stream, target

from promptools.exchange import Failed
from promptools.harmony.bpe_vocabulary import TokenCodec
from promptools.parsing.description import describe_reply
from promptools.recording import Recorder, read_rows

HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ROWS = [row for row in rows(*ROWS_FOLDERS) if tools_of(row.tools)][::6]


@pytest.fixture
def record(tmp_path):
    """Play an exchange with a recorder; return what came of it, and the rows."""

    def run(body, answers, *, given=None, folder="rows", **context):
        recorder = Recorder(tmp_path / folder, **(given or {}))
        try:
            seen = play(body, answers, observer=recorder, **context)
        finally:
            recorder.close()
        return seen, list(read_rows(tmp_path / folder))

    return run


def expected_of(seen):
    return describe_reply(seen.replies[0], "answered")


def test_a_streamed_call_of_the_server(record):
    parts = ['{"ci', 'ty": "Par', 'is"}']
    deltas = [{"reasoning_content": "Hm"}, {"reasoning_content": "m."}]
    deltas += [{"tool_calls": [{"index": 0, **call("get_weather", parts[0])}]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts[1:]]
    seen, (row,) = record(ask(WEATHER, stream=True), [stream(*deltas, finish="tool_calls", cut=5)])
    assert row.data["replies"] == [
        {
            "index": 0,
            "pieces": [
                {"reasoning": "Hmm."},
                {"call": {"index": 0, "id": "call00001", "name": "get_weather", "arguments": '{"city": "Paris"}'}},
            ],
            "finish_reason": "tool_calls",
        }
    ]
    assert row.data["request"] == {"stream": True, "tools": [WEATHER]}
    assert {key: row.data[key] for key in ("mode", "model", "provider", "status", "attempt", "ended")} == {
        "mode": "native", "model": "m", "provider": "local", "status": 200, "attempt": 1, "ended": True,
    }  # fmt: skip
    assert row.expected == [expected_of(seen)]
    assert row.expected[0]["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris"}, "dialect": "native"}]
    assert row.difference() == ""


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_every_dialect_is_read_as_it_was(record, tmp_path, row, streamed):
    tools = [{"type": "function", "function": tool.get("function", tool)} for tool in tools_of(row.tools)]
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools, "stream": streamed}
    answers = [stream(row.text, cut=11) if streamed else reply(row.text)] * 6
    seen, recorded = record(body, answers, folder=f"rows of {len(list(tmp_path.iterdir()))}", spare=True)
    assert [one.difference() for one in recorded] == [""] * len(seen.sent)
    assert not any(one.data.get("inexact") for one in recorded)
    last = recorded[-1].expected[0]
    if last["verdict"] == "answered":
        assert last == expected_of(seen)


def test_each_attempt_is_a_row(record):
    answers = [error("error parsing tool call: raw='x'"), reply(HERMES)]
    seen, (first, second) = record(ask(WEATHER), answers, target=target(modes=("native", "prompt"), dialect="hermes"))
    assert (first.data["status"], first.data["failed"], first.data["replies"], first.expected) == (500, "http", [], [])
    assert (second.data["mode"], second.data["prepared"]["dialect"]) == ("prompt", "hermes")
    assert second.data["prepared"]["examples"]
    assert second.expected == [expected_of(seen)]


def test_an_attempt_that_is_not_an_answer(record):
    answers = [reply('<tool_call>{"name": "get_weather", "arguments": {"city": 3'), reply(HERMES)]
    _, (first, second) = record(ask(WEATHER), answers, target=target(modes=("native", "prompt")))
    assert first.expected[0]["verdict"] == "truncated"
    assert first.expected[0]["malformed"] == [{"name": "get_weather", "reason": "truncated", "dialect": "hermes"}]
    assert second.expected[0]["verdict"] == "answered"


def test_a_reply_that_breaks_off(record):
    broken = stream("Sun", finish=None, done=False)
    broken.broken = Failed("read", "reset", 0.0, ConnectionError("reset"))
    _, (row,) = record(ask(WEATHER, stream=True, promptools={"mode": "native"}), [broken], spare=True)
    assert (row.data["failed"], row.data["ended"], row.expected[0]["verdict"]) == ("read", False, "read")
    assert row.expected[0]["content"] == "Sun"


def test_choices_are_apart(record):
    body = json.loads(reply("one").body)
    body["choices"].append({**body["choices"][0], "index": 1, "message": {"role": "assistant", "content": HERMES}})
    _, (row,) = record(ask(WEATHER, n=2), [Answer(200, json.dumps(body).encode())])
    assert [one["index"] for one in row.data["replies"]] == [0, 1]
    assert [one.get("content") for one in row.expected] == ["one", None]
    assert row.expected[1]["calls"][0]["arguments"] == {"city": "Paris"}


def test_what_the_request_forbids(record):
    seen, (row,) = record(ask(WEATHER, tool_choice="none"), [reply(f"So: {HERMES}")])
    assert row.data["request"]["tool_choice"] == ["none", None]
    assert row.expected == [expected_of(seen)]
    assert "calls" not in row.expected[0]


def test_some_of_the_tools(record):
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]}
    _, found = record(ask(WEATHER, other, tool_choice=allowed), [reply(HERMES)] * 4, spare=True)
    assert found[0].data["request"]["offered"] == ["other"]
    assert found[0].expected[0]["malformed"][0]["reason"] == "unknown_tool"
    assert found[0].difference() == ""


def test_the_marks_of_the_config(record):
    body = ask(WEATHER)
    answers = [reply('<tool_call>{"name": "get_weather", "arguments": {"town": "Oslo"}}</tool_call>')]
    seen, (row,) = record(body, answers, target=target(marks={"get_weather": {"aliases": {"town": "city"}}}))
    assert row.data["request"]["marks"] == {"get_weather": {"aliases": {"town": "city"}}}
    assert row.expected == [expected_of(seen)]
    assert row.expected[0]["calls"][0]["arguments"] == {"city": "Oslo"}


def test_what_was_escaped_is_restored(record):
    tricky = {**WEATHER, "function": {**WEATHER["function"], "description": "Like <|im_end|>"}}
    answers = [reply(calls=[call("get_weather", {"city": "<\\|im_end|>"})], finish="tool_calls")]
    seen, (row,) = record(ask(tricky), answers)
    assert row.data["prepared"]["escaped"] == ["<\\|im_end|>"]
    assert row.expected == [expected_of(seen)]
    assert row.expected[0]["calls"][0]["arguments"] == {"city": "<|im_end|>"}


def test_messages_are_not_recorded_unless_asked_for(record, tmp_path):
    body = ask(WEATHER, messages=[{"role": "user", "content": "my secret plan"}])
    record(body, [reply("Sunny.")])
    _, found = record(body, [reply("Sunny.")], given={"messages": True})
    texts = [path.read_text() for path in sorted((tmp_path / "rows").iterdir())]
    assert sorted("secret plan" in text for text in texts) == [False, True]
    assert sorted("messages" in row.data["request"] for row in found) == [False, True]


def test_a_quoted_call_is_text_in_the_replay_too(record, tmp_path):
    body = ask(WEATHER, messages=[{"role": "user", "content": f"My secret. What does this do? {HERMES}"}])
    seen, (row,) = record(body, [reply(f"You wrote {HERMES} and it calls a tool.")])
    assert not seen.replies[0].calls
    assert row.data["request"]["quotes"] == [HERMES]
    assert row.expected == [expected_of(seen)]
    assert row.difference() == ""
    assert "inexact" not in row.data
    assert "My secret" not in json.dumps(row.data)


def test_credentials_are_never_recorded(record):
    headers = (("Authorization", "Bearer sk-client-0123456789"), ("x-api-key", "key-9876543210"))
    body = ask(WEATHER, messages=[{"role": "user", "content": "Use sk-client-0123456789"}])
    said = reply("It is sk-client-0123456789, or key-9876543210.", reasoning="sk-client-0123456789")
    _, (row,) = record(body, [said], headers=headers, given={"messages": True})
    text = json.dumps(row.data)
    assert "0123456789" not in text
    assert "9876543210" not in text
    assert row.expected[0]["content"] == "It is [redacted], or [redacted]."
    assert row.difference() == ""


def test_what_patterns_match_is_redacted_everywhere(record):
    arguments = {"city": "Paris", "mail": "ann@example.org"}
    said = reply("Mail ann@example.org", calls=[call("get_weather", arguments)], finish="tool_calls")
    _, (row,) = record(ask(WEATHER), [said], given={"redact": [r"\w+@[\w.]+"]}, spare=True)
    assert "ann" not in json.dumps(row.data)
    assert row.expected[0]["calls"][0]["arguments"]["mail"] == "[redacted]"


LETTERS = TokenCodec(encode=lambda text: list(text.encode()), decode=lambda token: bytes([token]))


@pytest.mark.parametrize("redact", [[], ["Par.s"]])
def test_token_ids_are_kept_with_their_bytes(record, redact):
    text = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}'
    names = {"<|channel|>": 200005, "<|constrain|>": 200003, "<|message|>": 200008}
    ids, rest = [], text
    while rest:
        name = next((name for name in names if rest.startswith(name)), rest[0])
        ids.append(names[name] if name in names else ord(name))
        rest = rest.removeprefix(name)
    body = {
        "id": "c", "object": "text_completion", "created": 7, "model": "m",
        "choices": [
            {"index": 0, "text": "", "token_ids": [*ids, 200012], "finish_reason": "stop", "stop_reason": 200012}
        ],
    }  # fmt: skip
    place = target(modes=("harmony",), raw="completions", raw_ids=True, family="gpt-oss", dialect="harmony")
    answer = Answer(200, json.dumps(body).encode())
    seen, (row,) = record(ask(WEATHER), [answer], target=place, vocabulary=lambda: LETTERS, given={"redact": redact})
    assert seen.replies[0].calls[0].arguments == {"city": "Paris"}
    assert row.difference() == ""
    if redact:
        assert "Paris" not in json.dumps(row.data)
        assert "tokens" not in row.data
        assert row.expected[0]["calls"][0]["arguments"] == {"city": "[redacted]"}
    else:
        assert row.data["tokens"]["80"] == "50"
        assert row.expected == [expected_of(seen)]


def test_a_request_without_tools_is_not_recorded(tmp_path):
    recorder = Recorder(tmp_path)
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    play(body, [reply("Hello.")], observer=recorder)
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_other_names_and_calls_of_undeclared_tools_are_read_again(record):
    text = f"{HERMES.replace('get_weather', 'weather')}\n{HERMES.replace('get_weather', 'other')}"
    marks = {"get_weather": {"names": ["weather"], "free_text": "city"}}
    body = ask(WEATHER, promptools={"undeclared": "call", "namespaces": {"a": "b"}})
    seen, (row,) = record(body, [reply(text)], target=target(marks=marks))
    assert [(one.name, one.unknown_tool) for one in seen.reply.calls] == [("get_weather", False), ("other", True)]
    assert row.data["request"]["marks"] == marks
    assert row.difference() == ""
