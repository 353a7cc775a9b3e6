"""Schemas as tools really have them, read as draft 2020-12: older drafts, foreign names of types, odd forms.

What can be read is read. A keyword that has not its form, and a reference that leads nowhere, are left out; each of
these, and each odd form that was read as something else, is a note. The forms of an older draft that the schema names
are no oddities and have no notes. What comes out is a well-formed schema whose references are JSON pointers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from promptools.errors import clip
from promptools.schema.drafts import BESIDE_REFERENCES, LATEST, UNKNOWN, Draft
from promptools.schema.graph import LISTS, MAPS, ONE, ONE_MORE, REFS, at_pointer, children, library, pointer
from promptools.schema.keywords import RARE, TESTS, well_formed
from promptools.schema.shapes import is_array, is_object
from promptools.schema.types import read_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptools.types import Schema

_REFERENCES = (*REFS, "$recursiveRef")
_NAMING = frozenset(("$anchor", "$dynamicAnchor", "$id", "id"))
_SINGLE = (*ONE, *ONE_MORE, "additionalItems")
_MAPS = (*MAPS, "dependencies")
_HOLDERS = frozenset((*_SINGLE, *LISTS, *_MAPS))
_SIZES = tuple(f"{end}{what}" for end in ("min", "max") for what in ("Length", "Items", "Properties", "Contains"))


class Read(NamedTuple):
    """A schema of draft 2020-12, and what was not as it should be."""

    root: Schema
    notes: list[str]


def read_schema(schema: Any, draft: Draft) -> Read:
    """Read a schema, which is changed in place. O(n) where it names no parts of itself by `$id` or `$anchor`."""
    if not is_object(schema):
        return Read({}, [] if schema is True else [f"/: {_shown(schema)} was left out: it is no schema"])
    reading = _Reading(schema, draft)
    reading.gather()
    for node, at in reading.nodes:
        reading.mend(node, at)
    reading.refer()
    return Read(schema, reading.notes)


class _Reading:
    """One schema while it is read: its nodes in order, with JSON pointers, and what their references mean."""

    def __init__(self, root: Schema, draft: Draft) -> None:
        self.root = root
        self.draft: Draft = draft
        self.notes: list[str] = []
        self.nodes: list[tuple[Schema, str]] = []
        self.targets: dict[int, list[Any]] = {}

    def note(self, at: str, what: str) -> None:
        self.notes.append(f"{at or '/'}: {what}")

    def drop(self, node: Schema, at: str, word: str) -> None:
        self.note(at + pointer([word]), f"{_shown(node.pop(word))} was left out")

    # --- references: before anything is moved ------------------------------------------------------------------------

    def gather(self) -> None:
        """Find the nodes, and take their references out."""
        self.walk(None)
        if not all(_NAMING.isdisjoint(node) for node, _ in self.nodes):
            resolver = self.resolver()
            self.nodes.clear()
            self.walk(resolver)
        for node, at in self.nodes:
            for word in _REFERENCES:
                if word in node:
                    if id(node) not in self.targets:
                        self.note(f"{at}/{word}", f"{_shown(node[word])} leads nowhere and was left out")
                    del node[word]

    def resolver(self) -> Any:
        """Return what resolves references to names; None where the names are too odd for it."""
        for node, _ in self.nodes:
            for word in _NAMING:
                if word in node and not isinstance(node[word], str):
                    del node[word]
        try:
            resource = self.resource(self.root)
            uri = resource.id() or ""
            return library("referencing").Registry().with_resource(uri, resource).crawl().resolver(uri)
        except Exception:  # noqa: BLE001  whatever a schema that is none makes it raise
            return None

    def resource(self, node: Schema) -> Any:
        names = {4: "DRAFT4", 6: "DRAFT6", 7: "DRAFT7", 2019: "DRAFT201909", 2020: "DRAFT202012"}
        return getattr(library("referencing.jsonschema"), names[self.draft]).create_resource(node)

    def walk(self, resolver: Any) -> None:
        """Visit each subschema once, those that are only referred to last."""
        seen: set[int] = set()
        self.targets.clear()
        stack: list[tuple[Any, Any, str]] = [(self.root, resolver, "")]
        later: list[tuple[Any, Any, str]] = []
        while stack or later:
            node, resolver, at = (stack or later).pop()
            if not is_object(node) or id(node) in seen:
                continue
            here = node
            seen.add(id(here))
            self.nodes.append((here, at))
            if resolver is not None and at:
                resolver = resolver.in_subresource(self.resource(here))
            for word in _REFERENCES:
                if word in here:
                    target, base = self.look_up(resolver, here[word])
                    if is_object(target) or isinstance(target, bool):
                        self.targets.setdefault(id(here), []).append(target)
                        later.append((target, base, f"{at}/{word}"))
            inside = [(sub, resolver, at + step) for step, sub in _inside(here)]
            stack.extend(reversed(inside))

    def look_up(self, resolver: Any, reference: Any) -> tuple[Any, Any]:
        """Return what a reference means, and the resolver of the place where that is."""
        if not isinstance(reference, str):
            return None, None
        if resolver is not None:
            try:
                found = resolver.lookup(reference)
                return found.contents, found.resolver
            except Exception:  # noqa: BLE001, S110  it leads nowhere, or is no reference at all
                pass
        return at_pointer(self.root, reference), resolver

    def refer(self) -> None:
        """Write the references again, as JSON pointers to where their targets are by now."""
        if not self.targets:
            return
        where: dict[int, str] = {}
        _locate(self.root, "", where)
        free = "_" * (1 + max(map(len, self.root.get("$defs", ())), default=0))  # longer than any name there
        for node, _ in self.nodes:
            for target in self.targets.get(id(node), ()):
                if is_object(target) and id(target) not in where:
                    name = f"{free}{len(where)}"
                    self.root.setdefault("$defs", {})[name] = target
                    _locate(target, pointer(["$defs", name]), where)
                if target is False:
                    node.setdefault("allOf", []).append(False)
                elif is_object(target):
                    reference = "#" + quote(where[id(target)], safe="/~!$&'()*+,;=:@")
                    if "$ref" in node:
                        node.setdefault("allOf", []).append({"$ref": reference})
                    else:
                        node["$ref"] = reference

    # --- keywords ----------------------------------------------------------------------------------------------------

    def mend(self, node: Schema, at: str) -> None:
        """Make the keywords of one schema well formed; those of its parent come before its own."""
        self.older(node)
        if well_formed(node):
            return self.required(node, at)
        self.type(node, at)
        self.limits(node, at)
        self.items(node, at)
        self.dependencies(node, at)
        self.properties(node, at)
        self.alternatives(node, at)
        self.names(node, at)
        for word in [*node]:
            test = TESTS.get(word)
            if word in RARE:
                del node[word]  # names of places, which no reference needs any more
            elif test is not None and not test(node[word]):
                self.drop(node, at, word)
        return self.required(node, at)

    def older(self, node: Schema) -> None:
        """Take out what an older draft ignores."""
        node.pop("$schema", None)
        if self.draft == LATEST:
            return
        for word in UNKNOWN[self.draft].intersection(node):
            del node[word]
        if self.draft == 4:
            node.pop("id", None)
        if self.draft < 2019 and id(node) in self.targets:
            for word in node.keys() - BESIDE_REFERENCES:
                del node[word]

    def type(self, node: Schema, at: str) -> None:
        if "type" not in node or TESTS["type"](node["type"]):
            return None
        kind = read_type(node["type"])
        if kind is None:
            return self.drop(node, at, "type")
        self.note(f"{at}/type", f"{_shown(node['type'])} was read as {kind!r}")
        node["type"] = kind
        return None

    def limits(self, node: Schema, at: str) -> None:
        for word, other in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            exclusive = node.get(word)
            if isinstance(exclusive, bool):
                if self.draft != 4:
                    self.note(f"{at}/{word}", f"{_shown(exclusive)} was read as draft 4 has it")
                del node[word]
                if exclusive and other in node:
                    node[word] = node.pop(other)
        for word in _SIZES:
            size = node.get(word)
            if isinstance(size, float) and size.is_integer():
                node[word] = int(size)

    def items(self, node: Schema, at: str) -> None:
        items = node.get("items")
        if not is_array(items):
            return
        if self.draft == LATEST:
            self.note(f"{at}/items", "a list was read as 'prefixItems'")
        del node["items"]
        if items:
            read = [self.member(each, f"{at}/items/{index}", {}) for index, each in enumerate(items)]
            node.setdefault("prefixItems", read)
            if "additionalItems" in node:
                node["items"] = node["additionalItems"]

    def dependencies(self, node: Schema, at: str) -> None:
        given = node.get("dependencies")
        if self.draft > 7 or not is_object(given):
            return
        for name, needed in given.items():
            word = "dependentRequired" if is_array(needed) else "dependentSchemas"
            if TESTS[word]({name: needed}):
                node.setdefault(word, {})[name] = needed
            else:
                self.note(at + pointer(["dependencies", name]), f"{_shown(needed)} was left out")

    def properties(self, node: Schema, at: str) -> None:
        """Read the members of what holds schemas by name; a parameter whose schema is none may be anything."""
        for word in MAPS:
            members = node.get(word)
            if not is_object(members):
                continue
            for name, each in [*members.items()]:
                if isinstance(each, dict | bool):
                    continue
                read = self.member(each, at + pointer([word, name]), {} if word == "properties" else None)
                if read is None:
                    self.drop(members, f"{at}/{word}", name)
                else:
                    members[name] = read

    def alternatives(self, node: Schema, at: str) -> None:
        """Read lists of schemas: where one of several alternatives is none, nothing can be said of the others."""
        for word in LISTS:
            members = node.get(word)
            if is_array(members):
                read = [self.member(each, f"{at}/{word}/{index}") for index, each in enumerate(members)]
                node[word] = [each for each in read if each is not None] if word == "allOf" else read
        for word in _SINGLE:
            if isinstance(node.get(word), str):
                read = self.member(node[word], f"{at}/{word}")
                node[word] = node[word] if read is None else read

    def member(self, given: Any, at: str, other: Any = None) -> Any:
        """Return a schema as it is, and that of a type for the type's name; `other` for what is neither."""
        if is_object(given) or isinstance(given, bool):
            return given
        kind = read_type(given) if isinstance(given, str) else None
        read = {"type": kind} if kind is not None else other
        if read is not None:
            self.note(at, f"{_shown(given)} was read as {read!r}")
        return read

    def names(self, node: Schema, at: str) -> None:
        required = node.get("required")
        if is_array(required) and not TESTS["required"](required):
            self.note(f"{at}/required", "what is no name, or comes twice, was left out")
            node["required"] = list(dict.fromkeys(each for each in required if isinstance(each, str)))

    def required(self, node: Schema, at: str) -> None:
        """Move `required: true` of a property to the schema that has the property, as draft 3 means it."""
        properties = node.get("properties")
        required: list[str] = []
        for name, each in properties.items() if is_object(properties) else ():
            if is_object(each) and "required" in each and not is_array(each["required"]):
                said = each.pop("required")
                required += [name] if said is True else []
                what = f"read as {name!r} being required" if said is True else "left out"
                self.note(at + pointer(["properties", name, "required"]), f"{_shown(said)} was {what}")
        if required:
            node["required"] = list(dict.fromkeys([*node.get("required", ()), *required]))


def _inside(node: Schema) -> Iterator[tuple[str, Any]]:
    """Yield the subschemas of a node, whether or not its keywords have their form."""
    for word, value in node.items():
        if word not in _HOLDERS:
            continue
        if is_array(value):
            yield from ((f"/{word}/{index}", each) for index, each in enumerate(value))
        elif is_object(value) and word in _MAPS:
            yield from ((pointer([word, name]), each) for name, each in value.items())
        else:
            yield f"/{word}", value


def _locate(root: Schema, at: str, where: dict[int, str]) -> None:
    """Note the JSON pointers of a schema and of all inside it."""
    stack: list[tuple[Any, str]] = [(root, at)]
    while stack:
        node, at = stack.pop()
        if is_object(node) and id(node) not in where:
            where[id(node)] = at
            stack.extend((sub, at + step) for _, step, sub in children(node))


def _shown(value: Any) -> str:
    if is_object(value) or is_array(value):
        return f"{'an object' if is_object(value) else 'a list'} of {len(value)}"
    return clip(repr(value), 60)
