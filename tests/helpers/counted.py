"""Work that is counted instead of timed: the functions that run, ours and the interpreter's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

_compiler: Any = vars(re)["_compiler"]
_compile = _compiler.compile


def functions_called(run: Callable[[], object]) -> int:
    """Count the functions that `run` calls, except those that compile patterns, which is done once."""
    count = 0

    def counted(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    def compile_uncounted(*given: Any) -> Any:
        sys.setprofile(None)
        try:
            return _compile(*given)
        finally:
            sys.setprofile(counted)

    before = sys.getprofile()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_compiler, "compile", compile_uncounted)
        sys.setprofile(counted)
        try:
            run()
        finally:
            sys.setprofile(before)
    return count
