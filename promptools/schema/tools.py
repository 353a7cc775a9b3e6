"""The offered tools, prepared once: checked, normalised, compiled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast, overload

from promptools.errors import UsageError, clip
from promptools.schema import spelling
from promptools.schema.check import Checked as Checked  # noqa: PLC0414  others have it from here
from promptools.schema.check import check
from promptools.schema.copies import copied
from promptools.schema.entry import Entry, fitting, marked, prepare
from promptools.schema.graph import Graph
from promptools.schema.read import ToolLike, read
from promptools.schema.recent import Recent
from promptools.types import Fix, Schema, Tool

LISTS = 64
"""Lists of tools that `Tools.prepare` keeps, in each half of its cache."""
TOOLS = 4096
"""Single tools that it keeps, for lists that differ in some of them."""
CHARACTERS = 4_000_000
"""JSON that it keeps of either."""
MOST_NOTES = 8
"""Notes that are told of one tool."""
MOST_ALIKE = 64
"""Tools that nameless arguments are tried on: where more declare the same keys, nobody can tell which is meant."""

_LARGEST = 1.7976931348623157e308
_FINITE = {"Infinity": _LARGEST, "-Infinity": -_LARGEST, "NaN": _LARGEST}
"""What Python's json reads `1e999` as, and cannot write so that others read it."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Tools(Sequence[Tool]):
    """The tools that one request offers; immutable once made.

    Takes OpenAI tool dicts, bare `{name, description, parameters}` dicts, `input_schema` dicts, pydantic models, typed
    functions and `Tool`s. `marks` sets `dangerous`, `infer` and `aliases` by tool name. What of a schema cannot be read
    is left out, and `notes` say so; where it is `strict`, a schema that is none is a UsageError, and so is one that
    cannot be used without I/O. Raises UsageError for a tool without a name, and for a name given twice.
    """

    __slots__ = ("_by_key", "_cased", "_entries", "_folded", "all_keys", "names", "spaced_keys")

    names: tuple[str, ...]
    all_keys: frozenset[str]
    """Every parameter name that some tool declares."""
    spaced_keys: frozenset[str]
    """Those that hold white space."""

    def __init__(
        self,
        tools: Iterable[ToolLike],
        *,
        marks: Mapping[str, Mapping[str, Any]] | None = None,
        strict: bool = False,
    ) -> None:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise UsageError(f"The tools are {clip(repr(cast(object, tools)))}; wanted is a list of tools.")
        sources = [read(each, position, strict=strict) for position, each in enumerate(tools)]
        names = dict.fromkeys(source.tool.name for source in sources)
        _refuse_twice(source.tool.name for source in sources)
        for name in marks or ():
            if name not in names:
                raise UsageError(f"Marks are given for {name!r}, which is no tool here; the tools are {[*names]!r}.")
        self._fill([prepare(source, (marks or {}).get(source.tool.name), strict=strict) for source in sources])

    def _fill(self, entries: list[Entry]) -> None:
        self._entries = {entry.tool.name: entry for entry in entries}
        self.names = tuple(self._entries)
        self.all_keys = frozenset[str]().union(*(entry.shape.declared for entry in entries))
        self.spaced_keys = frozenset(key for key in self.all_keys if len(key.split()) > 1)
        self._cased, self._folded = (
            spelling.unique(self.names, str.casefold),
            spelling.unique(self.names, spelling.fold),
        )
        self._by_key: dict[str, list[Entry]] | None = None

    @classmethod
    def prepare(cls, tools: Tools | Iterable[ToolLike] | None) -> Tools | None:
        """Prepare tools, or find them prepared: `Tools` and None pass through, lists of dicts are remembered."""
        if tools is None or isinstance(tools, Tools):
            return tools
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            return cls(cast(Any, tools))
        listed = list(tools)
        if not all(isinstance(each, dict) for each in listed):
            return cls(listed)
        try:
            texts = tuple(map(_ENCODER.encode, listed))
        except (TypeError, ValueError, RecursionError):
            return cls(listed)  # no JSON, so nothing to remember it by
        return _LISTS.get(texts) or _listed(texts)

    def with_marks(self, marks: Mapping[str, Mapping[str, Any]]) -> Tools:
        """Copy with marks set on the tools that are here; marks for others are left alone.

        So are aliases that do not fit a tool: a config's marks are for tools that it has not seen.
        """
        return _made(
            [
                marked(entry, fitting(marks[name], entry.shape.declared)) if name in marks else entry
                for name, entry in self._entries.items()
            ]
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the tools was not as it should be, and how it was read: a sentence each, the first few of a tool."""
        return tuple(
            f"the tool {name!r}: {note}"
            for name, entry in self._entries.items()
            for note in (
                entry.notes
                if len(entry.notes) <= MOST_NOTES
                else (*entry.notes[:MOST_NOTES], f"and {len(entry.notes) - MOST_NOTES} more of the kind")
            )
        )

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Tool]:
        return (entry.tool for entry in self._entries.values())

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tool]: ...
    def __getitem__(self, index: int | slice) -> Tool | list[Tool]:
        return list(self)[index]

    def __repr__(self) -> str:
        return f"Tools({', '.join(self.names)})"

    def get(self, name: str) -> Tool | None:
        """Give the tool of exactly this name."""
        entry = self._entries.get(name)
        return entry.tool if entry else None

    def find(self, said: object) -> tuple[Tool, Fix | None] | None:
        """Give the tool that a model's spelling of a name means, with a fix when it is spelled otherwise.

        Quotes, namespaces, indexes, markers and channel words around the name fall away; then case counts, then it
        does not, then neither do `-`, `_`, `.` and camel case, as long as just one tool is meant.
        """
        if not isinstance(said, str):
            return None  # models put anything where a name belongs
        exact = self._entries.get(said)
        if exact:
            return exact.tool, None
        for name in spelling.candidates(said):
            found = name if name in self._entries else self._near(name)
            if found is not None:
                return self._entries[found].tool, Fix("name", f"{clip(said)!r} to {found!r}")
        return None

    def _near(self, name: str) -> str | None:
        return self._cased.get(name.casefold()) or self._folded.get(spelling.fold(name))

    def fits(self, name: str, arguments: dict[str, Any]) -> bool:
        """Tell whether this is the very name of a tool and these are arguments of its own, right as they are.

        False means that `check` has to say. Never raises on a value.
        """
        entry = self._entries.get(name)
        if entry is None or not entry.shape.declared.issuperset(arguments):
            return False
        try:
            return entry.shape.surely_fits(arguments)
        except Exception:  # noqa: BLE001  `check` says what it was
            return False

    def check(self, tool: Tool, arguments: dict[str, Any], text: str | None = None, *, guess: bool = True) -> Checked:
        """Fit arguments to a tool: declared names for other spellings, validation, and coercion only if that fails.

        `text` is the JSON that the arguments were read from, where there is one: numbers that the schema wants as
        strings are spelled as in it. `guess`: the only key that nobody declared may be the only required parameter that
        is missing, but never of a dangerous tool. Never raises on a value, never does I/O, never changes `arguments`.
        """
        return check(self._entries[tool.name], arguments, text, guess=guess and not tool.dangerous)

    def infer(self, arguments: Mapping[str, Any], *, optin_only: bool = False) -> tuple[Tool, tuple[Fix, ...]] | None:
        """Give the one tool that nameless arguments fit, with the fix that says so; None unless just one does.

        A dangerous tool, and one marked `infer=False`, is never given; with `optin_only` only one marked `infer=True`.
        Every key must be declared, and declared ones outrank aliases. Check the arguments afterwards for their fixes.
        """
        keys = arguments.keys()
        if not keys:
            return None
        likely = [
            entry
            for entry in min((self._declaring(key) for key in keys), key=len)
            if not entry.tool.dangerous and (entry.tool.infer is True or not (optin_only or entry.tool.infer is False))
        ]
        exact = [entry for entry in likely if keys <= entry.shape.declared]
        loose = [
            entry
            for entry in likely
            if not keys <= entry.shape.declared and keys <= entry.shape.declared | entry.aliases.keys()
        ]
        for entries in (exact, loose):
            fitting = self._fitting(entries, arguments)
            if fitting:
                found = fitting[0].tool if len(fitting) == 1 else None
                return (found, (Fix("infer", f"arguments without a name fit {found.name!r} only"),)) if found else None
        return None

    def _declaring(self, key: str) -> Sequence[Entry]:
        """Return the tools that have a parameter of this name, or know it as an alias of one."""
        if self._by_key is None:
            by_key: dict[str, list[Entry]] = {}
            for entry in self._entries.values():
                for name in (*entry.shape.declared, *entry.aliases):
                    by_key.setdefault(name, []).append(entry)
            self._by_key = by_key
        return self._by_key.get(key, ())

    def _fitting(self, entries: list[Entry], arguments: Mapping[str, Any]) -> list[Entry]:
        """Return the tools that arguments fit, two of them where they are more."""
        if len(entries) > MOST_ALIKE:
            return entries[:2]
        return list(islice((entry for entry in entries if self._fits(entry, arguments)), 2))

    def _fits(self, entry: Entry, arguments: Mapping[str, Any]) -> bool:
        checked = self.check(entry.tool, dict(arguments), guess=False)
        return checked.sure and checked.arguments.keys() <= entry.shape.declared

    def to_openai(self) -> list[dict[str, Any]]:
        """Give the tools as OpenAI dicts: copies, with the caller's other keys, without our marks."""
        return [
            {**entry.sent, "function": dict(entry.sent["function"])} if entry.unread else copied(entry.sent)
            for entry in self._entries.values()
        ]

    def relaxed(self, name: str) -> tuple[Schema, tuple[str, ...]]:
        """Give the relaxed copy of a tool's schema, and what was changed; computed once. Raises KeyError."""
        shape = self._entries[name].shape
        if shape.relaxed is None:
            from promptools.schema.relax import relax_graph

            shape.relaxed = relax_graph(shape.graph)
        schema, notes = shape.relaxed
        return copied(schema), notes

    def graph(self, name: str) -> Graph | None:
        """Return the schema of a tool as it was read; None for a tool that is not here."""
        entry = self._entries.get(name)
        return entry.shape.graph if entry else None

    def keys(self, name: str) -> frozenset[str]:
        """Give the parameter names that a tool declares; none for a tool that is not here."""
        entry = self._entries.get(name)
        return entry.shape.declared if entry else frozenset()

    def types(self, name: str, key: str) -> frozenset[str]:
        """Give the JSON types that a parameter may have; none where the schema does not say. Raises KeyError."""
        shape = self._entries[name].shape
        if key not in shape.types:
            from promptools.schema.kinds import types_of

            shape.types[key] = types_of(shape.graph, key)
        return shape.types[key]


_LISTS = Recent[Tools](LISTS, CHARACTERS)
_TOOLS = Recent[Entry](TOOLS, CHARACTERS)


def _made(entries: list[Entry]) -> Tools:
    """Make tools of entries; `Tools` itself takes what callers have."""
    made = object.__new__(Tools)
    made._fill(entries)  # pyright: ignore[reportPrivateUsage]
    return made


def _listed(texts: tuple[str, ...]) -> Tools:
    """Prepare tools from their JSON, each of them once."""
    entries = [_remembered(text, position) for position, text in enumerate(texts)]
    _refuse_twice(entry.tool.name for entry in entries)
    tools = _made(entries)
    _LISTS.put(texts, tools)
    return tools


def _remembered(text: str, position: int) -> Entry:
    found = _TOOLS.get(text)
    if found is None:
        found = prepare(read(json.loads(text, parse_constant=_FINITE.__getitem__), position), None)
        _TOOLS.put(text, found)
    return found


def _refuse_twice(names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise UsageError(f"Tool {name!r} is given {times} times; give each name once.")
