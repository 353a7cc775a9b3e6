"""GLM: the tool's name, then keys and values between tags.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Oslo</arg_value>
    </tool_call>

GLM 4.5 and 4.6 write a line for each tag, 4.7 and 5 none; Ling 3 and Spark 2.5 write the same. Source: the chat
templates of zai-org/GLM-4.5 (2025-07), GLM-4.6 and GLM-4.7. Relatives with tags of their own are in `glm_kin`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from promptools.dialects.base import Head, Textual
from promptools.dialects.blocks.wrapped import Closers, WrappedCandidate
from promptools.dialects.fields.pair_tags import Tags, envelope, opening, tags
from promptools.dialects.fields.pairs import PairsCandidate
from promptools.dialects.plain import NAME, bare, guarded
from promptools.dialects.settle import Place, Rules, dump
from promptools.parsing.parts import Candidate
from promptools.schema.graph import is_object
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools


class Glm(Textual):
    """`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`."""

    name = "glm"
    models = "GLM 4.5 to 5, Ling 3, Spark 2.5"
    heads: tuple[Head, ...] = (
        Head(("<tool_call>",), opening("<tool_call>"), opens="<"),
        Head(("<tool_call>",), envelope("<tool_call>")),
    )
    closers: tuple[str, ...] = ("</tool_call>", "<tool_call>")
    stop: tuple[str, ...] = ("<|observation|>", "<tool_response>")
    typed = False
    spelled = tags()
    list_tag = "tools"
    gap = "\n"
    """The text between two tags."""

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the arguments after the name."""
        spelled = self._spelling(head)
        if head.rstrip().endswith(">") or not head.strip():  # JSON follows the opening tag instead of a name
            closers = Closers((spelled.closer(spelled.call),), ("</think>",), (spelled.opener(spelled.call),))
            return WrappedCandidate(head, closers, rules, place, firm=firm)
        return PairsCandidate(head, spelled, rules, place, firm=firm)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(dump(declaration(tool)) for tool in tools.to_openai())
        how_many = "one or more of these functions" if parallel else "one of these functions at a time"
        when = " You must call a function in this turn." if required else ""
        return f"""# Tools

You may call {how_many} to help with the user's request.

The functions are described here, one JSON object a line:
<{self.list_tag}>
{listed}
</{self.list_tag}>

Write each call so, with a key and a value for each argument and nothing escaped in the values:
{self.write_example()}
Strings are written as they are, all other values as JSON.{when}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them.

        Tags cannot be escaped: if a string contains one, that call is one JSON object between its tags.
        """
        return "\n".join(self.write(call.name, call.arguments) for call in calls)

    def write(self, name: str, arguments: dict[str, Any]) -> str:
        """Return one call in the format."""
        spelled = self.spelled
        opener, closer = spelled.opener(spelled.call), spelled.closer(spelled.call)
        pairs = [self._pair(key, value) for key, value in arguments.items()]
        if None in pairs or not NAME.match(name):
            return f'{opener}\n{{"name": {guarded(name)}, "arguments": {guarded(arguments)}}}\n{closer}'
        inner = "".join(f"{self.gap}{pair}" for pair in pairs)
        return f"{opener}{name}{self.behind_name()}{inner}{self.gap if inner else ''}{closer}"

    def write_example(self) -> str:
        """Return an example of the format; a copy of it is no call, since it has no name."""
        return self.write("name", {"parameter": "its value"}).replace("name", "<function name>", 1)

    def behind_name(self) -> str:
        """Return the text between the name and the arguments."""
        return ""

    def between(self, value: Any) -> str:
        """Return the text between a key and `value`."""
        del value
        return ""

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"<tool_response>\n{result.content}\n</tool_response>" for result in results)

    def _spelling(self, _head: str) -> Tags:
        return self.spelled

    def _pair(self, key: str, value: Any) -> str | None:
        """Return one argument in the format; None if it would not be read back."""
        text = bare(value)
        spelled = self.spelled
        if not NAME.match(key) or spelled.pattern.search(text):
            return None
        return (
            f"{spelled.opener('arg_key')}{key}{spelled.closer('arg_key')}{self.gap}"
            f"{self.between(value)}{spelled.opener('arg_value')}{text}{spelled.closer('arg_value')}"
        )


def declaration(tool: dict[str, object]) -> dict[str, object]:
    """Return a tool with only the keys that the chat templates show."""
    function = tool["function"]
    assert is_object(function)
    shown = {key: function[key] for key in ("name", "description", "parameters") if key in function}
    return {"type": "function", "function": shown}
