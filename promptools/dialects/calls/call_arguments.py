"""Find the arguments of a call whose tool is known.

They are looked for under their key, then beside the name, then in JSON inside a string, then in a call wrapped in the
call. Each such step adds a `Fix`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from promptools.dialects.calls.envelope import (
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
from promptools.types import Fix, MalformedReason, Tool


class InvalidArguments(Exception):
    """Why the arguments of a call that was meant are not an object of the tool's."""

    def __init__(self, reason: MalformedReason, text: str) -> None:
        self.reason: MalformedReason = reason
        self.text = text


_FLAT_FIX = Fix("unwrap", "the arguments were beside the name")
_NO_ARGUMENTS_FIX = Fix("coerce", "no arguments to {}")


def find_arguments(
    unresolved: UnresolvedCall, tool: Tool, rules: ParseOptions, place: Evidence, fixes: list[Fix]
) -> tuple[JsonNode | None, dict[str, Any]]:
    """Return the arguments of `tool`, under their key or beside the name, with their node if it holds only them."""
    assert rules.tools is not None
    keys = rules.tools.keys(tool.name)
    flat = {key: value for key, value in unresolved.siblings.items() if key in keys or key not in METADATA_KEYS}
    if unresolved.arguments is None:
        _reject_foreign_keys(unresolved, tool, flat, rules, place)
        fixes.append(_FLAT_FIX if flat else _NO_ARGUMENTS_FIX)
        return None, flat
    if (
        is_schema(unresolved.arguments.value)
        and "properties" not in keys
        and not _fits_despite_schema(unresolved, tool, rules)
    ):
        raise NotACall("it is a tool's definition, not a call")
    if unresolved.arguments.value == {"type": "object"} and "description" in unresolved.siblings and "type" not in keys:
        raise NotACall("it is a tool's definition, not a call")
    if _is_flat_call(unresolved, tool, flat, rules):
        fixes.append(_FLAT_FIX)
        return None, flat
    node, arguments = read_object(unresolved.arguments, fixes, tool)
    return _unwrap(node, arguments, tool, rules, fixes)


def _reject_foreign_keys(
    unresolved: UnresolvedCall, tool: Tool, flat: dict[str, Any], rules: ParseOptions, place: Evidence
) -> None:
    """Raise `NotACall` if the keys beside the name are no arguments: all of them must be parameters of the tool."""
    assert rules.tools is not None
    sure = place.wrapped or place.expected or rules.strictness == "lenient"
    if not flat:
        if (
            place.wrapped
            or (sure and unresolved.name_key != "name")
            or _is_name_only_call(unresolved, tool, rules, place)
        ):
            return
        raise NotACall("it has a name, but no arguments")
    checked_flat = rules.tools.check(tool, flat, guess=False)
    keys = rules.tools.keys(tool.name)
    fits = keys.issuperset(checked_flat.arguments) and not checked_flat.errors
    if not fits and (not sure or keys.isdisjoint(checked_flat.arguments)):
        raise NotACall(f"the keys beside the name are not all parameters of {tool.name!r}")


def _fits_despite_schema(unresolved: UnresolvedCall, tool: Tool, rules: ParseOptions) -> bool:
    """Whether arguments that look like a JSON schema are values of the tool's parameters."""
    assert rules.tools is not None
    assert unresolved.arguments is not None
    if "description" in unresolved.siblings:
        return False
    result = rules.tools.check(tool, unresolved.arguments.value)
    return result.verified and rules.tools.keys(tool.name).issuperset(result.arguments)


def _is_name_only_call(unresolved: UnresolvedCall, tool: Tool, rules: ParseOptions, place: Evidence) -> bool:
    """Whether a name alone is a call: the reply is nothing but the exact name of a tool that needs no arguments.

    It is not where the same object may be the arguments of another tool.
    """
    tools = rules.tools
    assert tools is not None
    key = unresolved.name_key
    alone = place.at_start and is_object(unresolved.node.value) and unresolved.node.value == {key: tool.name}
    if not alone or tools.check(tool, {}).errors:
        return False
    others = (other for other in tools if key in tools.keys(other.name))
    return all(tools.check(other, {key: tool.name}).errors for other in others)


def _is_flat_call(unresolved: UnresolvedCall, tool: Tool, flat: dict[str, Any], rules: ParseOptions) -> bool:
    """Whether the key that looks like the arguments' is a parameter of the tool itself."""
    assert rules.tools is not None
    assert unresolved.arguments is not None
    keys = rules.tools.keys(tool.name)
    if not flat or not keys.issuperset(flat):
        return False
    if rules.tools.check(tool, flat, guess=False).errors:
        return False
    inner = unresolved.arguments.value
    return not is_object(inner) or bool(rules.tools.check(tool, inner).errors)


def read_object(node: JsonNode, fixes: list[Fix], tool: Tool | None) -> tuple[JsonNode | None, dict[str, Any]]:
    """Return the arguments as an object, with its node if that was the object itself. Raises `InvalidArguments`."""
    arguments = _to_object(node.value, fixes, tool)
    return (node if arguments is node.value else None), arguments


def _to_object(value: Any, fixes: list[Fix], tool: Tool | None) -> dict[str, Any]:
    """Return `value` as an object: decode JSON in a string, and turn null or an empty string into {}."""
    if is_object(value):
        return value
    if value is None or (isinstance(value, str) and not value.strip()):
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
        if single is not None:
            fixes.append(Fix("unwrap", f"the arguments were a bare string: taken as {single!r}"))
            return {single: value}
        reason: MalformedReason = "invalid_json" if error.kind == "truncated" else error.kind
        raise InvalidArguments(
            reason, f"its arguments are a string that is no JSON object ({clip(value, 80)!r})"
        ) from None
    fixes.append(Fix("unwrap", "the arguments were JSON inside a string"))
    fixes.extend(inner.fixes)
    if isinstance(inner.value, str):
        return _decode_string(inner.value, fixes, tool)
    if not is_object(inner.value):
        raise InvalidArguments("not_an_object", f"its arguments are {_type_name(inner.value)}, not an object")
    return inner.value


def sole_string_parameter(tool: Tool | None) -> str | None:
    """Return the parameter that takes free text, or the only one if it is a free string; else None."""
    if tool is not None and tool.free_text is not None:
        return tool.free_text
    properties = tool.parameters.get("properties") if tool else None
    if not is_object(properties) or len(properties) != 1:
        return None
    ((key, schema),) = properties.items()
    free = is_object(schema) and schema.get("type") == "string" and "enum" not in schema
    return key if free else None


def _unwrap(
    node: JsonNode | None, arguments: dict[str, Any], tool: Tool, rules: ParseOptions, fixes: list[Fix]
) -> tuple[JsonNode | None, dict[str, Any]]:
    """Unwrap a call inside a call, at any depth, where the tool declares no such parameters.

    Raises `InvalidArguments` if the inner call is of another tool.
    """
    assert rules.tools is not None
    keys = rules.tools.keys(tool.name)
    while True:
        inner_key = argument_key(arguments)
        if inner_key is None or inner_key in keys:
            return node, arguments
        name_key = next((key for key in NAME_KEYS if isinstance(arguments.get(key), str) and key not in keys), None)
        rest = [key for key in arguments if key not in (inner_key, name_key) and key not in METADATA_KEYS]
        if rest:
            return node, arguments
        other = rules.tools.find(arguments[name_key]) if name_key is not None else None
        if other is not None and other[0] is not tool:  # which of the two was meant cannot be known
            raise InvalidArguments("invalid_arguments", f"its arguments are a call of {other[0].name!r}")
        inner_fixes: list[Fix] = []
        try:
            arguments = _to_object(arguments[inner_key], inner_fixes, None)
        except InvalidArguments:
            return node, arguments
        node = None
        fixes += [*inner_fixes, Fix("unwrap", "the call was wrapped in a call")]


def is_schema(value: Any) -> bool:
    """Whether `value` is a JSON schema of parameters, echoed from the prompt."""
    return is_object(value) and is_object(value.get("properties")) and value.get("type") == "object"


_TYPE_NAMES: Mapping[type, str] = {list: "a list", bool: "a boolean", int: "a number", float: "a number"}


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(value.__class__, "nothing")
