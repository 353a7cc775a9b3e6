"""`response_format`: put into the prompt, checked on the answer, and asked for again without tools.

Beside tools most servers cannot enforce it, since a grammar that forces the answer makes calls impossible. So the
format is described in the system message, the answer is checked here, and one that does not fit is requested again,
alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.parsing.events import CallEnd, Event
from promptools.schema import Tools
from promptools.schema.budget import UncheckedError
from promptools.schema.graph import build
from promptools.schema.validate import Validator, check_patterns, sentences
from promptools.types import Malformed
from promptools.wire.shapes import as_object, is_object

if TYPE_CHECKING:
    from promptools.modes.ask import Ask
    from promptools.parsing.engine import StreamParser
    from promptools.types import Schema

_NAME = "response_format"


def schema_of(ask: Ask) -> Schema | None:
    """Return the JSON Schema of `response_format`; None where any JSON object is valid."""
    form = as_object(ask.body.get(_NAME))
    return as_object(as_object(form.get("json_schema")).get("schema")) or None


def in_words(ask: Ask, what: str) -> str:
    """Describe what `response_format` requires; `what` opens the sentence."""
    schema = schema_of(ask)
    if schema is None:
        return f"{what} one JSON object and nothing else."
    return (
        f"{what} one JSON value that fits this JSON Schema, and nothing else: {json.dumps(schema, ensure_ascii=False)}"
    )


def answer_in_words(ask: Ask) -> str:
    """Describe `response_format` for the system message, where enforcing it would make calls impossible."""
    return in_words(ask, "An answer that is no tool call is")


def misfit(ask: Ask, text: str) -> str:
    """Return why an answer does not fit `response_format`, as text; empty where it fits.

    The check is strict, since the app reads the text with a JSON parser.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return "the answer is no JSON"
    schema = schema_of(ask)
    if schema is None:
        return "" if is_object(value) else "the answer is no JSON object"
    errors = _errors(schema, value)
    return f"the answer does not fit its schema: {errors}" if errors else ""


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _errors(schema: Schema, value: Any) -> str:
    """Return the validation errors of a value as text; empty for a schema that cannot be compiled."""
    try:
        graph = build(schema, _NAME)
        check_patterns(graph, _NAME)
        return " ".join(sentences(Validator(graph).errors(value)))
    except (UsageError, UncheckedError, RecursionError):
        return ""


def calls_instead(ask: Ask, text: str, parser: StreamParser, finish_reason: str | None) -> tuple[list[Event], str]:
    """Return the calls, valid and malformed, in an answer that does not fit its format, and the text without them.

    `parser` reads the answer as if no JSON had been requested, but a call must name its tool. Where any JSON object
    fits the format, only calls that needed no fix count.
    """
    fits = not misfit(ask, text)
    if fits and schema_of(ask) is not None:
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


def formed(ask: Ask, feedback: tuple[dict[str, Any], ...]) -> Ask:
    """Copy a request to ask for the answer alone: without tools, so that the server can enforce the format.

    Where the server's grammars garble the output (`constrained_ok` is false), only `feedback` describes the format.
    """
    enforced = ask.profile.constrained_ok
    body = ask.body if enforced else {key: value for key, value in ask.body.items() if key != _NAME}
    return replace(ask.corrected(feedback), body=body, choice=replace(ask.choice, kind="none"), offered=Tools([]))
