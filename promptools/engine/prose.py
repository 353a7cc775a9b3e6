"""The states outside code and reasoning: prose, the first word of a line, and what follows a call.

`_prose` searches the text for the next marker and decides, by what the marker is and by what precedes it:

    head of a dialect   a candidate (`state.py`), unless its text or the text before it shows that it is none
    header of a message the rest of the reply goes to the parser for channels
    backticks           inline code or a fence (`code.py`); closed code that holds no call is skipped at once
    tag of reasoning    a reasoning zone (`reasoning.py`); inside a sentence, where a tag may be a word, it is text
    tag of an answer    markup that frames the content
    lone closer, token  markup if it is beside a call, else text or debris

A tool's name that begins a line may be a call, so `_first_word` looks at the first word of each line;
`_at_line_start` is set where one is expected. The end of the text that may become a marker is held back.

After a call (`_after_call`), a result that the model makes up ends the reply: it and all that follows are left out.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator

from promptools.dialects.calls.resolve import malformed_call
from promptools.engine.mention import CONTEXT, is_mentioned
from promptools.engine.state import StateMachine
from promptools.parsing.emitter import SPACE
from promptools.parsing.parts import Part
from promptools.parsing.scanner import MarkerScanner
from promptools.parsing.special_tokens import ends_sentence, is_quoted_token
from promptools.types import Fix

_INLINE = re.compile(r"(?:(`{1,2})(?!`)[^`\n]*\1(?!`)(?!\Z)(?:[ ,.;:(){}]*+(?=`))?+){1,64}")
"""Inline code, several in a row if only characters that begin no marker are between them."""
_PLAIN_FENCE = re.compile(r"(`{3,63}+|~{3,63}+)[\w.+#-]{0,32}\r?\n([\w#/@$(][^`~]*+)?\1(?![`~]|\Z)")
"""A whole code fence, to be skipped at once if it begins no call."""
SWEEP_MINIMUM = 1024
"""Characters of a text short enough to be searched to its end from each call."""
MAX_UNFINISHED_CLOSER = 256
"""Characters of an unfinished closer, and of white space before it, at the end of a reply."""
_READABLE = re.compile(r"<[a-z_]+>\Z|\[[a-z]+\]\Z")
"""A tag that a sentence may contain as a word."""
_TAGS = r"(?:\s*+<[^<>]{0,128}(?:>|\Z)){1,8}"
_GIVEN = r"(?:\s\w{1,32}=[\"'][^<>]{1,128}+)?"
_WORD = rf"\s*+(?:function c?a?l{{0,2}}|[^\s<>`]{{1,128}}+{_GIVEN})?"
_OPENER = re.compile(
    rf"<[|｜][^\s<>]{{4,64}}\Z|(?:<{{1,2}}[^\s<>]{{4,64}}{_GIVEN}>{{1,2}}|\[[^\s\[\]]{{4,64}}\]|\]<\])"
    rf"(?:{_WORD}{_TAGS}){{0,8}}{_WORD}\s*+(?:`{{1,3}}\w{{0,16}}\s*+)?\Z"
)
"""What a truncated text must contain of a call: a whole tag, or a token, and after it no more words than a name."""
TRUNCATED = "cut"
"""In place of a head's group: a call of some dialect, truncated before it was clear which."""
_SEPARATOR = re.compile(r"[,;]\s{0,256}(?:(?=[{\[])|\Z)")


_GROUPS = {"suffixed": "opener", "numbered": "end"}
"""Markers that are found by a pattern, and the group of each once it is complete."""


class ProseStates(StateMachine):
    """The states of prose."""

    _last_text = ""
    _mentioned_tags: dict[str, int]
    """For each closer, the open tags that are words of the answer: the closer is then a word, too."""
    _frame_closer: str = ""
    """The closing tag of the frame around the answer."""
    _rare_checked_text = ""
    _truncated = False
    """The text is over, truncated at the server's token limit."""
    _has_rare_word = False
    """The text holds one of the words without which it holds no rare marker."""

    @abstractmethod
    def _enter_code(self, match: re.Match[str], final: bool) -> int: ...
    @abstractmethod
    def _enter_reasoning(self, closer: str) -> None: ...
    @abstractmethod
    def _handle_orphan_closer(self, marker: str) -> None: ...

    def _prose(self, text: str, at: int, final: bool) -> int:
        """Write text up to the next marker, and act on that."""
        if self._at_line_start:
            return self._first_word(text, at, final)
        begin = at
        scanner, later = self._choose_scanners(text)
        held = scanner
        resumed, self._last_text = self._last_text is text and len(text) > SWEEP_MINIMUM, text
        search = self._sweep_over(scanner, text).search if resumed else scanner.search
        while True:
            match = search(text, at)
            if match is None:
                cut = len(text) if final else held.hold_from(text, begin)
                self._write_tail(text[begin:cut], final)
                return cut if cut == len(text) else ~cut
            start = match.start()
            first = at == begin and not text[begin:start].strip(SPACE)
            scanner = scanner if first else later
            group = match.lastgroup or ""
            if group in self._plan.heads or group in self._plan.header_dialects:
                taken = self._find_head(match, scanner, text, final, first=first)
                if taken is not None and not self._is_header_mentioned(
                    taken[0], text[max(begin, start - CONTEXT) : start]
                ):
                    group, head_at, end = taken
                    if end < 0:  # a longer marker may begin before it
                        head_at = start = min(start, held.hold_from(text, begin))
                    self._out.add_text(text[begin:head_at])
                    return ~start if end < 0 else self._start(group, text, head_at, end)
                match = self._plan.literal_scanner.match(text, start)
            at = start + 1 if match is None else self._skip_inert(match, text, first=first)
            if match is not None and at < 0:
                self._out.add_text(text[begin:start])
                return (
                    self._handle_literal(match, final) if match.lastgroup != "ticks" else self._enter_code(match, final)
                )
            search = self._sweep_over(later, text).search

    def _is_header_mentioned(self, group: str, before: str) -> bool:
        """Whether the text before a message's header shows that it is talked about; `before` is not written yet."""
        dialect = self._plan.header_dialects.get(group)
        if dialect is None or self._rules.strictness == "lenient":
            return False
        expected = dialect.name == self._rules.expect
        before = (self._out.last_text(CONTEXT) + before)[-CONTEXT:]
        token = before.find("<|", before.rfind("\n") + 1)  # of this header, which was not accepted at its first token
        before = before if token < 0 else before[:token]
        return is_mentioned(before, fenced=False, sentinel=True, expected=expected)

    def _skip_inert(self, match: re.Match[str], text: str, *, first: bool) -> int:
        """Return the offset after code or a lone closer that means nothing here; -1: it has a meaning."""
        if match.lastgroup == "ticks":
            inline = match.end() - match.start() < 3
            code = _INLINE.match(text, match.start()) if inline else self._match_code_fence(text, match.start())
            return code.end() if code is not None else -1
        means = match.lastgroup != "lone" or not match[0].startswith("</") or (first and self._out.is_after_call)
        return -1 if means else match.end()

    def _write_tail(self, text: str, final: bool) -> None:
        """Write text without a marker; an unfinished closer beside a call, at the end of the reply, is markup."""
        rest = text.lstrip(SPACE) if final and self._out.is_after_call and len(text) < MAX_UNFINISHED_CLOSER else ""
        if len(rest) < 3 or not any(each.startswith(rest) for each in self._plan.closers):
            self._out.add_text(text)
            return
        self._out.add_text(text[: len(text) - len(rest)])
        self._mark(rest, "markup")

    def _match_code_fence(self, text: str, start: int) -> re.Match[str] | None:
        """Return the match of the whole fence that begins here, if its first word cannot begin a call."""
        fence = _PLAIN_FENCE.match(text, start)
        if fence is None or not fence[2]:
            return fence
        word = fence.start(2)
        begins = self._tool_scanners.full.before_text.match_letters(text, word) is not None or any(
            self._plan.line_heads(text, word)
        )
        return None if begins else fence

    def _find_head(
        self, match: re.Match[str], scanner: MarkerScanner, text: str, final: bool, *, first: bool
    ) -> tuple[str, int, int] | None:
        """Return the group, start and end of what begins at the match; the end is -1 if more text is needed."""
        start = match.start()
        heads: Iterator[tuple[str, int]]
        if text[start] == "\n":  # the line break and indent before a head
            head_at = match.end() - len(text[start : match.end()].lstrip("\n\t "))
            flush = text[head_at - 1] == "\n"
            heads = (
                each for each in self._line_heads(text, head_at) if flush or not self._plan.heads[each[0]][1].unindented
            )
        else:
            head_at = start
            heads = scanner.matches_from(text, match)
        for group, end in heads:
            if group in self._plan.heads or group in self._plan.header_dialects:
                ready = self._check_start(group, text, head_at, end, final, first=first)
                if ready is not False:
                    return group, head_at, end if ready else -1
        if self._truncated and any(
            self._is_truncated_call(group, text, start, end) for group, end in scanner.matches_from(text, match)
        ):
            return TRUNCATED, start, len(text)
        return None

    def _is_truncated_call(self, group: str, text: str, start: int, end: int) -> bool:
        """Whether a truncated text ends in the sure beginning of a call."""
        dialect, head = self._plan.heads.get(group, (None, None))
        if dialect is None or head is None or end < len(text) or (head.fence_labels and None not in head.fence_labels):
            return False
        if (head.tier or dialect.tier) not in "SA" or not _OPENER.match(text, start):
            return False
        return head.begins is None or head.begins(text, start, end, fresh=True, rules=self._rules) is None

    def _first_word(self, text: str, at: int, final: bool) -> int:
        """Start a candidate if the first word of the line begins a call; else go on in prose."""
        bare = self._write_space(text, at)
        if bare > at:
            return bare
        for group, end in self._line_heads(text, at):
            ready = self._check_start(group, text, at, end, final, first=True)
            if ready is not False:
                return ~at if ready is None else self._start(group, text, at, end)
        self._at_line_start = False
        return at

    def _choose_scanners(self, text: str) -> tuple[MarkerScanner, MarkerScanner]:
        """Return the scanner for now, and the one for after the next text."""
        sought = self._tool_scanners
        if text is not self._rare_checked_text:
            self._rare_checked_text, self._has_rare_word = text, self._plan.rare_words.occurs_in(text)
        now, beside, later = sought.full if self._has_rare_word else sought.common
        if self._out.at_start or self._out.has_group:
            return now, later
        return (beside if self._out.is_after_call else later), later

    def _check_start(self, group: str, text: str, start: int, end: int, final: bool, *, first: bool) -> bool | None:
        """Whether a call or a message begins here, as the marker suggests; None: more text is needed."""
        if group in self._plan.heads:
            return self._check_head(group, text, start, end, final, first=first)
        channels = self._plan.header_dialects[group].channels
        assert channels is not None
        return channels.begins(text, start, self._rules, first=first and self._out.at_start, final=final)

    def _start(self, group: str, text: str, start: int, end: int) -> int:
        """Start a candidate, or leave the rest of the text to the parser of messages with headers."""
        if group == TRUNCATED:
            malformed = malformed_call("truncated", "the text ended before its arguments", "", None)
            self._out.add_parts([Part("malformed", text[start:], malformed=malformed)], definite=True)
            return end
        if group in self._plan.heads:
            self._at_line_start = False
            return self._open_candidate(group, text, start, end)
        self.found_header = self._plan.header_dialects[group], text[start:]
        return len(text)

    def _reply_start(self, text: str, at: int, final: bool) -> int:
        """At the start of the reply: look for a header whose control tokens were stripped."""
        bare = self._write_space(text, at)
        if bare > at:
            return bare
        if text[at] not in self._plan.header_characters:
            self._state = self._prose
            return at
        for group, dialect in self._plan.header_dialects.items():
            if dialect.channels is not None and group == dialect.channels.stripped_header.group:
                ready = self._check_start(group, text, at, at, final, first=True)
                if ready is not False:
                    return ~at if ready is None else self._start(group, text, at, at)
        self._state = self._prose
        return at

    def _handle_literal(self, match: re.Match[str], final: bool) -> int:
        """Act on a tag, a lone closer, or a special token."""
        text, group, marker, known = match.string, match.lastgroup or "", match[0], self._plan.markers
        if group in ("suffixed", "numbered") and marker[-1] != ">":
            if not final:
                return ~match.start()
            self._out.add_text(marker)
            return match.end()
        if (
            group == "sentinel"
            and not final
            and self._plan.literal_scanner.hold_from(text, match.start()) == match.start()
        ):
            return ~match.start()
        if group == "unlabelled":
            if match.end() == len(text) and not final:
                return ~match.start()
            marker = max((each for each in known.unlabelled_openers if marker.startswith(each)), key=len)
            begins = self._out.at_start and not self._out.has_group
            # a space after it shows that it is talked about
            group = "opener" if begins and not text.startswith(" ", match.start() + len(marker)) else "text"
        if group == "suffixed" and known.suffixed_closer_start(marker):
            group = "closer"
        group = _GROUPS.get(group, group)
        if group == "opener" and self._is_in_sentence(marker):
            if match.end() == len(text) and not final:
                return ~match.start()
            following = text[match.end() : match.end() + 1]
            if following not in ("\n", "\r") and (_READABLE.match(marker) or not following.isalnum()):
                self._out.add_text(marker)
                closer = known.reasoning_closer(marker)
                self._mentioned_tags[closer] = self._mentioned_tags.get(closer, 0) + 1
                return match.end()
        self._apply_literal(group, marker)
        return match.start() + len(marker)

    def _is_in_sentence(self, marker: str) -> bool:
        """Whether a tag of reasoning is inside a sentence of the answer, where it may be a word."""
        before = self._out.last_text(CONTEXT)
        line = before[before.rfind("\n") + 1 :]
        if not line.strip() or not self._out.has_text:
            return False
        if _READABLE.match(marker) is None:
            return is_quoted_token(before, "", "")
        return not ends_sentence(line)

    def _write_text(self, raw: str) -> None:
        known = self._plan.markers
        if raw in known.reasoning_tags or raw in known.answer_tags:
            self._apply_literal("opener" if raw in known.reasoning_tags else "frame", raw)
        else:
            super()._write_text(raw)

    def _apply_literal(self, group: str, marker: str) -> None:
        known = self._plan.markers
        if group == "opener":
            self._out.add_zone_tag(marker, "reasoning")
            self._enter_reasoning(known.reasoning_closer(marker))
        elif group == "closer":
            self._handle_closer(marker)
        elif group == "frame" and self._is_frame(marker):
            self._out.add_zone_tag(marker, "text")
            self._frame_closer = known.answer_tags.get(marker, "")
            self._at_line_start = True
        elif marker in known.plain_answer_tags or marker in known.readable_answer_tags:
            self._out.add_text(marker)
        elif not self._out.is_after_call:
            self._handle_lone_marker(group, marker)
        elif group == "end":
            self._mark(marker, "debris")
            self._state = self._after_call
        else:
            if self._out.has_group and not self._out.group_is_quoted and marker.startswith("</"):
                if not self._out.group_has_opening_tag:
                    self._out.add_call_fix(Fix("marker", f"only the closer {marker!r} was there"))
                self._out.accept_group()
            self._mark(marker, "markup")
            self._state = self._after_call

    def _handle_closer(self, marker: str) -> None:
        if self._mentioned_tags.get(marker):
            self._mentioned_tags[marker] -= 1
            self._out.add_text(marker)
        else:
            self._handle_orphan_closer(marker)

    def _handle_lone_marker(self, group: str, marker: str) -> None:
        """Act on a marker that is beside no call."""
        if group != "lone":
            self._out.add_token(marker, "debris" if group == "end" else "markup")
        elif marker.startswith("</"):
            self._out.add_text(marker)
        else:  # perhaps doubled: the next one may open a call
            self._out.add_parts([Part("markup", marker)], definite=False)

    def _is_frame(self, marker: str) -> bool:
        """Whether this tag frames the answer, and is not talked about."""
        if marker == self._frame_closer:
            return True
        known = self._plan.markers
        beside = self._out.is_after_tag or (
            marker not in known.plain_answer_tags and (self._out.at_start or self._out.is_after_call)
        )
        return marker in known.answer_tags and beside

    def _after_call(self, text: str, at: int, final: bool) -> int:
        """After a call: a made-up result, a separator before the next call, or prose."""
        bare = self._write_space(text, at)
        if bare > at:
            return bare
        for opener in self._plan.markers.result_openers:
            if text.startswith(opener, at):
                self._state = self._made_up_result
                return at
            if not final and len(text) - at < len(opener) and opener.startswith(text[at:]):
                return ~at
        separator = _SEPARATOR.match(text, at)
        if separator is not None:
            if separator.end() == len(text) and not final:
                return ~at
            self._mark(separator[0], "markup")
            return separator.end()
        self._state = self._prose
        self._at_line_start = True
        return at

    def _made_up_result(self, text: str, at: int, _final: bool) -> int:
        """Leave out a result that the model made up, and all that follows it."""
        self._mark(text[at:], "result")
        return len(text)
