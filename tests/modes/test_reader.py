"""One reader for every mode: text, thoughts and structured calls, cut anywhere, under every wish of the request."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptools.modes.registry import PREPARE
from promptools.modes.reply_reader import MAX_TRAILING_SPACE, ReplyReader
from promptools.modes.tool_request import parse_request
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Reasoning, Text, WasReasoning, join
from promptools.profiles import Profile
from promptools.types import Discarded, Malformed
from promptools.wire.chat_decoder import Delta, ToolDelta


def tool(name, required=(), strict=None, **properties):
    function = {"name": name, "parameters": {"type": "object", "properties": properties, "required": list(required)}}
    return {"type": "function", "function": function if strict is None else {**function, "strict": strict}}


TEXT = {"type": "string"}
TOOLS = [
    tool("get_weather", ["city"], city=TEXT, days={"type": "integer"}),
    {**tool("wipe", ["disk"], disk=TEXT), "x-promptools": {"dangerous": True}},
    tool("exact", ["city"], strict=True, city=TEXT),
]
BLOCK = '```json\n{"tool": "get_weather", "arguments": {"city": "Oslo"}}\n```'
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
OSLO = ("get_weather", {"city": "Oslo"})
OSLO_1 = ("get_weather", {"city": "Oslo", "days": 1})

BROKEN = HERMES.replace('"Oslo"', "")


class Run:
    """A reader, fed and closed."""

    def __init__(self, *deltas, finish="stop", mode="native", profile=None, tools=TOOLS, **body):
        self.ask = parse_request({"messages": [], "tools": tools, "stream": True, **body}, profile or Profile())
        count = itertools.count()
        self.reader = ReplyReader(self.ask, PREPARE[mode](self.ask), lambda: f"made{next(count)}")
        self.events = [event for delta in deltas for event in self.reader.feed(delta)]
        self.before = list(self.events)
        self.events += self.reader.close(finish)
        self.reply = self.reader.reply

    @property
    def calls(self):
        return [(call.name, call.arguments) for call in self.reply.calls]


def server(*calls):
    return [Delta(tool_calls=(ToolDelta(index, f"s{index}", *call),)) for index, call in enumerate(calls)]


def args(**arguments):
    return json.dumps(arguments)


# --- native


def test_what_is_left_out_is_in_the_same_pieces_however_it_is_cut():
    text = f"{HERMES}\n<tool_response>\n5 C\n</tool_response>\nIt is 5 C."
    whole = Run(Delta(content=text)).reply
    assert Run(*(Delta(content=char) for char in text)).reply.discarded == whole.discarded
    assert [piece.why for piece in whole.discarded] == ["markup", "markup", "space", "result"]


def test_a_structured_call_is_checked_and_mended():
    run = Run(
        Delta(reasoning="hm"),
        Delta(content="Ok"),
        *server(("get_weather<|channel|>commentary", '{"location": "Oslo",')),
        Delta(tool_calls=(ToolDelta(0, None, None, ' "days": "3"}'),)),
        finish="tool_calls",
    )
    (call,) = run.reply.calls
    assert (call.id, call.name, call.arguments) == ("s0", "get_weather", {"city": "Oslo", "days": 3})
    assert [fix.kind for fix in call.fixes] == ["name", "alias", "coerce"]
    assert (run.reply.content, run.reply.reasoning, run.reply.finish_reason) == ("Ok", "hm", "tool_calls")
    assert [type(event) for event in run.events] == [Reasoning, Text, CallStart, CallArgs, CallEnd]
    assert run.reader.raw == "Ok"


def test_the_first_call_goes_out_when_the_next_begins():
    run = Run(*server(("get_weather", args(city="Oslo")), ("get_weather", args(city="Rome"))))
    assert [event.call.id for event in run.before if isinstance(event, CallEnd)] == ["s0"]
    assert [call.id for call in run.reply.calls] == ["s0", "s1"]


def test_a_leaked_call_is_found_in_the_content():
    run = Run(Delta(content="I'll look.\n"), *(Delta(content=char) for char in HERMES))
    assert run.calls == [OSLO]
    assert run.reply.content == "I'll look."
    assert run.reader.raw == f"I'll look.\n{HERMES}"
    assert run.reply.trace.tries


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_a_call_that_came_both_ways_is_one_call(finish):
    run = Run(Delta(content=HERMES), *server(("get_weather", args(city="Oslo"))), finish=finish)
    assert run.calls == [OSLO]
    assert any(isinstance(event, Discarded) and event.why == "repeat" for event in run.events)
    assert any("once is meant" in note for note in run.reply.trace.notes)
    twice = Run(*server(("get_weather", args(city="Oslo")), ("get_weather", args(city="Oslo"))))
    assert twice.calls == [OSLO, OSLO]


def test_ids_are_made_where_they_miss_or_repeat():
    same = [Delta(tool_calls=(ToolDelta(i, "x", "get_weather", args(city=str(i))),)) for i in range(2)]
    none = Delta(tool_calls=(ToolDelta(2, None, "get_weather", args(city="2")),))
    glued = Delta(tool_calls=(ToolDelta(3, "y", "get_weather", args(city="3") + args(city="4")),))
    ids = [call.id for call in Run(*same, none, glued).reply.calls]
    assert ids[0] == "x"
    assert ids[3] == "y"
    assert len(set(ids)) == 5


def test_mistral_gets_nine_alphanumerics_everywhere():
    run = Run(*server(("get_weather", args(city="Oslo")), ("nope", "{}")), profile=Profile(tool_ids="alnum9"))
    ids = [run.reply.calls[0].id, run.reply.malformed[0].call.id]
    assert all(len(each) == 9 and each.isalnum() for each in ids)


def test_mapped_names_come_back():
    dotted = [tool("graph.list", ["city"], city=TEXT), tool("查天气", ["town"], town=TEXT)]
    leaked = '<tool_call>{"name": "tool", "arguments": {"town": "a"}}</tool_call>'
    run = Run(
        Delta(content=leaked), *server(("graph_list", args(city="b")), ("graph_list", args(city=1))), tools=dotted
    )
    assert run.calls == [("查天气", {"town": "a"}), ("graph.list", {"city": "b"}), ("graph.list", {"city": "1"})]
    broken = Run(*server(("graph_list", "{"), ("graph_list", args(x=1))), tools=dotted)
    assert [each.name for each in broken.reply.malformed] == ["graph.list", "graph.list"]
    assert broken.reply.malformed[1].call.name == "graph.list"


BLANK = "\n" * 4
LONG = MAX_TRAILING_SPACE // len(BLANK)
"""Deltas of it that end a reply."""


@pytest.mark.parametrize(
    "text", [HERMES, f"Let me look.\n{HERMES}", BLOCK, '{"name": "get_weather", "arguments": {"city": "Oslo"}}']
)
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_white_space_without_end_after_a_whole_call_ends_the_reply(mode, text):
    few, enough = ([Delta(content=each) for each in (text, *[BLANK] * number)] for number in (LONG - 1, LONG))
    assert (Run(*few, mode=mode).reader.may_stop, Run(*enough, mode=mode).reader.may_stop) == (False, True)
    assert Run(*enough, mode=mode).calls == [OSLO]
    assert Run(*(Delta(content=each) for each in text + BLANK * LONG), mode=mode).reader.may_stop


def test_it_ends_after_a_call_of_the_servers_own():
    blanks = [Delta(content=BLANK)] * LONG
    assert Run(*server(("get_weather", args(city="Oslo"))), *blanks).reader.may_stop
    assert not Run(*server(("get_weather", '{"city": "Oslo"')), *blanks).reader.may_stop


@pytest.mark.parametrize(
    "text",
    [
        "It is sunny.",
        "",
        HERMES.removesuffix('"}}\n</tool_call>'),
        BLOCK.removesuffix('"}}\n```'),
        '```json\n{"tool": "get_weather", "arguments": {"city":',
        f"{HERMES}\n{BROKEN}",
        f"Write it so:\n{BLOCK}\nDo you see?",
    ],
)
def test_white_space_after_anything_else_does_not(text):
    assert not Run(*(Delta(content=each) for each in (text, *[BLANK] * 4 * LONG))).reader.may_stop


def test_what_comes_in_time_is_another_call():
    between = [Delta(content=" " * (MAX_TRAILING_SPACE - 1))]
    run = Run(Delta(content=HERMES), *between, Delta(content=HERMES.replace("Oslo", "Rome")), *between)
    assert (run.reader.may_stop, run.calls) == (False, [OSLO, ("get_weather", {"city": "Rome"})])
    thought = Run(Delta(content=HERMES + " " * 60), Delta(reasoning="Hm."), Delta(content=" " * 60))
    assert not thought.reader.may_stop


def test_wide_gaps_in_a_text_cost_a_look_each_time_that_it_has_doubled(monkeypatch):
    looks = []
    monkeypatch.setattr(ReplyReader, "_ends_in_call", lambda reader: bool(looks.append(1)))
    Run(*[Delta(content="word"), Delta(content=" " * MAX_TRAILING_SPACE)] * 500)
    assert len(looks) == 9


@pytest.mark.parametrize(
    ("calls", "finish", "reason"),
    [
        ([("get_weather", "{")], "length", "truncated"),
        ([("get_weather", "{")], None, "truncated"),
        ([("get_weather", '{"city": "Oslo"')], "length", "truncated"),
        ([("get_weather", args(days=1))], "tool_calls", "invalid_arguments"),
        ([("nope", "{}")], "tool_calls", "unknown_tool"),
        ([("exact", args(city="a", days="many"))], "tool_calls", None),
    ],
)
def test_failed_calls(calls, finish, reason):
    run = Run(*server(*calls), finish=finish)
    assert [each.reason for each in run.reply.malformed] == ([reason] if reason else [])
    assert run.reader.raw == (calls[0][1] if reason else "")
    assert all(each.raw == calls[0][1] for each in run.reply.malformed)


def test_a_call_cut_short_before_another_may_be_closed():
    run = Run(*server(("get_weather", '{"city": "Oslo"'), ("get_weather", "{")), finish="length")
    assert run.calls == [OSLO]
    assert [each.reason for each in run.reply.malformed] == ["truncated"]


def test_refusals_are_content():
    assert Run(Delta(refusal="No.")).reply.content == "No."


# --- thoughts


@pytest.mark.parametrize(
    ("delta", "finish", "calls"),
    [
        (Delta(reasoning=f"Look.\n{HERMES}"), "stop", [OSLO]),
        (Delta(reasoning=f"Look.\n{HERMES}"), "length", []),
        (Delta(reasoning=f"Look.\n{HERMES}"), None, []),
        (Delta(reasoning=f"{HERMES}\nNo, rather not."), "stop", []),
        (Delta(reasoning=f"Look.\n{HERMES}", content="Hello"), "stop", []),
        (Delta(reasoning=f"Look.\n{HERMES}", content=" \n"), "stop", [OSLO]),
        (Delta(reasoning='{"city": "Oslo"}'), "stop", []),
        (Delta(reasoning='{"city": "Oslo"}'), "tool_calls", []),
        (Delta(reasoning='{"city": "Oslo", "days": 1}', stop_reason=200012), "stop", [OSLO_1]),
        (Delta(reasoning=HERMES.replace("get_weather", "wipe").replace("city", "disk")), "stop", []),
        (Delta(reasoning="Just a thought."), "stop", []),
        (Delta(reasoning=f"{BROKEN}\n{HERMES}"), "stop", [OSLO]),
    ],
)  # fmt: skip
def test_thoughts_are_looked_through_only_when_nothing_else_came(delta, finish, calls):
    run = Run(delta, finish=finish)
    assert run.calls == calls
    call = delta.reasoning.rfind('{"city"' if calls == [OSLO_1] else "<tool_call>") if calls else None
    assert run.reply.reasoning == delta.reasoning[:call]
    assert "".join(event.text for event in run.events if isinstance(event, Reasoning)) == run.reply.reasoning
    for call in run.reply.calls:
        assert call.fixes[-1].detail == "the call was in the reasoning"


def test_no_call_is_looked_for_where_none_may_be():
    thought = Delta(reasoning=HERMES)
    assert Run(thought, tool_choice="none").calls == []
    assert Run(thought, tools=[]).calls == []
    assert Run(thought, *server(("nope", "{}"))).calls == []


def test_inline_thoughts_are_told_from_words():
    run = Run(Delta(content="<think>hm</think>\nHello\n<think>\na\n</think> you"))
    assert (run.reply.reasoning, run.reply.content) == ("hm\na", "Hello you")
    assert run.reader.raw == "\nHello\n you"
    opened = Run(Delta(content="hm</think>Hello"), profile=Profile(in_reasoning=True))
    assert (opened.reply.reasoning, opened.reply.content) == ("hm", "Hello")
    assert opened.reader.raw == "Hello"
    field = Run(Delta(reasoning="hm"), Delta(content="Hello"), profile=Profile(in_reasoning=True))
    assert (field.reply.reasoning, field.reply.content) == ("hm", "Hello")


def test_an_orphan_closer_makes_reasoning_of_what_went_before():
    run = Run(Delta(content="hm, well, "), Delta(content="so</think>Hello"))
    assert any(isinstance(event, WasReasoning) for event in run.events)
    assert (run.reply.reasoning, run.reply.content, run.reader.raw) == ("hm, well, so", "Hello", "Hello")


# --- prompt


def test_the_asked_for_block_is_a_call_even_before_prose():
    run = Run(Delta(content=f"Look:\n{BLOCK}\nThat should do."), mode="prompt")
    assert run.calls == [OSLO]


def test_a_server_may_answer_with_structure_all_the_same():
    assert Run(*server(("get_weather", args(city="Oslo"))), mode="prompt").calls == [OSLO]


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize(
    "raw", [" to=functions.get_weather<|channel|>commentary<|call|>", "get_weather, please<|call|>"]
)
def test_what_the_server_could_not_read_of_a_call_is_not_content(mode, raw):
    run = Run(Delta(reasoning="Hm."), Delta(content=raw), mode=mode)
    assert [type(event) for event in run.before] == [Reasoning]
    (failed,) = run.reply.malformed
    assert (failed.reason, failed.dialect) == ("truncated", "harmony")
    assert (run.reply.content, run.reader.raw) == ("", raw)


def test_what_ends_in_a_token_of_harmony_beside_a_call_of_the_server_is_content():
    run = Run(Delta(content="I'll look, please.<|call|>"), *server(("get_weather", args(city="Oslo"))))
    assert (run.calls, run.reply.malformed) == ([OSLO], ())
    assert (run.reply.content, run.reader.raw) == ("I'll look, please.", "I'll look, please.<|call|>")


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_words_without_a_header_are_an_answer(mode):
    run = Run(Delta(content="Hello there.<|return|>"), mode=mode)
    assert (run.reply.content, run.reply.malformed, run.reader.raw) == ("Hello there.", (), "Hello there.<|return|>")


@pytest.mark.parametrize("raw", ["<|start|>assistant<|channel|>final<|return|>", "<|channel|>final<|return|>"])
def test_a_header_that_nothing_follows_is_not_an_answer(raw):
    run = Run(Delta(reasoning="Hm."), Delta(content=raw))
    assert (run.reply.content, run.reply.malformed, run.reader.raw) == ("", (), "")


def test_a_whole_call_that_the_server_could_not_read_is_one():
    raw = ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>'
    assert Run(Delta(content=raw)).calls == [OSLO]


def test_a_whole_call_that_is_quoted_is_text():
    call = '<|start|>assistant<|channel|>commentary to=functions.get_weather json<|message|>{"city": "Oslo"}<|call|>'
    said = f"The page says:\n{call}"
    page = [{"role": "user", "content": f"What is this?\n{call}"}]
    for deltas in ([said], [said[:40], said[40:]]):
        run = Run(*(Delta(content=each) for each in deltas), messages=page)
        assert (run.calls, run.reply.malformed) == ([], ())
        assert run.reply.content.removesuffix("<|call|>") == said.removesuffix("<|call|>")


def test_a_marker_that_ends_an_answer_is_no_part_of_it():
    run = Run(Delta(content="Hello there."), Delta(content="<|return|>"))
    assert (run.reply.content, run.reply.malformed) == ("Hello there.", ())
    assert [each.kind for each in run.reply.fixes] == ["marker"]


def test_what_comes_after_what_could_not_be_read_belongs_to_it():
    run = Run(Delta(content="Hello.<|return|>"), Delta(content="\n"))
    assert (run.reply.content, run.reader.raw) == ("Hello.", "Hello.<|return|>\n")


def test_an_unknown_tool_in_the_asked_for_block_is_reported():
    run = Run(Delta(content=BLOCK.replace("get_weather", "nope")), mode="prompt")
    (failed,) = run.reply.malformed
    assert (failed.reason, failed.call.name) == ("unknown_tool", "nope")


# --- what the request wants


def test_none_never_gives_a_call():
    run = Run(Delta(content=HERMES), *server(("get_weather", args(city="a")), ("get_weather", "{")), tool_choice="none")
    assert (run.calls, run.reply.malformed) == ([], ())
    assert run.reply.content == HERMES
    assert [event.why for event in run.events if isinstance(event, Discarded)] == ["markup", "markup"]
    assert len([note for note in run.reply.trace.notes if "tool_choice is none" in note]) == 2


def test_one_call_without_parallel_tool_calls():
    calls = server(*(("get_weather", args(city=city)) for city in "abc"))
    run = Run(*calls, parallel_tool_calls=False)
    assert run.calls == [("get_weather", {"city": "a"})]
    assert [note for note in run.reply.trace.notes if "parallel_tool_calls" in note]
    text = Run(Delta(content=HERMES + HERMES.replace("Oslo", "Rome")), parallel_tool_calls=False)
    assert text.calls == [OSLO]
    assert "Rome" in next(event.raw for event in text.events if isinstance(event, Discarded) and event.why == "repeat")


def test_only_the_named_tool_counts():
    choice = {"type": "function", "function": {"name": "wipe"}}
    run = Run(*server(("get_weather", args(city="a")), ("wipe", args(disk="b"))), tool_choice=choice)
    assert run.calls == [("wipe", {"disk": "b"})]
    (failed,) = run.reply.malformed
    assert (failed.reason, failed.call.unknown_tool) == ("unknown_tool", False)
    assert "only wipe may be called" in failed.message


# --- live


LIVE = {"arguments": "live"}


def shown(run):
    said = {}
    for event in run.events:
        if isinstance(event, CallArgs):
            said[event.index] = said.get(event.index, "") + event.fragment
    return said


@pytest.mark.parametrize("end", ["}", ', "days": "3"}', ', "more": {"a": 1}}', ', "days": 3} ]'])
def test_a_live_call_goes_out_as_it_comes(end):
    pieces = [
        ToolDelta(0, "s0", "get_weather", '{"city"'),
        *(ToolDelta(0, None, None, char) for char in ': "Oslo"' + end),
    ]
    run = Run(*(Delta(tool_calls=(piece,)) for piece in pieces), promptools=LIVE)
    (call,) = run.reply.calls
    assert isinstance(run.before[0], CallStart)
    assert any(isinstance(event, CallArgs) for event in run.before)
    assert shown(run) == {0: call.arguments_json}
    assert json.loads(call.arguments_json) == call.arguments
    assert call.id == run.before[0].id == "s0"


def test_a_live_call_that_cannot_be_kept_fails():
    run = Run(*server(("get_weather", '{"city": "a", "city": "b",}')), promptools=LIVE)
    assert run.calls == [] or shown(run)[0] == run.reply.calls[0].arguments_json
    cut = Run(*server(("get_weather", '{"city": "a", "days"')), promptools=LIVE, finish="length")
    assert isinstance(cut.before[0], CallStart)
    assert [type(event) for event in cut.events][-1] is Malformed
    assert cut.events[-1].index == cut.before[0].index


def test_strict_tools_are_never_live():
    run = Run(*server(("exact", args(city="a"))), promptools=LIVE)
    assert run.before == []
    assert [type(event) for event in run.events] == [CallStart, CallArgs, CallEnd]
    text = Run(Delta(content=HERMES.replace("get_weather", "exact")), promptools=LIVE)
    assert [type(event) for event in text.events if not isinstance(event, Discarded)] == [CallStart, CallArgs, CallEnd]


def test_live_calls_heed_the_request():
    calls = server(("get_weather", args(city="a", days=1)), ("get_weather", args(city="b", days=1)))
    one = Run(*calls, promptools=LIVE, parallel_tool_calls=False)
    assert (len(one.calls), list(shown(one))) == (1, [0])
    choice = {"type": "function", "function": {"name": "wipe"}}
    named = Run(*calls, promptools=LIVE, tool_choice=choice)
    assert (named.calls, shown(named)) == ([], {})
    assert Run(*calls, promptools=LIVE, tool_choice="none").calls == []


# --- the same however it is cut


def cut(text, sizes):
    turns = itertools.cycle(sizes)
    pieces = []
    while text:
        size = next(turns)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


SCENES = [
    f"I'll look.\n{HERMES}",
    f"{BLOCK}\n{BLOCK.replace('Oslo', 'Rome')}",
    "<think>hm</think>Hello",
    "so</think>Hello",
    HERMES.replace("city", "town"),
    "Just words, {and} [brackets].",
]


@pytest.mark.parametrize("scene", SCENES)
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1))
def test_text_reads_the_same_however_it_is_cut(scene, sizes):
    whole = Run(Delta(content=scene))
    pieces = Run(*(Delta(content=piece) for piece in cut(scene, sizes)))
    assert pieces.reply == whole.reply
    assert join(pieces.events) == join(whole.events) or "</think>" in scene
    assert pieces.reader.raw == whole.reader.raw


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1), st.booleans())
def test_structured_calls_read_the_same_however_they_are_cut(sizes, live):
    options = {"promptools": LIVE} if live else {}
    texts = ['{"city": "Oslo", "days": "2"}', "", '{"city": 5', '{"location": "x"}']
    heads = [ToolDelta(i, f"s{i}", "get_weather") for i in range(4)]
    whole = Run(
        *(Delta(tool_calls=(ToolDelta(i, f"s{i}", "get_weather", text),)) for i, text in enumerate(texts)), **options
    )
    pieces = [
        Delta(tool_calls=(delta,))
        for i, text in enumerate(texts)
        for delta in (heads[i], *(ToolDelta(i, None, None, piece) for piece in cut(text, sizes)))
    ]
    again = Run(*pieces, **options)
    assert again.reply == whole.reply
    for event in again.events:
        if isinstance(event, CallEnd):
            assert shown(again)[event.index] == event.call.arguments_json


deltas = st.builds(
    Delta,
    content=st.sampled_from(["", "a", "{", "<tool_call>", "</think>", "```json\n", '{"name": "x"}', "\ud800"]),
    reasoning=st.sampled_from(["", "x", HERMES]),
    tool_calls=st.lists(
        st.builds(
            ToolDelta,
            st.none() | st.integers(0, 2),
            st.none() | st.sampled_from("ab"),
            st.none() | st.sampled_from(["wipe", "x<|", "get_"]),
            st.sampled_from(["", "{", "}", '"city": "a"', "[", "junk", "{}"]),
        ),
        max_size=3,
    ).map(tuple),
)
finishes = st.sampled_from([None, "stop", "length", "tool_calls"])


@settings(deadline=None)
@given(st.lists(deltas, max_size=8), finishes, st.sampled_from(["whole", "live"]))
def test_no_reply_raises(deltas, finish, arguments):
    run = Run(*deltas, finish=finish, promptools={"arguments": arguments})
    for call in run.reply.calls:
        assert json.loads(call.arguments_json) == call.arguments


class TestQuotations:
    """A call in text that stands in the conversation already."""

    SAID = (Delta(content="The page says:\n\n"), Delta(content=HERMES))

    @pytest.mark.parametrize("mode", ["native", "prompt"])
    @pytest.mark.parametrize(
        "message",
        [
            {"role": "user", "content": f"What is {HERMES}?"},
            {"role": "user", "content": [{"type": "text", "text": HERMES}]},
            {"role": "tool", "tool_call_id": "c", "content": json.dumps({"out": HERMES})},
        ],
    )
    def test_a_call_from_a_users_message_or_a_result_is_text(self, mode, message):
        run = Run(*self.SAID, mode=mode, messages=[message])
        assert run.calls == []
        assert run.reply.content == f"The page says:\n\n{HERMES}"

    @pytest.mark.parametrize("role", ["assistant", "system", "developer"])
    def test_the_model_may_repeat_itself_and_do_as_the_app_shows(self, role):
        assert Run(*self.SAID, messages=[{"role": role, "content": HERMES}]).calls == [OSLO]

    def test_a_call_that_the_server_made_is_one(self):
        said = [Delta(content="The page says so.\n"), *server(("get_weather", '{"city": "Oslo"}'))]
        assert Run(*said, messages=[{"role": "user", "content": HERMES + '{"city": "Oslo"}'}]).calls == [OSLO]

    def test_a_role_of_any_type_is_taken(self):
        assert Run(*self.SAID, messages=[{"role": ["odd"], "content": HERMES}]).calls == []

    def test_the_whole_reply_is_a_call_be_there_reasoning_in_a_field_or_not(self):
        said = [Delta(reasoning="As I am told."), Delta(content=HERMES)]
        assert Run(*said, messages=[{"role": "user", "content": f"Say {HERMES}"}]).calls == [OSLO]
