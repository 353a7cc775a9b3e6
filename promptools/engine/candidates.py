"""Read candidates, which are texts that may be calls, and decide whether they are calls.

A head is the text with which a call of a dialect begins, such as `<tool_call>`. Where the scanner finds a head and
`check_head` accepts it, `open_candidate` starts the dialect's reader for one block of calls. The reader is fed all text
until it has decided. `_finish` writes the reader's parts, as calls or as text. The next state is `on_call` if the
candidate was a call, else `on_text`. Text that the reader read but did not take is in `state.unread`.

Context matters too. A candidate is text if it is mentioned (as the text before it shows), quoted (it occurs in the
conversation) or part of something larger (a value, a program). A `definite` candidate is a call whatever follows it.
Any other candidate is tentative: the emitter holds it in a group, and turns the group back into text if text follows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from promptools.dialects.calls.parse_options import Evidence
from promptools.dialects.contract import NAME_GATE, TAG_GATE
from promptools.engine.mention import CONTEXT, continues_program, is_mentioned
from promptools.engine.state import Decision, OpenCandidate, ParserState, Progress, as_decision
from promptools.engine.tags import apply_tag, reasoning_is_over
from promptools.parsing.parts import NEED_MORE, SPACE, Candidate, Part
from promptools.parsing.special_tokens import is_only_tokens
from promptools.patterns import lazy_pattern
from promptools.types import ParseAttempt, Span

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect, Head
    from promptools.parsing.quotable_texts import QuotableTexts


PART_OF_LARGER = "it is a part of something larger"
MENTIONED = "the text before it shows that it is talked about"
QUOTED = "it is quoted from the conversation"
MAX_STEM = 256
"""Number of characters at the beginning of a call that are compared with the texts of the conversation.

The comparison shows early whether the call may be quoted from one of these texts.
"""
NEAR_CONTEXT = 64
"""Number of characters before a call without markers to search for signs that the call is part of something larger."""
_STRUCT = lazy_pattern(r"[^\W\d_a-z]\w*[ ]?\Z")
"""Matches a type's name at the end of a text, as Rust prints it before the fields of a struct."""
_FENCE = lazy_pattern(r"\A(?:`{3,}|~{3,})[ \t]*+[\w.+#-]{0,32}+[ \t]*+\r?\n?")
_STEM = lazy_pattern(rf"[^])}}<>\n]{{0,{MAX_STEM}}}+")
"""Matches the text after a call's opener, up to the first character that may end the call."""
_EMPTY_LIST = lazy_pattern(r"\S\s*\[\s*\]")
"""Matches an empty list after a marker. Some models write such a list to say that they make no call."""
_BARE_KEY = lazy_pattern(r"\{\s*[^\W\d]")
_IN_WORD = lazy_pattern(r"[A-Za-z0-9_][A-Za-z]\Z")
"""Matches a word character before a marker's first letter. If it matches, the marker begins inside a longer word."""
_INDEXED = lazy_pattern(r"[A-Za-z0-9_)\]]\Z")
_INDEX = lazy_pattern(r"\[\s*[^\W\d]")
"""Matches what may be the beginning of a subscript, as in `list[int]`. It is one if `_INDEXED` matches the text before.

`_INDEXED` allows only ASCII before the bracket, since in other scripts `[` may follow a word without a space.
"""


# --- heads -----------------------------------------------------------------------------------------------------------


def check_head(
    state: ParserState, group: str, text: str, start: int, end: int, final: bool, *, first: bool = True
) -> Decision:
    """Return whether a call may begin with `text[start:end]`, which looks like the beginning of one.

    Return `NEED_MORE` if only more text can tell. `group` is the scanner's regex group that matched. `final` says that
    no more text will come. `first` says that all text before `start`, except white space, was written to the output.
    """
    ready = _begins(state, group, text, start, end, final, first=first)
    if ready is False and state.out.records_refusals:
        _record_refusal(state, group, text, start, end)
    return ready


def _begins(state: ParserState, group: str, text: str, start: int, end: int, final: bool, *, first: bool) -> Decision:
    dialect, head = state.plan.heads[group]
    if state.alone and (state.has_words or not first) and (head.tier or dialect.tier) != "S":
        return False  # tier S goes on, so that special tokens stay together with the text between them
    if text[start:end] in state.plan.markers.reasoning_tags and first and not reasoning_is_over(state):
        return False
    if head.fence_labels and state.fence_label not in head.fence_labels:
        return False
    expected = state.options.expect == dialect.name
    if head.begins is None:
        if end < len(text):
            return text[end] in head.body_starts
        if not final:
            return NEED_MORE
        if head.sure_pattern:
            return re.compile(head.sure_pattern).fullmatch(text, start, end) is not None
        return expected and text.startswith(head.literals, start)
    near = (first and (state.out.at_start or state.out.has_group)) or (state.in_fence and state.code.at_fence_start)
    fresh = near or (expected and not head.at_start)
    ready = as_decision(head.begins(text, start, end, fresh=fresh, options=state.options))
    return False if ready is NEED_MORE and (final or end < len(text)) else ready


def _record_refusal(state: ParserState, group: str, text: str, start: int, end: int) -> None:
    """Record why text that looks like the beginning of a call was not accepted as one."""
    dialect, head = state.plan.heads[group]
    if head.fence_labels and state.fence_label not in head.fence_labels:
        why = "code blocks of this kind contain no calls of this dialect"
    elif head.begins is None:
        why = f"its head is followed by none of {' '.join(head.body_starts)}"
    else:
        why = "what surrounds its head shows no call"
    end = next((start + len(literal) for literal in head.literals if text.startswith(literal, start)), end)
    at = state.fed - len(text)
    state.out.record.add_refusal(ParseAttempt(dialect.name, Span(at + start, at + end), "text", why))


# --- opening ---------------------------------------------------------------------------------------------------------


def open_candidate(state: ParserState, group: str, text: str, start: int, end: int) -> int:
    """Start a reader for the possible call that begins with `text[start:end]`.

    Return the offset from which to feed the reader.
    """
    dialect, head = state.plan.heads[group]
    marker, begin = (text[start:end], end) if head.body_starts else (head.alias, start)
    fenced = in_fence = state.in_fence
    evidence, definite, mentioned = _evidence(state, group, text, start, end, fenced=fenced)
    markup = state.code.fence_markup
    if head.fenced and markup and markup[0].raw[0] in "`~":  # the fence is the block's own opener
        marker, state.code.fence_markup, in_fence = markup[0].raw, [], False
    reader = dialect.candidate(marker, state.options, evidence, definite=definite)
    candidate = state.candidate = OpenCandidate(
        reader,
        group,
        state.fed - len(text) + begin - (len(marker) if marker != head.alias else 0),
        mentioned,
        shown_in_fence=in_fence and not definite,
        on_call="after_fenced_call" if in_fence else "after_call",
        on_text="fenced_code" if fenced else "prose",
        amid_words=state.alone and state.has_words,
    )
    if state.options.sources is not None:
        candidate.quote_stem = "" if marker[:1] in ("`", "~") else text[start:begin]  # an alias is read again
        candidate.stem_end = len(candidate.quote_stem)
    state.next = "in_candidate"
    return begin


def _evidence(
    state: ParserState, group: str, text: str, start: int, end: int, *, fenced: bool
) -> tuple[Evidence, bool, bool]:
    """Return the evidence for the call that begins with `text[start:end]`, and two flags.

    The first flag is True if a call there is definite: it stays a call whatever text follows. The second flag is True
    if the call is only mentioned, or shown as an example.
    """
    dialect, head = state.plan.heads[group]
    strictness, before = state.options.strictness, state.out.last_text(CONTEXT)
    tier = head.tier or dialect.tier
    sure, sentinel = tier in ("S", "A"), tier == "S"
    # a tool's name that is also a tag of reasoning, of an answer or of a result is only weak evidence of a call
    reserved = head.gate == TAG_GATE and text[start:end] in state.plan.markers.reserved_tags
    program = fenced and head.at_start
    expected = dialect.name == state.options.expect and not reserved and (sure or fenced or _begins_line(state))
    expected = expected and not program
    mentioned = strictness != "lenient" and is_mentioned(before, fenced=fenced, sentinel=sentinel, expected=expected)
    if tier == "A" and _IN_WORD.search(before + text[start : start + 1]):
        mentioned = True
    mentioned = mentioned or state.out.in_block_quote()
    expected = expected and not mentioned
    doubted = reserved or mentioned
    tentative = doubted or program or state.alone
    definite = not tentative and ((sure and not fenced) or expected or strictness == "lenient")
    shown = state.out.shows_calls or (state.out.shows_fences and fenced)
    mentioned = mentioned or (shown and not definite)
    alone = sure and definite and not (state.out.has_text or state.follows_text or strictness == "strict")
    sentinel = sentinel or (state.options.undeclared and sure and definite)
    first = state.out.at_start and not (state.out.has_group or fenced or doubted or state.follows_text)
    evidence = Evidence(
        dialect.name, wrapped=sure, expected=expected, sentinel=sentinel, wrapper_first=alone, at_start=first
    )
    return evidence, definite, mentioned


def _begins_line(state: ParserState) -> bool:
    """Return whether the text that comes next is the first on its line, apart from spaces and tabs."""
    return state.out.last_text(NEAR_CONTEXT).rstrip(" \t")[-1:] in ("", "\n", "\r")


# --- feeding ---------------------------------------------------------------------------------------------------------


def in_candidate(state: ParserState, text: str, at: int, _final: bool) -> Progress:
    """Feed the text to the reader of the possible call; once the reader has decided, emit its parts."""
    candidate = state.candidate
    assert candidate is not None
    end = candidate.reader.feed(text, at)
    if end is None:
        if candidate.quote_stem is None or not _may_be_quoted(state, candidate, candidate.quote_stem, text, at):
            _emit_early(state, candidate)
        return len(text)
    _finish(state, candidate, state.fed - len(text) + end)
    return end


def close_candidate(state: ParserState, finish_reason: str | None) -> None:
    """At the end of the text, decide whether the text that the open candidate has read is a call."""
    candidate = state.candidate
    assert candidate is not None
    candidate.reader.close(finish_reason)
    _finish(state, candidate, state.fed)


def _may_be_quoted(state: ParserState, candidate: OpenCandidate, beginning: str, text: str, at: int) -> bool:
    """Return whether the possible call may be quoted from a text of the conversation.

    Only the beginning of the call, up to the first character that may end it, is compared with the conversation. As
    more of this beginning arrives, the conversation is searched again only when the beginning has doubled in length or
    is complete, so all searches together are O(n).
    """
    if candidate.stem_end < len(beginning):
        return True
    stem = _STEM.match(text, at)
    assert stem is not None
    candidate.quote_stem = beginning = beginning + text[at : stem.end() + 1]
    over = stem.end() < len(text) or len(beginning) > MAX_STEM
    candidate.stem_end = len(beginning) - over
    if candidate.compared_size and not over and len(beginning) < 2 * candidate.compared_size:
        return True
    candidate.compared_size = len(beginning)
    assert state.options.sources is not None
    if state.options.sources.may_contain_prefix(beginning[: candidate.stem_end]):
        return True
    candidate.quote_stem = None
    return False


def _emit_early(state: ParserState, candidate: OpenCandidate) -> None:
    """Emit those parts of a possible call that are certain before its end is reached.

    While tentative parts are held, or after the opener of a code fence, only whole parts are emitted: no starts of
    calls, and no fragments of arguments.
    """
    reader = candidate.reader
    if not reader.early:
        return
    live, reader.early = reader.early, []
    fence_markup = state.code.fence_markup
    if state.out.has_group or fence_markup:
        live = [early for early in live if isinstance(early, Part)]
    if live and reader.head:
        live.insert(0, Part("markup", reader.head))
        reader.head = ""
        reader.parts = reader.parts[1:]  # once the candidate is decided, `parts` begin with the head
    for early in live:
        if not isinstance(early, Part):
            state.out.emit_early(early)
        elif fence_markup:
            fence_markup.append(early)
        else:
            state.out.add_parts([early], definite=reader.definite and not candidate.shown_in_fence)


# --- the end ---------------------------------------------------------------------------------------------------------


def _finish(state: ParserState, candidate: OpenCandidate, end: int) -> None:
    """Emit the parts of a decided candidate, as a call or as text, and choose the next state.

    `end` is the offset in the reply up to which the candidate has read.
    """
    reader, sources = candidate.reader, state.options.sources
    state.candidate = None
    state.unread = reader.unread
    # if `quote_stem` is None, the candidate's beginning is in no source, and parts may have been emitted already
    if sources is not None and candidate.quote_stem is not None and _is_quotation(reader, sources):
        _write_quoted(state, candidate)
        return
    _emit_early(state, candidate)
    lead, state.code.fence_markup = state.code.fence_markup, []
    parts = reader.parts
    kinds = {part.kind for part in parts}
    is_call = "text" not in kinds  # markup alone counts too: a tool turn without a call
    is_empty = kinds == {"markup"} and _EMPTY_LIST.search("".join(part.raw for part in parts)) is not None
    if is_call and (
        candidate.mentioned or (not reader.definite and not lead and _is_part_of_larger(state, candidate, parts))
    ):
        is_call = False
    if is_call and state.alone and not is_empty:
        is_call = not (candidate.amid_words or any(map(_is_not_offered, parts)))
    if _is_named(state, candidate):
        state.last_named_end = end - len(reader.unread)
    # Command R7B, LFM2 and Nemotron Nano write an empty list where they call nothing.
    if is_call and is_empty:
        _write_empty_block(state, candidate, lead, parts)
    elif is_call:
        definite = (
            reader.definite
            and not candidate.shown_in_fence
            and not ("malformed" in kinds and any(map(_is_unknown, parts)))
        )
        state.out.add_parts([*lead, *parts], definite=definite)
        state.next = candidate.on_call
        # not after text, where a line of code with a comment is an example
        state.comment_follows = getattr(reader, "comments_follow", False) and state.out.at_start and not definite
    else:
        _write_as_text(state, candidate, lead, parts)
    _record_tries(state, candidate, end, is_call=is_call)


def _write_empty_block(state: ParserState, candidate: OpenCandidate, lead: list[Part], parts: list[Part]) -> None:
    """Handle a block without calls, such as `[TOOL_CALLS][]`: leave it out of the content, or keep it as text.

    A block in readable tags (which prose may contain, such as `<tool_call>`) is left out only if it has its closing
    tag, and if there is text on at most one side of it. Between two texts, such a block stays in the content, since the
    texts may be about the block.
    """
    raw = "".join(part.raw for part in parts)
    sentinel = _is_sentinel(state, candidate)
    if lead or not (sentinel or raw.endswith(state.plan.closers)):
        _write_as_text(state, candidate, lead, parts)
        return
    bare = raw.rstrip(SPACE)
    state.out.add_token(bare, "markup" if sentinel or not state.out.has_text else "debris")
    state.out.add_text(raw[len(bare) :])
    state.next, state.at_line_start = "prose", True


def _write_as_text(state: ParserState, candidate: OpenCandidate, lead: list[Part], parts: list[Part]) -> None:
    """Write a candidate that is not a call as text, but handle a reasoning tag or an answer tag in it as a tag."""
    state.next = candidate.on_text
    called = any(part.kind in ("call", "malformed") for part in parts)
    if not (lead or called) and _drop_tokens(state, candidate, "".join(part.raw for part in parts)):
        return
    _note_quoted_token(state, candidate)
    markers = state.plan.markers
    if not candidate.mentioned and any(part.malformed is not None for part in parts):
        # A broken call in the text is an example, and so is a call after it: such a call was once run by mistake.
        state.out.shows_calls = True
    for part in (*lead, *parts):
        if part.raw in markers.reasoning_tags:
            apply_tag(state, "opener", part.raw)
        elif part.raw in markers.answer_tags:
            apply_tag(state, "frame", part.raw)
        else:
            state.out.add_text(part.raw)


def _record_tries(state: ParserState, candidate: OpenCandidate, end: int, *, is_call: bool) -> None:
    """Record each strategy (way of reading) that was tried on a possible call, with the span that it examined."""
    reader, start = candidate.reader, candidate.start
    last = len(reader.tries) - 1
    for number, attempt in enumerate(reader.tries):
        # the last attempt covers all that was taken; what it read after that depends on the chunks
        span = Span(start, end - len(reader.unread) if number == last else start + attempt.cost)
        if is_call or attempt.outcome == "text":
            outcome, why = attempt.outcome, attempt.why
        else:
            outcome, why = "text", MENTIONED if candidate.mentioned else PART_OF_LARGER
        state.out.record.add_try(ParseAttempt(attempt.strategy, span, outcome, why, attempt.cost))


def _is_quotation(reader: Candidate, sources: QuotableTexts) -> bool:
    """Return whether the call is quoted from the conversation, ignoring a fence that the model put around the call."""
    parts = _all_parts(reader)
    if not any(part.kind in ("call", "malformed") for part in parts):
        return False
    if any(part.malformed is not None and part.malformed.reason == "truncated" for part in parts):
        return False
    return sources.contain_call(_without_fence("".join(part.raw for part in parts)))


def _write_quoted(state: ParserState, candidate: OpenCandidate) -> None:
    """Write a call that is quoted from the conversation.

    If text precedes the call, the call is written as text. If not, the call is tentative: it becomes text if text
    follows.
    """
    parts = [*state.code.fence_markup, *_all_parts(candidate.reader)]
    state.code.fence_markup = []
    raw = "".join(part.raw for part in parts)
    outcome: Literal["call", "text"] = "text" if state.out.has_text or state.follows_text else "call"
    if outcome == "text":
        _note_quoted_token(state, candidate)
        state.out.add_text(raw)
        state.next = candidate.on_text
    else:
        state.out.add_quoted_call(parts)
        state.next = candidate.on_call
    span = Span(candidate.start, candidate.start + len(raw))
    dialect = state.plan.heads[candidate.group][0].name
    state.out.record.add_try(ParseAttempt(dialect, span, outcome, QUOTED, len(raw)))


def _drop_tokens(state: ParserState, candidate: OpenCandidate, raw: str) -> bool:
    """If the candidate consists only of special tokens, write them as tokens; return whether this was done.

    The emitter removes such tokens, unless the text around them shows that they are quoted.
    """
    if candidate.mentioned or not _is_sentinel(state, candidate) or not is_only_tokens(raw):
        return False
    bare = raw.rstrip(SPACE)
    state.out.add_token(bare, "markup")
    state.out.add_text(raw[len(bare) :])
    return True


def _note_quoted_token(state: ParserState, candidate: OpenCandidate) -> None:
    """If the candidate begins with a special token, note that this token is text, so that later tokens are text too."""
    state.out.tokens_are_text = state.out.tokens_are_text or _is_sentinel(state, candidate)


def _is_sentinel(state: ParserState, candidate: OpenCandidate) -> bool:
    dialect: Dialect
    head: Head
    dialect, head = state.plan.heads[candidate.group]
    return (head.tier or dialect.tier) == "S"


def _is_named(state: ParserState, candidate: OpenCandidate) -> bool:
    """Return whether the possible call begins with a tool's name at the beginning of a line."""
    return state.plan.heads[candidate.group][1].gate == NAME_GATE


def _is_part_of_larger(state: ParserState, candidate: OpenCandidate, parts: list[Part]) -> bool:
    """Return whether text that looks like a bare call is part of a larger structure or of a program."""
    before = state.out.last_text(NEAR_CONTEXT)
    if before.rstrip().endswith(('":', "':", "=", "(")):
        return True
    if _is_named(state, candidate) and not state.out.has_group:
        since = candidate.start - state.last_named_end if state.last_named_end is not None else None
        if continues_program(state.out.last_text(CONTEXT), since, state.options):
            return True
    raw = "".join(part.raw for part in parts[:2])
    if _INDEXED.search(before) and _INDEX.match(raw):
        return True
    return bool(_STRUCT.search(before)) and _BARE_KEY.match(raw) is not None


def _is_unknown(part: Part) -> bool:
    """Return whether a malformed call names a tool that was not offered. Such a call becomes text if text follows."""
    failed = part.malformed
    return failed is not None and failed.reason == "unknown_tool" and failed.call is not None


def _is_not_offered(part: Part) -> bool:
    """Return whether a call, malformed or not, names a tool that was not offered."""
    return _is_unknown(part) or (part.call is not None and part.call.unknown_tool)


def _all_parts(reader: Candidate) -> list[Part]:
    """Return all parts of a possible call, including those that could have been emitted before its end."""
    early = [early_part for early_part in reader.early if isinstance(early_part, Part)]
    if not early or not reader.head:
        return [*early, *reader.parts]
    return [Part("markup", reader.head), *early, *reader.parts[1:]]


def _without_fence(raw: str) -> str:
    """Return the text without a code fence around it."""
    return _FENCE.sub("", raw.rstrip().rstrip("`~"))
