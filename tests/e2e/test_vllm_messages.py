"""vLLM's own Messages API beside ours before the same vLLM: one shape, and right where vLLM's tools fail.

The same requests by the same SDK. Facts of vLLM 0.32.0; a test of vLLM `alone` that fails after an update says that
the server changed.
"""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from asking import Proxies
from compared_messages import TOOL, Sides, calls, create, events_of, text
from compared_responses import PARIS, fields, kinds
from scenes import ANSWER, QUESTION, RESULT

pytestmark = pytest.mark.vllm

REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"said": "Say words"},
    "cut text": {"said": "Say words", "max_tokens": 9},
    "call": {"said": QUESTION, "tools": [TOOL]},
    "required call": {"said": QUESTION, "tools": [TOOL], "tool_choice": {"type": "any"}},
    "two calls": {"said": "Two cities?", "tools": [TOOL]},
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
"""What vLLM gets wrong with its parser, or refuses without the flags for tools; and what it should be."""
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
def test_messages_have_one_shape(sides: Sides, request_name: str, stream: bool) -> None:
    own, ours = (
        create(client, sides.model, stream=stream, **REQUESTS[request_name]) for client in (sides.own, sides.ours)
    )
    assert calls(ours) == calls(own)
    assert (text(ours), ours.stop_reason, ours.type, ours.role) == (text(own), own.stop_reason, own.type, own.role)
    assert fields(own) == fields(ours)
    assert [fields(block) for block in ours.content] == [fields(block) for block in own.content]
    assert fields(own.usage) <= fields(ours.usage)
    assert ours.usage.input_tokens == own.usage.input_tokens


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("sides", ["vllm-hermes"], indirect=True)
def test_events_of_messages_come_in_one_order(sides: Sides, request_name: str) -> None:
    own, ours = (events_of(client, sides.model, **REQUESTS[request_name]) for client in (sides.own, sides.ours))
    assert kinds(ours) == kinds(own)
    shapes: dict[str, set[str]] = {}
    for event in own:
        shapes.setdefault(event.type, set()).update(fields(event))
    assert {event.type: fields(event) for event in ours}.items() <= shapes.items()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("sides", "question"), CASES, indirect=["sides"])
def test_broken_calls_through_the_proxy(
    sides: Sides, question: str, stream: bool, request: pytest.FixtureRequest
) -> None:
    expected = BROKEN[request.node.callspec.params["sides"]][question]
    got = create(sides.ours, sides.model, stream=stream, said=question, tools=[TOOL])
    assert (calls(got), got.stop_reason) == (expected, "tool_use")
    assert "tool" not in text(got)


@pytest.mark.parametrize(
    ("question", "stream"), [("Leak in Paris?", False), ("Leak in Paris?", True), ("Broken in Paris?", False)]
)
@pytest.mark.parametrize("sides", ["vllm-hermes"], indirect=True)
def test_broken_calls_alone(sides: Sides, question: str, stream: bool) -> None:
    got = create(sides.own, sides.model, stream=stream, said=question, tools=[TOOL])
    assert calls(got) != PARIS
    assert got.stop_reason in {"end_turn", "tool_use"}, "nothing tells that it is wrong"


@pytest.mark.parametrize("sides", ["vllm-hermes"], indirect=True)
def test_a_broken_call_in_a_stream_alone(sides: Sides) -> None:
    with pytest.raises(ValueError, match="Unable to parse tool parameter JSON"):
        create(sides.own, sides.model, stream=True, said="Broken in Paris?", tools=[TOOL])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sides", ["vllm-hermes-bare"], indirect=True)
def test_without_its_flags_tools_are_refused_alone(sides: Sides, stream: bool) -> None:
    with pytest.raises(anthropic.BadRequestError, match="enable-auto-tool-choice"):
        create(sides.own, sides.model, stream=stream, said=QUESTION, tools=[TOOL])


@pytest.mark.parametrize("sides", ["vllm-hermes", "vllm-hermes-bare"], indirect=True)
def test_a_round_of_tools_by_messages(sides: Sides) -> None:
    asked = {"role": "user", "content": QUESTION}
    first = create(sides.ours, sides.model, stream=False, said=[asked], tools=[TOOL])
    (call,) = [block for block in first.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    said = [asked, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    assert text(create(sides.ours, sides.model, stream=False, said=said, tools=[TOOL])) == ANSWER
