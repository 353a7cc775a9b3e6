"""`/api/generate` before a server that is no Ollama: a chat of one turn, a raw prompt, or only the load of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.exchange.downstream.client_api import OllamaApi
from promptools.exchange.downstream.ollama.ollama_response import GenerateJsonWriter, GenerateNdjsonWriter
from promptools.exchange.downstream.ollama.raw_generation import respond_raw
from promptools.exchange.downstream.ollama.served_route import ServedRequest, parse_json, serve_route
from promptools.exchange.runner import run
from promptools.wire.chat_decoder import Envelope
from promptools.wire.ollama.decode_request import decode_chat_request
from promptools.wire.ollama.encode_response import encode_generated, encode_line, encode_message
from promptools.wire.ollama.generate_request import check_generate_request, encode_as_chat, is_unload_request

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.downstream.client_api import ClientApi
    from promptools.exchange.downstream.response_writer import ResponseWriter
    from promptools.exchange.exchange_state import Steps
    from promptools.exchange.runner import Exchange
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.profiles.profile import Wire


class GenerateApi(OllamaApi):
    """Ollama's `/api/generate`, converted for every server."""

    wire: Wire | None = None
    path = "/api/generate"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert the request to Chat Completions."""
        check_generate_request(body)
        return decode_chat_request(encode_as_chat(body), profile)

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of NDJSON lines, or of one JSON body."""
        return GenerateNdjsonWriter(request, begun=begun) if request.stream else GenerateJsonWriter(request)


GENERATE_API: ClientApi = GenerateApi()


def serve_generate(request: ClientRequest, context: Context) -> Exchange:
    """Begin the exchange of a request whose body has been read."""
    data = parse_json(request.request.body)
    generated = replace(request, client_api=GENERATE_API)
    if data and not data.get("prompt"):
        return serve_route(generated, context, respond_generate_load)
    if data.get("raw") is True:
        return serve_route(generated, context, respond_raw)
    return run(generated, context)


def respond_chat_load(served: ServedRequest) -> Steps[None]:
    """Respond to a chat without messages, which loads or unloads the model: here it is loaded, and stays so."""
    yield from served.emit(_encode_load(served))


def respond_generate_load(served: ServedRequest) -> Steps[None]:
    """Respond to a request without a prompt, in the same way."""
    yield from served.emit(encode_generated(_encode_load(served)))


def _encode_load(served: ServedRequest) -> dict[str, Any]:
    reason = "unload" if is_unload_request(served.data) else "load"
    line = encode_line(Envelope(model=served.requested_model, created=served.now), encode_message())
    return {**line, "done": True, "done_reason": reason}
