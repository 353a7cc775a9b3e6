"""A real Ollama that dies, stalls, restarts or is busy amid a conversation: the app gets a call that the model made, or
an error that says what happened; it never hangs, and nothing is said twice.
"""

import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import asking
import openai
import pytest
from asking import FORMS, Got, Proxies
from fronts import FRONTS
from rig.ollama import ScriptedModel, serve_models
from rig_ollama import program
from scenes import ANSWER, FENCED_CALL, HERMES_CALL, QUESTION, RESULT, WEATHER
from serving import serving

from promptools.client import OpenAI
from promptools.exchange import Piece
from promptools.fallback import Breaker
from promptools.lab.script import ScriptedReply
from promptools.lab.server_process import Server
from promptools.lab.weather import prompt_mode_phrase
from promptools.profiles import Config
from promptools.proxy import Proxy

pytestmark = pytest.mark.ollama

CALL = ("get_weather", '{"city": "Paris"}')
LONG = " ".join(f"word{number}" for number in range(2000))
TRIES = 5
"""How often a test may come too late, when the model had finished before it struck."""


IDLE = 100
"""Lines that nobody asks for: they make the model large, and so slow enough to be struck while it talks."""


def models(idle: int) -> list[ScriptedModel]:
    plain = (
        ScriptedReply(QUESTION, HERMES_CALL),
        ScriptedReply(RESULT, ANSWER),
        ScriptedReply("Break in Paris?", HERMES_CALL.replace('"Paris"', "Paris")),
        ScriptedReply("Break in Paris?", HERMES_CALL, setting=prompt_mode_phrase("hermes")),
        ScriptedReply("Say words", LONG),
    )
    thoughts = (
        ScriptedReply(QUESTION, f"Simple.\n</think>\n\n{HERMES_CALL}"),
        ScriptedReply("Think long.", f"{LONG}\n</think>\n\n{HERMES_CALL}"),
        ScriptedReply("Think long.", f"Simple.\n</think>\n\n{FENCED_CALL}", setting=prompt_mode_phrase()),
    )
    # each with words of its own: steps that several lines have in common add nothing
    weight = tuple(ScriptedReply(f"Idle {number}.", LONG.replace("word", f"w{number}x")) for number in range(idle))
    return [ScriptedModel("go", plain + weight), ScriptedModel("think", thoughts + weight, "think")]


def start(folder: Path, *, idle: int = 0, **keys: Any) -> Server:
    return serve_models(models(idle), folder=folder, program=program(), **keys)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the large models, which several servers have: to write them takes eight seconds."""
    return tmp_path_factory.mktemp("large")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, large: Path) -> Iterator[Server]:
    """A server that tests may take the runners of."""
    with start(tmp_path_factory.mktemp("ollama"), idle=IDLE, weights=large) as running:
        yield running


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own."""
    with start(tmp_path) as running:
        yield running


def pid(server: Server) -> int:
    """Return the process id of Ollama itself; the server's own process is its guard."""
    found = re.search(r"^guard: running (\d+)$", server.log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    assert found
    return int(found[1])


def children(parent: int) -> list[int]:
    """Return the processes that `parent` has started and that still live."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = entry.read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has just ended
        if int(ppid) == parent and state != "Z":
            found.append(int(entry.parent.name))
    return found


def kill_runners(server: Server) -> None:
    for runner in children(pid(server)):
        os.kill(runner, signal.SIGKILL)


def kill(server: Server) -> None:
    os.kill(pid(server), signal.SIGKILL)


def client_of(server: Server, **settings: Any) -> OpenAI:
    keys: dict[str, Any] = {"config": Config(), "api_key": "none", "max_retries": 0, "timeout": 60, **settings}
    return OpenAI(base_url=server.base_url, provider="ollama", **keys)


def ask(client: openai.OpenAI, question: str, form: asking.Form = "whole", model: str = "go", **keys: Any) -> Got:
    messages = [{"role": "user", "content": question}]
    keys = {"tools": [WEATHER], **keys}
    return asking.ask(client, model, messages, form, extra_body={"promptools": {"trace": True}}, **keys)


@contextmanager
def stopped(processes: list[int]) -> Iterator[None]:
    """Stop processes for as long as the block runs, those of them that live."""
    _tell(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _tell(processes, signal.SIGCONT)


def _tell(processes: list[int], number: signal.Signals) -> None:
    for each in processes:
        with suppress(ProcessLookupError):
            os.kill(each, number)


class Struck:
    """What came of a stream that something was done to, once its first text had come."""

    def __init__(self, client: openai.OpenAI, model: str, question: str, strike: Callable[[], object]) -> None:
        self.content = self.reasoning = ""
        self.calls: list[str] = []
        self.finish_reason: str | None = None
        self.error: str | None = None
        ask(client, QUESTION, model=model)  # its runner is there
        ask(client, question, "streamed", model, max_tokens=4)  # and so is what reads such an answer
        begun = time.monotonic()
        try:
            self._read(client, model, question, strike)
        except openai.APIError as error:
            self.error = f"{type(error).__name__}: {error.body or error}"
        self.seconds = time.monotonic() - begun

    def _read(self, client: openai.OpenAI, model: str, question: str, strike: Callable[[], object]) -> None:
        messages: list[Any] = [{"role": "user", "content": question}]
        struck = False
        for chunk in client.chat.completions.create(model=model, messages=messages, tools=[WEATHER], stream=True):  # type: ignore[list-item]
            for choice in chunk.choices:
                self.content += choice.delta.content or ""
                extra = choice.delta.model_extra or {}
                self.reasoning += extra.get("reasoning") or extra.get("reasoning_content") or ""
                self.calls += [call.function.name for call in choice.delta.tool_calls or () if call.function.name]
                self.finish_reason = choice.finish_reason or self.finish_reason
            if (self.content or self.reasoning) and not struck:
                struck = True
                strike()


@pytest.fixture(params=["client", "proxy"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[Server], openai.OpenAI]]:
    """Make a client that goes through promptools, and has seen no failure yet."""
    proxies = Proxies()

    def make(server: Server) -> openai.OpenAI:
        if request.param == "client":
            return client_of(server)
        url = proxies.fresh(server.base_url, "ollama")
        return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)

    yield make
    proxies.stop()


def test_a_runner_that_dies_after_text_is_an_error_in_the_stream(connect, server):
    with connect(server) as client:
        for _ in range(TRIES):
            got = Struck(client, "go", "Say words", lambda: kill_runners(server))
            if got.error:
                break
            assert got.content == LONG, "it was done before the runner was"
    assert got.error
    assert "error was encountered while running the model" in got.error
    assert LONG.startswith(got.content)
    assert (got.calls, got.finish_reason) == ([], None)


def test_a_runner_that_dies_while_thinking_is_made_good(connect, server):
    for _ in range(TRIES):
        with connect(server) as client:
            got = Struck(client, "think", "Think long.", lambda: kill_runners(server))
        if got.reasoning.strip() != LONG:
            break
    assert (got.error, got.calls, got.finish_reason) == (None, ["get_weather"], "tool_calls")
    assert got.reasoning.strip() != LONG, "it was done before the runner was"
    assert got.reasoning.strip().endswith(LONG), "raw mode answered, on a runner that Ollama had started anew"


def test_a_server_that_dies_after_text_is_an_error_in_the_stream(connect, tmp_path, large):
    for number in range(TRIES):
        with start(tmp_path / str(number), idle=IDLE, weights=large) as doomed, connect(doomed) as client:
            got = Struck(client, "go", "Say words", lambda server=doomed: kill(server))
        if got.error:
            break
        assert got.content == LONG, "it was done before the server was"
    assert got.error
    assert LONG.startswith(got.content)
    assert (got.calls, got.finish_reason) == ([], None)


def test_a_server_that_dies_while_thinking_is_an_error_that_says_what_was_tried(tmp_path, large):
    for number in range(TRIES):
        with start(tmp_path / str(number), idle=IDLE, weights=large) as doomed, client_of(doomed) as client:
            got = Struck(client, "think", "Think long.", lambda server=doomed: kill(server))
        if got.error:
            break
        assert got.reasoning.strip() == LONG, "it was done before the server was"
    assert got.error
    assert "native mode: cut" in got.error
    assert "raw mode: no_raw" in got.error
    assert "prompt mode: connect" in got.error
    assert (got.content, got.calls, got.finish_reason) == ("", [], None)


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_is_gone_is_a_connection_error_and_works_when_it_is_back(doomed, tmp_path, form):
    port = int(doomed.url.rpartition(":")[2])
    with client_of(doomed) as client:
        assert ask(client, QUESTION, form).calls == [CALL]
        kill(doomed)
        doomed.process.wait(timeout=300)
        for _ in range(4):
            gone = ask(client, QUESTION, form)
            assert gone.calls == []
            assert gone.error
        with start(tmp_path, port=port):
            back = ask(client, QUESTION, form)
    assert (back.calls, back.error) == ([CALL], None)
    assert back.attempts == [("native", "answered")], "that there was no server is no mark against a mode"


def test_a_mode_that_failed_is_left_alone_for_a_while_and_then_tried_again(doomed, tmp_path):
    port = int(doomed.url.rpartition(":")[2])
    with client_of(doomed, breaker=Breaker(cool_down=20)) as client:
        tried = [[mode for mode, _ in ask(client, "Break in Paris?").attempts] for _ in range(4)]
        assert tried == [["native", "raw", "raw", "prompt"]] * 3 + [["raw", "raw", "prompt"]]
        begun = time.monotonic()
        doomed.stop()
        with start(tmp_path, port=port):
            assert ask(client, QUESTION).attempts == [("raw", "answered")], "open still"
            time.sleep(max(0.0, 21 - (time.monotonic() - begun)))
            assert ask(client, QUESTION).attempts == [("native", "answered")], "half-open: this was the probe"
            assert ask(client, QUESTION).attempts == [("native", "answered")], "closed"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("who", ["server", "runner"])
def test_a_server_that_stalls_before_it_answers_is_given_up_at_the_deadline(server, form, who):
    with client_of(server, deadline=2.0) as client:
        ask(client.with_options(deadline=None), QUESTION)  # the model is loaded
        with stopped([pid(server)] if who == "server" else children(pid(server))):
            begun = time.monotonic()
            got = ask(client, QUESTION, form)
            seconds = time.monotonic() - begun
    assert (got.calls, got.content) == ([], "")
    assert got.error
    assert 1.5 < seconds < 20


def test_a_server_that_stalls_amid_an_answer_is_given_up_at_the_deadline(server):
    with client_of(server, deadline=15.0) as client:
        ask(client.with_options(deadline=None), QUESTION)
        for _ in range(TRIES):
            with ExitStack() as stack:
                stop = partial(stack.enter_context, stopped(children(pid(server))))
                got = Struck(client, "go", "Say words", stop)
            if got.error:
                break
            assert got.content == LONG, "it was done before the runner was stopped"
    assert got.error
    assert LONG.startswith(got.content)
    assert (got.calls, got.finish_reason) == ([], None)
    assert got.seconds < 30, "and the deadline ran from before that"


class Strike:
    """An observer that strikes once, when a stream from the server has begun."""

    def __init__(self, strike: Callable[[], object]) -> None:
        self._strike = strike
        self._pieces = 0

    def began(self, exchange: Any) -> None:
        pass

    def sent(self, exchange: Any, sent: Any) -> None:
        pass

    def received(self, exchange: Any, received: Any) -> None:
        if isinstance(received, Piece):
            self._pieces += 1
            if self._pieces == 3:
                self._strike()

    def ended(self, exchange: Any, end: Any) -> None:
        pass


def ask_by(api: str, server: Server, *, stream: bool, **settings: Any) -> Any:
    """Ask through a proxy that has seen no failure yet, and return what the API's SDK made of the answer."""
    with (
        serving(Proxy(base_url=server.base_url, provider="ollama", config=Config(), **settings)) as port,
        closing(FRONTS[api](port)) as front,
    ):
        front.model, front.question, front.max_tokens = "go", "Say words", 5000
        return front.ask(stream=stream)


@pytest.mark.parametrize("api", FRONTS)
def test_a_runner_that_dies_amid_an_answer_is_an_error_in_each_api(api, server):
    with client_of(server) as client:
        ask(client, QUESTION)  # its runner is there
        for _ in range(TRIES):
            got = ask_by(api, server, stream=True, observer=Strike(lambda: kill_runners(server)))
            if got.error:
                break
            assert got.text == LONG, "it was done before the runner was"
            ask(client, QUESTION)
    assert got.failed_well, got.error
    assert "error was encountered while running the model" in str(got.error)
    assert got.calls == []
    assert LONG.startswith(got.text)


@pytest.mark.parametrize("stream", [False, True], ids=FORMS)
@pytest.mark.parametrize("api", FRONTS)
def test_a_server_that_stalls_is_an_error_in_each_api(api, stream, server):
    with client_of(server) as client:
        ask(client, QUESTION)  # its runner is there
    with stopped([pid(server)]):
        got = ask_by(api, server, stream=stream, deadline=2.0)
    assert got.failed_well, got.error
    assert (got.text, got.calls) == ("", [])


def test_a_model_that_is_unloaded_between_the_turns_is_loaded_again(server, http):
    with client_of(server) as client:
        first = ask(client, QUESTION)
        assert first.calls == [CALL]
        gone = http.post(f"{server.url}/api/chat", json={"model": "go", "messages": [], "keep_alive": 0})
        assert gone.json()["done_reason"] == "unload"
        result = {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT}
        messages: list[Any] = [{"role": "user", "content": QUESTION}, first.message(), result]
        second = asking.ask(client, "go", messages, "streamed", tools=[WEATHER])
    assert (second.error, second.content) == (None, ANSWER)


@pytest.mark.parametrize("form", FORMS)
def test_a_queue_that_is_full_is_the_servers_own_503(tmp_path, form):
    settings = {"OLLAMA_MAX_QUEUE": "1", "OLLAMA_MAX_LOADED_MODELS": "1", "OLLAMA_NUM_PARALLEL": "1"}
    with start(tmp_path, settings=settings) as busy, client_of(busy) as client:
        ask(client, QUESTION)
        waiting: list[threading.Thread] = []
        with stopped(children(pid(busy))):
            # one that is being answered keeps its model; those for another model wait for it to go
            for model in itertools.chain(["go"], ["think"] * 4):
                waiting.append(threading.Thread(target=ask, args=(client, QUESTION, "whole", model)))
                waiting[-1].start()
                time.sleep(0.5)
            got = ask(client, QUESTION, form, "think")
        for each in waiting:
            each.join(timeout=300)
            assert not each.is_alive()
    assert (got.status, got.calls) == (503, [])
    assert "server busy" in got.error
    assert [outcome for _, outcome in got.attempts] == []


def test_nothing_is_left_running(doomed):
    with client_of(doomed) as client:
        ask(client, QUESTION)
    runners = children(pid(doomed))
    assert runners
    kill(doomed)  # it has no time to end its runners
    doomed.process.wait(timeout=300)
    until = time.monotonic() + 300
    while any(alive(each) for each in runners) and time.monotonic() < until:
        time.sleep(0.1)
    assert [each for each in runners if alive(each)] == []


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
