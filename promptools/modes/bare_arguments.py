"""Read a reply that consists only of arguments, such as `{"city": "Paris"}`, as the call that the request forced.

Instructor, LangChain and the AI SDK force a call to get structured output. Some servers do not enforce the call:
llama.cpp does not if `tool_choice` names a tool, and Ollama never does. A model that is asked for one call then often
writes only the arguments, as a JSON object. A reply that is only an object is usually an answer, but an app that forces
a call accepts no answer. The object is therefore read as a call if all these conditions are met:

- `tool_choice` names a tool, or is `required`, and no `response_format` asks for JSON as well. A `response_format` with
  the schema of the only tool is allowed, because instructor's mode RESPONSES_TOOLS asks for the same object twice;
- the reply is complete. Apart from reasoning, and one code fence around the object, it consists only of the
  object. (After a label or a sentence, the object may be an example);
- the object has at least one key, its keys are parameters of the tool, and it is valid for the tool's schema, after the
  fixes that the arguments of any call get. It is valid for exactly one of the tools that may be called. That tool may
  be inferred: it is neither `dangerous` nor marked `infer=False`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.dialects.calls.envelope import JsonNode, NotACall, UnresolvedCall, read_node, unresolved_calls
from promptools.dialects.calls.parse_options import Evidence
from promptools.dialects.calls.resolve import resolve_call
from promptools.jsontext.read import Unreadable
from promptools.patterns import lazy_pattern
from promptools.types import Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptools.dialects.calls.parse_options import ParseOptions
    from promptools.modes.tool_request import ToolRequest


JSON = "json"
"""The name of the dialect for calls that are JSON without any markers."""
_OBJECT = lazy_pattern(r"\s*+(?:(?P<fence>`{3,}|~{3,})[ \t]*+[\w+-]*+[ \t]*+\r?\n\s*+)?+(?=\{)")
"""Matches the text before the object's first brace: white space and, if present, the line that opens a code fence."""


def takes_bare_arguments(request: ToolRequest) -> bool:
    """Return whether a reply to this request that consists only of arguments may be read as a call."""
    accepted = request.accepted_dialects is None or JSON in request.accepted_dialects
    # it cannot be known whether a tool of another type takes the object too
    certain = request.choice.kind == "named" or (request.choice.kind == "required" and not request.other_tools)
    return certain and accepted and (not request.json_answer or _wants_the_arguments(request))


def _wants_the_arguments(request: ToolRequest) -> bool:
    """Return whether `response_format` asks for the arguments of the only tool that may be called."""
    return [request.answer_schema] == [tool.parameters for tool in request.offered]


def read_bare_arguments(text: str, options: ParseOptions) -> Call | None:
    """Return a call if the whole reply is one object with arguments for exactly one of `options.tools`, else None.

    The call has no id yet. O(n) in characters.
    """
    opened = _OBJECT.match(text)
    if opened is None:
        return None
    fence, end = opened["fence"], len(text.rstrip())
    if fence is not None:
        if not text.endswith(fence, 0, end):
            return None
        end = len(text[: end - len(fence)].rstrip())
    try:
        node, fixes, _ = read_node(text, opened.end(), end, options.anchors)
    except Unreadable:
        return None
    if node.end != end:
        return None
    for unresolved in _readings(node._replace(fixes=fixes), options):
        try:
            call = resolve_call(unresolved, options, Evidence(JSON, wrapped=True, expected=False))
        except NotACall:
            continue
        return call if isinstance(call, Call) else None
    return None


def _readings(node: JsonNode, options: ParseOptions) -> Iterator[UnresolvedCall]:
    """Yield the objects that may be the arguments: the object itself, then one inside it (`{"arguments": {...}}`)."""
    yield UnresolvedCall(node, None, node, {}, node.fixes)
    try:
        inner = unresolved_calls(node, options.anchors, options.tools)
    except (NotACall, Unreadable):
        return
    if len(inner) == 1 and inner[0].name is None and inner[0].arguments is not node:
        yield inner[0]._replace(fixes=(*node.fixes, *inner[0].fixes))
