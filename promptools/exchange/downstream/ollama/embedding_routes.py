"""Embeddings of a server that is no Ollama, by its `/v1/embeddings`: `/api/embed`, and the older `/api/embeddings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.exchange.downstream.ollama.served_route import ServedRequest
from promptools.wire.json_types import as_count, as_list, as_object
from promptools.wire.ollama.generate_request import embedding_inputs

if TYPE_CHECKING:
    from promptools.exchange.exchange_state import Steps


def respond_embed(served: ServedRequest) -> Steps[None]:
    """Respond with the embeddings of one text or several."""
    vectors = yield from _embed(served)
    if vectors is not None:
        embeddings, tokens = vectors
        body = {"model": served.requested_model, "embeddings": embeddings}
        figures = {"total_duration": int(served.state.seconds * 1e9), "prompt_eval_count": tokens}
        yield from served.emit({**body, **(figures if embeddings else {})})


def respond_embeddings(served: ServedRequest) -> Steps[None]:
    """Respond with the embedding of one text."""
    vectors = yield from _embed(served)
    if vectors is not None:
        embeddings, _ = vectors
        yield from served.emit({"embedding": embeddings[0] if embeddings else []})


def _embed(served: ServedRequest) -> Steps[tuple[list[Any], int] | None]:
    """Return the vectors and the tokens read; None if the server failed, and the client got the error.

    Without a text there are none: on Ollama such a request only loads the model.
    """
    texts = embedding_inputs(served.data)
    if not texts:
        return [], 0
    body: dict[str, Any] = {"model": served.model, "input": texts}
    if served.data.get("dimensions"):
        body["dimensions"] = served.data["dimensions"]
    reply = yield from served.ask("embeddings", body)
    if reply is None:
        return None
    entries = sorted(map(as_object, reply["data"]), key=lambda entry: as_count(entry.get("index")) or 0)
    tokens = as_count(as_object(reply.get("usage")).get("prompt_tokens")) or 0
    return [as_list(entry.get("embedding")) for entry in entries], tokens
