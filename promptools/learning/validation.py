"""Check a candidate table with calls that it was not derived from: it must read and write them as the template does.

A test that only reads calls would miss wrong keys and closing markers, since the parser repairs them. So calls with
plain values must be read without repairs, except those that the format itself makes necessary. And the table's output
is compared with the template's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from promptools import dialects
from promptools.engine import StreamParser, parse
from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.learning.renderings import CallOf, Frame, Renderings, Variant
from promptools.schema.documents import type_name
from promptools.types import Call

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect
    from promptools.schema import Tools
    from promptools.types import Reply

LEAST_CALLS: Final = 30
"""Minimum number of calls that a candidate table must read back to be accepted."""


class Trial(NamedTuple):
    """A turn whose calls are rendered and read back.

    It is `plain` if no value could be mistaken for markup or for a value of another type.
    """

    calls: tuple[CallOf, ...]
    plain: bool
    quotes: bool = False
    """Whether a value contains a marker of the table."""


_PLAIN: Final[tuple[Mapping[str, Any], ...]] = (
    {"city": "Oslo", "days": 2},
    {"city": "São Paulo", "days": -14, "exact": True},
    {"note": "two words", "ratio": 0.5},
    {"note": 'It\'s here, "quoted" twice', "ratio": 12.25},
    {"note": "first line\nsecond line\n\nlast line", "exact": False},
    {"tags": ["red", "green"], "days": 0},
    {"tags": [], "city": "Ålesund"},
    {"numbers": [1, 2, 3], "note": "a, b; c: d"},
    {"options": {"limits": {"high": 30, "low": -5}, "unit": "celsius"}},  # Ollama sorts the keys of inner objects
    {"options": {"names": ["x", "y"], "strict": True}, "city": "Rome"},
    {"options": {}, "note": "braces { } and [ ] in words"},
    {"note": "c:\\temp\\new", "city": "東京"},
    {"note": "emoji 🙂 and – dashes"},
    {"ratio": -0.125, "exact": True, "days": 365},
    {"nothing": None, "city": "Lima"},
    {"note": "100 % of $5 & more", "tags": ["one item"]},
    {"note": "def f(x):\n    return x + 1", "days": 9},
    {"rows": [{"a": 1}, {"a": 2, "b": "two"}]},
    {"city": "Łódź", "tags": ["one", "two", "three"], "exact": True},
    {"note": "a sentence. And another one!", "ratio": 3.75},
    {"note": "x = y", "days": 1000000},
    {"numbers": [-1, 0, 2.5], "options": {"empty": [], "none": None}},
    {"city": "Zürich", "note": "(in brackets)", "exact": False, "ratio": 99.5},
    {"note": "key: value", "numbers": [7]},
    {"tags": ["with, comma", "with 'quotes'"], "days": 31},
    {"options": {"a": {"b": {"c": "deep"}}}, "note": "nested"},
    {"city": "New York", "days": 8, "note": "* one\n* two"},
    {"note": "ends with a stop.", "city": "Málaga"},
)
_HARD: Final[tuple[Mapping[str, Any], ...]] = (
    {"note": "1 < 2 and 3 > 2", "city": "Bern"},
    {"note": "<b>bold</b> text", "days": 1},
    {"city": "42", "note": "true"},
    {"city": "null", "note": "[1, 2]"},
    {"note": '{"a": 1}', "days": 5},
    {"note": "a tab\there", "city": "Kyiv"},
)
_PAIRS: Final[tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]] = (
    ({"city": "Oslo"}, {"city": "Bergen"}),
    ({"note": "one\ntwo", "days": 3}, {"tags": ["a", "b"]}),
    ({"options": {"deep": [1, {"er": "x"}]}}, {"ratio": 1.5, "exact": False}),
    ({"days": 7}, {"note": "the second of two"}),
)
NAMES: Final = ("look_up_weather", "searchNotes", "set-options", "count_rows", "report2")
"""The names of the tools that the trials call."""
_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "exact": {"type": "boolean"},
    "note": {"type": "string"},
    "ratio": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": {"type": "number"}},
    "rows": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
    "options": {"type": "object", "additionalProperties": True},
    "nothing": {"type": ["string", "null"]},
}


def trial_tools(*more: CallOf, without: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the tools that the trials and the calls in `more` use, as a request declares them.

    `without` names parameters to leave out, because the template does not know their types.
    """
    schemas: dict[str, dict[str, Any]] = {
        name: {key: {**schema, "description": f"The {key}."} for key, schema in _SCHEMAS.items() if key not in without}
        for name in NAMES
    }
    for call in more:
        schemas[call.name] = {
            key: {"type": type_name(value), "description": f"The {key}."} for key, value in call.arguments.items()
        }
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Does what {name} says.",
                "parameters": {"type": "object", "properties": properties},
            },
        }
        for name, properties in schemas.items()
        if properties
    ]


def trials(markers: Sequence[str]) -> Iterator[Trial]:
    """Yield the turns with which a candidate is tried; some texts in them contain one of the candidate's `markers`."""
    number = 0

    def call(arguments: Mapping[str, Any]) -> CallOf:
        nonlocal number
        number += 1
        return CallOf(f"tr{number:07}", NAMES[number % len(NAMES)], dict(arguments))

    yield from (Trial((call(arguments),), True) for arguments in _PLAIN)
    yield from (Trial((call(one), call(other)), True) for one, other in _PAIRS)
    yield from (Trial((call(arguments),), False) for arguments in _HARD)
    for marker in dict.fromkeys(filter(None, markers)):
        yield Trial((call({"note": f"write {marker} there", "days": 4}),), plain=False, quotes=True)


class Outcome(NamedTuple):
    """The outcome of trying a candidate."""

    read: int
    """Number of calls that were read back, both from the whole text and from the text fed character by character."""
    written: int
    """Number of calls that the table writes as the template does."""
    written_otherwise: int
    """Number of calls that the table writes differently from the template, but reads back.

    In these calls, a value looks like markup or like a value of another type.
    """
    unread: int
    """Number of turns in which no call is read, because a value contains a marker and the format escapes nothing."""
    refused: int
    """Number of turns that the template rejects or renders incompletely."""
    problem: str
    """What went wrong first; empty if nothing did."""

    @property
    def holds(self) -> bool:
        """Whether the table may be used: it passed all checks, and enough calls were read back."""
        return not self.problem and self.read >= LEAST_CALLS


class Rendered(NamedTuple):
    """A trial, and what the template wrote for its calls."""

    trial: Trial
    text: str


def check(
    dialect: Dialect, rendered: Sequence[Rendered], tools: Tools, *, allowed: Collection[str], cut: bool = True
) -> Outcome:
    """Check that a candidate dialect reads and writes the rendered calls as the template does.

    `rendered` holds the calls, and the text that the template wrote for them. `allowed` lists the kinds of fixes that
    plain calls may need because the format is not JSON. `cut` says whether the texts are also read in two pieces.
    """
    read = written = otherwise = unread = 0
    escapes = '{"' in "".join(each.text for each in rendered[:1])
    with dialects.using(dialect):
        for trial, text in rendered:
            problem = _read_problem(dialect, trial, text, tools, allowed)
            if problem and trial.quotes and not escapes and not parse(text, tools, dialect=dialect.name).calls:
                unread += 1
                continue
            if problem:
                return Outcome(read, written, otherwise, unread, 0, problem)
            read += len(trial.calls)
            calls = [Call(call.id, call.name, call.arguments, dump(call.arguments)) for call in trial.calls]
            ours = dialect.render_calls(calls)
            if squeezed(ours) == squeezed(text):
                written += len(calls)
            elif trial.plain:
                problem = f"it writes {ours!r}, and the template {text!r}"
                return Outcome(read, written, otherwise, unread, 0, problem)
            elif _same(parse(ours, tools, dialect=dialect.name), trial):
                otherwise += len(calls)
            else:
                problem = f"it does not read what it writes, {ours!r}"
                return Outcome(read, written, otherwise, unread, 0, problem)
        whole = [each for each in rendered if cut and not each.trial.quotes]
        problem = _cut_problem(dialect, whole, tools)
    return Outcome(read, written, otherwise, unread, 0, problem)


def render_trials(
    renderings: Renderings, frame: Frame, variant: Variant, markers: Sequence[str]
) -> tuple[list[Rendered], int]:
    """Return what a template writes for the trials, and how many trials it rejects or renders incompletely."""
    rendered: list[Rendered] = []
    refused = 0
    for trial in trials(markers):
        whole = renderings.of_calls(trial.calls, variant)
        text = None if whole is None else frame.calls_in(whole)
        if text is None or any(
            part not in text for call in trial.calls for part in (call.name, *_keys(call.arguments))
        ):
            refused += 1
        else:
            rendered.append(Rendered(trial, text))
    return rendered, refused


def _keys(value: Any) -> Iterator[str]:
    """Yield the keys of all objects in a value, at any depth."""
    if is_object(value):
        for key, member in value.items():
            yield key
            yield from _keys(member)
    elif is_array(value):
        for item in value:
            yield from _keys(item)


def _same(reply: Reply, trial: Trial) -> bool:
    """Return whether a reply has the calls of a trial. Arguments may be in any order, since templates may sort them."""
    expected = [(call.name, call.arguments) for call in trial.calls]
    return json.dumps(_values(reply), sort_keys=True) == json.dumps(expected, sort_keys=True)


def _values(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in reply.calls]


def _read_problem(dialect: Dialect, trial: Trial, text: str, tools: Tools, allowed: Collection[str]) -> str:
    """Return what is wrong when a text is parsed whole or character by character; empty if the calls are right."""
    stream = StreamParser(tools, dialect=dialect.name)
    for character in text:
        stream.feed(character)
    stream.close("stop")
    for how, reply in (("whole", parse(text, tools, dialect=dialect.name)), ("in pieces", stream.reply)):
        if not _same(reply, trial):
            return f"read {how}, {text!r} is {_values(reply)!r}"
        if reply.content:
            return f"read {how}, {text!r} leaves the text {reply.content!r}"
        repaired = [fix for call in reply.calls for fix in call.fixes if fix.kind not in allowed]
        if repaired and trial.plain:
            return f"read {how}, {text!r} needs a repair: {repaired[0].detail}"
    return ""


def _cut_problem(dialect: Dialect, rendered: Sequence[Rendered], tools: Tools) -> str:
    """Return a description of the first cut at which a text fed in two pieces is misread; empty if there is none.

    The two shortest texts are cut everywhere, and each of the others at a few places.
    """
    for number, (trial, text) in enumerate(sorted(rendered, key=lambda each: len(each.text))):
        step = 1 if number < 2 else max(len(text) // 3, 1)
        for at in range(1 + number % step, len(text), step):
            stream = StreamParser(tools, dialect=dialect.name)
            stream.feed(text[:at])
            stream.feed(text[at:])
            stream.close("stop")
            if not _same(stream.reply, trial):
                return f"cut at {at}, {text!r} is {_values(stream.reply)!r}"
    return ""


_ESCAPES = re.compile(r"(?<!\\)(?:\\u[0-9a-fA-F]{4})+")


def squeezed(text: str) -> str:
    """Return a text without white space, and with JSON's character escapes decoded."""
    return "".join(_ESCAPES.sub(lambda match: str(json.loads(f'"{match[0]}"')), text).split())
