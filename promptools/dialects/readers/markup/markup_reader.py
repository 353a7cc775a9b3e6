"""Calls as markup, `call(name) / parameter(key) value / end`, read as they come: the one reader of tags.

The format has no escaping, so a value may hold any tag. What ends a value is judged by what follows: a closing tag
counts only before another tag of the call, or the end; a parameter's opening tag counts only if the tool has such a
parameter and it is still missing; a call inside a value takes its own closing tags. A value that nothing closes is
never an argument.

The states, one method each:

    _before_calls       before the first call: wrapper, call, a name outside of its tag, JSON
    _in_nameless_call   after a call's opening tag without a name
    _in_call            between parameters
    _in_nameless_param  after a parameter's opening tag without a name
    _in_value           in a value, which `OpenValue` reads
    _between            after a call; its last value may be reopened if its closing tag comes here
    _skipping           in what is not a call, up to its end
"""

from __future__ import annotations

from promptools.dialects.calls.call_builder import ANY_JSON
from promptools.dialects.calls.streaming.member_streamer import MemberStreamer
from promptools.dialects.readers.markup.block_parts import CallSegment
from promptools.dialects.readers.markup.markup_block import MarkupBlock
from promptools.dialects.readers.markup.markup_call import STRING_ATTRIBUTE, MarkupCall
from promptools.dialects.readers.markup.open_value import OpenValue, ValueStyle, inline_value
from promptools.dialects.readers.tag_formats.tag_heads import may_be_tool
from promptools.dialects.readers.tags.tag_names import Tag, is_blank, strip_blank
from promptools.dialects.readers.tags.token_buffer import raw_text
from promptools.dialects.reply_markers import reply_markers
from promptools.errors import clip
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.types import Fix

TALKED_ABOUT = "a thought ends after the tag, so that a call was only talked about"
MAX_STRAY_TEXT = 1000
"""Characters of text between calls, inside their wrapper, before the block is given up."""


class MarkupReader(MarkupBlock):
    """Reads a block of calls, or one call without a wrapper, as a `promptools.parsing.parts.Candidate`."""

    def begin_call(self, name: str) -> None:
        """Begin inside a call whose own tag is not part of the text."""
        self._open_call(0, name)

    # --- around calls --------------------------------------------------------------------------------------------

    def _before_calls(self, token: Tag | str) -> None:
        """In the wrapper, before its first call."""
        if isinstance(token, str):
            self._text_before_calls(token)
            return
        name = (None if token.kind == "element" else self._wrapper_name) or self._name_in_text(token)
        match token.kind:
            case "noise":
                self._outside_text = []
            case "cut":
                self._cut_tag = token.raw
            case "wrap" if not token.close and self._in_wrapper and self._has_outside_text():
                self._finish_as_text(self._index, "words follow the opener, and then another one")
            case "wrap" if not token.close:
                self._record_spelling(token)
                self._in_wrapper, self._wrapper_name = True, token.name
                self._outside_text = self._outside_text if self._has_outside_text() else []
            case "call" if not token.close and (token.name is not None or not self._has_outside_text()):
                self._record_spelling(token)
                self._open_call(self._index, token.name)
                if token.empty:
                    self._end_call(self._index + 1)
            case "param" | "element" if not token.close and name is not None:
                self._pending_fixes.append(Fix("marker", "the name was outside of the tag"))
                self._open_call(self._index, name)
                self._in_call(token)
            case _:
                self._finish_as_text(self._index, f"{clip(token.raw, 40)!r} is in the place of a call")

    def _text_before_calls(self, piece: str) -> None:
        self._outside_text.append(piece)
        text = "".join(self._outside_text)
        lost = self._names.lost_opening_tag.match(text)
        if lost is not None:
            self._buffer.put_back(len(text) - lost.end())
            self._pending_fixes.append(Fix("marker", f"no '<' before {clip(lost[0].strip(), 40)!r}"))
            self._open_call(self._index - len(self._outside_text) + 1, lost[1])  # it may have come in several tokens
        elif self._grammar.json_calls and text.strip()[:1] in ("{", "["):
            self._buffer.put_back(len(strip_blank(piece)))
            self._start_json(None)
        elif len(text) > MAX_STRAY_TEXT:
            self._buffer.put_back(len(text) - MAX_STRAY_TEXT)
            self._finish_as_text(self._index + 1, "no call follows the opener")

    def _name_in_text(self, tag: Tag) -> str | None:
        """Return the tool that the text before a parameter names, or None; an element must be the tool's very own."""
        name = "".join(self._outside_text).strip()
        if tag.kind == "param":
            name = name.removesuffix(">")
            return name if may_be_tool(name, self._rules) else None
        known = self._rules.tools is not None and self._rules.tools.get(name) is not None
        return name if known else None

    def _between(self, token: Tag | str) -> NeedMore | None:
        """In the wrapper, after a call."""
        if isinstance(token, str):
            self._outside_text.append(token)
            if not is_blank(token) and sum(map(len, self._outside_text)) > MAX_STRAY_TEXT:
                self._finish(self._segments[-1].end, self._missing_wrapper_fix())
            return None
        match token.kind:
            case "noise":
                self._outside_text = []
            case "wrap" if token.close:
                self._finish(self._index + 1, self._grammar.spelling_fix(token))
            case "call" if token.close and self._segments[-1].call is None and not self._has_outside_text():
                pass  # the reader of its JSON ended at the JSON's own tag
            case "call" if not token.close:
                self._pending_fixes += (
                    [Fix("marker", "there was text between the calls")] if self._has_outside_text() else []
                )
                self._record_spelling(token)
                self._open_call(self._index, token.name)
                if token.empty:
                    self._end_call(self._index + 1)
            case "param" | "element" if token.close and self._reopenable is not None and self._has_outside_text():
                return self._close_late(token)
            case "cut":
                self._cut_tag = token.raw
            case "wrap" | "end":
                self._finish(self._segments[-1].end, self._missing_wrapper_fix())
            case _:
                self._outside_text.append(token.raw)
        return None

    def _has_outside_text(self) -> bool:
        return any(not is_blank(text) for text in self._outside_text)

    def _close_late(self, token: Tag) -> NeedMore | None:
        """After a call, at a parameter's closing tag: it closes the last value, or a call whose beginning is broken."""
        if not self._names.begins_broken_tag("".join(self._outside_text)) and not self._parameter_began():
            return self._reopen_value(token)
        self._call, self._call_start = None, self._segments[-1].end
        self._give_up("its first tag cannot be read", token)
        return None

    def _parameter_began(self) -> bool:
        """Return whether a parameter has begun since the last call, so that another call follows it."""
        tokens = self._tokens[self._segments[-1].end : self._index]
        return any(isinstance(token, Tag) and token.kind == "param" and not token.close for token in tokens)

    def _reopen_value(self, token: Tag) -> NeedMore | None:
        """Make the text after the call the rest of its last value, which is closed only here."""
        value, call = self._reopenable, self._segments.pop().call
        assert value is not None
        assert isinstance(call, MarkupCall)
        call.revoke_last()
        self._call = call
        for before in self._tokens[value.end : self._index]:
            value.add(raw_text(before))
        self._state = self._in_value
        return self._in_value(token)

    def _open_call(self, at: int, name: str | None) -> None:
        self._call_start = at
        self._outside_text = []
        self._reopenable = None
        if self._emits_calls and self._segments:
            self._emit_before(at)
        if name is None:
            self._state = self._in_nameless_call
            return
        self._call = call = MarkupCall(name, self._grammar, self._rules)
        for fix in self._pending_fixes:
            call.record_fix(fix)
        self._pending_fixes = []
        self._streamer = MemberStreamer(self._rules, call.name, self._grammar.trim) if self._may_stream else None
        if self._rules.tools is not None:
            keys = self._rules.tools.keys(call.tool.name) if call.tool is not None else self._rules.tools.all_keys
            self._tags.elements = self._names.naming_elements | keys | {name}
        self._state = self._in_call

    def _in_nameless_call(self, token: Tag | str) -> None:
        """After a call's opening tag without a name: the name is the text that follows."""
        if isinstance(token, str):
            self._outside_text.append(token)
            return
        name = "".join(self._outside_text).strip()
        if token.kind == "element" and not token.close and not name and token.name in self._names.naming_elements:
            self._outside_text = []
        elif name and (token.kind in ("call", "element") if token.close else token.kind == "param"):
            if token.kind != "element" or token.name != self._names.naming_element:
                self._pending_fixes.append(Fix("marker", "the name was outside of the tag"))
            self._open_call(self._call_start, name)
            if not token.close:
                self._in_call(token)
        else:
            self._give_up("the call has no name", token)

    def _end_call(self, end: int, fix: Fix | None = None) -> None:
        """End the call before index `end`."""
        call = self._call
        assert call is not None
        if fix is not None:
            call.record_fix(fix)
        if not self._in_wrapper and not self._grammar.unwrapped and not self._segments:
            call.record_fix(Fix("marker", f"no {self._grammar.wrapper[0]!r}"))
        self._segments.append(CallSegment(self._call_start, end, call, [], self._streamer))
        self._call = None
        self._outside_text = []
        self._state = self._between
        if not self._in_wrapper:
            self._finish(end)

    # --- in a call -----------------------------------------------------------------------------------------------

    def _in_call(self, token: Tag | str) -> NeedMore | None:
        """In a call, outside of values."""
        call = self._call
        assert call is not None
        if isinstance(token, str):
            self._text_in_call(token, call)
            return None
        match token.kind:
            case "param" | "element" if not token.close:
                self._open_value(token, call)
            case "param":
                call.record_fix(Fix("closer", f"{clip(token.raw, 40)!r} too many"))
                if call.holds_opener:
                    call.error = "a value holds the opener of a parameter, whose closer may be this one"
            case "element" if token.name != call.name:
                pass
            case "call" if not token.close and token.empty and token.name and inline_value(token) is not None:
                call.record_fix(Fix("marker", f"the parameter {token.name!r} was written as a call"))
                self._stream_param(token.name, verbatim=False)
                call.add(token.name, inline_value(token) or "", inline=True)
            case "noise":
                pass
            case "cut":
                self._cut_tag = token.raw
            case _:
                self._on_call_end(token, call)
        return None

    def _on_call_end(self, tag: Tag, call: MarkupCall) -> None:
        """Consume a tag that ends the call: its own closing tag, or one that shows that it is missing."""
        if tag.close and tag.kind in ("call", "element"):
            self._record_spelling(tag)
            self._end_call(self._index + 1)
        elif tag.kind in ("call", "wrap") or (tag.kind == "end" and call.values):
            self._end_call(self._index, self._grammar.missing_call_closer())
            if not self._decided:
                self._between(tag)
        else:
            self._give_up(f"{clip(tag.raw, 40)!r} is in the call", tag)

    def _text_in_call(self, text: str, call: MarkupCall) -> None:
        if is_blank(text):
            return
        bare = strip_blank(text)
        if bare[0] == "{" and not call.values:
            self._buffer.put_back(len(bare))
            self._start_json(call.name)
        else:
            self._give_up("there is text between the parameters", text)

    # --- parameters --------------------------------------------------------------------------------------------------

    def _open_value(self, tag: Tag, call: MarkupCall) -> None:
        names = self._names
        is_element = tag.kind == "element"
        if is_element and tag.name in names.naming_elements and not (call.tool is not None and call.declares(tag.name)):
            return
        if is_element and not call.declares(tag.name or ""):
            self._give_up(f"{clip(tag.raw, 40)!r} is in the call", tag)
            return
        if self._may_be_quoted and not tag.attributes.keys() <= {names.key_attribute, "string", "value"}:
            self._give_up(f"{clip(tag.raw, 40)!r} is another format's", tag)
            return
        if not is_element:
            self._record_spelling(tag)
        elif not self._grammar.elements:
            call.record_fix(Fix("marker", f"a parameter was in {clip(tag.raw, 40)!r}"))
        self._reopenable = None
        type_name = STRING_ATTRIBUTE.get(tag.attributes.get("string", ""), "")
        if tag.name is None and not is_element:
            self._outside_text = []
            self._state = self._in_nameless_param
            return
        key, rest = tag.name or "", ""
        if tag.raw[-1] != ">" and not call.declares(key):
            key, rest = call.split_key(key)
        self._stream_param(key, verbatim=not tag.empty and type_name != ANY_JSON)
        if tag.empty:
            call.add(key, inline_value(tag) or "", inline=True)
        else:
            self._begin_value(key, "element" if is_element else "tag", call, type_name)
            # a line break in the place of the tag's bracket is layout, whatever the family does around values
            self._drops_line_break = tag.raw[-1] != ">" and self._grammar.trim == "verbatim"
            if rest and self._value is not None:
                self._value.add(rest)

    def _in_nameless_param(self, token: Tag | str) -> None:
        """After a parameter's opening tag without a name: the text that follows is the name, if it is declared."""
        if isinstance(token, str):
            self._outside_text.append(token)
            return
        key = "".join(self._outside_text).strip()
        call = self._call
        assert call is not None
        declared = call.tool is not None and call.declares(key)
        if token.kind != "param" or not token.close or not declared:
            self._give_up("a parameter has no name", token)
            return
        self._outside_text = []
        self._stream_param(key, verbatim=True)
        self._begin_value(key, "nameless", call)

    def _begin_value(self, key: str, style: ValueStyle, call: MarkupCall, type_name: str = "") -> None:
        quoted = self._may_be_quoted
        self._value = OpenValue(
            key, style, call, self._grammar, self._streamer, type_name=type_name, may_be_quoted=quoted
        )
        self._state = self._in_value

    def _stream_param(self, key: str, *, verbatim: bool) -> None:
        if self._streamer is not None and self._call is not None:
            verbatim = verbatim and not self._grammar.cdata
            self._streamer.begin_parameter(key, self._call.values, verbatim=verbatim)

    def _in_value(self, token: Tag | str) -> NeedMore | None:
        """In a value."""
        value = self._value
        assert value is not None
        if self._drops_line_break and isinstance(token, str):
            token = token.removeprefix("\r").removeprefix("\n")
            self._drops_line_break = False
        ending = value.feed(token, self._buffer, self._finish_reason)
        if ending is NEED_MORE or ending is None:
            return ending
        self._state = self._in_call
        self._reopenable = value if value.end else None
        return self._in_call(token) if ending == "before" else None

    # --- the end -----------------------------------------------------------------------------------------------------

    def _skipping(self, token: Tag | str) -> None:
        """In what is not a call, up to its end, or to that of the thought that it is in."""
        if isinstance(token, str):
            return
        if self._ends_talk(token):
            self._finish_as_text(self._index, TALKED_ABOUT)
            return
        if not token.close or token.kind not in ("call", "wrap"):
            return
        end = self._index + (token.kind == "call")
        self._segments.append(
            CallSegment(self._call_start, end, self._malformed("invalid_json", self._skip_reason), [])
        )
        self._call, self._outside_text, self._reopenable = None, [], None
        self._state = self._between
        if token.kind == "wrap":
            self._between(token)
        elif not self._in_wrapper:
            self._finish(end)

    def _ends_talk(self, tag: Tag) -> bool:
        """Return whether a thought ends here, and only words have followed the first call's opening tag."""
        if tag.kind != "end" or self._segments or self._has_emitted or tag.raw not in reply_markers().lone_closers:
            return False
        since = self._tokens[self._call_start : self._index]
        return [token.kind for token in since if isinstance(token, Tag)] == ["call"] and not all(
            is_blank(token) for token in since if isinstance(token, str)
        )

    def _end_block(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        length = finish_reason == "length"
        value = self._value
        if self._state == self._in_call:
            self._end_in_call(finish_reason)
        elif self._state == self._between:
            if length and self._in_wrapper and self._reopenable is not None:  # the value may go on
                self._call = self._segments[-1].call if isinstance(self._segments[-1].call, MarkupCall) else None
                self._call_start = self._segments.pop().start
                self._truncate("the text ended before its wrapper did")
            elif self._cut_tag.startswith(self._names.closer_start) and not self._has_outside_text():
                self._finish(self._index, Fix("closer", f"no {self._grammar.wrapper[1]!r}, only {self._cut_tag!r}"))
            else:
                self._finish(self._segments[-1].end, self._missing_wrapper_fix())
        elif self._state == self._skipping:
            self._segments.append(
                CallSegment(self._call_start, self._index, self._malformed("invalid_json", self._skip_reason), [])
            )
            self._finish(self._index)
        elif self._state == self._before_calls and not self._call_was_coming(length=length):
            self._finish_as_text(self._index, "no call follows the opener")
        else:
            self._truncate(f"the text ended inside {value.key!r}" if value is not None else "the text ended inside it")

    def _end_in_call(self, finish_reason: str | None) -> None:
        call = self._call
        assert call is not None
        assert call.values is call.arguments
        stopped = call.may_lack_only_its_closer(finish_reason)
        meant = self._in_wrapper or self._place.implies_call
        closing = self._cut_tag.startswith(self._names.closer_start)
        cut = self._cut_tag != "" and not closing
        if not call.values and not meant:
            self._finish_as_text(self._index, "only the beginning of a call is there")
        elif cut or finish_reason == "length" or not (stopped or (call.values and closing)):
            self._truncate("the text ended before its closer")
        else:
            call.unclosed = True
            self._end_call(self._index, self._grammar.missing_call_closer())
            if not self._decided:
                self._finish(self._index, self._missing_wrapper_fix())
