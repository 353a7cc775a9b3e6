"""Fill in the templates of declared dialects: of a prompt, of one tool in it, and of a result.

The text that is filled in is not looked at again, so a tool's description may hold braces, or the name of a key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.dialects.rendering.signature import describe
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from promptools.types import Result, Tool

_KEY = lazy_pattern(r"\{([a-z_]+)\}")


class Instructions(NamedTuple):
    """The wording of a prompt.

    `text` is all of it. Keys in it: `{tools}`, the declared tools; `{call}` and `{calls}`, an example of one call and
    of two; `{format}`, how a call is written; `{how_many}`, which is `parallel` or `single`; `{when}`, which is
    `required` or `optional`. The other texts may have such keys in them too.
    """

    text: str
    format: str = ""
    parallel: str = ""
    single: str = ""
    required: str = ""
    optional: str = ""

    def choose(self, *, parallel: bool, required: bool) -> str:
        """Return the template for a request: whether calls may be parallel, and whether one is required."""
        text = fill(self.text, {"format": self.format})
        how_many, when = self.parallel if parallel else self.single, self.required if required else self.optional
        return fill(text, {"how_many": how_many, "when": when})


def keys_of(template: str) -> frozenset[str]:
    """Return the keys in a template, and anything that looks like one."""
    return frozenset(_KEY.findall(template))


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its keys filled in; what is not a key of `values` is left as it is."""
    return _KEY.sub(lambda key: values.get(key[1], key[0]), template)


def fill_result(template: str, result: Result) -> str:
    """Return the text of one result. Keys: `{content}`, `{json}`, `{name}` and `{id}`."""
    values = {"content": result.content, "name": result.name, "id": result.call_id}
    if "{json}" in template:
        values["json"] = _content_as_json(result.content)
    return fill(template, values)


def fill_tool(template: str, tool: Tool, function: dict[str, Any]) -> str:
    """Return the text of one tool; `function` is the tool with the keys that chat templates show.

    Keys: `{json}`, `{function}`, `{signature}`, `{name}`, `{description}`, `{parameters}`.
    """
    values = {"name": tool.name, "description": tool.description}
    if "{json}" in template:
        values["json"] = dump({"type": "function", "function": function})
    if "{function}" in template:
        values["function"] = dump(function)
    if "{signature}" in template:
        values["signature"] = describe(tool)
    if "{parameters}" in template:
        values["parameters"] = dump(tool.parameters)
    return fill(template, values)


def _content_as_json(content: str) -> str:
    """Return `content` if it is JSON, else `content` as a JSON string."""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return dump(content)
    return content
