"""Ask as an app does, with the ollama package's clients, and gather what it sees: whole or streamed, sync or async."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import ollama as package

from promptools import ollama

Calls = list[tuple[str, dict[str, Any]]]
WAYS = ("whole", "streamed", "async whole", "async streamed")


@dataclass
class Said:
    """One answer as an app sees it."""

    content: str = ""
    thinking: str = ""
    calls: Calls = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    last: Any = None
    """The package's own `ChatResponse`, the last one of a stream."""
    reply: Any = None
    """What `on_reply` was given."""

    @property
    def attempts(self) -> list[tuple[str, str]]:
        return [(attempt.mode, attempt.outcome) for attempt in self.reply.trace.attempts]

    @property
    def message(self) -> dict[str, Any]:
        """The answer as an app puts it into its history."""
        calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in self.calls]
        return {"role": "assistant", "content": self.content, "thinking": self.thinking, "tool_calls": calls}


def ask(url: str, way: str, model: str, *said: Any, settings: dict[str, Any], **keys: Any) -> Said:
    """Ask a fresh client: nothing that failed before has closed a mode.

    `settings` name the server: a look at it has its two seconds, which machines with much to do may use up.
    """
    messages = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
    got = Said()

    def told(reply: Any) -> None:
        got.reply = reply

    options = {"on_reply": told, "timeout": 60, **settings}
    if way.startswith("async"):
        asyncio.run(_later(got, url, options, way.endswith("streamed"), model, messages, keys))
        return got
    with ollama.Client(url, **options) as client:
        answer = client.chat(model, messages, stream=way == "streamed", **keys)
        _gather(got, answer if way == "streamed" else [answer])
    return got


async def _later(got: Said, url: str, options: Any, stream: bool, model: str, messages: Any, keys: Any) -> None:
    client = ollama.AsyncClient(url, **options)
    try:
        answer = await client.chat(model, messages, stream=stream, **keys)
        _gather(got, [part async for part in answer] if stream else [answer])
    finally:
        await client.close()


def _gather(got: Said, parts: Iterable[Any]) -> None:
    for part in parts:
        assert isinstance(part, package.ChatResponse)
        got.content += part.message.content or ""
        got.thinking += part.message.thinking or ""
        got.calls += [(call.function.name, dict(call.function.arguments)) for call in part.message.tool_calls or ()]
        got.logprobs += part.logprobs or ()
        assert got.last is None or not got.last.done, "nothing follows the last one"
        got.last = part
    assert got.last.done


def found_out(url: str) -> str | None:
    """Ask until the server has said what it is; a look at which nobody answered in time is taken again."""
    seen: list[Any] = []
    with ollama.Client(url, on_reply=lambda reply: seen.append(reply.trace.seen), mode="native") as client:
        for _ in range(5):
            client.chat("go", [{"role": "user", "content": "Say words"}], options={"num_predict": 3})
            if seen[-1].kind is not None:
                break
    return seen[-1].kind
