"""Ollama's own Responses API beside ours before the same Ollama: one shape, and right where Ollama loses a call.

The same requests by the same SDK. Facts of Ollama 0.32.15; a test of `alone` that fails after an update says that the
server changed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from asking import Proxies
from compared_responses import PARIS, TOOL, Sides, calls, create, events, fields, kinds
from rig_ollama import cue
from scenes import ANSWER, QUESTION, RESULT

from promptools.lab.server_process import Server

pytestmark = pytest.mark.ollama

NOT_OFFERED = {"type": "function", "name": "get_stocks"}
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"input": "Say words", "max_output_tokens": 3000},
    "cut text": {"input": "Say words", "max_output_tokens": 9},
    "call": {"input": QUESTION, "tools": [TOOL]},
    "required call": {"input": QUESTION, "tools": [TOOL], "tool_choice": "required"},
    "choice of a tool that is not offered": {"input": QUESTION, "tools": [TOOL], "tool_choice": NOT_OFFERED},
    "two calls": {"input": cue("two"), "tools": [TOOL]},
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
def test_responses_have_one_shape(sides: Sides, request_name: str, stream: bool) -> None:
    own, ours = (
        create(client, sides.model, stream=stream, **REQUESTS[request_name]) for client in (sides.own, sides.ours)
    )
    assert calls(ours) == calls(own)
    assert (ours.output_text, ours.object) == (own.output_text, own.object)
    # Ollama ends a cut text as a completed response
    assert ours.status == ("incomplete" if request_name == "cut text" else own.status)
    assert fields(own) - fields(ours) <= ({"completed_at"} if request_name == "cut text" else set())
    assert [fields(item) for item in own.output] == [fields(item) for item in ours.output]
    assert fields(own.usage) == fields(ours.usage)
    assert ours.usage.output_tokens == own.usage.output_tokens


@pytest.mark.parametrize("request_name", REQUESTS)
def test_events_of_responses_come_in_one_order(sides: Sides, request_name: str) -> None:
    own, ours = (events(client, sides.model, **REQUESTS[request_name]) for client in (sides.own, sides.ours))
    assert kinds(ours)[:-1] == kinds(own)[:-1]
    assert kinds(ours)[-1] == ("response.incomplete" if request_name == "cut text" else "response.completed")
    assert [event.sequence_number for event in ours] == list(range(len(ours)))
    shapes: dict[str, set[str]] = {}
    for event in own:
        shapes.setdefault(event.type, set()).update(fields(event))
    assert {event.type: fields(event) for event in ours if event.type in shapes}.items() <= shapes.items()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cell", BROKEN)
class TestLost:
    def test_alone(self, sides: Sides, cell: str, stream: bool) -> None:
        got = create(sides.own, sides.model, stream=stream, input=cue(cell), tools=[TOOL])
        assert calls(got) != BROKEN[cell]
        assert got.status == "completed", "nothing tells that it is wrong"

    def test_through_the_proxy(self, sides: Sides, cell: str, stream: bool) -> None:
        # a call after text that was streamed cannot be asked for again
        mode = {"extra_body": {"promptools": {"mode": "raw"}}} if stream and cell == "foreign" else {}
        got = create(sides.ours, sides.model, stream=stream, input=cue(cell), tools=[TOOL], **mode)
        assert (calls(got), got.status) == (BROKEN[cell], "completed")
        assert "tool" not in got.output_text


def test_only_ours_lists_the_tools_that_the_model_can_call(sides: Sides) -> None:
    offered = [TOOL, {"type": "web_search"}]
    own, ours = (
        create(client, sides.model, stream=False, input=QUESTION, tools=offered) for client in (sides.own, sides.ours)
    )
    assert calls(ours) == calls(own) == PARIS
    assert [[tool.type for tool in got.tools] for got in (own, ours)] == [["function", "web_search"], ["function"]]


def test_a_round_of_tools(sides: Sides) -> None:
    asked = [{"role": "user", "content": QUESTION}]
    first = sides.ours.responses.create(model=sides.model, input=asked, tools=[TOOL])
    (call,) = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    second = sides.ours.responses.create(model=sides.model, input=[result], previous_response_id=first.id, tools=[TOOL])
    assert second.output_text == ANSWER


def test_only_ours_continues_a_conversation(sides: Sides) -> None:
    tokens = []
    for client in (sides.own, sides.ours):
        first = client.responses.create(model=sides.model, input="Say words")
        alone = client.responses.create(model=sides.model, input="Say words")
        after = client.responses.create(model=sides.model, input="Say words", previous_response_id=first.id)
        tokens.append((alone.usage.input_tokens, after.usage.input_tokens))
    (own_alone, own_after), (ours_alone, ours_after) = tokens
    assert own_after == own_alone, "Ollama ignores previous_response_id"
    assert ours_after > ours_alone + 100
