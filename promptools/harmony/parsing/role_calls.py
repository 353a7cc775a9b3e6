"""Calls with the tool in place of the role: only their last token tells them from the tool's result.

    <|start|>get_weather<|channel|>commentary<|message|>{"city": "Oslo"}<|call|>

A result has a recipient, `to=assistant`, and ends with `<|end|>`; only the assistant writes `<|call|>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from promptools.errors import clip
from promptools.harmony.parsing.header import IsTool
from promptools.harmony.parsing.message_machine import ContentChunk, HarmonyEnd, HarmonyStart, Item


class RoleCallDetector:
    """Holds back a message of an offered tool without a recipient, and makes it a call if it ends like one."""

    def __init__(self, known: IsTool | None) -> None:
        self._known = known
        self._held: list[Item] = []

    def feed(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items that are certain. O(n) in their number."""
        for item in items:
            if self._held:
                self._held.append(item)
                if isinstance(item, HarmonyEnd):
                    yield from self._resolve(item)
            elif isinstance(item, HarmonyStart) and self._may_call(item):
                self._held.append(item)
            else:
                yield item

    def close(self) -> Iterator[Item]:
        """Yield what is held back: no token ended it."""
        yield from self._held
        self._held = []

    def _may_call(self, begin: HarmonyStart) -> bool:
        header = begin.header
        return header.role == "tool" and not header.recipient and (self._known is None or self._known(header.name))

    def _resolve(self, finish: HarmonyEnd) -> Iterator[Item]:
        begin, *rest = self._held
        self._held = []
        assert isinstance(begin, HarmonyStart)
        content = next((item.raw.lstrip() for item in rest if isinstance(item, ContentChunk) and item.raw.strip()), "")
        if finish.reason == "call" and content.startswith("{"):
            header = begin.header
            repair = f"the tool {clip(header.name, 60)!r} in the role's place"
            called = replace(
                header, role="assistant", name="", recipient=header.name, repairs=(*header.repairs, repair)
            )
            begin = HarmonyStart(called, begin.raw)
        yield begin
        yield from rest
