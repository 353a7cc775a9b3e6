"""The example calls of a prompt: drawn from the offered tools, and known again where a model copies them."""

import pytest

from promptools import Tools
from promptools.dialects.prompt import GENERIC_CALL, example_calls


def schema(properties, *required, **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


def arguments(parameters):
    first, _ = example_calls(Tools([{"name": "f", "parameters": parameters}]))
    return first.arguments


LOOP = {"type": "object", "properties": {"next": {"$ref": "#/$defs/loop"}}, "required": ["next"]}
ODD = {"a": {"type": ["string", "null"]}, "b": {"type": []}, "c": {}}
MANY = {f"p{n}": {"type": "string"} for n in range(20)}
TEXT = {"type": "string"}
DRAWN = [
    (schema({"city": TEXT, "unit": TEXT}, "city"), {"city": "<city>"}),
    (
        schema({"n": {"type": "integer"}, "x": {"type": "number"}, "t": TEXT}, "n", "x", "t"),
        {"n": 1, "x": 1.5, "t": "<t>"},
    ),
    (
        schema({"on": {"type": "boolean"}, "no": {"type": "null"}, "t": TEXT}, "on", "no", "t"),
        {"on": True, "no": None, "t": "<t>"},
    ),
    (
        schema({"unit": {"enum": ["c", "f"]}, "kind": {"const": "now"}, "t": TEXT}, "unit", "kind", "t"),
        {"unit": "c", "kind": "now", "t": "<t>"},
    ),
    (schema(ODD, *ODD), {"a": "<a>", "b": "<b>", "c": "<c>"}),
    (schema({"rows": {"type": "array", "items": TEXT}}, "rows"), {"rows": ["<rows>"]}),
    (schema({"rows": {"type": "array"}}, "rows"), {"rows": ["<rows>"]}),
    (schema({"who": schema({"name": TEXT, "age": {"type": "integer"}}, "name")}, "who"), {"who": {"name": "<name>"}}),
    (schema({"at": {"$ref": "#/$defs/at"}}, "at", **{"$defs": {"at": TEXT}}), {"at": "<at>"}),
    (
        schema({"next": {"$ref": "#/$defs/loop"}, "t": TEXT}, "next", "t", **{"$defs": {"loop": LOOP}}),
        {"next": {"next": {"next": {}}}, "t": "<t>"},
    ),
    (schema(MANY, *MANY), {f"p{n}": f"<p{n}>" for n in range(8)}),
    (schema({"a": True}, "a", "missing"), {"a": "<a>"}),
    # nothing but words that are given: they are placeholders too, or a copy would be a call
    (schema({"unit": {"enum": ["c", "f"]}, "n": {"type": "integer"}}, "unit", "n"), {"unit": "<unit>", "n": 1}),
]


@pytest.mark.parametrize(("parameters", "drawn"), DRAWN)
def test_required_parameters_are_shown_with_values_of_their_type(parameters, drawn):
    assert arguments(parameters) == drawn


def test_deep_arrays_end():
    nested = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}}
    assert arguments(schema({"deep": nested, "t": TEXT}, "deep", "t")) == {"deep": [[[]]], "t": "<t>"}


def named(*names):
    return [{"name": name, "parameters": schema({"city": TEXT}, "city")} for name in names]


NOW = {"name": "now", "parameters": schema({})}
COUNT = {"name": "count", "parameters": schema({"n": {"type": "integer"}, "on": {"enum": [1]}}, "n", "on")}


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        (named("one", "two", "three"), ["one", "three"]),
        (named("one"), ["one", "one"]),
        # a copy of their examples might be meant
        ([NOW, *named("one", "two"), COUNT], ["one", "two"]),
        ([NOW, COUNT], [GENERIC_CALL.name, GENERIC_CALL.name]),
    ],
)
def test_the_first_tool_and_the_last_that_take_a_text_are_shown(tools, shown):
    calls = example_calls(Tools(tools))
    assert [call.name for call in calls] == shown
    assert (calls[0] is GENERIC_CALL) == (shown[0] == GENERIC_CALL.name)
