"""Measure the parsing of whole replies: small, long and broken ones."""

from __future__ import annotations

import json
import re
from typing import Any

import json_repair
import jsonschema
import orjson
import partial_json_parser

from benchmarks import peers, samples
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Job, best_of, seconds
from promptools import parse

SMALL = Target("at least", 3, ">= 3x faster than BAML")
LONG = Target("at most", 3, "<= 3x json.loads")
ARRAY = Target("at most", 1.3, "<= 1.3x json + jsonschema")
BROKEN = Target("at least", 5, ">= 5x faster than json-repair")


def small() -> Table:
    """Measure replies of 200 B to 1 KB, with prepared tools, against BAML and the lower bounds."""
    one, many = peers.baml("AskOne"), peers.baml("AskAny")
    rows = []
    for case, text in _small_texts():
        body = text[text.index("{") : text.rindex("}") + 1]
        theirs = text.replace('"name"', '"tool"')  # BAML's classes call this key `tool`
        assert parse(text, samples.TOOLS).calls[0].arguments == one(theirs).arguments.model_dump()
        assert many(theirs).tool == "get_weather"
        jobs: dict[str, Job] = {
            "ours": lambda text=text: parse(text, samples.TOOLS),
            "BAML 1 tool": lambda theirs=theirs: one(theirs),
            "BAML 3 tools": lambda theirs=theirs: many(theirs),
            "json.loads": lambda body=body: json.loads(body),
            "orjson": lambda body=body: orjson.loads(body),
            "partial-json": lambda body=body: partial_json_parser.loads(body),
        }
        took = best_of(jobs)
        ratio = took["BAML 3 tools"] / took["ours"]
        shown = {name: seconds(time) for name, time in took.items()}
        one_ratio = took["BAML 1 tool"] / took["ours"]
        rows.append(
            Row(
                f"{case}, {len(text)} B",
                {**shown, "1-tool ratio": f"{one_ratio:.1f}x", "ratio": f"{ratio:.1f}x"},
                ratio,
                SMALL,
                took,
            )
        )
    return Table("small", "Small replies, three tools prepared (BAML: parse only)", rows)


def _small_texts() -> list[tuple[str, str]]:
    short, middle, long = (samples.weather(details) for details in (4, 14, 31))
    words = samples.prose(180) + "\n\n"
    return [
        ("bare", short),
        ("bare", middle),
        ("bare", long),
        ("fenced", samples.fenced(short)),
        ("fenced", samples.fenced(middle)),
        ("fenced", samples.fenced(long)),
        ("after prose", words + samples.fenced(short)),
        ("after prose", words + samples.fenced(middle)),
        ("bare after prose", words + short),
        ("hermes", "<tool_call>\n" + short.replace('"tool"', '"name"') + "\n</tool_call>"),
    ]


def long_string() -> Table:
    """Measure one long string argument, validated, against json.loads of the same JSON."""
    rows = []
    for size in (20_000, 50_000, 200_000):
        for kind, content in (("code", samples.code(size)), ("words", samples.prose(size))):
            text = samples.call("write_file", {"path": "notes/a.py", "content": content})
            assert parse(text, samples.TOOLS).calls[0].arguments["content"] == content
            took = best_of(
                {
                    "ours": lambda text=text: parse(text, samples.TOOLS),
                    "json.loads": lambda text=text: json.loads(text),
                    "orjson": lambda text=text: orjson.loads(text),
                }
            )
            rows.append(_against(f"{kind}, {size // 1000} KB", took, took["ours"] / took["json.loads"], LONG))
    return Table("long_string", "One long string argument, validated", rows)


def array() -> Table:
    """Measure an array of small objects, against json.loads followed by plain jsonschema on the same value."""
    rows = []
    validator = jsonschema.Draft202012Validator(samples.PARAMETERS["add_rows"])
    for count in (50, 500, 3000):
        arguments: dict[str, Any] = {"table": "stock", "rows": samples.rows(count)}
        text = samples.call("add_rows", arguments)
        assert parse(text, samples.TOOLS).calls[0].arguments == arguments
        took = best_of(
            {
                "ours": lambda text=text: parse(text, samples.TOOLS),
                "json.loads": lambda text=text: json.loads(text),
                "jsonschema": lambda arguments=arguments: validator.is_valid(arguments),
            }
        )
        ratio = took["ours"] / (took["json.loads"] + took["jsonschema"])
        rows.append(_against(f"{count} objects, {len(text) // 1000} KB", took, ratio, ARRAY))
    return Table("array", "An array of small objects, validated", rows)


def broken() -> Table:
    """Measure 20 KB of broken JSON, against json-repair on the JSON alone. Like json-repair, `ours` has no schema."""
    rows = []
    for case, text in (
        ("a trailing comma", samples.nearly_right(20_000)),
        ("a closer missing", samples.nearly_right(20_000).replace(",]}}", "]}")),
        ("bare quotes and newlines in a string", samples.broken_string(20_000)),
        ("slips in every row", samples.broken(20_000)),
        ("slips in every row, fenced", samples.fenced(samples.broken(20_000))),
    ):
        body = re.sub(r"\A```json\n|\n```\Z", "", text)
        reply = parse(text, samples.TOOLS, finish_reason="stop")
        assert reply.calls, reply
        assert reply.calls[0].fixes
        assert parse(text, finish_reason="stop").calls[0].arguments == reply.calls[0].arguments
        took = best_of(
            {
                "ours": lambda text=text: parse(text, finish_reason="stop"),
                "ours, validated": lambda text=text: parse(text, samples.TOOLS, finish_reason="stop"),
                "json-repair": lambda body=body: json_repair.loads(body),
            }
        )
        rows.append(_against(case, took, took["json-repair"] / took["ours"], BROKEN))
    return Table("broken", "Broken JSON of 20 KB, repaired into a call", rows)


def _against(case: str, took: dict[str, float], ratio: float, target: Target) -> Row:
    shown = {name: seconds(time) for name, time in took.items()}
    return Row(case, {**shown, "ratio": f"{ratio:.2f}x"}, ratio, target, took)
