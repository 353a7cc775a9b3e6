"""Turn text and parts into events and the `Reply`, and hold back what later text decides.

The parser passes text and parts in the order of the input. Each character is emitted in one event, so the spans tile
the input; `_at` is the offset up to which that has happened. What follows it is held, in this order:

- *White space* before a call or a tag, and after it, is `Discarded`; anywhere else it is text. So trailing white space
  is held until the next text shows which it is: at most `SPACE_HOLD` characters, the excess of a longer run is text for
  good. Text on both sides of something removed stays apart: by the white space after it, or else by that before it,
  which is kept in `_parted` until then.
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
from promptools.parsing.parts import Fragment, Part, Started, note
from promptools.parsing.tokens import FREE, LINE, is_html, is_quoted
from promptools.types import Call, Discarded, DiscardWhy, Fix, Malformed, NewId, Reply, Span, Trace, Try

if TYPE_CHECKING:
    import hashlib

SPACE = " \t\r\n\ufeff\u200b"
SPACE_HOLD = 4096
TRY_LIMIT = 256
"""Tries kept in a trace: a reply of a thousand code fences should not carry a thousand of them."""

ID_LENGTH = 9
"""Nine alphanumerics: Mistral's templates accept nothing else, every other server accepts them too (vllm#9019)."""

Zone = Literal["text", "reasoning"]


class Output:
    """The output of a parser: consumes text and parts in input order, produces events and the `Reply`."""

    def __init__(self, new_id: NewId | None) -> None:
        self._new_id = new_id
        self._events: list[Event] = []
        self._at = 0
        self._space: list[str] = []
        self._held = 0
        self._parted: dict[Zone, tuple[str, Span]] = {}
        """By zone, white space between text and something removed: kept if the next text begins with none."""
        self._tokens: list[Part] = []
        """Tokens, and white space after them, until the next text shows whether they are quoted."""
        self._after: Literal["", "call", "tag"] = ""
        self._group: list[tuple[Part, bool]] = []
        self._called = False
        self._zone: Zone = "text"
        self._apart: Zone | None = None
        """The zone of the message that ended: a line break separates its text from the next in that zone."""
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._digest: hashlib.blake2b | None = None
        self._unhashed: list[str] = []
        self._calls: list[Call] = []
        self._dialects: set[str] = set()
        self._keys: set[tuple[str, str, str]] = set()
        self._keyed = 0
        self._malformed: list[Malformed] = []
        self._discarded: list[list[Discarded]] = []
        self._tries: list[Try] = []
        self._index = 0
        self._live: CallStart | None = None
        self._live_sent = 0
        self._finish_reason: str | None = None
        self._fixes: list[Fix] = []
        self.quoting = False
        """Whether a call in the group is quoted from the conversation: no closing tag shows that it is meant."""
        self.quotes_tokens = False
        """Whether a special token was text, or began a call that is none: then so are all later ones."""
        self.told = True
        """Whether events are recorded; if not, only the reply is built."""
        self.explains = False
        """Whether heads that began no call are recorded too."""
        self._refusals: dict[tuple[str, int], Try] = {}
        self.fresh = True
        """Whether only white space, reasoning and markup have been seen since the start."""

    @property
    def grouped(self) -> bool:
        """Whether a group is open."""
        return bool(self._group)

    @property
    def at(self) -> int:
        """The offset up to which the input has been emitted."""
        return self._at

    @property
    def spoke(self) -> bool:
        """Whether text has been emitted outside reasoning."""
        return bool(self._content)

    @property
    def called(self) -> bool:
        """Whether a call has been emitted, or is held."""
        return self._index > 0 or self._called

    def last_words(self, size: int) -> str:
        """Return up to `size` of the last characters of text outside reasoning; empty next to a call or a tag."""
        if self._group or self._after or self._zone != "text":
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
    def beside_call(self) -> bool:
        """Whether only white space and markup have been seen since the last call."""
        return self._called if self._group else self._after == "call"

    @property
    def beside_tag(self) -> bool:
        """Whether only white space has been seen since a tag of reasoning or of an answer."""
        return not self._group and self._after == "tag"

    def drain(self) -> list[Event]:
        """Return the events since the previous call."""
        events, self._events = self._events, []
        return events

    # --- text ----------------------------------------------------------------------------------------------------

    def words(self, raw: str) -> None:
        """Add text of the current zone."""
        if not raw:
            return
        if self._group:
            if not raw.strip(SPACE):
                self._group.append((Part("space", raw), False))
                return
            self.reject()
        if self._tokens:
            if not raw.strip(SPACE):
                self._tokens.append(Part("space", raw))
                return
            self._settle_tokens(raw)
        self._say(raw)

    def _say(self, raw: str) -> None:
        body = raw.rstrip(SPACE)
        if not body:
            self._hold(raw)
            return
        held = self._release()
        if self._after or self._parted:
            self._join(held, body)
        else:
            self._utter(held + body if held else body)
        self.fresh = self.fresh and self._zone == "reasoning"
        self._after = ""
        if len(body) < len(raw):
            self._hold(raw[len(body) :])

    def _join(self, held: str, body: str) -> None:
        """Emit text after something removed; one of the two runs of white space separates it from the text before."""
        bare = body.lstrip(SPACE)
        space = held + body[: len(body) - len(bare)]
        before, span = self._parted.pop(self._zone, ("", Span(0, 0)))
        if self._after and not (self._content if self._zone == "text" else self._reasoning):
            self._discard(space, "space")
            space = ""
        elif before and not space:
            self._add(before, span)
            before = ""
        if before:
            self._drop(before, "space", span)
        self._utter(space + bare)

    def _leave_space(self, space: str) -> None:
        """Discard white space before something removed, unless the next text may need it."""
        if not space or self._after or self._zone in self._parted:
            self._discard(space, "space")
        elif self._content if self._zone == "text" else self._reasoning:
            self._parted[self._zone] = space, self._advance(space)
        else:
            self._discard(space, "space")

    def _hold(self, space: str) -> None:
        self._space.append(space)
        self._held += len(space)
        if self._held > 2 * SPACE_HOLD and not self._after:
            self._overflow()

    def _overflow(self) -> None:
        """Emit held white space as text, except for the last `SPACE_HOLD` characters."""
        if self._held > SPACE_HOLD and not self._after:
            held = self._release()
            self._utter(held[:-SPACE_HOLD])
            self._space, self._held = [held[-SPACE_HOLD:]], SPACE_HOLD

    def _leave_out(self) -> None:
        """Discard the held white space, since what follows is no text."""
        if self._space:
            self._overflow()
            self._leave_space(self._release())

    def _release(self) -> str:
        if not self._space:
            return ""
        held = "".join(self._space)
        self._space, self._held = [], 0
        return held

    def _utter(self, text: str) -> None:
        if self._apart == self._zone:
            self._break_line(text)
        self._add(text, self._advance(text))

    def _add(self, text: str, span: Span) -> None:
        self._unhashed.append(text)
        if self._zone == "text":
            self._content.append(text)
        else:
            self._reasoning.append(text)
        if self.told:
            self._events.append(Text(text, span) if self._zone == "text" else Reasoning(text, span))

    def _advance(self, raw: str) -> Span:
        start = self._at
        self._at = start + len(raw)
        return Span(start, self._at)

    def apart(self, zone: Zone) -> None:
        """Separate the text of the next message in `zone` from the text before it."""
        self._apart = zone

    def _break_line(self, following: str) -> None:
        """Emit a line break that is not in the input where no white space separates two messages."""
        self._apart = None
        before = self._content if self._zone == "text" else self._reasoning
        if not before or before[-1][-1].isspace() or following[0].isspace():
            return
        before.append("\n")
        if self.told:
            here = Span(self._at, self._at)
            self._events.append(Text("\n", here) if self._zone == "text" else Reasoning("\n", here))

    # --- tags of reasoning ---------------------------------------------------------------------------------------

    def junction(self, raw: str, zone: Zone) -> None:
        """Add a tag that opens or closes a zone. Reasoning is no prose, so a group before it is accepted."""
        self.accept()
        self._leave_out()
        self._discard(raw, "markup")
        self._zone = zone
        self._after = "tag"

    def leave_space(self) -> None:
        """Discard the held white space: it precedes a header."""
        self.accept()
        self._leave_out()

    def frame(self, raw: str, zone: Zone, *, exact: bool) -> None:
        """Add the header or the end of a message. `exact`: white space next to it is part of the content."""
        if not exact:
            self.junction(raw, zone)
            return
        self.accept()
        held = self._release()
        if held:
            self._utter(held)
        self._discard(raw, "markup")
        self._zone = zone
        self._after = ""

    def liberty(self, fix: Fix) -> None:
        """Record a fix to the reply itself."""
        if len(self._fixes) < TRY_LIMIT:
            self._fixes.append(fix)

    def token(self, raw: str, why: DiscardWhy) -> None:
        """Add a token that begins no call: it is removed unless the text around it is about it."""
        if self._group:
            self._enter_group(Part(why, raw), firm=False)
        elif why == "markup" and self.quotes_tokens:
            self.words(raw)
        else:
            self._tokens.append(Part(why, raw))

    def _settle_tokens(self, following: str) -> None:
        """Remove the held tokens, or emit them as text; `following` is the text after them, empty at the end."""
        tokens, self._tokens = self._tokens, []
        kept = self._count_words(tokens, following)
        for part in tokens[:kept]:
            self.quotes_tokens = self.quotes_tokens or part.kind == "markup"
            self._say(part.raw)
        last = len(tokens)
        while last > kept and tokens[last - 1].kind == "space":
            last -= 1
        left_out = tokens[kept:last]
        if left_out:
            shown = "".join(part.raw for part in left_out).strip(SPACE)
            self.liberty(Fix("marker", f"{clip(shown)!r} {'amid words' if following else 'at the end'} was taken out"))
            self._leave_out()
            for part in left_out:
                assert part.kind in ("debris", "markup", "space")
                self._discard(part.raw, part.kind)
            self._after = self._after or "tag"
        for part in tokens[last:]:
            self._hold(part.raw)

    def _count_words(self, tokens: list[Part], following: str) -> int:
        """Return how many of the tokens, from the first, are text."""
        last = len(tokens)
        if not following:
            while last and tokens[last - 1].kind != "markup":
                last -= 1
        before = self.last_words(LINE)
        if not last:
            return len(tokens) if is_html(tokens[0].raw, before) else 0
        if all(part.kind != "markup" for part in tokens):
            return last
        bare = following.lstrip(SPACE)
        space = following[: len(following) - len(bare)]
        for part in reversed(tokens):
            if part.kind != "space":
                free = part.raw in FREE and following != ""
                return last if free or is_quoted(before, space, bare) else 0
            space = part.raw + space
        raise AssertionError("no token is held")

    def mark(self, raw: str, why: DiscardWhy) -> None:
        """Add what is neither text nor a call."""
        self.parts([Part(why, raw)], firm=not self._group)

    def was_reasoning(self, raw: str) -> None:
        """Add a closing tag without an opening tag: the text so far was reasoning."""
        if self._tokens:
            self._settle_tokens("")
        self.reject()
        self._leave_out()
        self._events.append(WasReasoning(Span(0, self._at)))
        self._take_back()
        self._discard(raw, "markup")
        self._after = "tag"
        self.fresh = True

    def _take_back(self) -> None:
        """Turn the content into reasoning, except for its leading white space."""
        content = "".join(self._content)
        bare = content if self._reasoning else content.lstrip(SPACE)
        if bare:
            self._reasoning.append(bare)
        if len(bare) < len(content):
            leading = content[: len(content) - len(bare)]
            self._discarded.insert(0, [Discarded(leading, "space", Span(0, len(leading)))])
        self._content = []
        if "text" in self._parted:
            self._parted["reasoning"] = self._parted.pop("text")

    def cut_short(self) -> None:
        """End reasoning without a closing tag."""
        self._leave_out()
        self._zone = "text"
        self._after = "tag"

    def zone(self, zone: Zone) -> None:
        """Set the zone without a tag: the template printed the opening tag, or the reply ended inside a zone."""
        self._zone = zone
        self._after = "tag"

    # --- parts ---------------------------------------------------------------------------------------------------

    def parts(self, parts: list[Part], *, firm: bool) -> None:
        """Add the parts of a candidate."""
        if self._tokens:
            if firm:
                self._settle_tokens("")
            else:
                tokens, self._tokens = self._tokens, []
                for part in tokens:
                    self._enter_group(part, firm=False)
        for part in parts:
            if self._group or not firm:
                self._enter_group(part, firm=firm)
            else:
                self._emit(part)

    def quoted(self, parts: list[Part]) -> None:
        """Add a call that is quoted from the conversation: it counts only if the reply has no other text."""
        self.quoting = True
        self.parts(parts, firm=False)

    def _enter_group(self, part: Part, *, firm: bool) -> None:
        if not self._group:
            self._overflow()
            held = self._release()
            if held:
                self._group.append((Part("space", held), False))
        self._group.append((part, firm))
        self._called = self._called or part.kind in ("call", "malformed")

    @property
    def opened(self) -> bool:
        """Whether the group began with a marker."""
        return bool(self._group) and self._group[0][0].kind == "markup"

    def note(self, fix: Fix) -> None:
        """Add a fix to the last call of the group."""
        note((part for part, _ in reversed(self._group)), fix)

    def accept(self) -> None:
        """Emit the group, as text if there is no call in it."""
        if self._tokens:
            self._settle_tokens("")
        if not self._called:
            self.reject()
            return
        group, self._group, self._called, self.quoting = self._group, [], False, False
        for part, _ in group:
            if part.kind == "space":
                self._hold(part.raw)
            else:
                self._emit(part)
        self._leave_out()

    def reject(self) -> None:
        """Emit the group as text, except for its firm parts."""
        if not self._group:
            return
        group, self._group, self._called, self.quoting = self._group, [], False, False
        begun = self._at + self._held
        for part, firm in group:
            if firm:
                self._were_none(begun)
                self._emit(part)
                begun = self._at
            else:
                self._say(part.raw)
        self._were_none(begun)

    def _were_none(self, begun: int) -> None:
        """Correct the trace: the tries from `begun` on are text after all. O(those tries)."""
        end = self._at + self._held
        for index in reversed(range(len(self._tries))):
            attempt = self._tries[index]
            if attempt.span.start < begun:
                break
            if attempt.span.end <= end and attempt.outcome != "text":
                self._tries[index] = replace(attempt, outcome="text", why="words follow it: it is talked about")

    def _emit(self, part: Part) -> None:
        self._leave_out()
        if part.kind == "call":
            assert part.call is not None
            repeats = self._repeats(part.call)  # also for a call that was emitted early, which counts for later ones
            if repeats and self._live is None:
                self._discard(part.raw, "repeat")
                self._after = "call"
            else:
                self._call(part.raw, part.call)
        elif part.kind == "malformed":
            assert part.malformed is not None
            self._broken(part.raw, part.malformed)
        else:
            assert part.kind != "text"  # text is added by words()
            self._discard(part.raw, part.kind)

    def _discard(self, raw: str, why: DiscardWhy) -> None:
        if raw:
            self._drop(raw, why, self._advance(raw))

    def _drop(self, raw: str, why: DiscardWhy, span: Span) -> None:
        event = Discarded(raw, why, span)
        if self.told:
            self._events.append(event)
        last = self._discarded[-1] if self._discarded else None
        if last is None or last[-1].why != why or last[-1].span.end != event.span.start:
            self._discarded.append([event])
        else:
            last.append(event)

    # --- calls ---------------------------------------------------------------------------------------------------

    def go_live(self, started: Started | Fragment) -> None:
        """Emit a call while it arrives: its name, then fragments of its arguments."""
        if isinstance(started, Started):
            if self._tokens:
                self._settle_tokens("")
            self._leave_out()
            self._live = CallStart(self._index, self._id(), started.name, Span(self._at, self._at))
            if self.told:
                self._events.append(self._live)
        elif self.told:
            assert self._live is not None
            self._live_sent += len(started.text)
            self._events.append(CallArgs(self._index, started.text, self._live.span))

    def _call(self, raw: str, call: Call) -> None:
        span = self._advance(raw)
        live, self._live = self._live, None
        call = _sent(call, live.id if live else self._id(), span)
        if self.told:
            start = Span(span.start, span.start)
            if live is None:
                self._events.append(CallStart(self._index, call.id, call.name, start))
            self._events.append(CallArgs(self._index, call.arguments_json[self._live_sent :], start))
            self._events.append(CallEnd(self._index, call, span))
        self._calls.append(call)
        self._ended(raw)

    def _repeats(self, call: Call) -> bool:
        """Whether this repeats an earlier call in another dialect. The same call twice in one dialect is intended."""
        self._dialects.add(call.dialect)
        if len(self._dialects) < 2:
            return False
        for earlier in self._calls[self._keyed :]:
            self._keys.add((earlier.name, json.dumps(earlier.arguments, sort_keys=True), earlier.dialect))
        self._keyed = len(self._calls)
        key = json.dumps(call.arguments, sort_keys=True)
        return any((call.name, key, other) in self._keys for other in self._dialects if other != call.dialect)

    def _broken(self, raw: str, malformed: Malformed) -> None:
        span = self._advance(raw)
        call = malformed.call
        live, self._live = self._live, None
        if call is not None:
            call = _sent(call, live.id if live else self._id(), span)
        event = replace(malformed, index=self._index, raw=raw, span=span, call=call)
        self._events.append(event)
        self._malformed.append(event)
        self._ended(raw)

    def _ended(self, raw: str) -> None:
        self._unhashed.append(raw)
        self._index += 1
        self._live_sent = 0
        self._after = "call"
        self.fresh = False

    def _id(self) -> str:
        if self._new_id is not None:
            return self._new_id()
        if self._digest is None:
            self._digest = _new_digest()
        if self._unhashed:
            self._digest.update("".join(self._unhashed).encode("utf-8", "surrogatepass"))
            self._unhashed = []
        return _id_from(self._digest.copy(), self._index)

    # --- the end -------------------------------------------------------------------------------------------------

    def tried(self, each: Try) -> None:
        """Record a strategy for the trace."""
        if len(self._tries) < TRY_LIMIT:
            self._tries.append(each)

    def refused(self, each: Try) -> None:
        """Record a head that began no call, once."""
        if len(self._refusals) < TRY_LIMIT:
            self._refusals[each.strategy, each.span.start] = each

    @property
    def refusals(self) -> list[Try]:
        """The heads that began no call, except those that a later attempt accepted."""
        tried = {(each.strategy, each.span.start) for each in self._tries}
        return [each for key, each in self._refusals.items() if key not in tried]

    def end(self, finish_reason: str | None) -> None:
        """Emit what is held and end the reply."""
        self.accept()
        held = self._release()
        if self._zone == "reasoning" or self._after:
            self._discard(held, "space")
        elif held:
            self._utter(held)
        for space, span in self._parted.values():
            self._drop(space, "space", span)
        self._parted.clear()
        self._finish_reason = finish_reason
        if self.told:
            self._events.append(End(finish_reason, Span(self._at, self._at)))

    @property
    def reply(self) -> Reply:
        """What has been emitted so far, as a `Reply`."""
        return Reply(
            calls=tuple(self._calls),
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            malformed=tuple(self._malformed),
            discarded=tuple(sorted(map(_joined, self._discarded), key=lambda each: each.span)),
            finish_reason=self._finish_reason,
            fixes=tuple(self._fixes),
            trace=Trace(tries=tuple(self._tries)),
        )


def first_id(said: str) -> str:
    """Return the id of the first call of a reply that begins with this text."""
    digest = _new_digest()
    digest.update(said.encode("utf-8", "surrogatepass"))
    return _id_from(digest, 0)


def _new_digest() -> hashlib.blake2b:
    import hashlib  # on the first call: the import takes time

    return hashlib.blake2b(digest_size=8)


def _id_from(digest: hashlib.blake2b, index: int) -> str:
    digest.update(index.to_bytes(4, "big"))
    return digest.hexdigest()[:ID_LENGTH]


def _sent(call: Call, new_id: str, span: Span) -> Call:
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


def _joined(pieces: list[Discarded]) -> Discarded:
    if len(pieces) == 1:
        return pieces[0]
    span = Span(pieces[0].span.start, pieces[-1].span.end)
    return Discarded("".join(piece.raw for piece in pieces), pieces[0].why, span)
