"""The cost of new tools: checking their schemas, resolving references, indexing their names, and a first reply."""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

import jsonschema
import pydantic

from benchmarks.table import Row, Table, Target
from benchmarks.timing import best_of, seconds
from promptools import parse
from promptools.schema import Tools

FEW, MANY = 100, 2000
MOST = Target("at most", 0.15, "at most 0.15x jsonschema")
FIRST = Target("at most", 5, "at most 5x of tools seen before")
LISTS = 4000
"""How many new lists of tools there are: more than all rounds use."""
LINEAR = Target("at most", 1.5, f"at most 1.5x of {FEW}")


def tools() -> Table:
    """Measure the preparation of typical tools, and how its cost grows with their number."""
    few, many = [_typical(number) for number in range(FEW)], [_typical(number) for number in range(MANY)]
    schemas = [tool["function"]["parameters"] for tool in few]
    times = best_of(
        {
            "ours": lambda: Tools(few),
            "jsonschema": lambda: [_checked(schema) for schema in schemas],
            "pydantic": lambda: [_modelled(number) for number in range(FEW)],
            "seen": lambda: Tools.prepare(few),
            "many": lambda: Tools(many),
        }
    )
    per_tool = {name: spent / (MANY if name == "many" else FEW) for name, spent in times.items()}
    first = _first_replies()
    rows = [
        _row("a tool never seen", per_tool["ours"], per_tool["jsonschema"], "jsonschema", MOST),
        _row("the same, of pydantic", per_tool["ours"], per_tool["pydantic"], "pydantic"),
        _row("a tool seen before", per_tool["seen"], per_tool["jsonschema"], "jsonschema"),
        _row(f"a tool of {MANY}", per_tool["many"], per_tool["ours"], f"of {FEW}", LINEAR),
        _row("a reply, three tools never seen", first["prepared"], first["seen"], "seen", FIRST),
        _row("the same, their preparation included", first["new"], first["known"], "seen", FIRST),
    ]
    return Table("tools", "Tools made ready: processor time of one", rows)


def _first_replies() -> dict[str, float]:
    """Measure the first reply to a request with three small tools, and a later one."""
    seen, known = Tools(_small("seen")), _small("known")
    ready = cycle([Tools(_small(f"prepared_{number}")) for number in range(LISTS)])
    new = cycle([_small(f"new_{number}") for number in range(LISTS)])
    return best_of(
        {
            "seen": lambda: parse(REPLY, seen),
            "known": lambda: parse(REPLY, known),
            "prepared": lambda: parse(REPLY, next(ready)),
            "new": lambda: parse(REPLY, next(new)),
        }
    )


REPLY = 'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'


def _small(word: str) -> list[dict[str, Any]]:
    """Return three tools with two parameters each. Two of the tools have new names."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Do what a {word} does.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                    "required": ["city"],
                },
            },
        }
        for name in ("get_weather", f"{word}_search", f"write_{word}")
    ]


def _row(case: str, ours: float, other: float, name: str, target: Target | None = None) -> Row:
    ratio = ours / other
    shown = {"ours": seconds(ours), "other": f"{seconds(other)} {name}", "ratio": f"{ratio:.2f}x"}
    return Row(case, shown, ratio, target, {"ours_s": ours, "other_s": other})


def _checked(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def _modelled(number: int) -> str:
    """Return the schema of a similar tool, from a pydantic model, as in frameworks where tools are classes."""
    fields: Any = {f"p{index}": (kind, None) for index, kind in enumerate((str, int, bool, float, list[str], str, int))}
    return json.dumps(pydantic.create_model(f"Tool{number}", **fields).model_json_schema())


def _typical(number: int) -> dict[str, Any]:
    """Return a tool that is typical of agents: seven parameters with descriptions, an enum, a nested object."""
    options = {
        "type": "object",
        "properties": {
            "depth": {"type": "integer"},
            "follow": {"type": "boolean"},
            "format": {"type": "string", "enum": ["json", "text"]},
        },
        "required": ["depth"],
        "additionalProperties": False,
    }
    parameters = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Path of the file to look at."},
            "query": {"type": "string", "description": f"What to search for, of kind {number}."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
            "mode": {"type": "string", "enum": ["fast", "slow", "auto"], "description": "How to search."},
            "verbose": {"type": "boolean", "default": False},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Labels to look for."},
            "options": options,
        },
        "required": ["path", "query"],
        "additionalProperties": False,
    }
    description = f"Search the files of project {number} and return what was found, the best first."
    return {
        "type": "function",
        "function": {"name": f"search_{number}", "description": description, "parameters": parameters},
    }
