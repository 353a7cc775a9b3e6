"""The tables of cures, of the README and of docs/troubleshooting.md: a server plays each row."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from promptools.client import OpenAI
from promptools.profiles import Config

ROOT = Path(__file__).parents[1]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CALL = {"city": "Paris"}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
TAGGED = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'

Answer = tuple[int, str, str]
"""Status, body, content type."""


def said(content: str | None = None, *, finish: str = "stop", spent: int = 20, **message: Any) -> Answer:
    told = {"role": "assistant", "content": content, **message}
    body = {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "created": 1,
        "choices": [{"index": 0, "message": told, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": spent, "total_tokens": 1 + spent},
    }
    return 200, json.dumps(body), "application/json"


def called(name: str = "get_weather", arguments: Any = '{"city": "Paris"}', **more: Any) -> Answer:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}
    return said(finish="tool_calls", tool_calls=[call])


def error(status: int, message: str) -> Answer:
    return status, json.dumps({"error": {"message": message, "type": "BadRequestError"}}), "application/json"


def cut() -> Answer:
    chunk = {"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning": "Hm."}, "finish_reason": None}]}
    return 200, f"data: {json.dumps(chunk)}\n\n", "text/event-stream"


def streamed() -> Answer:
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": FENCED}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    return 200, "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n", "text/event-stream"


@dataclass
class Row:
    says: str
    """Words of the table's row."""
    answers: list[Answer]
    sends: int
    calls: list[dict[str, Any]] = field(default_factory=lambda: [CALL])
    request: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    check: Callable[[list[dict[str, Any]], Any], bool] = lambda sent, reply: True


def no_tools(sent: list[dict[str, Any]], reply: Any) -> bool:
    return "tools" in sent[0] and "tools" not in sent[1] and "get_weather" in sent[1]["messages"][0]["content"]


def in_raw_mode(sent: list[dict[str, Any]], reply: Any) -> bool:
    return sent[1]["_debug_render_only"] and sent[2]["raw"] and sent[2]["prompt"] == RENDERED


def text_kept(sent: list[dict[str, Any]], reply: Any) -> bool:
    return reply.finish_reason == "length" and reply.message.content == TAGGED[:60]


PAST = [
    {"role": "user", "content": "Weather in Oslo?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_abc_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_abc_1", "content": "rain"},
    {"role": "user", "content": "And in Paris?"},
]

RENDERED = "<|im_start|>system\nget_weather<|im_end|>\n<|im_start|>assistant\n"

ROWS = [
    Row(
        "HTTP 500 `EOF`",
        [
            (500, '{"error": "EOF"}', "application/json"),
            (200, json.dumps({"_debug_info": {"rendered_template": RENDERED}}), "application/json"),
            (200, json.dumps({"response": TAGGED, "done": True, "done_reason": "stop"}), "application/json"),
        ],
        3,
        settings={"provider": "ollama", "detect": False},
        check=in_raw_mode,
    ),
    Row("HarmonyError", [error(500, "unexpected tokens remaining in message header"), said(FENCED)], 2, check=no_tools),
    Row(
        "--enable-auto-tool-choice",
        [error(400, '"auto" tool choice requires --enable-auto-tool-choice'), said(FENCED)],
        2,
        check=no_tools,
    ),
    Row("does not support tools", [error(400, "m does not support tools"), said(FENCED)], 2, check=no_tools),
    Row(
        "error parsing tool call",
        [error(500, 'error parsing tool call: raw=\'{"city": "Paris"}\', err=invalid character')],
        1,
    ),
    Row("Failed to parse input", [error(500, f"Failed to parse input at pos 0: {TAGGED}")], 1),
    Row("does not match the expected", [error(500, "output that does not match the expected format"), said(FENCED)], 2),
    Row(
        "JSON schema conversion failed",
        [error(400, "JSON schema conversion failed:\nPattern must start with '^' and end with '$'"), called()],
        2,
        check=lambda sent, reply: "tools" in sent[1] and sent[1]["tools"] != sent[0]["tools"],
        request={
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "get_weather",
                        "parameters": {
                            "type": "object",
                            "properties": {"city": {"type": "string", "pattern": "[A-Z]"}},
                        },
                    },
                }
            ]
        },
    ),
    Row("in `content`", [said(f"I will look.\n\n{TAGGED}")], 1),
    Row("special tokens left out", [said('functions.get_weather:0{"city": "Paris"}')], 1),
    Row("in the reasoning", [said("", reasoning_content=f"I should call it.\n{TAGGED}")], 1),
    Row("finish reason `tool_calls`, no calls", [said("", finish="tool_calls", tool_calls=[]), said(FENCED)], 2),
    Row("answer is empty", [said(None, spent=42), said(FENCED)], 2),
    Row("stream ends in the middle", [cut(), streamed()], 2, request={"stream": True}),
    Row("single quotes", [said("{'name': 'get_weather', 'arguments': {'city': 'Paris',}}")], 1),
    Row(
        "`getWeather`",
        [called("getWeather", '{"location": "Paris", "days": "3"}')],
        1,
        calls=[{"city": "Paris", "days": 3}],
    ),
    Row("<|channel|>", [called("get_weather<|channel|>commentary")], 1),
    Row("inside a string", [called(arguments=json.dumps(json.dumps(CALL)))], 1),
    Row("without an id", [called(arguments=CALL, id=None)], 1),
    Row("do not fit", [called(arguments='{"town": 7}'), called()], 2),
    Row("cut off by `max_tokens`", [said(TAGGED[:60], finish="length")], 1, calls=[], check=text_kept),
    Row("`tool_choice`", [said("It is sunny."), called()], 2, request={"tool_choice": "required"}),
    Row(
        "Tool call id was",
        [error(400, "Tool call id was call_abc_1 but must be a-z, A-Z, 0-9, with a length of 9."), called()],
        2,
        request={"messages": PAST},
        check=lambda sent, reply: len(sent[1]["messages"][2]["tool_call_id"]) == 9,
    ),
    Row(
        "roles must alternate",
        [error(500, "Conversation roles must alternate user/assistant"), called()],
        2,
        request={"messages": [{"role": "user", "content": "Hello."}, {"role": "user", "content": "Weather in Paris?"}]},
        check=lambda sent, reply: [each["role"] for each in sent[1]["messages"]] == ["user"],
    ),
    Row(
        "quotes a call",
        [said(f"You would write `{TAGGED[12:71]}`.")],
        1,
        calls=[],
        check=lambda sent, reply: reply.message.content == f"You would write `{TAGGED[12:71]}`.",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.says)
def test_row(row: Row) -> None:
    sent: list[dict[str, Any]] = []

    def serve(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        status, body, kind = row.answers[len(sent) - 1]
        return httpx.Response(status, text=body, headers={"content-type": kind})

    request = {"messages": [{"role": "user", "content": "Weather in Paris?"}], "tools": [TOOL], **row.request}
    http = httpx.Client(transport=httpx.MockTransport(serve))
    with OpenAI(
        base_url="http://server.example/v1",
        api_key="none",
        max_retries=0,
        config=Config(),
        http_client=http,
        **row.settings,
    ) as client:
        answer = client.chat.completions.create(model="m", **request)
        if request.get("stream"):
            deltas = [choice.delta for chunk in answer for choice in chunk.choices]
            calls, reply = [call for delta in deltas for call in delta.tool_calls or ()], None
        else:
            reply = answer.choices[0]
            calls = reply.message.tool_calls or []
    assert [call.function.name for call in calls] == ["get_weather"] * len(row.calls)
    assert [json.loads(call.function.arguments) for call in calls] == row.calls
    assert all(call.id for call in calls)
    assert len(sent) == row.sends
    assert row.check(sent, reply)


def rows_of(page: str) -> list[str]:
    """Return what goes wrong, by the table of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index("| What goes wrong |") :].partition("\n\n")[0].splitlines()[2:]
    return [line.replace("\\|", "/").split("|")[1] for line in lines]


def test_every_row_of_the_tables_is_played() -> None:
    told = rows_of("docs/troubleshooting.md")
    played = [row.says.replace("|", "/") for row in ROWS]
    unplayed = [each for each in (*told, *rows_of("README.md")) if not any(says in each for says in played)]
    assert unplayed == []
    assert [says for says in played if not any(says in each for each in told)] == []
