"""Write what a prompt tells the model about its tools: signatures, instructions and example calls.

`describe` makes the lines for one tool, `fill` puts texts into the templates of a declared dialect, `example_calls`
makes the calls that are shown, and `explain_tools` makes the whole declaration for a system prompt. Nothing here reads
a reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from promptools.json_values import count_values, is_array, is_object
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.schema.documents import resolve_pointer
from promptools.types import Call, Schema, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.schema import Tools
    from promptools.types import Result


# Describe a tool in a prompt: types, enums, defaults, nesting and descriptions, in lines small models can read.


MAX_DEPTH = 6
"""Maximum number of levels below a tool's parameters at which nested properties and types are described."""
MAX_REFERENCES = 32
"""Maximum number of references (`$ref`) that are followed in a chain, where each leads to the next.

Every reference is resolved from the root schema. So a reference inside a schema with an `$id` may lead to the wrong
place.
"""
EXTRA_VISITS = 2000
"""How many visits to subschemas are allowed per tool, in addition to the visits that `VISITS_PER_SUBSCHEMA` allows.

Visits are limited because references may multiply the visits at each level of the schema.
"""
VISITS_PER_SUBSCHEMA = 4
"""How many visits are allowed for each value in a tool's schema. Without references, no subschema needs more."""


def describe(tool: Tool) -> str:
    """Return a tool as Markdown: a heading, the description, and a line for each parameter."""
    lines = [f"### {tool.name}"]
    if tool.description.strip():
        lines.append(tool.description.strip())
    written = list(_Signature(tool.parameters).lines(tool.parameters))
    if written:
        lines.append("Parameters:")
        lines.extend(written)
    else:
        lines.append("Parameters: none")
    return "\n".join(lines)


class _Signature:
    """Describes the parameters of a tool; `visits_left` is the number of subschemas that may still be visited."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.visits_left = EXTRA_VISITS + VISITS_PER_SUBSCHEMA * count_values(root)

    def lines(self, schema: Schema, outer: tuple[int, ...] = ()) -> Iterator[str]:
        """Yield a line for each property, including nested ones.

        `outer`: the ids of the enclosing `properties` objects, which are not entered again.
        """
        required = schema.get("required")
        properties = self._properties(schema)
        within = (*outer, id(properties))
        for name, inner in properties.items():
            node = self.resolve(inner)
            facts = [self.type_of(node), "required" if is_array(required) and name in required else "optional"]
            if "default" in node:
                facts.append(f"default {_json(node['default'])}")
            description = node.get("description")
            text = " ".join(description.split()) if isinstance(description, str) else ""
            yield f"{'  ' * len(outer)}- {name} ({', '.join(facts)})" + (f": {text}" if text else "")
            nested = self._nested(node)
            if nested is not None and id(self._properties(nested)) not in within and len(outer) < MAX_DEPTH:
                yield from self.lines(nested, within)

    def resolve(self, schema: Any) -> Schema:
        self.visits_left -= 1
        return resolve_reference(schema, self.root) if self.visits_left > 0 else {}

    def _properties(self, schema: Any) -> dict[str, Any]:
        properties = resolve_reference(schema, self.root).get("properties")
        return properties if is_object(properties) else {}

    def _nested(self, node: Schema) -> Schema | None:
        """Return the object schema of a property, of its items or of its only object variant; None if there is none."""
        for _ in range(MAX_DEPTH):
            if self._properties(node):
                return node
            if "items" not in node:
                break
            node = self.resolve(node["items"])
        variants = [self.resolve(variant) for key in ("anyOf", "oneOf") for variant in _list(node, key)]
        objects = [variant for variant in variants if self._properties(variant)]
        return objects[0] if len(objects) == 1 else None

    def type_of(self, schema: Any, depth: int = 0) -> str:
        """Return a type in short form: `string`, `"c" | "f"`, `array of integer`, `string or null`."""
        node = self.resolve(schema)
        if depth > MAX_DEPTH or self.visits_left <= 0:
            return "any"
        if "const" in node:
            return _json(node["const"])
        if _list(node, "enum"):
            return " | ".join(_json(value) for value in node["enum"])
        variants = _list(node, "anyOf") or _list(node, "oneOf")
        if variants:
            return _either(self.type_of(variant, depth + 1) for variant in variants)
        all_of = _list(node, "allOf")
        if len(all_of) == 1:
            return self.type_of(all_of[0], depth + 1)
        kinds = node.get("type", "object" if "properties" in node else "any")
        names = kinds if is_array(kinds) else [kinds]
        return _either(self._with_items(str(name), node, depth) for name in names)

    def _with_items(self, name: str, node: Schema, depth: int) -> str:
        if name == "array" and "items" in node:
            return f"array of {self.type_of(node['items'], depth + 1)}"
        return name


def resolve_reference(schema: Any, root: Schema) -> Schema:
    """Return a schema with its `$ref` replaced by the schema in `root` that it refers to.

    If the new schema has a `$ref`, this is replaced in the same way. A `$ref` that does not lead to an object is left
    as it is. Returns {} for a schema that is not an object, such as `true`.
    """
    node: Schema = schema if is_object(schema) else {}
    for _ in range(MAX_REFERENCES):
        reference = node.get("$ref")
        target = resolve_pointer(root, reference) if isinstance(reference, str) else None
        if not is_object(target):
            break
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def _list(node: Schema, key: str) -> list[Any]:
    value = node.get(key)
    return value if is_array(value) else []


def _either(types: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(types))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# Fill in the templates of declared dialects: for a prompt, for one tool in the prompt, and for a result.
#
# The text that is filled in is not searched for keys, so a tool's description may contain braces or a key.


_KEY = lazy_pattern(r"\{([a-z_]+)\}")


class Instructions(NamedTuple):
    """The texts of a prompt, which are templates with keys such as `{tools}`.

    `text` is the whole prompt. Its keys are: `{tools}`, the declared tools; `{call}` and `{calls}`, an example of one
    call and an example of two; `{format}`, the text `format`; `{how_many}`, the text `parallel` or `single`; and
    `{when}`, the text `required` or `optional`. The other texts may contain these keys too.
    """

    text: str
    format: str = ""
    parallel: str = ""
    single: str = ""
    required: str = ""
    optional: str = ""

    def choose(self, *, parallel: bool, required: bool) -> str:
        """Return the template for a request: `parallel` allows parallel calls, `required` demands a call."""
        text = fill(self.text, {"format": self.format})
        how_many, when = self.parallel if parallel else self.single, self.required if required else self.optional
        return fill(text, {"how_many": how_many, "when": when})


def keys_of(template: str) -> frozenset[str]:
    """Return the names of all keys in a template, known or unknown, such as `tools` for `{tools}`."""
    return frozenset(_KEY.findall(template))


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its keys filled in; anything that is not a key of `values` is left unchanged."""
    return _KEY.sub(lambda key: values.get(key[1], key[0]), template)


def fill_result(template: str, result: Result) -> str:
    """Return the text of one result. The template's keys are `{content}`, `{json}`, `{name}` and `{id}`."""
    values = {"content": result.content, "name": result.name, "id": result.call_id}
    if "{json}" in template:
        values["json"] = _content_as_json(result.content)
    return fill(template, values)


def fill_tool(template: str, tool: Tool, function: dict[str, Any]) -> str:
    """Return the text that declares a tool. `function`: the tool, with only the keys that chat templates show.

    The template's keys are `{json}`, `{function}`, `{signature}`, `{name}`, `{description}` and `{parameters}`.
    """
    values = {"name": tool.name, "description": tool.description}
    if "{json}" in template:
        values["json"] = dump({"type": "function", "function": function})
    if "{function}" in template:
        values["function"] = dump(function)
    if "{signature}" in template:
        values["signature"] = describe(tool)
    if "{parameters}" in template:
        values["parameters"] = dump(tool.parameters)
    return fill(template, values)


def _content_as_json(content: str) -> str:
    """Return `content` if it is JSON, else `content` as a JSON string."""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return dump(content)
    return content


# Build the example calls of a prompt: of offered tools, with placeholders for strings.
#
# Small models copy what they see: they follow the example of an offered tool, but repeat an example of `tool_name`
# literally (docs/reference/matrix.md has the figures). A literal copy is not a call. `call_filter` recognizes it
# by its placeholders, so a tool whose example would have no placeholder is not shown. A tool is not shown either if the
# dialect would not write its example in the usual form, such as tags in a format of tags.


Shows: TypeAlias = Callable[[Call], bool]

PLACEHOLDERS: Final = ("<{}>", "({})")
"""The forms of a placeholder, such as `<city>`, or `(city)` in dialects whose values are between tags."""
MAX_EXAMPLE_DEPTH = 3
"""Maximum depth of the arguments in an example call; objects and arrays at this depth are left empty."""
MAX_EXAMPLE_PARAMETERS = 8
"""Maximum number of properties shown for each object in an example call, including the arguments object itself."""
NAME_SLOT: Final = "<function name>"
"""The placeholder for the tool's name in an example call that calls no offered tool.

If the model copies the example with this placeholder, the copy is not read as a call.
"""
GENERIC_CALL: Final = Call("", NAME_SLOT, {"parameter": "<value>"}, '{"parameter": <value>}')
"""The example call that is shown if no offered tool can serve as an example.

If the model copies this call, the copy is not read as a call, because its name and its JSON are invalid.
"""


_drawn: WeakKeyDictionary[Tools, dict[Shows, tuple[Call, Call]]] = WeakKeyDictionary()


def _shows_any(call: Call) -> bool:
    del call
    return True


def example_calls(tools: Tools, shows: Shows = _shows_any) -> tuple[Call, Call]:
    """Return example calls to the first and the last tool whose calls `shows` accepts.

    `shows` returns False for a call that the dialect would not write in its usual form but, for example, as JSON. The
    examples are made once for each `tools` object. The prompt shows them, and later `call_filter` recognizes copies of
    them.
    """
    drawn = _drawn.setdefault(tools, {})
    examples = drawn.get(shows)
    if examples is None:
        first = _first_shown(tools, shows)
        examples = drawn[shows] = first, first if first is GENERIC_CALL else _first_shown(reversed(tools), shows)
    return examples


def _first_shown(tools: Iterable[Tool], shows: Shows) -> Call:
    examples = (
        _example_of(tool, tool.parameters, form, enums=enums)
        for tool in tools
        for form in PLACEHOLDERS
        for enums in (True, False)
    )
    return next((call for call, is_placed in examples if is_placed and shows(call)), GENERIC_CALL)


def _example_of(tool: Tool, root: Schema, form: str, *, enums: bool) -> tuple[Call, bool]:
    """Return an example call to a tool, and whether the call has a placeholder.

    If `enums` is False, parameters that are enums of strings get placeholders, as other strings do.
    """
    arguments = _object(root, root, 0, form, enums=enums)
    is_placed = any(text[:1] == form[0] and text[-1:] == form[-1] for _, text in _texts(arguments))
    return Call("", tool.name, arguments, dump(arguments)), is_placed


def _object(schema: Schema, root: Schema, depth: int, form: str, *, enums: bool) -> dict[str, Any]:
    """Return example arguments. Only required parameters are included, because the model would copy optional ones."""
    properties, required = schema.get("properties"), schema.get("required")
    if not is_object(properties) or not is_array(required):
        return {}
    names = [name for name in required if name in properties][:MAX_EXAMPLE_PARAMETERS]
    return {name: _value(properties[name], root, form.format(name), depth + 1, form, enums=enums) for name in names}


def _value(schema: Any, root: Schema, placeholder: str, depth: int, form: str, *, enums: bool) -> Any:
    node = resolve_reference(schema, root)
    if "const" in node:
        return node["const"]
    allowed = node.get("enum")
    if is_array(allowed) and allowed and (enums or not isinstance(allowed[0], str)):
        return allowed[0]
    kind = node.get("type")
    if is_array(kind):
        kind = kind[0] if kind else None
    if kind == "object":
        return _object(node, root, depth, form, enums=enums) if depth < MAX_EXAMPLE_DEPTH else {}
    if kind == "array":
        if depth >= MAX_EXAMPLE_DEPTH:
            return []
        return [_value(node.get("items"), root, placeholder, depth + 1, form, enums=enums)]
    return _EXAMPLE_VALUES.get(kind, placeholder) if isinstance(kind, str) else placeholder


_EXAMPLE_VALUES: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "null": None}


def placeholder_in(arguments: Mapping[str, Any]) -> str:
    """Return the first string that repeats an example placeholder, such as `<city>` for `city`; "" if none does."""
    texts = _texts(arguments)
    return next((text for name, text in texts if text in {form.format(name) for form in PLACEHOLDERS}), "")


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield `(name, text)` for each string in a value. `name`: the parameter or property that has the string."""
    if is_object(value):
        for key, member in value.items():
            yield from _texts(member, key)
    elif is_array(value):
        for item in value:
            yield from _texts(item, name)
    elif isinstance(value, str):
        yield name, value


# Declare tools in a system prompt, with instructions and examples of how the family writes calls.


def shown_functions(tools: Tools) -> list[dict[str, Any]]:
    """Return the tools with only the keys that chat templates show, since models are not trained on other keys."""
    declared: list[dict[str, Any]] = []
    for tool in tools.to_openai():
        function = tool["function"]
        assert is_object(function)
        declared.append({key: function[key] for key in ("name", "description", "parameters") if key in function})
    return declared


def json_lines(tools: Tools) -> str:
    """Return the tools as JSON in OpenAI's format, one per line."""
    return "\n".join(dump({"type": "function", "function": function}) for function in shown_functions(tools))


def default_text(about_values: str = "") -> str:
    """Return the template of a whole prompt. `about_values`: sentences on how the format writes arguments."""
    values = f"{about_values} " if about_values else ""
    return f"""# Tools

You have these tools:

{{tools}}

{{how_many}}

{values}Give an optional parameter only if the user mentions it. {{when}}"""


_CALL_A_TOOL = "When the user asks for something that only a tool can tell or do, call the tool."
DEFAULT_INSTRUCTIONS: Final = Instructions(
    text=default_text(),
    parallel=f"{_CALL_A_TOOL} Reply with only a list of calls, one for each thing that the user asks for. For one"
    " thing:\n\n{call}\n\nFor two things:\n\n{calls}",
    single=f"{_CALL_A_TOOL} Reply with only one call at a time:\n\n{{call}}",
    required="You must call a tool in this turn.",
    optional="A call that needs the result of another waits for that result.\n\n"
    "What needs no tool, answer in plain text.",
)
"""The default texts of a prompt, chosen by how small models respond to them (docs/reference/matrix.md).

The last sentence, on requests that need no tool, is a separate paragraph: when it was the end of another paragraph, a
1.5B model overlooked it in eight of fourteen requests. An example of an answer cannot replace this sentence, since
models copy the example as their own answer.
"""


def explain_tools(
    render_calls: Callable[[Sequence[Call]], str],
    tools: Tools,
    declared: str,
    *,
    parallel: bool,
    required: bool,
    instructions: Instructions = DEFAULT_INSTRUCTIONS,
    examples: tuple[Call, Call] | None = None,
) -> str:
    """Render the tool block of a system prompt: the declared tools, when to call them, and example calls."""
    template = instructions.choose(parallel=parallel, required=required)
    keys = keys_of(template)
    values = {"tools": declared}
    if "call" in keys or "calls" in keys:
        one, other = examples or example_calls(tools)
        values |= {"call": render_calls([one]), "calls": render_calls([one, other])}
    return fill(template, values)
