"""What models call a parameter, and when the name is not touched."""

import pytest

from promptools.schema import Tools
from promptools.schema.spelling import DIRECTED_SYNONYMS, SYNONYMS


def tools(*names, required=(), aliases=None, **more):
    parameters = {"type": "object", "properties": {name: {} for name in names}, "required": list(required), **more}
    return Tools([{"name": "t", "parameters": parameters}], marks={"t": {"aliases": aliases or {}}})


def renamed(prepared, arguments):
    before = dict(arguments)
    checked = prepared.check(prepared[0], arguments)
    assert arguments == before
    return checked.arguments, [(fix.kind, fix.detail, fix.path) for fix in checked.fixes]


@pytest.mark.parametrize(
    ("alias", "name"),
    [(alias, name) for group in SYNONYMS for name in sorted(group) for alias in sorted(group - {name})]
    + [(alias, name) for name, aliases in DIRECTED_SYNONYMS.items() for alias in sorted(aliases)],
)
def test_each_known_alias_is_renamed(alias, name):
    assert renamed(tools(name), {alias: "x"}) == ({name: "x"}, [("alias", f"{alias!r} to {name!r}", f"/{name}")])


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        (("text", "content"), {"text": "a", "content": "b"}),  # both are declared
        (("text", "content"), {"body": "a"}),  # either could be meant
        (("text",), {"text": "a", "content": "b"}),  # the parameter is given already
        (("text",), {"body": "a", "content": "b"}),  # two for one
        (("filepath", "directory"), {"path": "x"}),  # one of two groups
        (("limit",), {"num_results": 3}),  # stands for num_results, not the other way
        (("pattern",), {"query": "x"}),
        (("file_path",), {"path": "x"}),  # `path` is for `filepath` only
        (("city",), {"town": "x"}),
    ],
)
def test_nothing_is_renamed_where_more_than_one_reading_stands(names, arguments):
    assert renamed(tools(*names), arguments) == (arguments, [])


def test_path_and_filepath_stand_for_each_other():
    assert renamed(tools("filepath"), {"path": "x"})[0] == {"filepath": "x"}
    assert renamed(tools("path"), {"filepath": "x"})[0] == {"path": "x"}
    assert renamed(tools("path", "filepath"), {"path": "x"})[0] == {"path": "x"}


def test_the_order_of_arguments_stays():
    assert list(renamed(tools("query", "num_results"), {"top_n": 3, "query": "x"})[0]) == ["num_results", "query"]


def test_own_aliases_outrank_the_groups():
    prepared = tools("text", "note", aliases={"content": "note", "memo": "text"})
    assert renamed(prepared, {"content": "a", "memo": "b"})[0] == {"note": "a", "text": "b"}


@pytest.mark.parametrize(
    "more",
    [{"additionalProperties": True}, {"additionalProperties": {"type": "string"}}, {"patternProperties": {"^x": {}}}],
)
def test_where_other_keys_are_welcome_only_a_missing_required_one_is_renamed(more):
    assert renamed(tools("query", **more), {"search_query": "x"}) == ({"search_query": "x"}, [])
    assert renamed(tools("query", required=["query"], **more), {"search_query": "x"})[0] == {"query": "x"}


def test_a_closed_schema_renames_too():
    assert renamed(tools("query", additionalProperties=False), {"search_query": "x"})[0] == {"query": "x"}


def test_required_and_openness_are_read_through_references():
    parameters = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"properties": {"query": {}}, "required": ["query"], "additionalProperties": {}}},
    }
    prepared = Tools([{"name": "t", "parameters": parameters}])
    assert renamed(prepared, {"search_query": "x"})[0] == {"query": "x"}
