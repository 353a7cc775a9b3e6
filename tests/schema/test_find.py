"""What models call a tool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.schema import Tools

NAMES = [
    "get",
    "get_weather",
    "resolve-library-id",
    "listFiles",
    "tools.search",
    "ns.read",
    "查天气",
    "Write",
    "a-b",
    "a_b",
]
TOOLS = Tools([{"name": name} for name in NAMES])


@pytest.mark.parametrize("name", NAMES)
def test_a_name_as_declared_needs_no_fix(name):
    assert TOOLS.find(name) == (TOOLS.get(name), None)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (" get_weather\n", "get_weather"),
        ("`get_weather`", "get_weather"),
        ("“get_weather”", "get_weather"),
        ("'get_weather':", "get_weather"),
        ("functions.get_weather", "get_weather"),
        ("function.get_weather", "get_weather"),
        ("tools.get_weather", "get_weather"),
        ("tool.get_weather", "get_weather"),
        ("default_api.get_weather", "get_weather"),
        ("default_api:get_weather", "get_weather"),
        ("multi_tool_use.functions.get_weather", "get_weather"),
        ("functions.get_weather:0", "get_weather"),
        ("get_weather()", "get_weather"),
        ("get_weather.call", "get_weather"),
        ("get_weather<|channel|>commentary", "get_weather"),
        ("functions.get_weather<|channel|>commentary json", "get_weather"),
        ("get_weather</arg_value>", "get_weather"),
        ("get_weathercommentary", "get_weather"),
        ("get_weathercommentary json", "get_weather"),
        ("get_weather analysis", "get_weather"),
        ("get_weatherfinal", "get_weather"),
        ("get_weatherjson", "get_weather"),
        ("GET_WEATHER", "get_weather"),
        ("getWeather", "get_weather"),
        ("get-weather", "get_weather"),
        ("get.weather", "get_weather"),
        ("Get Weather", "get_weather"),
        ("resolve_library_id", "resolve-library-id"),
        ("list_files", "listFiles"),
        ("write", "Write"),
        ("functions.tools.search", "tools.search"),
        ("functions.查天气:12", "查天气"),
        ("A_B", "a_b"),
        ("functions_Write_2", "Write"),
        ("functions_get_weather_12", "get_weather"),
        ("functions_get_weather", "get_weather"),
        ("functions-get_weather-0", "get_weather"),
        ("functions.get_weather_2", "get_weather"),
        ("functions_查天气_1", "查天气"),
    ],
)
def test_a_name_spelled_otherwise_is_found_and_said_so(name, meant):
    tool, fix = TOOLS.find(name)
    assert tool.name == meant
    assert (fix.kind, fix.detail) == ("name", f"{name!r} to {meant!r}")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_",
        "weather",
        "get_weather_now",
        "get_weathe",
        "get_json",
        "assistant<|channel|>analysis",
        "json",
        "functions.",
        "A.B",  # a-b or a_b
        "functions.AB",
        "get_weather_2",
        "functions_",
        "functions_2",
        "functions_weather_2",
        "my_functions_get_weather_2",
        "x" * 100_000,
        "get_weather" + "()" * 100_000,
        "functions." * 100_000 + "get_weather",
        None,
        {"name": "get_weather"},
        ["get_weather"],
    ],
)
def test_other_names_are_not_found(name):
    assert TOOLS.find(name) is None


def test_two_tools_alike_are_told_apart_by_case_only_when_exact():
    tools = Tools([{"name": "Read"}, {"name": "read"}, {"name": "re_ad"}])
    assert tools.find("read") == (tools[1], None)
    assert tools.find("READ") is None
    assert tools.find("re-ad") is None


def test_a_name_of_separators_is_found_only_as_it_is():
    tools = Tools([{"name": "_"}])
    assert tools.find("-") is None
    assert tools.find("_")[0].name == "_"


@given(st.text(max_size=40))
def test_any_name_gives_an_answer(name):
    match = TOOLS.find(name)
    assert match is None or match[0].name in NAMES
