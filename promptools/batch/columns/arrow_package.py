"""pyarrow, which is loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from promptools.errors import UsageError


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow, or a module of it; raise `UsageError` if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"columns and Parquet need pyarrow: pip install 'promptools-compat[parquet]' ({error})"
        ) from None
