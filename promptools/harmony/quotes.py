"""Decide whether a control token is only quoted: in code, in a string of a call's arguments, or in quotation marks.

Models write files and think about the format itself, so a token does not prove that a message ends. A quoted token is
part of the message's content. A `<|start|>` or `<|channel|>` at the beginning of code or in a block quote is taken as
content without further reading, and so are later tokens there. Any other token inside quotes is undecided at first: if
the quotes are closed after the token, it is content; if not, it ends the content. Until this is clear, `HeldQuote`
holds the token and the text after it. `StringDoubt` decides in arguments, `QuoteDoubt` in prose. A control token among
token ids is treated like its text, since gpt-oss writes both into files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from promptools.harmony.messages import (
    HEADER_WORDS,
    Aside,
    ContentChunk,
    HarmonyEnd,
    HarmonyStart,
    Header,
    IsTool,
    Item,
    parse_header,
)
from promptools.harmony.tokens import MESSAGE_ENDS, HarmonyToken, HeldPieces, Piece, raw_text
from promptools.json_values import is_object, try_json
from promptools.jsontext.brackets import BracketScanner
from promptools.parsing.emitter import begins_block_quote, line_start
from promptools.patterns import lazy_pattern

# Control tokens inside quotation marks or inline code, in reasoning and in text for the user.
#
#     The user wants the line "A call ends with <|call|>; <|start|>assistant<|channel|>final..." in a file.
#
# Marks nest, since models also quote JSON without escaping its quotes: a mark opens before a word and closes after a
# word. Quotation marks end with their paragraph, and inline code ends with its line, so that little text is held for a
# mark that never closes.


_MARKS = lazy_pattern(r"\\(?:.|\Z)|\n[ \t\r]{0,8}+(?P<blank>\n)?|`+|[\"'“”]", re.DOTALL)
_BEFORE_OPENING = frozenset(" \t\r\n([{<>:=,;/-—\"'“`*_")
_BEFORE_ITEM = frozenset("([{<:=,")
"""Characters after which a quotation mark opens a quotation, even if the mark could also close one."""
_HEADER = lazy_pattern(r"(?:[\w.=:<|>-]|[ \t]){0,256}")
"""Matches text in which every character may be part of a header."""
_AFTER_CLOSING = frozenset(" \t\r\n)]}<>:=,;./-—!?\"'”`*_")

TurnStage: TypeAlias = Literal["between", "header", "call", "none"]
"""The kind of text that comes next after an undecided token, supposing that this token ended or began a message.

`between`: the next message. `header`: more of the next message's header. `call`: the arguments of a call. `none`: the
token neither ended nor began a message.
"""


class Settled(NamedTuple):
    """The decision about a token in quotes: it is content, or it ends the content."""

    is_content: bool
    taken: int
    """Number of characters of the last piece that had to be read to reach the decision."""


class OpenQuotes:
    """Tracks which quotation marks are open at the end of a message's content. O(n).

    The content is examined only when a token follows.
    """

    def __init__(self, known: IsTool | None = None) -> None:
        self.unread: list[str] = []
        self._marks = Marks()
        self._known = known

    def doubt(self, tail: str, token: HarmonyToken) -> QuoteDoubt | None:
        """Return a `QuoteDoubt`, which decides whether a token after the content and `tail` is content.

        Return None if no quotation mark is open, or if the token's raw text is empty. `tail` is the end of the text
        that is held back because it may begin a header.
        """
        text, self.unread = "".join(self.unread), []
        following = token.raw[:1] or "a"  # without tokens, `assistant` begins a header
        self._marks.read(text, following=following if not tail else "")
        marks = self._marks.copy()
        marks.read(tail, following=following)
        return QuoteDoubt(marks, token, self._known) if marks.depths and token.raw else None


class Marks:
    """Tracks the quotation marks, and the backticks of inline code, that are open at the end of a text."""

    def __init__(self) -> None:
        self.depths: dict[str, int] = {}
        """The number of open marks of each kind. The key is the opening mark."""
        self._before: str = "\n"
        self._held: str = ""
        """The end of the text, if its meaning depends on what follows."""

    def copy(self) -> Marks:
        """Return a copy that can continue without changing the original."""
        marks = Marks()
        marks.depths, marks._before, marks._held = dict(self.depths), self._before, self._held
        return marks

    def read(self, text: str, *, following: str = "", waiting: set[str] | None = None) -> Settled | None:
        """Read text. With `waiting`, read until it is decided whether a quoted token before the text is content.

        `waiting`: the kinds of marks that were open at the token. The token is content if all marks of
        one of these kinds are closed. At the end of a line, open backticks are dropped, and at the end of a paragraph
        all open marks. If none of these kinds is left, the token is not content. Return the decision; None if there is
        none. `following`: the character after the text, if it is known.
        """
        offset = -len(self._held)
        text, self._held = self._held + text, ""
        end = len(text)
        for mark in _MARKS.finditer(text):
            if mark.end() == len(text) and not following and mark["blank"] is None:
                end = mark.start()
                self._held = text[end:]
                break
            kind = self._apply(mark, text[mark.start() - 1] if mark.start() else self._before, following)
            if waiting is None:
                continue
            taken = max(0, offset + mark.end())
            if kind in waiting and kind not in self.depths:
                return Settled(is_content=True, taken=taken)
            if mark[0][0] == "\n":
                waiting &= self.depths.keys()
                if not waiting:
                    return Settled(is_content=False, taken=taken)
        self._before = text[end - 1] if end else self._before
        return None

    def _apply(self, mark: re.Match[str], before: str, following: str) -> str:
        """Update `depths` for a match of `_MARKS`; return the kind of mark that it closes, or an empty string."""
        text = mark[0]
        if text[0] == "\n":
            self.depths.pop("`", None)
            if mark["blank"]:
                self.depths.clear()
        elif text[0] == "`":
            if len(text) < 3:  # three or more backticks are a fence, which `QuotedTokens` handles
                return self._close("`") if "`" in self.depths else self._open("`")
        elif text in "“”":
            return self._open("“") if text == "“" else self._close("“")
        elif text[0] != "\\":
            after = mark.string[mark.end() : mark.end() + 1] or following
            closes = text in self.depths and not before.isspace() and after in _AFTER_CLOSING
            opens = before in _BEFORE_OPENING and before != text and not after.isspace()
            if closes and not (opens and before in _BEFORE_ITEM):
                return self._close(text)
            if opens:
                return self._open(text)
        return ""

    def _open(self, kind: str) -> str:
        self.depths[kind] = self.depths.get(kind, 0) + 1
        return ""

    def _close(self, kind: str) -> str:
        left = self.depths.pop(kind, 0) - 1
        if left > 0:
            self.depths[kind] = left
        return kind


class QuoteDoubt:
    """Decides about a token inside open quotation marks: it is content if all marks of one kind are closed after it.

    The marks must be closed in the same paragraph. Reasoning may leave a mark open, as in `the '90s` or `5" pipes`, and
    a mark in the answer could close it by accident. So the token ends the content if the next message begins directly
    after the token. If that message is a call, the call must also be followed by another message or by nothing.
    """

    def __init__(self, marks: Marks, token: HarmonyToken, known: IsTool | None = None) -> None:
        self._marks = marks
        self._known = known
        self._waiting = set(marks.depths)
        self._ends_message = token.name in MESSAGE_ENDS
        self._turn: TurnStage = "between" if self._ends_message else "header"
        self._header: list[Piece] = [] if self._ends_message else [token]
        """The pieces of the next message's header, with the token that begins the header."""
        marks.read(token.raw)

    @property
    def may_go_on(self) -> bool:
        """Whether the token counts as content if the server cut the text off.

        This is so if the token begins the header of a call or a result.
        """
        return not self._ends_message and self._is_of_call()

    def feed(self, piece: Piece) -> Settled | None:
        """Read a piece of the text after the token; return the decision, or None while it is open."""
        if self._turn != "none" and self._next_message_begins(piece):
            return Settled(is_content=False, taken=0)
        return self._marks.read(raw_text(piece), waiting=self._waiting) if self._turn == "none" else None

    def _next_message_begins(self, piece: Piece) -> bool:
        """Read a piece; return whether it shows that the undecided token ended or began a message.

        If the piece shows that the token did neither, set the `TurnStage` to `none`.
        """
        name = piece.name if isinstance(piece, HarmonyToken) else ""
        if self._turn == "call":
            self._turn = "between" if name in MESSAGE_ENDS else "call"
            return name == "start"
        if self._turn == "between":
            if name != "start":
                self._turn = "between" if not raw_text(piece).strip() else "none"
                return False
            self._turn, called = "header", self._is_of_call()
            self._header = [piece]
            return called
        if name == "message":
            self._turn = "call"
            return not self._is_of_call()
        if isinstance(piece, str) and isinstance(self._header[-1], str):
            self._header[-1] += piece
        else:
            self._header.append(piece)
        if name not in {"", "channel", "constrain"} or not _HEADER.fullmatch("".join(map(raw_text, self._header[1:]))):
            self._turn = "none"
        return False

    def _is_of_call(self) -> bool:
        """Return whether the header so far belongs to a call or a result. Texts about calls quote such headers."""
        header = parse_header(self._header, "assistant", self._known)
        return header.is_call or header.role == "tool"

    def close(self) -> bool:
        """Signal the end of the text; return whether a quotation mark at its very end closed the quotation."""
        settled = self._marks.read("", following=" ", waiting=self._waiting) if self._turn == "none" else None
        return settled is not None and settled.is_content


# Control tokens inside the arguments of a call, before the brackets of their JSON are closed.
#
#     {"path": "a.md", "content": "A call ends with <|call|>; ..."}<|call|>
#
# The first token here is in a string that is closed after it, so it is content. If the first quote after a token cannot
# close a string, or no string is open, the JSON is broken. Then the model may have ended the call at a token, or it may
# have forgotten to escape the quotes of a text about calls. So a token ends the arguments only if nothing but whole
# messages follows it (`is_rest_of_reply`): in a text about calls, the rest of that text would follow. The arguments
# before such a token are broken, so no call is made of them.


_AFTER_STRING = lazy_pattern(r"\s*+(\S?)")


class OpenValue:
    """Tracks whether the JSON of a call's arguments still has an open bracket. O(n).

    The arguments are examined only when a token follows.
    """

    def __init__(self) -> None:
        self.unread: list[str] = []
        self._scanner: BracketScanner | None = BracketScanner()
        """Follows the brackets of the JSON; None if they are closed, or if the arguments are not JSON."""
        self._begun = False

    def doubt(self, tail: str, token: HarmonyToken) -> StringDoubt | None:
        """Return a `StringDoubt`, which decides whether a token after the arguments so far is part of them.

        Return None if no bracket of their JSON is open.
        """
        del tail, token  # neither of them opens or closes a bracket or a string
        text, self.unread = "".join(self.unread), []
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
            if not text.startswith("{"):
                self._scanner = None if text else self._scanner
        scanner = self._scanner
        if scanner is not None and text and scanner.feed(text) is not None:
            self._scanner = scanner = None
        return StringDoubt(scanner.quote) if scanner is not None and self._begun else None


class StringDoubt:
    """Decides about a token in a call's arguments: the token is content if the string around it is closed after it.

    `quote` is the quotation mark that closes the string. If the token is in broken JSON and not in a string, `quote` is
    empty.
    """

    def __init__(self, quote: str) -> None:
        self.quote = quote
        self._end = re.compile(rf"\\(?:.|\Z)|{re.escape(quote)}", re.DOTALL) if quote else None
        self._escaped = False
        self._closed = False
        """Whether the quotation mark has been read. The text after it shows whether the string ends there."""

    @property
    def may_go_on(self) -> bool:
        """Whether the token counts as content if the server cut the text off, which is so if it is in a string."""
        return self.quote != ""

    def feed(self, piece: Piece) -> Settled | None:
        """Read a piece of the text after the token; return the decision, or None while it is open.

        Only the first quotation mark may close the string.
        """
        if isinstance(piece, HarmonyToken):
            if self._closed and self._end is not None and piece.name in MESSAGE_ENDS:
                return Settled(is_content=True, taken=0)
            self._end = None if self._closed else self._end
            return None
        at = 0
        if self._escaped:
            self._escaped, at = False, 1
        if not self._closed:
            at = self._find_quote(piece, at)
        if not self._closed:
            return None
        following = _AFTER_STRING.match(piece, at)
        assert following is not None
        if not following[1]:
            return None
        if following[1] in ",:]}" and self._end is not None:
            return Settled(is_content=True, taken=following.start(1))
        self._end = None
        return None

    def _find_quote(self, piece: str, at: int) -> int:
        """Return the offset after the quotation mark that may close the string; `len(piece)` if there is none."""
        for match in self._end.finditer(piece, at) if self._end is not None else ():
            if match[0] == self.quote:
                self._closed = True
                return match.end()
            self._escaped = match[0] == "\\"
        return len(piece)

    def close(self) -> bool:
        """Signal the end of the text; return whether only white space came after the closing quotation mark."""
        return self._closed and self._end is not None


def is_rest_of_reply(items: Iterable[Item]) -> bool:
    """Return whether `items`, which begin with the end of a call, can be the rest of a reply. O(n).

    After the end of the call, only whole messages may follow. If a message is itself a call, its arguments must be a
    strict JSON object.
    """
    header: Header | None = None
    content: list[str] = []
    for item in items:
        match item:
            case HarmonyStart(header):
                content = []
            case ContentChunk(raw):
                content.append(raw)
            case HarmonyEnd(reason) if header is not None:
                called = header.is_call
                if reason == "header" or (called and not is_object(try_json("".join(content)))):
                    return False
                if reason == "call" and not called and header.role == "assistant":
                    return False
            case Aside("words" | "debris", raw) if raw.strip() not in HEADER_WORDS:
                return False
            case _:
                pass
    return True


# The text that is held, from a token in quotes on, until it is clear whether the token is content.


MAX_ENDS = 8
"""Maximum number of tokens in broken arguments, counted from the last, that are tried as the end of the arguments.

Each trial reads all the text after the token.
"""


class Doubt(Protocol):
    """Reads the text after a token in quotes until it is clear whether the token is content or ends the content."""

    def feed(self, piece: Piece) -> Settled | None:
        """Read a piece; return the decision, or None until it is made."""
        ...

    @property
    def may_go_on(self) -> bool:
        """Whether the token counts as content if the server cut the text off before the quotes were closed."""
        ...

    def close(self) -> bool:
        """Signal the end of the text; return whether the end shows that the quotes were closed."""
        ...


class HeldQuote:
    """Holds back a token in quotes and the text after it, until it is clear whether the token is content."""

    def __init__(self, doubt: Doubt, before: str, token: HarmonyToken, offset: int) -> None:
        """Hold the token, which is at `offset` in the text.

        Also hold `before`, the end of the text before the token, because it may be the first word of a header.
        """
        self._doubt = doubt
        self.held = HeldPieces()
        if before:
            self.held.add(before, offset - len(before))
        self.held.add(token, offset)
        self.first_token = len(self.held.pieces) - 1
        """The index of the token among the held pieces."""

    def feed(self, piece: Piece, offset: int) -> Settled | None:
        """Hold a piece, or only the part of it that decides; return the decision, or None until it is made."""
        settled = self._doubt.feed(piece)
        if settled is None:
            self.held.add(piece, offset)
        elif isinstance(piece, str) and settled.taken:
            self.held.add(piece[: settled.taken], offset)
        return settled

    def close(self, read_rest: Callable[[Sequence[Piece]], Iterable[Item]], *, cut: bool) -> int | None:
        """Signal the end of the text; return the index of the token that ended the content, or None if all is content.

        `cut` says that the server cut the text off. `read_rest` reads pieces that begin with a token, on the assumption
        that this token ends the content.
        """
        if self._doubt.close() or (cut and self._doubt.may_go_on):
            return None
        if isinstance(self._doubt, QuoteDoubt):
            return self.first_token
        pieces = self.held.pieces
        tokens = [at for at, piece in enumerate(pieces) if isinstance(piece, HarmonyToken) and may_end_content(piece)]
        return next((at for at in tokens[-MAX_ENDS:] if is_rest_of_reply(read_rest(pieces[at:]))), None)


def may_end_content(token: HarmonyToken) -> bool:
    """Return whether a token in the content of a message may end the content."""
    return token.name not in {"message", "constrain"}


# The detection of tokens in a message's content that are content, or in doubt.


_RECENT = 24
_OPENS = lazy_pattern(r"[\s(\[\"']`{1,2}\Z|\n(?P<fence>```)[\w-]{0,12}\r?\n\Z")
"""Matches the opening of inline code or of a fence at the end of the text."""


class QuotedTokens:
    """Tracks the content of a message, to decide whether a token after it is quoted. O(n).

    The content is examined only when a token follows, so feeding text is cheap.
    """

    def __init__(self, known: IsTool | None = None, *, call: bool = False) -> None:
        self._open = OpenValue() if call else OpenQuotes(known)
        self._is_prose = not call
        self._line = ""
        """The beginning of the last line, if the content is prose."""
        self._previous = "\n"
        self._recent = ""
        """The end of the content, if it contains a backtick; else empty."""
        self._code_closers = ""
        """Any of these characters ends the code or block quote around a quoted token; empty outside of such text."""

    def feed(self, text: str) -> None:
        """Feed text that is content of the message."""
        self._open.unread.append(text)
        if self._is_prose:
            self._line = line_start(self._line, text)
        if self._recent or self._code_closers or "`" in text:
            self._track_code(text)
        self._previous = text

    def _track_code(self, text: str) -> None:
        if self._code_closers and any(closer in text for closer in self._code_closers):
            self._code_closers = ""
        recent = ((self._recent or self._previous[-1:]) + text)[-_RECENT:]
        self._recent = recent if "`" in recent else ""

    def is_content(self, token: str) -> bool:
        """Return whether a token that follows is content because it is in code or in a block quote.

        A token that ends the whole reply is never content.
        """
        if token in {"return", "endoftext"}:
            return False
        opens = None if self._code_closers else _OPENS.search(self._recent)
        if opens is not None and token in {"start", "channel"}:
            self._code_closers = "`" if opens["fence"] else "`\n"
        elif not self._code_closers and token in {"start", "channel"} and begins_block_quote(self._line):
            self._code_closers = "\n"  # the quoted line shows a message; it ends with the line
        return self._code_closers != ""

    def doubt(self, tail: str, token: HarmonyToken) -> Doubt | None:
        """Return a `Doubt`, which decides whether a token after the content and `tail` is content.

        Return None if the token is not quoted: no quotation mark, or no bracket of a call's arguments, is open. `tail`
        is the end of the text that is held back because it may begin a header.
        """
        return self._open.doubt(tail, token)
