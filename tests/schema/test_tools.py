"""Preparing tools: every form they come in, every mistake that is refused, and what is handed back."""

import functools
import inspect
import sys
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from promptools.errors import UsageError
from promptools.schema import Tools
from promptools.types import Tool

OBJECT = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Forecast(BaseModel):
    """Tell the weather."""

    city: str = Field(description="where")
    days: int = 3


def search(query: str, num_results: Annotated[int, Field(ge=1)] = 5, kind: Literal["web", "news"] = "web") -> str:
    """Search the web.

    Returns the best hits.
    """
    return query


def tool(name="weather", parameters=OBJECT, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


@pytest.mark.parametrize(
    "given",
    [
        tool(description="d"),
        {"name": "weather", "description": "d", "parameters": OBJECT},
        {"type": "function", "name": "weather", "description": "d", "parameters": OBJECT},
        {"name": "weather", "description": "d", "input_schema": OBJECT},
        {"name": "weather", "description": "d", "inputSchema": OBJECT},
        Tool("weather", "d", OBJECT),
    ],
    ids=["openai", "bare", "responses", "anthropic", "mcp", "Tool"],
)
def test_dict_forms_mean_the_same(given):
    tools = Tools([given])
    assert (tools[0].name, tools[0].description, tools[0].parameters) == ("weather", "d", OBJECT)
    assert tools.to_openai() == [tool(description="d")]


def test_a_pydantic_model_is_a_tool():
    tools = Tools([Forecast])
    assert tools.names == ("Forecast",)
    assert tools[0].description == "Tell the weather."
    assert tools[0].parameters == {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
    }


def test_a_typed_function_is_a_tool():
    tools = Tools([search])
    assert tools[0].description == "Search the web.\n\nReturns the best hits."
    assert tools[0].parameters["properties"] == {
        "query": {"type": "string"},
        "num_results": {"type": "integer", "minimum": 1, "default": 5},
        "kind": {"enum": ["web", "news"], "type": "string", "default": "web"},
    }
    assert tools[0].parameters["required"] == ["query"]


def google(query: str, count: int = 3, kind: Annotated[str, Field(description="its own")] = "") -> str:
    """Search the web.

    All of it.

    Args:
        query: What to search for,
            in words.
        count (int): How many.
        kind: Not heard.
        other: No parameter.

    Returns:
        The hits.

    Raises:
        OSError: The net is down.
    """
    return query


def numpy(query: str, count: int = 3) -> str:
    """Search the web.

    Parameters
    ----------
    query : str
        What to search for,
        in words.
    count : int, optional
        How many.
    """
    return query


def sphinx(query: str, count: int = 3) -> str:
    """Search the web.

    :param query: What to search for,
        in words.
    :param int count: How many.
    """
    return query


def with_examples(query: str) -> str:
    """Search the web.

    Args:
        query: What to search for, in words.

    Examples:
        >>> with_examples("a")
    """
    return query


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_what_a_docstring_says_of_parameters_describes_them(function):
    pytest.importorskip("griffe")
    (made,) = Tools([function])
    properties = made.parameters["properties"]
    assert properties["query"] == {"type": "string", "description": "What to search for, in words."}
    assert properties["count"] == {"type": "integer", "default": 3, "description": "How many."}
    if function is google:
        assert properties["kind"]["description"] == "its own"
        assert made.description == "Search the web.\n\nAll of it.\n\nReturns: The hits."
    else:
        assert made.description == "Search the web."


def test_a_docstring_with_sections_of_other_kinds_stays_whole():
    pytest.importorskip("griffe")
    (made,) = Tools([with_examples])
    assert made.parameters["properties"]["query"]["description"] == "What to search for, in words."
    assert made.description == inspect.cleandoc(with_examples.__doc__)


def test_a_docstring_that_only_mentions_a_parameter_stays_whole():
    pytest.importorskip("griffe")

    def find(query: str) -> None:
        """Find what the query says."""

    assert Tools([find])[0].description == "Find what the query says."
    assert "description" not in Tools([find])[0].parameters["properties"]["query"]


def test_without_the_library_a_docstring_stays_whole(monkeypatch):
    monkeypatch.setitem(sys.modules, "griffe", None)
    assert Tools([google])[0].description == inspect.cleandoc(google.__doc__)


async def fetch(url: str) -> str:
    return url


def test_an_async_function_without_docstring_is_a_tool():
    assert Tools([fetch])[0] == Tool("fetch", "", Tools([fetch])[0].parameters)
    assert Tools([fetch]).keys("fetch") == {"url"}


@pytest.mark.parametrize("parameters", [None, "absent"])
def test_missing_parameters_are_none_at_all(parameters):
    given = {"name": "now"} if parameters == "absent" else {"name": "now", "parameters": None}
    assert Tools([given]).to_openai()[0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_an_empty_schema_stays_and_takes_anything():
    tools = Tools([{"name": "any", "parameters": {}}])
    assert tools[0].parameters == {}
    assert tools.check(tools[0], {"a": [1]}).errors == ()


def nameless(city: str) -> str: ...


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([tool(name=None)], "Tool at position 0 has no name"),
        ([tool(), tool(name=" ")], "Tool at position 1 has no name"),
        ([{"type": "function"}], "Tool at position 0 has no name"),
        ([{"type": "custom", "custom": {"name": "x"}}], "Tool at position 0 has no name"),
        ([{"function": "weather"}], "Tool at position 0 has no name"),
        (["weather"], "Tool at position 0 is 'weather'"),
        ([lambda city: city], "Tool at position 0 has no name"),
        ([functools.partial(nameless, "x")], "Tool at position 0 has no name"),
        ([tool(), tool()], "Tool 'weather' is given 2 times"),
        ([tool(parameters=[])], "Tool 'weather': its parameters are []"),
        ([tool(parameters={"type": "string"})], "of type 'string' at '/type'"),
        ([tool(parameters={"type": "strin"})], "of type 'strin' at '/type'"),
        ([tool(parameters={"type": ["string", "null"]})], "of type ['string', 'null']"),
        ([tool(parameters={"properties": []})], "not a valid JSON Schema (draft 2020-12) at '/properties'"),
        ([tool(parameters={"properties": {"a/b": {"type": "strin"}}})], "at '/properties/a~1b/type'"),
        ([tool(parameters={"required": "city"})], "at '/required'"),
        ([tool(parameters={"description": 5})], "at '/description'"),
        ([tool(description=5)], "its description is 5"),
        ([tool(strict="yes")], "'strict' is 'yes'"),
        ([int], "'int' is a class but not a pydantic model"),
        ("weather", "expected a list of tools"),
        (tool(), "expected a list of tools"),
        (Forecast, "expected a list of tools"),
    ],
)
def test_bad_tools_are_refused_by_name_and_place_where_it_is_strict(given, says):
    with pytest.raises(UsageError) as error:
        Tools(given, strict=True)
    assert says in str(error.value)


def test_a_signature_without_a_schema_is_refused():
    class Opaque:
        pass

    def send(what: Opaque) -> None: ...

    with pytest.raises(UsageError, match="Tool 'send': no JSON Schema can be made"):
        Tools([send])


def test_positional_only_parameters_are_refused():
    def send(what: int, /) -> None: ...

    with pytest.raises(UsageError, match="Tool 'send': its parameters are of type 'array'"):
        Tools([send])


def test_a_depth_bomb_of_a_schema_is_refused():
    schema = {"type": "string"}
    for _ in range(3000):
        schema = {"items": schema}
    with pytest.raises(UsageError, match="Tool at position 0 is nested too deeply"):
        Tools([Tool("deep", "", schema)], strict=True)


def test_a_schema_that_can_be_copied_but_not_checked_is_refused():
    schema = {"type": "string"}
    for _ in range(250):
        schema = {"items": schema}
    with pytest.raises(UsageError, match="Tool 'deep': its parameters are nested too deeply"):
        Tools([Tool("deep", "", schema)], strict=True)


def test_tools_are_a_sequence():
    tools = Tools([tool(), tool("other")])
    assert len(tools) == 2
    assert [tool.name for tool in tools] == ["weather", "other"]
    assert tools[1].name == "other"
    assert [tool.name for tool in tools[:1]] == ["weather"]
    assert tools.names == ("weather", "other")
    assert repr(tools) == "Tools(weather, other)"
    assert tools.get("weather") is tools[0]
    assert tools.get("Weather") is None


def test_nothing_is_shared_with_the_caller():
    given = tool(description="d", strict=True, **{"x-promptools": {"dangerous": True}})
    before = repr(given)
    tools = Tools([given])
    tools.to_openai()[0]["function"]["parameters"]["properties"].clear()
    assert repr(given) == before
    given["function"]["parameters"] = {}
    assert tools.to_openai() == [
        {"type": "function", "function": {"name": "weather", "parameters": OBJECT, "description": "d", "strict": True}}
    ]


def test_other_keys_of_the_caller_are_sent():
    given = {**tool(cache="x"), "vendor": 1}
    assert Tools([given]).to_openai() == [given]
    assert Tools([Tool("weather", "", OBJECT, strict=True)]).to_openai()[0]["function"]["strict"] is True


def test_prepare_remembers_lists_of_dicts():
    first = Tools.prepare([tool(description="remembered")])
    assert Tools.prepare([tool(description="remembered")]) is first
    assert Tools.prepare([tool(description="another")]) is not first
    assert Tools.prepare(first) is first
    assert Tools.prepare(None) is None
    assert Tools.prepare([]).names == ()
    assert Tools.prepare(iter([search])).names == ("search",)


def test_the_order_of_properties_is_no_secret_to_the_cache():
    one = {"properties": {"a": {}, "b": {}}}
    other = {"properties": {"b": {}, "a": {}}}
    assert list(Tools.prepare([tool(parameters=one)])[0].parameters["properties"]) == ["a", "b"]
    assert list(Tools.prepare([tool(parameters=other)])[0].parameters["properties"]) == ["b", "a"]


def test_prepare_takes_dicts_that_are_not_json():
    assert Tools.prepare([tool(parameters={"properties": {"a": {"default": {1, 2}}}})]).names == ("weather",)


def test_marks_in_the_dict_and_by_name():
    marks = {"dangerous": True, "infer": False, "aliases": {"town": "city"}}
    for given, extra in (
        ([{**tool(), "x-promptools": marks}], None),
        ([tool(**{"x-promptools": marks})], None),
        ([tool(parameters={"properties": {"city": {}}, "x-promptools": marks})], None),
        ([tool()], {"weather": marks}),
        (
            [{**tool(**{"x-promptools": {"dangerous": False, "aliases": {"town": "city"}}}), "x-promptools": marks}],
            None,
        ),
    ):
        made = Tools(given, marks=extra)
        assert (made[0].dangerous, made[0].infer, made[0].aliases) == (True, False, {"town": "city"})
        assert "x-promptools" not in repr(made.to_openai())


def test_marks_in_the_schema_of_a_model():
    class Weather(BaseModel, json_schema_extra={"x-promptools": {"dangerous": True}}):
        city: str

    made = Tools([Weather])
    assert made[0].dangerous
    assert "x-promptools" not in repr(made.to_openai())


@pytest.mark.parametrize(
    ("marks", "says"),
    [
        ({"weather": {"danger": True}}, "no mark 'danger'"),
        ({"weather": {"dangerous": 1}}, "the mark 'dangerous' is 1; expected true or false"),
        ({"weather": {"infer": "yes"}}, "the mark 'infer' is 'yes'"),
        ({"weather": {"aliases": ["town"]}}, "the mark 'aliases' is ['town']"),
        ({"weather": {"aliases": {"town": 1}}}, "the mark 'aliases' is {'town': 1}"),
        ({"weather": {"aliases": {"town": "place"}}}, "the alias 'town' stands for 'place'"),
        ({"weather": {"aliases": {"city": "city"}}}, "the alias 'city' (for 'city') is itself declared"),
        ({"weather": "dangerous"}, "its marks are 'dangerous'"),
        ({"whether": {"dangerous": True}}, "Marks are given for 'whether'"),
    ],
)
def test_bad_marks_are_refused(marks, says):
    with pytest.raises(UsageError) as error:
        Tools([tool()], marks=marks)
    assert says in str(error.value)


def test_marks_set_later_skip_tools_that_are_not_offered():
    tools = Tools([tool(), tool("other")])
    marked = tools.with_marks({"weather": {"dangerous": True}, "absent": {"dangerous": True}})
    assert [tool.dangerous for tool in marked] == [True, False]
    assert [tool.dangerous for tool in tools] == [False, False]
    assert marked.to_openai() == tools.to_openai()


def test_keys_are_found_through_references_and_alternatives():
    parameters = {
        "$ref": "#/$defs/base",
        "allOf": [{"properties": {"b": {}}}, True],
        "anyOf": [{"properties": {"c": {}}}, {"$ref": "#/$defs/base"}],
        "oneOf": [{"properties": {"d": {}}}],
        "if": {"properties": {"unsaid": {}}},
        "then": {"properties": {"e": {}}},
        "$defs": {"base": {"properties": {"a": {"properties": {"inner": {}}}}}},
    }
    tools = Tools([tool(parameters=parameters), tool("other")])
    assert tools.keys("weather") == {"a", "b", "c", "d", "e"}
    assert tools.keys("absent") == frozenset()
    assert tools.all_keys == {"a", "b", "c", "d", "e", "city"}
