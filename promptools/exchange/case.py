"""A client's request, looked at once: where it goes, whether it is ours to touch, and what it asks for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.exchange.outlet import dump
from promptools.modes.ask import Ask, Options, concerns_tools, read_ask
from promptools.wire.shapes import as_object, as_text, is_object

if TYPE_CHECKING:
    from promptools.exchange.context import Context, Route
    from promptools.exchange.effects import Request


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be done with a request."""

    body: dict[str, Any]
    """The client's body, with the model's real name and the config's defaults in it."""
    route: Route
    url: str
    """Where the request is sent."""
    defaults: Options
    tools: bool
    """Has it to do with tools at all?"""
    payload: bytes | None
    """What to send as it is; None when the request has to be read and written anew."""

    @property
    def place(self) -> tuple[str, str]:
        """Give the provider and the model, as the breaker knows them."""
        target = self.route.target
        return target.provider or target.base_url or self.url, as_text(self.body.get("model"))

    def ask(self) -> Ask:
        """Read and check it; `UsageError` for what cannot be."""
        target = self.route.target
        marks, prompt = target.marks or None, target.system_prompt or ""
        return read_ask(self.body, target.profile, self.defaults, marks=marks, system_prompt=prompt)


def look(request: Request, context: Context) -> Case:
    """Look at a request. A body that is no JSON object goes on as it is: the server knows best what to say to it."""
    defaults = context.options or Options()
    try:
        given: Any = json.loads(request.body)
    except (ValueError, RecursionError):
        given = None
    data = as_object(given)
    options = defaults.override(data.get("promptools"))
    route = context.route(as_text(data.get("model")) or None, options.provider)
    url = route.url or request.url
    body = {**route.target.defaults, **data}
    if route.target.model:
        body["model"] = route.target.model
    tools = concerns_tools(body)
    touch = tools or "promptools" in data or options.mode is not None or route.target.profile.wire != "chat"
    if not is_object(given):
        return Case(data, route, url, defaults, tools=False, payload=request.body)
    as_it_is = request.body if body == data else dump(body)
    return Case(body, route, url, defaults, tools, payload=None if touch else as_it_is)
