"""Resolve one raw call: find its tool, read and check its arguments, and decide whether it is a call at all.

The input is an `UnresolvedCall`: what a JSON object, or the fields of another format, would call. The result is one of:

- `Call`: the tool is offered, and the arguments fit its schema, perhaps after fixes. If the offered tools are unknown,
  or a call is certainly meant, a call of another tool is returned too, unchecked.
- `Malformed`: a call was meant, but cannot be run. Its message tells the model what is wrong and how to correct it.
- `NotACall` is raised: the text is no call, and stays plain text.

How much it takes to count as a call depends on the evidence in `Evidence`. In a special token or in the dialect that
the request asked for, a wrong call is malformed. In ordinary text the same object must be unmistakable: an offered
tool, arguments that are its own, no keys of a log record, no JSON schema that was echoed from the prompt.

`call_arguments` finds the arguments.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from promptools.dialects.calls.call_arguments import InvalidArguments, find_arguments, is_schema, read_object
from promptools.dialects.calls.envelope import (
    AMBIGUOUS_NAME_KEYS,
    ARGUMENT_KEYS,
    METADATA_KEYS,
    JsonNode,
    NotACall,
    UnresolvedCall,
    argument_key,
)
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.errors import clip
from promptools.json_values import is_object
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import format_names
from promptools.types import Call, Fix, Malformed, MalformedReason, Tool

if TYPE_CHECKING:
    from promptools.schema import Tools

MAX_NAME_LENGTH = 256
"""Characters of a name, with everything that models put around it."""
NOT_IN_NAMES = frozenset("{}\n")
"""Characters that no tool name has."""
PLAUSIBLE_NAME = lazy_pattern(r"[^\W\d][\w.:/ -]{0,127}\Z")
"""What may be a tool name where the offered tools are not known."""


def resolve_call(unresolved: UnresolvedCall, rules: ParseOptions, place: Evidence) -> Call | Malformed:
    """Return a `Call`, or a `Malformed` that says what is wrong. Raises `NotACall` if it is no call at all."""
    if unresolved.name is None:
        return _resolve_unnamed(unresolved, rules, place)
    if len(unresolved.name) > MAX_NAME_LENGTH or not NOT_IN_NAMES.isdisjoint(unresolved.name):
        raise NotACall("what is in the name's place is no name")
    _reject_record(unresolved, rules, place)
    if rules.tools is None:
        return _resolve_without_tools(unresolved, place)
    match = rules.tools.find(unresolved.name)
    if match is None and unresolved.arguments is None and unresolved.name_key in AMBIGUOUS_NAME_KEYS and place.wrapped:
        return _resolve_unnamed(
            UnresolvedCall(unresolved.node, None, unresolved.node, {}, unresolved.fixes), rules, place
        )
    if match is None:
        return _resolve_unoffered(unresolved, rules, place)
    tool, renamed = match
    fixes = [*unresolved.fixes, *([renamed] if renamed else [])]
    try:
        node, arguments = find_arguments(unresolved, tool, rules, place, fixes)
    except InvalidArguments as unfit:
        if unfit.reason == "not_an_object" and not (place.wrapped or place.expected) and _may_be_data(unresolved):
            raise NotACall(unfit.text) from None
        return malformed_call(unfit.reason, unfit.text, place.dialect, tool.name)
    return validate_call(tool, arguments, node, fixes, rules, place)


def _reject_record(unresolved: UnresolvedCall, rules: ParseOptions, place: Evidence) -> None:
    """Raise `NotACall` for the record of an earlier call, unless its keys are parameters of the tool."""
    sure = place.wrapped or place.expected or rules.strictness == "lenient"
    if sure or not unresolved.record_keys or unresolved.arguments is None:
        return
    match = rules.tools.find(unresolved.name or "") if rules.tools is not None else None
    own = rules.tools.keys(match[0].name) if rules.tools is not None and match is not None else frozenset[str]()
    if not unresolved.record_keys <= own:
        raise NotACall(f"it is a record of a call: {min(unresolved.record_keys - own)!r} is beside it")


def _may_be_data(unresolved: UnresolvedCall) -> bool:
    """Whether an envelope without an arguments object may as well be data: a contract has `inputs` too."""
    return is_object(unresolved.node.value) and argument_key(unresolved.node.value) not in ("arguments", "parameters")


def validate_call(
    tool: Tool, arguments: dict[str, Any], node: JsonNode | None, fixes: list[Fix], rules: ParseOptions, place: Evidence
) -> Call | Malformed:
    """Check `arguments` against the schema; `node` is the text that they were read from, if it holds nothing else."""
    assert rules.tools is not None
    if rules.restore is not None:
        arguments, undone = rules.restore(arguments)
        fixes = [*fixes, *undone]
    own = node.text() if node is not None and node.value is arguments else None
    result = rules.tools.check(tool, arguments, own)
    text = own if result.arguments is arguments else None
    call = Call(
        id="",
        name=tool.name,
        arguments=result.arguments,
        arguments_json=text if text is not None else dump(result.arguments),
        fixes=(*fixes, *result.fixes),
        dialect=place.dialect,
    )
    if result.errors or not (result.verified or place.wrapped or place.implies_call):  # no other evidence of a call
        wrong = f"its arguments do not fit. {'; '.join(result.errors[:5]) or result.fixes[-1].detail}"
        message = f"The call of {tool.name!r} was not run: {wrong}. Call it again, corrected."
        return Malformed(0, "", "invalid_arguments", message, name=tool.name, dialect=place.dialect, call=call)
    return call


def malformed_call(reason: MalformedReason, text: str, dialect: str, name: str | None) -> Malformed:
    """Return a `Malformed` without a readable call; `text` says what is wrong."""
    what = f"The call of {name!r}" if name else "The tool call"
    advice = {
        "truncated": "It was cut off before its end. Make the call again, with shorter arguments.",
        "invalid_json": "Write the arguments as one valid JSON object and call again.",
        "not_an_object": "Write the arguments as one JSON object, such as {}, and call again.",
        "limit": "Use smaller values and call again.",
    }.get(reason, "Call again, corrected.")
    return Malformed(0, "", reason, f"{what} was not run: {text}. {advice}", name=name, dialect=dialect)


def _resolve_without_tools(unresolved: UnresolvedCall, place: Evidence) -> Call | Malformed:
    """Return a call where the offered tools are not known: it needs a plausible name, and arguments under a key."""
    assert unresolved.name is not None
    if not PLAUSIBLE_NAME.match(unresolved.name):
        raise NotACall(f"{clip(unresolved.name, 40)!r} is no tool name")
    if unresolved.arguments is None:
        raise NotACall("it has a name, but no arguments")
    if is_schema(unresolved.arguments.value):
        raise NotACall("it is a tool's definition, not a call")
    strange = [key for key in unresolved.siblings if key not in ARGUMENT_KEYS and key not in METADATA_KEYS]
    if strange and not place.wrapped and not place.expected:
        raise NotACall(f"it has other keys: {strange[0]!r}")
    fixes = list(unresolved.fixes)
    try:
        node, arguments = read_object(unresolved.arguments, fixes, None)
    except InvalidArguments as unfit:
        return malformed_call(unfit.reason, unfit.text, place.dialect, unresolved.name)
    name = unresolved.name.removeprefix("functions.")
    if name != unresolved.name:
        fixes.append(Fix("name", f"{clip(unresolved.name)!r} to {name!r}"))
    return Call("", name, arguments, _arguments_text(node, arguments), tuple(fixes), dialect=place.dialect)


def _resolve_unoffered(unresolved: UnresolvedCall, rules: ParseOptions, place: Evidence) -> Call | Malformed:
    """Return a well-formed call of a tool that was not offered, flagged, where a call is meant: the app decides.

    Where a readable wrapper is the only evidence, it is malformed, and plain text if text follows.
    """
    assert unresolved.name is not None
    assert rules.tools is not None
    likely = place.implies_call or (place.wrapper_first and " " not in unresolved.name)
    if not likely or unresolved.arguments is None or not PLAUSIBLE_NAME.match(unresolved.name):
        raise NotACall(f"no tool {clip(unresolved.name, 60)!r} is offered")
    fixes = list(unresolved.fixes)
    call = None
    with suppress(InvalidArguments):
        node, arguments = read_object(unresolved.arguments, fixes, None)
        written = _arguments_text(node, arguments)
        call = Call("", unresolved.name, arguments, written, tuple(fixes), dialect=place.dialect, unknown_tool=True)
        if place.implies_call:
            return call
    if call is None and rules.undeclared:
        return malformed_call("not_an_object", "its arguments are no JSON object", place.dialect, unresolved.name)
    message = unknown_tool_message(unresolved.name, rules.tools)
    return Malformed(0, "", "unknown_tool", message, name=unresolved.name, dialect=place.dialect, call=call)


def _arguments_text(node: JsonNode | None, arguments: dict[str, Any]) -> str:
    """Return the arguments as JSON text: the model's own where that is known and strict, else encoded again."""
    text = node.text() if node is not None else None
    return text if text is not None else dump(arguments)


def unknown_tool_message(name: str, tools: Tools) -> str:
    """Return the error message for the model that lists the offered tools."""
    offered = format_names(tools.names) or "none"
    missing = f"There is no tool {clip(name, 60)!r}."
    return f"{missing} The tools are: {offered}. Call one of these, or answer without a tool."


def _resolve_unnamed(unresolved: UnresolvedCall, rules: ParseOptions, place: Evidence) -> Call | Malformed:
    if rules.tools is None or rules.json_answer:
        raise NotACall("it names no tool")
    assert unresolved.arguments is not None  # without a name the whole object is the arguments
    arguments = unresolved.arguments.value
    if not is_object(arguments):
        raise NotACall("it names no tool, and its arguments are no object")
    free = place.wrapped or rules.strictness == "lenient"
    match = rules.tools.infer(arguments, optin_only=not free)
    if match is None:
        raise NotACall("it names no tool, and its keys do not fit exactly one")
    tool, inferred = match
    return validate_call(tool, arguments, unresolved.arguments, [*unresolved.fixes, *inferred], rules, place)
