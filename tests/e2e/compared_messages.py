"""Requests to two Messages APIs before one server, a server's own and ours, and what is compared of the answers."""

from typing import Any

import anthropic
from anthropic.types import Message
from asking import Proxies

from promptools.lab.server_process import Server

TOOL = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Sides:
    """Clients of one server: `own` asks its Messages API, `ours` that of a proxy before it."""

    def __init__(self, server: Server, model: str, kind: str, proxies: Proxies) -> None:
        self.model = model
        self.own, self.ours = (
            anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0, timeout=300)
            for url in (server.base_url, proxies.before(server.base_url, kind))
        )

    def close(self) -> None:
        self.own.close()
        self.ours.close()


def body(said: Any, **keys: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
    return {"max_tokens": 3000, "messages": messages, **keys}


def create(client: anthropic.Anthropic, model: str, *, stream: bool, **keys: Any) -> Message:
    if not stream:
        message: Message = client.messages.create(model=model, **body(**keys))
        return message
    with client.messages.stream(model=model, **body(**keys)) as events:
        return events.get_final_message()


def events_of(client: anthropic.Anthropic, model: str, **keys: Any) -> list[Any]:
    with client.messages.create(model=model, stream=True, **body(**keys)) as stream:
        return list(stream)


def calls(message: Message) -> list[tuple[str, Any]]:
    """The calls of a message; Ollama's content may be null."""
    return [(block.name, block.input) for block in message.content or () if block.type == "tool_use"]


def text(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")
