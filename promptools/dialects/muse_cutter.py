"""Split a reply of Muse Glimmer into messages.

Each begins with its recipient: ` to=self` is reasoning, ` to=user` is the answer, anything else a tool.
"""

from __future__ import annotations

import re
from typing import Literal

from promptools.dialects.settle import Rules
from promptools.parsing.scanner import RareMarker
from promptools.parsing.segments import Beside, Ended, Opened, Said, Segment

_START = "<|start|>assistant"
_BODY = "<atem:"
_LONGEST = 200
_NAME = r"[A-Za-z_][\w.:-]{0,127}"
_SPACE = r"\s{0,8}"
_RECIPIENT = rf"to=(?P<to>{_NAME})(?:<\|message\|>|(?={_SPACE}{_BODY}))"
"""If a server strips the tokens, the tags of a call are left."""
_HEADER = re.compile(rf"(?:<\|start\|>assistant)?\s?{_RECIPIENT}")
_TO_TOOL = re.compile(rf"(?:<\|start\|>assistant)?\s?to={_NAME}(?:<\|message\|>)?{_SPACE}{_BODY}")
_TO_US = re.compile(r"(?:<\|start\|>assistant)?\s?to=(?:self|user)<\|message\|>")
_BEGUN = re.compile(
    rf"(?:<\|start\|>assistant)?\s?(?:t|to|to=(?:{_NAME}(?:<(?:\|\w{{0,7}}\|?)?|(?:<\|message\|>)?{_SPACE}[<atem]{{0,5}})?)?)?\Z"
)

HEADER = RareMarker(
    "muse_bare",
    words=("to=",),
    pattern=re.compile(r"(?P<muse_bare>\s?to=(?=[A-Za-z_]))"),
    back=1,
    ahead=8,
    holds=frozenset(word[:size] for word in ("to=", " to=", "\nto=") for size in range(1, len(word) + 1)),
    firsts=frozenset("t"),
)
"""What may be a header without its first tokens, which a server has put into the prompt."""


def begins(text: str, at: int, rules: Rules, *, first: bool, final: bool) -> bool | None:
    """Whether a header of Muse, not Harmony's with a channel, begins at `text[at]`; None if more text is needed."""
    del rules, first
    window = text[at : at + _LONGEST]
    if _TO_US.match(window) or _TO_TOOL.match(window):
        return True
    return None if not final and len(window) < _LONGEST and _BEGUN.match(window) else False


class MuseCutter:
    """Splits a reply into its messages. O(n) in characters; holds back at most a header."""

    def __init__(self) -> None:
        self._held = ""
        self._open = False

    def feed(self, text: str) -> list[Segment]:
        """Read a piece of text; return the segments that are certain."""
        return self._cut(self._held + text, final=False)

    def close(self) -> list[Segment]:
        """Return the remaining segments at the end of the text."""
        segments = self._cut(self._held, final=True)
        return [*segments, Ended("", whole=False)] if self._open else segments

    def _cut(self, text: str, *, final: bool) -> list[Segment]:
        segments: list[Segment] = []
        at = 0
        self._held = ""
        while at < len(text):
            end = _next(text, at, open_message=self._open)
            if end > at:
                segments.append(Said(text[at:end]) if self._open else Beside("words", text[at:end]))
                at = end
            if at == len(text):
                break
            size = self._token(text, at, segments)
            if size == 0 and not final and len(text) - at < _LONGEST and _may_go_on(text[at:]):
                self._held = text[at:]
                break
            if size == 0 and not self._open and text.startswith("<|", at) and _may_go_on(text[at:]):
                segments.append(Beside("debris", text[at:]))  # the text ended in a header
                break
            if size == 0:
                size = 1
                segments.append(Said(text[at]) if self._open else Beside("words", text[at]))
            at += size
        return segments

    def _token(self, text: str, at: int, found: list[Segment]) -> int:
        """Read the end of a message, or the header of the next, at `text[at]`; return its length, 0 for none."""
        for token in ("<|eom|>", "<|eot|>"):
            if text.startswith(token, at):
                found.append(Ended(token, whole=True) if self._open else Beside("debris", token))
                self._open = False
                return len(token)
        header = _HEADER.match(text, at)
        if header is None or (self._open and not header[0].startswith(_START)):
            return 0
        if self._open:
            found.append(Ended("", whole=True))
        recipient = header["to"]
        kind: Literal["thoughts", "words"] = "thoughts" if recipient == "self" else "words"
        user = recipient == "user"
        vague = kind == "words" and not user
        exact = not header[0].startswith("to=")  # the space before it was sent already
        found.append(Opened(kind, header[0], final=user, vague=vague, exact=exact, plain=user))
        self._open = True
        return len(header[0])


_INSIDE = re.compile(r"<(?=\||\Z)")
_OUTSIDE = re.compile(r"<(?=\||\Z)|\s?t(?=o=|o?\Z)|\s\Z")


def _next(text: str, at: int, *, open_message: bool) -> int:
    """Return the offset at which the next token may begin."""
    match = (_INSIDE if open_message else _OUTSIDE).search(text, at)
    return match.start() if match is not None else len(text)


def _may_go_on(tail: str) -> bool:
    """Whether the end of a text may be the beginning of a token or a header."""
    return any(token.startswith(tail) for token in ("<|eom|>", "<|eot|>", _START)) or _BEGUN.match(tail) is not None
