"""Kimi K3: every part of a message stands between the same three tokens (XTML).

    <|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>
    Oslo<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>

A string is written as it is, anything else as JSON. Nothing is escaped, so a string may contain tags, even a complete
call. `XtmlCandidate` therefore has two states: between arguments, where any tag counts, and in a value, where a closing
tag only counts if structure follows it, and a quoted call consumes its own closing tags. If a value may belong to two
calls, the call is malformed.

Source: the parsers `kimi_k3` of vLLM 0.32 and llama.cpp (2026).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.calls.resolve import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.contract import Head, Textual
from promptools.dialects.prefix_patterns import any_of, literal_text, sequence
from promptools.dialects.readers.key_value.tagged_text import TaggedTextReader
from promptools.dialects.rendering.declaration import explain_tools, json_lines
from promptools.dialects.rendering.value_text import escaped_json
from promptools.jsontext.read import Unreadable, read_value
from promptools.parsing.parts import Candidate
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

OPEN, CLOSE, SEP = "<|open|>", "<|close|>", "<|sep|>"
TOOLS, END_TOOLS = f"{OPEN}tools{SEP}", f"{CLOSE}tools{SEP}"
END_CALL, END_ARGUMENT = f"{CLOSE}call{SEP}", f"{CLOSE}argument{SEP}"

_MAX_ATTRIBUTES = 4000
"""Characters of a tag's attributes: a key may itself be a long text, and an unfinished tag costs no more than this."""
_ATTRIBUTES = rf"\s[^<>]{{0,{_MAX_ATTRIBUTES}}}+"
_TAG: Final = re.compile(
    rf"(?P<argument>{re.escape(OPEN)}argument{_ATTRIBUTES}{re.escape(SEP)})|(?P<call>{re.escape(OPEN)}call(?=\s))"
    rf"|(?P<end_argument>{re.escape(END_ARGUMENT)})|(?P<end_call>{re.escape(END_CALL)})"
    rf"|(?P<end_tools>{re.escape(END_TOOLS)})|(?P<stop><\|end_of_msg\|>)"
)
_PARTIAL_TAG: Final = re.compile(
    any_of(
        sequence(literal_text(f"{OPEN}argument"), _ATTRIBUTES, literal_text(SEP)),
        sequence(literal_text(f"{OPEN}call"), r"\s"),
        *map(literal_text, (END_ARGUMENT, END_CALL, END_TOOLS, "<|end_of_msg|>")),
    )
)
_CALL: Final = sequence(literal_text(f"{OPEN}call"), _ATTRIBUTES, literal_text(SEP))
_CALL_TAG: Final = re.compile(_CALL)
_BROKEN_OPENER = re.compile(rf"{re.escape(END_ARGUMENT)}[\s<|]{{0,8}}open\b")
"""An argument's closing tag in a value, and after it a broken opening tag of the next argument."""
_CLOSER_PREFIX = CLOSE[:3]
"""The prefix by which a closing tag is recognized."""
_MAX_TAG = _MAX_ATTRIBUTES + 50
_SPACE = re.compile(r"\s{0,256}+")
_ATTRIBUTE = re.compile(r'\s(\w+)\s*=\s*"([^"]*)"')
_ENTITIES = {"&quot;": '"', "&lt;": "<", "&gt;": ">", "&amp;": "&"}
_ENTITY = re.compile("|".join(_ENTITIES))
_ENDS = frozenset(("call", "end_call", "end_tools", "stop"))


class _XtmlTags:
    """The tags of a call."""

    pattern = _TAG

    def kind_of(self, match: re.Match[str]) -> str:
        """Return the kind of the tag that matched."""
        return match.lastgroup or ""

    def hold_from(self, text: str) -> int:
        """Return the offset from which the end of `text` may be the beginning of a tag; its length if none is."""
        at = text.find("<", max(0, len(text) - _MAX_TAG))
        while at >= 0:
            prefix = _PARTIAL_TAG.match(text, at)
            if prefix is not None and prefix.end() == len(text) and _TAG.match(text, at) is None:
                return at
            at = text.find("<", at + 1)
        return len(text)


_XTML_TAGS = _XtmlTags()


def _attributes(tag: str) -> dict[str, str]:
    return {key: _ENTITY.sub(lambda found: _ENTITIES[found[0]], text) for key, text in _ATTRIBUTE.findall(tag)}


class XtmlCandidate(TaggedTextReader):
    """One call between its tokens, as `promptools.parsing.parts.Candidate`."""

    def __init__(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        begin = max(0, head.find(f"{OPEN}call"))
        super().__init__(head[:begin], "", _XTML_TAGS, rules, place, definite=definite)
        self._pieces, self._base_offset = [head[begin:]], len(head) - begin
        self._state = self._between
        self._key: str | None = None
        self._kind = ""
        self._reason: str | None = None
        self._name = _attributes(head).get("tool", "")
        self._name_resolved = False
        self._open_calls = 0
        """The number of calls inside the value that are not closed yet."""
        self._stray_closer = False
        """A closing tag inside the value closed nothing."""
        self._begin = self._base_offset

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        return super().feed(piece, start) if self._resolve_name() else start

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._reason = finish_reason
        if not self._resolve_name():
            return
        self._run(self._held_text, final=True)
        if self._decided:
            return
        raw, rest = "".join(self._pieces), self._take_text().strip()
        whole = self._state == self._between and finish_reason != "length" and len(raw) > self._begin
        if whole and not rest and finish_reason in COMPLETE_FINISH_REASONS:
            self._finish(self._base_offset, self._base_offset, Fix("closer", f"no {END_CALL!r}"))
        elif whole and rest.startswith(_CLOSER_PREFIX) and END_CALL.startswith(rest):
            self._finish(
                self._base_offset - len(rest), self._base_offset, Fix("closer", f"only {rest!r} of {END_CALL!r}")
            )
        else:
            self._finish_parts([self._malformed_part(self._call.as_truncated(), raw)], self._base_offset)

    def _resolve_name(self) -> bool:
        if not self._name_resolved:
            self._name_resolved = True
            started = self._call.set_name(self._name)
            if started is None:
                self._give_up(f"{self._name!r} is no tool", self._begin)
                return False
            self.early += started
        return True

    def _on_last_text(self, rest: str) -> None:
        self._add_text(rest)

    def _between(self, kind: str, _text: str, found: re.Match[str], _final: bool) -> bool:
        if self._take_text().strip():
            self._call.error = "there is text between its arguments"
        end = self._base_offset + len(found[0])
        if kind == "argument":
            self._begin_value(found[0])
        elif kind == "end_argument":
            self._record_fix(f"{found[0]!r} too many")
        elif kind == "end_call":
            self._finish(self._base_offset, end, None)
        elif kind == "end_tools":
            self._finish(self._base_offset, end, Fix("closer", f"closed by {found[0]!r}"))
        else:
            self._finish(self._base_offset, self._base_offset, Fix("closer", f"no {END_CALL!r}"))
        return True

    def _begin_value(self, tag: str) -> None:
        attributes = _attributes(tag)
        self._key, self._kind, self._stray_closer = attributes.get("key"), attributes.get("type", ""), False
        if self._key is None:
            self._call.error = "a value has no key"
        self._state = self._in_value

    def _in_value(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        """Accept a closing tag if structure follows, the next argument if its parameter is new; the rest is text.

        A call quoted inside the value consumes its own closing tags.
        """
        if kind == "call" and (is_call := self._begins_call(text, found.start(), final)) is not False:
            if is_call is None:
                return False
            self._open_calls += 1
        if self._open_calls:
            self._open_calls -= kind == "end_call"
            self._add_text(found[0])
            return True
        after = self._after(text, found.end())
        if after is None and not final and kind != "argument":
            return False
        at_end = after is None and self._reason != "length"
        if kind == "end_argument" and (after is None or after == "argument" or after in _ENDS):
            self._end_value()
        elif kind in ("end_call", "end_tools") and (at_end or after in _ENDS):
            self._close_value()
            return self._between(kind, text, found, final)
        elif kind == "argument" and self._call.lacks(key := _attributes(found[0]).get("key", "")) and key != self._key:
            self._close_value()
            self._begin_value(found[0])
        else:
            if kind == "argument":
                self._reject_stray_closer()
            self._stray_closer = self._stray_closer or kind == "end_argument"
            self._add_text(found[0])
        return True

    def _close_value(self) -> None:
        """End a value that has no closing tag of its own."""
        self._reject_stray_closer()
        self._record_fix(f"the value of {self._key!r} had no closer")
        self._end_value()

    def _reject_stray_closer(self) -> None:
        """Mark the call as malformed if its value may belong to two calls."""
        if self._stray_closer:
            self._call.error = f"the closers in {self._key!r} belong to no tags of its own: it may be of two calls"

    def _begins_call(self, text: str, at: int, final: bool) -> bool | None:
        """Whether a call in the value is more than its opening tag; None if more text is needed."""
        opener = _CALL_TAG.match(text, at)
        if opener is not None and opener.end() == len(text) and not final:
            return None
        after = self._after(text, opener.end()) if opener is not None and text.endswith(SEP, at, opener.end()) else ""
        return None if after is None and not final else after in ("argument", "end_call")

    def _after(self, text: str, at: int) -> str | None:
        """Return the kind of the tag that follows; "" if none does, None if more text is needed."""
        gap = _SPACE.match(text, at)
        assert gap is not None
        tag = _TAG.match(text, gap.end())
        if tag is not None:
            return tag.lastgroup
        cut = _PARTIAL_TAG.match(text, gap.end())
        return None if gap.end() == len(text) or (cut is not None and cut.end() == len(text)) else ""

    def _end_value(self) -> None:
        text = self._take_text()
        if self._stray_closer and _BROKEN_OPENER.search(text):
            self._reject_stray_closer()
        if self._key is None:
            pass
        elif self._kind in ("", "string"):
            self.early += self._call.add_text(self._key, text, self._kind)
        else:
            value, fixes = _json(text)
            self.early += self._call.add_value(self._key, value, fixes)
        self._state = self._between


def _json(text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Parse JSON, with the fixes made; any other text stays a string, for the schema to judge."""
    try:
        value = read_value(text.strip())
    except Unreadable:
        return text, ()
    return (text, ()) if text.strip()[value.end :].strip() else (value.value, value.fixes)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


class KimiK3(Textual):
    """`<|open|>call tool="NAME"<|sep|>`, and an `argument` for each argument."""

    name = "kimi_k3"
    models = "Kimi K3"
    tier = "S"
    heads = (
        Head(
            (OPEN,),
            any_of(sequence(literal_text(TOOLS), r"\s{0,64}+", _CALL), _CALL) + r"\s{0,64}+",
            body_starts="<",
        ),
    )
    closers = (END_TOOLS, END_CALL, TOOLS)
    reasoning_tags: Mapping[str, str] = {
        f"{OPEN}think{SEP}": f"{CLOSE}think{SEP}",
        f"{OPEN} think {SEP}": f"{CLOSE} think {SEP}",  # as a detokenizer prints it that sets tokens apart
    }
    answer_tags: Mapping[str, str] = {
        f"{OPEN}response{SEP}": f"{CLOSE}response{SEP}",
        f"{OPEN} response {SEP}": f"{CLOSE} response {SEP}",
    }
    end_tokens = ("<|end_of_msg|>", f"{CLOSE}message{SEP}")

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the arguments after the name."""
        return XtmlCandidate(head, rules, place, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return explain_tools(self.render_calls, tools, json_lines(tools), parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them. A string that contains a tag is written as JSON."""
        return TOOLS + "".join(self._call(call, index) for index, call in enumerate(calls, 1)) + END_TOOLS

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"Result of {result.name}:\n{result.content}" for result in results)

    def _call(self, call: Call, index: int) -> str:
        inner = "".join(_argument(key, value) for key, value in call.arguments.items())
        return f'{OPEN}call tool="{_escape(call.name)}" index="{index}"{SEP}{inner}{END_CALL}'


_TYPES = {bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


def _argument(key: str, value: Any) -> str:
    if isinstance(value, str):
        kind, text = ("json", escaped_json(value)) if "<|" in value else ("string", value)
    else:
        kind, text = _TYPES.get(value.__class__, "null"), escaped_json(value)
    return f'{OPEN}argument key="{_escape(key)}" type="{kind}"{SEP}{text}{END_ARGUMENT}'
