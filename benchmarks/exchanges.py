"""The overhead of an exchange over the bare client, with a server on this machine that responds at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import openai

from benchmarks import samples
from benchmarks.stub import running
from benchmarks.table import Row, Table
from benchmarks.timing import Job, best_of, seconds
from promptools.client import OpenAI
from promptools.profiles import Config

MESSAGES: Any = [{"role": "user", "content": "What is the weather in Longyearbyen?"}]
STREAMS = 60
"""Number of streams that are timed for the first token; the fastest counts."""


def exchanges() -> tuple[Table, Table]:
    """Measure requests and streams: bare client, passthrough, native mode, prompt mode."""
    with running() as url:
        options: dict[str, Any] = {"base_url": url, "api_key": "none", "max_retries": 0}
        bare = openai.OpenAI(**options)
        ours = {mode: OpenAI(**options, mode=mode, config=Config()) for mode in (None, "native", "prompt")}
        return _requests(bare, ours), _first_tokens(bare, ours)


def _requests(bare: openai.OpenAI, ours: dict[Any, OpenAI]) -> Table:
    """Measure the processor time of this process for a whole request."""

    def ask(client: openai.OpenAI, **more: Any) -> Job:
        return lambda: client.chat.completions.create(model="stub", messages=MESSAGES, **more)

    tools = {"tools": samples.OPENAI}
    for mode in ("native", "prompt"):
        reply: Any = ask(ours[mode], **tools)()
        assert reply.choices[0].message.tool_calls[0].function.name == "get_weather"
    times = best_of(
        {
            "bare, no tools": ask(bare),
            "untouched": ask(ours[None]),
            "bare, tools": ask(bare, **tools),
            "native": ask(ours["native"], **tools),
            "prompt": ask(ours["prompt"], **tools),
        }
    )
    return Table("requests", "One request and its answer: processor time of the client", _rows(times))


def _first_tokens(bare: openai.OpenAI, ours: dict[Any, OpenAI]) -> Table:
    """Measure the wall time until the app receives the first piece of content."""
    tools = {"tools": samples.OPENAI}
    looks: dict[str, Callable[[], float]] = {
        "bare, no tools": lambda: _until_content(bare),
        "untouched": lambda: _until_content(ours[None]),
        "bare, tools": lambda: _until_content(bare, **tools),
        "native": lambda: _until_content(ours["native"], **tools),
        "prompt": lambda: _until_content(ours["prompt"], **tools),
    }
    times = dict.fromkeys(looks, float("inf"))
    for _ in range(STREAMS):
        for name, look in looks.items():
            times[name] = min(times[name], look())
    return Table("first_tokens", "A stream of words: time until the first one", _rows(times))


def _until_content(client: openai.OpenAI, **more: Any) -> float:
    begin = time.perf_counter()
    with client.chat.completions.create(model="stub", messages=MESSAGES, stream=True, **more) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                took = time.perf_counter() - begin
                for _ in stream:
                    pass
                return took
    raise AssertionError("the stream had no content")


def _rows(took: dict[str, float]) -> list[Row]:
    bare = {"untouched": "bare, no tools", "native": "bare, tools", "prompt": "bare, tools"}
    rows = []
    for name, duration in took.items():
        added = duration - took[bare[name]] if name in bare else None
        rows.append(
            Row(
                name,
                {"took": seconds(duration), "added": seconds(added) if added is not None else ""},
                measured={"s": duration},
            )
        )
    return rows
