"""Describe `response_format` in the prompt, check and repair the answer, or request the answer again without tools.

Most servers cannot enforce a format together with tools, since a grammar that forces the answer makes calls impossible.
So the format is described in the system message, and promptools checks the answer. First the answer is repaired
("healed"): the app gets only the JSON value, without a fence, a sentence around it or errors in the JSON. If the
repaired answer does not have the format either, the answer is requested again without tools.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.errors import UsageError
from promptools.json_values import is_object, reject_constant, write_json
from promptools.jsontext.brackets import MAX_DEPTH
from promptools.jsontext.read import Unreadable, read_value
from promptools.jsontext.text import ParsedValue, dump
from promptools.parsing.events import CallEnd, Event
from promptools.patterns import lazy_pattern
from promptools.schema import Tools
from promptools.schema.budget import UncheckedError
from promptools.schema.coerce import coerce_value, number_lookup
from promptools.schema.graph import build_graph
from promptools.schema.validate import Validator, check_patterns, describe_errors
from promptools.types import Fix, Malformed

if TYPE_CHECKING:
    from promptools.engine import StreamParser
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import Schema


# Heal an answer that `response_format` asks for: return the JSON value alone, without a fence, a sentence or errors.
#
# Apps hand the content to a JSON parser, but models put a fence or a sentence around the value, or write it with
# single quotes or a comma too many. `heal_answer` reads a whole answer. `AnswerStream` does the same for a stream, and
# says which part of the value can be sent while it arrives. Both give the same result, unless something was sent too
# early.
#
# A value is taken only if there is exactly one, if it is whole, and if nothing else in the answer has a meaning. Only
# this may be around it:
#
#     before it   nothing, or at most `MAX_AROUND` characters of text without brackets; then a line end, a colon or the
#                 opening of a fence. Text that speaks of an example, or says that there is no answer, has a meaning
#     after it    the end of the fence, stray closing brackets, and text of the same kind on a separate line
#
# The value's JSON is repaired as in calls, and its parts are converted to the types of the schema, as arguments are.
# An answer that is JSON and fits already stays unchanged, white space included.


MAX_AROUND = 300
"""Maximum number of characters of the text before the JSON value of an answer, and of the text after it."""
RESPONSE_FORMAT = "response_format"
NO_JSON = "the answer is not JSON"
NOT_ALONE = "the answer is not one JSON value and nothing else"
FENCED = Fix("marker", "the answer was in a code fence")
SURROUNDED = Fix("marker", "there was text around the answer")
_STRAY = Fix("closer", "a stray closer after the answer")

_SPACE = " \t\r\n"
_UNSEEN = "\ufeff\u200b"
_FENCE = r"(?P<fence>`{3,}|~{3,})[ \t]*+[\w+.-]*+\s*+"
_LEAD = lazy_pattern(rf"(?P<words>.*?)(?:{_FENCE})?", re.DOTALL)
_FENCE_HEAD = lazy_pattern(rf"\s*+{_FENCE}(?=[\[{{])")
_FENCE_END = lazy_pattern(r"\s*+(?:`{3,}|~{3,})[ \t]*+(?=[\r\n]|\Z)")
_LAST_FENCE = lazy_pattern(r"\s*+(?:`{3,}|~{3,})\s*+\Z")
_FENCED_SCALAR = lazy_pattern(rf"\s*+{_FENCE}(?P<value>[^`~\[\]{{}}]*)(?:`{{3,}}|~{{3,}})\s*+")
_STRAY_END = lazy_pattern(r"\s*+[}\].;,]++(?=\s|\Z)")
_NOT_THE_ANSWER = lazy_pattern(
    r"\b(?:examples?|e\.g\.|for instance|samples?|templates?|placeholders?|instead|unable|sorry|cannot|not"
    r"|[a-z]+n['’]t|beispiel|exemple|ejemplo)(?!\w)",
    re.IGNORECASE,
)
"""Matches words that are typical of text that shows only a sample answer, or says why there is no answer."""
_BRACKETS = lazy_pattern(r"[\[\]{}]|`{3}|~{3}")


class Healed(NamedTuple):
    """An answer that has the requested format; `text` is the content for the app."""

    text: str
    fixes: tuple[Fix, ...] = ()
    cut: tuple[str, ...] = ()
    """The texts before and after the JSON value, which are both left out of the answer."""


class Unhealed(NamedTuple):
    """The reason why an answer does not have the requested format."""

    why: str
    value: Healed | None = None
    """The answer's JSON value without any text around it, if it is complete but has the wrong format; else None."""


def heal_answer(text: str, schema: Schema | None, *, convert: bool = True) -> Healed | Unhealed:
    """Return an answer's JSON value, without any text around it, or the reason why the answer lacks the format. O(n).

    If `schema` is None, any JSON object is accepted. If `convert` is true, values may be converted to the types in the
    schema.
    """
    found = _find_value(text, schema)
    return found if isinstance(found, Unhealed) else _fit(*found, schema, convert=convert)


def _find_value(text: str, schema: Schema | None) -> tuple[Healed, Any] | Unhealed:
    """Return the JSON value that an answer is or contains, both as text and parsed, or the reason why there is none."""
    try:
        value = json.loads(text, parse_constant=reject_constant)
    except (ValueError, RecursionError):
        pass
    else:
        return Healed(text), value
    scalar = _find_scalar(text) if schema is not None else None
    return scalar or _find_container(text)


def form_error(value: Any, schema: Schema | None) -> str:
    """Return a text that says why a JSON value does not match the format; empty if the value matches.

    The result is also empty if the schema cannot be compiled.
    """
    if schema is None:
        return "" if is_object(value) else "the answer is not a JSON object"
    try:
        errors = " ".join(describe_errors(_validator(dump(schema)).errors(value), whole="answer"))
    except (UsageError, UncheckedError, RecursionError, ValueError):
        return ""
    return f"the answer does not fit its schema: {errors}" if errors else ""


@lru_cache(maxsize=64)
def _validator(schema: str) -> Validator:
    """Return the validator of a schema given as JSON; raise UsageError if it cannot be compiled."""
    graph = build_graph(json.loads(schema), RESPONSE_FORMAT)
    check_patterns(graph, RESPONSE_FORMAT)
    return Validator(graph)


def _fit(healed: Healed, value: Any, schema: Schema | None, *, convert: bool) -> Healed | Unhealed:
    """Return the answer if its value matches the schema, or why it does not match.

    If necessary, the value is converted to the types in the schema.
    """
    why = form_error(value, schema)
    if not why:
        return healed
    if schema is not None and convert:
        try:
            converted, fixes, errors = coerce_value(
                value, _validator(dump(schema)).errors, number_lookup(healed.text.strip())
            )
        except (UsageError, UncheckedError, RecursionError, ValueError, IndexError):  # IndexError: the value itself
            return Unhealed(why, healed)
        if fixes and not errors:
            return Healed(dump(converted), (*healed.fixes, *fixes), healed.cut)
    return Unhealed(why, healed)


def _find_scalar(text: str) -> tuple[Healed, Any] | None:
    """Return the string, number or literal in a code fence; None if the answer is not such a fence."""
    fenced = _FENCED_SCALAR.fullmatch(text)
    if fenced is None:
        return None
    try:
        value = json.loads(fenced["value"], parse_constant=reject_constant)
    except ValueError:
        return None
    start, end = fenced.span("value")
    return Healed(fenced["value"].strip(), (FENCED,), (text[:start], text[end:])), value


def _find_container(text: str) -> tuple[Healed, Any] | Unhealed:
    """Return an answer's only object or array if the text around it may be left out; if not, return the reason."""
    start = min((at for at in map(text.find, "{[") if at >= 0), default=-1)
    if start < 0:
        return Unhealed(NO_JSON)
    lead = _LEAD.fullmatch(text, max(0, start - 4 * MAX_AROUND), start) if start < 4 * MAX_AROUND else None
    if lead is None or not _leads_to_value(lead["words"], fenced=lead["fence"] is not None):
        return Unhealed(NOT_ALONE)
    try:
        parsed, written = _read(text, start)
    except Unreadable as problem:
        return Unhealed(f"{NO_JSON}: {problem}")
    fixes, rest = parsed.fixes, text[parsed.end :]
    closed = None
    if lead["fence"] is not None:
        fixes = (*fixes, FENCED)
        closed = _FENCE_END.match(rest)
        rest = rest[closed.end() :] if closed else rest
    if closed is None and (stray := _STRAY_END.match(rest)):
        fixes, rest = (*fixes, _STRAY), rest[stray.end() :]
    if not (_is_blank(rest) or _trails(rest, after_fence=closed is not None)):
        return Unhealed(NOT_ALONE)
    if not (_is_blank(lead["words"]) and _is_blank(rest)):
        fixes = (*fixes, SURROUNDED)
    space = "" if text[:start].strip(_SPACE) else text[:start]
    cut = tuple(part for part in (text[len(space) : start], text[parsed.end :]) if part.strip())
    return Healed(space + written, fixes, cut), parsed.value


def _read(text: str, start: int) -> tuple[ParsedValue, str]:
    """Read the value at an index, with the same repairs as for the arguments of a call.

    Return the value, and its text as strict JSON.
    """
    try:
        parsed = read_value(text, start)
    except Unreadable as problem:
        if problem.kind != "truncated":
            raise
        fence = _LAST_FENCE.search(text, start)
        parsed = read_value(text[: fence.start()] if fence else text, start, supply_closers=True)
    if not parsed.fixes:
        return parsed, text[start : parsed.end]
    return parsed, parsed.repaired_text or dump(parsed.value)


def _leads_to_value(words: str, *, fenced: bool) -> bool:
    """Return whether the text before a value and its fence announces the value, or is blank."""
    if _is_blank(words):
        return True
    ends = fenced or words.rstrip(" \t").endswith(("\n", ":", "："))
    return ends and _is_sentence(words)


def _trails(rest: str, *, after_fence: bool) -> bool:
    """Return whether the text after a value is a separate sentence.

    Return False if the value is part of a sentence that continues after the value.
    """
    return (after_fence or "\n" in rest[: len(rest) - len(rest.lstrip())]) and _is_sentence(rest)


def _is_blank(text: str) -> bool:
    return not text.strip().strip(_UNSEEN)


def _is_sentence(words: str) -> bool:
    return len(words) <= MAX_AROUND and not _BRACKETS.search(words) and not _NOT_THE_ANSWER.search(words)


_START, _KEY, _NEXT_KEY, _COLON, _FIRST_ITEM, _VALUE, _AFTER, _STRING, _END = range(9)
_STRING_BODY = lazy_pattern(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_CUT_ESCAPE = lazy_pattern(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_SCALAR = lazy_pattern(r"[\w.+-]*+")
_WHOLE_SCALAR = lazy_pattern(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+|true|false|null")
_SOME_SPACE = lazy_pattern(r"[ \t\r\n]*+")
_MAX_SCALAR = 400
"""Maximum number of characters of a number or literal that is sent while the answer arrives."""
_MAX_HEAD = 64
"""Maximum number of characters at the beginning of an answer that may still become the opening of a fence."""


class AnswerStream:
    """Finds the part of a JSON answer that can be sent while the answer arrives.

    If an answer begins with the JSON value, or with a fence and the value, its text is sent from the value on. What may
    still turn out to be an error is held: a comma, which may be superfluous; the quote at the end of a string, which
    may belong to the string; a number or literal. From the first error on, and after the value, everything is held. An
    answer that begins with anything else is held entirely, since only the whole answer shows whether it has the format.
    Takes linear time, because no character is read twice.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._openers = "{" if schema is None or schema.get("type") == "object" else "{["
        self.is_plain = True
        """Whether the content so far may be JSON without any repair: no fence, no error, no text around the value."""
        self._is_stopped = False
        self._state = _START
        self._stack: list[str] = []
        self._is_key = self._is_cut = False
        """Whether the current string is a key (`_is_key`), and whether the text ends inside a token (`_is_cut`)."""
        self._open = ""
        """Text that cannot be read until more arrives: an answer's start, or part of an escape, number or literal."""
        self._held: list[str] = []
        """Text that was read but is held back for now."""
        self._sent: list[str] = []

    @property
    def held(self) -> str:
        """The text that has arrived but was not sent, except for the opening of a fence."""
        return "".join(self._held) + self._open

    @property
    def is_complete(self) -> bool:
        """Whether the JSON value has ended."""
        return self._state == _END

    @property
    def is_holding(self) -> bool:
        """Whether any text is held."""
        return bool(self._held or self._open)

    def feed(self, piece: str) -> str:
        """Add text of the answer; return what can be sent now."""
        if not piece:
            return ""
        if self._is_stopped:
            self._held.append(piece)
            return ""
        if self._state == _END:
            self._held.append(piece)
            self.is_plain = self.is_plain and not piece.strip(_SPACE)
            return ""
        text, self._open = self._open + piece, ""
        if self._state == _START:
            text = self._skip_lead(text)
        out = self._scan(text) if text else ""
        if out:
            self._sent.append(out)
        return out

    def rest(self, answer: str) -> str:
        """Return the text that is left to send at the end.

        If `answer` begins with the text that was sent, return the rest of `answer`. If not, return `held`.
        """
        sent = "".join(self._sent)
        return answer[len(sent) :] if answer.startswith(sent) else self.held

    def _skip_lead(self, text: str) -> str:
        """Return the text from the beginning of the JSON value on; empty if the value has not begun."""
        bare = text.lstrip(_SPACE)
        if not bare:
            self._held.append(text)
            return ""
        if bare[0] in self._openers:
            self._held.append(text[: len(text) - len(bare)])
            self._state = _VALUE
            return bare
        self.is_plain = False
        fence = _FENCE_HEAD.match(bare)
        if fence is not None and bare[fence.end()] in self._openers:
            self._held.clear()
            self._state = _VALUE
            return bare[fence.end() :]
        if fence is None and bare[0] in "`~" and len(bare) <= _MAX_HEAD:
            self._open = text
        else:
            self._stop(text)
        return ""

    def _stop(self, rest: str) -> None:
        """Hold `rest` and all text after it."""
        self.is_plain, self._is_stopped = False, True
        self._held.append(rest)

    def _scan(self, text: str) -> str:
        """Continue reading the JSON value; return the text that can no longer turn out to be wrong."""
        out: list[str] = []
        at = certain = 0
        while at < len(text) and self._state != _END:
            at, is_certain = self._step(text, at)
            if at < 0:
                self._stop(text[certain:])
                return "".join(out)
            if is_certain >= 0:
                out += (*self._held, text[certain:is_certain])
                self._held.clear()
                certain = is_certain
            if self._is_cut:
                break
        self._is_cut = False
        if at > certain:
            self._held.append(text[certain:at])
        if self._state != _END:
            self._open = text[at:]
        elif at < len(text):
            self._held.append(text[at:])
            self.is_plain = self.is_plain and not text[at:].strip(_SPACE)
        return "".join(out)

    def _step(self, text: str, at: int) -> tuple[int, int]:
        """Read a token; return the offset at which it ends, and the offset up to which the text may be sent.

        The first offset is -1 if there is an error. The second is -1 if the token allows no further text to be sent.
        """
        if self._state == _STRING:
            return self._read_string(text, at)
        space = _SOME_SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            return at, -1
        char, state = text[at], self._state
        if state in (_VALUE, _FIRST_ITEM) and char not in "]}":
            return self._read_value(text, at)
        if state in (_KEY, _NEXT_KEY) and char == '"':
            self._state, self._is_key = _STRING, True
            return at + 1, at + 1
        if state == _COLON and char == ":":
            self._state = _VALUE
            return at + 1, at + 1
        if state == _AFTER and char == ",":
            self._state = _NEXT_KEY if self._stack[-1] == "}" else _VALUE
            return at + 1, at
        if state in (_AFTER, _KEY, _FIRST_ITEM) and char == self._stack[-1]:
            self._stack.pop()
            self._state = _AFTER if self._stack else _END
            return at + 1, at + 1
        return -1, -1

    def _read_string(self, text: str, at: int) -> tuple[int, int]:
        """Continue reading a string. Only the token after a quotation mark shows whether the mark ends the string."""
        body = _STRING_BODY.match(text, at)
        end = body.end() if body else at
        if end < len(text) and text[end] == '"':
            self._state = _COLON if self._is_key else _AFTER
            return end + 1, end
        if end < len(text) and not _CUT_ESCAPE.match(text, end):
            return -1, -1
        self._is_cut = end < len(text)
        return end, end

    def _read_value(self, text: str, at: int) -> tuple[int, int]:
        """Read the beginning of a string or container, or all of a number or literal."""
        char = text[at]
        if char in "{[" and len(self._stack) < MAX_DEPTH:
            self._stack.append("}" if char == "{" else "]")
            self._state = _KEY if char == "{" else _FIRST_ITEM
            return at + 1, at + 1
        if char == '"':
            self._state, self._is_key = _STRING, False
            return at + 1, at + 1
        scalar = _SCALAR.match(text, at, at + _MAX_SCALAR)
        end = scalar.end() if scalar else at
        if end == len(text):
            self._is_cut = True
            return at, -1
        if not _WHOLE_SCALAR.fullmatch(text, at, end):
            return -1, -1
        self._state = _AFTER
        return end, -1


# The format in the prompt, and the check of an answer.


def describe_format(request: ToolRequest, subject: str) -> str:
    """Return a sentence for the model that says what `response_format` requires; it begins with `subject`."""
    schema = request.answer_schema
    if schema is None:
        return f"{subject} one JSON object and nothing else."
    text = write_json(schema, "the schema of response_format")
    return f"{subject} one JSON value that fits this JSON Schema, and nothing else: {text}"


def describe_answer_format(request: ToolRequest) -> str:
    """Return a sentence for the system message that says which format an answer without calls must have."""
    return describe_format(request, "An answer that is no tool call is")


def format_error(request: ToolRequest, text: str) -> str:
    """Return a text that says why an answer does not match `response_format`; empty if the answer matches.

    The check is strict, since the app will parse the text as JSON.
    """
    try:
        value = json.loads(text, parse_constant=reject_constant)
    except (ValueError, RecursionError):
        return NO_JSON
    return form_error(value, request.answer_schema)


def check_answer(request: ToolRequest, text: str, *, convert: bool = True) -> Healed | Unhealed:
    """Return an answer in the requested format, or why the answer is not in the format.

    The answer is repaired if the request allows it. If `convert` is true, values may be converted to the types in the
    schema.
    """
    if request.heals_answer:
        return heal_answer(text, request.answer_schema, convert=convert)
    why = format_error(request, text)
    return Unhealed(why) if why else Healed(text)


def calls_in_answer(
    request: ToolRequest, text: str, parser: StreamParser, finish_reason: str | None
) -> tuple[list[Event], str]:
    """Return the calls in an answer, valid and malformed, and the text without them.

    `parser` reads the answer as if no JSON had been requested, except that a call must name its tool. If the answer
    matches the requested schema, no calls are returned. If it matches a format that allows any JSON object, its calls
    are returned only if all of them are valid without fixes.
    """
    fits = isinstance(check_answer(request, text), Healed)
    if fits and request.answer_schema is not None:
        return [], text
    events = [*parser.feed(text), *parser.close(finish_reason)]
    calls = [event for event in events if isinstance(event, (CallEnd, Malformed)) and _names_its_tool(event)]
    if fits and not all(isinstance(event, CallEnd) and not event.call.fixes for event in calls):
        return [], text
    return list(calls), parser.reply.content


def _names_its_tool(event: CallEnd | Malformed) -> bool:
    if isinstance(event, CallEnd):
        return not any(fix.kind == "infer" for fix in event.call.fixes)
    return bool(event.name) and event.reason != "unknown_tool"


def without_tools(request: ToolRequest, feedback: tuple[dict[str, Any], ...]) -> ToolRequest:
    """Copy a request to ask only for the answer: without tools, so that the server can enforce the format.

    If the server's grammars garble the output (`constrained_ok` is false), only `feedback` describes the format.
    """
    enforced = request.profile.constrained_ok
    body = request.body if enforced else {key: value for key, value in request.body.items() if key != RESPONSE_FORMAT}
    return replace(
        request.with_feedback(feedback), body=body, choice=replace(request.choice, kind="none"), offered=Tools([])
    )
