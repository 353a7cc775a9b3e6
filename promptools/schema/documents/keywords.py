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


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(value: Any) -> bool:
    return is_array(value) and all(map(_text, value)) and len(set(value)) == len(value)


def _type(value: Any) -> bool:
    if isinstance(value, str):
        return value in JSON_TYPES
    return bool(value) and _names(value) and JSON_TYPES.issuperset(value)


def _schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _named_schemas(value: Any) -> bool:
    return is_object(value) and all(map(_schema, value.values()))


def _rare(_: Any) -> bool:
    return False


_KEYWORDS_BY_TEST: Mapping[Callable[[Any], bool], str] = {
    _text: "$comment $ref $schema contentEncoding contentMediaType description format pattern title",
    lambda value: isinstance(value, bool): "deprecated readOnly uniqueItems writeOnly",
    _number: "exclusiveMaximum exclusiveMinimum maximum minimum",
    lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ): "maxContains maxItems maxLength maxProperties minContains minItems minLength minProperties",
    is_array: "examples",
    # an empty list is well formed, but no value would fit
    lambda value: is_array(value) and bool(value): "enum",
    _names: "required",
    lambda value: is_object(value) and all(map(_names, value.values())): "dependentRequired",
    _type: "type",
    _schema: "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems "
    "unevaluatedProperties",
    lambda value: is_array(value) and bool(value) and all(map(_schema, value)): "allOf anyOf oneOf prefixItems",
    _named_schemas: "$defs definitions dependentSchemas properties",
    lambda value: _named_schemas(value) and all(map(_text, value)): "patternProperties",
    lambda value: _number(value) and value > 0: "multipleOf",
    _rare: "$anchor $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $vocabulary dependencies",
}
VALUE_TESTS = {word: test for test, words in _KEYWORDS_BY_TEST.items() for word in words.split()}
RARE_KEYWORDS = frozenset(_KEYWORDS_BY_TEST[_rare].split())
"""Keywords whose presence alone leaves the decision to jsonschema."""
