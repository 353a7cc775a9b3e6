"""How reasoning tags, answer tags, special tokens and lone closers in prose are handled.

reasoning tag       opens or closes reasoning; inside a sentence, where a tag may be a word, it is text
answer tag          markup that frames the content
lone closer, token  markup if it is beside a call; if not, text, or debris that is left out
"""

from __future__ import annotations

import re

from promptools.engine.mention import CONTEXT
from promptools.engine.state import ParserState, Progress
from promptools.parsing.parts import NEED_MORE, NeedMore, Part
from promptools.parsing.special_tokens import SPECIAL_TOKEN, ends_sentence, is_quoted_token
from promptools.patterns import lazy_pattern
from promptools.types import Fix

_GAP = lazy_pattern(r"[ \t]{0,16}")
_GOES_ON = frozenset(",;:.!?)")
"""The characters that may continue a sentence right after a word."""
_READABLE = lazy_pattern(r"<[a-z_]+>\Z|\[[a-z]+\]\Z")
"""Matches a tag that a sentence may contain as a word, such as `<think>`."""


def handle_tag(state: ParserState, match: re.Match[str], final: bool) -> Progress:
    """Handle the tag, the lone closing marker or the special token at the match."""
    text, start, marker, known = match.string, match.start(), match[0], state.plan.markers
    group = match.lastgroup or ""
    at_end = match.end() == len(text) and not final
    if group in ("suffixed", "numbered"):
        if marker[-1] != ">":
            if not final:
                return state.hold(start)
            state.out.add_text(marker)
            return match.end()
        group = "end" if group == "numbered" else "closer" if known.suffixed_closer_start(marker) else "opener"
    elif group == "control":
        return _handle_control_token(state, marker, start, final)
    elif group in ("sentinel", "turn") and not final and state.plan.literal_scanner.hold_from(text, start) == start:
        return state.hold(start)
    elif group == "unlabelled":
        if at_end:
            return state.hold(start)
        marker = max((opener for opener in known.unlabelled_openers if marker.startswith(opener)), key=len)
        begins = state.out.at_start and not state.out.has_group
        # a space after the opener shows that it is only talked about
        group = "opener" if begins and not text.startswith(" ", start + len(marker)) else "text"
    word = _is_word(state, group, marker, match, final)
    if word is NEED_MORE:
        return state.hold(start)
    if word:
        return match.end()
    apply_tag(state, group, marker)
    return start + len(marker)


def _is_word(state: ParserState, group: str, marker: str, match: re.Match[str], final: bool) -> bool | NeedMore:
    """If a reasoning tag is only a word in a sentence, write the tag as text; return whether it is only a word."""
    text, end = match.string, match.end()
    if group == "opener" and state.out.in_block_quote():
        _mention_tag(state, marker)
        return True
    if group == "opener" and _is_in_sentence(state, marker):
        if end == len(text) and not final:
            return NEED_MORE
        following = text[end : end + 1]
        if following not in ("\n", "\r") and (_READABLE.match(marker) or not following.isalnum()):
            _mention_tag(state, marker)
            return True
    if group == "closer" and _may_go_on(state, marker):
        gap = _GAP.match(text, end)
        assert gap is not None
        if gap.end() == len(text) and not final:
            return NEED_MORE
        following = text[gap.end() : gap.end() + 1]
        if following.islower() if gap[0] else following in _GOES_ON:
            state.out.add_text(marker)
            return True
    return False


def _may_go_on(state: ParserState, marker: str) -> bool:
    """Return whether a closing reasoning tag, which has no opening tag, comes in the middle of a sentence.

    If it does, the sentence may continue after the tag.
    """
    before = state.out.last_text(CONTEXT)
    line = before[before.rfind("\n") + 1 :]
    if state.reasoning.closed or state.reasoning.mentioned_tags.get(marker):
        return False
    return line[-1:] == " " and line.strip() != "" and not ends_sentence(line.rstrip())


def _handle_control_token(state: ParserState, marker: str, start: int, final: bool) -> Progress:
    """Handle a special token that no dialect declares, or text that looks like the beginning of one."""
    unfinished = marker[-1] != ">"
    if unfinished and not final:
        return state.hold(start)
    if _closes_unknown_block(state, marker):
        state.out.add_text(marker)
    elif SPECIAL_TOKEN.fullmatch(marker):
        state.out.add_token(marker, "markup" if state.out.is_after_call else "turn")
        state.at_line_start = True
    elif state.out.is_after_call and unfinished and len(marker) > 2:
        state.out.add_discarded(marker, "markup")
    else:
        state.out.add_text(marker)
    return start + len(marker)


def _closes_unknown_block(state: ParserState, marker: str) -> bool:
    """Return whether a tentative call is between an earlier token and this token, as in `<|acme|>{...}<|/acme|>`.

    If so, the two tokens and the call are a block of an undeclared format, whose meaning is unknown.
    """
    before = state.out.token_before_group
    undeclared = SPECIAL_TOKEN.fullmatch(before) is not None and before not in state.plan.markers.turn_tokens
    return undeclared and before != marker and state.out.is_after_call


def apply_tag(state: ParserState, group: str, marker: str) -> None:
    """Handle a complete tag or token that the scanner found; `group` is the scanner's regex group for it."""
    known = state.plan.markers
    if group == "opener":
        state.out.add_zone_tag(marker, "reasoning")
        enter_reasoning(state, known.reasoning_closer(marker))
    elif group == "closer":
        _handle_closer(state, marker)
    elif group == "frame" and _is_frame(state, marker):
        state.out.add_zone_tag(marker, "text")
        state.frame_closer = known.answer_tags.get(marker, "")
        state.at_line_start = True
    elif group == "turn":
        state.out.add_token(marker, "turn")
        state.at_line_start = True
    elif marker in known.plain_answer_tags or marker in known.readable_answer_tags:
        state.out.add_text(marker)
    elif not state.out.is_after_call:
        _handle_lone_marker(state, group, marker)
    elif group == "end":
        state.out.add_discarded(marker, "debris")
        state.next = "after_call"
    else:
        _close_call(state, marker)


def enter_reasoning(state: ParserState, closer: str) -> None:
    """Continue inside reasoning that ends with the tag `closer`.

    If `closer` is empty, the chat template opened the reasoning, and any closing tag may end it.
    """
    state.out.set_zone("reasoning")
    state.reasoning.closer = closer
    state.reasoning.mentions_call = False
    state.reasoning.scanner = state.plan.reasoning_scanner(closer)
    state.next = "reasoning"


def leave_reasoning(state: ParserState) -> None:
    """Write the closing tag of the reasoning, and continue with prose."""
    state.out.add_zone_tag(state.reasoning.closer, "text")
    state.reasoning.closed = state.at_line_start = True
    state.next = "prose"


def reasoning_is_over(state: ParserState) -> bool:
    """Return whether the reasoning is over: it was closed, or the reply has text or a call.

    Once it is over, `<think>` may be a tool's name.
    """
    return state.reasoning.closed or not state.out.at_start or state.out.has_call


def _is_in_sentence(state: ParserState, marker: str) -> bool:
    """Return whether a reasoning tag is inside a sentence of the answer, where it may be a word."""
    before = state.out.last_text(CONTEXT)
    line = before[before.rfind("\n") + 1 :]
    if not line.strip() or not state.out.has_text:
        return False
    if _READABLE.match(marker) is None:
        return is_quoted_token(before, "", "")
    return not ends_sentence(line)


def _mention_tag(state: ParserState, marker: str) -> None:
    """Write an opening tag as plain text of the answer; its closing tag will be text too."""
    state.out.add_text(marker)
    closer = state.plan.markers.reasoning_closer(marker)
    mentioned = state.reasoning.mentioned_tags
    mentioned[closer] = mentioned.get(closer, 0) + 1


def _handle_closer(state: ParserState, marker: str) -> None:
    """Handle a closing tag without an opening tag: the text before it becomes reasoning.

    If reasoning was closed before, the text stays as it is and only the tag is left out. If the tag is a word of the
    answer, it is text.
    """
    if state.reasoning.mentioned_tags.get(marker):
        state.reasoning.mentioned_tags[marker] -= 1
        state.out.add_text(marker)
        return
    if state.reasoning.closed:
        state.out.add_zone_tag(marker, "text")
    else:
        # GLM 4.7's template prints `<think>` itself, so that the reply has the closing tag alone.
        state.out.reclassify_as_reasoning(marker)
    state.reasoning.closed = state.at_line_start = True


def _is_frame(state: ParserState, marker: str) -> bool:
    """Return whether this tag opens or closes the answer. If not, the answer only mentions the tag."""
    if marker == state.frame_closer:
        return True
    known = state.plan.markers
    # Granite 3.3 and Ernie 4.5 frame the answer after a thought, Hunyuan A13B frames both.
    beside = state.out.is_after_tag or (
        marker not in known.plain_answer_tags and (state.out.at_start or state.out.is_after_call)
    )
    return marker in known.answer_tags and beside


def _handle_lone_marker(state: ParserState, group: str, marker: str) -> None:
    """Handle a marker that is not next to a call."""
    if group != "lone":
        state.out.add_token(marker, "debris" if group == "end" else "markup")
        state.at_line_start = True
    # A reply that was `</tool_call>` and nothing else: llama.cpp#20761.
    elif marker.startswith("</"):
        state.out.add_text(marker)
    else:  # perhaps doubled: the next opener may begin a call
        state.out.add_parts([Part("markup", marker)], definite=False)


def _close_call(state: ParserState, marker: str) -> None:
    """Write a marker next to a call. A closing tag confirms a tentative call."""
    if state.out.has_group and marker in state.plan.markers.result_closers:
        state.out.add_text(marker)  # perhaps the end of a result that contains what looks like a call
        return
    if state.out.has_group and not state.out.group_is_quoted and marker.startswith("</"):
        if not state.out.group_has_opening_tag:
            state.out.add_call_fix(Fix("marker", f"only the closer {marker!r} was there"))
        state.out.accept_group()
    state.out.add_discarded(marker, "markup")
    state.next = "after_call"
