"""The models of a server that is no Ollama, from its `/v1/models`: `/api/tags`, `/api/ps` and `/api/show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.exchange.downstream.ollama.served_route import ServedRequest
from promptools.profiles.facts import family_of
from promptools.profiles.server_detection import LLAMACPP
from promptools.wire.json_types import as_object
from promptools.wire.ollama.encode_models import ListedModel

if TYPE_CHECKING:
    from promptools.exchange.exchange_state import Steps

_OLLAMA_VERSION = "0.32.15"
"""The version whose API is served here: apps refuse versions that are too old for what they use."""


def respond_version(served: ServedRequest) -> Steps[None]:
    """Respond with a version. The other key tells detection, here and elsewhere, that this is no Ollama."""
    yield from served.emit({"version": _OLLAMA_VERSION, "served_by": "promptools"})


def list_models(served: ServedRequest) -> Steps[None]:
    """List the models."""
    models = yield from _models(served)
    if models is not None:
        yield from served.emit({"models": [model.encode_listed() for model in models]})


def list_running_models(served: ServedRequest) -> Steps[None]:
    """List the models as loaded: a server other than Ollama serves what it has loaded."""
    models = yield from _models(served)
    if models is not None:
        yield from served.emit({"models": [model.encode_running() for model in models]})


def show_model(served: ServedRequest) -> Steps[None]:
    """Show what is known about a model; 404 if the server does not list it, and does not serve any name."""
    if not served.requested_model:
        raise UsageError("model is required")
    models = yield from _models(served)
    if models is None:
        return
    named = next((model for model in models if served.model in model.names), None)
    if named is None and served.target.profile.kind == LLAMACPP and len(models) == 1:
        named = models[0]  # it serves any name
    if named is None:
        yield from served.emit({"error": f"model '{served.requested_model}' not found"}, 404)
        return
    profile = served.target.profile
    shown = ListedModel(named.entry, profile.family or named.family)
    yield from served.emit(shown.encode_shown(profile.context))


def _models(served: ServedRequest) -> Steps[list[ListedModel] | None]:
    """Return the server's models; None if it failed, and the client got the error."""
    listed = yield from served.ask("models")
    if listed is None:
        return None
    models = (ListedModel(as_object(entry)) for entry in listed["data"])
    return [ListedModel(model.entry, family_of(model.name) or "") for model in models if model.name]
