"""Parse only: a model's text to calls, without a server or a client."""

from promptools import CallEnd, StreamParser, Text, Tools, parse

TOOLS = Tools(
    [
        {
            "name": "get_weather",
            "description": "Tell the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        }
    ]
)

REPLY = """<think>Oslo, three days.</think>
I will look it up.

<tool_call>
{'name': 'getWeather', 'arguments': {'location': 'Oslo', 'days': '3',}}
</tool_call>"""


def whole():
    """Read a whole reply."""
    reply = parse(REPLY, TOOLS)
    (call,) = reply.calls
    print("call:     ", call.name, call.arguments)
    print("content:  ", repr(reply.content))
    print("reasoning:", repr(reply.reasoning))
    for fix in call.fixes:
        print("fix:      ", fix.kind, fix.detail)


def in_pieces():
    """Read the same reply as it comes: the same call comes out, however it is cut."""
    parser = StreamParser(TOOLS)
    pieces = [REPLY[at : at + 7] for at in range(0, len(REPLY), 7)]
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.close("stop")
    for event in events:
        match event:
            case Text(text):
                print("text:     ", repr(text))
            case CallEnd(call=call):
                print("call:     ", call.name, call.arguments_json)
    assert parser.reply.calls == parse(REPLY, TOOLS).calls


def what_is_no_call():
    """An example in prose stays text; a call that does not fit is reported, with words for the model."""
    quoted = 'To ask, write `{"name": "get_weather", "arguments": {"city": "Oslo"}}`.'
    assert parse(quoted, TOOLS).calls == ()
    assert parse(quoted, TOOLS).content == quoted

    (bad,) = parse('{"name": "get_weather", "arguments": {"days": "soon"}}', TOOLS).malformed
    print("malformed:", bad.reason)
    print(bad.message)


if __name__ == "__main__":
    whole()
    in_pieces()
    what_is_no_call()
