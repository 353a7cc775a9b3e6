"""A model that nobody knows on a real llama.cpp, with nothing configured: its format of calls is learned."""

import asyncio
from contextlib import contextmanager

import pytest
from invented_templates import invented_template
from newly_learned import (
    BEFORE,
    CALL,
    ONE_OF_EACH_KIND,
    OTHERS,
    QUESTION,
    WEATHER,
    ask_in_all_ways,
    learn_anew,
    lines,
    told,
)

from promptools.client import AsyncOpenAI, OpenAI
from promptools.lab import llamacpp_server


@contextmanager
def serving(form, folder):
    """Run a model whose template has a form of calls."""
    if not llamacpp_server.can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    template = folder / "template.jinja"
    template.write_text(invented_template(form), encoding="utf-8")
    with llamacpp_server.serve(lines(form), template=template, name="acme-7b", folder=folder) as server:
        yield server


@pytest.fixture(scope="module", params=ONE_OF_EACH_KIND)
def running(request, tmp_path_factory):
    with serving(request.param, tmp_path_factory.mktemp("learned")) as server:
        yield server, request.param


@pytest.fixture(autouse=True)
def anew(monkeypatch, tmp_path):
    learn_anew(monkeypatch, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", OTHERS)
def test_calls_in_other_forms_are_read_too(form, tmp_path, tmp_path_factory):
    with serving(form, tmp_path_factory.mktemp("learned")) as server:
        check_every_way(server, form, tmp_path)


def test_its_calls_are_read_in_every_way(running, tmp_path):
    check_every_way(*running, tmp_path)


def check_every_way(server, form, tmp_path):
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=300) as client:
        asked = ask_in_all_ways(client, server.name, form)
    for way, got in asked.items():
        assert (told(got), got.content.strip(), got.finish_reason) == ([CALL], BEFORE.strip(), "tool_calls"), way
        assert got.attempts[-1][1] == "answered"
    seen = [got.trace["seen"]["template_dialect"] for got in asked.values()]
    assert seen == [seen[0]] * len(asked)
    assert seen[0].startswith("learned_")
    assert [path.stem for path in tmp_path.iterdir()] == [seen[0]], "kept for the next process"
    notes = [note for got in asked.values() for note in got.trace["notes"] if "learned" in note]
    assert len(notes) == 1, "the first request says that it was learned"


async def ask_once(server):
    async with AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=300) as client:
        said = await client.chat.completions.create(
            model=server.name,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[WEATHER],
            extra_body={"promptools": {"mode": "raw"}},
        )
    return [call.function.name for call in said.choices[0].message.tool_calls or ()]


def test_on_an_event_loop(running):
    assert asyncio.run(ask_once(running[0])) == [CALL[0]]


def test_without_learning_they_are_text(running):
    server, form = running
    """Unless they are JSON, which is found whatever is around it."""
    with OpenAI(
        base_url=server.base_url, api_key="none", overrides={"learn": False}, max_retries=0, timeout=300
    ) as client:
        asked = ask_in_all_ways(client, server.name, form)
    assert [got.trace["seen"]["template_dialect"] for got in asked.values()] == [None] * len(asked)
    raw = [got.calls for (mode, _), got in asked.items() if mode == "raw"]
    assert raw == [[], []] or form.startswith("json")
