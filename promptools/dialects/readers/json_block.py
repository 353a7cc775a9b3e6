"""Read JSON between two markers, as most dialects write calls, and repair what models get wrong in it.

The text is an opening marker (the head, already matched), one or several JSON bodies, and a closing marker. Any part
may be damaged: the closer may be missing, incomplete, another dialect's, or replaced by the next opener; a list of
calls may be left open; and quotes inside a string may not be escaped, so that the brackets do not show where the JSON
ends.

The reader is in one of two states:

- In a body (`_in_body`): `JsonBody` follows the brackets, while `MarkerSearch` searches for markers inside what looks
  like a string. At each of the first `MARKER_ATTEMPTS` markers, the text before the marker is read as if the body ended
  there. The body ends at the first marker where that succeeds. If all attempts fail, the body ends at its last bracket,
  at the end of the text, or at the first marker that follows balanced brackets (`_fallback_end`). If brackets are open
  before a closer, the body ends there (`_open_end`) only if nothing closes them later; otherwise the closer is inside a
  string whose quotes are not escaped.
- After a body (`_after_body`): a closer finishes the block; a bracket, or a tool's name, starts the next body.
  Anything else is foreign text. Whether the block is then accepted without its closer depends on how unmistakable its
  markers are, and on the request.

`_finished_parts` holds the bodies that were read, and `_gap` the text after the last of them. At the end, `_finish`
makes parts that tile the text exactly, or `_give_up` turns everything into text again. A call whose name has already
been emitted is never taken back: it is reported as malformed.

Total work is O(n): each character is looked at once, and once more in each of at most `MARKER_ATTEMPTS` attempts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from promptools.dialects.calls.call_streamer import ArgumentStreamer
from promptools.dialects.calls.envelope import JsonNode, NotACall, read_node
from promptools.dialects.calls.json_body import JsonBody, as_invalid_json, is_unreadable, read_calls
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.block_markers import GAP_AFTER_FENCE, Closers, MarkerSearch, name_in_marker
from promptools.dialects.reply_markers import reply_markers
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.jsontext.read import Unreadable
from promptools.parsing.parts import CandidateBase, Part, TriedStrategy, add_fix, total_length
from promptools.patterns import lazy_pattern
from promptools.types import Fix, MalformedReason

# Find whole blocks that a broken block of the same family has swallowed at the end of a text.
#
# A string without its closing quote swallows everything after it. The text is read again from an opening marker on if
# only whole blocks follow up to the end of the text, each with strict JSON that is a call. A block that is quoted
# inside a string is thus left alone, because the rest of the string follows it.


MAX_OPENERS: Final = 8
"""How many opening markers, the last ones in the text, are tried as the beginning of complete blocks.

Each attempt is O(n) in characters.
"""

_NAME = lazy_pattern(r"([^\W\d][\w.:/-]{0,127}+)")
_FENCE = lazy_pattern(r"\s*+(?:```[\w+-]{0,16}\s*+)?")


def find_trailing_blocks(
    raw: str, closers: Closers, options: ParseOptions, evidence: Evidence, keys: tuple[str, str] | None
) -> int:
    """Find complete blocks at the end of `raw`, the text of a broken block.

    Return the offset of the first complete block, or -1 if there is none.
    """
    for at in _opener_offsets(raw, closers, evidence)[-MAX_OPENERS:]:
        if _only_whole_blocks(raw, at, closers, options, evidence, keys):
            return at
    return -1


def _opener_offsets(raw: str, closers: Closers, evidence: Evidence) -> list[int]:
    """Return the offsets of opening markers.

    Markers that may also occur in prose are recognized only at the beginning of a line.
    """
    pattern = _opener_pattern(closers.openers) if evidence.sentinel else _line_opener_pattern(closers.openers)
    return [match.start("opener") for match in pattern.finditer(raw)]


def _only_whole_blocks(
    raw: str, at: int, closers: Closers, options: ParseOptions, evidence: Evidence, keys: tuple[str, str] | None
) -> bool:
    """Return whether `raw[at:]` consists of complete blocks, each with a call to an offered tool."""
    opener, end = _opener_pattern(closers.openers), _end_pattern(closers.right, reply_markers().end_tokens)
    while at < len(raw):
        opened = opener.match(raw, at)
        if opened is None:
            return False
        at = _skip_match(_FENCE, raw, opened.end())
        named = (closers.next_name.match(raw, at) or _NAME.match(raw, at)) if closers.next_name is not None else None
        if named is not None:
            at = _skip_match(_FENCE, raw, named.end())
        if at >= len(raw) or raw[at] not in "{[":
            return False
        try:
            node, _, _ = read_node(raw, at, len(raw), options.anchors)
            name = named[1] if named is not None else None
            parts = read_calls(raw[at : node.end], options, evidence, name=name, keys=keys)
        except (Unreadable, NotACall):
            return False
        if not node.exact or not any(part.call for part in parts) or any(part.malformed for part in parts):
            return False
        at = _skip_match(end, raw, node.end)
    return True


def _skip_match(pattern: re.Pattern[str], raw: str, at: int) -> int:
    match = pattern.match(raw, at)
    assert match is not None
    return match.end()


@lru_cache(maxsize=64)
def _opener_pattern(openers: tuple[str, ...]) -> re.Pattern[str]:
    return lazy_pattern(rf"(?P<opener>{_any_literal(openers)})")


@lru_cache(maxsize=64)
def _line_opener_pattern(openers: tuple[str, ...]) -> re.Pattern[str]:
    return lazy_pattern(rf"\n[ \t]{{0,16}}+(?P<opener>{_any_literal(openers)})")


@lru_cache(maxsize=64)
def _end_pattern(right: tuple[str, ...], end_tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a block's end: end of a fence, closing marker and end-of-turn tokens, all optional."""
    return lazy_pattern(rf"\s*+(?:```\s*+)?(?:(?:{_any_literal(right)})\s*+)?(?:(?:{_any_literal(end_tokens)})\s*+)*+")


def _any_literal(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)"


# The block.


MARKER_ATTEMPTS = 4
"""How many markers inside what looks like a string are tried as the end of the body. The limit keeps reading O(n)."""
EMPTY_ARGUMENTS = "{}"
"""The JSON that is read in place of the missing arguments of a call."""

LOOKAHEAD_LIMIT = 64
"""How many characters after a value are examined in one step to find the closing marker."""

MAX_LOOKAHEAD_SPACE = 1024
"""How many characters, white space included, are examined in one step to find the beginning of the next call."""

_SPACE = lazy_pattern(r"\s*+")
_STRING_END = lazy_pattern(r"[\"']\s*+(?:[}\]]\s*+)++\Z")
"""Matches the closing quote of a string and the brackets after it, at the end of the text."""
_NEXT_BODY = lazy_pattern(r"\{|\[\s{0,64}+(?:\{|\[|\Z)")
"""Matches the beginning of another body: an object, or a list whose first item is an object or a list.

Other lists are not calls: `[1]` is a footnote.
"""


class JsonBlockReader(CandidateBase):
    """Reads one block of JSON between two markers, as a `promptools.parsing.parts.Candidate`."""

    def __init__(
        self,
        head: str,
        closers: Closers,
        options: ParseOptions,
        evidence: Evidence,
        *,
        definite: bool,
        name: str | None = None,
        fixes: Sequence[Fix] = (),
        envelope_keys: tuple[str, str] | None = None,
    ) -> None:
        """Start after `head`, the opening marker.

        `name`: the tool's name if the caller knows it; the body is then only the arguments. An empty `name` means that
        the marker should give a name but does not. If `name` is None, the tool's name is looked up in the marker, for
        example in an attribute. `fixes`: the repairs that were needed to read the marker. `envelope_keys`: the family's
        keys for the name and the arguments, if no other family uses them.
        """
        super().__init__(definite=definite, head=head)
        self._name = name if name is not None else name_in_marker(head)
        self._head_fixes = fixes
        self._envelope_keys = envelope_keys
        self._closers = closers
        self._marker_search = MarkerSearch(closers)
        self._options = options
        self._evidence = evidence
        self._list_opener: list[str] = []
        """A list's opening bracket and the space after it, held until the next character shows what the list holds."""
        self._open_lists = 0
        """The number of lists of calls whose closing bracket has not come yet."""
        self._list_closed = False
        """Whether a list of calls has been closed."""
        self._finished_parts: list[Part] = []
        self._surplus_brackets = ""
        """The surplus brackets that have come after the last value."""
        self._in_fence = "`" in head
        """Whether a code fence inside the block is open."""
        self._attempts_left = MARKER_ATTEMPTS
        self._decided = False
        self._final_count = 0  # how many parts are final: they are of earlier bodies, whose calls may have been emitted
        self._start_body()

    def _start_body(self) -> None:
        """Start to read a body, which is one JSON value of the block. Forget the state of the previous body."""
        self._body = JsonBody()
        self._value_ended = False
        """Whether the value has ended. If so, the closing marker or the next value is expected."""
        self._gap: list[str] = []
        self._lookahead = ""
        self._first_marker = self._first_closer = -1
        """Offsets of the first marker and of the first correct closing marker in the body; -1 if there is none."""
        self._streamer = self._new_streamer()
        self._marker_search.forget()
        self._unreadable: list[Part] | None = None
        self._fallback_end: tuple[int, str] | None = None
        """Where the body ends if its brackets do not end it: the offset, and the marker at that offset.

        This is used if the brackets never close, or if the JSON between them cannot be read.
        """
        self._open_end: tuple[int, str] | None = None
        """Where the body ends if its open brackets are not closed later: the offset, and the closing marker there."""
        self._after_open_end = ""
        """The beginning of the text after the marker at `_open_end`, which shows whether another block follows."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        at = start
        if self._lacks_body and at < len(piece) and piece[at] != "{":
            self._value_ended = True
        while at < len(piece):
            at = self._after_body(piece, at) if self._value_ended else self._in_body(piece, at)
            if self._decided:
                return at
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        if not self._value_ended:
            self._end_bracket()
            self._decide_open_body(finish_reason)
        elif self._lookahead and not any(mark.startswith(self._lookahead) for mark in self._expected_markers()):
            self._on_foreign_text(self._lookahead)
        elif self._lacks_body and not self._may_lack_body(finish_reason):
            self._report_truncated()
        else:
            self._finish(self._lookahead, self._missing_closer_fix(self._lookahead.strip()))

    # --- the body ---------------------------------------------------------------------------------------------------

    def _in_body(self, piece: str, at: int) -> int:
        """Consume the body up to the next marker in it, or up to the end of the piece."""
        if self._list_opener or (piece[at] == "[" and self._name is None and not self._body.has_text):
            return self._in_bracket(piece, at)
        if self._open_end is not None and self._call_follows(piece[at : at + MAX_LOOKAHEAD_SPACE]):
            self._body.extend(piece[at:])
            self._end_at_open_brackets(*self._open_end)
            return len(piece)
        stop, mark = self._marker_search.find(piece, at) if self._attempts_left else (len(piece), "")
        if self._unreadable is None:
            end = self._body.feed(piece, at, stop)
            if self._streamer is not None and self._open_end is None:
                self._stream(piece[at : stop if end is None else end], last=end is not None)
            if end is not None:
                self._marker_search.forget()
                self._body_ended()
                return end
        else:
            self._body.extend(piece[at:stop])
        if mark:
            self._try_marker(mark)
        return stop

    def _in_bracket(self, piece: str, at: int) -> int:
        """Consume the opening bracket of a list.

        The objects of a list are read one by one. A list of anything else is read as a whole.
        """
        match = _SPACE.match(piece, at if self._list_opener else at + 1)
        assert match is not None
        end = match.end()
        self._list_opener.append(piece[at:end])
        if end < len(piece):
            if piece[end] == "{":
                self._finished_parts.append(Part("markup", "".join(self._list_opener)))
                self._list_opener = []
                self._open_lists += 1
            self._end_bracket()
        return end

    def _end_bracket(self) -> None:
        """Add the opening bracket in `_list_opener`, if there is one, to the body."""
        opener, self._list_opener = "".join(self._list_opener), []
        if opener:
            self._body.feed(opener, 0, len(opener))

    def _try_marker(self, marker: str) -> None:
        """Try to read the text before a marker as a call; if this succeeds, end the body at the marker.

        The marker is in what looks like a string. If brackets are still open before a closing marker, the marker's
        place is only recorded as `_open_end`.
        """
        raw = self._body.raw
        inside = raw[: -len(marker)]
        self._first_marker = len(inside) if self._first_marker < 0 else self._first_marker
        if self._first_closer < 0 and marker in self._closers.right:
            self._first_closer = len(inside)
        opener = marker not in (*self._closers.right, *self._closers.wrong)
        whole = inside.rstrip(" \t\r\n,;`").endswith(("}", "]")) and inside.count("{") <= inside.count("}")
        if self._fallback_end is None and whole:
            self._fallback_end = len(inside), marker
        self._attempts_left -= 1
        parts = self._read(inside, close=True, stopped=not opener)
        if not (opener or whole) and parts is not None and not is_unreadable(parts):
            self._open_end, self._attempts_left = (len(inside), marker), 0
        elif parts is not None and not is_unreadable(parts) and self._accept_before_gap(parts, inside):
            if opener:
                self.unread = marker
            self._finish("" if opener else marker, self._marker_fix(marker))
        elif self._unreadable is not None and marker in self._closers.right:
            lost = self._unreadable[0]
            self._finished_parts.append(Part(lost.kind, inside, malformed=lost.malformed))
            self._finish(marker, None)

    def _call_follows(self, text: str) -> bool:
        """Return whether another block follows the closing marker at `_open_end`. `text`: the text that comes next."""
        look = self._after_open_end
        if not look or any(opener.startswith(look) for opener in self._closers.openers):
            look = self._after_open_end = (look + text).lstrip()[:LOOKAHEAD_LIMIT]
        return look.startswith(self._closers.openers)

    def _stays_open(self, raw: str, finish_reason: str | None) -> bool:
        """Return whether the brackets that are open at `_open_end` are never closed, so that the body ends there."""
        if finish_reason == "length":
            return not self._after_open_end
        assert self._open_end is not None
        rest = raw[self._open_end[0] + len(self._open_end[1]) :].rstrip()
        for closer in self._closers.right:
            rest = rest.removesuffix(closer).rstrip()
        return _STRING_END.search(rest, max(0, len(rest) - LOOKAHEAD_LIMIT)) is None

    def _end_at_open_brackets(self, at: int, closer: str) -> None:
        """End the body at offset `at`, before the closing marker `closer`, and supply the missing brackets."""
        raw = self._body.raw
        parts = self._read(raw[:at], close=True, stopped=True)
        if parts is None or not self._accept_before_gap(parts, raw[:at]):
            self._give_up("text follows the JSON inside the block")
            return
        self.unread = raw[at + len(closer) :]
        self._finish(closer, self._marker_fix(closer))

    def _accept_before_gap(self, parts: list[Part], inside: str) -> bool:
        """Add `parts`, which cover the beginning of `inside`, if the rest is only a gap before a closing marker.

        `Closers.gap` says what such a gap may contain. Return whether the parts were added.
        """
        after = inside[total_length(parts) :]
        if self._closers.gap.fullmatch(after) is None:
            return False
        self._finished_parts += parts
        self._add_gap(after)
        return True

    def _body_ended(self) -> None:
        """Read the value whose last bracket has arrived."""
        raw = self._body.raw
        parts = self._read(raw, node=self._body.node, strict=self._body.strict)
        if parts is None and self._name_emitted:  # the list or block goes on after it
            self._finished_parts.append(self._malformed_part(raw, "invalid_json", "the JSON is not a call"))
            self._value_ended = True
        elif parts is None:
            self._give_up("the JSON is not a call")
        elif is_unreadable(parts) and self._fallback_end is not None and self._end_body_at(*self._fallback_end):
            return
        elif is_unreadable(parts) and self._attempts_left:
            self._unreadable = parts
        elif self._accept_before_gap(parts, raw):
            self._value_ended = True
        else:
            self._give_up("the JSON ends before its brackets do")

    def _decide_open_body(self, finish_reason: str | None) -> None:
        """Decide on a body that was still open when the text ended."""
        raw = self._body.raw
        if not raw:  # the opener alone
            if self._may_lack_body(finish_reason):
                self._finish("", self._missing_closer_fix())
            else:
                self._report_truncated()
            return
        if self._open_end is not None and self._stays_open(raw, finish_reason):
            self._end_at_open_brackets(*self._open_end)
            return
        if finish_reason != "length" and self._end_before_end_of_turn(raw):
            return
        if self._fallback_end is None and finish_reason != "length" and self._end_before_blocks(raw):
            return
        border = self._fallback_end or (self._first_closer, "")
        if border[0] >= 0 and self._end_body_at(*border):
            return
        lossy = finish_reason == "length"
        parts = self._unreadable or self._read(raw, close=not lossy, stopped=finish_reason in COMPLETE_FINISH_REASONS)
        if parts is None:
            self._give_up("the block never ended")
            return
        if self._unreadable:
            parts = [Part("malformed", raw, malformed=parts[0].malformed)]
        if self._accept_before_gap(parts, raw):
            self._finish("", self._missing_closer_fix())
        else:
            self._give_up("text follows the JSON inside the block")

    def _end_before_end_of_turn(self, raw: str) -> bool:
        """End an open body just before the tokens that end the turn; return whether that was possible.

        These tokens show that nothing was cut off. A body is still open if, for example, a doubled brace was closed
        only once: `{{"name": ...}<|im_end|>`.
        """
        end = reply_markers().end_of_turn(raw)
        parts = self._read(raw[:end], close=True, stopped=True) if end < len(raw) else None
        if parts is None or is_unreadable(parts) or not self._accept_before_gap(parts, raw[:end]):
            return False
        self.unread = raw[end:]
        self._finish("", self._missing_closer_fix())
        return True

    def _end_body_at(self, at: int, marker: str) -> bool:
        """End a broken body at offset `at`, before a marker inside it; return whether that was possible.

        Since the marker has arrived, the text before it was not cut off.
        """
        raw = self._body.raw
        parts = self._read(raw[:at])
        if parts is None or not self._accept_before_gap(parts, raw[:at]):
            return False
        self._finished_parts = [as_invalid_json(part, self._evidence.dialect) for part in self._finished_parts]
        closer = marker if marker in (*self._closers.right, *self._closers.wrong) else ""
        self.unread = raw[at + len(closer) :]
        self._finish(closer, None)
        return True

    def _end_before_blocks(self, raw: str) -> bool:
        """If a broken body has swallowed complete blocks, end the body before the first such block.

        Return whether there were such blocks.
        """
        at = (
            find_trailing_blocks(raw, self._closers, self._options, self._evidence, self._envelope_keys)
            if self._first_marker >= 0
            else -1
        )
        if at < 0:
            return False
        parts = self._read(raw[:at])
        if parts is None:
            self._give_up("the block never ended", keep=at - len(raw))
            return True
        why = "a string or bracket in it is never closed"
        broken = next((part for part in parts if part.malformed is not None), None)
        lost = (
            as_invalid_json(broken, self._evidence.dialect)
            if broken
            else self._malformed_part(raw[:at], "invalid_json", why)
        )
        self._finished_parts.append(Part("malformed", raw[:at], malformed=lost.malformed))
        self.unread = raw[at:]
        self._finish("", None)
        return True

    # --- what follows -----------------------------------------------------------------------------------------------

    def _after_body(self, piece: str, at: int) -> int:
        """Read what follows a value: a marker, the next value, or other text. Return the index to go on from."""
        taken = piece[at : at + LOOKAHEAD_LIMIT]
        self._lookahead += taken
        end = at + len(taken)
        gap = (self._closers.gap if self._in_fence else GAP_AFTER_FENCE).match(self._lookahead)
        assert gap is not None
        self._in_fence = self._in_fence and "`" not in gap[0]
        self._add_gap(gap[0])
        self._lookahead = look = self._lookahead[gap.end() :]
        if not look:
            return end
        match = self._closers.pattern.match(look)
        if match is not None:
            mark = match[0]
            opener = mark in self._closers.openers
            self.unread = look if opener else look[len(mark) :]
            self._lookahead = ""
            self._finish("" if opener else mark, self._marker_fix(mark))
        elif look == "<" or self._is_beginning(look):
            return end
        elif self._name is None and not self._lacks_body and (following := _NEXT_BODY.match(look)) is not None:
            if following.end() == len(look) and look[-1] != "{":
                return end
            self._next_body()
            held = len(look) - len(taken)
            if held > 0:  # held back because it could have been a closer
                self._in_body(look[:held], 0)
            return end - min(len(look), len(taken))
        elif (again := self._match_next_name(look)) is not None:
            if again.end() < len(look):
                self._next_body(again)
                return end - len(look) + again.end()
        else:
            self._on_foreign_text(look)
        return end

    def _match_next_name(self, lookahead: str) -> re.Match[str] | None:
        """Match the tool's name before another body of the block; return None for other text.

        At the end of the text, the name may be incomplete.
        """
        match = self._closers.next_name.match(lookahead) if self._closers.next_name is not None else None
        return (
            match if match is not None and (match.end() == len(lookahead) or lookahead[match.end()] in "{[") else None
        )

    def _expected_markers(self) -> tuple[str, ...]:
        return (*self._closers.markers, "```") if self._in_fence else self._closers.markers

    def _is_beginning(self, look: str) -> bool:
        """Return whether more text may turn `look` into an expected marker, or into the opening tag of a result."""
        return any(tag.startswith(look) for tag in (*self._expected_markers(), *reply_markers().result_tags))

    def _next_body(self, name_match: re.Match[str] | None = None) -> None:
        """Start another body in the same block. `name_match`: the match of the tool's name before the body."""
        self._record_surplus()
        if self._name_emitted:
            self._final_count = len(self._finished_parts)
        if name_match is not None:
            self._gap.append(name_match[0])
            self._name = name_match[1]
        self._finished_parts.append(Part("markup", "".join(self._gap)))
        self._start_body()

    def _on_foreign_text(self, lookahead: str) -> None:
        """Handle prose or a foreign marker in place of the closing marker: accept the block, or turn it into text."""
        gap = "".join(self._gap)
        loose = lookahead.startswith(("<|", "</", "<｜", *reply_markers().result_tags)) or (
            not self._lacks_body
            and (
                self._evidence.expected
                or self._options.strictness == "lenient"
                or not self._closers.required
                or (self._closers.line_end_closes and "\n" in gap)
                or self._list_closed  # Granite 3.1 writes no closer but the list's bracket
            )
        )
        if not loose or (self._open_lists and not lookahead.startswith("<")):
            self._give_up("text follows the JSON inside the block", keep=-len(lookahead))
            return
        bare = gap.rstrip()
        self._lookahead, self._gap, self.unread = (
            "",
            [bare],
            gap[len(bare) :] + lookahead,
        )  # the white space belongs to the text after it
        self._finish("", self._missing_closer_fix())

    # --- reading a body ---------------------------------------------------------------------------------------------

    def _read(
        self,
        raw: str,
        *,
        node: JsonNode | None = None,
        close: bool = False,
        stopped: bool = False,
        strict: bool = True,
    ) -> list[Part] | None:
        try:
            parts = self.read_unusual(raw) or read_calls(
                raw,
                self._options,
                self._evidence,
                node=node,
                close=close,
                stopped=stopped,
                name=self._name,
                strict=strict,
                keys=self._envelope_keys,
            )
            if self._swallows_marker(parts):
                return [
                    self._malformed_part(raw, "invalid_json", "a string without its closing quote runs past a marker")
                ]
            return self._streamer.reconcile_parts(parts) if self._streamer is not None else parts
        except NotACall as no:
            self.tries.append(TriedStrategy(self._evidence.dialect, "text", str(no), len(raw)))
            # The header of a Kimi K2 call may hold a counter and no name (SGLang 0.5.23).
            if self._name == "":
                return [
                    self._malformed_part(raw, "unknown_tool", "it names no tool, and its arguments do not fit just one")
                ]
            return None

    def _swallows_marker(self, parts: list[Part]) -> bool:
        """Return whether the parts reach past the first marker and contain a string whose end was guessed."""
        marked = 0 <= self._first_marker < total_length(parts)
        calls = [part.call for part in parts if part.call is not None] if marked else []
        return any(fix.detail.startswith(UNESCAPED_QUOTES) for call in calls for fix in call.fixes)

    def read_unusual(self, raw: str) -> list[Part] | None:
        """Read a body of a form that only one family writes; return None for any other body. A hook for subclasses.

        Raises `NotACall` to reject the body.
        """
        del raw
        return None

    @property
    def _lacks_body(self) -> bool:
        """Whether the tool's name is known but no part of a body has arrived."""
        return self._name is not None and not self._body.has_text and not self._finished_parts

    def _may_lack_body(self, finish_reason: str | None) -> bool:
        """Return whether a name at the end of the text may be a call without arguments.

        If the tools are known, the name must belong to one of them, since any other name may have been cut off.
        """
        tools = self._options.tools
        offered = tools is None or not self._name or tools.find(self._name) is not None
        return self._lacks_body and offered and finish_reason in COMPLETE_FINISH_REASONS

    def _read_as_empty(self) -> None:
        """Read the marker alone as a call without arguments."""
        self._finished_parts = self._read(EMPTY_ARGUMENTS) or [Part("text", self.head)]
        self._finished_parts[0].raw, self.head = self.head, ""
        self._record_fix(Fix("json", "no arguments: taken as {}"))

    def _add_gap(self, gap: str) -> None:
        if "}" in gap or "]" in gap:
            closed = min(gap.count("]"), self._open_lists)
            self._open_lists -= closed
            self._list_closed = self._list_closed or closed > 0
            self._surplus_brackets += "".join(char for char in gap.replace("]", "", closed) if char in "}]")
        self._gap.append(gap)

    def _record_surplus(self) -> None:
        """Record all surplus brackets of the block so far as one fix."""
        if self._surplus_brackets:
            self._record_fix(Fix("closer", f"{self._surplus_brackets!r} too many"))
            self._surplus_brackets = ""

    # --- calls that are emitted while they arrive -------------------------------------------------------------------

    def _new_streamer(self) -> ArgumentStreamer | None:
        """Return a streamer for the next body's call, or None if the call may not be streamed."""
        if not (self.definite and self._evidence.implies_call):
            return None
        return ArgumentStreamer(
            self._options, self._name, keyed=self._envelope_keys is not None and not self._envelope_keys[0]
        )

    @property
    def _name_emitted(self) -> bool:
        """Whether the name of this body's call has been emitted."""
        return self._streamer is not None and self._streamer.started

    def _stream(self, text: str, *, last: bool) -> None:
        """Emit all calls before the current one, and those parts of the current call that can no longer change.

        `text`: the new text of the body. `last`: whether the body has ended.
        """
        assert self._streamer is not None
        before = self._name_emitted
        early = self._streamer.feed(text, last=last)
        if self._name_emitted and not before and self._finished_parts:
            self._record_head_fixes()
            self._emit_early(self._finished_parts)
            self._finished_parts, self._final_count = [], 0
        self.early += early

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _finish(self, closing: str, fix: Fix | None) -> None:
        self._record_surplus()
        if self._lacks_body:
            self._read_as_empty()
        if self._open_lists:
            self._record_fix(Fix("closer", "no ']'"))
        if fix is not None:
            self._record_fix(fix)
        self._record_head_fixes()
        closing = "".join(self._gap) + closing
        self.parts = parts = [*self._head_parts(), *self._finished_parts]
        if closing:
            parts.append(Part("markup", closing))
        all_parts = [*self._emitted, *parts]
        self.tries.append(trace_entry(self._evidence.dialect, total_length(all_parts), all_parts))
        self._decided = True

    def _give_up(self, why: str, *, keep: int | None = None) -> None:
        """Turn the block into text.

        `keep`: an offset from the end, as a negative number. The text from this offset on is left unread, so that it is
        read again. Parts that are final stay as they are, and a call whose name has been emitted becomes malformed.
        """
        body = "" if self._value_ended else self._body.raw
        if self._final_count:
            self.unread = "".join(
                (*(part.raw for part in self._finished_parts[self._final_count :]), body, *self._gap, self._lookahead)
            )
            self._gap, self._lookahead, self._surplus_brackets = [], "", ""
            del self._finished_parts[self._final_count :]
            self._finish("", self._missing_closer_fix())
            return
        done = "".join(part.raw for part in self._finished_parts)
        raw = self.head + done + body + "".join(self._gap) + self._lookahead + self.unread
        cut = len(raw) if keep is None else len(raw) + keep
        self.parts = self._text_or_malformed(raw[:cut], why)
        self.unread = raw[cut:]
        self.tries.append(TriedStrategy(self._evidence.dialect, "text", why, cut))
        self._decided = True

    def _report_truncated(self) -> None:
        """Report a truncated call: the text ended after the opening marker, before the body."""
        self.parts = [self._malformed_part(self.head + self._lookahead, "truncated", "it ended after its opener")]
        self._decided = True

    def _text_or_malformed(self, raw: str, why: str) -> list[Part]:
        """Return the block as text, or as a malformed call if the call's name has been emitted."""
        if self._name_emitted:
            return [*self._head_parts(), self._malformed_part(raw[len(self.head) :], "invalid_json", why)]
        return [Part("text", raw)]

    def _malformed_part(self, raw: str, reason: MalformedReason, why: str) -> Part:
        return Part("malformed", raw, malformed=malformed_call(reason, why, self._evidence.dialect, self._name or None))

    def _head_parts(self) -> list[Part]:
        return [Part("markup", self.head)] if self.head else []

    def _record_fix(self, fix: Fix) -> None:
        add_fix(reversed(self._finished_parts), fix)

    def _record_head_fixes(self) -> None:
        """Record the repairs of the opening marker on the block's first call."""
        if any(part.call is not None for part in self._finished_parts):
            for fix in self._head_fixes:
                add_fix(self._finished_parts, fix)
            self._head_fixes = ()

    def _marker_fix(self, marker: str) -> Fix | None:
        if marker in self._closers.right:
            return None
        return self._missing_closer_fix() if marker in self._closers.openers else Fix("closer", f"closed by {marker!r}")

    def _missing_closer_fix(self, tail: str = "") -> Fix | None:
        if not self._closers.right or (not self._closers.required and not tail):
            return None
        return Fix("closer", f"no {self._closers.right[0]!r}" + (f", only {tail!r}" if tail else ""))
