"""The ollama package's clients, with our transport inside, on a real Ollama: its failures healed, all else as it is."""

import json
import logging
from functools import partial

import asking_ollama
import httpx
import ollama as package
import pytest
from asking import Proxies
from asking_ollama import WAYS, Said
from odd_images import EMPTY, IMAGES, NONE, WRONG
from rig_ollama import BEFORE, KINDS, cue
from scenes import ANSWER, HERMES_CALL, QUESTION, RESULT, WEATHER, WORDS
from test_ollama_healed import HEALED, MODES

from promptools.lab.server_process import Server
from promptools.ollama import Client

pytestmark = pytest.mark.ollama

CALL = ("get_weather", {"city": "Paris"})
NAMED = {"provider": "ollama"}
ask = partial(asking_ollama.ask, settings=NAMED)


def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
      city: Name of the city.
    """
    return RESULT if city == "Paris" else "no idea"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="promptools")


def result(said: Said) -> dict[str, str]:
    (call,) = said.calls
    return {"role": "tool", "tool_name": call[0], "content": get_weather(**call[1])}


@pytest.mark.parametrize(("kind", "cell"), [(kind, cell) for kind, cells in HEALED.items() for cell in cells])
def test_the_call_comes_through(ollama: Server, way: str, kind: str, cell: str) -> None:
    expected = HEALED[kind][cell]
    got = ask(ollama.url, way, kind, cue(cell), tools=[WEATHER])
    assert got.calls == [(name, json.loads(arguments)) for name, arguments in expected.calls]
    assert (got.content.strip(), got.last.done_reason) == (expected.content, "stop")
    assert got.attempts == expected.attempts
    assert [fix.kind for call in got.reply.calls for fix in call.fixes] == expected.fixes


@pytest.mark.parametrize("kind", [*KINDS, "notools"])
def test_a_whole_conversation(ollama: Server, way: str, kind: str) -> None:
    first = ask(ollama.url, way, kind, QUESTION, tools=[get_weather])
    assert first.calls == [CALL]
    assert first.attempts == [(MODES.get(kind, "native"), "answered")]
    second = ask(ollama.url, way, kind, QUESTION, first.message, result(first), tools=[get_weather])
    assert (second.content, second.calls, second.last.done_reason) == (ANSWER, [], "stop")


def test_the_server_says_what_it_is(ollama: Server) -> None:
    assert asking_ollama.found_out(ollama.url) == "ollama"


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_call_is_never_handed_over(ollama: Server, way: str, kind: str) -> None:
    got = ask(ollama.url, way, kind, cue("cut"), tools=[WEATHER], options={"num_predict": 40})
    assert (got.calls, got.last.done_reason) == ([], "length")


def test_a_parser_that_breaks_after_text_is_told_of_or_mended(ollama: Server, way: str) -> None:
    if "streamed" in way:
        # the text is with the app already: asking again would say it twice
        with pytest.raises(package.ResponseError, match="server_parser") as raised:
            ask(ollama.url, way, "think", cue("foreign"), tools=[WEATHER])
        assert raised.value.status_code == -1
    else:
        got = ask(ollama.url, way, "think", cue("foreign"), tools=[WEATHER])
        assert (got.content.strip(), got.calls) == (BEFORE.strip(), [CALL])


def test_options_reach_the_server(ollama: Server, way: str) -> None:
    keys = {"options": {"num_predict": 7, "num_ctx": 2048, "seed": 1}, "keep_alive": "10m"}
    got = ask(ollama.url, way, "go", "Say words", tools=[WEATHER], **keys)
    assert (got.last.done_reason, got.last.eval_count) == ("length", 7)
    with package.Client(ollama.url) as client:
        (loaded,) = (model for model in client.ps().models if model.model == "go:latest")
    assert loaded.context_length == 2048


def test_thinking(ollama: Server, way: str) -> None:
    got = ask(ollama.url, way, "think", cue("fine"), tools=[get_weather], think=True)
    assert (got.thinking.strip(), got.calls) == ("Need the tool.", [CALL])


def test_a_model_that_does_not_think_is_not_asked_to(ollama: Server, way: str) -> None:
    got = ask(ollama.url, way, "go", QUESTION, tools=[get_weather], think=True)
    assert got.calls == [CALL]
    assert got.reply.trace.notes == ("the reasoning parameters were left out: the model does not take them",)


def test_an_answer_in_a_form(ollama: Server, way: str) -> None:
    sunny = {"properties": {"sunny": {"type": "boolean"}}, "required": ["sunny"]}
    form = {"type": "object", **sunny, "additionalProperties": False}
    got = ask(ollama.url, way, "go", "Say words", format=form, options={"num_predict": 300, "seed": 3})
    answer, _ = json.JSONDecoder().raw_decode(got.content)  # a scripted model talks on after it
    assert set(answer) == {"sunny"}


@pytest.mark.parametrize(("kind", "text"), [("go", HERMES_CALL), ("notools", WORDS)])
def test_a_chat_without_tools_is_ollamas_own(ollama: Server, way: str, kind: str, text: str) -> None:
    question = cue("fine") if kind == "go" else "Say words"
    got = ask(ollama.url, way, kind, question)
    assert (got.content, got.calls, got.last.done_reason) == (text, [], "stop")
    assert got.last.load_duration > 0
    assert got.reply is None, "it was not read"


def test_a_prompt_that_does_not_fit_is_one_clear_error(ollama: Server, way: str) -> None:
    with pytest.raises(package.ResponseError, match=r"the prompt has \d+ tokens, and the context holds \d+") as raised:
        ask(ollama.url, way, "go", "word " * 6000 + QUESTION, tools=[get_weather])
    assert raised.value.status_code == 400


@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_an_unknown_model_is_the_servers_own_error(ollama: Server, way: str, tools: list[object]) -> None:
    with pytest.raises(package.ResponseError, match="model 'nope' not found") as raised:
        ask(ollama.url, way, "nope", QUESTION, tools=tools)
    assert raised.value.status_code == 404


@pytest.mark.parametrize(
    "asked",
    [
        # models of the same second come in any order, and loaded ones always
        lambda client: sorted(client.list().models, key=lambda each: str(each.model)),
        lambda client: client.show("go"),
        lambda client: client.show("gptoss"),
        lambda client: client.embed("go", "words").embeddings,
        lambda client: client.generate("go", "Say words").response,
        lambda client: [part.response for part in client.generate("go", "Say words", stream=True)],
        lambda client: client.create("again", from_="go"),
        lambda client: list(client.create("again", from_="go", stream=True)),
        lambda client: client.copy("go", "copied"),
        lambda client: (client.copy("go", "deleted"), client.delete("deleted")),
        lambda client: client.create_blob(__file__),
        lambda client: sorted(str(model.model) for model in client.ps().models),
        lambda client: client.chat("go"),
        lambda client: client.show("nope"),
        lambda client: client.delete("nope"),
        lambda client: list(client.pull("nope.invalid/me/nope", stream=True)),
    ],
)
def test_every_other_route_is_ollamas_own(ollama: Server, proxies: Proxies, asked: object) -> None:
    def outcome(client: package.Client) -> object:
        try:
            got = asked(client)
        except package.ResponseError as error:
            return error.error, error.status_code
        return {**got.model_dump(), **OF_THE_MOMENT} if isinstance(got, package.ChatResponse) else got

    proxy = proxies.before(ollama.base_url, "ollama").removesuffix("/v1")
    with package.Client(ollama.url) as theirs, Client(ollama.url, **NAMED) as ours, package.Client(proxy) as before:
        assert outcome(ours) == outcome(before) == outcome(theirs)


@pytest.mark.parametrize("route", ["chat", "generate"])
def test_what_is_an_image_to_ollama_is_one_to_us(ollama: Server, http: httpx.Client, route: str) -> None:
    """What is none is a 400 at once; for an image it is llama.cpp that refuses, as the model takes none."""

    def said(images: object) -> tuple[int, str]:
        turn = {"messages": [{"role": "user", "content": "Look", "images": images}]}
        body = {"model": "go", "stream": False, **(turn if route == "chat" else {"prompt": "Look", "images": images})}
        answer = http.post(f"{ollama.url}/api/{route}", json=body)
        return answer.status_code, "unsupported" if "does not support multimodal" in answer.text else "other"

    assert {repr(images): said(images) for images in NONE} == {repr(images): (200, "other") for images in NONE}
    assert {repr(images): said(images) for images in WRONG} == {repr(images): (400, "other") for images in WRONG}
    accepted = [*IMAGES, *EMPTY]
    assert {repr(images): said(images) for images in accepted} == {
        repr(images): (400, "unsupported") for images in accepted
    }


@pytest.mark.parametrize("kind", ["go", "think", "notools"])
def test_a_whole_conversation_through_the_proxy(ollama: Server, proxies: Proxies, kind: str) -> None:
    """An Ollama that fails, or whose model knows no tools, as an app in any language sees it."""
    proxy = proxies.before(ollama.base_url, "ollama").removesuffix("/v1")
    question = {"role": "user", "content": cue("broken") if kind == "go" else QUESTION}
    with package.Client(proxy) as client:
        first = client.chat(kind, [question], tools=[get_weather])
        (call,) = first.message.tool_calls
        assert (call.function.name, call.function.arguments) == CALL
        told = {"role": "tool", "tool_name": call.function.name, "content": RESULT}
        assert client.chat(kind, [question, first.message, told], tools=[get_weather]).message.content == ANSWER


OF_THE_MOMENT = {"created_at": "", "total_duration": 0, "load_duration": 0}
