"""Prompts that are too long for a real Ollama: alone it cuts them in silence, or says so in its own way; through
promptools the context is raised to hold them, or the app gets one clear error.

The scripted models read one token a byte, and were made for 16,384.
"""

from collections.abc import Iterator
from typing import Any

import asking
import httpx
import openai
import pytest
from asking import FORMS, Got
from rig.ollama import ScriptedModel, serve_models
from rig_ollama import WAYS, post, program
from scenes import ANSWER, HERMES_CALL, QUESTION, RESULT, WEATHER, WORDS
from serving import serving

from promptools.client import OpenAI
from promptools.lab.script import ScriptedReply
from promptools.lab.scripted_model import CONTEXT
from promptools.lab.server_process import Server
from promptools.profiles import Config
from promptools.proxy import Proxy

pytestmark = pytest.mark.ollama

CALL = ("get_weather", '{"city": "Paris"}')
SMALL = 2048
RULE = "Say bonjour."
LONG = "Hello there. " * 300
TOO_LONG = "Hello there. " * 1300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    lines = (
        ScriptedReply(QUESTION, HERMES_CALL),
        ScriptedReply(RESULT, ANSWER),
        # what an early rule asks for, unless the rule was cut off
        ScriptedReply("Greet me.", "Hello."),
        ScriptedReply("Greet me.", "Bonjour.", setting=RULE),
        ScriptedReply("Say words", WORDS),
    )
    models = [
        ScriptedModel("go", lines, context=SMALL),
        ScriptedModel("jinja", lines, "jinja", context=SMALL),
        ScriptedModel("untold", lines, context=None),
    ]
    with serve_models(models, folder=tmp_path_factory.mktemp("ollama"), program=program()) as running:
        yield running


def client_of(server: Server, **overrides: Any) -> OpenAI:
    return OpenAI(
        base_url=server.base_url,
        provider="ollama",
        config=Config(),
        overrides=overrides,
        api_key="none",
        max_retries=0,
        timeout=300,
    )


@pytest.fixture(params=["client", "proxy"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[openai.OpenAI]:
    """A client before the server, which knows nothing of earlier requests."""
    if request.param == "client":
        with client_of(server) as made:
            yield made
    else:
        before = Proxy(base_url=server.base_url, provider="ollama", config=Config())
        with (
            serving(before) as port,
            openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=300) as made,
        ):
            yield made


def ask(client: openai.OpenAI, form: asking.Form, *said: Any, model: str = "go", **keys: Any) -> Got:
    """Ask with a trace; `options` are Ollama's, and `mode` is ours."""
    messages = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
    extra = {"promptools": {"trace": True, "mode": keys.pop("mode", None)}}
    extra |= {key: keys.pop(key) for key in ("options", "truncate") if key in keys}
    return asking.ask(client, model, messages, form, extra_body=extra, **{"tools": [WEATHER], **keys})


def loaded(http: httpx.Client, server: Server, model: str) -> int:
    """Return the context that a model is loaded with."""
    models = http.get(f"{server.url}/api/ps").json()["models"]
    return next(each["context_length"] for each in models if each["name"] == f"{model}:latest")


@pytest.mark.parametrize("way", WAYS)
def test_alone_the_beginning_is_cut_off_in_silence(http: httpx.Client, server: Server, way):
    greeting = [RULE, {"role": "assistant", "content": "Ok."}, "Greet me."]
    assert post(http, server, way, "go", *greeting).content == "Bonjour."
    cut = post(http, server, way, "go", RULE, {"role": "assistant", "content": LONG}, "Greet me.")
    assert (cut.status, cut.content, cut.error) == (200, "Hello.", None)


def test_alone_the_length_is_4096_where_nothing_says_otherwise(http: httpx.Client, server: Server):
    assert post(http, server, "chat", "untold", "Hello there. " * 290, truncate=False).status == 200
    refused = post(http, server, "chat", "untold", "Hello there. " * 330, truncate=False)
    assert refused.status == 400
    assert "exceeds the available context size (4096 tokens)" in refused.error


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", ["go", "jinja", "untold"])
def test_the_context_is_raised_to_hold_the_prompt(client, server, http, form, model):
    long = LONG + LONG if model == "untold" else LONG
    first = ask(client, form, long + QUESTION, model=model)
    assert (first.error, first.calls, first.finish_reason) == (None, [CALL], "tool_calls")
    assert first.attempts == [("native", "overflow"), ("native", "answered")]
    size = loaded(http, server, model)
    assert size > first.usage["prompt_tokens"] > len(long)
    result = {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT}
    second = ask(client, form, long + QUESTION, first.message(), result, model=model)
    assert (second.error, second.content) == (None, ANSWER)
    assert second.attempts == [("native", "answered")], "what has fitted once is asked for at once"
    assert any(note.startswith(f"num_ctx {size} was asked for") for note in second.trace["notes"])
    assert loaded(http, server, model) == size, "the model was not loaded anew"


@pytest.mark.parametrize("form", FORMS)
def test_it_is_raised_in_prompt_mode_too(client, form):
    got = ask(client, form, LONG + QUESTION, mode="prompt")
    assert (got.error, got.calls) == (None, [CALL])
    assert got.attempts == [("prompt", "overflow"), ("prompt", "answered")]


@pytest.mark.parametrize("form", FORMS)
def test_talk_without_tools_is_fitted_too(client, server, http, form):
    got = ask(client, form, LONG + "Say words", tools=openai.omit, max_tokens=40)
    assert got.error is None
    assert WORDS.startswith(got.content)
    assert got.attempts == [("native", "overflow"), ("native", "answered")]
    assert loaded(http, server, "go") < got.usage["prompt_tokens"] + 2048, "no more than the answer may take"


@pytest.mark.parametrize("form", FORMS)
def test_who_asks_for_it_gets_ollamas_own_way(client, form):
    got = ask(client, form, LONG + QUESTION, truncate=True, options={"num_ctx": SMALL})
    assert (got.error, got.calls) == (None, [CALL])
    assert got.usage["prompt_tokens"] < SMALL


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_cut_off_where_a_prompt_fits(client, form):
    got = ask(client, form, RULE, {"role": "assistant", "content": LONG}, "Greet me.")
    assert (got.error, got.content) == (None, "Bonjour.")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("overrides", [{"num_ctx": "server"}, {"num_ctx": SMALL}, {"num_ctx_limit": 3000}])
def test_where_it_may_not_be_raised_the_error_has_the_numbers(server, form, overrides):
    with client_of(server, **overrides) as client:
        got = ask(client, form, LONG + QUESTION)
    assert (got.status, got.calls) == (400, [])
    assert "context_length_exceeded" in got.error
    assert f"the context holds {SMALL}" in got.error


@pytest.mark.parametrize("form", FORMS)
def test_a_length_that_the_request_names_is_kept(client, form):
    got = ask(client, form, LONG + QUESTION, options={"num_ctx": SMALL})
    assert (got.status, got.calls) == (400, [])
    assert f"the context holds {SMALL}. Shorten it" in got.error


@pytest.mark.parametrize("form", FORMS)
def test_what_no_context_of_the_model_holds_is_an_error_and_no_endless_raising(client, form):
    got = ask(client, form, TOO_LONG + QUESTION)
    assert (got.status, got.calls) == (400, [])
    assert "context_length_exceeded" in got.error
    assert str(CONTEXT) in got.error
    assert ask(client, form, QUESTION).calls == [CALL], "the conversation can go on"
