"""Stream a call whose arguments come one by one: as values that were read, or as bare text.

A value that was read goes out when it is complete. The bare text of a string goes out as it comes, except for the
layout around it and the white space at its end; until the next parameter begins, text may be added to the last one. Of
bare text only parameters of one scalar type are streamed: a later parameter of the same name can contradict the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.streaming.argument_stream import scalar_type
from promptools.dialects.calls.streaming.call_streamer import CallStreamer
from promptools.jsontext.text import dump
from promptools.parsing.parts import EarlyOutput

Trim = Literal["line", "verbatim", "strip"]
"""Which white space around a value is layout: one line break on each side, none, or all of it."""

LAYOUT: Final = " \t\r\n"


class MemberStreamer(CallStreamer):
    """Streams the arguments of one call of the tool `name`. O(n) in characters."""

    def __init__(self, rules: ParseOptions, name: str, trim: Trim = "verbatim") -> None:
        super().__init__(rules)
        self._name = name
        self._trim: Trim = trim
        self._has_members = False
        self._key: str | None = None
        """The parameter that is open, or may be reopened."""
        self._is_text = False
        """Its value is sent as it comes."""
        self._at_start = False
        self._held_space: list[str] = []
        self._sent_size = 0
        """Characters of the value that have been sent."""
        self.pending: list[EarlyOutput] = []
        """What may be sent; whoever sends it clears it."""

    def start(self) -> None:
        """Send the name, once."""
        if not (self._stopped or self.started):
            self.pending += self._start(self._name)

    def add(self, key: str, value: Any) -> None:
        """Send an argument that is complete."""
        if self.started and not self._stopped:
            self._write(f"{self._opening(key)}{dump(value)},")

    def _opening(self, key: str) -> str:
        lead, self._has_members = " " if self._has_members else "{", True
        return f"{lead}{dump(key)}: "

    def _write(self, text: str) -> None:
        self.pending += self._send(text)

    # --- bare text ---------------------------------------------------------------------------------------------------

    def begin_parameter(self, key: str, given: Mapping[str, Any], *, verbatim: bool) -> None:
        """Begin a parameter after those that are `given`. `verbatim`: its text is its value."""
        self.start()
        self._end_parameter(given)
        if self._stopped or self._tool is None:
            return
        kind = scalar_type(self._tool.parameters.get("properties", {}).get(key))
        if kind is None or key in given:
            self._stopped = True
            return
        self._key, self._sent_size, self._held_space = key, 0, []
        self._is_text = verbatim and kind == "string"
        self._at_start = True

    def add_text(self, text: str) -> None:
        """Consume more of the value's text."""
        if self._key is None or not self._is_text:
            return
        bare = text.rstrip(LAYOUT)
        if not bare:
            self._held_space.append(text)
            return
        if self._at_start:
            text = self._strip_leading(text)
            bare = text.rstrip(LAYOUT)
        self._send_text("".join((*self._held_space, bare)))
        self._held_space = [text[len(bare) :]]

    def _strip_leading(self, text: str) -> str:
        """Strip the layout before the value. A value that begins like a tag is not streamed, but read as a whole."""
        text = "".join((*self._held_space, text))
        self._held_space = []
        bare = text.lstrip(LAYOUT)
        if bare[0] == "<":
            self._is_text = False
            return ""
        self._at_start = False
        if self._trim == "strip":
            return bare
        if self._trim == "line":
            return text.removeprefix("\r\n") if text.startswith("\r\n") else text.removeprefix("\n")
        return text

    def _send_text(self, text: str) -> None:
        if text and self._key is not None:
            self._stream.whole_members = False
            opening = "" if self._sent_size else f'{self._opening(self._key)}"'
            self._write(opening + dump(text)[1:-1])
            self._sent_size += len(text)

    def _end_parameter(self, given: Mapping[str, Any]) -> None:
        """Send what is left of the last parameter: no later one can change it."""
        key, self._key = self._key, None
        if key is None or self._stopped:
            return
        value = given.get(key)
        self._stream.whole_members = True
        if not self._sent_size:
            self.add(key, value)
        elif isinstance(value, str):
            self._write(f"{dump(value[self._sent_size :])[1:]},")
        else:
            self._stopped = True
