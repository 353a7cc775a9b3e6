"""Tools and conversations that are nested very deeply, in the library: read as far as they are, or a clear error."""

import pytest

from promptools import StreamParser, Tools, UsageError, dialects, parse, render

CALL = '<tool_call>{"name": "t", "arguments": {"a": "x"}}</tool_call>'
USER = {"role": "user", "content": "Hi"}
DEPTHS = [450, 5_000]
WRITTEN = [450, 1_500]
"""Below the interpreter's limit and above it, for what every dialect writes: that takes its time."""


def wrapped(levels, wrap, value):
    for _ in range(levels):
        value = wrap(value)
    return value


SCHEMAS = {
    "objects": lambda levels: wrapped(levels, lambda inner: {"type": "object", "properties": {"a": inner}}, {}),
    "lists": lambda levels: wrapped(levels, lambda inner: {"items": inner}, {}),
    "any of": lambda levels: wrapped(levels, lambda inner: {"anyOf": [inner]}, {}),
    "no schema": lambda levels: wrapped(levels, lambda inner: [inner], []),
    "references": lambda levels: {
        "properties": {"a": {"$ref": "#/$defs/0"}},
        "$defs": {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(levels)} | {str(levels): {}},
    },
}


def tool(parameters):
    return {"type": "function", "function": {"name": "t", "parameters": parameters}}


@pytest.mark.parametrize("shape", SCHEMAS)
@pytest.mark.parametrize("levels", DEPTHS)
def test_a_call_of_a_deep_tool_is_read(levels, shape):
    offered = [tool(SCHEMAS[shape](levels))]
    parser = StreamParser(Tools(offered))
    parser.feed(CALL)
    parser.close()
    for reply in (parse(CALL, offered), parser.reply):
        if (levels, shape) == (5_000, "references"):  # no call is checked by those, and the model is told why
            (malformed,) = reply.malformed
            assert "nested too deeply to be checked" in malformed.message
        else:
            assert [(call.name, call.arguments) for call in reply.calls] == [("t", {"a": "x"})]


@pytest.mark.parametrize("dialect", sorted(dialects.names()))
def test_what_is_deep_is_written_or_refused(dialect):
    for deep in (schema(levels) for levels in WRITTEN for schema in SCHEMAS.values()):
        past = {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "t", "arguments": {"a": deep}}}]}
        result = {"role": "tool", "tool_call_id": "x", "content": "y"}
        for messages, tools in (([USER], [tool(deep)]), ([USER, past, result], [tool({})])):
            try:
                assert render(messages, tools, dialect=dialect)
            except UsageError as error:
                assert "nested too deeply" in str(error) or "can only be read" in str(error), error  # noqa: PT017
                assert len(str(error)) < 1000  # noqa: PT017
