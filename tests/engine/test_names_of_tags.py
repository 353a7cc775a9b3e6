"""A tool may be named like a tag of reasoning, of an answer or of a result: the tag comes first."""

from __future__ import annotations

import re
from typing import Any

import pytest
from casebook import bare, cuts, feed, in_order, tiled

from promptools import dialects
from promptools.dialects.reply_markers import reply_markers

MARKERS = reply_markers()
NAMED = sorted(found[1] for tag in MARKERS.reserved_tags if (found := re.fullmatch(r"<(\w+)>", tag)))
THOUGHTS = [found[1] for opener in MARKERS.reasoning_tags if (found := re.fullmatch(r"<(\w+)>", opener))]
EXPECTED = [None, "tool_name_xml", "tool_name_yaml"]


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return {"name": name, "parameters": parameters}


def test_there_are_such_names() -> None:
    assert {"think", "thinking", "thought", "reasoning", "answer", "response", "tool_result"} <= set(NAMED)


OTHERS = [name for name in dialects.names() if name not in EXPECTED]


@pytest.mark.parametrize(
    ("name", "expect"),
    [
        (name, expect)
        for number, name in enumerate(THOUGHTS)
        for expect in (*EXPECTED, *OTHERS[number :: len(THOUGHTS)])  # each is compiled with each name of a tool anew
    ],
)
def test_the_first_thought_is_not_a_call_of_a_tool_of_that_name(name: str, expect: str | None) -> None:
    for body in ("The user wants a number.", "\n<text>Plan</text>\n", '{"text": "Plan"}', "\ntext: Plan\n", ""):
        text = f"<{name}>{body}</{name}>\n\nIt is 4."
        events, reply = feed([text], [tool(name)], expect=expect)
        tiled(events, text)
        assert (reply.calls, reply.malformed, reply.content) == ((), (), "It is 4.")
        assert reply.reasoning == body.strip()


@pytest.mark.parametrize("expect", EXPECTED)
@pytest.mark.parametrize("name", THOUGHTS)
@pytest.mark.parametrize("body", ["<text>Plan</text>", '{"text": "Plan"}', "text: Plan"])
def test_a_later_one_that_fits_is_a_call_however_it_is_cut(name: str, body: str, expect: str | None) -> None:
    text = f"<think>One.</think>\n<{name}>\n{body}\n</{name}>"
    for _, pieces in cuts(text, places=len(text)):
        events, reply = feed(pieces, [tool(name)], expect=expect)
        tiled(events, text)
        assert [(call.name, call.arguments) for call in reply.calls] == [(name, {"text": "Plan"})]
        assert reply.reasoning == "One."


@pytest.mark.parametrize("expect", EXPECTED)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("body", ["Just words.", '{"a": 1}', '{"text": "a"} is it.', "<text>a", "te", "<b>a</b>", ""])
def test_what_does_not_fit_is_not_a_call_however_it_is_cut(name: str, body: str, expect: str | None) -> None:
    for closer in (f"</{name}>\nYes.", ""):
        text = f"<think>One.</think>\n<{name}>{body}{closer}"
        _, whole = feed([text], [tool(name)], expect=expect)
        assert (whole.calls, whole.malformed) == ((), ())
        if name in THOUGHTS:
            assert whole.reasoning == f"One.{body}"
        elif f"<{name}>" in MARKERS.answer_tags and closer:
            assert whole.content == f"{body}\nYes.".strip()
        for _, pieces in cuts(text, places=10):
            events, reply = feed(pieces, [tool(name)], expect=expect)
            tiled(events, text)
            assert bare(reply) == bare(whole)


@pytest.mark.parametrize("body", ["", "Just words.", "<text>a", "<text>a</text>", '{"a": 1}', "<b>a</b>"])
@pytest.mark.parametrize("name", NAMED)
def test_no_call_begins_in_a_wrapper_before_it_is_one(name: str, body: str) -> None:
    """ToolBridge's wrapper makes elements certain, but not those whose tag has another meaning."""
    for before in ("", "<think>One.</think>\n", "<toolbridge_calls>\n<ping>\n<text>a</text>\n</ping>\n"):
        text = f"{before}<toolbridge_calls>\n<{name}>\n{body}"
        for closer in ("", f"</{name}>", f"</{name}></toolbridge_calls>", f"</{name}>\n<ping>\n<text>a</text></ping>"):
            for pieces in ([text + closer], list(text + closer)):
                events, reply = feed(pieces, [tool(name), tool("ping")], expect="toolbridge")
                tiled(events, text + closer)
                in_order(events, reply)
