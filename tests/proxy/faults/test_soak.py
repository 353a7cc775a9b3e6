"""The short form of `make soak`: fifty streams at once, a fifth of them with faults, through a proxy process."""

import subprocess
import sys
from pathlib import Path

import pytest
import soak

pytest.importorskip("uvicorn")
TOOL = Path(soak.__file__)


def test_fifty_streams_with_faults():
    options = ["--streams", "50", "--seconds", "2", "--pause", "0.03", "--stall", "0.5"]
    done = subprocess.run([sys.executable, TOOL, *options], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wrong or lost: 0" in done.stdout
    assert "a fault: failed well" in done.stdout


def response(*deltas, finish="stop", done=True):
    events = b"".join(map(soak.event, deltas)) + (soak.event({}, finish) if finish else b"")
    return events + b"data: [DONE]\n\n" * done


def number_of(form, *, fault):
    return next(n for n in range(1000) if soak.form_of(n) == form and bool(soak.fault_of(n)) is fault)


def test_what_it_takes_for_wrong():
    good = number_of("text", fault=False)
    words = {"content": soak.text_of(good)}
    assert soak.judge(good, 200, response(words)) == "right"
    assert soak.judge(good, 200, response({"content": "other"})).startswith("wrong")
    assert soak.judge(good, 200, response(words, finish=None)).startswith("wrong")
    assert soak.judge(good, 200, response(words, done=False)).startswith("wrong")
    assert soak.judge(good, 502, b'{"error": {"message": "x"}}').startswith("wrong")
    call = number_of("native", fault=True)
    half = {"tool_calls": [{"index": 0, "function": {"name": "get_weather", "arguments": '{"city": "C'}}]}
    assert soak.judge(call, 200, response(half, finish="tool_calls")).startswith("wrong")
    assert soak.judge(call, 200, response(half)[:-20]).startswith("wrong")
    assert soak.judge(call, 502, b'{"error": {"message": "x"}}') == "failed well"
    assert soak.judge(call, 502, b"{}").startswith("wrong")


def test_memory_that_grows_is_a_failure(capsys):
    outcomes = soak.Counter({"no fault: right": 9})
    flat, growing = [100_000] * 100, [1000 * second for second in range(100, 200)]
    assert soak.report(outcomes, flat, 100, 0)
    assert not soak.report(outcomes, growing, 100, 0)
    assert not soak.report(outcomes, flat, 100, 1)
    assert not soak.report(soak.Counter({"a fault: lost: OSError": 1}), flat, 100, 0)
    assert not soak.report(outcomes, flat, 100, 0, "Traceback (most recent call last):")
    assert "memory GROWS" in capsys.readouterr().out
