"""Simplify a schema for servers that fail on full JSON Schema; promptools' own validation uses the original schema.

The choice of what is dropped, and in which order, is based on issues of llama.cpp (#19716, #25746, #26930, #27580), LM
Studio (lmstudio-bug-tracker #738, #2197, #2247), Ollama (#10328) and vLLM with xgrammar (#16880, #30390).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from promptools.json_values import copy_json, is_array, is_object
from promptools.schema.documents import pointer, type_name
from promptools.schema.graph import build_graph, merge_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptools.schema.graph import SchemaGraph
    from promptools.types import Schema

T = TypeVar("T")

DROPPED = frozenset(
    [
        "pattern",  # llama.cpp#26930, #27580
        "format",
        "not",  # sent by zod: llama.cpp#17574
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",  # xgrammar: vllm#30390
        "propertyNames",  # xgrammar: vllm#30390
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
        "multipleOf",
        "minItems",  # vllm#16880
        "minProperties",
        "maxProperties",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "$dynamicRef",
    ]
)
"""Keywords that some server's grammar engine rejects; a relaxed schema has none of them."""
MAX_LENGTH = 1000
"""Maximum value of `minLength`, `maxLength` and `maxItems`.

For a larger value, llama.cpp generates a grammar that llama.cpp itself cannot parse (#25746).
"""
MAX_SUBSCHEMAS = 2000
"""Maximum number of subschemas in a relaxed copy.

Further subschemas become stubs, with only a type and a description. Beyond twice this number, they are left out.
"""
MAX_DEPTH = 64
"""Maximum nesting of a relaxed copy; deeper subschemas become stubs, with only a type and a description."""
STRING_SCHEMA: Schema = {"type": "string"}

_HINTS = (
    ("object", ("properties", "required", "additionalProperties")),
    ("array", ("items", "prefixItems", "maxItems")),
    ("string", ("minLength", "maxLength", "pattern", "format")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)


def relaxed(schema: Schema, tool: str = "(unnamed)") -> tuple[Schema, tuple[str, ...]]:
    """Return a copy of a schema without the keywords and forms that weak servers reject, and notes on the changes.

    References are inlined; a recursive reference is cut. Every node gets a single type. Changes that keep the meaning
    are not noted. A malformed schema is read in the same way as a tool's schema; the notes on what was malformed come
    first. Raises UsageError, which names `tool`, if the schema cannot be read at all.
    """
    return relax_graph(build_graph(schema, tool))


def relax_graph(graph: SchemaGraph) -> tuple[Schema, tuple[str, ...]]:
    """Return the relaxed copy of a linked schema, and the notes; see `relaxed`."""
    work = _Relaxer(graph)
    made = work.relax_node(graph.root, "", frozenset())
    if "anyOf" in made:
        made = work.merge_root_alternatives(made)
    if made.get("type") == "object" and "properties" not in made:  # llama.cpp reads `{}`, which allows any, as none
        made.setdefault("additionalProperties", True)
    made["type"] = "object"
    made.setdefault("properties", {})
    return copy_json(made), tuple(dict.fromkeys((*graph.notes, *work.notes)))


class _Relaxer:
    def __init__(self, graph: SchemaGraph) -> None:
        self.graph = graph
        self.notes: list[str] = []
        self.subschemas_left = MAX_SUBSCHEMAS
        self.depth = 0

    def within_limit(self, subschemas: Iterable[T], at: str) -> Iterator[T]:
        """Yield the subschemas; stop, with a note, once the copy has far too many."""
        for subschema in subschemas:
            if self.subschemas_left < -MAX_SUBSCHEMAS:
                self.note(at, "left out: the schema is far too large")
                return
            yield subschema

    def note(self, at: str, what: str) -> None:
        self.notes.append(f"{at or '/'}: {what}")

    def relax_node(self, node: Any, at: str, ancestors: frozenset[int]) -> Schema:
        if not is_object(node):
            # llama.cpp's converter, in LM Studio too, takes no `true` (lmstudio-bug-tracker#2247).
            self.note(at, f"{str(node).lower()} became a string")
            return dict(STRING_SCHEMA)
        self.subschemas_left -= 1
        # LM Studio finds no `$defs`, llama.cpp no `$ref` of items (lmstudio-bug-tracker#738, llama.cpp#16790).
        parts = list(self.graph.applied_nodes(node, ("allOf",)))
        ids = frozenset(map(id, parts))
        if self.subschemas_left < 0 or ids & ancestors or self.depth >= MAX_DEPTH:
            large = "is too large" if self.subschemas_left < 0 else "is nested too deeply"
            self.note(at, f"cut: the schema {'holds itself' if ids & ancestors else large}")
            return _stub(parts)
        self.depth += 1
        made = self.relax_merged(merge_nodes(parts), at, ancestors | ids)
        self.depth -= 1
        return made

    def relax_merged(self, made: Schema, at: str, ancestors: frozenset[int]) -> Schema:
        """Return the relaxed form of a schema, given its merged parts (the schema, its `$ref` and `allOf`)."""
        for keyword in sorted(made.keys() & DROPPED):
            self.note(at, f"dropped {keyword!r}")
        for keyword in ("minLength", "maxLength", "maxItems"):
            if made.get(keyword, 0) > MAX_LENGTH:
                self.note(at, f"dropped {keyword!r}")
                del made[keyword]
        if "const" in made:
            made["enum"] = [made.pop("const")]
        self.relax_type(made, at)
        self.relax_members(made, at, ancestors)
        made = self.relax_alternatives(made, at, ancestors)
        return {keyword: value for keyword, value in made.items() if keyword not in DROPPED}

    def relax_type(self, made: Schema, at: str) -> None:
        """Reduce a schema to exactly one type and the keywords of this type, unless it consists of alternatives."""
        kind = made.get("type")
        # Ollama's Go struct holds one type: `["string", "null"]` is a 400 (ollama#10328).
        if is_array(kind):
            kinds = [name for name in kind if name != "null"] or ["null"]
            made["type"] = "string" if "string" in kinds else kinds[0]
            self.note(at, f"the types {kind!r} became {made['type']!r}")
            if made["type"] != "null" and "enum" in made:
                made["enum"] = [member for member in made["enum"] if member is not None] or made["enum"]
        elif kind is None and "enum" in made:
            kinds = list(dict.fromkeys(map(type_name, made["enum"])))
            if len(kinds) == 1:
                made["type"] = kinds[0]
        # pydantic's `Any` is a node without a type, which llama.cpp refuses (llama.cpp#19716).
        elif kind is None and ("properties" in made or not made.keys() & {"anyOf", "oneOf"}):
            made["type"] = next((name for name, words in _HINTS if made.keys() & set(words)), "string")
            self.note(at, f"had no type, became {made['type']!r}")
        for name, words in _HINTS[:2]:
            if made.get("type") != name:
                for word in words:
                    made.pop(word, None)

    def relax_alternatives(self, made: Schema, at: str, ancestors: frozenset[int]) -> Schema:
        """Simplify alternatives: drop null, and merge an alternative into the schema if it is the only one left."""
        for word in ("anyOf", "oneOf"):
            branches: list[Any] | None = made.pop(word, None)
            if branches is None:
                continue
            if "type" in made or "properties" in made or "anyOf" in made:
                self.note(at, f"dropped {word!r}")
                continue
            made_branches = [
                self.relax_node(branch, f"{at}/{word}/{index}", ancestors)
                for index, branch in self.within_limit(enumerate(branches), at)
            ]
            # In an `anyOf` with null, the parsers of vLLM and Ollama take the wrong branch (vllm#37831, ollama#12621).
            real = [branch for branch in made_branches if branch.get("type") != "null"] or [{"type": "null"}]
            if len(real) < len(branches) or word == "oneOf":
                self.note(at, f"{word!r} became {'anyOf' if len(real) > 1 else 'its one alternative'}")
            made = {**made, "anyOf": real} if len(real) > 1 else {**real[0], **made}
        return made

    def relax_members(self, made: Schema, at: str, ancestors: frozenset[int]) -> None:
        """Relax the subschemas for the members of an object and the items of an array."""
        if "properties" in made:
            made["properties"] = {
                name: self.relax_node(sub, f"{at}{pointer(['properties', name])}", ancestors)
                for name, sub in self.within_limit(made["properties"].items(), at)
                if sub is not False
            }
            required = [name for name in made.pop("required", ()) if name in made["properties"]]
            if required:
                made["required"] = required
        other = made.get("additionalProperties")
        if is_object(other):
            made["additionalProperties"] = (
                self.relax_node(other, f"{at}/additionalProperties", ancestors) if other else True
            )
        if made.get("type") == "array":
            self.relax_items(made, at, ancestors)

    def relax_items(self, made: Schema, at: str, ancestors: frozenset[int]) -> None:
        """Reduce an array to one schema for all its items."""
        prefix = made.pop("prefixItems", [])
        if prefix:
            self.note(at, "dropped 'prefixItems'")
        items = made.get("items")
        if not is_object(items):
            items = prefix[0] if prefix else STRING_SCHEMA
            # Copilot refuses an array without `items` (Unity-MCP#440).
            self.note(at, "had no items, became the first one's" if prefix else "had no items, became strings")
        made["items"] = self.relax_node(items, f"{at}/items", ancestors)

    def merge_root_alternatives(self, made: Schema) -> Schema:
        """Merge alternatives at the root into one object, since servers accept no alternatives there."""
        # Copilot over LM Studio refuses `oneOf` at the root (lmstudio-copilot-provider#2).
        self.note("", "its alternatives became one object")
        properties: Schema = {}
        for branch in made.pop("anyOf"):
            properties = {**branch.get("properties", {}), **properties}
        return {**made, "properties": properties}


def _stub(parts: list[Schema]) -> Schema:
    """Return a schema with only the type and the description of the merged `parts`."""
    made: Schema = {}
    for part in parts:
        made = {keyword: part[keyword] for keyword in ("type", "description") if keyword in part} | made
    kind = made.get("type", "object")
    stub: Schema = {"type": kind if isinstance(kind, str) else kind[0]}
    if stub["type"] == "array":
        stub["items"] = dict(STRING_SCHEMA)
    return {**stub, "description": made["description"]} if "description" in made else stub
