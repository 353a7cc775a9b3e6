"""Read calls in Harmony whose body is free text, such as code: `to=python code<|message|>print(1)<|call|>`.

For the app, such a tool is a function with a parameter that takes the text (`Tool.free_text`). The whole body is this
text, unchanged. But models that are trained on functions may write a JSON object instead. The body is read as arguments
if it is a single object, repaired if necessary, that begins with a parameter of the tool and contains the text. Source:
openai/gpt-oss, `python` (2025-08).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.dialects.calls.json_body import read_arguments
from promptools.dialects.calls.resolve import malformed_call, validate_call
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix

if TYPE_CHECKING:
    from promptools.dialects.calls.parse_options import Evidence, ParseOptions
    from promptools.types import Malformed, Tool

UNDECLARED_PARAMETER = "input"
"""The parameter that gets the free text if the tool is not offered. OpenAI's custom tools use the same name."""
_FIRST_KEY = lazy_pattern(r'\s*\{\s*"([^"\\]+)"\s*:')


def read_free_text(
    name: str, tool: Tool, body: str, options: ParseOptions, evidence: Evidence, *, ended: bool
) -> Call | Malformed:
    """Read the body of a call to a tool that takes free text; `ended` is False if the body was cut off."""
    assert tool.free_text is not None
    assert options.tools is not None
    if not ended:
        return malformed_call("truncated", "the text ended before its end", evidence.dialect, tool.name)
    first = _FIRST_KEY.match(body)
    if first is not None and first[1] in options.tools.keys(tool.name):
        outcomes = read_arguments(name, body, options, evidence, ended=True).calls
        only = outcomes[0] if len(outcomes) == 1 else None
        if isinstance(only, Call) and isinstance(only.arguments.get(tool.free_text), str):
            return only
    match = options.tools.find(name)
    fixes = [match[1]] if match is not None and match[1] is not None else []
    return validate_call(tool, {tool.free_text: body}, None, fixes, options, evidence)


def undeclared_call(name: str, body: str, evidence: Evidence) -> Call:
    """Return a call to a tool that is not offered, with the free text `body` as its only argument."""
    arguments = {UNDECLARED_PARAMETER: body}
    fix = Fix("unwrap", f"its body is free text: taken as {UNDECLARED_PARAMETER!r}")
    return Call("", name, arguments, dump(arguments), (fix,), dialect=evidence.dialect, unknown_tool=True)
