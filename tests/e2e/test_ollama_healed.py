"""The same server and models as in `test_ollama_alone`, with promptools between: the app sees what it should.

Every test runs four times: with our transport inside the official client and through our proxy, the answer whole and
streamed. Every request is the first that its provider sees: no failure of another test has closed a mode.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import asking
import openai
import pytest
from asking import FORMS, Got, Proxies
from rig_ollama import BEFORE, KINDS, UNFIT, cue
from scenes import ANSWER, FENCED_CALL, HERMES_CALL, QUESTION, RESULT, WEATHER, WORDS

from promptools.client import OpenAI
from promptools.fallback import Breaker
from promptools.lab.server_process import Server
from promptools.profiles import Config

pytestmark = pytest.mark.ollama

CALL = ("get_weather", '{"city": "Paris"}')
ROME = ("get_weather", '{"city": "Rome"}')
NUMBER = ("get_weather", '{"city": "75001"}')
STOCKS = ("get_stocks", '{"city": "Paris"}')
PROVIDERS = 400
"""More than there are requests in a session."""

Put = Callable[..., Got]


@pytest.fixture(scope="session")
def inside(ollama: Server) -> Iterator[OpenAI]:
    """A client with our transport."""
    with OpenAI(
        base_url=ollama.base_url, provider="ollama", config=Config(), api_key="none", max_retries=0, timeout=60
    ) as client:
        yield client


@pytest.fixture(scope="session")
def before(
    ollama: Server, proxies: Proxies, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[openai.OpenAI, Iterator[int]]]:
    """A client of our proxy, and the names of providers that are all the one server."""
    told = f'kind = "ollama"\nbase_url = {json.dumps(ollama.base_url)}\n'
    path = tmp_path_factory.mktemp("proxy") / "promptools.toml"
    providers = "\n".join(f"[providers.p{number}]\n{told}" for number in range(PROVIDERS))
    path.write_text(f'default_provider = "p0"\n{providers}', encoding="utf-8")
    with openai.OpenAI(base_url=proxies.configured(path), api_key="none", max_retries=0, timeout=300) as client:
        yield client, iter(range(PROVIDERS))


@pytest.fixture(params=list(itertools.product(["client", "proxy"], FORMS)), ids="-".join)
def put(request: pytest.FixtureRequest, inside: OpenAI, before: Any) -> Put:
    """Ask through promptools, with a trace, and gather the answer; `put.form` is its form."""
    way, form = request.param

    def asked(model: str, *said: Any, options: dict[str, Any] | None = None, **keys: Any) -> Got:
        messages = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
        options = {"trace": True, **(options or {})}
        if way == "client":
            client: openai.OpenAI = inside.with_options(breaker=Breaker())
        else:
            client, numbers = before
            options["provider"] = f"p{next(numbers)}"
        return asking.ask(client, model, messages, form, extra_body={"promptools": options}, **keys)

    asked.form = form
    return asked


@dataclass(frozen=True)
class Healed:
    """What the app sees of one way to fail with one kind of model."""

    calls: list[tuple[str, str]] = field(default_factory=lambda: [CALL])
    content: str = ""
    why: str | None = None
    """How the first mode failed, before another answered."""
    then: tuple[tuple[str, str], ...] = (("prompt", "answered"),)
    """What was tried after it, and what came of that."""
    fixes: list[str] = field(default_factory=list)
    first: str = "native"
    """The mode that is tried first."""

    @property
    def attempts(self) -> list[tuple[str, str]]:
        return [(self.first, "answered")] if self.why is None else [(self.first, self.why), *self.then]


def mended(why: str, **keys: Any) -> Healed:
    """Say that raw mode answered after native mode had failed."""
    return Healed(why=why, then=(("raw", "answered"),), **keys)


def prompted(why: str) -> Healed:
    """Say that prompt mode answered after the same words had failed in native mode and twice in raw mode."""
    return Healed(
        content=BEFORE.strip(), why=why, then=(("raw", "malformed"), ("raw", "malformed"), ("prompt", "answered"))
    )


UNKNOWN = ("get_stocks", '{"city": "Paris"}')

FINE = Healed()
BOTH = Healed([CALL, ROME])
IN_TEXT = Healed(content=BEFORE.strip())
COERCED = Healed([NUMBER], fixes=["coerce"])

MODES = {"notools": "prompt", "gptoss": "harmony", "coder": "raw"}
"""The mode that answers, where it is not native mode."""

HEALED = {
    "go": {
        "fine": FINE,
        "broken": prompted("swallowed"),
        # raw mode sees it, asks for another, and hands it over as it stays
        "unknown": Healed([UNKNOWN], why="swallowed", then=(("raw", "unknown_tool"), ("raw", "unknown_tool"))),
        "after": FINE,
        "unclosed": FINE,
        "string": FINE,
        "types": COERCED,
        "two": BOTH,
        "fenced": IN_TEXT,
    },
    "gptoss": {
        "fine": replace(FINE, first="harmony"),
        # asked again, this model says the same, until it is prompted
        "broken": replace(
            prompted("malformed"),
            first="harmony",
            then=(("harmony", "malformed"), ("native", "server_parser"), ("prompt", "answered")),
        ),
        "foreign": replace(IN_TEXT, first="harmony"),
        "string": Healed(first="harmony", fixes=["unwrap"]),
        "types": replace(COERCED, first="harmony"),
        "fenced": Healed(first="harmony"),
    },
    # its own parser is known to break, so raw mode comes first
    "coder": {
        "fine": replace(FINE, first="raw"),
        "broken": Healed(first="raw", fixes=["closer"]),
        "after": Healed(first="raw", content="That was the call."),
        "unclosed": Healed(first="raw", fixes=["closer"]),
        "types": Healed([NUMBER], first="raw"),
        "two": replace(BOTH, first="raw"),
        "fenced": replace(IN_TEXT, first="raw"),
        "foreign": replace(IN_TEXT, first="raw"),
    },
    "think": {
        "fine": FINE,
        "broken": prompted("server_parser"),
        "after": Healed(content="That was the call."),
        "unclosed": mended("swallowed", fixes=["closer"]),
        "string": mended("server_parser", fixes=["unwrap"]),
        "types": COERCED,
        "two": BOTH,
        "fenced": IN_TEXT,
    },
    "jinja": {"fine": FINE, "two": BOTH, "fenced": IN_TEXT},
}


@pytest.mark.parametrize(("kind", "cell"), [(kind, cell) for kind, cells in HEALED.items() for cell in cells])
def test_the_call_comes_through(put, kind, cell):
    expected = HEALED[kind][cell]
    got = put(kind, cue(cell), tools=[WEATHER])
    assert got.error is None
    assert (got.calls, got.finish_reason) == (expected.calls, "tool_calls")
    assert got.content.strip() == expected.content
    assert got.attempts == expected.attempts
    fixes = [fix["kind"] for each in got.trace["choices"][0]["fixes"].values() for fix in each]
    assert fixes == expected.fixes


@pytest.mark.parametrize("kind", ["think", "jinja"])
def test_a_parser_that_breaks_after_text_is_told_of_or_mended(put, kind):
    got = put(kind, cue("foreign"), tools=[WEATHER])
    if put.form == "whole":
        assert (got.error, got.calls, got.content.strip()) == (None, [CALL], BEFORE.strip())
    else:
        # the text is with the app already: asking again would say it twice
        assert (got.calls, got.content.strip(), got.finish_reason) == ([], BEFORE.strip(), None)
        assert "server_parser" in got.error


@pytest.mark.parametrize("kind", ["gptoss", "coder", "think"])
def test_a_tool_that_was_not_offered_is_marked(put, kind):
    got = put(kind, cue("unknown"), tools=[WEATHER])
    assert (got.calls, got.finish_reason) == ([STOCKS], "tool_calls")
    assert [outcome for _, outcome in got.attempts] == ["unknown_tool", "unknown_tool"], "and the model was told so"


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_call_is_never_handed_over(put, kind):
    got = put(kind, cue("cut"), tools=[WEATHER], max_tokens=40)
    assert (got.error, got.calls, got.finish_reason) == (None, [], "length")


@pytest.mark.parametrize("kind", [*KINDS, "notools"])
def test_a_whole_conversation(put, kind):
    first = put(kind, QUESTION, tools=[WEATHER])
    assert (first.calls, first.finish_reason) == ([CALL], "tool_calls")
    assert first.attempts[-1] == (MODES.get(kind, "native"), "answered")
    result = {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT}
    second = put(kind, QUESTION, first.message(), result, tools=[WEATHER])
    assert (second.calls, second.finish_reason, second.content) == ([], "stop", ANSWER)


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_mode_works_with_every_kind(put, kind):
    first = put(kind, QUESTION, tools=[WEATHER], options={"mode": "prompt"})
    assert (first.calls, first.content.strip(), first.finish_reason) == ([CALL], BEFORE.strip(), "tool_calls")
    result = {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT}
    second = put(kind, QUESTION, first.message(), result, tools=[WEATHER], options={"mode": "prompt"})
    assert (second.calls, second.finish_reason, second.content) == ([], "stop", ANSWER)


def test_harmony_mode_works_with_gpt_oss(put):
    options = {"mode": "harmony"}
    first = put("gptoss", QUESTION, tools=[WEATHER], options=options)
    assert (first.calls, first.reasoning, first.finish_reason) == ([CALL], "Need the tool.", "tool_calls")
    result = {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT}
    second = put("gptoss", QUESTION, first.message(), result, tools=[WEATHER], options=options)
    assert (second.calls, second.finish_reason, second.content) == ([], "stop", ANSWER)
    cut = put("gptoss", cue("cut"), tools=[WEATHER], max_tokens=40, options=options)
    assert (cut.error, cut.calls, cut.finish_reason) == (None, [], "length")
    assert {mode for got in (first, second, cut) for mode, _ in got.attempts} == {"harmony"}


@pytest.mark.parametrize("kind", KINDS)
def test_plain_talk_passes(put, kind):
    got = put(kind, "Say words", tools=[WEATHER])
    assert (got.content, got.calls, got.finish_reason) == (WORDS, [], "stop")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", ['{"city": "Par', "", "null", '{"city": "Paris"}', {"city": "Paris"}])
def test_no_arguments_in_the_history_brick_the_conversation(put, kind, arguments):
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    history = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": RESULT},
    ]
    got = put(kind, *history, tools=[WEATHER])
    assert (got.error, got.content) == (None, ANSWER)
    assert len(got.attempts) == 1, "what is known is not found out again"


@pytest.mark.parametrize("kind", [*KINDS, "notools"])
def test_tool_choice_none_gives_no_call(put, kind):
    got = put(kind, QUESTION, tools=[WEATHER], tool_choice="none")
    assert got.calls == []
    if kind != "gptoss":
        assert (got.error, got.finish_reason) == (None, "stop")
        assert "get_weather" in got.content, "what the model said instead is not lost"
    else:
        # nothing but a call, each time: its arguments are all that there is to say, and the trace says so
        assert {outcome for _, outcome in got.attempts} <= {"choice", "swallowed"}
        assert (got.error, got.content) == (None, '{"city": "Paris"}')


def test_a_call_that_never_fits_stays_the_servers_call(put):
    got = put("go", UNFIT, tools=[WEATHER])
    assert (got.error, got.calls, got.content, got.finish_reason) == (
        None,
        [("get_weather", '{"days": 3}')],
        "",
        "tool_calls",
    )
    assert ("native", "malformed") in got.attempts
    assert "answered" not in {outcome for _, outcome in got.attempts}
    assert "call of 'get_weather' handed over although it failed the checks" in got.trace["notes"]


def conversation(last: str) -> list[Any]:
    """Return a conversation of an agent that leaves out its tools in the last turn."""
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    return [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": RESULT},
        {"role": "user", "content": last},
    ]


@pytest.mark.parametrize("said", [[cue("broken")], conversation(cue("broken"))], ids=["plain", "history"])
def test_a_broken_call_without_tools_is_what_the_model_wrote(put, said):
    got = put("gptoss", *said)
    assert (got.error, got.calls, got.content) == (None, [], '{"city": Paris}')
    assert ("harmony", "answered") in got.attempts
    assert "no tool was offered: the call of 'get_weather' is text" in got.trace["notes"]


@pytest.mark.parametrize("form", FORMS)
def test_so_it_is_in_a_request_that_is_forwarded(ollama, proxies, form):
    with openai.OpenAI(base_url=proxies.before(ollama.base_url, "ollama"), api_key="none", max_retries=0) as client:
        got = asking.ask(client, "gptoss", [{"role": "user", "content": cue("broken")}], form)
    assert (got.error, got.calls, got.content, got.finish_reason) == (None, [], '{"city": Paris}', "stop")


@pytest.mark.parametrize("kind", ["go", "gptoss", "coder"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_forced_call_comes(put, kind, choice):
    got = put(kind, QUESTION, tools=[WEATHER], tool_choice=choice)
    assert got.calls == [CALL]


@pytest.mark.parametrize("kind", ["go", "notools"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_is_forced_by_grammar_fits_the_schema(put, kind, choice):
    # a model that would rather talk: in prompt mode a grammar has it write a call. With a free string it would talk on
    # in there, so the tool leaves it no word of its own. The server's grammar has room for white space without end, and
    # this model has no opinion on it: what it draws differs with what the server's cache holds, with one seed, too. So
    # it is asked until a reply ends; one that does not is no call
    paris = {"city": {"enum": ["Paris"]}}
    fixed = {"type": "object", "properties": paris, "required": ["city"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": fixed}}
    for seed in range(40):
        got = put(kind, "Say words", tools=[tool], tool_choice=choice, seed=seed)
        if got.attempts[-1] == ("prompt", "answered"):
            break
        assert got.calls == []
    assert (got.error, got.finish_reason) == (None, "tool_calls")
    assert got.attempts[-1] == ("prompt", "answered")
    assert [(name, json.loads(arguments)) for name, arguments in got.calls][:1] == [("get_weather", {"city": "Paris"})]


def test_one_call_at_a_time_is_kept_by_us(put):
    assert put("go", cue("two"), tools=[WEATHER], parallel_tool_calls=False).calls == [CALL]


@pytest.mark.parametrize("kind", ["go", "notools"])
def test_a_model_that_does_not_think_is_not_asked_to(put, kind):
    got = put(kind, QUESTION, tools=[WEATHER], reasoning_effort="high")
    assert (got.calls, got.error) == ([CALL], None)


def test_thoughts_come_as_reasoning(put):
    got = put("think", cue("fine"), tools=[WEATHER])
    assert (got.reasoning.strip(), got.calls) == ("Need the tool.", [CALL])


@pytest.mark.parametrize("kind", ["go", "gptoss", "coder"])
def test_a_response_format_beside_tools_leaves_calls_possible(put, kind):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    got = put(kind, QUESTION, tools=[WEATHER], response_format=form)
    mode = MODES.get(kind, "native")
    assert (got.error, got.calls, got.attempts) == (None, [CALL], [(mode, "answered")])
    told = any("response_format" in note for note in got.trace["notes"])
    assert told == (mode != "harmony"), (
        "that it was put into the prompt is told, but for Harmony, which has a place for it"
    )


def test_a_call_that_the_server_took_out_of_a_text_shows_in_the_tokens(put):
    got = put("go", cue("foreign"), tools=[WEATHER])
    assert got.error is None
    if put.form == "whole":
        assert (got.calls, got.content.strip()) == ([CALL], BEFORE.strip())
        assert got.attempts == [("native", "empty_calls"), ("raw", "answered")]
    else:
        # the text is with the app already, as an answer like any other
        assert (got.content, got.calls, got.finish_reason) == (BEFORE, [], "stop")


def test_what_was_written_without_tools_is_text(put):
    for kind, text in (("go", HERMES_CALL), ("notools", FENCED_CALL)):
        got = put(kind, cue("fine"))
        assert (got.content, got.calls, got.finish_reason) == (text, [], "stop")


def test_tokens_are_summed_over_all_sends(put):
    got = put("go", cue("broken"), tools=[WEATHER])
    spent = [attempt["usage"]["completion_tokens"] for attempt in got.trace["attempts"]]
    assert len(spent) == 4
    assert got.usage["completion_tokens"] == sum(spent)
