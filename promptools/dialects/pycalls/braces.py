r"""The objects of Gemma's calls, read as they come: bare keys, strings between special tokens, bare values.

    {city:<|"|>Oslo<|"|>,days:2,opts:{deep:true},tags:[<|"|>a<|"|>]}

Servers strip the special tokens, so a bare value may be a string too. It ends before a comma that a key follows, or at
the bracket that closes its object; its type comes from the schema.

The reader is a stack of `_Frame`, one for each open bracket, and is at any time in a string (`_string` is what closes
it), in a bare value (`_bare`), or between values. A method returns True, or None, if more text is needed, and leaves
`at` where it stopped.

Where the closing token of the block comes, nothing was cut off, so missing brackets before it are supplied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from promptools.dialects.openings import tokens
from promptools.dialects.pycalls.arguments import DEEPEST, Refused
from promptools.dialects.pycalls.block_tokens import TOKENS, last_string, next_block, token_at
from promptools.dialects.settle import dump
from promptools.dialects.values import read
from promptools.parsing.strings import Liberties, decode

DELIMITERS: Final = ('<|"|>', "<escape>")
"""Tokens around a string: Gemma 4's and FunctionGemma's."""
RUNS_ON: Final = "a string without its delimiter runs into the next call"

_LONGEST = max(map(len, DELIMITERS))
_SPACE = re.compile(r"[\s\ufeff\u200b]*+")
_KEY = re.compile(r"([^\W\d][\w.-]{0,127}+)\s{0,16}+(?:\Z|:)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300}+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_NEXT_KEY = re.compile(r",\s{0,16}+(?:\Z|\}|[\"'<]|([^\W\d][\w.-]{0,127}+)\s{0,16}+(?:\Z|:))")
_INSIDE = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL) for quote in "\"'"}
_AFTER_MEMBER = re.compile(
    rf"\s{{0,64}}+(?:\Z|[}}:]|{tokens(TOKENS)}|,\s{{0,16}}+(?:\Z|[}}\"'<]|[^\W\d][\w.-]{{0,127}}+\s{{0,16}}+(?:\Z|:)))"
)
_CROSSED = re.compile(r"<\||\|>|<(?:start|end)_function_call>|\}\s{0,16}+call:")
"""What a string with a guessed end must not hold: tokens, or the next call."""
_AFTER_ITEM = re.compile(r"\s{0,64}+(?:\Z|[,\]])")
_SINGLE = re.compile(r"'[^'\\]*+'")
_EVENT = re.compile(r"[,{}\[\]<]")


def _end_of_key(text: str, at: int, key: str) -> int | None:
    """Return the index just past a key and its colon, or past what there is of them; None if the key is not there."""
    if not text.startswith(key, at):
        return None
    space = _SPACE.match(text, at + len(key))
    assert space is not None
    if space.end() == len(text):
        return space.end()
    return space.end() + 1 if text[space.end()] == ":" else None


@dataclass(slots=True)
class _Frame:
    """An open bracket, and what it holds so far."""

    kind: str
    items: list[str] = field(default_factory=list[str])
    key: str | None = None
    value: str | None = None
    """JSON of the value, or the key, that was read last."""
    named: str | None = None
    """That value, if it is a string that may be a key."""


class Braces:
    """Reads from after an object's first brace to its last; has the interface of `Arguments`. O(n) in characters."""

    def __init__(self, keys: frozenset[str], types: Callable[[str], frozenset[str]], *, closed: bool = False) -> None:
        """Begin after the first brace; `closed`: a token closes the block that the call is in."""
        self._declared = keys
        self._closed = closed
        self._spaced = sorted((key for key in keys if len(key.split()) > 1), key=len, reverse=True)
        self._types = types
        self._stack = [_Frame("{")]
        self._string = ""
        """What closes the string that is open."""
        self._bare = False
        self._nested = 0
        """Brackets open inside a bare value."""
        self._pieces: list[str] = []
        self._doubtful = False
        self._certain = False
        """What was read last cannot grow any more."""
        self.liberties = Liberties()
        self.members: list[str] = []
        self.keys: list[str] = []
        self.given: list[str] = []
        self.at: int = 0

    def feed(self, text: str, at: int, *, final: bool = False) -> bool:
        """Consume `text[at:]` up to `self.at`; return whether the last brace has come. Raise `Refused`."""
        self.at = at
        while self._stack and self.at < len(text):
            if self._step(text, final):
                break
        return not self._stack

    @property
    def begun(self) -> bool:
        """Whether there is a member, or the beginning of one."""
        return bool(self.members or (self._stack and (self._stack[0].key or self._stack[0].value)))

    def complete(self) -> bool:
        """Close an object that lacks only its last brace; return whether that was possible."""
        if len(self._stack) != 1 or self._string or self._bare or not self._certain:
            return False
        if self._stack[-1].value is None or self._stack[-1].key is None:  # a comma or a key begins a member
            return False
        self._close(self._stack[-1])
        return True

    def end_string(self) -> str | None:
        """Close a last string, and the brackets around it, before the closing token; return what came after.

        The brackets may be at the end of the string. None if there is no such string, or if its end is uncertain.
        """
        frame = self._stack[-1] if self._stack else None
        keyed = frame is not None and (frame.kind == "[" or frame.key is not None)
        if not self._closed or not keyed or self._doubtful or self._string in ("", "'"):
            return None
        missing = self._missing()
        last = last_string("".join(self._pieces), missing)
        if last is None:
            return None
        self.liberties.take("no delimiter behind a string", "marker")
        if not last.bracketed:
            self.liberties.take(f"missing {missing} supplied", "closer")
        self._is(decode(last.words, self.liberties) if self._string == '"' else last.words)
        self._string = ""
        self._close_all()
        return last.after

    def _missing(self) -> str:
        """Return the brackets that close what is open."""
        return "".join("}" if frame.kind == "{" else "]" for frame in reversed(self._stack))

    def _close_all(self) -> None:
        while self._stack:
            self._close(self._stack[-1])

    def _token(self, text: str, final: bool) -> bool | None:
        """Return whether the block is closed here; None if more text is needed."""
        return token_at(text, self.at, final=final) if self._closed and text[self.at] == "<" else False

    def _ends(self, frame: _Frame, text: str, final: bool) -> bool | None:
        """Close all brackets where the block is closed, unless a key lacks its value; None if more text is needed."""
        if frame.kind == "{" and (frame.key is None) != (frame.value is None):
            return False
        token = self._token(text, final)
        if token:
            self.liberties.take(f"missing {self._missing()} supplied", "closer")
            self._close_all()
        return token

    def _step(self, text: str, final: bool) -> bool:
        """Consume the next piece; return whether more text is needed."""
        if self._string:
            return self._more(text, final)
        if self._bare:
            return self._more_bare(text, final)
        space = _SPACE.match(text, self.at)
        assert space is not None
        self.at = space.end()
        if self.at == len(text):
            return True
        frame = self._stack[-1]
        ends = self._ends(frame, text, final)
        if ends is not False:
            return ends is None
        if frame.value is not None:
            self._behind(frame, text[self.at])
            return False
        if frame.kind == "{" and frame.key is None and text[self.at] not in "\"'<":
            return self._key(frame, text, final)
        return self._value(frame, text, final)

    # --- keys and values -------------------------------------------------------------------------------------------

    def _key(self, frame: _Frame, text: str, final: bool) -> bool:
        if text[self.at] == "}":
            self.at += 1
            self._close(frame)
            return False
        for key in self._spaced:
            if len(text) - self.at < len(key) and not final and key.startswith(text[self.at :]):
                return True
            end = _end_of_key(text, self.at, key)
            if end is not None:
                if end == len(text) and text[end - 1] != ":" and not final:
                    return True
                frame.key, self.at = key, end
                return False
        match = _KEY.match(text, self.at)
        if match is None:
            raise Refused(f"{text[self.at]!r} begins no key", start=self.at)
        if text[match.end() - 1] != ":":
            if final:
                self.at = len(text)
            return True
        frame.key = match[1]
        self.at = match.end()
        return False

    def _value(self, frame: _Frame, text: str, final: bool) -> bool:
        rest = text[self.at : self.at + _LONGEST]
        self._pieces, self._certain = [], False
        for delimiter in DELIMITERS:
            if rest.startswith(delimiter):
                self._string = delimiter
                self.at += len(delimiter)
                return False
            if delimiter.startswith(rest) and not final:
                return True
        char = rest[0]
        if char == '"' or (char == "'" and self._closed):  # without the tokens it may be an apostrophe
            self._string = char
            self._doubtful = False
            self.at += 1
        elif char in "{[":
            if len(self._stack) > DEEPEST:
                raise Refused(f"more than {DEEPEST} levels of brackets", "limit", self.at)
            self._stack.append(_Frame(char))
            self.at += 1
        elif char == "]" and frame.kind == "[":
            self.at += 1
            self._close(frame)
        elif char in ",}]":
            raise Refused(f"{char!r} stands where a value belongs", start=self.at)
        else:
            self._bare, self._nested = True, 0
        return False

    def _behind(self, frame: _Frame, char: str) -> None:
        """Consume what follows a value, or a key in quotes."""
        if char == ":" and frame.kind == "{" and frame.key is None and frame.named is not None:
            frame.key, frame.value, frame.named = frame.named, None, None
        elif char == "," and (frame.key is not None or frame.kind == "["):
            self._store(frame)
        elif char == ("}" if frame.kind == "{" else "]") and (frame.key is not None or frame.kind == "["):
            self.at += 1
            self._close(frame)
            return
        else:
            raise Refused(f"{char!r} follows a value", start=self.at)
        self.at += 1

    # --- strings ---------------------------------------------------------------------------------------------------

    def _more(self, text: str, final: bool) -> bool:
        """Consume more of a string; return whether more text is needed."""
        if self._string in "\"'":
            return self._more_quoted(text, final)
        end = text.find(self._string, self.at)
        if end < 0:
            end = len(text) if final else max(self.at, len(text) - len(self._string) + 1)
            self._pieces.append(text[self.at : end])
            self.at = end
            return True
        self._pieces.append(text[self.at : end])
        self.at = end
        body = "".join(self._pieces)
        crossed = next_block(body) if self._closed else -1
        if crossed >= 0:
            after = _SPACE.match(text, end + len(self._string))
            assert after is not None
            if after.end() == len(text) and not final:
                return True
            if text[after.end() : after.end() + 1] not in (",", "}", "]", ":", "<"):
                raise Refused(RUNS_ON, "quotes", back=len(body) - crossed)
        self.at = end + len(self._string)
        self._string = ""
        self._is(body)
        return False

    def _more_quoted(self, text: str, final: bool) -> bool:
        """Consume more of a string in plain quotes, up to a quote after which its object may go on."""
        quote = self._string
        inside = _INSIDE[quote].match(text, self.at)
        assert inside is not None
        self._pieces.append(inside[0])
        self.at = end = inside.end()
        if end == len(text) or text[end] != quote:
            return True
        after = (_AFTER_MEMBER if self._stack[-1].kind == "{" else _AFTER_ITEM).match(text, end + 1)
        if after is not None and after.end() == len(text) and not final:
            return True
        self.at = end + 1
        if after is None:
            self._doubtful = True
            self.liberties.take("unescaped quotes in a string")
            self._pieces.append(quote)
            return False
        self._string = ""
        body = "".join(self._pieces)
        if quote == "'":
            self.liberties.take("single quotes")
        if self._doubtful and _CROSSED.search(body):
            raise Refused("a string without its closing quote runs into what follows the call", "quotes")
        if quote == "'":
            body = body.replace("\\'", "'")
        inner = body.replace('"', '\\"') if self._doubtful and "\\" not in body else body
        self._is(decode(inner, self.liberties))
        return False

    def _is(self, words: str) -> None:
        frame = self._stack[-1]
        frame.value, frame.named = dump(words), words
        self._certain = True

    def _more_bare(self, text: str, final: bool) -> bool:
        """Consume more of a value without quotes; return whether more text is needed."""
        event = _EVENT.search(text, self.at)
        if event is None:
            self._pieces.append(text[self.at :])
            self.at = len(text)
            return True
        at = event.start()
        self._pieces.append(text[self.at : at])
        self.at = at
        ends = self._token(text, final) if text[at] == "<" else self._ends_bare(text, at, final)
        if ends is None:
            return True
        if ends:
            self._bare = False
            self._is_bare("".join(self._pieces).strip())
            return False
        self._nested += (text[at] in "{[") - (text[at] in "}]")
        self._pieces.append(text[at])
        self.at = at + 1
        return False

    def _ends_bare(self, text: str, at: int, final: bool) -> bool | None:
        """Return whether a bare value ends before `text[at]`; None if more text is needed."""
        if text[at] in "{[" or self._nested:
            return False
        if text[at] != "," or self._stack[-1].kind == "[":
            return True
        match = _NEXT_KEY.match(text, at)
        if match is None:
            return False
        if match.end() == len(text) and not final:
            return None
        root = len(self._stack) == 1 and bool(self._declared)
        return match[1] is None or not root or match[1] in self._declared

    def _is_bare(self, text: str) -> None:
        frame = self._stack[-1]
        for delimiter in DELIMITERS:
            if text.endswith(delimiter):
                text = text.removesuffix(delimiter)
                self.liberties.take("no delimiter before a string", "marker")
            if delimiter in text:
                raise Refused("a delimiter stands in a value", start=self.at)
        if _CROSSED.search(text):
            raise Refused("a broken delimiter stands in a value", start=self.at)
        if not text:
            raise Refused("a value is missing", start=self.at)
        root = len(self._stack) == 1 and frame.key in self._declared
        types = self._types(frame.key) if root and frame.key is not None else frozenset[str]()
        if (not types or "number" in types) and _NUMBER.fullmatch(text) and isfinite(float(text)):
            frame.value = text
            return
        if _SINGLE.fullmatch(text):
            self.liberties.take("single quotes")
            frame.value = dump(text[1:-1])
            return
        value: Any
        value, fixes = read(text, types)
        for fix in fixes:
            self.liberties.take(fix.detail, fix.kind)
        if isinstance(value, str):
            self.liberties.take("no delimiters around a string", "marker")
        frame.value = dump(value)

    # --- brackets --------------------------------------------------------------------------------------------------

    def _store(self, frame: _Frame) -> None:
        value, key = frame.value, frame.key
        assert value is not None
        frame.value = frame.named = frame.key = None
        if frame.kind == "[":
            frame.items.append(value)
            return
        assert key is not None
        member = f"{dump(key)}: {value}"
        if frame is self._stack[0]:
            self.members.append(member)
            self.keys.append(key)
        else:
            frame.items.append(member)

    def _close(self, frame: _Frame) -> None:
        if frame.key is not None and frame.value is None:
            raise Refused("a key has no value", start=self.at)
        if frame.value is not None:
            self._store(frame)
        self._stack.pop()
        self._certain = True
        if self._stack:
            inner = ", ".join(frame.items)
            self._stack[-1].value = f"{{{inner}}}" if frame.kind == "{" else f"[{inner}]"
