"""vLLM's own Responses API beside ours before the same vLLM: one shape, and right where vLLM's tools fail.

The same requests by the same SDK. Facts of vLLM 0.32.0; a test of `Alone` that fails after an update says that the
server changed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from asking import Proxies
from compared_responses import PARIS, TOOL, Sides, calls, create, events, fields, kinds
from scenes import ANSWER, QUESTION, RESULT

pytestmark = pytest.mark.vllm

REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"input": "Say words", "max_output_tokens": 3000},
    "cut text": {"input": "Say words", "max_output_tokens": 9},
    "call": {"input": QUESTION, "tools": [TOOL]},
    "required call": {"input": QUESTION, "tools": [TOOL], "tool_choice": "required"},
    "two calls": {"input": "Two cities?", "tools": [TOOL]},
}
BROKEN = {
    "vllm-hermes": {"Broken in Paris?": PARIS, "Leak in Paris?": PARIS},
    "vllm-hermes-bare": {
        "Broken in Paris?": PARIS,
        "Leak in Paris?": PARIS,
        QUESTION: PARIS,
        "Two cities?": [*PARIS, ("get_weather", {"city": "Rome"})],
    },
}
"""What vLLM gets wrong with its parser, and without the flags for tools; and what it should be."""
CASES = [(name, question) for name, questions in BROKEN.items() for question in questions]


@pytest.fixture
def sides(request: pytest.FixtureRequest, servers: Any, proxies: Proxies) -> Iterator[Sides]:
    server = servers[request.param]
    both = Sides(server, server.name, "vllm", proxies)
    yield both
    both.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("sides", ["vllm-hermes"], indirect=True)
def test_objects_have_one_shape(sides: Sides, request_name: str, stream: bool) -> None:
    own, ours = (
        create(client, sides.model, stream=stream, **REQUESTS[request_name]) for client in (sides.own, sides.ours)
    )
    assert calls(ours) == calls(own)
    assert (ours.output_text, ours.status, ours.object) == (own.output_text, own.status, own.object)
    assert ours.incomplete_details == own.incomplete_details
    # vLLM shows a limit of its own where the request sets none
    assert fields(own) - fields(ours) <= {"max_output_tokens"}
    assert [fields(item) for item in ours.output] == [fields(item) for item in own.output]
    assert fields(own.usage) == fields(ours.usage)
    assert ours.usage.input_tokens == own.usage.input_tokens


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("sides", ["vllm-hermes"], indirect=True)
def test_events_come_in_one_order(sides: Sides, request_name: str) -> None:
    own, ours = (events(client, sides.model, **REQUESTS[request_name]) for client in (sides.own, sides.ours))
    # vLLM ends a cut text as a completed response
    assert kinds(ours)[:-1] == kinds(own)[:-1]
    assert kinds(ours)[-1] == ("response.incomplete" if request_name == "cut text" else "response.completed")
    assert [event.sequence_number for event in ours] == list(range(len(ours)))
    shapes: dict[str, set[str]] = {}
    for event in own:
        shapes.setdefault(event.type, set()).update(fields(event))
    assert {event.type: fields(event) for event in ours if event.type in shapes}.items() <= shapes.items()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("sides", "question"), CASES, indirect=["sides"])
class TestBroken:
    def test_alone(self, sides: Sides, question: str, stream: bool, request: pytest.FixtureRequest) -> None:
        name = request.node.callspec.params["sides"]
        got = create(sides.own, sides.model, stream=stream, input=question, tools=[TOOL])
        assert calls(got) != BROKEN[name][question]
        assert got.status == "completed", "nothing tells that it is wrong"

    def test_through_the_proxy(self, sides: Sides, question: str, stream: bool, request: pytest.FixtureRequest) -> None:
        name = request.node.callspec.params["sides"]
        got = create(sides.ours, sides.model, stream=stream, input=question, tools=[TOOL])
        assert (calls(got), got.status) == (BROKEN[name][question], "completed")
        assert "tool" not in got.output_text


@pytest.mark.parametrize("sides", ["vllm-hermes", "vllm-hermes-bare"], indirect=True)
def test_a_round_of_tools(sides: Sides) -> None:
    asked = [{"role": "user", "content": QUESTION}]
    first = sides.ours.responses.create(model=sides.model, input=asked, tools=[TOOL])
    (call,) = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    second = sides.ours.responses.create(model=sides.model, input=[result], previous_response_id=first.id, tools=[TOOL])
    assert second.output_text == ANSWER
