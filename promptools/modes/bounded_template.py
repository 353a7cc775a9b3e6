"""Jinja's sandbox with limits on steps and sizes, for chat templates that come with a model.

Jinja's own sandbox does not limit the time and memory that a template uses. In this sandbox, each pass through a loop
and each macro call counts as a step. Both the steps and the sizes of values are limited. The limits are far above
what chat templates need. They apply to each rendering, which must stay in one thread.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from jinja2 import Environment, nodes
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from promptools.errors import UsageError

MAX_STEPS: Final = 100_000
"""Maximum number of steps in one rendering. Steps are passes through loops, macro calls, and items read by filters."""
MAX_SIZE: Final = 2**19
"""Maximum size, in characters or items, of a rendering and of each value that a template makes."""

_steps: ContextVar[list[int] | None] = ContextVar("promptools_template_steps", default=None)
_STEP = "promptools_step"
_TRIED = "promptools_tried"
_CONCAT = "promptools_concat"


@contextmanager
def bounds() -> Generator[None]:
    """Limit the steps of the rendering that happens inside the `with` block."""
    token = _steps.set([0])
    try:
        yield
    finally:
        _steps.reset(token)


def check_size(size: int) -> None:
    """Raise UsageError for a text or a list that is too large."""
    if size > MAX_SIZE:
        raise UsageError(f"The chat template makes a value of more than {MAX_SIZE} characters or items.")


def _count(steps: int) -> None:
    """Count steps of the current rendering; raise UsageError if there are too many."""
    counted = _steps.get()
    if counted is not None:
        counted[0] += steps
        if counted[0] > MAX_STEPS:
            raise UsageError(f"The chat template takes more than {MAX_STEPS} steps.")


def _step() -> str:
    """Count a step: a loop pass or a macro call. Return an empty string, so that nothing is added to the output."""
    _count(1)
    return ""


def _tried() -> bool:
    """Count an item of a loop before the loop's condition is evaluated; return True, so that the condition decides."""
    _count(1)
    return True


def _concat(*values: Any) -> str:
    """Join values as the template operator `~` does; raise UsageError if the result is too large."""
    texts = [str(value) for value in values]
    check_size(sum(map(len, texts)))
    return "".join(texts)


class _Counting(NodeTransformer):
    """Changes a parsed template: its loops and macros count steps, and `_concat` replaces the operator `~`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - as Jinja2 calls it
        """Count each item of a loop, including the items that the loop's condition skips."""
        self.generic_visit(node)
        node.body.insert(0, nodes.Output([self._call(_STEP, node)], lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(self._call(_TRIED, node), node.test, lineno=node.lineno)
        return node.set_environment(self._environment)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802 - as Jinja2 calls it
        """Count each call to the macro."""
        self.generic_visit(node)
        node.body.insert(0, nodes.Output([self._call(_STEP, node)], lineno=node.lineno))
        return node.set_environment(self._environment)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - as Jinja2 calls it
        """Replace the operator `~` with a call to a function that checks the size."""
        self.generic_visit(node)
        return self._call(_CONCAT, node, node.nodes)

    def _call(self, name: str, at: nodes.Node, arguments: list[nodes.Expr] | None = None) -> nodes.Call:
        function = nodes.Name(name, "load", lineno=at.lineno)
        call = nodes.Call(function, arguments or [], [], None, None, lineno=at.lineno)
        call.set_environment(self._environment)
        return call


class BoundedEnvironment(SandboxedEnvironment):
    """A sandbox for templates that counts steps in loops and macros, and checks each value that could be large.

    Templates may change lists, because the templates of Kimi K2 do so.
    """

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.globals |= {_STEP: _step, _TRIED: _tried, _CONCAT: _concat}
        self.filters = {name: _checked(function) for name, function in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        counted: nodes.Template = _Counting(self).visit(template)
        return counted

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator; raise UsageError, without applying it, if the result would be too large."""
        if operator == "*":
            check_size(_size(left) * _number(right) + _size(right) * _number(left))
        elif operator == "**":
            check_size(_number(right) if isinstance(right, int) else 0)
        elif operator == "+":
            check_size(_size(left) + _size(right))
        elif isinstance(left, str):
            check_size(len(left) + sum(map(_number, _arguments(right))))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, *args: Any, **options: Any) -> Any:
        """Call a function or a method; raise UsageError if a number in its arguments, or its result, is too large."""
        for value in (*args, *options.values()):
            check_size(_number(value))
        result = super().call(context, function, *args, **options)
        check_size(_size(result))
        return result


def _checked(function: Any) -> Any:
    """Wrap a filter so that steps are counted for its input, and large numbers and large results are refused."""

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        for value in (*args, *options.values()):
            check_size(_number(value))
            _count(_items(value))
        result = function(*args, **options)
        check_size(_size(result))
        return result

    return checked


def _size(value: Any) -> int:
    return _length(value, str, list, tuple, dict)


def _length(value: Any, *kinds: type[Any]) -> int:
    return len(value) if isinstance(value, kinds) else 0


def _items(value: Any) -> int:
    """Return the number of steps to count for a filter that processes this value."""
    return _length(value, range, list, tuple, dict) or _size(value) // 64


def _number(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


def _arguments(value: Any) -> tuple[Any, ...]:
    """Return the arguments that the operator `%` inserts into a text, as a tuple."""
    return (*value,) if _length(value, tuple) else (value,)
