"""Declare tools as gpt-oss was trained on them: a namespace of TypeScript-like types.

The text is the same as openai-harmony's (0.0.8), byte for byte, with all its oddities: the indentation, the doubled
description of an object, the comma on a separate line. It differs only where that library loses part of a schema:

- `anyOf`, `allOf`, `$ref`, `const` and enumerations of anything but strings are written out. The library writes `any`.
- An array whose items are a union is written with parentheses, `("a" | "b")[]`, and the bracket is never part of a
  comment. The library writes `"a" | "b"[]`.
- In a list of types, an array keeps its items, and an object its properties. The library writes the bare type name.
- A schema that has properties but no type is an object, and `null` alone is `null`. The library writes `any` for both.
- Every line of a description, a title or an example is a comment. The library makes only the first line a comment. A
  default is written as the library writes it, with its line breaks: that of gpt-oss's own `apply_patch` has two lines.
- A key that is not an identifier is quoted, and a quote inside an enumeration is escaped.

A function whose parameters are an empty object is declared as `() => any`, as the format's documentation shows. The
library writes `(_: {` and `})` around nothing. `promptools.harmony.conversation` leaves such parameters out.

A recursive type is `any` where it recurs. A type that is nested too deeply or is too large is `any` too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern
from promptools.schema.graph import SchemaGraph, build_graph, merge_nodes
from promptools.schema.recent_cache import RecentCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptools.types import Schema


_IDENTIFIER = lazy_pattern(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PRIMITIVES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


MAX_DEPTH = 64
"""Maximum nesting of types that are written out; a deeper type is `any`."""
MAX_EXTRA_TYPES = 2000
"""Number of types that may be written for a schema in addition to two for each of its nodes. Further types are `any`.

The limit is for schemas with many references to the same definitions, which would be written out again and again.
"""
_TYPE_CACHE = RecentCache[str](4096, 4_000_000)
"""Maps a schema to its type. This cache is useful because an app sends the same tools with every request."""


class FunctionDeclaration(NamedTuple):
    """A function as it is declared to the model; `parameters` is None for a function without parameters."""

    name: str
    description: str = ""
    parameters: Schema | None = None


def render_namespace(name: str, functions: Sequence[FunctionDeclaration], description: str = "") -> str:
    """Return the section for a namespace; without functions, the section has only the description.

    Raises UsageError for parameters that are nested too deeply to be parsed. O(n) in the size of the schemas, since
    the number of types that references expand to is limited (`MAX_EXTRA_TYPES`).
    """
    if not functions:
        return f"## {name}\n" + ("\n" + "\n".join(_split_lines(description)) if description else "")
    types = "".join(f"{_render_function(function)}\n" for function in functions)
    return f"## {name}\n\n{line_comments(description)}namespace {name} {{\n\n{types}}} // namespace {name}"


def line_comments(text: str, indent: str = "") -> str:
    """Return a text as comments, with `//` before each line. Return an empty text for an empty text."""
    return "".join(f"{indent}// {line}\n" for line in _split_lines(text))


def typescript_type(schema: Schema, name: str = "(unnamed)") -> str:
    """Return a JSON Schema as a TypeScript-like type. `name` is the function's name, for error messages."""
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError):
        return _render_type(schema, name)  # without JSON there is no key for the cache
    written = _TYPE_CACHE.get(text)
    if written is None:
        written = _render_type(json.loads(text), name)
        _TYPE_CACHE.put(text, written)
    return written


def _render_type(schema: Schema, name: str) -> str:
    graph = build_graph(schema, name)
    return _TypeWriter(graph).write(graph.root, "")


def _render_function(function: FunctionDeclaration) -> str:
    given = function.parameters
    parameters = "" if given is None else f"_: {typescript_type(given, function.name)}"
    return f"{line_comments(function.description)}type {function.name} = ({parameters}) => any;\n"


class _TypeWriter:
    """Writes the types of one schema. `_open_nodes` holds the ids of the nodes being written, to stop recursion."""

    def __init__(self, graph: SchemaGraph) -> None:
        self._graph = graph
        self._open_nodes: set[int] = set()
        self._budget = 2 * len(graph.nodes) + MAX_EXTRA_TYPES

    def write(self, node: Any, indent: str) -> str:
        """Return the type of a node; all lines but the first begin with `indent`."""
        self._budget -= 1
        if (
            not is_object(node)
            or id(node) in self._open_nodes
            or self._budget < 0
            or len(self._open_nodes) >= MAX_DEPTH
        ):
            return "any"
        self._open_nodes.add(id(node))
        try:
            return self._write_node(self._merged(node), indent)
        finally:
            self._open_nodes.discard(id(node))

    def _merged(self, node: Any) -> Schema:
        """Return a node merged with its `$ref` and `allOf`; an empty node for the schemas `true` and `false`."""
        return merge_nodes(self._graph.applied_nodes(node, ("allOf",)))

    def _write_node(self, node: Schema, indent: str) -> str:
        if is_array(node.get("oneOf")):
            return "".join(f"\n{line}" for line in self._choices(node["oneOf"], indent))
        if "const" in node:
            return _literal(node["const"])
        if _has_enum(node):
            return " | ".join(map(_literal, node["enum"]))
        if is_array(node.get("anyOf")):
            return self._union(node["anyOf"], indent)
        kinds = node.get("type")
        if is_array(kinds):
            return " | ".join(self._write_kind(node, kind, indent, listed=True) for kind in kinds)
        return self._write_kind(node, kinds, indent)

    def _write_kind(self, node: Schema, kind: Any, indent: str, *, listed: bool = False) -> str:
        if listed and ((kind == "object" and not node.get("properties")) or (kind == "array" and "items" not in node)):
            return str(kind)
        if kind == "object" or (kind is None and "properties" in node):
            return self._object(node, indent)
        if kind == "array":
            return self._array(node, indent)
        return "null" if kind == "null" else _PRIMITIVES.get(str(kind), "any")

    def _object(self, node: Schema, indent: str) -> str:
        required = frozenset(node.get("required", ()))
        above = _as_comment(node["description"], indent) if isinstance(node.get("description"), str) else ""
        written = "".join(
            self._property(key, schema, indent, optional=key not in required)
            for key, schema in node.get("properties", {}).items()
            if self._budget > -MAX_EXTRA_TYPES
        )
        return f"{above}{{\n{written}{indent}}}"

    def _array(self, node: Schema, indent: str) -> str:
        if "items" not in node:
            return "Array<any>"
        items = self.write(node["items"], indent)
        if not self._is_choice(node["items"]):
            return f"{items}[]"
        remarked = "//" in items.rpartition("\n")[2]  # a bracket on the last line would be part of its comment
        return f"({items}\n{indent})[]" if remarked else f"({items})[]"

    def _is_choice(self, node: Any) -> bool:
        whole = self._merged(node)
        if len(whole.get("enum", ())) > 1 or len(whole.get("oneOf", ())) > 1 or len(whole.get("anyOf", ())) > 1:
            return True
        return is_array(whole.get("type")) and len(whole["type"]) > 1

    def _union(self, variants: Sequence[Any], indent: str) -> str:
        """Return a union as one line, or as one line for each variant if variants have descriptions or defaults."""
        if _has_remarks(variants):
            return "".join(f"\n{line}" for line in self._choices(variants, indent))
        return " | ".join(dict.fromkeys(self.write(variant, indent) for variant in variants))

    def _choices(
        self, variants: Sequence[Any], indent: str, above: str | None = None, *, bare: bool = False
    ) -> Iterator[str]:
        """Yield the lines of a union, one for each variant.

        `above` is the property's description, which is not repeated after a variant. `bare` says that the union belongs
        to a property, so that the default of an enumeration has no quotes.
        """
        for number, variant in enumerate(variants):
            whole = self._merged(variant)
            description = whole.get("description")
            shown = description != above and (number > 0 or above is None)
            trailing = [_one_line(description)] if shown and isinstance(description, str) else []
            if "default" in whole:
                trailing.append(f"default: {_default(whole, bare=bare)}")
            remark = f" // {' '.join(trailing)}" if trailing else ""
            yield f"{indent} | {self._write_nullable(variant, indent + '   ')}{remark}"

    def _write_nullable(self, node: Any, indent: str) -> str:
        written = self.write(node, indent)
        nullable = is_object(node) and node.get("nullable") is True and "null" not in written
        return f"{written} | null" if nullable else written

    def _property(self, key: str, node: Any, indent: str, *, optional: bool) -> str:
        whole = self._merged(node)
        name = (key if _IDENTIFIER.fullmatch(key) else json.dumps(key, ensure_ascii=False)) + ("?" if optional else "")
        variants = whole.get("oneOf")
        if variants is None and is_array(whole.get("anyOf")) and _has_remarks(whole["anyOf"]):
            variants = whole["anyOf"]
        description = whole.get("description")
        above = f"{_as_comment(whole['title'], indent)}{indent}//\n" if isinstance(whole.get("title"), str) else ""
        described = _as_comment(description, indent) if isinstance(description, str) else ""
        examples = _examples(whole.get("examples"), indent)
        default = f"// default: {_default(whole)}" if "default" in whole else ""
        if not is_array(variants):
            written = self._write_nullable(node, indent + "    ")
            return f"{above}{described}{examples}{indent}{name}: {written},{' ' if default else ''}{default}\n"
        above += examples + ("" if description == _first_description(variants) else described)
        if default:
            above += f"{indent}{default}\n"
        lines = "".join(f"{line}\n" for line in self._choices(variants, indent, description, bare=True))
        return f"{above}{indent}{name}:\n{lines}{indent},\n"


def _has_enum(node: Schema) -> bool:
    return is_array(node.get("enum")) and bool(node["enum"])


def _has_remarks(variants: Sequence[Any]) -> bool:
    return any("description" in variant or "default" in variant for variant in variants if is_object(variant))


def _first_description(variants: Sequence[Any]) -> Any:
    return variants[0].get("description") if variants and is_object(variants[0]) else None


def _as_comment(text: str, indent: str) -> str:
    """Return a text as comments, one for each line; for an empty text, return an empty comment."""
    return line_comments(text, indent) or f"{indent}// \n"


def _examples(given: Any, indent: str) -> str:
    if not is_array(given) or not given:
        return ""
    shown = "".join(f"{indent}// - {_quoted(example)}\n" for example in given if isinstance(example, str))
    return f"{indent}// Examples:\n{shown}"


def _default(node: Schema, *, bare: bool = True) -> str:
    """Return a default as text: a string in quotes, other values as JSON. If `bare`, enum values have no quotes."""
    value = node["default"]
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not _has_enum(node):
        return f'"{value}"'
    return value if bare else json.dumps(value, ensure_ascii=False)


def _quoted(text: str) -> str:
    """Return a text in quotes: unescaped if it is a single line, else escaped as JSON."""
    return f'"{text}"' if "\n" not in text else json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(_split_lines(text))


def _split_lines(text: str) -> list[str]:
    """Split a text at line feeds only, like openai-harmony, not at the other line boundaries of `str.splitlines`."""
    lines = re.split("\r?\n", text)
    return lines if lines[-1] else lines[:-1]


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
