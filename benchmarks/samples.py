"""The tools and texts for the measurements."""

from __future__ import annotations

import json
from typing import Any

from promptools import Tools


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


STRING = {"type": "string"}
ROW = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": STRING, "price": {"type": "number"}, "sold": {"type": "boolean"}},
    "required": ["id", "name"],
}
OPENAI = [
    _tool(
        "get_weather",
        "Tell the weather of a place.",
        {
            "city": STRING,
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer"},
            "details": {"type": "array", "items": STRING},
        },
        ["city"],
    ),
    _tool("write_file", "Write a text file.", {"path": STRING, "content": STRING}, ["path", "content"]),
    _tool("add_rows", "Add rows to a table.", {"table": STRING, "rows": {"type": "array", "items": ROW}}, ["rows"]),
]
TOOLS = Tools(OPENAI)
PARAMETERS: dict[str, dict[str, Any]] = {tool["function"]["name"]: tool["function"]["parameters"] for tool in OPENAI}

PROSE = (
    "Let me see what the weather does in the next days, since the trip depends on it. I will ask for the forecast "
    "of the town itself and leave the mountains for later; rain is likely, though nobody can be sure yet. "
)


def call(name: str, arguments: dict[str, Any], **dumping: Any) -> str:
    """Return a call in the default dialect, without the fence."""
    return f'{{"tool": {json.dumps(name)}, "arguments": {json.dumps(arguments, **dumping)}}}'


def fenced(text: str) -> str:
    return f"```json\n{text}\n```"


def prose(size: int) -> str:
    """Return `size` characters of prose."""
    return (PROSE * (size // len(PROSE) + 1))[:size]


def weather(details: int) -> str:
    """Return a weather call of about `120 + 28 * details` characters."""
    details_list = [f"hourly wind, gust {number:02}" for number in range(details)]
    return call(
        "get_weather", {"city": "Longyearbyen", "unit": "celsius", "days": 3, "details": details_list}, indent=1
    )


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": number, "name": f"item {number}", "price": number * 1.25, "sold": number % 3 == 0}
        for number in range(count)
    ]


def code(size: int) -> str:
    """Return `size` characters of source code: quotes, backslashes, newlines, brackets."""
    line = 'def greet(name: str) -> str:\n    """Say "hello"."""\n    return f"it\'s\\t{name}, {{ok}}"\n\n'
    return (line * (size // len(line) + 1))[:size]


def broken(size: int) -> str:
    """Return a call of about `size` characters with typical errors of models in every row."""
    listed = ",\n  ".join(
        f"{{'id': {number}, \"name\": \"item {number}\", 'price': {number}.5, 'sold': {number % 2 == 0},}}"
        for number in range(size // 58)
    )
    return f'{{"tool": "add_rows", "arguments": {{"table": "stock", "rows": [\n  {listed},\n]}}}}'


def nearly_right(size: int) -> str:
    """Return a call of about `size` characters with one error: a trailing comma."""
    text = call("add_rows", {"table": "stock", "rows": rows(size // 62)})
    return text.removesuffix("]}}") + ",]}}"


def broken_string(size: int) -> str:
    """Return a call whose one long string has unescaped newlines, tabs and quotes."""
    body = 'def greet(name):\n\tprint("hello", name)  # it\'s fine\n'
    content = (body * (size // len(body) + 1))[:size]
    return f'{{"tool": "write_file", "arguments": {{"path": "a.py", "content": "{content}"}}}}'
