"""The base classes of readers of tags: `TagReader` for all, `SingleCallReader` for those that read a single call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from promptools.dialects.calls.bare_values import CallBuilder
from promptools.dialects.calls.call_streamer import MemberStreamer
from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.tags import Tag, TokenBuffer
from promptools.parsing.parts import NEED_MORE, CandidateBase, EarlyOutput, NeedMore, Part, TriedStrategy, total_length
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

# The base of all readers of tags: tokens in, and in the end the parts that tile the text.
#
# Each token of the text goes to `_state`, a method of the reader. Where the meaning of a token depends on what follows,
# the state looks ahead in the buffer. As long as the following text is missing, the state returns `NEED_MORE`, and gets
# the same token again with the next piece. The tokens after the end become `unread`, and the next reader reads them.


TokenState: TypeAlias = "Callable[[Tag | str], NeedMore | None]"
"""A state of a reader: a method that handles a token, or returns `NEED_MORE` to get more text first."""


class Transition(NamedTuple):
    """What one tag does: the state of the reader before the tag, the tag, and the state after the tag."""

    state: str
    tag: str
    then: str


ENDED: Final = "ended"
"""The name of the last state of a reader, in which it has decided whether the text is a call."""


class TagReader(CandidateBase, ABC):
    """Base class of readers of tags. It passes each token of the text to the method of the current state. O(n)."""

    _state: TokenState

    def __init__(self, buffer: TokenBuffer, evidence: Evidence, *, definite: bool, head: str = "") -> None:
        super().__init__(definite=definite, head=head)
        self._buffer = buffer
        self._tokens = buffer.tokens
        self._evidence = evidence
        self._finish_reason: str | None = None
        self._decided = False

    @property
    def _index(self) -> int:
        """The index of the current token."""
        return self._buffer.index

    @property
    def state(self) -> str:
        """The display name of the reader's current state, such as `in value`."""
        return ENDED if self._decided else self._state_name.lstrip("_").replace("_", " ")

    @property
    def _state_name(self) -> str:
        return self._state.__name__

    @abstractmethod
    def _on_end_of_text(self, finish_reason: str | None) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        self._buffer.add(piece, start)
        self._run()
        if not self._decided:
            return None
        left = len(self.unread) + self._buffer.rest_size - (len(piece) - start)
        if left <= 0:
            self.unread = ""
            return start - left
        self.unread = (self.unread + self._buffer.rest)[:left]
        return start

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        self._finish_reason = finish_reason
        self._buffer.final = True
        self._run()
        if not self._decided:
            self._on_end_of_text(finish_reason)
        self.unread += self._buffer.rest

    def transitions(self, text: str) -> Iterator[Transition]:
        """Read a whole text. For each tag, yield the state of the reader before and after the tag."""
        self._buffer.add(text, 0)
        self._buffer.final = True
        before = self.state
        while not self._decided and self._step():
            token = self._tokens[self._index - 1]
            if isinstance(token, Tag):
                yield Transition(before, token.raw, self.state)
            before = self.state

    def _run(self) -> None:
        while not self._decided and self._step():
            pass

    def _step(self) -> bool:
        """Handle the current token. Return False if it has not arrived, or if more text is needed to understand it."""
        buffer = self._buffer
        if buffer.index == len(buffer.tokens) and not buffer.read():
            return False
        if self._state(buffer.tokens[buffer.index]) is NEED_MORE:
            return False
        buffer.advance()
        return True

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish_parts(self, parts: Sequence[Part], end: int) -> None:
        """Accept `parts` as the result. They cover all tokens before index `end` that were not emitted yet."""
        self.parts = [*([Part("markup", self.head)] if self.head else []), *parts]
        self.unread = self._buffer.text(end)
        all_parts = [*self._emitted, *self.parts]
        self.tries.append(trace_entry(self._evidence.dialect, total_length(all_parts), all_parts))
        self._decided = True

    def _finish_as_text(self, end: int, why: str) -> None:
        """Decide that `head` and the tokens before index `end` are text. `why`: the reason, for the trace."""
        end = end if self.head else max(end, 1)
        raw = self.head + self._buffer.text(0, end)
        self.parts = [Part("text", raw)]
        self.unread = self._buffer.text(end)
        self.tries.append(TriedStrategy(self._evidence.dialect, "text", why, len(raw) + len(self.unread)))
        self._decided = True


# A call whose arguments come one by one between tags: emitted as they arrive, and decided at the end.


_NAME = lazy_pattern(r"[^\W\d][\w.:/-]{0,127}\Z")
"""Matches what may be the name of a tool that is not offered: text with spaces is not a name."""


class FieldCall(CallBuilder):
    """Collects the name, the arguments and the fixes of a call whose arguments come one by one, between tags."""

    def __init__(self, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(options)
        self.evidence = evidence
        self._definite = definite
        self._streamer: MemberStreamer | None = None

    @property
    def meant(self) -> bool:
        """Whether it is clear that a call is intended, whichever tool it names."""
        return self.evidence.implies_call

    def set_name(self, name: str) -> bool:
        """Set the name and, if a tool with this name is offered, the tool; return whether this may be a call."""
        tools = self.options.tools
        resolved = tools.find(name) if tools is not None and "<" not in name else None
        if resolved is None:
            self.name = name
            likely = tools is None or self.meant or self.evidence.wrapper_first
            return likely and _NAME.match(name) is not None
        self.tool, fix = resolved
        self.name = self.tool.name
        self.fixes += [fix] if fix is not None else []
        if self.meant and self._definite:
            self._streamer = MemberStreamer(self.options, self.name)
            self._streamer.start()
        return True

    def take_early(self) -> list[EarlyOutput]:
        """Return the output that may be emitted before the call ends, and clear it."""
        early: list[EarlyOutput] = []
        if self._streamer is not None:
            early, self._streamer.pending = self._streamer.pending, early
        return early

    def may_be_tool_name(self, prefix: str) -> bool:
        """Return whether a name that was cut off may be the name of a tool. `prefix`: the part that has arrived."""
        if self.options.tools is None:
            return _NAME.match(prefix) is not None
        return any(name.startswith(prefix) or prefix.startswith(name) for name in self.options.tools.all_names)

    def split_glued_key(self, text: str) -> tuple[str, str] | None:
        """Split the name of a tool from a key that follows it without a tag; return None if that is impossible.

        If several offered names match, the longest is taken.
        """
        tools = self.options.tools
        for name in sorted(tools.all_names if tools is not None else (), key=len, reverse=True):
            if text.startswith(name) and tools is not None and text[len(name) :].strip() in tools.keys(name):
                return name, text[len(name) :].strip()
        return None

    def put(self, key: str, value: Any, fixes: tuple[Fix, ...] = ()) -> None:
        """Add an argument whose value has been read, and stream it."""
        super().put(key, value, fixes)
        if self._streamer is not None:
            self._streamer.add(key, value)

    def resolve(self) -> Call | Malformed:
        """Return the call, or a malformed call that says what is wrong. Raises `NotACall` if the text is not a call."""
        evidence = self.evidence
        if self.options.strictness == "strict" and not self.meant and self._was_repaired():
            raise NotACall("strict allows no repair of the markup")
        if self.error:
            return self.as_malformed(self.error)
        if self.tool is None and not (self.meant or self.arguments) and self.options.tools is not None:
            raise NotACall("a word alone is no call")
        outcome = self.resolve_in(evidence)
        return self._streamer.reconcile(outcome) if self._streamer is not None else outcome

    def as_truncated(self) -> Malformed:
        """Return a malformed call whose reason is that the text ended inside the call."""
        return malformed_call("truncated", "the text ended inside it", self.evidence.dialect, self.name or None)

    def as_malformed(self, why: str) -> Malformed:
        """Return a malformed call whose reason is that the call cannot be read; `why` explains this."""
        return malformed_call("invalid_json", why, self.evidence.dialect, self.name or None)

    def _was_repaired(self) -> bool:
        return bool(self.error) or any(fix.kind != "name" for fix in self.fixes)


# The base class of the readers of one call whose arguments come between tags.
#
# Text goes to `_add_text`; each tag goes to `_tag_state`, the method of the current state.
#
# A value may contain any tag, so its closing tag ends the value only where structure follows. Where something else
# follows the closing tag of the call itself, the value and the call may both have ended there: a file in a value may
# end like a call, and a call from a server under load may lack its last closing tags. Such a place is kept as
# `_possible_end`, and applied if nothing better comes.


TagState: TypeAlias = "Callable[[Tag], NeedMore | None]"
"""A state of a reader: a method that handles a tag, or returns `NEED_MORE` to get more text first."""


class PossibleEnd(NamedTuple):
    """A place where a value and its call may have ended. They end there if no more certain end comes later.

    `size`: the length of the value's text. `at`: the index after the call's last token. `sure`: if False, this is the
    end only if the server reports that the model was done.
    """

    size: int
    at: int
    sure: bool


class SingleCallReader(TagReader):
    """Reads one call of keys and values between tags. O(n). Subclasses define the states."""

    _tag_state: TagState

    def __init__(
        self, head: str, buffer: TokenBuffer, options: ParseOptions, evidence: Evidence, *, definite: bool
    ) -> None:
        super().__init__(buffer, evidence, definite=definite, head=head)
        self._state = self._read_token
        self._call = FieldCall(options, evidence, definite=definite)
        self._text_pieces: list[str] = []
        """The text since the last tag that was not kept as text; inside a value, the text of the value."""
        self._text_size = 0
        self._key = ""
        self._open_calls = self._open_values = 0
        """The numbers of calls and of values that are open inside the value."""
        self._possible_end: PossibleEnd | None = None

    @abstractmethod
    def _in_call(self, tag: Tag) -> NeedMore | None: ...
    @abstractmethod
    def _add_argument(self, key: str, text: str) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        end = super().feed(piece, start)
        self.early += self._call.take_early()
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        super().close(finish_reason)
        self.early += self._call.take_early()

    @property
    def _state_name(self) -> str:
        return self._tag_state.__name__

    def _read_token(self, token: Tag | str) -> NeedMore | None:
        if isinstance(token, str):
            self._add_text(token)
            return None
        if token.kind != "cut":
            return self._tag_state(token)
        self._on_cut(token)
        return None

    def _on_cut(self, tag: Tag) -> None:
        """Read an unfinished tag at the end of the text."""
        self._add_text(tag.raw)

    def _token_after(self, index: int) -> Tag | str | NeedMore | None:
        """Return the first token after `index` that is not white space.

        Return None if the text ends before such a token, or inside an unfinished tag.
        """
        at = self._buffer.after(index)
        if at is NEED_MORE or at is None:
            return at
        token = self._tokens[at]
        return None if isinstance(token, Tag) and token.kind == "cut" else token

    def _add_text(self, text: str) -> None:
        self._text_pieces.append(text)
        self._text_size += len(text)

    def _take_text(self) -> str:
        """Return the text since the last tag, and clear it."""
        text, self._text_pieces, self._text_size = "".join(self._text_pieces), [], 0
        return text

    def _record_fix(self, detail: str) -> None:
        self._call.fixes.append(Fix("marker", detail))

    def _end_value(self, size: int | None = None) -> None:
        """End the value after the first `size` characters of its text, or after all of its text if `size` is None."""
        text = self._take_text()
        self._add_argument(self._key, text if size is None else text[:size])
        self._open_values = self._open_calls = 0
        self._possible_end = None
        self._tag_state = self._in_call

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish(self, size: int, end: int, fix: Fix | None) -> None:
        """Decide on the call, which is the first `size` tokens; the tokens from there to index `end` close the call."""
        if fix is not None:
            self._call.fixes.append(fix)
        self._check_call()
        try:
            outcome = self._call.resolve()
        except NotACall as no:
            self._finish_as_text(end, str(no))
            return
        if isinstance(outcome, Malformed) and not self._call.meant and self._is_too_little():
            self._finish_as_text(end, "it holds nothing of a call")
            return
        raw, closer = self._buffer.text(0, size), self._buffer.text(size, end)
        if isinstance(outcome, Malformed):
            parts = [self._malformed_part(outcome, raw)]
        else:
            parts = [Part("call", raw, call=outcome)]
        self._finish_parts([*parts, *([Part("markup", closer)] if closer else [])], end)

    def _check_call(self) -> None:
        """Check the call as a whole; a hook for subclasses."""

    def _is_too_little(self) -> bool:
        """Return whether a malformed call has too little content to be reported; a hook for subclasses."""
        return False

    def _malformed_part(self, outcome: Malformed, raw: str) -> Part:
        if not raw:
            raw, self.head = self.head, ""
        return Part("malformed", raw, malformed=outcome)

    def _truncate(self) -> None:
        """Report that the text ended inside the call."""
        end = len(self._tokens)
        self._finish_parts([self._malformed_part(self._call.as_truncated(), self._buffer.text(0, end))], end)
