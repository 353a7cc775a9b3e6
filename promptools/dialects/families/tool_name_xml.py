"""An element named after the tool, with the arguments as elements or as YAML.

Cline, Roo Code, Kilo Code, MorphXML and YAML-XML ask for such calls:

    <write_file>
    <path>a.txt</path>
    <content>
    first line
    </content>
    </write_file>

Any word may be such a tag, even a tag of HTML. So the tool must be offered, the tag must begin a line, and nothing but
calls may follow (tier B). Source: the system prompts of Cline and Roo Code (2025), ai-sdk-tool-call-middleware
(`morphXml`, `yamlXml`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, TAG_GATE, Head, Textual, Tier
from promptools.dialects.prefix_patterns import sequence
from promptools.dialects.prompt import describe
from promptools.dialects.readers.element_reader import MCP_TOOL, ElementReader
from promptools.dialects.readers.element_value import strip_outer_newlines
from promptools.dialects.written_calls import escaped_json
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_WORD = r"[A-Za-z_][\w.-]{0,80}+"
_ATTRIBUTE = r"""\s{1,8}+[\w.:-]{1,80}+\s{0,4}=\s{0,4}(?:"[^"\n]{0,256}+"|'[^'\n]{0,256}+')"""
_PARTIAL_ATTRIBUTE = sequence(
    r"\s{1,8}+", r"[\w.:-]{1,80}+", r"\s{0,4}", "=", r"\s{0,4}", r"""(?:"[^"\n]{0,256}+|'[^'\n]{0,256}+)\Z"""
)
"""Matches an attribute that is cut off by the end of the text."""
_ATTRIBUTES = rf"(?:(?:{_ATTRIBUTE}){{0,6}}(?:{_PARTIAL_ATTRIBUTE}|\s{{0,8}}(?=/?(?:>|\Z)))|\s[^<>]{{0,400}}+)?"
"""Matches what follows the name in a tag: attributes, whose values may contain brackets, or any other text."""
ELEMENT: Final = sequence("<", _WORD, _ATTRIBUTES, r"/?", ">")
_BARE = sequence(_WORD, r"[ \t]{0,8}\r?", r"\n", r"[ \t]{0,8}", rf"(?:(?=<{_WORD}>)|<(?:\Z|{_WORD}\Z))")
_NAME = lazy_pattern(_WORD)
_UNFINISHED = lazy_pattern(rf"<{_WORD}(?:{_ATTRIBUTE}){{0,6}}{_PARTIAL_ATTRIBUTE}")
"""Matches a tag that is cut off inside an attribute."""
_SAFE = lazy_pattern(rf"{_WORD}\Z")


def element_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the tag at `text[start]` is named after an offered tool."""
    del fresh
    tag = _NAME.match(text, start + 1)
    if options.tools is None or (tag is None and start + 1 < len(text)):
        return False
    if tag is not None and tag.end() < len(text):
        if options.tools.get(tag[0]) is None and tag[0] != MCP_TOOL:
            return False
        if end == len(text) and _UNFINISHED.fullmatch(text, start, end):
            return NEED_MORE
        return True if text[end - 1] == ">" else NEED_MORE if end == len(text) else False
    prefix = tag[0] if tag is not None else ""
    return NEED_MORE if any(name.startswith(prefix) for name in (*options.tools.all_names, MCP_TOOL)) else False


def _bare_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether an offered tool's name is alone on a line, before the tag of one of its parameters."""
    del fresh
    tool = _NAME.match(text, start)
    if options.tools is None or tool is None:
        return False
    if tool.end() < len(text) and options.tools.get(tool[0]) is None:
        return False
    if end == len(text):
        return NEED_MORE
    key = _NAME.match(text, end + 1)
    return key is not None and key[0] in options.tools.keys(tool[0])


class ToolNameXml(Textual):
    """The dialect of tags named after tools and parameters: `<NAME><KEY>VALUE</KEY></NAME>`."""

    name = "tool_name_xml"
    models = "models under Cline, Roo Code, Kilo Code or MorphXML prompts; Devstral"
    tier: Tier = "B"
    typed = False
    heads: tuple[Head, ...] = (
        Head(
            (),
            ELEMENT,
            body_starts="<",
            gate=TAG_GATE,
            begins=element_begins,
            at_line_start=True,
            first_words=(MCP_TOOL,),
        ),
        Head((), _BARE, body_starts="<", gate=NAME_GATE, begins=_bare_begins, at_line_start=True),
    )

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the text after `head`, which is the opening tag or the name alone."""
        return ElementReader("", head, options, evidence, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n\n".join(describe(tool) for tool in tools)
        several = " To use several at once, write one after the other." if parallel else ""
        when = "You must use a tool in this turn." if required else "If no tool is needed, answer in plain text."
        return f"""# Tools

You can use these tools:

{listed}

{self._instructions()}{several} Never write a result yourself. {when}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them.

        Values between tags are not escaped. If a string contains one of the tags, or could not be read back unchanged,
        the arguments of that call are written as one JSON object.
        """
        return "\n".join(self._call(call) for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        return "\n".join(f"[{result.name}] Result:\n{result.content}" for result in results)

    def _instructions(self) -> str:
        return """To use a tool, end your message with an element named after it, on a line of its own, that holds an
element for each parameter, and nothing after it:

<tool name>
<parameter name>
its value
</parameter name>
</tool name>

Write values as they are, nothing escaped; lists and objects as JSON."""

    def _call(self, call: Call) -> str:
        lines = [self._argument(call.name, key, value) for key, value in call.arguments.items()]
        if None in lines:
            return f"<{call.name}>\n{escaped_json(call.arguments)}\n</{call.name}>"
        return "\n".join((f"<{call.name}>", *(line for line in lines if line is not None), f"</{call.name}>"))

    def _argument(self, name: str, key: str, value: Any) -> str | None:
        """Return an argument as an element such as `<city>Oslo</city>`; None if it would be read back differently."""
        if not isinstance(value, str):
            return f"<{key}>{escaped_json(value)}</{key}>" if _SAFE.match(key) else None
        if "\r" in value or "&lt;" in value or not _SAFE.match(key):
            return None
        if re.search(rf"<[\s/]{{0,4}}(?:{re.escape(key)}|{re.escape(name)})", value):
            return None
        return (
            f"<{key}>\n{value}\n</{key}>"
            if "\n" in value or strip_outer_newlines(value) != value
            else f"<{key}>{value}</{key}>"
        )


class ToolNameYaml(ToolNameXml):
    """The dialect of YAML in a tag named after the tool: `<NAME>` around lines of `KEY: VALUE`."""

    name = "tool_name_yaml"
    models = "models under YAML-XML prompts"

    def _instructions(self) -> str:
        return """To use a tool, end your message with an element named after it, on a line of its own, that holds its
arguments as YAML, and nothing after it:

<tool name>
parameter name: its value
another: |
  several
  lines
</tool name>

Put strings that could be read as anything else into double quotes."""

    def _call(self, call: Call) -> str:
        if not all(map(_SAFE.match, call.arguments)):
            return f"<{call.name}>\n{escaped_json(call.arguments)}\n</{call.name}>"
        lines = (_yaml(key, value) for key, value in call.arguments.items())
        return "\n".join((f"<{call.name}>", *lines, f"</{call.name}>"))


_PLAIN = lazy_pattern(r"[A-Za-z][\w ,./-]*\w\Z")


def _yaml(key: str, value: Any) -> str:
    """Return a line of YAML. The value is plain text if it can only be a string, else JSON, which is valid YAML."""
    if isinstance(value, str) and _PLAIN.match(value) and value not in ("null", "true", "false"):
        return f"{key}: {value}"
    return f"{key}: {escaped_json(value)}"
