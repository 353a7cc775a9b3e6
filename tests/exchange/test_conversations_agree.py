"""What goes upstream in a conversation is the same by every client API, streamed or not.

So benchmarks/models asks a real model by one of them only.
"""

import json

import pytest
from due_calls import first
from scripted import play, reply, stream

from benchmarks.models.conversations.conversation import COUNTS, conversations
from benchmarks.models.conversations.simulated import SimulatedTools
from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response

SERVER = "http://server"
OPTIONS = {
    "json": {"mode": "prompt", "dialect": "json"},
    "hermes": {"mode": "prompt", "dialect": "hermes"},
    "native": {"mode": "native"},
}
FIRST = [next(each for each in conversations() if each.kind == kind) for kind in COUNTS]


def whole(talk):
    """The conversation as it should go, as a list of steps: a user's text, calls with their results, an answer."""
    tools = SimulatedTools(talk)
    for turn in talk.turns:
        yield "user", turn.user
        made = [
            (due.name, arguments := first(due.arguments), tools.result(due.name, json.dumps(arguments)))
            for due in turn.due
        ]
        yield from [("calls", made)] if turn.together else [("calls", [each]) for each in made]
        yield "assistant", turn.answer


def requests(talk):
    """The steps before each request of the app."""
    steps = [*whole(talk)]
    return [steps[:end] for end, (kind, _) in enumerate(steps, 1) if kind != "assistant"]


def chat_messages(steps):
    for at, (kind, said) in enumerate(steps):
        if kind != "calls":
            yield {"role": kind, "content": said}
            continue
        ids = [f"call{at:02}_{number:02}" for number in range(len(said))]
        functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments, _ in said]
        calls = [{"id": one, "type": "function", "function": each} for one, each in zip(ids, functions, strict=True)]
        yield {"role": "assistant", "content": None, "tool_calls": calls}
        yield from (
            {"role": "tool", "tool_call_id": one, "content": result}
            for one, (_, _, result) in zip(ids, said, strict=True)
        )


def by_chat(talk, steps, **how):
    system = [{"role": "system", "content": talk.system}] if talk.system else []
    body = {"model": "m", "messages": [*system, *chat_messages(steps)], "tools": talk.offered()}
    return asked({**body, "temperature": 0, "max_tokens": 200}, **how)


def by_responses(talk, steps, **how):
    items = []
    for message in chat_messages(steps):
        if message["role"] == "tool":
            output = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"type": "function_call_output", **output})
        elif "tool_calls" in message:
            items += (
                {"type": "function_call", "call_id": call["id"], **call["function"]} for call in message["tool_calls"]
            )
        else:
            items.append(message)
    tools = [{"type": "function", **tool} for tool in talk.tools]
    body = {"model": "m", "input": items, "tools": tools, "temperature": 0, "max_output_tokens": 200}
    if talk.system:
        body["instructions"] = talk.system
    return asked(body, url=f"{SERVER}/v1/responses", front=RESPONSES_API, begin=serve_response, **how)


def by_messages(talk, steps, **how):
    messages = []
    for message in chat_messages(steps):
        if message["role"] == "tool":
            result = {"tool_use_id": message["tool_call_id"], "content": message["content"]}
            if messages[-1]["role"] == "assistant":
                messages.append({"role": "user", "content": []})
            messages[-1]["content"].append({"type": "tool_result", **result})
        elif "tool_calls" in message:
            blocks = (
                {"id": call["id"], "name": call["function"]["name"], "input": json.loads(call["function"]["arguments"])}
                for call in message["tool_calls"]
            )
            messages.append({"role": "assistant", "content": [{"type": "tool_use", **block} for block in blocks]})
        else:
            messages.append(message)
    tools = [
        {**{key: tool[key] for key in ("name", "description")}, "input_schema": tool["parameters"]}
        for tool in talk.tools
    ]
    body = {"model": "m", "messages": messages, "tools": tools, "temperature": 0, "max_tokens": 200}
    if talk.system:
        body["system"] = talk.system
    return asked(body, url=f"{SERVER}/v1/messages", front=MESSAGES_API, begin=serve_message, **how)


def by_ollama(talk, steps, **how):
    messages = [{"role": "system", "content": talk.system}] if talk.system else []
    names = {}
    for message in chat_messages(steps):
        if message["role"] == "tool":
            messages.append(
                {"role": "tool", "tool_name": names[message["tool_call_id"]], "content": message["content"]}
            )
        elif "tool_calls" in message:
            names |= {call["id"]: call["function"]["name"] for call in message["tool_calls"]}
            functions = (call["function"] for call in message["tool_calls"])
            calls = [{"name": each["name"], "arguments": json.loads(each["arguments"])} for each in functions]
            called = [{"function": call} for call in calls]
            messages.append({"role": "assistant", "tool_calls": called})
        else:
            messages.append(message)
    body = {
        "model": "m",
        "messages": messages,
        "tools": talk.offered(),
        "options": {"temperature": 0, "num_predict": 200},
    }
    return asked(body, url=f"{SERVER}/api/chat", front=OLLAMA_API, **how)


def asked(body, *, streamed, options, **how):
    """What goes upstream, but for how it is streamed and what Ollama's API writes otherwise.

    Its results have a tool's name in place of an id, and calls without text an empty text in place of none.
    """
    answer = stream("It is so.") if streamed else reply("It is so.")
    seen = play({**body, "stream": streamed}, [answer], options=options, **how)
    assert seen.head.status == 200, seen.body
    (sent,) = seen.bodies
    assert sent.pop("stream", False) == streamed
    sent.pop("stream_options", None)
    return numbered(sent)


def numbered(sent):
    ids = {}
    for message in sent["messages"]:
        for call in message.get("tool_calls", ()):
            call["id"] = ids.setdefault(call["id"], f"call {len(ids)}")
        if "tool_calls" in message:
            message["content"] = message["content"] or None
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]
            message.pop("name", None)
    return sent


APIS = {"chat": by_chat, "responses": by_responses, "messages": by_messages, "ollama": by_ollama}


@pytest.mark.parametrize("talk", FIRST, ids=lambda talk: talk.name)
@pytest.mark.parametrize("way", OPTIONS)
def test_the_same_goes_upstream(talk, way):
    for steps in requests(talk):
        expected = by_chat(talk, steps, streamed=False, options=OPTIONS[way])
        assert steps[-1][1] in str(expected) if steps[-1][0] == "user" else expected["messages"]
        for api, ask in APIS.items():
            for streamed in (False, True):
                assert ask(talk, steps, streamed=streamed, options=OPTIONS[way]) == expected, (api, streamed)
