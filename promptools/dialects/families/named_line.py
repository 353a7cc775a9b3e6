"""Bare calls: the name of an offered tool at the beginning of a line, and its arguments.

    get_weather(city="Oslo")
    get_weather{"city": "Oslo"}
    get_weather
    {"city": "Oslo"}
    tool_name: get_weather
    arguments: {"city": "Oslo"}

Small models write such calls whatever the prompt asks for. They are also what remains of calls in other formats when
servers strip the tokens. The name is the only evidence of a call: it must be spelled exactly as declared, and nothing
but calls may follow.
"""

from __future__ import annotations

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import JsonBody
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import NAME_GATE, Head, trace_entry
from promptools.dialects.prefix_patterns import sequence
from promptools.dialects.readers.marked_python import MarkedPythonCalls
from promptools.dialects.readers.python_arguments import PROGRAM_LABELS, name_pattern
from promptools.dialects.readers.python_reader import CallLayout, PythonCallReader
from promptools.parsing.parts import (
    NEED_MORE,
    Candidate,
    CandidateBase,
    NeedMore,
    Part,
    TriedStrategy,
    add_fix,
    total_length,
)
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import escape_fixes, is_offered_name, unescape_name

_NAME = name_pattern("[A-Za-z_]", r"[\w.-]", 63)
_LABEL = r"(?:tool_name|tool|function)"
_GAP = r"[ \t]{0,8}+"
_QUOTE = r"[\"'`*]{0,3}+"
_NAMED = lazy_pattern(rf"(?:{_LABEL}[ \t]*:[ \t]*{_QUOTE})?({_NAME})")
_FIRST_KEY = lazy_pattern(r"""\{\s*["']?([\w.-]+)["']?\s*:""")
_FENCES = (None, "tool_call")
_CALL = rf"{_NAME}(?:\Z|\(\s{{0,8}}+(?:\Z|(?=[^\s)])))"
_EMPTY = rf"{_NAME}(?:\Z|\(\s{{0,8}}+(?:\Z|\)))"
_OBJECT = rf"{_NAME}{_GAP}(?:\Z|(?=\{{)|\r?(?:\Z|\n\s{{0,16}}+(?:\Z|(?=\{{))))"
_LABELLED = sequence(
    _LABEL, rf"{_GAP}:{_GAP}", _QUOTE, _NAME, rf"{_QUOTE}{_GAP}\r?", r"\n\s{0,16}", _QUOTE + r"[a-z]{1,10}+",
    rf"{_QUOTE}{_GAP}:\s{{0,16}}+", r"(?=\{)",
)  # fmt: skip
_ARGUMENTS = lazy_pattern(r"\n\W*(?:arguments|parameters|args|input)\W*\Z")


def _offered(text: str, start: int, options: ParseOptions) -> bool:
    """Return whether an offered tool's name, spelled exactly as declared, begins at `text[start]`."""
    match = _NAMED.match(text, start)
    return match is not None and is_offered_name(match[1], options.tools)


def _undecided(options: ParseOptions) -> bool | NeedMore:
    """Return the answer for text that may still become a call: `NEED_MORE` if the offered tools are known, else False.

    If they are unknown, no name counts.
    """
    return NEED_MORE if options.tools is not None else False


def _begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    del fresh
    if end == len(text):
        return _undecided(options)
    return _offered(text, start, options)


def _empty_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a call such as `ping()` begins. No text may precede it, since prose contains this form too."""
    if text[end - 1] != ")":
        return _undecided(options)
    return fresh and _offered(text, start, options)


def _program_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a code fence such as ```python begins with a call. The fence must be the whole reply."""
    return fresh and _begins(text, start, end, fresh=fresh, options=options)


def _label_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    del fresh
    if end == len(text):
        return _undecided(options)
    return _ARGUMENTS.search(text, start, end) is not None and _offered(text, start, options)


_LINE = Head(
    (),
    _CALL,
    body_starts="",
    gate=NAME_GATE,
    begins=_begins,
    at_line_start=True,
    unindented=True,
    fence_labels=_FENCES,
)
_EMPTY_LINE = _LINE._replace(pattern=_EMPTY, begins=_empty_begins)
_HEADS = (
    _LINE,
    _EMPTY_LINE,
    _LINE._replace(pattern=_OBJECT, body_starts="{"),
    _LINE._replace(
        pattern=_LABELLED,
        body_starts="{",
        gate="tool|function",
        begins=_label_begins,
        unindented=False,
        first_words=("tool_name:", "tool:", "function:"),
    ),
    *(
        head._replace(begins=begins, at_start=True, unindented=False, fence_labels=PROGRAM_LABELS)
        for head, begins in ((_LINE, _program_begins), (_EMPTY_LINE, _empty_begins))
    ),
)


class NamedLine(MarkedPythonCalls):
    """The dialect of calls without markers: `get_weather(city="Oslo")`, or the name and a JSON object."""

    def __init__(self) -> None:
        super().__init__(
            "bare",
            {"": ""},
            models="small models under any prompt, and what servers leave of formats whose tokens they strip",
            tier="B",
            instructions={
                "format": """You can call functions. To do so, end your answer with a line like this:

function_name(parameter="value", other=2)

{how_many}""",
                "parallel": "Write one line for each call to call several.",
            },
        )
        self.heads = _HEADS
        self._layout = CallLayout(brackets=False, in_row=True)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the JSON object after `head`, the text with the tool's name.

        If `head` is empty, the candidate reads a Python call, including its name.
        """
        if not head:
            return PythonCallReader(head, self._layout, options, evidence, definite=definite)
        return NamedObjectCandidate(head, options, evidence, definite=definite)


class NamedObjectCandidate(CandidateBase):
    """Reads a JSON object of arguments after the name of the tool."""

    def __init__(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite, head=head)
        self._options = options
        self._evidence = evidence
        self._body = JsonBody()
        match = _NAMED.match(head)
        assert match is not None
        self._name, self._fixes = unescape_name(match[1]), escape_fixes(match[1])

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the object, or None if more text is needed."""
        end = self._body.feed(piece, start, len(piece))
        if end is not None:
            self._decide(finish_reason=None, close=False)
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text is a call, since no more text will come."""
        self._decide(finish_reason=finish_reason, close=True)

    def _decide(self, *, finish_reason: str | None, close: bool) -> None:
        raw, head = self._body.raw, self.head
        stopped = finish_reason in COMPLETE_FINISH_REASONS
        try:
            parts = self._body.calls(
                self._options, self._evidence, close=close and stopped, stopped=stopped, name=self._name
            )
            self._reject_foreign_arguments(parts)
        except NotACall as no:
            parts = self._truncated_part() if close else []
            if not parts:
                self.parts = [Part("text", head + raw)]
                self.tries.append(TriedStrategy(self._evidence.dialect, "text", str(no), len(head + raw)))
                return
        for fix in self._fixes:
            add_fix(parts, fix)
        self.unread = raw[total_length(parts) :]
        parts[0].raw = head + parts[0].raw
        self.head = ""
        self.parts = parts
        self.tries.append(trace_entry(self._evidence.dialect, total_length(parts), parts))

    def _truncated_part(self) -> list[Part]:
        """Return the truncated call at the end of the text, if its first key is a parameter of the tool."""
        tools, raw = self._options.tools, self._body.raw
        first_key = _FIRST_KEY.match(raw)
        tool = tools.find(self._name) if tools is not None else None
        if tools is None or tool is None or first_key is None or first_key[1] not in tools.keys(tool[0].name):
            return []
        malformed = malformed_call(
            "truncated", "the text ended inside its arguments", self._evidence.dialect, tool[0].name
        )
        return [Part("malformed", raw, malformed=malformed)]

    def _reject_foreign_arguments(self, parts: list[Part]) -> None:
        """Raise `NotACall` if a malformed call has no argument that is a parameter of the tool.

        The tool's name alone is not enough evidence of a call.
        """
        tools = self._options.tools
        malformed = parts[0].malformed
        if malformed is None or self._evidence.expected or tools is None:
            return
        if malformed.call is None and not self._truncated_part():
            raise NotACall("it cannot be read, and does not begin with a parameter of the tool")
        if malformed.call is not None and tools.keys(malformed.call.name).isdisjoint(malformed.call.arguments):
            raise NotACall("its arguments are none of the tool's")
