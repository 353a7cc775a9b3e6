"""The ollama package's clients, with our transport inside, on a real llama.cpp: the app does not notice."""

import json
import logging
from functools import partial
from pathlib import Path

import asking_ollama
import ollama as package
import pytest
from asking_ollama import WAYS, Said
from scenes import ANSWER, FENCED_CALL, QUESTION, RESULT, WEATHER, WORDS

from promptools import ollama
from promptools.lab.server_process import Server

CALL = ("get_weather", {"city": "Paris"})
NAMED = {"provider": "llamacpp"}
ask = partial(asking_ollama.ask, settings=NAMED)
FORM = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Paris"]}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
}
"""In a free string a model that has nothing to say would talk on and on."""


def get_weather(city: str, days: int | None = None) -> str:
    """Tell the weather.

    Args:
      city: Name of the city.
      days: How many days ahead.
    """
    return RESULT if city == "Paris" and not days else "no idea"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


def result(said: Said) -> dict[str, str]:
    (call,) = said.calls
    return {"role": "tool", "tool_name": call[0], "content": get_weather(**call[1])}


@pytest.mark.parametrize("tool", [WEATHER, get_weather], ids=["schema", "function"])
def test_a_conversation(hermes_server: Server, way: str, tool: object) -> None:
    first = ask(hermes_server.url, way, "m", QUESTION, tools=[tool])
    assert (first.content, first.calls, first.last.done_reason) == ("", [CALL], "stop")
    second = ask(hermes_server.url, way, "m", QUESTION, first.message, result(first), tools=[tool])
    assert (second.content, second.calls, second.attempts) == (ANSWER, [], [("native", "answered")])


def test_the_servers_500_is_healed(harmony_server: Server, way: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="promptools")
    first = ask(harmony_server.url, way, "m", "Break in Paris?", tools=[get_weather])
    assert first.calls == [CALL]
    assert first.attempts == [("native", "server_parser"), ("harmony", "answered")]
    assert first.content == ""
    assert "Need the tool." in first.thinking
    second = ask(harmony_server.url, way, "m", "Break in Paris?", first.message, result(first), tools=[get_weather])
    assert (second.content, second.calls) == (ANSWER, [])


def test_an_answer_that_breaks_its_parser_is_read_in_harmony_mode(harmony_server: Server, way: str) -> None:
    said = ask(harmony_server.url, way, "m", "Break always?")
    assert said.content == "x"
    assert "Hm." in said.thinking


def test_what_cannot_be_healed_is_the_packages_own_error(harmony_server: Server, way: str) -> None:
    with pytest.raises(package.ResponseError, match="does not match the expected") as raised:
        ask(harmony_server.url, way, "m", "Break always?", settings={**NAMED, "mode": "native"})
    # without tools it is the server's own; inside a stream an error has no status
    assert raised.value.status_code == (500 if "whole" in way else -1)


def test_two_calls(hermes_server: Server, way: str) -> None:
    said = ask(hermes_server.url, way, "m", "Two cities?", tools=[get_weather])
    assert said.calls == [CALL, ("get_weather", {"city": "Rome"})]


def test_a_call_that_the_server_left_in_the_text(hermes_server: Server, way: str) -> None:
    said = ask(hermes_server.url, way, "m", "Leak in Paris?", tools=[get_weather])
    assert (said.content.strip(), said.calls) == ("Let me look.", [CALL])


def test_prompt_mode(hermes_server: Server, way: str) -> None:
    said = ask(hermes_server.url, way, "m", QUESTION, tools=[get_weather], settings={**NAMED, "mode": "prompt"})
    assert (said.content, said.calls, said.attempts) == ("Let me look.", [CALL], [("prompt", "answered")])


def test_a_chat_without_tools(hermes_server: Server, way: str) -> None:
    said = ask(hermes_server.url, way, "m", {"role": "system", "content": "Be brief."}, "Say words")
    assert said.content == WORDS
    assert said.last.model == hermes_server.name
    assert said.last.eval_count > 10
    assert said.last.prompt_eval_count > 10
    assert 0 < said.last.total_duration < 60e9
    assert said.last.created_at.endswith("Z")


def test_an_answer_is_cut_at_num_predict(hermes_server: Server, way: str) -> None:
    said = ask(hermes_server.url, way, "m", "Say words", options={"num_predict": 9, "temperature": 0, "num_ctx": 9000})
    assert WORDS.startswith(said.content)
    assert (said.last.done_reason, said.last.eval_count) == ("length", 9)
    assert said.reply.trace.notes == (
        "not sent: num_ctx of options; this server is not known to take it with a request",
    )


def test_an_answer_in_a_form(hermes_server: Server, way: str) -> None:
    said = ask(hermes_server.url, way, "m", "Say words", format=FORM, options={"num_predict": 200, "seed": 3})
    assert set(json.loads(said.content)) == {"city", "degrees"}


@pytest.mark.parametrize("think", [True, False, "low"])
def test_thinking(harmony_server: Server, way: str, think: object) -> None:
    said = ask(harmony_server.url, way, "m", QUESTION, tools=[get_weather], think=think)
    assert (said.thinking, said.calls) == ("Need the tool.", [CALL])


def test_log_probabilities(hermes_server: Server, way: str) -> None:
    said = ask(hermes_server.url, way, "m", "Say words", logprobs=True, options={"num_predict": 4})
    assert "".join(each.token for each in said.logprobs) == said.content
    assert all(each.logprob <= 0 for each in said.logprobs)


def test_the_list_of_models(hermes_server: Server) -> None:
    with ollama.Client(hermes_server.url, **NAMED) as client:
        (model,) = client.list().models
    assert model.model == hermes_server.name
    assert model.size is not None
    assert model.size > 1_000_000


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("pull", lambda client: client.pull("qwen3")),
        ("pull", lambda client: list(client.pull("qwen3", stream=True))),
        ("push", lambda client: client.push("me/mine")),
        ("create", lambda client: client.create("mine", from_="qwen3")),
        ("delete", lambda client: client.delete("m")),
        ("copy", lambda client: client.copy("m", "n")),
        ("create_blob", lambda client: client.create_blob(__file__)),
    ],
)
def test_what_only_ollama_has_is_a_clear_error(hermes_server: Server, name: str, asked: object) -> None:
    with ollama.Client(hermes_server.url, **NAMED) as client, pytest.raises(package.ResponseError) as raised:
        asked(client)
    assert raised.value.status_code == 501
    assert raised.value.error.startswith(
        f"'{name}' needs an Ollama server, and {hermes_server.url} is llama.cpp's HTTP server"
    )


def test_a_conversation_that_does_not_fit(plain_server: Server, way: str) -> None:
    with pytest.raises(package.ResponseError, match="does not fit") as raised:
        ask(plain_server.url, way, "m", "word " * 20_000)
    assert raised.value.status_code == 400


def test_an_empty_chat_finds_the_model_loaded(hermes_server: Server) -> None:
    with ollama.Client(hermes_server.url, **NAMED) as client:
        assert client.chat("m").done_reason == client.generate("m").done_reason == "load"


def test_what_other_routes_answer(hermes_server: Server) -> None:
    with ollama.Client(hermes_server.url, **NAMED) as client:
        assert client.generate("m", "Say words").response == WORDS
        assert "".join(part.response for part in client.generate("m", "Say words", stream=True)) == WORDS
        assert client.generate("m", "Say words", raw=True, options={"num_predict": 500}).response == WORDS
        assert "tools" in client.show("m").capabilities
        assert [model.model for model in client.ps().models] == [hermes_server.name]
        with pytest.raises(package.ResponseError, match="does not support embeddings"):
            client.embed("m", "words")


def test_nobody_there_is_the_packages_own_error() -> None:
    with ollama.Client("http://127.0.0.1:9") as client, pytest.raises(ConnectionError, match="Failed to connect to"):
        client.chat("m", [{"role": "user", "content": "hi"}])


def test_the_server_says_what_it_is(hermes_server: Server) -> None:
    assert asking_ollama.found_out(hermes_server.url) == "llamacpp"


def test_the_functions_of_the_module(hermes_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "promptools.toml"
    config.write_text(f'[providers.box]\nkind = "llamacpp"\nbase_url = "{hermes_server.base_url}"\n')
    monkeypatch.setenv("PROMPTOOLS_CONFIG", str(config))
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    ollama._default.cache_clear()
    try:
        answer = ollama.chat("m", [{"role": "user", "content": QUESTION}], tools=[get_weather])
        (call,) = answer.message.tool_calls
        assert (call.function.name, call.function.arguments) == CALL
        parts = ollama.chat("m", [{"role": "user", "content": "Leak in Paris?"}], tools=[get_weather], stream=True)
        assert [call.function.name for part in parts for call in part.message.tool_calls or ()] == ["get_weather"]
        assert FENCED_CALL not in "".join(part.message.content or "" for part in parts)
        (model,) = ollama.list().models
        assert model.model == hermes_server.name
        assert "tools" in ollama.show("m").capabilities
    finally:
        ollama._default()._client.close()
        ollama._default.cache_clear()
