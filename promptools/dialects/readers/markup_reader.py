"""Read calls in markup incrementally: a tag that names the tool, and in it a tag with a key around each value.

The format has no escaping, so a value may contain any tag. These rules decide which tags end a value:

- A closing tag ends the value only before another tag of the call, or at the end of the text.
- A parameter's opening tag ends the value only if the tool has this parameter and the call has not given it yet.
- A call inside the value takes its own closing tags.

A value that nothing closes is never an argument.

The states, one method each:

    _before_calls       before the first call: wrapper, call, a name outside of its tag, JSON
    _in_nameless_call   after a call's opening tag without a name
    _in_call            between parameters
    _in_nameless_param  after a parameter's opening tag without a name
    _in_value           in a value, which `OpenValue` reads
    _between            after a call; a closing tag here may reopen the call's last value
    _skipping           in text that is not a call, up to a closing tag

A call that has ended becomes a `CallSegment`, a range of tokens; the tokens between segments are markup. A JSON body is
left to another reader, `_json_reader`, until that reader knows whether the body is a call. The block ends in `_finish`,
which resolves the segments and makes parts that tile the text, or in `_finish_as_text`, which returns the block as
text. The tokens after the block become `unread`, and are read again. `_give_up` handles text that is not a call: where
a call is intended, the text becomes a malformed call; elsewhere, the text ends the block.

Where a call is intended, `MemberStreamer` emits it while it is being written. Emitted parts are never taken back.
"""

from __future__ import annotations

from typing import NamedTuple

from promptools.dialects.calls.bare_values import ANY_JSON
from promptools.dialects.calls.call_streamer import MemberStreamer
from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.markup_call import (
    STRING_ATTRIBUTE,
    MarkupCall,
    MarkupGrammar,
    OpenValue,
    ValueStyle,
    inline_value,
)
from promptools.dialects.readers.tag_heads import may_be_tool
from promptools.dialects.readers.tag_reader import TagReader
from promptools.dialects.readers.tags import Tag, TagTokenizer, TokenBuffer, is_blank, raw_text, strip_blank
from promptools.dialects.reply_markers import reply_markers
from promptools.errors import clip
from promptools.parsing.parts import NEED_MORE, Candidate, EarlyOutput, NeedMore, Part, TriedStrategy, add_fix
from promptools.types import Call, Fix, Malformed, MalformedReason

# The calls of a block of markup, and in the end the parts that tile its text.


class CallSegment(NamedTuple):
    """A range of the block's tokens: one call, or a body that a JSON reader has turned into parts."""

    start: int
    end: int
    call: MarkupCall | Malformed | None
    parts: list[Part]
    streamer: MemberStreamer | None = None
    """The streamer of the call, if the call was emitted early."""


class BlockParts:
    """Holds the calls among the tokens of a block. The tokens between the calls are markup."""

    def __init__(self, buffer: TokenBuffer, evidence: Evidence, tries: list[TriedStrategy]) -> None:
        self._evidence = evidence
        self._buffer = buffer
        self.segments: list[CallSegment] = []
        self.emitted_to = 0
        """The index of the first token that has not been emitted yet."""
        self.tries = tries

    def tile(self, end: int, *, has_emitted: bool) -> list[Part]:
        """Decide which segments are calls; return the parts up to index `end` that were not emitted yet.

        Return no parts if the block has no call: no segment is one, and none was emitted earlier (`has_emitted`).
        """
        evidence = self._evidence._replace(wrapper_first=False)
        settled = [self._resolve_segment(segment, evidence) for segment in self.segments]
        if self._evidence.wrapper_first and not any(settled):
            settled = [self._resolve_segment(segment, self._evidence) for segment in self.segments]
        if not (any(settled) or has_emitted):
            return []
        meant = self._evidence._replace(sentinel=True)  # beside a real call, a call is intended
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

    def _resolve_segment(self, segment: CallSegment, evidence: Evidence) -> list[Part]:
        if segment.call is None:
            return segment.parts
        raw = self._buffer.text(segment.start, segment.end)
        if isinstance(segment.call, Malformed):
            return [Part("malformed", raw, malformed=segment.call)]
        try:
            outcome = self._resolve_call(segment.call, evidence)
            if segment.streamer is not None:
                outcome = segment.streamer.reconcile(outcome)
            return [call_part(outcome, raw)]
        except NotACall as no:
            self.tries.append(TriedStrategy(evidence.dialect, "text", str(no), len(raw)))
            return []

    def _resolve_call(self, call: MarkupCall, evidence: Evidence) -> Call | Malformed:
        outcome = call.resolve(evidence)
        if call.error:
            return malformed_call("invalid_json", call.error, evidence.dialect, outcome.name)
        if isinstance(outcome, Malformed) and call.unclosed and outcome.reason == "invalid_arguments":
            return malformed_call(
                "truncated", "the text ended before its last parameters", evidence.dialect, outcome.name
            )
        return outcome

    def _nameless_part(self, segment: CallSegment) -> Part:
        raw = self._buffer.text(segment.start, segment.end)
        malformed = malformed_call(
            "invalid_json", "what is in the name's place is no name", self._evidence.dialect, None
        )
        return Part("malformed", raw, malformed=malformed)


def was_repaired(parts: list[Part]) -> bool:
    """Return whether the markup of a call was repaired, or could not be read."""
    fixes = [fix.kind for part in parts if part.call is not None for fix in part.call.fixes]
    broke = any(part.malformed is not None and part.malformed.call is None for part in parts)
    return broke or not {"closer", "marker", "unwrap", "duplicate"}.isdisjoint(fixes)


# The reader of a block: tokens in, calls out, and in the end the parts that tile the text.


MAX_OPEN_BODIES = 8
"""How many open JSON bodies are closed at the end of the text. Text that one body leaves unread may start another."""

TALKED_ABOUT = "a thought ends after the tag, so that a call was only talked about"
MAX_STRAY_TEXT = 1000
"""How many characters of text may come before or between the calls of a block. More text ends the block."""


class MarkupReader(TagReader):
    """Reads a block of calls, or one call without a wrapper, as a `promptools.parsing.parts.Candidate`."""

    def __init__(self, grammar: MarkupGrammar, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        self._tags = self._make_tokenizer(grammar, options)
        super().__init__(TokenBuffer(self._tags), evidence, definite=definite)
        self._grammar = grammar
        self._options = options
        self._names = grammar.names
        self._state = self._before_calls
        self._block = BlockParts(self._buffer, evidence, self.tries)
        self._segments = self._block.segments
        self._pending_fixes: list[Fix] = []
        """Repairs of text outside of calls, which are recorded as fixes of the next call."""
        self._call_start = 0
        """The index of the token at which the current call begins."""
        self._json_reader: Candidate | None = None
        self._streamer: MemberStreamer | None = None
        """Streams the current call."""
        self._has_emitted = False
        """Whether a call, or at least its name, has been emitted."""
        self._in_wrapper = False
        self._wrapper_name: str | None = None
        self._outside_text: list[str] = []
        """Pieces of the text outside of values that has come since the last significant tag."""
        self._call: MarkupCall | None = None
        self._value: OpenValue | None = None
        """The value that is being read, or was read last."""
        self._reopenable: OpenValue | None = None
        """The last value, while text after its call may still be part of it."""
        self._emits_calls = self._may_stream = definite and evidence.implies_call
        """Whether calls may be emitted before the end of the block.

        `_emits_calls`: a call may be emitted once the next call begins. `_may_stream`: a call may be emitted even while
        it is still arriving.
        """
        self._drops_line_break = False
        """Whether to drop a line break at the value's beginning, because it replaces the missing bracket of the tag."""
        self._cut_tag = ""
        """The unfinished tag in which the text ended; empty if there is none."""
        self._skip_reason = ""

    def _make_tokenizer(self, grammar: MarkupGrammar, options: ParseOptions) -> TagTokenizer:
        tags = TagTokenizer(grammar.names)
        tags.splits_cdata = grammar.cdata
        tools = options.tools
        tags.spaced_keys = tools.spaced_keys if tools is not None else ()
        tags.elements = grammar.names.naming_elements | tools.all_keys if tools is not None else None
        return tags

    def begin_call(self, name: str) -> None:
        """Start inside a call of the tool `name`. The opening tag of the call is not part of the text."""
        self._open_call(0, name)

    # --- tokens, and bodies in JSON ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._decided and (self._step() if self._json_reader is None else self._step_json()):
            if self._streamer is not None and self._streamer.pending:
                self._emit(self._streamer.pending, self._call_start)

    def _step_json(self) -> bool:
        """Pass the text on to `_json_reader`; return whether the JSON reader has decided what the text is."""
        assert self._json_reader is not None
        decided = self._buffer.feed_to(self._json_reader)
        self._emit(self._json_reader.early, len(self._tokens))
        if decided:
            self._on_json_decided()
            self._buffer.advance()
        return decided

    def _start_json(self, name: str | None) -> None:
        """Pass the following text to a JSON reader.

        The text is the arguments of the tool `name` or, if `name` is None, whole calls.
        """
        wrappers = (self._grammar.wrapper, *self._grammar.other_wrappers)
        ends_call = tuple(filter(None, (self._grammar.closers[0], self._grammar.json_closer)))
        right = ends_call if name is not None else tuple(closer for _, closer in wrappers)
        openers = tuple(opener for opener, _ in wrappers if opener)
        # Llama 3.1 8B closes its JSON with `<function>`.
        ends = Closers(right=right, wrong=("<function>", "</think>"), openers=openers)
        early: list[Fix] = []
        if name is None:
            early, self._pending_fixes = self._pending_fixes, early
        self._json_reader = JsonBlockReader(
            "", ends, self._options, self._evidence, definite=self.definite, name=name, fixes=early
        )

    def _on_json_decided(self) -> None:
        """Add the parts that `_json_reader` made from a JSON body. If all of them are text, give up on the block."""
        inner, self._json_reader = self._json_reader, None
        assert inner is not None
        self.tries += inner.tries
        self._tokens.append("".join(part.raw for part in inner.parts))
        if all(part.kind == "text" for part in inner.parts):
            self._give_up("the JSON in it is not a call", None)
            return
        call, self._call = self._call, None
        for fix in call.fixes if call is not None else []:
            add_fix(inner.parts, fix)
        self._segments.append(CallSegment(self._index, self._index + 1, None, inner.parts))
        self._outside_text = []
        self._state = self._between
        if not self._in_wrapper or call is None:
            self._finish(self._index + 1)

    def _emit(self, live: list[EarlyOutput], before: int) -> None:
        """Emit the parts before a call, then `live`, the early output of the call. Clear `live`.

        `before`: the index of the token at which the call begins.
        """
        if live and not self._decided:
            self._has_emitted = True
            self._emit_before(before)
            self.early += live
        live.clear()

    def _emit_before(self, index: int) -> None:
        """Emit those parts before `index` that have not been emitted yet."""
        if index > self._block.emitted_to:
            parts = self._block.tile(index, has_emitted=self._has_emitted)
            self._has_emitted = self._has_emitted or bool(parts)
            self._emit_early(parts)

    # --- around calls -----------------------------------------------------------------------------------------------

    def _before_calls(self, token: Tag | str) -> None:
        """Handle a token before the first call of the block."""
        if isinstance(token, str):
            self._text_before_calls(token)
            return
        name = (None if token.kind == "element" else self._wrapper_name) or self._name_in_text(token)
        match token.kind:
            case "noise":
                self._outside_text = []
            case "end" if self._grammar.has_header:  # Muse Glimmer: between two calls, in what begins with a header
                pass
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
            # GLM-4.7 writes the name as a line, and the parameters as elements.
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
        """Return the text before `tag` if it is the name of a tool, else None.

        If `tag` is not a parameter's tag, only the exact name of an offered tool is accepted.
        """
        name = "".join(self._outside_text).strip()
        if tag.kind == "param":
            name = name.removesuffix(">")
            return name if may_be_tool(name, self._options) else None
        known = self._options.tools is not None and self._options.tools.get(name) is not None
        return name if known else None

    def _between(self, token: Tag | str) -> NeedMore | None:
        """Handle a token that follows a call inside the wrapper."""
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
                pass  # the JSON in the call had a closing tag of its own, which the JSON reader consumed
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
        """Handle a parameter's closing tag after a call.

        The tag closes the call's last value, or belongs to another call whose first tag is broken.
        """
        if not self._names.begins_broken_tag("".join(self._outside_text)) and not self._parameter_began():
            return self._reopen_value(token)
        self._call, self._call_start = None, self._segments[-1].end
        self._give_up("its first tag cannot be read", token)
        return None

    def _parameter_began(self) -> bool:
        """Return whether a parameter has begun since the last call. If so, another call has begun."""
        tokens = self._tokens[self._segments[-1].end : self._index]
        return any(isinstance(token, Tag) and token.kind == "param" and not token.close for token in tokens)

    def _reopen_value(self, token: Tag) -> NeedMore | None:
        """Reopen the call's last value: extend it by the text after the call, and read `token` as its closing tag."""
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
        self._call = call = MarkupCall(name, self._grammar, self._options)
        for fix in self._pending_fixes:
            call.record_fix(fix)
        self._pending_fixes = []
        self._streamer = MemberStreamer(self._options, call.name, self._grammar.trim) if self._may_stream else None
        if self._options.tools is not None:
            keys = self._options.tools.keys(call.tool.name) if call.tool is not None else self._options.tools.all_keys
            self._tags.elements = self._names.naming_elements | keys | {name}
        self._state = self._in_call

    def _in_nameless_call(self, token: Tag | str) -> None:
        """Handle a token after a call's opening tag without a name: the text after the tag is the name."""
        if isinstance(token, str):
            self._outside_text.append(token)
            return
        name = "".join(self._outside_text).strip()
        # Anthropic's prompts of 2023 have an element for the name.
        if token.kind == "element" and not token.close and not name and token.name in self._names.naming_elements:
            self._outside_text = []
        # Llama 3.1 8B: `<function>get_weather</function>`, and then the parameters.
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
        # qwen3-coder:30b leaves out `<tool_call>` in about one turn of five after a preamble.
        if not self._in_wrapper and not self._grammar.unwrapped and not self._segments:
            call.record_fix(Fix("marker", f"no {self._grammar.wrapper[0]!r}"))
        self._segments.append(CallSegment(self._call_start, end, call, [], self._streamer))
        self._call = None
        self._outside_text = []
        self._state = self._between
        if not self._in_wrapper:
            self._finish(end)

    # --- in a call --------------------------------------------------------------------------------------------------

    def _in_call(self, token: Tag | str) -> NeedMore | None:
        """Handle a token in a call, outside of values."""
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
            # DeepSeek V4 Flash writes a parameter this way.
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
        """Handle a tag that ends the call: its closing tag, or a tag that shows that the closing tag is missing.

        Give up at any other tag.
        """
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
        # Llama 3.1 and Functionary 3.1: `<function=get_weather>{"city": "Oslo"}</function>`.
        if bare[0] == "{" and not call.values:
            self._buffer.put_back(len(bare))
            self._start_json(call.name)
        else:
            self._give_up("there is text between the parameters", text)

    # --- parameters -------------------------------------------------------------------------------------------------

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
            # a line break in the place of the tag's bracket is layout, regardless of how the family lays out values
            self._drops_line_break = tag.raw[-1] != ">" and self._grammar.trim == "verbatim"
            if rest and self._value is not None:
                self._value.add(rest)

    def _in_nameless_param(self, token: Tag | str) -> None:
        """Handle a token after a parameter's opening tag without a name.

        The text after the tag is the name, if the tool declares such a parameter.
        """
        if isinstance(token, str):
            self._outside_text.append(token)
            return
        key = "".join(self._outside_text).strip()
        call = self._call
        assert call is not None
        declared = call.tool is not None and call.declares(key)
        # Qwen2.5-7B and DeepSeek V3.1 write `<parameter>city</parameter>`, and then the value.
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
        """Handle a token in a value."""
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

    # --- the end ----------------------------------------------------------------------------------------------------

    def _skipping(self, token: Tag | str) -> None:
        """Skip a token of text that is not a call.

        The skipping ends at a closing tag, or at the end of the reasoning that contains the text.
        """
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
        """Return whether reasoning ends at `tag`, and only words have come since the opening tag of the first call."""
        if tag.kind != "end" or self._segments or self._has_emitted or tag.raw not in reply_markers().lone_closers:
            return False
        since = self._tokens[self._call_start : self._index]
        return [token.kind for token in since if isinstance(token, Tag)] == ["call"] and not all(
            is_blank(token) for token in since if isinstance(token, str)
        )

    def _on_end_of_text(self, finish_reason: str | None) -> None:
        """Finish at the end of the text: close the open JSON body, then decide what the block is.

        Text that a JSON body leaves unread may start another body, so up to `MAX_OPEN_BODIES` bodies are closed.
        """
        attempts = MAX_OPEN_BODIES
        while self._json_reader is not None and not self._decided:
            attempts -= 1
            self._json_reader.close(finish_reason)
            self._emit(self._json_reader.early, len(self._tokens))
            self._buffer.restore(self._json_reader.unread)
            self._on_json_decided()
            self._buffer.advance()
            if attempts:
                self._run()
        if not self._decided:
            self._end_block(finish_reason)

    def _end_block(self, finish_reason: str | None) -> None:
        """Decide what the block is when the text has ended and no JSON body is open."""
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
        meant = self._in_wrapper or self._evidence.implies_call
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

    # --- what is missing, or odd ------------------------------------------------------------------------------------

    def _record_spelling(self, tag: Tag) -> None:
        """Record a fix for a tag that is not spelled as the family is trained to write it."""
        fix = self._grammar.spelling_fix(tag)
        if fix is not None:
            self._record_fix(fix)

    def _record_fix(self, fix: Fix) -> None:
        if self._call is not None:
            self._call.record_fix(fix)
        else:
            self._pending_fixes.append(fix)

    def _missing_wrapper_fix(self) -> Fix | None:
        return Fix("closer", f"no {self._grammar.wrapper[1]!r}") if self._in_wrapper else None

    @property
    def _may_be_quoted(self) -> bool:
        """Whether the text may merely quote a call: there is no wrapper, and the position does not imply a call."""
        return not (self._in_wrapper or self._evidence.implies_call)

    def _call_was_coming(self, *, length: bool) -> bool:
        """Return whether a call was certainly intended when the text ended directly after the wrapper's opening tag."""
        return self._evidence.expected or (self._evidence.sentinel and (length or self._cut_tag != ""))

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _finish(self, end: int, fix: Fix | None = None) -> None:
        """End the block: resolve the calls before the token at index `end`. The tokens from there on are read again."""
        parts = self._block.tile(end, has_emitted=self._has_emitted)
        if not (parts or self._has_emitted):
            self._finish_as_text(end, "it calls no offered tool")
            return
        if fix is not None:
            add_fix(reversed(parts), fix)
        if self._options.strictness == "strict" and not self._evidence.implies_call and was_repaired(parts):
            self._finish_as_text(end, "strict allows no repair of the markup")
            return
        self._finish_parts(parts, end)

    def _give_up(self, why: str, token: Tag | str | None) -> None:
        """End the block at something that is not a call.

        Where a call is intended, the text is skipped and reported as a malformed call. Elsewhere, the calls before the
        text are kept; if there are none, the block becomes text.
        """
        named = self._call is not None and self._call.tool is not None
        if self._evidence.sentinel or self._has_emitted or (self._evidence.expected and named):
            self._skip_reason = why
            self._state = self._skipping
            if isinstance(token, Tag):
                self._skipping(token)
        elif self._segments:
            self._finish(self._segments[-1].end, self._missing_wrapper_fix())
        else:
            if isinstance(token, str):  # read the text again from its first visible character, however it was cut
                self._buffer.put_back(len(strip_blank(token)))
            self._finish_as_text(self._index + (not isinstance(token, Tag)), why)

    def _malformed(self, reason: MalformedReason, why: str) -> Malformed:
        call = self._call
        name = None if call is None else call.tool.name if call.tool is not None else call.name
        return malformed_call(reason, why, self._evidence.dialect, name)

    def _truncate(self, why: str) -> None:
        """Report the current call as cut off. If it is not certain to be a call, finish the block without it."""
        call = self._call
        known = self._options.tools is None or (call is not None and call.tool is not None)
        certain = (
            call is not None
            and known
            and not (self._may_be_quoted and self._value is not None and self._value.unmatched_closer)
        )
        if not (self._evidence.implies_call or certain):
            if self._segments:
                self._finish(self._segments[-1].end, self._missing_wrapper_fix())
            else:
                self._finish_as_text(self._index, f"{why}, and that a call was meant is not certain")
            return
        malformed = self._malformed("truncated", why)
        self._segments.append(CallSegment(self._call_start, self._index, malformed, []))
        self._finish(self._index)
