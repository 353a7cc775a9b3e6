"""What no dialect of today gives: calls in text although no tool is offered, as unmistakable markers will."""

from promptools.modes.call_filter import CallFilter
from promptools.modes.prepared_request import PreparedRequest
from promptools.modes.tool_request import parse_request
from promptools.parsing.events import CallEnd, Text
from promptools.profiles import Profile
from promptools.types import Call, Malformed, Span

SPAN = Span(3, 9)


def test_under_none_a_call_in_the_text_is_text():
    tools = [{"type": "function", "function": {"name": "f"}}]
    gate = CallFilter(
        parse_request({"messages": [], "tools": tools, "tool_choice": "none"}, Profile()), PreparedRequest({})
    )
    event = CallEnd(0, Call("a", "f", {}, "{}", unknown_tool=True), SPAN)
    assert gate.on_end(event, "text", lambda span: f"raw{span.start}") == [Text("raw3", SPAN)]
    failed = Malformed(1, "<call", "truncated", "m", SPAN)
    assert gate.on_malformed(failed, "text") == [Text("<call", SPAN)]
    assert (gate.calls, gate.malformed, gate.notes) == ([], [], [])
