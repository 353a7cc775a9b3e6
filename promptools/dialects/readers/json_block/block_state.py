"""The state of a JSON block that is being read, and how it becomes parts.

Bodies that were read are in `_finished_parts`; the text after the last of them is in `_gap`. In the end all of it
becomes parts that tile the text exactly (`_finish`), or all of it becomes text again (`_give_up`), except for calls
whose name has already been emitted: these are reported as malformed, never taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

from promptools.dialects.calls.envelope import JsonNode, NotACall
from promptools.dialects.calls.json_body import JsonBody, read_calls
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.calls.streaming.argument_streamer import ArgumentStreamer
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.json_block.block_markers import Closers, MarkerSearch, name_in_marker
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.parsing.parts import CandidateBase, Part, TriedStrategy, add_fix, total_length
from promptools.types import Fix, MalformedReason

MARKER_ATTEMPTS = 4
"""Markers inside what looks like a string that are tried as its end: enough for odd quotes, and still linear."""
EMPTY_ARGUMENTS = "{}"
"""The body that a call without arguments is read as."""


class JsonBlock(CandidateBase):
    """What the states of a block share: the bodies that were read, the calls that are streamed, and how it ends."""

    def __init__(
        self,
        head: str,
        closers: Closers,
        rules: ParseOptions,
        place: Evidence,
        *,
        definite: bool,
        name: str | None = None,
        fixes: Sequence[Fix] = (),
        envelope_keys: tuple[str, str] | None = None,
    ) -> None:
        """Begin after `head`.

        `name`: the tool that the marker names, so that the body is its arguments; empty if the marker should name one,
        but does not. `fixes`: what was repaired to read the marker. `envelope_keys`: the family's own keys of the name
        and the arguments, where no other family uses them.
        """
        super().__init__(definite=definite, head=head)
        self._name = name if name is not None else name_in_marker(head)
        self._head_fixes = fixes
        self._envelope_keys = envelope_keys
        self._closers = closers
        self._marker_search = MarkerSearch(closers)
        self._rules = rules
        self._place = place
        self._list_opener: list[str] = []
        """The bracket of a list and the space after it, until the next character shows what the list holds."""
        self._open_lists = 0
        """Lists of calls that are open."""
        self._list_closed = False
        """A list of calls has been closed."""
        self._finished_parts: list[Part] = []
        self._surplus_brackets = ""
        """Surplus brackets after the last value, so far."""
        self._in_fence = "`" in head
        """A code fence inside the block is open."""
        self._attempts_left = MARKER_ATTEMPTS
        self._decided = False
        self._final_count = 0  # parts of earlier bodies that are final: a call among them may have been emitted
        self._start_body()

    def _start_body(self) -> None:
        """Begin a body: the state of the one before it is forgotten."""
        self._body = JsonBody()
        self._value_ended = False
        """The value has ended: its closer, or the next value, is looked for."""
        self._gap: list[str] = []
        self._lookahead = ""
        self._first_marker = self._first_closer = -1
        """Offsets in the body of the first marker and of the first right closer; -1 if there is none."""
        self._streamer = self._new_streamer()

    @property
    def _lacks_body(self) -> bool:
        """Whether the tool is named and nothing of a body has come."""
        return self._name is not None and not self._body.has_text and not self._finished_parts

    def _may_lack_body(self, finish_reason: str | None) -> bool:
        """Return whether a name at the end of the text may be a call without arguments; a cut name matches no tool."""
        tools = self._rules.tools
        offered = tools is None or not self._name or tools.find(self._name) is not None
        return self._lacks_body and offered and finish_reason in COMPLETE_FINISH_REASONS

    # --- one body ------------------------------------------------------------------------------------------------

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
                self._rules,
                self._place,
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
            self.tries.append(TriedStrategy(self._place.dialect, "text", str(no), len(raw)))
            if self._name == "":
                return [
                    self._malformed_part(raw, "unknown_tool", "it names no tool, and its arguments do not fit just one")
                ]
            return None

    def _swallows_marker(self, parts: list[Part]) -> bool:
        """Return whether the end of a string is a guess, and a marker of the family comes before it."""
        marked = 0 <= self._first_marker < total_length(parts)
        calls = [part.call for part in parts if part.call is not None] if marked else []
        return any(fix.detail.startswith(UNESCAPED_QUOTES) for call in calls for fix in call.fixes)

    def read_unusual(self, raw: str) -> list[Part] | None:
        """Read a body that is not JSON or not a call; None if it is like any other. Raise `NotACall` to reject it."""
        del raw
        return None

    def _add_gap(self, gap: str) -> None:
        if "}" in gap or "]" in gap:
            closed = min(gap.count("]"), self._open_lists)
            self._open_lists -= closed
            self._list_closed = self._list_closed or closed > 0
            self._surplus_brackets += "".join(char for char in gap.replace("]", "", closed) if char in "}]")
        self._gap.append(gap)

    def _record_surplus(self) -> None:
        """Record the surplus brackets as one fix, however they came."""
        if self._surplus_brackets:
            self._record_fix(Fix("closer", f"{self._surplus_brackets!r} too many"))
            self._surplus_brackets = ""

    # --- calls that go out while they come -----------------------------------------------------------------------

    def _new_streamer(self) -> ArgumentStreamer | None:
        """Return what streams the next body's call, or None if its call may not be emitted early."""
        if not (self.definite and self._place.implies_call):
            return None
        return ArgumentStreamer(
            self._rules, self._name, keyed=self._envelope_keys is not None and not self._envelope_keys[0]
        )

    @property
    def _name_emitted(self) -> bool:
        """Whether the name of this body's call has been emitted."""
        return self._streamer is not None and self._streamer.started

    def _stream(self, text: str, *, last: bool) -> None:
        """Emit what is certain of the body's call; the calls before it are emitted along with its name."""
        assert self._streamer is not None
        before = self._name_emitted
        early = self._streamer.feed(text, last=last)
        if self._name_emitted and not before and self._finished_parts:
            self._record_head_fixes()
            self._emit_early(self._finished_parts)
            self._finished_parts, self._final_count = [], 0
        self.early += early

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _marker_fix(self, marker: str) -> Fix | None:
        if marker in self._closers.right:
            return None
        return self._missing_closer_fix() if marker in self._closers.openers else Fix("closer", f"closed by {marker!r}")

    def _missing_closer_fix(self, tail: str = "") -> Fix | None:
        if not self._closers.right or (not self._closers.required and not tail):
            return None
        return Fix("closer", f"no {self._closers.right[0]!r}" + (f", only {tail!r}" if tail else ""))

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
        self.tries.append(trace_entry(self._place.dialect, total_length(all_parts), all_parts))
        self._decided = True

    def _record_head_fixes(self) -> None:
        """Record what was repaired in the marker on the block's first call."""
        if any(part.call is not None for part in self._finished_parts):
            for fix in self._head_fixes:
                add_fix(self._finished_parts, fix)
            self._head_fixes = ()

    def _record_fix(self, fix: Fix) -> None:
        add_fix(reversed(self._finished_parts), fix)

    def _head_parts(self) -> list[Part]:
        return [Part("markup", self.head)] if self.head else []

    def _malformed_part(self, raw: str, reason: MalformedReason, why: str) -> Part:
        return Part("malformed", raw, malformed=malformed_call(reason, why, self._place.dialect, self._name or None))

    def _read_as_empty(self) -> None:
        """Read the marker alone as a call without arguments."""
        self._finished_parts = self._read(EMPTY_ARGUMENTS) or [Part("text", self.head)]
        self._finished_parts[0].raw, self.head = self.head, ""
        self._record_fix(Fix("json", "no arguments: taken as {}"))

    def _report_truncated(self) -> None:
        """Report that the text ended before the body."""
        self.parts = [self._malformed_part(self.head + self._lookahead, "truncated", "it ended after its opener")]
        self._decided = True

    def _text_or_malformed(self, raw: str, why: str) -> list[Part]:
        """Return the block as text, or as a malformed call if its name has been emitted."""
        if self._name_emitted:
            return [*self._head_parts(), self._malformed_part(raw[len(self.head) :], "invalid_json", why)]
        return [Part("text", raw)]

    def _give_up(self, why: str, *, keep: int | None = None) -> None:
        """Return everything as text; the last `-keep` characters of it are read again."""
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
        self.tries.append(TriedStrategy(self._place.dialect, "text", why, cut))
        self._decided = True
