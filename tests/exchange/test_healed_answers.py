"""Answers in a form: the JSON value alone is the content, by every API, streamed or not, with tools and without."""

import json

import pytest
from scripted import JSON, SSE, WEATHER, Answer, ask, call, chunk, error, event, play, reply, stream, target, text_of

from promptools.exchange import Failed, Route
from promptools.exchange.client_api import CHAT_API
from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response
from promptools.exchange.runner import run

SKY = {
    "type": "object",
    "properties": {"sky": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["sky"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SKY}}
OBJECT = {"type": "json_object"}
FITS, PROSE = '{"sky": "grey"}', "It is grey."
FRONTS = {
    "chat": (CHAT_API, run, "/v1/chat/completions", "messages"),
    "responses": (RESPONSES_API, serve_response, "/v1/responses", "input"),
    "messages": (MESSAGES_API, serve_message, "/v1/messages", "messages"),
    "ollama": (OLLAMA_API, run, "/api/chat", "messages"),
}
HEALED = {
    "```json\n" + FITS + "\n```": (FITS, ["marker"]),
    "~~~\n" + FITS + "\n~~~\n": (FITS, ["marker"]),
    "```json\n" + FITS: (FITS, ["marker"]),
    "Here is the JSON:\n\n```json\n" + FITS + "\n```\n\nLet me know if you need more!": (FITS, ["marker", "marker"]),
    "Here is the JSON: " + FITS: (FITS, ["marker"]),
    FITS + "\n\nThat is what I see.": (FITS, ["marker"]),
    "{'sky': 'grey'}": (FITS, ["json"]),
    '{"sky": "grey",}': ('{"sky": "grey" }', ["json"]),
    '{"sky": "grey", "n": 3, // three\n}': (None, ["json", "json"]),
    '{"sky": "a "wide" one"}': ('{"sky": "a \\"wide\\" one"}', ["json"]),
    '{"sky": "two\nlines"}': ('{"sky": "two\\nlines"}', ["json"]),
    "```json\n{'sky': 'grey', 'n': 3}\n```": ('{"sky": "grey", "n": 3}', ["json", "marker"]),
    FITS[:-1]: (FITS, ["closer"]),
    FITS + "}": (FITS, ["closer"]),
    "<think>Grey, {perhaps}?</think>\n```json\n" + FITS + "\n```": (FITS, ["marker"]),
    '```json\n{"sky": "```x```"}\n```': ('{"sky": "```x```"}', ["marker"]),
}
"""Answers, each with what the content becomes (None: what it is worth), and the kinds of its fixes."""
AS_THEY_ARE = [FITS, f" \n{FITS}\n\n", '{\n  "n" : 1,\t"sky":"\\u00e9\\n"\n}']
NOT_ALONE = [
    PROSE,
    "",
    FITS + "\n" + FITS,
    f"{FITS} or {FITS}",
    f"The input {FITS} is wrong.",
    f"For example:\n{FITS}",
    f"I cannot see the sky, so here is nothing:\n{FITS}",
    FITS + " would be wrong",
    f"```json\n{FITS}\n```\n```json\n{FITS}\n```",
    '{"sky": "gr',
    "[the sky]: " + FITS,
    f"{'Words. ' * 60}\n{FITS}",
    '{"sky": nothing}',
    '{"sky": "grey", "n": 3',
]
"""Answers that are not one value and nothing else: none of them becomes another text."""


def asked(front, form=FORM, *, streamed=False, **keys):
    """Return the body of a request in an API, and how it is played."""
    api, begin, path, key = FRONTS[front]
    body = {"model": "m", key: [{"role": "user", "content": "How is the sky?"}], "stream": streamed, **keys}
    schema = form.get("json_schema", {}).get("schema")
    if front == "chat":
        body["response_format"] = form
    elif front == "responses":
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": schema} if schema else form}
    elif front == "messages":
        body |= {"max_tokens": 100, "output_config": {"format": {"type": "json_schema", "schema": schema}}}
    else:
        body["format"] = schema or "json"
    return body, {"front": api, "begin": begin, "url": f"http://server{path}"}


def answered(text, *, streamed, cut=0, **keys):
    if not streamed:
        return reply(text, **keys)
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)] if cut else [text]
    return stream(*pieces, **keys)


@pytest.mark.parametrize("tools", [(), (WEATHER,)], ids=["plain", "tools"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_the_value_alone_is_the_content(front, streamed, tools):
    if tools and front != "chat":
        shaped = {"messages": {"name": "get_weather", "input_schema": {}}, "responses": WEATHER["function"]}
        tools = ({"type": "function", **shaped[front]} if front == "responses" else shaped.get(front, WEATHER),)
    keys = {"tools": list(tools)} if tools else {}
    for text, (wanted, kinds) in HEALED.items():
        for cut in (1, 3, 0) if streamed else (0,):
            body, how = asked(front, streamed=streamed, **keys)
            seen = play(body, [answered(text, streamed=streamed, cut=cut)], **how)
            content = text_of(front, seen, streamed=streamed)
            assert json.loads(content)["sky"], (text, content)
            assert wanted is None or content == wanted, (text, cut)
            assert seen.reply.content == content, (text, cut)
            assert kinds is None or [fix.kind for fix in seen.reply.fixes] == kinds, text
            assert len(seen.sent) == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_what_parses_passes_byte_for_byte(front, streamed):
    for text in AS_THEY_ARE:
        body, how = asked(front, streamed=streamed)
        seen = play(body, [answered(text, streamed=streamed, cut=2)], **how)
        assert text_of(front, seen, streamed=streamed) == text


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_what_is_not_one_value_is_asked_for_again_once_and_then_goes_as_it_came(front, streamed):
    for text in NOT_ALONE:
        if not text or (streamed and text.startswith(("{", "```"))):  # see below for what has begun to go out
            continue
        body, how = asked(front, streamed=streamed)
        first, second = (answered(one, streamed=streamed, cut=5) for one in (text, "```\n" + FITS + "\n```"))
        seen = play(body, [first, second], **how)
        assert text_of(front, seen, streamed=streamed) == FITS, text
        *_, said, wanted = seen.bodies[1]["messages"]
        assert said == {"role": "assistant", "content": text}
        assert json.dumps(SKY) in wanted["content"]
        seen = play(body, [first, first], **how)
        assert text_of(front, seen, streamed=streamed) == text


def test_the_model_is_told_what_is_wrong():
    body, how = asked("chat")
    seen = play(body, [reply('```json\n{"sky": []}\n```'), reply(FITS)], **how)
    assert "/sky: [] is an array; wanted a string" in seen.bodies[1]["messages"][-1]["content"]
    assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["format", "answered"]


@pytest.mark.parametrize(
    ("text", "sends"),
    [(PROSE, 1), (FITS + FITS, 1), ("{not json", 1), ("[1]", 2), ('```\n["a"]\n```', 2), ("7", 2)],
)
def test_json_object_wants_an_object_and_leaves_prose_alone(text, sends):
    body, how = asked("chat", OBJECT)
    seen = play(body, [reply(text)] * sends, **how)
    assert seen.message["content"] == text
    assert play(body, [reply("Sure:\n{'a': 1}")], **how).message["content"] == '{"a": 1}'


def test_how_often_it_is_asked_for_again_is_an_option():
    body, how = asked("chat")
    for corrections in (0, 1, 3):
        seen = play(body, [reply(PROSE)] * (1 + corrections), options={"corrections": corrections}, **how)
        assert seen.message["content"] == PROSE


@pytest.mark.parametrize(
    "failed", [error("busy", 429), error("oops", 500), Answer(0, broken=Failed("connect", "no", 0.0))]
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_an_answer_that_does_not_fit_is_better_than_an_error(front, streamed, failed):
    body, how = asked(front, streamed=streamed)
    seen = play(body, [answered(PROSE, streamed=streamed), failed], **how)
    assert text_of(front, seen, streamed=streamed) == PROSE


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_what_the_model_is_told_of_the_form_is_not_its_answer(front, streamed):
    body, how = asked(front, streamed=streamed)
    prose = answered(PROSE, streamed=streamed)
    told = play(body, [prose, answered(FITS, streamed=streamed)], **how).bodies[1]["messages"][-1]["content"]
    seen = play(body, [prose, answered(told, streamed=streamed)], **how)
    assert text_of(front, seen, streamed=streamed) == PROSE


def test_values_are_converted_as_arguments_are():
    body, how = asked("chat")
    seen = play(body, [reply('{"sky": "grey", "n": "3"}')], **how)
    assert seen.message["content"] == '{"sky": "grey", "n": 3}'
    assert [fix.kind for fix in seen.reply.fixes] == ["coerce"]


def test_what_was_cut_off_is_in_the_trace():
    body, how = asked("chat", promptools={"trace": True})
    seen = play(body, [reply(f"Sure!\n```json\n{FITS}\n```\nBye.")], **how)
    assert [each.raw for each in seen.reply.discarded] == ["Sure!\n```json\n", "\n```\nBye."]
    (choice,) = seen.json["promptools"]["choices"]
    assert choice["answer"]["cut"] == ["Sure!\n```json\n", "\n```\nBye."]
    assert [fix["kind"] for fix in choice["answer"]["fixes"]] == ["marker", "marker"]


# --- what passes as it comes


def same(seen, body, answer):
    assert json.loads(seen.sent[0].body) == body
    assert (seen.head.status, seen.head.headers, seen.body) == (answer.status, answer.headers, answer.body)
    assert (seen.reply, len(seen.sent)) == (None, 1)


ODD = json.dumps({
    "x": 1.0,
    "choices": [
        {"index": at, "message": {"content": text, "y": None}, "finish_reason": "stop", "z": []}
        for at, text in enumerate(AS_THEY_ARE)
    ],
}).encode()  # fmt: skip
FENCED = f"```json\n{FITS}\n```"


@pytest.mark.parametrize(
    ("answer", "keys"),
    [
        (Answer(200, ODD + b"  ", (*JSON, ("x-odd", "1"))), {"n": 3}),
        (reply(FENCED, finish="length"), {}),
        (reply(FENCED), {"logprobs": True}),
        (reply(PROSE), {"top_logprobs": 2}),
        (reply(None, calls=[call("f", {})], finish="tool_calls"), {}),
        (error("no such format", 400), {}),
        (reply(PROSE), {"response_format": OBJECT}),
        (reply(FENCED), {"response_format": {"type": "text"}}),
    ],
)
def test_a_whole_reply_passes_byte_for_byte(answer, keys):
    body, how = asked("chat")
    body |= keys
    same(play(body, [answer], **how), body, answer)


def test_a_refusal_passes():
    refused = json.loads(reply(None).body)
    refused["choices"][0]["message"]["refusal"] = "No."
    body, how = asked("chat")
    answer = Answer(200, json.dumps(refused).encode())
    same(play(body, [answer], **how), body, answer)
    body, how = asked("messages")
    assert text_of("messages", play(body, [answer], **how), streamed=False) == "No."


@pytest.mark.parametrize("cut", [0, 1, 7, 50])
@pytest.mark.parametrize(
    "answer",
    [
        stream(*FITS),
        stream("\n ", *AS_THEY_ARE[1], "  "),
        stream({"reasoning": "Hm."}, FITS, usage={"completion_tokens": 1}),
        stream('{"sky": "gr', finish="length"),
        stream(*'{"sky": "grey", ', finish="length"),
        stream({"content": "", "refusal": "No {"}),
        stream({"tool_calls": [call("f", {})]}, finish="tool_calls"),
        stream('{"sky": ', event({"error": {"message": "disk full"}}), finish=None),
        Answer(200, chunk({"content": FITS}).replace(b"\n", b"\r\n") + b": comment\r\n\r\ndata: [DONE]\r\n\r\n", SSE),
        Answer(200, chunk({"content": FITS}, "stop") + b"data: tail without an end", SSE),
        Answer(
            200, b"".join(chunk({"content": c}, index=at % 2) for c in FITS for at in (0, 1)) + chunk({}, "stop"), SSE
        ),
    ],
)
def test_a_stream_passes_byte_for_byte(answer, cut):
    answer.cut = cut
    body, how = asked("chat", streamed=True, n=2)
    same(play(body, [answer], **how), body, answer)


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "https://x.openai.azure.com/openai/v1"])
@pytest.mark.parametrize("front", FRONTS)
def test_nothing_is_done_towards_openai(front, url):
    body, how = asked(front)
    seen = play(body, [reply(FENCED)], route=lambda *_: Route(target(), f"{url}/chat/completions"), **how)
    assert text_of(front, seen, streamed=False) == FENCED


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_it_can_be_switched_off(front, streamed):
    body, how = asked(front, streamed=streamed)
    seen = play(body, [answered(FENCED, streamed=streamed)], options={"heal_format": False}, **how)
    assert text_of(front, seen, streamed=streamed) == FENCED
    seen = play(body | {"promptools": {"heal_format": False}}, [answered(FENCED, streamed=streamed)], **how)
    assert text_of(front, seen, streamed=streamed) == FENCED


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("front", FRONTS)
def test_what_was_cut_off_at_its_limit_is_neither_healed_nor_asked_for_again(front, streamed):
    body, how = asked(front, streamed=streamed)
    seen = play(body, [answered("{'sky': 'grey'}", streamed=streamed, finish="length")], **how)
    assert text_of(front, seen, streamed=streamed) == "{'sky': 'grey'}"


# --- streams


@pytest.mark.parametrize("front", FRONTS)
def test_a_value_goes_out_as_it_comes(front):
    long = json.dumps({"sky": "grey " * 200})
    for text in (long, f"```json\n{long}\n```"):
        body, how = asked(front, streamed=True)
        answer = answered(text, streamed=True, cut=10)
        answer.cut, answer.every = 400, 1.0
        seen = play(body, [answer], **how)
        half = sum(seen.at) / len(seen.at)
        assert len([at for at in seen.at if at < half]) > 20, "a good part is there before the end"
        assert text_of(front, seen, streamed=True) == long


@pytest.mark.parametrize("front", FRONTS)
def test_what_has_gone_out_is_not_asked_for_again_and_nothing_is_lost(front):
    for text, wanted in {
        FITS + "\n" + FITS: FITS + "\n" + FITS,
        '{"sky": "grey", "n": "3"}': '{"sky": "grey", "n": "3"}',
        '```json\n{"sky": 3}\n```': '{"sky": 3}',
        f"```json\n{FITS}\n```\n{FITS}": f"{FITS}\n```\n{FITS}",
        '{"sky": nothing}': '{"sky": nothing}',
        '{"sky": "gr': '{"sky": "gr',
    }.items():
        for cut in (1, 4, 0):
            body, how = asked(front, streamed=True)
            seen = play(body, [answered(text, streamed=True, cut=cut)], **how)
            assert text_of(front, seen, streamed=True) == wanted, (text, cut)


@pytest.mark.parametrize("front", FRONTS)
def test_thoughts_stream_on_and_come_once(front):
    body, how = asked(front, streamed=True)
    seen = play(body, [stream({"reasoning": "Hm."}, {"reasoning": " Grey."}, *"{'sky': 'grey'}")], **how)
    assert (seen.reply.reasoning, text_of(front, seen, streamed=True)) == ("Hm. Grey.", FITS)
    seen = play(body, [stream({"reasoning": "Hm."}, *PROSE), stream({"reasoning": " Oh."}, *FITS)], **how)
    assert text_of(front, seen, streamed=True) == FITS
    if front == "chat":
        assert seen.choice().reasoning in ("Hm. Oh.", "Hm.")
        assert seen.choice().roles == ["assistant"]


def test_a_stream_that_breaks_loses_nothing():
    body, how = asked("chat", streamed=True)
    broken = stream("{", '"sky": "grey"', ", ", finish=None, done=False)
    for answer in (broken, Answer(200, broken.body, SSE, broken=Failed("closed", "gone", 0.0))):
        seen = play(body, [answer], **how)
        assert "".join(each["choices"][0]["delta"].get("content", "") for each in seen.events if "choices" in each) == (
            '{"sky": "grey", '
        )
        assert "error" in seen.events[-1]


def test_each_choice_is_healed():
    body, how = asked("chat", n=3)
    both = json.loads(reply(FITS).body)
    one = both["choices"][0]
    both["choices"] = [
        one,
        one | {"index": 1, "message": {"content": FENCED}},
        one | {"index": 2, "message": {"content": PROSE}},
    ]
    seen = play(body, [Answer(200, json.dumps(both).encode()), reply(FITS)], **how)
    assert [each["message"]["content"] for each in seen.json["choices"]] == [FITS] * 3
    assert [each.get("n") for each in seen.bodies] == [3, None]


def test_a_request_without_a_form_is_not_watched():
    for text in (FENCED, "{'sky': 'grey'}"):
        for streamed in (False, True):
            answer = answered(text, streamed=streamed)
            body = ask(stream=streamed)
            same(play(body, [answer]), body, answer)


def test_ollama_itself_gets_its_form_and_is_healed():
    def lines(*texts, last):
        made = [{"model": "m", "created_at": "x", "message": {"content": text}, "done": False} for text in texts]
        made.append({"model": "m", "message": {"content": last}, "done": True, "done_reason": "stop"})
        return b"".join(json.dumps(line).encode() + b"\n" for line in made)

    ndjson = (("content-type", "application/x-ndjson"),)
    for streamed in (False, True):
        body, how = asked("ollama", streamed=streamed)
        for text in (FITS, FENCED, "{'sky': 'grey'}"):
            data = lines(*text, last="") if streamed else lines(last=text)
            answer = Answer(200, data, ndjson if streamed else JSON)
            seen = play(body, [answer], target=target(wire="ollama"), **how)
            assert text_of("ollama", seen, streamed=streamed) == FITS
            assert seen.bodies[0]["format"] == SKY
            assert text != FITS or seen.body == data
