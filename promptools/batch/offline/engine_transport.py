"""The connection to an application in this process: requests go to it as they are, without a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from inspect import signature
from typing import Any

from promptools.json_values import is_object
from promptools.transport.http_library import HttpLibrary

WITHOUT_EFFECT = frozenset({
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user",
})  # fmt: skip
"""Fields of OpenAI's API that change nothing in a reply: labels, accounting, storage."""


class EngineTransport:
    """Base of the async transport of either HTTP library: passes requests to an ASGI application.

    vLLM ignores fields that it does not know. Here such a request is refused, as what was asked for would be missing
    from all results of a batch.
    """

    def __init__(self, app: Any, library: HttpLibrary) -> None:
        self._library = library
        self._inner = library.module.ASGITransport(app=app, raise_app_exceptions=False)
        self._fields = _request_fields(app)

    async def handle_async_request(self, request: Any) -> Any:
        """Return the application's response, or a 400 for a request with an unknown field."""
        if known := self._fields.get(request.url.path):
            unknown = _unknown_fields(await request.aread(), known)
            if unknown:
                return self._refusal(unknown)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Do nothing: the application is its owner's."""

    def _refusal(self, unknown: list[str]) -> Any:
        names = ", ".join(map(repr, unknown))
        message = f"this engine does not know {names}, and would ignore it; remove it"
        error = {"message": message, "type": "BadRequestError", "param": unknown[0], "code": HTTPStatus.BAD_REQUEST}
        return self._library.module.Response(HTTPStatus.BAD_REQUEST, json={"error": error})


@cache
def engine_transport_class(library: HttpLibrary) -> Any:
    """Return the class of transports for a library, built on its own base class, for which its clients check."""
    return type("VllmTransport", (EngineTransport, library.module.AsyncBaseTransport), {})


def _unknown_fields(body: bytes, known: frozenset[str]) -> list[str]:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return []  # which the application refuses
    return sorted(value.keys() - known - WITHOUT_EFFECT) if is_object(value) else []


def _request_fields(app: Any) -> dict[str, frozenset[str]]:
    """Return the fields of each route that takes a pydantic model which would accept any field."""
    fields: dict[str, frozenset[str]] = {}
    for route in app.routes:
        endpoint = getattr(route, "endpoint", None)
        for model in _models(endpoint) if callable(endpoint) else ():
            fields[route.path] = frozenset(_names(model))
    return fields


def _models(endpoint: Any) -> list[Any]:
    parameters = signature(endpoint, eval_str=True).parameters.values()
    return [parameter.annotation for parameter in parameters if hasattr(parameter.annotation, "model_fields")]


def _names(model: Any) -> set[str]:
    described: Mapping[str, Any] = model.model_fields
    aliases = {field.alias for field in described.values() if field.alias}
    return {*described, *aliases}
