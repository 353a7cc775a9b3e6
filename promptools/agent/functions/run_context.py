"""What a tool may learn of the run: a parameter annotated `RunContext` gets it, and is no argument of the model's."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.types import Call


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run, as a tool sees it."""

    call: Call
    step: int
    """The number of the reply with the call, counted from 1."""
    messages: Sequence[dict[str, Any]] = field(repr=False)
    """The conversation up to the reply with the call."""
    state: Any = None
    """What the app passed to the run."""


_CURRENT: ContextVar[RunContext] = ContextVar("promptools_run_context")


def bind_context(work: Callable[[], Any], context: RunContext) -> Callable[[], Any]:
    """Return a function that runs `work` with a context for the functions of `without_context`."""

    def run() -> Any:
        token = _CURRENT.set(context)
        try:
            return work()
        finally:
            _CURRENT.reset(token)

    return run


def without_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function without the parameter for the context, which gets the current one; others as they are."""
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
    """Return the annotations of a function, as types where they can be resolved."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return dict(getattr(function, "__annotations__", {}))
