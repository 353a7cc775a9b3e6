"""A forced call that is answered with its arguments alone: the call, in every mode and every API."""

import json

import pytest
from counted import functions_called
from raw_servers import rendered, said, server
from raw_servers import streamed as raw_stream
from scripted import NOW, WEATHER, ask, play, reply, stream, target
from test_client_apis_agree import joined_blocks

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.responses_api import RESPONSES_API, serve_response
from promptools.modes.bare_arguments import read_bare_arguments
from promptools.schema import Tools

PARIS = '{"city": "Paris"}'
CALL = ("get_weather", {"city": "Paris"})
CORRECTED = "<tool_call>{}</tool_call>".format('{"name": "get_weather", "arguments": {"city": "Lyon"}}')
NAMED = {"type": "function", "function": {"name": "get_weather"}}
FENCED = f"```json\n{PARIS}\n```"


def tool(tool_name, required=(), marks=None, /, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": tool_name, "parameters": parameters}
    return {"type": "function", "function": function, **({"x-promptools": marks} if marks else {})}


TEXT = {"type": "string"}
SEARCH = tool("search", ["query"], query=TEXT, limit={"type": "integer"})
TOWN = tool("population", ["city"], city=TEXT)
PERSON = tool("Person", ["name", "age"], name=TEXT, age={"type": "integer"})
SHELL = tool("shell", ["command"], command=TEXT)
BOXES = tool("box", ["input"], input={"type": "object", "properties": {"city": TEXT}})
GRAMMAR = {"type": "custom", "custom": {"name": "sql"}}


def called(seen):
    return [(call.name, call.arguments) for call in seen.reply.calls]


def kinds(seen):
    return [fix.kind for fix in seen.reply.calls[0].fixes]


def allowed(*names, mode="required"):
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


TAKEN = [
    # tools, choice, the reply, the call, its fixes
    ([WEATHER, NOW, TOWN], NAMED, PARIS, CALL, ["infer"]),
    ([WEATHER, GRAMMAR], NAMED, f"\n{FENCED}\n", CALL, ["infer"]),
    ([WEATHER], NAMED, f"~~~~\n{PARIS}\n~~~~", CALL, ["infer"]),
    ([WEATHER], NAMED, f"<think>Paris, then.</think>\n\n{PARIS}<|im_end|>", CALL, ["infer"]),
    ([WEATHER, SEARCH, NOW], "required", PARIS, CALL, ["infer"]),
    ([WEATHER, SEARCH], "required", '{"query": "Paris"}', ("search", {"query": "Paris"}), ["infer"]),
    ([WEATHER, TOWN], allowed("get_weather"), PARIS, CALL, ["infer"]),
    (
        [WEATHER],
        NAMED,
        '{"city": "Paris", "days": "3",}',
        (CALL[0], {"city": "Paris", "days": 3}),
        ["json", "infer", "coerce"],
    ),
    ([WEATHER], NAMED, '{"arguments": {"city": "Paris"}}', CALL, ["infer"]),
    ([WEATHER], NAMED, '{"parameters": {"city": "Paris"}}', CALL, ["infer"]),
    ([BOXES], "required", '{"input": {"city": "x"}}', ("box", {"input": {"city": "x"}}), ["infer"]),
    # parameters that are also keys of a call's name
    ([PERSON], "required", '{"name": "Ada", "age": 36}', ("Person", {"name": "Ada", "age": 36}), ["infer"]),
    ([SHELL], "required", '{"command": "ls -l"}', ("shell", {"command": "ls -l"}), ["infer"]),
    # names that the server does not take are others there
    ([tool("get.weather", ["city"], city=TEXT)], "required", PARIS, ("get.weather", CALL[1]), ["infer"]),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_the_arguments_alone_are_the_call(mode, streamed):
    for strictness in ("strict", "balanced", "lenient"):
        for tools, choice, text, expected, fixes in TAKEN:
            body = ask(*tools, tool_choice=choice, stream=streamed, promptools={"strictness": strictness})
            answer = stream(*text) if streamed else reply(text)
            seen = play(body, [answer], target=target(modes=(mode,), tool_names="[a-z_A-Z]+"))
            assert called(seen) == [expected], (text, seen.reply)
            assert kinds(seen) == fixes, text
            if streamed:
                assert not seen.choice().content, "the text of the call has not gone out"
                assert json.loads(seen.choice().calls[0]["arguments"]) == expected[1]
                assert seen.choice().finish == ["tool_calls"]
            else:
                assert not seen.message["content"]
                assert seen.json["choices"][0]["finish_reason"] == "tool_calls"


FORM = {"type": "json_object"}
LEFT = [
    # tools, what the request says, the reply
    ([WEATHER], {}, PARIS),
    ([WEATHER], {"tool_choice": allowed("get_weather", mode="auto")}, PARIS),
    ([WEATHER], {"tool_choice": NAMED, "response_format": FORM}, PARIS),
    ([WEATHER, TOWN], {"tool_choice": "required"}, PARIS),
    ([WEATHER, GRAMMAR], {"tool_choice": "required"}, PARIS),
    ([WEATHER, SEARCH], {"tool_choice": NAMED}, '{"query": "Paris"}'),
    ([WEATHER, SEARCH], {"tool_choice": allowed("search")}, PARIS),
    ([WEATHER], {"tool_choice": NAMED, "promptools": {"accept": ["hermes"]}}, PARIS),
    *(
        ([WEATHER, NOW], {"tool_choice": choice}, text)
        for choice in (NAMED, "required")
        for text in (
            "{}",
            '{"days": 3}',
            '{"city": ["Paris"]}',
            '{"city": "Paris", "country": "France"}',
            '{"town": "Paris"}',
            f"[{PARIS}]",
            f"{PARIS}\n{PARIS}",
            f"I would call it with {PARIS}",
            f"For example:\n{FENCED}",
            f"{FENCED}\nThese are the arguments.",
            f"{PARIS} I hope that helps.",
            f"`{PARIS}`",
            f"> {PARIS}",
            f"```json\n{PARIS}",
            f"```json\n{PARIS}abc",
            f"```json\n{PARIS}\n````",
            '{"city": "Paris"',
            '{"arguments": {"city": "Paris"}, "status": "done"}',
            '{"arguments": {"town": "Paris"}}',
            '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}',
        )
    ),
    ([tool("wipe", ["disk"], {"dangerous": True}, disk=TEXT)], {"tool_choice": "required"}, '{"disk": "sda"}'),
    ([tool("note", ["text"], {"infer": False}, text=TEXT)], {"tool_choice": "required"}, '{"text": "Paris"}'),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_all_else_is_not_a_call_and_is_not_lost(streamed):
    for tools, wish, text in LEFT:
        for mode in ("native", "prompt"):
            body = ask(*tools, stream=streamed, **wish)
            answer = stream(*text) if streamed else reply(text)
            seen = play(body, [answer] * 6, target=target(modes=(mode,)), spare=True)
            assert called(seen) == [], (text, wish)
            content = seen.choice().content if streamed else seen.message["content"]
            assert content == text, wish


def test_after_another_kind_of_answer_the_model_is_asked_again():
    for text, finish in ((f"Here: {PARIS}", "stop"), (f"{PARIS[:-1]}, ", "stop"), ('{"city": 1', "stop")):
        seen = play(ask(WEATHER, tool_choice=NAMED), [reply(text, finish=finish), reply(CORRECTED)])
        assert called(seen) == [("get_weather", {"city": "Lyon"})]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_reply_that_was_cut_off_is_none(finish, streamed):
    answer = stream(PARIS, finish=finish) if streamed else reply(PARIS, finish=finish)
    seen = play(ask(WEATHER, tool_choice=NAMED, stream=streamed), [answer] * 4, spare=True)
    assert called(seen) == []


@pytest.mark.parametrize("form", [FORM, {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}])
def test_where_an_answer_in_json_is_asked_for_too_it_is_one(form):
    body = ask(WEATHER, tool_choice=NAMED, response_format=form)
    for sent_beside in (True, False):
        seen = play(body, [reply(PARIS)] * 6, target=target(format_beside_tools=sent_beside), spare=True)
        assert (called(seen), seen.message["content"]) == ([], PARIS)


@pytest.mark.parametrize("sent_beside", [True, False])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_where_that_answer_would_be_the_arguments_it_is_the_call(streamed, sent_beside):
    """instructor's RESPONSES_TOOLS names a tool, and asks for an answer with the schema of its parameters."""

    def played(text, *tools, schema=WEATHER["function"]["parameters"], choice=NAMED):
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        body = ask(*tools, tool_choice=choice, response_format=form, stream=streamed)
        answer = stream(*text) if streamed else reply(text)
        seen = play(body, [answer] * 6, target=target(format_beside_tools=sent_beside), spare=True)
        return called(seen), len(seen.sent)

    assert played(PARIS, WEATHER) == ([CALL], 1)
    assert played(FENCED, WEATHER, SEARCH) == ([CALL], 1)
    assert played(PARIS, WEATHER, choice="required") == ([CALL], 1)
    assert played(PARIS, WEATHER, SEARCH, choice="required")[0] == []
    assert played(PARIS, WEATHER, choice="auto")[0] == []
    assert played(PARIS, WEATHER, schema={"type": "object", "properties": {"city": TEXT}})[0] == []
    envelope = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    assert played(envelope, WEATHER)[0] == [CALL]


def test_beside_a_call_of_the_servers_it_is_content():
    made = reply(PARIS, calls=[("get_weather", {"city": "Lyon"})], finish="tool_calls")
    seen = play(ask(WEATHER, tool_choice=NAMED), [made])
    assert (called(seen), seen.message["content"]) == ([("get_weather", {"city": "Lyon"})], PARIS)


def test_a_call_with_its_name_comes_first():
    envelope = '{"name": "get_weather", "arguments": {"city": "Lyon"}}'
    holder = tool("save", ["name", "arguments"], name=TEXT, arguments={"type": "object"})
    seen = play(ask(WEATHER, holder, tool_choice="required"), [reply(envelope)])
    assert called(seen) == [("get_weather", {"city": "Lyon"})]


def test_a_copy_of_the_example_in_the_prompt_is_not_a_call():
    place = target(modes=("prompt",))
    answers = [reply('{"city": "<city>"}'), reply(PARIS)]
    assert called(play(ask(WEATHER, tool_choice=NAMED), answers, target=place)) == [CALL]


def test_the_old_form_of_the_request():
    body = {"model": "m", "messages": [], "functions": [WEATHER["function"]], "function_call": {"name": "get_weather"}}
    seen = play(body, [reply(PARIS)])
    assert seen.message["function_call"] == {"name": "get_weather", "arguments": PARIS}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", ["llamacpp", "ollama"])
def test_in_raw_mode(kind, streamed):
    body = ask(WEATHER, tool_choice=NAMED, stream=streamed)
    seen = play(
        body, [*rendered(kind), raw_stream(kind, PARIS) if streamed else said(kind, PARIS)], target=server(kind)
    )
    assert called(seen) == [CALL]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_in_harmony_mode(streamed):
    text = f"<|channel|>analysis<|message|>Paris.<|end|><|start|>assistant<|channel|>final<|message|>{PARIS}"
    answer = raw_stream("llamacpp", text) if streamed else said("llamacpp", text)
    place = target(modes=("harmony",), family="gpt-oss", raw="llamacpp", context=131_072)
    seen = play(ask(WEATHER, tool_choice=NAMED, stream=streamed), [answer], target=place)
    assert called(seen) == [CALL]
    assert seen.reply.reasoning == "Paris."


def test_under_a_name_that_is_sent_for_another_tool():
    """Harmony has `functions.get` as `get`, and so sends `get` under a third name."""
    tools = [tool("functions.get", ["city"], city=TEXT), tool("get", ["query"], query=TEXT)]
    place = target(modes=("harmony",), family="gpt-oss", raw="llamacpp", context=131_072)
    for name, arguments in (("get", {"query": "Paris"}), ("functions.get", {"city": "Paris"})):
        answer = said("llamacpp", f"<|channel|>final<|message|>{json.dumps(arguments)}")
        assert called(play(ask(*tools, tool_choice="required"), [answer], target=place)) == [(name, arguments)]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_in_the_messages_api(streamed):
    tools = [{"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}]
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        body = {"model": "m", "max_tokens": 99, "messages": ask()["messages"], "tools": tools, "tool_choice": choice}
        answer = stream(*FENCED) if streamed else reply(FENCED)
        url = "http://server/v1/messages"
        seen = play(body | {"stream": streamed}, [answer], url=url, front=MESSAGES_API, begin=serve_message)
        (block,) = joined_blocks(seen.events) if streamed else seen.json["content"]
        assert (block["type"], block["name"], block["input"]) == ("tool_use", *CALL)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_in_the_responses_api(streamed):
    tools = [{"type": "function", **WEATHER["function"]}]
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        body = {"model": "m", "input": "Weather?", "tools": tools, "tool_choice": choice, "stream": streamed}
        answer = stream(*FENCED) if streamed else reply(FENCED)
        url = "http://server/v1/responses"
        seen = play(body, [answer], url=url, front=RESPONSES_API, begin=serve_response)
        (item,) = (seen.events[-1]["response"] if streamed else seen.json)["output"]
        assert (item["type"], item["name"], item["arguments"]) == ("function_call", "get_weather", PARIS)


def test_the_cost_is_linear():
    tools = Tools([WEATHER])
    options = ParseOptions(tools, "balanced", None, json_answer=False, anchors=tools.all_keys)
    shapes = [
        lambda size: '{"city": "' + "x" * size + '"}',
        lambda size: "```\n" * size + PARIS + "\n```" * size,
        lambda size: "\n" * size + PARIS + "\n" * size,
        lambda size: '{"arguments": ' * size + PARIS + "}" * size,
        lambda size: '{"city": [' + "{}, " * size + "]}",
    ]
    for shape in shapes:
        read_bare_arguments(shape(1000), options)  # what is loaded and compiled on first use does not count
        small, large = (functions_called(lambda: read_bare_arguments(shape(size), options)) for size in (250, 1000))  # noqa: B023
        assert large <= 4 * small + 100, shape(2)
