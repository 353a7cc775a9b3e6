from dataclasses import replace

import pytest

from promptools.modes.tool_request import parse_request
from promptools.modes.verdict import NO_NAMES, judge_reply
from promptools.profiles import Profile
from promptools.types import Call, Discarded, Malformed, Reply, Trace


def tool(name, strict=None):
    function = {"name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    return {"type": "function", "function": function if strict is None else {**function, "strict": strict}}


TOOLS = [tool("get_weather"), tool("ping"), tool("exact", strict=True)]
CALL = Call("a1", "get_weather", {"city": "Oslo"}, '{"city": "Oslo"}')
NAMED = {"type": "function", "function": {"name": "ping"}}


def failed(reason, name="get_weather", whole=True):
    call = Call("b1", name, {"city": 5}, '{"city": 5}', unknown_tool=reason == "unknown_tool") if whole else None
    return Malformed(0, "<raw>", reason, f"{name}: mend it.", name=name, call=call)


def judge(reply, raw="", stop_reason=None, usage=None, profile=None, names=NO_NAMES, mode="native", **body):
    ask = parse_request({"messages": [], "tools": TOOLS, **body}, profile or Profile())
    return judge_reply(ask, reply, raw=raw, stop_reason=stop_reason, usage=usage, names=names, mode=mode)


def said(content="", finish="stop", **keys):
    return Reply(content=content, finish_reason=finish, **keys)


# --- good


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (said("Hello"), {}),
        (said(calls=(CALL,), finish="tool_calls"), {}),
        (said(calls=(CALL,)), {"tool_choice": "required"}),
        (said(calls=(CALL,), malformed=(failed("truncated", whole=False),), finish="length"), {}),
        (said("cut o", finish="length"), {}),
        (said(reasoning="hm", finish="length"), {}),
        (said(finish="content_filter"), {}),
        (said("Hello", finish=None), {}),
        (said("No.", discarded=(Discarded("x", "markup"),)), {"tool_choice": "none"}),
    ],
)
def test_what_was_asked_for_goes_out_as_it_is(reply, body):
    verdict = judge(reply, **body)
    assert (verdict.ok, verdict.kind, verdict.reply) == (True, "answered", reply)
    assert (verdict.retry_with_feedback, verdict.retry_elsewhere, verdict.feedback) == (False, False, ())


# --- lost by the server


def test_white_space_between_thoughts_is_not_an_answer():
    assert judge(said(reasoning="Hm."), raw="\n").reply.content == ""
    assert judge(said(reasoning="Hm."), raw="\nx").reply.content == "\nx"


@pytest.mark.parametrize(
    ("reply", "stop_reason", "usage", "kind"),
    [
        (said(reasoning="Need the tool."), 200012, {"completion_tokens": 29}, "swallowed"),
        (said("Let me look."), 200012, None, "swallowed"),
        (said(calls=(CALL,)), 200012, None, "answered"),
        (said(finish="tool_calls"), None, {"completion_tokens": 1}, "swallowed"),
        (said(finish="function_call"), None, None, "swallowed"),
        (said(" \n"), None, {"completion_tokens": 19}, "swallowed"),
        (said(), None, None, "swallowed"),
        (said(), None, {"completion_tokens": 1}, "answered"),
        (said(reasoning="hm"), None, {"completion_tokens": 3}, "swallowed"),
        (said("Sorry.", finish="tool_calls"), None, None, "empty_calls"),
    ],
)
def test_a_lost_reply_is_noticed(reply, stop_reason, usage, kind):
    verdict = judge(reply, stop_reason=stop_reason, usage=usage)
    assert verdict.kind == kind
    assert (verdict.retry_with_feedback, verdict.retry_elsewhere) == (False, kind != "answered")
    assert verdict.reply.content == reply.content
    if kind != "answered":
        assert verdict.reply.finish_reason == "stop"
        assert verdict.reason


@pytest.mark.parametrize(
    ("reply", "tokens", "body", "kind"),
    [
        (said("Let me look."), 25, {}, "empty_calls"),  # 12 bytes, and at most 12 tokens of tags
        (said("Let me look."), 24, {}, "answered"),
        (said("Here ☀."), 22, {}, "empty_calls"),
        (said("Here ☀."), 21, {}, "answered"),
        (said("Yes.", reasoning="Look, then answer."), 34, {}, "answered"),
        (said("Yes.", reasoning="Look, then answer."), 35, {}, "empty_calls"),
        (said("Let me look.", finish="length"), 90, {}, "answered"),
        (said("Let me look."), 90, {"stream": True}, "answered"),
        (said("Let me look."), 90, {"n": 2}, "answered"),
        (said("Let me look."), 90, {"tool_choice": "none"}, "answered"),
        (said("Let me look.", calls=(CALL,)), 90, {}, "answered"),
    ],
)
def test_a_call_that_ollama_dropped_after_text_shows_in_the_tokens(reply, tokens, body, kind):
    usage = {"completion_tokens": tokens}
    verdict = judge(reply, usage=usage, profile=Profile(wire="ollama"), **body)
    assert (verdict.kind, verdict.reply.content) == (kind, reply.content)
    assert judge(reply, usage=usage, **body).ok, "other servers may count thoughts that they hide"
    assert judge(reply, usage=usage, profile=Profile(wire="ollama", swallows=False), **body).ok
    assert judge(reply, profile=Profile(wire="ollama"), **body).ok
    for mode in ("harmony", "raw"):
        assert judge(reply, usage=usage, profile=Profile(wire="ollama"), mode=mode, **body).ok, (
            "all of it was read here"
        )


def test_empty_answers_are_answers_where_the_profile_says_so():
    calm = Profile(swallows=False)
    assert judge(said(), profile=calm).ok
    assert judge(said(finish="tool_calls"), profile=calm).kind == "swallowed"


def test_a_swallowed_call_is_not_a_loss_where_calls_were_forbidden():
    assert judge(said("Hello"), stop_reason=200012, tool_choice="none").ok
    assert judge(said(), stop_reason=200012, tool_choice="none").kind == "swallowed"


def test_a_stream_without_a_finish_reason_was_cut():
    verdict = judge(said("Hel", finish=None, calls=(CALL,)), raw="Hel<x>", stream=True)
    assert (verdict.kind, verdict.retry_elsewhere, verdict.retry_with_feedback) == ("cut", True, False)
    assert (verdict.reply.calls, verdict.reply.content, verdict.reply.finish_reason) == ((), "Hel<x>", "stop")


# --- malformed


def test_a_call_that_does_not_fit_is_asked_again_with_its_result():
    verdict = judge(said("Look.", malformed=(failed("invalid_arguments"),)), raw="Look.<raw>")
    assert (verdict.kind, verdict.retry_with_feedback, verdict.retry_elsewhere) == ("malformed", True, True)
    assert verdict.reason == "get_weather: invalid_arguments"
    function = {"name": "get_weather", "arguments": '{"city": 5}'}
    assert verdict.feedback == (
        {
            "role": "assistant",
            "content": "Look.",
            "tool_calls": [{"id": "b1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "b1", "content": "get_weather: mend it."},
    )
    assert (verdict.reply.content, verdict.reply.calls, verdict.reply.finish_reason) == ("Look.<raw>", (), "stop")


def test_a_call_that_cannot_be_written_is_told_of_in_words():
    broken = failed("invalid_json", whole=False)
    verdict = judge(said(malformed=(broken, failed("invalid_arguments", "ping"))), raw="<raw><raw>")
    assert verdict.feedback == (
        {"role": "assistant", "content": "<raw><raw>"},
        {"role": "user", "content": "get_weather: mend it. ping: mend it."},
    )
    nothing = judge(said(malformed=(broken,)))
    assert [each["role"] for each in nothing.feedback] == ["user"]


@pytest.mark.parametrize(
    ("on_malformed", "name", "reason", "handed"),
    [
        ("content", "get_weather", "invalid_arguments", False),
        ("call", "get_weather", "invalid_arguments", True),
        ("call", "exact", "invalid_arguments", False),
        ("error", "get_weather", "invalid_arguments", False),
        ("content", "nope", "unknown_tool", True),
        ("error", "nope", "unknown_tool", False),
    ],
)
def test_what_is_handed_over_when_all_is_used_up(on_malformed, name, reason, handed):
    reply = said(malformed=(failed(reason, name),), trace=Trace(notes=("before",)))
    verdict = judge(reply, raw="<raw>", promptools={"on_malformed": on_malformed})
    given = verdict.reply
    assert [call.name for call in given.calls] == ([name] if handed else [])
    assert given.content == ("" if handed else "<raw>")
    assert given.trace.notes[0] == "before"
    assert len(given.trace.notes) == (2 if handed else 1)
    assert given.malformed == reply.malformed


def test_one_call_is_handed_over_without_parallel_tool_calls():
    reply = said(malformed=(failed("unknown_tool", "x"), failed("unknown_tool", "y")))
    assert len(judge(reply).reply.calls) == 2
    assert len(judge(reply, parallel_tool_calls=False).reply.calls) == 1


def test_an_unknown_tool_is_told_which_there_are():
    verdict = judge(said(malformed=(failed("unknown_tool", "get_wether"),)))
    assert verdict.kind == "unknown_tool"
    text = verdict.feedback[1]["content"]
    assert "'get_wether'" in text
    assert "Did you mean 'get_weather'?" in text
    assert "get_weather, ping, exact" in text
    strange = judge(said(malformed=(failed("unknown_tool", "zzz"),))).feedback[1]["content"]
    assert "Did you mean" not in strange


@pytest.mark.parametrize(
    ("name", "heard"),
    [
        ("my_tool", "'my_tool'"),  # what the model made up
        ("my.tool/x", "'my.tool/x'"),  # the client's own name, which the server was not given
        ("old.tool", "'old_tool'"),  # one of the history, which was
    ],
)
def test_the_model_is_told_the_names_that_the_server_was_given(name, heard):
    given = {"names": {"my_tool_x": "my.tool/x", "old_tool": "old.tool"}, "tools": [tool("my.tool/x"), tool("ping")]}
    verdict = judge(said(malformed=(failed("unknown_tool", name),)), **given)
    text = verdict.feedback[1]["content"]
    assert text.startswith(f"There is no tool {heard}, so nothing was done. ")
    assert text.endswith(" The tools are: my_tool_x, ping.")
    assert ("Did you mean 'my_tool_x'?" in text) is (name != "old.tool")
    assert verdict.feedback[0]["tool_calls"][0]["function"]["name"] == name
    assert verdict.reason == f"{name}: unknown_tool"


def test_a_call_that_must_come_is_asked_for_by_the_name_that_the_server_was_given():
    given = {"names": {"a_b": "a.b"}, "tools": [tool("a.b"), tool("ping")]}
    named = {"type": "function", "function": {"name": "a.b"}}
    one = judge(said("Hello"), tool_choice=named, **given)
    assert one.feedback[-1]["content"] == "Call the tool a_b now; do not answer in plain text."
    some = judge(said("Hello"), tool_choice="required", **given)
    assert some.feedback[-1]["content"] == "Call one of these tools now; do not answer in plain text: a_b, ping."
    other = judge(said(malformed=(failed("unknown_tool", "ping"),)), tool_choice=named, **given)
    assert other.feedback[1]["content"] == (
        "'ping' must not be called now. Call the tool a_b now; do not answer in plain text."
    )


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["code"], "swallowed"),
        (["get_place>{}</assistant"], "swallowed"),
        (["code", "zzz"], "unknown_tool"),
        (["get weather"], "unknown_tool"),
    ],
)
def test_a_part_of_a_header_is_not_a_tool(names, kind):
    malformed = tuple(failed("unknown_tool", name) for name in names)
    verdict = judge(said(malformed=tuple(replace(each, dialect="native") for each in malformed)))
    assert (verdict.kind, verdict.retry_elsewhere) == (kind, True)
    assert judge(said(malformed=malformed)).kind == "unknown_tool", "what was read from text is as it was written"


def test_another_tool_than_the_named_one_is_not_a_call():
    verdict = judge(said(malformed=(failed("unknown_tool"),)), raw="<raw>", tool_choice=NAMED)
    assert (verdict.kind, verdict.retry_with_feedback, verdict.retry_elsewhere) == ("no_call", True, True)
    assert verdict.feedback[1]["content"] == (
        "'get_weather' must not be called now. Call the tool ping now; do not answer in plain text."
    )
    assert verdict.reply.calls == ()


@pytest.mark.parametrize(
    ("finish", "elsewhere", "given"),
    [("length", False, "length"), ("stop", True, "length"), ("tool_calls", True, "length")],
)
def test_a_call_that_was_cut_off_is_never_asked_again(finish, elsewhere, given):
    reply = said(finish=finish, malformed=(failed("truncated", whole=False), failed("invalid_arguments")))
    verdict = judge(reply, raw="<cut", promptools={"on_malformed": "call"})
    assert (verdict.kind, verdict.retry_with_feedback, verdict.retry_elsewhere) == ("truncated", False, elsewhere)
    assert (verdict.reply.calls, verdict.reply.content, verdict.reply.finish_reason) == ((), "<cut", "length")


@pytest.mark.parametrize(
    ("limits", "spent", "cut"),
    [
        ({"max_tokens": 9}, 9, True),
        ({"max_completion_tokens": 9, "max_tokens": 99}, 10, True),
        ({"max_tokens": 9}, 8, False),
        ({}, 9, False),
        ({"max_tokens": 9}, None, False),
    ],
)
def test_a_length_that_the_server_hid_is_found(limits, spent, cut):
    reply = said(finish="tool_calls", malformed=(failed("truncated", whole=False),))
    assert judge(reply, usage={"completion_tokens": spent}, **limits).retry_elsewhere is not cut


def test_a_filtered_reply_stays_filtered():
    reply = said(finish="content_filter", malformed=(failed("invalid_json", whole=False),))
    assert judge(reply, raw="x").reply.finish_reason == "content_filter"


# --- tool_choice


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("required", "Call one of these tools now; do not answer in plain text: get_weather, ping, exact."),
        (NAMED, "Call the tool ping now; do not answer in plain text."),
    ],
)
def test_a_call_that_must_come_and_does_not_is_asked_for(choice, words):
    verdict = judge(said("Hello"), raw="Hello", tool_choice=choice)
    assert (verdict.kind, verdict.retry_with_feedback, verdict.retry_elsewhere) == ("no_call", True, True)
    assert verdict.feedback == ({"role": "assistant", "content": "Hello"}, {"role": "user", "content": words})
    assert verdict.reply.content == "Hello"
    assert not judge(said("Hello", finish="length"), tool_choice=choice).retry_with_feedback


def test_nothing_but_forbidden_calls_is_asked_again():
    left_out = Trace(notes=("tool_choice is none: the call of 'f' was left out",))
    verdict = judge(said(discarded=(Discarded("{}", "markup"),), trace=left_out), tool_choice="none")
    assert (verdict.kind, verdict.retry_with_feedback) == ("forbidden", True)
    assert verdict.feedback == ({"role": "user", "content": "Answer in plain text; no tool may be called now."},)


@pytest.mark.parametrize(
    ("raw", "handed"),
    [
        ("For example:\n```json\n<raw>\n```\n", False),
        ("~~~\n<raw>\n~~~", False),
        ("<raw>", True),
        ("```json\n{}\n```\n<raw>", True),
    ],
)
def test_an_example_in_a_fence_is_text_when_all_is_used_up(raw, handed):
    verdict = judge(said(malformed=(failed("unknown_tool", "nope"),)), raw=raw)
    assert verdict.retry_with_feedback
    assert (verdict.reply.content, len(verdict.reply.calls)) == (("", 1) if handed else (raw, 0))
