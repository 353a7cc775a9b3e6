"""The command `promptools demo`: a weather conversation without promptools, and in several ways through promptools."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from promptools.cli.collected_reply import CollectedReply
from promptools.cli.proxy_addresses import refuse_proxy
from promptools.cli.server_errors import require_server
from promptools.cli.shared_arguments import add_api_key, add_base_url, add_json, server_key
from promptools.cli.terminal_output import print_json, print_progress, print_styled, printable
from promptools.errors import UsageError, clip, install_command
from promptools.harness.agent.loop_effects import AccumulatedReply
from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, check_gguf, serve, serve_file
from promptools.wire.json_body import as_object

# A conversation about the weather with the official client (question, call, result, answer), and a record of it.


_TURNS = 4
MAX_SECONDS = 290.0
"""Seconds from the start of the demo until it stops waiting for answers."""
LAST_START = 200.0
"""Seconds from the start of the demo after which no conversation begins, except for the first two.

A small model on two cores may take a minute for each conversation.
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A way to run the conversation, and the outcome that is expected."""

    title: str
    base_url: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The value of the key `promptools` in the request."""
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other keys of the request: `temperature`, `max_tokens`."""
    stream: bool = False
    key: str = "none"
    direct: bool = False
    """Whether the conversation runs without promptools. If so, any outcome is fine, unless `must_fail` is true."""
    must_fail: bool = False
    """Whether the conversation without promptools is expected to fail, so that the demo shows a difference."""
    mode: str | None = None
    """The expected mode of the first reply; None if any mode is fine."""
    needs_retry: bool = False
    """Whether an attempt is expected to fail before another one succeeds."""
    answer: str | None = None
    """The expected answer; None if any answer is fine."""
    lenient: bool = False
    """Whether the model may make no call, calls of other tools, or too many calls.

    If so, only three things are checked: that there was no error, the mode, and the arguments of calls to the offered
    tool.
    """


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call as the app received it. `arguments` is empty if the model's arguments are not a JSON object."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The outcome of a scenario."""

    title: str
    fine: bool
    server: str
    app: str
    why: str
    direct: bool
    calls: tuple[ReceivedCall, ...]
    """The calls that the app received, in order."""
    seconds: float = 0.0


@dataclass(slots=True)
class _Record:
    """Collects what happens in a conversation, for its `ScenarioResult`."""

    server: list[str] = field(default_factory=list[str])
    app: list[str] = field(default_factory=list[str])
    why: list[str] = field(default_factory=list[str])
    calls: list[ReceivedCall] = field(default_factory=list[ReceivedCall])
    modes: list[str | None] = field(default_factory=list[str | None])
    failed: int = 0
    answer: str | None = None
    error: bool = False


def run_scenario(scenario: Scenario, seconds: float = MAX_SECONDS) -> ScenarioResult:
    """Run the conversation until it ends or fails. An error from the server is not raised; it is part of the result.

    The wait for an answer, or for the next chunk of a streamed answer, is limited to what was left of `seconds` when
    the request was sent, or to 1 s if less was left.
    """
    import openai

    notes, began = _Record(), time.monotonic()
    client = openai.OpenAI(base_url=scenario.base_url, api_key=scenario.key, max_retries=0)
    messages: list[Any] = [{"role": "user", "content": weather.QUESTION}]
    try:
        for _ in range(_TURNS):
            left = max(1.0, seconds - (time.monotonic() - began))
            reply = _send_turn(client.with_options(timeout=left), scenario, messages, notes)
            message = reply.message(reasoning=False)
            messages.append(message)
            if not message.get("tool_calls"):
                _record_answer(reply, notes)
                break
            messages.extend(_execute_call(call, notes) for call in message["tool_calls"])
    except openai.APIError as error:
        notes.error = True
        status = getattr(error, "status_code", None)
        notes.server.append(f"{f'HTTP {status}' if status else 'error'}: {clip(_error_message(error), 160)}")
        notes.app.append(f"an exception: {type(error).__name__}")
    finally:
        client.close()
    server, app, why = ("\n".join(part) for part in (notes.server, notes.app, notes.why))
    fine, took = _as_expected(scenario, notes), round(time.monotonic() - began, 3)
    return ScenarioResult(scenario.title, fine, server, app, why, scenario.direct, tuple(notes.calls), took)


def _send_turn(client: Any, scenario: Scenario, messages: list[Any], record: _Record) -> AccumulatedReply:
    extra = {} if scenario.direct else {"extra_body": {"promptools": {**scenario.options, "trace": True}}}
    raw = client.chat.completions.with_raw_response.create(
        model=scenario.model,
        messages=messages,
        tools=[weather.TOOL],
        stream=scenario.stream,
        **scenario.sampling,
        **extra,
    )
    answer = CollectedReply()
    parsed: Any = raw.parse()
    for part in parsed if scenario.stream else (parsed,):
        for _ in answer.add(part):
            pass
    if scenario.direct:
        record.server.append(f"{raw.status_code}, {_summarize(answer.reply)}")
    attempts = answer.attempts
    if attempts:
        tried = (f"{attempt['mode']}: {attempt['status']}, {attempt['outcome']}" for attempt in attempts)
        record.server.append(" -> ".join(tried))
        reasons = (f"{attempt['mode']}: {clip(attempt['why'] or attempt['outcome'], 110)}" for attempt in attempts)
        record.why.append(" -> ".join(reasons))
    answered = [attempt for attempt in attempts if attempt["outcome"] == "answered"]
    record.modes.append(answered[-1]["mode"] if answered else None)
    record.failed += len(attempts) - len(answered)
    return answer.reply


def _summarize(reply: AccumulatedReply) -> str:
    """Return a one-line summary of a reply: its finish reason, the names of its calls, and its content."""
    called = "".join(f" {call.name}" for call in reply.calls)
    content = f": {clip(reply.content, 200)!r}" if reply.content else ""
    return f"{reply.finish_reason}{called}{content}"


def _record_answer(reply: AccumulatedReply, record: _Record) -> None:
    record.answer = reply.content
    none = "" if record.calls else "no call, "
    cut = " (cut off)" if reply.finish_reason == "length" else ""
    record.app.append(f"{none}answer{cut}: {clip(reply.content, 100)!r}")


def _execute_call(call: Mapping[str, Any], record: _Record) -> dict[str, Any]:
    """Execute a call as an app would; return the message with its result."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    record.app.append(f"call: {name}({clip(arguments, 80)})")
    parsed: dict[str, Any] = {}
    try:
        parsed = dict(json.loads(arguments))
        result = weather.get_weather(str(parsed["city"]))
    except (ValueError, KeyError, TypeError) as error:
        result = f"error: {error!r}"
    record.calls.append(ReceivedCall(name, parsed))
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


def _as_expected(scenario: Scenario, record: _Record) -> bool:
    """Return whether the outcome is as expected.

    Usually this means exactly one call and then an answer; a scenario may be more lenient, or expect a failure.
    """
    if scenario.direct:
        return record.error if scenario.must_fail else True
    if record.error:
        return False
    mode = record.modes[0]
    if scenario.lenient:
        return all(_arguments_valid(call) for call in record.calls) and (mode is None or scenario.mode in (None, mode))
    called = [call.name == weather.NAME and "paris" in str(call.arguments.get("city")).lower() for call in record.calls]
    return (
        called == [True]
        and bool(record.answer)
        and scenario.answer in (None, record.answer)
        and scenario.mode in (None, mode)
        and (record.failed > 0 or not scenario.needs_retry)
    )


def _arguments_valid(call: ReceivedCall) -> bool:
    """Return whether a call's arguments conform to the offered tool's schema; True for a call to any other tool."""
    from jsonschema import Draft202012Validator

    validator: Any = Draft202012Validator(weather.TOOL["function"]["parameters"])
    return call.name != weather.NAME or bool(validator.is_valid(call.arguments))


def _error_message(error: Any) -> str:
    return str(as_object(error.body).get("message") or error.message)


# The command.


_CONFIG = """\
default_provider = "{first}"
"""
_PROVIDER = """
[providers.{name}]
kind = "llamacpp"
base_url = "{base_url}"
default_model = "{name}"
"""

_DETERMINISTIC = {"temperature": 0, "max_tokens": 256}
"""Request keys for deterministic sampling, and a token limit because a model may never stop by itself."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_base_url(parser)
    about = "model to ask there; without --base-url a GGUF file, which the demo runs with its own llama.cpp"
    parser.add_argument("--model", metavar="M", help=about)
    add_api_key(parser)
    parser.add_argument("--provider", metavar="KIND", help="kind of the server (see: promptools providers)")
    about = "keep the servers of --model FILE running after the demo, until Ctrl-C, and print their addresses"
    parser.add_argument("--keep", action="store_true", help=about)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the conversations; return 0 if all of them went as expected, else 1."""
    if arguments.base_url and not arguments.model:
        raise UsageError("--base-url also needs --model: the name that the server knows its model by")
    if arguments.provider and not arguments.base_url:
        raise UsageError("--provider belongs to --base-url: without it the demo brings its own server, llama.cpp")
    path = _model_file(arguments.model) if arguments.model and not arguments.base_url else None
    if arguments.keep and path is None:
        raise UsageError("--keep belongs to --model FILE: only then the demo has a server with a real model")
    if not arguments.base_url and not can_serve():
        print_progress(
            f"the demo's own server needs xllamacpp, gguf and numpy: {install_command('demo')};"
            " where xllamacpp has no wheel, use a server of yours: promptools demo --base-url URL --model M"
        )
        return 1
    scenarios = _own_server(arguments) if arguments.base_url else _model_in_file(path) if path else _scripted()
    with _unwinding_on_sigterm(), scenarios as held:
        slow = path is not None or bool(arguments.base_url)  # only the scripted models answer at once
        seen = [*_run_all(held, show=not arguments.json, announce=slow)]
        if arguments.json:
            print_json([asdict(result) for result in seen])
        if arguments.keep:
            _keep_running(direct=held[0], through=held[1])
    wrong = [result for result in seen if not result.fine]
    if wrong:
        print_progress(f"{len(wrong)} of {len(seen)} conversations did not go as expected")
    elif not arguments.json:
        print_styled([(f"\ntry: promptools serve --base-url {arguments.base_url or EXAMPLE_URL} --inspect", "bold")])
    return 1 if wrong else 0


@contextlib.contextmanager
def _unwinding_on_sigterm() -> Generator[None]:
    """Raise `SystemExit` on SIGTERM, so that the demo ends its servers; its proxy would otherwise outlive it."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _keep_running(direct: Scenario, through: Scenario) -> None:
    """Print the addresses of the servers, and wait for Ctrl-C, which ends them."""
    print_progress(f"the model {direct.model!r} alone: {direct.base_url}; through promptools: {through.base_url}")
    print_progress("Ctrl-C ends both")
    with contextlib.suppress(KeyboardInterrupt):
        _wait()


def _wait() -> None:
    threading.Event().wait()


def _run_all(scenarios: Sequence[Scenario], *, show: bool, announce: bool) -> Iterator[ScenarioResult]:
    """Run the conversations, and yield the result of each when it ends.

    The first two results are shown at full length: the conversation without promptools, and the same conversation
    through promptools.
    """
    began = time.monotonic()
    for number, scenario in enumerate(scenarios, 1):
        elapsed = time.monotonic() - began
        if number > 2 and elapsed > LAST_START:
            titles = ", ".join(left.title for left in scenarios[number - 1 :])
            print_progress(f"left out, since this model needs too long: {titles}")
            return
        if announce:
            print_progress(f"{number}/{len(scenarios)} {scenario.title} ...")
        # however slow the first one is, it leaves time for the second
        result = run_scenario(scenario, (MAX_SECONDS - elapsed) / (2 if number == 1 else 1))
        if show:
            print_styled(_block(result) if number <= 2 else _line(result))
        yield result


@contextlib.contextmanager
def _scripted() -> Generator[list[Scenario]]:
    """Yield the scenarios with two scripted models, on two real llama.cpp servers with a proxy in front of them."""
    print_progress("starting llama.cpp twice: a model that breaks its parser, and one that does not ...")
    with (
        serve(weather.hermes_script(), template="hermes", name="hermes") as good,
        serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss") as breaking,
        _config({"hermes": good.base_url, "gpt-oss": breaking.base_url}) as config,
        _proxy("--config", str(config), "--allow-provider") as proxy,
    ):
        well = Scenario("", proxy, "hermes", answer=weather.ANSWER)
        broken = replace(well, model="gpt-oss", options={"provider": "gpt-oss"}, mode="harmony", needs_retry=True)
        yield [
            Scenario("llama.cpp alone, with gpt-oss", breaking.base_url, "gpt-oss", direct=True, must_fail=True),
            replace(broken, title="the same server through promptools"),
            replace(broken, title="the same, streamed", stream=True),
            Scenario("another model, alone", good.base_url, "hermes", direct=True),
            replace(well, title="through promptools, native mode", options={"mode": "native"}, mode="native"),
            replace(well, title="through promptools, prompt mode", options={"mode": "prompt"}, mode="prompt"),
            replace(well, title="through promptools, streamed", stream=True, mode="native"),
        ]


def _model_file(name: str) -> Path:
    path = Path(name)
    if not path.is_file() and path.suffix.lower() != ".gguf":
        raise UsageError(
            f"--model {name!r} is not a file: write the path of a GGUF file,"
            " or add --base-url for a model of your own server"
        )
    check_gguf(path)
    return path


@contextlib.contextmanager
def _model_in_file(path: Path) -> Generator[list[Scenario]]:
    """Start a llama.cpp server with the model in the file `path`; yield the scenarios for it."""
    print_progress(f"starting llama.cpp on {path.name} ...")
    with serve_file(path) as server, _proxy("--base-url", server.base_url) as proxy:
        # small models repeat a call whose result they have; the profile knows that of Qwen2.5-Coder-0.5B alone
        small = {"on_repeat": "answer"}
        route = Scenario("", server.base_url, server.name, small, sampling=_DETERMINISTIC, lenient=True)
        yield _before_and_after(replace(route, title=f"llama.cpp alone, with {path.name}"), proxy)


@contextlib.contextmanager
def _own_server(arguments: argparse.Namespace) -> Generator[list[Scenario]]:
    """Yield the scenarios with a model on the user's own server."""
    require_server(arguments.base_url)
    key = server_key(arguments)
    refuse_proxy(arguments.base_url, key)
    kind = ["--provider", arguments.provider] if arguments.provider else []
    with _proxy("--base-url", arguments.base_url, *kind) as proxy:
        title = f"your server alone, with {arguments.model}"
        yield _before_and_after(Scenario(title, arguments.base_url, arguments.model, key=key or "none"), proxy)


def _before_and_after(direct: Scenario, proxy: str) -> list[Scenario]:
    """Return the scenario `direct`, and three scenarios of the same conversation through promptools."""
    through = replace(direct, base_url=proxy)
    in_prompt_mode = {**direct.options, "mode": "prompt"}
    told = "".join(f", {name}={value}" for name, value in direct.options.items())
    return [
        replace(direct, direct=True),
        replace(through, title=f"the same server through promptools{told}"),
        replace(through, title="through promptools, streamed", stream=True),
        replace(through, title="through promptools, prompt mode", options=in_prompt_mode, mode="prompt"),
    ]


@contextlib.contextmanager
def _config(providers: dict[str, str]) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="promptools-") as folder:
        path = Path(folder) / "promptools.toml"
        parts = [_PROVIDER.format(name=name, base_url=url) for name, url in providers.items()]
        path.write_text(_CONFIG.format(first=next(iter(providers))) + "".join(parts), encoding="utf-8")
        yield path


@contextlib.contextmanager
def _proxy(*arguments: str) -> Generator[str]:
    """Run `promptools serve` on a free port; yield its base URL."""
    command = [sys.executable, "-m", "promptools", "serve", "--quiet", "--port", "0", *arguments]
    environ = {name: value for name, value in os.environ.items() if name != "PROMPTOOLS_API_KEY"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening "):
            return line.split()[1]
    raise UsageError("the proxy did not start; its message is above")


# The output, which fits on a screen with 80 columns.


EXAMPLE_URL = "http://localhost:8000/v1"
_WIDTH = 80
_LABEL = 14
"""Number of columns for the labels `server said` and `app got`."""
_MAX_LINES = 4
"""Maximum number of lines of text beside a label, such as `app got`."""


def _block(result: ScenarioResult) -> list[tuple[str, str]]:
    """Return the full result of a conversation, with what the server said and the app got, as pieces of styled text."""
    color = _color(result)
    heading = printable(f"{'BEFORE' if result.direct else 'AFTER'}: {result.title}")
    intro = f"\nThe user asks: {weather.QUESTION}\nThe app offers the tool {weather.NAME}.\n\n"
    rows = [("server said", result.server), ("app got", result.app)]
    outcome = _outcome(result)
    return [
        (intro if result.direct else "", ""),
        (f"{_fit(heading, _WIDTH)}\n", f"bold {color}"),
        *(piece for label, text in rows for piece in _row(label, text)),
        *([(f"  {outcome}\n", color)] if outcome else []),
    ]


def _row(label: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the styled pieces of a row: a label, and the text beside it."""
    width = _WIDTH - _LABEL
    lines = [part for line in text.splitlines() for part in textwrap.wrap(printable(line), width) or [""]]
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 1], "..."]
    for number, line in enumerate(lines):
        yield f"  {'' if number else label:<{_LABEL - 2}}", "dim"
        yield f"{line}\n", ""


def _line(result: ScenarioResult) -> list[tuple[str, str]]:
    """Return the result of a conversation on one line, as pieces of styled text."""
    outcome = _outcome(result) or ("as expected" if result.calls else "no call")
    return [
        (f"{'ok' if result.fine else 'WRONG':<6}", _color(result)),
        (_fit(f"{result.title}: {outcome}", _WIDTH - 6), ""),
    ]


def _color(result: ScenarioResult) -> str:
    if result.direct:
        return "green" if result.calls else "red"
    return "red" if not result.fine else "green" if result.calls else "yellow"


def _outcome(result: ScenarioResult) -> str:
    """Return a remark on a result, such as `not as expected`; empty if the result needs no remark."""
    if result.direct:
        failed = "" if result.fine else "no failure to show"
        return failed or ("the server alone is enough here" if result.calls else "")
    if not result.fine:
        return "not as expected"
    return "" if result.calls else "the model called nothing"


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
