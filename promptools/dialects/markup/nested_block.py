"""A block whose parameters are nested elements, each tag after a mark, as MiniMax M3 writes it.

Only tags after the mark count, so that a value may hold any other. Where the mark is missing on a call's closing tag,
that counts only before another tag of the block.
"""

from __future__ import annotations

import re

from promptools.dialects.body import JsonBody
from promptools.dialects.envelope import NoCall
from promptools.dialects.markup.collected import Grammar
from promptools.dialects.markup.live import LiveMarkup
from promptools.dialects.markup.nested import DEEPEST, members, plain, tree
from promptools.dialects.markup.reader import MarkupCandidate
from promptools.dialects.markup.tags import LIMIT, Tag, TagKind, Tags, blank
from promptools.dialects.settle import STOPPED, Place, Rules
from promptools.parsing.parts import Part, Tried, Undecided, size_of
from promptools.types import Fix

MARK = "]<]minimax[>["
_NEXT = re.compile(r"<|\](?=<\]|<?\Z)")
_TAG = re.compile(
    r"\s{0,8}<\s{0,4}(?P<close>/?)\s{0,4}(?P<word>[^\s<>/=\"]{1,64})"
    r"(?:\s{1,8}name\s{0,4}=\s{0,4}[\"'“]?(?P<name>[^\"'“”<>]{1,128}?)[\"'”]?)?\s{0,8}(?P<empty>/?)>"
)
_KINDS: dict[str, TagKind] = {"tool_call": "wrap", "tool_calls": "wrap", "invoke": "call"}


class MarkedTags(Tags):
    """Splits text into tags after a mark, tags without one, and the text between them."""

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`; None if more text is needed."""
        if text.startswith(MARK, at):
            match = _TAG.match(text, at + len(MARK))
            if match is not None:
                return _marked(text[at : match.end()], match)
            if len(text) - at < LIMIT and ">" not in text[at + len(MARK) :]:
                return Tag(text[at:], "cut") if final else None
            return MARK
        if MARK.startswith(text[at : at + len(MARK)]):
            return Tag(text[at:], "cut") if final else None
        if text[at] == "<":
            found_tag = super().next(text, at, final=final)
            return found_tag if not isinstance(found_tag, str) else found_tag[:1]
        nearest = _NEXT.search(text, at + 1)
        return text[at:] if nearest is None else text[at : nearest.start()]


def _marked(raw: str, found: re.Match[str]) -> Tag:
    tag_name = found["word"]
    kind = _KINDS.get(tag_name, "element")
    name = found["name"] if kind == "call" else tag_name
    return Tag(raw, kind, bool(found["close"]), name, bool(found["empty"]))


class _Arguments(Undecided):
    """Reads one JSON object that is the arguments of a call, up to its last bracket."""

    def __init__(self, name: str, rules: Rules, place: Place) -> None:
        super().__init__(firm=True)
        self._name = name
        self._rules = rules
        self._place = place
        self._body = JsonBody()

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        end = self._body.feed(piece, start, len(piece))
        if end is not None:
            self._decide(None, close=False)
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._decide(finish_reason, close=finish_reason != "length")

    def _decide(self, finish_reason: str | None, *, close: bool) -> None:
        raw, stopped = self._body.raw, finish_reason in STOPPED
        try:
            self.parts = self._body.calls(self._rules, self._place, close=close, stopped=stopped, name=self._name)
            self.rest = raw[size_of(self.parts) :]
        except NoCall as no:
            self.parts = [Part("text", raw)]
            self.tries.append(Tried(self._place.dialect, "text", str(no), len(raw)))


class NestedCandidate(MarkupCandidate):
    """Reads a block of calls whose parameters are elements, as a `promptools.parsing.parts.Candidate`."""

    def __init__(self, grammar: Grammar, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(grammar, rules, place, firm=firm)
        self._tags = MarkedTags()
        self._body: list[Tag | str] = []
        self._open: list[str] = []
        """Elements that are open, outermost first."""
        self._may_go_live = False  # a repeated name makes a scalar a list: nothing is certain before the end
        self._live: LiveMarkup | None = None

    def _open_call(self, at: int, name: str | None) -> None:
        super()._open_call(at, name)
        self._tags.words = None
        self._body, self._open = [], []
        self._depth = 0

    def _in_call(self, token: Tag | str) -> None:
        """In a call: every token up to its closing tag belongs to its parameters."""
        if isinstance(token, str):
            bare = token.lstrip()
            begun = any(not isinstance(item, str) or not blank(item) for item in self._body)
            if bare[:1] == "{" and not begun and self._call is not None:
                self._put_back(len(bare))
                self._inner = _Arguments(self._call.said, self._rules, self._place)
            else:
                self._body.append(token)
            return
        marked = token.raw.startswith(MARK)
        if token.kind == "cut":
            self._cut = token.raw
        elif self._open and marked and (self._depth or (token.kind == "call" and not token.close)):
            # a call inside a value takes its own closing tags
            self._depth += 0 if token.kind != "call" or token.empty else -1 if token.close else 1
            self._body.append(token.raw)
        elif token.kind == "call" and token.close and (marked or not self._open):
            self._closing = [(self._at, token)]
            self._state = self._maybe_ended
            if marked and not self._open:
                self._commit()
        elif (token.kind in ("call", "wrap") and marked and not self._open) or (
            token.kind == "end" and not self._open and self._body
        ):
            self._end_call(self._at, self._missing(0))
            if not self._over:
                self._between(token)
        else:
            self._body.append(token)
            if token.kind == "element" and marked:
                self._follow(token)

    def _between(self, token: Tag | str) -> None:
        """In the wrapper, after a call: if its body was JSON, its closing tag is still to come."""
        was_json = self._segments[-1].call is None
        if was_json and not self._spoke() and isinstance(token, Tag) and token.kind == "call" and token.close:
            return
        super()._between(token)

    def _ends(self, tag: Tag) -> bool:
        """Return whether a tag shows that the call's closing tag is missing."""
        if tag.kind == "end":
            return bool(self._body)
        return tag.kind in ("call", "wrap") and tag.raw.startswith(MARK)

    def _follow(self, tag: Tag) -> None:
        name = tag.name or ""
        if not tag.close:
            self._open += [] if tag.empty or len(self._open) == DEEPEST else [name]
        elif name in self._open:
            while self._open.pop() != name:
                pass

    def _maybe_ended(self, token: Tag | str) -> None:
        """After a call's closing tag without its mark, or inside a value: the next token decides."""
        if (isinstance(token, str) and blank(token)) or (isinstance(token, Tag) and token.kind == "cut"):
            self._closing.append((self._at, token))
        elif isinstance(token, Tag) and (token.kind in ("wrap", "end") or (token.kind == "call" and not token.close)):
            self._commit()
            if not self._over:
                self._state(token)
        else:
            self._body += [held for _, held in self._closing]
            self._state = self._in_call
            self._in_call(token)

    def _commit(self) -> None:
        """End the call at its closing tag."""
        at, tag = self._closing[0]
        assert isinstance(tag, Tag)
        self._odd(tag)
        self._end_call(at + 1)

    def _end_call(self, end: int, fix: Fix | None = None) -> None:
        self._fill()
        super()._end_call(end, fix)

    def _fill(self) -> None:
        """Read the parameters of the call from its tokens."""
        call = self._call
        assert call is not None
        marked = any(isinstance(token, Tag) and token.raw.startswith(MARK) for token in self._body)
        root, fixes = tree(self._body, MARK if marked else "<")
        for fix in fixes:
            call.note(fix)
        unmarked = plain("".join(root.text)) if marked and root.children else None
        if unmarked is not None:
            root.children += unmarked.children
            root.text.clear()
        if unmarked is not None or (root.children and not marked):
            call.note(Fix("marker", "the tags have no mark"))
        if root.strewn(MARK):
            call.wrong = "words stand between its parameters"
        schema = call.tool.parameters if call.tool is not None else {}
        call.values.update(members(root, schema, schema, free=call.tool is None))

    def _end(self, finish_reason: str | None) -> None:
        if self._state == self._maybe_ended:
            self._commit()
        if not self._over:
            super()._end(finish_reason)

    def _end_in_call(self, finish_reason: str | None) -> None:
        if self._open:
            self._truncate("the text ended inside its parameters")
            return
        self._fill()
        super()._end_in_call(finish_reason)
