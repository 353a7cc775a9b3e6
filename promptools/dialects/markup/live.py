"""Stream a call of markup while it is being written: its name, and the values that nothing can change any more.

A string is emitted as it comes, except for the white space at its end; a number or a literal once it has ended. Only
parameters that are declared as exactly that type are streamed; from the first one that is not, the rest waits for the
end.
"""

from __future__ import annotations

from promptools.dialects.live import plain, settled
from promptools.dialects.markup.collected import LAYOUT, Collected, Trim
from promptools.dialects.settle import broken, dump
from promptools.parsing.parts import Early, Fragment, Started
from promptools.types import Call, Malformed, Tool


class LiveMarkup:
    """Streams the parameters of one call. O(n) in characters."""

    def __init__(self, call: Collected, trim: Trim) -> None:
        tool = call.tool
        self._tool: Tool | None = tool if tool is not None and tool.name == call.said and not tool.strict else None
        self._call = call
        self._trim: Trim = trim
        self._key: str | None = None
        """The parameter that is open, or may be reopened."""
        self._text = False
        """Its value is emitted as it comes."""
        self._first = False
        self._space: list[str] = []
        self._sent = 0
        """Characters of the value that have been emitted."""
        self.out: list[Early] = []
        self._told: list[str] = []
        self.started = False

    def open(self, key: str, *, as_it_is: bool) -> None:
        """Begin a parameter. `as_it_is`: its text is its value."""
        self._close()
        if self._tool is None:
            return
        if not self.started:
            self.started = True
            self.out.append(Started(self._tool.name))
        schema = self._tool.parameters.get("properties", {}).get(key)
        kind = plain(schema)
        if kind is None or key in self._call.values:
            self._tool = None
            return
        self._key, self._sent, self._space = key, 0, []
        self._text = as_it_is and kind == "string"
        self._first = True

    def take(self, words: str) -> None:
        """Consume more of the value's text."""
        if self._key is None or not self._text:
            return
        bare = words.rstrip(LAYOUT)
        if not bare:
            self._space.append(words)
            return
        if self._first:
            words = self._begin(words)
            bare = words.rstrip(LAYOUT)
        self._say("".join((*self._space, bare)))
        self._space = [words[len(bare) :]]

    def _begin(self, words: str) -> str:
        """Strip the layout before the value. A value that begins like a tag is not streamed, but read as a whole."""
        words = "".join((*self._space, words))
        self._space = []
        bare = words.lstrip(LAYOUT)
        if bare[0] == "<":
            self._text = False
            return ""
        self._first = False
        if self._trim == "strip":
            return bare
        if self._trim == "line":
            return words.removeprefix("\r\n") if words.startswith("\r\n") else words.removeprefix("\n")
        return words

    def _say(self, text: str) -> None:
        if not text:
            return
        self._lead()
        self._put(dump(text)[1:-1])
        self._sent += len(text)

    def _lead(self) -> None:
        """Emit the name of the parameter, once."""
        if not self._sent:
            assert self._key is not None
            quote = '"' if self._text else ""
            self._put(f"{', ' if self._told else '{'}{dump(self._key)}: {quote}")

    def _put(self, text: str) -> None:
        self._told.append(text)
        self.out.append(Fragment(text))

    def _close(self) -> None:
        """Emit what is left of the last parameter: no later one can change it."""
        key, self._key = self._key, None
        if key is None or self._tool is None:
            return
        self._key = key
        value = self._call.values.get(key)
        schema = self._tool.parameters["properties"][key]
        if not settled(schema, value):
            self._tool = None
        elif self._text and isinstance(value, str):
            self._lead()
            self._put(dump(value[self._sent :])[1:])
        else:
            self._lead()
            self._put(dump(value))
        self._key = None

    def settle(self, outcome: Call | Malformed, dialect: str) -> Call | Malformed:
        """Return the outcome if the call begins with what was emitted of it, else a malformed call."""
        if not isinstance(outcome, Call) or outcome.arguments_json.startswith("".join(self._told)):
            return outcome
        return broken("invalid_json", "its beginning reads otherwise than the whole", dialect, outcome.name)
