"""The cases of every dialect, as functions of what it writes: a new dialect is tested by its own renderer.

    for case in shared_cases(dialects.load("acme.toml")):
        check(case)

The dialect must be registered. What a case comes to follows from the dialect's tier; where a dialect differs,
`DIFFERENCES` says how and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from casebook import Row, bare, check_reply, cuts, feed, honest, in_order, tiled, tools_of

from promptools import dialects, parse
from promptools.dialects.contract import Dialect
from promptools.parsing.events import join
from promptools.types import Call, Reply

Outcome = Mapping[str, Any]
"""Values of a `Row`: its calls, its content and so on. Without any, the whole text is content."""
Arguments = dict[str, Any]

WEATHER: Final[Arguments] = {"city": "Oslo", "days": 2}
WEATHER_JSON: Final = '{"city": "Oslo", "days": 2}'
PING: Final[tuple[str, Arguments]] = ("ping", {})

TEXT: Final[Outcome] = {}
WHOLE: Final[Outcome] = {"calls": (("get_weather", WEATHER),)}
EXACT: Final[Outcome] = {**WHOLE, "fixes": ()}
TRUNCATED: Final[Outcome] = {"malformed": ("truncated",)}


class Written:
    """What a dialect writes for the tools of the set `demo`."""

    def __init__(self, dialect: Dialect, spelling: str = "", *, like: str = "") -> None:
        self.name = dialect.name
        self.like = like or dialect.name
        """The dialect whose differences hold for it."""
        self.table = f"shared/{dialect.name}{spelling and ' '}{spelling}"
        self.tier = "S" if spelling == AFTER_TOKEN else dialect.tier
        self.asked = dialect.name in ASKED or (bool(dialect.heads) and all(head.on_request for head in dialect.heads))
        """Whether it is looked for only where the request asked for it."""
        self._render = dialect.render_calls
        self._respell = SPELLINGS.get(dialect.name, {}).get(spelling, str)
        self.weather = self.calls(("get_weather", WEATHER))
        self.ping = self.calls(PING)
        self.has_json = WEATHER_JSON in self.weather
        """Whether the arguments are one JSON object."""
        self.is_json = self.has_json and '"get_weather"' in self.weather
        """Whether a call is one JSON object, its name in it."""
        literals = (literal for head in dialect.heads for literal in head.literals if self.weather.startswith(literal))
        self.opener = max(literals, key=len, default="")
        """The marker that a call begins with, as far as the dialect declares it."""
        self.closer = max(filter(self.weather.endswith, dialect.closers), key=len, default="")
        """The marker that a call ends with."""
        self.unmarked = self.asked and self.opener in ("{", "[")
        """Whether it is JSON without markers, which is looked for only where the request asked for it."""
        self.has_marker = self.tier in "SA"
        """Whether its markers are no prose."""
        self.unclosed = self.weather.removesuffix(self.closer)
        self.ends_in_body = bool(self.closer) and self.unclosed.rstrip()[-1] in "}])"
        """Whether its closer follows its JSON or its code: not the closer of a part of the call."""
        self.closer_missing: Outcome = WHOLE
        if self.ends_in_body or self.has_json:  # which has a closer of its own in it, if it does not end in the JSON
            self.closer_missing = {**WHOLE, "fixes": ("closer",) * self.ends_in_body}

    def calls(self, *calls: tuple[str, Arguments]) -> str:
        """Return calls as the model would write them."""
        return self._respell(self._render([Call("a1b2c3d4e5", name, given, dump(given)) for name, given in calls]))

    def with_json(self, arguments: str) -> str | None:
        """Return a call of `get_weather` with this text as its arguments; None if the dialect writes no JSON."""
        return self.weather.replace(WEATHER_JSON, arguments) if self.has_json else None


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


TextOf = Callable[[Written], str | tuple[str, Outcome] | None]
"""Returns the text of a case, with the outcome where that depends on the dialect; None where it does not apply."""


@dataclass(frozen=True)
class SharedCase:
    """A case of every dialect: its text, and its outcome by tier."""

    name: str
    why: str
    text: TextOf
    outcome: Outcome
    readable: Outcome | None
    """The outcome in tier A, where that is another."""
    ordinary: Outcome | None
    """The outcome in tiers B and C, where that is another."""
    asked: Outcome | None
    """The outcome if the request asked for the dialect, where that is not the one of tier S."""
    tools: str
    options: Mapping[str, Any]

    def row(self, written: Written) -> Row | None:
        """Return the case as a row of this dialect's table; None if it does not apply."""
        text = self.text(written)
        if text is None:
            return None
        options = dict(self.options)
        if written.asked or "expect" in options:
            options["expect"] = written.name
            of_tier = self.asked
        else:
            of_tier = {"S": None, "A": self.readable, "B": self.ordinary, "C": self.ordinary}[written.tier]
        outcome = self.outcome if of_tier is None else of_tier
        if isinstance(text, tuple):
            text, outcome = text
        differences = DIFFERENCES.get(self.name, {})
        alike = differences.get(UNMARKED, (self.why, outcome)) if written.unmarked else (self.why, outcome)
        why, outcome = differences.get(written.like, alike)
        content = "" if outcome else text
        return Row(
            table=written.table,
            name=self.name,
            why=why,
            text=text,
            tools=self.tools,
            options=options,
            **{"content": content, **outcome},
        )


SHARED: dict[str, SharedCase] = {}


def case(
    why: str,
    outcome: Outcome,
    *,
    readable: Outcome | None = None,
    ordinary: Outcome | None = None,
    asked: Outcome | None = None,
    tools: str = "demo",
    **options: Any,
) -> Callable[[TextOf], TextOf]:
    """Add a case that is named like the function: "__" is a comma."""

    def add(text: TextOf) -> TextOf:
        name = text.__name__.replace("__", ", ").replace("_", " ")
        SHARED[name] = SharedCase(name, why, text, outcome, readable, ordinary, asked, tools, options)
        return text

    return add


def shared_cases(dialect: Dialect, *, like: str = "") -> list[Row]:
    """Return all cases that apply to a dialect, as rows of a table `shared/<dialect>`.

    `like`: another dialect of the same format, whose differences hold for this one.
    """
    spellings = ("", *SPELLINGS.get(dialect.name, ()))
    return [
        row
        for written in [Written(dialect, spelling, like=like) for spelling in spellings]
        for shared in SHARED.values()
        if (row := shared.row(written)) is not None
    ]


@cache
def built_in_cases(name: str) -> tuple[Row, ...]:
    """Return the shared cases of a built-in dialect; none of one that does not write anything of its own."""
    return () if name in NOT_WRITTEN else tuple(shared_cases(dialects.get(name)))


def check(row: Row) -> None:
    """Assert that a shared case is read as it says: whole, in pieces, and with its dialect pinned."""
    tools = tools_of(row.tools)
    options = dict(row.options)
    reason = options.pop("finish_reason", None)
    events, reply = feed([row.text], tools, reason, **options)
    assert parse(row.text, tools, **row.options) == reply
    check_reply(row, reply)
    name = row.table.removeprefix("shared/").partition(" ")[0]
    assert {call.dialect for call in reply.calls} <= {name, *READ_AS.get(name, ())}
    tiled(events, row.text)
    in_order(events, reply)
    honest(row.text, reply)
    for way, cut in cuts(row.text):
        pieced_events, pieced = feed(cut, tools, reason, **options)
        assert join(pieced_events) == join(events), way
        assert bare(pieced) == bare(reply), way
    if name not in PINNED_OTHERWISE.get(row.name, ()):
        pinned = parse(row.text, tools, **{"expect": OTHER[name == OTHER[0]], **row.options, "dialect": name})
        assert said(pinned) == said(reply), "pinned"


OTHER: Final = ("inkling", "solar")
"""A dialect to expect where another is pinned; nothing but its own tokens begins its calls."""


def said(reply: Reply) -> tuple[object, ...]:
    """Return what an app sees of a reply."""
    calls = [(call.name, call.arguments) for call in reply.calls]
    return calls, [(failed.reason, failed.name) for failed in reply.malformed], reply.content, reply.reasoning


# Whole calls.


@case("as the family is trained", EXACT)
def plain(written: Written) -> str:
    return written.weather


@case("words may come first", {**WHOLE, "content": "I'll look."})
def words_before(written: Written) -> str:
    return f"I'll look.\n{written.weather}"


@case("its markers are no prose, so words may follow", {**WHOLE, "content": "Done."}, ordinary=TEXT)
def words_after(written: Written) -> str:
    return f"{written.weather}\nDone."


@case("calls in one turn", {"calls": (PING, ("add", {"a": 1, "b": 2.5})), "fixes": ()})
def two_calls(written: Written) -> str:
    return written.calls(PING, ("add", {"a": 1, "b": 2.5}))


@case("twice in one dialect is meant", {"calls": (PING, PING)})
def the_same_call_twice(written: Written) -> str:
    return written.calls(PING, PING)


@case("an empty object is all there is", {"calls": (PING,), "fixes": ()})
def no_parameters(written: Written) -> str:
    return written.ping


NESTED: Final[Arguments] = {"query": 'a "b" \\ c\nd', "tags": ["x", "{}"], "opts": {"k": {"l": [1, None]}}}


@case("values of any depth", {"calls": (("search", NESTED),), "fixes": ()})
def nested_values(written: Written) -> str:
    return written.calls(("search", NESTED))


@case("whole and certain", WHOLE, ordinary=TEXT, strictness="strict")
def strict(written: Written) -> str:
    return written.weather


@case("asked for, it stands among words", {**WHOLE, "content": "First.\nThen words."}, expect="")
def asked_for(written: Written) -> str:
    return f"First.\n{written.weather}\nThen words."


@case("thoughts come first", {**WHOLE, "reasoning": "Which city? Oslo."})
def after_thinking(written: Written) -> str:
    return f"<think>Which city? Oslo.</think>\n{written.weather}"


@case("a token of the server", WHOLE)
def end_of_turn_token(written: Written) -> str:
    return f"{written.weather}<|im_end|>"


@case("nobody said that", WHOLE)
def a_made_up_result(written: Written) -> str:
    return f"{written.weather}\n<tool_response>\n5 C\n</tool_response>"


@case("some servers send the line ends of Windows", WHOLE)
def line_ends_of_two_characters(written: Written) -> str:
    return written.weather.replace("\n", "\r\n")


# Missing, wrong and doubled markers.


@case("only its end is missing", TEXT)
def no_closer(written: Written) -> tuple[str, Outcome] | None:
    if written.ends_in_body or (written.has_json and written.closer):
        return written.unclosed.rstrip(), written.closer_missing
    return None


@case("the server says that the reply is whole", TEXT, finish_reason="stop")
def no_closer__and_the_server_says_stop(written: Written) -> tuple[str, Outcome] | None:
    return (written.unclosed.rstrip(), written.closer_missing) if written.closer else None


@case("the text ended in the closer", TEXT)
def half_a_closer(written: Written) -> tuple[str, Outcome] | None:
    text = f"{written.unclosed.rstrip()}{written.closer[:-3]}"
    return (text, written.closer_missing) if written.closer else None


@case("another closer ends the call", TEXT)
def a_wrong_closer(written: Written) -> tuple[str, Outcome] | None:
    return (f"{written.unclosed}</think>", written.closer_missing) if written.has_marker and written.closer else None


@case("a second closer next to a call is markup", WHOLE)
def closer_twice(written: Written) -> str | None:
    return f"{written.weather}{written.closer}" if written.closer else None


@case("a second opener next to a call is markup", WHOLE)
def opener_twice(written: Written) -> str | None:
    return f"{written.opener}{written.weather}" if written.has_marker and written.opener and written.is_json else None


@case("nothing was called: the text comes back", TEXT)
def a_stray_closer(written: Written) -> str | None:
    return f"All done.\n{written.closer}" if written.closer and written.tier == "A" else None


# Cut replies.


@case("a value without its end is no argument", TRUNCATED, finish_reason="length")
def cut_in_a_string(written: Written) -> str:
    return written.weather[: written.weather.index("Oslo") + 2]


@case("whatever the server says", TRUNCATED, finish_reason="stop")
def cut_in_a_string__and_the_server_says_stop(written: Written) -> str:
    return written.weather[: written.weather.index("Oslo") + 2]


@case("with no word of why it ended", TRUNCATED)
def cut_in_a_string__and_the_server_says_nothing(written: Written) -> str:
    return written.weather[: written.weather.index("Oslo") + 2]


@case("2 may have been 25", TRUNCATED, finish_reason="length")
def cut_in_a_number(written: Written) -> str:
    return written.weather[: written.weather.index("2", written.weather.index("Oslo"))]


@case("a name is no call", TRUNCATED, ordinary=TEXT, finish_reason="length")
def cut_after_the_name(written: Written) -> str:
    return written.weather[: written.weather.index("get_weather") + len("get_weather")]


@case("neither offered nor whole", TRUNCATED, ordinary=TEXT, finish_reason="length")
def cut_in_a_call_of_a_tool_that_nobody_offers(written: Written) -> str | None:
    text = written.calls(("get_stock", {"symbol": "ACME"}))
    return None if written.tier == "A" and not written.has_json else text[: text.index("ACME") + 2]


@case("the first is whole, and nothing is known of the second", {"calls": (PING,), **TRUNCATED}, finish_reason="length")
def cut_in_the_second_of_two(written: Written) -> str:
    both = written.calls(PING, ("get_weather", WEATHER))
    return both[: both.index("Oslo") + 2]


# Wrong names and arguments.


@case(
    "the markers say that a call was meant",
    {"calls": (("book_flight", {"to": "Oslo"}),), "unknown": ("book_flight",)},
    readable={"malformed": ("unknown_tool",)},
    ordinary=TEXT,
)
def a_tool_that_nobody_offers(written: Written) -> str:
    return written.calls(("book_flight", {"to": "Oslo"}))


@case(
    "nothing can be called",
    {"calls": (PING,), "unknown": ("ping",)},
    readable=TEXT,
    ordinary=TEXT,
    asked=TEXT,
    tools="empty",
)
def no_tools_offered(written: Written) -> str:
    return written.ping


@case("any plausible name will do", {"calls": (("get_moon", {"night": 3}),)}, tools="none")
def nobody_said_which_tools_there_are(written: Written) -> str:
    return written.calls(("get_moon", {"night": 3}))


@case("readable, but it does not fit", {"malformed": ("invalid_arguments",)})
def a_required_parameter_is_missing(written: Written) -> str:
    return written.calls(("get_weather", {"days": 2}))


@case("the schema wants a whole number", {"malformed": ("invalid_arguments",)})
def no_number_where_one_must_be(written: Written) -> str:
    return written.calls(("get_weather", {"city": "Oslo", "days": "soon"}))


@case("the schema names two units", {"malformed": ("invalid_arguments",)})
def another_unit_than_there_is(written: Written) -> str:
    return written.calls(("get_weather", {"city": "Oslo", "unit": "kelvin"}))


@case("models quote numbers", WHOLE)
def a_number_in_a_string(written: Written) -> tuple[str, Outcome]:
    text = written.calls(("get_weather", {"city": "Oslo", "days": "2"}))
    return text, {**WHOLE, "fixes": ("coerce",)} if written.has_json else WHOLE


@case("JSON with a slip", {**WHOLE, "fixes": ("json",)})
def a_trailing_comma(written: Written) -> str | None:
    return written.with_json('{"city": "Oslo", "days": 2,}')


@case("a dictionary of Python", {**WHOLE, "fixes": ("json",)})
def single_quotes(written: Written) -> str | None:
    return written.with_json("{'city': 'Oslo', 'days': 2}")


@case("encoded twice", {**WHOLE, "fixes": ("unwrap",)})
def arguments_in_a_string(written: Written) -> str | None:
    return written.with_json(dump(WEATHER_JSON)) if written.is_json else None


@case("no value: nothing is guessed", {"malformed": ("invalid_json",)})
def an_argument_without_a_value(written: Written) -> str | None:
    if not written.closer and '"get_weather": {' in written.weather:  # nothing says that it was meant as a call
        return None
    return written.with_json('{"city": , "days": 2}')


# Calls in arguments, and calls that are only mentioned.


def with_content(written: Written, content: str) -> str:
    return written.calls(("write_file", {"path": "a.md", "content": content}))


def holding(content: str) -> Outcome:
    return {"calls": (("write_file", {"path": "a.md", "content": content}),), "fixes": ()}


@case("a string is a string", TEXT)
def its_own_markers_in_a_string(written: Written) -> tuple[str, Outcome]:
    content = f'{written.opener}{{"name": "ping"}}{written.closer} ends <tool_call> 😀 ]}}'
    return with_content(written, content), holding(content)


@case("a call that is written into a file is not made", TEXT)
def a_whole_call_in_a_string(written: Written) -> tuple[str, Outcome]:
    content = f"So:\n{written.ping}\nThat is all."
    return with_content(written, content), holding(content)


@case("an example that words follow", TEXT, asked={**WHOLE, "content": "The form:\nThat is all."})
def in_a_fence__with_words_after(written: Written) -> str:
    shown = written.weather.replace("```", "~~~")
    return f"The form:\n```\n{shown}\n```\nThat is all."


@case("as in a fence of backticks", TEXT, asked={**WHOLE, "content": "You write\nand wait."})
def in_a_fence_of_tildes__with_words_after(written: Written) -> str:
    return f"You write\n~~~\n{written.weather}\n~~~\nand wait."


@case("inline code is an example", TEXT)
def in_inline_code(written: Written) -> str | None:
    shown = written.weather.replace("\n", "")
    return f"Write `{shown}` to call." if "`" not in shown else None


@case("inline code may have several lines", TEXT)
def in_inline_code_of_several_lines(written: Written) -> str | None:
    shown = written.weather
    if "\n" not in shown or "\n\n" in shown or "`" in shown:  # an empty line ends inline code
        return None
    return f"Write `{shown}` to call."


@case("markers are no prose", {"calls": (PING,), "content": "It writes and then it waits."}, ordinary=TEXT)
def amid_a_sentence(written: Written) -> str | None:
    return f"It writes {written.ping} and then it waits." if "\n" not in written.ping else None


@case("talk about the marker", TEXT)
def the_opener_in_a_sentence(written: Written) -> str | None:
    return f"A call begins with {written.opener} and goes on from there." if written.opener else None


@case("a draft is no call", TEXT)
def a_draft_in_the_thoughts(written: Written) -> tuple[str, Outcome]:
    thought = f"Perhaps {written.weather} will do."
    return f"<think>{thought}</think>No.", {"reasoning": thought, "content": "No."}


ASKED: Final = {"laguna", "smolagents"}
"""Dialects whose calls are another one's, or mere text, unless the request asks for them: no rule of a head's."""
NOT_WRITTEN: Final = {"mimicry"}
"""Dialects that write nothing of their own: echoes of another format."""


def _gigachat_stripped(text: str) -> str:
    spelled = "<|message_sep|>\n\nfunction call<|role_sep|>\n{}<|message_sep|>"
    return "".join(spelled.format(body) for body in text.removeprefix("<|function_call|>").split("\n<|function_call|>"))


UNMARKED: Final = "unmarked"
"""Any dialect whose differences are those of JSON without markers."""
AFTER_TOKEN: Final = "after its token"
"""A spelling of a readable dialect after a special token."""
SPELLINGS: Final[Mapping[str, Mapping[str, Callable[[str], str]]]] = {
    "cohere": {"without ids": lambda text: re.sub(r'"tool_call_id": "\d+", ', "", text)},
    "firefunction": {"after a space": lambda text: f" {text}"},
    "gigachat": {"of the template": _gigachat_stripped},
    "inkling": {"with roles": lambda text: "<|message_model|>" + text.replace("\n<|con", "<|message_model|><|con")},
    "llama3_json": {AFTER_TOKEN: lambda text: f"<|python_tag|>{text}"},
}
"""What else models of a dialect write: from what it renders."""
READ_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "glm": ("hermes",),
    "laguna": ("hermes",),
    "llama3_json": ("json",),
    "longcat_tags": ("longcat",),
    "minicpm": ("hermes",),
    "telechat": ("glm", "hermes"),
    "tool_name_yaml": ("tool_name_xml",),
}
"""Dialects of which some calls, or all, are written like those of another one."""
PINNED_OTHERWISE: Final[Mapping[str, tuple[str, ...]]] = {
    "in a fence, with words after": ("harmony",),
    "in a fence of tildes, with words after": ("harmony",),
    "in inline code": ("harmony",),
    "a draft in the thoughts": ("harmony",),
}
"""By case: dialects that read it otherwise when no other is looked for."""
DIFFERENCES: Final[Mapping[str, Mapping[str, tuple[str, Outcome]]]] = {
    "words after": {
        "llama_python": ("code, with words after it, is an example", TEXT),
        "nexusraven": ("its closer is a special token", {**WHOLE, "content": "Done."}),
    },
    "a made up result": {
        "harmony": ("its results are messages", {**WHOLE, "content": "<tool_response>\n5 C\n</tool_response>"}),
    },
    "a tool that nobody offers": {
        "llama_python": ("its token begins any code", {"malformed": ("unknown_tool",)}),
        "minicpm": ("its tags are those of other formats", TEXT),
        "tool_code": ("a fence of code holds any code", TEXT),
        "toolbridge": ("the name of the tool is a tag", TEXT),
    },
    "no tools offered": {"llama_python": ("its token begins any code", {"malformed": ("unknown_tool",)})},
    "nobody said which tools there are": {
        "bare": ("only the name tells a call from code", TEXT),
        "toolbridge": ("the name of the tool is a tag", TEXT),
        "tool_name_xml": ("the name of the tool is a tag", TEXT),
        "tool_name_yaml": ("the name of the tool is a tag", TEXT),
    },
    "amid a sentence": {
        "llama_python": ("code, with words after it, is an example", TEXT),
        UNMARKED: ("JSON amid a sentence is an example", TEXT),
        "xlam": ("a list amid a sentence is an example", TEXT),
    },
    "cut after the name": {
        "smolagents": ("code that names a tool is no call of it", TEXT),
        "tool_code": ("code that names a tool is no call of it", TEXT),
        UNMARKED: ("JSON that names a tool is no call of it", TEXT),
        "xlam": ("a list is read when it is whole", TEXT),
    },
    "cut in a call of a tool that nobody offers": {"llama_python": ("its token begins any code", TEXT)},
    "cut in a string": {"tool_name_yaml": ("a tag without its closer is a word in brackets", TEXT)},
    "cut in a string, and the server says nothing": {
        "tool_name_yaml": ("a tag without its closer is a word in brackets", TEXT)
    },
    "cut in a string, and the server says stop": {
        "harmony": ("its end is a token that servers leave out", {"malformed": ("invalid_json",)}),
        "tool_name_yaml": ("a tag without its closer is a word in brackets", TEXT),
    },
    "cut in a number": {"tool_name_yaml": ("a tag without its closer is a word in brackets", TEXT)},
    "cut in the second of two": {
        "tool_name_yaml": ("what is around the first is no prose", TEXT),
        "xlam": ("a list is read when it is whole", TRUNCATED),
    },
}
"""By case and dialect: why it is read otherwise than in the others of its tier, and how."""
