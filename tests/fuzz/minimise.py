"""Make a finding small: leave out characters, cuts, tools and options while the same property still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from fuzz.check import Failure, Input, failures
from fuzz.inputs import ReplyInput
from fuzz.properties import ABOUT_THE_TEXT

TRIES: Final = 1_500
"""Executions that one finding is worth."""


def minimised(given: Input, found: Failure, tries: int = TRIES) -> Input:
    """Return a small input for which the same property fails; the answers of a server stay as they are."""
    return _small(given, found, tries) if isinstance(given, ReplyInput) else given


def _small(given: ReplyInput, found: Failure, tries: int) -> ReplyInput:
    left = [tries]

    def still(smaller: ReplyInput) -> bool:
        left[0] -= 1
        return left[0] >= 0 and any(failure.key == found.key for failure in failures(smaller))

    about_the_text = found.name in ABOUT_THE_TEXT or found.name == "raises"
    if about_the_text:
        bare = replace(given, rendered=(), damage="any", mutations=())
        if still(bare):
            given = bare
            given = _fewer_options(given, still)
            given = replace(given, text=_shorter(given, still))
    given = _fewer_cuts(given, still)
    return _fewer_tools(given, still) if about_the_text else given


def _shorter(given: ReplyInput, still: Callable[[ReplyInput], bool]) -> str:
    """Leave out ever smaller runs of characters."""
    text = given.text
    size = len(text) // 2
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            cuts = _moved(given.cuts, at, size)
            if still(replace(given, text=shorter, cuts=cuts)):
                text, given = shorter, replace(given, cuts=cuts)
            else:
                at += size
        size //= 2
    return text


def _moved(cuts: tuple[int, ...], at: int, size: int) -> tuple[int, ...]:
    return tuple(sorted({cut if cut <= at else max(at, cut - size) for cut in cuts}))


def _fewer_cuts(given: ReplyInput, still: Callable[[ReplyInput], bool]) -> ReplyInput:
    for cuts in ((), *((cut,) for cut in given.cuts)):
        if len(cuts) < len(given.cuts) and still(replace(given, cuts=cuts)):
            return replace(given, cuts=cuts)
    return given


def _fewer_options(given: ReplyInput, still: Callable[[ReplyInput], bool]) -> ReplyInput:
    for key in sorted(given.options):
        fewer = replace(given, options={other: each for other, each in given.options.items() if other != key})
        if still(fewer):
            given = fewer
    if given.finish_reason is not None and still(replace(given, finish_reason=None)):
        given = replace(given, finish_reason=None)
    return given


def _fewer_tools(given: ReplyInput, still: Callable[[ReplyInput], bool]) -> ReplyInput:
    at = 0
    while given.tools and at < len(given.tools):
        fewer = replace(given, tools=given.tools[:at] + given.tools[at + 1 :])
        if still(fewer):
            given = fewer
        else:
            at += 1
    for tools in _simpler(given.tools):
        if still(replace(given, tools=tools)):
            return replace(given, tools=tools)
    return given


def _simpler(tools: list[dict[str, Any]] | None) -> Iterator[list[dict[str, Any]]]:
    for schema in ({"type": "object"}, {"type": "object", "properties": {}}):
        yield [{**tool, "parameters": schema} for tool in tools or ()]
