"""A real vLLM that dies, hangs and has no room, with promptools before it: honest errors, and all is well afterwards.

The tests share a server of their own and go from top to bottom: the last ones end it, and start it again.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from rig.vllm import VllmServer
from rig_vllm import BOOTS
from scenes import HERMES_CALL, QUESTION, WEATHER

from promptools.client import OpenAI
from promptools.fallback import Breaker
from promptools.lab.script import ScriptedReply
from promptools.profiles import Config

pytestmark = pytest.mark.vllm

MUCH = " ".join(f"word{number}" for number in range(900))
PARIS = '{"city": "Paris"}'
LINES = [
    ScriptedReply(QUESTION, HERMES_CALL),
    ScriptedReply("Say much", MUCH),
    ScriptedReply("A long call", HERMES_CALL.replace("Paris", MUCH)),
    *(ScriptedReply(f"Weather of City{number}?", HERMES_CALL.replace("Paris", f"City{number}")) for number in range(6)),
]


class Box:
    """The server, and what is done to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = self._boot(port=0)

    def _boot(self, port: int) -> VllmServer:
        # one place: whoever comes second waits
        return BOOTS["vllm-hermes"].start(LINES, "faults", self._folder, slots=1, port=port)

    def tell(self, number: signal.Signals) -> None:
        os.killpg(self.server.session, number)

    def kill(self) -> None:
        self.tell(signal.SIGKILL)
        self.server.process.wait(timeout=300)

    def restart(self) -> None:
        """Start it again where it was."""
        self.server.stop()
        self.server = self._boot(port=int(self.server.url.rpartition(":")[2]))

    def wait_until_busy(self) -> None:
        """Wait until it works on a request."""
        until = time.monotonic() + 300
        while time.monotonic() < until:
            told = httpx.get(f"{self.server.url}/metrics", timeout=300, trust_env=False).text
            counts = [line for line in told.splitlines() if line.startswith("vllm:num_requests_running")]
            if any(float(line.split()[-1]) > 0 for line in counts):
                return
            time.sleep(0.05)
        raise AssertionError("no request came to the server")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    made = Box(tmp_path_factory.mktemp("faults"))
    yield made
    made.server.stop()


@pytest.fixture(scope="module")
def breaker() -> Breaker:
    """What all of them remember: one failure is enough, for two seconds."""
    return Breaker(threshold=1, cool_down=2.0)


@pytest.fixture
def inside(box: Box, breaker: Breaker) -> Iterator[OpenAI]:
    """A client with our transport, which asks once."""
    with OpenAI(
        base_url=box.server.base_url,
        provider="vllm",
        config=Config(),
        api_key="none",
        max_retries=0,
        timeout=300,
        breaker=breaker,
    ) as client:
        yield client


def ask(client: openai.OpenAI, question: str, **keys: Any) -> Any:
    said: list[Any] = [{"role": "user", "content": question}]
    return client.chat.completions.create(model="faults", messages=said, tools=[WEATHER], **keys)


def arguments(stream: Any) -> str:
    """Return the arguments of a streamed call."""
    calls = [call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or []]
    return "".join(call.function.arguments or "" for call in calls)


def break_off(stream: Any, do: Callable[[], object]) -> tuple[str, openai.APIError]:
    """Read a stream, `do` something after its first words, and give all its words and how it broke off."""
    said: list[str] = []
    try:
        for chunk in stream:
            for choice in chunk.choices:
                assert choice.finish_reason is None
                if choice.delta.content:
                    said.append(choice.delta.content)
                    if len(said) == 1:
                        do()
    except openai.APIError as error:
        return "".join(said), error
    raise AssertionError("the stream ended as if nothing had been")


def state(breaker: Breaker) -> str:
    """Say how native mode stands."""
    return next((state for key, state in breaker.states(time.monotonic()).items() if key.mode == "native"), "closed")


def test_those_who_wait_are_all_served(inside):
    def one(number: int) -> str:
        return arguments(ask(inside, f"Weather of City{number}?", stream=True))

    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(one, range(6)))
    assert told == [f'{{"city": "City{number}"}}' for number in range(6)]


def test_one_that_is_given_up_makes_room(inside):
    with ask(inside, "Say much", stream=True) as stream:
        next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
    began = time.monotonic()
    assert arguments(ask(inside, QUESTION, stream=True)) == PARIS
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("limit", "told"), [("deadline", openai.InternalServerError), ("timeout", openai.APITimeoutError)]
)
def test_a_server_that_hangs_is_not_waited_for(box, inside, stream, limit, told):
    box.tell(signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(told, match="timed out"):
            ask(inside.with_options(**{limit: 2.0}), QUESTION, stream=stream)
    finally:
        box.tell(signal.SIGCONT)
    assert 2 <= time.monotonic() - began < 12
    assert arguments(ask(inside, QUESTION, stream=True)) == PARIS


def test_one_that_hangs_amid_an_answer_is_an_error_after_the_words(box, inside):
    # after the first words nothing else can be tried: what was said stays, and the error is told
    stream = ask(inside.with_options(deadline=15.0), "Say much", stream=True)
    try:
        said, error = break_off(stream, lambda: box.tell(signal.SIGSTOP))
    finally:
        box.tell(signal.SIGCONT)
    assert said
    assert MUCH.startswith(said)
    assert "time" in str(error).lower()


def test_killed_before_a_call_is_whole_there_is_no_call_and_the_mode_is_left_out(box, inside, breaker):
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: arguments(ask(inside, "A long call", stream=True)))
        box.wait_until_busy()
        box.kill()
        with pytest.raises(openai.APIError):
            asked.result(timeout=60)
    assert state(breaker) == "open"


def test_started_again_the_mode_is_tried_once_and_used(box, inside, breaker):
    box.restart()
    assert state(breaker) == "half-open"
    report = ask(inside, QUESTION, extra_body={"promptools": {"trace": True}})
    assert report.choices[0].message.tool_calls[0].function.arguments == PARIS
    assert [attempt["mode"] for attempt in report.promptools["attempts"]] == ["native"]
    assert state(breaker) == "closed"


def test_killed_amid_words_it_is_an_error_after_them(box, inside):
    said, error = break_off(ask(inside, "Say much", stream=True), box.kill)
    assert said
    assert MUCH.startswith(said)
    assert error.body is not None, "it is told in the stream"
    with pytest.raises(openai.APIConnectionError):
        ask(inside, QUESTION)
