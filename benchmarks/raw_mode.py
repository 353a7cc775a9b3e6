"""Measure raw mode on real servers: the round trip that renders the prompt, and what the prompt cache saves."""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import httpx
import openai

from benchmarks import samples
from benchmarks.real import server_of
from benchmarks.servers import ASK, LONG, SHORT, words
from benchmarks.table import Row, Table
from benchmarks.timing import seconds
from promptools.client import OpenAI
from promptools.profiles import Config
from promptools.profiles.profile import TemplateEndpoint
from promptools.wire.chat_template import decode_rendered_prompt, encode_template_request

SERVERS: dict[str, tuple[str, TemplateEndpoint]] = {
    "llama.cpp": ("llamacpp", "llamacpp"),
    "Ollama": ("ollama", "ollama"),
    "vLLM": ("vllm", "tokenize"),
}
"""The real servers, each with its kind in a config and the endpoint that renders prompts."""
SIZES = (1, 10, 100)
"""Kilobytes of the conversations that are rendered."""
REPEATS = 15
MODES = ("native", "raw")


def raw_mode() -> Table:
    """Measure each real server that is installed."""
    rows: list[Row] = []
    for name, (kind, endpoint) in SERVERS.items():
        with server_of(name) as started:
            if isinstance(started, str):
                print(f"!!! no figures for {name}: {started}", file=sys.stderr, flush=True)
                rows.append(Row(f"{name}: not measured, {started}", {}))
                continue
            url, model = started
            rows += [_rendering(f"{name}: a conversation of {size} KB", url, model, endpoint, size) for size in SIZES]
            rows.append(_request(f"{name}: a request of 1 KB", url, model, kind))
            if name == "Ollama":
                continue  # it does not tell what it takes from its cache
            for mode in MODES:
                turns = cached_tokens(url, model, kind, mode, (ASK, f"{words(40)} {SHORT}", LONG))
                shown = {f"turn {number}": f"{cached} of {size}" for number, (size, cached) in enumerate(turns, 1)}
                rows.append(Row(f"{name}: tokens from the cache, {mode}", shown))
    return Table("raw_mode", "Raw mode on real servers: the round trip before a request, and the prompt cache", rows)


def _rendering(case: str, url: str, model: str, endpoint: TemplateEndpoint, size: int) -> Row:
    """Measure the median wall time of the round trip, on an open connection."""
    turns = size * 1000 // 500
    messages = [
        {"role": "assistant" if turn % 2 else "user", "content": f"{turn} {words(90)}"[:500]}
        for turn in range(turns + 1 - turns % 2)
    ]
    body = {"model": model, "messages": messages, "tools": samples.OPENAI}
    asked = encode_template_request(body, endpoint)
    assert asked is not None
    spent: list[float] = []
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=60, trust_env=False) as client:
        for _ in range(REPEATS):
            began = time.perf_counter()
            reply = client.post(asked.path, json=asked.body)
            prompt = decode_rendered_prompt(reply.json(), endpoint)
            spent.append(time.perf_counter() - began)
            assert prompt is not None, reply.text[:500]
    median = statistics.median(spent)
    return Row(case, {"added": seconds(median)}, measured={"added_s": median})


def _request(case: str, url: str, model: str, kind: str) -> Row:
    """Measure the median wall time of a whole request in each mode; the modes take turns."""
    messages: Any = [{"role": "user", "content": f"{words(110)} {ASK}"}]
    tools: Any = samples.OPENAI
    options: dict[str, Any] = {"base_url": url, "api_key": "none", "provider": kind, "config": Config()}
    clients = {mode: OpenAI(**options, mode=mode, max_retries=0) for mode in MODES}
    spent: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(REPEATS):
        for mode, client in clients.items():
            began = time.perf_counter()
            reply = client.chat.completions.create(model=model, messages=messages, tools=tools)
            spent[mode].append(time.perf_counter() - began)
            assert reply.choices[0].message.tool_calls, reply
    median = {mode: statistics.median(times) for mode, times in spent.items()}
    added = median["raw"] - median["native"]
    shown = {
        **{mode: seconds(value) for mode, value in median.items()},
        "added": seconds(added) if added > 0 else "nothing",
    }
    return Row(case, shown, measured={f"{mode}_s": value for mode, value in median.items()})


def cached_tokens(url: str, model: str, kind: str, mode: str, says: Sequence[str]) -> list[tuple[int, int]]:
    """Return, for each of three turns, the tokens of its prompt and how many of them came from the server's cache.

    `says` holds a question that is answered by a call, the result of this call, and the next question.
    """
    question, result, other = says
    # no earlier conversation has this beginning
    messages: list[Any] = [
        {"role": "system", "content": f"{mode[0]} {time.time():.7f} {words(60)}"},
        {"role": "user", "content": question},
    ]
    tools: Any = samples.OPENAI
    turns: list[tuple[int, int]] = []
    with OpenAI(base_url=url, api_key="none", provider=kind, mode=mode, config=Config(), max_retries=0) as client:
        for answer in (result, other, None):
            before = _hits(url) if kind == "vllm" else 0
            reply = client.chat.completions.create(model=model, messages=messages, tools=tools)
            assert reply.usage is not None
            turns.append((reply.usage.prompt_tokens, _cached(reply, url, before, kind)))
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
            if message.tool_calls:
                messages.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": answer})
            else:
                messages.append({"role": "user", "content": answer})
    return turns


def _cached(reply: openai.types.chat.ChatCompletion, url: str, before: int, kind: str) -> int:
    if kind == "vllm":
        return _hits(url) - before
    timings: Any = (reply.model_extra or {}).get("timings") or {}
    return int(timings.get("cache_n", 0))


def _hits(url: str) -> int:
    """Return the number of tokens that a vLLM server has taken from its prefix cache so far."""
    text = httpx.get(f"{url.removesuffix('/v1')}/metrics", timeout=30, trust_env=False).text
    counts = re.findall(r"^vllm:prefix_cache_hits_total\{.*\} (\S+)$", text, re.MULTILINE)
    return int(sum(map(float, counts)))
