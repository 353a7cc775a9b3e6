"""The server's prompt cache works over the turns of a conversation in raw mode as in native mode: its own counters."""

from itertools import pairwise

import pytest
from scenes import QUESTION, RESULT

from benchmarks.raw_mode import MODES, cached_tokens

SERVERS = [("llamacpp-hermes", "llamacpp", 16), pytest.param("vllm-hermes", "vllm", 128, marks=pytest.mark.vllm)]
"""Rigs, their kinds, and the tokens at the end of a prompt that they may read anew: vLLM caches slacks of 128 on a
processor, and llama.cpp goes back a few in either mode."""


@pytest.mark.parametrize(("rig", "kind", "slack"), SERVERS)
def test_each_turn_begins_with_what_the_server_has(servers, rig, kind, slack):
    server = servers[rig]
    says = (QUESTION, RESULT, "Say words")
    native, raw = (cached_tokens(server.base_url, server.name, kind, mode, says) for mode in MODES)
    assert [size for size, _ in raw] == [size for size, _ in native], "not a token is added"
    for turns in (native, raw):
        for (before, _), (_, cached) in pairwise(turns):
            assert cached >= before - slack
    assert abs(raw[1][1] - native[1][1]) <= slack
