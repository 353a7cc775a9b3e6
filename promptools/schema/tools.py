"""The tools that a request offers, prepared once: checked, normalized, compiled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast, overload

from promptools.errors import UsageError, clip
from promptools.schema import spelling
from promptools.schema.check import Checked as Checked  # noqa: PLC0414  re-exported
from promptools.schema.check import check
from promptools.schema.copies import copied
from promptools.schema.entry import Entry, fitting, marked, prepare
from promptools.schema.graph import Graph
from promptools.schema.read import ToolLike, read
from promptools.schema.recent import Recent
from promptools.types import Fix, Schema, Tool

LISTS = 64
"""Lists of tools in each generation of the cache of `Tools.prepare`."""
TOOLS = 4096
"""Single tools in each generation of its other cache, for lists that differ in some tools."""
CHARACTERS = 4_000_000
"""Characters of JSON in each generation of either."""
MOST_NOTES = 8
"""Notes of one tool that are listed."""
MOST_ALIKE = 64
"""Tools that nameless arguments are tried on; where more declare the same keys, the tool cannot be inferred."""

_LARGEST = 1.7976931348623157e308
_FINITE = {"Infinity": _LARGEST, "-Infinity": -_LARGEST, "NaN": _LARGEST}
"""Finite values for the numbers that Python's json reads from `1e999` and cannot write as valid JSON."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Tools(Sequence[Tool]):
    """The tools that one request offers; immutable.

    Takes OpenAI tool dicts, bare `{name, description, parameters}` dicts, `input_schema` dicts, pydantic models, typed
    functions and `Tool`s. `marks` sets `dangerous`, `infer` and `aliases` by tool name. The parts of a schema that
    cannot be used are left out, and `notes` lists them; where `strict`, an invalid schema is a UsageError, and so is
    one that would need I/O. Raises UsageError for a tool without a name, and for a name given twice.
    """

    __slots__ = ("_by_key", "_cased", "_entries", "_folded", "all_keys", "names", "spaced_keys")

    names: tuple[str, ...]
    all_keys: frozenset[str]
    """The parameter names that any tool declares."""
    spaced_keys: frozenset[str]
    """Those of them that contain white space."""

    def __init__(
        self,
        tools: Iterable[ToolLike],
        *,
        marks: Mapping[str, Mapping[str, Any]] | None = None,
        strict: bool = False,
    ) -> None:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise UsageError(f"The tools are {clip(repr(cast(object, tools)))}; wanted is a list of tools.")
        sources = [read(tool, position, strict=strict) for position, tool in enumerate(tools)]
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
        """Return prepared tools: `Tools` and None are returned as they are, lists of dicts are cached."""
        if tools is None or isinstance(tools, Tools):
            return tools
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            return cls(cast(Any, tools))
        listed = list(tools)
        if not all(isinstance(tool, dict) for tool in listed):
            return cls(listed)
        try:
            texts = tuple(map(_ENCODER.encode, listed))
        except (TypeError, ValueError, RecursionError):
            return cls(listed)  # not JSON, so there is no cache key
        return _LISTS.get(texts) or _listed(texts)

    def with_marks(self, marks: Mapping[str, Mapping[str, Any]]) -> Tools:
        """Return a copy with marks set; marks for other tools are ignored.

        So are aliases that do not fit a tool: a config's marks are written for tools that it has not seen.
        """
        return _made(
            [
                marked(entry, fitting(marks[name], entry.shape.declared)) if name in marks else entry
                for name, entry in self._entries.items()
            ]
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what was wrong with the tools and how it was read: of each tool the first `MOST_NOTES`."""
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
        """Return the tool of exactly this name, or None."""
        entry = self._entries.get(name)
        return entry.tool if entry else None

    def find(self, said: object) -> tuple[Tool, Fix | None] | None:
        """Return the tool that a model's spelling of a name means, with a fix if that differs; None if there is none.

        Quotes, namespaces, indexes, markers and channel names around the name are removed. Then the name is compared
        exactly, without case, and without `-`, `_`, `.` and camel case; the latter two need a unique match.
        """
        if not isinstance(said, str):
            return None  # models write anything where a name belongs
        exact = self._entries.get(said)
        if exact:
            return exact.tool, None
        for name in spelling.candidates(said):
            tool_name = name if name in self._entries else self._near(name)
            if tool_name is not None:
                return self._entries[tool_name].tool, Fix("name", f"{clip(said)!r} to {tool_name!r}")
        return None

    def _near(self, name: str) -> str | None:
        return self._cased.get(name.casefold()) or self._folded.get(spelling.fold(name))

    def fits(self, name: str, arguments: dict[str, Any]) -> bool:
        """Return whether a tool has exactly this name and the arguments are surely valid for it as they are.

        False is no verdict: then `check` decides. Never raises on a value.
        """
        entry = self._entries.get(name)
        if entry is None or not entry.shape.declared.issuperset(arguments):
            return False
        try:
            return entry.shape.surely_fits(arguments)
        except Exception:  # noqa: BLE001  `check` reports what it was
            return False

    def check(self, tool: Tool, arguments: dict[str, Any], text: str | None = None, *, guess: bool = True) -> Checked:
        """Fit arguments to a tool: rename other spellings to declared names, validate, and coerce only if that fails.

        `text` is the JSON that the arguments were parsed from, if any: numbers that the schema wants as strings are
        spelled as in it. `guess`: the only undeclared key may be taken for the only missing required parameter, but
        never for a dangerous tool. Never raises on a value, never does I/O, never changes `arguments`.
        """
        return check(self._entries[tool.name], arguments, text, guess=guess and not tool.dangerous)

    def infer(self, arguments: Mapping[str, Any], *, optin_only: bool = False) -> tuple[Tool, tuple[Fix, ...]] | None:
        """Return the only tool that arguments without a name fit, with the fix that says so; None if there is not one.

        A dangerous tool, and one marked `infer=False`, is never returned; with `optin_only` only one marked
        `infer=True`. Every key must be declared or be an alias, and tools that declare all keys come first. The fixes
        of the arguments themselves are not returned: call `check` for those.
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
                tool = fitting[0].tool if len(fitting) == 1 else None
                return (tool, (Fix("infer", f"arguments without a name fit {tool.name!r} only"),)) if tool else None
        return None

    def _declaring(self, key: str) -> Sequence[Entry]:
        """Return the tools that have a parameter or an alias of this name."""
        if self._by_key is None:
            by_key: dict[str, list[Entry]] = {}
            for entry in self._entries.values():
                for name in (*entry.shape.declared, *entry.aliases):
                    by_key.setdefault(name, []).append(entry)
            self._by_key = by_key
        return self._by_key.get(key, ())

    def _fitting(self, entries: list[Entry], arguments: Mapping[str, Any]) -> list[Entry]:
        """Return the tools that arguments fit, at most two."""
        if len(entries) > MOST_ALIKE:
            return entries[:2]
        return list(islice((entry for entry in entries if self._fits(entry, arguments)), 2))

    def _fits(self, entry: Entry, arguments: Mapping[str, Any]) -> bool:
        checked = self.check(entry.tool, dict(arguments), guess=False)
        return checked.sure and checked.arguments.keys() <= entry.shape.declared

    def to_openai(self) -> list[dict[str, Any]]:
        """Return the tools as OpenAI dicts: copies, with the caller's other keys, without promptools' marks."""
        return [
            {**entry.sent, "function": dict(entry.sent["function"])} if entry.unread else copied(entry.sent)
            for entry in self._entries.values()
        ]

    def relaxed(self, name: str) -> tuple[Schema, tuple[str, ...]]:
        """Return the relaxed copy of a tool's schema and notes on what was changed; computed once. Raises KeyError."""
        shape = self._entries[name].shape
        if shape.relaxed is None:
            from promptools.schema.relax import relax_graph

            shape.relaxed = relax_graph(shape.graph)
        schema, notes = shape.relaxed
        return copied(schema), notes

    def graph(self, name: str) -> Graph | None:
        """Return the schema graph of a tool; None for an unknown tool."""
        entry = self._entries.get(name)
        return entry.shape.graph if entry else None

    def keys(self, name: str) -> frozenset[str]:
        """Return the parameter names that a tool declares; none for an unknown tool."""
        entry = self._entries.get(name)
        return entry.shape.declared if entry else frozenset()

    def types(self, name: str, key: str) -> frozenset[str]:
        """Return the JSON types that a parameter may have; none where the schema does not say. Raises KeyError."""
        shape = self._entries[name].shape
        if key not in shape.types:
            from promptools.schema.kinds import types_of

            shape.types[key] = types_of(shape.graph, key)
        return shape.types[key]


_LISTS = Recent[Tools](LISTS, CHARACTERS)
_TOOLS = Recent[Entry](TOOLS, CHARACTERS)


def _made(entries: list[Entry]) -> Tools:
    """Build tools from prepared entries; the constructor of `Tools` takes what callers have."""
    made = object.__new__(Tools)
    made._fill(entries)  # pyright: ignore[reportPrivateUsage]
    return made


def _listed(texts: tuple[str, ...]) -> Tools:
    """Prepare tools from their JSON texts, with a cache for the whole list and for each tool."""
    entries = [_remembered(text, position) for position, text in enumerate(texts)]
    _refuse_twice(entry.tool.name for entry in entries)
    tools = _made(entries)
    _LISTS.put(texts, tools)
    return tools


def _remembered(text: str, position: int) -> Entry:
    entry = _TOOLS.get(text)
    if entry is None:
        entry = prepare(read(json.loads(text, parse_constant=_FINITE.__getitem__), position), None)
        _TOOLS.put(text, entry)
    return entry


def _refuse_twice(names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise UsageError(f"Tool {name!r} is given {times} times; give each name once.")
