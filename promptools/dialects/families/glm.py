"""GLM: the tool's name, then keys and values between tags.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Oslo</arg_value>
    </tool_call>

GLM 4.5 and 4.6 write a line for each tag, 4.7 and 5 none; Ling 3 and Spark 2.5 write the same. Source: the chat
templates of zai-org/GLM-4.5 (2025-07), GLM-4.6 and GLM-4.7. Relatives with tags of their own are in `glm_variants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from promptools.dialects.calls.resolve import Evidence, ParseOptions, dump
from promptools.dialects.contract import Head, Textual
from promptools.dialects.readers.json_block.block_reader import Closers, JsonBlockReader
from promptools.dialects.readers.key_value.pair_reader import PairReader
from promptools.dialects.readers.key_value.pair_tags import PairTags, json_opening_pattern, opening_pattern, pair_tags
from promptools.dialects.rendering.value_text import PLAIN_NAME, escaped_json, value_text
from promptools.parsing.parts import Candidate
from promptools.schema.documents.json_guards import is_object
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools


class Glm(Textual):
    """`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`."""

    name = "glm"
    models = "GLM 4.5 to 5, Ling 3, Spark 2.5"
    heads: tuple[Head, ...] = (
        Head(("<tool_call>",), opening_pattern("<tool_call>"), body_starts="<"),
        Head(("<tool_call>",), json_opening_pattern("<tool_call>")),
    )
    closers: tuple[str, ...] = ("</tool_call>", "<tool_call>")
    stop: tuple[str, ...] = ("<|observation|>", "<tool_response>")
    typed = False
    result_openers: tuple[str, ...] = ("<|user|>\n",)
    end_tokens: tuple[str, ...] = ("<|observation|>", "<|user|>", "<|role_end|>")  # the last: Ling, Ring
    tag_set = pair_tags()
    list_tag = "tools"
    separator = "\n"
    """The text between two tags."""

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the arguments after the name."""
        spelled = self._tags_in(head)
        if head.rstrip().endswith(">") or not head.strip():  # JSON follows the opening tag instead of a name
            closers = Closers((spelled.closer(spelled.call),), ("</think>",), (spelled.opener(spelled.call),))
            return JsonBlockReader(head, closers, rules, place, definite=definite)
        return PairReader(head, spelled, rules, place, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(dump(shown_tool(tool)) for tool in tools.to_openai())
        how_many = "one or more of these functions" if parallel else "one of these functions at a time"
        when = " You must call a function in this turn." if required else ""
        return f"""# Tools

You may call {how_many} to help with the user's request.

The functions are described here, one JSON object a line:
<{self.list_tag}>
{listed}
</{self.list_tag}>

Write each call so, with a key and a value for each argument and nothing escaped in the values:
{self.render_example()}
Strings are written as they are, all other values as JSON.{when}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them.

        Tags cannot be escaped: if a string contains one, that call is one JSON object between its tags.
        """
        return "\n".join(self.render_call(call.name, call.arguments) for call in calls)

    def render_call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return one call in the format."""
        spelled = self.tag_set
        opener, closer = spelled.opener(spelled.call), spelled.closer(spelled.call)
        pairs = [self._pair(key, value) for key, value in arguments.items()]
        if None in pairs or not PLAIN_NAME.match(name):
            return f'{opener}\n{{"name": {escaped_json(name)}, "arguments": {escaped_json(arguments)}}}\n{closer}'
        inner = "".join(f"{self.separator}{pair}" for pair in pairs)
        return f"{opener}{name}{self.after_name()}{inner}{self.separator if inner else ''}{closer}"

    def render_example(self) -> str:
        """Return an example of the format; a copy of it is no call, since it has no name."""
        return self.render_call("name", {"parameter": "its value"}).replace("name", "<function name>", 1)

    def after_name(self) -> str:
        """Return the text between the name and the arguments."""
        return ""

    def before_value(self, value: Any) -> str:
        """Return the text between a key and `value`."""
        del value
        return ""

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"<tool_response>\n{result.content}\n</tool_response>" for result in results)

    def _tags_in(self, _head: str) -> PairTags:
        return self.tag_set

    def _pair(self, key: str, value: Any) -> str | None:
        """Return one argument in the format; None if it would not be read back."""
        text = value_text(value)
        spelled = self.tag_set
        if not PLAIN_NAME.match(key) or spelled.pattern.search(text):
            return None
        return (
            f"{spelled.opener('arg_key')}{key}{spelled.closer('arg_key')}{self.separator}"
            f"{self.before_value(value)}{spelled.opener('arg_value')}{text}{spelled.closer('arg_value')}"
        )


def shown_tool(tool: dict[str, object]) -> dict[str, object]:
    """Return a tool with only the keys that the chat templates show."""
    function = tool["function"]
    assert is_object(function)
    shown = {key: function[key] for key in ("name", "description", "parameters") if key in function}
    return {"type": "function", "function": shown}
