"""Replies in Harmony: read, judged, and what the model is told where it has to be asked again."""

import itertools
import re
from dataclasses import replace

import pytest
from test_harmony_body import NAMED, REFUSED, SPACED, WEATHER, asked

from promptools.modes.harmony_mode import prepare_harmony
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.verdict import NO_CALL_OR_ANSWER, judge_reply
from promptools.wire.chat_decoder import Delta

THOUGHT = "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant"
HEADER = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
CALL = HEADER + '{"city": "Paris"}<|call|>'
FINAL = "<|channel|>final<|message|>Sunny.<|return|>"


class Run:
    """A reply, cut into pieces of a size, read and judged."""

    def __init__(self, text, finish="stop", cut=0, stop_reason=None, feedback=(), spent=9, **keys):
        self.ask = asked(**{"tools": [WEATHER], **keys}).with_feedback(feedback)
        count = itertools.count()
        reader = ReplyReader(self.ask, prepare_harmony(self.ask), lambda: f"made{next(count)}")
        step = cut or len(text) or 1
        self.events = [e for at in range(0, len(text), step) for e in reader.feed(Delta(content=text[at : at + step]))]
        self.events += reader.close(finish)
        self.reply, self.raw = reader.reply, reader.raw
        usage = {"completion_tokens": spent}
        self.verdict = judge_reply(
            self.ask, self.reply, raw=self.raw, stop_reason=stop_reason, usage=usage, mode="harmony"
        )

    @property
    def calls(self):
        return [(call.name, call.arguments) for call in self.reply.calls]


PARIS = [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_thoughts_words_and_calls(cut):
    run = Run(THOUGHT + "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant" + CALL, cut=cut)
    assert (run.reply.reasoning, run.reply.content, run.calls) == ("Need it.", "Let me look.", PARIS)
    assert run.verdict.ok


@pytest.mark.parametrize("text", [CALL, CALL.removesuffix("<|call|>")])
def test_the_token_that_ended_the_reply_may_be_missing(text):
    run = Run(text, stop_reason=200012)
    assert (run.calls, run.verdict.ok) == (PARIS, True)


def test_names_come_back():
    run = Run(CALL, tools=[SPACED])
    assert run.calls == [("get weather", {"city": "Paris"})]
    assert run.reply.calls[0].fixes == ()


@pytest.mark.parametrize("cut", [0, 1])
def test_the_reply_goes_on_from_what_was_said_in_the_models_name(cut):
    run = Run('{"city": "Paris"}', cut=cut, tool_choice=NAMED, feedback=REFUSED)
    assert (run.calls, run.verdict.ok) == (PARIS, True)
    run = Run('.get_weather <|constrain|>json<|message|>{"city": "Paris"}', cut=cut, tool_choice="required",
              tools=[WEATHER, SPACED], feedback=REFUSED)  # fmt: skip
    assert run.calls == PARIS
    run = Run("Need it.<|end|><|start|>assistant" + CALL, cut=cut, options={"prefill": "thought"})
    assert (run.reply.reasoning, run.calls) == ("Need it.", PARIS)


def test_no_reply_is_not_a_reply_however_it_was_to_begin():
    run = Run("", options={"prefill": "thought"})
    assert (run.events, run.reply.content, run.raw) == ([], "", "")


def test_under_tool_choice_none_a_call_is_left_out():
    run = Run(THOUGHT + CALL, tool_choice="none")
    assert (run.calls, run.reply.content, run.verdict.kind) == ([], "", "forbidden")
    assert run.verdict.reply.content == '{"city": "Paris"}'  # if no attempt does better
    assert run.verdict.feedback == ({"role": "user", "content": "Answer in plain text; no tool may be called now."},)
    run = Run(FINAL.replace("return", "end") + "<|start|>assistant" + CALL, tool_choice="none", stop_reason=200012)
    assert (run.reply.content, run.verdict.ok) == ("Sunny.", True)


@pytest.mark.parametrize("cut", [0, 1])
def test_without_any_tool_a_call_is_text(cut):
    run = Run(THOUGHT + CALL, cut=cut, tools=[])
    assert (run.calls, run.reply.content, run.verdict.ok) == ([], '{"city": "Paris"}', True)
    assert run.reply.trace.notes == ("no tool was offered: the call of 'get_weather' is text",)


def test_without_any_tool_a_header_alone_is_not_text():
    run = Run("<|channel|>commentary to=functions.get_weather<|message|>", tools=[])
    assert (run.calls, run.reply.content, run.verdict.kind) == ([], "", "forbidden")
    assert run.verdict.reply.content == ""
    assert run.reply.trace.notes == ("no tool was offered: the call of 'get_weather' was left out",)


def test_thoughts_alone_are_told_as_harmony_react_tells_them():
    run = Run("<|channel|>analysis<|message|>Need it.<|end|>")
    assert (run.verdict.kind, run.verdict.retry_with_feedback, run.verdict.retry_elsewhere) == ("swallowed", True, True)
    (said,) = run.verdict.feedback
    assert said == {"role": "assistant", "content": "", "reasoning": f"Need it.\n\n{NO_CALL_OR_ANSWER}"}
    again = prepare_harmony(run.ask.with_feedback(run.verdict.feedback)).prompt.content
    assert "analysis<|message|>Need it.\n\nCannot find <\\|channel|>commentary or <\\|channel|>final. In" in again


def test_thoughts_alone_under_tool_choice_none_are_not_a_forbidden_call():
    assert Run("<|channel|>analysis<|message|>Hm.<|end|>", tool_choice="none").verdict.kind == "swallowed"


def test_thoughts_that_were_cut_are_an_answer_that_was_cut():
    run = Run("<|channel|>analysis<|message|>Need", finish="length")
    assert (run.verdict.ok, run.reply.reasoning) == (True, "Need")


def test_a_call_that_was_cut_is_none():
    run = Run(HEADER + '{"city": "Par', finish="length")
    assert (run.verdict.kind, run.verdict.retry_elsewhere, run.calls) == ("truncated", False, [])
    assert run.verdict.reply.finish_reason == "length"
    assert run.verdict.reply.content == '{"city": "Par', "no header goes into the history"


def test_an_answer_in_a_format_is_not_a_call():
    answer = FINAL.replace("Sunny.", '{"name": "get_weather", "arguments": {"city": "Paris"}}')
    assert Run(THOUGHT + answer).calls == PARIS
    schema = {"type": "object", "properties": {"sunny": {"type": "boolean"}}, "required": ["sunny"]}
    form = {"type": "json_schema", "json_schema": {"name": "sky", "schema": schema}}
    run = Run(THOUGHT + answer, response_format=form)
    assert (run.calls, run.verdict.kind) == ([], "format")


EARLY = ['{"city": "Par', '{"city": "Paris", "days": 2', '{"city": "Paris", ', '{"city": ', "{"]


@pytest.mark.parametrize("react", [False, True])
@pytest.mark.parametrize("token", ["", "<|call|>"])
@pytest.mark.parametrize("text", EARLY)
def test_a_call_that_the_model_ended_early_is_asked_for_again(text, token, react):
    run = Run(THOUGHT + HEADER + text + token, options={"harmony_react": react})
    assert (run.verdict.kind, run.verdict.retry_with_feedback, run.calls) == ("malformed", True, [])
    assert [failed.reason for failed in run.reply.malformed] == ["invalid_json"]
    assert run.verdict.reply.finish_reason == "stop"
    shown = run.verdict.feedback[0]["reasoning"] if react else run.verdict.feedback[0]["tool_calls"][0]
    assert text in (shown if react else shown["function"]["arguments"])


@pytest.mark.parametrize("text", EARLY)
def test_one_that_the_server_cut_off_is_not(text):
    run = Run(THOUGHT + HEADER + text, finish="length")
    assert (run.verdict.kind, run.verdict.retry_with_feedback) == ("truncated", False)
    run = Run(THOUGHT + HEADER + text, max_tokens=9)  # though the server says that the model was done
    assert (run.verdict.kind, run.verdict.retry_with_feedback) == ("truncated", False)
    assert run.verdict.reply.finish_reason == "length"
    assert Run(THOUGHT + HEADER + "{city: }", max_tokens=9).verdict.kind == "malformed"


@pytest.mark.parametrize("finish", ["length", "stop", None])
def test_wherever_a_call_is_cut_it_is_none(finish):
    text = CALL.removesuffix("}<|call|>")
    for end in range(1, len(text) if finish == "stop" else len(text) + 1):
        run = Run(text[:end], finish=finish)
        assert run.calls == [] or (finish == "stop" and text[:end].endswith('"Paris"')), text[:end]


def test_arguments_that_are_not_json_are_shown_to_the_model_as_it_made_them():
    run = Run(THOUGHT + HEADER + "{city: }<|call|>")
    assert run.verdict.kind == "malformed"
    said, result = run.verdict.feedback
    assert said["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": "{city: }"}
    assert (said["reasoning"], said["content"]) == ("Need it.", None)
    assert result["tool_call_id"] == said["tool_calls"][0]["id"]
    again = prepare_harmony(run.ask.with_feedback(run.verdict.feedback)).prompt.content
    assert "to=functions.get_weather<|channel|>commentary json<|message|>{city: }<|call|>" in again
    assert "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>The call of" in again


@pytest.mark.parametrize(
    ("text", "kind", "said", "wrong"),
    [
        (THOUGHT + HEADER + "{city: }<|call|>", "malformed", "{city: }", "The call of 'get_weather' was not run"),
        (THOUGHT + CALL.replace("weather", "news"), "unknown_tool", '{"city": "Paris"}', "There is no tool 'get_news'"),
        (THOUGHT + HEADER + '{"city": {"<|end|>": 1}}<|call|>', "malformed", '{"city": {"<|end|>": 1}}', "The call of"),
    ],
)
def test_harmony_react_tells_what_is_wrong_as_a_thought(text, kind, said, wrong):
    run = Run(text, options={"harmony_react": True})
    assert run.verdict.kind == kind
    (thought,) = run.verdict.feedback
    assert (thought["role"], thought["content"]) == ("assistant", "")
    assert thought["reasoning"].startswith(f"Need it.\n\n{said}\n\nFailed to process response: {wrong}")
    assert thought["reasoning"].endswith(f"\n\n{NO_CALL_OR_ANSWER}")
    again = prepare_harmony(run.ask.with_feedback(run.verdict.feedback)).prompt.content
    turn = again[again.rindex("<|start|>assistant<|channel|>") :]
    assert f"\n\n{NO_CALL_OR_ANSWER}<|end|>" in turn, "as its harness sends it: its tokens are tokens"
    rest = turn.replace(NO_CALL_OR_ANSWER, "")
    assert re.findall(r"<\|\w+\|>", rest) == ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|start|>"]


@pytest.mark.parametrize("text", [THOUGHT + FINAL, "Sunny."])
def test_harmony_react_takes_plain_words_for_an_answer(text):
    run = Run(text, options={"harmony_react": True})
    assert (run.verdict.ok, run.reply.content) == (True, "Sunny.")


def test_arguments_that_do_not_fit():
    run = Run(THOUGHT + HEADER + '{"city": {}}<|call|>')
    assert run.verdict.kind == "malformed"
    assert run.verdict.feedback[0]["reasoning"] == "Need it."


def test_words_in_place_of_a_call_are_shown_without_their_headers():
    run = Run(THOUGHT + FINAL, tool_choice="required")
    assert run.verdict.kind == "no_call"
    said, user = run.verdict.feedback
    assert said == {"role": "assistant", "content": "Sunny.", "reasoning": "Need it."}
    assert user["role"] == "user"
    assert prepare_harmony(run.ask.with_feedback(run.verdict.feedback)).prefill == HEADER


def test_thoughts_in_place_of_a_call():
    run = Run("<|channel|>analysis<|message|>Hm.<|end|>", tool_choice="required")
    assert run.verdict.feedback[0] == {"role": "assistant", "content": "", "reasoning": "Hm."}
    assert Run("", tool_choice="required").verdict.feedback[0]["role"] == "user"


def test_a_call_of_no_name_is_told_in_words():
    run = Run(CALL)
    failed = replace(Run(HEADER + "{city: }<|call|>").reply.malformed[0], name=None)
    lost = replace(run.reply, calls=(), malformed=(failed,), content="Hm.")
    verdict = judge_reply(run.ask, lost, raw="<|raw|>", mode="harmony")
    assert [each["role"] for each in verdict.feedback] == ["assistant", "user"]
    assert verdict.feedback[0]["content"] == "Hm."


def test_a_json_answer_is_an_answer():
    run = Run('<|channel|>final<|message|>{"city": "Paris"}<|return|>', response_format={"type": "json_object"})
    assert (run.reply.content, run.calls) == ('{"city": "Paris"}', [])
