"""Tools with the Python functions that run them: each call leads to a result for the model, whatever fails."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from promptools.errors import UsageError
from promptools.schema import Tools
from promptools.types import Call, Result, Span

if TYPE_CHECKING:
    from promptools.schema import ToolLike
    from promptools.types import Fix

Dispatch: TypeAlias = "Mapping[str, Callable[..., Any]] | Callable[[str, dict[str, Any]], Any]"
"""Functions by tool name (called with the arguments as keywords), or one function of `(name, arguments)`."""


class Toolbox:
    """Tools prepared once, each with its function; raises `UsageError` for a tool without one."""

    def __init__(self, tools: Iterable[ToolLike], dispatch: Dispatch | None = None) -> None:
        listed = list(tools)
        self.tools = Tools(listed)
        self._functions = {
            tool.name: original for tool, original in zip(self.tools, listed, strict=True) if callable(original)
        }
        self._dispatch = dispatch
        self._runners: dict[str, Callable[..., Any]] = {}
        for name in self.tools.names:
            self._runners[name] = self._runner(name)

    def _runner(self, name: str) -> Callable[..., Any]:
        dispatch, own = self._dispatch, self._functions.get(name)
        if callable(dispatch):
            return _bind_name(dispatch, name) if own is None else _convert_arguments(own)
        function = (dispatch or {}).get(name, own)
        if function is None:
            raise UsageError(f"tool {name!r} has nothing to run; give a Python function, or name it in dispatch=")
        return _convert_arguments(function)

    def prepare_call(self, call_id: str, name: str, arguments_json: str) -> tuple[Call, Callable[[], Any] | Result]:
        """Parse a call; return it with a function that runs it, or with the error result where it cannot be run."""
        match = self.tools.find(name)
        if match is None:
            known = ", ".join(self.tools.names) or "none"
            message = f"Error: there is no tool {name!r}. The tools are: {known}."
            return _call(call_id, name, {}, arguments_json), Result(call_id, name, message, is_error=True)
        tool, fix = match
        fixes = (fix,) if fix else ()
        try:
            arguments: Any = json.loads(arguments_json or "{}")
        except (ValueError, RecursionError) as error:
            message = f"Error: the arguments are no JSON ({error}). Call {tool.name!r} again with valid JSON."
            return _call(call_id, tool.name, {}, arguments_json, fixes), _error_result(call_id, tool.name, message)
        if not isinstance(arguments, dict):
            message = f"Error: the arguments must be a JSON object, not {type(arguments).__name__}."
            return _call(call_id, tool.name, {}, arguments_json, fixes), _error_result(call_id, tool.name, message)
        checked = self.tools.check(tool, cast("dict[str, Any]", arguments))
        call = _call(call_id, tool.name, checked.arguments, arguments_json, (*fixes, *checked.fixes))
        if checked.errors:
            message = "Error: the arguments do not fit. " + " ".join(checked.errors)
            return call, _error_result(call_id, tool.name, message)
        return call, lambda: self._runners[tool.name](**checked.arguments)


def success_result(call: Call, value: Any) -> Result:
    """Build the result of a tool's return value: a string as it is, anything else as JSON."""
    return Result(call.id, call.name, value if isinstance(value, str) else _to_json_text(value))


def exception_result(call: Call, error: Exception) -> Result:
    """Build the result of a tool's exception."""
    return _error_result(call.id, call.name, f"Error: {type(error).__name__}: {error}")


def _error_result(call_id: str, name: str, message: str) -> Result:
    return Result(call_id, name, message, is_error=True)


def _call(call_id: str, name: str, arguments: dict[str, Any], text: str, fixes: tuple[Fix, ...] = ()) -> Call:
    arguments_json = json.dumps(arguments, ensure_ascii=False) if fixes else text
    return Call(call_id, name, arguments, arguments_json, fixes, Span(0, 0), "native")


def _bind_name(dispatch: Callable[[str, dict[str, Any]], Any], name: str) -> Callable[..., Any]:
    def run(**arguments: Any) -> Any:
        return dispatch(name, arguments)

    return run


def _convert_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that pydantic converts JSON to the types of its hints (models, dates, ...), if it can."""
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
