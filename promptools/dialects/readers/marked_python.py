"""The dialect kind `python`: calls in Python's syntax between two markers or after a label, and how to find them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import PLAUSIBLE_NAME
from promptools.dialects.contract import NAME_GATE, Head, Tier
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import label_gate, literal_text, sequence
from promptools.dialects.prompt import Instructions
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.python_arguments import name_pattern
from promptools.dialects.readers.python_reader import FENCE, CallLayout, PythonCallReader
from promptools.dialects.written_calls import PythonValues, python_calls
from promptools.parsing.parts import NEED_MORE, Candidate, CandidateBase, NeedMore
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import unescape_name
from promptools.types import Call

# How Python calls after a marker begin, and which body follows the marker: calls or JSON.


CALLEE = name_pattern(r"\w", r"[\w.:/-]", 80)
SPACED_CALLEE = name_pattern(r"\w", r"[\w.:/ -]", 80)
LIST_PATTERN = rf"\[\s{{0,64}}+(?:\Z|{SPACED_CALLEE}(?:\Z|\())"
BARE_LIST = CallLayout(brackets=True, spaced_names=True)
"""The `CallLayout` of a list of calls without markers."""
_OTHER_STATEMENT = (
    r"print[ \t]?(?:\Z|\()|await[ \t]|[A-Za-z_]\w{0,63}+[ \t]{0,4}+(?:\Z|=)|\[\s{0,16}+(?:\Z|\w)|#(?:\Z|[^#])"
)
"""The pattern of the beginning of a statement that does not begin with a tool's name."""
_LIST_NAME = lazy_pattern(r"\[\s*([^(]*)\(")
_CALLEE = lazy_pattern(rf"(?:\[\s{{0,16}}+)?({CALLEE})[ \t]{{0,8}}+\(")
_FIRST_OF_BODY = lazy_pattern(r"\s*+(?:\[\s*+)?+(\S)")


def begins_with_marker(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return True once any text follows the marker, because the marker itself shows that calls begin."""
    del start, fresh, options
    return True if end < len(text) else NEED_MORE


def begins_offered_call(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a call to an offered tool follows the marker at `text[start:end]`.

    This check is for markers that may be followed by JSON rather than by a Python call.
    """
    del start, fresh
    match = _CALLEE.match(text, end)
    if match is None:
        return NEED_MORE if end == len(text) else False
    return options.tools is not None and options.tools.find(unescape_name(match[1])) is not None


def fence_heads(label: str) -> tuple[Head, ...]:
    """Return the `Head` objects that find a program of tool calls in a code fence with this label."""
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
    """Return a `Head` that finds a program of tool calls after a marker.

    The program is read only in lenient parsing, or if the request asked for `dialect`.
    """

    def begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        if options.strictness != "lenient" and options.expect != dialect:
            return False
        return begins_with_marker(text, start, end, fresh=fresh, options=options)

    pattern = rf"{literal_text(opener)}(?:\Z|\s{{0,64}}+(?:\Z|(?=[A-Za-z_#])))"
    return Head((opener,), pattern, body_starts="c", begins=begins)


def label_head(label: str) -> Head:
    """Return a `Head` that finds Python calls after a label at the beginning of a line."""
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
    """Return a `Head` that finds Python calls after any of several markers.

    `json`: whether JSON objects may also follow the markers. `spaced`: whether names of tools may contain spaces.
    `tier`: how distinctive the markers are. After special tokens ("S"), a square bracket alone begins calls, so that a
    reply that breaks off there is not taken for text. `fence_label`: the label of a code fence that may be around the
    calls; the head includes the fence's first line.
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


def list_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a bracket begins a list of calls, that is, whether the first call is to an offered tool.

    If the tools are unknown, any plausible name is accepted, but only if no text comes before the list.
    """
    named = _LIST_NAME.fullmatch(text, start, end)
    if named is None:
        return NEED_MORE
    if options.tools is None:
        return fresh and PLAUSIBLE_NAME.match(unescape_name(named[1].strip())) is not None
    return options.tools.find(unescape_name(named[1])) is not None


def list_head(*, tier: Tier | None = None, on_request: bool = False, fence_labels: tuple[str | None, ...] = ()) -> Head:
    """Return a `Head` that finds a list of Python calls without markers."""
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
    """Reads a body that is Python calls or JSON. The first characters of the body decide which reader is used."""

    def __init__(
        self, head: str, calls: Callable[[], Candidate], json: Callable[[], Candidate], *, definite: bool
    ) -> None:
        super().__init__(definite=definite, head=head)
        self._calls = calls
        self._json = json
        self._held_text = ""
        self._inner: Candidate | None = None

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
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
        assert end >= len(held)  # a bracket and white space decide nothing
        return start + end - len(held)

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        if self._inner is None:
            self._inner = self._calls()
            self._inner.feed(self._held_text, 0)
        self._inner.head = self.head
        self._inner.close(finish_reason)
        self._mirror(self._inner)

    def _choose(self, match: re.Match[str]) -> Candidate:
        return self._json() if match[1] == "{" else self._calls()

    def _mirror(self, inner: Candidate) -> None:
        """Copy the state of the inner candidate to this one."""
        self.parts, self.unread, self.head, self.definite = inner.parts, inner.unread, inner.head, inner.definite
        self.early += inner.early
        inner.early = []
        self.tries = inner.tries


# The kind.


PYTHON_TEXTS: CommonKeys = {
    "tool": "{function}",
    "tools": ("[", ",\n", "]"),
    "result": "{name} returned:\n{content}",
    "error": "{name} failed:\n{content}",
    "results": ("", "\n\n", ""),
}


@lru_cache(maxsize=8)
def fence_layout(run: str) -> CallLayout:
    """Return the `CallLayout` of a program in a code fence. `run`: the fence's opening, such as three backticks."""
    return CallLayout(closers=(run,), one_per_line=True, statements=True)


def _with_texts(common: CommonKeys, separator: str) -> CommonKeys:
    """Return the keys of a dialect's table, with the default texts of this kind of dialect for missing keys.

    `separator`: the text between two calls.
    """
    several = (
        "Write one call a line to call several."
        if separator == "\n"
        else "Several calls are written like this:\n\n{calls}"
    )
    instructions = {"parallel": several, **common.get("instructions", {})}
    return {**PYTHON_TEXTS, **common, "instructions": instructions}


class MarkedPythonCalls(DeclaredDialect):
    """A dialect whose calls are in Python's syntax.

    The constructor's arguments are the keys of a TOML table that declares such a dialect; see
    `promptools.dialects.table`.
    """

    wording: ClassVar = Instructions(
        text="""{format}

Name each argument, and write its value as a literal of Python. {when}

The functions are:

{tools}""",
        format="You can call functions. To do so, write a call like this, and nothing after it:"
        "\n\n{call}\n\n{how_many}",
        single="Call one function at a time.",
        required="You must call a function in this turn.",
        optional="If no function is needed, answer in plain text.",
    )

    def __init__(
        self,
        name: str,
        openers: Mapping[str, str],
        *,
        also: Sequence[str] = (),
        at_line_start: bool = False,
        spaces: Sequence[str] = ("", ""),
        separator: str = "\n",
        json: bool = False,
        bare_list: bool = False,
        statements: bool = False,
        repeats: bool = False,
        closer_is_final: bool = False,
        fence_label: str = "",
        values: PythonValues = "literals",
        **common: Unpack[CommonKeys],
    ) -> None:
        marked = {opener: closer for opener, closer in openers.items() if opener}
        closing = tuple(dict.fromkeys(filter(None, (*marked.values(), *also))))
        opener, closer = next(iter(openers.items()))
        self._before, self._after = f"{opener}{spaces[0]}", f"{spaces[1]}{closer}"
        self._fenced = opener.startswith(FENCE)
        alone = () if self._fenced else closing  # the end of a fence is also the beginning of one
        keys: CommonKeys = {"closers": alone, **_with_texts(common, separator)}
        super().__init__(name, **keys)
        self._separator = separator
        self._values: PythonValues = values
        self._fence_label = fence_label
        heads = self._make_heads(marked, json=json, at_line_start=at_line_start, statements=statements)
        bare = bare_list or "" in openers
        self.heads = (*heads, *([list_head(tier="B", on_request=True)] if bare else []))
        self._layout = CallLayout(
            closers=closing,
            brackets=False if at_line_start or statements else None,
            one_per_line=bool(closing),
            spaced_names=True,
            statements=statements,
            may_repeat=repeats,
            closer_is_final=closer_is_final,
        )
        self._layout_in_fence = replace(self._layout, fenced=True)
        self._json_closers = Closers(right=closing, wrong=(), openers=tuple(marked)) if json else None

    def _make_heads(
        self, openers: Mapping[str, str], *, json: bool, at_line_start: bool, statements: bool
    ) -> tuple[Head, ...]:
        if self._fenced:
            return fence_heads(next(iter(openers)).removeprefix(FENCE))
        if at_line_start:
            return tuple(map(label_head, openers))
        if statements:
            return tuple(program_head(marker, self.name) for marker in openers)
        if not openers:
            return ()
        return (marker_head(*openers, json=json, spaced=True, tier=self.tier, fence_label=self._fence_label),)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a reader of the calls.

        The text to read starts at the first call, or at the square bracket before the first call.
        """
        closers = self._json_closers
        if self._fenced:  # the label is as much evidence as a tag
            run = head[: len(head) - len(head.lstrip(head[:1]))] or FENCE
            definite = definite or options.strictness != "strict"
            return PythonCallReader(head, fence_layout(run), options, evidence, definite=definite)
        if not head:
            return PythonCallReader(head, BARE_LIST, options, evidence, definite=definite)
        if self._fence_label and FENCE in head:
            return PythonCallReader(head, self._layout_in_fence, options, evidence, definite=definite)
        if closers is None:
            return PythonCallReader(head, self._layout, options, evidence, definite=definite)
        return CallsOrJson(
            head,
            lambda: PythonCallReader(head, self._layout, options, evidence, definite=definite),
            lambda: JsonBlockReader(head, closers, options, evidence, definite=definite),
            definite=definite,
        )

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Return calls as text in the model's own format."""
        written = self._separator.join(python_calls(calls, self._values))
        return f"{self._before}{written}{self._after}" if calls else ""
