"""From parts to events: what goes out, in which order, where white space is trimmed, and what is held.

White space before a call or a tag, and after it, is `Discarded`; anywhere else it is text. So trailing white space is
held until the next word shows which it is: at most `SPACE_HOLD` characters, the rest of a longer run is text for good.
Words on both sides of what was taken out stay apart: the white space after it stays between them, or that before it.

A *token* that no dialect reads is held too: at the end of the reply, or where no sentence is about it, it is no word.

A *group* holds tentative calls and what stands between them. It is accepted when the reply ends, and given back as
text, byte for byte, when words follow.
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
"""Tries kept in a trace: a reply of a thousand code fences should not carry a thousand notes."""

ID_LENGTH = 9
"""Nine alphanumerics: Mistral's templates take nothing else, every other server takes them too (vllm#9019)."""

Zone = Literal["text", "reasoning"]


class Output:
    """The way out of a parser: takes words and parts in the order of the text, gives events and the `Reply`."""

    def __init__(self, new_id: NewId | None) -> None:
        self._new_id = new_id
        self._events: list[Event] = []
        self._at = 0
        self._space: list[str] = []
        self._held = 0
        self._parted: dict[Zone, tuple[str, Span]] = {}
        """White space between words and what was taken out behind them: it is kept if the next words have none."""
        self._tokens: list[Part] = []
        """Tokens, and white space behind them, of which the next words show whether they are talked about."""
        self._after: Literal["", "call", "tag"] = ""
        self._group: list[tuple[Part, bool]] = []
        self._called = False
        self._zone: Zone = "text"
        self._apart: Zone | None = None
        """Words of another message are told in this zone: a line break is between them and the next ones."""
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
        """There is a call in the group that is quoted from the conversation: no closer shows that it is meant."""
        self.quotes_tokens = False
        """A special token was a word, or began a call that is none: so are those of the rest of the reply."""
        self.told = True
        """Somebody takes the events."""
        self.explains = False
        """Heads that began no call are noted too."""
        self._refusals: dict[tuple[str, int], Try] = {}
        self.fresh = True
        """Nothing but white space, reasoning and markup has been seen since the start."""

    @property
    def grouped(self) -> bool:
        """Tell whether a group is open."""
        return bool(self._group)

    @property
    def at(self) -> int:
        """How far the text has been told, in characters."""
        return self._at

    @property
    def spoke(self) -> bool:
        """Tell whether words have been said outside reasoning."""
        return bool(self._content)

    @property
    def called(self) -> bool:
        """Tell whether a call has been told, or is held."""
        return self._index > 0 or self._called

    def last_words(self, size: int) -> str:
        """Give the last `size` characters said outside reasoning, if there are so many; none beside a call."""
        if self._group or self._after or self._zone != "text":
            return ""
        found: list[str] = []
        left = size
        for piece in (*self._space[::-1], *self._content[: -size - 1 : -1]):
            found.append(piece[-left:])
            left -= len(piece)
            if left <= 0:
                break
        return "".join(reversed(found))

    @property
    def beside_call(self) -> bool:
        """Tell whether nothing but white space and markup has been seen since the last call."""
        return self._called if self._group else self._after == "call"

    @property
    def beside_tag(self) -> bool:
        """Tell whether nothing but white space has been seen since a tag of reasoning, or around an answer."""
        return not self._group and self._after == "tag"

    def drain(self) -> list[Event]:
        """Give the events since the last time."""
        events, self._events = self._events, []
        return events

    # --- words ---------------------------------------------------------------------------------------------------

    def words(self, raw: str) -> None:
        """Take words of the present zone."""
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
        """Say words behind what was taken out: one white space stays between them and the words before that."""
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
        """Leave out white space before what is no word, but for what the next words may need."""
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
        """Let out what is more than may be trimmed: only the last `SPACE_HOLD` characters may."""
        if self._held > SPACE_HOLD and not self._after:
            held = self._release()
            self._utter(held[:-SPACE_HOLD])
            self._space, self._held = [held[-SPACE_HOLD:]], SPACE_HOLD

    def _leave_out(self) -> None:
        """Leave out the space that is held: what it stands beside is no text."""
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
        """Keep the words of the next message from those that were told before it."""
        self._apart = zone

    def _break_line(self, following: str) -> None:
        """Say a line break that is in no place of the text, where no white space is between two messages."""
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
        """Take a tag that opens or closes a zone. Thinking is no prose: a group before it stands."""
        self.accept()
        self._leave_out()
        self._discard(raw, "markup")
        self._zone = zone
        self._after = "tag"

    def leave_space(self) -> None:
        """Leave out the white space that was said last: it stands before a header."""
        self.accept()
        self._leave_out()

    def frame(self, raw: str, zone: Zone, *, exact: bool) -> None:
        """Take the header or the end of a message. `exact`: the white space inside it belongs to its words."""
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
        """Note a liberty that was taken with the reply itself."""
        if len(self._fixes) < TRY_LIMIT:
            self._fixes.append(fix)

    def token(self, raw: str, why: DiscardWhy) -> None:
        """Take a token that begins no call: it is no word, unless the words around it are about it."""
        if self._group:
            self._enter_group(Part(why, raw), firm=False)
        elif why == "markup" and self.quotes_tokens:
            self.words(raw)
        else:
            self._tokens.append(Part(why, raw))

    def _settle_tokens(self, following: str) -> None:
        """Leave out the tokens that are held, or say them; `following`: the words behind them, empty where none are."""
        tokens, self._tokens = self._tokens, []
        words = self._count_words(tokens, following)
        for part in tokens[:words]:
            self.quotes_tokens = self.quotes_tokens or part.kind == "markup"
            self._say(part.raw)
        last = len(tokens)
        while last > words and tokens[last - 1].kind == "space":
            last -= 1
        left_out = tokens[words:last]
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
        """Return how many of the tokens are words; those that end a turn are none at the end."""
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
        """Take what is neither words nor call."""
        self.parts([Part(why, raw)], firm=not self._group)

    def was_reasoning(self, raw: str) -> None:
        """Take a closer without an opener: the text so far was reasoning."""
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
        """Make reasoning of the content, but for the white space that it begins with."""
        thought = "".join(self._content)
        bare = thought if self._reasoning else thought.lstrip(SPACE)
        if bare:
            self._reasoning.append(bare)
        if len(bare) < len(thought):
            lead = thought[: len(thought) - len(bare)]
            self._discarded.insert(0, [Discarded(lead, "space", Span(0, len(lead)))])
        self._content = []
        if "text" in self._parted:
            self._parted["reasoning"] = self._parted.pop("text")

    def cut_short(self) -> None:
        """Leave reasoning without a closer."""
        self._leave_out()
        self._zone = "text"
        self._after = "tag"

    def zone(self, zone: Zone) -> None:
        """Set the zone without a tag (the template printed the opener, or the reply ended inside a zone)."""
        self._zone = zone
        self._after = "tag"

    # --- parts ---------------------------------------------------------------------------------------------------

    def parts(self, parts: list[Part], *, firm: bool) -> None:
        """Take what a candidate left behind."""
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
        """Take a call that is quoted from the conversation: it stands only where nothing else is said."""
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
        """Tell whether the group began with a marker."""
        return bool(self._group) and self._group[0][0].kind == "markup"

    def note(self, fix: Fix) -> None:
        """Note one more fix on the last call of the group."""
        note((part for part, _ in reversed(self._group)), fix)

    def accept(self) -> None:
        """Let the group stand, if there is a call in it."""
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
        """Give the group back as text; its firm parts stand."""
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
        """Say in the trace of the calls behind `begun` that they are text after all. O(tries behind it)."""
        end = self._at + self._held
        for place in reversed(range(len(self._tries))):
            each = self._tries[place]
            if each.span.start < begun:
                break
            if each.span.end <= end and each.outcome != "text":
                self._tries[place] = replace(each, outcome="text", why="words follow it: it is talked about")

    def _emit(self, part: Part) -> None:
        self._leave_out()
        if part.kind == "call":
            assert part.call is not None
            repeats = self._repeats(part.call)  # the call that went out while it came counts too
            if repeats and self._live is None:
                self._discard(part.raw, "repeat")
                self._after = "call"
            else:
                self._call(part.raw, part.call)
        elif part.kind == "malformed":
            assert part.malformed is not None
            self._broken(part.raw, part.malformed)
        else:
            assert part.kind != "text"  # text is told by words()
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
        """Let a call out while it comes: its name, then pieces of its arguments."""
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
            place = Span(span.start, span.start)
            if live is None:
                self._events.append(CallStart(self._index, call.id, call.name, place))
            self._events.append(CallArgs(self._index, call.arguments_json[self._live_sent :], place))
            self._events.append(CallEnd(self._index, call, span))
        self._calls.append(call)
        self._ended(raw)

    def _repeats(self, call: Call) -> bool:
        """Is this the echo of an earlier call in another dialect? The same call twice in one dialect is meant."""
        self._dialects.add(call.dialect)
        if len(self._dialects) < 2:
            return False
        for each in self._calls[self._keyed :]:
            self._keys.add((each.name, json.dumps(each.arguments, sort_keys=True), each.dialect))
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
        """Note a strategy for the trace."""
        if len(self._tries) < TRY_LIMIT:
            self._tries.append(each)

    def refused(self, each: Try) -> None:
        """Note a head that began no call, once."""
        if len(self._refusals) < TRY_LIMIT:
            self._refusals[each.strategy, each.span.start] = each

    @property
    def refusals(self) -> list[Try]:
        """The heads that began no call, without those that another look let by."""
        tried = {(each.strategy, each.span.start) for each in self._tries}
        return [each for key, each in self._refusals.items() if key not in tried]

    def end(self, finish_reason: str | None) -> None:
        """Settle what is held and close the reply."""
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
        """Give what has gone out so far as a `Reply`."""
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
    """Give the id of the first call of a reply, behind these words."""
    digest = _new_digest()
    digest.update(said.encode("utf-8", "surrogatepass"))
    return _id_from(digest, 0)


def _new_digest() -> hashlib.blake2b:
    import hashlib  # not before the first call

    return hashlib.blake2b(digest_size=8)


def _id_from(digest: hashlib.blake2b, index: int) -> str:
    digest.update(index.to_bytes(4, "big"))
    return digest.hexdigest()[:ID_LENGTH]


def _sent(call: Call, new_id: str, span: Span) -> Call:
    """Give a call its id and its place; `dataclasses.replace` takes three times as long."""
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
