"""Work that is counted instead of timed: the functions that run, ours and the interpreter's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def functions_called(run: Callable[[], object]) -> int:
    """Count the functions that `run` calls."""
    count = 0

    def counted(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
