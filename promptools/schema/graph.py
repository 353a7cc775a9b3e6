"""A tool's schema as a graph: the nodes are its subschemas, and each `$ref` is an edge to the subschema that it means.

All references are resolved here, once, when tools are prepared; nothing later looks one up by its text, and nothing is
ever fetched. The graph holds its own copy of the schema. Nodes are identified by `id()`, which is safe because that
copy keeps them alive.

`build` takes the first of these ways that works:

1. `_walk` accepts the common kind of schema without any library: well-formed keywords that mean the same in every
   draft, references that are JSON pointers from the root, at most `DEEPEST` levels.
2. `strict`: the schema is checked against the meta-schema of its draft, and linked by the `referencing` library, which
   knows `$id`, `$anchor` and `$dynamicRef` (`_link`). Any fault is a UsageError.
3. Not `strict`: a well-formed schema of the latest draft that declares names is linked the same way. Any other one is
   rewritten by `promptools.schema.forms`, which leaves out what cannot be used and notes it.

Finally `_cut_endless` removes references that would make validation go round for ever: a cycle all of whose steps apply
to the same value (`IN_PLACE`). A cycle through `properties` or `items` ends with the value, and stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from promptools.errors import UsageError, clip
from promptools.schema.copies import copied
from promptools.schema.drafts import LATEST, URIS, Draft, draft_of, same_in_latest
from promptools.schema.keywords import RARE, well_formed
from promptools.schema.shapes import is_array as is_array  # noqa: PLC0414  re-exported
from promptools.schema.shapes import is_object as is_object  # noqa: PLC0414
from promptools.types import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


ONE = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
ONE_MORE = ("contentSchema", "unevaluatedItems", "unevaluatedProperties")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
REFS = ("$ref", "$dynamicRef")
_SINGLE = (*ONE, *ONE_MORE)
_HOLDERS = frozenset((*_SINGLE, *LISTS, *MAPS))
IN_PLACE = frozenset(("allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then", *REFS))
"""Keywords whose subschemas apply to the same value: a cycle of these alone never ends."""


MOST_CIRCLES = 16
"""Endless references that are left out of one schema; a schema that has more is not read at all."""
DEEPEST = 128
"""Nesting of subschemas that is checked here; what is deeper is left to jsonschema and its limits."""


def library(name: str) -> Any:
    """Import a library on first use: only callers with tools wait for jsonschema, which has no usable types anyway."""
    return import_module(name)


def pointer(path: Sequence[str | int]) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join([f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path])


def at_pointer(root: Any, reference: str) -> Any:
    """Return the target of a reference such as `#/$defs/a`; None where there is none, and for any other form."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    node = root
    for step in unquote(reference[1:]).split("/")[1:]:
        if is_object(node):
            node = node.get(step.replace("~1", "/").replace("~0", "~"))
        elif is_array(node) and step.isdecimal() and step.isascii():
            node = node[int(step)] if len(step) < 9 and int(step) < len(node) else None
        else:
            return None
    return node


def children(node: Schema) -> Iterator[tuple[str, str, Any]]:
    """Yield `(keyword, pointer from the node, subschema)` for each direct subschema of a node."""
    if _HOLDERS.isdisjoint(node):
        return
    for keyword in _SINGLE:
        if keyword in node:
            yield keyword, f"/{keyword}", node[keyword]
    for keyword in LISTS:
        if keyword in node:
            for index, sub in enumerate(node[keyword]):
                yield keyword, f"/{keyword}/{index}", sub
    for keyword in MAPS:
        if keyword in node:
            for name, sub in node[keyword].items():
                yield keyword, pointer([keyword, name]), sub


def held(node: Schema, word: str) -> list[Any]:
    """Return the subschemas under a keyword of a node."""
    value = node[word]
    return [*value.values()] if word in MAPS else value if word in LISTS else [value]


@dataclass(slots=True)
class Graph:
    """A checked copy of one schema; `targets` maps the id of a node to the nodes that its references mean."""

    root: Schema
    where: dict[int, str] = field(default_factory=dict[int, str])
    """JSON pointer of each node, by its id."""
    nodes: list[Schema] = field(default_factory=list["Schema"])
    notes: tuple[str, ...] = ()
    """What was wrong with the schema, each note with its JSON pointer."""
    rewritten: bool = False
    """Whether the root was rewritten: the schema is of an older draft, or was malformed."""
    targets: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])

    def spread(
        self, node: Any, words: tuple[str, ...] = ("allOf", "anyOf", "dependentSchemas", "else", "oneOf", "then")
    ) -> Iterator[Schema]:
        """Yield a node and those that apply to the same value, reached by references and by the given keywords."""
        seen: set[int] = set()
        stack = [node]
        while stack:
            here = stack.pop()
            if is_object(here) and id(here) not in seen:
                seen.add(id(here))
                yield here
                stack.extend(sub for word in reversed(words) if word in here for sub in reversed(held(here, word)))
                stack.extend(reversed(self.targets.get(id(here), ())))


def build(schema: Any, tool: str, *, strict: bool = False) -> Graph:
    """Copy, check and link a schema; `tool` names the tool in errors. O(n) where its references are JSON pointers.

    What is malformed is left out, with a note; where `strict`, it is a UsageError, and so is a reference that does not
    resolve or never ends. Raises UsageError for a schema that is nested too deeply.
    """
    draft = draft_of(schema)
    try:
        graph = Graph(copied(schema))
        if not is_object(schema) or not _walk(graph, draft):
            graph = _checked(schema, tool, draft) if strict else _read(graph.root, tool, draft)
        if graph.targets:
            _cut_endless(graph, tool, strict=strict)
    except RecursionError:
        raise UsageError(f"Tool {tool!r}: its parameters are nested too deeply to be checked; flatten them.") from None
    return graph


def _checked(schema: Any, tool: str, draft: Draft) -> Graph:
    """Check a schema against the meta-schema of its draft, and link it."""
    _check(schema, tool, "", draft)
    if draft != LATEST:
        graph = _rewritten(copied(schema), tool, draft)
        if graph.notes:
            raise UsageError(f"Tool {tool!r}: its parameters hold what cannot be used: {graph.notes[0]}.")
        return graph
    graph = Graph(copied(schema))
    _link(graph, tool)
    return graph


def _read(root: Any, tool: str, draft: Draft) -> Graph:
    """Link a copy of a schema, rewritten unless it is well formed and of the latest draft."""
    graph = Graph(root)
    try:
        if draft == LATEST and _names_places(root):
            _link(graph, tool)
            return graph
    except UsageError:
        pass
    return _rewritten(root, tool, draft)


def _names_places(schema: Any) -> bool:
    """Return whether any object in a schema declares a name (`$id`, `$anchor`, ...), or refers to one."""
    stack = [schema]
    while stack:
        current = stack.pop()
        if is_object(current):
            if not RARE.isdisjoint(current):
                return True
            stack.extend(current.values())
        elif is_array(current):
            stack.extend(current)
    return False


def _rewritten(root: Any, tool: str, draft: Draft) -> Graph:
    from promptools.schema.forms import read_schema

    root, notes = read_schema(root, draft)
    graph = Graph(root)
    if not _walk(graph, LATEST):  # nested more than DEEPEST levels
        graph = Graph(root)
        _link(graph, tool)
    graph.notes, graph.rewritten = tuple(notes), True
    return graph


@cache
def _metaschema(draft: Draft) -> Any:
    validator = library("jsonschema.validators").validator_for({"$schema": URIS[draft]})
    return validator(validator.META_SCHEMA, registry=library("referencing").Registry())


def _check(schema: Any, tool: str, base: str, draft: Draft = LATEST) -> None:
    error = library("jsonschema.exceptions").best_match(_metaschema(draft).iter_errors(schema))
    if error is not None:
        at = base + pointer(error.absolute_path)
        named = URIS[draft].rpartition("/schema")[0].rpartition("draft")[2].strip("-/")
        raise UsageError(
            f"Tool {tool!r}: its parameters are no JSON Schema (draft {named}) at {at or '/'!r}: "
            f"{clip(error.message)}. Mend the schema there."
        )


def _walk(graph: Graph, draft: Draft = LATEST) -> bool:
    """Check and link a schema of the common kind; return False, with the graph half filled, where it is another.

    Common means well-formed keywords that are the same in all drafts, and references by JSON pointer from the root.
    """
    stack: list[tuple[Any, str, int]] = [(graph.root, "", 0)]
    referring: list[tuple[Schema, str]] = []
    while stack or referring:
        if stack:
            node, at, depth = stack.pop()
        else:
            referrer, where = referring.pop()
            target = at_pointer(graph.root, referrer["$ref"])
            if not is_object(target) and not isinstance(target, bool):
                return False
            graph.targets[id(referrer)] = [target]
            node, at, depth = target, where, 0
        if not is_object(node) or id(node) in graph.where:
            continue
        if depth > DEEPEST or not well_formed(node) or not same_in_latest(node, draft):
            return False
        here = node
        graph.where[id(here)] = at
        graph.nodes.append(here)
        here.pop("$schema", None)  # or jsonschema would change its draft, and its regex engine, midway
        if "$ref" in here:
            referring.append((here, f"{at}/$ref"))
        stack.extend((sub, at + step, depth + 1) for _, step, sub in children(here))
    return True


def _link(graph: Graph, tool: str) -> None:
    """Check and link any schema with the libraries that know every keyword and every form of reference."""
    _check(graph.root, tool, "")
    resource = library("referencing.jsonschema").DRAFT202012.create_resource
    # crawled now, or the resolver would search the whole schema for each reference
    uri = resource(graph.root).id() or ""
    start = library("referencing").Registry().with_resource(uri, resource(graph.root)).crawl().resolver(uri)
    later: list[tuple[Any, Any, str]] = []
    stack: list[tuple[Any, Any, str]] = [(graph.root, start, "")]
    while stack or later:
        if stack:
            node, resolver, at = stack.pop()
        else:
            node, resolver, at = later.pop()
            if is_object(node) and id(node) not in graph.where:
                _check(node, tool, at)  # not under a keyword that holds schemas, so the meta-schema has not seen it
        if not is_object(node) or id(node) in graph.where:
            continue
        here = node
        graph.where[id(here)] = at
        graph.nodes.append(here)
        here.pop("$schema", None)  # or jsonschema would change its draft, and its regex engine, midway
        if at:
            resolver = resolver.in_subresource(resource(here))
        for keyword in REFS:
            if keyword in here:
                resolved = _look_up(resolver, here[keyword], tool, f"{at}/{keyword}")
                graph.targets.setdefault(id(here), []).append(resolved.contents)
                later.append((resolved.contents, resolved.resolver, f"{at}/{keyword}"))
        stack.extend((sub, resolver, at + step) for _, step, sub in children(here))


def _look_up(resolver: Any, ref: str, tool: str, at: str) -> Any:
    problems = library("referencing.exceptions")
    try:
        resolved = resolver.lookup(ref)
    except (problems.Unresolvable, problems.NoSuchResource, LookupError, TypeError, ValueError):
        raise UsageError(
            f"Tool {tool!r}: the reference {clip(ref)!r} at {at!r} leads nowhere. Nothing is ever fetched: put what it "
            f"means under '$defs' of the tool's own parameters."
        ) from None
    if not isinstance(resolved.contents, dict | bool):
        raise UsageError(f"Tool {tool!r}: the reference {clip(ref)!r} at {at!r} leads to something that is no schema.")
    return resolved


def _cut_endless(graph: Graph, tool: str, *, strict: bool) -> None:
    """Remove a reference of each cycle that never moves on to a part of the value; raise UsageError where `strict`."""
    cut = 0
    while cycle := _endless(graph):
        following = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        node = next((node for node, after in following if any(target is after for target in _meant(graph, node))), None)
        if strict or node is None or cut == MOST_CIRCLES:
            at = graph.where[id(cycle[-1])] or "/"
            raise UsageError(
                f"Tool {tool!r}: the references at {at!r} lead back to themselves without end. Let one of them "
                f"go through 'properties' or 'items', or take it out."
            )
        del graph.targets[id(node)]
        for keyword in REFS:
            node.pop(keyword, None)
        graph.notes += (f"{graph.where[id(node)] or '/'}: a reference without end was left out",)
        cut += 1


def _meant(graph: Graph, node: Schema) -> list[Any]:
    """Return the targets of a node's references."""
    return graph.targets.get(id(node), [])


def _endless(graph: Graph) -> list[Schema]:
    """Return a cycle of schemas that all apply to the same value, or an empty list.

    The node by which the cycle was entered comes last. The search is depth-first without recursion: `path` holds the
    nodes being visited, `done` those that lead to no cycle.
    """
    done: set[int] = set()
    for start in graph.nodes:
        path: dict[int, Schema] = {}
        stack: list[tuple[Schema, bool]] = [(start, False)]
        while stack:
            node, left = stack.pop()
            if left:
                del path[id(node)]
                done.add(id(node))
            elif id(node) in path:
                ids = [*path]
                cycle = [path[key] for key in ids[ids.index(id(node)) :]]
                return [*cycle[1:], cycle[0]]
            elif id(node) not in done:
                path[id(node)] = node
                stack.append((node, True))
                stack.extend((sub, False) for sub in _again(graph, node))
    return []


def _again(graph: Graph, node: Schema) -> Iterator[Schema]:
    for target in _meant(graph, node):
        if is_object(target):
            yield target
    for keyword, _, sub in children(node):
        if keyword in IN_PLACE and is_object(sub):
            yield sub
