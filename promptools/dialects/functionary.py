r"""Functionary v3.2: `>>>name` and the arguments on the next line; and v2, whose messages have a recipient.

    >>>all\nLet me look.\n>>>get_weather\n{"city": "Oslo"}
    <|from|>assistant\n<|recipient|>get_weather\n<|content|>{"city": "Oslo"}

The first `>>>` is in the prompt, and so are v2's first two tokens. `all` is the user. Source: MeetKai/functionary,
prompt templates v2 and v3.2 (2024-01, 2024-08); v3.1 is Llama's `<function=...>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from promptools.dialects.base import A_NAME, Head, Textual, Tier
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.declaration import explain, lines
from promptools.dialects.interpreter import CODE, NAMES, CodeCandidate, interpreter
from promptools.dialects.openings import either, then, token, tokens
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Candidate, Part, Undecided
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_NAME = r"[^\W\d][\w./:-]{0,127}+"
_LINE = r"[ \t]{0,8}\r?\n"
_FROM = then(token("<|from|>"), r"[ \t]?", token("assistant"), _LINE)
_TO = either(then(_FROM, token("<|recipient|>")), token("<|recipient|>"))
_CONTENT = token("<|content|>")
_NAMED = re.compile(r"(?:<\|from\|>\s*assistant\s*)?(?:<\|recipient\|>|>>>)?\s*([^\s<>]+)")
_USERS = re.compile(rf"(?:(?:{_FROM})?<\|recipient\|>[ \t]?)?all{_LINE}<\|content\|>[ \t]?|(?:>>>)?all{_LINE}")
_INTERPRETER = re.compile(rf">>>(?P<name>{'|'.join(NAMES)}){_LINE}")
_CALL = re.compile(rf"^>>>({_NAME}){_LINE}\s{{0,8}}\{{", re.MULTILINE)
ALL = "all"
HOLD = 4096
"""Characters of content that are held back until the header of a call shows that the line before was one too."""

CLOSERS = Closers(right=("<|stop|>",), wrong=(), openers=(">>>", "<|from|>", "<|recipient|>"), needed=False)


def _offered(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether the line is the name of an offered tool, with a bracket after it."""
    del fresh
    name = text[start:end].lstrip(">").partition("\n")[0].strip()
    if rules.tools is None or end < len(text):
        known = rules.tools is None or rules.tools.get(name) is not None
        return known and text[end : end + 1] == "{" if end < len(text) else None
    return None if any(offered.startswith(name) for offered in rules.tools.names) else False


def _code(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether the line names an interpreter that is offered, with code after it."""
    del fresh
    header = _INTERPRETER.fullmatch(text, start, end)
    if header is None:
        return None if end == len(text) else False
    if interpreter(rules.tools, header["name"]) is None:
        return False
    return None if end == len(text) else text[end] != "{"


def _offered_before(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether this is a header without its first tokens; if the tools are not known, any first word might be one."""
    return rules.tools is not None and _offered(text, start, end, fresh=fresh, rules=rules)


def _to_all(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether this is a complete header of content for the user, and not a line of a program."""
    del rules
    if text[start] in ">a" and not fresh:
        return False
    return True if _USERS.fullmatch(text, start, end) else (None if end == len(text) else False)


def _content_to_all(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether this is v2's complete header for the user, without its first tokens."""
    if "<|content|>" in text[start:end]:
        return _to_all(text, start, end, fresh=fresh, rules=rules)
    return None if fresh and end == len(text) else False


def _perhaps_to_all(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether the first line of the reply may be a header for the user without its marker."""
    if rules.tools is None or rules.strictness == "strict" or rules.expect == "functionary":
        return False
    return _to_all(text, start, end, fresh=fresh, rules=rules)


class Functionary(Textual):
    """`>>>name`, and the arguments on the next line."""

    name = "functionary"
    models = "Functionary v2 and v3.2"
    tier: Tier = "B"
    heads = (
        Head((), then(token(">>>"), _NAME, _LINE, r"\s{0,8}"), opens="{", gate=">", begins=_offered, line=True),
        Head((), then(token(">>>"), tokens(NAMES), _LINE), opens="", gate=">", begins=_code, line=True, alias=CODE),
        Head((), then(token(">>>"), token("all"), _LINE), opens="", gate=">", begins=_to_all, line=True, tier="A"),
        Head((), then(_NAME, _LINE, r"\s{0,8}"), opens="{", gate=A_NAME, begins=_offered, line=True, asked=True),
        Head((), then(_NAME, _LINE, _CONTENT, r"\s{0,8}"), opens="{", gate=A_NAME, begins=_offered_before, line=True,
             first=True, tier="A"),
        Head((), then(token(ALL), _LINE, _CONTENT, r"[ \t]?"), opens="", gate="a", begins=_content_to_all, line=True,
             first=True, tier="A"),
        Head((), then(token(ALL), _LINE), opens="", gate="a", begins=_perhaps_to_all, line=True, first=True, tier="A",
             alias=ALL),
        Head((), then(token(ALL), _LINE), opens="", gate="a", begins=_to_all, line=True, first=True, asked=True),
        Head(
            ("<|from|>", "<|recipient|>"), then(_TO, r"[ \t]?", _NAME, _LINE, _CONTENT, r"\s{0,8}"), opens="{", tier="S"
        ),
        Head(
            ("<|from|>", "<|recipient|>"),
            then(_TO, r"[ \t]?", token("all"), _LINE, _CONTENT, r"[ \t]?"),
            opens="",
            begins=_to_all,
            tier="S",
        ),
    )  # fmt: skip
    closers = ("<|stop|>",)

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the bracket of the arguments; without a head, from the header for the user."""
        if head == CODE:
            return CodeCandidate(_INTERPRETER, rules, place, firm=firm)
        if head == ALL:
            return HeldCandidate(rules, firm=firm)
        if not head:
            return UserCandidate(firm=firm)
        recipient = _NAMED.match(head)
        return WrappedCandidate(head, CLOSERS, rules, place, firm=firm, name=recipient[1] if recipient else "")

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return explain(self.render_calls, tools, lines(tools), parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "\n".join(f">>>{call.name}\n{call.arguments_json}" for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"Result of {result.name}:\n{result.content}" for result in results)


class UserCandidate(Undecided):
    """The header of content for the user: markup, complete as soon as it comes."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read the header."""
        header = _USERS.match(piece, start)
        assert header is not None
        self.parts = [Part("markup", header[0])]
        return header.end()

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        del finish_reason


class HeldCandidate(Undecided):
    """A line `all`, which is a header if the header of a call follows, and else content."""

    def __init__(self, rules: Rules, *, firm: bool) -> None:
        super().__init__(firm=firm)
        self._rules = rules
        self._text = ""
        self._at = 0
        """The offset before which no header of a call begins."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        end = min(len(piece), start + HOLD - len(self._text))
        self._text += piece[start:end]
        for call in _CALL.finditer(self._text, self._at) if "{" in piece[start:end] else ():
            tools = self._rules.tools
            if tools is not None and tools.get(call[1]) is not None:
                self._decide("markup")
                return end
        self._at = self._text.rfind("{") + 1  # a header has one, at its end
        if len(self._text) < HOLD:
            return None
        self._decide("text")
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        del finish_reason
        self._decide("text")

    def _decide(self, kind: Literal["markup", "text"]) -> None:
        header = _USERS.match(self._text)
        assert header is not None
        self.parts = [Part(kind, header[0])]
        self.rest = self._text[header.end() :]
