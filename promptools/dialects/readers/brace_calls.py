"""The dialect kind `braces`: a tool's name, then keys and values in braces, with a token before and after each string.

    <|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|>

Gemma's dialects, and dialects that a table of this kind declares, share the code that reads and writes such calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import any_literal_text
from promptools.dialects.prompt import GENERIC_CALL
from promptools.dialects.readers.gemma_object import STRING_DELIMITERS
from promptools.dialects.readers.marked_python import begins_with_marker
from promptools.dialects.readers.python_reader import CallLayout, PythonCallReader
from promptools.dialects.written_calls import WrittenValues, bare_value
from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.parsing.parts import Candidate
from promptools.patterns import lazy_pattern
from promptools.types import Call

_CALLEE = lazy_pattern(
    r"(?:(?:call|function|declaration|\w{1,32}(?=:default_api))?:[ \t]?)?(\w[\w.:/-]{0,127}+)[ \t]{0,8}+(?:\Z|\{)"
)
_BARE_KEY = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_NAME: Final = r"[A-Za-z_][\w.-]{0,63}+"


class BraceCallReader(PythonCallReader):
    """Reads calls written as `call:NAME{...}`, one after another."""

    opening_bracket = "{"

    def _match_callee(self, text: str, at: int) -> tuple[str, int]:
        callee = _CALLEE.match(text, at)
        return (callee[1], callee.end()) if callee is not None else ("", at)

    def _begins_call(self, text: str) -> bool:
        callee, tools = _CALLEE.fullmatch(text.strip()), self._options.tools
        return bool(self.head) and callee is not None and tools is not None and tools.find(callee[1]) is not None

    def _after_call(self, text: str, at: int, final: bool) -> int:
        """Handle what follows a call: another call, or the end of the calls."""
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        rest = text[at : at + 5]
        if "call:".startswith(rest) and rest != "call:" and not final:
            return ~at
        self._state = self._in_callee if rest == "call:" else self._after_calls
        return at


def brace_value(value: Any, quote: str, null: str = "null") -> str:
    """Return a value as text in this format. `quote`: the token around strings; `null`: how null is written.

    A string that contains `quote` is written as a JSON string.
    """
    if value is None:
        return null
    if isinstance(value, str):
        return _string(value, quote)
    if is_object(value):
        members = (
            f"{key if _BARE_KEY.fullmatch(key) else _string(key, quote)}:{brace_value(member, quote, null)}"
            for key, member in value.items()
        )
        return f"{{{','.join(members)}}}"
    if is_array(value):
        return f"[{','.join(brace_value(item, quote, null) for item in value)}]"
    return dump(value)


def _string(text: str, quote: str) -> str:
    if quote not in text:
        return f"{quote}{text}{quote}"
    return dump(text).replace("<", "\\u003c")


def _sorted(value: Any) -> Any:
    """Return a value with the keys of its objects in the order in which Jinja2 sorts them: without regard to case."""
    if is_object(value):
        return {key: _sorted(value[key]) for key in sorted(value, key=str.lower)}
    return [_sorted(item) for item in value] if is_array(value) else value


class BraceCalls(DeclaredDialect):
    """A dialect whose calls are `call:NAME{...}` between two markers.

    `quote`: the token before and after strings. `sorted_keys`: whether keys are written in alphabetical order. `null`:
    how null is written. `values`: None if `quote` is only around strings. If `quote` is around every argument, `values`
    says how arguments other than strings are written inside it.
    """

    def __init__(
        self,
        name: str,
        openers: Mapping[str, str],
        *,
        quote: str = STRING_DELIMITERS[0],
        sorted_keys: bool = False,
        null: str = "null",
        values: WrittenValues | None = None,
        **common: Unpack[CommonKeys],
    ) -> None:
        closing = tuple(dict.fromkeys(filter(None, openers.values())))
        common.setdefault("closers", closing)
        super().__init__(name, **common)
        self._opener, self._closer = next(iter(openers.items()))
        self._quote, self._sorted_keys, self._null = quote, sorted_keys, null
        self._values: WrittenValues | None = values
        self.typed = values is None
        self._layout = CallLayout(closers=closing, brackets=False, all_quoted=values is not None)
        pattern = any_literal_text(openers)
        self.heads = (
            Head(
                tuple(openers),
                rf"{pattern}\s{{0,64}}+(?:\Z|(?=call:)|[a-z]{{1,4}}+\Z|(?=:?{_NAME}[:{{])|:?(?:{_NAME})?\Z)",
                body_starts="c",
                begins=begins_with_marker,
            ),
        )

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a reader of the calls after an opening marker.

        The text to read starts at a tool's name, or at the `call:` before the name.
        """
        return BraceCallReader(head, self._layout, options, evidence, definite=definite)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Return calls as text in the model's own format."""
        return "".join(f"{self._opener}call:{call.name}{self._arguments(call)}{self._closer}" for call in calls)

    def _arguments(self, call: Call) -> str:
        if call is GENERIC_CALL:  # its value has no known type
            return "{parameter:its value}"
        arguments = _sorted(call.arguments) if self._sorted_keys else call.arguments
        if self._values is not None:
            arguments = {key: bare_value(value, self._values) for key, value in arguments.items()}
        return brace_value(arguments, self._quote, self._null)
