"""Prepare a tool once, and check the arguments of its calls.

`prepare_tool` checks, links and compiles the tool's schema, and indexes its parameter names. `check` validates the
arguments of each call, and adapts them to the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.errors import UsageError, clip
from promptools.json_values import copy_json, is_array, is_object
from promptools.schema import predicates, spelling
from promptools.schema.budget import UncheckedError
from promptools.schema.documents import type_name
from promptools.schema.graph import SchemaGraph, build_graph
from promptools.schema.spelling import Spellings, alias_table
from promptools.schema.tool_definition import ToolDefinition, apply_marks
from promptools.schema.validate import Validator, check_patterns, describe_errors
from promptools.types import Fix

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.types import Schema, Tool


# The JSON types that a schema allows for a parameter, for dialects that write values as bare text.


def parameter_types(graph: SchemaGraph, key: str) -> frozenset[str]:
    """Return the JSON types that a parameter may have; empty if its schema states no type."""
    types: set[str] = set()
    for node in graph.applied_nodes(graph.root):
        properties = node.get("properties")
        if is_object(properties) and key in properties:
            for sub in graph.applied_nodes(properties[key]):
                types.update(_stated_types(sub))
    return frozenset(types)


def _stated_types(node: dict[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if isinstance(kind, str):
        yield kind
    elif is_array(kind):
        yield from kind
    else:
        yield from map(type_name, node.get("enum", ()))
        yield from map(type_name, [node["const"]] if "const" in node else ())
        yield from (implied for keyword, implied in (("properties", "object"), ("items", "array")) if keyword in node)


# Prepare a tool: check, link and compile its schema, and collect the parameter names that it declares.


@dataclass
class CompiledSchema:
    """A tool's schema, prepared for checking: linked, compiled, and with the names of its parameters."""

    graph: SchemaGraph
    validator: Validator
    declared: frozenset[str]
    required: frozenset[str]
    allows_extra: bool
    """Whether the schema explicitly allows parameters that it does not declare."""
    types: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    @cached_property
    def spellings(self) -> Spellings:
        """The declared parameter names, indexed by spelling."""
        return Spellings(self.declared)

    @cached_property
    def predicate(self) -> predicates.Predicate | None:
        """A fast check that may confirm that arguments are valid; None if none can be compiled for the schema."""
        return predicates.compile_predicate(self.graph)

    @cached_property
    def relaxed(self) -> tuple[Schema, tuple[str, ...]]:
        """A copy of the schema that is simplified for weak servers, and notes on what was changed."""
        from promptools.schema.relax import relax_graph

        return relax_graph(self.graph)

    def is_surely_valid(self, value: Any) -> bool:
        """Return whether a fast check finds that a value is valid.

        False does not mean that the value is invalid: only jsonschema can decide that.
        """
        return self.predicate is not None and self.predicate(value)

    def errors(self, value: Any) -> Iterable[Any]:
        """Return jsonschema's errors for a value; no errors for a valid one."""
        return () if self.is_surely_valid(value) else self.validator.errors(value)


@dataclass(slots=True, eq=False)
class PreparedTool:
    """A prepared tool. `payload` is the dict to send to a server; `notes` say what was wrong with the definition."""

    tool: Tool
    payload: dict[str, Any]
    compiled: CompiledSchema
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    unreadable: bool = False


def prepare_tool(source: ToolDefinition, marks: Mapping[str, Any] | None, *, strict: bool = False) -> PreparedTool:
    """Check, link and index a tool; if `strict`, raise UsageError for a faulty schema.

    The cost is O(n) in the size of the tool.
    """
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
    """Check and link a tool's schema; an unreadable schema is replaced by the empty one, with a note."""
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
        graph.notes = (f"its calls are not checked against its schema, which is sent unchanged: {reason}",)
    return graph


def without_unfit_marks(marks: Mapping[str, Any], compiled: CompiledSchema) -> Mapping[str, Any]:
    """Return `marks` (`aliases`, `free_text`, ...) without those that do not match the tool's parameters."""
    kept = dict(marks)
    aliases = marks.get("aliases")
    if is_object(aliases):
        declared = compiled.declared
        kept["aliases"] = {alias: name for alias, name in aliases.items() if name in declared and alias not in declared}
    if kept.get("free_text") is not None and not _takes_text(compiled, kept["free_text"]):
        del kept["free_text"]
    return kept


def set_marks(entry: PreparedTool, marks: Mapping[str, Any]) -> PreparedTool:
    """Return a copy of a tool with marks (`aliases`, ...) set; raise UsageError if they do not match the tool."""
    entry = replace(entry, tool=apply_marks(entry.tool, marks))
    _check_marks(entry)
    entry.aliases = alias_table(entry.compiled.declared, entry.tool.aliases)
    return entry


def _check_marks(entry: PreparedTool) -> None:
    """Raise UsageError if the tool has marks that do not match its parameters."""
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
    """Return whether the schema declares a parameter that may be a string."""
    types = parameter_types(compiled.graph, key)
    return key in compiled.declared and ("string" in types or not types)


# Fit arguments to a tool: rename their keys to declared names, validate them, and coerce them only if that fails.


_UNWRAPPED = Fix("unwrap", f"the arguments were under {spelling.WRAPPER!r}")


class Checked(NamedTuple):
    """Arguments in the form that the tool takes, the fixes that were applied, and the errors that remain.

    Each of `errors` is a sentence that can be sent to the model. It gives the JSON pointer of the value, and says what
    is wrong and what is expected. Valid arguments are returned unchanged, as the same object.
    """

    arguments: dict[str, Any]
    fixes: tuple[Fix, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether the arguments were found to be valid.

        False if there are errors, and also if the arguments were accepted because validation was abandoned.
        """
        return not self.errors and all(fix.kind != "unchecked" for fix in self.fixes)


def check(entry: PreparedTool, arguments: dict[str, Any], text: str | None, *, guess: bool, split: bool) -> Checked:
    """Validate the arguments of a call, and adapt them to the tool's schema.

    With `guess`, the only undeclared key may be taken for the only missing required parameter. With `split`, a key that
    contains its value, such as `command=ls`, may be split.
    """
    shape = entry.compiled
    if shape.declared.issuperset(arguments):
        return _validate_and_coerce(entry, arguments, (), text)
    inner = spelling.unwrap_arguments(arguments, shape.declared)
    if inner is not None and not (shape.allows_extra and shape.required.issubset(arguments)):
        result = _check_renamed(entry, inner, None, guess=guess, split=split)
        if result.verified and shape.declared.issuperset(result.arguments):
            return result._replace(fixes=(_UNWRAPPED, *result.fixes))
    return _check_renamed(entry, arguments, text, guess=guess, split=split)


def _check_renamed(
    entry: PreparedTool, arguments: dict[str, Any], text: str | None, *, guess: bool, split: bool
) -> Checked:
    shape = entry.compiled
    allowed = shape.required if shape.allows_extra else None
    arguments, fixes = spelling.rename_keys(arguments, shape.spellings, entry.aliases, entry.tool.aliases, allowed)
    result = _validate_and_coerce(entry, arguments, fixes, text)
    if not result.errors:
        return result
    whole, splits = spelling.split_keys(arguments, shape.declared) if split else (arguments, ())
    if splits and _is_surely_valid(shape, whole):
        return Checked(whole, fixes + splits)
    if not guess or shape.allows_extra:
        return result
    guessed, more = spelling.guess_key(arguments, shape.declared, shape.required)
    if not more:
        return result
    other = _validate_and_coerce(entry, guessed, fixes + more, text)
    return other if other.verified else result


def _is_surely_valid(shape: CompiledSchema, arguments: dict[str, Any]) -> bool:
    """Return whether arguments are certainly valid without changes; never raises on any value."""
    try:
        return shape.is_surely_valid(arguments)
    except Exception:  # noqa: BLE001  `_validate_and_coerce` reports the problem
        return False


def _validate_and_coerce(
    entry: PreparedTool, arguments: dict[str, Any], fixes: tuple[Fix, ...], text: str | None
) -> Checked:
    """Validate arguments, and coerce invalid values where possible. Never raises on any value.

    Arguments that could not be validated are accepted, with a fix that says so; a `strict` tool rejects them.
    """
    shape = entry.compiled
    try:
        if shape.is_surely_valid(arguments):
            return Checked(arguments, fixes)
        from promptools.schema import coerce

        value, more, errors = coerce.coerce_value(arguments, shape.errors, coerce.number_lookup(text))
        return Checked(value, fixes + more, describe_errors(errors))
    except UncheckedError as error:
        why = f"not validated: {error}"
        if entry.tool.strict:
            return Checked(arguments, fixes, (f"arguments: {why}",))
        return Checked(arguments, (*fixes, Fix("unchecked", why)))
    except RecursionError:
        return Checked(arguments, fixes, ("arguments: nested too deeply to be checked; nest them less",))
    except Exception as error:  # noqa: BLE001  whatever a validator raises on a model's value, the value is at fault
        return Checked(arguments, fixes, (f"arguments: cannot be checked: {clip(str(error))}",))
