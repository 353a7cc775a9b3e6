"""Tools for testing apps: a scripted server, assertions on calls, recorded replies as test parameters, snapshots.

`plugin` is a pytest plugin. pytest loads it automatically if promptools is installed. It provides the fixtures
`scripted_server` and `reply_snapshot`. Importing this package loads no large library.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.testing.call_assertions import assert_calls
    from promptools.testing.corpus import assert_same_reading, recorded
    from promptools.testing.scripted_server import HttpAnswer, ModelReply, ScriptedServer, calls_as_text, http_error

__all__ = [
    "HttpAnswer",
    "ModelReply",
    "ScriptedServer",
    "assert_calls",
    "assert_same_reading",
    "calls_as_text",
    "http_error",
    "recorded",
]

_MODULES = {
    "HttpAnswer": "scripted_server",
    "ModelReply": "scripted_server",
    "ScriptedServer": "scripted_server",
    "assert_calls": "call_assertions",
    "assert_same_reading": "corpus",
    "calls_as_text": "scripted_server",
    "http_error": "scripted_server",
    "recorded": "corpus",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
