"""ToolBridge: elements that are named after tools, between `<toolbridge_calls>` tags.

    <toolbridge_calls>
    <get_weather>
    <city>Oslo</city>
    </get_weather>
    </toolbridge_calls>

Source: Oct4Pie/toolbridge (2025), a proxy that asks any model for this format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head, Tier, trace_entry
from promptools.dialects.families.tool_name_xml import ELEMENT, ToolNameXml, element_begins
from promptools.dialects.prefix_patterns import sequence
from promptools.dialects.readers.element_reader import ElementReader
from promptools.parsing.parts import NEED_MORE, Candidate, CandidateBase, NeedMore, Part, add_fix, total_length
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Result

OPENER, CLOSER = "<toolbridge_calls>", "</toolbridge_calls>"
_NEXT: Final = lazy_pattern(rf"\s{{0,256}}+(?:(?P<closer>{CLOSER})|(?P<tag>{ELEMENT}))")
_CUT: Final = frozenset(CLOSER[:size] for size in range(1, len(CLOSER)))
MAX_SPACE = 256
"""The maximum number of characters of white space between elements."""
STEP_SIZE = 2048
"""Number of characters that are read in one step."""
_NO_CLOSER = Fix("closer", f"no {CLOSER!r}")


def _begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a tag named after an offered tool follows `<toolbridge_calls>`."""
    tag = text.find("<", start + len(OPENER))
    if tag < 0 or tag >= end:
        return NEED_MORE if end == len(text) else False
    return element_begins(text, tag, end, fresh=fresh, options=options)


class ToolbridgeCandidate(CandidateBase):
    """Reads the elements after `<toolbridge_calls>`, one after the other, and the closing tag."""

    def __init__(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        begin = head.index("<", len(OPENER))
        super().__init__(definite=definite, head=head[:begin])
        self._options = options
        self._evidence = evidence
        self._finished_parts: list[Part] = []
        self._inner: ElementReader | None = self._element(head[begin:])
        self._after_element = ""
        """The text after the last element."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past what was read, or None if more text is needed."""
        for at in range(start, len(piece), STEP_SIZE):
            part = piece[at : at + STEP_SIZE]
            if self._advance(part):
                return at + len(part)
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text is a call, since no more text will come."""
        self._advance("", final=True, reason=finish_reason)

    def _element(self, tag: str) -> ElementReader:
        return ElementReader("", tag, self._options, self._evidence, definite=self.definite)

    def _advance(self, text: str, *, final: bool = False, reason: str | None = None) -> bool:
        """Read text; return whether the candidate has been decided, so that its final parts are set.

        `final` says that no more text will come.
        """
        while True:
            if self._inner is not None:
                inner = self._inner
                end = inner.feed(text, 0)
                if end is None and final:
                    inner.close(reason)
                if inner.early and self._finished_parts:
                    self._emit_early(self._finished_parts)
                    self._finished_parts = []
                self.early += inner.early
                inner.early = []
                if end is None and not final:
                    return False
                text = inner.unread + text[end:] if end is not None else inner.unread
                self.tries += inner.tries
                if any(part.kind == "text" for part in inner.parts):
                    self._end("".join(part.raw for part in inner.parts) + text, _NO_CLOSER)
                    return True
                self._finished_parts += inner.parts
                self._inner = None
            self._after_element += text
            another = self._read_after_element(final=final)
            if another is NEED_MORE or not another:
                return another is not NEED_MORE
            text = self._after_element
            self._after_element = ""

    def _read_after_element(self, *, final: bool) -> bool | NeedMore:
        """Read the text after an element; return whether another element begins there."""
        behind = self._after_element
        following = _NEXT.match(behind)
        if following is not None and following["closer"] is not None:
            self._finished_parts.append(Part("markup", following[0]))
            self._end(behind[following.end() :], None)
            return False
        begins: bool | NeedMore = False
        if following is not None:
            start = following.start("tag")
            begins = element_begins(behind, start, following.end(), fresh=True, options=self._options)
            if begins:
                self._finished_parts += [Part("markup", behind[:start])] if start else []
                self._inner = self._element(following["tag"])
                self._after_element = behind[following.end() :]
                return True
        bare = behind.lstrip()
        if not final and (begins is NEED_MORE or (not bare and len(behind) < MAX_SPACE) or bare in _CUT):
            return NEED_MORE
        self._end(behind, _NO_CLOSER)
        return False

    def _end(self, rest: str, fix: Fix | None) -> None:
        """Set the final parts. `rest` is the text after them, which was not taken. `fix` is a repair, or None."""
        self.unread = rest
        if not (self._finished_parts or self._emitted):
            self.parts = [Part("text", self.head)]
            return
        if fix is not None:
            add_fix(reversed(self._finished_parts), fix)
        self.parts = [*([Part("markup", self.head)] if self.head else []), *self._finished_parts]
        sent = [*self._emitted, *self.parts]
        self.tries = [trace_entry(self._evidence.dialect, total_length(sent), sent)]


class ToolBridge(ToolNameXml):
    """The dialect of ToolBridge: `<toolbridge_calls>` around elements that are named after tools."""

    name = "toolbridge"
    models = "any model used through ToolBridge"
    tier: Tier = "A"
    heads = (
        Head(
            (OPENER,),
            sequence(re.escape(OPENER), r"\s{0,64}+", ELEMENT),
            body_starts="<",
            begins=_begins,
        ),
    )
    closers = (CLOSER, OPENER)
    stop = ("<toolbridge_result>",)
    result_openers = ("<toolbridge_result>",)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the text after `head`, which ends with the first element's opening tag."""
        return ToolbridgeCandidate(head, options, evidence, definite=definite)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them; see `ToolNameXml`."""
        return f"{OPENER}\n{super().render_calls(calls)}\n{CLOSER}"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        return "\n".join(
            f"<toolbridge_result>\n{result.name}:\n{result.content}\n</toolbridge_result>" for result in results
        )

    def _instructions(self) -> str:
        return f"""To use a tool, end your message with this, and nothing after it:

{OPENER}
<tool name>
<parameter name>its value</parameter name>
</tool name>
{CLOSER}

Write values as they are, nothing escaped; lists and objects as JSON."""
