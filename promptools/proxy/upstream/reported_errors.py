"""Tell the errors that a server reports from the answers of a model, in a body of any API, whole or streamed.

A server may report an error under HTTP 200: as the whole body, as an event in the middle of a stream, in a field of a
choice, as a page of HTML. No text of a model may be changed, and everything else may. So it is the place in the JSON
that decides: what is below one of `_ANSWERS` is an answer, unless it is below an `error` in turn. A body is looked at
only once a key is found in it.
"""

from __future__ import annotations

import re

_ANSWERS = frozenset(
    {"choices", "message", "response", "content", "text", "thinking", "reasoning", "delta", "output", "output_text"}
    | {"item", "part", "content_block", "arguments", "tool_calls", "completion", "generated_text", "token", "tokens"}
    | {"prompt", "completion_probabilities", "logprobs", "segments", "words", "results", "outputs", "documents"}
    | {"embedding", "embeddings", "summary", "refusal"}
)
"""The fields of all APIs below which the texts of models and apps are."""
_ONLY_OBJECTS = frozenset({"message"})
"""Fields that hold an answer as an object, and the text of an error as a string."""
_ERRORS = frozenset(
    {"error", "errors", "error_message", "detail", "details", "warning", "warnings", "finish_reason", "stop_reason"}
)
"""Fields of an answer that the server writes."""
_OPAQUE = frozenset({"arguments", "input", "content", "tool_calls", "function_call", "text", "parsed", "output"})
"""Fields whose objects a model may have written: what is called `error` there is its own."""
_IN_OBJECT = re.compile(r'["{}\[\]:,]')
_IN_ARRAY = re.compile(r'["{}\[\]]')
_STRING = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_MAX_NAME = 64
_MAX_DEPTH = 1000


class JsonPlace:
    """Follows JSON text, in pieces, and says whether the place where it stands is in a model's answer."""

    def __init__(self) -> None:
        self._names: list[str | None] = []
        """The name of the current field of each open object; None for an array."""
        self._in_string = self._is_name = self._expects_name = False
        self._name = self._escape = ""
        self._too_deep = False

    def reset(self) -> None:
        """Begin with another text."""
        self.__init__()  # type: ignore[misc]

    @property
    def in_answer(self) -> bool:
        """Whether a model, or the app, wrote what stands here."""
        names = [name for name in self._names if name is not None]
        if not names or self._too_deep or names[0] not in _ANSWERS:
            # as in the Responses API's `response.failed`, nothing but the names says what it is
            return False
        if len(names) == 1:
            return names[0] not in _ONLY_OBJECTS
        for name in names:
            if name in _ERRORS:
                return False
            if name in _OPAQUE:
                return True
        return True

    def feed(self, text: str) -> None:
        """Go on to the end of `text`."""
        text, at = self._escape + text, 0
        self._escape = ""
        while at < len(text) and not self._too_deep:
            if self._in_string:
                at = self._read_string(text, at)
                continue
            in_object = bool(self._names) and self._names[-1] is not None
            found = (_IN_OBJECT if in_object else _IN_ARRAY).search(text, at)
            if found is None:
                return
            at = found.end()
            self._read_mark(found[0])

    def _read_string(self, text: str, at: int) -> int:
        found = _STRING.match(text, at)
        end = at if found is None else found.end()
        if self._is_name and len(self._name) < _MAX_NAME:
            self._name += text[at : min(end, at + _MAX_NAME)]
        if end < len(text) and text[end] == "\\":  # its other half is in the next piece
            self._escape = text[end:]
            return len(text)
        if end < len(text):
            self._in_string = False
            if self._is_name and self._names:
                self._names[-1] = self._name
            return end + 1
        return end

    def _read_mark(self, mark: str) -> None:
        if mark == '"':
            self._in_string, self._name = True, ""
            self._is_name = self._expects_name and bool(self._names) and self._names[-1] is not None
        elif mark in "{[":
            self._too_deep = self._too_deep or len(self._names) >= _MAX_DEPTH
            if not self._too_deep:
                self._names.append("" if mark == "{" else None)
            self._expects_name = mark == "{"
        elif mark in "}]":
            if self._names:
                self._names.pop()
            self._expects_name = False
        else:
            self._expects_name = mark == ","
