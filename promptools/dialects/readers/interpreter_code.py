r"""Bare code for an interpreter in place of a call: all of it is the tool's only argument.

    <|python_tag|>import math\nprint(math.pi)                  (Llama 3.1, Functionary v3.1)
    >>>python\nimport math\nprint(math.pi)                     (Functionary v3.2)

It is a call only if the app offers such a tool, and only if it is Python: other text after the tag is content.
Source: Llama 3.1 prompt format (Meta, 2024-07); MeetKai/functionary, prompt template v3.2 (2024-08).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from promptools.dialects.calls.call_arguments import sole_string_parameter
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call, validate_call
from promptools.dialects.contract import trace_entry
from promptools.parsing.parts import CandidateBase, Part, TriedStrategy
from promptools.patterns import lazy_pattern
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.schema import Tools
    from promptools.types import Tool

INTERPRETER_NAMES = ("python", "ipython", "code_interpreter")
"""The names that model families, and apps after them, give their interpreter."""
CODE_ALIAS = "code"
"""The alias of a head that code follows."""
_ENDS = lazy_pattern(r"<\|e(?:om|ot)_id\|>|<\|stop\|>|\n>>>(?=[^\W\d])")
_LONGEST = len("<|eom_id|>")


def find_interpreter(tools: Tools | None, name: str | None = None) -> tuple[Tool, str] | None:
    """Return the tool that takes code, and its parameter; without a name none that is dangerous."""
    for candidate in INTERPRETER_NAMES if name is None else (name,):
        tool = tools.get(candidate) if tools is not None and candidate in INTERPRETER_NAMES else None
        if tool is not None and (name is not None or not tool.dangerous):
            key = sole_string_parameter(tool)
            return None if key is None else (tool, key)
    return None


class CodeCandidate(CandidateBase):
    """Code after a marker, up to a token that ends the turn or the next header."""

    def __init__(self, marker: re.Pattern[str], rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._marker = marker
        self._rules = rules
        self._place = place
        self._pieces: list[str] = []
        self._tail = ""

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        self._pieces.append(piece[start:])
        seam = self._tail + piece[start:]
        end = _ENDS.search(seam)
        if end is None:
            self._tail = seam[-_LONGEST:]
            return None
        self._decide(len(seam) - end.start(), "stop")
        return len(piece)

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._decide(0, finish_reason)

    def _decide(self, unread: int, finish_reason: str | None) -> None:
        """Decide on the text so far without its last `unread` characters."""
        text = "".join(self._pieces)
        raw, self.unread = text[: len(text) - unread], text[len(text) - unread :]
        head = self._marker.match(raw)
        assert head is not None
        offered = find_interpreter(self._rules.tools, head["name"] or None)
        assert offered is not None  # else the head would not have matched
        tool, key = offered
        code = raw[head.end() :]
        if finish_reason == "length" or (finish_reason not in COMPLETE_FINISH_REASONS and is_code(code)):
            why = "the text ended inside its code"
            outcome = call_part(malformed_call("truncated", why, self._place.dialect, tool.name), code)
        elif is_code(code):
            fix = Fix("unwrap", f"bare code was taken as {key!r}")
            outcome = call_part(validate_call(tool, {key: code}, None, [fix], self._rules, self._place), code)
        else:
            self.parts = [Part("text", raw)]
            self.tries.append(TriedStrategy(self._place.dialect, "text", "what follows is no Python", len(raw)))
            return
        self.parts = [Part("markup", head[0]), outcome]
        self.tries.append(trace_entry(self._place.dialect, len(raw), self.parts))


def is_code(text: str) -> bool:
    """Whether `text` is a Python program, and more than a name or a literal. O(n)."""
    import ast  # seldom needed

    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    trivial = (ast.Name, ast.Constant)
    return bool(body) and not all(isinstance(node, ast.Expr) and isinstance(node.value, trivial) for node in body)
