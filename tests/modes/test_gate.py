"""What no dialect of today gives: calls in text although no tool is offered, as unmistakable markers will."""

from promptools.modes.ask import read_ask
from promptools.modes.gate import Gate
from promptools.modes.mode import Upstream
from promptools.parsing.events import CallEnd, Text
from promptools.profiles import Profile
from promptools.types import Call, Malformed, Span

SPAN = Span(3, 9)


def test_under_none_a_call_in_the_text_is_text():
    tools = [{"type": "function", "function": {"name": "f"}}]
    gate = Gate(read_ask({"messages": [], "tools": tools, "tool_choice": "none"}, Profile()), Upstream({}))
    event = CallEnd(0, Call("a", "f", {}, "{}", unknown_tool=True), SPAN)
    assert gate.ended(event, "text", lambda span: f"raw{span.start}") == [Text("raw3", SPAN)]
    failed = Malformed(1, "<call", "truncated", "m", SPAN)
    assert gate.failed(failed, "text") == [Text("<call", SPAN)]
    assert (gate.calls, gate.malformed, gate.notes) == ([], [], [])
