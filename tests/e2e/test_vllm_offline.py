"""`promptools batch --engine vllm`: a real engine of vLLM in the process of the command, on scripted models."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from recipes.vllm import OLD_VERSION, VERSION
from rig.vllm_batch import make_rig
from rig_vllm import Boot
from scenes import FENCED_CALL, HARMONY_CALL, HERMES_CALL, THOUGHT, WEATHER

from promptools.lab.script import ScriptedReply

pytestmark = pytest.mark.vllm

SECONDS = 600
"""For a boot on a busy machine."""
AGAIN = "so nothing was done"
"""A phrase of what a model is told about a call that cannot be used."""
FINAL = "<|channel|>final<|message|>"


def row(custom_id, content, **body):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 400, **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def with_tool(custom_id, content, **body):
    return row(custom_id, content, tools=[WEATHER], promptools={"trace": True}, **body)


@contextlib.contextmanager
def started(rig, *options, **keys):
    process = rig.start(*options, **keys)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run(rig, *options, **keys):
    with started(rig, *options, **keys) as process:
        out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def body(result):
    assert result["response"]["status_code"] == 200, result
    return result["response"]["body"]


def calls(result):
    (choice,) = body(result)["choices"]
    return [(call["function"]["name"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]]


def attempts(result):
    return [(attempt["mode"], attempt["outcome"]) for attempt in body(result)["promptools"]["attempts"]]


def test_gpt_oss(tmp_path):
    lines = [
        ScriptedReply("Weather in Paris?", THOUGHT + HARMONY_CALL),
        ScriptedReply("Unknown in Paris?", THOUGHT + HARMONY_CALL.replace("get_weather", "look_up")),
        ScriptedReply("Unknown in Paris?", THOUGHT + HARMONY_CALL, setting=AGAIN),
        ScriptedReply("Say little", f"{FINAL}It is windy.<|return|>"),
    ]
    rig = make_rig(lines, installed=Boot("harmony").installed(), template="harmony", folder=tmp_path)
    rig.write([
        with_tool("call", "Weather in Paris?"),
        with_tool("corrected", "Unknown in Paris?"),
        with_tool("answer", "Say little"),
        row("plain", "Say little"),
    ])  # fmt: skip
    status, out, err = run(rig, "--json")
    assert status == 0, err
    results = rig.read()
    print(json.dumps(results, indent=1)); print(out, err)
    assert calls(results["call"]) == [("get_weather", '{"city": "Paris"}')]
    assert attempts(results["call"]) == [("harmony", "answered")]
