"""The messages of Muse Glimmer: each begins with its recipient, ` to=self` for thoughts, ` to=user` for the answer."""

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
"""A server that takes out the tokens leaves the tags of a call."""
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
    """Tell whether one of its headers stands at `at`; None: more text must tell. Harmony's have a channel."""
    del rules, first
    window = text[at : at + _LONGEST]
    if _TO_US.match(window) or _TO_TOOL.match(window):
        return True
    return None if not final and len(window) < _LONGEST and _BEGUN.match(window) else False


class MuseCutter:
    """Cuts a reply into its messages. O(n) in characters; holds back at most a header."""

    def __init__(self) -> None:
        self._held = ""
        self._open = False

    def feed(self, text: str) -> list[Segment]:
        """Take a piece of text; give what became certain."""
        return self._cut(self._held + text, final=False)

    def close(self) -> list[Segment]:
        """Say that the text is over; give the rest."""
        found = self._cut(self._held, final=True)
        return [*found, Ended("", whole=False)] if self._open else found

    def _cut(self, text: str, *, final: bool) -> list[Segment]:
        found: list[Segment] = []
        at = 0
        self._held = ""
        while at < len(text):
            end = _next(text, at, open_message=self._open)
            if end > at:
                found.append(Said(text[at:end]) if self._open else Beside("words", text[at:end]))
                at = end
            if at == len(text):
                break
            taken = self._token(text, at, found)
            if taken == 0 and not final and len(text) - at < _LONGEST and _may_go_on(text[at:]):
                self._held = text[at:]
                break
            if taken == 0 and not self._open and text.startswith("<|", at) and _may_go_on(text[at:]):
                found.append(Beside("debris", text[at:]))  # the text ended in a header
                break
            if taken == 0:
                taken = 1
                found.append(Said(text[at]) if self._open else Beside("words", text[at]))
            at += taken
        return found

    def _token(self, text: str, at: int, found: list[Segment]) -> int:
        """Take the end of a message, or the header of the next; give how many characters that is."""
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
        to = header["to"]
        kind: Literal["thoughts", "words"] = "thoughts" if to == "self" else "words"
        user = to == "user"
        vague = kind == "words" and not user
        exact = not header[0].startswith("to=")  # the space before it went out alone
        found.append(Opened(kind, header[0], final=user, vague=vague, exact=exact, plain=user))
        self._open = True
        return len(header[0])


_INSIDE = re.compile(r"<(?=\||\Z)")
_OUTSIDE = re.compile(r"<(?=\||\Z)|\s?t(?=o=|o?\Z)|\s\Z")


def _next(text: str, at: int, *, open_message: bool) -> int:
    """Give where the next token may begin."""
    found = (_INSIDE if open_message else _OUTSIDE).search(text, at)
    return found.start() if found is not None else len(text)


def _may_go_on(tail: str) -> bool:
    """Tell whether a token, or a header, may come of the end of a text."""
    return any(each.startswith(tail) for each in ("<|eom|>", "<|eot|>", _START)) or _BEGUN.match(tail) is not None
