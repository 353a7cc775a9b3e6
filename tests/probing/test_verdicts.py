"""Each verdict of a check, from the answers that show it: no server, and no I/O."""

import json

import pytest

from promptools.probing import checks
from promptools.probing.checks import (
    CHECKS,
    check_context,
    check_format,
    check_format_beside_tools,
    check_modes,
    check_n,
    check_named,
    check_names,
    check_native,
    check_none,
    check_parallel,
    check_raw_endpoint,
    check_reasoning,
    check_required,
    check_results,
    check_streamed,
    check_system,
    check_turns,
    check_usage,
)
from promptools.probing.findings import Answer, AnsweredCall, Finding, Subject, read_answer
from promptools.probing.recommendation import recommend
from promptools.profiles import Profile
from promptools.types import Attempt, Call, Reply, Trace

HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
PARIS = AnsweredCall("get_weather", '{"city": "Paris"}', 1)
CALLED = Answer(calls=(PARIS,), choices=1, finish_reason="tool_calls", usage={"completion_tokens": 20})
PROSE = Answer(content="It is sunny, I think.", choices=1, finish_reason="stop", usage={"completion_tokens": 7})
EMPTY = Answer(choices=1, finish_reason="stop", usage={"completion_tokens": 30})
BUSY = Answer(429, error="slow down")


def error(text, status=400):
    return Answer(status, error=text)


def subject(native=None, **facts):
    made = Subject("m", Profile(**facts), 100)
    if native:
        made.findings["native tools"] = Finding("native tools", native, "")
    return made


def run(check, about, *answers):
    """Run a check on scripted answers; return its findings and the bodies of its requests."""
    steps, bodies = check(about), []
    try:
        request = next(steps)
        for answer in answers:
            bodies.append(request)
            request = steps.send(answer)
    except StopIteration as stop:
        assert len(bodies) == len(answers), "the check asked less than was scripted"
        return stop.value, bodies
    raise AssertionError(f"the check asks for more: {request}")


NATIVE = [
    pytest.param([CALLED], "works", 'get_weather({"city": "Paris"})', id="works"),
    pytest.param(
        [Answer(calls=(AnsweredCall("get_weather", '{"city": "Rome"}'),))], "works", "though Paris", id="another city"
    ),
    pytest.param([Answer(content=HERMES, finish_reason="stop")], "leaks", "content, as hermes", id="leaks"),
    pytest.param([Answer(reasoning=HERMES, finish_reason="stop")], "leaks", "reasoning, as hermes", id="in reasoning"),
    pytest.param(
        [Answer(content=HERMES.replace('"Paris"}}', ""), finish_reason="stop")], "leaks", "malformed", id="malformed"
    ),
    pytest.param([EMPTY], "swallows", "30 tokens were generated", id="swallows"),
    pytest.param([Answer(reasoning="Need the tool.", finish_reason="stop")], "swallows", "as reasoning", id="thought"),
    pytest.param([error("boom", 500)], "errors", "HTTP 500: boom", id="500"),
    pytest.param([Answer(200, error="boom")], "errors", "HTTP 200: boom", id="an error under 200"),
    pytest.param([Answer(None, error="ReadTimeout: ")], "errors", "no answer", id="no answer"),
    pytest.param([BUSY], "not shown", "the server was busy", id="busy"),
    pytest.param(
        [Answer(calls=(AnsweredCall("get_wind", "{}"),))], "broken", "no tool of that name", id="another tool"
    ),
    pytest.param(
        [Answer(calls=(AnsweredCall("get_weather", '{"city": Par'),))], "broken", "not a JSON object", id="no JSON"
    ),
    pytest.param(
        [Answer(calls=(AnsweredCall("get_weather", '{"town": "Paris"}'),))], "broken", "do not fit", id="another key"
    ),
    pytest.param(
        [Answer(calls=(AnsweredCall("get_weather", '{"city": "Par'),), finish_reason="length")] + [PROSE] * 2,
        "not shown",
        "did not call",
        id="cut inside the call",
    ),
    pytest.param([PROSE, PROSE, PROSE], "not shown", "the model did not call", id="prose is no verdict"),
    pytest.param([PROSE, PROSE, CALLED], "works", "get_weather", id="works where it is required"),
    pytest.param([PROSE, PROSE, error("invalid tool_choice")], "not shown", "the model did not call", id="no required"),
    pytest.param([PROSE, EMPTY], "swallows", "30 tokens", id="the second time"),
]


@pytest.mark.parametrize(("answers", "verdict", "reason"), NATIVE)
def test_native(answers, verdict, reason):
    (finding,), asked = run(check_native, subject(), *answers)
    assert (finding.check, finding.verdict) == ("native tools", verdict)
    assert reason in finding.reason
    assert all(request.body["tools"] for request in asked)


def test_the_call_is_asked_for_more_clearly_each_time():
    _, asked = run(check_native, subject(), PROSE, PROSE, PROSE)
    said = [(request.body["messages"][0]["content"], request.body.get("tool_choice")) for request in asked]
    assert said == [(checks.CALL, None), (checks.INSIST, None), (checks.INSIST, "required")]


def test_an_empty_answer_of_no_tokens_swallows_nothing():
    nothing = Answer(choices=1, finish_reason="stop", usage={"completion_tokens": 1})
    (finding,), _ = run(check_native, subject(), nothing, nothing, nothing)
    assert finding.verdict == "not shown"


PIECES = AnsweredCall("get_weather", '{"city": "Paris"}', 5)


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        (Answer(calls=(PIECES,), finish_reason="tool_calls"), "works", "5 pieces"),
        (CALLED, "whole", "one piece"),
        (Answer(calls=(PIECES,)), "errors", "without a finish_reason"),
        (Answer(content=HERMES, finish_reason="stop"), "leaks", "as hermes"),
        (EMPTY, "swallows", "30 tokens"),
        (Answer(usage={"completion_tokens": 30}), "errors", "without a finish_reason"),
        (PROSE, "not shown", "did not call"),
        (error("no"), "errors", "HTTP 400: no"),
    ],
)
def test_streamed(answer, verdict, reason):
    (finding,), (request,) = run(check_streamed, subject(), answer)
    assert (finding.verdict, reason in finding.reason) == (verdict, True), finding
    assert request.body["stream"] is True


TWO = Answer(calls=(PARIS, PARIS))


@pytest.mark.parametrize(
    ("answers", "verdicts", "facts"),
    [
        ([CALLED], ["not shown"], {}),
        ([PROSE], ["not shown"], {}),
        ([Answer(content=HERMES + HERMES, finish_reason="stop")], ["leaks"], {}),
        ([EMPTY], ["swallows"], {}),
        ([error("no")], ["errors"], {}),
        ([TWO, CALLED], ["works", "works"], {}),
        ([TWO, TWO], ["works", "ignored"], {"parallel_tool_calls": False}),
        ([TWO, PROSE], ["works", "not shown"], {}),
        ([TWO, error("unknown field parallel_tool_calls")], ["works", "errors"], {"parallel_tool_calls": False}),
    ],
)
def test_parallel(answers, verdicts, facts):
    findings, _ = run(check_parallel, subject(), *answers)
    assert [finding.verdict for finding in findings] == verdicts
    assert findings[-1].facts == facts


@pytest.mark.parametrize(
    ("check", "native", "answer", "verdict", "kept"),
    [
        (check_none, "works", PROSE, "works", None),
        (check_none, "works", Answer(content=HERMES), "works", None),
        (check_none, "works", CALLED, "ignored", ["auto", "named", "required"]),
        (check_none, "not shown", PROSE, "not shown", None),
        (check_none, "works", error("bad tool_choice"), "errors", ["auto", "named", "required"]),
        (check_none, "errors", error("no tools here"), "errors", None),
        (check_required, "works", CALLED, "works", None),
        (check_required, "works", PROSE, "ignored", ["auto", "named", "none"]),
        (check_required, "works", EMPTY, "swallows", ["auto", "named", "none"]),
        (check_required, "works", Answer(content=HERMES), "leaks", ["auto", "named", "none"]),
        (check_required, "works", Answer(content="a b", finish_reason="length"), "not shown", None),
        (check_required, "works", BUSY, "not shown", None),
        (check_named, "works", Answer(calls=(AnsweredCall("get_time", "{}"),)), "works", None),
        (check_named, "works", CALLED, "ignored", ["auto", "none", "required"]),
        (check_named, "works", error("invalid tool_choice"), "errors", ["auto", "none", "required"]),
    ],
)
def test_tool_choice(check, native, answer, verdict, kept):
    (finding,), (request,) = run(check, subject(native), answer)
    assert finding.verdict == verdict
    assert finding.facts == ({} if kept is None else {"tool_choice": kept})
    assert "tool_choice" in request.body


def test_values_that_are_not_obeyed_add_up():
    about = subject("works")
    for check, answer in ((check_none, CALLED), (check_required, PROSE), (check_named, CALLED)):
        (finding,), _ = run(check, about, answer)
        about.findings[finding.check] = finding
    assert about.findings["tool_choice named"].facts == {"tool_choice": ["auto"]}


FITS = Answer(content='{"probed_city": "Paris", "probed_size": "large"}')


@pytest.mark.parametrize(
    ("facts", "answer", "verdict", "found"),
    [
        ({}, FITS, "works", {"constrained": "response_format"}),
        ({"kind": "vllm"}, FITS, "works", {}),
        ({"constrained": "format"}, FITS, "works", {}),
        ({}, PROSE, "ignored", {}),
        ({}, Answer(content='{"city": "Paris"}', finish_reason="stop"), "ignored", {}),
        ({"constrained": "response_format"}, Answer(content=FITS.content + " And more."), "broken", {}),
        ({"constrained": "response_format"}, Answer(content="{"), "errors", {}),
        ({}, EMPTY, "swallows", {}),
        ({"kind": "vllm"}, Answer(content=FITS.content.replace("Paris", "Par\x01is")), "works", {}),
        ({"constrained": "response_format"}, PROSE, "ignored", {"constrained_ok": False}),
        ({}, Answer(content='{"probed', finish_reason="length"), "not shown", {}),
        ({}, error("no grammar"), "errors", {}),
    ],
)
def test_format(facts, answer, verdict, found):
    (finding,), _ = run(check_format, subject(**facts), answer)
    assert (finding.verdict, finding.facts) == (verdict, found)


@pytest.mark.parametrize(
    ("native", "answers", "verdict", "found"),
    [
        ("works", [CALLED], "works", {}),
        ("works", [FITS], "ignored", {"format_beside_tools": False}),
        ("works", [Answer(content=HERMES)], "leaks", {"format_beside_tools": False}),
        ("works", [error("not with tools")], "errors", {"format_beside_tools": False}),
        ("leaks", [], "not shown", {}),
    ],
)
def test_format_beside_tools(native, answers, verdict, found):
    (finding,), _ = run(check_format_beside_tools, subject(native, format_beside_tools=True), *answers)
    assert (finding.verdict, finding.facts) == (verdict, found)


@pytest.mark.parametrize(
    ("check", "answer", "verdicts", "facts"),
    [
        (check_n, Answer(choices=2), ["works"], {}),
        (check_n, Answer(choices=1), ["ignored"], {"n": False}),
        (check_n, error("n must be 1"), ["errors"], {"n": False}),
        (check_n, BUSY, ["not shown"], {}),
        (check_usage, PROSE, ["works"], {}),
        (check_usage, Answer(content="x"), ["ignored"], {}),
        (check_usage, error("unknown field stream_options"), ["errors"], {"stream_usage": False}),
        (check_usage, error("other"), ["errors"], {}),
        (check_reasoning, PROSE, ["accepted", "not shown"], {}),
        (check_reasoning, Answer(reasoning_field="reasoning"), ["accepted", "works"], {"reasoning_field": "reasoning"}),
        (check_reasoning, Answer(reasoning_field="reasoning_content"), ["accepted", "works"], {}),
        (check_reasoning, error('"m" does not support thinking'), ["errors", "not shown"], {"thinking": False}),
        (check_system, Answer(content="Heron."), ["works"], {}),
        (check_system, PROSE, ["accepted"], {}),
        (check_system, error("System role not supported"), ["errors"], {"system_role": False}),
        (check_system, error("out of cheese"), ["errors"], {}),
        (check_turns, PROSE, ["accepted"], {}),
        (check_turns, error("Conversation roles must alternate"), ["errors"], {"alternate_roles": True}),
        (check_names, Answer(calls=(AnsweredCall("weather.now"),)), ["works"], {"tool_names": "[a-zA-Z0-9_.-]{1,64}"}),
        (check_names, Answer(calls=(AnsweredCall("weather_now"),)), ["broken"], {}),
        (check_names, PROSE, ["accepted"], {}),
        (check_names, error("invalid name"), ["errors"], {}),
    ],
)
def test_the_other_keys_of_a_request(check, answer, verdicts, facts):
    findings, _ = run(check, subject(), answer)
    assert [finding.verdict for finding in findings] == verdicts
    assert {key: value for finding in findings for key, value in finding.facts.items()} == facts


def counted(tokens):
    return Answer(content="four, five", usage={"prompt_tokens": tokens})


@pytest.mark.parametrize(
    ("chat", "answer", "verdict"),
    [
        (PROSE, PROSE, "works"),
        (counted(14), counted(6), "works"),
        (counted(14), counted(14), "ignored"),
        (error("busy", 503), counted(6), "works"),
        (PROSE, EMPTY, "accepted"),
        (PROSE, error("not found", 404), "absent"),
        (PROSE, error("no", 400), "errors"),
    ],
)
def test_raw_endpoint(chat, answer, verdict):
    (finding,), (_, request) = run(check_raw_endpoint, subject(), chat, answer)
    assert (finding.verdict, finding.facts, request.path) == (verdict, {}, "/completions")


NULL = error("messages.1.content: none is not an allowed value")
KNOWS = Answer(content="18 degrees and fog.")


@pytest.mark.parametrize(
    ("answers", "verdict", "facts"),
    [
        ([KNOWS], "works", {}),
        ([PROSE], "accepted", {}),
        ([NULL, KNOWS], "works", {"null_content": False}),
        ([error("Tool call id was call_1"), KNOWS], "works", {"tool_ids": "alnum9"}),
        ([error("Can only get item pairs from a mapping"), KNOWS], "works", {"history_arguments": "object"}),
        ([error("what?"), error("what?"), error("what?"), KNOWS], "works", {"history_arguments": "object"}),
        ([error("what?")] * 4, "errors", {}),
        ([BUSY], "not shown", {}),
    ],
)
def test_results(answers, verdict, facts):
    (finding,), _ = run(check_results, subject("works"), *answers)
    assert (finding.verdict, finding.facts) == (verdict, facts)


def test_each_form_of_a_past_call_is_tried():
    _, asked = run(check_results, subject("works"), *[error("what?")] * 4)
    past = [request.body["messages"][1] for request in asked]
    assert [message["content"] for message in past] == [None, "", None, None]
    assert len({json.dumps(message["tool_calls"]) for message in past}) == 3


def test_the_context_is_measured_only_when_asked_to():
    (finding,), asked = run(check_context, subject(context=4096))
    assert (finding.verdict, asked) == ("works", [])
    about = subject(context=4096)
    about.measure_context = True
    overflow = error("request (9000 tokens) exceeds the available context size (2048 tokens), try increasing it")
    (finding,), (request,) = run(check_context, about, overflow)
    assert (finding.verdict, finding.facts) == ("works", {"context": 2048})
    assert request.body["max_tokens"] == 1


ONE_CALL = Call("a", "get_weather", {"city": "Paris"}, '{"city": "Paris"}', dialect="hermes")


def through(outcome="answered", calls=(), raw="", **keys):
    attempt = Attempt("raw", keys.get("status", 200), outcome, "why")
    return Answer(reply=Reply(calls=calls, trace=Trace(attempts=(attempt,))), attempts=(attempt,), raw=raw, **keys)


def test_modes_and_their_tokens():
    profile = {"raw": "completions", "template_endpoint": "tokenize", "modes": ("native", "raw", "prompt")}
    findings, asked = run(
        check_modes,
        subject(**profile),
        through("no_native_tools", status=400, error="no tools"),
        through(calls=(ONE_CALL,), raw=HERMES),
        through(content="no idea"),
    )
    assert [request.mode for request in asked] == ["native", "raw", "prompt"]
    assert {finding.check: finding.verdict for finding in findings} == {
        "mode native": "errors",
        "mode raw": "works",
        "mode harmony": "absent",
        "mode prompt": "not shown",
        "special tokens in raw completions": "works",
    }
    found = recommend(findings, Profile(**profile))
    assert [mode for mode, _ in found.modes] == ["raw", "prompt"]
    assert [mode for mode, _ in found.left_out] == ["native"]
    assert found.facts == {"modes": ["raw", "prompt"]}


@pytest.mark.parametrize(
    ("attempt", "status", "verdict", "reason"),
    [
        (Attempt("native", 200, "swallowed", "no call"), 502, "errors", "swallowed: no call"),
        (Attempt("native", 400, "no_native_tools", "no tools"), 400, "errors", "no_native_tools: no tools"),
        (Attempt("native", 503, "refused", "later"), 503, "not shown", "the server was busy: later"),
    ],
)
def test_a_mode_that_fails_is_judged_by_its_last_attempt(attempt, status, verdict, reason):
    """promptools itself answers 502 where no attempt came to anything: that is no busy server."""
    failed = Answer(status, error="every attempt failed", attempts=(attempt,))
    findings, _ = run(check_modes, subject(), failed, through())
    assert (findings[0].verdict, findings[0].reason) == (verdict, reason)


def test_a_server_without_raw_endpoint_is_asked_in_two_modes():
    _, asked = run(check_modes, subject(), through(), through())
    assert [request.mode for request in asked] == ["native", "prompt"]


def test_where_nothing_called_the_known_order_holds():
    findings, _ = run(check_modes, subject(), through(), through())
    found = recommend(findings, Profile())
    assert [mode for mode, _ in found.modes] == ["native", "prompt"]
    assert found.facts == {}


def test_native_and_raw_mode_need_proof_where_the_profile_leaves_native_mode_out():
    """A model whose template shows no tools may still write a call, by chance."""
    profile = {"raw": "completions", "template_endpoint": "tokenize", "modes": ("prompt",)}
    called = through(calls=(ONE_CALL,))
    findings, asked = run(check_modes, subject("leaks", **profile), called)
    assert [request.mode for request in asked] == ["prompt"]
    assert [mode for mode, _ in recommend(findings, Profile(**profile)).modes] == ["prompt"]
    findings, asked = run(check_modes, subject("works", **profile), called, called, called)
    assert [request.mode for request in asked] == ["native", "raw", "prompt"]
    assert [mode for mode, _ in recommend(findings, Profile(**profile)).modes] == ["native", "raw", "prompt"]


def test_the_order_of_a_profile_that_prefers_prompt_mode_holds():
    profile = {"raw": "completions", "template_endpoint": "tokenize", "modes": ("prompt", "native")}
    called = through(calls=(ONE_CALL,))
    findings, _ = run(check_modes, subject("leaks", **profile), called, called, called)
    found = recommend(findings, Profile(**profile))
    assert [mode for mode, _ in found.modes] == ["prompt", "native", "raw"]


def test_a_reason_is_one_line():
    indented = Call("a", "get_weather", {"city": "Paris"}, '{\n  "city": "Paris"\n}', dialect="json")
    findings, _ = run(check_modes, subject(), through(calls=(indented,)), through())
    assert findings[0].reason == 'get_weather({"city": "Paris"}), as json'


def test_only_facts_that_are_new_are_recommended():
    findings = [
        Finding("n", "ignored", "", {"n": False}),
        Finding("tool_choice none", "x", "", {"tool_choice": ["auto"]}),
    ]
    assert recommend(findings, Profile(n=False, tool_choice=frozenset({"auto"}))).facts == {}
    assert recommend(findings, Profile()).facts == {"n": False, "tool_choice": ["auto"]}


def sse(*chunks):
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"


def piece(**function):
    call = {"index": 0, "function": function}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


def test_a_stream_is_put_together():
    ends = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    answer = read_answer(
        200,
        sse(
            {"choices": [{"index": 0, "delta": {"reasoning": "Hm."}, "finish_reason": None}]},
            piece(name="get_weather", arguments=""),
            piece(arguments='{"city": '),
            piece(arguments='"Paris"}'),
            ends,
            {"choices": [], "usage": {"completion_tokens": 9}},
        ),
        streamed=True,
    )
    assert answer.calls == (AnsweredCall("get_weather", '{"city": "Paris"}', 2),)
    assert (answer.finish_reason, answer.completion_tokens, answer.reasoning_field) == ("tool_calls", 9, "reasoning")


@pytest.mark.parametrize(
    ("status", "body", "streamed", "text"),
    [
        (500, b"Internal Server Error", False, "Internal Server Error"),
        (400, b'{"error": {"message": "bad"}}', True, "bad"),
        (200, b'{"error": {"message": "bad", "code": 500}}', True, "bad"),
        (200, b'data: {"error": {"message": "late"}}\n\n', True, "late"),
        (200, b"data: {oops\n\n", True, "a chunk is not valid JSON: {oops"),
        (200, b"<html>", False, "<html>"),
        (200, b"", False, "an empty body"),
        (200, b"{}", False, "{}"),
        (502, b"", False, "an empty body"),
    ],
)
def test_errors_of_any_form_are_errors(status, body, streamed, text):
    answer = read_answer(status, body, streamed=streamed)
    assert (answer.failed, answer.error) == (True, text)


def test_no_question_is_inside_another():
    """A scripted model would take one for the other."""
    texts = [value for name, value in vars(checks).items() if name.isupper() and isinstance(value, str)]
    assert [(one, other) for one in texts for other in texts if one != other and one in other] == []
    assert set(CHECKS) == {"native", "tool_choice", "history", "request", "raw", "modes", "context"}
