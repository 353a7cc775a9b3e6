"""Tools and their JSON Schemas: prepared once, then arguments are named, checked and coerced by them."""

from promptools.schema.read import ToolLike
from promptools.schema.relax import relaxed
from promptools.schema.tools import Checked, Tools

__all__ = ["Checked", "ToolLike", "Tools", "relaxed"]
