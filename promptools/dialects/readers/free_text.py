"""Read free text as the input of a tool: text after a label, or bare code for a code interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call, sole_string_parameter, validate_call
from promptools.dialects.contract import trace_entry
from promptools.json_values import is_array, is_object, try_json
from promptools.parsing.parts import Candidate, CandidateBase, Part, TriedStrategy
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed, Tool

if TYPE_CHECKING:
    from promptools.schema import Tools


# Read the text after a label as a tool's input: plain text, `key: value` lines, or the content of brackets.


NO_INPUT = frozenset(("", "none", "null", "n/a", "{}", "()", "no input", "nothing"))
"""Texts that models write as the input of a tool that needs no input."""

_LABEL = lazy_pattern(
    r"\s*[*_]{0,2}(?:Observation|Thought|Action|Final Answer|Question|Tool|Function|Answer)[ \w]{0,12}[*_]{0,2}\s{0,4}:"
)
_MEMBER = lazy_pattern(r"[:\\\s`\"']{0,4}\{\s{0,16}[\"']?([^\W\d][\w.-]{0,80})[\"']?\s{0,4}:")
"""Matches the beginning of a JSON object up to its first key, and stray quotes or backslashes before the object."""
_NEXT_MEMBER = lazy_pattern(r",\s{0,16}[\"']([^\W\d][\w.-]{0,80})[\"']\s{0,4}:")
_PAIR = lazy_pattern(r"\s*[\"'`*-]{0,2}\s{0,2}(\w[\w.-]{0,80})[\"'`*]{0,2}\s{0,4}[:=]\s{0,4}(.*)")


class ByFirstCharacter(CandidateBase):
    """Passes the body of a call to another reader, which is chosen by the first character of the body."""

    def __init__(self, head: str, choose: Callable[[str], Candidate], *, definite: bool) -> None:
        super().__init__(definite=definite, head=head)
        self._choose = choose
        self._inner: Candidate | None = None

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        inner = self._chosen(piece[start])
        end = inner.feed(piece, start)
        self._copy_state(inner)
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        inner = self._chosen("{")
        inner.close(finish_reason)
        self._copy_state(inner)

    def _chosen(self, first: str) -> Candidate:
        if self._inner is None:
            self._inner = self._choose(first)
        self._inner.head = self.head
        return self._inner

    def _copy_state(self, inner: Candidate) -> None:
        self.parts, self.unread, self.head, self.definite = inner.parts, inner.unread, inner.head, inner.definite
        self.tries = inner.tries
        self.early, inner.early = [*self.early, *inner.early], []


class AnswerLabel(CandidateBase):
    """Reads the label before a final answer. The label is markup, and not part of the answer."""

    def feed(self, piece: str, start: int) -> int | None:
        """Decide immediately, without reading any text, because the label has already been read as `head`."""
        del piece
        self.close(None)
        return start

    def close(self, finish_reason: str | None) -> None:
        """Decide that the label is markup."""
        del finish_reason
        self.parts = [Part("markup", self.head)]


class LabelledCandidate(CandidateBase):
    """Reads a tool's input after a label, up to the next label or an empty line.

    Input in brackets ends at the end of its line.
    """

    def __init__(self, head: str, name: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite, head=head)
        self._name = name
        self._options = options
        self._evidence = evidence
        self._lines: list[str] = []
        """The lines of the input, with their line ends."""
        self._line: list[str] = []
        self._ended = False

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        at = start
        while at < len(piece):
            end = piece.find("\n", at) + 1
            self._line.append(piece[at : end or len(piece)])
            if not end:
                return None
            at = end
            if self._add_line():
                self._decide("stop")
                return at
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        if self._line and self._add_line():
            self._decide("stop")
        else:
            self._decide(finish_reason)

    def _add_line(self) -> bool:
        """Add a complete line, unless the input ended before that line; return whether the input has ended."""
        line = "".join(self._line)
        self._line = []
        inline = not self._lines and line.lstrip().startswith("[")
        if self._lines and (not line.strip() or _LABEL.match(line)):
            self.unread = line
            self._ended = True
        else:
            self._lines.append(line)
            self._ended = inline
        return self._ended

    def _decide(self, finish_reason: str | None) -> None:
        text = "".join(self._lines)
        raw = text.rstrip()
        self.unread = text[len(raw) :] + self.unread
        try:
            outcome = self._resolve(raw, finish_reason)
        except NotACall as no:
            self.tries.append(TriedStrategy(self._evidence.dialect, "text", str(no), len(text)))
            self.parts, self.unread = [Part("text", self.head)], raw + self.unread
            return
        if not raw:  # the text of a call without input is its label
            raw, self.head = self.head, ""
        self.parts = [*([Part("markup", self.head)] if self.head else []), call_part(outcome, raw)]
        self.tries.append(trace_entry(self._evidence.dialect, len(text), self.parts))

    def _resolve(self, raw: str, finish_reason: str | None) -> Call | Malformed:
        tools = self._options.tools
        match = tools.find(self._name) if tools is not None else None
        if match is None:
            raise NotACall(f"no tool {self._name!r} is offered")
        tool, renamed = match
        cut = malformed_call("truncated", "the text ended inside its input", self._evidence.dialect, tool.name)
        if finish_reason == "length":
            return cut
        text = raw.strip()
        # As in the paper of ReAct: `Action: search[Oslo]`.
        if text.startswith("["):
            text = self._unbracket(text)
        arguments, fixes = read_input(text, tool, self._options)
        fixes = [*([renamed] if renamed else []), *fixes]
        outcome = validate_call(tool, arguments, None, fixes, self._options, self._evidence)
        if isinstance(outcome, Malformed) and not self._evidence.expected:
            raise NotACall(f"its text does not fit {tool.name!r}")
        return outcome if finish_reason in COMPLETE_FINISH_REASONS or _is_string(text) else cut

    def _unbracket(self, text: str) -> str:
        """Return the content of the brackets after the tool's name; if there are none, return `text` itself.

        Raises `NotACall` if a bracket is not closed on its line.
        """
        if "\n" in self.head:
            return text
        if not text.endswith("]"):
            raise NotACall("the bracket after the name is not closed on its line")
        return text[1:-1].strip()


def _is_string(text: str) -> bool:
    """Return whether `text` is a complete JSON string, so that it cannot have been cut off."""
    return text[:1] == '"' and isinstance(try_json(text), str)


def read_input(input_text: str, tool: Tool, options: ParseOptions) -> tuple[dict[str, Any], list[Fix]]:
    """Read text as a tool's arguments; return the arguments and the fixes.

    Raises `NotACall` if the text cannot be read as arguments.
    """
    if input_text.casefold() in NO_INPUT:
        return {}, []
    pairs = _read_pairs(input_text, tool, options)
    if pairs:
        return pairs, [Fix("json", "the arguments were lines, not JSON")]
    key = main_parameter(tool)
    if key is None:
        raise NotACall(f"text is not valid input for {tool.name!r}")
    member = _MEMBER.match(input_text)
    if member is not None and options.tools is not None and member[1] in options.tools.keys(tool.name):
        raise NotACall("it is JSON that cannot be read, and no text")
    text = try_json(input_text, input_text) if input_text[0] == '"' else input_text
    value, fixes = read_parameter(options, tool.name, key, text)
    return {key: value}, [Fix("unwrap", f"the input was plain text, read as {key!r}"), *fixes]


def _read_pairs(input_text: str, tool: Tool, options: ParseOptions) -> dict[str, Any] | None:
    """Read lines of `key: value`. Return None if a line has another form, a repeated key, or an unknown key.

    Raises `NotACall` if a line seems to be a member of a JSON object.
    """
    assert options.tools is not None
    pairs: dict[str, Any] = {}
    for line in input_text.splitlines():
        pair = _PAIR.fullmatch(line.rstrip().removesuffix(","))
        if pair is None or pair[1] not in options.tools.keys(tool.name) or pair[1] in pairs:
            return None
        text = pair[2].strip()
        inner = _NEXT_MEMBER.search(text)
        if inner is not None and inner[1] in options.tools.keys(tool.name):
            raise NotACall("it is JSON that cannot be read, and no lines")
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
        pairs[pair[1]] = read_parameter(options, tool.name, pair[1], text)[0]
    return pairs


def main_parameter(tool: Tool) -> str | None:
    """Return the parameter that takes plain text: the only one, or the first required one. None if there is neither."""
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    if not is_object(properties) or not properties:
        return None
    if len(properties) == 1:
        return next(iter(properties))
    return next((key for key in properties if is_array(required) and key in required), None)


# Bare code for an interpreter in place of a call: all of it is the tool's only argument.
#
#     <|python_tag|>import math\nprint(math.pi)                  (Llama 3.1, Functionary v3.1)
#     >>>python\nimport math\nprint(math.pi)                     (Functionary v3.2)
#
# The code is a call only if the app offers such a tool, and only if it is Python: other text after the tag is content.
# Source: Llama 3.1 prompt format (Meta, 2024-07); MeetKai/functionary, prompt template v3.2 (2024-08).


INTERPRETER_NAMES = ("python", "ipython", "code_interpreter")
"""The names that model families, and the apps that follow them, give to a tool that runs code."""
CODE_ALIAS = "code"
"""The `Head.alias` of a head that finds a marker with bare code after it."""
_ENDS = lazy_pattern(r"<\|e(?:om|ot)_id\|>|<\|stop\|>|\n>>>(?=[^\W\d])")
_LONGEST = len("<|eom_id|>")


def find_interpreter(tools: Tools | None, name: str | None = None) -> tuple[Tool, str] | None:
    """Return the offered code interpreter and its parameter for code; None if there is none.

    `name`: the name in the model's text. Without a name, tools that are marked as dangerous are skipped.
    """
    for candidate in INTERPRETER_NAMES if name is None else (name,):
        tool = tools.get(candidate) if tools is not None and candidate in INTERPRETER_NAMES else None
        if tool is not None and (name is not None or not tool.dangerous):
            key = sole_string_parameter(tool)
            return None if key is None else (tool, key)
    return None


class CodeCandidate(CandidateBase):
    """Reads bare code after a marker, up to a token that ends the turn, or up to the next header such as `>>>f`."""

    def __init__(self, marker: re.Pattern[str], options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._marker = marker
        self._options = options
        self._evidence = evidence
        self._pieces: list[str] = []
        self._tail = ""

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        self._pieces.append(piece[start:])
        seam = self._tail + piece[start:]
        end = _ENDS.search(seam)
        if end is None:
            self._tail = seam[-_LONGEST:]
            return None
        self._decide(len(seam) - end.start(), "stop")
        return len(piece)

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        self._decide(0, finish_reason)

    def _decide(self, unread: int, finish_reason: str | None) -> None:
        """Decide whether the text so far is code. Its last `unread` characters are not part of the code."""
        text = "".join(self._pieces)
        raw, self.unread = text[: len(text) - unread], text[len(text) - unread :]
        head = self._marker.match(raw)
        assert head is not None
        offered = find_interpreter(self._options.tools, head["name"] or None)
        assert offered is not None  # else the head would not have matched
        tool, key = offered
        code = raw[head.end() :]
        if finish_reason == "length" or (finish_reason not in COMPLETE_FINISH_REASONS and is_code(code)):
            why = "the text ended inside its code"
            outcome = call_part(malformed_call("truncated", why, self._evidence.dialect, tool.name), code)
        elif is_code(code):
            fix = Fix("unwrap", f"bare code was taken as {key!r}")
            outcome = call_part(validate_call(tool, {key: code}, None, [fix], self._options, self._evidence), code)
        else:
            self.parts = [Part("text", raw)]
            self.tries.append(TriedStrategy(self._evidence.dialect, "text", "what follows is not Python", len(raw)))
            return
        self.parts = [Part("markup", head[0]), outcome]
        self.tries.append(trace_entry(self._evidence.dialect, len(raw), self.parts))


def is_code(text: str) -> bool:
    """Return whether `text` is a Python program that contains more than names and literals. O(n)."""
    import ast  # seldom needed

    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    trivial = (ast.Name, ast.Constant)
    return bool(body) and not all(isinstance(node, ast.Expr) and isinstance(node.value, trivial) for node in body)
