"""The other names of tools: those that models were trained on, mapped to the tools that an app declares.

A tool's own name always takes precedence. So another name is not used if it is a declared tool's, however that is
spelled, and not if two tools have it: which of them is meant could not be known.
"""

from __future__ import annotations

from collections.abc import Sequence

from promptools.errors import UsageError, clip
from promptools.schema.fitting.spelling import fold_name
from promptools.types import Tool


class OtherNames:
    """The other names of the tools of one request."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.by_name: dict[str, str] = {}
        """Each other name that is used, with the name of its tool."""
        self._folded: dict[str, str] = {}
        self._ambiguous: dict[str, list[str]] = {}
        given = [(other, tool.name) for tool in tools for other in tool.names if other != tool.name]
        if given:
            self._fill(given, {fold_name(tool.name): tool.name for tool in tools})

    def _fill(self, given: Sequence[tuple[str, str]], declared: dict[str, str]) -> None:
        tools_of: dict[str, list[str]] = {}
        for other, name in given:
            tools_of.setdefault(other, []).append(name)
        for other, names in tools_of.items():
            owner = declared.get(fold_name(other))
            if owner is not None and names != [owner]:
                continue
            if len(names) > 1:
                self._ambiguous[other] = names
            else:
                self.by_name[other] = names[0]
        targets: dict[str, set[str]] = {}
        for other, name in self.by_name.items():
            targets.setdefault(fold_name(other), set()).add(name)
        self._folded = {key: names.pop() for key, names in targets.items() if len(names) == 1}

    def find(self, name: str) -> str | None:
        """Return the name of the tool that has this other name, exactly or in another spelling."""
        return self.by_name.get(name) or (self._folded.get(fold_name(name)) if self._folded else None)

    def reject_ambiguous(self) -> None:
        """Raise UsageError if two tools have the same other name."""
        for other, names in self._ambiguous.items():
            raise UsageError(
                f"The other name {clip(other)!r} is given to {' and '.join(map(repr, names))}; give it to one tool."
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the names that two tools have."""
        return tuple(
            f"the other name {other!r} is not used: {' and '.join(map(repr, names))} have it"
            for other, names in self._ambiguous.items()
        )
