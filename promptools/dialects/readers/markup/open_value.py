"""A value of markup while it is read: every tag is part of it, except for those that end it.

Nothing in a value is escaped. Whether a closing tag of the parameter, the call or the
wrapper is its end is decided by the token that follows:

- If another tag of the call follows, or the end, the value ends.
- If text follows, or a tag that cannot, the closing tag is part of the value.
- A call inside the value takes its own closing tags (`_open_calls`), and so do parameters inside it (`_open_params`).

Where closing tags remain that fit no opening tag, the value may be that of two calls. Such a call is refused as
malformed: a guess would run a tool with wrong arguments.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from promptools.dialects.calls.streaming.member_streamer import MemberStreamer
from promptools.dialects.readers.markup.markup_call import MarkupCall, MarkupGrammar
from promptools.dialects.readers.tags.tag_names import Tag, is_blank
from promptools.dialects.readers.tags.token_buffer import TokenBuffer
from promptools.errors import clip
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.types import Fix

ValueStyle: TypeAlias = Literal["tag", "nameless", "element"]
"""How a parameter's opening tag gives its name."""
ValueEnd: TypeAlias = Literal["at", "before"]
"""Where a value ended: at a tag, which is its closing tag, or before it."""


class OpenValue:
    """One value: fed tokens until it has ended."""

    def __init__(
        self,
        key: str,
        style: ValueStyle,
        call: MarkupCall,
        grammar: MarkupGrammar,
        streamer: MemberStreamer | None,
        *,
        type_name: str,
        may_be_quoted: bool,
    ) -> None:
        self.key = key
        self._style = style
        self._call = call
        self._grammar = grammar
        self._streamer = streamer
        self._type_name = type_name
        self._may_be_quoted = may_be_quoted
        """Nothing but its tags makes this a call: it has no wrapper, and the request asked for none."""
        self._pieces: list[str] = []
        self._open_calls = 0
        """Calls that are open inside the value."""
        self._contains_call = False
        self._open_params = 0
        """Parameters inside the value that were opened, and not closed."""
        self._closed_inner_param = False
        """One of them was closed."""
        self.unmatched_closer = False
        """A closing tag has come inside it that closes nothing."""
        self._call_just_opened = False
        """A call's opening tag has just come inside the value; the next tag decides whether it is a call."""
        self._skipped_to = 0
        """The index up to which the tokens after a closing tag are known to decide nothing."""
        self._rejected_to = 0
        """The index up to which closing tags are known to be part of the value."""
        self.end = 0
        """The index of the tag at which it ended, if text after its call may still be part of it; else 0."""

    def feed(self, token: Tag | str, buffer: TokenBuffer, finish_reason: str | None) -> ValueEnd | NeedMore | None:
        """Read the current token; return where the value ended, or None if it goes on."""
        if isinstance(token, str):
            self._call_just_opened = self._call_just_opened and is_blank(token)
            self.add(token)
            return None
        if self._call_just_opened and self._confirms_call(token):
            self._open_calls += 1
            self._contains_call = True
        self._call_just_opened = token.kind == "call" and not token.close
        if token.kind == "cdata":
            self.add(token.raw)
        elif self._repeats_opener(token):
            self._call.record_fix(Fix("marker", f"{clip(token.raw, 60)!r} came twice"))
        elif self._open_calls:
            self._open_calls -= token.kind == "call" and token.close
            self.add(token.raw)
        elif self._closes_value(token) or (token.close and token.kind in ("call", "wrap")):
            return self._on_closer(token, buffer, length=finish_reason == "length")
        elif self._opens_next_param(token):
            self._finish(closed=False)
            return "before"
        else:
            self._open_params += token.kind == "param" and not token.close and not token.empty and self._style == "tag"
            self.add(token.raw)
        return None

    def add(self, text: str) -> None:
        """Add text to the value, whatever it holds."""
        self._pieces.append(text)
        if self._streamer is not None:
            self._streamer.add_text(text)

    def _confirms_call(self, tag: Tag) -> bool:
        """Return whether a tag makes a call of the opening tag before it: a parameter, its closing tag, or a name."""
        if tag.kind == "call":
            return tag.close
        names = tag.kind == "element" and (self._grammar.elements or tag.name in self._grammar.names.naming_elements)
        return not tag.close and (tag.kind == "param" or names)

    def _repeats_opener(self, tag: Tag) -> bool:
        """Return whether a tag repeats the value's opening tag, with nothing between."""
        return tag.kind == "param" and not tag.close and tag.name == self.key and not self._pieces

    def _closes_value(self, tag: Tag) -> bool:
        """Return whether a tag is the value's own closing tag."""
        if self._style == "element":
            return tag.kind == "element" and tag.close and tag.name == self.key
        return tag.kind == "param" and tag.close

    def _opens_next_param(self, tag: Tag) -> bool:
        """Return whether the next parameter begins, so that this one's closing tag is missing."""
        if tag.kind != "param" or tag.close or self._contains_call or self._style == "element":
            return False
        if self._style == "nameless" or tag.name is None:
            return self._style == "nameless" and tag.name is None
        call = self._call
        if not self._opens_missing_param(tag):
            return False
        return call.tool is not None or (bool(self._pieces) and self._pieces[-1].endswith("\n"))

    def _opens_missing_param(self, tag: Tag) -> bool:
        """Return whether a tag opens a parameter of the tool that the call has not given yet."""
        return tag.name not in (None, self.key, *self._call.values) and self._call.declares(tag.name or "")

    # --- what looks like its end -------------------------------------------------------------------------------------

    def _on_closer(self, tag: Tag, buffer: TokenBuffer, *, length: bool) -> ValueEnd | NeedMore | None:
        """Read a tag that looks like the end of the value; what follows decides whether it is."""
        own = self._closes_value(tag)
        if buffer.index <= self._rejected_to:  # one of several in a row, the first of which was no end
            self.add(tag.raw)
            return None
        following = self._token_after(buffer, own)
        if following is NEED_MORE:
            return NEED_MORE
        if own and isinstance(following, Tag) and self._closes_inner_param(following):
            self._open_params -= 1
            self._closed_inner_param = True
        elif self._may_follow(tag, following, length=length):
            self._end_at(tag, buffer.index if own else 0)
            return "at" if own else "before"
        else:
            self.unmatched_closer = True
            self._rejected_to = self._skipped_to
            self._streamer = self._streamer if following is not None else None  # the rest may be anything
        self.add(tag.raw)
        return None

    def _token_after(self, buffer: TokenBuffer, own: bool) -> Tag | str | NeedMore | None:
        """Return the first token after the current one that decides; None at the end of the text.

        White space, a tag that was cut short, and the `own` closing tag once more decide nothing.
        """
        at = buffer.after(max(buffer.index, self._skipped_to))
        while not (at is NEED_MORE or at is None):
            token = buffer.tokens[at]
            doubled = own and isinstance(token, Tag) and not self._open_params and self._closes_value(token)
            if not doubled and not (isinstance(token, Tag) and token.kind == "cut"):
                return token
            self._skipped_to = at
            at = buffer.after(at)
        return at

    def _closes_inner_param(self, following: Tag) -> bool:
        """Return whether its closing tag closes a parameter inside it, judged by the tag that follows."""
        if not self._open_params or following.kind != "param":
            return False
        return following.close or not self._opens_missing_param(following)

    def _may_follow(self, closer: Tag, following: Tag | str | None, *, length: bool) -> bool:
        """Return whether a value may end at or before `closer` if `following` comes next; None: the text ends.

        `length`: the text was cut off.
        """
        own = self._closes_value(closer)
        certain = not (self._contains_call or (self._may_be_quoted and self.unmatched_closer))
        if following is None:
            return own or (certain and not length)
        if isinstance(following, str):  # no value ends in a closing tag and a broken tag by chance
            return own and self._grammar.names.begins_broken_tag(following)
        if own and following.kind == "element":
            return self._style == "element" or following.name == "parameters"
        if own:
            return following.kind != "noise" or "end" in following.raw
        if not certain or following.kind in ("param", "element"):
            return False
        if closer.kind == "call":
            return following.kind in ("wrap", "end") or not following.close
        return following.kind == "end" or (following.kind == "wrap" and not following.close)

    # --- its end -----------------------------------------------------------------------------------------------------

    def _end_at(self, tag: Tag, end: int) -> None:
        """End the value at a tag; `end`: its index if it is the value's own closing tag, else 0."""
        self._finish(closed=end != 0)
        spelling = self._grammar.spelling_fix(tag) if end and self._style == "tag" else None
        if spelling is not None:
            self._call.record_fix(spelling)
        self.end = end

    def _finish(self, *, closed: bool) -> None:
        """Add the value to its call; `closed`: its own closing tag ended it."""
        call, names = self._call, self._grammar.names
        if not closed:
            if self._style != "nameless":  # such a value has no closing tag of its own
                if self.unmatched_closer:
                    self._reject_call()
                call.record_fix(self._grammar.missing_value_closer())
            # the line break before the next tag is layout
            self._pieces = ["".join(self._pieces).removesuffix("\n").removesuffix("\r")]
        text = "".join(self._pieces)
        call.holds_opener = call.holds_opener or bool(self._open_params)
        if self._open_params and self._closed_inner_param:  # one closing tag too few: any of them may be the value's
            self._reject_call()
        if not (self._grammar.cdata and "<![CDATA[" in text) and names.holds_damaged_tag(text):
            self._reject_call()
        call.add_revocable(self.key, self._pieces, self._type_name)

    def _reject_call(self) -> None:
        """Refuse the call: its value may be that of two calls."""
        self._call.error = f"the closers in {self.key!r} belong to no tags of its own: it may be of two calls"


def inline_value(tag: Tag) -> str | None:
    """Return the value that a parameter's tag itself holds, or None."""
    for key in ("string", "value"):
        if key in tag.attributes and tag.attributes[key] not in ("true", "false"):
            return tag.attributes[key]
    return None
