"""Regular expressions that are compiled on first use.

There are about a hundred formats of tool calls, with several patterns each, but a reply is in only one format.
Compiling all patterns would take longer than everything else that is done for an app's first request.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_COMPILED = (
    *("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"),
    *("flags", "groupindex", "groups"),
)
"""Attributes that a pattern has only once it is compiled."""


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like that of `re.compile`, but compiled on first use.

    An error in the pattern is raised only on first use. After the first use, the pattern is as fast as a compiled
    pattern. The returned object is not an instance of `re.Pattern`: call its methods, and do not pass it to the
    functions of `re`.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _Pattern:
    """A pattern whose methods become those of the compiled pattern, so that calling them costs nothing extra."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._given_flags = flags

    def __reduce__(self) -> tuple[Any, ...]:
        return lazy_pattern, (self.pattern, self._given_flags)


class _LazyPattern(_Pattern):
    """A pattern that has not been compiled. If two threads need it at the same time, both compile it; that is safe."""

    def __getattr__(self, name: str) -> Any:
        if name not in _COMPILED:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._given_flags)
        for each in _COMPILED:
            setattr(self, each, getattr(compiled, each))
        self.__class__ = _Pattern  # type: ignore[assignment]  # a class with `__getattr__` has slower attributes
        return getattr(compiled, name)
