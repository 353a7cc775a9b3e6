"""ToolBridge: elements named after tools, in a wrapper that makes them certain.

    <toolbridge_calls>
    <get_weather>
    <city>Oslo</city>
    </get_weather>
    </toolbridge_calls>

Source: Oct4Pie/toolbridge (2025), a proxy that asks any model so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from promptools.dialects.base import Head, Tier, tried
from promptools.dialects.fields.elements import ElementCandidate
from promptools.dialects.openings import then
from promptools.dialects.settle import Place, Rules
from promptools.dialects.tool_name_xml import ELEMENT, ToolNameXml, element_begins
from promptools.parsing.parts import Candidate, Part, Undecided, note, size_of
from promptools.types import Call, Fix, Result

OPENER, CLOSER = "<toolbridge_calls>", "</toolbridge_calls>"
_NEXT: Final = re.compile(rf"\s{{0,256}}+(?:(?P<closer>{CLOSER})|(?P<tag>{ELEMENT}))")
_CUT: Final = frozenset(CLOSER[:size] for size in range(1, len(CLOSER)))
SPACE = 256
"""White space between elements, in characters."""
LOOK = 2048
"""Characters that are looked at together."""
_LOST = Fix("closer", f"no {CLOSER!r}")


def _begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Tell whether an offered tool's tag stands behind the wrapper's opener."""
    tag = text.find("<", start + len(OPENER))
    if tag < 0 or tag >= end:
        return None if end == len(text) else False
    return element_begins(text, tag, end, fresh=fresh, rules=rules)


class ToolbridgeCandidate(Undecided):
    """Elements in the wrapper, one behind the other, and its closer."""

    def __init__(self, head: str, rules: Rules, place: Place, *, firm: bool) -> None:
        begin = head.index("<", len(OPENER))
        super().__init__(firm=firm, head=head[:begin])
        self._rules = rules
        self._place = place
        self._done: list[Part] = []
        self._inner: ElementCandidate | None = self._element(head[begin:])
        self._behind = ""
        """What stands behind the last element."""

    def feed(self, piece: str, start: int) -> int | None:
        """Take more text; see `Candidate`."""
        for at in range(start, len(piece), LOOK):
            part = piece[at : at + LOOK]
            if self._drive(part):
                return at + len(part)
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide: the text is over."""
        self._drive("", final=True, reason=finish_reason)

    def _element(self, tag: str) -> ElementCandidate:
        return ElementCandidate("", tag, self._rules, self._place, firm=self.firm)

    def _drive(self, text: str, *, final: bool = False, reason: str | None = None) -> bool:
        """Take text; tell whether all is decided."""
        while True:
            if self._inner is not None:
                inner = self._inner
                end = inner.feed(text, 0)
                if end is None and final:
                    inner.close(reason)
                if inner.live and self._done:
                    self._let_go(self._done)
                    self._done = []
                self.live += inner.live
                inner.live = []
                if end is None and not final:
                    return False
                text = inner.rest + text[end:] if end is not None else inner.rest
                self.tries += inner.tries
                if any(part.kind == "text" for part in inner.parts):
                    self._end("".join(part.raw for part in inner.parts) + text, _LOST)
                    return True
                self._done += inner.parts
                self._inner = None
            self._behind += text
            moved = self._look(final=final)
            if moved is None or not moved:
                return moved is not None
            text = self._behind
            self._behind = ""

    def _look(self, *, final: bool) -> bool | None:
        """Look behind an element: true if another one begins, false if that was all, None if more must tell."""
        behind = self._behind
        found = _NEXT.match(behind)
        if found is not None and found["closer"] is not None:
            self._done.append(Part("markup", found[0]))
            self._end(behind[found.end() :], None)
            return False
        begins: bool | None = False
        if found is not None:
            place = found.start("tag")
            begins = element_begins(behind, place, found.end(), fresh=True, rules=self._rules)
            if begins:
                self._done += [Part("markup", behind[:place])] if place else []
                self._inner = self._element(found["tag"])
                self._behind = behind[found.end() :]
                return True
        bare = behind.lstrip()
        if not final and (begins is None or (not bare and len(behind) < SPACE) or bare in _CUT):
            return None
        self._end(behind, _LOST)
        return False

    def _end(self, rest: str, fix: Fix | None) -> None:
        """Decide: what is left is no part of it."""
        self.rest = rest
        if not (self._done or self._gone):
            self.parts = [Part("text", self.head)]
            return
        if fix is not None:
            note(reversed(self._done), fix)
        self.parts = [*([Part("markup", self.head)] if self.head else []), *self._done]
        told = [*self._gone, *self.parts]
        self.tries = [tried(self._place.dialect, size_of(told), told)]


class ToolBridge(ToolNameXml):
    """`<toolbridge_calls>` around elements named after tools."""

    name = "toolbridge"
    models = "any model behind ToolBridge"
    tier: Tier = "A"
    heads = (
        Head(
            (OPENER,),
            then(re.escape(OPENER), r"\s{0,64}+", ELEMENT),
            opens="<",
            begins=_begins,
        ),
    )
    closers = (CLOSER, OPENER)
    stop = ("<toolbridge_result>",)

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Start behind the first element's tag."""
        return ToolbridgeCandidate(head, rules, place, firm=firm)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls as the model would have; see `ToolNameXml`."""
        return f"{OPENER}\n{super().render_calls(calls)}\n{CLOSER}"

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return "\n".join(
            f"<toolbridge_result>\n{result.name}:\n{result.content}\n</toolbridge_result>" for result in results
        )

    def _form(self) -> str:
        return f"""To use a tool, end your message with this, and nothing after it:

{OPENER}
<tool name>
<parameter name>its value</parameter name>
</tool name>
{CLOSER}

Write values as they are, nothing escaped; lists and objects as JSON."""
