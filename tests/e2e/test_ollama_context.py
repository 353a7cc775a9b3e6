"""Prompts that are longer than a real Ollama's context: nothing is cut off without a word, what can be fitted is."""

from collections.abc import Callable, Iterator
from typing import Any

import asking
import httpx
import openai
import pytest
from asking import FORMS, Got
from rig_ollama import program
from scenes import HERMES_CALL, QUESTION, WEATHER, WORDS

from promptools.lab.ollama import Model, serve_models
from promptools.lab.script import Line
from promptools.lab.server import Server

pytestmark = pytest.mark.ollama

CALL = ("get_weather", '{"city": "Paris"}')
KINDS = ("go", "jinja")
"""Where the template is rendered: by Ollama, or by llama.cpp's server."""
SMALL = 2048
LONG = "word " * 800
"""Some 4,000 tokens: the scripted model knows letters and little more."""
ENDLESS = "word " * 4000
"""More than the model was made for (16,384 tokens)."""


FRESH = 9
"""Models of each kind whose context no test has raised yet; each test that raises one takes its own."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    lines = (Line(QUESTION, HERMES_CALL), Line("Say words", WORDS))
    models = [Model(f"{kind}{number}", lines, kind, SMALL) for kind in KINDS for number in range(FRESH)]
    with serve_models(models, folder=tmp_path_factory.mktemp("ollama"), program=program()) as running:
        yield running


@pytest.fixture(scope="module")
def fresh() -> Callable[[str], str]:
    """Give the name of a model that no test has used."""
    left = {kind: iter(range(1, FRESH)) for kind in KINDS}
    return lambda kind: f"{kind}{next(left[kind])}"


@pytest.fixture(params=FORMS)
def put(request: pytest.FixtureRequest, connect: Callable[..., openai.OpenAI], server: Server) -> Callable[..., Got]:
    """Ask through promptools, with a trace; `extra` are keys that the SDK does not know."""
    client = connect(server, kind="ollama")

    def asked(model: str, text: str, *, extra: dict[str, Any] | None = None, **keys: Any) -> Got:
        body = {"promptools": {"trace": True}, **(extra or {})}
        messages = [{"role": "user", "content": text}]
        return asking.ask(client, model, messages, request.param, extra_body=body, **keys)

    return asked


def loaded(http: httpx.Client, server: Server, model: str) -> int:
    """Give the context that a model is loaded with."""
    models = http.get(f"{server.url}/api/ps").json()["models"]
    return next(each["context_length"] for each in models if each["name"] == f"{model}:latest")


@pytest.mark.parametrize("kind", KINDS)
def test_the_context_is_raised_to_fit_and_stays(put, server, fresh, http, kind):
    model = fresh(kind)
    seen = put(model, LONG + QUESTION, tools=[WEATHER])
    assert (seen.error, seen.calls) == (None, [CALL])
    assert seen.attempts == [("native", "overflow"), ("native", "answered")]
    assert seen.usage["prompt_tokens"] > 4000
    size = loaded(http, server, model)
    assert size > seen.usage["prompt_tokens"] + 4000
    # the next request asks for the same: the model is not loaded anew
    again = put(model, QUESTION, tools=[WEATHER])
    assert (again.calls, again.attempts) == ([CALL], [("native", "answered")])
    assert loaded(http, server, model) == size
    assert any(note.startswith(f"num_ctx is {size}") for note in again.trace["notes"])


def test_talk_without_tools_is_fitted_too(put, server, fresh, http):
    model = fresh("go")
    seen = put(model, LONG + "Say words", max_tokens=40)
    assert seen.error is None
    assert WORDS.startswith(seen.content)
    assert seen.attempts == [("native", "overflow"), ("native", "answered")]
    assert loaded(http, server, model) < seen.usage["prompt_tokens"] + 2048


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_fitted_is_an_error_with_its_numbers(put, kind):
    model = f"{kind}0"
    named = put(model, LONG + QUESTION, tools=[WEATHER], extra={"options": {"num_ctx": SMALL}})
    endless = put(model, ENDLESS + QUESTION, tools=[WEATHER])
    for seen in (named, endless):
        assert seen.status == 400
        assert "'code': 'context_length_exceeded'" in seen.error
        assert "and the context holds 2048. Shorten it, or give the model a longer context" in seen.error
        assert (seen.calls, seen.content) == ([], "")


def test_who_asks_for_it_gets_ollamas_own_way(put):
    own = {"truncate": True, "options": {"num_ctx": SMALL}}
    seen = put("go0", LONG + QUESTION, tools=[WEATHER], extra=own)
    assert (seen.error, seen.calls) == (None, [CALL])
    assert seen.usage["prompt_tokens"] < SMALL
