"""The demo's conversation with a model whose choices are its own: what is judged, and what is told of the server."""

import pytest
from upstream import completion, running, unary

from promptools.cli.demo_command import Scenario, run_scenario
from promptools.lab import weather

PARIS = '{"city": "Paris"}'


@pytest.fixture
def upstream():
    with running() as server:
        yield server


def held(upstream, *answers, **options):
    upstream.play(*answers)
    return run_scenario(Scenario("it", upstream.url, "m", **options))


def called(name, arguments):
    return unary(completion("", [(name, arguments)]))


@pytest.mark.parametrize(
    ("first", "fine"),
    [
        (called(weather.NAME, PARIS), True),
        (called(weather.NAME, '{"city": "Oslo"}'), True),
        (called("get_news", '{"about": "Paris"}'), True),
        (called(weather.NAME, '{"city": "Paris", "unit": "kelvin"}'), False),
        (called(weather.NAME, "{}"), False),
        (called(weather.NAME, "Paris"), False),
        (unary(completion("It is warm.")), True),
        (unary({"error": {"message": "no"}}, status=502), False),
    ],
)
def test_only_the_calls_of_the_tool_are_judged(upstream, first, fine):
    assert held(upstream, first, unary(completion("Bye.")), lenient=True).fine == fine


def test_any_other_model_must_call_for_paris(upstream):
    oslo = called(weather.NAME, '{"city": "Oslo"}'), unary(completion("Bye."))
    paris = called(weather.NAME, PARIS), unary(completion("Bye."))
    assert [held(upstream, *each).fine for each in (oslo, paris)] == [False, True]


def test_what_a_server_said_alone_is_told_as_it_is(upstream):
    seen = held(upstream, unary(completion(f"```json\n{PARIS}\n```", finish="length")), direct=True)
    assert seen.server == "200, length: " + repr(f"```json\n{PARIS}\n```")
    assert seen.app == "no call, answer (cut off): " + repr(f"```json\n{PARIS}\n```")
    assert seen.calls == ()
    seen = held(upstream, called(weather.NAME, PARIS), unary(completion("Warm.")), direct=True)
    assert seen.server == "200, tool_calls get_weather\n200, stop: 'Warm.'"


def test_the_request_carries_what_steadies_the_model(upstream):
    held(upstream, unary(completion("Hi")), sampling={"temperature": 0, "max_tokens": 7})
    asked = upstream.seen[0].json
    assert (asked["temperature"], asked["max_tokens"]) == (0, 7)
