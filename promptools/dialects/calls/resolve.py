"""Resolve a raw call: find its tool, read and check its arguments, and decide whether it is a call at all.

The input is an `UnresolvedCall`, which was read from a JSON object or from another format. The result is one of:

- `Call`: the tool is offered, and the arguments conform to the schema, perhaps after fixes. If the offered tools are
  unknown, or a call is certainly meant, a call to any other tool is returned too, unchecked.
- `Malformed`: a call was meant, but cannot be run. Its message tells the model what is wrong and how to correct it.
- `NotACall` is raised: the text is not a call, and stays plain text.

What counts as a call depends on the `Evidence`. After a special token, or in the dialect that the request asked for, a
call with errors is returned as `Malformed`. In ordinary text, an object counts only if it is unmistakably a call: an
offered tool, only arguments that the tool declares, no keys of a log record, no JSON schema echoed from the prompt.

`find_arguments` finds the arguments of a call whose tool is known; `resolve_call` decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from promptools.dialects.calls.envelope import (
    AMBIGUOUS_NAME_KEYS,
    ARGUMENT_KEYS,
    METADATA_KEYS,
    NAME_KEYS,
    JsonNode,
    NotACall,
    UnresolvedCall,
    argument_key,
)
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.errors import clip
from promptools.json_values import is_object
from promptools.jsontext.read import Unreadable, read_whole_value
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import format_names
from promptools.types import Call, Fix, Malformed, MalformedReason, Tool

if TYPE_CHECKING:
    from promptools.schema import Tools


# The arguments of a call whose tool is known.
#
# The arguments are looked for under their key, next to the name, as JSON in a string, and in a call inside the call.
# Each step after the first adds a `Fix`.


class InvalidArguments(Exception):
    """Raised if a call was meant but its arguments are not a valid object; `text` says why."""

    def __init__(self, reason: MalformedReason, text: str) -> None:
        self.reason: MalformedReason = reason
        self.text = text


_FLAT_FIX = Fix("unwrap", "the arguments were beside the name")
_NO_ARGUMENTS_FIX = Fix("coerce", "no arguments to {}")


def find_arguments(
    unresolved: UnresolvedCall, tool: Tool, options: ParseOptions, evidence: Evidence, fixes: list[Fix]
) -> tuple[JsonNode | None, dict[str, Any]]:
    """Return `(node, arguments)`: the JSON node of a call's arguments, and the arguments as an object.

    `node` is None if no part of the JSON contains just the arguments. Fixes are added to `fixes`.
    """
    assert options.tools is not None
    keys = options.tools.keys(tool.name)
    flat = {key: value for key, value in unresolved.siblings.items() if key in keys or key not in METADATA_KEYS}
    if unresolved.arguments is None:
        _reject_foreign_keys(unresolved, tool, flat, options, evidence)
        fixes.append(_FLAT_FIX if flat else _NO_ARGUMENTS_FIX)
        return None, flat
    if (
        is_schema(unresolved.arguments.value)
        and "properties" not in keys
        and not _fits_despite_schema(unresolved, tool, options)
    ):
        raise NotACall("it is a tool's definition, not a call")
    if unresolved.arguments.value == {"type": "object"} and "description" in unresolved.siblings and "type" not in keys:
        raise NotACall("it is a tool's definition, not a call")
    if _is_flat_call(unresolved, tool, flat, options):
        fixes.append(_FLAT_FIX)
        return None, flat
    node, arguments = read_object(unresolved.arguments, fixes, tool)
    return _unwrap(node, arguments, tool, options, fixes)


def _reject_foreign_keys(
    unresolved: UnresolvedCall, tool: Tool, flat: dict[str, Any], options: ParseOptions, evidence: Evidence
) -> None:
    """Raise `NotACall` if `flat`, the members next to the tool's name, cannot be the arguments of the tool.

    If there are no such members, `NotACall` is raised unless the name alone is enough evidence of a call.
    """
    assert options.tools is not None
    sure = evidence.wrapped or evidence.expected or options.strictness == "lenient"
    if not flat:
        if (
            evidence.wrapped
            or (sure and unresolved.name_key != "name")
            or _is_name_only_call(unresolved, tool, options, evidence)
        ):
            return
        # `Here is a user: {"name": "Alice"}` (Rapid-MLX#703).
        raise NotACall("it has a name, but no arguments")
    checked_flat = options.tools.check(tool, flat, guess=False)
    keys = options.tools.keys(tool.name)
    fits = keys.issuperset(checked_flat.arguments) and not checked_flat.errors
    if not fits and (not sure or keys.isdisjoint(checked_flat.arguments)):
        raise NotACall(f"the keys beside the name are not all parameters of {tool.name!r}")


def _fits_despite_schema(unresolved: UnresolvedCall, tool: Tool, options: ParseOptions) -> bool:
    """Return whether arguments that look like a JSON schema are valid values of the tool's parameters after all."""
    assert options.tools is not None
    assert unresolved.arguments is not None
    if "description" in unresolved.siblings:
        return False
    result = options.tools.check(tool, unresolved.arguments.value)
    return result.verified and options.tools.keys(tool.name).issuperset(result.arguments)


def _is_name_only_call(unresolved: UnresolvedCall, tool: Tool, options: ParseOptions, evidence: Evidence) -> bool:
    """Return whether an object with only a name, such as `{"tool": "ping"}`, calls a tool that needs no arguments.

    The name must be exact. The object must begin the reply, and must not be valid as the arguments of another tool.
    """
    tools = options.tools
    assert tools is not None
    key = unresolved.name_key
    alone = evidence.at_start and is_object(unresolved.node.value) and unresolved.node.value == {key: tool.name}
    if not alone or tools.check(tool, {}).errors:
        return False
    others = (other for other in tools if key in tools.keys(other.name))
    return all(tools.check(other, {key: tool.name}).errors for other in others)


def _is_flat_call(unresolved: UnresolvedCall, tool: Tool, flat: dict[str, Any], options: ParseOptions) -> bool:
    """Return whether the arguments are next to the name, as in `{"name": "search", "input": "Oslo", "days": 2}`.

    If so, the key that usually contains the arguments, here `input`, is itself a parameter of the tool.
    """
    assert options.tools is not None
    assert unresolved.arguments is not None
    keys = options.tools.keys(tool.name)
    if not flat or not keys.issuperset(flat):
        return False
    if options.tools.check(tool, flat, guess=False).errors:
        return False
    inner = unresolved.arguments.value
    return not is_object(inner) or bool(options.tools.check(tool, inner).errors)


def read_object(node: JsonNode, fixes: list[Fix], tool: Tool | None) -> tuple[JsonNode | None, dict[str, Any]]:
    """Return `(node, arguments)`: the JSON node of the arguments, and the arguments as an object.

    The node is None if its value had to be converted to an object. Raises `InvalidArguments` if no conversion is
    possible.
    """
    arguments = _to_object(node.value, fixes, tool)
    return (node if arguments is node.value else None), arguments


def _to_object(value: Any, fixes: list[Fix], tool: Tool | None) -> dict[str, Any]:
    """Return `value` as an object: JSON in a string is decoded; null and an empty string become {}."""
    if is_object(value):
        return value
    if value is None or (isinstance(value, str) and not value.strip()):
        # vLLM streams a call without arguments with an empty string (vllm#21301).
        fixes.append(Fix("coerce", f"{dump(value)} to {{}}"))
        return {}
    if isinstance(value, str):
        return _decode_string(value, fixes, tool)
    raise InvalidArguments("not_an_object", f"its arguments are {_type_name(value)}, not an object")


def _decode_string(value: str, fixes: list[Fix], tool: Tool | None) -> dict[str, Any]:
    try:
        inner = read_whole_value(value)
    except Unreadable as error:
        single = sole_string_parameter(tool) if value.strip().lstrip("-") not in ("NaN", "Infinity") else None
        # gpt-oss on Ollama wrote `ls -R` and a line break for arguments (continue#10221).
        if single is not None:
            fixes.append(Fix("unwrap", f"the arguments were a bare string: taken as {single!r}"))
            return {single: value}
        reason: MalformedReason = "invalid_json" if error.kind == "truncated" else error.kind
        raise InvalidArguments(
            reason, f"its arguments are a string that is not a JSON object ({clip(value, 80)!r})"
        ) from None
    # Models encode arguments twice: ollama#12413.
    fixes.append(Fix("unwrap", "the arguments were JSON inside a string"))
    fixes.extend(inner.fixes)
    if isinstance(inner.value, str):
        return _decode_string(inner.value, fixes, tool)
    if not is_object(inner.value):
        raise InvalidArguments("not_an_object", f"its arguments are {_type_name(inner.value)}, not an object")
    return inner.value


def sole_string_parameter(tool: Tool | None) -> str | None:
    """Return the tool's parameter for free text, or its only parameter if that one takes any string; else None."""
    if tool is not None and tool.free_text is not None:
        return tool.free_text
    properties = tool.parameters.get("properties") if tool else None
    if not is_object(properties) or len(properties) != 1:
        return None
    ((key, schema),) = properties.items()
    free = is_object(schema) and schema.get("type") == "string" and "enum" not in schema
    return key if free else None


def _unwrap(
    node: JsonNode | None, arguments: dict[str, Any], tool: Tool, options: ParseOptions, fixes: list[Fix]
) -> tuple[JsonNode | None, dict[str, Any]]:
    """If the arguments are themselves a call, at any depth, replace them with the arguments of the innermost call.

    Nothing is replaced if the tool declares parameters that have the same names as the keys of a call. Raises
    `InvalidArguments` if an inner call names another tool.
    """
    assert options.tools is not None
    keys = options.tools.keys(tool.name)
    while True:
        inner_key = argument_key(arguments)
        if inner_key is None or inner_key in keys:
            return node, arguments
        name_key = next((key for key in NAME_KEYS if isinstance(arguments.get(key), str) and key not in keys), None)
        rest = [key for key in arguments if key not in (inner_key, name_key) and key not in METADATA_KEYS]
        if rest:
            return node, arguments
        other = options.tools.find(arguments[name_key]) if name_key is not None else None
        if other is not None and other[0] is not tool:  # which of the two was meant cannot be known
            raise InvalidArguments("invalid_arguments", f"its arguments are a call of {other[0].name!r}")
        inner_fixes: list[Fix] = []
        try:
            arguments = _to_object(arguments[inner_key], inner_fixes, None)
        except InvalidArguments:
            return node, arguments
        node = None
        # gpt-oss-120b wraps a call twice.
        fixes += [*inner_fixes, Fix("unwrap", "the call was wrapped in a call")]


def is_schema(value: Any) -> bool:
    """Return whether `value` looks like a JSON schema of parameters, echoed from the prompt."""
    return is_object(value) and is_object(value.get("properties")) and value.get("type") == "object"


_TYPE_NAMES: Mapping[type, str] = {list: "a list", bool: "a boolean", int: "a number", float: "a number"}


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(value.__class__, "nothing")


# The decision: a call, a malformed call, or no call.


MAX_NAME_LENGTH = 256
"""The maximum length of a name, including any text that models put around it."""
NOT_IN_NAMES = frozenset("{}\n")
"""Characters that never occur in the name of a tool."""
PLAUSIBLE_NAME = lazy_pattern(r"[^\W\d][\w.:/ -]{0,127}\Z")
"""Matches text that may be a tool's name, for use if the offered tools are unknown."""


def resolve_call(unresolved: UnresolvedCall, options: ParseOptions, evidence: Evidence) -> Call | Malformed:
    """Return a raw call as a `Call`, or as a `Malformed` with an explanation. Raises `NotACall` if it is neither."""
    if unresolved.name is None:
        return _resolve_unnamed(unresolved, options, evidence)
    if len(unresolved.name) > MAX_NAME_LENGTH or not NOT_IN_NAMES.isdisjoint(unresolved.name):
        raise NotACall("what is in the name's place is no name")
    _reject_record(unresolved, options, evidence)
    if options.tools is None:
        return _resolve_without_tools(unresolved, evidence)
    match = options.tools.find(unresolved.name)
    if (
        match is None
        and unresolved.arguments is None
        and unresolved.name_key in AMBIGUOUS_NAME_KEYS
        and evidence.wrapped
    ):
        return _resolve_unnamed(
            UnresolvedCall(unresolved.node, None, unresolved.node, {}, unresolved.fixes), options, evidence
        )
    if match is None:
        return _resolve_unoffered(unresolved, options, evidence)
    tool, renamed = match
    fixes = [*unresolved.fixes, *([renamed] if renamed else [])]
    try:
        node, arguments = find_arguments(unresolved, tool, options, evidence, fixes)
    except InvalidArguments as unfit:
        if unfit.reason == "not_an_object" and not (evidence.wrapped or evidence.expected) and _may_be_data(unresolved):
            raise NotACall(unfit.text) from None
        return malformed_call(unfit.reason, unfit.text, evidence.dialect, tool.name)
    return validate_call(tool, arguments, node, fixes, options, evidence)


def _reject_record(unresolved: UnresolvedCall, options: ParseOptions, evidence: Evidence) -> None:
    """Raise `NotACall` for the record of an earlier call, except if the record's keys are parameters of the tool."""
    sure = evidence.wrapped or evidence.expected or options.strictness == "lenient"
    if sure or not unresolved.record_keys or unresolved.arguments is None:
        return
    match = options.tools.find(unresolved.name or "") if options.tools is not None else None
    own = options.tools.keys(match[0].name) if options.tools is not None and match is not None else frozenset[str]()
    if not unresolved.record_keys <= own:
        raise NotACall(f"it is a record of a call: {min(unresolved.record_keys - own)!r} is beside it")


def _may_be_data(unresolved: UnresolvedCall) -> bool:
    """Return whether an object with a name, and with arguments that are not an object, may be ordinary data.

    This is so if the key of the arguments, such as `inputs`, also occurs in ordinary data.
    """
    return is_object(unresolved.node.value) and argument_key(unresolved.node.value) not in ("arguments", "parameters")


def validate_call(
    tool: Tool,
    arguments: dict[str, Any],
    node: JsonNode | None,
    fixes: list[Fix],
    options: ParseOptions,
    evidence: Evidence,
) -> Call | Malformed:
    """Check `arguments` against the schema; return the call, or a malformed call if they do not conform.

    `node` is the JSON value that consists of just the arguments; None if there is no such value in the JSON.
    """
    assert options.tools is not None
    if options.restore is not None:
        arguments, undone = options.restore(arguments)
        fixes = [*fixes, *undone]
    own = node.text() if node is not None and node.value is arguments else None
    result = options.tools.check(tool, arguments, own)
    text = own if result.arguments is arguments else None
    call = Call(
        id="",
        name=tool.name,
        arguments=result.arguments,
        arguments_json=text if text is not None else dump(result.arguments),
        fixes=(*fixes, *result.fixes),
        dialect=evidence.dialect,
    )
    if result.errors or not (
        result.verified or evidence.wrapped or evidence.implies_call
    ):  # no other evidence of a call
        wrong = f"its arguments do not fit. {'; '.join(result.errors[:5]) or result.fixes[-1].detail}"
        message = f"The call of {tool.name!r} was not run: {wrong}. Call it again, corrected."
        return Malformed(0, "", "invalid_arguments", message, name=tool.name, dialect=evidence.dialect, call=call)
    return call


def malformed_call(reason: MalformedReason, text: str, dialect: str, name: str | None) -> Malformed:
    """Return a `Malformed` for a call that cannot be read; `text` says what is wrong."""
    what = f"The call of {name!r}" if name else "The tool call"
    advice = {
        "truncated": "It was cut off before its end. Make the call again, with shorter arguments.",
        "invalid_json": "Write the arguments as one valid JSON object and call again.",
        "not_an_object": "Write the arguments as one JSON object, such as {}, and call again.",
        "limit": "Use smaller values and call again.",
    }.get(reason, "Call again, corrected.")
    return Malformed(0, "", reason, f"{what} was not run: {text}. {advice}", name=name, dialect=dialect)


def _resolve_without_tools(unresolved: UnresolvedCall, evidence: Evidence) -> Call | Malformed:
    """Resolve a call when the offered tools are unknown. It needs a plausible name and a key for its arguments."""
    assert unresolved.name is not None
    if not PLAUSIBLE_NAME.match(unresolved.name):
        raise NotACall(f"{clip(unresolved.name, 40)!r} is not a tool name")
    if unresolved.arguments is None:
        raise NotACall("it has a name, but no arguments")
    if is_schema(unresolved.arguments.value):
        raise NotACall("it is a tool's definition, not a call")
    strange = [key for key in unresolved.siblings if key not in ARGUMENT_KEYS and key not in METADATA_KEYS]
    if strange and not evidence.wrapped and not evidence.expected:
        raise NotACall(f"it has other keys: {strange[0]!r}")
    fixes = list(unresolved.fixes)
    try:
        node, arguments = read_object(unresolved.arguments, fixes, None)
    except InvalidArguments as unfit:
        return malformed_call(unfit.reason, unfit.text, evidence.dialect, unresolved.name)
    name = unresolved.name.removeprefix("functions.")
    if name != unresolved.name:
        fixes.append(Fix("name", f"{clip(unresolved.name)!r} to {name!r}"))
    return Call("", name, arguments, _arguments_text(node, arguments), tuple(fixes), dialect=evidence.dialect)


def _resolve_unoffered(unresolved: UnresolvedCall, options: ParseOptions, evidence: Evidence) -> Call | Malformed:
    """Return a call to a tool that was not offered, marked as `unknown_tool`, if a call is clearly meant.

    If the only evidence is a readable tag before the call (one that prose may contain, such as `<tool_call>`), the call
    is returned as malformed, and becomes plain text if text follows.
    """
    assert unresolved.name is not None
    assert options.tools is not None
    likely = evidence.implies_call or (evidence.wrapper_first and " " not in unresolved.name)
    if not likely or unresolved.arguments is None or not PLAUSIBLE_NAME.match(unresolved.name):
        raise NotACall(f"no tool {clip(unresolved.name, 60)!r} is offered")
    fixes = list(unresolved.fixes)
    call = None
    with suppress(InvalidArguments):
        node, arguments = read_object(unresolved.arguments, fixes, None)
        written = _arguments_text(node, arguments)
        call = Call("", unresolved.name, arguments, written, tuple(fixes), dialect=evidence.dialect, unknown_tool=True)
        if evidence.implies_call:
            return call
    if call is None and options.undeclared:
        return malformed_call("not_an_object", "its arguments are not a JSON object", evidence.dialect, unresolved.name)
    message = unknown_tool_message(unresolved.name, options.tools)
    return Malformed(0, "", "unknown_tool", message, name=unresolved.name, dialect=evidence.dialect, call=call)


def _arguments_text(node: JsonNode | None, arguments: dict[str, Any]) -> str:
    """Return the arguments as JSON text: unchanged if the text is known to be strict JSON, else encoded again."""
    text = node.text() if node is not None else None
    return text if text is not None else dump(arguments)


def unknown_tool_message(name: str, tools: Tools) -> str:
    """Return the error message that tells the model that a tool is unknown; it lists the offered tools."""
    offered = format_names(tools.names) or "none"
    missing = f"There is no tool {clip(name, 60)!r}."
    return f"{missing} The tools are: {offered}. Call one of these, or answer without a tool."


def _resolve_unnamed(unresolved: UnresolvedCall, options: ParseOptions, evidence: Evidence) -> Call | Malformed:
    if options.tools is None or options.json_answer:
        raise NotACall("it names no tool")
    assert unresolved.arguments is not None  # without a name the whole object is the arguments
    arguments = unresolved.arguments.value
    if not is_object(arguments):
        raise NotACall("it names no tool, and its arguments are not an object")
    free = evidence.wrapped or options.strictness == "lenient"
    match = options.tools.infer(arguments, optin_only=not free)
    if match is None:
        raise NotACall("it names no tool, and its keys do not fit exactly one")
    tool, inferred = match
    return validate_call(tool, arguments, unresolved.arguments, [*unresolved.fixes, *inferred], options, evidence)
