"""One prepared tool: its schema checked, linked and compiled, and the parameter names that it declares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.schema import quick
from promptools.schema.copies import copied
from promptools.schema.graph import Graph, build
from promptools.schema.keys import Spellings, alias_table
from promptools.schema.read import Source, mark
from promptools.schema.shapes import is_object
from promptools.schema.validate import Validator, check_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.types import Schema, Tool


@dataclass(slots=True)
class Shape:
    """What is computed once for a schema."""

    graph: Graph
    validator: Validator
    declared: frozenset[str]
    required: frozenset[str]
    open: bool
    """Whether the schema explicitly allows other parameters."""
    fits: quick.Predicate | None = None
    compiled: bool = False
    relaxed: tuple[Schema, tuple[str, ...]] | None = None
    types: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    _spellings: Spellings | None = None

    @property
    def spellings(self) -> Spellings:
        """The declared names, indexed by spelling."""
        if self._spellings is None:
            self._spellings = Spellings(self.declared)
        return self._spellings

    def surely_fits(self, value: Any) -> bool:
        """Return whether the fast predicate accepts a value. False is no verdict: then jsonschema decides."""
        if not self.compiled:
            self.fits = quick.compile_schema(self.graph)
            self.compiled = True
        return self.fits is not None and self.fits(value)

    def errors(self, value: Any) -> Iterable[Any]:
        """Return jsonschema's errors for a value."""
        return () if self.fits is not None and self.fits(value) else self.validator.errors(value)


@dataclass(slots=True, eq=False)
class Entry:
    """One prepared tool; `sent` is the dict to send for it, `notes` what was wrong with its definition."""

    tool: Tool
    sent: dict[str, Any]
    shape: Shape
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    unread: bool = False


def prepare(source: Source, marks: Mapping[str, Any] | None, *, strict: bool = False) -> Entry:
    """Check, link and index one tool; where `strict`, raise UsageError for a faulty schema. O(n) in the schema."""
    tool = source.tool
    graph = _graph(source, strict=strict)
    if graph.rewritten:
        tool = replace(tool, parameters=copied(graph.root))
    every, sure = list(graph.spread(graph.root)), list(graph.spread(graph.root, ("allOf",)))
    shape = Shape(
        graph,
        Validator(graph),
        declared=frozenset(name for node in every for name in node.get("properties", ())),
        required=frozenset(name for node in sure for name in node.get("required", ())),
        open=any(node.get("additionalProperties", False) is not False or "patternProperties" in node for node in sure),
    )
    notes = (*source.notes, *graph.notes)
    return marked(Entry(tool, source.sent, shape, notes=notes, unread=source.unread), marks or {})


def _graph(source: Source, *, strict: bool) -> Graph:
    """Check and link a tool's schema; one that cannot be read is replaced by the empty schema, with a note."""
    name = source.tool.name
    try:
        graph = build(source.tool.parameters, name, strict=strict)
        check_patterns(graph, name, strict=strict)
    except UsageError as error:
        if strict:
            raise
        reason = str(error).removeprefix(f"Tool {name!r}: ").partition(". ")[0]
        graph = build({}, name)
        graph.rewritten = True
        graph.notes = (f"its calls are not checked by its schema, which goes on as it came: {reason}",)
    return graph


def fitting(marks: Mapping[str, Any], declared: frozenset[str]) -> Mapping[str, Any]:
    """Return marks without the aliases that a tool with these parameters cannot have."""
    aliases = marks.get("aliases")
    if not is_object(aliases):
        return marks
    kept = {alias: name for alias, name in aliases.items() if name in declared and alias not in declared}
    return {**marks, "aliases": kept}


def marked(entry: Entry, marks: Mapping[str, Any]) -> Entry:
    """Return a copy with marks set; raise UsageError for aliases that the tool cannot have."""
    tool, declared = mark(entry.tool, marks), entry.shape.declared
    for alias, name in tool.aliases.items():
        if alias in declared:
            raise UsageError(
                f"Tool {tool.name!r}: the alias {alias!r} (for {name!r}) is itself declared by its schema; a declared "
                f"parameter is never renamed. Take the alias out."
            )
        if name not in declared:
            raise UsageError(
                f"Tool {tool.name!r}: the alias {alias!r} stands for {name!r}, which its schema does not declare; the "
                f"parameters are {sorted(declared)!r}."
            )
    return replace(entry, tool=tool, aliases=alias_table(declared, tool.aliases))
