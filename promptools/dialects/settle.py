"""Decide one call: its tool, its arguments against the schema, the fixes, and the reasons when there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.dialects.envelope import (
    ARGUMENT_KEYS,
    ASIDE_KEYS,
    NAME_KEYS,
    UNSURE_NAME_KEYS,
    NoCall,
    Node,
    Said,
    argument_key,
)
from promptools.errors import clip
from promptools.parsing.tolerant import Unreadable, Value, read
from promptools.schema.graph import is_object
from promptools.schema.spelling import listed
from promptools.types import Call, Fix, Malformed, MalformedReason, Strictness, Tool

if TYPE_CHECKING:
    from promptools.parsing.sources import Sources
    from promptools.schema import Tools
    from promptools.types import RestoreArguments

NAME_LIMIT = 256
"""Characters of a name with everything that models put around it."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
"""Made once: `json.dumps` would make one each time."""
NO_NAME = frozenset("{}\n")
"""Characters that no name has."""
PLAUSIBLE_NAME = re.compile(r"[^\W\d][\w.:/ -]{0,127}\Z")
"""What may be a tool's name when nobody said which tools there are."""


STOPPED = frozenset(("stop", "tool_calls"))
"""Finish reasons of a model that was done. With any other, and with none, the reply may have been cut."""


class Rules(NamedTuple):
    """What a reply is read against: the same for its whole length."""

    tools: Tools | None
    strictness: Strictness
    expect: str | None
    json_answer: bool
    anchors: frozenset[str]
    rescue: bool | None = None
    """A call that ends the reasoning of a reply that says nothing else was meant; None: only in `RESCUED` dialects."""
    whole: bool = False
    """The reply is read at once, and nobody takes the events."""
    accept: frozenset[str] | None = None
    """The dialects in which a call is one, beside that which was asked for; None: all."""
    sources: Sources | None = None
    """Texts of the conversation: a call that is quoted from one of them is none."""
    restore: RestoreArguments | None = None
    """Undoes in arguments what was escaped in the request."""


class Place(NamedTuple):
    """Where a candidate stands.

    `wrapped`: inside an unmistakable wrapper; `expected`: in the dialect asked for; `sentinel`: behind a marker that
    prose cannot contain, so that a call is meant even of a tool that nobody offers; `alone`: in a wrapper, and no words
    came before it; `first`: nothing was said or called before it, and it stands in no fence.
    """

    dialect: str
    wrapped: bool
    expected: bool
    sentinel: bool = False
    alone: bool = False
    first: bool = False

    @property
    def meant(self) -> bool:
        """Tell whether where a call stands shows that it is meant, whatever is wrong with it."""
        return self.expected or self.sentinel


def dump(value: Any) -> str:
    """Write JSON as a model would: one line, text as it is."""
    return _ENCODER.encode(value)


def settle(said: Said, rules: Rules, place: Place) -> Call | Malformed:
    """Make a `Call`, or a `Malformed` that says what is wrong. Raises `NoCall` when this is no call at all."""
    if said.name is None:
        return _inferred(said, rules, place)
    if len(said.name) > NAME_LIMIT or not NO_NAME.isdisjoint(said.name):
        raise NoCall("what stands where the name belongs is no name")
    _refuse_record(said, rules, place)
    if rules.tools is None:
        return _unchecked(said, place)
    found = rules.tools.find(said.name)
    if found is None and said.arguments is None and said.name_key in UNSURE_NAME_KEYS and place.wrapped:
        return _inferred(Said(said.node, None, said.node, {}, said.fixes), rules, place)
    if found is None:
        return _unknown(said, rules, place)
    tool, renamed = found
    fixes = [*said.fixes, *([renamed] if renamed else [])]
    try:
        node, arguments = _arguments(said, tool, rules, place, fixes)
    except _Unfit as unfit:
        if unfit.reason == "not_an_object" and not (place.wrapped or place.expected) and _is_data(said):
            raise NoCall(unfit.text) from None
        return broken(unfit.reason, unfit.text, place.dialect, tool.name)
    return checked(tool, arguments, node, fixes, rules, place)


def _refuse_record(said: Said, rules: Rules, place: Place) -> None:
    """Raise `NoCall` for a record of a call that was made, unless its keys are the tool's own parameters."""
    sure = place.wrapped or place.expected or rules.strictness == "lenient"
    if sure or not said.record or said.arguments is None:
        return
    found = rules.tools.find(said.name or "") if rules.tools is not None else None
    own = rules.tools.keys(found[0].name) if rules.tools is not None and found is not None else frozenset[str]()
    if not said.record <= own:
        raise NoCall(f"it is a record of a call: {min(said.record - own)!r} is beside it")


def _is_data(said: Said) -> bool:
    """Tell whether what holds no object is just as likely no call: a contract has `inputs` too."""
    return is_object(said.node.value) and argument_key(said.node.value) not in ("arguments", "parameters")


class _Unfit(Exception):
    def __init__(self, reason: MalformedReason, text: str) -> None:
        self.reason: MalformedReason = reason
        self.text = text


def checked(
    tool: Tool, arguments: dict[str, Any], node: Node | None, fixes: list[Fix], rules: Rules, place: Place
) -> Call | Malformed:
    """Check `arguments` against the schema; `node` is the text that they were read from, if it is theirs alone."""
    assert rules.tools is not None
    if rules.restore is not None:
        arguments, undone = rules.restore(arguments)
        fixes = [*fixes, *undone]
    own = node.text() if node is not None and node.value is arguments else None
    result = rules.tools.check(tool, arguments, own)
    text = own if result.arguments is arguments else None
    whole = Call(
        id="",
        name=tool.name,
        arguments=result.arguments,
        arguments_json=text if text is not None else dump(result.arguments),
        fixes=(*fixes, *result.fixes),
        dialect=place.dialect,
    )
    if result.errors or not (result.sure or place.wrapped or place.meant):  # where it is, nothing else shows a call
        wrong = f"its arguments do not fit. {'; '.join(result.errors[:5]) or result.fixes[-1].detail}"
        message = f"The call of {tool.name!r} was not run: {wrong}. Call it again, corrected."
        return Malformed(0, "", "invalid_arguments", message, name=tool.name, dialect=place.dialect, call=whole)
    return whole


def broken(reason: MalformedReason, text: str, dialect: str, name: str | None) -> Malformed:
    """Make a `Malformed` without a readable call; `text` says what is wrong."""
    what = f"The call of {name!r}" if name else "The tool call"
    advice = {
        "truncated": "It was cut off before its end. Make the call again, with shorter arguments.",
        "invalid_json": "Write the arguments as one valid JSON object and call again.",
        "not_an_object": "Write the arguments as one JSON object, such as {}, and call again.",
        "limit": "Use smaller values and call again.",
    }.get(reason, "Call again, corrected.")
    return Malformed(0, "", reason, f"{what} was not run: {text}. {advice}", name=name, dialect=dialect)


# --- which tool ------------------------------------------------------------------------------------------------------


def _unchecked(said: Said, place: Place) -> Call | Malformed:
    """Make a call of a tool that nobody listed: it needs a plausible name and arguments of its own."""
    assert said.name is not None
    if not PLAUSIBLE_NAME.match(said.name):
        raise NoCall(f"{clip(said.name, 40)!r} is no tool name")
    if said.arguments is None:
        raise NoCall("it has a name, but no arguments")
    if _is_schema(said.arguments.value):
        raise NoCall("it is a tool's definition, not a call")
    strange = [key for key in said.flat if key not in ARGUMENT_KEYS and key not in ASIDE_KEYS]
    if strange and not place.wrapped and not place.expected:
        raise NoCall(f"it has other keys: {strange[0]!r}")
    fixes = list(said.fixes)
    try:
        node, arguments = _as_object(said.arguments, fixes, None)
    except _Unfit as unfit:
        return broken(unfit.reason, unfit.text, place.dialect, said.name)
    name = said.name.removeprefix("functions.")
    if name != said.name:
        fixes.append(Fix("name", f"{clip(said.name)!r} to {name!r}"))
    return Call("", name, arguments, _as_written(node, arguments), tuple(fixes), dialect=place.dialect)


def _unknown(said: Said, rules: Rules, place: Place) -> Call | Malformed:
    """Return a well-formed call of a tool that was not offered, flagged, where a call was asked for: the host decides.

    Where only its wrapper tells of a call it is a malformed one, and text if words follow.
    """
    assert said.name is not None
    assert rules.tools is not None
    likely = place.meant or (place.alone and " " not in said.name)
    if not likely or said.arguments is None or not PLAUSIBLE_NAME.match(said.name):
        raise NoCall(f"no tool {clip(said.name, 60)!r} is offered")
    fixes = list(said.fixes)
    try:
        node, arguments = _as_object(said.arguments, fixes, None)
    except _Unfit:
        message = unknown_message(said.name, rules.tools)
        return Malformed(0, "", "unknown_tool", message, name=said.name, dialect=place.dialect)
    written = _as_written(node, arguments)
    call = Call("", said.name, arguments, written, tuple(fixes), dialect=place.dialect, unknown_tool=True)
    if place.meant:
        return call
    message = unknown_message(said.name, rules.tools)
    return Malformed(0, "", "unknown_tool", message, name=said.name, dialect=place.dialect, call=call)


def _as_written(node: Node | None, arguments: dict[str, Any]) -> str:
    """Give the arguments as the model's own text, where that is at hand and JSON, else as ours."""
    text = node.text() if node is not None else None
    return text if text is not None else dump(arguments)


def unknown_message(name: str, tools: Tools) -> str:
    """Tell the model which tools there are."""
    offered = listed(tools.names) or "none"
    none = f"There is no tool {clip(name, 60)!r}."
    return f"{none} The tools are: {offered}. Call one of these, or answer without a tool."


def _inferred(said: Said, rules: Rules, place: Place) -> Call | Malformed:
    if rules.tools is None or rules.json_answer:
        raise NoCall("it names no tool")
    assert said.arguments is not None  # what names no tool is nothing but arguments
    arguments = said.arguments.value
    if not is_object(arguments):
        raise NoCall("it names no tool, and its arguments are no object")
    free = place.wrapped or rules.strictness == "lenient"
    found = rules.tools.infer(arguments, optin_only=not free)
    if found is None:
        raise NoCall("it names no tool, and its keys do not fit exactly one")
    tool, how = found
    return checked(tool, arguments, said.arguments, [*said.fixes, *how], rules, place)


# --- which arguments -------------------------------------------------------------------------------------------------


_BESIDE = Fix("unwrap", "the arguments stood beside the name")
_NONE = Fix("coerce", "no arguments to {}")


def _arguments(
    said: Said, tool: Tool, rules: Rules, place: Place, fixes: list[Fix]
) -> tuple[Node | None, dict[str, Any]]:
    """Find the arguments of `tool`: under their key, or beside the name."""
    assert rules.tools is not None
    keys = rules.tools.keys(tool.name)
    flat = {key: value for key, value in said.flat.items() if key in keys or key not in ASIDE_KEYS}
    if said.arguments is None:
        _refuse_strange(said, tool, flat, rules, place)
        fixes.append(_BESIDE if flat else _NONE)
        return None, flat
    if _is_schema(said.arguments.value) and "properties" not in keys and not _holds_values(said, tool, rules):
        raise NoCall("it is a tool's definition, not a call")
    if said.arguments.value == {"type": "object"} and "description" in said.flat and "type" not in keys:
        raise NoCall("it is a tool's definition, not a call")
    if _reads_flat(said, tool, flat, rules):
        fixes.append(_BESIDE)
        return None, flat
    node, arguments = _as_object(said.arguments, fixes, tool)
    return _unwrapped(node, arguments, tool, rules, fixes)


def _refuse_strange(said: Said, tool: Tool, flat: dict[str, Any], rules: Rules, place: Place) -> None:
    """Raise `NoCall` where the keys beside the name are no arguments: all of them must be the tool's own."""
    assert rules.tools is not None
    sure = place.wrapped or place.expected or rules.strictness == "lenient"
    if not flat:
        if place.wrapped or (sure and said.name_key != "name") or _calls_nothing(said, tool, rules, place):
            return
        raise NoCall("it has a name, but no arguments")
    checked_flat = rules.tools.check(tool, flat, guess=False)
    keys = rules.tools.keys(tool.name)
    fits = keys.issuperset(checked_flat.arguments) and not checked_flat.errors
    if not fits and (not sure or keys.isdisjoint(checked_flat.arguments)):
        raise NoCall(f"the keys beside the name are not all parameters of {tool.name!r}")


def _holds_values(said: Said, tool: Tool, rules: Rules) -> bool:
    """Whether what looks like a schema of the tool's parameters holds values for them."""
    assert rules.tools is not None
    assert said.arguments is not None
    if "description" in said.flat:
        return False
    result = rules.tools.check(tool, said.arguments.value)
    return result.sure and rules.tools.keys(tool.name).issuperset(result.arguments)


def _calls_nothing(said: Said, tool: Tool, rules: Rules, place: Place) -> bool:
    """Tell whether a name alone is a call: all that is said so far is the very name of a tool that needs no arguments.

    It is none where the same object may be the arguments of another tool.
    """
    tools = rules.tools
    assert tools is not None
    key = said.name_key
    alone = place.first and is_object(said.node.value) and said.node.value == {key: tool.name}
    if not alone or tools.check(tool, {}).errors:
        return False
    others = (each for each in tools if key in tools.keys(each.name))
    return all(tools.check(each, {key: tool.name}).errors for each in others)


def _reads_flat(said: Said, tool: Tool, flat: dict[str, Any], rules: Rules) -> bool:
    """Tell whether what looks like the arguments' key is a parameter of the tool itself."""
    assert rules.tools is not None
    assert said.arguments is not None
    keys = rules.tools.keys(tool.name)
    if not flat or not keys.issuperset(flat):
        return False
    if rules.tools.check(tool, flat, guess=False).errors:
        return False
    inner = said.arguments.value
    return not is_object(inner) or bool(rules.tools.check(tool, inner).errors)


def _as_object(node: Node, fixes: list[Fix], tool: Tool | None) -> tuple[Node | None, dict[str, Any]]:
    """Read the arguments as an object, with the node if it is its own."""
    arguments = _object_of(node.value, fixes, tool)
    return (node if arguments is node.value else None), arguments


def _object_of(value: Any, fixes: list[Fix], tool: Tool | None) -> dict[str, Any]:
    """Decode JSON in a string, take nothing for `{}`."""
    if is_object(value):
        return value
    if value is None or (isinstance(value, str) and not value.strip()):
        fixes.append(Fix("coerce", f"{dump(value)} to {{}}"))
        return {}
    if isinstance(value, str):
        return _decoded(value, fixes, tool)
    raise _Unfit("not_an_object", f"its arguments are {_kind(value)}, not an object")


def _decoded(value: str, fixes: list[Fix], tool: Tool | None) -> dict[str, Any]:
    try:
        inner = _whole(value)
    except Unreadable as error:
        single = single_string(tool) if value.strip().lstrip("-") not in ("NaN", "Infinity") else None
        if single is not None:
            fixes.append(Fix("unwrap", f"the arguments were a bare string: taken as {single!r}"))
            return {single: value}
        reason: MalformedReason = "invalid_json" if error.kind == "truncated" else error.kind
        raise _Unfit(reason, f"its arguments are a string that is no JSON object ({clip(value, 80)!r})") from None
    fixes.append(Fix("unwrap", "the arguments were JSON inside a string"))
    fixes.extend(inner.fixes)
    if isinstance(inner.value, str):
        return _decoded(inner.value, fixes, tool)
    if not is_object(inner.value):
        raise _Unfit("not_an_object", f"its arguments are {_kind(inner.value)}, not an object")
    return inner.value


def _whole(text: str) -> Value:
    """Read a text that is one JSON value. Raises `Unreadable`, also when anything follows it."""
    value = read(text)
    if text[value.end :].strip():
        raise Unreadable(value.end, "text follows the value", "invalid_json")
    return value


def single_string(tool: Tool | None) -> str | None:
    """Give the only parameter of a tool that takes one free string."""
    properties = tool.parameters.get("properties") if tool else None
    if not is_object(properties) or len(properties) != 1:
        return None
    ((key, schema),) = properties.items()
    free = is_object(schema) and schema.get("type") == "string" and "enum" not in schema
    return key if free else None


def _unwrapped(
    node: Node | None, arguments: dict[str, Any], tool: Tool, rules: Rules, fixes: list[Fix]
) -> tuple[Node | None, dict[str, Any]]:
    """Open a call inside a call, at any depth, where the tool declares no such parameters.

    Raises `_Unfit` for one of another tool.
    """
    assert rules.tools is not None
    keys = rules.tools.keys(tool.name)
    while True:
        inner_key = argument_key(arguments)
        if inner_key is None or inner_key in keys:
            return node, arguments
        name_key = next((key for key in NAME_KEYS if isinstance(arguments.get(key), str) and key not in keys), None)
        rest = [key for key in arguments if key not in (inner_key, name_key) and key not in ASIDE_KEYS]
        if rest:
            return node, arguments
        other = rules.tools.find(arguments[name_key]) if name_key is not None else None
        if other is not None and other[0] is not tool:  # which of the two was meant, nobody can tell
            raise _Unfit("invalid_arguments", f"its arguments are a call of {other[0].name!r}")
        taken: list[Fix] = []
        try:
            arguments = _object_of(arguments[inner_key], taken, None)
        except _Unfit:
            return node, arguments
        node = None
        fixes += [*taken, Fix("unwrap", "the call was wrapped in a call")]


def _is_schema(value: Any) -> bool:
    """Tell whether this is a JSON Schema of parameters, echoed from the prompt."""
    return is_object(value) and is_object(value.get("properties")) and value.get("type") == "object"


_KINDS: Mapping[type, str] = {list: "a list", bool: "a boolean", int: "a number", float: "a number"}


def _kind(value: object) -> str:
    return _KINDS.get(value.__class__, "nothing")
