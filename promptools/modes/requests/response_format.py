"""`response_format`: put into the prompt, checked on the answer, and asked for again without tools.

Beside tools most servers cannot enforce it, since a grammar that forces the answer makes calls impossible. So the
format is described in the system message, the answer is checked here, and one that does not fit is requested again,
alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.json_values import write_json
from promptools.jsontext.strict import reject_constant
from promptools.modes.replies.healed_answer import NO_JSON, RESPONSE_FORMAT, Healed, Unhealed, form_error, heal_answer
from promptools.parsing.events import CallEnd, Event
from promptools.schema import Tools
from promptools.types import Malformed

if TYPE_CHECKING:
    from promptools.engine import StreamParser
    from promptools.modes.requests.tool_request import ToolRequest


def describe_format(request: ToolRequest, subject: str) -> str:
    """Describe what `response_format` requires; `subject` opens the sentence."""
    schema = request.answer_schema
    if schema is None:
        return f"{subject} one JSON object and nothing else."
    text = write_json(schema, "the schema of response_format")
    return f"{subject} one JSON value that fits this JSON Schema, and nothing else: {text}"


def describe_answer_format(request: ToolRequest) -> str:
    """Describe `response_format` for the system message, where enforcing it would make calls impossible."""
    return describe_format(request, "An answer that is no tool call is")


def format_error(request: ToolRequest, text: str) -> str:
    """Return why an answer does not fit `response_format`, as text; empty where it fits.

    The check is strict, since the app reads the text with a JSON parser.
    """
    try:
        value = json.loads(text, parse_constant=reject_constant)
    except (ValueError, RecursionError):
        return NO_JSON
    return form_error(value, request.answer_schema)


def check_answer(request: ToolRequest, text: str, *, convert: bool = True) -> Healed | Unhealed:
    """Return an answer in the form of `response_format`, healed where the request allows that, or why it has not.

    `convert`: values may be converted to the types of the schema.
    """
    if request.heals_answer:
        return heal_answer(text, request.answer_schema, convert=convert)
    why = format_error(request, text)
    return Unhealed(why) if why else Healed(text)


def calls_in_answer(
    request: ToolRequest, text: str, parser: StreamParser, finish_reason: str | None
) -> tuple[list[Event], str]:
    """Return the calls, valid and malformed, in an answer that does not fit its format, and the text without them.

    `parser` reads the answer as if no JSON had been requested, but a call must name its tool. Where any JSON object
    fits the format, only calls that needed no fix count.
    """
    fits = isinstance(check_answer(request, text), Healed)
    if fits and request.answer_schema is not None:
        return [], text
    events = [*parser.feed(text), *parser.close(finish_reason)]
    calls = [event for event in events if isinstance(event, (CallEnd, Malformed)) and _names_its_tool(event)]
    if fits and not all(isinstance(event, CallEnd) and not event.call.fixes for event in calls):
        return [], text
    return list(calls), parser.reply.content


def _names_its_tool(event: CallEnd | Malformed) -> bool:
    if isinstance(event, CallEnd):
        return not any(fix.kind == "infer" for fix in event.call.fixes)
    return bool(event.name) and event.reason != "unknown_tool"


def without_tools(request: ToolRequest, feedback: tuple[dict[str, Any], ...]) -> ToolRequest:
    """Copy a request to ask for the answer alone: without tools, so that the server can enforce the format.

    Where the server's grammars garble the output (`constrained_ok` is false), only `feedback` describes the format.
    """
    enforced = request.profile.constrained_ok
    body = request.body if enforced else {key: value for key, value in request.body.items() if key != RESPONSE_FORMAT}
    return replace(
        request.with_feedback(feedback), body=body, choice=replace(request.choice, kind="none"), offered=Tools([])
    )
