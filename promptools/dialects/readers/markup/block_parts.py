"""The calls of a block of markup, and in the end the parts that tile its text."""

from __future__ import annotations

from typing import NamedTuple

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import Evidence
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.calls.streaming.member_streamer import MemberStreamer
from promptools.dialects.readers.markup.markup_call import MarkupCall
from promptools.dialects.readers.tags.token_buffer import TokenBuffer
from promptools.parsing.parts import Part, TriedStrategy
from promptools.types import Call, Malformed


class CallSegment(NamedTuple):
    """Tokens of the block that are one call, or what a reader of JSON made of one."""

    start: int
    end: int
    call: MarkupCall | Malformed | None
    parts: list[Part]
    streamer: MemberStreamer | None = None
    """What streamed it, if it was emitted early."""


class BlockParts:
    """The calls among the tokens of a block. The tokens between them are markup."""

    def __init__(self, buffer: TokenBuffer, place: Evidence, tries: list[TriedStrategy]) -> None:
        self._place = place
        self._buffer = buffer
        self.segments: list[CallSegment] = []
        self.emitted_to = 0
        """The index up to which parts have been emitted."""
        self.tries = tries

    def tile(self, end: int, *, has_emitted: bool) -> list[Part]:
        """Resolve the calls before index `end` that were not emitted.

        Return no parts if none of them is a call, unless one `has_emitted`.
        """
        place = self._place._replace(wrapper_first=False)
        settled = [self._resolve_segment(segment, place) for segment in self.segments]
        if self._place.wrapper_first and not any(settled):
            settled = [self._resolve_segment(segment, self._place) for segment in self.segments]
        if not (any(settled) or has_emitted):
            return []
        meant = self._place._replace(sentinel=True)  # beside a real call, a call is intended
        settled = [
            tiles or self._resolve_segment(segment, meant)
            for tiles, segment in zip(settled, self.segments, strict=True)
        ]
        parts: list[Part] = []
        at = self.emitted_to
        for segment, tiles in zip(self.segments, settled, strict=True):
            self._add_markup(parts, at, segment.start)
            parts += tiles or [self._nameless_part(segment)]
            at = segment.end
        self._add_markup(parts, at, end)
        self.segments.clear()
        self.emitted_to = end
        return parts

    def _add_markup(self, parts: list[Part], start: int, end: int) -> None:
        raw = self._buffer.text(start, end)
        if raw:
            parts.append(Part("markup", raw))

    def _resolve_segment(self, segment: CallSegment, place: Evidence) -> list[Part]:
        if segment.call is None:
            return segment.parts
        raw = self._buffer.text(segment.start, segment.end)
        if isinstance(segment.call, Malformed):
            return [Part("malformed", raw, malformed=segment.call)]
        try:
            outcome = self._resolve_call(segment.call, place)
            if segment.streamer is not None:
                outcome = segment.streamer.reconcile(outcome)
            return [call_part(outcome, raw)]
        except NotACall as no:
            self.tries.append(TriedStrategy(place.dialect, "text", str(no), len(raw)))
            return []

    def _resolve_call(self, call: MarkupCall, place: Evidence) -> Call | Malformed:
        outcome = call.resolve(place)
        if call.error:
            return malformed_call("invalid_json", call.error, place.dialect, outcome.name)
        if isinstance(outcome, Malformed) and call.unclosed and outcome.reason == "invalid_arguments":
            return malformed_call("truncated", "the text ended before its last parameters", place.dialect, outcome.name)
        return outcome

    def _nameless_part(self, segment: CallSegment) -> Part:
        raw = self._buffer.text(segment.start, segment.end)
        malformed = malformed_call("invalid_json", "what is in the name's place is no name", self._place.dialect, None)
        return Part("malformed", raw, malformed=malformed)


def was_repaired(parts: list[Part]) -> bool:
    """Return whether the markup of a call was repaired, or cannot be read."""
    fixes = [fix.kind for part in parts if part.call is not None for fix in part.call.fixes]
    broke = any(part.malformed is not None and part.malformed.call is None for part in parts)
    return broke or not {"closer", "marker", "unwrap", "duplicate"}.isdisjoint(fixes)
