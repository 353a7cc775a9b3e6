"""The observer of exchanges: what it is told, in which order, and that nothing depends on it."""

import json

import pytest
from scripted import (
    SSE,
    URL,
    WEATHER,
    Answer,
    Seen,
    ask,
    call,
    error,
    event,
    make_context,
    play,
    reply,
    stream,
    target,
)

from promptools import UsageError
from promptools.exchange import ClientRequest, Ended, Failed, Opened, Piece, Request, WrittenChoice, run
from promptools.harmony import examine
from promptools.transport.session import Session

FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'


class Notes:
    """An observer that keeps what it is told, in order."""

    def __init__(self):
        self.calls = []

    def began(self, exchange):
        self.calls.append(("began", exchange, None))

    def sent(self, exchange, sent):
        self.calls.append(("sent", exchange, sent))

    def received(self, exchange, received):
        self.calls.append(("received", exchange, received))

    def ended(self, exchange, end):
        self.calls.append(("ended", exchange, end))

    @property
    def order(self):
        return [name if what is None else (name, type(what).__name__) for name, _, what in self.calls]

    def of(self, name):
        return [what for each, _, what in self.calls if each == name]


def observed(body, answers, **given):
    notes = Notes()
    return play(body, answers, observer=notes, **given), notes


def test_one_attempt_in_order():
    seen, notes = observed(ask(WEATHER), [reply(calls=[call("get_weather", {"city": "Paris"})])])
    assert [name for name, _, _ in notes.calls] == ["began", "sent", "received", "received", "received", "ended"]
    assert [type(what) for what in notes.of("received")] == [Opened, Piece, Ended]
    assert len({id(exchange) for _, exchange, _ in notes.calls}) == 1
    exchange = notes.calls[0][1]
    assert json.loads(exchange.request.body)["messages"] == ask(WEATHER)["messages"]
    assert (exchange.api, exchange.at) == ("chat", 100.0)
    (end,) = notes.of("ended")
    assert (end.status, end.model, end.provider, end.error) == (200, "m", "local", None)
    assert end.replies == (seen.reply,)


def test_each_send_with_what_the_mode_prepared():
    answers = [error("error parsing tool call: raw='x'"), reply(FENCED)]
    seen, notes = observed(ask(WEATHER), answers, target=target(modes=("native", "prompt")))
    first, second = notes.of("sent")
    assert [(sent.number, sent.purpose, sent.mode) for sent in (first, second)] == [
        (1, "attempt", "native"),
        (2, "attempt", "prompt"),
    ]
    assert [sent.request for sent in (first, second)] == seen.sent
    assert "tools" in first.prepared.body
    assert second.prepared.dialect == "json"
    assert [attempt.outcome for attempt in notes.of("ended")[0].replies[0].trace.attempts] == [
        "server_parser",
        "answered",
    ]


def test_the_bytes_of_a_stream_are_all_there():
    answer = stream({"content": "Sun"}, {"content": "ny"}, cut=7)
    _, notes = observed(ask(WEATHER, stream=True), [answer])
    pieces = [what.data for what in notes.of("received") if isinstance(what, Piece)]
    assert b"".join(pieces) == answer.body[: sum(map(len, pieces))]
    assert b"[DONE]" in b"".join(pieces)
    assert notes.of("ended")[0].replies[0].content == "Sunny"


def test_an_attempt_comes_with_the_request_that_its_reply_is_read_with():
    answers = [error("error parsing tool call: raw='x'"), reply(FENCED)]
    _, notes = observed(ask(WEATHER), answers, target=target(modes=("native", "prompt")))
    assert [(sent.tool_request.tools.names, sent.reply_api, sent.choices) for sent in notes.of("sent")] == [
        (("get_weather",), "chat", 1)
    ] * 2


@pytest.mark.parametrize("wanted", [0, 10, 1000])
def test_as_much_of_the_response_as_is_asked_for(wanted):
    answers = [stream({"content": "Sun"}, {"content": "ny"})]
    seen, notes = observed(ask(WEATHER, stream=True), answers, response_bytes=wanted)
    assert notes.of("ended")[0].response == seen.body[:wanted]
    assert len(seen.body) > 10


def test_the_prompt_of_raw_mode_is_a_send_of_its_own():
    place = target(modes=("raw",), raw="llamacpp", template_endpoint="llamacpp")
    rendered = Answer(200, json.dumps({"prompt": "<|im_start|>get_weather<|im_start|>assistant\n"}).encode())
    said = {"index": 0, "content": "Sunny.", "stop": True, "stop_type": "eos", "model": "m"}
    _, notes = observed(ask(WEATHER), [rendered, Answer(200, json.dumps(said).encode())], target=place)
    assert [(sent.purpose, sent.mode) for sent in notes.of("sent")] == [("template", "raw"), ("attempt", "raw")]
    assert notes.of("sent")[1].prepared.prompt.content.endswith("assistant\n")


def test_a_request_that_is_forwarded_unchanged():
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    _, notes = observed(body, [reply("Hello.")])
    assert [(sent.purpose, sent.prepared) for sent in notes.of("sent")] == [("forward", None)]
    assert notes.of("ended")[0].replies == ()
    assert notes.of("ended")[0].status == 200


def test_a_request_that_is_refused_here():
    seen, notes = observed(ask(WEATHER, tool_choice={"type": "function", "function": {"name": "nobody"}}), [])
    assert seen.head.status == 400
    assert [name for name, _, _ in notes.calls] == ["began", "ended"]
    assert notes.of("ended")[0].status == 400


def test_a_connection_that_is_never_made():
    lost = Answer(0, broken=Failed("connect", "refused", 0.0, ConnectionError("refused")))
    notes = Notes()
    with pytest.raises(ConnectionError):
        play(ask(WEATHER), [lost], observer=notes)
    assert [type(what) for what in notes.of("received")] == [Failed]
    (end,) = notes.of("ended")
    assert isinstance(end.error, ConnectionError)
    assert end.status is None


def test_a_client_that_disconnects():
    notes = Notes()
    request = ClientRequest(Request("POST", URL, (), json.dumps(ask(WEATHER)).encode()), 1.0)
    exchange = run(request, make_context(Seen(), observer=notes))
    next(exchange)
    exchange.close()
    assert isinstance(notes.of("ended")[0].error, GeneratorExit)


def test_the_attempts_with_their_sends_and_what_was_read_of_failed_ones():
    wrong = '```json\n{"tool": "get_weather", "arguments": {"city": ["Paris"]}}\n```'
    place = target(modes=("raw", "prompt"), raw="llamacpp", template_endpoint="llamacpp")
    unrendered = Answer(500, b"{}")
    _, notes = observed(ask(WEATHER), [unrendered, reply(wrong), reply(FENCED)], target=place)
    (end,) = notes.of("ended")
    first, second, third = end.attempts
    assert [each.attempt.mode for each in end.attempts] == ["raw", "prompt", "prompt"]
    assert [each.sent for each in end.attempts] == [1, 2, 3]
    assert first.failed_reply is third.failed_reply is None
    assert second.failed_reply.malformed[0].reason == "invalid_arguments"
    assert (first.written, second.written) == ((), (WrittenChoice(wrong, "stop"),))
    assert (end.error_kind, end.streamed) == ("", False)


@pytest.mark.parametrize("streamed", [False, True])
def test_what_was_written_in_harmony(streamed):
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>No."
    place = target(modes=("harmony",), raw="completions", family="gpt-oss")
    choice = {"index": 0, "text": text, "finish_reason": "stop", "stop_reason": 200002}
    usage = {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
    if streamed:
        first = {**choice, "text": text[:40], "finish_reason": None, "stop_reason": None}
        choices = [[first], [{**choice, "text": text[40:]}], []]
        events = [{"choices": given, "usage": None if given else usage} for given in choices]
        answer = Answer(200, b"".join(map(event, events)) + b"data: [DONE]\n\n", SSE)
    else:
        answer = Answer(200, json.dumps({"choices": [choice], "usage": usage}).encode())
    _, notes = observed(ask(WEATHER, stream=streamed), [answer], target=place)
    (attempt,) = notes.of("ended")[0].attempts
    assert attempt.written == (WrittenChoice(f"{text}<|return|>", "stop", 200002),)  # the token that the server took
    assert attempt.attempt.usage["prompt_tokens"] == 10
    assert [parsed.message.channel for parsed in examine(attempt.written[0].text).messages] == ["analysis", "final"]


def test_the_first_byte_is_not_a_heartbeat():
    answer = stream("Hello")
    answer.takes = 17.0
    _, notes = observed(ask(WEATHER, stream=True), [answer], tick=1.0)
    (end,) = notes.of("ended")
    assert end.streamed
    assert end.first_byte_at - notes.calls[0][1].at == 17.0


@pytest.mark.parametrize(
    ("body", "answers", "kind"),
    [
        (ask(WEATHER, tool_choice={"type": "function", "function": {"name": "nobody"}}), [], "usage"),
        (ask(WEATHER, promptools={"mode": "prompt"}), [error("out of memory", 507)], "refused"),
    ],
)
def test_what_the_client_was_told_of(body, answers, kind):
    _, notes = observed(body, answers)
    assert notes.of("ended")[0].error_kind == kind


def test_a_fault_of_the_observer_is_logged_and_no_more(caplog):
    class Faulty(Notes):
        def sent(self, exchange, sent):
            raise KeyError("mine")

    faulty = Faulty()
    guarded = Session({"observer": faulty, "config": None}).context.observer
    play(ask(WEATHER), [reply("Sunny.")], observer=guarded)
    assert "observer's sent raised" in caplog.text
    assert [name for name, _, _ in faulty.calls][-1] == "ended"


def test_what_is_not_an_observer_is_refused():
    class Half:
        def began(self, exchange): ...

    class Slow(Notes):
        async def sent(self, exchange, sent): ...

    for wrong in (Half(), Slow(), 7):
        with pytest.raises(UsageError, match=r"observer\.\w+ must be a plain function"):
            Session({"observer": wrong, "config": None})


def test_credentials_are_in_no_repr():
    _, notes = observed(ask(WEATHER), [reply("Sunny.")], headers=(("authorization", "Bearer sk-secret"),))
    assert "sk-secret" not in repr(notes.calls)
