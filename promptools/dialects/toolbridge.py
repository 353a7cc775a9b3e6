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
"""Characters of white space between elements."""
LOOK = 2048
"""Characters that are read in one step."""
_LOST = Fix("closer", f"no {CLOSER!r}")


def _begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether the tag of an offered tool follows the wrapper's opening tag."""
    tag = text.find("<", start + len(OPENER))
    if tag < 0 or tag >= end:
        return None if end == len(text) else False
    return element_begins(text, tag, end, fresh=fresh, rules=rules)


class ToolbridgeCandidate(Undecided):
    """Elements in the wrapper, one after the other, and its closing tag."""

    def __init__(self, head: str, rules: Rules, place: Place, *, firm: bool) -> None:
        begin = head.index("<", len(OPENER))
        super().__init__(firm=firm, head=head[:begin])
        self._rules = rules
        self._place = place
        self._done: list[Part] = []
        self._inner: ElementCandidate | None = self._element(head[begin:])
        self._behind = ""
        """The text after the last element."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        for at in range(start, len(piece), LOOK):
            part = piece[at : at + LOOK]
            if self._drive(part):
                return at + len(part)
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._drive("", final=True, reason=finish_reason)

    def _element(self, tag: str) -> ElementCandidate:
        return ElementCandidate("", tag, self._rules, self._place, firm=self.firm)

    def _drive(self, text: str, *, final: bool = False, reason: str | None = None) -> bool:
        """Read text; return whether the candidate is decided."""
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
            another = self._look(final=final)
            if another is None or not another:
                return another is not None
            text = self._behind
            self._behind = ""

    def _look(self, *, final: bool) -> bool | None:
        """Read what follows an element: True if another one begins, False at the end, None if more text is needed."""
        behind = self._behind
        following = _NEXT.match(behind)
        if following is not None and following["closer"] is not None:
            self._done.append(Part("markup", following[0]))
            self._end(behind[following.end() :], None)
            return False
        begins: bool | None = False
        if following is not None:
            start = following.start("tag")
            begins = element_begins(behind, start, following.end(), fresh=True, rules=self._rules)
            if begins:
                self._done += [Part("markup", behind[:start])] if start else []
                self._inner = self._element(following["tag"])
                self._behind = behind[following.end() :]
                return True
        bare = behind.lstrip()
        if not final and (begins is None or (not bare and len(behind) < SPACE) or bare in _CUT):
            return None
        self._end(behind, _LOST)
        return False

    def _end(self, rest: str, fix: Fix | None) -> None:
        """Decide; `rest` does not belong to the candidate."""
        self.rest = rest
        if not (self._done or self._gone):
            self.parts = [Part("text", self.head)]
            return
        if fix is not None:
            note(reversed(self._done), fix)
        self.parts = [*([Part("markup", self.head)] if self.head else []), *self._done]
        sent = [*self._gone, *self.parts]
        self.tries = [tried(self._place.dialect, size_of(sent), sent)]


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
        """Read from the content after the first element's tag."""
        return ToolbridgeCandidate(head, rules, place, firm=firm)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them; see `ToolNameXml`."""
        return f"{OPENER}\n{super().render_calls(calls)}\n{CLOSER}"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
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
