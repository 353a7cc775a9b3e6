"""A tool's schema as a graph: its nodes are the subschemas, and each `$ref` is an edge to the subschema it points to.

All references are resolved once, when tools are prepared. Nothing looks up a reference by its text later, and nothing
is ever fetched. The graph holds its own copy of the schema. Nodes are identified by `id()`, which is safe because that
copy keeps them alive.

`build_graph` takes the first of these ways that works:

1. `_link_common` accepts the common kind of schema without any library. Its keywords are well formed and mean the same
   in every draft, its references are JSON pointers from the root, and it has at most `MAX_DEPTH` levels.
2. `strict`: the schema is checked against the meta-schema of its draft, and linked by the `referencing` library, which
   knows `$id`, `$anchor` and `$dynamicRef` (`_link_any`). Any fault is a UsageError.
3. Not `strict`: a well-formed schema of the latest draft that declares names (`$id`, `$anchor`) is linked the same way.
   Any other schema is rewritten by `promptools.schema.normalize`, which leaves out what cannot be used and adds a note
   on it.

Finally `_cut_cycles` removes references that would make validation endless: those that close a cycle all of whose steps
apply to the same value (`IN_PLACE`). A cycle through `properties` or `items` ends where the value ends, and is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import copy_json, is_array, is_object
from promptools.schema.documents import (
    IN_PLACE,
    LATEST,
    RARE_KEYWORDS,
    REFERENCES,
    URIS,
    Draft,
    children,
    draft_of,
    import_library,
    pointer,
    resolve_pointer,
    same_in_latest,
    subschemas_under,
    well_formed,
)
from promptools.types import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


MAX_CYCLES = 16
"""Maximum number of references that are left out of a schema because they would make validation endless.

A schema with more such references raises UsageError.
"""
MAX_DEPTH = 128
"""Maximum nesting of subschemas that this module checks; a deeper schema is left to jsonschema and its limits."""
INLINED = frozenset(
    ["$ref", "allOf", "$defs", "definitions", "$id", "$anchor", "$dynamicAnchor", "$comment", "$schema", "$vocabulary"]
)
"""Keywords that are not needed any more once references are inlined and `allOf` is merged."""


@dataclass(slots=True)
class SchemaGraph:
    """A checked copy of one schema; `targets` maps the id of a node to the nodes that its references point to."""

    root: Schema
    pointers: dict[int, str] = field(default_factory=dict[int, str])
    """Maps the id of each node to the node's JSON pointer."""
    nodes: list[Schema] = field(default_factory=list["Schema"])
    notes: tuple[str, ...] = ()
    """What was wrong with the schema. A note on a part of the schema begins with the JSON pointer of that part."""
    rewritten: bool = False
    """Whether the root was rewritten, because the schema is of an older draft, malformed or nested too deeply."""
    targets: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])

    def add(self, node: Schema, at: str) -> None:
        """Add a node with the JSON pointer `at`."""
        self.pointers[id(node)] = at
        self.nodes.append(node)
        node.pop("$schema", None)  # else jsonschema would change its draft, and its regex engine, midway

    def applied_nodes(
        self, node: Any, keywords: tuple[str, ...] = ("allOf", "anyOf", "dependentSchemas", "else", "oneOf", "then")
    ) -> Iterator[Schema]:
        """Yield a node, and all nodes that apply to the same value because of references or the given keywords."""
        seen: set[int] = set()
        stack = [node]
        while stack:
            node = stack.pop()
            if is_object(node) and id(node) not in seen:
                seen.add(id(node))
                yield node
                stack.extend(
                    sub for word in reversed(keywords) if word in node for sub in reversed(subschemas_under(node, word))
                )
                stack.extend(reversed(self.targets.get(id(node), ())))


def merge_nodes(nodes: Iterable[Schema]) -> Schema:
    """Merge schemas that apply to the same value.

    The first value of a keyword is kept, except that `properties` and `required` are combined from all schemas.
    """
    made: Schema = {}
    for node in nodes:
        for keyword, value in node.items():
            if keyword == "properties":
                mine = made.get(keyword, {})
                made[keyword] = {**mine, **value, **mine}
            elif keyword == "required":
                made[keyword] = list(dict.fromkeys([*made.get(keyword, ()), *value]))
            elif keyword not in INLINED:
                made.setdefault(keyword, value)
    return made


def build_graph(schema: Any, tool: str, *, strict: bool = False) -> SchemaGraph:
    """Copy, check and link a schema; `tool` names the tool in errors. O(n) if its references are JSON pointers.

    Malformed parts, references that do not resolve, and references that would make validation endless are left out with
    a note; if `strict`, they raise UsageError. A schema that is nested too deeply always raises UsageError.
    """
    draft = draft_of(schema)
    try:
        graph = SchemaGraph(copy_json(schema))
        if not is_object(schema) or not _link_common(graph, draft):
            graph = _link_strict(schema, tool, draft) if strict else _link_lenient(graph.root, tool, draft)
        if graph.targets:
            _cut_cycles(graph, tool, strict=strict)
    except RecursionError:
        raise UsageError(f"Tool {tool!r}: its parameters are nested too deeply to be checked; flatten them.") from None
    return graph


def _link_strict(schema: Any, tool: str, draft: Draft) -> SchemaGraph:
    """Check a schema against the meta-schema of its draft, and link it; raise UsageError for any fault."""
    _check_metaschema(schema, tool, "", draft)
    if draft != LATEST:
        graph = _link_normalized(copy_json(schema), tool, draft)
        if graph.notes:
            raise UsageError(f"Tool {tool!r}: its parameters hold what cannot be used: {graph.notes[0]}.")
        return graph
    graph = SchemaGraph(copy_json(schema))
    _link_any(graph, tool)
    return graph


def _link_lenient(root: Any, tool: str, draft: Draft) -> SchemaGraph:
    """Link `root`, a copy of a schema that may be changed.

    A well-formed schema of the latest draft that declares names (`$id`, `$anchor`) is linked as it is. Any other schema
    is rewritten first.
    """
    graph = SchemaGraph(root)
    try:
        if draft == LATEST and _declares_names(root):
            _link_any(graph, tool)
            return graph
    except UsageError:
        pass
    return _link_normalized(root, tool, draft)


def _declares_names(schema: Any) -> bool:
    """Return whether any object in a schema declares a name (`$id`, `$anchor`, ...), or refers to one."""
    stack = [schema]
    while stack:
        current = stack.pop()
        if is_object(current):
            if not RARE_KEYWORDS.isdisjoint(current):
                return True
            stack.extend(current.values())
        elif is_array(current):
            stack.extend(current)
    return False


def _link_normalized(root: Any, tool: str, draft: Draft) -> SchemaGraph:
    from promptools.schema.normalize import normalize_schema

    root, notes = normalize_schema(root, draft)
    graph = SchemaGraph(root)
    if not _link_common(graph, LATEST):  # nested more than MAX_DEPTH levels
        graph = SchemaGraph(root)
        _link_any(graph, tool)
    graph.notes, graph.rewritten = tuple(notes), True
    return graph


@cache
def _metaschema(draft: Draft) -> Any:
    validator = import_library("jsonschema.validators").validator_for({"$schema": URIS[draft]})
    return validator(validator.META_SCHEMA, registry=import_library("referencing").Registry())


def _check_metaschema(schema: Any, tool: str, base: str, draft: Draft = LATEST) -> None:
    error = import_library("jsonschema.exceptions").best_match(_metaschema(draft).iter_errors(schema))
    if error is not None:
        at = base + pointer(error.absolute_path)
        named = URIS[draft].rpartition("/schema")[0].rpartition("draft")[2].strip("-/")
        raise UsageError(
            f"Tool {tool!r}: its parameters are not a valid JSON Schema (draft {named}) at {at or '/'!r}: "
            f"{clip(error.message)}. Correct the schema there."
        )


def _link_common(graph: SchemaGraph, draft: Draft = LATEST) -> bool:
    """Check and link a schema of the common kind; return False for any other kind, with the graph partly filled.

    A schema of the common kind has well-formed keywords that mean the same in all drafts, and references that are JSON
    pointers from the root.
    """
    stack: list[tuple[Any, str, int]] = [(graph.root, "", 0)]
    referring: list[tuple[Schema, str]] = []
    while stack or referring:
        if stack:
            node, at, depth = stack.pop()
        else:
            referrer, where = referring.pop()
            target = resolve_pointer(graph.root, referrer["$ref"])
            if not is_object(target) and not isinstance(target, bool):
                return False
            graph.targets[id(referrer)] = [target]
            node, at, depth = target, where, 0
        if not is_object(node) or id(node) in graph.pointers:
            continue
        if depth > MAX_DEPTH or not well_formed(node) or not same_in_latest(node, draft):
            return False
        graph.add(node, at)
        if "$ref" in node:
            referring.append((node, f"{at}/$ref"))
        stack.extend((sub, at + step, depth + 1) for _, step, sub in children(node))
    return True


def _link_any(graph: SchemaGraph, tool: str) -> None:
    """Check and link any schema, with libraries that know every keyword and every form of reference."""
    _check_metaschema(graph.root, tool, "")
    resource = import_library("referencing.jsonschema").DRAFT202012.create_resource
    # crawled now: otherwise the resolver would search the whole schema for each reference
    uri = resource(graph.root).id() or ""
    start = import_library("referencing").Registry().with_resource(uri, resource(graph.root)).crawl().resolver(uri)
    later: list[tuple[Any, Any, str]] = []
    stack: list[tuple[Any, Any, str]] = [(graph.root, start, "")]
    while stack or later:
        if stack:
            node, resolver, at = stack.pop()
        else:
            node, resolver, at = later.pop()
            if is_object(node) and id(node) not in graph.pointers:
                # this node is not under a keyword that holds schemas, so the meta-schema has not checked it
                _check_metaschema(node, tool, at)
        if not is_object(node) or id(node) in graph.pointers:
            continue
        graph.add(node, at)
        if at:
            resolver = resolver.in_subresource(resource(node))
        for keyword in REFERENCES:
            if keyword in node:
                resolved = _resolve(resolver, node[keyword], tool, f"{at}/{keyword}")
                graph.targets.setdefault(id(node), []).append(resolved.contents)
                later.append((resolved.contents, resolved.resolver, f"{at}/{keyword}"))
        stack.extend((sub, resolver, at + step) for _, step, sub in children(node))


def _resolve(resolver: Any, ref: str, tool: str, at: str) -> Any:
    problems = import_library("referencing.exceptions")
    try:
        resolved = resolver.lookup(ref)
    except (problems.Unresolvable, problems.NoSuchResource, LookupError, TypeError, ValueError):
        raise UsageError(
            f"Tool {tool!r}: the reference {clip(ref)!r} at {at!r} leads nowhere. Nothing is ever fetched: put what it "
            f"means under '$defs' of the tool's own parameters."
        ) from None
    if not isinstance(resolved.contents, dict | bool):
        raise UsageError(
            f"Tool {tool!r}: the reference {clip(ref)!r} at {at!r} leads to something that is not a schema."
        )
    return resolved


def _cut_cycles(graph: SchemaGraph, tool: str, *, strict: bool) -> None:
    """Remove a reference from each cycle of schemas that all apply to the same value.

    Raises UsageError if there is such a cycle and `strict` is set, or if there are more than `MAX_CYCLES`.
    """
    cut = 0
    while cycle := _find_cycle(graph):
        following = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        node = next(
            (node for node, after in following if any(target is after for target in graph.targets.get(id(node), ()))),
            None,
        )
        if strict or node is None or cut == MAX_CYCLES:
            at = graph.pointers[id(cycle[-1])] or "/"
            raise UsageError(
                f"Tool {tool!r}: the references at {at!r} lead back to themselves without end. Let one of them "
                f"go through 'properties' or 'items', or take it out."
            )
        del graph.targets[id(node)]
        for keyword in REFERENCES:
            node.pop(keyword, None)
        graph.notes += (f"{graph.pointers[id(node)] or '/'}: a reference without end was left out",)
        cut += 1


def _find_cycle(graph: SchemaGraph) -> list[Schema]:
    """Return a cycle of schemas that all apply to the same value, or an empty list.

    The node at which the search entered the cycle comes last.
    """
    nodes = {id(node): node for node in graph.nodes}
    sorter = TopologicalSorter(dict.fromkeys(nodes, ()))
    for node in graph.nodes:
        for successor in reversed([*_in_place_successors(graph, node)]):
            sorter.add(id(successor), id(node))
    try:
        sorter.prepare()
    except CycleError as error:
        return [nodes[key] for key in error.args[1][1:]]
    return []


def _in_place_successors(graph: SchemaGraph, node: Schema) -> Iterator[Schema]:
    for target in graph.targets.get(id(node), ()):
        if is_object(target):
            yield target
    for keyword, _, sub in children(node):
        if keyword in IN_PLACE and is_object(sub):
            yield sub
