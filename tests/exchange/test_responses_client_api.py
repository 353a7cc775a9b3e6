"""Requests that come in on OpenAI's Responses API: converted to Chat Completions, answered in items and events."""

import json
from dataclasses import replace

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted import NOW, URL, Answer, call, chunk, error, reply, stream, target
from scripted import event as encode_event
from scripted import play as play_chat

from promptools.exchange import Failed
from promptools.exchange.response_store import ResponseStore, owner_of
from promptools.exchange.responses_api import RESPONSES_API, serve_response, serve_stored_response

RESPONSES = "http://server/v1/responses"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "get_weather", "description": "Get the weather", "parameters": SCHEMA}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin end"},
}
FILES = {"type": "namespace", "name": "mcp__files", "description": "Files of the user.", "tools": [
    {"type": "function", "name": "read", "description": "Read one.", "parameters": SCHEMA},
    {"type": "custom", "name": "note"},
]}  # fmt: skip
USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 9,
    "total_tokens": 19,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
EVENT: TypeAdapter = TypeAdapter(ResponseStreamEvent)


def ask(*tools, **more):
    body = {"model": "m", "input": "Weather in Oslo?", **more}
    return body | {"tools": list(tools)} if tools else body


def play(body, answers, **keys):
    return play_chat(body, answers, **{"url": RESPONSES, "front": RESPONSES_API, "begin": serve_response, **keys})


def sent(body, **keys):
    """Return the Chat Completions body that a request becomes."""
    seen = play(body, [reply("ok")], **keys)
    Response.model_validate(seen.json, strict=False)
    return seen.bodies[0]


def messages(*items, **more):
    return sent(ask(input=list(items), **more))["messages"]


def refused(body, **keys):
    seen = play(body, [], **keys)
    assert seen.head.status == 400
    assert set(seen.json["error"]) >= {"message", "type", "param", "code"}
    return seen.json["error"]["message"]


def native(name, arguments, call_id="c1", index=0):
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def checked(seen):
    """Return the events of a stream after checking all that holds for every stream."""
    names = [line[7:] for line in seen.lines if line.startswith("event: ")]
    events = seen.events
    assert names == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] in {"response.completed", "response.incomplete", "response.failed"}
    assert names.count(names[-1]) == 1
    added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert added == [*range(len(added))]
    for event in events:
        EVENT.validate_python(event)
        if "item_id" in event:
            item = next(one["item"] for one in events if one.get("output_index") == event["output_index"])
            assert item["id"] == event["item_id"]
    last = events[-1]["response"]
    done = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    assert len(last["output"]) == len(added)
    for index, item in enumerate(last["output"]):
        if index in done:
            assert done[index] == item
        else:
            assert (item["type"], item["status"]) == ("function_call", "incomplete")
    return events


def names_of(events):
    return [event["type"].removeprefix("response.") for event in events]


# --- whole responses


def test_a_whole_response():
    answer = reply("Cold.", reasoning="Hm.", usage=USAGE)
    seen = play(ask(instructions="Be brief.", metadata={"a": "b"}), [answer])
    assert [request.url for request in seen.sent] == [URL]
    assert seen.bodies[0] == {
        "model": "m",
        "stream": False,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Oslo?"}],
    }
    body = seen.json
    token = body["id"].removeprefix("resp_")
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": "Cold."}
    assert body["output"] == [
        {
            "id": f"rs_{token}_0",
            "type": "reasoning",
            "status": "completed",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
            "encrypted_content": None,
        },
        {"id": f"msg_{token}_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]},
    ]
    assert body["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 19,
    }
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", "m")
    assert (body["instructions"], body["metadata"], body["tools"]) == ("Be brief.", {"a": "b"}, [])
    assert (body["temperature"], body["tool_choice"], body["error"]) == (1.0, "auto", None)
    assert Response.model_validate(body).output_text == "Cold."
    assert seen.headers["content-type"] == "application/json"


def test_calls():
    calls = [("get_weather", {"city": "Oslo"}, "c1"), ("get_weather", {"city": "Rome"}, "c2")]
    body = play(ask(WEATHER), [reply(calls=calls, finish="tool_calls")]).json
    assert [(item["type"], item["call_id"], item["name"], item["arguments"]) for item in body["output"]] == [
        ("function_call", "c1", "get_weather", '{"city": "Oslo"}'),
        ("function_call", "c2", "get_weather", '{"city": "Rome"}'),
    ]


def test_a_call_in_the_text_of_a_server_without_tools():
    told = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    seen = play(ask(WEATHER), [reply(told)], options={"mode": "prompt"})
    assert "tools" not in seen.bodies[0]
    assert [item["name"] for item in seen.json["output"]] == ["get_weather"]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("before", ["", "Look:"])
def test_white_space_between_calls_is_not_a_message(before, streamed):
    said_calls = [("get_weather", {"city": "Oslo"}, "call00000"), ("get_weather", {"city": "Rome"}, "call00001")]
    first, second = ({"tool_calls": [{"index": index, **call(*one)}]} for index, one in enumerate(said_calls))
    pieces = ({"content": before}, first, {"content": "\n"}, second, {"content": " "})
    whole = reply(f"{before}\n ", calls=said_calls, finish="tool_calls")
    seen = play(ask(WEATHER, stream=streamed), [stream(*pieces, finish="tool_calls") if streamed else whole])
    kinds = [item["type"] for item in (checked(seen)[-1]["response"] if streamed else seen.json)["output"]]
    assert kinds == [*(["message"] if before else []), *["function_call", "function_call"]]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_of_white_space_alone_is_one(streamed):
    seen = play(
        ask(WEATHER, stream=streamed), [stream("\n") if streamed else reply("\n")], target=target(swallows=False)
    )
    (item,) = (checked(seen)[-1]["response"] if streamed else seen.json)["output"]
    assert item["content"][0]["text"] == "\n"


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_was_cut_off_is_incomplete(finish, reason, streamed):
    answer = stream("Col", finish=finish) if streamed else reply("Col", finish=finish)
    seen = play(ask(stream=streamed), [answer])
    body = checked(seen)[-1]["response"] if streamed else seen.json
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert [item["status"] for item in body["output"]] == ["incomplete"]
    Response.model_validate(body)


def test_only_reasoning():
    body = play(ask(), [reply("", reasoning="Hm.", finish="length")]).json
    assert [(item["type"], item["status"]) for item in body["output"]] == [("reasoning", "incomplete")]


def test_log_probabilities():
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    body = ask(include=["message.output_text.logprobs"], top_logprobs=2)
    seen = play(body, [reply("Hi", logprobs={"content": [token]})])
    assert (seen.bodies[0]["logprobs"], seen.bodies[0]["top_logprobs"]) == (True, 2)
    assert seen.json["output"][0]["content"][0]["logprobs"] == [token]


def test_a_trace_is_in_the_response():
    body = play(ask(truncation="auto", promptools={"trace": True}), [reply("ok")]).json
    assert body["promptools"]["notes"] == ["truncation 'auto' was not applied: nothing of the conversation is dropped"]


# --- parameters


def test_parameters():
    body = sent(
        ask(
            WEATHER,
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=7,
            parallel_tool_calls=False,
            user="u",
            reasoning={"effort": "low"},
            text={"verbosity": "low"},
            prompt_cache_key="k",
            service_tier="auto",
            metadata={"a": "b"},
            max_tool_calls=3,
            seed=5,
            top_k=None,
        )
    )
    kept = {key: value for key, value in body.items() if key not in {"messages", "tools"}}
    assert kept == {
        "model": "m", "stream": False, "temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "parallel_tool_calls": False,
        "user": "u", "reasoning_effort": "low", "verbosity": "low", "seed": 5,
    }  # fmt: skip
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "get_weather", "description": "Get the weather", "parameters": SCHEMA},
        }
    ]


def test_a_limit_replaces_the_configs():
    where = target(defaults={"max_completion_tokens": 99})
    body = sent(ask(max_output_tokens=7), target=where)
    assert (body["max_tokens"], "max_completion_tokens" in body) == (7, False)


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
        ),
    ],
)
def test_formats(format_, expected):
    body = sent(ask(text={"format": format_}), options={"heal_format": False})
    assert body.get("response_format") == expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "get_weather"}, {"type": "function", "function": {"name": "get_weather"}}),
        ({"type": "custom", "name": "apply_patch"}, {"type": "function", "function": {"name": "apply_patch"}}),
    ],
)
def test_tool_choices(choice, expected):
    called = ("apply_patch", {"input": "x"}) if choice == {"type": "custom", "name": "apply_patch"} else None
    answer = (
        reply(calls=[called or ("get_weather", {"city": "Oslo"})]) if choice not in ("auto", "none") else reply("a")
    )
    seen = play(ask(WEATHER, PATCH, tool_choice=choice), [answer])
    assert seen.bodies[0]["tool_choice"] == expected


def test_allowed_tools():
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "apply_patch"}]}
    tools = sent(ask(WEATHER, PATCH, tool_choice=allowed))["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["apply_patch"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"background": True}, "'background'"),
        ({"conversation": "conv_1"}, "'conversation'"),
        ({"prompt": {"id": "pmpt_1"}}, "'prompt'"),
        ({"input": 5}, "'input'"),
        ({"input": ["a"]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "file_id"),
        ({"input": [{"role": "user", "content": [{"type": "hologram"}]}]}, "'hologram'"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "'msg_1'"),
        ({"previous_response_id": "resp_1"}, "'resp_1'"),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, "'file_search'"),
        ({"tools": [{"type": "code_interpreter"}]}, "'code_interpreter'"),
        ({"tools": [{"type": "computer_use_preview"}]}, "'computer_use_preview'"),
        ({"tools": [{"type": "mcp", "server_label": "a"}]}, "'mcp'"),
        ({"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, "'shell'"),
        ({"tools": [WEATHER, {"type": "hologram"}]}, "'hologram'"),
        ({"tools": [{"type": "web_search"}]}, "'web_search'"),
        ({"tools": {"a": 1}}, "'tools'"),
        ({"tools": [WEATHER], "tool_choice": {"type": "web_search_preview"}}, "'web_search_preview'"),
        ({"text": {"format": {"type": "grammar"}}}, "'grammar'"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(more, named):
    assert named in refused(ask(**more))


def test_a_body_that_is_not_an_object_is_refused():
    assert "JSON object" in refused(b"[1]")


def test_hosted_tools_beside_others_are_left_out_with_a_note():
    kinds = ("web_search", "code_interpreter", "computer")
    seen = play(ask(WEATHER, *({"type": kind} for kind in kinds)), [reply("ok")])
    assert len(seen.bodies[0]["tools"]) == 1
    assert seen.reply.trace.notes == (
        "not sent: the tool 'web_search'; it runs on OpenAI's servers",
        "not sent: the tool 'code_interpreter'; it runs on OpenAI's servers",
        "not sent: the tool 'computer'; it needs OpenAI's own models",
    )
    assert seen.headers["x-promptools-notes"] == "3"
    assert [tool["type"] for tool in seen.json["tools"]] == ["function"], "the model cannot call the others"


def test_an_answer_to_which_there_is_no_note_has_no_header_for_them():
    assert "x-promptools-notes" not in play(ask(WEATHER), [reply("ok")]).headers


def test_hosted_tools_alone_are_refused_in_one_sentence():
    assert refused(ask({"type": "web_search"})) == (
        "a tool of type 'web_search' cannot be served: it runs on OpenAI's servers, and no other tool is offered; offer"
        " 'function' or 'custom' tools"
    )


def test_tools_of_namespaces_count_as_tools():
    assert "at most 1" in refused(ask(FILES), max_tools=1)


# --- the input


def test_messages_of_all_roles():
    assert messages(
        {"role": "developer", "content": "Use tools."},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "No jokes."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Look:"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "A "}, {"type": "refusal", "refusal": "no"}]},
        {"role": "user", "content": "And?"},
        instructions="Be brief.",
    ) == [
        {"role": "system", "content": "Be brief.\n\nUse tools.\n\nNo jokes."},
        {"role": "user", "content": [
            {"type": "text", "text": "Look:"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        ]},
        {"role": "assistant", "content": "A no"},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip


def test_a_turn_of_several_items_is_one_message():
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Oslo"}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "5 C"}
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm"}],
    }
    assert messages(
        {"role": "user", "content": "Weather?"},
        reasoning,
        {"role": "assistant", "content": "Let me look."},
        call,
        {**call, "call_id": "c2"},
        result,
        {**result, "call_id": "c2", "output": [{"type": "input_text", "text": "6 C"}]},
    ) == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "Hm",
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
                }
                for call_id in ("c1", "c2")
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "5 C"},
        {"role": "tool", "tool_call_id": "c2", "content": "6 C"},
    ]


def test_an_image_in_a_result_reaches_the_model():
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}
    told = messages(
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "Here"}, image]},
    )
    assert told[1]["role"] == "tool"
    assert told[2]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "auto"}}
    ]


def test_items_of_hosted_tools_are_left_out_with_a_note():
    seen = play(
        ask(input=[{"type": "web_search_call", "id": "ws_1"}, {"role": "user", "content": "Hi"}]), [reply("ok")]
    )
    assert seen.bodies[0]["messages"] == [{"role": "user", "content": "Hi"}]
    assert seen.reply.trace.notes == (
        "not sent: an input item of type 'web_search_call'; only OpenAI's servers know it",
    )


def test_reasoning_is_sealed_and_taken_back():
    body = play(ask(include=["reasoning.encrypted_content"], store=False), [reply("Cold.", reasoning="Hm …")]).json
    item = body["output"][0]
    bare = {"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]}
    assert messages(bare, {"role": "user", "content": "And?"})[0] == {
        "role": "assistant", "content": "", "reasoning_content": "Hm …",
    }  # fmt: skip
    seen = play(ask(input=[{**bare, "encrypted_content": "gAAAA"}, {"role": "user", "content": "Hi"}]), [reply("ok")])
    assert seen.bodies[0]["messages"] == [{"role": "user", "content": "Hi"}]
    assert seen.reply.trace.notes == ("not sent: encrypted_content of reasoning that was not made here",)


# --- custom tools and namespaces


def test_a_custom_tool_is_a_function_with_one_string():
    seen = play(ask(PATCH), [reply(calls=[("apply_patch", {"input": "*** Begin\n"}, "c1")], finish="tool_calls")])
    function = seen.bodies[0]["tools"][0]["function"]
    assert function["parameters"]["required"] == ["input"]
    assert "Edit files." in function["description"]
    assert "(lark):\nstart: begin end" in function["description"]
    token = seen.json["id"].removeprefix("resp_")
    assert seen.json["output"] == [
        {
            "id": f"ctc_{token}_0",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c1",
            "name": "apply_patch",
            "input": "*** Begin\n",
        }
    ]


def test_past_calls_of_custom_tools():
    told = messages(
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "***"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
    )
    assert told[0]["tool_calls"][0]["function"] == {"name": "apply_patch", "arguments": '{"input": "***"}'}
    assert told[1] == {"role": "tool", "tool_call_id": "c1", "content": "Done"}


def test_namespaces_are_flattened_and_restored():
    past = {"type": "function_call", "call_id": "c0", "namespace": "mcp__files", "name": "read", "arguments": "{}"}
    answer = reply(
        calls=[("mcp__files__read", {"city": "Oslo"}, "c1"), ("mcp__files__note", {"input": "x"}, "c2")],
        finish="tool_calls",
    )
    seen = play(ask(FILES, input=[past]), [answer])
    functions = [tool["function"] for tool in seen.bodies[0]["tools"]]
    assert [function["name"] for function in functions] == ["mcp__files__read", "mcp__files__note"]
    assert functions[0]["description"] == "Files of the user.\n\nRead one."
    assert seen.bodies[0]["messages"][0]["tool_calls"][0]["function"]["name"] == "mcp__files__read"
    assert [(item["type"], item["namespace"], item["name"]) for item in seen.json["output"]] == [
        ("function_call", "mcp__files", "read"),
        ("custom_tool_call", "mcp__files", "note"),
    ]


def test_two_tools_whose_flat_names_are_the_same_stay_two():
    one = {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b__c"}]}
    other = {"type": "namespace", "name": "a__b", "tools": [{"type": "function", "name": "c"}]}
    answer = reply(calls=[("a__b__c_2", {})], finish="tool_calls")
    item = play(ask(one, other), [answer]).json["output"][0]
    assert (item["namespace"], item["name"]) == ("a__b", "c")


def test_tools_that_an_item_adds_are_offered():
    items = [{"type": "additional_tools", "role": "developer", "tools": [WEATHER]}, {"role": "user", "content": "Hi"}]
    assert [tool["function"]["name"] for tool in sent(ask(input=items))["tools"]] == ["get_weather"]


# --- streams


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_a_stream(cut):
    answer = stream(
        {"reasoning_content": "Hm."}, "Let me ", "look.", native("get_weather", '{"city":"Oslo"}'),
        native("get_weather", '{"city":"Rome"}', "c2", 1), finish="tool_calls", usage=USAGE, cut=cut,
    )  # fmt: skip
    seen = play(ask(WEATHER, stream=True), [answer])
    assert seen.headers["content-type"].startswith("text/event-stream")
    assert seen.bodies[0]["stream_options"] == {"include_usage": True}
    events = checked(seen)
    unique = [name for before, name in zip(["", *names_of(events)], names_of(events), strict=False) if name != before]
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    assert unique == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        *call, *call,
        "completed",
    ]  # fmt: skip
    body = events[-1]["response"]
    assert body["output"][1]["content"][0]["text"] == "Let me look."
    assert [item["arguments"] for item in body["output"][2:]] == ['{"city":"Oslo"}', '{"city":"Rome"}']
    assert body["usage"]["total_tokens"] == 19
    assert seen.comments == ["promptools mode=native attempts=1"]


def test_reasoning_as_a_summary():
    answer = stream({"reasoning_content": "H"}, {"reasoning_content": "m."}, "Hi")
    events = checked(play(ask(stream=True, reasoning={"summary": "auto"}), [answer]))
    assert names_of(events)[2:9] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done",
        "output_item.done",
    ]  # fmt: skip
    assert events[8]["item"]["summary"] == [{"type": "summary_text", "text": "Hm."}]


def test_a_custom_call_in_a_stream():
    answer = stream(native("apply_patch", '{"input": "*** '), native(None, 'Begin"}', None), finish="tool_calls")
    events = checked(play(ask(PATCH, stream=True), [answer]))
    assert names_of(events)[2:-1] == [
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
    ]  # fmt: skip
    assert events[4]["input"] == "*** Begin"


def test_text_after_a_call_is_an_item_of_its_own():
    told = 'Look: <tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call> And now?'
    output = checked(play(ask(WEATHER, stream=True), [stream(told)]))[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert output[2]["content"][0]["text"].strip() == "And now?"


def in_pieces(name, text, size=4):
    """Return the deltas of a call whose arguments come in pieces."""
    rest = ({"index": 0, "function": {"arguments": text[at : at + size]}} for at in range(0, len(text), size))
    return native(name, ""), *({"tool_calls": [piece]} for piece in rest)


def test_arguments_are_streamed():
    text = '{"city":"Paris, on the Seine, below the bridge"}'
    events = checked(play(ask(WEATHER, stream=True), [stream(*in_pieces("get_weather", text), finish="tool_calls")]))
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert len(deltas) > 5
    assert "".join(deltas) == text


@pytest.mark.parametrize("tool", [WEATHER, PATCH])
def test_half_a_call_is_never_a_whole_one(tool):
    text = '{"city": "Paris, on the Seine, bel' if tool is WEATHER else '{"input": "rm -rf /tmp/a/b/c/d/e/f/g/h'
    answer = stream(*in_pieces(tool["name"], text), finish="length")
    events = checked(play(ask(tool, stream=True), [answer]))
    names = names_of(events)
    assert ("function_call_arguments.delta" in names) == (tool is WEATHER), "freeform input is sent whole"
    assert not [name for name in names if name.endswith(("arguments.done", "input.done"))]
    assert events[-1]["type"] == "response.incomplete"
    calls = [item for item in events[-1]["response"]["output"] if item["type"] != "message"]
    assert [item["status"] for item in calls] == ["incomplete"] * len(calls)


def test_a_streamed_call_that_breaks_off_ends_with_the_error():
    answer = stream(*in_pieces("get_weather", '{"city": "Paris, on the Seine, bel'), finish=None, done=False)
    answer.broken = Failed("closed", "connection lost", NOW)
    events = checked(play(ask(WEATHER, stream=True), [answer]))
    assert names_of(events)[-2:] == ["error", "failed"]
    assert "output_item.done" not in names_of(events)


def test_a_call_that_fails_after_it_was_streamed_in_part_is_an_error():
    tool = {**WEATHER, "parameters": {**SCHEMA, "properties": {**SCHEMA["properties"], "days": {"type": "integer"}}}}
    told = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris", "days": "many"}}\n```'
    body = ask(tool, stream=True, promptools={"arguments": "live", "mode": "prompt"})
    events = checked(play(body, [stream(*told)]))
    assert names_of(events)[-2:] == ["error", "failed"]
    assert events[-1]["response"]["output"][0]["arguments"] == '{"city": "Paris"'


def test_a_stream_that_breaks_off_ends_with_the_error():
    broken = Failed("closed", "connection lost", NOW)
    answer = stream("Let me ", finish=None, done=False)
    answer.broken = broken
    seen = play(ask(stream=True), [answer])
    events = checked(seen)
    assert names_of(events)[-3:] == ["output_item.done", "error", "failed"]
    response = events[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert "connection lost" in response["error"]["message"] == events[-2]["message"]
    assert response["output"][0]["content"][0]["text"] == "Let me "


def test_a_failure_before_the_first_event_is_an_http_error():
    seen = play(ask(stream=True), [error("no such model", 404)])
    assert (seen.head.status, seen.json["error"]["message"]) == (404, "no such model")


def test_a_heartbeat_precedes_the_events():
    answer = Answer(200, b"".join((chunk({"content": "Hi"}), chunk({}, "stop"))), every=6.0)
    answer.headers = (("content-type", "text/event-stream"),)
    seen = play(ask(stream=True), [answer], tick=1.0, options={"heartbeat": 2.0})
    assert seen.pieces[0] == b": keep-alive\n\n"
    assert checked(seen)[-1]["response"]["status"] == "completed"


def test_an_error_after_a_heartbeat_is_a_failed_response():
    late = error("crashed", 500)
    late.takes = 9.0
    seen = play(ask(stream=True), [late] * 4, tick=1.0, options={"heartbeat": 2.0}, spare=True)
    assert names_of(checked(seen)) == ["created", "in_progress", "error", "failed"]


FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Oslo"}}\n```'
FAILED_AFTER_A_THOUGHT = stream(
    {"reasoning_content": "I use the tool."},
    encode_event({"error": {"message": "unexpected tokens remaining in message header", "code": 500}}),
    finish=None,
)


def thought(item):
    return "".join(part["text"] for part in item["content"])


@pytest.mark.parametrize("cut", [0, 7])
@pytest.mark.parametrize(
    "second", [stream({"reasoning_content": "The user "}, {"reasoning_content": "wants it."}, FENCED), stream(FENCED)]
)
def test_each_attempt_has_a_reasoning_item_of_its_own(second, cut):
    answers = [replace(answer, cut=cut) for answer in (FAILED_AFTER_A_THOUGHT, second)]
    seen = play(ask(WEATHER, stream=True), answers)
    events = checked(seen)
    thinks = b"The user" in second.body
    reasoning = [
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
    ]  # fmt: skip
    unique = [name for before, name in zip(["", *names_of(events)], names_of(events), strict=False) if name != before]
    assert unique[2:-5] == reasoning * (1 + thinks)
    *thoughts, call = events[-1]["response"]["output"]
    expected = [("I use the tool.", "incomplete"), ("The user wants it.", "completed")]
    assert [(thought(item), item["status"]) for item in thoughts] == expected[: 1 + thinks]
    assert (call["name"], call["status"]) == ("get_weather", "completed")
    assert seen.comments == ["promptools mode=prompt attempts=2"]


def test_thoughts_of_three_attempts():
    again = stream({"reasoning_content": "Once more."}, finish=None, done=False)
    again.broken = Failed("closed", "connection lost", NOW)
    answers = [FAILED_AFTER_A_THOUGHT, again, stream({"reasoning_content": "At last."}, FENCED)]
    *thoughts, _ = checked(play(ask(WEATHER, stream=True), answers))[-1]["response"]["output"]
    assert [thought(item) for item in thoughts] == ["I use the tool.", "Once more.", "At last."]


def test_a_thought_without_a_next_attempt_is_in_the_failed_response():
    options = {"mode": "native"}
    seen = play(ask(WEATHER, stream=True), [FAILED_AFTER_A_THOUGHT] * 4, options=options, spare=True)
    response = checked(seen)[-1]["response"]
    assert response["status"] == "failed"
    assert {(thought(item), item["status"]) for item in response["output"]} == {("I use the tool.", "incomplete")}


# --- stored responses


class Conversation:
    """Requests that share one store."""

    def __init__(self, **limits):
        self.store = ResponseStore(**limits)

    def ask(self, body, answer, **keys):
        return play(body, [answer], response_store=self.store, **keys)

    def get(self, path, method="GET", headers=()):
        context = {"response_store": self.store}
        seen = play_chat(
            b"", [], url=f"{RESPONSES}/{path}", front=RESPONSES_API, begin=serve_stored_response, headers=headers,
            method=method, **context,
        )  # fmt: skip
        return seen.head.status, seen.json


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_is_continued(streamed):
    shared = Conversation()
    calls = native("get_weather", '{"city":"Oslo"}')
    first = stream({"reasoning_content": "Hm."}, calls, finish="tool_calls")
    seen = shared.ask(ask(WEATHER, stream=True, instructions="Old."), first)
    response = seen.events[-1]["response"]
    output = {"type": "function_call_output", "call_id": "c1", "output": "5 C"}
    more = ask(WEATHER, previous_response_id=response["id"], input=[output], stream=streamed)
    second = shared.ask(more, stream("Cold.") if streamed else reply("Cold."))
    told = second.bodies[0]["messages"]
    assert [message["role"] for message in told] == ["user", "assistant", "tool"]
    assert told[1]["reasoning_content"] == "Hm."
    body = second.events[-1]["response"] if streamed else second.json
    assert body["previous_response_id"] == response["id"]
    third = shared.ask(ask(previous_response_id=body["id"], input="Thanks"), reply("ok"))
    assert [message["role"] for message in third.bodies[0]["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


def test_only_the_last_attempts_reasoning_is_stored():
    shared = Conversation()
    answers = [FAILED_AFTER_A_THOUGHT, stream({"reasoning_content": "The user wants it."}, FENCED)]
    response = checked(play(ask(WEATHER, stream=True), answers, response_store=shared.store))[-1]["response"]
    failed, last, call = response["output"]
    _, stored = shared.get(response["id"])
    assert stored == response | {"output": [last, call]}

    more = ask(WEATHER, previous_response_id=response["id"], input="And?", store=False)
    continued = shared.ask(more, reply("Cold.")).bodies[0]["messages"]
    assert [message.get("reasoning_content") for message in continued] == [None, "The user wants it.", None]

    references = [{"type": "item_reference", "id": item["id"]} for item in (failed, last, call)]
    more = ask(WEATHER, input=[*references, {"role": "user", "content": "And?"}], store=False)
    referred = shared.ask(more, reply("Cold."))
    assert referred.bodies[0]["messages"][:-1] == continued[1:-1]
    shared.get(response["id"], "DELETE")
    assert [shared.ask(ask(input=[one]), reply("ok"), spare=True).head.status for one in references] == [400] * 3


def test_a_response_that_is_not_to_be_stored_is_not():
    shared = Conversation()
    body = shared.ask(ask(store=False), reply("ok")).json
    assert shared.get(body["id"])[0] == 404
    assert len(shared.store) == 0


def test_get_and_delete():
    shared = Conversation()
    body = shared.ask(ask(), reply("ok")).json
    assert shared.get(body["id"]) == (200, body)
    assert shared.get(f"{body['id']}?stream=true")[0] == 400
    assert shared.get(body["id"], "DELETE") == (200, {"id": body["id"], "object": "response", "deleted": True})
    status, told = shared.get(body["id"])
    assert (status, told["error"]["type"]) == (404, "invalid_request_error")


def test_input_items():
    shared = Conversation()
    texts = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    path = f"{shared.ask(ask(input=texts), reply('ok')).json['id']}/input_items"
    status, page = shared.get(f"{path}?limit=2")
    assert (status, page["has_more"], page["last_id"]) == (200, True, page["data"][1]["id"])
    assert [item["content"] for item in page["data"]] == [
        [{"type": "input_text", "text": "c"}],
        [{"type": "output_text", "text": "b"}],
    ]
    rest = shared.get(f"{path}?limit=2&after={page['last_id']}")[1]
    assert ([item["content"][0]["text"] for item in rest["data"]], rest["has_more"]) == (["a"], False)
    ascending = shared.get(f"{path}?order=asc")[1]["data"]
    assert [item["content"][0]["text"] for item in ascending] == ["a", "b", "c"]
    assert shared.get(f"{path}?limit=x")[0] == 400


def test_an_item_is_referenced():
    shared = Conversation()
    item = shared.ask(ask(), reply("Cold.")).json["output"][0]
    seen = shared.ask(
        ask(input=[{"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "?"}]), reply("ok")
    )
    assert seen.bodies[0]["messages"][0] == {"role": "assistant", "content": "Cold."}


def test_a_response_belongs_to_its_credentials():
    shared = Conversation()
    mine = (("Authorization", "Bearer mine"),)
    body = shared.ask(ask(), reply("ok"), headers=mine).json
    assert shared.get(body["id"], headers=mine)[0] == 200
    assert shared.get(body["id"], headers=(("authorization", "Bearer other"),))[0] == 404
    assert shared.get(body["id"], "DELETE")[0] == 404


def test_the_store_is_bounded_by_number_and_the_least_recently_used_goes():
    shared = Conversation(max_responses=2)
    first, second = (shared.ask(ask(), reply("ok"), new_id=number).json["id"] for number in (lambda: "a", lambda: "b"))
    shared.get(first)
    shared.ask(ask(), reply("ok"), new_id=lambda: "c")
    assert (shared.get(first)[0], shared.get(second)[0]) == (200, 404)


def test_the_store_is_bounded_by_size():
    store = ResponseStore(max_bytes=1000)
    for number in range(20):
        body = {"id": f"resp_{number}", "output": [{"id": f"msg_{number}", "text": "x" * 300}]}
        store.put("me", body, (), store.get("me", f"resp_{number - 1}"))
    assert len(store) <= 2
    assert store.find_item("me", "msg_0") is None
    store.put("me", {"id": "resp_big", "output": [{"id": "msg_big", "text": "x" * 2000}]}, (), None)
    assert store.get("me", "resp_big") is None


def stored(number, text="x"):
    return {"id": f"resp_{number}", "output": [{"id": f"msg_{number}", "text": text}]}


def test_nobody_s_responses_make_room_for_another_s():
    store = ResponseStore(max_responses=3, max_bytes=4000)
    for number in range(3):
        store.put("a", stored(number), (), None)
    for number in range(50):
        store.put("b", stored(number, "x" * 500), (), None)
    assert [store.get("a", f"resp_{number}") is not None for number in range(3)] == [True] * 3
    assert store.get("b", "resp_49") is not None
    assert store.get("b", "resp_0") is None
    assert len(store) <= 6


def test_beyond_the_total_the_owner_that_takes_most_gives_way():
    store = ResponseStore(max_total=32_000)
    store.put("small", stored(0), (), None)
    for number in range(20):
        store.put("large", stored(number, "x" * 1000), (), None)
    for number in range(20):
        store.put(f"made up {number}", stored(number, "x" * 600), (), None)
    assert store.get("small", "resp_0") is not None
    assert store.find_item("small", "msg_0") is not None
    assert store.get("large", "resp_0") is None
    for owner in ("small", "large"):
        for number in range(20):
            store.delete(owner, f"resp_{number}")
    assert store.get("large", "resp_19") is None


@pytest.mark.parametrize("first", ["authorization", "x-api-key", "api-key", "x-goog-api-key", "X-Goog-Api-Key"])
def test_a_key_is_the_same_owner_in_whatever_field(first):
    def owner(name, key="k"):
        return owner_of(((name, f"Bearer {key}" if name == "authorization" else key), ("accept", "*/*")))

    assert owner(first) == owner("authorization")
    assert owner(first) not in {owner(first, "other"), owner_of(())}


def test_the_owner_is_not_a_readable_key():
    assert "secret" not in owner_of((("Authorization", "Bearer secret"),))
    assert json.dumps(owner_of(())) != json.dumps(owner_of((("x-api-key", "a"),)))


# --- requests of any shape

FULL = ask(
    WEATHER,
    PATCH,
    FILES,
    instructions="Be brief.",
    input=[
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm"}],
            "encrypted_content": "promptools:AA",
        },
        {"type": "function_call", "call_id": "c1", "name": "read", "namespace": "mcp__files", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "***"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    ],
    tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]},
    text={"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}, "verbosity": "low"},
    reasoning={"effort": "low", "summary": "auto"},
    include=["reasoning.encrypted_content"],
    metadata={"a": "b"},
    store=True,
)
JUNK = (None, 5, -1.5, True, "x", "", [], {}, [5], [[]], {"type": "x"}, {"type": 5}, [{"type": "function"}])


def places(value, path=()):
    """Yield the path of each value inside a JSON value."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def replaced(value, path, other):
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], other)
    return copy


@pytest.mark.parametrize("path", [*places(FULL)][1:], ids=lambda path: ".".join(map(str, path)))
def test_no_request_is_a_bug(path):
    for junk in JUNK:
        seen = play(replaced(FULL, path, junk), [reply("ok")] * 3, spare=True)
        assert seen.head.status in {200, 400}, seen.body
        assert isinstance(seen.json, dict)
