r"""CWM: the tool's name on the line after a tag, and then its arguments, which are JSON or a command.

    <tool: function>\nget_weather {"city": "Oslo"}\n</tool>
    <tool: function>\nbash ls -a\n</tool>
    <tool: bash>\nls -a\n</tool>

In the last form, which CWM was trained to write for a shell, the tag names the tool, and the tool must be offered. How
the template declares tools and writes results is unknown, so prompt mode uses the default for both. Source: replies
of CWM as servers send them, 2026-11.
"""

from __future__ import annotations

from promptools.dialects.calls.bare_values import CallBuilder
from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call, sole_string_parameter
from promptools.dialects.contract import Head, trace_entry
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.free_text import ByFirstCharacter
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import NamedMarkerJson
from promptools.dialects.readers.tag_heads import may_be_tool
from promptools.dialects.table import read_family
from promptools.parsing.parts import NEED_MORE, Candidate, CandidateBase, NeedMore, Part, TriedStrategy
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

CLOSER = "</tool>"
ANY_TOOL = "function"
"""The word in `<tool: function>`, which says that the tool's name is on the next line."""
COMMAND = "command"
"""The parameter that takes a command. If the tool has no such parameter, its only parameter takes the command."""

_WORD = r"[^\W\d][\w.:/-]{0,127}+"
_SPACE = r"[ \t]{0,4}+"
_LINE_END = _SPACE, r"\r?+", r"\n", r"\s{0,16}+"
_NAMED = lazy_pattern(rf"<tool:{_SPACE}(?:{ANY_TOOL}>\s*+)?({_WORD})")
_CLOSED = lazy_pattern(rf"^[ \t]*{CLOSER}|{CLOSER}(?=\s*(?:<tool:|\Z))")
"""Matches `</tool>` at the beginning or end of a line, or before another call. Elsewhere, a command may contain it."""
_OPENING_LINE = lazy_pattern(rf"{_SPACE}<tool:{_SPACE}{_WORD}>\s*\Z")
_MEMBER = lazy_pattern(r"""["']([^"']{1,128})["']\s*:""")
_CLOSERS = Closers(right=(CLOSER,), wrong=("</tool_call>", "</think>"), openers=("<tool:",))


def _name_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a call begins, which is so if anything follows the name, such as arguments or the closing tag.

    Return `NEED_MORE` if the text ends after the name.
    """
    del start, fresh, options
    return NEED_MORE if end == len(text) else True


def _tag_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the tag names an offered tool, as in `<tool: bash>`."""
    name = _NAMED.match(text, start, end)
    if name is not None and end < len(text):
        return may_be_tool(name[1], options)
    return _name_begins(text, start, end, fresh=fresh, options=options)


HEADS = (
    Head(
        ("<tool:",),
        sequence(
            literal_text("<tool:"), _SPACE, literal_text(f"{ANY_TOOL}>"), *_LINE_END, _WORD, r"(?=[\s<{])", r"\s{0,16}+"
        ),
        begins=_name_begins,
    ),
    Head(("<tool:",), sequence(literal_text("<tool:"), _SPACE, _WORD, ">", *_LINE_END), begins=_tag_begins),
)


class Cwm(NamedMarkerJson):
    """The dialect of CWM: `<tool: function>`, the tool's name, its arguments, and `</tool>`."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` for the arguments after `head`. Their first character shows whether they are JSON."""
        named = _NAMED.match(head)
        name = named[1] if named is not None else ""

        def choose(first: str) -> Candidate:
            if first in "{<":
                return JsonBlockReader(head, _CLOSERS, options, evidence, definite=definite, name=name)
            return CommandReader(head, name, options, evidence, definite=definite)

        return ByFirstCharacter(head, choose, definite=definite)


def cwm() -> DeclaredDialect:
    """Return the dialect of CWM."""
    dialect = read_family("cwm", Cwm)
    dialect.heads = HEADS
    return dialect


class CommandReader(CandidateBase):
    """Reads arguments that are plain text, up to a closing tag at the beginning or the end of a line.

    The arguments may quote calls whose tags are on separate lines; the closing tags of these calls are skipped.
    """

    def __init__(self, head: str, name: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite, head=head)
        self._call = CallBuilder(options)
        self._call.name = name
        self._evidence = evidence
        self._lines: list[str] = []
        self._line: list[str] = []
        """The pieces of the last line."""
        self._quoted = 0
        """The number of quoted calls that are open in the text."""
        self._quotes = False
        """Whether the text quotes calls."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past what was read, or None if more text is needed."""
        at = start
        while at < len(piece):
            end = piece.find("\n", at) + 1 or len(piece)
            self._line.append(piece[at:end])
            at = end
            if piece[end - 1] == "\n" and self._add_line("".join(self._line)):
                return at
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text is a call, since no more text will come."""
        if self._line and self._add_line("".join(self._line)):
            return
        text = "".join(self._lines)
        cut = text.rpartition("\n")[2]
        begun = len(cut) > 2 and CLOSER.startswith(cut)
        whole = finish_reason in COMPLETE_FINISH_REASONS and not self._quoted
        self._call.record_fix(Fix("closer", f"only {cut!r} of {CLOSER!r}" if begun else f"no {CLOSER!r}"))
        if self._quotes:
            self._call.error = "what it holds is not certain: it has no closing tag, and a call is in its text"
        self._decide(text.removesuffix(cut) if begun else text, cut if begun else "", whole=whole)

    def _add_line(self, line: str) -> bool:
        """Add a line; return whether it contains the closing tag of this call, rather than that of a quoted call."""
        self._line = []
        closed = _CLOSED.search(line)
        if closed is not None and not self._quoted:
            end = closed.end()
            self.unread = line[end:]
            self._decide("".join((*self._lines, line[: end - len(CLOSER)])), CLOSER, whole=True)
            return True
        self._lines.append(line)
        opened = _OPENING_LINE.match(line) is not None
        self._quotes = self._quotes or opened
        self._quoted += 1 if opened else -1 if closed is not None else 0
        return False

    def _decide(self, text: str, closer: str, *, whole: bool) -> None:
        command = text.rstrip()
        try:
            outcome = self._resolve(command, whole=whole)
        except NotACall as no:
            self.tries.append(TriedStrategy(self._evidence.dialect, "text", str(no), len(text)))
            self.parts, self.unread = [Part("text", self.head)], text + closer + self.unread
            return
        after = text[len(command) :] + closer
        self.parts = [
            Part("markup", self.head),
            call_part(outcome, command),
            *([Part("markup", after)] if after else []),
        ]
        self.tries.append(trace_entry(self._evidence.dialect, len(text), self.parts))

    def _resolve(self, command: str, *, whole: bool) -> Call | Malformed:
        call = self._call
        tools = call.options.tools
        found = tools.find(call.name) if tools is not None else None
        if found is not None:
            call.tool, renamed = found
            call.fixes += [renamed] if renamed is not None else []
        elif tools is not None and not whole:
            raise NotACall(f"no tool {call.name!r} is offered")
        if not whole:
            why = "the text ended inside its arguments"
            return malformed_call("truncated", why, self._evidence.dialect, call.tool_name)
        key = self._parameter(command)
        if key is None or call.error:
            why = call.error or "its arguments are not a JSON object"
            return malformed_call("invalid_json", why, self._evidence.dialect, call.tool_name)
        call.record_fix(Fix("unwrap", f"its arguments are plain text, read as {key!r}"))
        call.put(key, *call.read(key, command))
        return call.resolve_in(self._evidence)

    def _parameter(self, command: str) -> str | None:
        """Return the parameter that takes the text; None if there is no such parameter.

        None is also returned if the text begins like broken JSON, with the key of one of the tool's parameters.
        """
        call = self._call
        if call.tool is None:
            return COMMAND
        member = _MEMBER.match(command)
        if member is not None and call.declares(member[1]):
            return None
        return COMMAND if call.declares(COMMAND) else sole_string_parameter(call.tool)
