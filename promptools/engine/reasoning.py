"""The states inside reasoning, where a call is only a draft, unless the model meant to make it.

Models usually close their reasoning before they call. In two cases, only more text or the end of the reply can decide:

    <think> ... <call>            the reasoning may never close: the model ended it with the call itself
    <think> ... <call></think>    the reasoning closes and nothing follows: the call may be the intended reply

In the first case, everything from the head of the call on is held (`held_call`). If the closing tag comes, the call was
reasoning; if the text ends first, the held text is parsed as a separate reply (`StandaloneResult`) and counts if it
contains only calls. In the second case, the calls at the end of the reasoning are held (`trailing_calls`) while only
white space follows the closing tag. If other text follows, these calls are reasoning. If the reply ends, they count,
but only in dialects whose models are known to call there (`Dialect.rescues`).

Searches are kept linear: `CloserIndex` remembers where the next closer is, and held text is parsed separately at most
`MAX_STANDALONE_PARSES` times in a reply.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from promptools.engine.candidates import check_head
from promptools.engine.mention import CONTEXT, is_mentioned
from promptools.engine.state import Decision, ParserState, Progress
from promptools.engine.tags import enter_reasoning, leave_reasoning
from promptools.parsing.emitter import begins_block_quote
from promptools.parsing.parts import NEED_MORE, SPACE
from promptools.patterns import lazy_pattern
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.dialects.reply_markers import ReplyMarkers


MAX_STANDALONE_PARSES = 8
"""How many times in one reply the text held in unclosed reasoning may be parsed separately; each parse is O(n).

One parse is enough if the held text is read the same way with and without the text before it. An open tag around the
answer may change how the held text is read.
"""

_FENCE = lazy_pattern(r"(?:`{3,}|~{3,})[\w.+#-]{0,32}[ \t]*\r?\n\s*\Z")
"""Matches the opening line of a fence at the end of the text before a call."""


class CloserIndex:
    """Finds the closing tags of reasoning in one text. All searches together are O(n).

    The offset must not decrease from one search to the next. Closing tags may have any number of different suffixes, as
    in `</think:abc>`, so all closing tags with a suffix are found in one pass.
    """

    def __init__(self, text: str, markers: ReplyMarkers) -> None:
        self.text = text
        self._markers = markers
        self._next: dict[str, int] = {}
        self._suffixed: dict[str, list[int]] | None = None

    def find(self, closer: str, at: int) -> int:
        """Return the index of the next `closer` from `at` on; -1 if there is none."""
        next_at = self._next.get(closer, 0)
        if 0 <= next_at < at or closer not in self._next:
            find = self._find_suffixed if self._markers.suffixed_closer_start(closer) else self.text.find
            next_at = self._next[closer] = find(closer, at)
        return next_at

    def _find_suffixed(self, closer: str, at: int) -> int:
        if self._suffixed is None:
            self._suffixed = {}
            for match in self._markers.suffixed_closer.finditer(self.text, at):
                self._suffixed.setdefault(match[0], []).append(match.start())
        offsets = self._suffixed.get(closer, [])
        index = bisect_left(offsets, at)
        return offsets[index] if index < len(offsets) else -1


def reasoning_start(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Skip an opening reasoning tag that a server added to a reply that already starts inside reasoning."""
    bare = state.write_space(text, at)
    if bare > at:
        return bare
    tags = state.plan.markers.reasoning_tags
    opener = next((tag for tag in tags if text.startswith(tag, at)), None)
    if opener is None:
        if not final and any(tag.startswith(text[at : at + len(tag)]) for tag in tags):
            return state.hold(at)
        state.next = "reasoning"
        return at
    state.out.add_zone_tag(opener, "reasoning")
    enter_reasoning(state, tags[opener])
    return at + len(opener)


def reasoning(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Search for the closing tag of the reasoning, and for a call that may end the reasoning instead."""
    begin = at
    scanner = state.reasoning.scanner
    assert scanner is not None
    search = scanner.search
    while True:
        match = search(text, at)
        if match is None:
            cut = len(text) if final else scanner.hold_from(text, at)
            state.out.add_text(text[begin:cut])
            return cut if cut == len(text) else state.hold(cut)
        start = match.start()
        if match.lastgroup == "end":
            state.out.add_text(text[begin:start])
            state.out.add_token(match[0], "debris")
            return match.end()
        closes = match.lastgroup == "closer"
        ready = _is_closer(state, match, final) if closes else _check_heads(state, match, begin, final)
        if ready is False and not final and scanner.hold_from(text, start) == start:
            ready = NEED_MORE  # no call, but perhaps the end of the turn
        if ready is False:
            at = start + 1
            search = state.search.sweep_over(scanner, text).search
            continue
        if ready is NEED_MORE:  # the closer may begin before the match
            start = min(start, scanner.hold_from(text, at))
            state.out.add_text(text[begin:start])
            return state.hold(start)
        state.out.add_text(text[begin:start])
        if closes:
            state.reasoning.closer = match[0]
            leave_reasoning(state)
            return match.end()
        state.next = "holding_call"
        return start


def _is_closer(state: ParserState, match: re.Match[str], final: bool) -> Decision:
    """Return whether the match closes the open reasoning: after `<think:abc>`, the tag `</think:xyz>` does not."""
    closer = state.reasoning.closer
    # Command A's template opens the thought with `<|START_THINKING|>`, MiniMax M3's with `<mm:think>`.
    if match[0] == closer or (not closer and state.plan.markers.template_closer.fullmatch(match[0])):
        return True
    return NEED_MORE if not final and match.end() == len(match.string) and match[0][-1] != ">" else False


def _check_heads(state: ParserState, match: re.Match[str], begin: int, final: bool) -> Decision:
    """Return whether a call begins at the match and is not only mentioned.

    After a call that is only mentioned, the rest of the reasoning is taken as text about this call, so no later call
    counts. The text from `begin` to the match is not yet in the output.
    """
    assert state.reasoning.scanner is not None
    text, start = match.string, match.start()
    for group, end in () if state.reasoning.mentions_call else state.reasoning.scanner.matches_from(text, match):
        ready = check_head(state, group, text, start, end, final)
        if ready is NEED_MORE:
            return NEED_MORE
        if ready:
            state.reasoning.mentions_call = _is_mentioned(state, group, text[begin:start])
            return not state.reasoning.mentions_call
    return False


def _is_mentioned(state: ParserState, group: str, before: str) -> bool:
    """Return whether the text before a call in reasoning shows that the call is only mentioned.

    `before` is the last part of that text, which is not yet in the output.
    """
    if state.out.in_block_quote(before):
        return True
    before = (state.out.last_text(CONTEXT, "reasoning") + before[-CONTEXT:])[-CONTEXT:]
    fence = _FENCE.search(before)
    before = before if fence is None else before[: fence.start()]
    if begins_block_quote(before[before.rfind("\n") + 1 :]):
        return True
    if state.options.strictness == "lenient":
        return False
    dialect, head = state.plan.heads[group]
    return is_mentioned(
        before,
        fenced=fence is not None,
        sentinel=(head.tier or dialect.tier) == "S",
        expected=dialect.name == state.options.expect,
    )


def holding_call(state: ParserState, text: str, at: int, final: bool) -> Progress:
    """Hold a call inside open reasoning, and the text after it, until the closing tag or the end of the text.

    If the closing tag comes, the held text was reasoning, unless it contains only calls, which the model may have meant
    to make. If no closing tag comes, `resolve_held_call` decides.
    """
    zone = state.reasoning
    size = len(zone.closer) or state.plan.markers.longest_template_closer
    end = _closer_end(state, text, at, size)
    if end < 0:
        if final and not zone.held_call:
            return _resolve_unclosed(state, text, at)
        zone.held_call.append(text[at:])
        zone.closer_overlap = (zone.closer_overlap + text[max(at, len(text) - size) :])[-size + 1 :]
        return len(text)
    size = len(zone.closer)
    thought = "".join((*zone.held_call, text[at:end]))
    zone.held_call, zone.closer_overlap = [], ""
    if _may_rescue(state, thought[:-size]):
        zone.trailing_calls = [thought[:-size], thought[-size:]]
        state.next = "holding_trailing_calls"
        return end
    state.out.add_text(thought[:-size])
    leave_reasoning(state)
    return end


def _closer_end(state: ParserState, text: str, at: int, size: int) -> int:
    """Return where the closing tag of the reasoning ends if it begins in `closer_overlap` or in `text[at:]`; else -1.

    Reasoning that the chat template opened may be closed by any closing tag, which then becomes `closer`. `size` is the
    maximum length of a closing tag.
    """
    zone, seam = state.reasoning, state.reasoning.closer_overlap + text[at : at + size]
    if zone.closer:
        seam_at = seam.find(zone.closer)
        closer_at = at + seam_at - len(zone.closer_overlap) if seam_at >= 0 else _closer_after(state, text, at)
        return closer_at + size if closer_at >= 0 or seam_at >= 0 else -1
    closer = state.plan.markers.template_closer.search(seam)
    begin = at - len(zone.closer_overlap)
    if closer is None:
        closer, begin = state.plan.markers.template_closer.search(text, at), 0
    if closer is None:
        return -1
    zone.closer = closer[0]
    return begin + closer.end()


def _closer_after(state: ParserState, text: str, at: int) -> int:
    """Return the offset of the next closing tag of the reasoning in `text[at:]`, or -1.

    All searches of one text together are O(n).
    """
    closers = state.reasoning.closers
    if closers is None or closers.text is not text:
        closers = state.reasoning.closers = CloserIndex(text, state.plan.markers)
    return closers.find(state.reasoning.closer, at)


def _resolve_unclosed(state: ParserState, text: str, at: int) -> Progress:
    """Handle a call in unclosed reasoning.

    If the text is a held text that is being parsed separately, begin a new level (a piece with its own output) at the
    call. In any other text, follow the verdict of an earlier parse on whether the model meant to make the call. If
    there is no verdict, hold the call.
    """
    if state.levels is not None:
        state.begin_level(len(text) - at)
        return at
    meant = state.reasoning.verdicts.get(len(text) - at)
    if meant is None:
        state.reasoning.held_call = [text[at:]]
        return len(text)
    if meant:
        state.out.end_reasoning()
        state.next = "prose"
        return at
    _end_thought(state, text[at:])
    return len(text)


def _end_thought(state: ParserState, text: str) -> None:
    """Write the rest of unclosed reasoning, without the tokens that end the turn."""
    at = state.plan.markers.end_of_turn(text)
    state.out.add_text(text[:at])
    while (token := state.plan.literal_scanner.search(text, at)) is not None:
        state.out.add_text(text[at : token.start()])
        state.out.add_token(token[0], "debris")
        at = token.end()
    state.out.add_text(text[at:])


def _may_rescue(state: ParserState, thought: str) -> bool:
    """Return whether the model may have meant to make the calls at the end of closed reasoning.

    From the first of these calls on, the reasoning must contain only calls, none of them malformed, and the reply must
    have no text or call before them.
    """
    if state.options.rescue is False or state.out.has_text or state.out.has_call:
        return False
    alone = state.parse_standalone(state, thought, None)
    state.reasoning.verdicts = alone.verdicts
    if not alone.has_calls or alone.has_text or alone.has_malformed:
        return False
    # On third-party servers, Kimi K2 Thinking makes its call in the thought and writes nothing more (qwen-code).
    return state.options.rescue is True or alone.dialects <= state.plan.markers.rescuing_dialects


def holding_trailing_calls(state: ParserState, text: str, at: int, _final: bool) -> Progress:
    """Hold the calls at the end of reasoning while only white space follows. If text follows, they were drafts."""
    bare = at
    while bare < len(text) and text[bare] in SPACE:
        bare += 1
    state.reasoning.trailing_calls.append(text[at:bare])
    if bare < len(text):
        thought, _, *space = state.reasoning.trailing_calls
        state.reasoning.trailing_calls = []
        state.out.add_text(thought)
        leave_reasoning(state)
        state.out.add_text("".join(space))
    return bare


# --- the end of the text ---------------------------------------------------------------------------------------------


def rescue_trailing_calls(state: ParserState) -> str:
    """Return the calls that end the reasoning, to be parsed as prose, since no text follows the reasoning."""
    thought, closer, *space = state.reasoning.trailing_calls
    state.reasoning.trailing_calls = []
    state.out.record.add_fix(Fix("marker", "nothing follows the reasoning, so the call that ends it is meant"))
    state.out.end_reasoning()
    state.next = "prose"
    state.reasoning.rescue_tail = [closer, *space]
    return thought


def end_rescue(state: ParserState) -> None:
    """Write the reasoning's closing tag and the white space after it, once the calls before them have been parsed."""
    closer, *space = state.reasoning.rescue_tail
    state.reasoning.rescue_tail = []
    state.out.add_discarded(closer, "markup")
    state.out.add_text("".join(space))


def resolve_held_call(state: ParserState, finish_reason: str | None) -> str:
    """Decide where reasoning without a closing tag ends, and return the text to be parsed as prose.

    If the held text contains only calls, the first of them ended the reasoning. Otherwise all of the held text was
    reasoning, and an empty text is returned.
    """
    held = "".join(state.reasoning.held_call)
    state.reasoning.held_call, state.reasoning.closer_overlap = [], ""
    # vllm#39056: Qwen3.5 calls inside `<think>`, and vLLM 0.19 leaves the call in `reasoning`.
    if not _ends_in_calls(state, held, finish_reason):
        _end_thought(state, held)
        return ""
    state.out.end_reasoning()
    state.next = "prose"
    return held


def _ends_in_calls(state: ParserState, held: str, finish_reason: str | None) -> bool:
    """Return whether the held text, which begins with a call in unclosed reasoning, contains only calls."""
    if finish_reason == "length":
        return False
    zone = state.reasoning
    if len(held) not in zone.verdicts:
        if zone.standalone_parses == MAX_STANDALONE_PARSES:
            return False
        zone.standalone_parses += 1
        zone.verdicts = state.parse_standalone(state, held, finish_reason).verdicts
    return zone.verdicts[len(held)]
