"""The form that a request wants its answer in (`response_format`): told in words, checked, and asked for again."""

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
    """Return the schema that the request wants its answer in; None where any JSON object will do."""
    form = as_object(ask.body.get(_NAME))
    return as_object(as_object(form.get("json_schema")).get("schema")) or None


def in_words(ask: Ask, what: str) -> str:
    """Write what `response_format` demands of `what`."""
    schema = schema_of(ask)
    if schema is None:
        return f"{what} one JSON object and nothing else."
    return (
        f"{what} one JSON value that fits this JSON Schema, and nothing else: {json.dumps(schema, ensure_ascii=False)}"
    )


def answer_in_words(ask: Ask) -> str:
    """Write what `response_format` demands, for the system message: enforced, it would make calls impossible."""
    return in_words(ask, "An answer that is no tool call is")


def misfit(ask: Ask, text: str) -> str:
    """Return why an answer is not in the form that the request wants, in words; empty where it is.

    The answer is the text as it is: an app reads it with a JSON parser.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return "the answer is no JSON"
    schema = schema_of(ask)
    if schema is None:
        return "" if is_object(value) else "the answer is no JSON object"
    found = _errors(schema, value)
    return f"the answer does not fit its schema: {found}" if found else ""


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _errors(schema: Schema, value: Any) -> str:
    """Return what of a value does not fit; nothing is found wrong by a schema that cannot be read."""
    try:
        graph = build(schema, _NAME)
        check_patterns(graph, _NAME)
        return " ".join(sentences(Validator(graph).errors(value)))
    except (UsageError, UncheckedError, RecursionError):
        return ""


def calls_instead(ask: Ask, text: str, parser: StreamParser, finish_reason: str | None) -> tuple[list[Event], str]:
    """Return the calls in an answer that is not in its form, good and bad, and the text without them.

    `parser` reads it as if no JSON had been asked for; a call has to name its tool all the same. Where any JSON object
    is in the form, only a call to the letter is one.
    """
    fits = not misfit(ask, text)
    if fits and schema_of(ask) is not None:
        return [], text
    events = [*parser.feed(text), *parser.close(finish_reason)]
    calls = [each for each in events if isinstance(each, (CallEnd, Malformed)) and _names_its_tool(each)]
    if fits and not all(isinstance(each, CallEnd) and not each.call.fixes for each in calls):
        return [], text
    return list(calls), parser.reply.content


def _names_its_tool(event: CallEnd | Malformed) -> bool:
    if isinstance(event, CallEnd):
        return not any(fix.kind == "infer" for fix in event.call.fixes)
    return bool(event.name) and event.reason != "unknown_tool"


def formed(ask: Ask, feedback: tuple[dict[str, Any], ...]) -> Ask:
    """Copy a request to ask for the answer alone: without tools, so that the server may force its form.

    Where grammars garble the model's words, nothing but `feedback` tells of the form.
    """
    forced = ask.profile.constrained_ok
    body = ask.body if forced else {key: value for key, value in ask.body.items() if key != _NAME}
    return replace(ask.corrected(feedback), body=body, choice=replace(ask.choice, kind="none"), offered=Tools([]))
