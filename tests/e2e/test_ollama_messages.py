"""Ollama's own Messages API beside ours before the same Ollama: one shape, and right where Ollama loses a call.

The same requests by the same SDK. Facts of Ollama 0.32.15; a test of `alone` that fails after an update says that the
server changed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from asking import Proxies
from compared_messages import TOOL, Sides, calls, create, events_of, text
from compared_responses import PARIS, fields, kinds
from rig_ollama import cue
from scenes import ANSWER, QUESTION, RESULT

from promptools.lab.server_process import Server

pytestmark = pytest.mark.ollama

NOT_OFFERED = {"type": "tool", "name": "get_stocks"}
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"said": "Say words"},
    "cut text": {"said": "Say words", "max_tokens": 9},
    "call": {"said": QUESTION, "tools": [TOOL]},
    "required call": {"said": QUESTION, "tools": [TOOL], "tool_choice": {"type": "any"}},
    "choice of a tool that is not offered": {"said": QUESTION, "tools": [TOOL], "tool_choice": NOT_OFFERED},
    "two calls": {"said": cue("two"), "tools": [TOOL]},
}
BROKEN = {"broken": PARIS, "foreign": PARIS, "fenced": PARIS, "types": [("get_weather", {"city": "75001"})]}
"""What Ollama gets wrong of a model with a Go template, and what it should be."""


@pytest.fixture
def sides(ollama: Server, proxies: Proxies) -> Iterator[Sides]:
    both = Sides(ollama, "go", "ollama", proxies)
    yield both
    both.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("request_name", REQUESTS)
def test_messages_have_one_shape(sides: Sides, request_name: str, stream: bool) -> None:
    own, ours = (
        create(client, sides.model, stream=stream, **REQUESTS[request_name]) for client in (sides.own, sides.ours)
    )
    assert calls(ours) == calls(own)
    assert (text(ours), ours.stop_reason, ours.type, ours.role) == (text(own), own.stop_reason, own.type, own.role)
    assert fields(own) <= fields(ours)
    assert [fields(block) for block in ours.content] == [fields(block) for block in own.content]
    assert fields(own.usage) <= fields(ours.usage)
    assert ours.usage.output_tokens == own.usage.output_tokens


@pytest.mark.parametrize("request_name", REQUESTS)
def test_events_of_messages_come_in_one_order(sides: Sides, request_name: str) -> None:
    own, ours = (events_of(client, sides.model, **REQUESTS[request_name]) for client in (sides.own, sides.ours))
    assert kinds(ours) == kinds(own)
    shapes: dict[str, set[str]] = {}
    for event in own:
        shapes.setdefault(event.type, set()).update(fields(event))
    assert {event.type: fields(event) for event in ours}.items() <= shapes.items()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cell", BROKEN)
class TestLost:
    def test_alone(self, sides: Sides, cell: str, stream: bool) -> None:
        got = create(sides.own, sides.model, stream=stream, said=cue(cell), tools=[TOOL])
        assert calls(got) != BROKEN[cell]
        assert got.stop_reason in {"end_turn", "tool_use"}, "nothing tells that it is wrong"

    def test_through_the_proxy(self, sides: Sides, cell: str, stream: bool) -> None:
        # a call after text that was streamed cannot be asked for again
        mode = {"extra_body": {"promptools": {"mode": "raw"}}} if stream and cell == "foreign" else {}
        got = create(sides.ours, sides.model, stream=stream, said=cue(cell), tools=[TOOL], **mode)
        assert (calls(got), got.stop_reason) == (BROKEN[cell], "tool_use")
        assert "tool" not in text(got)


def test_a_round_of_tools(sides: Sides) -> None:
    asked = {"role": "user", "content": QUESTION}
    first = create(sides.ours, sides.model, stream=False, said=[asked], tools=[TOOL])
    (call,) = [block for block in first.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    said = [asked, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    assert text(create(sides.ours, sides.model, stream=False, said=said, tools=[TOOL])) == ANSWER
