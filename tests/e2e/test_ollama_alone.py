"""The failures are real: what Ollama's own server does with these models when nothing stands before it.

Facts of Ollama 0.32.15. A test that fails here after an update says that the server changed.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from rig_ollama import BEFORE, KINDS, SAID, WAYS, cue, post
from scenes import ANSWER, FENCED_CALL, HERMES_CALL, QUESTION, RESULT, WEATHER, WORDS

pytestmark = pytest.mark.ollama

PARIS = ("get_weather", {"city": "Paris"})
ROME = ("get_weather", {"city": "Rome"})
STOCKS = ("get_stocks", {"city": "Paris"})
NUMBER = ("get_weather", {"city": 75001})
LIMIT = 40
RAW = "error parsing tool call: raw='"


@dataclass(frozen=True)
class Cell:
    """What comes of one way to fail with one kind of model."""

    calls: list[Any] = field(default_factory=list)
    content: str = ""
    error: str | None = None
    """Part of an error, status 500."""
    late: bool = False
    """Whether something was said before the error, so that a stream has begun by then."""
    ends: str = "stop"


SWALLOWED = Cell()
"""No call, no content, no error: nothing but the number of tokens tells that the model has spoken."""

CELLS = {
    "go": {
        "fine": Cell([PARIS]),
        "broken": SWALLOWED,
        "cut": Cell(ends="length"),
        "unknown": SWALLOWED,
        "foreign": Cell(content=BEFORE),
        "after": Cell([PARIS]),
        "unclosed": Cell([PARIS]),
        "string": Cell([PARIS]),
        "types": Cell([NUMBER]),
        "two": Cell([PARIS, ROME]),
        "fenced": Cell(content=BEFORE + FENCED_CALL),
    },
    "gptoss": {
        "fine": Cell([PARIS]),
        "broken": Cell(error=f'{RAW}{{"city": Paris}}\', err=', late=True),
        "cut": Cell(error=RAW + '{"city": "Paris word0 ', late=True),
        "unknown": Cell([STOCKS]),
        "foreign": SWALLOWED,
        "string": Cell(error=RAW + '"{\\"city\\": \\"Paris\\"}"', late=True),
        "types": Cell([NUMBER]),
        "fenced": Cell(content=FENCED_CALL),
    },
    "coder": {
        "fine": Cell([PARIS]),
        "broken": Cell(error="XML syntax error on line 5"),
        "cut": Cell(ends="length"),
        "unknown": Cell([STOCKS]),
        "foreign": Cell(error="EOF", late=True),
        "after": Cell([PARIS], content="\nThat was the call."),
        "unclosed": SWALLOWED,
        "types": Cell([("get_weather", {"city": "75001"})]),
        "two": Cell([PARIS, ROME]),
        "fenced": Cell(content=BEFORE + FENCED_CALL),
    },
    "think": {
        "fine": Cell([PARIS]),
        "broken": Cell(error="failed to parse JSON: invalid character 'P'", late=True),
        "cut": Cell(ends="length"),
        "unknown": Cell([STOCKS]),
        "foreign": Cell(error="failed to parse JSON: invalid character '<'", late=True),
        "after": Cell([PARIS], content="That was the call."),
        "unclosed": SWALLOWED,
        "string": Cell(error="failed to parse JSON: Value looks like object", late=True),
        "types": Cell([NUMBER]),
        "two": Cell([PARIS, ROME]),
        "fenced": Cell(content=BEFORE + FENCED_CALL),
    },
    # a grammar stands over what the model says once a call has begun: most failures become something else
    "jinja": {
        "fine": Cell([PARIS]),
        "cut": Cell(error='llama-server returned invalid tool call arguments for "get_weather"'),
        "foreign": Cell(error="Unexpected empty grammar stack", late=True),
        "two": Cell([PARIS, ROME]),
        "fenced": Cell(content=BEFORE + FENCED_CALL),
    },
}


def test_every_way_to_fail_has_its_cell():
    assert {kind: set(cells) for kind, cells in CELLS.items() if kind != "jinja"} == {
        kind: set(said) for kind, said in SAID.items() if kind != "jinja"
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "cell"), [(kind, cell) for kind, cells in CELLS.items() for cell in cells])
def test_what_comes_of_it(http, ollama, way, kind, cell):
    expected = CELLS[kind][cell]
    limit = {"limit": LIMIT} if cell == "cut" else {}
    seen = post(http, ollama, way, kind, cue(cell), tools=[WEATHER], **limit)
    if expected.error is None:
        ends = "tool_calls" if expected.calls and way.startswith("v1") else expected.ends
        assert (list(seen.calls), seen.content, seen.ends, seen.error) == (expected.calls, expected.content, ends, None)
        assert seen.tokens > 10
    elif way.endswith("streamed") and expected.late:
        assert (seen.status, seen.calls, seen.ends) == (200, (), None)
        # on /v1 nothing tells of the error: the stream only ends, without a finish_reason
        assert (expected.error in seen.error) if way == "chat streamed" else seen.error is None
    else:
        assert seen.status == 500
        assert expected.error in seen.error


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cell", ["broken", "unknown", "after", "unclosed", "string", "types"])
def test_a_grammar_makes_calls_of_it_whatever_the_model_meant(http, ollama, way, cell):
    seen = post(http, ollama, way, "jinja", cue(cell), tools=[WEATHER])
    assert seen.error is None
    assert {name for name, _ in seen.calls} == {"get_weather"}
    assert all(isinstance(arguments["city"], str) for _, arguments in seen.calls)


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_no_tool_was_offered_for(http, ollama, way):
    for kind in ("go", "jinja"):
        seen = post(http, ollama, way, kind, cue("fine"))
        assert (seen.calls, seen.content) == ((), HERMES_CALL)
    assert post(http, ollama, way, "gptoss", cue("fine")).calls == (PARIS,)
    for kind in ("coder", "think"):
        seen = post(http, ollama, way, kind, cue("fine"))
        # the same request: streamed the call is there, whole it is gone
        assert (list(seen.calls), seen.content) == ([PARIS] if way.endswith("streamed") else [], "")


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_call_that_no_tool_was_offered_for_is_an_error(http, ollama, way):
    seen = post(http, ollama, way, "gptoss", cue("broken"))
    if not way.endswith("streamed"):
        assert (seen.status, seen.error[: len(RAW) + 15]) == (500, f'{RAW}{{"city": Paris}}')
    else:
        assert (seen.status, seen.content, seen.calls, seen.ends) == (200, "", (), None)


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_breaks_the_server_is_right(http, ollama, kind):
    for way in WAYS:
        arguments = '{"city": "Paris"}' if way.startswith("v1") else {"city": "Paris"}
        call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        history = [
            QUESTION,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "tool_name": "get_weather", "content": RESULT},
        ]
        seen = post(http, ollama, way, kind, *history, tools=[WEATHER])
        assert (seen.content, seen.calls, seen.ends) == (ANSWER, (), "stop")


@pytest.mark.parametrize("way", WAYS)
def test_long_texts_come_out_exactly(http, ollama, way):
    for kind in KINDS:
        assert post(http, ollama, way, kind, "Say words").content == WORDS


@pytest.mark.parametrize("way", WAYS)
def test_a_model_whose_template_has_no_tools_refuses_them(http, ollama, way):
    seen = post(http, ollama, way, "notools", QUESTION, tools=[WEATHER])
    assert (seen.status, seen.error) == (400, "registry.ollama.ai/library/notools:latest does not support tools")
    assert post(http, ollama, way, "notools", QUESTION, tools=[]).content == FENCED_CALL


def test_what_a_model_can_do_is_told(http, ollama):
    def told(kind: str) -> set[str]:
        return set(http.post(f"{ollama.url}/api/show", json={"model": kind}).json()["capabilities"])

    assert {kind: told(kind) for kind in ("go", "jinja", "gptoss", "coder", "think", "notools")} == {
        "go": {"completion", "tools"},
        "jinja": {"completion", "tools"},
        "gptoss": {"completion", "tools", "thinking"},
        "coder": {"completion", "tools"},
        "think": {"completion", "tools", "thinking"},
        "notools": {"completion"},
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "choice", ["none", "required", "bogus", {"type": "function", "function": {"name": "get_stocks"}}]
)
def test_tool_choice_is_ignored(http, ollama, way, choice):
    assert post(http, ollama, way, "go", QUESTION, tools=[WEATHER], tool_choice=choice).calls == (PARIS,)
    assert post(http, ollama, way, "go", "Say words", tools=[WEATHER], tool_choice=choice).content == WORDS


def history(arguments: Any) -> list[Any]:
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return [
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": RESULT},
    ]


@pytest.mark.parametrize("streamed", ["", " streamed"])
def test_arguments_in_the_history_have_one_form_on_each_front(http, ollama, streamed):
    refused = post(http, ollama, f"chat{streamed}", "go", *history('{"city": "Paris"}'), tools=[WEATHER])
    assert (refused.status, refused.error) == (400, "Value looks like object, but can't find closing '}' symbol")
    for broken in ('{"city": "Par', ""):
        refused = post(http, ollama, f"v1{streamed}", "go", *history(broken), tools=[WEATHER])
        assert (refused.status, refused.error) == (400, "invalid tool call arguments")


@pytest.mark.parametrize("way", WAYS)
def test_thinking_is_refused_where_the_model_does_not(http, ollama, way):
    asked = {"reasoning_effort": "high"} if way.startswith("v1") else {"think": True}
    seen = post(http, ollama, way, "go", QUESTION, **asked)
    assert (seen.status, seen.error) == (400, '"go" does not support thinking')


@pytest.mark.parametrize("streamed", ["", " streamed"])
def test_a_context_that_is_too_small_is_cut_in_silence(http, ollama, streamed):
    way = f"chat{streamed}"
    long = "Hello there. " * 400
    seen = post(http, ollama, way, "go", long + QUESTION, options={"num_ctx": 2048}, tools=[WEATHER])
    assert (seen.calls, seen.error) == ((PARIS,), None)
    refused = post(http, ollama, way, "go", long + QUESTION, options={"num_ctx": 2048}, truncate=False)
    assert refused.status == 400
    assert "exceeds the available context size (2048 tokens)" in refused.error
    refused = post(http, ollama, way, "jinja", long + QUESTION, options={"num_ctx": 2048})
    assert refused.status == 400
    assert "exceeds the available context size (2048 tokens)" in refused.error


def test_a_format_makes_calls_impossible(http, ollama):
    seen = post(http, ollama, "chat", "go", QUESTION, tools=[WEATHER], format="json", limit=300)
    assert seen.calls == ()
