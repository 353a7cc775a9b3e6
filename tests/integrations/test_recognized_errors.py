"""Errors that software before the proxy recognizes without it: the real litellm, before a scripted server.

litellm makes a `ContextWindowExceededError` of a server's words, and applications then choose a larger model
or shorten the conversation.
"""

import json
from contextlib import ExitStack

import environments
import pytest
from programs import proxy_before, run
from upstream import Answer, running

ENVIRONMENT = "frameworks-openai-2"
pytestmark = [pytest.mark.integrations, getattr(pytest.mark, ENVIRONMENT)]

PROGRAM = """
import json
import sys
import litellm

tools = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]
for address in sys.argv[1:]:
    names = []
    for stream in (False, True):
        for offered in ({}, {"tools": tools}):
            try:
                litellm.completion(
                    model="openai/m", api_base=address, api_key="none", stream=stream, num_retries=0, max_retries=0,
                    messages=[{"role": "user", "content": "hi"}], **offered,
                )
            except Exception as error:
                names.append(type(error).__name__)
    print(json.dumps({"names": names}))
"""
SAID = {
    "vllm": (
        "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens,"
        " which exceeds this limit even without any output tokens."
    ),
    "llamacpp": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "sglang": "The input (9001 tokens) is longer than the model's context length (8192 tokens).",
}


def test_litellm_recognizes_an_overflow(tmp_path):
    """Alone and through the proxy; in one process, since litellm takes seconds to load."""
    addresses = {}
    with ExitStack() as stack:
        for server, said in SAID.items():
            body = json.dumps({"error": {"message": said, "type": "BadRequestError", "param": None, "code": 400}})
            upstream = stack.enter_context(running())
            upstream.play(Answer(400, (body.encode(),)))
            addresses[f"{server} alone"] = upstream.url
            addresses[server] = f"{stack.enter_context(proxy_before(upstream.url))}/v1"
        asked = {"HOME": str(tmp_path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        command = [environments.path_of(ENVIRONMENT), "-c", PROGRAM, *addresses.values()]
        printed = run(command, tmp_path, **asked)
    told = [json.loads(line)["names"] for line in printed.splitlines() if line.startswith('{"names"')]
    assert dict(zip(addresses, told, strict=True)) == dict.fromkeys(addresses, ["ContextWindowExceededError"] * 4)
