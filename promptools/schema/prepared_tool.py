"""One prepared tool: its schema checked, linked and compiled, and the parameter names that it declares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.schema.documents.graph import SchemaGraph, build_graph
from promptools.schema.documents.json_copy import copy_json
from promptools.schema.documents.json_guards import is_object
from promptools.schema.fitting import predicates
from promptools.schema.fitting.argument_keys import Spellings, alias_table
from promptools.schema.fitting.validate import Validator, check_patterns
from promptools.schema.parameter_types import parameter_types
from promptools.schema.tool_definition import ToolDefinition, apply_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.types import Schema, Tool


@dataclass
class CompiledSchema:
    """What is computed once for a schema."""

    graph: SchemaGraph
    validator: Validator
    declared: frozenset[str]
    required: frozenset[str]
    allows_extra: bool
    """Whether the schema explicitly allows other parameters."""
    types: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    @cached_property
    def spellings(self) -> Spellings:
        """The declared names, indexed by spelling."""
        return Spellings(self.declared)

    @cached_property
    def predicate(self) -> predicates.Predicate | None:
        """The fast predicate; None if the schema has none."""
        return predicates.compile_predicate(self.graph)

    @cached_property
    def relaxed(self) -> tuple[Schema, tuple[str, ...]]:
        """The relaxed copy of the schema, and notes on what was changed."""
        from promptools.schema.relax import relax_graph

        return relax_graph(self.graph)

    def is_surely_valid(self, value: Any) -> bool:
        """Whether the fast predicate accepts a value. False is no verdict: then jsonschema decides."""
        return self.predicate is not None and self.predicate(value)

    def errors(self, value: Any) -> Iterable[Any]:
        """Return jsonschema's errors for a value."""
        return () if self.is_surely_valid(value) else self.validator.errors(value)


@dataclass(slots=True, eq=False)
class PreparedTool:
    """One prepared tool; `payload` is the dict to send for it, `notes` what was wrong with its definition."""

    tool: Tool
    payload: dict[str, Any]
    compiled: CompiledSchema
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    unreadable: bool = False


def prepare_tool(source: ToolDefinition, marks: Mapping[str, Any] | None, *, strict: bool = False) -> PreparedTool:
    """Check, link and index one tool; where `strict`, raise UsageError for a faulty schema. O(n) in the schema."""
    tool = source.tool
    graph = _link_schema(source, strict=strict)
    if graph.rewritten:
        tool = replace(tool, parameters=copy_json(graph.root))
    every, sure = list(graph.applied_nodes(graph.root)), list(graph.applied_nodes(graph.root, ("allOf",)))
    shape = CompiledSchema(
        graph,
        Validator(graph),
        declared=frozenset(name for node in every for name in node.get("properties", ())),
        required=frozenset(name for node in sure for name in node.get("required", ())),
        allows_extra=any(
            node.get("additionalProperties", False) is not False or "patternProperties" in node for node in sure
        ),
    )
    notes = (*source.notes, *graph.notes)
    tool = apply_marks(tool, marks) if marks else tool
    entry = PreparedTool(tool, source.payload, shape, notes=notes, unreadable=source.unreadable)
    _check_marks(entry)
    entry.aliases = alias_table(shape.declared, tool.aliases)
    return entry


def _link_schema(source: ToolDefinition, *, strict: bool) -> SchemaGraph:
    """Check and link a tool's schema; one that cannot be read is replaced by the empty schema, with a note."""
    name = source.tool.name
    try:
        graph = build_graph(source.tool.parameters, name, strict=strict)
        check_patterns(graph, name, strict=strict)
    except UsageError as error:
        if strict:
            raise
        reason = str(error).removeprefix(f"Tool {name!r}: ").partition(". ")[0]
        graph = build_graph({}, name)
        graph.rewritten = True
        graph.notes = (f"its calls are not checked by its schema, which goes on as it came: {reason}",)
    return graph


def without_unfit_marks(marks: Mapping[str, Any], compiled: CompiledSchema) -> Mapping[str, Any]:
    """Return marks without what a tool with these parameters cannot have."""
    kept = dict(marks)
    aliases = marks.get("aliases")
    if is_object(aliases):
        declared = compiled.declared
        kept["aliases"] = {alias: name for alias, name in aliases.items() if name in declared and alias not in declared}
    if kept.get("free_text") is not None and not _takes_text(compiled, kept["free_text"]):
        del kept["free_text"]
    return kept


def set_marks(entry: PreparedTool, marks: Mapping[str, Any]) -> PreparedTool:
    """Return a copy with marks set; raise UsageError for those that the tool cannot have."""
    entry = replace(entry, tool=apply_marks(entry.tool, marks))
    _check_marks(entry)
    entry.aliases = alias_table(entry.compiled.declared, entry.tool.aliases)
    return entry


def _check_marks(entry: PreparedTool) -> None:
    """Raise UsageError for marks that the tool cannot have."""
    tool, declared = entry.tool, entry.compiled.declared
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
    if tool.free_text is not None and not _takes_text(entry.compiled, tool.free_text):
        raise UsageError(
            f"Tool {tool.name!r}: the mark 'free_text' is {clip(repr(tool.free_text))}, which its schema does not "
            f"declare as a string; the parameters are {sorted(declared)!r}."
        )


def _takes_text(compiled: CompiledSchema, key: str) -> bool:
    """Whether the schema declares a parameter that may be a string."""
    types = parameter_types(compiled.graph, key)
    return key in compiled.declared and ("string" in types or not types)
