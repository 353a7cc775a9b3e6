"""How Python calls after a marker begin, and which body follows the marker: calls or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.resolve import PLAUSIBLE_NAME
from promptools.dialects.contract import NAME_GATE, Head, Tier
from promptools.dialects.prefix_patterns import label_gate, literal_text, sequence
from promptools.dialects.readers.literals.python_names import name_pattern
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.parsing.parts import NEED_MORE, Candidate, CandidateBase, NeedMore
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import unescape_name

CALLEE = name_pattern(r"\w", r"[\w.:/-]", 80)
SPACED_CALLEE = name_pattern(r"\w", r"[\w.:/ -]", 80)
LIST_PATTERN = rf"\[\s{{0,64}}+(?:\Z|{SPACED_CALLEE}(?:\Z|\())"
BARE_LIST = CallLayout(brackets=True, spaced_names=True)
"""The layout of a list of calls without markers."""
_OTHER_STATEMENT = (
    r"print[ \t]?(?:\Z|\()|await[ \t]|[A-Za-z_]\w{0,63}+[ \t]{0,4}+(?:\Z|=)|\[\s{0,16}+(?:\Z|\w)|#(?:\Z|[^#])"
)
"""The beginning of a statement that does not begin with a tool's name."""
_LIST_NAME = lazy_pattern(r"\[\s*([^(]*)\(")
_CALLEE = lazy_pattern(rf"(?:\[\s{{0,16}}+)?({CALLEE})[ \t]{{0,8}}+\(")
_FIRST_OF_BODY = lazy_pattern(r"\s*+(?:\[\s*+)?+(\S)")


def begins_with_marker(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | NeedMore:
    """Return True once something follows a marker that alone begins calls."""
    del start, fresh, rules
    return True if end < len(text) else NEED_MORE


def begins_offered_call(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | NeedMore:
    """Return whether the first call after a marker that JSON may also follow is of an offered tool."""
    del start, fresh
    match = _CALLEE.match(text, end)
    if match is None:
        return NEED_MORE if end == len(text) else False
    return rules.tools is not None and rules.tools.find(unescape_name(match[1])) is not None


def fence_heads(label: str) -> tuple[Head, ...]:
    """Return the heads of a program in a code fence with this label, whose statements call tools."""
    call = Head(
        (),
        name_pattern("[A-Za-z_]", r"[\w.]", 63) + r"[ \t]{0,4}+(?:\Z|\()",
        body_starts="",
        gate=NAME_GATE,
        begins=begins_with_marker,
        at_line_start=True,
        fenced=True,
        fence_labels=(label,),
    )
    return call, call._replace(pattern=_OTHER_STATEMENT, gate=_OTHER_STATEMENT)


def program_head(opener: str, dialect: str) -> Head:
    """Return the head of a program after a marker: read only in lenient parsing, or if the request asked for it."""

    def begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | NeedMore:
        if rules.strictness != "lenient" and rules.expect != dialect:
            return False
        return begins_with_marker(text, start, end, fresh=fresh, rules=rules)

    pattern = rf"{literal_text(opener)}(?:\Z|\s{{0,64}}+(?:\Z|(?=[A-Za-z_#])))"
    return Head((opener,), pattern, body_starts="c", begins=begins)


def label_head(label: str) -> Head:
    """Return the head of calls after a label at the beginning of a line."""
    return Head(
        (label,),
        rf"{literal_text(label)}(?:\Z|[ \t]{{0,8}}+(?:(?={CALLEE}\()|\Z|{CALLEE}\Z))",
        body_starts="c",
        gate=label_gate(label.split(maxsplit=1)[0]),
        begins=begins_with_marker,
        at_line_start=True,
        unindented=True,
    )


def marker_head(
    *openers: str, json: bool = False, spaced: bool = False, tier: Tier | None = None, fence_label: str = ""
) -> Head:
    """Return the head of calls after one of these markers; `json`: objects may follow them too.

    After a sentinel a bracket is enough, so that a reply that breaks off there is not text. A code fence with the label
    `fence_label` may be around the calls, and then the head includes its first line.
    """
    name = SPACED_CALLEE if spaced else CALLEE
    bracket = r"(?:\[\s{0,16}+)?"
    first = [rf"{bracket}{name}[ \t]{{0,8}}+\(", *([r"\{"] if json else []), *([r"\["] if tier == "S" else [])]
    unfinished = rf"{bracket}(?:\Z|{name}[ \t]{{0,8}}+\Z)"
    finished = rf"(?={'|'.join(first)})"
    marker = "|".join(map(re.escape, openers))
    body = f"{finished}|{unfinished}"
    if fence_label:
        fence = literal_text(f"```{fence_label}")
        body += "|" + sequence(fence, r"[ \t]{0,8}+", r"\n", rf"\s{{0,64}}+(?:{body})")
    return Head(
        openers,
        rf"(?:{marker})\s{{0,64}}+(?:{body})",
        body_starts="[",
        begins=begins_with_marker,
        tier=tier,
    )


def list_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | NeedMore:
    """Whether a bracket begins a list of calls: of an offered tool, or of any if no text came before."""
    named = _LIST_NAME.fullmatch(text, start, end)
    if named is None:
        return NEED_MORE
    if rules.tools is None:
        return fresh and PLAUSIBLE_NAME.match(unescape_name(named[1].strip())) is not None
    return rules.tools.find(unescape_name(named[1])) is not None


def list_head(*, tier: Tier | None = None, on_request: bool = False, fence_labels: tuple[str | None, ...] = ()) -> Head:
    """Return the head of a list of calls without markers."""
    return Head(
        ("[",),
        LIST_PATTERN,
        body_starts="",
        gate=LIST_PATTERN,
        begins=list_begins,
        tier=tier,
        on_request=on_request,
        fence_labels=fence_labels,
    )


class CallsOrJson(CandidateBase):
    """A body that may be calls or JSON: its first characters decide which reader takes it."""

    def __init__(
        self, head: str, calls: Callable[[], Candidate], json: Callable[[], Candidate], *, definite: bool
    ) -> None:
        super().__init__(definite=definite, head=head)
        self._calls = calls
        self._json = json
        self._held_text = ""
        self._inner: Candidate | None = None

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        if self._inner is not None:
            self._inner.head = self.head
            end = self._inner.feed(piece, start)
            self._mirror(self._inner)
            return end
        held, self._held_text = self._held_text, self._held_text + piece[start:]
        match = _FIRST_OF_BODY.match(self._held_text)
        if match is None:
            return None
        self._inner = inner = self._choose(match)
        end = inner.feed(self._held_text, 0)
        self._mirror(inner)
        if end is None:
            return None
        assert end >= len(held)  # a bracket and white space do not decide it
        return start + end - len(held)

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        if self._inner is None:
            self._inner = self._calls()
            self._inner.feed(self._held_text, 0)
        self._inner.head = self.head
        self._inner.close(finish_reason)
        self._mirror(self._inner)

    def _choose(self, match: re.Match[str]) -> Candidate:
        return self._json() if match[1] == "{" else self._calls()

    def _mirror(self, inner: Candidate) -> None:
        """Copy the state of the inner candidate."""
        self.parts, self.unread, self.head, self.definite = inner.parts, inner.unread, inner.head, inner.definite
        self.early += inner.early
        inner.early = []
        self.tries = inner.tries
