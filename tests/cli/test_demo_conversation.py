"""The demo's conversation with a model whose choices are its own: what is judged, and what is told of the server."""

import io
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import httpx
import pytest
from rich.console import Console
from upstream import completion, running, unary

from promptools.cli import demo_command, main
from promptools.cli.demo_command import Scenario, ScenarioResult, run_scenario
from promptools.cli.terminal_output import print_styled
from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply

PARIS = '{"city": "Paris"}'


@pytest.fixture
def upstream():
    with running() as server:
        yield server


def held(upstream, *answers, **options):
    upstream.play(*answers)
    return run_scenario(Scenario("it", upstream.url, "m", **options))


def called(name, arguments):
    return unary(completion("", [(name, arguments)]))


@pytest.mark.parametrize(
    ("first", "fine"),
    [
        (called(weather.NAME, PARIS), True),
        (called(weather.NAME, '{"city": "Oslo"}'), True),
        (called("get_news", '{"about": "Paris"}'), True),
        (called(weather.NAME, '{"city": "Paris", "unit": "kelvin"}'), False),
        (called(weather.NAME, "{}"), False),
        (called(weather.NAME, "Paris"), False),
        (unary(completion("It is warm.")), True),
        (unary({"error": {"message": "no"}}, status=502), False),
    ],
)
def test_only_the_calls_of_the_tool_are_judged(upstream, first, fine):
    assert held(upstream, first, unary(completion("Bye.")), lenient=True).fine == fine


def test_any_other_model_must_call_for_paris(upstream):
    oslo = called(weather.NAME, '{"city": "Oslo"}'), unary(completion("Bye."))
    paris = called(weather.NAME, PARIS), unary(completion("Bye."))
    assert [held(upstream, *each).fine for each in (oslo, paris)] == [False, True]


def test_what_a_server_said_alone_is_told_as_it_is(upstream):
    seen = held(upstream, unary(completion(f"```json\n{PARIS}\n```", finish="length")), direct=True)
    assert seen.server == "200, length: " + repr(f"```json\n{PARIS}\n```")
    assert seen.app == "no call, answer (cut off): " + repr(f"```json\n{PARIS}\n```")
    assert seen.calls == ()
    seen = held(upstream, called(weather.NAME, PARIS), unary(completion("Warm.")), direct=True)
    assert seen.server == "200, tool_calls get_weather\n200, stop: 'Warm.'"


def test_the_request_carries_what_steadies_the_model(upstream):
    held(upstream, unary(completion("Hi")), sampling={"temperature": 0, "max_tokens": 7})
    asked = upstream.seen[0].json
    assert (asked["temperature"], asked["max_tokens"]) == (0, 7)


# What is shown.


def shown(monkeypatch, *results, **environ):
    """What a terminal of 80 columns gets of these results."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="256")
    for number, result in enumerate(results, 1):
        print_styled(demo_command._block(result) if number <= 2 else demo_command._line(result), console)
    return console.file.getvalue()


@pytest.fixture
def before_and_after():
    said = (
        'HTTP 500: The model produced output that\x1b[2J does not match the expected "peg-native" format ' + "x" * 900
    )
    call = "call: get_weather(" + "y" * 200 + ")"
    paris = (demo_command.ReceivedCall(weather.NAME, {"city": "Paris"}),)
    before = ScenarioResult("llama.cpp alone", True, said, "an exception: InternalServerError", "", True, ())
    tried = "native: 500, server_parser -> harmony: 200, answered\nnative: 200, answered"
    after = ScenarioResult(
        "the same server through promptools", True, tried, f"{call}\nanswer: 'Warm.'", "", False, paris
    )
    return [before, after, *[replace(after, title="a title that is long " * 9)] * 5]


def test_it_fits_on_a_screen_and_nothing_moves_the_cursor(monkeypatch, before_and_after):
    text = shown(monkeypatch, *before_and_after, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "that\\x1b[2J does not match" in text
    assert "\x1b[2J" not in text
    assert lines.index("BEFORE: llama.cpp alone") < lines.index("AFTER: the same server through promptools")


def test_before_is_red_and_after_is_green(monkeypatch, before_and_after):
    text = shown(monkeypatch, *before_and_after)
    assert "\x1b[1;31mBEFORE: llama.cpp alone" in text
    assert "\x1b[1;32mAFTER: the same server" in text


def test_without_color(monkeypatch, before_and_after):
    text = shown(monkeypatch, *before_and_after, NO_COLOR="1")
    assert not re.search(r"\x1b\[[\d;]*3[0-7]", text)


def test_a_server_that_is_enough_is_not_red(monkeypatch, before_and_after):
    before = replace(before_and_after[0], calls=before_and_after[1].calls)
    text = shown(monkeypatch, before)
    assert "\x1b[1;32mBEFORE" in text
    assert "the server alone is enough here" in text


def test_what_did_not_go_as_expected_is_red(monkeypatch, before_and_after):
    before, after, line, *_ = before_and_after
    text = shown(monkeypatch, before, replace(after, fine=False), replace(line, fine=False))
    assert "\x1b[1;31mAFTER" in text
    assert "\x1b[31mWRONG" in text


def test_each_conversation_is_announced_and_shown_as_it_ends(upstream, capsys):
    upstream.play(*[unary(completion("It is warm."))] * 3)
    scenarios = [Scenario(f"number {number}", upstream.url, "m", lenient=True) for number in (1, 2, 3)]
    runs = demo_command._run_all(scenarios, show=True, announce=True)
    for number in (1, 2, 3):
        result = next(runs)
        printed = capsys.readouterr()
        assert printed.err == f"{number}/3 number {number} ...\n"
        assert f"number {number}" in printed.out
        assert result.title == f"number {number}"


def test_a_slow_model_is_asked_for_before_and_after_alone(upstream, capsys, monkeypatch):
    monkeypatch.setattr(demo_command, "LAST_START", -1.0)
    upstream.play(*[unary(completion("It is warm."))] * 2)
    scenarios = [Scenario(title, upstream.url, "m", lenient=True) for title in ("before", "after", "third", "fourth")]
    seen = [*demo_command._run_all(scenarios, show=False, announce=False)]
    assert [result.title for result in seen] == ["before", "after"]
    assert capsys.readouterr().err == "left out, since this model needs too long: third, fourth\n"


def test_no_reply_is_waited_for_when_the_time_is_over(upstream):
    over = threading.Event()
    upstream.play(replace(unary(completion("Hello.")), first=lambda: over.wait(300)))
    try:
        seen = run_scenario(Scenario("it", upstream.url, "m"), seconds=0)
    finally:
        over.set()
    assert not seen.fine
    assert seen.server == "error: Request timed out."


# --keep


@pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")
def test_the_servers_of_a_model_run_until_ctrl_c(monkeypatch, capsys, tmp_path):
    with serve([ScriptedReply(None, "Hi.")], folder=tmp_path):
        (model,) = tmp_path.rglob("*.gguf")
    answered = {}

    def interrupted():
        kept = capsys.readouterr().err.splitlines()[-2]
        answered.update({url: httpx.get(f"{url}/models").status_code for url in re.findall(r"http://[^\s;]+/v1", kept)})
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_command, "_wait", interrupted)
    main(["demo", "--model", str(model), "--keep"])
    assert [*answered.values()] == [200, 200]
    for url in answered:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/models")


def test_only_a_model_in_a_file_has_servers_to_keep(capsys):
    assert main(["demo", "--keep"]) == 2
    assert "--keep belongs to --model FILE" in capsys.readouterr().err


KEPT = """
from promptools.cli import demo_command
with demo_command._unwinding_on_sigterm(), demo_command._proxy("--base-url", "http://127.0.0.1:9/v1") as url:
    print(url, flush=True)
    demo_command._wait()
"""


def test_sigterm_ends_the_proxy_of_the_demo_too():
    with subprocess.Popen([sys.executable, "-c", KEPT], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        url = demo.stdout.readline().strip()
        assert httpx.get(f"{url.removesuffix('/v1')}/healthz").status_code == 200
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(httpx.ConnectError):  # the proxy's process was waited for
        httpx.get(f"{url.removesuffix('/v1')}/healthz")
