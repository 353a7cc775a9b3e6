"""Whatever a dialect's table holds: it is a dialect, or an error names the file, the key and what is wanted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from promptools import Tools, UsageError, dialects
from promptools.dialects.table import COMMON_KEYS, KINDS, MAX_ENTRIES, PACKAGE, make_dialect, read_dialect
from promptools.types import Call, Result

TOOLS = Tools([{"name": "add", "description": "Add {tools}", "parameters": {"type": "object", "properties": {}}}])
CALLS = [Call("1", "add", {"a": 1}, '{"a": 1}'), Call("2", "{name}", {}, "{}")]
RESULTS = [Result("1", "add", "3"), Result("2", "add", "{content}", is_error=True)]
TABLES: dict[str, dict[str, Any]] = {
    "json": {"openers": {"<|acme|>": "<|/acme|>"}},
    "named": {"call": "<|acme|>{name}<|with|>{arguments}<|/acme|>"},
    "tags": {"call": '<do it="{name}">{parameters}</do>', "parameter": "<{key}>{value}</{key}>"},
    "nested": {"mark": "~@~", "call": '{mark}<do it="{name}">{parameters}{mark}</do>'},
    "key_value": {"call": "<do>{name}{arguments}</do>", "argument": "<k>{key}</k><v>{value}</v>"},
    "python": {"openers": {"<do>": "</do>"}},
    "braces": {"openers": {"<do>": "</do>"}},
}
"""The least that a table of each kind holds, apart from its name."""
VALUES: list[Any] = [
    *(
        "",
        " ",
        "\n",
        "x",
        "xy",
        "{",
        "[",
        "\\",
        "(?P<x>",
        "{name}",
        "{arguments}{name}",
        "{name}{arguments}",
        "a" * 500,
    ),
    *("<a>", "</a>", "<|a|>", "A:", "A: ", "#a", "\ud800", "{calls}", "<a>{calls}</a>", "{content}", "{json} {x}", "S"),
    *("```", "```x", "function", "é:", "a b", '<a b="{name}">{parameters}</a>', "<{key}>{value}</{key}>", "{suffix}>"),
    *(True, False, 0, 1, -1.5, float("nan"), 10**400),
    *([], [""], ["x"], ["xy"], ["<a>", "</a>"], ["a", "b", "c"], ["", "", ""], [1], [[]], [{}], [True], ["xy", 1]),
    *({}, {"": ""}, {"a": ""}, {"ab": ""}, {"ab": "cd"}, {"ab": 1}, {"": "ab"}, {"ab": []}, {"text": "x"}),
    *({"text": 1}, {"text": "{format}", "format": "{tools}"}, {"<a>": "</a>", "<ab>": "</a>", "": ""}, {" ab": ""}),
    *({"{suffix}>": "{suffix}>"}, {"<t:{suffix}>": "</t:{suffix}>"}, {"<t:{suffix}>": "</t>"}, {"```x": "```"}),
    *({"A:": ""}, {"##": ""}, {"A b:": "<e>"}),
]
KEYS = [(kind, key) for kind in KINDS for key in {**COMMON_KEYS, **KINDS[kind].keys}]


def written(table: dict[str, Any]) -> None:
    """Make the dialect of a table, and use all of it."""
    dialect = make_dialect(table, "acme.toml")
    assert dialect.render_tools(TOOLS, parallel=True) is not None
    assert dialect.render_tools(TOOLS, parallel=False, required=True) is not None
    assert dialect.render_calls(CALLS) is not None
    assert dialect.render_results(RESULTS) is not None
    for head in dialect.heads:
        for pattern in (head.pattern, head.gate, head.sure_pattern):
            re.compile(pattern)
        assert all(head.literals)


def refusal(table: dict[str, Any]) -> str:
    """Return the error for a table, empty if there is none."""
    try:
        written(table)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_any_value_is_read_or_refused(kind: str, key: str) -> None:
    errors = [refusal({"name": "acme", "kind": kind, **TABLES[kind], key: value}) for value in VALUES]
    assert all("acme.toml" in error and f"'{key}'" in error for error in errors if error)
    assert any(errors)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_needs_is_required(kind: str) -> None:
    table = {"name": "acme", "kind": kind, **TABLES[kind]}
    written(table)
    for key in ("name", *KINDS[kind].required):
        with pytest.raises(UsageError, match=rf"'acme\.toml' has no '{key}'; expected "):
            make_dialect({other: value for other, value in table.items() if other != key}, "acme.toml")


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_for_an_unknown_key_lists_those_of_the_kind(kind: str) -> None:
    with pytest.raises(UsageError, match=r"has a key 'colour'; the keys are name, .*for the kind") as caught:
        make_dialect({"name": "acme", "kind": kind, **TABLES[kind], "colour": "red"}, "acme.toml")
    assert all(key in str(caught.value) for key in KINDS[kind].keys)


@pytest.mark.parametrize("kind", ["xml", "", 1, ["json"], {}])
def test_an_unknown_kind(kind: object) -> None:
    with pytest.raises(UsageError, match=r"'kind' is .*; expected 'json', 'named', .* or 'braces'"):
        make_dialect({"name": "acme", "kind": kind}, "acme.toml")


def test_labels_begin_with_a_letter() -> None:
    with pytest.raises(UsageError, match=r"'acme\.toml': with 'at_line_start' .*'##' is not"):
        make_dialect({"name": "acme", "kind": "python", "at_line_start": True, "openers": {"##": ""}}, "acme.toml")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"separator": ", "},
        {"spaces": ["[", "]"]},
        {"separator": "\n", "spaces": ["[", "]"]},
        {"separator": ", ", "spaces": ["(", ")"]},
    ],
)
def test_a_list_without_markers_has_brackets_and_commas(keys: dict[str, Any]) -> None:
    table = {"name": "acme", "kind": "python", "openers": {"": ""}}
    written({**table, "separator": ",", "spaces": ["[", "]"]})
    with pytest.raises(UsageError, match=r"'openers' without markers are those of a list: 'spaces' are its brackets"):
        make_dialect({**table, **keys}, "acme.toml")


@pytest.mark.parametrize("openers", [{"```py": "```", "<a>": "</a>"}, {"<a>": "</a>", "```py": "```"}])
def test_a_code_fence_is_the_only_opener(openers: dict[str, str]) -> None:
    """After a fence nothing else was read, and before a fence a stream was read otherwise than a whole reply."""
    with pytest.raises(UsageError, match=r"'acme\.toml': a code fence is the only one of its 'openers'"):
        make_dialect({"name": "acme", "kind": "python", "openers": openers}, "acme.toml")


def test_a_header_is_of_each_call() -> None:
    table = {"name": "acme", "kind": "tags", **TABLES["tags"], "header": "to={name}<|with|>"}
    written({**table, "wrapper": "<a>{call}</a>"})
    with pytest.raises(UsageError, match=r"'acme\.toml': with 'header' the 'wrapper' is around one call"):
        make_dialect({**table, "wrapper": "<a>{calls}</a>"}, "acme.toml")


def test_without_a_header_calls_are_not_separated_by_text() -> None:
    table = {"name": "acme", "kind": "tags", **TABLES["tags"]}
    written({**table, "separator": "\n\n"})
    written({**table, "separator": "<|eom|>", "header": "to={name}<|with|>"})
    with pytest.raises(UsageError, match=r"'acme\.toml': without 'header' the 'separator' is white space"):
        make_dialect({**table, "separator": "<|eom|>"}, "acme.toml")


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("json", "openers", {"{{x": "}}"}),
        ("json", "openers", {"<<": "]x"}),
        ("json", "openers", {"<<": ",end"}),
        ("json", "also", ["}}"]),
        ("named", "call", "<<{name}|{arguments}}}"),
        ("named", "call", "<<{name}|{arguments}\n]]"),
        ("named", "wrapper", "<calls>{calls}]]"),
    ],
)
def test_a_closer_of_json_does_not_begin_like_more_of_it(kind: str, key: str, value: object) -> None:
    """A surplus bracket is a part of the JSON, so such a closer would never be found."""
    with pytest.raises(UsageError, match=rf"'acme\.toml': '{key}' is .*beginning with none of , ; }} \]"):
        make_dialect({"name": "acme", "kind": kind, **TABLES[kind], key: value}, "acme.toml")


@pytest.mark.parametrize("argument", ["<k>{key}</k><v> {value} </v>", "<k>{key}</k><v>{value}\n</v>"])
def test_white_space_around_a_value_is_the_value_s(argument: str) -> None:
    with pytest.raises(UsageError, match=r"'argument' is .*no white space is around \{value\}"):
        make_dialect({"name": "acme", "kind": "key_value", **TABLES["key_value"], "argument": argument}, "acme.toml")


@pytest.mark.parametrize(
    ("trim", "accepted", "refused"),
    [
        (None, ["<{key}>\n{value}\n</{key}>"], ["<{key}>\n{value}</{key}>", "<{key}> {value} </{key}>"]),
        ("line", ["<{key}>\n{value}\n</{key}>", "<{key}>{value}</{key}>"], ["<{key}> {value}</{key}>"]),
        ("verbatim", ["<{key}>{value}</{key}>"], ["<{key}>\n{value}\n</{key}>", "<{key}>{value} </{key}>"]),
        ("strip", ["<{key}> {value} </{key}>", "<{key}>\n\n{value}</{key}>"], []),
    ],
)
def test_white_space_around_a_value_is_trimmed(trim: str | None, accepted: list[str], refused: list[str]) -> None:
    table = {"name": "acme", "kind": "tags", **TABLES["tags"], **({"trim": trim} if trim else {})}
    for parameter in accepted:
        written({**table, "parameter": parameter})
    for parameter in refused:
        with pytest.raises(UsageError, match=r"'parameter' has white space around \{value\} that is not left out"):
            make_dialect({**table, "parameter": parameter}, "acme.toml")


@pytest.mark.parametrize(
    "text", ["x = ", "x = 1\nx = 2", "[" * 9999, f"x = {'[' * 9999}", "\x00", 'name = "\\ud800"', "x = 1979-99-99"]
)
def test_what_is_not_toml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"acme\.toml' is not valid TOML"):
        dialects.load(path)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(UsageError, match=r"acme\.toml' is not UTF-8"):
        dialects.load(path)


@pytest.mark.parametrize("name", ["", "no.toml", "a\x00b", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        dialects.load(f"{tmp_path}/{name}")


@pytest.mark.parametrize("path", sorted((PACKAGE / "families").glob("*.toml")), ids=lambda path: path.stem)
def test_a_family_in_the_package_has_its_source(path: Path) -> None:
    dialect = read_dialect(path)
    assert (dialect.name, bool(dialect.models)) == (path.stem, True)
    assert re.search(r"\b20[0-9][0-9]\b|vLLM|SGLang|made up", dialect.source), dialect.source


def test_each_table_in_the_package_is_a_dialect() -> None:
    assert {path.stem for path in (PACKAGE / "families").glob("*.toml")} <= set(dialects.BUILT_IN)


def test_there_are_so_many_entries_and_no_more() -> None:
    """Each prefix is tried with each tag: a table of a config that was only found must not take minutes to read."""
    table = {"name": "acme", "kind": "tags", **TABLES["tags"]}
    tags = [f"<{{prefix}}t{number}>" for number in range(MAX_ENTRIES)]
    prefixes = [f"p{number}:" for number in range(MAX_ENTRIES)]
    make_dialect(
        {**table, "wrapper": "<{prefix}w>{calls}</{prefix}w>", "wrappers": tags, "prefixes": prefixes}, "acme.toml"
    )
    with pytest.raises(UsageError, match=r"'prefixes' has 65 entries; at most 64 are allowed"):
        make_dialect({**table, "prefixes": [*prefixes, ""]}, "acme.toml")
    for call, fits in (
        (f"{'a' * 2016}{{name}} {{arguments}} b", True),
        (f"{'a' * 2048}{{name}} {{arguments}} b", False),
    ):
        named = {"name": "acme", "kind": "named", "call": call}
        if fits:
            make_dialect(named, "acme.toml")
            continue
        with pytest.raises(UsageError, match=r"'call' has 20\d\d characters; at most 2048 are allowed"):
            make_dialect(named, "acme.toml")
    with pytest.raises(UsageError, match=r"'openers' has 65 entries; at most 64 are allowed"):
        make_dialect({"name": "acme", "openers": {f"<|{number}|>": "" for number in range(65)}}, "acme.toml")
