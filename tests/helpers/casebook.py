"""The tables as data: the tool sets they offer, their rows, and the ways to feed a text to the parser.

A row of `cases/<dialect>/*.toml`:

    name         unique in its table
    tools        a set of `cases/tools.toml`, "none" (unknown), "empty" (none offered), or JSON
    text         what the model said
    options      keyword arguments of `parse`
    calls        [[name, arguments], ...]; arguments may be JSON in a string, where TOML has no null
    content      default: the text itself where nothing is called, malformed or reasoned, else ""
    reasoning    default: ""
    unknown      [name, ...] of the calls that are flagged: nobody offers their tools
    malformed    [reason, ...]
    discarded    every discarded piece of more than white space, checked where given
    fixes        the kinds of all fixes, sorted, once each; checked where given
    alone        why it reads otherwise when its dialect alone is looked for
    why, source  why the row is so; where the shape was seen
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from promptools import StreamParser, Tools, dialects
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Discarded, End, Event, Malformed, Reasoning, Text
from promptools.types import Call, Reply

HERE = Path(__file__).parents[1]
ROWS_FOLDERS = tuple(f"cases/{path.name}" for path in sorted((HERE / "cases").iterdir()) if path.is_dir())
SPLIT_EVERYWHERE = 6
"""Characters up to which a text is cut at every place; a longer one is at as many, spread evenly, in each text at other
ones: of thousands of rows, all lengths of a piece and all kinds of places are among them, and a row is cut at all of
its places at once as well.
"""


def _sets() -> dict[str, list[dict[str, Any]] | None]:
    book = tomllib.loads((HERE / "cases" / "tools.toml").read_text("utf-8"))
    tools = {name: json.loads(text) for name, text in book["tool"].items()}
    sets: dict[str, list[dict[str, Any]] | None] = {
        name: [tools[member] for member in members] for name, members in book["set"].items()
    }
    return {**sets, "all": list(tools.values()), "none": None, "empty": []}


SETS = _sets()


def tools_of(name: str) -> list[dict[str, Any]] | None:
    """Return the tools of a row: a named set, or JSON written out."""
    return json.loads(name) if name.startswith("[") else SETS[name]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    table: str
    name: str
    text: str
    tools: str = "demo"
    options: dict[str, Any] = field(default_factory=dict)
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    unknown: tuple[str, ...] = ()
    content: str = ""
    reasoning: str = ""
    malformed: tuple[str, ...] = ()
    discarded: tuple[str, ...] | None = None
    fixes: tuple[str, ...] | None = None
    alone: str = ""
    why: str = ""
    source: str = ""

    @property
    def id(self) -> str:
        """Name the row in a test report."""
        return f"{self.table}:{self.name}"


KNOWN = {
    "name",
    "text",
    "tools",
    "options",
    "calls",
    "unknown",
    "content",
    "reasoning",
    "malformed",
    "discarded",
    "fixes",
    "alone",
    "why",
    "source",
}


def row(table: str, raw: dict[str, Any], defaults: dict[str, Any]) -> Row:
    """Read one row; the table's `[defaults]` lie under it."""
    raw = {**defaults, **raw, "options": {**defaults.get("options", {}), **raw.get("options", {})}}
    assert not set(raw) - KNOWN, f"{table}: {raw.get('name')!r} has unknown keys {sorted(set(raw) - KNOWN)}"
    calls = tuple(
        (name, json.loads(given) if isinstance(given, str) else given) for name, given in raw.pop("calls", [])
    )
    spoken = not calls and not raw.get("malformed") and not raw.get("reasoning") and not raw.get("discarded")
    content = raw.pop("content", raw["text"] if spoken else "")
    for key in ("unknown", "malformed", "discarded", "fixes"):
        if key in raw:
            raw[key] = tuple(raw[key])
    return Row(table=table, calls=calls, content=content, **raw)


def rows(*folders: str, key: str = "case") -> list[Row]:
    """Read every row of every table in these folders under `tests/`."""
    return [row for folder in folders for row in _rows_of(folder, key)]


@cache
def _rows_of(folder: str, key: str) -> tuple[Row, ...]:
    """Read a folder's tables once for all test modules of a process."""
    books = {path: tomllib.loads(path.read_text("utf-8")) for path in sorted((HERE / folder).glob("*.toml"))}
    return tuple(
        row(f"{path.parent.name}/{path.stem}", raw, book.get("defaults", {}))
        for path, book in books.items()
        for raw in book.get(key, [])
    )


def check_reply(row: Row, reply: Reply) -> None:
    """Assert that a reply is what its row says."""
    assert [(call.name, call.arguments) for call in reply.calls] == list(row.calls)
    assert [call.name for call in reply.calls if call.unknown_tool] == list(row.unknown)
    assert [failed.reason for failed in reply.malformed] == list(row.malformed)
    assert reply.content == row.content
    assert reply.reasoning == row.reasoning
    if row.fixes is not None:
        assert sorted({fix.kind for call in reply.calls for fix in call.fixes}) == list(row.fixes)
    if row.discarded is not None:
        assert [piece.raw.strip() for piece in reply.discarded if piece.raw.strip()] == list(row.discarded)


def cuts(text: str, *, places: int | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield ways to cut `text`: by character, in sevens, and in two.

    In two at `places` places that are spread evenly; None: at every place if it is short, else at a few, which begin
    earlier or later by a number that the text decides.
    """
    yield "by character", list(text)
    yield "in sevens", [text[at : at + 7] for at in range(0, len(text), 7)]
    eighths = 0  # of the distance between two places
    if places is None:
        places = min(len(text), SPLIT_EVERYWHERE) - 1
        eighths = crc32(text.encode("utf-8", "surrogatepass")) % 8 if len(text) > SPLIT_EVERYWHERE else 0
    counted = (8 * number - eighths for number in range(1, places + 1))
    for at in sorted({len(text) * number // (8 * (places + 1)) for number in counted} - {0}):
        yield f"at {at}", [text[:at], text[at:]]


@cache
def _prepared() -> dict[int, Tools]:
    """Return the sets by their ids as what a parser makes of them: here one is made for each way to cut a text."""
    return {id(tools): Tools(tools) for tools in SETS.values() if tools is not None}


def feed(
    pieces: Iterable[str], tools: Any = None, finish_reason: str | None = None, **options: Any
) -> tuple[list[Event], Reply]:
    """Feed pieces to a new parser, close it, and give all its events and its reply."""
    parser = StreamParser(_prepared().get(id(tools), tools), **options)
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.close(finish_reason)
    return events, parser.reply


def bare(reply: Reply) -> Reply:
    """Drop what the tries cost: that depends on the cut, and nothing else does."""
    tries = tuple(replace(attempt, cost=0) for attempt in reply.trace.tries)
    return replace(reply, trace=replace(reply.trace, tries=tries))


def own_words(call: Call, words: str) -> bool:
    """Return whether the arguments are the model's own JSON, in a dialect that writes JSON, unless they were mended."""
    if call.fixes or not call.arguments or call.arguments_json in words:
        return True
    simple = replace(call, arguments={"a": "b"}, arguments_json='{"a": "b"}')
    return simple.arguments_json not in dialects.get(call.dialect).render_calls([simple])


def tiled(events: Iterable[Event], text: str) -> None:
    """Assert that the spans of what was said cover every character of `text` once, with the text they claim.

    A line break between two messages is in no place of the text.
    """
    at = 0
    for event in sorted(
        (e for e in events if isinstance(e, Text | Reasoning | Discarded | CallEnd | Malformed)), key=lambda e: e.span
    ):
        if isinstance(event, Text | Reasoning) and event.text == "\n" and event.span == (at, at):
            continue
        assert event.span.start == at, f"{event} should start at {at}"
        assert event.span.end > at or not text, f"{event} is empty"
        covered = text[event.span.start : event.span.end]
        match event:
            case Text(text=claimed) | Reasoning(text=claimed) | Discarded(raw=claimed) | Malformed(raw=claimed):
                assert claimed == covered
            case CallEnd(call=call):
                assert call.span == event.span
        at = event.span.end
    assert at == len(text), f"the spans end at {at} of {len(text)}"


def in_order(events: list[Event], reply: Reply) -> None:
    """Every call starts once, is followed by its arguments, and ends once; the end is the end."""
    state: dict[int, str] = {}
    arguments: defaultdict[int, str] = defaultdict(str)
    names: dict[int, tuple[str, str]] = {}
    for event in events:
        match event:
            case CallStart(index=i):
                assert i not in state, f"call {i} starts twice"
                state[i] = "open"
                names[i] = (event.id, event.name)
            case CallArgs(index=i):
                assert state.get(i) == "open", f"arguments of call {i}, which is not open"
                arguments[i] += event.fragment
            case CallEnd(index=i, call=call):
                assert state.get(i) == "open", f"call {i} ends, which is not open"
                state[i] = "done"
                assert arguments[i] == call.arguments_json
                assert names[i] == (call.id, call.name)
            case Malformed(index=i):
                assert state.get(i) in (None, "open"), f"call {i} ends twice"
                state[i] = "done"
            case _:
                pass
    assert set(state.values()) <= {"done"}, f"left open: {state}"
    assert [type(event) for event in events].count(End) == 1
    assert isinstance(events[-1], End)
    assert [event.call for event in events if isinstance(event, CallEnd)] == list(reply.calls)
    assert [event for event in events if isinstance(event, Malformed)] == list(reply.malformed)


def honest(text: str, reply: Reply) -> None:
    """Arguments and their JSON agree, what was not mended is the model's own text, and the JSON form reads back."""
    for call in reply.calls:
        assert json.loads(call.arguments_json) == call.arguments
        assert own_words(call, text[call.span.start : call.span.end])
        assert call.dialect
    for failed in reply.malformed:
        assert failed.message
    assert Reply.from_dict(reply.to_dict()) == reply
    assert Reply.from_dict(json.loads(json.dumps(reply.to_dict()))) == reply
