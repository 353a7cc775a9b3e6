"""Errors that software before the proxy recognizes without it: the real litellm, before a scripted server.

litellm makes a `ContextWindowExceededError` of a server's words, and applications then choose a larger model
or shorten the conversation.
"""

import json

import environments
import pytest
from programs import proxy_before, run
from upstream import Answer, running

ENVIRONMENT = "frameworks-openai-2"
pytestmark = [pytest.mark.integrations, getattr(pytest.mark, ENVIRONMENT)]

PROGRAM = """
import sys
import litellm

tools = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]
for stream in (False, True):
    for offered in ({}, {"tools": tools}):
        try:
            litellm.completion(
                model="openai/m", api_base=sys.argv[1], api_key="none", stream=stream, num_retries=0, max_retries=0,
                messages=[{"role": "user", "content": "hi"}], **offered,
            )
        except Exception as error:
            print(type(error).__name__)
"""
SAID = {
    "vllm": (
        "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens,"
        " which exceeds this limit even without any output tokens."
    ),
    "llamacpp": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "sglang": "The input (9001 tokens) is longer than the model's context length (8192 tokens).",
}


@pytest.mark.parametrize("server", SAID)
def test_litellm_recognizes_an_overflow(server, tmp_path):
    python = environments.path_of(ENVIRONMENT)
    asked = {"HOME": str(tmp_path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    body = json.dumps({"error": {"message": SAID[server], "type": "BadRequestError", "param": None, "code": 400}})
    with running() as upstream:
        upstream.play(Answer(400, (body.encode(),)))
        alone = run([python, "-c", PROGRAM, upstream.url], tmp_path, **asked)
        with proxy_before(upstream.url) as proxy:
            through = run([python, "-c", PROGRAM, f"{proxy}/v1"], tmp_path, **asked)
    names = [[line for line in printed.split() if line.endswith("Error")] for printed in (alone, through)]
    assert names == [["ContextWindowExceededError"] * 4] * 2
