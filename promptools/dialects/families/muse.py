"""Muse Glimmer: a call is written with tags, in a message to the tool.

<|start|>assistant to=weather.get_weather<|message|><atem:function_calls>
<atem:invoke name="weather.get_weather">
<atem:parameter name="city">Oslo</atem:parameter>
</atem:invoke>
</atem:function_calls><|eom|>
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.contract import Dialect, MessageFormat
from promptools.dialects.table import read_family
from promptools.harmony.tokens import raw_text
from promptools.parsing.parts import NEED_MORE, Content, MessageEnd, MessageStart, NeedMore, Outside, Segment
from promptools.parsing.scanner import RareLiteralMarker
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from promptools.harmony.tokens import Piece

# Split a reply of Muse Glimmer into messages.
#
# Each message begins with its recipient: ` to=self` is reasoning, ` to=user` is the answer, anything else a tool.


_START = "<|start|>assistant"
_TAG_PREFIX = "<atem:"
_MAX_HEADER = 200
_NAME = r"[A-Za-z_][\w.:-]{0,127}"
_SPACE = r"\s{0,8}"
_RECIPIENT = rf"to=(?P<to>{_NAME})(?:<\|message\|>|(?={_SPACE}{_TAG_PREFIX}))"
"""Matches a recipient and the token after it. If a server strips the tokens, the tags of a call must follow."""
_HEADER = lazy_pattern(rf"(?:<\|start\|>assistant)?\s?{_RECIPIENT}")
_TO_TOOL = lazy_pattern(rf"(?:<\|start\|>assistant)?\s?to={_NAME}(?:<\|message\|>)?{_SPACE}{_TAG_PREFIX}")
_TO_SELF_OR_USER = lazy_pattern(r"(?:<\|start\|>assistant)?\s?to=(?:self|user)<\|message\|>")
_PARTIAL_HEADER = lazy_pattern(
    rf"(?:<\|start\|>assistant)?\s?(?:t|to|to=(?:{_NAME}(?:<(?:\|\w{{0,7}}\|?)?|(?:<\|message\|>)?{_SPACE}[<atem]{{0,5}})?)?)?\Z"
)

HEADER = RareLiteralMarker(
    "muse_bare",
    search_literals=("to=",),
    pattern=lazy_pattern(r"(?P<muse_bare>\s?to=(?=[A-Za-z_]))"),
    max_before=1,
    max_after=8,
    prefixes=frozenset(word[:size] for word in ("to=", " to=", "\nto=") for size in range(1, len(word) + 1)),
    first_characters=frozenset("t"),
)
"""Finds text that may be a header without its first tokens, which the server may already have put into the prompt."""


def header_begins(text: str, at: int, options: ParseOptions, *, first: bool, final: bool) -> bool | NeedMore:
    """Return whether a header of Muse begins at `text[at]`; headers of Harmony, which have a channel, do not count."""
    del options, first
    window = text[at : at + _MAX_HEADER]
    if _TO_SELF_OR_USER.match(window) or _TO_TOOL.match(window):
        return True
    return NEED_MORE if not final and len(window) < _MAX_HEADER and _PARTIAL_HEADER.match(window) else False


class MuseSplitter:
    """Splits a reply into messages. O(n) in characters. At most the text of one header is held back."""

    def __init__(self) -> None:
        self._held = ""
        self._open = False

    def feed(self, text: str) -> list[Segment]:
        """Read a piece of text; return the segments that later text cannot change."""
        return self._split(self._held + text, final=False)

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Segment]:
        """Read pieces like plain text, since it does not matter in this format which of them are control tokens."""
        return self.feed("".join(map(raw_text, pieces)))

    def close(self, *, cut: bool) -> list[Segment]:
        """Return the remaining segments at the end of the text."""
        del cut
        segments = self._split(self._held, final=True)
        return [*segments, MessageEnd("", complete=False)] if self._open else segments

    def _split(self, text: str, *, final: bool) -> list[Segment]:
        segments: list[Segment] = []
        at = 0
        self._held = ""
        while at < len(text):
            end = _next_token(text, at, open_message=self._open)
            if end > at:
                segments.append(Content(text[at:end]) if self._open else Outside("words", text[at:end]))
                at = end
            if at == len(text):
                break
            size = self._read_token(text, at, segments)
            if size == 0 and not final and len(text) - at < _MAX_HEADER and _may_continue(text[at:]):
                self._held = text[at:]
                break
            if size == 0 and not self._open and text.startswith("<|", at) and _may_continue(text[at:]):
                segments.append(Outside("debris", text[at:]))  # the text ended in a header
                break
            if size == 0:
                size = 1
                segments.append(Content(text[at]) if self._open else Outside("words", text[at]))
            at += size
        return segments

    def _read_token(self, text: str, at: int, segments: list[Segment]) -> int:
        """Read the end of a message, or the header of the next message, at `text[at]`.

        Return the length of what was read, or 0.
        """
        for token in ("<|eom|>", "<|eot|>"):
            if text.startswith(token, at):
                segments.append(MessageEnd(token, complete=True) if self._open else Outside("debris", token))
                self._open = False
                return len(token)
        header = _HEADER.match(text, at)
        if header is None or (self._open and not header[0].startswith(_START)):
            return 0
        if self._open:
            segments.append(MessageEnd("", complete=True))
        recipient = header["to"]
        kind: Literal["thoughts", "words"] = "thoughts" if recipient == "self" else "words"
        user = recipient == "user"
        vague = kind == "words" and not user
        exact = not header[0].startswith("to=")  # the space before it was sent already
        segments.append(MessageStart(kind, header[0], final=user, ambiguous=vague, delimited=exact, text_only=user))
        self._open = True
        return len(header[0])


_INSIDE = lazy_pattern(r"<(?=\||\Z)")
_OUTSIDE = lazy_pattern(r"<(?=\||\Z)|\s?t(?=o=|o?\Z)|\s\Z")


def _next_token(text: str, at: int, *, open_message: bool) -> int:
    """Return the offset at which the next token may begin."""
    match = (_INSIDE if open_message else _OUTSIDE).search(text, at)
    return match.start() if match is not None else len(text)


def _may_continue(tail: str) -> bool:
    """Return whether `tail`, the end of the text so far, may be the beginning of a token or a header."""
    return (
        any(token.startswith(tail) for token in ("<|eom|>", "<|eot|>", _START))
        or _PARTIAL_HEADER.match(tail) is not None
    )


# The dialect.


def _make_splitter(options: ParseOptions, inside: bool) -> MuseSplitter:
    del options, inside  # they make no difference to where messages end
    return MuseSplitter()


CHANNELS = MessageFormat(
    markers=("<|start|>assistant to=",), stripped_header=HEADER, begins=header_begins, make_splitter=_make_splitter
)


def muse() -> Dialect:
    """Return the dialect of Muse Glimmer."""
    dialect = read_family("muse")
    dialect.channels = CHANNELS
    return dialect
