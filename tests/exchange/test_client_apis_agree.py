"""The same reply by every client API: the same text, reasoning and calls, streamed or not."""

import json
from dataclasses import dataclass, field

import pytest
from casebook import ROWS_FOLDERS, rows, tools_of
from many_rows import every_row
from scripted import play, reply, stream

from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response

ROWS = [row for row in rows(*ROWS_FOLDERS) if tools_of(row.tools)][::12]
SERVER = "http://server"


@dataclass
class Answer:
    """What a client made of the response."""

    status: int = 200
    text: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)
    """Names and arguments; arguments that were cut off are their text so far."""
    failed: bool = False


def functions_of(row):
    tools = (tool.get("function", tool) for tool in tools_of(row.tools))
    return [{key: tool[key] for key in ("name", "description", "parameters") if key in tool} for tool in tools]


def nested(functions):
    return [{"type": "function", "function": function} for function in functions]


def arguments_in(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def by_chat(functions, answers, *, streamed):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": nested(functions)}
    seen = play(body | {"stream": streamed}, answers, spare=True)
    if seen.head.status != 200:
        return Answer(seen.head.status)
    if streamed:
        choice = seen.choice()
        calls = [(call["name"], arguments_in(call["arguments"])) for call in choice.calls.values()]
        return Answer(200, choice.content, choice.reasoning, calls, not choice.finish)
    message = seen.json["choices"][0]["message"]
    called = (call["function"] for call in message.get("tool_calls", ()))
    calls = [(call["name"], arguments_in(call["arguments"])) for call in called]
    return Answer(200, message.get("content") or "", message.get("reasoning") or "", calls)


def by_responses(functions, answers, *, streamed):
    tools = [{"type": "function", **function} for function in functions]
    body = {"model": "m", "input": "hi", "tools": tools, "stream": streamed}
    url = f"{SERVER}/v1/responses"
    seen = play(body, answers, spare=True, url=url, front=RESPONSES_API, begin=serve_response)
    if seen.head.status != 200:
        return Answer(seen.head.status)
    response = seen.events[-1]["response"] if streamed else seen.json
    kinds = {"message": [], "reasoning": [], "function_call": []}
    for item in response["output"]:
        kinds[item["type"]].append(item)
    texts = {
        kind: "".join(part["text"] for item in kinds[kind] for part in item["content"])
        for kind in ("message", "reasoning")
    }
    calls = [(item["name"], arguments_in(item["arguments"])) for item in kinds["function_call"]]
    return Answer(200, texts["message"], texts["reasoning"], calls, response["status"] == "failed")


def by_messages(functions, answers, *, streamed):
    tools = [
        {"name": one["name"], "description": one.get("description", ""), "input_schema": one.get("parameters", {})}
        for one in functions
    ]
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "tools": tools}
    url = f"{SERVER}/v1/messages"
    seen = play(body | {"stream": streamed}, answers, spare=True, url=url, front=MESSAGES_API, begin=serve_message)
    if seen.head.status != 200:
        return Answer(seen.head.status)
    blocks = joined_blocks(seen.events) if streamed else seen.json["content"]
    texts = {kind: "".join(block[kind] for block in blocks if block["type"] == kind) for kind in ("text", "thinking")}
    calls = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    failed = streamed and seen.events[-1]["type"] == "error"
    return Answer(200, texts["text"], texts["thinking"], calls, failed)


def joined_blocks(events):
    blocks = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "partial_json": ""})
        elif event["type"] == "content_block_delta":
            for key, piece in (event["delta"] | {"type": ""}).items():
                blocks[-1][key] = blocks[-1].get(key, "") + piece
    return [block | {"input": arguments_in(block["partial_json"])} for block in blocks]


def by_ollama(functions, answers, *, streamed):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": nested(functions)}
    seen = play(body | {"stream": streamed}, answers, spare=True, url=f"{SERVER}/api/chat", front=OLLAMA_API)
    if seen.head.status != 200:
        return Answer(seen.head.status)
    lines = [json.loads(line) for line in seen.body.splitlines()]
    messages = [line["message"] for line in lines if "message" in line]
    texts = {kind: "".join(message.get(kind) or "" for message in messages) for kind in ("content", "thinking")}
    called = (call["function"] for message in messages for call in message.get("tool_calls", ()))
    calls = [(call["name"], call["arguments"]) for call in called]
    return Answer(200, texts["content"], texts["thinking"], calls, "error" in lines[-1])


OTHERS = {"responses": by_responses, "messages": by_messages, "ollama": by_ollama}


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_the_same_reply(row, streamed):
    answers = [stream(row.text, cut=11) if streamed else reply(row.text)] * 6
    functions = functions_of(row)
    expected = by_chat(functions, answers, streamed=streamed)
    for api, read in OTHERS.items():
        assert read(functions, answers, streamed=streamed) == expected, (api, json.dumps(row.text))
