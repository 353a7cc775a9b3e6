"""The same reply by Chat Completions and by Responses: the same text, reasoning and calls, streamed or not."""

import json

import pytest
from casebook import ROWS_FOLDERS, rows, tools_of
from scripted import play, reply, stream

from promptools.exchange.downstream.responses.responses_api import RESPONSES_API, serve_response

ROWS = [row for row in rows(*ROWS_FOLDERS) if tools_of(row.tools)][::12]
RESPONSES = {"url": "http://server/v1/responses", "front": RESPONSES_API, "begin": serve_response}


def functions_of(row):
    tools = (tool.get("function", tool) for tool in tools_of(row.tools))
    return [{key: tool[key] for key in ("name", "description", "parameters") if key in tool} for tool in tools]


def by_chat(row, answers, *, streamed):
    tools = [{"type": "function", "function": function} for function in functions_of(row)]
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools, "stream": streamed}
    seen = play(body, answers, spare=True)
    if not streamed or seen.head.status != 200:
        message = seen.json["choices"][0]["message"] if seen.head.status == 200 else {}
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        return seen.head.status, message.get("content") or "", message.get("reasoning") or "", calls, None
    choice = seen.choice()
    calls = [(call["name"], call["arguments"]) for call in choice.calls.values()]
    return 200, choice.content, choice.reasoning, calls, not choice.finish


def by_responses(row, answers, *, streamed):
    tools = [{"type": "function", **function} for function in functions_of(row)]
    seen = play({"model": "m", "input": "hi", "tools": tools, "stream": streamed}, answers, spare=True, **RESPONSES)
    if seen.head.status != 200:
        return seen.head.status, "", "", [], None
    response = seen.events[-1]["response"] if streamed else seen.json
    kinds = {"message": [], "reasoning": [], "function_call": []}
    for item in response["output"]:
        kinds[item["type"]].append(item)
    texts = {
        kind: "".join(part["text"] for item in kinds[kind] for part in item["content"])
        for kind in ("message", "reasoning")
    }
    calls = [(item["name"], item["arguments"]) for item in kinds["function_call"]]
    failed = response["status"] == "failed" if streamed else None
    return 200, texts["message"], texts["reasoning"], calls, failed


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_the_same_reply(row, streamed):
    answers = [stream(row.text, cut=11) if streamed else reply(row.text)] * 6
    chat = by_chat(row, answers, streamed=streamed)
    assert by_responses(row, answers, streamed=streamed) == chat, json.dumps(row.text)
