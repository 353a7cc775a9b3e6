"""Every case of the table on every server: with our transport inside the client and through our proxy, both ways whole
and streamed, the app sees what the row says.
"""

import json

import pytest
from asking import FORMS, Got, ask
from clients import provider
from rigs import PLAYED, Rig
from table import Case


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["client", "proxy"])
@pytest.mark.parametrize(("rig", "case"), PLAYED)
def test_the_app_sees_what_the_row_says(clients, servers, rig, case, way, form):
    model = servers[rig.name].name
    client = clients.inside(rig) if way == "client" else clients.before(rig)
    body = {**case.body(), **case.ours(provider(case, form) if way == "proxy" else None)}
    got = ask(client, model, form=form, **body)
    check(case.when(form), rig, got)
    if case.answer is not None:
        results = [{"role": "tool", "tool_call_id": each, "content": case.result} for each in got.ids]
        messages = [*body.pop("messages"), got.message(), *results]
        last = ask(client, model, messages, form, **body)
        assert (last.content, last.calls, last.finish_reason) == (case.answer, [], "stop")


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
