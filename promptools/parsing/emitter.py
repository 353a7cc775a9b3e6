"""Turn text and parts into events and the `Reply`, and hold back what later text decides.

The parser passes text and parts in the order of the input. Each character is emitted in one event, so the spans tile
the input; `_offset` is the offset up to which that has happened. What follows it is held, in this order:

- *White space* before a call or a tag, and after it, is `Discarded`; anywhere else it is text. So trailing white space
  is held until the next text shows which it is: at most `MAX_HELD_SPACE` characters, the excess of a longer run is text
  for good. Text on both sides of something removed stays apart: by the white space after it, or else by that before it,
  which is kept in `_separators` until then.
- *Tokens* are special tokens that no dialect reads. Where a sentence is about them they are text, at the end of the
  reply and elsewhere they are removed.
- A *group* has tentative calls and what is between them. It is accepted when the reply ends, and emitted as text, byte
  for byte, when text follows.

Tokens and a group are never held at once: a token after a group joins it, and a tentative call after tokens makes them
the beginning of a group.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from promptools.errors import clip
from promptools.parsing.events import CallArgs, CallEnd, CallStart, End, Event, Reasoning, Text, WasReasoning
from promptools.parsing.parts import EarlyArguments, EarlyCallStart, Part, add_fix
from promptools.parsing.special_tokens import QUOTE_CONTEXT, is_html_closer, is_quoted_token
from promptools.types import Call, Discarded, DiscardWhy, Fix, Malformed, NewId, ParseAttempt, Reply, Span, Trace

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Set

SPACE = " \t\r\n\ufeff\u200b"
MAX_HELD_SPACE = 4096
MAX_TRIES = 256
"""Tries kept in a trace: a reply of a thousand code fences should not carry a thousand of them."""

ID_LENGTH = 9
"""Nine alphanumerics: Mistral's templates accept nothing else, every other server accepts them too (vllm#9019)."""

Zone = Literal["text", "reasoning"]


class Emitter:
    """The output of a parser: consumes text and parts in input order, produces events and the `Reply`."""

    def __init__(self, new_id: NewId | None, tokens_before_text: Set[str] = frozenset()) -> None:
        self._new_id = new_id
        self._tokens_before_text = tokens_before_text
        """Tokens that a program or a name follows: one stands alone only if nothing does."""
        self._events: list[Event] = []
        self._offset = 0
        self._space: list[str] = []
        self._space_length = 0
        self._separators: dict[Zone, tuple[str, Span]] = {}
        """By zone, white space between text and something removed: kept if the next text begins with none."""
        self._tokens: list[Part] = []
        """Tokens, and white space after them, until the next text shows whether they are quoted."""
        self._preceded_by: Literal["", "call", "tag"] = ""
        self._group: list[tuple[Part, bool]] = []
        self._group_has_call = False
        self._zone: Zone = "text"
        self._separated_zone: Zone | None = None
        """The zone of the message that ended: a line break separates its text from the next in that zone."""
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._digest: hashlib.blake2b | None = None
        self._unhashed: list[str] = []
        self._calls: list[Call] = []
        self._dialects: set[str] = set()
        self._call_keys: set[tuple[str, str, str]] = set()
        self._keyed_calls = 0
        self._malformed: list[Malformed] = []
        self._discarded: list[list[Discarded]] = []
        self._tries: list[ParseAttempt] = []
        self._index = 0
        self._early_call: CallStart | None = None
        self._early_length = 0
        self._finish_reason: str | None = None
        self._fixes: list[Fix] = []
        self.group_is_quoted = False
        """Whether a call in the group is quoted from the conversation: no closing tag shows that it is meant."""
        self.tokens_are_text = False
        """Whether a special token was text, or began a call that is none: then so are all later ones."""
        self.emits_events = True
        """Whether events are recorded; if not, only the reply is built."""
        self.records_refusals = False
        """Whether heads that began no call are recorded too."""
        self._refusals: dict[tuple[str, int], ParseAttempt] = {}
        self.at_start = True
        """Whether only white space, reasoning and markup have been seen since the start."""

    def silent(self) -> Emitter:
        """Return an empty output by the same rules that makes no events."""
        out = Emitter(None, self._tokens_before_text)
        out.emits_events = False
        return out

    @property
    def has_group(self) -> bool:
        """Whether a group is open."""
        return bool(self._group)

    @property
    def offset(self) -> int:
        """The offset up to which the input has been emitted."""
        return self._offset

    @property
    def has_text(self) -> bool:
        """Whether text has been emitted outside reasoning."""
        return bool(self._content)

    @property
    def has_call(self) -> bool:
        """Whether a call has been emitted, or is held."""
        return self._index > 0 or self._group_has_call

    def last_text(self, size: int) -> str:
        """Return up to `size` of the last characters of text outside reasoning; empty next to a call or a tag."""
        if self._group or self._preceded_by or self._zone != "text":
            return ""
        pieces: list[str] = []
        left = size
        for piece in (*self._space[::-1], *self._content[: -size - 1 : -1]):
            pieces.append(piece[-left:])
            left -= len(piece)
            if left <= 0:
                break
        return "".join(reversed(pieces))

    @property
    def is_after_call(self) -> bool:
        """Whether only white space and markup have been seen since the last call."""
        return self._group_has_call if self._group else self._preceded_by == "call"

    @property
    def is_after_tag(self) -> bool:
        """Whether only white space has been seen since a tag of reasoning or of an answer."""
        return not self._group and self._preceded_by == "tag"

    def drain(self) -> list[Event]:
        """Return the events since the previous call."""
        events, self._events = self._events, []
        return events

    # --- text ----------------------------------------------------------------------------------------------------

    def add_text(self, raw: str) -> None:
        """Add text of the current zone."""
        if not raw:
            return
        if self._group:
            if not raw.strip(SPACE):
                self._group.append((Part("space", raw), False))
                return
            self.reject_group()
        if self._tokens:
            if not raw.strip(SPACE):
                self._tokens.append(Part("space", raw))
                return
            self._resolve_tokens(raw)
        self._emit_or_hold(raw)

    def _emit_or_hold(self, raw: str) -> None:
        body = raw.rstrip(SPACE)
        if not body:
            self._hold_space(raw)
            return
        held = self._take_held_space()
        if self._preceded_by or self._separators:
            self._emit_after_removed(held, body)
        else:
            self._emit_text(held + body if held else body)
        self.at_start = self.at_start and self._zone == "reasoning"
        self._preceded_by = ""
        if len(body) < len(raw):
            self._hold_space(raw[len(body) :])

    def _emit_after_removed(self, held: str, body: str) -> None:
        """Emit text after something removed; one of the two runs of white space separates it from the text before."""
        bare = body.lstrip(SPACE)
        space = held + body[: len(body) - len(bare)]
        before, span = self._separators.pop(self._zone, ("", Span(0, 0)))
        if self._preceded_by and not (self._content if self._zone == "text" else self._reasoning):
            self._discard(space, "space")
            space = ""
        elif before and not space:
            self._record_text(before, span)
            before = ""
        if before:
            self._record_discarded(before, "space", span)
        self._emit_text(space + bare)

    def _discard_or_keep_space(self, space: str) -> None:
        """Discard white space before something removed, unless the next text may need it."""
        if not space or self._preceded_by or self._zone in self._separators:
            self._discard(space, "space")
        elif self._content if self._zone == "text" else self._reasoning:
            self._separators[self._zone] = space, self._advance(space)
        else:
            self._discard(space, "space")

    def _hold_space(self, space: str) -> None:
        self._space.append(space)
        self._space_length += len(space)
        if self._space_length > 2 * MAX_HELD_SPACE and not self._preceded_by:
            self._emit_excess_space()

    def _emit_excess_space(self) -> None:
        """Emit held white space as text, except for the last `MAX_HELD_SPACE` characters."""
        if self._space_length > MAX_HELD_SPACE and not self._preceded_by:
            held = self._take_held_space()
            self._emit_text(held[:-MAX_HELD_SPACE])
            self._space, self._space_length = [held[-MAX_HELD_SPACE:]], MAX_HELD_SPACE

    def _discard_held_space(self) -> None:
        """Discard the held white space, since what follows is no text."""
        if self._space:
            self._emit_excess_space()
            self._discard_or_keep_space(self._take_held_space())

    def _take_held_space(self) -> str:
        if not self._space:
            return ""
        held = "".join(self._space)
        self._space, self._space_length = [], 0
        return held

    def _emit_text(self, text: str) -> None:
        if self._separated_zone == self._zone:
            self._insert_line_break(text)
        self._record_text(text, self._advance(text))

    def _record_text(self, text: str, span: Span) -> None:
        self._unhashed.append(text)
        if self._zone == "text":
            self._content.append(text)
        else:
            self._reasoning.append(text)
        if self.emits_events:
            self._events.append(Text(text, span) if self._zone == "text" else Reasoning(text, span))

    def _advance(self, raw: str) -> Span:
        start = self._offset
        self._offset = start + len(raw)
        return Span(start, self._offset)

    def separate_messages(self, zone: Zone) -> None:
        """Separate the text of the next message in `zone` from the text before it."""
        self._separated_zone = zone

    def _insert_line_break(self, following: str) -> None:
        """Emit a line break that is not in the input where no white space separates two messages."""
        self._separated_zone = None
        before = self._content if self._zone == "text" else self._reasoning
        if not before or before[-1][-1].isspace() or following[0].isspace():
            return
        before.append("\n")
        if self.emits_events:
            here = Span(self._offset, self._offset)
            self._events.append(Text("\n", here) if self._zone == "text" else Reasoning("\n", here))

    # --- tags of reasoning ---------------------------------------------------------------------------------------

    def add_zone_tag(self, raw: str, zone: Zone) -> None:
        """Add a tag that opens or closes a zone. Reasoning is no prose, so a group before it is accepted."""
        self.accept_group()
        self._discard_held_space()
        self._discard(raw, "markup")
        self._zone = zone
        self._preceded_by = "tag"

    def accept_before_header(self) -> None:
        """Discard the held white space: it precedes a header."""
        self.accept_group()
        self._discard_held_space()

    def add_message_boundary(self, raw: str, zone: Zone, *, delimited: bool) -> None:
        """Add the header or the end of a message. `delimited`: white space next to it is part of the content."""
        if not delimited:
            self.add_zone_tag(raw, zone)
            return
        self.accept_group()
        held = self._take_held_space()
        if held:
            self._emit_text(held)
        self._discard(raw, "markup")
        self._zone = zone
        self._preceded_by = ""

    def add_fix(self, fix: Fix) -> None:
        """Record a fix to the reply itself."""
        if len(self._fixes) < MAX_TRIES:
            self._fixes.append(fix)

    def add_token(self, raw: str, why: DiscardWhy) -> None:
        """Add a token that begins no call: it is removed unless the text around it is about it."""
        if self._group:
            self._add_to_group(Part(why, raw), definite=False)
        elif why == "markup" and self.tokens_are_text:
            self.add_text(raw)
        else:
            self._tokens.append(Part(why, raw))

    def _resolve_tokens(self, following: str) -> None:
        """Remove the held tokens, or emit them as text; `following` is the text after them, empty at the end."""
        tokens, self._tokens = self._tokens, []
        kept = self._count_text_tokens(tokens, following)
        for part in tokens[:kept]:
            self.tokens_are_text = self.tokens_are_text or part.kind == "markup"
            self._emit_or_hold(part.raw)
        last = len(tokens)
        while last > kept and tokens[last - 1].kind == "space":
            last -= 1
        left_out = tokens[kept:last]
        if left_out:
            shown = "".join(part.raw for part in left_out).strip(SPACE)
            self.add_fix(Fix("marker", f"{clip(shown)!r} {'amid text' if following else 'at the end'} was taken out"))
            self._discard_held_space()
            for part in left_out:
                assert part.kind in ("debris", "markup", "space")
                self._discard(part.raw, part.kind)
            self._preceded_by = self._preceded_by or "tag"
        for part in tokens[last:]:
            self._hold_space(part.raw)

    def _count_text_tokens(self, tokens: list[Part], following: str) -> int:
        """Return how many of the tokens, from the first, are text."""
        last = len(tokens)
        if not following:
            while last and tokens[last - 1].kind != "markup":
                last -= 1
        before = self.last_text(QUOTE_CONTEXT)
        if not last:
            return len(tokens) if is_html_closer(tokens[0].raw, before) else 0
        if all(part.kind != "markup" for part in tokens):
            return last
        bare = following.lstrip(SPACE)
        space = following[: len(following) - len(bare)]
        for part in reversed(tokens):
            if part.kind != "space":
                free = part.raw in self._tokens_before_text and following != ""
                return last if free or is_quoted_token(before, space, bare) else 0
            space = part.raw + space
        raise AssertionError("no token is held")

    def add_discarded(self, raw: str, why: DiscardWhy) -> None:
        """Add what is neither text nor a call."""
        self.add_parts([Part(why, raw)], definite=not self._group)

    def reclassify_as_reasoning(self, raw: str) -> None:
        """Add a closing tag without an opening tag: the text so far was reasoning."""
        if self._tokens:
            self._resolve_tokens("")
        self.reject_group()
        self._discard_held_space()
        self._events.append(WasReasoning(Span(0, self._offset)))
        self._move_content_to_reasoning()
        self._discard(raw, "markup")
        self._preceded_by = "tag"
        self.at_start = True

    def _move_content_to_reasoning(self) -> None:
        """Turn the content into reasoning, except for its leading white space."""
        content = "".join(self._content)
        bare = content if self._reasoning else content.lstrip(SPACE)
        if bare:
            self._reasoning.append(bare)
        if len(bare) < len(content):
            leading = content[: len(content) - len(bare)]
            self._discarded.insert(0, [Discarded(leading, "space", Span(0, len(leading)))])
        self._content = []
        if "text" in self._separators:
            self._separators["reasoning"] = self._separators.pop("text")

    def end_reasoning(self) -> None:
        """End reasoning without a closing tag."""
        self._discard_held_space()
        self._zone = "text"
        self._preceded_by = "tag"

    def set_zone(self, zone: Zone) -> None:
        """Set the zone without a tag: the template printed the opening tag, or the reply ended inside a zone."""
        self._zone = zone
        self._preceded_by = "tag"

    # --- parts ---------------------------------------------------------------------------------------------------

    def add_parts(self, parts: list[Part], *, definite: bool) -> None:
        """Add the parts of a candidate."""
        if self._tokens:
            if definite:
                self._resolve_tokens("")
            else:
                tokens, self._tokens = self._tokens, []
                for part in tokens:
                    self._add_to_group(part, definite=False)
        for part in parts:
            if self._group or not definite:
                self._add_to_group(part, definite=definite)
            else:
                self._emit_part(part)

    def add_quoted_call(self, parts: list[Part]) -> None:
        """Add a call that is quoted from the conversation: it counts only if the reply has no other text."""
        self.group_is_quoted = True
        self.add_parts(parts, definite=False)

    def _add_to_group(self, part: Part, *, definite: bool) -> None:
        if not self._group:
            self._emit_excess_space()
            held = self._take_held_space()
            if held:
                self._group.append((Part("space", held), False))
        self._group.append((part, definite))
        self._group_has_call = self._group_has_call or part.kind in ("call", "malformed")

    @property
    def group_has_opening_tag(self) -> bool:
        """Whether the group began with a marker."""
        return bool(self._group) and self._group[0][0].kind == "markup"

    def add_call_fix(self, fix: Fix) -> None:
        """Add a fix to the last call of the group."""
        add_fix((part for part, _ in reversed(self._group)), fix)

    def accept_group(self) -> None:
        """Emit the group, as text if there is no call in it."""
        if self._tokens:
            self._resolve_tokens("")
        if not self._group_has_call:
            self.reject_group()
            return
        group, self._group, self._group_has_call, self.group_is_quoted = self._group, [], False, False
        for part, _ in group:
            if part.kind == "space":
                self._hold_space(part.raw)
            else:
                self._emit_part(part)
        self._discard_held_space()

    def reject_group(self) -> None:
        """Emit the group as text, except for its definite parts."""
        if not self._group:
            return
        group, self._group, self._group_has_call, self.group_is_quoted = self._group, [], False, False
        begun = self._offset + self._space_length
        for part, definite in group:
            if definite:
                self._retract_tries(begun)
                self._emit_part(part)
                begun = self._offset
            else:
                self._emit_or_hold(part.raw)
        self._retract_tries(begun)

    def _retract_tries(self, start: int) -> None:
        """Correct the trace: the tries from `start` on are text after all. O(those tries)."""
        end = self._offset + self._space_length
        for index in reversed(range(len(self._tries))):
            attempt = self._tries[index]
            if attempt.span.start < start:
                break
            if attempt.span.end <= end and attempt.outcome != "text":
                self._tries[index] = replace(attempt, outcome="text", why="text follows it: it is talked about")

    def _emit_part(self, part: Part) -> None:
        self._discard_held_space()
        if part.kind == "call":
            assert part.call is not None
            repeats = self._is_repeat(part.call)  # also for a call that was emitted early, which counts for later ones
            if repeats and self._early_call is None:
                self._discard(part.raw, "repeat")
                self._preceded_by = "call"
            else:
                self._emit_call(part.raw, part.call)
        elif part.kind == "malformed":
            assert part.malformed is not None
            self._emit_malformed(part.raw, part.malformed)
        else:
            assert part.kind != "text"  # text is added by words()
            self._discard(part.raw, part.kind)

    def _discard(self, raw: str, why: DiscardWhy) -> None:
        if raw:
            self._record_discarded(raw, why, self._advance(raw))

    def _record_discarded(self, raw: str, why: DiscardWhy, span: Span) -> None:
        event = Discarded(raw, why, span)
        if self.emits_events:
            self._events.append(event)
        last = self._discarded[-1] if self._discarded else None
        if last is None or last[-1].why != why or last[-1].span.end != event.span.start:
            self._discarded.append([event])
        else:
            last.append(event)

    # --- calls ---------------------------------------------------------------------------------------------------

    def emit_early(self, item: EarlyCallStart | EarlyArguments) -> None:
        """Emit a call while it arrives: its name, then fragments of its arguments."""
        if isinstance(item, EarlyCallStart):
            if self._tokens:
                self._resolve_tokens("")
            self._discard_held_space()
            self._early_call = CallStart(self._index, self._next_id(), item.name, Span(self._offset, self._offset))
            if self.emits_events:
                self._events.append(self._early_call)
        elif self.emits_events:
            assert self._early_call is not None
            self._early_length += len(item.text)
            self._events.append(CallArgs(self._index, item.text, self._early_call.span))

    def _emit_call(self, raw: str, call: Call) -> None:
        span = self._advance(raw)
        live, self._early_call = self._early_call, None
        call = _with_id_and_span(call, live.id if live else self._next_id(), span)
        if self.emits_events:
            start = Span(span.start, span.start)
            if live is None:
                self._events.append(CallStart(self._index, call.id, call.name, start))
            self._events.append(CallArgs(self._index, call.arguments_json[self._early_length :], start))
            self._events.append(CallEnd(self._index, call, span))
        self._calls.append(call)
        self._end_call(raw)

    def _is_repeat(self, call: Call) -> bool:
        """Whether this repeats an earlier call in another dialect. The same call twice in one dialect is intended."""
        self._dialects.add(call.dialect)
        if len(self._dialects) < 2:
            return False
        for earlier in self._calls[self._keyed_calls :]:
            self._call_keys.add((earlier.name, json.dumps(earlier.arguments, sort_keys=True), earlier.dialect))
        self._keyed_calls = len(self._calls)
        key = json.dumps(call.arguments, sort_keys=True)
        return any((call.name, key, other) in self._call_keys for other in self._dialects if other != call.dialect)

    def _emit_malformed(self, raw: str, malformed: Malformed) -> None:
        span = self._advance(raw)
        call = malformed.call
        live, self._early_call = self._early_call, None
        if call is not None:
            call = _with_id_and_span(call, live.id if live else self._next_id(), span)
        event = replace(malformed, index=self._index, raw=raw, span=span, call=call)
        self._events.append(event)
        self._malformed.append(event)
        self._end_call(raw)

    def _end_call(self, raw: str) -> None:
        self._unhashed.append(raw)
        self._index += 1
        self._early_length = 0
        self._preceded_by = "call"
        self.at_start = False

    def _next_id(self) -> str:
        if self._new_id is not None:
            return self._new_id()
        if self._digest is None:
            self._digest = _new_digest()
        if self._unhashed:
            self._digest.update("".join(self._unhashed).encode("utf-8", "surrogatepass"))
            self._unhashed = []
        return _id_from(self._digest.copy(), self._index)

    # --- the end -------------------------------------------------------------------------------------------------

    def add_try(self, attempt: ParseAttempt) -> None:
        """Record a strategy for the trace."""
        if len(self._tries) < MAX_TRIES:
            self._tries.append(attempt)

    def add_refusal(self, attempt: ParseAttempt) -> None:
        """Record a head that began no call, once."""
        if len(self._refusals) < MAX_TRIES:
            self._refusals[attempt.strategy, attempt.span.start] = attempt

    @property
    def refusals(self) -> list[ParseAttempt]:
        """The heads that began no call, except those that a later attempt accepted."""
        tried = {(each.strategy, each.span.start) for each in self._tries}
        return [each for key, each in self._refusals.items() if key not in tried]

    def end(self, finish_reason: str | None) -> None:
        """Emit what is held and end the reply."""
        self.accept_group()
        held = self._take_held_space()
        if self._zone == "reasoning" or self._preceded_by:
            self._discard(held, "space")
        elif held:
            self._emit_text(held)
        for space, span in self._separators.values():
            self._record_discarded(space, "space", span)
        self._separators.clear()
        self._finish_reason = finish_reason
        if self.emits_events:
            self._events.append(End(finish_reason, Span(self._offset, self._offset)))

    @property
    def reply(self) -> Reply:
        """What has been emitted so far, as a `Reply`."""
        return Reply(
            calls=tuple(self._calls),
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            malformed=tuple(self._malformed),
            discarded=tuple(sorted(map(_join_discarded, self._discarded), key=lambda each: each.span)),
            finish_reason=self._finish_reason,
            fixes=tuple(self._fixes),
            trace=Trace(tries=tuple(self._tries)),
        )


def first_call_id(text: str) -> str:
    """Return the id of the first call of a reply that begins with this text."""
    digest = _new_digest()
    digest.update(text.encode("utf-8", "surrogatepass"))
    return _id_from(digest, 0)


def _new_digest() -> hashlib.blake2b:
    import hashlib  # on the first call: the import takes time

    return hashlib.blake2b(digest_size=8)


def _id_from(digest: hashlib.blake2b, index: int) -> str:
    digest.update(index.to_bytes(4, "big"))
    return digest.hexdigest()[:ID_LENGTH]


def _with_id_and_span(call: Call, new_id: str, span: Span) -> Call:
    """Return the call with its id and span; `dataclasses.replace` takes three times as long."""
    return Call(
        new_id,
        call.name,
        call.arguments,
        call.arguments_json,
        call.fixes,
        span,
        call.dialect,
        call.unknown_tool,
    )


def _join_discarded(pieces: list[Discarded]) -> Discarded:
    if len(pieces) == 1:
        return pieces[0]
    span = Span(pieces[0].span.start, pieces[-1].span.end)
    return Discarded("".join(piece.raw for piece in pieces), pieces[0].why, span)
