"""vLLM's own Responses API beside ours before the same vLLM: one shape, and right where vLLM's tools fail.

The same requests by the same SDK. Facts of vLLM 0.32.0; a test of `Alone` that fails after an update says that the
server changed.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import openai
import pytest
from asking import Proxies
from openai.types.responses import Response
from scenes import ANSWER, QUESTION, RESULT

from promptools.lab.server_process import Server

pytestmark = pytest.mark.vllm

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"input": "Say words", "max_output_tokens": 3000},
    "cut text": {"input": "Say words", "max_output_tokens": 9},
    "call": {"input": QUESTION, "tools": [TOOL]},
    "required call": {"input": QUESTION, "tools": [TOOL], "tool_choice": "required"},
    "two calls": {"input": "Two cities?", "tools": [TOOL]},
}
PARIS = [("get_weather", {"city": "Paris"})]
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


class Sides:
    """Clients of one server: `own` asks vLLM's Responses API, `ours` that of a proxy before it."""

    def __init__(self, server: Server, proxy: str) -> None:
        self.model = server.name
        self.own, self.ours = (
            openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) for url in (server.base_url, proxy)
        )


@pytest.fixture
def sides(request: pytest.FixtureRequest, servers: Any, proxies: Proxies) -> Iterator[Sides]:
    server = servers[request.param]
    both = Sides(server, proxies.before(server.base_url, "vllm"))
    yield both
    both.own.close()
    both.ours.close()


def create(client: openai.OpenAI, model: str, *, stream: bool, **keys: Any) -> Response:
    if not stream:
        return client.responses.create(model=model, **keys)
    last = events(client, model, **keys)[-1]
    response: Response = last.response
    return response


def events(client: openai.OpenAI, model: str, **keys: Any) -> list[Any]:
    with client.responses.create(model=model, stream=True, **keys) as stream:
        return list(stream)


def calls(response: Response) -> list[tuple[str, Any]]:
    """The calls of a response; arguments that are not JSON as they are."""

    def read(arguments: str) -> Any:
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments

    return [(item.name, read(item.arguments)) for item in response.output if item.type == "function_call"]


def fields(value: Any) -> set[str]:
    """The fields that the SDK's type of a value knows and that hold something."""
    return {key for key in type(value).model_fields if getattr(value, key, None) is not None}


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
    kinds_own, kinds = ([kind for kind, _ in groupby(event.type for event in each)] for each in (own, ours))
    # vLLM ends a cut text as a completed response
    assert kinds[:-1] == kinds_own[:-1]
    assert kinds[-1] == ("response.incomplete" if request_name == "cut text" else "response.completed")
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
