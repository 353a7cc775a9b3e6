"""Real servers that nobody names: what they tell of themselves is what they are."""

import json

import pytest
from rigs import RIGS, Servers
from scenes import QUESTION, WEATHER

from promptools.cli import main
from promptools.client import OpenAI
from promptools.lab.server_process import Server
from promptools.profiles import Config
from promptools.types import Reply


def seen_at(server: Server, model: str, **keys: object) -> Reply:
    """Ask a server that nobody named, with a tool; gives the reply with its trace."""
    replies: list[Reply] = []
    with OpenAI(
        base_url=server.base_url, api_key="none", config=Config(), max_retries=0, timeout=120, on_reply=replies.append
    ) as client:
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": QUESTION}], tools=[WEATHER], **keys
        )
    return replies[0]


def told(reply: Reply) -> tuple[str | None, str | None]:
    assert reply.trace.seen is not None
    return reply.trace.seen.kind, reply.trace.seen.version


def test_llamacpp_says_that_it_is_one(hermes_server: Server) -> None:
    reply = seen_at(hermes_server, hermes_server.name)
    assert told(reply) == ("llamacpp", None)  # the build in the wheel has no number
    assert reply.trace.seen.why == "GET /props answers as llama.cpp does"
    assert [call.name for call in reply.calls] == ["get_weather"]


@pytest.mark.parametrize("provider", [None, "llamacpp"])
@pytest.mark.parametrize("name", ["tiny", "llama-3.1-8b", "openai/gpt-oss-20b"])
def test_gpt_oss_on_llamacpp_is_known_by_its_template_under_any_name(
    harmony_server: Server, name: str, provider: str | None
) -> None:
    replies: list[Reply] = []
    with OpenAI(
        base_url=harmony_server.base_url,
        api_key="none",
        config=Config(),
        provider=provider,
        max_retries=0,
        timeout=300,
        on_reply=replies.append,
    ) as client:
        for _ in range(2):
            client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "Break in Paris?"}], tools=[WEATHER]
            )
    first, second = replies
    assert [(attempt.mode, attempt.outcome) for attempt in first.trace.attempts] == [
        ("native", "server_parser"), ("harmony", "answered")
    ]  # fmt: skip
    assert [call.arguments for call in first.calls] == [{"city": "Paris"}]
    assert first.trace.seen is not None
    assert first.trace.seen.family == "gpt-oss"
    assert first.trace.seen.context
    assert second.trace.seen is not None
    assert second.trace.seen.seconds == 0


def test_a_template_with_hermes_tags_is_known_by_it(hermes_server: Server) -> None:
    seen = seen_at(hermes_server, "gpt-oss-20b").trace.seen
    assert seen is not None
    assert (seen.family, seen.family_why) == ("hermes", "the chat template that the server tells")


def test_detect_shows_what_llamacpp_tells(hermes_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", "--base-url", hermes_server.url, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["version"]) == ("llamacpp", None)
    assert ["GET /v1/models", "HTTP 200"] in data["asked"]


@pytest.mark.ollama
@pytest.mark.parametrize(
    ("model", "capabilities", "mode"),
    [
        ("go", {"completion", "tools"}, "native"),
        ("jinja", {"completion", "tools"}, "native"),
        ("gptoss", {"completion", "tools", "thinking"}, "harmony"),
        ("notools", {"completion"}, "prompt"),
    ],
)
def test_ollama_says_that_it_is_one_and_what_its_model_can_do(
    ollama: Server, model: str, capabilities: set[str], mode: str
) -> None:
    reply = seen_at(ollama, model, reasoning_effort="low")
    if reply.trace.attempts[0].outcome == "crashed":  # the port that it chose for the model was taken meanwhile
        reply = seen_at(ollama, model, reasoning_effort="low")
    kind, version = told(reply)
    assert kind == "ollama"
    assert version == RIGS["ollama-go"].title.split(",")[0].removeprefix("Ollama ")
    assert set(reply.trace.seen.capabilities or ()) == capabilities
    assert reply.trace.seen.context
    assert [(attempt.mode, attempt.outcome) for attempt in reply.trace.attempts] == [(mode, "answered")]
    assert [call.arguments for call in reply.calls] == [{"city": "Paris"}]
    left_out = "the reasoning parameters were left out: the model does not take them"
    assert (left_out in reply.trace.notes) == ("thinking" not in capabilities)


@pytest.mark.ollama
def test_a_model_that_ollama_does_not_have_is_its_own_404(ollama: Server) -> None:
    reply = seen_at_error(ollama)
    assert ("POST /api/show", "HTTP 404") in reply.trace.seen.asked


def seen_at_error(server: Server) -> Reply:
    replies: list[Reply] = []
    with (
        OpenAI(
            base_url=server.base_url, api_key="none", config=Config(), max_retries=0, on_reply=replies.append
        ) as client,
        pytest.raises(Exception, match="not found"),
    ):
        client.chat.completions.create(
            model="nowhere", messages=[{"role": "user", "content": QUESTION}], tools=[WEATHER]
        )
    return replies[0]


@pytest.mark.vllm
@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_vllm_says_that_it_is_one_and_which(servers: Servers, kind: str) -> None:
    server = servers[kind]
    reply = seen_at(server, server.name)
    seen, version = told(reply)
    assert seen == "vllm"
    assert version is not None
    assert version.startswith("0.32.")
    assert [call.name for call in reply.calls] == ["get_weather"]
