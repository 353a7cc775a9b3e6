"""Read the objects of Gemma's calls incrementally: bare keys, strings between special tokens, and bare values.

    {city:<|"|>Oslo<|"|>,days:2,opts:{deep:true},tags:[<|"|>a<|"|>]}

Bare keys and values have no quotes. Since servers strip the special tokens, a bare value may also be a string; the
schema gives its type. A bare value ends before a comma with a key after it, or at the bracket that closes its object.

The reader has a stack with a `_GemmaBracket` for each open bracket. At any time it is in a string (`_delimiter` closes
it), in a bare value (`_in_bare`), or between values. A method that consumes text returns whether more text is needed,
and sets `at` to where it stopped.

If the block's closing token arrives, nothing was cut off, so missing brackets before it are added.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from promptools.dialects.calls.bare_values import STRING_ONLY, read_typed
from promptools.dialects.prefix_patterns import any_literal_text
from promptools.dialects.readers.python_arguments import MAX_BRACKET_DEPTH, LiteralError
from promptools.jsontext.text import FixLog, decode_string, dump
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern

# The tokens that close Gemma's blocks, and how they end a call that was not closed before them.
#
# Where such a token comes, nothing was cut off: a string that is still open, and the brackets around the string, end
# before the token.


CLOSING_TOKENS: Final = ("<tool_call|>", "<end_function_call>")

_NEXT_BLOCK = lazy_pattern(r"<tool_call\|>\s{0,64}+<\|tool_call>|<end_function_call>\s{0,64}+<start_function_call>")
_BLOCK_ENDS = lazy_pattern(
    r"(?:<tool_call\|>\s*+(?:\Z|<\|tool_call>|<turn\|>)|<end_function_call>\s*+(?:\Z|<start_function_call>))"
)
_BARS = lazy_pattern(r"<\||\|>")


class UnclosedString(NamedTuple):
    """Holds a string that lacks its closing delimiter, and so ends before the token that closes the block."""

    text: str
    after: str
    """The token that closes the block, and the text after the token."""
    bracketed: bool
    """Whether the string ended with the brackets that close everything around it; they are not part of `text`."""


def closing_token_at(text: str, at: int, *, final: bool) -> bool | NeedMore:
    """Return whether a closing token of Gemma's blocks begins at `text[at]`."""
    if text.startswith(CLOSING_TOKENS, at):
        return True
    rest = text[at : at + max(map(len, CLOSING_TOKENS))]
    return NEED_MORE if not final and any(token.startswith(rest) for token in CLOSING_TOKENS) else False


def find_next_block(body: str) -> int:
    """Return the offset in `body` of a block's closing token directly before another block; -1 if there is none.

    `body`: the text of what looks like a string.
    """
    match = _NEXT_BLOCK.search(body)
    return match.start() if match is not None else -1


def read_unclosed_string(body: str, missing: str) -> UnclosedString | None:
    """Return a string that lacks its closing delimiter, such as `<|"|>`, up to its end; None if the end is uncertain.

    The string ends before a token that closes the block, such as `<tool_call|>`, if another block, the end of the turn
    or nothing follows this token. `missing`: the brackets that would close everything around the string. If the string
    ends with these brackets, and its other brackets are balanced, the brackets at its end are removed from it.

    The end is uncertain in three cases: there is no such token; `<|` or `|>`, which may be what remains of a damaged
    delimiter, comes before the token; or the brackets before the token are not balanced. O(n).
    """
    end = _BLOCK_ENDS.search(body)
    if end is None or _BARS.search(body, 0, end.start()):
        return None
    text, after = body[: end.start()], body[end.start() :]
    brackets = re.search(r"\s*+".join(map(re.escape, missing)) + r"\s*+\Z", text)
    if brackets is not None and _is_balanced(text[: brackets.start()]):
        return UnclosedString(text[: brackets.start()], after, bracketed=True)
    return UnclosedString(text, after, bracketed=False) if _is_balanced(text) else None


def _is_balanced(text: str) -> bool:
    """Return whether a text has as many opening as closing brackets of each kind."""
    return text.count("{") == text.count("}") and text.count("[") == text.count("]")


# Bare values of Gemma's objects, which may be strings whose special tokens were stripped.


STRING_DELIMITERS: Final = ('<|"|>', "<escape>")
"""Tokens around a string: Gemma 4's and FunctionGemma's."""
CROSSED = lazy_pattern(r"<\||\|>|<(?:start|end)_function_call>|\}\s{0,16}+call:")
"""Matches what a string with a guessed end must not contain: tokens, or the beginning of the next call."""
_NUMBER = lazy_pattern(r"-?(?:0|[1-9]\d{0,300}+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_SINGLE = lazy_pattern(r"'[^'\\]*+'")


def read_bare_value(text: str, types: frozenset[str], fix_log: FixLog, at: int) -> str:
    """Convert a value without quotes to JSON. Raises `LiteralError` if it is not valid.

    `types`: the JSON types in the value's schema. `at`: the offset at which the value ends, for the error.
    """
    for delimiter in STRING_DELIMITERS:
        if text.endswith(delimiter):
            text = text.removesuffix(delimiter)
            fix_log.add("no delimiter before a string", "marker")
        if delimiter in text:
            raise LiteralError("a delimiter is in a value", start=at)
    if CROSSED.search(text):
        raise LiteralError("a broken delimiter is in a value", start=at)
    if not text:
        raise LiteralError("a value is missing", start=at)
    if (not types or "number" in types) and _NUMBER.fullmatch(text) and isfinite(float(text)):
        return text
    if _SINGLE.fullmatch(text):
        fix_log.add("single quotes")
        return dump(text[1:-1])
    value, fixes = read_typed(text, types)
    for fix in fixes:
        fix_log.add(fix.detail, fix.kind)
    # `call:write_file{content:hello,path:a.txt}` of Gemma 4: openclaude#380.
    if isinstance(value, str):
        fix_log.add("no delimiters around a string", "marker")
    return dump(value)


# The reader.


RUNS_INTO_CALL: Final = "a string without its delimiter runs into the next call"

_TOKEN_START, _TOKEN_END = "<|", '"|>'
_LONGEST = max(map(len, STRING_DELIMITERS))
_SPACE = lazy_pattern(r"[\s\ufeff\u200b]*+")
_DELIMITER = lazy_pattern(any_literal_text(STRING_DELIMITERS))
_KEY = lazy_pattern(r"([^\W\d][\w.-]{0,127}+(?:[ ]{1,2}+[\w.-]{1,64}+){0,8}+)\s{0,16}+(?:\Z|:)")
"""Matches a key without quotes, which may have several words."""
_NEXT_KEY = lazy_pattern(r",\s{0,16}+(?:\Z|\}|[\"'<]|([^\W\d][\w.-]{0,127}+)\s{0,16}+(?:\Z|:))")
_WORDS_KEY = lazy_pattern(rf",\s{{0,16}}+{_KEY.pattern}")
_NO_STRING = lazy_pattern(r"\s*(?:-?\d[\d.eE+-]*|true|false|null)\s*")
_MOST_PIECES = 64
"""Maximum number of pieces of a bare value that is checked for a number, true, false or null.

Each chunk of text and each comma adds a piece to the value.
"""
_INSIDE = {quote: lazy_pattern(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL) for quote in "\"'"}
_AFTER_MEMBER = lazy_pattern(
    rf"\s{{0,64}}+(?:\Z|[}}:]|{any_literal_text(CLOSING_TOKENS)}|,\s{{0,16}}+(?:\Z|[}}\"'<]|[^\W\d][\w.-]{{0,127}}+\s{{0,16}}+(?:\Z|:)))"
)
_AFTER_ITEM = lazy_pattern(r"\s{0,64}+(?:\Z|[,\]])")
_EVENT = lazy_pattern(r"[,{}\[\]<]")


def _end_of_key(text: str, at: int, key: str) -> int | None:
    """Return the index after `key` and its colon; None if anything else is at `text[at]`.

    If the text ends after the key but before the colon, return the length of the text.
    """
    if not text.startswith(key, at):
        return None
    space = _SPACE.match(text, at + len(key))
    assert space is not None
    if space.end() == len(text):
        return space.end()
    return space.end() + 1 if text[space.end()] == ":" else None


@dataclass(slots=True)
class _GemmaBracket:
    """Holds an open bracket, and the bracket's content so far."""

    kind: str
    items: list[str] = field(default_factory=list[str])
    key: str | None = None
    value: str | None = None
    """The value or the key that was read last, as JSON."""
    string: str | None = None
    """The text of `value` if it is a string in quotes. Such a string may turn out to be a key."""


class GemmaObject:
    """Reads a call's arguments object, from just after its opening brace to its closing brace, in O(n).

    It has the same interface as `PythonArguments`.
    """

    def __init__(
        self,
        keys: frozenset[str],
        types: Callable[[str], frozenset[str]],
        *,
        token_closes: bool = False,
        all_quoted: bool = False,
    ) -> None:
        """Start after the first brace.

        `keys`: the declared parameters. `types`: returns the JSON types of a parameter. `token_closes`: whether the
        block that contains the call ends at one of `CLOSING_TOKENS`. `all_quoted`: whether string delimiters (`<|"|>`)
        enclose values of every type, so that only the schema gives the type of an argument.
        """
        self._declared = keys
        self._all_quoted = all_quoted
        self._token_closes = token_closes
        self._spaced = sorted((key for key in keys if len(key.split()) > 1), key=len, reverse=True)
        self._types = types
        self._stack = [_GemmaBracket("{")]
        self._delimiter = ""
        """The delimiter that closes the open string; empty if no string is open."""
        self._in_bare = False
        self._bare_depth = 0
        """The number of brackets that are open inside a bare value."""
        self._pieces: list[str] = []
        self._uncertain = False
        self._is_complete = False
        """Whether the last value ended with a delimiter or bracket, so that more text cannot extend the value."""
        self.fix_log = FixLog()
        self.members: list[str] = []
        self.keys: list[str] = []
        self.positional: list[str] = []
        self.at: int = 0

    def feed(self, text: str, at: int, *, final: bool = False) -> bool:
        """Consume `text` from `at` on; return whether the last brace has arrived.

        Sets `self.at` to the offset up to which the text has been consumed. Raises `LiteralError` for unreadable text.
        """
        self.at = at
        while self._stack and self.at < len(text):
            if self._consume(text, final):
                break
        return not self._stack

    @property
    def has_arguments(self) -> bool:
        """Whether the object has a member, or the beginning of one."""
        return bool(self.members or (self._stack and (self._stack[0].key or self._stack[0].value)))

    def close_missing_bracket(self) -> bool:
        """Close an object that lacks only its last brace; return whether that was possible."""
        if len(self._stack) != 1 or self._delimiter or self._in_bare or not self._is_complete:
            return False
        if self._stack[-1].value is None or self._stack[-1].key is None:  # after a comma or a key, a member is missing
            return False
        self._close(self._stack[-1])
        return True

    def end_string(self) -> str | None:
        """Close the open string, and the brackets around it, where the token that closes the block begins.

        Return the text from that token on, or None if no string is open or its end is uncertain. Closing brackets
        at the end of the open string are not part of it. If there are none, the missing brackets are added.
        """
        frame = self._stack[-1] if self._stack else None
        keyed = frame is not None and (frame.kind == "[" or frame.key is not None)
        if not self._token_closes or not keyed or self._uncertain or self._delimiter in ("", "'"):
            return None
        missing = self._missing()
        last = read_unclosed_string("".join(self._pieces), missing)
        if last is None:
            return None
        self.fix_log.add("no delimiter after a string", "marker")
        if not last.bracketed:
            self.fix_log.add(f"missing {missing} supplied", "closer")
        self._set_string(decode_string(last.text, self.fix_log) if self._delimiter == '"' else last.text)
        self._delimiter = ""
        self._close_all()
        return last.after

    def _missing(self) -> str:
        """Return the brackets that would close everything that is open."""
        return "".join("}" if frame.kind == "{" else "]" for frame in reversed(self._stack))

    def _close_all(self) -> None:
        while self._stack:
            self._close(self._stack[-1])

    def _at_closing_token(self, text: str, final: bool) -> bool | NeedMore:
        """Return whether a token that closes the block begins at `self.at`."""
        return closing_token_at(text, self.at, final=final) if self._token_closes and text[self.at] == "<" else False

    def _close_at_token(self, frame: _GemmaBracket, text: str, final: bool) -> bool | NeedMore:
        """Close all brackets if the block ends here, unless a key lacks its value; return whether the block ends."""
        if frame.kind == "{" and (frame.key is None) != (frame.value is None):
            return False
        token = self._at_closing_token(text, final)
        if token:
            self.fix_log.add(f"missing {self._missing()} supplied", "closer")
            self._close_all()
        return token

    def _consume(self, text: str, final: bool) -> bool:
        """Consume the next token, such as a key or a part of a value; return whether more text is needed."""
        if self._delimiter:
            return self._more_string(text, final)
        if self._in_bare:
            return self._more_bare(text, final)
        space = _SPACE.match(text, self.at)
        assert space is not None
        self.at = space.end()
        if self.at == len(text):
            return True
        frame = self._stack[-1]
        ends = self._close_at_token(frame, text, final)
        if ends is not False:
            return ends is NEED_MORE
        if frame.value is not None:
            self._after_value(frame, text[self.at])
            return False
        if frame.kind == "{" and frame.key is None and text[self.at] not in "\"'<":
            return self._read_key(frame, text, final)
        return self._read_value(frame, text, final)

    # --- keys and values -------------------------------------------------------------------------------------------

    def _read_key(self, frame: _GemmaBracket, text: str, final: bool) -> bool:
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
            raise LiteralError(f"{text[self.at]!r} begins no key", start=self.at)
        if text[match.end() - 1] != ":":
            if final:
                self.at = len(text)
            return True
        frame.key = match[1]
        self.at = match.end()
        return False

    def _read_value(self, frame: _GemmaBracket, text: str, final: bool) -> bool:
        rest = text[self.at : self.at + _LONGEST]
        self._pieces, self._is_complete = [], False
        for delimiter in STRING_DELIMITERS:
            if rest.startswith(delimiter):
                self._delimiter = delimiter
                self.at += len(delimiter)
                return False
            if delimiter.startswith(rest) and not final:
                return True
        char = rest[0]
        # Gemma 4 also uses plain quotes: `{memory: "The user's name is John."}` (llama.cpp#22786).
        if char == '"' or (char == "'" and self._token_closes):  # without the tokens it may be an apostrophe
            self._delimiter = char
            self._uncertain = False
            self.at += 1
        elif char in "{[":
            if len(self._stack) > MAX_BRACKET_DEPTH:
                raise LiteralError(f"more than {MAX_BRACKET_DEPTH} levels of brackets", "limit", self.at)
            self._stack.append(_GemmaBracket(char))
            self.at += 1
        elif char == "]" and frame.kind == "[":
            self.at += 1
            self._close(frame)
        elif char in ",}]":
            raise LiteralError(f"{char!r} was found where a value was expected", start=self.at)
        else:
            self._in_bare, self._bare_depth = True, 0
        return False

    def _after_value(self, frame: _GemmaBracket, char: str) -> None:
        """Consume what follows a value or a quoted key."""
        if char == ":" and frame.kind == "{" and frame.key is None and frame.string is not None:
            frame.key, frame.value, frame.string = frame.string, None, None
        elif char == "," and (frame.key is not None or frame.kind == "["):
            self._store(frame)
        elif char == ("}" if frame.kind == "{" else "]") and (frame.key is not None or frame.kind == "["):
            self.at += 1
            self._close(frame)
            return
        else:
            raise LiteralError(f"{char!r} follows a value", start=self.at)
        self.at += 1

    # --- strings ---------------------------------------------------------------------------------------------------

    def _more_string(self, text: str, final: bool) -> bool:
        """Consume more of a string; return whether more text is needed."""
        if self._delimiter in "\"'":
            return self._more_quoted(text, final)
        end = text.find(self._delimiter, self.at)
        if end < 0:
            end = len(text) if final else max(self.at, len(text) - len(self._delimiter) + 1)
            self._pieces.append(text[self.at : end])
            self.at = end
            return True
        self._pieces.append(text[self.at : end])
        self.at = end
        body = "".join(self._pieces)
        crossed = find_next_block(body) if self._token_closes else -1
        if crossed >= 0:
            after = _SPACE.match(text, end + len(self._delimiter))
            assert after is not None
            if after.end() == len(text) and not final:
                return True
            if text[after.end() : after.end() + 1] not in (",", "}", "]", ":", "<"):
                raise LiteralError(RUNS_INTO_CALL, "quotes", overrun=len(body) - crossed)
        self.at = end + len(self._delimiter)
        self._delimiter = ""
        self._set_string(body)
        self._set_type(body)
        return False

    def _more_quoted(self, text: str, final: bool) -> bool:
        """Consume more of a string in plain quotes, up to a quote after which the object may continue.

        Return whether more text is needed.
        """
        quote = self._delimiter
        inside = _INSIDE[quote].match(text, self.at)
        assert inside is not None
        self._pieces.append(inside[0])
        self.at = end = inside.end()
        if end == len(text) or text[end] != quote:
            return True
        body = "".join(self._pieces)
        if quote == '"' and body.endswith(_TOKEN_START):  # the quote in the middle of a delimiter
            ends = self._ends_at_token(text, end, final)
            if ends is NEED_MORE:
                return True
            if ends:
                self.at = end + len(_TOKEN_END)
                self.fix_log.add("a string between a quote and a delimiter", "marker")
                return self._end_quoted(body.removesuffix(_TOKEN_START), quote)
        closed = end + 1
        dangling = _DELIMITER.match(text, closed)
        if dangling is not None and dangling[0] not in STRING_DELIMITERS and not final:
            return True
        if dangling is not None and dangling[0] in STRING_DELIMITERS:
            closed = dangling.end()
        follows = self._follows_string(text, closed, final)
        if follows is NEED_MORE:
            return True
        if not follows:
            self.at = end + 1
            self._uncertain = True
            self.fix_log.add("unescaped quotes in a string")
            self._pieces.append(quote)
            return False
        if closed > end + 1:
            self.fix_log.add("a delimiter after a string in quotes", "marker")
        self.at = closed
        return self._end_quoted(body, quote)

    def _ends_at_token(self, text: str, quote_at: int, final: bool) -> bool | NeedMore:
        """Return whether the quote at `quote_at` belongs to a delimiter that ends the string."""
        if len(text) - quote_at < len(_TOKEN_END) and not final:
            return NEED_MORE
        return text.startswith(_TOKEN_END, quote_at) and self._follows_string(text, quote_at + len(_TOKEN_END), final)

    def _follows_string(self, text: str, at: int, final: bool) -> bool | NeedMore:
        """Return whether the text at `at` may follow a string; for example, a closing bracket, or a comma and a key."""
        after = (_AFTER_MEMBER if self._stack[-1].kind == "{" else _AFTER_ITEM).match(text, at)
        if after is not None and after.end() == len(text) and not final:
            return NEED_MORE
        return after is not None

    def _end_quoted(self, body: str, quote: str) -> bool:
        """End a string in plain quotes; return False, since no more text is needed."""
        self._delimiter = ""
        if quote == "'":
            self.fix_log.add("single quotes")
        if self._uncertain and CROSSED.search(body):
            raise LiteralError("a string without its closing quote runs into what follows the call", "quotes")
        if quote == "'":
            body = body.replace("\\'", "'")
        inner = body.replace('"', '\\"') if self._uncertain and "\\" not in body else body
        self._set_string(decode_string(inner, self.fix_log))
        return False

    def _set_string(self, text: str) -> None:
        frame = self._stack[-1]
        frame.value, frame.string = dump(text), text
        self._is_complete = True

    def _set_type(self, text: str) -> None:
        """Convert the argument that was just read to the type in its schema, if delimiters enclose values of all types.

        `text`: the text between the delimiters.
        """
        frame = self._stack[-1]
        if not self._all_quoted or len(self._stack) > 1 or frame.key is None:
            return
        undeclared = STRING_ONLY if self._declared else frozenset[str]()
        value, fixes = read_typed(text, self._types(frame.key) if frame.key in self._declared else undeclared)
        for fix in fixes:
            self.fix_log.add(fix.detail, fix.kind)
        frame.value = dump(value)

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
        ends = self._at_closing_token(text, final) if text[at] == "<" else self._ends_bare(text, at, final)
        if ends is NEED_MORE:
            return True
        if ends:
            self._in_bare = False
            self._set_bare("".join(self._pieces).strip())
            return False
        self._bare_depth += (text[at] in "{[") - (text[at] in "}]")
        self._pieces.append(text[at])
        self.at = at + 1
        return False

    def _ends_bare(self, text: str, at: int, final: bool) -> bool | NeedMore:
        """Return whether a bare value ends before `text[at]`."""
        if text[at] in "{[" or self._bare_depth:
            return False
        if text[at] != "," or self._stack[-1].kind == "[":
            return True
        match = _NEXT_KEY.match(text, at)
        if match is None:
            return self._spaced_key_follows(text, at, final)
        if match.end() == len(text) and not final:
            return NEED_MORE
        root = len(self._stack) == 1 and bool(self._declared)
        return match[1] is None or not root or match[1] in self._declared

    def _spaced_key_follows(self, text: str, at: int, final: bool) -> bool | NeedMore:
        """Return whether a key of several words comes next.

        After a value that is not a string, such as `5` or `true`, any key is accepted; after any other value, only a
        declared key.
        """
        # Gemma 4 writes keys with spaces (ollama#18390).
        few = len(self._pieces) <= _MOST_PIECES
        any_key = _WORDS_KEY.match(text, at) if few and _NO_STRING.fullmatch("".join(self._pieces)) else None
        if any_key is not None:
            return NEED_MORE if any_key.end() == len(text) and not final else text[any_key.end() - 1] == ":"
        space = _SPACE.match(text, at + 1)
        assert space is not None
        for key in self._spaced if len(self._stack) == 1 else ():
            end = _end_of_key(text, space.end(), key)
            if end is not None and text[end - 1] == ":":
                return True
            begun = text[space.end() : space.end() + len(key)]
            if not final and key.startswith(begun) and (end is not None or len(begun) < len(key)):
                return NEED_MORE
        return False

    def _set_bare(self, text: str) -> None:
        frame = self._stack[-1]
        root = len(self._stack) == 1 and frame.key in self._declared
        types = self._types(frame.key) if root and frame.key is not None else frozenset[str]()
        frame.value = read_bare_value(text, types, self.fix_log, self.at)

    # --- brackets --------------------------------------------------------------------------------------------------

    def _store(self, frame: _GemmaBracket) -> None:
        value, key = frame.value, frame.key
        assert value is not None
        frame.value = frame.string = frame.key = None
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

    def _close(self, frame: _GemmaBracket) -> None:
        if frame.key is not None and frame.value is None:
            raise LiteralError("a key has no value", start=self.at)
        if frame.value is not None:
            self._store(frame)
        self._stack.pop()
        self._is_complete = True
        if self._stack:
            inner = ", ".join(frame.items)
            self._stack[-1].value = f"{{{inner}}}" if frame.kind == "{" else f"[{inner}]"
