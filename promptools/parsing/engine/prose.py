"""The states outside code and reasoning: prose, the first word of a line, and what follows a call.

`_prose` searches the text for the next marker and decides, by what the marker is and by what precedes it:

    head of a dialect   a candidate (`machine.py`), unless its text or the text before it shows that it is none
    header of a message the rest of the reply goes to the parser for channels
    backticks           inline code or a fence (`fences.py`); closed code that holds no call is skipped at once
    tag of reasoning    a reasoning zone (`thought.py`); inside a sentence, where a tag may be a word, it is text
    tag of an answer    markup that frames the content
    lone closer, token  markup if it is beside a call, else text or debris

A tool's name that begins a line may be a call, so `_first_word` looks at the first word of each line; `_line` is set
where one is expected. The end of the text that may become a marker is held back.

After a call (`_after`), a result that the model makes up ends the reply: it and all that follows are left out.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator

from promptools.dialects.settle import broken
from promptools.parsing.engine.machine import Machine
from promptools.parsing.engine.mention import LINE, is_mentioned
from promptools.parsing.output import SPACE
from promptools.parsing.parts import Part
from promptools.parsing.scanner import Scanner
from promptools.parsing.tokens import ends_sentence, is_quoted
from promptools.parsing.zones import CHANNEL, CLOSER_OF, FRAMES, PLAIN, READABLE, RESULTS, closer_of
from promptools.types import Fix

_INLINE = re.compile(r"(?:(`{1,2})(?!`)[^`\n]*\1(?!`)(?!\Z)(?:[ ,.;:(){}]*+(?=`))?+){1,64}")
"""Inline code, several in a row if only characters that begin no marker are between them."""
_PLAIN_FENCE = re.compile(r"(`{3,63}+|~{3,63}+)[\w.+#-]{0,32}\r?\n([\w#/@$(][^`~]*+)?\1(?![`~]|\Z)")
"""A whole code fence, to be skipped at once if it begins no call."""
SHORT = 1024
"""Characters of a text short enough to be searched to its end from each call."""
TAIL = 256
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
CUT = "cut"
"""In place of a head's group: a call of some dialect, truncated before it was clear which."""
_SEPARATOR = re.compile(r"[,;]\s{0,256}(?:(?=[{\[])|\Z)")


_GROUPS = {"suffixed": "opener", "numbered": "end"}
"""Markers that are found by a pattern, and the group of each once it is complete."""


class Prose(Machine):
    """The states of prose."""

    _entered = ""
    _talked: dict[str, int]
    """For each closer, the open tags that are words of the answer: the closer is then a word, too."""
    _framed: str = ""
    """The closing tag of the frame around the answer."""
    _looked_at = ""
    _cut = False
    """The text is over, truncated at the server's token limit."""
    _rare = False
    """The text holds one of the words without which it holds no rare marker."""

    @abstractmethod
    def _backticks(self, found: re.Match[str], final: bool) -> int: ...
    @abstractmethod
    def _enter_zone(self, closer: str) -> None: ...
    @abstractmethod
    def _orphan(self, marker: str) -> None: ...

    def _prose(self, text: str, at: int, final: bool) -> int:
        """Write text up to the next marker, and act on that."""
        if self._line:
            return self._first_word(text, at, final)
        begin = at
        scanner, later = self._scanners(text)
        held = scanner
        resumed, self._entered = self._entered is text and len(text) > SHORT, text
        search = self._swept(scanner, text).search if resumed else scanner.search
        while True:
            match = search(text, at)
            if match is None:
                cut = len(text) if final else held.hold(text, begin)
                self._last_words(text[begin:cut], final)
                return cut if cut == len(text) else ~cut
            start = match.start()
            first = at == begin and not text[begin:start].strip(SPACE)
            scanner = scanner if first else later
            group = match.lastgroup or ""
            if group in self._plan.heads or group in self._plan.headers:
                taken = self._taken(match, scanner, text, final, first=first)
                if taken is not None and not self._is_header_mentioned(
                    taken[0], text[max(begin, start - LINE) : start]
                ):
                    group, head_at, end = taken
                    if end < 0:  # a longer marker may begin before it
                        head_at = start = min(start, held.hold(text, begin))
                    self._out.words(text[begin:head_at])
                    return ~start if end < 0 else self._enter(group, text, head_at, end)
                match = self._plan.literals.match(text, start)
            at = start + 1 if match is None else self._past(match, text, first=first)
            if match is not None and at < 0:
                self._out.words(text[begin:start])
                return self._literal(match, final) if match.lastgroup != "ticks" else self._backticks(match, final)
            search = self._swept(later, text).search

    def _is_header_mentioned(self, group: str, before: str) -> bool:
        """Whether the text before a message's header shows that it is talked about; `before` is not written yet."""
        dialect = self._plan.headers.get(group)
        if dialect is None or self._rules.strictness == "lenient":
            return False
        expected = dialect.name == self._rules.expect
        before = (self._out.last_words(LINE) + before)[-LINE:]
        token = before.find("<|", before.rfind("\n") + 1)  # of this header, which was not accepted at its first token
        before = before if token < 0 else before[:token]
        return is_mentioned(before, fenced=False, sentinel=True, expected=expected)

    def _past(self, found: re.Match[str], text: str, *, first: bool) -> int:
        """Return the offset after code or a lone closer that means nothing here; -1: it has a meaning."""
        if found.lastgroup == "ticks":
            inline = found.end() - found.start() < 3
            code = _INLINE.match(text, found.start()) if inline else self._plain_fence(text, found.start())
            return code.end() if code is not None else -1
        means = found.lastgroup != "lone" or not found[0].startswith("</") or (first and self._out.beside_call)
        return -1 if means else found.end()

    def _last_words(self, words: str, final: bool) -> None:
        """Write text without a marker; an unfinished closer beside a call, at the end of the reply, is markup."""
        rest = words.lstrip(SPACE) if final and self._out.beside_call and len(words) < TAIL else ""
        if len(rest) < 3 or not any(each.startswith(rest) for each in self._plan.closers):
            self._out.words(words)
            return
        self._out.words(words[: len(words) - len(rest)])
        self._mark(rest, "markup")

    def _plain_fence(self, text: str, start: int) -> re.Match[str] | None:
        """Return the match of the whole fence that begins here, if its first word cannot begin a call."""
        fence = _PLAIN_FENCE.match(text, start)
        if fence is None or not fence[2]:
            return fence
        word = fence.start(2)
        begins = self._sought.every.now.match_word(text, word) is not None or any(self._plan.line_heads(text, word))
        return None if begins else fence

    def _taken(
        self, found: re.Match[str], scanner: Scanner, text: str, final: bool, *, first: bool
    ) -> tuple[str, int, int] | None:
        """Return the group, start and end of what begins at the match; the end is -1 if more text is needed."""
        start = found.start()
        heads: Iterator[tuple[str, int]]
        if text[start] == "\n":  # the line break and indent before a head
            head_at = found.end() - len(text[start : found.end()].lstrip("\n\t "))
            flush = text[head_at - 1] == "\n"
            heads = (
                each for each in self._line_heads(text, head_at) if flush or not self._plan.heads[each[0]][1].flush
            )
        else:
            head_at = start
            heads = scanner.all_at(text, found)
        for group, end in heads:
            if group in self._plan.heads or group in self._plan.headers:
                ready = self._begins(group, text, head_at, end, final, first=first)
                if ready is not False:
                    return group, head_at, end if ready else -1
        if self._cut and any(self._is_cut(group, text, start, end) for group, end in scanner.all_at(text, found)):
            return CUT, start, len(text)
        return None

    def _is_cut(self, group: str, text: str, start: int, end: int) -> bool:
        """Whether a truncated text ends in the sure beginning of a call."""
        dialect, head = self._plan.heads.get(group, (None, None))
        if dialect is None or head is None or end < len(text) or (head.labels and None not in head.labels):
            return False
        if (head.tier or dialect.tier) not in "SA" or not _OPENER.match(text, start):
            return False
        return head.begins is None or head.begins(text, start, end, fresh=True, rules=self._rules) is None

    def _first_word(self, text: str, at: int, final: bool) -> int:
        """Start a candidate if the first word of the line begins a call; else go on in prose."""
        bare = self._take_space(text, at)
        if bare > at:
            return bare
        for group, end in self._line_heads(text, at):
            ready = self._begins(group, text, at, end, final, first=True)
            if ready is not False:
                return ~at if ready is None else self._enter(group, text, at, end)
        self._line = False
        return at

    def _scanners(self, text: str) -> tuple[Scanner, Scanner]:
        """Return the scanner for now, and the one for after the next text."""
        sought = self._sought
        if text is not self._looked_at:
            self._looked_at, self._rare = text, self._plan.rare.stands_in(text)
        now, beside, later = sought.every if self._rare else sought.here
        if self._out.fresh or self._out.grouped:
            return now, later
        return (beside if self._out.beside_call else later), later

    def _begins(self, group: str, text: str, start: int, end: int, final: bool, *, first: bool) -> bool | None:
        """Whether a call or a message begins here, as the marker suggests; None: more text is needed."""
        if group in self._plan.heads:
            return self._ready(group, text, start, end, final, first=first)
        channels = self._plan.headers[group].channels
        assert channels is not None
        return channels.begins(text, start, self._rules, first=first and self._out.fresh, final=final)

    def _enter(self, group: str, text: str, start: int, end: int) -> int:
        """Start a candidate, or leave the rest of the text to the parser of messages with headers."""
        if group == CUT:
            malformed = broken("truncated", "the text ended before its arguments", "", None)
            self._out.parts([Part("malformed", text[start:], malformed=malformed)], firm=True)
            return end
        if group in self._plan.heads:
            self._line = False
            return self._open(group, text, start, end)
        self.header = self._plan.headers[group], text[start:]
        return len(text)

    def _opening(self, text: str, at: int, final: bool) -> int:
        """At the start of the reply: look for a header whose control tokens were stripped."""
        bare = self._take_space(text, at)
        if bare > at:
            return bare
        if text[at] not in self._plan.firsts:
            self._state = self._prose
            return at
        for group, dialect in self._plan.headers.items():
            if dialect.channels is not None and group == dialect.channels.bare.group:
                ready = self._begins(group, text, at, at, final, first=True)
                if ready is not False:
                    return ~at if ready is None else self._enter(group, text, at, at)
        self._state = self._prose
        return at

    def _literal(self, found: re.Match[str], final: bool) -> int:
        """Act on a tag, a lone closer, or a special token."""
        text, group, marker = found.string, found.lastgroup or "", found[0]
        if group in ("suffixed", "numbered") and marker[-1] != ">":
            if not final:
                return ~found.start()
            self._out.words(marker)
            return found.end()
        if group == "sentinel" and not final and self._plan.literals.hold(text, found.start()) == found.start():
            return ~found.start()
        if group == "channel":
            if found.end() == len(text) and not final:
                return ~found.start()
            marker = CHANNEL
            begins = self._out.fresh and not self._out.grouped
            # a space after it shows that it is talked about
            group = "opener" if begins and not text.startswith(" ", found.start() + len(marker)) else "text"
        group = _GROUPS.get(group, group) if marker[1] != "/" else "closer" if group == "suffixed" else group
        if group == "opener" and self._in_line(marker):
            if found.end() == len(text) and not final:
                return ~found.start()
            following = text[found.end() : found.end() + 1]
            if following not in ("\n", "\r") and (_READABLE.match(marker) or not following.isalnum()):
                self._out.words(marker)
                closer = closer_of(marker)
                self._talked[closer] = self._talked.get(closer, 0) + 1
                return found.end()
        self._take_literal(group, marker)
        return found.start() + len(marker)

    def _in_line(self, marker: str) -> bool:
        """Whether a tag of reasoning is inside a sentence of the answer, where it may be a word."""
        before = self._out.last_words(LINE)
        line = before[before.rfind("\n") + 1 :]
        if not line.strip() or not self._out.spoke:
            return False
        if _READABLE.match(marker) is None:
            return is_quoted(before, "", "")
        return not ends_sentence(line)

    def _give_back(self, raw: str) -> None:
        if raw in CLOSER_OF or raw in FRAMES:
            self._take_literal("opener" if raw in CLOSER_OF else "frame", raw)
        else:
            super()._give_back(raw)

    def _take_literal(self, group: str, marker: str) -> None:
        if group == "opener":
            self._out.junction(marker, "reasoning")
            self._enter_zone(closer_of(marker))
        elif group == "closer":
            self._closer(marker)
        elif group == "frame" and self._frames(marker):
            self._out.junction(marker, "text")
            self._framed = FRAMES.get(marker, "")
            self._line = True
        elif marker in PLAIN or marker in READABLE:
            self._out.words(marker)
        elif not self._out.beside_call:
            self._alone(group, marker)
        elif group == "end":
            self._mark(marker, "debris")
            self._state = self._after
        else:
            if self._out.grouped and not self._out.quoting and marker.startswith("</"):
                if not self._out.opened:
                    self._out.note(Fix("marker", f"only the closer {marker!r} was there"))
                self._out.accept()
            self._mark(marker, "markup")
            self._state = self._after

    def _closer(self, marker: str) -> None:
        if self._talked.get(marker):
            self._talked[marker] -= 1
            self._out.words(marker)
        else:
            self._orphan(marker)

    def _alone(self, group: str, marker: str) -> None:
        """Act on a marker that is beside no call."""
        if group != "lone":
            self._out.token(marker, "debris" if group == "end" else "markup")
        elif marker.startswith("</"):
            self._out.words(marker)
        else:  # perhaps doubled: the next one may open a call
            self._out.parts([Part("markup", marker)], firm=False)

    def _frames(self, marker: str) -> bool:
        """Whether this tag frames the answer, and is not talked about."""
        if marker == self._framed:
            return True
        beside = self._out.beside_tag or (marker not in PLAIN and (self._out.fresh or self._out.beside_call))
        return marker in FRAMES and beside

    def _after(self, text: str, at: int, final: bool) -> int:
        """After a call: a made-up result, a separator before the next call, or prose."""
        bare = self._take_space(text, at)
        if bare > at:
            return bare
        for opener in RESULTS:
            if text.startswith(opener, at):
                self._state = self._imagined
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
        self._line = True
        return at

    def _imagined(self, text: str, at: int, _final: bool) -> int:
        """Leave out a result that the model made up, and all that follows it."""
        self._mark(text[at:], "result")
        return len(text)
