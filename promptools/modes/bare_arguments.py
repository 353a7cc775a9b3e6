"""Arguments without a name as a forced call: `{"city": "Paris"}` as the whole reply is the call.

Instructor, LangChain and the AI SDK ask for structured output by a forced call. Where the server does not enforce it
(llama.cpp a named tool, Ollama any), a model that is asked for one call often writes nothing but its arguments. Usually
such an object is an answer. Here the app has said that it accepts no answer, so these conditions together are enough
evidence:

- `tool_choice` names a tool, or is `required`, and no `response_format` wants JSON as well. One whose schema is that of
  the parameters of the only tool does not count: instructor's mode RESPONSES_TOOLS asks for the same object twice;
- the reply is complete, and the object is all of it: beside thoughts, nothing may be around it but one code fence.
  With a label or a sentence before it, it may be an example;
- its keys are parameters of the tool, at least one, and it fits the schema, after the usual fixes. Of the tools that
  may be called it fits exactly one, and that one may be inferred: it is neither `dangerous` nor marked `infer=False`.
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
"""The dialect of such a call, and of every other one in bare JSON."""
_OBJECT = lazy_pattern(r"\s*+(?:(?P<fence>`{3,}|~{3,})[ \t]*+[\w+-]*+[ \t]*+\r?\n\s*+)?+(?=\{)")
"""What may be before the object."""


def takes_bare_arguments(request: ToolRequest) -> bool:
    """Whether a reply to this request may consist only of arguments."""
    accepted = request.accepted_dialects is None or JSON in request.accepted_dialects
    # whether a tool of another type takes the object too cannot be known
    certain = request.choice.kind == "named" or (request.choice.kind == "required" and not request.other_tools)
    return certain and accepted and (not request.json_answer or _wants_the_arguments(request))


def _wants_the_arguments(request: ToolRequest) -> bool:
    """Whether the answer that `response_format` asks for is the arguments of the only tool that may be called."""
    return [request.answer_schema] == [tool.parameters for tool in request.offered]


def read_bare_arguments(text: str, options: ParseOptions) -> Call | None:
    """Return the call that a whole reply is, if it consists of arguments that fit exactly one of `options.tools`.

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
    """Yield the object itself as the arguments, then what it wraps: `{"arguments": {...}}`."""
    yield UnresolvedCall(node, None, node, {}, node.fixes)
    try:
        inner = unresolved_calls(node, options.anchors, options.tools)
    except (NotACall, Unreadable):
        return
    if len(inner) == 1 and inner[0].name is None and inner[0].arguments is not node:
        yield inner[0]._replace(fixes=(*node.fixes, *inner[0].fixes))
