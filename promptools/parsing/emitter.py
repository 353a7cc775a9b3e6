"""Turn text and parts into events and the `Reply`, and hold back input whose meaning depends on later text.

The parser passes text and parts in the order of the input. Each character is emitted in one event, so the spans tile
the input. `ReplyRecord` contains what was emitted, up to `ReplyRecord.offset`. Input after this offset is held. Held
input is of three kinds, in this order:

- *White space* before or after a call or a tag is `Discarded`; anywhere else it is text. So trailing white space is
  held until what follows shows which of the two it is. At most `MAX_HELD_SPACE` characters are held; the rest of a
  longer run is emitted as text. If a call or a tag between two texts is removed, the white space after it separates the
  texts; if there is none, the white space before it does. That white space is kept in `_separators` until the next text
  shows whether it is needed.
- *Tokens* are special tokens that no dialect reads. They are emitted as text if a sentence mentions them. Otherwise,
  and at the end of the reply, they are removed.
- A *group* consists of tentative calls and what is between them. The calls are accepted when the reply ends. If text
  follows instead, the group is emitted as text, byte for byte.

Tokens and a group are never held at the same time: a token after a group joins the group, and a tentative call after
tokens makes them the beginning of a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from promptools.errors import clip
from promptools.parsing.parts import SPACE, EarlyArguments, EarlyCallStart, Part, add_fix
from promptools.parsing.reply_record import ReplyRecord, Zone
from promptools.parsing.special_tokens import QUOTE_CONTEXT, SPECIAL_TOKEN, count_quoted_tokens, is_quoted_token
from promptools.patterns import lazy_pattern
from promptools.types import DiscardWhy, Fix, NewId, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Set


MAX_HELD_SPACE = 4096
LINE_START = 24
"""Number of characters at the start of a line that are searched for the `>` of a block quote."""
_BLOCK_QUOTE = lazy_pattern(r"[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?>")
"""Matches the beginning of a line in a Markdown block quote, perhaps inside a list item."""


class _LastLine:
    """Finds the beginning of the last line of a text that arrives in pieces; each piece is searched once."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self._count = 0
        self._start = ""

    def start(self) -> str:
        """Return up to `LINE_START` characters from the start of the last line."""
        for piece in self.pieces[self._count :]:
            self._start = line_start(self._start, piece)
        self._count = len(self.pieces)
        return self._start


class Emitter:
    """Turns text and parts, which the parser adds in input order, into events and the `Reply`."""

    def __init__(self, new_id: NewId | None, tokens_before_text: Set[str] = frozenset()) -> None:
        self.record = ReplyRecord(new_id)
        """What has been emitted."""
        self._tokens_before_text = tokens_before_text
        """Special tokens that normally introduce a program or a name, such as `<|python_tag|>`.

        If any text follows such a token, the token is text too.
        """
        self._space: list[str] = []
        self._space_length = 0
        self._separators: dict[Zone, tuple[str, Span]] = {}
        """Maps a zone (answer or reasoning) to the white space before a removed piece.

        This white space is emitted unless the next text begins with white space.
        """
        self._message_space: tuple[Zone, str, Span] | None = None
        """White space at the end of a message; it is text unless a call follows."""
        self._tokens: list[Part] = []
        """Held tokens and the white space after them; the next text shows whether the tokens are quoted."""
        self._last_break = 0
        """The index in `_tokens` of the last part with a line break; 0 if there is none."""
        self._preceded_by: Literal["", "call", "tag"] = ""
        self._group: list[tuple[Part, bool]] = []
        self._group_has_call = False
        self._zone: Zone = "text"
        self._separated_zone: Zone | None = None
        """The zone (answer or reasoning) of a message that has begun but has no text so far; None if there is none.

        Before the message's first text, a line break is added, unless white space separates the text from earlier text
        in the zone.
        """
        self.group_is_quoted = False
        """Whether a held call is quoted from the conversation. If so, a closing tag does not confirm the call."""
        self.tokens_are_text = False
        """Whether a special token was text, or began something that is not a call. If so, all later tokens are text."""
        self.shows_calls = False
        """Whether an unreadable bare call to an offered tool was taken as text.

        If so, later tentative calls count as examples, since the unreadable call may be an example with a placeholder.
        """
        self.shows_fences = False
        """Whether a call in a code fence turned out to be an example. If so, later calls in fences are examples too."""
        self.records_refusals = False
        """Whether to record texts that look like the beginning of a call but are not."""
        self.at_start = True
        """Whether the reply so far consists only of white space, reasoning and markup."""
        self._lines: dict[Zone, _LastLine] = {}
        """Maps a zone (answer or reasoning) to the object that finds the beginning of the zone's last line."""

    def silent(self) -> Emitter:
        """Return a new, empty emitter that has the same rules but makes no events."""
        out = Emitter(None, self._tokens_before_text)
        out.record.emits_events = False
        return out

    @property
    def has_group(self) -> bool:
        """Whether a group is held: tentative calls, and what is between them."""
        return bool(self._group)

    @property
    def has_text(self) -> bool:
        """Whether text other than reasoning has been emitted."""
        return bool(self.record.pieces["text"])

    @property
    def has_call(self) -> bool:
        """Whether a call, perhaps a malformed one, was emitted or is held as tentative."""
        return self.record.call_count > 0 or self._group_has_call

    def last_text(self, size: int, zone: Zone = "text") -> str:
        """Return up to `size` characters from the end of the text of `zone`.

        The result is empty after a call or a tag, while a group is held, and if `zone` is not the current zone.
        """
        if self._group or self._preceded_by or self._zone != zone:
            return ""
        pieces = self.record.pieces[zone]
        if not (pieces or self._space):
            return ""
        return _tail((*self._space[::-1], *pieces[: -size - 1 : -1]), size)

    def last_text_and_tokens(self, size: int) -> str:
        """Return up to `size` characters from the end of the text and the held tokens after it.

        These tokens may become text.
        """
        held = _tail((part.raw for part in reversed(self._tokens)), size)
        return self.last_text(size - len(held)) + held

    def in_block_quote(self, following: str = "") -> bool:
        """Return whether the current line begins as a Markdown block quote; `following` is text to be added.

        Text after a call or a tag is treated as the beginning of a line. All uses together are O(n), since text is
        searched once.
        """
        pieces = self.record.pieces[self._zone]
        if self._group or self._preceded_by or not (pieces or self._space or self._tokens):
            return begins_block_quote(line_start("", following))
        known = self._lines.get(self._zone)
        if known is None or known.pieces is not pieces:
            known = self._lines[self._zone] = _LastLine(pieces)
        start = known.start()
        tokens = self._tokens[self._last_break : self._last_break + LINE_START]
        for piece in (*self._space, *(part.raw for part in tokens), following):
            start = line_start(start, piece)
        return begins_block_quote(start)

    @property
    def is_after_call(self) -> bool:
        """Whether only white space and markup have been seen since the last call."""
        return self._group_has_call if self._group else self._preceded_by == "call"

    @property
    def is_after_tag(self) -> bool:
        """Whether only white space has been seen since the last reasoning tag or answer tag."""
        return not self._group and self._preceded_by == "tag"

    # --- text ----------------------------------------------------------------------------------------------------

    def add_text(self, raw: str) -> None:
        """Add text to the current zone: to the answer, or to the reasoning."""
        if not raw:
            return
        if self._group:
            if not raw.strip(SPACE):
                self._group.append((Part("space", raw), False))
                return
            # Without this, a router ran an example call at the start of a line: only the words after it showed that
            # it was an example.
            self.reject_group()
        if self._tokens:
            if not raw.strip(SPACE):
                self._hold_token(Part("space", raw))
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
        """Emit the text that follows a removed piece, such as a call.

        The white space after the removed piece separates this text from the text before; if there is none, the white
        space before the removed piece does.
        """
        bare = body.lstrip(SPACE)
        space = held + body[: len(body) - len(bare)]
        before, span = self._separators.pop(self._zone, ("", Span(0, 0)))
        if self._preceded_by and not self.record.pieces[self._zone]:
            self.record.discard(space, "space")
            space = ""
        elif before and not space:
            self.record.add_text(before, self._zone, span)
            before = ""
        if before:
            self.record.add_discarded(before, "space", span)
        self._emit_text(space + bare)

    def _discard_or_keep_space(self, space: str) -> None:
        """Discard white space before a removed piece, or keep it as a separator, which the next text may need."""
        if space and not self._preceded_by and self._zone not in self._separators and self.record.pieces[self._zone]:
            self._separators[self._zone] = space, self.record.advance(space)
        else:
            self.record.discard(space, "space")

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
        """Discard the held white space, or keep it as a separator, because something other than text follows."""
        if self._space:
            self._emit_excess_space()
            self._discard_or_keep_space(self._take_held_space())

    def _take_held_space(self) -> str:
        held = "".join(self._space)
        self._space, self._space_length = [], 0
        return held

    def _emit_text(self, text: str) -> None:
        if self._message_space is not None or self._separated_zone is not None:
            self._emit_message_space()
            if self._separated_zone == self._zone:
                self._insert_line_break(text)
        self.record.add_text(text, self._zone, self.record.advance(text))

    def separate_messages(self, zone: Zone) -> None:
        """Note that another message begins in `zone`, so that white space will separate its text from earlier text."""
        self._separated_zone = zone

    def _insert_line_break(self, following: str) -> None:
        """Emit a line break, which is not in the input, if no white space separates two messages."""
        self._separated_zone = None
        before = self.record.pieces[self._zone]
        if before and not before[-1][-1].isspace() and not following[0].isspace():
            self.record.add_line_break(self._zone)

    # --- tags of reasoning ---------------------------------------------------------------------------------------

    def add_zone_tag(self, raw: str, zone: Zone) -> None:
        """Add a tag that begins or ends reasoning or an answer; `zone` is the zone of the text after the tag.

        Tentative calls before the tag are accepted, since only text directly after them would turn them into text.
        """
        self.accept_before_header()
        self.record.discard(raw, "markup")
        self.set_zone(zone)

    def accept_before_header(self) -> None:
        """Accept the tentative calls that are held, and discard the white space that is held, since markup follows."""
        self.accept_group()
        self._discard_held_space()

    def add_message_boundary(self, raw: str, zone: Zone, *, delimited: bool) -> None:
        """Add the header or the end of a message.

        If `delimited`, white space next to the boundary is part of the messages' content.
        """
        if not delimited:
            self.add_zone_tag(raw, zone)
            return
        self.accept_group()
        held = self._take_held_space()
        if held and self._preceded_by == "call":
            self.record.discard(held, "space")
        elif held:
            self._emit_message_space()
            self._message_space = self._zone, held, self.record.advance(held)
        self.record.discard(raw, "markup")
        self._zone = zone
        if self._preceded_by != "call":
            self._preceded_by = ""

    def _emit_message_space(self) -> None:
        """Emit the white space at the end of a message as text, since no call followed the message."""
        if self._message_space is not None:
            (zone, space, span), self._message_space = self._message_space, None
            self.record.add_text(space, zone, span)

    def _discard_message_space(self) -> None:
        """Discard the white space at the end of the message before a call, or keep it as a separator."""
        if self._message_space is not None:
            (zone, space, span), self._message_space = self._message_space, None
            if zone not in self._separators and self.record.pieces[zone]:
                self._separators[zone] = space, span
            else:
                self.record.add_discarded(space, "space", span)

    def add_token(self, raw: str, why: DiscardWhy) -> None:
        """Add a special token that does not begin a call.

        The token is removed later, unless the text around it shows that it is quoted.
        """
        if self._group:
            self._add_to_group(Part(why, raw), definite=False)
        elif why == "markup" and self.tokens_are_text:
            self.add_text(raw)
        else:
            self._hold_token(Part(why, raw))

    def _hold_token(self, part: Part) -> None:
        if not self._tokens or "\n" in part.raw:
            self._last_break = len(self._tokens)
        self._tokens.append(part)

    def _resolve_tokens(self, following: str, *, before_call: bool = False) -> None:
        """Remove the held tokens, or emit them as text. `following` is the text after them, or empty at the end."""
        if not self._tokens:
            return
        tokens, self._tokens = self._tokens, []
        kept = self._count_text_tokens(tokens, following, before_call=before_call)
        for part in tokens[:kept]:
            self.tokens_are_text = self.tokens_are_text or part.kind == "markup"
            self._emit_or_hold(part.raw)
        last = len(tokens)
        while last > kept and tokens[last - 1].kind == "space":
            last -= 1
        left_out = tokens[kept:last]
        if left_out:
            shown = "".join(part.raw for part in left_out).strip(SPACE)
            where = "amid text" if following else "at the end"
            self.record.add_fix(Fix("marker", f"{clip(shown)!r} {where} was taken out"))
            self._discard_held_space()
            for part in left_out:
                assert part.kind in ("debris", "markup", "space", "turn")
                self.record.discard(part.raw, part.kind)
            self._preceded_by = self._preceded_by or "tag"
        for part in tokens[last:]:
            self._hold_space(part.raw)

    def _count_text_tokens(self, tokens: list[Part], following: str, *, before_call: bool) -> int:
        """Return how many of the held tokens, from the first on, are text.

        If one of them belongs to the header of a turn, and a call comes before or after them, none of them is text.
        """
        headers = [part.kind == "turn" for part in tokens]
        if any(headers) and (before_call or self._preceded_by == "call"):
            return 0
        kept = count_quoted_tokens(tokens, self.last_text(QUOTE_CONTEXT), following, self._tokens_before_text)
        if any(headers) and not following:
            ends = next((at for at, part in enumerate(tokens) if part.kind == "debris"), len(tokens))
            before = self.last_text(QUOTE_CONTEXT)
            glued = SPECIAL_TOKEN.fullmatch(tokens[0].raw) is not None and before[-1:] not in ("", *SPACE)
            if is_quoted_token(before, "", "") or (ends == len(tokens) and not glued):
                kept = max(kept, ends)  # a header alone, or in a sentence about it, does not show that a turn ended
        return kept

    def add_discarded(self, raw: str, why: DiscardWhy) -> None:
        """Add a piece of the input that is neither text nor a call."""
        self.add_parts([Part(why, raw)], definite=not self._group)

    def reclassify_as_reasoning(self, raw: str) -> None:
        """Add a closing reasoning tag, which has no opening tag, and turn the text before it into reasoning."""
        self._resolve_tokens("")
        self.reject_group()
        self._emit_message_space()
        self._discard_held_space()
        self.record.turn_into_reasoning(SPACE)
        if "text" in self._separators:
            self._separators["reasoning"] = self._separators.pop("text")
        self.record.discard(raw, "markup")
        self._preceded_by = "tag"
        self.at_start = True

    def end_reasoning(self) -> None:
        """End reasoning without a closing tag."""
        self._resolve_tokens("")
        self._discard_held_space()
        self.set_zone("text")

    def set_zone(self, zone: Zone) -> None:
        """Set the zone (answer or reasoning). Its tag was added before, or is not in the reply."""
        self._zone = zone
        self._preceded_by = "tag"

    # --- parts ---------------------------------------------------------------------------------------------------

    def add_parts(self, parts: list[Part], *, definite: bool) -> None:
        """Add the parts into which a block of calls was read.

        Parts that are not `definite` are tentative: they are held in a group, which becomes text if text follows.
        """
        if definite:
            self._resolve_tokens("", before_call=True)
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
        """Add, as a tentative call, a call that is quoted from the conversation.

        The call is accepted only if no text follows.
        """
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
        """Whether the held group of tentative calls begins with markup, such as an opening tag."""
        return bool(self._group) and self._group[0][0].kind == "markup"

    @property
    def token_before_group(self) -> str:
        """The special token with which the held group of tentative calls begins; empty if it begins with none.

        Only tokens that no dialect declares, or that belong to prompts, count.
        """
        return next((part.raw for part, _ in self._group[:2] if part.kind == "turn"), "")

    def add_call_fix(self, fix: Fix) -> None:
        """Add a fix to the last of the tentative calls that are held."""
        add_fix((part for part, _ in reversed(self._group)), fix)

    def accept_group(self) -> None:
        """Emit the held group as calls and markup; a group without a call is emitted as text."""
        self._resolve_tokens("")
        if not self._group_has_call:
            self.reject_group()
            return
        for part, _ in self._take_group():
            if part.kind == "space":
                self._hold_space(part.raw)
            else:
                self._emit_part(part)
        self._discard_held_space()

    def reject_group(self) -> None:
        """Emit the held group of tentative calls as text, except for its definite parts."""
        if not self._group:
            return
        begun = self.record.offset + self._space_length
        self.shows_fences = self.shows_fences or (
            self._group_has_call and any(part.raw.startswith(("```", "~~~")) for part, _ in self._group)
        )
        for part, definite in self._take_group():
            if part.malformed is not None and part.malformed.reason != "unknown_tool":
                self.shows_calls = True
            if definite:
                self._retract_tries(begun)
                self._emit_part(part)
                begun = self.record.offset
            else:
                self._emit_or_hold(part.raw)
        self._retract_tries(begun)

    def _take_group(self) -> list[tuple[Part, bool]]:
        group, self._group, self._group_has_call, self.group_is_quoted = self._group, [], False, False
        return group

    def _retract_tries(self, start: int) -> None:
        self.record.retract_tries(start, self.record.offset + self._space_length)

    def _emit_part(self, part: Part) -> None:
        self._discard_held_space()
        if part.kind == "call":
            assert part.call is not None
            self._discard_message_space()
            if self.record.add_call(part.raw, part.call):
                self.at_start = False
            self._preceded_by = "call"
        elif part.kind == "malformed":
            assert part.malformed is not None
            self._discard_message_space()
            self.record.add_malformed(part.raw, part.malformed)
            self.at_start, self._preceded_by = False, "call"
        else:
            assert part.kind != "text"  # text is added by add_text()
            self.record.discard(part.raw, part.kind)

    def emit_early(self, item: EarlyCallStart | EarlyArguments) -> None:
        """Emit the start of a call that is still arriving, or a fragment of its arguments."""
        if isinstance(item, EarlyCallStart):
            self._resolve_tokens("", before_call=True)
            self._discard_held_space()
            self._discard_message_space()
            self.record.start_call(item)
        else:
            self.record.add_arguments(item)

    def end(self, finish_reason: str | None) -> None:
        """Emit what is held and end the reply."""
        self.accept_group()
        self._emit_message_space()
        held = self._take_held_space()
        if self._zone == "reasoning" or self._preceded_by:
            self.record.discard(held, "space")
        elif held:
            self._emit_text(held)
        for space, span in self._separators.values():
            self.record.add_discarded(space, "space", span)
        self._separators.clear()
        self.record.end(finish_reason)


def _tail(pieces: Iterable[str], size: int) -> str:
    """Return up to `size` characters from the end of a text whose pieces are given in reverse order."""
    last: list[str] = []
    for piece in pieces:
        if size <= 0:
            break
        last.append(piece[-size:])
        size -= len(piece)
    return "".join(reversed(last))


def begins_block_quote(line: str) -> bool:
    """Return whether a line begins as a Markdown block quote; its first `LINE_START` characters are enough."""
    return _BLOCK_QUOTE.match(line) is not None


def line_start(before: str, text: str) -> str:
    """Return up to `LINE_START` characters from the beginning of the last line of `text`.

    `before` is the beginning of the line that `text` continues. If `text` has no line break, that line is the last one,
    so the result begins with `before`.
    """
    at = text.rfind("\n") + 1
    if at:
        return text[at : at + LINE_START]
    return before if len(before) >= LINE_START else before + text[: LINE_START - len(before)]
