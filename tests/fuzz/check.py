"""Try every property on one input: the first that does not hold, or nothing."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fuzz import answers, properties
from fuzz.inputs import ReplyInput
from fuzz.upstream import ExchangeInput
from promptools import __file__ as init

PACKAGE = Path(init).parent

Input: TypeAlias = ReplyInput | ExchangeInput


class Failure(NamedTuple):
    """One property that does not hold for an input."""

    name: str
    """Its name; `raises` where the parser raised, whatever was tried."""
    why: str
    place: str = ""
    """Where the parser raised."""

    @property
    def key(self) -> tuple[str, str]:
        """What failures of one kind share."""
        return self.name, self.place


def failures(given: Input) -> Iterator[Failure]:
    """Yield each property that does not hold. Once something raised, nothing else is tried."""
    tried: Any
    tried, all_of = (
        (properties.Parsed(given), properties.PROPERTIES)
        if isinstance(given, ReplyInput)
        else (answers.Answered(given), answers.PROPERTIES)
    )
    for holds in all_of:
        try:
            holds(tried)
        except Exception as error:  # noqa: BLE001 - whatever is raised is what is looked for
            found = failure(error, holds.__name__)
            yield found
            if found.name == "raises":
                return


def failure(error: Exception, name: str) -> Failure:
    """Return what an exception says: that a property does not hold, or that the library raised."""
    frames = traceback.extract_tb(error.__traceback__)
    raised = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    inside = isinstance(error, AssertionError) and (not raised or raised[-1] is not frames[-1])
    if inside:
        return Failure(name, str(error))
    place = f"{Path(raised[-1].filename).relative_to(PACKAGE).as_posix()}:{raised[-1].name}" if raised else ""
    return Failure("raises", f"{type(error).__name__}: {error}"[:300], f"{type(error).__name__} in {place}")
