"""The settings of a client, a wrapped client or a proxy. Editors and `help` show the docstrings of this module."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from promptools.modes.options import RequestOptions, option_words

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from promptools.dialects.own_dialects import GivenDialect
    from promptools.exchange import Observer
    from promptools.fallback import Breaker, Stop, WaitFor
    from promptools.profiles import Config
    from promptools.types import Reply


class ClientSettings(RequestOptions, total=False):
    """All settings except `provider`. The OpenAI clients declare it themselves: there it may be an SDK object."""

    config: Config | str | os.PathLike[str] | None
    """A config, or the path of its file (None: the first that is found; `Config()`: no config)."""
    dialects: Iterable[GivenDialect]
    """The app's own dialects, besides those of the config: paths of table files, tables, or `Dialect` objects."""
    overrides: Mapping[str, Any] | None
    """Facts about the server or model, as in a config; they take precedence over all other facts."""
    allow_provider: bool
    """Whether a request's `promptools.provider` may name another provider of the config, whose key is then used."""
    detect: bool
    """Whether to detect the kind of server on first use, if no provider names it (default: yes)."""
    breaker: Breaker | None
    """The circuit breaker, which several clients can share (None: the client has its own)."""
    stop: Stop | None
    """When to stop retrying: a `tenacity.stop_*` object, or a function of the retry state that returns a bool."""
    wait: WaitFor | None
    """How long to wait between attempts: a `tenacity.wait_*` object, or a function that returns the seconds."""
    deadline: float | None
    """Seconds that all requests to the server for one request of the app may take together."""
    attempt_timeout: float | None
    """Seconds that each request to the server, with its reply, may take."""
    max_tools: int | None
    """Maximum number of tools in one request; a request with more gets an HTTP 400 (None, or 0: no limit)."""
    max_reply: int
    """Maximum number of bytes of one reply that are buffered (default: 64 MiB); a longer reply is an error."""
    on_reply: Callable[[Reply], None] | None
    """Receives every `Reply`, including failed ones."""
    observer: Observer | Sequence[Observer] | None
    """Receives the events of every exchange, with all bodies; several observers are called in order."""


class Settings(ClientSettings, total=False):
    """Settings of a client, a wrapped client or a proxy, besides those of the SDK."""

    provider: str | None
    """The name of a provider in the config, or a kind of server, such as `vllm`."""


SETTING_NAMES = frozenset(Settings.__annotations__)


class SettingsHelp:
    """A descriptor for the `__doc__` of a class that takes settings: `text`, followed by a list of the settings.

    The list is made on demand, from the docstrings of the settings.
    """

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, instance: object, owner: type | None = None) -> str | None:
        """Return the docstring with the list of settings; None if Python drops docstrings (`-OO`).

        If the source file is missing, the list is left out.
        """
        try:
            return self.text and "\n".join((inspect.cleandoc(self.text), "", "Settings:", *_describe_settings()))
        except OSError:
            return self.text


_INDENT = " " * 4
_MEANING = textwrap.TextWrapper(100, initial_indent=2 * _INDENT, subsequent_indent=2 * _INDENT)


def _describe_settings() -> Iterator[str]:
    for kind in (Settings, ClientSettings, RequestOptions):
        (definition,) = ast.parse(inspect.getsource(kind)).body
        assert isinstance(definition, ast.ClassDef)
        for entry, docstring in pairwise(definition.body):
            match entry, docstring:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    words = option_words(name) if kind is RequestOptions else ()
                    choices = f" One of {', '.join(map(repr, words))}." if words else ""
                    yield f"{_INDENT}{name}: {ast.unparse(entry.annotation)}"
                    yield _MEANING.fill(" ".join(text.split()) + choices)
                case _:
                    pass
