"""Run test cases with a learned table: those of its family, those of every dialect, and those of other families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import casebook
from figures_of_prose import EXPLAINS, MADE_UP, MEANS, MEANT, options_of
from shared_cases import OTHER, check, shared_cases

from promptools import Tools, dialects, parse
from promptools.dialects.sample import TOOL, sample_text

if TYPE_CHECKING:
    from promptools.learning import Learned
    from promptools.types import Reply

NAME: Final = "learned"
_SAMPLE_TOOLS: Final = Tools([TOOL])


class Shared(NamedTuple):
    """How many of the cases of every dialect a table passes."""

    passed: int
    total: int
    failed: tuple[str, ...]
    """The names of the cases that failed."""


def family_cases(learned: Learned, family: str) -> tuple[int, int] | None:
    """Return how many of a family's cases the table reads as expected, and how many there are; None if there are none.

    The table is used in place of the family's own dialect.
    """
    rows = casebook.rows(f"cases/{family}") if family and (casebook.HERE / "cases" / family).is_dir() else []
    rows = [row for row in rows if not row.options.keys() - {"in_reasoning", "strictness"}]
    if not rows:
        return None
    with dialects.using(learned.given):
        read = sum(
            _calls(parse(row.text, _tools(row), expect=NAME, accept=[NAME], **row.options)) == list(row.calls)
            for row in rows
        )
    return read, len(rows)


def shared(learned: Learned, family: str) -> Shared:
    """Return how many of the cases of every dialect the table passes, with no other dialect.

    Texts are read whole and in pieces, and the whole replies are compared. Where the family's own dialect differs from
    others of its tier, the table may differ in the same way.
    """
    with dialects.using(learned.given):
        rows = shared_cases(dialects.get(NAME))
        of_family = {row.name: row for row in shared_cases(dialects.get(NAME), like=family)}
        failed = tuple(row.name for row in rows if not _passes(row) and not _passes(of_family[row.name]))
    return Shared(len(rows) - len(failed), len(rows), failed)


def _passes(row: casebook.Row) -> bool:
    """Return whether a case passes with only the table. The table is expected only if the case says so."""
    try:
        check(replace(row, options={"dialect": NAME, "expect": OTHER[0], **row.options}))
    except AssertionError:
        return False
    return True


class Text(NamedTuple):
    """A text that is read with and without a table, and how it is read."""

    text: str
    tools: str
    """A set of tools of the cases; empty: the tool of `sample_text`."""
    options: dict[str, Any]
    family: str


class Seen(NamedTuple):
    """What an app sees of a reply. The dialect by which a call was read is left out."""

    calls: tuple[object, ...]
    malformed: tuple[object, ...]
    content: str
    reasoning: str


class Changed(NamedTuple):
    """How many texts are read differently when a table is registered."""

    prose: int
    """Texts without a call in which the table finds a call or a malformed call."""
    calls: int
    """Other texts: most have calls of another family."""
    total: int


def changed(learned: Learned, family: str) -> Changed:
    """Read the cases of all other families, and prose, with the table registered and without."""
    others = [(each, before) for each, before in _read_alone() if each.family != family]
    with dialects.using(learned.given):
        pairs = [(before, after) for each, before in others if (after := _seen(each)) != before]
    made_up = sum(not (old.calls or old.malformed) and bool(new.calls or new.malformed) for old, new in pairs)
    return Changed(made_up, len(pairs) - made_up, len(others))


@cache
def _read_alone() -> Sequence[tuple[Text, Seen]]:
    """Return each text with what is seen of it when no table is registered."""
    return [(each, _seen(each)) for each in _texts()]


def _texts() -> Sequence[Text]:
    """Return the cases of all families, and sentences of prose with a call of each dialect in each place."""
    rows = casebook.rows(*casebook.ROWS_FOLDERS)
    of_rows = [
        Text(row.text, row.tools, row.options, row.table.partition("/")[0])
        for row in rows
        if "finish_reason" not in row.options
    ]
    of_prose = [
        Text(write(words, sample_text(dialects.get(name))), "", options_of(place), name)
        for table, words in ((MADE_UP, EXPLAINS[0]), (MEANT, MEANS[0]))
        for place, write in table.items()
        for name in sorted(dialects.BUILT_IN)
    ]
    return [*of_rows, *of_prose]


def _seen(each: Text) -> Seen:
    reply = parse(each.text, _named_tools(each.tools) if each.tools else _SAMPLE_TOOLS, **each.options)
    calls = tuple((call.name, call.arguments_json, call.unknown_tool) for call in reply.calls)
    malformed = tuple((failed.reason, failed.name) for failed in reply.malformed)
    return Seen(calls, malformed, reply.content, reply.reasoning)


@cache
def _named_tools(name: str) -> Tools | None:
    tools = casebook.tools_of(name)
    return None if tools is None else Tools([*tools])


def _tools(row: casebook.Row) -> Tools | None:
    return _named_tools(row.tools)


def _calls(reply: Reply) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in reply.calls]
