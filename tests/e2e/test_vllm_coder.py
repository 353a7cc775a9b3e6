"""Qwen3-Coder on a real vLLM with its parser for it: what the parser cannot read comes out right in raw mode."""

import pytest
from asking import FORMS
from rigs import RIGS
from table import ROWS

MALFORMED = [
    pytest.param(RIGS["vllm-coder"], ROWS[name], id=f"vllm-coder-{name}")
    for name in ("a call in the tags of another model however it is asked",)
]
pytestmark = [pytest.mark.vllm, pytest.mark.templates]


@pytest.mark.asks("straight")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rig", "case"), MALFORMED)
def test_alone_the_call_is_lost(asked, rig, case, form):
    (got,) = asked(rig, case, "straight", form)
    assert [call.name for call in got.choices[0].calls] == []


@pytest.mark.asks("client")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rig", "case"), MALFORMED)
def test_the_app_gets_it(asked, rig, case, form):
    (got,) = asked(rig, case, "client", form)
    assert [(call.name, call.arguments) for call in got.choices[0].calls] == [("get_weather", '{"city": "Paris"}')]
    assert got.attempts[-1] == ("raw", "answered")
