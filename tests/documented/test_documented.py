"""LM Studio and SGLang, on documented shapes: every failure with tools that they are known for, and what the app sees.

Each case runs with the server's kind named, so that its profile spares the failure, and with nothing known about the
server, so that the failure happens and is healed; whole and streamed.
"""

import json
import tomllib
from pathlib import Path

import pytest
from played import playing

from promptools.cli.collected_reply import CollectedReply
from promptools.client import OpenAI
from promptools.profiles import Config

CASES = tomllib.loads((Path(__file__).parent / "cases.toml").read_text(encoding="utf-8"))["case"]
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


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("known", [True, False], ids=["named", "unknown"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['server']}-{case['id']}")
def test_documented_shape(case: dict, known: bool, stream: bool) -> None:
    kind = case["server"] if known else "openai-compatible"
    request = {
        "messages": [{"role": "user", "content": "Weather in Paris?"}],
        "tools": [TOOL],
        **case.get("request", {}),
    }
    with (
        playing(case) as server,
        OpenAI(base_url=server.url, api_key="none", max_retries=0, config=Config(), provider=kind) as client,
    ):
        got = client.chat.completions.create(
            model="m", stream=stream, extra_body={"promptools": {"trace": True}}, **request
        )
        answer = CollectedReply()
        for part in got if stream else [got]:
            list(answer.add(part))
    sees = case["sees"]
    reply = answer.reply
    assert [json.loads(call.arguments) for call in reply.calls] == sees["calls"]
    assert all(call.name == "get_weather" and call.id for call in reply.calls)
    assert len({call.id for call in reply.calls}) == len(reply.calls)
    wanted = sees["modes"] if known else sees.get("unknown_modes", sees["modes"])
    assert [each["mode"] for each in answer.attempts] == wanted
    if "content" in sees:
        assert reply.content == sees["content"]
    assert reply.finish_reason == sees.get("finish", "tool_calls" if sees["calls"] else "stop")


def test_every_case_names_its_source() -> None:
    assert all(case["source"] and case["title"] for case in CASES)
    assert len({case["id"] for case in CASES}) == len(CASES)
