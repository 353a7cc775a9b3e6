"""Find and read calls that are JSON without markers around it.

A brace and a key, such as `{"name"`, also occur in prose. Whether they may begin a call depends on the key, and on the
text before them.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

from promptools.dialects.calls.call_streamer import ArgumentStreamer
from promptools.dialects.calls.envelope import FIRST_KEYS, NotACall
from promptools.dialects.calls.json_body import JsonBody, read_calls
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import Head, trace_entry
from promptools.dialects.prefix_patterns import sequence
from promptools.dialects.readers.block_markers import fence_closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.reply_markers import reply_markers
from promptools.parsing.parts import (
    NEED_MORE,
    Candidate,
    CandidateBase,
    NeedMore,
    Part,
    TriedStrategy,
    add_fix,
    total_length,
)
from promptools.patterns import lazy_pattern
from promptools.types import Fix

MAX_SURPLUS_BRACKETS = 3
"""The maximum number of surplus closing brackets that are discarded after a complete value."""

_KEY = (
    r'"[^"\\\n]{0,80}(?:"|\Z)'
    r"|'[^'\\\n]{0,80}(?:'|\Z)"
    r"|[“‘][^”’\n]{0,80}(?:[”’]|\Z)"
    r"|[A-Za-z_][\w.-]{0,79}(?:\s{0,8}:|\s{0,8}\Z)"
)
_COMMENT = r"(?:/\Z|//[^\n]{0,80}(?:\n\s{0,64}|\Z))?"
_OBJECT = rf"""\{{(?!\{{\{{)\{{?+\s{{0,64}}+(?=["'“‘A-Za-z_/]|\Z){_COMMENT}(?:\Z|{_KEY})"""
_LIST = rf"\[\s{{0,64}}(?:\Z|{_OBJECT})"
_COMPLETE = lazy_pattern(
    r"""(?:\[\s{0,64})?\{\{?\s{0,64}(?://[^\n]{0,80}\n\s{0,64})?(?:"([^"\\\n]{0,80})"|'([^'\\\n]{0,80})'|[“‘]([^”’\n]{0,80})[”’]|([A-Za-z_][\w.-]{0,79})\s{0,8}:)"""
)
_EMPTY_LIST = lazy_pattern(r"\[\s*\]")


def _object_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    match = _COMPLETE.fullmatch(text, start, end)
    if match is None:
        return NEED_MORE
    return fresh or _opens_call(match[match.lastindex or 0], options)


def _opens_call(key: str, options: ParseOptions) -> bool:
    """Return whether an object with the first key `key` may be a call even if other text precedes the object."""
    if key in FIRST_KEYS:
        return True
    return options.tools is not None and (options.tools.get(key) is not None or options.strictness == "lenient")


def _empty_list_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether `text[start:end]` is a complete empty list, `[]`; `NEED_MORE` if its end may still come.

    Unlike other lists, an empty list is recognized anywhere in the text.
    """
    del fresh, options
    return text[end - 1] == "]" or (NEED_MORE if end == len(text) else start < 0)


OBJECT_HEAD: Final = Head(("{",), _OBJECT, body_starts="", gate=_OBJECT, begins=_object_begins, fenced=True)
LIST_HEAD: Final = Head(("[",), _LIST, body_starts="", gate=_LIST, begins=_object_begins, fenced=True)
EMPTY_LIST_HEAD: Final = Head(
    ("[",), sequence(r"\[", r"\s{0,64}", r"\]"), body_starts="", gate=r"\[", begins=_empty_list_begins
)
"""Finds an empty list, `[]`, which some models write to say that they make no call."""


def bare_json_heads(shape: str) -> tuple[Head, ...]:
    """Return the `Head` objects that find JSON without markers, in search order.

    If the `shape` of a family's calls is "list", the heads that find lists come first, and an empty list is found too.
    """
    return (EMPTY_LIST_HEAD, LIST_HEAD, OBJECT_HEAD) if shape == "list" else (OBJECT_HEAD, LIST_HEAD)


def bare_json_candidate(head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
    """Return a reader of JSON without markers. `head`: the code fence before the JSON; empty if there is none."""
    if not head:
        return JsonCandidate(options, evidence, definite=definite)
    run = head[: len(head) - len(head.lstrip(head[0]))]
    return JsonBlockReader(head, fence_closers(run), options, evidence, definite=definite)


class JsonCandidate(CandidateBase):
    """Reads one JSON value, which may contain one or more calls, and any surplus closing brackets after the value.

    When the first character after these brackets arrives, the reader decides whether the value is a call.
    """

    def __init__(self, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._options = options
        self._evidence = evidence
        self._body = JsonBody()
        self._streamer = ArgumentStreamer(options) if definite and evidence.expected else None
        self._ended = False
        self._surplus = ""

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        at: int | None = start
        if not self._ended:
            at = self._body.feed(piece, start, len(piece))
            self._ended = at is not None
            if self._streamer is not None:
                self.early += self._streamer.feed(piece[start:at], last=self._ended)
        while at is not None and at < len(piece):
            if piece[at] not in "}]" or len(self._surplus) == MAX_SURPLUS_BRACKETS:
                self._decide(close=False, finish_reason=None)
                return at
            self._surplus += piece[at]
            at += 1
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        self._decide(close=not self._ended, finish_reason=finish_reason)

    def _decide(self, *, close: bool, finish_reason: str | None) -> None:
        raw = self._body.raw
        if _EMPTY_LIST.fullmatch(raw) and not self._surplus:
            self.parts = [Part("markup", raw)]
            return
        lossy = close and finish_reason == "length"
        try:
            stopped = finish_reason in COMPLETE_FINISH_REASONS
            evidence = self._evidence if raw.startswith("{") else self._evidence._replace(at_start=False)
            end = reply_markers().end_of_turn(raw) if close and not lossy else len(raw)
            if end < len(raw):  # a doubled brace that one brace closes: `{{"name": ...}<|im_end|>`
                parts = read_calls(raw[:end], self._options, evidence, close=True, stopped=True)
            else:
                parts = self._body.calls(self._options, evidence, close=close and not lossy, stopped=stopped)
            self.parts = self._streamer.reconcile_parts(parts) if self._streamer is not None else parts
            self.tries.append(trace_entry("json", len(raw), self.parts))
            self.unread = raw[total_length(self.parts) :]
            # The bracket of a list that never began: ollama#17638.
            if self._surplus and not self.unread:
                add_fix(reversed(self.parts), Fix("closer", f"{self._surplus!r} too many"))
                self.parts.append(Part("markup", self._surplus))
            else:
                self.unread += self._surplus
        except NotACall as no:
            self.parts = [self._undecodable_part(raw + self._surplus, str(no))]
            self.tries.append(TriedStrategy("json", "text", str(no), len(raw)))

    def _undecodable_part(self, raw: str, why: str) -> Part:
        """Return the value as text or, if a call's name was already streamed, as a malformed call."""
        if self._streamer is not None and self._streamer.started:
            return Part("malformed", raw, malformed=malformed_call("invalid_json", why, self._evidence.dialect, None))
        return Part("text", raw)


# A whole reply that is one JSON string with a call inside: some chat templates encode a reply once more.


_INSIDE = lazy_pattern(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)

_CHARACTER = r"(?s:\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.)"
"""The pattern of one character as it is written in a JSON string; compiled only when needed.

A character is written as itself, as an escape such as `\\n`, or as a surrogate pair of two escapes.
"""
# Seen in OpenManus#989.
_FIX = Fix("unwrap", "the whole call was encoded as a string")


class EncodedReplyReader(CandidateBase):
    """Reads a reply that is one JSON string with a call inside, from the opening to the closing quote."""

    def __init__(self, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._options = options
        self._evidence = evidence
        self._pieces: list[str] = []
        self._open = False
        self._escaped = False

    def feed(self, piece: str, start: int) -> int | None:
        """Read text up to the closing quote; return the index just past the quote, or None if more text is needed."""
        at = start
        if not self._open:
            self._open, at = True, start + 1
        if self._escaped and at < len(piece):
            self._escaped, at = False, at + 1
        inside = _INSIDE.match(piece, at)
        end = inside.end() if inside else at
        if end < len(piece) and piece[end] == '"':
            self._pieces.append(piece[start : end + 1])
            self._decide()
            return end + 1
        self._escaped = end < len(piece)  # without a closing quote, the match stops only at a backslash at the end
        self._pieces.append(piece[start:])
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide that the reply is text, because the string was never closed."""
        del finish_reason
        self._reject("the string never closed")

    def _decide(self) -> None:
        raw = "".join(self._pieces)
        try:
            inner: str = json.loads(raw, strict=False)
            parts = read_calls(inner.strip(), self._options, self._evidence)
        except (ValueError, RecursionError, NotACall) as error:
            self._reject(str(error))
            return
        if total_length(parts) < len(inner.strip()):
            self._reject("text follows the call inside the string")
            return
        self._restore_raw(parts, raw, len(inner) - len(inner.lstrip()))
        self.parts = parts
        self.tries.append(trace_entry("quoted", len(raw), parts))

    def _restore_raw(self, parts: list[Part], raw: str, at: int) -> None:
        """Set the `raw` of each part to its text as the model wrote it, with the escapes of the JSON string.

        `raw`: the whole string with its quotes. `at`: the offset in the decoded string at which the first part begins.
        """
        offsets = [match.start() for match in re.compile(_CHARACTER).finditer(raw, 1)]
        begin = 0
        for part in parts:
            at += len(part.raw)
            end = len(raw) if part is parts[-1] else offsets[at]
            part.raw, begin = raw[begin:end], end
            if part.call:
                part.call = replace(part.call, fixes=(_FIX, *part.call.fixes))

    def _reject(self, why: str) -> None:
        raw = "".join(self._pieces)
        self.parts = [Part("text", raw)]
        self.tries.append(TriedStrategy("quoted", "text", why, len(raw)))
