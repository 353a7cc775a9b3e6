"""Normalize real tool schemas to draft 2020-12: older drafts, foreign type names, malformed keywords.

The result is a well-formed schema whose references are all JSON pointers from its root. Everything that can be
understood is kept. Malformed keywords, and references that do not resolve, are left out. A note is made for each thing
left out, and for each irregular form that was read as a regular one. Forms that are regular in the declared draft are
not noted.

There are three passes, because rewriting keywords moves the schemas that references point to:

1. `collect_nodes` walks all subschemas; those that only references reach come last. It records the object to which each
   reference points, and removes the reference. The `referencing` library is needed only if a node declares a name
   (`$id`, `$anchor`).
2. `normalize_keywords` rewrites the keywords of each node, parents before children: a parent takes draft 3's `required:
   true` out of its properties before these are rewritten themselves.
3. `restore_references` locates the targets in their new places, and writes the references again. A target that has
   dropped out of the schema is put under `$defs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from promptools.errors import clip
from promptools.json_values import is_array, is_object
from promptools.schema.documents import (
    LATEST,
    RARE_KEYWORDS,
    REF_SIBLINGS,
    REFERENCES,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SINGLE_SCHEMA,
    SINGLE_SCHEMA_RARE,
    UNKNOWN_KEYWORDS,
    URIS,
    VALUE_TESTS,
    Draft,
    children,
    import_library,
    pointer,
    read_type,
    resolve_pointer,
    well_formed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptools.types import Schema


_REFERENCES = (*REFERENCES, "$recursiveRef")
_NAMING_KEYWORDS = frozenset(("$anchor", "$dynamicAnchor", "$id", "id"))
_SINGLE = (*SINGLE_SCHEMA, *SINGLE_SCHEMA_RARE, "additionalItems")
_MAPS = (*SCHEMA_MAPS, "dependencies")
_APPLICATORS = frozenset((*_SINGLE, *SCHEMA_LISTS, *_MAPS))
_SIZE_KEYWORDS = tuple(
    f"{end}{what}" for end in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")
)


def normalize_schema(schema: Any, draft: Draft) -> tuple[Schema, list[str]]:
    """Normalize a schema in place, and return it with notes. O(n) unless `$id` or `$anchor` occurs in it."""
    if not is_object(schema):
        return {}, [] if schema is True else [f"/: {_quote(schema)} was left out: it is not a schema"]
    reading = _Normalizer(schema, draft)
    reading.collect_nodes()
    for node, at in reading.nodes:
        reading.normalize_keywords(node, at)
    reading.restore_references()
    return schema, reading.notes


class _Normalizer:
    """State of one normalization: the subschemas with their JSON pointers, and the targets of their references."""

    def __init__(self, root: Schema, draft: Draft) -> None:
        self.root = root
        self.draft: Draft = draft
        self.notes: list[str] = []
        self.nodes: list[tuple[Schema, str]] = []
        self.targets: dict[int, list[Any]] = {}

    def note(self, path: str, what: str) -> None:
        self.notes.append(f"{path or '/'}: {what}")

    def drop(self, node: Schema, at: str, keyword: str) -> None:
        self.note(at + pointer([keyword]), f"{_quote(node.pop(keyword))} was left out")

    # --- references: before anything is moved ------------------------------------------------------------------------

    def collect_nodes(self) -> None:
        """Collect all subschemas, remove their references, and record the targets of these references."""
        self.walk(None)
        if not all(_NAMING_KEYWORDS.isdisjoint(node) for node, _ in self.nodes):
            resolver = self.resolver()
            self.nodes.clear()
            self.walk(resolver)
        for node, at in self.nodes:
            for keyword in _REFERENCES:
                if keyword in node:
                    if id(node) not in self.targets:
                        self.note(f"{at}/{keyword}", f"{_quote(node[keyword])} leads nowhere and was left out")
                    del node[keyword]

    def resolver(self) -> Any:
        """Return a resolver for references to names (`$id`, `$anchor`); None if `referencing` cannot read the names."""
        for node, _ in self.nodes:
            for keyword in _NAMING_KEYWORDS:
                if keyword in node and not isinstance(node[keyword], str):
                    del node[keyword]
        try:
            resource = self.resource(self.root)
            uri = resource.id() or ""
            return import_library("referencing").Registry().with_resource(uri, resource).crawl().resolver(uri)
        except Exception:  # noqa: BLE001  it may raise anything for a malformed schema
            return None

    def resource(self, node: Schema) -> Any:
        return import_library("referencing.jsonschema").specification_with(URIS[self.draft]).create_resource(node)

    def walk(self, resolver: Any) -> None:
        """Visit each subschema once; subschemas that only references reach come last."""
        seen: set[int] = set()
        self.targets.clear()
        stack: list[tuple[Any, Any, str]] = [(self.root, resolver, "")]
        later: list[tuple[Any, Any, str]] = []
        while stack or later:
            node, resolver, at = (stack or later).pop()
            if not is_object(node) or id(node) in seen:
                continue
            seen.add(id(node))
            self.nodes.append((node, at))
            if resolver is not None and at:
                resolver = resolver.in_subresource(self.resource(node))
            for keyword in _REFERENCES:
                if keyword in node:
                    target, base = self.resolve_reference(resolver, node[keyword])
                    if is_object(target) or isinstance(target, bool):
                        self.targets.setdefault(id(node), []).append(target)
                        later.append((target, base, f"{at}/{keyword}"))
            inside = [(sub, resolver, at + step) for step, sub in _subschemas(node)]
            stack.extend(reversed(inside))

    def resolve_reference(self, resolver: Any, reference: Any) -> tuple[Any, Any]:
        """Return the target of a reference, and the resolver for references inside that target."""
        if not isinstance(reference, str):
            return None, None
        if resolver is not None:
            try:
                resolved = resolver.lookup(reference)
                return resolved.contents, resolved.resolver
            except Exception:  # noqa: BLE001, S110  the text does not resolve, or is not a reference
                pass
        return resolve_pointer(self.root, reference), resolver

    def restore_references(self) -> None:
        """Write the references again, as JSON pointers to the present locations of their targets."""
        if not self.targets:
            return
        where: dict[int, str] = {}
        _locate(self.root, "", where)
        free = "_" * (1 + max(map(len, self.root.get("$defs", ())), default=0))  # longer than any name in `$defs`
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

    def normalize_keywords(self, node: Schema, at: str) -> None:
        """Make the keywords of one schema well formed; those of the schema's parent must already be well formed."""
        self.drop_unknown(node)
        if well_formed(node):
            return self.lift_required(node, at)
        self.normalize_type(node, at)
        self.normalize_limits(node, at)
        self.normalize_items(node, at)
        self.normalize_dependencies(node, at)
        self.normalize_maps(node, at)
        self.normalize_lists(node, at)
        self.normalize_required(node, at)
        for keyword in [*node]:
            test = VALUE_TESTS.get(keyword)
            if keyword in RARE_KEYWORDS:
                del node[keyword]  # `$id`, `$anchor` and the like: references do not need these any more
            elif test is not None and not test(node[keyword]):
                self.drop(node, at, keyword)
        return self.lift_required(node, at)

    def drop_unknown(self, node: Schema) -> None:
        """Remove keywords that the schema's own draft ignores, if that draft is older than the latest."""
        node.pop("$schema", None)
        if self.draft == LATEST:
            return
        for keyword in UNKNOWN_KEYWORDS[self.draft].intersection(node):
            del node[keyword]
        if self.draft == 4:
            node.pop("id", None)
        if self.draft < 2019 and id(node) in self.targets:
            for keyword in node.keys() - REF_SIBLINGS:
                del node[keyword]

    def normalize_type(self, node: Schema, at: str) -> None:
        if "type" not in node or VALUE_TESTS["type"](node["type"]):
            return None
        kind = read_type(node["type"])
        if kind is None:
            return self.drop(node, at, "type")
        self.note(f"{at}/type", f"{_quote(node['type'])} was read as {kind!r}")
        node["type"] = kind
        return None

    def normalize_limits(self, node: Schema, at: str) -> None:
        for keyword, other in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            exclusive = node.get(keyword)
            if isinstance(exclusive, bool):
                if self.draft != 4:
                    self.note(f"{at}/{keyword}", f"{_quote(exclusive)} was read as in draft 4")
                del node[keyword]
                if exclusive and other in node:
                    node[keyword] = node.pop(other)
        for keyword in _SIZE_KEYWORDS:
            size = node.get(keyword)
            if isinstance(size, float) and size.is_integer():
                node[keyword] = int(size)

    def normalize_items(self, node: Schema, at: str) -> None:
        items = node.get("items")
        if not is_array(items):
            return
        if self.draft == LATEST:
            self.note(f"{at}/items", "a list was read as 'prefixItems'")
        del node["items"]
        if items:
            read = [self.schema_or_type(item, f"{at}/items/{index}", {}) for index, item in enumerate(items)]
            node.setdefault("prefixItems", read)
            if "additionalItems" in node:
                node["items"] = node["additionalItems"]

    def normalize_dependencies(self, node: Schema, at: str) -> None:
        given = node.get("dependencies")
        if self.draft > 7 or not is_object(given):
            return
        for name, needed in given.items():
            keyword = "dependentRequired" if is_array(needed) else "dependentSchemas"
            if VALUE_TESTS[keyword]({name: needed}):
                node.setdefault(keyword, {})[name] = needed
            else:
                self.note(at + pointer(["dependencies", name]), f"{_quote(needed)} was left out")

    def normalize_maps(self, node: Schema, at: str) -> None:
        """Normalize keywords that map names to schemas; a parameter whose schema cannot be read may have any value."""
        for keyword in SCHEMA_MAPS:
            members = node.get(keyword)
            if not is_object(members):
                continue
            for name, member in [*members.items()]:
                if isinstance(member, dict | bool):
                    continue
                read = self.schema_or_type(
                    member, at + pointer([keyword, name]), {} if keyword == "properties" else None
                )
                if read is None:
                    self.drop(members, f"{at}/{keyword}", name)
                else:
                    members[name] = read

    def normalize_lists(self, node: Schema, at: str) -> None:
        """Normalize keywords that hold a list of schemas, or a single schema.

        An unreadable member of `anyOf` or `oneOf` is kept, so that the whole keyword is dropped later as malformed. If
        only the member were dropped, the keyword would reject valid values.
        """
        for word in SCHEMA_LISTS:
            members = node.get(word)
            if is_array(members):
                read = [self.schema_or_type(member, f"{at}/{word}/{index}") for index, member in enumerate(members)]
                node[word] = [member for member in read if member is not None] if word == "allOf" else read
        for word in _SINGLE:
            if isinstance(node.get(word), str):
                read = self.schema_or_type(node[word], f"{at}/{word}")
                node[word] = node[word] if read is None else read

    def schema_or_type(self, given: Any, at: str, other: Any = None) -> Any:
        """Return a schema unchanged; return `{"type": ...}` for the name of a type, and `other` for anything else."""
        if is_object(given) or isinstance(given, bool):
            return given
        kind = read_type(given) if isinstance(given, str) else None
        read = {"type": kind} if kind is not None else other
        if read is not None:
            self.note(at, f"{_quote(given)} was read as {read!r}")
        return read

    def normalize_required(self, node: Schema, at: str) -> None:
        required = node.get("required")
        if is_array(required) and not VALUE_TESTS["required"](required):
            self.note(f"{at}/required", "entries that are not names, or are repeated, were left out")
            node["required"] = list(dict.fromkeys(name for name in required if isinstance(name, str)))

    def lift_required(self, node: Schema, at: str) -> None:
        """Move `required: true`, a form of draft 3, from a property to the schema that declares the property."""
        properties = node.get("properties")
        required: list[str] = []
        for name, sub in properties.items() if is_object(properties) else ():
            if is_object(sub) and "required" in sub and not is_array(sub["required"]):
                flag = sub.pop("required")
                required += [name] if flag is True else []
                what = f"read as {name!r} being required" if flag is True else "left out"
                self.note(at + pointer(["properties", name, "required"]), f"{_quote(flag)} was {what}")
        if required:
            node["required"] = list(dict.fromkeys([*node.get("required", ()), *required]))


def _subschemas(node: Schema) -> Iterator[tuple[str, Any]]:
    """Yield `(pointer step, subschema)` for each subschema of a node, even if its keywords are malformed."""
    for keyword, value in node.items():
        if keyword not in _APPLICATORS:
            continue
        if is_array(value):
            yield from ((f"/{keyword}/{index}", sub) for index, sub in enumerate(value))
        elif is_object(value) and keyword in _MAPS:
            yield from ((pointer([keyword, name]), sub) for name, sub in value.items())
        else:
            yield f"/{keyword}", value


def _locate(root: Schema, at: str, pointers: dict[int, str]) -> None:
    """Record in `pointers` the JSON pointers of a schema and of every subschema, by id."""
    stack: list[tuple[Any, str]] = [(root, at)]
    while stack:
        node, at = stack.pop()
        if is_object(node) and id(node) not in pointers:
            pointers[id(node)] = at
            stack.extend((sub, at + step) for _, step, sub in children(node))


def _quote(value: Any) -> str:
    if is_object(value) or is_array(value):
        return f"{'an object' if is_object(value) else 'a list'} of {len(value)}"
    return clip(repr(value), 60)
