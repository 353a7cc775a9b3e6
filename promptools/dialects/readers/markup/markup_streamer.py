"""Stream a call of markup while it is being written: its name, and the values that nothing can change any more.

A string is emitted as it comes, except for the white space at its end; a number or a literal once it has ended. Only
parameters that are declared as exactly that type are streamed; from the first one that is not, the rest waits for the
end.
"""

from __future__ import annotations

from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.calls.streaming.argument_stream import is_final, scalar_type
from promptools.dialects.readers.markup.markup_call import LAYOUT, MarkupCall, Trim
from promptools.jsontext.value import dump
from promptools.parsing.parts import EarlyArguments, EarlyCallStart, EarlyOutput
from promptools.types import Call, Malformed, Tool


class MarkupStreamer:
    """Streams the parameters of one call. O(n) in characters."""

    def __init__(self, call: MarkupCall, trim: Trim) -> None:
        tool = call.tool
        self._tool: Tool | None = tool if tool is not None and tool.name == call.name and not tool.strict else None
        self._call = call
        self._trim: Trim = trim
        self._key: str | None = None
        """The parameter that is open, or may be reopened."""
        self._streams_text = False
        """Its value is emitted as it comes."""
        self._at_start = False
        self._held_space: list[str] = []
        self._sent_size = 0
        """Characters of the value that have been emitted."""
        self.pending: list[EarlyOutput] = []
        self._emitted: list[str] = []
        self.started = False

    def begin_parameter(self, key: str, *, verbatim: bool) -> None:
        """Begin a parameter. `verbatim`: its text is its value."""
        self._end_parameter()
        if self._tool is None:
            return
        if not self.started:
            self.started = True
            self.pending.append(EarlyCallStart(self._tool.name))
        schema = self._tool.parameters.get("properties", {}).get(key)
        kind = scalar_type(schema)
        if kind is None or key in self._call.values:
            self._tool = None
            return
        self._key, self._sent_size, self._held_space = key, 0, []
        self._streams_text = verbatim and kind == "string"
        self._at_start = True

    def add_text(self, text: str) -> None:
        """Consume more of the value's text."""
        if self._key is None or not self._streams_text:
            return
        bare = text.rstrip(LAYOUT)
        if not bare:
            self._held_space.append(text)
            return
        if self._at_start:
            text = self._strip_leading(text)
            bare = text.rstrip(LAYOUT)
        self._emit_text("".join((*self._held_space, bare)))
        self._held_space = [text[len(bare) :]]

    def _strip_leading(self, text: str) -> str:
        """Strip the layout before the value. A value that begins like a tag is not streamed, but read as a whole."""
        text = "".join((*self._held_space, text))
        self._held_space = []
        bare = text.lstrip(LAYOUT)
        if bare[0] == "<":
            self._streams_text = False
            return ""
        self._at_start = False
        if self._trim == "strip":
            return bare
        if self._trim == "line":
            return text.removeprefix("\r\n") if text.startswith("\r\n") else text.removeprefix("\n")
        return text

    def _emit_text(self, text: str) -> None:
        if not text:
            return
        self._emit_key()
        self._emit(dump(text)[1:-1])
        self._sent_size += len(text)

    def _emit_key(self) -> None:
        """Emit the name of the parameter, once."""
        if not self._sent_size:
            assert self._key is not None
            quote = '"' if self._streams_text else ""
            self._emit(f"{', ' if self._emitted else '{'}{dump(self._key)}: {quote}")

    def _emit(self, text: str) -> None:
        self._emitted.append(text)
        self.pending.append(EarlyArguments(text))

    def _end_parameter(self) -> None:
        """Emit what is left of the last parameter: no later one can change it."""
        key, self._key = self._key, None
        if key is None or self._tool is None:
            return
        self._key = key
        value = self._call.values.get(key)
        schema = self._tool.parameters["properties"][key]
        if not is_final(schema, value):
            self._tool = None
        elif self._streams_text and isinstance(value, str):
            self._emit_key()
            self._emit(dump(value[self._sent_size :])[1:])
        else:
            self._emit_key()
            self._emit(dump(value))
        self._key = None

    def reconcile(self, outcome: Call | Malformed, dialect: str) -> Call | Malformed:
        """Return the outcome if the call begins with what was emitted of it, else a malformed call."""
        if not isinstance(outcome, Call) or outcome.arguments_json.startswith("".join(self._emitted)):
            return outcome
        return malformed_call("invalid_json", "its beginning reads otherwise than the whole", dialect, outcome.name)
