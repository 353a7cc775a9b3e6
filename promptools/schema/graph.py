"""A tool's schema as a graph: each subschema once, and each `$ref` with the subschema that it means.

All references are resolved here, once, when tools are prepared: nothing later looks one up by its text.
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
from promptools.schema.shapes import is_array as is_array  # noqa: PLC0414  others have it from here
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
"""Keywords whose subschemas look at the same value again: a circle of these alone never ends."""


MOST_CIRCLES = 16
"""References without end that are left out of one schema; one that has more is not read at all."""
DEEPEST = 128
"""Levels of subschemas in subschemas that are checked here; what is deeper is left to jsonschema, and its limits."""


def library(name: str) -> Any:
    """Import a library on first use: who offers no tools does not wait for jsonschema, and it has no usable types."""
    return import_module(name)


def pointer(path: Sequence[str | int]) -> str:
    """Write a path as a JSON pointer (RFC 6901)."""
    return "".join([f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path])


def at_pointer(root: Any, reference: str) -> Any:
    """Return what a reference such as `#/$defs/a` means; None for nothing, and for a reference of another form."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = root
    for step in unquote(reference[1:]).split("/")[1:]:
        if is_object(found):
            found = found.get(step.replace("~1", "/").replace("~0", "~"))
        elif is_array(found) and step.isdecimal() and step.isascii():
            found = found[int(step)] if len(step) < 9 and int(step) < len(found) else None
        else:
            return None
    return found


def children(node: Schema) -> Iterator[tuple[str, str, Any]]:
    """Yield `(keyword, pointer from the node, subschema)` for each place where a subschema may stand."""
    if _HOLDERS.isdisjoint(node):
        return
    for word in _SINGLE:
        if word in node:
            yield word, f"/{word}", node[word]
    for word in LISTS:
        if word in node:
            for index, each in enumerate(node[word]):
                yield word, f"/{word}/{index}", each
    for word in MAPS:
        if word in node:
            for name, each in node[word].items():
                yield word, pointer([word, name]), each


def held(node: Schema, word: str) -> list[Any]:
    """Return the subschemas under one keyword that a node has."""
    value = node[word]
    return [*value.values()] if word in MAPS else value if word in LISTS else [value]


@dataclass(slots=True)
class Graph:
    """A checked copy of one schema; `targets` gives, by the id of a node, the node that its reference means."""

    root: Schema
    where: dict[int, str] = field(default_factory=dict[int, str])
    """JSON pointer of each node, by the node's id."""
    nodes: list[Schema] = field(default_factory=list["Schema"])
    notes: tuple[str, ...] = ()
    """What of the schema was not as it should be, each with its JSON pointer."""
    rewritten: bool = False
    """The root is not the schema as it came, but as it was read: of another draft, or odd."""
    targets: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])

    def spread(
        self, node: Any, words: tuple[str, ...] = ("allOf", "anyOf", "dependentSchemas", "else", "oneOf", "then")
    ) -> Iterator[Schema]:
        """Yield a node and those that speak of the same value: through references and the given keywords."""
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

    What has not its form is left out, and a note says so; where it is `strict`, that is a UsageError, and so is a
    reference that leads nowhere or never ends. Raises UsageError for what is nested too deeply.
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
    """Check a schema by the meta-schema of its draft, and link it."""
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
    """Read what can be read of a copy, and link it; the well-formed ones of the latest draft stay as they are."""
    graph = Graph(root)
    try:
        if draft == LATEST and _names_places(root):
            _link(graph, tool)
            return graph
    except UsageError:
        pass
    return _rewritten(root, tool, draft)


def _names_places(schema: Any) -> bool:
    """Whether any object in a schema has a keyword that names a place, or refers to one by its name."""
    stack = [schema]
    while stack:
        here = stack.pop()
        if is_object(here):
            if not RARE.isdisjoint(here):
                return True
            stack.extend(here.values())
        elif is_array(here):
            stack.extend(here)
    return False


def _rewritten(root: Any, tool: str, draft: Draft) -> Graph:
    from promptools.schema.forms import read_schema

    root, notes = read_schema(root, draft)
    graph = Graph(root)
    if not _walk(graph, LATEST):  # it is nested deeply
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
    """Check and link the common kind of schema, where jsonschema would find no fault; false where it is to decide.

    Common are well-formed keywords that say the same in all drafts, and references by JSON pointers from the root.
    """
    stack: list[tuple[Any, str, int]] = [(graph.root, "", 0)]
    referring: list[tuple[Schema, str]] = []
    while stack or referring:
        if stack:
            node, at, depth = stack.pop()
        else:
            referrer, where = referring.pop()
            found = at_pointer(graph.root, referrer["$ref"])
            if not is_object(found) and not isinstance(found, bool):
                return False
            graph.targets[id(referrer)] = [found]
            node, at, depth = found, where, 0
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
    """Check and link any schema by the libraries that know every keyword and every form of reference."""
    _check(graph.root, tool, "")
    resource = library("referencing.jsonschema").DRAFT202012.create_resource
    # crawled now: a resolver that was not would look through the whole schema for each reference
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
                _check(node, tool, at)  # it is where no keyword of the draft holds a schema
        if not is_object(node) or id(node) in graph.where:
            continue
        here = node
        graph.where[id(here)] = at
        graph.nodes.append(here)
        here.pop("$schema", None)  # or jsonschema would change its draft, and its regex engine, midway
        if at:
            resolver = resolver.in_subresource(resource(here))
        for word in REFS:
            if word in here:
                found = _look_up(resolver, here[word], tool, f"{at}/{word}")
                graph.targets.setdefault(id(here), []).append(found.contents)
                later.append((found.contents, found.resolver, f"{at}/{word}"))
        stack.extend((sub, resolver, at + step) for _, step, sub in children(here))


def _look_up(resolver: Any, ref: str, tool: str, at: str) -> Any:
    problems = library("referencing.exceptions")
    try:
        found = resolver.lookup(ref)
    except (problems.Unresolvable, problems.NoSuchResource, LookupError, TypeError, ValueError):
        raise UsageError(
            f"Tool {tool!r}: the reference {clip(ref)!r} at {at!r} leads nowhere. Nothing is ever fetched: put what it "
            f"means under '$defs' of the tool's own parameters."
        ) from None
    if not isinstance(found.contents, dict | bool):
        raise UsageError(f"Tool {tool!r}: the reference {clip(ref)!r} at {at!r} leads to something that is no schema.")
    return found


def _cut_endless(graph: Graph, tool: str, *, strict: bool) -> None:
    """Leave out a reference of each circle that never moves on to a part of the value; raise where it is `strict`."""
    cut = 0
    while circle := _endless(graph):
        following = zip(circle, (*circle[1:], circle[0]), strict=True)
        node = next((node for node, after in following if any(each is after for each in _meant(graph, node))), None)
        if strict or node is None or cut == MOST_CIRCLES:
            at = graph.where[id(circle[-1])] or "/"
            raise UsageError(
                f"Tool {tool!r}: the references at {at!r} lead back to themselves without end. Let one of them "
                f"go through 'properties' or 'items', or take it out."
            )
        del graph.targets[id(node)]
        for word in REFS:
            node.pop(word, None)
        graph.notes += (f"{graph.where[id(node)] or '/'}: a reference without end was left out",)
        cut += 1


def _meant(graph: Graph, node: Schema) -> list[Any]:
    """Return what the references of a node lead to."""
    return graph.targets.get(id(node), [])


def _endless(graph: Graph) -> list[Schema]:
    """Return a circle of schemas that all look at the same value, the one that it was entered by last; or none."""
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
                circle = [path[each] for each in ids[ids.index(id(node)) :]]
                return [*circle[1:], circle[0]]
            elif id(node) not in done:
                path[id(node)] = node
                stack.append((node, True))
                stack.extend((each, False) for each in _again(graph, node))
    return []


def _again(graph: Graph, node: Schema) -> Iterator[Schema]:
    for each in _meant(graph, node):
        if is_object(each):
            yield each
    for word, _, sub in children(node):
        if word in IN_PLACE and is_object(sub):
            yield sub
