"""A value of markup while it is read: every tag is part of it, except for those that end it.

Nothing in a value is escaped. What looks like its end (a closing tag of the parameter, the call or the wrapper) is held
until the tokens after it decide:

- If another tag of the call, or the end, follows, the value ends, and the tags after its own closing tag are returned.
- If text, or a tag that cannot follow, comes, what was held becomes part of the value.
- A call inside the value takes its own closing tags (`_open_calls`), and so do parameters inside it (`_open_params`).

Where closing tags remain that fit no opening tag, the value may be that of two calls. Such a call is refused as
malformed: a guess would run a tool with wrong arguments.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from promptools.dialects.readers.markup.markup_call import MarkupCall, MarkupGrammar
from promptools.dialects.readers.markup.markup_streamer import MarkupStreamer
from promptools.dialects.readers.tags.tag_names import Tag, is_blank
from promptools.errors import clip
from promptools.types import Fix


class HeldToken(NamedTuple):
    """A token after what looks like the end of a value, and its index in the block."""

    at: int
    token: Tag | str


ValueStyle: TypeAlias = Literal["tag", "nameless", "element"]
"""How a parameter's opening tag gives its name."""


class OpenValue:
    """One value: fed tokens until it has ended."""

    def __init__(
        self,
        key: str,
        style: ValueStyle,
        call: MarkupCall,
        grammar: MarkupGrammar,
        streamer: MarkupStreamer | None,
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
        self._held: list[HeldToken] = []
        """What looks like the end of the value, and the tokens after it."""
        self._open_calls = 0
        """Calls that are open inside the value."""
        self._contains_call = False
        self._open_params = 0
        """Parameters inside the value that were opened, and not closed."""
        self._closed_inner_param = False
        """One of them was closed."""
        self.unmatched_closer = False
        """A closing tag has come inside it that closes nothing."""
        self._saw_both_closers = False
        """Its own closing tag has come as well, and that of its call right after."""
        self._call_just_opened = False
        """A call's opening tag has just come inside the value; the next tag decides whether it is a call."""
        self.end = 0
        """The index of the tag at which it ended, if text after its call may still be part of it; else 0."""

    @property
    def may_have_ended(self) -> bool:
        """Whether a tag that looks like its end has come, and what follows has not decided yet."""
        return bool(self._held)

    def ends_with_text(self, *, length: bool) -> bool:
        """Return whether what looks like the end of the value is its end, if the text ends after it.

        `length`: the text was cut off.
        """
        return self._is_own_closer() or not (
            self._contains_call or length or (self._may_be_quoted and self.unmatched_closer)
        )

    def feed(self, token: Tag | str, index: int) -> list[HeldToken] | None:
        """Read a token. Return None while the value goes on, then the tags after its closing tag before this token."""
        return self._after_closer(token, index) if self._held else self._in_value(token, index)

    def _in_value(self, token: Tag | str, index: int) -> list[HeldToken] | None:
        if isinstance(token, str):
            self._call_just_opened = self._call_just_opened and is_blank(token)
            self.add(token)
            return None
        if self._call_just_opened and self._confirms_call(token):
            self._open_calls += 1
            self._contains_call = True
        elif self._saw_both_closers and token.kind == "param" and not token.close:
            self._reject_call()
        self._call_just_opened = token.kind == "call" and not token.close
        if token.kind == "cdata":
            self.add(token.raw)
        elif self._repeats_opener(token):
            self._call.record_fix(Fix("marker", f"{clip(token.raw, 60)!r} came twice"))
        elif self._open_calls:
            self._open_calls -= token.kind == "call" and token.close
            self.add(token.raw)
        elif self._closes_value(token) or (token.close and token.kind in ("call", "wrap")):
            self._held = [HeldToken(index, token)]
        elif self._opens_next_param(token):
            self._finish(self._grammar.missing_value_closer() if self._style == "tag" else None)
            return []
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

    # --- after what looks like its end -------------------------------------------------------------------------------

    def _after_closer(self, token: Tag | str, index: int) -> list[HeldToken] | None:
        if isinstance(token, str):
            if self._grammar.names.begins_broken_tag(token) and self._is_own_closer():
                return self.accept_end()  # no value ends like this by chance
            self._held.append(HeldToken(index, token))
            if not is_blank(token):
                self.resume()
            return None
        if self._closes_inner_param(token):
            self._open_params -= 1
            self._closed_inner_param = True
            self._return_held()
        elif token.kind == "cut" or (self._closes_value(token) and self._is_own_closer()):
            self._held.append(HeldToken(index, token))
            return None
        elif self._may_follow(token):
            return self.accept_end()
        else:
            self.resume()
        return self._in_value(token, index)

    def _closes_inner_param(self, tag: Tag) -> bool:
        """Return whether what looked like the end of the value closes a parameter inside it, judged by the next tag."""
        if not (self._open_params and self._is_own_closer()) or tag.kind != "param":
            return False
        return tag.close or not self._opens_missing_param(tag)

    def _is_own_closer(self) -> bool:
        first = self._held[0].token
        return isinstance(first, Tag) and self._closes_value(first)

    def _may_follow(self, tag: Tag) -> bool:
        """Return whether a tag may follow the end of a value."""
        last = self._held[-1].token
        closer = last if isinstance(last, Tag) else self._held[0].token
        assert isinstance(closer, Tag)
        if self._is_own_closer():
            if tag.kind == "element":
                return self._style == "element" or tag.name == "parameters"
            return tag.kind != "noise" or "end" in tag.raw
        if self._contains_call or (self._may_be_quoted and self.unmatched_closer) or tag.kind in ("param", "element"):
            return False
        if closer.kind == "call":
            return tag.kind in ("wrap", "end") or not tag.close
        return tag.kind == "end" or (tag.kind == "wrap" and not tag.close)

    def resume(self) -> None:
        """Go on with the value: what looked like its end was part of it."""
        self.unmatched_closer = True
        has_call = any(isinstance(token, Tag) and token.kind == "call" for _, token in self._held)
        self._saw_both_closers = self._saw_both_closers or (self._is_own_closer() and has_call)
        self._return_held()

    def _return_held(self) -> None:
        for _, token in self._held:
            self.add(token if isinstance(token, str) else token.raw)
        self._held = []

    # --- its end -----------------------------------------------------------------------------------------------------

    def accept_end(self) -> list[HeldToken]:
        """End the value at the tag that closed it; return the tags after that."""
        held, self._held = self._held, []
        first = held[0].token
        assert isinstance(first, Tag)
        own = self._closes_value(first)
        self._finish(None if own or self._style == "nameless" else self._grammar.missing_value_closer())
        spelling = self._grammar.spelling_fix(first) if own and self._style == "tag" else None
        if spelling is not None:
            self._call.record_fix(spelling)
        self.end = held[0].at if own else 0
        return [item for item in held[own:] if isinstance(item.token, Tag)]

    def _finish(self, fix: Fix | None) -> None:
        """Add the value to its call; `fix`: its closing tag is missing."""
        call, names = self._call, self._grammar.names
        if fix is not None:
            if self.unmatched_closer:
                self._reject_call()
            call.record_fix(fix)  # the line break before the next tag is layout
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
