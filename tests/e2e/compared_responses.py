"""Requests to two Responses APIs before one server, a server's own and ours, and what is compared of the answers."""

import json
from itertools import groupby
from typing import Any

import openai
from asking import Proxies
from openai.types.responses import Response

from promptools.lab.server_process import Server

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
PARIS = [("get_weather", {"city": "Paris"})]


class Sides:
    """Clients of one server: `own` asks its Responses API, `ours` that of a proxy before it."""

    def __init__(self, server: Server, model: str, kind: str, proxies: Proxies) -> None:
        self.model = model
        self.own, self.ours = (
            openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)
            for url in (server.base_url, proxies.before(server.base_url, kind))
        )

    def close(self) -> None:
        self.own.close()
        self.ours.close()


def create(client: openai.OpenAI, model: str, *, stream: bool, **keys: Any) -> Response:
    if not stream:
        return client.responses.create(model=model, **keys)
    last = events(client, model, **keys)[-1]
    response: Response = last.response
    return response


def events(client: openai.OpenAI, model: str, **keys: Any) -> list[Any]:
    with client.responses.create(model=model, stream=True, **keys) as stream:
        return list(stream)


def calls(response: Response) -> list[tuple[str, Any]]:
    """The calls of a response; arguments that are not JSON as they are. Ollama's output may be null."""

    def read(arguments: str) -> Any:
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments

    return [(item.name, read(item.arguments)) for item in response.output or () if item.type == "function_call"]


def fields(value: Any) -> set[str]:
    """The fields that the SDK's type of a value knows and that hold something."""
    return {key for key in type(value).model_fields if getattr(value, key, None) is not None}


def kinds(listed: list[Any]) -> list[str]:
    """The types of events, those that follow each other once."""
    return [kind for kind, _ in groupby(event.type for event in listed)]
