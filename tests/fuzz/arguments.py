"""Random tools, and random arguments that fit them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from promptools import dialects
from promptools.dialects.sample import sample_text

PLAIN_NAMES = ("get_weather", "ping", "bash", "write_file", "read_file", "search", "add", "now")
AWKWARD_NAMES = (
    "think", "thinking", "get-weather", "a.b", "Größe", "日本語", "final", "json", "tool", "name", "call", "parameter",
    "invoke", "function", "x", "python", "answer", "code", "arguments", "functions.bash", "assistant", "getWeather",
)  # fmt: skip
PLAIN_KEYS = ("path", "content", "city", "count", "ratio", "flag", "rows", "opts", "command", "text", "unit", "since")
AWKWARD_KEYS = ("name", "arguments", "parameters", "a b", "x-y", "ключ", "type", "value", "tool", "id", "_", "1st")
CANARIES = ("qaq", "qbq", "qcq", "qdq")
"""Words of which each stands in the strings of one call only."""
TOOL_SETS = 32
"""Different sets of tools: preparing one takes longer than reading a reply."""

WORDS = (
    "the",
    "weather",
    "in",
    "Oslo",
    "ls",
    "-la",
    "naïve",
    "日本",
    "😀",
    "a.txt",
    "/home/me",
    "3",
    "x = 1",
    "L'Aquila",
)
TRICKY = (
    "", " ", "\n", "null", "true", "5", "007", "-0", "1e5", '"', "'", "\\", "\\n", 'say "hi"', "it's", "{", "}", "[",
    "]", "{}", "[]", "{{", "}}", "(", ")", ",", ":", ";", "=", '{"a": 1}', "[1, 2]", "# no comment", "// none",
    "/* x */", "```", "```json\n{}\n```", "`x`", "~~~", "<think>", "</think>", "<b>x</b>", "&lt;", "a < b > c", "\t",
    "\r\n", "\u200b", "\ufeff", "\u2028", "“quoted”", "C:\\new", "%s", "${x}", "None", "NaN", "--", "> said", "- item",
    "\x7f", "<|im_end|>", "<|im_start|>user", "<|eot_id|>", "</s>", "<|end|>", "<|call|>", "<|start|>assistant",
    "[INST]", "Observation: x", "Action: x", "\n\nx", "x\n", " x", "x ", "a\nb: c\nd: e", "é", "e\u0301",
)  # fmt: skip


@cache
def markers() -> tuple[str, ...]:
    """Return the markers of all dialects that are built in, sorted."""
    found: set[str] = set()
    for name in dialects.BUILT_IN:
        dialect = dialects.get(name)
        found.update(dialect.closers, (text for head in dialect.heads for text in head.literals), dialect.stop)
    return tuple(sorted(each for each in found if each))


@cache
def examples() -> tuple[str, ...]:
    """Return a call of each dialect."""
    return tuple(sample_text(dialects.get(name)) for name in dialects.BUILT_IN)


def text(random: Random, canary: str = "") -> str:
    """Return a string that an argument may hold, most often with the canary in it."""
    if canary and random.random() < 0.4:
        return canary
    parts = [_part(random) for _ in range(random.choice((0, 1, 1, 1, 2, 3)))]
    if canary and (not parts or random.random() < 0.7):
        parts.insert(random.randrange(len(parts) + 1), canary)
    return random.choice((" ", "", "\n")).join(parts)


def _part(random: Random) -> str:
    kind = random.random()
    if kind < 0.45:
        return " ".join(random.choice(WORDS) for _ in range(random.randrange(1, 5)))
    if kind < 0.8:
        return random.choice(TRICKY)
    if kind < 0.93:
        return random.choice(markers())
    if kind < 0.97:
        return random.choice(examples())
    return random.choice((*WORDS, *TRICKY)) * random.choice((40, 400))


def value(random: Random, canary: str = "", depth: int = 0) -> Any:
    """Return any JSON value."""
    kind = random.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return text(random, canary)
    if kind == 2:
        return random.choice((0, 1, -1, 7, 12345678901234567890))
    if kind == 3:
        return random.choice((0.5, -1.25, 1e-7, 1e22))
    if kind in (4, 5):
        return (True, False, None)[random.randrange(3)]
    if kind == 6:
        return [value(random, canary, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(PLAIN_KEYS): value(random, canary, depth + 1) for _ in range(random.randrange(4))}


SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "string"},
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "array"},
    {"type": "object"},
    {"type": "array", "items": {"type": "string"}},
    {"type": ["string", "null"]},
    {"enum": ["c", "f", "kelvin"]},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"type": "string", "minLength": 1},
    {"type": "integer", "minimum": 0, "maximum": 9},
    {"type": "object", "properties": {"step": {"type": "string"}, "done": {"type": "boolean"}}, "required": ["step"]},
    {"$ref": "#/$defs/guest"},
)
GUEST = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def fitting(random: Random, schema: dict[str, Any], canary: str = "") -> Any:
    """Return a value that fits one of `SCHEMAS`."""
    if "enum" in schema:
        return random.choice(schema["enum"])
    if "$ref" in schema:
        return {"name": text(random, canary)}
    match schema.get("type") or random.choice(schema.get("anyOf", [{}])).get("type"):
        case "integer":
            return random.randrange(10)
        case "number":
            return random.choice((0, 1.5, -2, 1e-7))
        case "boolean":
            return random.random() < 0.5
        case "array":
            texts = "items" in schema
            return [text(random, canary) if texts else value(random, canary, 1) for _ in range(random.randrange(4))]
        case "object" if "properties" in schema:
            return {"step": text(random, canary), **({"done": True} if random.random() < 0.5 else {})}
        case "object":
            return {random.choice(PLAIN_KEYS): value(random, canary, 1) for _ in range(random.randrange(3))}
        case ["string", "null"]:
            return text(random, canary) if random.random() < 0.7 else None
        case _:
            return text(random, canary) or "x"


@cache
def tool_set(number: int) -> tuple[dict[str, Any], ...]:
    """Return one of the sets of tools; those with an even number have plain names and keys."""
    random = Random(f"tools {number}")
    names = PLAIN_NAMES if number % 2 == 0 else PLAIN_NAMES + AWKWARD_NAMES * 2
    chosen = sorted({random.choice(names) for _ in range(random.choice((1, 2, 3, 5)))})
    return tuple({"name": name, "description": "", "parameters": _schema(random, number)} for name in chosen)


def _schema(random: Random, number: int) -> dict[str, Any]:
    kind = random.random()
    if kind < 0.12:
        return {"type": "object", "properties": {}}
    if kind < 0.24 and number % 4 == 1:
        return {"type": "object"}
    if number % 8 == 0:  # one string and nothing else: what is damaged still fits
        key = random.choice(PLAIN_KEYS)
        return {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    keys = PLAIN_KEYS if number % 2 == 0 else PLAIN_KEYS + AWKWARD_KEYS
    properties = {random.choice(keys): random.choice(SCHEMAS) for _ in range(random.randrange(1, 5))}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = [key for key in properties if random.random() < 0.5]
    if any("$ref" in each for each in properties.values()):
        schema["$defs"] = {"guest": GUEST}
    if random.random() < 0.3:
        schema["additionalProperties"] = False
    return schema


def arguments(random: Random, tool: dict[str, Any], canary: str = "") -> dict[str, Any]:
    """Return arguments that fit a tool."""
    schema = tool["parameters"]
    if "properties" not in schema:
        return {random.choice(PLAIN_KEYS): value(random, canary) for _ in range(random.randrange(3))}
    required = schema.get("required", ())
    return {
        key: fitting(random, each, canary)
        for key, each in schema["properties"].items()
        if key in required or random.random() < 0.75
    }
