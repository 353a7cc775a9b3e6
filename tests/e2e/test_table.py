"""Every case of the table on every server: with our transport inside the client and through our proxy, both ways whole
and streamed, the app sees what the row says.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from asking import FORMS, Form, Got, Proxies, ask
from rigs import RIGS, Rig, Servers
from table import CASES, Case, played

from promptools.client import OpenAI
from promptools.fallback import Breaker
from promptools.profiles import Config

PLAYED = [
    pytest.param(rig, here, id=f"{rig.name}-{here.name}", marks=[getattr(pytest.mark, rig.mark)] if rig.mark else [])
    for rig in RIGS.values()
    for here in played(rig.name, rig.family)
]


class Clients:
    """Clients before each server, one of a kind, which know of no earlier failure when they are asked for."""

    def __init__(self, servers: Servers, proxies: Proxies, folder: Callable[[str], Path]) -> None:
        self._servers, self._proxies, self._folder = servers, proxies, folder
        self._made: dict[tuple[str, str], openai.OpenAI] = {}

    def inside(self, rig: Rig) -> openai.OpenAI:
        """Give one with our transport inside."""
        made = self._made.get((rig.name, "inside"))
        if made is None:
            url = self._servers[rig.name].base_url
            made = OpenAI(base_url=url, provider=rig.kind, config=Config(), api_key="none", max_retries=0, timeout=60)
            self._made[rig.name, "inside"] = made
        return made.with_options(breaker=Breaker())

    def before(self, rig: Rig) -> openai.OpenAI:
        """Give one that talks to our proxy."""
        if (rig.name, "before") not in self._made:
            url = self._proxies.configured(self._config(rig))
            self._made[rig.name, "before"] = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
        return self._made[rig.name, "before"]

    def _config(self, rig: Rig) -> Path:
        """Write a config with a provider for each case, all at the one server: none knows of another's failures."""
        url = json.dumps(self._servers[rig.name].base_url)
        names = [json.dumps(provider(case, form)) for case in CASES for form in FORMS]
        told = [f"[providers.{name}]\nkind = {json.dumps(rig.kind)}\nbase_url = {url}\n" for name in names]
        path = self._folder(f"{rig.name}-proxy") / "promptools.toml"
        path.write_text("\n".join([f"default_provider = {names[0]}\n", *told]), encoding="utf-8")
        return path

    def close(self) -> None:
        for client in self._made.values():
            client.close()


def provider(case: Case, form: Form) -> str:
    return f"{case.name}, {form}"


@pytest.fixture(scope="session")
def clients(servers: Servers, proxies: Proxies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    made = Clients(servers, proxies, tmp_path_factory.mktemp)
    yield made
    made.close()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["client", "proxy"])
@pytest.mark.parametrize(("rig", "case"), PLAYED)
def test_the_app_sees_what_the_row_says(clients, servers, rig, case, way, form):
    model = servers[rig.name].name
    client = clients.inside(rig) if way == "client" else clients.before(rig)
    body = {**case.body(), **ours(case, form if way == "proxy" else None)}
    got = ask(client, model, form=form, **body)
    check(case, rig, got)
    if case.answer is not None:
        results = [{"role": "tool", "tool_call_id": each, "content": case.result} for each in got.ids]
        messages = [*body.pop("messages"), got.message(), *results]
        last = ask(client, model, messages, form, **body)
        assert (last.content, last.calls, last.finish_reason) == (case.answer, [], "stop")


def ours(case: Case, form: Form | None) -> dict[str, Any]:
    """Give what a request says to promptools; one without tools says nothing, and so passes untouched."""
    if not case.tools:
        return {}
    named = {} if form is None else {"provider": provider(case, form)}
    return {"extra_body": {"promptools": {"trace": True, **named, **case.options}}}


def check(case: Case, rig: Rig, got: Got) -> None:
    """Compare what the app saw with the row."""
    if case.error:
        assert case.error in (got.error or ""), f"no such error, but {got}"
        return
    assert got.error is None
    assert sorted(got.choices) == list(range(case.request.get("n", 1)))
    for choice in got.choices.values():
        assert [[call.name, json.loads(call.arguments)] for call in choice.calls] == case.calls
        assert choice.finish_reason == case.ends()
    assert len({*got.ids}) == len(got.ids)
    if case.content is not None:
        assert got.content.strip() == case.content
    if case.reasoning is not None:
        assert got.reasoning.strip() == case.reasoning
    check_trace(case, rig, got)


def check_trace(case: Case, rig: Rig, got: Got) -> None:
    """Compare what the trace tells with the row: the mode, the fixes, the tokens of all attempts together."""
    if case.tools and case.mode != "any":
        wanted = rig.mode if case.mode is None else case.mode
        assert {mode for mode, outcome in got.attempts if outcome == "answered"} == ({wanted} if wanted else set())
    fixes = {
        fix["kind"] for choice in got.trace.get("choices", ()) for each in choice["fixes"].values() for fix in each
    }
    assert fixes >= set(case.fixes)
    spent = [each["usage"]["completion_tokens"] for each in got.trace.get("attempts", ()) if each["usage"]]
    if spent and got.usage:
        assert got.usage["completion_tokens"] == sum(spent)
