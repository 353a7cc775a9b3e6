"""The states inside Markdown code, inline and fenced.

Code is text: no marker in it begins a call, except in a fence that holds calls and nothing else, since models wrap
calls in ```json blocks. So two places in a fence may begin a call: the first word after the opening backticks
(`_enter_fence`) and the first word after another call (`after_fenced_call`). Anything else there makes the rest of the
fence code (`fenced_code`). The opening backticks are kept in `fence_markup` until that is decided: they are markup
around a call, and text around code.

Inline code ends with its line, since a lone backtick is common in prose. Only where it begins with the head of a call
is it searched to its end in the same paragraph: if it is a call and nothing else, it is quoted (`_quoted_call_end`).
If it is the whole reply, the call is meant.

A run of backticks at the end of the text is held back, because the next chunk may make it longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from promptools.engine.state import RUNS, ParserState, Progress, StateName
from promptools.engine.states.candidates import check_head, open_candidate
from promptools.parsing.parts import NEED_MORE, NeedMore, Part
from promptools.patterns import lazy_pattern

_HEAD = lazy_pattern(r"(?:`{3,}|~{3,})[ \t]{0,16}[\w.+#-]{0,32}[ \t]{0,16}(?:\r?\n)?\s{0,256}")
_GAP = lazy_pattern(r"[\s,;]{0,256}")
_MARGIN = lazy_pattern(r"[ \t\r]{0,16}(?:\n[ \t]{0,16})?")
_EMPTY_LINE = lazy_pattern(r"\n[ \t]*\r?\n")
"""The end of a paragraph, and of inline code."""
_UNFINISHED = lazy_pattern(r"(?:\n[ \t]*+\r?|(?<!`)`++)\Z")
"""What may become the end of inline code."""
_BODY_ENDS = ("}", "]", ")", ">")
MAX_QUOTED_CALL = 4096
"""Characters of inline code over several lines that are searched for its end, to see whether it is a quoted call."""
MAX_SPACE_AFTER = 256
_SPACE_AFTER = lazy_pattern(rf"\s{{0,{MAX_SPACE_AFTER}}}")
MAX_RUN = 64
"""Most backticks or tildes of a fence: a longer run is text."""


def enter_code(state: ParserState, match: re.Match[str], final: bool) -> Progress:
    """Enter inline code or a fence."""
    text, (start, end), code = match.string, match.span(), state.code
    code.run_pattern = RUNS[text[start]]
    if end - start >= MAX_RUN:
        return _skip_run(state, text, start, "prose")
    if end == len(text) and not final:
        return state.hold(start)
    code.run_length = end - start
    if code.run_length < 3:
        code.searched = 0
        return inline_start(state, text, start, final)
    head = _HEAD.match(text, start)
    assert head is not None
    inside = head.end()
    if inside == len(text):
        if not final:
            return state.hold(start)
        if state.out.is_after_call:  # a closing fence whose opener was lost
            state.out.add_discarded(text[start:], "markup")
        else:
            state.out.add_text(text[start:])
        return inside
    code.at_fence_start = state.out.at_start
    code.fence_label = text[end:inside].strip().lower()
    return _enter_fence(state, text, start, inside, final)


def inline_start(state: ParserState, text: str, start: int, final: bool) -> Progress:
    """Enter inline code after the run that begins at `text[start]`, or skip it if it is a quoted call."""
    end = start + state.code.run_length
    quoted_end = _quoted_call_end(state, text, end, final)
    if quoted_end is NEED_MORE:
        state.next = "inline_start"
        return state.hold(start)
    state.next = "inline_code" if quoted_end is None else "prose"
    end = end if quoted_end is None else quoted_end
    state.out.add_text(text[start:end])
    return end


def _quoted_call_end(state: ParserState, text: str, at: int, final: bool) -> Progress | None:
    """Return the end of the inline code at `text[at]` if it has several lines and is a call; None: it is not."""
    if state.levels is not None or state.rules.strictness == "lenient":
        return None
    margin = _MARGIN.match(text, at)
    assert margin is not None
    inside = margin.end()
    if not state.code.searched:
        head = _find_head(state, text, inside, final) if inside < len(text) or final else NEED_MORE
        if head is None or head is NEED_MORE:
            return head
    begin, limit = at + state.code.searched, at + MAX_QUOTED_CALL
    run = _closing_run(state, text, begin, limit)
    code_end = len(text) if run is None else run.start()
    if _EMPTY_LINE.search(text, begin, min(code_end, limit)):
        return None
    unfinished = _UNFINISHED.search(text, begin, code_end)
    state.code.searched = (code_end if unfinished is None else unfinished.start()) - at
    if run is None:
        return None if final or len(text) >= limit else NEED_MORE
    if run.end() == len(text) and not final:
        return NEED_MORE
    if "\n" not in text[at:code_end]:
        return None
    if state.out.at_start:
        space = _SPACE_AFTER.match(text, run.end())
        assert space is not None
        if space.end() == len(text) and len(space[0]) < MAX_SPACE_AFTER:
            return None if final else NEED_MORE  # the whole reply in backticks is a call
    code = text[inside:code_end].rstrip()
    if not code.endswith((*_BODY_ENDS, *state.plan.closers)):
        return None
    parsed = state.parse_standalone(state, code, "length")
    is_call = (parsed.has_calls or parsed.has_malformed) and not (parsed.has_text or parsed.has_truncated)
    return run.end() if is_call else None


def _closing_run(state: ParserState, text: str, at: int, limit: int) -> re.Match[str] | None:
    """Return the run before `limit` that closes the inline code at `text[at]`."""
    runs = state.code.run_pattern.finditer(text, at, limit)
    return next((run for run in runs if len(run[0]) == state.code.run_length and run.end() < limit), None)


def _enter_fence(state: ParserState, text: str, start: int, at: int, final: bool) -> Progress:
    """Start a candidate at `text[at]` inside a fence, after the markup `text[start:at]`; else the fence is code."""
    markup = state.code.fence_markup = [Part("markup", text[start:at])] if at > start else []
    head = _find_head(state, text, at, final)
    if head is NEED_MORE:
        state.code.fence_markup = []
        return state.hold(start)
    if head is not None:
        group, end = head
        return open_candidate(state, group, text, at, end)
    _begin_code(state, markup)
    return at


def _find_head(state: ParserState, text: str, at: int, final: bool) -> tuple[str, int] | NeedMore | None:
    """Return the group and end of the head of a call at `text[at]` inside code; None: none is there."""
    for group, end in heads_at(state, text, at):
        ready = check_head(state, group, text, at, end, final)
        if ready is not False:
            return NEED_MORE if ready is NEED_MORE else (group, end)
    held = not final and state.tool_scanners.full.before_text.hold_from(text, at) == at
    return NEED_MORE if held else None


def heads_at(state: ParserState, text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield the group and end of each head that may begin at `text[at]` inside a fence."""
    scanner, heads = state.tool_scanners.full.before_text, state.plan.heads
    match = scanner.match(text, at) or scanner.match_letters(text, at)
    if match is not None:
        yield from ((group, end) for group, end in scanner.matches_from(text, match) if group in heads)
    yield from state.plan.line_heads.match(text, at, in_code=True)


def _begin_code(state: ParserState, markup: list[Part]) -> None:
    for part in markup:
        state.out.add_text(part.raw)
    state.code.fence_markup = []
    state.next = "fenced_code"


def _skip_run(state: ParserState, text: str, at: int, following: StateName) -> Progress:
    """Skip a run that opens or closes nothing more, in however many chunks it comes, and go on in `following`."""
    state.code.after_run = following
    state.next = "in_run"
    return in_run(state, text, at, _final=False)


def in_run(state: ParserState, text: str, at: int, _final: bool) -> Progress:
    """Write the rest of a run."""
    run = state.code.run_pattern.match(text, at)
    end = run.end() if run is not None else at
    state.out.add_text(text[at:end])
    if end < len(text):
        state.next = state.code.after_run
    return end


def inline_code(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Stay in inline code until the same run of backticks, or the end of the line."""
    begin, length = at, state.code.run_length
    while True:
        newline = text.find("\n", at)
        run = state.code.run_pattern.search(text, at)
        if run is None or 0 <= newline < run.start():
            end = newline if newline >= 0 else len(text)
            state.out.add_text(text[begin:end])
            if newline >= 0:
                state.next = "prose"
            return end
        if len(run[0]) > length:
            state.out.add_text(text[begin : run.start()])
            return _skip_run(state, text, run.start(), "inline_code")
        if run.end() == len(text) and not final:
            state.out.add_text(text[begin : run.start()])
            return state.hold(run.start())
        at = run.end()
        if len(run[0]) == length:
            state.out.add_text(text[begin:at])
            state.next = "prose"
            return at


def fenced_code(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Stay in fenced code until a run of at least as many backticks."""
    begin = at
    while True:
        run = state.code.run_pattern.search(text, at)
        if run is None:
            state.out.add_text(text[begin:])
            return len(text)
        if len(run[0]) >= state.code.run_length:
            state.out.add_text(text[begin : run.start()])
            return _skip_run(state, text, run.start(), "prose")
        if run.end() == len(text) and not final:
            state.out.add_text(text[begin : run.start()])
            return state.hold(run.start())
        at = run.end()


def after_fenced_call(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """After a call inside a fence: another one, or the closing backticks; anything else is code."""
    gap = _GAP.match(text, at)
    assert gap is not None
    inside, closers = gap.end(), state.plan.closers
    if inside == len(text):
        if not final:
            return state.hold(at)
        state.out.add_discarded(text[at:], "markup")
        return inside
    closer = next((literal for literal in closers if text.startswith(literal, inside)), "")
    if closer and not any(heads_at(state, text, inside)):  # of a wrapper around all calls
        state.out.add_discarded(text[at : inside + len(closer)], "markup")
        return inside + len(closer)
    left = len(text) - inside
    if not final and any(left < len(literal) and literal.startswith(text[inside:]) for literal in closers):
        return state.hold(at)
    run = state.code.run_pattern.match(text, inside)
    if run is not None:
        if run.end() == len(text) and not final and len(run[0]) < MAX_RUN:
            return state.hold(at)
        if len(run[0]) >= state.code.run_length:
            state.out.add_discarded(text[at : run.end()], "markup")
            state.next = "prose"
            return run.end()
    if text[inside] in state.plan.head_characters or any(state.plan.line_heads.match(text, inside, in_code=True)):
        return _enter_fence(state, text, at, inside, final)
    _begin_code(state, [])
    return at
