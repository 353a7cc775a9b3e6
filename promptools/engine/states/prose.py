"""The states outside code and reasoning: prose, the first word of a line, and what follows a call.

`prose` searches the text for the next marker and decides, by what the marker is and by what precedes it:

    head of a dialect    a candidate (`candidates.py`), unless its text or the text before it shows that it is none
    header of a message  the rest of the reply goes to the parser for channels
    backticks            inline code or a fence (`code.py`); closed code that holds no call is skipped at once
    tag, token, closer   as `tags.py` says

A tool's name that begins a line may be a call, so `first_word` looks at the first word of each line;
`at_line_start` is set where one is expected. The end of the text that may become a marker is held back.

After a call (`after_call`), a result that the model makes up ends the reply: it and all that follows are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from promptools.dialects.calls.resolve import malformed_call
from promptools.engine.mention import CONTEXT, is_mentioned
from promptools.engine.state import Decision, ParserState, Progress, as_decision
from promptools.engine.states.candidates import check_head, open_candidate
from promptools.engine.states.code import enter_code, heads_at
from promptools.engine.states.tags import handle_tag
from promptools.errors import clip
from promptools.parsing.parts import NEED_MORE, SPACE, Part
from promptools.parsing.scanner import MarkerScanner
from promptools.patterns import lazy_pattern
from promptools.types import Fix

_INLINE = lazy_pattern(r"(?:(`{1,2})(?!`)[^`\n]*\1(?!`)(?!\Z)(?:[ ,.;:(){}]*+(?=`))?+){1,64}")
"""Inline code, several in a row if only characters that begin no marker are between them."""
_PLAIN_FENCE = lazy_pattern(r"(`{3,63}+|~{3,63}+)[\w.+#-]{0,32}\r?\n([\w#/@$(][^`~]*+)?\1(?![`~]|\Z)")
"""A whole code fence, to be skipped at once if it begins no call."""
SWEEP_MINIMUM = 1024
"""Characters of a text short enough to be searched to its end from each call."""
MAX_UNFINISHED_CLOSER = 256
"""Characters of an unfinished closer, and of white space before it, at the end of a reply."""
_TAGS = r"(?:\s*+<[^<>]{0,128}(?:>|\Z)){1,8}"
_GIVEN = r"(?:\s\w{1,32}=[\"'][^<>]{1,128}+)?"
_WORD = rf"\s*+(?:function c?a?l{{0,2}}|(?:function\s++)?[^\s<>`]{{1,128}}+{_GIVEN})?"
_OPENER = lazy_pattern(
    rf"<[|｜][^\s<>]{{4,64}}\Z"
    rf"|(?:<{{1,2}}[^\s<>]{{4,64}}(?: function)?{_GIVEN}>{{1,2}}|\[[^\s\[\]]{{4,64}}\]|\]<\])"
    rf"(?:{_WORD}{_TAGS}){{0,8}}{_WORD}\s*+(?:`{{1,3}}\w{{0,16}}\s*+)?\Z"
)
"""What a truncated text must contain of a call: a whole tag, or a token, and after it no more words than a name.

`function` is no name where one follows: `<tool_call>function get_weather` (Step-Audio 2), `<tool: function>` (CWM).
"""
TRUNCATED = "cut"
"""In place of a head's group: a call of some dialect, truncated before it was clear which."""
_COMMENT = lazy_pattern(r"[ \t]{0,16}+(#[^\n]{0,256}+(?:\n|\Z))?+")
"""A comment of Python after a call: `[ping()]  # why`."""
_SEPARATOR = lazy_pattern(r"[,;]\s{0,256}(?:(?=[{\[])|\Z)")


class _Beginning(NamedTuple):
    """What begins at a marker: a candidate or a message, by the group of its head or header."""

    group: str
    start: int
    end: int
    ready: Decision


def prose(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Write text up to the next marker, and act on that."""
    if state.at_line_start:
        return first_word(state, text, at, final)
    begin = at
    scanner, later = _choose_scanners(state, text)
    held = scanner
    resumed, state.search.text = state.search.text is text and len(text) > SWEEP_MINIMUM, text
    search = state.search.sweep_over(scanner, text).search if resumed else scanner.search
    while True:
        known = resumed or at > begin or scanner is later
        match = search(text, at) if known else _first_match(scanner, later, text, at)
        if match is None:
            cut = len(text) if final else held.hold_from(text, begin)
            _write_tail(state, text[begin:cut], final)
            return cut if cut == len(text) else state.hold(cut)
        start = match.start()
        first = at == begin and not text[begin:start].strip(SPACE)
        scanner = scanner if first else later
        if _begins_head(state, match.lastgroup or ""):
            beginning = _find_head(state, match, scanner, text, final, first=first)
            if beginning is not None and beginning.ready is NEED_MORE:  # a longer marker may begin before it
                start = min(start, held.hold_from(text, begin))
                state.out.add_text(text[begin:start])
                return state.hold(start)
            if beginning is not None:
                state.out.add_text(text[begin:start])  # it may decide what the tokens before it are
                begin = start
                if not _is_mentioned(state, beginning.group):
                    state.out.add_text(text[start : beginning.start])
                    return _start(state, beginning.group, text, beginning.start, beginning.end)
            match = state.plan.literal_scanner.match(text, start)
        control = match is not None and match.lastgroup == "control"
        if not final and match is not None and (control or match.end() == len(text)):
            cut = held.hold_from(text, begin)  # of a marker that this may be a part of, as of `function call<|`
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


def _first_match(scanner: MarkerScanner, later: MarkerScanner, text: str, at: int) -> re.Match[str] | None:
    """Return the first match in text before which there is none yet.

    Only at the first character may be a marker that counts there alone; after it, no time is lost by looking for those.
    """
    bare = at
    while bare < len(text) and text[bare] in SPACE:
        bare += 1
    here = scanner.match(text, bare)
    other = later.search(text, at)
    return here if here is not None and (other is None or bare <= other.start()) else other


def _begins_head(state: ParserState, group: str) -> bool:
    return group in state.plan.heads or group in state.plan.header_dialects


def _choose_scanners(state: ParserState, text: str) -> tuple[MarkerScanner, MarkerScanner]:
    """Return the scanner for now, and the one for after the next text."""
    if text is not state.search.checked_text:
        state.search.checked_text, state.search.has_rare_word = text, state.plan.rare_words.occurs_in(text)
    sought = state.tool_scanners
    now, beside, later = sought.full if state.search.has_rare_word else sought.common
    if state.out.at_start or state.out.has_group:
        return now, later
    return (beside if state.out.is_after_call else later), later


def _is_mentioned(state: ParserState, group: str) -> bool:
    """Return whether the text before a header, or before half a call that ends the reply, shows that it is mentioned.

    Any other candidate is judged when it is opened.
    """
    if group in state.plan.heads:
        return False
    if state.out.in_block_quote():
        return True
    dialect = state.plan.header_dialects.get(group)
    if dialect is None or state.rules.strictness == "lenient":
        return False
    expected = dialect.name == state.rules.expect
    before = state.out.last_text_and_tokens(CONTEXT)
    token = before.find("<|", before.rfind("\n") + 1)  # of this header, which was not accepted at its first token
    before = before if token < 0 else before[:token]
    return is_mentioned(before, fenced=False, sentinel=True, expected=expected)


def _skip_inert(state: ParserState, match: re.Match[str], text: str, *, first: bool) -> int | None:
    """Return the offset after code or a lone closer that means nothing here; None: it has a meaning."""
    if match.lastgroup == "ticks":
        inline = match.end() - match.start() < 3
        code = _INLINE.match(text, match.start()) if inline else _match_code_fence(state, text, match.start())
        return code.end() if code is not None else None
    means = match.lastgroup != "lone" or not match[0].startswith("</") or (first and state.out.is_after_call)
    return None if means else match.end()


def _write_tail(state: ParserState, text: str, final: bool) -> None:
    """Write text without a marker; an unfinished closer beside a call, at the end of the reply, is markup."""
    rest = text.lstrip(SPACE) if final and state.out.is_after_call and len(text) < MAX_UNFINISHED_CLOSER else ""
    if len(rest) < 3 or not any(closer.startswith(rest) for closer in state.plan.closers):
        state.out.add_text(text)
        return
    state.out.add_text(text[: len(text) - len(rest)])
    state.out.add_discarded(rest, "markup")


def _match_code_fence(state: ParserState, text: str, start: int) -> re.Match[str] | None:
    """Return the match of the whole fence that begins here, if its first word cannot begin a call."""
    fence = _PLAIN_FENCE.match(text, start)
    if fence is None or not fence[2]:
        return fence
    return None if any(heads_at(state, text, fence.start(2))) else fence


# --- beginnings of calls and messages --------------------------------------------------------------------------------


def _find_head(
    state: ParserState, match: re.Match[str], scanner: MarkerScanner, text: str, final: bool, *, first: bool
) -> _Beginning | None:
    """Return what begins at the match, if anything does."""
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
    """Return whether a truncated text ends in the sure beginning of a call."""
    dialect, head = state.plan.heads.get(group, (None, None))
    if dialect is None or head is None or end < len(text) or (head.fence_labels and None not in head.fence_labels):
        return False
    if (head.tier or dialect.tier) not in "SA" or not _OPENER.match(text, start):
        return False
    if head.begins is None:
        return True
    return as_decision(head.begins(text, start, end, fresh=True, rules=state.rules)) is NEED_MORE


def _check_start(
    state: ParserState, group: str, text: str, start: int, end: int, final: bool, *, first: bool
) -> Decision:
    """Return whether a call or a message begins here, as the marker suggests."""
    if group in state.plan.heads:
        return check_head(state, group, text, start, end, final, first=first)
    channels = state.plan.header_dialects[group].channels
    assert channels is not None
    first = first and state.out.at_start
    return as_decision(channels.begins(text, start, state.rules, first=first, final=final))


def _start(state: ParserState, group: str, text: str, start: int, end: int) -> int:
    """Start a candidate, or leave the rest of the text to the parser of messages with headers."""
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
    """Start a candidate if the first word of the line begins a call; else go on in prose."""
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
    """At the start of the reply: look for a header whose control tokens were stripped."""
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
    """After a call: a made-up result, a separator before the next call, or prose."""
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
    for opener in state.plan.markers.result_openers:
        if text.startswith(opener, at):
            state.next = "made_up_result"
            return at
        if not final and len(text) - at < len(opener) and opener.startswith(text[at:]):
            return state.hold(at)
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
    """Leave out a result that the model made up, and all that follows it."""
    state.out.add_discarded(text[at:], "result")
    return len(text)
