r"""Functionary v3.2: `>>>name` and the arguments on the next line; and v2, whose messages have a recipient.

    >>>all\nLet me look.\n>>>get_weather\n{"city": "Oslo"}
    <|from|>assistant\n<|recipient|>get_weather\n<|content|>{"city": "Oslo"}

The prompt already contains the first `>>>` or, in v2, the first two tokens, so a reply lacks them. The recipient `all`
is the user. Source: MeetKai/functionary, prompt templates v2 and v3.2 (2024-01, 2024-08). The format of v3.1 is
Llama's `<function=...>`.
"""

from __future__ import annotations

import re
from typing import Literal

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prefix_patterns import any_literal_text, any_of, literal_text, sequence
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.free_text import CODE_ALIAS, INTERPRETER_NAMES, CodeCandidate, find_interpreter
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import NamedMarkerJson
from promptools.dialects.table import read_family
from promptools.parsing.parts import NEED_MORE, Candidate, CandidateBase, NeedMore, Part
from promptools.patterns import lazy_pattern

_NAME = r"[^\W\d][\w./:-]{0,127}+"
_LINE_END = r"[ \t]{0,8}", r"\r?", r"\n"
_LINE = "".join(_LINE_END)
_FROM = sequence(literal_text("<|from|>"), r"[ \t]?", literal_text("assistant"), *_LINE_END)
_TO = any_of(sequence(_FROM, literal_text("<|recipient|>")), literal_text("<|recipient|>"))
_CONTENT = literal_text("<|content|>")
_NAMED = lazy_pattern(r"(?:<\|from\|>\s*assistant\s*)?(?:<\|recipient\|>|>>>)?\s*([^\s<>]+)")
_USER_HEADER = lazy_pattern(rf"(?:(?:{_FROM})?<\|recipient\|>[ \t]?)?all{_LINE}<\|content\|>[ \t]?|(?:>>>)?all{_LINE}")
_INTERPRETER = lazy_pattern(rf">>>(?P<name>{'|'.join(INTERPRETER_NAMES)}){_LINE}")
_CALL = lazy_pattern(rf"^>>>({_NAME}){_LINE}\s{{0,8}}\{{", re.MULTILINE)
ALL_ALIAS = "all"
MAX_HELD = 4096
"""Maximum number of characters that are held back if the first line is `all`.

If these characters contain the header of a call, the line `all` is a header too. If not, it is content.
"""

CLOSERS = Closers(right=("<|stop|>",), wrong=(), openers=(">>>", "<|from|>", "<|recipient|>"), required=False)


def _call_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the line is an offered tool's name, perhaps after `>>>`, and a `{` follows it."""
    del fresh
    name = text[start:end].lstrip(">").partition("\n")[0].strip()
    if options.tools is None or end < len(text):
        known = options.tools is None or options.tools.get(name) is not None
        return known and text[end : end + 1] == "{" if end < len(text) else NEED_MORE
    return NEED_MORE if any(offered.startswith(name) for offered in options.tools.all_names) else False


def _code_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the line is `>>>` and the name of an offered code interpreter, and code follows it."""
    del fresh
    header = _INTERPRETER.fullmatch(text, start, end)
    if header is None:
        return NEED_MORE if end == len(text) else False
    if find_interpreter(options.tools, header["name"]) is None:
        return False
    return NEED_MORE if end == len(text) else text[end] != "{"


def _stripped_call_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the text begins a call whose first tokens are missing.

    Return False if the tools are unknown, since then any word could be a name.
    """
    return options.tools is not None and _call_begins(text, start, end, fresh=fresh, options=options)


def _user_header_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether `text[start:end]` is a complete header that addresses the user, and not a line of a program."""
    del options
    if text[start] in ">a" and not fresh:
        return False
    return True if _USER_HEADER.fullmatch(text, start, end) else (NEED_MORE if end == len(text) else False)


def _stripped_user_header_begins(
    text: str, start: int, end: int, *, fresh: bool, options: ParseOptions
) -> bool | NeedMore:
    """Return whether `text[start:end]` is a v2 header that addresses the user but lacks its first tokens."""
    if "<|content|>" in text[start:end]:
        return _user_header_begins(text, start, end, fresh=fresh, options=options)
    return NEED_MORE if fresh and end == len(text) else False


def _first_line_user_header_begins(
    text: str, start: int, end: int, *, fresh: bool, options: ParseOptions
) -> bool | NeedMore:
    """Return whether the first line of the reply may be a header that addresses the user but lacks its `>>>`."""
    if options.tools is None or options.strictness == "strict" or options.expect == "functionary":
        return False
    return _user_header_begins(text, start, end, fresh=fresh, options=options)


_STRIPPED_ALL = Head(
    (),
    sequence(literal_text(ALL_ALIAS), *_LINE_END),
    body_starts="",
    gate=f"(?=[a]){literal_text(ALL_ALIAS)}",
    begins=_user_header_begins,
    at_line_start=True,
    at_start=True,
)
"""Finds the line `all` at the beginning of a reply.

The line is a header that addresses the user if a server has stripped the reply's markers.
"""
HEADS = (
    Head(
        (),
        sequence(literal_text(">>>"), _NAME, *_LINE_END, r"\s{0,8}"),
        body_starts="{",
        gate=">",
        begins=_call_begins,
        at_line_start=True,
    ),
    Head(
        (),
        sequence(literal_text(">>>"), any_literal_text(INTERPRETER_NAMES), *_LINE_END),
        body_starts="",
        gate=">",
        begins=_code_begins,
        at_line_start=True,
        alias=CODE_ALIAS,
    ),
    Head(
        (),
        sequence(literal_text(">>>"), literal_text("all"), *_LINE_END),
        body_starts="",
        gate=">",
        begins=_user_header_begins,
        at_line_start=True,
        tier="A",
    ),
    Head(
        (),
        sequence(_NAME, *_LINE_END, r"\s{0,8}"),
        body_starts="{",
        gate=NAME_GATE,
        begins=_call_begins,
        at_line_start=True,
        on_request=True,
    ),
    Head(
        (),
        sequence(_NAME, *_LINE_END, _CONTENT, r"\s{0,8}"),
        body_starts="{",
        gate=NAME_GATE,
        begins=_stripped_call_begins,
        at_line_start=True,
        at_start=True,
        tier="A",
    ),
    _STRIPPED_ALL._replace(
        pattern=sequence(literal_text(ALL_ALIAS), *_LINE_END, _CONTENT, r"[ \t]?"),
        begins=_stripped_user_header_begins,
        tier="A",
    ),
    _STRIPPED_ALL._replace(begins=_first_line_user_header_begins, tier="A", alias=ALL_ALIAS),
    _STRIPPED_ALL._replace(on_request=True),
    Head(
        ("<|from|>", "<|recipient|>"),
        sequence(_TO, r"[ \t]?", _NAME, *_LINE_END, _CONTENT, r"\s{0,8}"),
        body_starts="{",
        tier="S",
    ),
    Head(
        ("<|from|>", "<|recipient|>"),
        sequence(_TO, r"[ \t]?", literal_text("all"), *_LINE_END, _CONTENT, r"[ \t]?"),
        body_starts="",
        begins=_user_header_begins,
        tier="S",
    ),
)


class Functionary(NamedMarkerJson):
    """The dialect of Functionary: `>>>name`, and the arguments on the next line."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` for the arguments after `head`, for code, or for a header that addresses the user."""
        if head == CODE_ALIAS:
            return CodeCandidate(_INTERPRETER, options, evidence, definite=definite)
        if head == ALL_ALIAS:
            return HeldHeaderCandidate(options, definite=definite)
        if not head:
            return UserHeaderCandidate(definite=definite)
        recipient = _NAMED.match(head)
        return JsonBlockReader(
            head, CLOSERS, options, evidence, definite=definite, name=recipient[1] if recipient else ""
        )


def functionary() -> DeclaredDialect:
    """Return the dialect of Functionary."""
    dialect = read_family("functionary", Functionary)
    dialect.heads = HEADS
    return dialect


class UserHeaderCandidate(CandidateBase):
    """Reads a header that addresses the user. The header is markup, whatever text follows it."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read the header; return the index just past it."""
        header = _USER_HEADER.match(piece, start)
        assert header is not None
        self.parts = [Part("markup", header[0])]
        return header.end()

    def close(self, finish_reason: str | None) -> None:
        """Do nothing, since `feed` has made the decision."""
        del finish_reason


class HeldHeaderCandidate(CandidateBase):
    """Reads a reply whose first line is `all`. This line is a header if a call's header comes later, else content."""

    def __init__(self, options: ParseOptions, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._options = options
        self._text = ""
        self._at = 0
        """The offset from which the text is still to be searched for the header of a call."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past what was read, or None if more text is needed."""
        end = min(len(piece), start + MAX_HELD - len(self._text))
        self._text += piece[start:end]
        for call in _CALL.finditer(self._text, self._at) if "{" in piece[start:end] else ():
            tools = self._options.tools
            if tools is not None and tools.get(call[1]) is not None:
                self._decide("markup")
                return end
        self._at = self._text.rfind("{") + 1  # the header of a call ends with a brace
        if len(self._text) < MAX_HELD:
            return None
        self._decide("text")
        return end

    def close(self, finish_reason: str | None) -> None:
        """Treat the line as content, since no more text will come."""
        del finish_reason
        self._decide("text")

    def _decide(self, kind: Literal["markup", "text"]) -> None:
        header = _USER_HEADER.match(self._text)
        assert header is not None
        self.parts = [Part(kind, header[0])]
        self.unread = self._text[header.end() :]
