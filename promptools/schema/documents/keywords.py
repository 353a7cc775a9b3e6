"""A fast check that the keywords of a schema are well formed, as the meta-schema of draft 2020-12 has it.

Yes is certain. No means that jsonschema is to decide: a keyword is malformed, or rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.schema.documents.json_guards import is_array, is_object
from promptools.schema.documents.type_names import JSON_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptools.types import Schema


def well_formed(node: Schema) -> bool:
    """Whether jsonschema would surely accept the keywords of a schema, apart from its subschemas."""
    for keyword, value in node.items():
        test = VALUE_TESTS.get(keyword)
        if test is not None and not test(value):
            return False
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _members(value: Any) -> bool:
    return is_array(value) and bool(value)  # an empty list is well formed, but no value would fit


def _names(value: Any) -> bool:
    return is_array(value) and all(map(_text, value)) and len(set(value)) == len(value)


def _name_lists(value: Any) -> bool:
    return is_object(value) and all(map(_names, value.values()))


def _type(value: Any) -> bool:
    if isinstance(value, str):
        return value in JSON_TYPES
    return is_array(value) and bool(value) and _names(value) and JSON_TYPES.issuperset(value)


def _schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _schemas(value: Any) -> bool:
    return is_array(value) and bool(value) and all(map(_schema, value))


def _named_schemas(value: Any) -> bool:
    return is_object(value) and all(map(_schema, value.values()))


def _patterns(value: Any) -> bool:
    return _named_schemas(value) and all(map(_text, value))


def _divisor(value: Any) -> bool:
    return _number(value) and value > 0


def _rare(_: Any) -> bool:
    return False


_KEYWORDS_BY_TEST: Mapping[Callable[[Any], bool], str] = {
    _text: "$comment $ref $schema contentEncoding contentMediaType description format pattern title",
    _boolean: "deprecated readOnly uniqueItems writeOnly",
    _number: "exclusiveMaximum exclusiveMinimum maximum minimum",
    _size: "maxContains maxItems maxLength maxProperties minContains minItems minLength minProperties",
    _list: "examples",
    _members: "enum",
    _names: "required",
    _name_lists: "dependentRequired",
    _type: "type",
    _schema: "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems "
    "unevaluatedProperties",
    _schemas: "allOf anyOf oneOf prefixItems",
    _named_schemas: "$defs definitions dependentSchemas properties",
    _patterns: "patternProperties",
    _divisor: "multipleOf",
    _rare: "$anchor $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $vocabulary dependencies",
}
VALUE_TESTS = {word: test for test, words in _KEYWORDS_BY_TEST.items() for word in words.split()}
RARE_KEYWORDS = frozenset(_KEYWORDS_BY_TEST[_rare].split())
"""Keywords whose presence alone leaves the decision to jsonschema."""
