"""Schemas that a client may send: keywords of every kind, some malformed, with references that lead anywhere."""

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "$ref", "properties", "x/y", "~", "type", ""])
REFERENCES = st.sampled_from([
    "#", "#/", "#/$defs/a", "#/$defs/b", "#/$defs/~2", "#/properties/a", "#/properties/a/default", "#/$defs/a/enum/0",
    "#/properties/a/items/0", "#/allOf/1", "#/required/0", "#/required/x", "#x", "#/%", "%", "", "a b", "\x00",
    "http://e.x/a", "http://[", "other.json", "urn:x:y#a",
])  # fmt: skip
NUMBERS = st.sampled_from([0.5, 1e308, float("inf"), float("nan"), 10**30, 10**400, -1])
TEXTS = st.sampled_from(["", "a", "object", "string", "([", "^a", "(a+)+$", "http://e.x/a", "é\ud800", "x: y\nz", "//"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | NUMBERS | TEXTS
TYPES = ["object", "array", "string", "integer", "null", "number", "boolean"]
SINGLE = "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems"
SINGLE += " unevaluatedProperties"
LISTS = "allOf anyOf oneOf prefixItems"
MAPS = "$defs definitions dependentSchemas patternProperties properties"
WORDS = "title description pattern format $id $anchor $dynamicAnchor $schema $comment"
LIMITS = "minimum maximum multipleOf exclusiveMinimum minLength maxLength minItems maxItems minProperties maxProperties"


def _odd(inner):
    schema = inner | st.booleans()
    keywords = (
        dict.fromkeys(SINGLE.split(), schema)
        | dict.fromkeys(LISTS.split(), st.lists(schema, min_size=1, max_size=3))
        | dict.fromkeys(MAPS.split(), st.dictionaries(NAMES, schema, max_size=3))
        | dict.fromkeys(WORDS.split(), TEXTS)
        | dict.fromkeys(LIMITS.split(), st.integers(0, 3) | NUMBERS)
        | dict.fromkeys(("uniqueItems", "nullable"), st.booleans())
        | dict.fromkeys(("$ref", "$dynamicRef"), REFERENCES)
        | dict.fromkeys(("const", "default", "unknown"), SCALARS | inner)
        | dict.fromkeys(("enum", "examples"), st.lists(SCALARS | inner, max_size=3))
        | {
            "type": st.sampled_from(TYPES) | st.just(["object", "null"]) | SCALARS,
            "required": st.lists(NAMES, unique=True, max_size=2),
            "dependencies": st.dictionaries(NAMES, schema | st.lists(NAMES), max_size=2),
        }
    )
    good = st.fixed_dictionaries({}, optional=keywords)
    wrong = st.dictionaries(
        st.sampled_from(sorted(keywords)), SCALARS | st.lists(inner, max_size=2) | inner, max_size=2
    )
    return good | st.builds(lambda one, other: {**one, **other}, good, wrong)


odd_schemas = st.recursive(
    st.just({}) | st.fixed_dictionaries({"type": st.sampled_from(["string", "object"])}), _odd, max_leaves=6
)

odd_json = st.recursive(
    SCALARS | st.sampled_from(["float", "null", "#/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([
                *f"type required enum a id $id $anchor items additionalItems dependencies description {LIMITS}".split(),
                *f"properties $ref $defs patternProperties unevaluatedProperties {SINGLE} {LISTS} {MAPS}".split(),
            ]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)  # fmt: skip
"""Any JSON, with words that a schema may hold."""
