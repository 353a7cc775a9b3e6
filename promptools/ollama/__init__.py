"""The `ollama` package, adapted to send its requests through promptools.

Use `from promptools import ollama` instead of `import ollama`.

`Client` and `AsyncClient` are promptools' classes; everything else comes from the installed package. The functions
(`chat`, `list`, ...) are methods of one client, which is created when one of them is first accessed.
"""

from __future__ import annotations

from functools import cache

import ollama as _ollama

from promptools.ollama.ollama_clients import AsyncClient as AsyncClient
from promptools.ollama.ollama_clients import Client as Client

__all__ = list(_ollama.__all__)  # pyright: ignore[reportUnsupportedDunderAll] - the stub has the names


@cache
def _default() -> Client:
    """Return the client that the module's functions use."""
    return Client()


def __getattr__(name: str) -> object:
    theirs: object = getattr(_ollama, name, None)
    if theirs is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # the package's functions are methods of a client that it creates on import
    return getattr(_default(), name) if isinstance(getattr(theirs, "__self__", None), _ollama.Client) else theirs


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_ollama)})
