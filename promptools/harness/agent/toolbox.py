"""Tools with the Python functions that run them: each call produces a result for the model, even if something fails.

A parameter annotated `RunContext` receives information about the run; the model does not see it.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from promptools.errors import UsageError
from promptools.harness.toolsets import AgentTool, ToolOutput, Toolset
from promptools.harness.toolsets.discovered_tools import KnownTools, with_discovered
from promptools.schema import Tools
from promptools.schema.tool_definition import MARKS_KEY, marks_of
from promptools.types import Call, Result, Span

if TYPE_CHECKING:
    from promptools.schema import ToolLike
    from promptools.types import Fix, Tool


# What a tool is told about the run.


@dataclass(frozen=True, slots=True)
class RunContext:
    """Information about the run, passed to a tool that asks for it."""

    call: Call
    step: int
    """Number of the reply that makes the call, counted from 1."""
    messages: Sequence[dict[str, Any]] = field(repr=False)
    """The conversation before the reply that makes the call."""
    state: Any = None
    """The `state` that the app passed to the run."""


_CURRENT: ContextVar[RunContext] = ContextVar("promptools_run_context")


def bind_context(work: Callable[[], Any], context: RunContext) -> Callable[[], Any]:
    """Return a function that runs `work`. Within it, functions wrapped by `without_context` receive `context`."""

    def run() -> Any:
        token = _CURRENT.set(context)
        try:
            return work()
        finally:
            _CURRENT.reset(token)

    return run


def without_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that has a `RunContext` parameter, so that the model does not see this parameter.

    The wrapper passes the context that `bind_context` set. A function without such a parameter is returned unchanged.
    """
    parameter_of_context = _find_parameter(function)
    if parameter_of_context is None:
        return function
    signature, name = parameter_of_context
    kept = [parameter for parameter in signature.parameters.values() if parameter.name != name]
    positional = [parameter.name for parameter in kept if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def run(*values: Any, **arguments: Any) -> Any:
        return function(**dict(zip(positional, values, strict=False)), **arguments, **{name: _CURRENT.get()})

    plain: Any = run
    plain.__signature__ = signature.replace(parameters=kept)
    plain.__annotations__ = {key: hint for key, hint in _hints(function).items() if key != name}
    return run


def _find_parameter(function: Callable[..., Any]) -> tuple[inspect.Signature, str] | None:
    if isinstance(function, type):
        return None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    hints = _hints(function)
    for name in signature.parameters:
        if hints.get(name) in (RunContext, "RunContext"):
            resolved = [
                parameter.replace(annotation=hints.get(key, parameter.annotation))
                for key, parameter in signature.parameters.items()
            ]
            return signature.replace(parameters=resolved), name
    return None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, resolved to types where possible."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return dict(getattr(function, "__annotations__", {}))


Dispatch: TypeAlias = "Mapping[str, Callable[..., Any]] | Callable[[str, dict[str, Any]], Any]"
"""Runs the tools that are given as dicts: either a mapping from tool names to functions, which get the arguments as
keywords, or one function that takes `(name, arguments)`."""
AgentToolLike: TypeAlias = "ToolLike | AgentTool | Toolset"
"""A tool that an agent accepts: a function, a tool dict that `dispatch` runs, an `AgentTool` or a `Toolset`."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The value that `approve` returns to reject a call. The call is not run; the model reads `words` as the error."""

    words: str = "the user does not allow this call; find another way, or answer without it"


@dataclass(frozen=True, slots=True)
class Change:
    """The value that `approve` returns to run a call with other arguments. The model is told about the change."""

    arguments: Mapping[str, Any]


Approve: TypeAlias = "Callable[[Call], Change | Deny | Awaitable[Change | Deny | None] | None]"
"""A function that is called before each call that can be run. It returns None to allow the call, a `Change` to run the
call with other arguments, or a `Deny` to reject it. In an async run it may be async."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call with the function that runs it or, if the call must not be run, with its result."""

    call: Call
    work: Callable[[], Any] | None
    """The function that runs the call. If it is None, the call is not run, and `result` is its result."""
    result: Result | None = None
    parallel: bool = False
    """Whether the call may run at the same time as others."""


class Toolbox:
    """An agent's tools, each with the function that runs it. Raises `UsageError` for a tool without a function.

    `discovered` holds tools that the model was trained on, from `read_discovered_tools`. A tool that matches one of
    them is declared under the discovered name. A discovered tool that matches no tool of the app is offered if
    `dispatch` can run it; if not, it is listed in `not_offered`. `approve` is called before each call is run.
    """

    def __init__(
        self,
        tools: Iterable[AgentToolLike],
        dispatch: Dispatch | None = None,
        discovered: Sequence[Tool] = (),
        approve: Approve | None = None,
    ) -> None:
        self._approve = approve
        given = list(tools)
        sets = [entry for entry in given if isinstance(entry, Toolset)]
        listed = [_without_context(entry) for entry in _members(given)]
        prepared = Tools([entry.tool if isinstance(entry, AgentTool) else entry for entry in listed])
        known = KnownTools(prepared)
        if discovered:
            known = with_discovered(prepared, discovered, lambda tool: _is_dispatched(tool.name, dispatch))
        self.tools = known.tools
        self.not_offered = tuple(tool.name for tool in known.left_out)
        self.namespaces = {name: text for toolset in sets for name, text in toolset.namespaces.items()}
        self.instructions = "\n\n".join(filter(None, (toolset.instructions for toolset in sets)))
        listed += known.added
        own_names = [*prepared.names, *(tool.name for tool in known.added)]
        declared = list(zip(self.tools.names, own_names, listed, strict=True))
        self.own_names = {name: own for name, own, _ in declared}
        """Maps each name that the model sees (a tool's declared name) to the name that the app gave the tool."""
        self._parallel = {name for name, _, entry in declared if isinstance(entry, AgentTool) and entry.parallel}
        self._runners = {name: _runner(own, entry, dispatch) for name, own, entry in declared}

    def payloads(self, *, marks: bool) -> list[dict[str, Any]]:
        """Return the tools as they are written in the `tools` field of a request.

        If `marks` is true, a tool about which promptools has facts of its own, such as aliases, also gets a key with
        these facts. promptools' clients read this key, and never send it to a server.
        """
        payloads = self.tools.to_openai()
        if not marks:
            return payloads
        return [
            {**payload, MARKS_KEY: own} if (own := marks_of(tool)) else payload
            for tool, payload in zip(self.tools, payloads, strict=True)
        ]

    def parameters(self, name: str) -> frozenset[str]:
        """Return the names of the arguments that a tool accepts, from its schema and from its function's parameters.

        The function's parameters are included because gpt-oss passes some arguments that were not declared (`timeout`,
        `line_numbers`).
        """
        declared: Any = next(tool for tool in self.tools if tool.name == name).parameters.get("properties") or {}
        try:
            taken = [*inspect.signature(self._runners[name]).parameters.values()]
        except (TypeError, ValueError):
            taken = []
        return frozenset(declared) | {entry.name for entry in taken if entry.kind is not entry.VAR_KEYWORD}

    def prepare_call(self, call_id: str, name: str, arguments_json: str) -> PreparedCall:
        """Parse a call; return it with a function that runs it, or with an error result if it cannot be run."""
        match = self.tools.find(name)
        if match is None:
            known = ", ".join(self.tools.names) or "none"
            message = f"Error: there is no tool {name!r}. The tools are: {known}."
            return _not_run(_call(call_id, name, {}, arguments_json), message)
        tool, fix = match
        fixes = (fix,) if fix else ()
        try:
            arguments: Any = json.loads(arguments_json or "{}")
        except (ValueError, RecursionError) as error:
            message = f"Error: the arguments are not JSON ({error}). Call {tool.name!r} again with valid JSON."
            return _not_run(_call(call_id, tool.name, {}, arguments_json, fixes), message)
        if not isinstance(arguments, dict):
            message = f"Error: the arguments must be a JSON object, not {type(arguments).__name__}."
            return _not_run(_call(call_id, tool.name, {}, arguments_json, fixes), message)
        checked = self.tools.check(tool, cast("dict[str, Any]", arguments))
        call = _call(call_id, tool.name, checked.arguments, arguments_json, (*fixes, *checked.fixes))
        if checked.errors:
            return _not_run(call, "Error: the arguments do not fit. " + " ".join(checked.errors))
        run = self._runners[tool.name]
        if self._approve is not None:
            return PreparedCall(call, lambda: self._run_approved(tool, call))
        return PreparedCall(call, lambda: run(**checked.arguments), parallel=tool.name in self._parallel)

    def _run_approved(self, tool: Tool, call: Call) -> Any:
        """Ask `approve` about a call, and run the call if it is allowed. `approve` is called for one call at a time."""
        assert self._approve is not None
        decided = self._approve(call)
        if not inspect.isawaitable(decided):
            return self._run_decided(tool, call, decided)
        context = copy_context()  # the copy keeps the `RunContext`, which is unbound before the answer arrives

        async def run() -> Any:
            import anyio.to_thread

            decision = await decided
            # in a thread, like calls that need no approval, because a sync tool would block the event loop
            value = await anyio.to_thread.run_sync(lambda: context.run(self._run_decided, tool, call, decision))
            return await value if inspect.isawaitable(value) else value

        return run()

    def _run_decided(self, tool: Tool, call: Call, decided: Change | Deny | None) -> Any:
        run = self._runners[tool.name]
        if isinstance(decided, Deny):
            raise PermissionError(decided.words)
        if decided is None:
            return run(**call.arguments)
        checked = self.tools.check(tool, dict(decided.arguments))
        if checked.errors:
            raise ValueError(f"the changed arguments do not fit. {' '.join(checked.errors)}")
        note = f"[the call was changed before it was run: {json.dumps(checked.arguments, ensure_ascii=False)}]\n"
        value = run(**checked.arguments)
        if not inspect.isawaitable(value):
            return _with_note(value, note)

        async def noted() -> Any:
            return _with_note(await value, note)

        return noted()


def _with_note(value: Any, note: str) -> Any:
    """Return a tool's value, preceded by a note for the model."""
    if isinstance(value, ToolOutput):
        return ToolOutput(note + value.text, value.images)
    return note + (value if isinstance(value, str) else _to_json_text(value))


def success_result(call: Call, value: Any) -> Result:
    """Build the result of a tool from its return value: a string or a `ToolOutput` unchanged, anything else as JSON."""
    if isinstance(value, ToolOutput):
        return Result(call.id, call.name, value.text, images=value.images)
    return Result(call.id, call.name, value if isinstance(value, str) else _to_json_text(value))


def exception_result(call: Call, error: Exception) -> Result:
    """Build the result of a call whose tool raised `error`.

    The result is an error result. But if the exception has an `observation`, this text becomes a normal result.
    """
    observation: object = getattr(error, "observation", "")
    if observation and isinstance(observation, str):
        return Result(call.id, call.name, observation)
    return error_result(call, f"Error: {type(error).__name__}: {error}")


def error_result(call: Call, message: str) -> Result:
    """Build the result of a call that failed, or was not run."""
    return Result(call.id, call.name, message, is_error=True)


def _members(given: list[AgentToolLike]) -> Iterator[ToolLike | AgentTool]:
    """Yield the tools; each toolset is replaced by its members."""
    for entry in given:
        if isinstance(entry, Toolset):
            yield from entry.tools
        else:
            yield entry


def _without_context(entry: ToolLike | AgentTool) -> ToolLike | AgentTool:
    if isinstance(entry, AgentTool):
        return AgentTool(entry.tool, without_context(entry.run), entry.parallel)
    return without_context(entry) if callable(entry) else entry


def _is_dispatched(name: str, dispatch: Dispatch | None) -> bool:
    return callable(dispatch) or name in (dispatch or {})


def _runner(name: str, entry: ToolLike | AgentTool, dispatch: Dispatch | None) -> Callable[..., Any]:
    """Return the function that runs a tool.

    If `dispatch` maps names to functions, the mapped function takes precedence over the tool's own function. If
    `dispatch` is a function, it runs only the tools that have no function of their own.
    """
    own = entry.run if isinstance(entry, AgentTool) else entry if callable(entry) else None
    if callable(dispatch):
        return _bind_name(dispatch, name) if own is None else _convert_arguments(own)
    function = (dispatch or {}).get(name)
    function = own if function is None else without_context(function)
    if function is None:
        raise UsageError(f"tool {name!r} has nothing to run; give a Python function, or name it in dispatch=")
    return _convert_arguments(function)


def _not_run(call: Call, message: str) -> PreparedCall:
    return PreparedCall(call, None, error_result(call, message))


def _call(call_id: str, name: str, arguments: dict[str, Any], text: str, fixes: tuple[Fix, ...] = ()) -> Call:
    arguments_json = json.dumps(arguments, ensure_ascii=False) if fixes else text
    return Call(call_id, name, arguments, arguments_json, fixes, Span(0, 0), "native")


def _bind_name(dispatch: Callable[[str, dict[str, Any]], Any], name: str) -> Callable[..., Any]:
    def run(**arguments: Any) -> Any:
        return dispatch(name, arguments)

    return run


def _convert_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that pydantic converts its JSON arguments to the types of its hints (models, dates, ...).

    A function without hints, or with hints that pydantic cannot handle, is returned unchanged.
    """
    if isinstance(function, type) or not _has_hints(function):
        return function
    import pydantic

    try:
        return pydantic.validate_call(config={"arbitrary_types_allowed": True})(function)
    except (pydantic.PydanticUserError, NameError, TypeError):
        return function


def _has_hints(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.annotation is not inspect.Parameter.empty for parameter in parameters)


def _to_json_text(value: Any) -> str:
    from pydantic_core import to_json

    return to_json(value, fallback=str).decode()
