"""The states outside reasoning: prose, the first word of a line, code, and what follows a call.

`prose` searches the text for the next marker. The marker and the text before it decide what comes next:

    head of a dialect    a candidate (`candidates.py`), unless the head's text or the text before it rules that out
    header of a message  the rest of the reply goes to `MessageRouter`
    backticks            inline code or a fence; closed code that holds no call is skipped as a whole
    tag, token, closer   handled by `tags.py`

A tool's name that begins a line may be a call, so `first_word` looks at the first word of each line; `at_line_start` is
set where such a word is expected. Text at the end that may become a marker is held back.

After a call (`after_call`), a result that the model makes up ends the reply: the result and all text after it are left
out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from promptools.dialects.calls.resolve import malformed_call
from promptools.engine.candidates import check_head, open_candidate
from promptools.engine.mention import CONTEXT, is_mentioned
from promptools.engine.state import RUNS, Decision, ParserState, Progress, StateName, as_decision
from promptools.engine.tags import handle_tag
from promptools.errors import clip
from promptools.parsing.parts import NEED_MORE, SPACE, NeedMore, Part
from promptools.parsing.scanner import MarkerScanner
from promptools.patterns import lazy_pattern
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.dialects.contract import Head

# The states inside Markdown code, inline and fenced.
#
# Code is text: no marker in it begins a call, except in a fence that holds calls and nothing else, since models wrap
# calls in ```json blocks. So two places in a fence may begin a call: the first word after the opening backticks
# (`_enter_fence`) and the first word after another call (`after_fenced_call`). Anything else there makes the rest of
# the fence code (`fenced_code`). The opening backticks are kept in `fence_markup` until that is decided: they are
# markup around a call, and text around code.
#
# Inline code ends with its line, since a lone backtick is common in prose. Only code that begins with the head of a
# call is searched to its end in the same paragraph. If the code is a call and nothing else, the call is quoted
# (`_quoted_call_end`); but if the code is the whole reply, the call is meant.
#
# A run of backticks at the end of the text is held back, because the next chunk may make it longer.


_HEAD = lazy_pattern(r"(?:`{3,}|~{3,})[ \t]{0,16}[\w.+#-]{0,32}[ \t]{0,16}(?:\r?\n)?\s{0,256}")
_GAP = lazy_pattern(r"[\s,;]{0,256}")
_MARGIN = lazy_pattern(r"[ \t\r]{0,16}(?:\n[ \t]{0,16})?")
_EMPTY_LINE = lazy_pattern(r"\n[ \t]*\r?\n")
"""Matches an empty line. It ends a paragraph, and any inline code in the paragraph."""
_UNFINISHED = lazy_pattern(r"(?:\n[ \t]*+\r?|(?<!`)`++)\Z")
"""Matches characters at the end of the text that may be part of the end of inline code."""
_BODY_ENDS = ("}", "]", ")", ">")
MAX_QUOTED_CALL = 4096
"""Maximum number of characters in which to search for the end of inline code that spans several lines.

The end is needed to find out whether the code is a quoted call.
"""
MAX_SPACE_AFTER = 256
_SPACE_AFTER = lazy_pattern(rf"\s{{0,{MAX_SPACE_AFTER}}}")
MAX_RUN = 64
"""A run of this many backticks or tildes, or more, is text and does not open a fence."""


def enter_code(state: ParserState, match: re.Match[str], final: bool) -> Progress:
    """Enter the inline code or the fence that begins with the backticks or tildes at the match."""
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
    # Qwen2.5-Coder's template asks for `<tool_call>`, and the model writes a ```json fence.
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
    """Enter inline code after the run of backticks at `text[start]`, or skip the code if it is a quoted call."""
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
    """Return the end of the inline code at `text[at]` if the code has several lines and is a call; else None.

    Returns `NEED_MORE` if only more text can tell.
    """
    if state.levels is not None or state.options.strictness == "lenient":
        return None
    margin = _MARGIN.match(text, at)
    assert margin is not None
    inside = margin.end()
    if not state.code.searched:
        head = _find_head_in_code(state, text, inside, final) if inside < len(text) or final else NEED_MORE
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
    """Return the run of backticks that closes the inline code at `text[at]`; None if there is none before `limit`."""
    runs = state.code.run_pattern.finditer(text, at, limit)
    return next((run for run in runs if len(run[0]) == state.code.run_length and run.end() < limit), None)


def _enter_fence(state: ParserState, text: str, start: int, at: int, final: bool) -> Progress:
    """Start to read a call if one may begin at `text[at]` inside a fence; otherwise begin code there.

    `text[start:at]` is the opener of the fence, or the gap after an earlier call in the fence.
    """
    markup = state.code.fence_markup = [Part("markup", text[start:at])] if at > start else []
    head = _find_head_in_code(state, text, at, final)
    if head is NEED_MORE:
        state.code.fence_markup = []
        return state.hold(start)
    if head is not None:
        group, end = head
        return open_candidate(state, group, text, at, end)
    _begin_code(state, markup)
    return at


def _find_head_in_code(state: ParserState, text: str, at: int, final: bool) -> tuple[str, int] | NeedMore | None:
    """Return the scanner's regex group and the end of the text that begins a call at `text[at]` inside code.

    Return None if no call begins there, `NEED_MORE` if only more text can tell.
    """
    for group, end in heads_at(state, text, at):
        ready = check_head(state, group, text, at, end, final)
        if ready is not False:
            return NEED_MORE if ready is NEED_MORE else (group, end)
    held = not final and state.tool_scanners.full.before_text.hold_from(text, at) == at
    return NEED_MORE if held else None


def heads_at(state: ParserState, text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield the scanner's regex group and the end of each head (beginning of a call) at `text[at]` in a fence."""
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
    """Write a run of backticks or tildes as text, even if it comes in several chunks; then go to state `following`."""
    state.code.after_run = following
    state.next = "in_run"
    return in_run(state, text, at, _final=False)


def in_run(state: ParserState, text: str, at: int, _final: bool) -> Progress:
    """Write the rest of a run of backticks or tildes as text."""
    run = state.code.run_pattern.match(text, at)
    end = run.end() if run is not None else at
    state.out.add_text(text[at:end])
    if end < len(text):
        state.next = state.code.after_run
    return end


def inline_code(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Write inline code up to the closing run, or up to the end of the line.

    The closing run has as many backticks as the opening run.
    """
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
    """Write fenced code up to the closing run, which has at least as many backticks or tildes as the opening run."""
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
    """Read what follows a call inside a fence: another call, or the closing backticks; anything else is code."""
    gap = _GAP.match(text, at)
    assert gap is not None
    inside, closers = gap.end(), state.plan.closers
    if inside == len(text):
        if not final:
            return state.hold(at)
        state.out.add_discarded(text[at:], "markup")
        return inside
    closer = next((literal for literal in closers if text.startswith(literal, inside)), "")
    if closer and not any(heads_at(state, text, inside)):  # the closer of a wrapper around all calls
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


# The states outside code: prose, the first word of a line, and what follows a call.


_INLINE = lazy_pattern(r"(?:(`{1,2})(?!`)[^`\n]*\1(?!`)(?!\Z)(?:[ ,.;:(){}]*+(?=`))?+){1,64}")
"""Matches one or more pieces of inline code.

The characters between the pieces, such as commas, cannot begin a marker in that position.
"""
_PLAIN_FENCE = lazy_pattern(r"(`{3,63}+|~{3,63}+)[\w.+#-]{0,32}\r?\n([\w#/@$(][^`~]*+)?\1(?![`~]|\Z)")
"""Matches a whole code fence. A fence whose first word cannot begin a call is skipped in one step."""
SWEEP_MINIMUM = 1024
"""Length of a text above which each run of `prose` resumes the previous run's search of the same text.

In a text up to this length, each run begins a new search.
"""
MAX_UNFINISHED_CLOSER = 256
"""The maximum length of an unfinished closer at the end of a reply, with the white space before the closer."""
_TAGS = r"(?:\s*+<[^<>]{0,128}(?:>|\Z)){1,8}"
_GIVEN = r"(?:\s\w{1,32}=[\"'][^<>]{1,128}+)?"
_WORD = rf"\s*+(?:function c?a?l{{0,2}}|(?:function\s++)?[^\s<>`]{{1,128}}+{_GIVEN})?"
_OPENER = lazy_pattern(
    rf"<[|｜][^\s<>]{{4,64}}\Z"
    rf"|(?:<{{1,2}}[^\s<>]{{4,64}}(?: function)?{_GIVEN}>{{1,2}}|\[[^\s\[\]]{{4,64}}\]|\]<\])"
    rf"(?:{_WORD}{_TAGS}){{0,8}}{_WORD}\s*+(?:`{{1,3}}\w{{0,16}}\s*+)?\Z"
)
"""Matches the end of a truncated text if this end counts as the beginning of a call.

The match must begin with a whole tag, or with a special token that may be cut off. A name and more tags may follow.

`function` is not a name if a name follows: `<tool_call>function get_weather` (Step-Audio 2), `<tool: function>` (CWM).
"""
_LAST_NAME = lazy_pattern(r"[\w-]{1,128}\Z")
TRUNCATED = "cut"
"""Takes the place of the scanner's regex group for a call that was truncated before its dialect was clear."""
_COMMENT = lazy_pattern(r"[ \t]{0,16}+(#[^\n]{0,256}+(?:\n|\Z))?+")
"""Matches a Python comment after a call: `[ping()]  # why`."""
_SEPARATOR = lazy_pattern(r"[,;]\s{0,256}(?:(?=[{\[])|\Z)")


class _Beginning(NamedTuple):
    """A possible call, or a message, that begins at a marker.

    `group` is the scanner's regex group of the marker, or `TRUNCATED`. `ready` is `NEED_MORE` if only more text can
    tell whether the call or message begins there.
    """

    group: str
    start: int
    end: int
    ready: Decision


def prose(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Write text up to the next marker, and handle the marker."""
    if state.at_line_start:
        return first_word(state, text, at, final)
    begin = at
    scanner, later = _choose_scanners(state, text)
    held = scanner
    search = _choose_search(state, scanner, later, text)
    while True:
        match = search(text, at)
        if match is None:
            cut = len(text) if final else held.hold_from(text, begin)
            _write_tail(state, text[begin:cut], final)
            return cut if cut == len(text) else state.hold(cut)
        start = match.start()
        first = at == begin and not text[begin:start].strip(SPACE)
        scanner = scanner if first else later
        if _begins_head(state, match.lastgroup or ""):
            beginning = _find_head(state, match, scanner, text, final, first=first)
            if beginning is not None and beginning.ready is NEED_MORE:  # a longer marker may begin earlier
                start = min(start, held.hold_from(text, begin))
                state.out.add_text(text[begin:start])
                return state.hold(start)
            if beginning is not None:
                state.out.add_text(text[begin:start])  # this text may decide what the tokens before it are
                begin = start
                if not _is_mentioned(state, beginning.group):
                    state.out.add_text(text[start : beginning.start])
                    return _start(state, beginning.group, text, beginning.start, beginning.end)
            match = state.plan.literal_scanner.match(text, start)
        control = match is not None and match.lastgroup == "control"
        if not final and match is not None and (control or match.end() == len(text)):
            cut = held.hold_from(text, begin)  # where a longer marker may begin: `function call<|`
            if cut < start or (control and cut == start):
                state.out.add_text(text[begin:cut])
                return state.hold(cut)
        inert_end = start + 1 if match is None else _skip_inert(state, match, text, first=first)
        if match is not None and inert_end is None:
            state.out.add_text(text[begin:start])
            handle = enter_code if match.lastgroup == "ticks" else handle_tag
            return handle(state, match, final)
        assert inert_end is not None
        at = inert_end
        search = state.search.sweep_over(later, text).search


def _choose_search(
    state: ParserState, scanner: MarkerScanner, later: MarkerScanner, text: str
) -> Callable[[str, int], re.Match[str] | None]:
    """Return the function that finds the next marker.

    In a long text, this function resumes the last search of that text.
    """
    resumed, state.search.text = state.search.text is text and len(text) > SWEEP_MINIMUM, text
    if resumed:
        return state.search.sweep_over(scanner, text).search
    return scanner.search if scanner is later else partial(_first_match, scanner, later)


def _first_match(scanner: MarkerScanner, later: MarkerScanner, text: str, at: int) -> re.Match[str] | None:
    """Return the first match of either scanner.

    `later` is tried anywhere, `scanner` only at the first character after white space. Some markers count only at that
    character, so no time is spent on searching for them elsewhere.
    """
    bare = at
    while bare < len(text) and text[bare] in SPACE:
        bare += 1
    here = scanner.match(text, bare)
    if here is not None and bare == at:
        return here
    other = later.search(text, at)
    return here if here is not None and (other is None or bare <= other.start()) else other


def _begins_head(state: ParserState, group: str) -> bool:
    return group in state.plan.heads or group in state.plan.header_dialects


def _choose_scanners(state: ParserState, text: str) -> tuple[MarkerScanner, MarkerScanner]:
    """Return two scanners: one to use before the next piece of text, and one to use after it.

    White space and markup are not pieces of text.
    """
    if text is not state.search.checked_text:
        state.search.checked_text, state.search.has_rare_word = text, state.plan.rare_words.occurs_in(text)
    sought = state.tool_scanners
    now, beside, later = sought.full if state.search.has_rare_word else sought.common
    if state.out.at_start or state.out.has_group:
        return now, later
    return (beside if state.out.is_after_call else later), later


def _is_mentioned(state: ParserState, group: str) -> bool:
    """Return whether a header, or a truncated call at the end of the text, is only mentioned by the text before it.

    For any other possible call, `open_candidate` checks this.
    """
    if group in state.plan.heads:
        return False
    if state.out.in_block_quote():
        return True
    dialect = state.plan.header_dialects.get(group)
    if dialect is None or state.options.strictness == "lenient":
        return False
    expected = dialect.name == state.options.expect
    before = state.out.last_text_and_tokens(CONTEXT)
    token = before.find("<|", before.rfind("\n") + 1)  # the header's first token, where it was not yet accepted
    before = before if token < 0 else before[:token]
    return is_mentioned(before, fenced=False, sentinel=True, expected=expected)


def _skip_inert(state: ParserState, match: re.Match[str], text: str, *, first: bool) -> int | None:
    """Return the end of a match that is only text; None for any other match.

    Code without a call is only text. So is a lone closing tag that does not follow a call.
    """
    if match.lastgroup == "ticks":
        inline = match.end() - match.start() < 3
        code = _INLINE.match(text, match.start()) if inline else _match_code_fence(state, text, match.start())
        return code.end() if code is not None else None
    means = match.lastgroup != "lone" or not match[0].startswith("</") or (first and state.out.is_after_call)
    return None if means else match.end()


def _write_tail(state: ParserState, text: str, final: bool) -> None:
    """Write text that contains no marker. At the end of the reply, an unfinished closer after a call is markup."""
    rest = text.lstrip(SPACE) if final and state.out.is_after_call and len(text) < MAX_UNFINISHED_CLOSER else ""
    if len(rest) < 3 or not any(closer.startswith(rest) for closer in state.plan.closers):
        state.out.add_text(text)
        return
    state.out.add_text(text[: len(text) - len(rest)])
    state.out.add_discarded(rest, "markup")


def _match_code_fence(state: ParserState, text: str, start: int) -> re.Match[str] | None:
    """Return the match of the whole fence at `start`; None if it is unfinished, or its first word may begin a call."""
    fence = _PLAIN_FENCE.match(text, start)
    if fence is None or not fence[2]:
        return fence
    return None if any(heads_at(state, text, fence.start(2))) else fence


# --- beginnings of calls and messages --------------------------------------------------------------------------------


def _find_head(
    state: ParserState, match: re.Match[str], scanner: MarkerScanner, text: str, final: bool, *, first: bool
) -> _Beginning | None:
    """Return the possible call, or the message, that begins at the match; None if there is none."""
    start = head_at = match.start()
    heads: Iterator[tuple[str, int]]
    if text[start] == "\n":  # the line break and indent before a head
        head_at = match.end() - len(text[start : match.end()].lstrip("\n\t "))
        flush = text[head_at - 1] == "\n"
        known = state.plan.heads
        heads = (head for head in state.line_heads(text, head_at) if flush or not known[head[0]][1].unindented)
    else:
        heads = scanner.matches_from(text, match)
    for group, end in heads:
        if _begins_head(state, group):
            ready = _check_start(state, group, text, head_at, end, final, first=first)
            if ready is not False:
                return _Beginning(group, head_at, end, ready)
    if state.truncated and any(
        _is_truncated_call(state, group, text, start, end) for group, end in scanner.matches_from(text, match)
    ):
        return _Beginning(TRUNCATED, start, len(text), ready=True)
    return None


def _is_truncated_call(state: ParserState, group: str, text: str, start: int, end: int) -> bool:
    """Return whether it is certain that a truncated text was cut off in a call, before the call's arguments."""
    dialect, head = state.plan.heads.get(group, (None, None))
    if dialect is None or head is None or end < len(text) or (head.fence_labels and None not in head.fence_labels):
        return False
    if (head.tier or dialect.tier) not in "SA":
        return False
    if not _OPENER.match(text, start) and not _ends_in_tool(state, head, text, start):
        return False
    if head.begins is None:
        return True
    return as_decision(head.begins(text, start, end, fresh=True, options=state.options)) is NEED_MORE


def _ends_in_tool(state: ParserState, head: Head, text: str, start: int) -> bool:
    """Return whether `text[start:]` begins with a marker of `head` and ends with the name of an offered tool."""
    name, tools = _LAST_NAME.search(text, start), state.options.tools
    if name is None or tools is None or tools.get(name[0]) is None:
        return False
    return any(text.startswith(literal, start) and start + len(literal) <= name.start() for literal in head.literals)


def _check_start(
    state: ParserState, group: str, text: str, start: int, end: int, final: bool, *, first: bool
) -> Decision:
    """Return whether a call or a message really begins at the marker."""
    if group in state.plan.heads:
        return check_head(state, group, text, start, end, final, first=first)
    channels = state.plan.header_dialects[group].channels
    assert channels is not None
    first = first and state.out.at_start
    return as_decision(channels.begins(text, start, state.options, first=first, final=final))


def _start(state: ParserState, group: str, text: str, start: int, end: int) -> int:
    """Start to read a call, write a truncated call, or keep the rest of the text for the message router."""
    if group == TRUNCATED:
        malformed = malformed_call("truncated", "the text ended before its arguments", "", None)
        state.out.add_parts([Part("malformed", text[start:], malformed=malformed)], definite=True)
        return end
    if group in state.plan.heads:
        state.at_line_start = False
        return open_candidate(state, group, text, start, end)
    state.found_header = state.plan.header_dialects[group], text[start:]
    return len(text)


def first_word(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Start to read a call if the first word of the line begins one; otherwise continue with prose."""
    bare = state.write_space(text, at)
    if bare > at:
        return bare
    for group, end in state.line_heads(text, at):
        ready = _check_start(state, group, text, at, end, final, first=True)
        if ready is NEED_MORE:
            return state.hold(at)
        if ready:
            return _start(state, group, text, at, end)
    state.at_line_start = False
    return at


def reply_start(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Look at the start of the reply for a header whose control tokens were stripped."""
    bare = state.write_space(text, at)
    if bare > at:
        return bare
    for group, dialect in state.plan.header_dialects.items() if text[at] in state.plan.header_characters else ():
        if dialect.channels is not None and group == dialect.channels.stripped_header.group:
            ready = _check_start(state, group, text, at, at, final, first=True)
            if ready is NEED_MORE:
                return state.hold(at)
            if ready:
                return _start(state, group, text, at, at)
    state.next = "prose"
    return at


# --- after a call ----------------------------------------------------------------------------------------------------


def after_call(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Read what follows a call: a comment, a made-up result, or a separator before another call.

    Anything else is prose.
    """
    if state.comment_follows:
        comment = _COMMENT.match(text, at)
        if comment is not None and comment.end() == len(text) and not final:
            return state.hold(at)
        state.comment_follows = False
        if comment is not None and comment[1]:
            state.out.add_call_fix(Fix("marker", f"the comment {clip(comment[1].rstrip(), 40)!r} follows the call"))
            state.out.add_discarded(comment[0], "markup")
            return comment.end()
    bare = state.write_space(text, at)
    if bare > at:
        return bare
    markers = state.plan.markers
    # openclaw#70736: with tools described in the prompt only, the model goes on to invent their results.
    if text.startswith(markers.result_openers, at):
        state.next = "made_up_result"
        return at
    if not final and text[at : at + markers.longest_result_opener] in markers.result_prefixes:
        return state.hold(at)
    # Llama 3.1 joins its calls with semicolons (unsloth#5620).
    separator = _SEPARATOR.match(text, at)
    if separator is not None:
        if separator.end() == len(text) and not final:
            return state.hold(at)
        state.out.add_discarded(separator[0], "markup")
        return separator.end()
    state.next = "prose"
    state.at_line_start = True
    return at


def made_up_result(state: ParserState, text: str, at: int, _final: bool) -> Progress:
    """Drop a result that the model made up, and everything after it."""
    state.out.add_discarded(text[at:], "result")
    return len(text)
