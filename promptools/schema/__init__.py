"""Prepare tools and their JSON Schemas once; then use them to rename, validate and coerce the arguments of calls.

Tools are read (`tool_definition`) and prepared (`tools`, `prepared_tool`). Their schemas are JSON Schema documents of
any draft, which are read (`documents`), normalized (`normalize`), and linked along `$ref` (`graph`). A call is then
adapted to its tool: variant spellings of names and keys are matched (`spelling`), arguments are checked against the
schema (`predicates`, `validate`), and types are converted (`coerce`). `relax` simplifies schemas for weak servers.

The submodules are imported only when a name in `__all__` is first used, because text can be parsed without tools.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.schema.prepared_tool import Checked
    from promptools.schema.relax import relaxed
    from promptools.schema.tool_definition import ToolLike
    from promptools.schema.tools import Tools

__all__ = ["Checked", "ToolLike", "Tools", "relaxed"]

_HOMES = {"Checked": "prepared_tool", "ToolLike": "tool_definition", "Tools": "tools", "relaxed": "relax"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(_import_module(f"promptools.schema.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
