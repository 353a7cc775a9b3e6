"""A client of promptools before an engine of this process, and the batch requests that it answers."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.batch.offline.engine_settings import EngineSettings
from promptools.batch.offline.engine_transport import engine_transport_class
from promptools.batch.offline.vllm_app import VllmApp, open_vllm
from promptools.batch.request_answering import BatchAnswer, RequestAnswerer, TemporaryFailureError
from promptools.errors import UpstreamError, UsageError, clip
from promptools.profiles.facts import families_of_template
from promptools.profiles.model_family import ModelDescription, find_family
from promptools.profiles.server_detection import VLLM, server_root, with_family
from promptools.transport import installed_library
from promptools.transport.session import PLACEHOLDER_KEY
from promptools.types import ServerInfo

if TYPE_CHECKING:
    from promptools.batch.request_line import BatchRequest
    from promptools.client import AsyncOpenAI
    from promptools.profiles import Target

BASE_URL = "http://vllm.invalid/v1"
"""The address of the engine in requests to it; no name is resolved, and nothing is sent over a network."""
QUEUED_SHARE = 0.5
"""Requests that wait in the engine, as a share of those that it computes: the next ones begin without a pause."""
NO_PARSER = (
    "native mode needs vLLM's own parser of calls: add --engine-args enable_auto_tool_choice=true"
    " tool_call_parser=NAME, or leave the mode to promptools"
)


@dataclass(frozen=True, slots=True)
class OfflineEngine:
    """An engine of this process that answers batch requests."""

    client: AsyncOpenAI
    """The client before the engine; it is of no use once the engine is closed."""
    concurrency: int
    """Requests at once that keep the engine busy."""
    target: Target
    """The model's profile, with its reasons."""
    _app: VllmApp
    _answerer: RequestAnswerer

    async def answer(self, request: BatchRequest) -> BatchAnswer:
        """Return the result of a request, as `RequestAnswerer` does; raise `UpstreamError` if the engine has ended."""
        try:
            answer = await self._answerer.answer(request)
        except TemporaryFailureError as error:
            self._check_running(error)
            raise
        if answer.problem is not None:
            self._check_running(None)
        return answer

    def _check_running(self, cause: Exception | None) -> None:
        if (failure := self._app.failure) is not None:
            raise UpstreamError(f"vLLM's engine has ended: {clip(failure)}") from cause


@asynccontextmanager
async def open_engine(settings: EngineSettings) -> AsyncGenerator[OfflineEngine, None]:
    """Load the model, yield the engine with a client before it, and end the engine.

    Loading takes seconds to minutes. Without a parser of vLLM's own (`enable_auto_tool_choice` and `tool_call_parser`
    in the arguments) native mode is left out, since vLLM refuses tools then, or loses the calls. Raises `UsageError` if
    vLLM is missing or an argument is wrong, and `UpstreamError` if the engine does not start.
    """
    if settings.options.get("mode") == "native" and not _names_parser(settings):
        raise UsageError(NO_PARSER)
    async with open_vllm(settings) as app:
        library = installed_library()
        http = library.module.AsyncClient(
            transport=engine_transport_class(library)(app.app, library), trust_env=False, timeout=None
        )
        async with _make_client(settings, http) as undecided:
            client, target = _settle_modes(undecided, app)
            answerer = RequestAnswerer(client, model=app.model)
            yield OfflineEngine(client, round(app.max_requests * (1 + QUEUED_SHARE)), target, app, answerer)


def _names_parser(settings: EngineSettings) -> bool:
    return bool(settings.arguments.get("enable_auto_tool_choice") and settings.arguments.get("tool_call_parser"))


def _make_client(settings: EngineSettings, http: Any) -> AsyncOpenAI:
    from promptools.client import AsyncOpenAI

    options: dict[str, Any] = {
        "provider": VLLM,
        "base_url": BASE_URL,
        "api_key": os.environ.get("VLLM_API_KEY") or PLACEHOLDER_KEY,  # vLLM asks for it if it is set
        "allow_provider": False,
        "max_retries": 0,
        "timeout": None,
        "http_client": http,
    }
    return AsyncOpenAI(**{**options, **settings.options})


def _settle_modes(client: AsyncOpenAI, app: VllmApp) -> tuple[AsyncOpenAI, Target]:
    """Record what is known about the engine's model, and leave out native mode if vLLM does not parse calls."""
    session = client.promptools
    seen = _describe_model(app)
    session.context.detection_cache.put(server_root(BASE_URL), app.model, seen, VLLM)
    target = session.resolve_target(app.model, base_url=BASE_URL, provider=VLLM, detection=seen)
    if app.parses_calls or "native" not in target.profile.modes:
        return client, target
    modes = [mode for mode in target.profile.modes if mode != "native"]
    if not modes:
        raise UsageError(f"{session.config.file} allows native mode only; {NO_PARSER}")
    overrides = {**(session.overrides or {}), "modes": modes}
    client = client.with_options(overrides=overrides)
    return client, client.promptools.resolve_target(app.model, base_url=BASE_URL, provider=VLLM, detection=seen)


def _describe_model(app: VllmApp) -> ServerInfo:
    """Return what detection would find out about a server, from the model itself."""
    template = app.chat_template
    described = ModelDescription(
        files=(("model", app.engine.model_config.model),),
        served_names=(("name", app.model),),
        kind_names=(("model_type", app.architecture.replace("_", "-")),),
        template_families=families_of_template(template or ""),
        has_template=bool(template),
        context=app.context,
        renders_tools=template is None or "tools" in template,
    )
    info = ServerInfo(
        VLLM,
        app.version,
        context=app.context,
        template_tools=described.renders_tools,
        why="it runs in this process",
    )
    return with_family(info, find_family(described, app.model))
