"""Every case of the table on every server: with our transport inside the client and through our proxy, both ways whole
and streamed, the app sees what the row says.
"""

import json

import asking_ollama
import pytest
from asking import FORMS, Got
from rigs import PLAYED, PLAYED_RAW, RIGS, Rig
from table import HEADERS, Case


def fits_ollama(rig: Rig, case: Case) -> bool:
    """Return whether a row can be asked with the ollama package: its own API has neither a choice of tools nor n."""
    reads = rig.name in {"ollama-go", "ollama-gptoss", "ollama-coder"}  # one for each reader of calls
    return reads and case.history == "[]" and case.tools != [] and case.request.keys() <= {"tools", "max_tokens"}


ONE_WAY = {
    "vllm-hermes": "proxy",
    "vllm-harmony": "proxy",
    "vllm-hermes-bare": "client",
    "vllm-harmony-bare": "client",
    "vllm-harmony-old": "client",
    "ollama-jinja": "client",
    "ollama-notools": "client",
}
"""Of several servers of one kind: each row is asked both ways of one or another of them. Of Ollama each reader of calls
is asked both ways; for the others the way through the client is what the page of results needs.
"""
WAYS = [
    pytest.param(*each.values, way, marks=each.marks, id=f"{each.id}-{way}")
    for each in PLAYED
    for way in ("client", "proxy")
    if ONE_WAY.get(each.values[0].name, way) == way
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rig", "case", "way"), WAYS)
def test_the_app_sees_what_the_row_says(asked, rig, case, way, form):
    got, *more = asked(rig, case, way, form)
    check(case.when(form), rig, got)
    answers = [] if case.answer is None else [(case.answer, [], "stop")]
    assert [(last.content, last.calls, last.finish_reason) for last in more] == answers


@pytest.mark.asks("raw")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rig", "case"), PLAYED_RAW)
def test_the_app_sees_it_in_raw_mode(asked, rig, case, form):
    got, *more = asked(rig, case, "raw", form)
    case = case.when(form)
    check(case, rig, got)
    assert {mode for mode, _ in got.attempts} == {"raw"}
    answers = [] if case.answer is None else [(case.answer, [], "stop")]
    assert [(last.content, last.calls, last.finish_reason) for last in more] == answers


HEADERS_READ = [
    pytest.param(rig, case, id=f"{rig.name}-{case.name}", marks=[getattr(pytest.mark, rig.mark)] if rig.mark else [])
    for rig in RIGS.values()
    for case in HEADERS
    if rig.family == "harmony" and rig.name != "vllm-harmony-bare"  # its raw endpoint knows nothing of the flags
]


@pytest.mark.asks("harmony")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rig", "case"), HEADERS_READ)
def test_a_header_is_read_in_harmony_mode(asked, rig, case, form):
    (got,) = asked(rig, case, "harmony", form)
    case = case.when(form)
    assert got.error is None
    assert [[call.name, json.loads(call.arguments)] for call in got.choices[0].calls] == case.calls
    assert got.content.strip() == (case.content or "")
    outcomes = {outcome for _, outcome in got.attempts}
    assert outcomes == ({"answered"} if case.calls or case.content else {"swallowed"})
    assert {mode for mode, _ in got.attempts} == {"harmony"}
    assert len(got.attempts) == 1 or outcomes == {"swallowed"}


@pytest.mark.ollama
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rig", "case"), [each for each in PLAYED if fits_ollama(*each.values)])
def test_the_ollama_package_sees_it_too(servers, rig, case, form):
    case = case.when(form)
    settings = {"provider": rig.kind, **case.options}
    limit = {"num_predict": case.request["max_tokens"]} if "max_tokens" in case.request else {}
    server = servers[rig.name]
    got = asking_ollama.ask(
        server.url, form, server.name, case.question, settings=settings, tools=case.tools, options=limit
    )
    assert got.calls == [tuple(call) for call in case.calls]
    assert got.last.done_reason == ("length" if case.ends() == "length" else "stop")
    if case.content is not None:
        assert got.content.strip() == case.content
    check_mode(case, rig, got.attempts)


def check(case: Case, rig: Rig, got: Got) -> None:
    """Compare what the app saw with the row."""
    if case.error:
        assert case.error in (got.error or ""), f"no such error, but {got}"
        return
    assert got.error is None
    assert sorted(got.choices) == list(range(case.request.get("n", 1)))
    for choice in got.choices.values():
        calls = list(choice.calls)
        if case.opened:
            assert calls.pop().arguments.startswith(case.opened)
        assert [[call.name, json.loads(call.arguments)] for call in calls] == case.calls
        assert choice.finish_reason == case.ends()
    assert len({*got.ids}) == len(got.ids)
    if case.content is not None:
        assert got.content.strip() == case.content
    if case.reasoning is not None:
        assert got.reasoning.strip() == case.reasoning
    check_trace(case, rig, got)


def check_trace(case: Case, rig: Rig, got: Got) -> None:
    """Compare what the trace tells with the row: the mode, the fixes, the tokens of all attempts together."""
    if case.tools:
        check_mode(case, rig, got.attempts)
    fixes = {
        fix["kind"] for choice in got.trace.get("choices", ()) for each in choice["fixes"].values() for fix in each
    }
    assert fixes >= set(case.fixes)
    spent = [attempt["usage"]["completion_tokens"] for attempt in got.trace.get("attempts", ()) if attempt["usage"]]
    if spent and got.usage:
        assert got.usage["completion_tokens"] == sum(spent)


def check_mode(case: Case, rig: Rig, attempts: list[tuple[str, str]]) -> None:
    """Compare the mode that answered with the row."""
    wanted = rig.mode if case.mode is None else case.mode
    if wanted != "any":
        assert {mode for mode, outcome in attempts if outcome == "answered"} == ({wanted} if wanted else set())
