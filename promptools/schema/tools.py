"""Prepare the tools that a request offers, once: check, normalize and compile them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast, overload

from promptools.errors import UsageError, clip
from promptools.json_values import MAX_DEPTH, copy_json, write_json
from promptools.schema import spelling
from promptools.schema.graph import SchemaGraph
from promptools.schema.prepared_tool import (
    Checked,
    PreparedTool,
    check,
    parameter_types,
    prepare_tool,
    set_marks,
    without_unfit_marks,
)
from promptools.schema.recent_cache import RecentCache
from promptools.schema.spelling import OtherNames
from promptools.schema.tool_definition import ToolLike, read_definition
from promptools.types import Fix, Schema, Tool

CACHED_LISTS = 64
"""Maximum number of lists of tools that `Tools.prepare` caches in each generation of a `RecentCache`."""
CACHED_TOOLS = 4096
"""Maximum number of tools in each generation of the cache for single tools.

This cache saves work for lists that have some tools in common.
"""
CACHED_CHARACTERS = 4_000_000
"""Maximum number of characters of JSON in each generation of the cache for lists, and of the cache for single tools."""
MAX_NOTES = 8
"""Maximum number of notes that are listed for one tool."""
MAX_INFERENCE_CANDIDATES = 64
"""Maximum number of tools that are tried for a call without a tool's name.

If more tools have parameters with the names of the call's keys, no tool is inferred.
"""

_LARGEST = 1.7976931348623157e308
_FINITE = {"Infinity": _LARGEST, "-Infinity": -_LARGEST, "NaN": _LARGEST}
"""Finite replacements for infinity and NaN, which Python's json reads but cannot write as valid JSON."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_FINITE.__getitem__)


class Tools(Sequence[Tool]):
    """The tools that one request offers; immutable.

    The constructor takes OpenAI tool dicts, bare `{name, description, parameters}` dicts, `input_schema` dicts,
    pydantic models, typed functions and `Tool`s. `marks` maps the names of tools to their marks: `dangerous`, `infer`,
    `aliases`, `names` and `free_text`. Unusable parts of a schema are left out, and `notes` lists them. If `strict`, a
    schema that is invalid or would need I/O is a UsageError instead. Raises UsageError for a tool without a name, for
    two tools with the same name, and for two tools that share one of their `names` (names that models use instead).
    """

    __slots__ = (
        "__weakref__",
        "_by_key",
        "_cased",
        "_entries",
        "_folded",
        "_json_text",
        "_other_names",
        "all_keys",
        "all_names",
        "any_free_text",
        "names",
        "notes",
        "spaced_keys",
    )

    names: tuple[str, ...]
    all_names: tuple[str, ...]
    """The tools' own names, followed by the other names that models use for the tools."""
    any_free_text: bool
    """Whether any tool has the mark `free_text`, which names the parameter that takes the whole body of a call."""
    all_keys: frozenset[str]
    """The parameter names that any tool declares."""
    spaced_keys: frozenset[str]
    """The keys in `all_keys` that contain white space."""
    notes: tuple[str, ...]
    """Sentences on what was wrong with the tools, and how it was handled; at most `MAX_NOTES` on each tool."""

    def __init__(
        self,
        tools: Iterable[ToolLike],
        *,
        marks: Mapping[str, Mapping[str, Any]] | None = None,
        strict: bool = False,
    ) -> None:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise UsageError(f"The tools are {clip(repr(cast(object, tools)))}; expected a list of tools.")
        sources = [read_definition(tool, position, strict=strict) for position, tool in enumerate(tools)]
        names = dict.fromkeys(source.tool.name for source in sources)
        _reject_duplicates([source.tool.name for source in sources])
        for name in marks or ():
            if name not in names:
                raise UsageError(
                    f"Marks are given for {name!r}, which is not one of the tools; the tools are {[*names]!r}."
                )
        self._fill([prepare_tool(source, (marks or {}).get(source.tool.name), strict=strict) for source in sources])
        self._other_names.reject_ambiguous()

    def _fill(self, entries: list[PreparedTool]) -> None:
        self._entries = {entry.tool.name: entry for entry in entries}
        self.names = tuple(self._entries)
        self.all_keys = frozenset[str]().union(*(entry.compiled.declared for entry in entries))
        self.spaced_keys = frozenset(key for key in self.all_keys if len(key.split()) > 1)
        self._cased: dict[str, str] | None = None
        self._folded: dict[str, str] = {}
        self._other_names = OtherNames([entry.tool for entry in entries])
        self.all_names = (*self.names, *self._other_names.by_name)
        self.any_free_text = any(entry.tool.free_text is not None for entry in entries)
        self._by_key: dict[str, list[PreparedTool]] | None = None
        self._json_text: str | None = None
        self.notes = self._other_names.notes + tuple(
            f"the tool {entry.tool.name!r}: {note}"
            for entry in entries
            if entry.notes
            for note in (
                entry.notes
                if len(entry.notes) <= MAX_NOTES
                else (*entry.notes[:MAX_NOTES], f"and {len(entry.notes) - MAX_NOTES} more of the kind")
            )
        )

    @classmethod
    def prepare(cls, tools: Tools | Iterable[ToolLike] | None) -> Tools | None:
        """Return prepared tools. `Tools` and None are returned unchanged; the results for lists of dicts are cached."""
        if tools is None or isinstance(tools, Tools):
            return tools
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            return cls(cast(Any, tools))
        listed = list(tools)
        if not all(isinstance(tool, dict) for tool in listed):
            return cls(listed)
        try:
            text = _ENCODER.encode(listed)
        except (TypeError, ValueError, RecursionError):
            return cls(listed)  # not JSON, so there is no cache key
        return _LIST_CACHE.get(text) or _prepare_texts(text, map(_ENCODER.encode, listed))

    def with_marks(self, marks: Mapping[str, Mapping[str, Any]]) -> Tools:
        """Return a copy with marks set, by tool name; marks for tools that are not in the list are ignored.

        Marks that do not match the tool's parameters, or that conflict with the marks of another tool, are ignored too,
        since the author of a config does not know the tools of a request.
        """
        return _from_entries(
            [
                set_marks(entry, without_unfit_marks(marks[name], entry.compiled)) if name in marks else entry
                for name, entry in self._entries.items()
            ]
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
        """Return the tool that has exactly this name, as its own name or as another name; None if there is none."""
        entry = self._entry(name)
        return entry.tool if entry else None

    def _entry(self, name: str) -> PreparedTool | None:
        return self._entries.get(name) or self._entries.get(self._other_names.by_name.get(name, ""))

    def find(self, written: object) -> tuple[Tool, Fix | None] | None:
        """Return the tool that a model means by a name, with a fix if the names differ; None if the name means no tool.

        Quotes, namespaces, indexes, markers and channel names around the name are removed. Then the name is compared
        exactly, ignoring case, and ignoring `-`, `_`, `.` and spaces too; the last two comparisons need a unique match.
        A tool's own name takes precedence over other names.
        """
        if not isinstance(written, str):
            return None  # models may write any value where a name belongs
        exact = self._entries.get(written)
        if exact:
            return exact.tool, None
        if self._cased is None:  # made on demand, since most names are exact
            self._folded = spelling.unique_by_spelling(self.names, spelling.fold_name)
            self._cased = spelling.unique_by_spelling(self.names, str.casefold)
        for name in spelling.name_candidates(written):
            tool_name = (
                name
                if name in self._entries
                # `Write` for `write`: kilocode#13446.
                else self._cased.get(name.casefold())
                # LFM2 writes `resolve_library_id` for `resolve-library-id` (lmstudio-bug-tracker#1358).
                or self._folded.get(spelling.fold_name(name))
                or self._other_names.find(name)
            )
            if tool_name is not None:
                return self._entries[tool_name].tool, Fix("name", f"{clip(written)!r} to {tool_name!r}")
        return None

    def fits(self, name: str, arguments: dict[str, Any]) -> bool:
        """Return whether unchanged arguments are certainly valid for a tool with exactly this name.

        False does not mean that the arguments are invalid: only `check` decides that. Never raises on any value.
        """
        entry = self._entries.get(name)
        if entry is None or not entry.compiled.declared.issuperset(arguments):
            return False
        try:
            return entry.compiled.is_surely_valid(arguments)
        except Exception:  # noqa: BLE001  `check` reports the problem
            return False

    def check(self, tool: Tool, arguments: dict[str, Any], text: str | None = None, *, guess: bool = True) -> Checked:
        """Adapt arguments to a tool: rename keys to declared names, validate, and coerce values that are invalid.

        `text` is the JSON from which the arguments were parsed, if there is any. If the schema requires a string and
        the model wrote a number, the number is spelled as in this text. With `guess`, a key that contains its value,
        such as `command=ls`, may be split. The only undeclared key may then also be taken for the only missing required
        parameter, unless the tool is dangerous. Never raises on any value, never does I/O, and never changes
        `arguments`.
        """
        return check(self._entries[tool.name], arguments, text, guess=guess and not tool.dangerous, split=guess)

    def infer(self, arguments: Mapping[str, Any], *, optin_only: bool = False) -> tuple[Tool, tuple[Fix, ...]] | None:
        """Find the tool for which a call without a name is meant: the only tool for which the arguments are valid.

        Return this tool, with a fix that records that the tool was inferred; return None if the arguments are valid for
        no tool or for several.

        A tool that is dangerous or marked `infer=False` is never returned. With `optin_only`, only a tool marked
        `infer=True` is returned. The tool must know every key, as a parameter's declared name or as an alias. Tools
        that know a key only as an alias are tried after the others, if the arguments are valid for none of these. Fixes
        to the arguments themselves are not returned; `check` returns those.
        """
        keys = arguments.keys()
        if not keys:
            return None
        likely = [
            entry
            for entry in min((self._declaring(key) for key in keys), key=len)
            if not entry.tool.dangerous and (entry.tool.infer is True or not (optin_only or entry.tool.infer is False))
        ]
        exact = [entry for entry in likely if keys <= entry.compiled.declared]
        loose = [
            entry
            for entry in likely
            if not keys <= entry.compiled.declared and keys <= entry.compiled.declared | entry.aliases.keys()
        ]
        for entries in (exact, loose):
            fitting = self._fitting(entries, arguments)
            if fitting:
                tool = fitting[0].tool if len(fitting) == 1 else None
                return (tool, (Fix("infer", f"arguments without a name fit {tool.name!r} only"),)) if tool else None
        return None

    def _declaring(self, key: str) -> Sequence[PreparedTool]:
        """Return the tools that have a parameter or an alias with this name."""
        if self._by_key is None:
            by_key: dict[str, list[PreparedTool]] = {}
            for entry in self._entries.values():
                for name in (*entry.compiled.declared, *entry.aliases):
                    by_key.setdefault(name, []).append(entry)
            self._by_key = by_key
        return self._by_key.get(key, ())

    def _fitting(self, entries: list[PreparedTool], arguments: Mapping[str, Any]) -> list[PreparedTool]:
        """Return at most two tools for which the arguments are valid.

        If there are too many candidates to try, the first two are returned untried, so that the call counts as
        ambiguous.
        """
        if len(entries) > MAX_INFERENCE_CANDIDATES:
            return entries[:2]
        checks = ((entry, self.check(entry.tool, dict(arguments), guess=False)) for entry in entries)
        fitting = (
            entry
            for entry, checked in checks
            if checked.verified and checked.arguments.keys() <= entry.compiled.declared
        )
        return list(islice(fitting, 2))

    def to_openai(self) -> list[dict[str, Any]]:
        """Return copies of the tools as OpenAI dicts, with the caller's other keys and without promptools' marks."""
        return [
            {**entry.payload, "function": dict(entry.payload["function"])}
            if entry.unreadable
            else copy_json(entry.payload)
            for entry in self._entries.values()
        ]

    @property
    def payloads(self) -> list[dict[str, Any]]:
        """The tools in the form of `to_openai`.

        All requests that offer these tools share the dicts, so they must not be changed.
        """
        return [entry.payload for entry in self._entries.values()]

    @property
    def json_text(self) -> str:
        """`payloads` as JSON text, encoded on first use."""
        if self._json_text is None:
            self._json_text = write_json(self.payloads, "the parameters of a tool")
        return self._json_text

    def relaxed(self, name: str) -> tuple[Schema, tuple[str, ...]]:
        """Return a copy of a tool's schema that is simplified for weak servers, and notes on what was changed.

        The schema is simplified only once. Raises KeyError for an unknown tool.
        """
        schema, notes = self._entries[name].compiled.relaxed
        return copy_json(schema), notes

    def graph(self, name: str) -> SchemaGraph | None:
        """Return a tool's schema as a graph; None for an unknown tool."""
        entry = self._entry(name)
        return entry.compiled.graph if entry else None

    def keys(self, name: str) -> frozenset[str]:
        """Return the parameter names that a tool declares; an empty set for an unknown tool."""
        entry = self._entry(name)
        return entry.compiled.declared if entry else frozenset()

    def types(self, name: str, key: str) -> frozenset[str]:
        """Return the JSON types that a parameter's schema states, if any; raise KeyError for an unknown tool."""
        shape = (self._entry(name) or self._entries[name]).compiled
        if key not in shape.types:
            shape.types[key] = parameter_types(shape.graph, key)
        return shape.types[key]


_LIST_CACHE = RecentCache[Tools](CACHED_LISTS, CACHED_CHARACTERS)
_TOOL_CACHE = RecentCache[PreparedTool](CACHED_TOOLS, CACHED_CHARACTERS)


def _from_entries(entries: list[PreparedTool]) -> Tools:
    """Build `Tools` from prepared entries. The constructor, in contrast, takes definitions as callers write them."""
    made = object.__new__(Tools)
    made._fill(entries)  # pyright: ignore[reportPrivateUsage]
    return made


def _prepare_texts(key: str, texts: Iterable[str]) -> Tools:
    """Prepare tools from their JSON texts; cache each tool, and the whole list under `key`."""
    entries = [_prepare_cached(text, position) for position, text in enumerate(texts)]
    _reject_duplicates([entry.tool.name for entry in entries])
    tools = _from_entries(entries)
    tools._other_names.reject_ambiguous()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    _LIST_CACHE.put(key, tools)
    return tools


def _prepare_cached(text: str, position: int) -> PreparedTool:
    entry = _TOOL_CACHE.get(text)
    if entry is None:
        shallow = text.count("{") + text.count("[") <= MAX_DEPTH
        entry = prepare_tool(read_definition(_DECODER.decode(text), position, copied=shallow), None)
        _TOOL_CACHE.put(text, entry)
    return entry


def _reject_duplicates(names: Sequence[str]) -> None:
    if len(set(names)) == len(names):
        return
    for name, times in Counter(names).items():
        if times > 1:
            raise UsageError(f"Tool {name!r} is given {times} times; give each name once.")
