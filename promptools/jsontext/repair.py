"""Repair JSON as models write it: rewrite what is not strict, and let `json` decode the result.

The reader goes over the text once and copies it, replacing what is not strict JSON. A run of text that is strict, or
has only common mistakes, is matched and repaired as a whole (`RUN`, `repair_run`). The loop in Python takes a step only
at a deeper bracket or at a less common mistake. A stack of the open containers shows which closing bracket must come
next. `json` then decodes the repaired text. So only the repairs below can turn invalid text into a value, and each is
recorded as a fix.

These are repaired: quotes that are single, smart or triple, or not escaped inside a string (see `quotes`); escapes that
JSON does not know; Python's literals; unquoted keys; doubled braces; comments; trailing commas; odd white space;
duplicate keys; and, with `supply_closers`, missing closing brackets at the end. Any other mistake raises `Unreadable`.
The error's kind distinguishes text that ends too early from text that is wrong.

The repaired copy is a list of pieces. A second list holds the pieces of the model's text that they replace, so that an
error of `json` can be reported at its place in the model's text.
"""

from __future__ import annotations

import re
from collections import Counter
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any, Final

from promptools.errors import clip
from promptools.json_values import parse_finite_float
from promptools.jsontext.brackets import MAX_DEPTH
from promptools.jsontext.quotes import UNESCAPED_QUOTES, OpenContainer, QuoteResolver
from promptools.jsontext.strict import read_members
from promptools.jsontext.text import (
    CLOSING_QUOTES,
    STRICT_STRING,
    STRING_BODIES,
    FixLog,
    ParsedValue,
    Unreadable,
    decode_string,
    encode_string,
)
from promptools.patterns import lazy_pattern

# Runs: the four mistakes that models make throughout a value, repaired in one run of text at a time.
#
# The mistakes are single quotes as Python prints them, Python's literals, trailing commas and unquoted keys. A *run* is
# text that consists of strict JSON and these mistakes, with brackets up to two levels deep. One match finds a run, and
# one call of the regex engine lists the mistakes in it. So a table row with five mistakes takes no step of the reader.
# The pattern does not check grammar: `json` finds out whether a comma or a colon is missing.


# Templates that print arguments through Jinja's string filter teach Python's spelling: Qwen3-Coder, Seed-OSS.
PYTHON_LITERALS: Final = {"True": "true", "False": "false", "None": "null"}

_BLANKS = r"[ \t\n\r]*+"
_NEXT_ITEM = rf"(?={_BLANKS}[\"'\[{{\w-])"
_NEXT_ITEM_OR_CLOSER = rf"(?={_BLANKS}[\"'\[{{\w}}\]-])"
# smolagents keeps calls in its memory as Python prints them, and models copy that (smolagents#122).
_SINGLE_QUOTED = r"'[^'\"\\\x00-\x1f]*+'"
"""The pattern of a string in single quotes that contains no quote of any kind and no escape."""
_NOT_TRIPLE_QUOTES = r"(?!\"\"\"|''')"
_NUMBER_IN_RUN = r"-?[0-9][0-9.eE+-]*+"
_LITERAL = r"(?:true|false|null)\b(?!\s*+:)"
_PYTHON_LITERAL = r"(?:True|False|None)\b(?!\s*+:)"
# `{"file_path": "test.sh", content: "..."}` (opencode#2728).
_UNQUOTED_KEY = rf"(?<![\w.+-])[^\W\d][\w$-]*+(?={_BLANKS}:)"
_BETWEEN_ITEMS = rf"[ \t\n\r:]++|,{_NEXT_ITEM}"


def _compile_run() -> re.Pattern[str]:
    """Compile `RUN`, the pattern of strict JSON with common mistakes.

    A match never ends with a trailing comma, so that the reader sees and repairs this comma.
    """
    scalar = rf"{_NOT_TRIPLE_QUOTES}(?:{STRICT_STRING}|{_SINGLE_QUOTED})|{_NUMBER_IN_RUN}|{_LITERAL}|{_PYTHON_LITERAL}"
    item = run = scalar = rf"{scalar}|{_UNQUOTED_KEY}"
    for may_follow_comma in (_NEXT_ITEM_OR_CLOSER, _NEXT_ITEM_OR_CLOSER, _NEXT_ITEM):
        after_item = rf"{_BLANKS}(?::[ \t\n\r:]*+|,{may_follow_comma}{_BLANKS})?+"
        run = rf"(?:{item}){after_item}|{_BETWEEN_ITEMS}"
        item = rf"{scalar}|\{{(?!\{{)(?:{run})*+\}}|\[(?:{run})*+\]"
    return re.compile(rf"(?:{run})*+")


RUN: Final = _compile_run()
"""Matches text that consists of strict JSON and common mistakes (a run), with up to two levels of brackets."""
STRICT_RUN: Final = lazy_pattern(rf"(?:{_NUMBER_IN_RUN}|{_LITERAL}|{_BETWEEN_ITEMS})*+")
"""Matches text that consists of strict JSON without strings and brackets."""

_NEXT_MISTAKE = lazy_pattern(
    rf"((?:{STRICT_STRING}|[ \t\n\r:{{}}\[\]0-9.+-]++|(?<=[0-9.+-])[eE]++|{_LITERAL}|,(?!{_BLANKS}[}}\]]))*+)"
    rf"(?:({_PYTHON_LITERAL}|,)|({_SINGLE_QUOTED}|[^\W\d][\w$-]*+)|)"
)
"""Matches strict JSON in a run (group 1), then the next mistake, if any.

Group 2 is a Python literal or a trailing comma, group 3 a single-quoted string or an unquoted key.
"""
_REPAIRS: Final = {
    ",": ("trailing comma", " "),
    **{python: ("Python literal", literal) for python, literal in PYTHON_LITERALS.items()},
}
"""Maps each Python literal, and a trailing comma, to the description in the fix and to the replacement."""


def repair_run(text: str, start: int, end: int, fix_log: FixLog) -> tuple[list[str], list[str]]:
    """Repair `text[start:end]`, a match of `RUN`; return its pieces and their replacements. O(n) in characters."""
    source: list[str] = []
    repaired: list[str] = []
    counts: dict[str, int] = {}
    for strict, token, bare in _NEXT_MISTAKE.findall(text, start, end):
        if token:
            detail, repair = _REPAIRS[token]
        elif bare.startswith("'"):
            detail, repair = "single quotes", f'"{bare[1:-1]}"'
        elif bare:
            detail, repair = "unquoted key", f'"{bare}"'
        else:
            detail, repair = "", ""
        counts[detail] = counts.get(detail, 0) + 1
        source += (strict, token or bare)
        repaired += (strict, repair)
    counts.pop("", None)
    for detail, count in counts.items():
        fix_log.add(detail, count=count)
    return source, repaired


# The reader: from run to run, and one step for each bracket or mistake between them.


_LITERALS: Final = ("true", "false", "null", *PYTHON_LITERALS)
_NOT_NUMBERS: Final = frozenset({"NaN", "Infinity", "nan", "inf"})

_NOT_AT_VALUE_END = r"(?!\s*+(?:[}\],]|\Z))"
_TRIPLE = {
    quote: lazy_pattern(
        rf"(?:[^\\{quote}]++|\\.|{quote}(?!{quote * 2})|{quote * 3}{quote}*+{_NOT_AT_VALUE_END})*+{quote * 3}{quote}*+",
        re.DOTALL,
    )
    for quote in "\"'"
}
"""Maps each quote to the pattern of a triple-quoted string, from just after the opening quotes on.

The string ends at the first triple quotes that a comma, a closing bracket or the end of the text follows.
"""
MAX_WORD = 4096
"""Maximum number of characters that are read as one word outside of quotes.

The limit is needed because text that is not JSON may be a single word of 64 MB.
"""
_WORD = lazy_pattern(r"[^\W\d][\w$-]*+")
_COLON = lazy_pattern(r"\s*+:")
_TOKEN = lazy_pattern(r"-?[\w.+-]++|.?", re.DOTALL)
_NUMBER = lazy_pattern(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+")
_CUT_NUMBER = lazy_pattern(r"(?:[0-9.+-]|[0-9.][eE])\Z")
_COMMENT = r"//[^\n]*+\n|\#(?=[\s#!])[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/"
_COMMENTS = lazy_pattern(_COMMENT)
# A line break between two members as a backslash and an n: OpenHands/software-agent-sdk#2488.
_GAP = rf"(?:[\s\ufeff\u200b-\u200d\u2060]|\\[nrt]|{_COMMENT})"
_ODD_SPACE = lazy_pattern(rf"{_GAP}++")
_TRAILING = lazy_pattern(rf",{_GAP}*+(?=[}}\]])")
_UNCLOSED_COMMENT = lazy_pattern(r"//|\#[\s#!]|\#\Z|/\*|/\Z")
_AFTER_VALUE = lazy_pattern(r"\s*+[\],]")
_ONLY_CLOSERS = lazy_pattern(r"[\s}\]]*+\Z")


class RepairingReader:
    """Reads the value at `text[start]` with repairs. Each reader is used once.

    `supply_closers`: whether to add closing brackets that are missing at the end. `quotes`: finds the quote that ends a
    string; if it is None, the first quote ends the string.
    """

    def __init__(self, text: str, start: int, *, supply_closers: bool, quotes: QuoteResolver | None = None) -> None:
        self.text = text
        self.at = start
        """The index up to which the text has been repaired; after `read`, the end of the value."""
        self.supply_closers = supply_closers
        self.quotes = quotes
        self.fix_log = FixLog()
        self.supplied_closers = 0
        """Number of closing brackets that were supplied."""
        self.has_strings = False
        """Whether strings may have been read. If so, another guess at where they end may help."""
        self.entered_depth = 0
        """The deepest level of brackets that was entered one by one. Text skipped by `RUN` may have two more levels."""
        self._stack: list[OpenContainer] = []
        self._start = start
        self._copied_to = start
        self._source: list[str] = []
        """The pieces of the text up to `_copied_to`."""
        self._repaired: list[str] = []
        """The replacement of each piece in `_source`."""

    def read(self) -> ParsedValue:
        """Read the value. Raises `Unreadable` if no value can be read. O(n) in characters."""
        char = self.text[self.at : self.at + 1]
        if not char:
            raise self._truncated()
        if char in CLOSING_QUOTES or char in "[{":
            self._repair_next(char)
        else:
            self._repair_word()
        while self._stack:
            self._skip_run()
            char = self.text[self.at : self.at + 1]
            if not char:
                break
            if self.quotes and not self.quotes.guessed_quote and self.at > self.quotes.failed_at:
                raise Unreadable(self.at, "no string before holds quotes that are not escaped", "invalid_json")
            self._repair_next(char)
        self._replace(self.at, "", self.at)
        repaired = "".join(self._repaired)
        return self._decode_open(repaired) if self._stack else self._decode(repaired, len(repaired) + 1)

    def _skip_run(self) -> None:
        """Move past a run of strict JSON and common mistakes; repair the mistakes."""
        match = (RUN if self.quotes is None else STRICT_RUN).match(self.text, self.at)
        assert match is not None
        if match.end() == self.at:
            return
        self.has_strings = True
        if self.quotes is None:
            source, repaired = repair_run(self.text, self.at, match.end(), self.fix_log)
            self._replace(self.at, "", self.at)
            self._source += source
            self._repaired += repaired
            self._copied_to = match.end()
        self.at = match.end()

    def _decode_open(self, repaired: str) -> ParsedValue:
        """Decode text that ends inside containers; supply the missing closing brackets if that is allowed."""
        stripped = repaired.rstrip()
        # An agent whose cut-off arguments were completed ran in a loop (lobe-chat#13817). So no string or number is
        # completed here.
        number = _CUT_NUMBER.search(repaired, max(0, len(repaired) - 2))
        cut = len(repaired.rstrip("0123456789.eE+-") if number else stripped.rstrip(","))
        if (
            self.supply_closers
            and not (self.quotes and self.quotes.guessed_quote)
            and not number
            and stripped[-1] not in "{[,:"
        ):
            stripped += "".join(self._supply_closer() for _ in range(len(self._stack)))
            self.at = len(self.text.rstrip())
        return self._decode(stripped, cut)

    def _decode(self, repaired: str, cut: int) -> ParsedValue:
        """Decode strict JSON; an error at `cut` or later means that the text ended too early."""
        if repaired.startswith("{"):
            value, member_spans, end = read_members(repaired)
            if end is not None:
                fixes = self.fix_log.fixes()
                return ParsedValue(value, self.at, fixes, self.supplied_closers, member_spans, repaired[:end])
        decoder = JSONDecoder(object_pairs_hook=self._build_object, parse_float=parse_finite_float)
        try:
            value, _ = decoder.raw_decode(repaired)
        except JSONDecodeError as problem:
            if problem.pos >= cut:
                raise self._truncated() from None
            at = self._source_index(problem.pos)
            raise Unreadable(at, problem.msg, "invalid_json") from None
        except (ValueError, RecursionError):
            raise self._out_of_range() from None
        return ParsedValue(value, self.at, self.fix_log.fixes(), self.supplied_closers)

    def _repair_next(self, char: str) -> None:
        if char in CLOSING_QUOTES:
            self._repair_string(char)
        elif char in "[{":
            self._open_container(char)
        elif char in "]}":
            self._close_container(char)
        elif char == ",":
            if _TRAILING.match(self.text, self.at) and self._last_character() not in "[{,:":
                self.fix_log.add("trailing comma")
                self._replace(self.at, " ", self.at + 1)
            self.at += 1
        elif not self._repair_gap(char):
            self._repair_word()

    def _open_container(self, char: str) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise Unreadable(self.at, f"more than {MAX_DEPTH} levels of brackets", "limit")
        self.entered_depth = max(self.entered_depth, len(self._stack) + 1)
        # Models learn doubled braces from prompts that double them for a template engine.
        if char == "{" and self.text.startswith("{{", self.at):
            self.fix_log.add("doubled braces")
            self._replace(self.at, "", self.at + 1)
            self._stack.append((set(), "}}"))
            self.at += 2
            return
        self._stack.append((set(), "}" if char == "{" else "]"))
        self.at += 1

    def _close_container(self, char: str) -> None:
        closer = self._stack[-1][1]
        if self.text.startswith(closer, self.at):
            self._stack.pop()
            if len(closer) == 2:
                self._replace(self.at, "", self.at + 1)
            self.at += len(closer)
        elif len(closer) == 2 and char == "}" and _AFTER_VALUE.match(self.text, self.at + 1):
            self._stack.pop()  # only the opening brace was doubled
            self.at += 1
        elif (
            self.supply_closers
            and not (self.quotes and self.quotes.guessed_quote)
            and _ONLY_CLOSERS.match(self.text, self.at)
        ):
            # A model left out one brace, and LM Studio then dropped the whole call (lmstudio-bug-tracker#942).
            self._replace(self.at, self._supply_closer(), self.at)
            self.at += char == closer[0]
        else:
            raise Unreadable(self.at, f"{closer!r} was expected, not {char!r}", "invalid_json")

    def _supply_closer(self) -> str:
        """Close the innermost container, which the text left open; return the missing bracket."""
        closer = self._stack.pop()[1]
        self.fix_log.add(f"missing {closer[0]} supplied", "closer")
        self.supplied_closers += 1
        return closer[0]

    def _repair_string(self, quote: str) -> None:
        self.has_strings = True
        if self._repair_triple_quoted(quote):
            return
        start = self.at + 1
        is_key = bool(self._stack) and self._stack[-1][1] != "]" and self._last_character() in "{,"
        if self.quotes and not is_key:
            end = self.quotes.find_end(self.text, start, quote, self._stack)
            if self.quotes.has_inner_quotes:
                self.fix_log.add(UNESCAPED_QUOTES)
        else:
            match = STRING_BODIES[quote].match(self.text, start)
            if match is None:
                raise self._truncated()
            end = match.end()
        if quote != '"':
            self.fix_log.add("single quotes" if quote == "'" else "smart quotes")
        value = decode_string(self.text[start:end], self.fix_log)
        self._replace(self.at, encode_string(value), end + 1)
        self.at = end + 1
        if self.quotes and is_key:
            self._stack[-1][0].add(value)

    def _repair_triple_quoted(self, quote: str) -> bool:
        """Repair a value in Python's triple quotes; return whether there was such a value."""
        if quote not in _TRIPLE or not self.text.startswith(quote * 3, self.at) or self._last_character() not in ":[,":
            return False
        match = _TRIPLE[quote].match(self.text, self.at + 3)
        if match is None:
            raise self._truncated()
        self.fix_log.add("triple quotes")
        value = decode_string(self.text[self.at + 3 : match.end() - 3], self.fix_log)
        self._replace(self.at, encode_string(value), match.end())
        self.at = match.end()
        return True

    def _repair_word(self) -> None:
        """Repair an unquoted key or a Python literal; raise `Unreadable` for any other text."""
        match = _WORD.match(self.text, self.at, self.at + MAX_WORD)
        word = match[0] if match else ""
        end = self.at + len(word)
        if word and self._stack and _COLON.match(self.text, end):
            self.fix_log.add("unquoted key")
            self._replace(self.at, f'"{word}"', end)
            self._stack[-1][0].add(word)
        elif word in PYTHON_LITERALS:
            self.fix_log.add("Python literal")
            self._replace(self.at, PYTHON_LITERALS[word], end)
        elif len(self.text) in (end, self._end_of_minus()) and any(literal.startswith(word) for literal in _LITERALS):
            raise self._truncated()
        else:
            token = _TOKEN.match(self.text, self.at, self.at + MAX_WORD)
            unknown = token[0] if token else ""
            if not self._stack and _NUMBER.fullmatch(unknown):
                raise self._out_of_range()
            if unknown.lstrip("-") in _NOT_NUMBERS:
                raise Unreadable(self.at, f"{unknown} is not a JSON number", "invalid_json")
            # `{"action": listt_windows"}` was reported to a user as cut off, but it is not (hermes-agent#83229).
            raise Unreadable(self.at, f"{clip(unknown, 40)!r} is not JSON", "invalid_json")
        self.at = end

    def _end_of_minus(self) -> int:
        """Return the index past a minus sign, if there is one at the current index; else -1."""
        return self.at + 1 if self.text.startswith("-", self.at) else -1

    def _repair_gap(self, char: str) -> bool:
        """Replace a gap with a space: comments, escapes outside strings, and white space that JSON does not allow.

        Return whether there was such a gap.
        """
        before = self.text[self.at - 1]
        if char in "/#" and not (before.isspace() or before in "{[}]:,"):
            return False
        match = _ODD_SPACE.match(self.text, self.at)
        if match:
            rest, comments = _COMMENTS.subn("", match[0])
            if comments:
                self.fix_log.add("comment")
            if "\\" in rest:
                self.fix_log.add("escaped white space outside strings")
            elif rest.strip(" \t\n\r"):
                self.fix_log.add("white space that JSON does not know")
            self._replace(self.at, " ", match.end())
            self.at = match.end()
        if _UNCLOSED_COMMENT.match(self.text, self.at):
            raise self._truncated()
        return match is not None

    def _replace(self, start: int, replacement: str, end: int) -> None:
        """Copy the text up to `start`, then write `replacement` instead of `text[start:end]`."""
        unchanged = self.text[self._copied_to : start]
        self._source += (unchanged, self.text[start:end])
        self._repaired += (unchanged, replacement)
        self._copied_to = end

    def _last_character(self) -> str:
        """Return the last character of the repaired text that is not white space."""
        at = self.at
        while at > self._copied_to:
            at -= 1
            if not self.text[at].isspace():
                return self.text[at]
        return next((piece.rstrip()[-1] for piece in reversed(self._repaired) if piece.strip()), "")

    def _source_index(self, repaired_index: int) -> int:
        """Return the index in the model's text for an index in the repaired text."""
        at = start = self._start
        for source, repaired in zip(self._source, self._repaired, strict=True):
            if repaired_index >= 0:
                at = start + min(repaired_index, len(repaired))
            start += len(source)
            repaired_index -= len(repaired)
        return at

    def _truncated(self) -> Unreadable:
        return Unreadable(len(self.text), "the text ends inside the value", "truncated")

    def _out_of_range(self) -> Unreadable:
        return Unreadable(self.at, "a number is too long or out of range", "limit")

    def _build_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            for key in (key for key, count in counts.items() if count > 1):
                self.fix_log.add(f"key {clip(key, 60)!r} came twice: the last one counts", "duplicate")
        return members
