"""Read a block whose parameters are nested elements, with a marker before each tag: the format of MiniMax M3.

Only tags with the marker are markup, so a value may contain any other tag. There is one exception: a call's closing tag
without the marker is accepted before another tag of the block, or at the end.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from promptools.dialects.calls.call_streamer import MemberStreamer
from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import JsonBody
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.prefix_patterns import literal_text
from promptools.dialects.readers.element_value import MAX_ELEMENT_DEPTH, build_tree, read_members, read_unmarked
from promptools.dialects.readers.markup_call import MarkupGrammar
from promptools.dialects.readers.markup_reader import TALKED_ABOUT, MarkupReader
from promptools.dialects.readers.tags import TAG_LIMIT, Tag, TagKind, TagTokenizer, is_blank
from promptools.parsing.parts import NEED_MORE, CandidateBase, NeedMore, Part, TriedStrategy, total_length
from promptools.patterns import lazy_pattern
from promptools.types import Fix


class NestedTags(NamedTuple):
    """The tag names of one format.

    All other tags after a marker are elements: parameters, items of lists, or members of objects.
    """

    mark: str
    """The marker before each tag."""
    call: str
    """The name of a call's tag."""
    attribute: str
    """The attribute that names the tool."""
    wrapper: str = ""
    """The name of the tag around calls; empty if calls have no wrapper."""
    odd_wrappers: tuple[str, ...] = ()
    """Other names of the wrapper's tag. They are accepted, and recorded as a fix."""
    item: str = "item"
    """The name of the element that holds one item of a list."""

    def kind_of(self, word: str) -> TagKind:
        """Return the `TagKind` of a tag with the name `word`."""
        if word == self.call:
            return "call"
        return "wrap" if word and word in (self.wrapper, *self.odd_wrappers) else "element"

    def grammar(self) -> MarkupGrammar:
        """Return the `MarkupGrammar` of calls in this format."""
        marked, word = re.escape(self.mark), re.escape(self.call)
        canonical = [rf'<{word} {re.escape(self.attribute)}="[^"<>]+">', f"</{word}>"]
        canonical += [f"</?{re.escape(self.wrapper)}>"] * bool(self.wrapper)
        around = f"{self.mark}<{self.wrapper}>", f"{self.mark}</{self.wrapper}>"
        return MarkupGrammar(
            canonical=lazy_pattern(f"{marked}(?:{'|'.join(canonical)})"),
            wrapper=around if self.wrapper else ("", ""),
            closers=(f"{self.mark}</{self.call}>", ""),
            unwrapped=not self.wrapper,
        )


class _Patterns(NamedTuple):
    """The patterns that find the tokens of one format."""

    tag: re.Pattern[str]
    """Matches a tag after a marker. Only the attribute that names the tool is allowed."""
    next: re.Pattern[str]
    """Finds the places where the next token may begin: a marker, or a `<`, because a tag may lack its marker.

    A marker that is cut off at the end of the text is found too.
    """


@cache
def _patterns(mark: str, attribute: str) -> _Patterns:
    named = rf"\s{{1,8}}{re.escape(attribute)}\s{{0,4}}=\s{{0,4}}[\"'“]?(?P<name>[^\"'“”<>]{{1,128}}?)[\"'”]?"
    tag = rf"\s{{0,8}}<\s{{0,4}}(?P<close>/?)\s{{0,4}}(?P<word>[^\s<>/=\"]{{1,64}})(?:{named})?\s{{0,8}}(?P<empty>/?)>"
    return _Patterns(re.compile(tag), re.compile(f"<|{literal_text(mark)}"))


class MarkedTagTokenizer(TagTokenizer):
    """Splits text into tags after a marker, tags without a marker, and the text between them."""

    def __init__(self, tags: NestedTags) -> None:
        super().__init__()
        self._format = tags
        self._patterns = _patterns(tags.mark, tags.attribute)

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`: a tag, a lone marker or other text; None if more text is needed."""
        mark = self._format.mark
        if text.startswith(mark, at):
            match = self._patterns.tag.match(text, at + len(mark))
            if match is not None:
                return self._marked_tag(text[at : match.end()], match)
            if len(text) - at < TAG_LIMIT and ">" not in text[at + len(mark) :]:
                return Tag(text[at:], "cut") if final else None
            return mark
        if mark.startswith(text[at : at + len(mark)]):
            return Tag(text[at:], "cut") if final else None
        if text[at] == "<":
            found_tag = super().next(text, at, final=final)
            return found_tag if not isinstance(found_tag, str) else found_tag[:1]
        nearest = self._patterns.next.search(text, at + 1)
        return text[at:] if nearest is None else text[at : nearest.start()]

    def _marked_tag(self, raw: str, match: re.Match[str]) -> Tag:
        kind = self._format.kind_of(match["word"])
        name = match["name" if kind == "call" else "word"]
        return Tag(raw, kind, bool(match["close"]), name, bool(match["empty"]))


def _opens_call(tag: Tag) -> bool:
    return tag.kind == "call" and not tag.close


class _JsonArguments(CandidateBase):
    """Reads arguments that are written as one JSON object, up to the object's last bracket."""

    def __init__(self, name: str, options: ParseOptions, evidence: Evidence) -> None:
        super().__init__(definite=True)
        self._name = name
        self._options = options
        self._evidence = evidence
        self._body = JsonBody()

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        end = self._body.feed(piece, start, len(piece))
        if end is not None:
            self._decide(None, close=False)
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        self._decide(finish_reason, close=finish_reason != "length")

    def _decide(self, finish_reason: str | None, *, close: bool) -> None:
        raw, stopped = self._body.raw, finish_reason in COMPLETE_FINISH_REASONS
        try:
            self.parts = self._body.calls(self._options, self._evidence, close=close, stopped=stopped, name=self._name)
            self.unread = raw[total_length(self.parts) :]
        except NotACall as no:
            self.parts = [Part("text", raw)]
            self.tries.append(TriedStrategy(self._evidence.dialect, "text", str(no), len(raw)))


class NestedReader(MarkupReader):
    """Reads a block of calls whose parameters are elements, as a `promptools.parsing.parts.Candidate`."""

    def __init__(
        self, tags: NestedTags, grammar: MarkupGrammar, options: ParseOptions, evidence: Evidence, *, definite: bool
    ) -> None:
        self._format = tags
        super().__init__(grammar, options, evidence, definite=definite)
        self._call_tokens: list[Tag | str] = []
        self._open_elements: list[str] = []
        """The names of the elements that are open, outermost first."""
        self._open_calls = 0
        """The number of calls that are open inside the parameters."""
        self._may_stream = False  # a repeated name makes a scalar a list: nothing is certain before the end
        self._streamer: MemberStreamer | None = None

    def _make_tokenizer(self, grammar: MarkupGrammar, options: ParseOptions) -> TagTokenizer:
        del grammar, options
        return MarkedTagTokenizer(self._format)

    def _open_call(self, at: int, name: str | None) -> None:
        super()._open_call(at, name)
        self._tags.elements = None
        self._call_tokens, self._open_elements = [], []
        self._open_calls = 0

    def _in_call(self, token: Tag | str) -> NeedMore | None:
        """Handle a token in a call: every token up to the call's closing tag belongs to its parameters."""
        if isinstance(token, str):
            bare = token.lstrip()
            begun = any(not isinstance(item, str) or not is_blank(item) for item in self._call_tokens)
            if bare[:1] == "{" and not begun and self._call is not None:
                self._buffer.put_back(len(bare))
                self._json_reader = _JsonArguments(self._call.name, self._options, self._evidence)
            else:
                self._call_tokens.append(token)
            return None
        marked = token.raw.startswith(self._format.mark)
        if token.kind == "cut":
            self._cut_tag = token.raw
        elif self._ends_talk(token):
            self._finish_as_text(self._index, TALKED_ABOUT)
        elif self._open_elements and marked and (self._open_calls or (token.kind == "call" and not token.close)):
            # a call inside a value takes its own closing tags
            self._open_calls += 0 if token.kind != "call" or token.empty else -1 if token.close else 1
            self._call_tokens.append(token.raw)
        elif token.kind == "call" and token.close and (marked or not self._open_elements):
            return self._on_call_closer(token, certain=marked and not self._open_elements)
        elif (token.kind in ("call", "wrap") and marked and not self._open_elements) or (
            token.kind == "end" and not self._open_elements and self._call_tokens
        ):
            self._end_call(self._index, self._grammar.missing_call_closer())
            if not self._decided:
                self._between(token)
        else:
            self._call_tokens.append(token)
            if token.kind == "element" and marked:
                self._track_element(token)
        return None

    def _between(self, token: Tag | str) -> NeedMore | None:
        """Handle a token that follows a call inside the wrapper.

        A call with a JSON body ends with the JSON, so its closing tag may still follow. If it follows directly, it is
        skipped.
        """
        was_json = self._segments[-1].call is None
        if (
            was_json
            and not self._has_outside_text()
            and isinstance(token, Tag)
            and token.kind == "call"
            and token.close
        ):
            return None
        wanted = super()._between(token)
        self._cut_tag = self._cut_tag.removeprefix(self._format.mark)
        return wanted

    def _track_element(self, tag: Tag) -> None:
        name = tag.name or ""
        if not tag.close:
            self._open_elements += [] if tag.empty or len(self._open_elements) == MAX_ELEMENT_DEPTH else [name]
        elif name in self._open_elements:
            while self._open_elements.pop() != name:
                pass

    def _on_call_closer(self, tag: Tag, *, certain: bool) -> NeedMore | None:
        """Read a call's closing tag. If `certain` is true, the tag ends the call; if not, the next token decides."""
        following = None if certain else self._buffer.after(self._index)
        if following is NEED_MORE:
            return NEED_MORE
        token = self._tokens[following] if following is not None else None
        if token is None or (isinstance(token, Tag) and (token.kind in ("wrap", "end", "cut") or _opens_call(token))):
            self._record_spelling(tag)
            self._end_call(self._index + 1)
        else:
            self._call_tokens.append(tag)
        return None

    def _end_call(self, end: int, fix: Fix | None = None) -> None:
        self._read_parameters()
        super()._end_call(end, fix)

    def _read_parameters(self) -> None:
        """Read the parameters of the call from its tokens."""
        call = self._call
        assert call is not None
        mark, item = self._format.mark, self._format.item
        marked = any(isinstance(token, Tag) and token.raw.startswith(mark) for token in self._call_tokens)
        root, fixes = build_tree(self._call_tokens, mark if marked else "<")
        for fix in fixes:
            call.record_fix(fix)
        unmarked = read_unmarked("".join(root.text)) if marked and root.children else None
        if unmarked is not None:
            root.children += unmarked.children
            root.text.clear()
        if unmarked is not None or (root.children and not marked):
            call.record_fix(Fix("marker", "the tags have no mark"))
        if root.has_stray_text(mark) or (not root.children and "".join(root.text).strip()):
            call.error = "there is text between its parameters"
        schema = call.tool.parameters if call.tool is not None else {}
        call.values.update(read_members(root, schema, schema, item=item, allow_any=call.tool is None))

    def _end_in_call(self, finish_reason: str | None) -> None:
        if self._open_elements:
            self._truncate("the text ended inside its parameters")
            return
        self._read_parameters()
        super()._end_in_call(finish_reason)
