"""The states inside a value of markup: every tag is part of the value, except for those that end it.

Nothing in a value is escaped. What looks like its end (a closing tag of the parameter, the call or the wrapper) is
kept in `_closing_tokens` and the state becomes `_after_closer`; the tokens that follow decide:

- If another tag of the call, or the end, follows, the value ends (`_accept_end`), and the kept tags are replayed.
- If text, or a tag that cannot follow, comes, the kept tokens become part of the value again (`_resume_value`).
- A call inside the value takes its own closing tags (`_open_calls`), and so do parameters inside it (`_open_params`).

Where closing tags remain that fit no opening tag, the value may be that of two calls. Such a call is refused as
malformed (`_reject_call`): a guess would run a tool with wrong arguments.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.readers.markup.markup_block import MarkupBlock
from promptools.dialects.readers.markup.markup_call import MarkupCall, MarkupGrammar
from promptools.dialects.readers.markup.tag_names import Tag, is_blank
from promptools.errors import clip
from promptools.types import Fix


class ValueStates(MarkupBlock):
    """The states of a parameter and its value, and the fixes of tags that are not as the family writes them."""

    def __init__(self, grammar: MarkupGrammar, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(grammar, rules, place, definite=definite)
        self._in_wrapper = False
        self._wrapper_name: str | None = None
        self._outside_text: list[str] = []
        """The text between the tags outside of values."""
        self._call: MarkupCall | None = None
        self._key = ""
        self._param_style: Literal["tag", "nameless", "element"] = "tag"
        self._string_attribute: str | None = None
        self._value_pieces: list[str] = []
        self._closing_tokens: list[tuple[int, Tag | str]] = []
        """What looks like the end of the value: tokens and their indexes."""
        self._open_calls = 0
        """Calls that are open inside the value."""
        self._contains_call = False
        self._open_params = 0
        """Parameters inside the value that were opened, and not closed."""
        self._closed_inner_param = False
        """One of them was closed."""
        self._unmatched_closer = False
        """A closing tag has come inside it that closes nothing."""
        self._saw_both_closers = False
        """Its own closing tag has come as well, and that of its call right after."""
        self._call_just_opened = False
        """A call's opening tag has just come inside the value; the next tag decides whether it is a call."""
        self._reopen_index: int | None = None
        """The index at which the last value began, while text after its call may still be part of it."""
        self._emits_calls = self._may_stream = definite and place.implies_call
        """A call of the block may be emitted before the next one begins, or even while it comes."""
        self._cut_tag = ""
        """What the text ended in that may have become a tag."""
        self._skip_reason = ""
        self._tags.splits_cdata = grammar.cdata
        self._tags.elements = self._names.naming_elements | rules.tools.all_keys if rules.tools is not None else None

    @property
    def _may_be_quoted(self) -> bool:
        """Whether nothing but its tags makes this a call: it has no wrapper, and the request asked for none."""
        return not (self._in_wrapper or self._place.implies_call)

    @abstractmethod
    def _in_call(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _give_up(self, why: str, token: Tag | str | None) -> None: ...

    def _open_value(self, tag: Tag, call: MarkupCall) -> None:
        if (
            tag.kind == "element"
            and tag.name in self._names.naming_elements
            and not (call.tool is not None and call.declares(tag.name))
        ):
            return
        if tag.kind == "element" and not call.declares(tag.name or ""):
            self._give_up(f"{clip(tag.raw, 40)!r} is in the call", tag)
            return
        if self._may_be_quoted and not tag.attributes.keys() <= {
            self._names.key_attribute,
            "string",
            "value",
        }:
            self._give_up(f"{clip(tag.raw, 40)!r} is another format's", tag)
            return
        self._param_style = "element" if tag.kind == "element" else "tag" if tag.name is not None else "nameless"
        if self._param_style == "element" and not self._grammar.elements:
            call.record_fix(Fix("marker", f"a parameter was in {clip(tag.raw, 40)!r}"))
        elif self._param_style != "element":
            self._record_spelling(tag)
        self._key = tag.name or ""
        self._string_attribute = tag.attributes.get("string")
        self._value_pieces, self._closing_tokens = [], []
        (
            self._open_calls,
            self._contains_call,
            self._call_just_opened,
            self._unmatched_closer,
            self._saw_both_closers,
        ) = 0, False, False, False, False
        self._open_params, self._closed_inner_param = 0, False
        self._reopen_index = None
        if self._param_style != "nameless":
            self._stream_param(self._key, verbatim=not tag.empty and self._string_attribute != "false")
        if tag.empty:
            call.add(self._key, inline_value(tag) or "", inline=True)
        else:
            self._state = self._in_nameless_param if self._param_style == "nameless" else self._in_value

    def _in_nameless_param(self, token: Tag | str) -> None:
        """After a parameter's opening tag without a name: the name is the text that follows."""
        if isinstance(token, str):
            self._value_pieces.append(token)
            return
        key = "".join(self._value_pieces).strip()
        call = self._call
        assert call is not None
        if token.kind != "param" or not token.close or "\n" in key or not (key and call.declares(key)):
            self._give_up("a parameter has no name", token)
            return
        self._key, self._value_pieces = key, []
        self._stream_param(key, verbatim=True)
        self._state = self._in_value

    def _stream_param(self, key: str, *, verbatim: bool) -> None:
        if self._streamer is not None:
            self._streamer.begin_parameter(key, verbatim=verbatim and not self._grammar.cdata)

    def _in_value(self, token: Tag | str) -> None:
        """In a value: every token is part of it, except for those that end it."""
        if isinstance(token, str):
            self._call_just_opened = self._call_just_opened and is_blank(token)
            self._add_to_value(token)
            return
        if self._call_just_opened and self._confirms_call(token):
            self._open_calls += 1
            self._contains_call = True
        elif self._saw_both_closers and token.kind == "param" and not token.close:
            self._reject_call()
        self._call_just_opened = token.kind == "call" and not token.close
        if token.kind == "cdata":
            self._add_to_value(token.raw)
        elif self._repeats_opener(token):
            self._record_fix(Fix("marker", f"{clip(token.raw, 60)!r} came twice"))
        elif self._open_calls:
            self._open_calls -= token.kind == "call" and token.close
            self._add_to_value(token.raw)
        elif self._closes_value(token) or (token.close and token.kind in ("call", "wrap")):
            self._closing_tokens = [(self._index, token)]
            self._state = self._after_closer
        elif self._opens_next_param(token):
            self._end_value(self._unclosed_value_fix() if self._param_style == "tag" else None)
            self._in_call(token)
        else:
            self._open_params += (
                token.kind == "param" and not token.close and not token.empty and self._param_style == "tag"
            )
            self._add_to_value(token.raw)

    def _confirms_call(self, tag: Tag) -> bool:
        """Return whether a tag makes a call of the opening tag before it: a parameter, its closing tag, or a name."""
        if tag.kind == "call":
            return tag.close
        names = tag.kind == "element" and (self._grammar.elements or tag.name in self._names.naming_elements)
        return not tag.close and (tag.kind == "param" or names)

    def _add_to_value(self, text: str) -> None:
        self._value_pieces.append(text)
        if self._streamer is not None:
            self._streamer.add_text(text)

    def _repeats_opener(self, tag: Tag) -> bool:
        """Return whether a tag repeats the value's opening tag, with nothing between."""
        return tag.kind == "param" and not tag.close and tag.name == self._key and not self._value_pieces

    def _closes_value(self, tag: Tag) -> bool:
        """Return whether a tag is the value's own closing tag."""
        if self._param_style == "element":
            return tag.kind == "element" and tag.close and tag.name == self._key
        return tag.kind == "param" and tag.close

    def _opens_next_param(self, tag: Tag) -> bool:
        """Return whether the next parameter begins, so that this one's closing tag is missing."""
        if tag.kind != "param" or tag.close or self._contains_call or self._param_style == "element":
            return False
        if self._param_style == "nameless" or tag.name is None:
            return self._param_style == "nameless" and tag.name is None
        call = self._call
        assert call is not None
        if tag.name == self._key or tag.name in call.values or not call.declares(tag.name):
            return False
        return call.tool is not None or (bool(self._value_pieces) and self._value_pieces[-1].endswith("\n"))

    def _after_closer(self, token: Tag | str) -> None:
        """After what looks like the end of a value: the next token decides."""
        if isinstance(token, str):
            if self._names.begins_broken_tag(token) and self._is_own_closer():  # no value ends like this by chance
                self._accept_end()
                self._state(token)
                return
            self._closing_tokens.append((self._index, token))
            if not is_blank(token):
                self._resume_value()
        elif self._closes_inner_param(token):
            self._open_params -= 1
            self._closed_inner_param = True
            self._return_closing_tokens()
            self._in_value(token)
        elif token.kind == "cut" or (self._closes_value(token) and self._is_own_closer()):
            self._closing_tokens.append((self._index, token))
        elif self._may_follow_value(token):
            self._accept_end()
            if not self._decided:  # else the token is read again
                self._state(token)
        else:
            self._resume_value()
            self._in_value(token)

    def _closes_inner_param(self, tag: Tag) -> bool:
        """Return whether what looked like the end of the value closes a parameter inside it, judged by the next tag."""
        if not (self._open_params and self._is_own_closer()) or tag.kind != "param":
            return False
        call = self._call
        assert call is not None
        return tag.close or not self._opens_missing_param(tag, call)

    def _opens_missing_param(self, tag: Tag, call: MarkupCall) -> bool:
        """Return whether a tag opens a parameter of the tool that the call has not given yet."""
        return tag.name not in (None, self._key, *call.values) and call.declares(tag.name or "")

    def _is_own_closer(self) -> bool:
        first = self._closing_tokens[0][1]
        return isinstance(first, Tag) and self._closes_value(first)

    def _may_follow_value(self, tag: Tag) -> bool:
        """Return whether a tag may follow the end of a value."""
        first = (
            self._closing_tokens[-1][1] if isinstance(self._closing_tokens[-1][1], Tag) else self._closing_tokens[0][1]
        )
        assert isinstance(first, Tag)
        if self._is_own_closer():
            if tag.kind == "element":
                return self._param_style == "element" or tag.name == "parameters"
            return tag.kind != "noise" or "end" in tag.raw
        if self._contains_call or (self._may_be_quoted and self._unmatched_closer) or tag.kind in ("param", "element"):
            return False
        if first.kind == "call":
            return tag.kind in ("wrap", "end") or not tag.close
        return tag.kind == "end" or (tag.kind == "wrap" and not tag.close)

    def _resume_value(self) -> None:
        self._unmatched_closer = True
        tags = (token for _, token in self._closing_tokens if isinstance(token, Tag))
        self._saw_both_closers = self._saw_both_closers or (
            self._is_own_closer() and any(tag.kind == "call" for tag in tags)
        )
        self._return_closing_tokens()

    def _return_closing_tokens(self) -> None:
        """Make what looked like the end of the value part of it."""
        for _, token in self._closing_tokens:
            self._add_to_value(token if isinstance(token, str) else token.raw)
        self._closing_tokens = []
        self._state = self._in_value

    def _accept_end(self) -> None:
        """End the value at the tags that closed it, and replay them."""
        closing, self._closing_tokens = self._closing_tokens, []
        begin, first = closing[0][0] - len(self._value_pieces), closing[0][1]
        assert isinstance(first, Tag)
        own = self._closes_value(first)
        self._end_value(None if own or self._param_style == "nameless" else self._unclosed_value_fix())
        if own and self._param_style == "tag":
            self._record_spelling(first)
        current = self._index
        for at, token in closing[1 if own else 0 :]:
            if not self._decided and isinstance(token, Tag):
                self._index = at
                self._state(token)
        self._index = current
        self._reopen_index = begin if own else None

    def _reject_call(self) -> None:
        """Refuse the call: its value may be that of two calls."""
        assert self._call is not None
        self._call.error = f"the closers in {self._key!r} belong to no tags of its own: it may be of two calls"

    def _end_value(self, fix: Fix | None) -> None:
        call = self._call
        assert call is not None
        if fix is not None:
            if self._unmatched_closer:
                self._reject_call()
            call.record_fix(fix)
            self._value_pieces = [
                "".join(self._value_pieces).removesuffix("\n").removesuffix("\r")
            ]  # the line break before the next tag
        value = "".join(self._value_pieces)
        call.holds_opener = call.holds_opener or bool(self._open_params)
        if self._open_params and self._closed_inner_param:  # one closing tag too few: any of them may be the value's
            self._reject_call()
        if not (self._grammar.cdata and "<![CDATA[" in value) and self._names.holds_damaged_tag(value):
            self._reject_call()
        call.add_revocable(self._key, self._value_pieces, string=self._string_attribute)
        self._state = self._in_call

    # --- what is missing, or odd ---------------------------------------------------------------------------------

    def _missing_closer_fix(self) -> Fix | None:
        closer = self._grammar.closers[0]
        return Fix("closer", f"no {closer!r}") if closer else None

    def _unclosed_value_fix(self) -> Fix:
        return Fix(self._grammar.unclosed_value, f"no {self._grammar.closers[1]!r}")

    def _spelling_fix(self, tag: Tag) -> Fix | None:
        if self._grammar.canonical.fullmatch(tag.raw):
            return None
        return Fix("marker", f"the tag was written {clip(tag.raw, 60)!r}")

    def _record_spelling(self, tag: Tag) -> None:
        """Record a tag that is not as the family is trained to write it."""
        fix = self._spelling_fix(tag)
        if fix is not None:
            self._record_fix(fix)

    def _record_fix(self, fix: Fix) -> None:
        if self._call is not None:
            self._call.record_fix(fix)
        else:
            self._pending_fixes.append(fix)

    def _missing_wrapper_fix(self) -> Fix | None:
        return Fix("closer", f"no {self._grammar.wrapper[1]!r}") if self._in_wrapper else None


def inline_value(tag: Tag) -> str | None:
    """Return the value that a parameter's tag itself holds, or None."""
    for key in ("string", "value"):
        if key in tag.attributes and tag.attributes[key] not in ("true", "false"):
            return tag.attributes[key]
    return None
