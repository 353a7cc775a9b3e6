"""How many tokens a prompt and its reply may have together, by what is known of the server and the request."""

from dataclasses import replace

import pytest

from promptools.exchange.upstream import available_context
from promptools.modes.options import Options
from promptools.modes.tool_request import parse_request
from promptools.profiles.profile import Profile

OLLAMA = Profile(wire="ollama", context=4096, num_ctx_limit=32768)


@pytest.mark.parametrize(
    ("profile", "keys", "size"),
    [
        (Profile(), {}, None),
        (Profile(context=8192), {}, 8192),
        (Profile(context=8192), {"num_ctx": 2048}, 8192),
        (OLLAMA, {}, 32768),
        (replace(OLLAMA, context=None), {}, None),
        (replace(OLLAMA, num_ctx="server"), {}, 4096),
        (replace(OLLAMA, num_ctx=16384), {}, 16384),
        (OLLAMA, {"num_ctx": 2048}, 2048),
        (OLLAMA, {"options": {"num_ctx": 1024}}, 1024),
    ],
)
def test_the_context_of_a_request(profile, keys, size):
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **keys}
    assert available_context(parse_request(body, profile, Options())) == size
