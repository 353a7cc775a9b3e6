"""The states inside Markdown code, inline and fenced.

Code is text: no marker in it begins a call, except in a fence that holds calls and nothing else, since models wrap
calls in ```json blocks. So two places in a fence may begin a call: the first word after the opening backticks
(`_enter_fence`) and the first word after another call (`_after_fenced_call`). Anything else there makes the rest of the
fence code (`_fenced_code`). The opening backticks are kept in `_fence_markup` until that is decided: they are markup
around a call, and text around code.

A run of backticks at the end of the text is held back, because the next chunk may make it longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from promptools.engine.state import State, StateMachine
from promptools.parsing.parts import Part

_RUNS = {"`": re.compile(r"`+"), "~": re.compile(r"~+")}
_HEAD = re.compile(r"(?:`{3,}|~{3,})[ \t]{0,16}[\w.+#-]{0,32}[ \t]{0,16}(?:\r?\n)?\s{0,256}")
_GAP = re.compile(r"[\s,;]{0,256}")


MAX_RUN = 64
"""Most backticks or tildes of a fence: a longer run is text."""


class CodeStates(StateMachine):
    """The states inside backticks and tildes."""

    _run_length = 0
    _run_pattern = _RUNS["`"]

    def _enter_code(self, match: re.Match[str], final: bool) -> int:
        """Enter inline code or a fence."""
        text, (start, end) = match.string, match.span()
        self._run_pattern = _RUNS[text[start]]
        if end - start >= MAX_RUN:
            return self._skip_run(text, start, self._prose)
        if end == len(text) and not final:
            return ~start
        self._run_length = end - start
        if self._run_length < 3:
            self._out.add_text(text[start:end])
            self._state = self._inline_code
            return end
        head = _HEAD.match(text, start)
        assert head is not None
        inside = head.end()
        if inside == len(text):
            if not final:
                return ~start
            if self._out.is_after_call:  # a closing fence whose opener was lost
                self._mark(text[start:], "markup")
            else:
                self._out.add_text(text[start:])
            return inside
        self._at_fence_start = self._out.at_start
        self._fence_markup = [Part("markup", text[start:inside])]
        self._open_fence_label = text[end:inside].strip().lower()
        moved = self._enter_fence(text, inside, final)
        if moved == ~inside:
            self._fence_markup = []
            return ~start
        return moved

    def _enter_fence(self, text: str, at: int, final: bool) -> int:
        """Start a candidate at `text[at]` inside a fence; if none begins there, the fence is code."""
        for group, end in self._heads_at(text, at):
            ready = self._check_head(group, text, at, end, final)
            if ready is not False:
                return ~at if ready is None else self._open_candidate(group, text, at, end)
        if not final and self._tool_scanners.full.before_text.hold_from(text, at) == at:
            return ~at
        self._begin_code()
        return at

    def _heads_at(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Yield the group and end of each head that may begin at `text[at]` inside a fence."""
        match = self._tool_scanners.full.before_text.match(
            text, at
        ) or self._tool_scanners.full.before_text.match_letters(text, at)
        if match is not None:
            yield from (
                head
                for head in self._tool_scanners.full.before_text.matches_from(text, match)
                if head[0] in self._plan.heads
            )
        yield from self._plan.line_heads(text, at)

    def _begin_code(self) -> None:
        for part in self._fence_markup:
            self._out.add_text(part.raw)
        self._fence_markup = []
        self._at_fence_start = False
        self._state = self._fenced_code

    def _skip_run(self, text: str, at: int, next_state: State) -> int:
        """Skip a run that opens or closes nothing more, in however many chunks it comes, and go on to `next_state`."""
        self._after_run = next_state
        self._state = self._in_run
        return self._in_run(text, at, _final=False)

    def _in_run(self, text: str, at: int, _final: bool) -> int:
        run = self._run_pattern.match(text, at)
        end = run.end() if run is not None else at
        self._out.add_text(text[at:end])
        if end < len(text):
            self._state = self._after_run
        return end

    def _inline_code(self, text: str, at: int, final: bool) -> int:
        """Stay in inline code until the same run of backticks, or the end of the line."""
        begin = at
        while True:
            newline = text.find("\n", at)
            run = self._run_pattern.search(text, at)
            if run is None or 0 <= newline < run.start():
                end = newline if newline >= 0 else len(text)
                self._out.add_text(text[begin:end])
                if newline >= 0:
                    self._state = self._prose
                return end
            if len(run[0]) > self._run_length:
                self._out.add_text(text[begin : run.start()])
                return self._skip_run(text, run.start(), self._inline_code)
            if run.end() == len(text) and not final:
                self._out.add_text(text[begin : run.start()])
                return ~run.start()
            at = run.end()
            if len(run[0]) == self._run_length:
                self._out.add_text(text[begin:at])
                self._state = self._prose
                return at

    def _fenced_code(self, text: str, at: int, final: bool) -> int:
        """Stay in fenced code until a run of at least as many backticks."""
        begin = at
        while True:
            run = self._run_pattern.search(text, at)
            if run is None:
                self._out.add_text(text[begin:])
                return len(text)
            if len(run[0]) >= self._run_length:
                self._out.add_text(text[begin : run.start()])
                return self._skip_run(text, run.start(), self._prose)
            if run.end() == len(text) and not final:
                self._out.add_text(text[begin : run.start()])
                return ~run.start()
            at = run.end()

    def _after_fenced_call(self, text: str, at: int, final: bool) -> int:
        """After a call inside a fence: another one, or the closing backticks; anything else is code."""
        gap = _GAP.match(text, at)
        assert gap is not None
        inside = gap.end()
        if inside == len(text):
            if final:
                self._mark(text[at:], "markup")
            return inside if final else ~at
        closer = next((literal for literal in self._plan.closers if text.startswith(literal, inside)), "")
        if closer and not any(self._heads_at(text, inside)):  # of a wrapper around all calls
            self._mark(text[at : inside + len(closer)], "markup")
            return inside + len(closer)
        left = len(text) - inside
        if not final and any(left < len(each) and each.startswith(text[inside:]) for each in self._plan.closers):
            return ~at
        run = self._run_pattern.match(text, inside)
        if run is not None:
            if run.end() == len(text) and not final and len(run[0]) < MAX_RUN:
                return ~at
            if len(run[0]) >= self._run_length:
                self._mark(text[at : run.end()], "markup")
                self._state = self._prose
                return run.end()
        if text[inside] in self._plan.head_characters or any(self._plan.line_heads(text, inside)):
            self._fence_markup = [Part("markup", text[at:inside])] if inside > at else []
            moved = self._enter_fence(text, inside, final)
            if moved == ~inside:
                self._fence_markup = []
                return ~at
            return moved
        self._begin_code()
        return at
