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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.base import Head, Textual
from promptools.dialects.declaration import explain, lines
from promptools.dialects.fields.tagged import TaggedText
from promptools.dialects.openings import either, then, token
from promptools.dialects.plain import guarded
from promptools.dialects.settle import STOPPED, Place, Rules
from promptools.parsing.parts import Candidate
from promptools.parsing.tolerant import Unreadable, read
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

OPEN, CLOSE, SEP = "<|open|>", "<|close|>", "<|sep|>"
TOOLS, END_TOOLS = f"{OPEN}tools{SEP}", f"{CLOSE}tools{SEP}"
END_CALL, END_ARGUMENT = f"{CLOSE}call{SEP}", f"{CLOSE}argument{SEP}"

_ATTRIBUTES = r"\s[^<>]{0,4000}+"
"""With room for a key that is a long text itself; more is no tag, which limits the cost of an unclosed one."""
_TAG: Final = re.compile(
    rf"(?P<argument>{re.escape(OPEN)}argument{_ATTRIBUTES}{re.escape(SEP)})|(?P<call>{re.escape(OPEN)}call(?=\s))"
    rf"|(?P<end_argument>{re.escape(END_ARGUMENT)})|(?P<end_call>{re.escape(END_CALL)})"
    rf"|(?P<end_tools>{re.escape(END_TOOLS)})|(?P<stop><\|end_of_msg\|>)"
)
_CUT: Final = re.compile(
    either(
        then(token(f"{OPEN}argument"), _ATTRIBUTES, token(SEP)),
        then(token(f"{OPEN}call"), r"\s"),
        *map(token, (END_ARGUMENT, END_CALL, END_TOOLS, "<|end_of_msg|>")),
    )
)
_CALL: Final = then(token(f"{OPEN}call"), _ATTRIBUTES, token(SEP))
_CALL_TAG: Final = re.compile(_CALL)
_ANOTHER = re.compile(rf"{re.escape(END_ARGUMENT)}[\s<|]{{0,8}}open\b")
"""An argument's closing tag in a value, and after it a broken opening tag of the next argument."""
_CLOSES = CLOSE[:3]
"""The prefix by which a closing tag is recognized."""
_LONGEST = 4050
_SPACE = re.compile(r"\s{0,256}+")
_ATTRIBUTE = re.compile(r'\s(\w+)\s*=\s*"([^"]*)"')
_ENTITIES = {"&quot;": '"', "&lt;": "<", "&gt;": ">", "&amp;": "&"}
_ENTITY = re.compile("|".join(_ENTITIES))
_ENDS = frozenset(("call", "end_call", "end_tools", "stop"))


class _Tags:
    """The tags of a call."""

    pattern = _TAG

    def kind_of(self, found: re.Match[str]) -> str:
        """Return the kind of the tag that matched."""
        return found.lastgroup or ""

    def hold(self, text: str) -> int:
        """Return the offset from which the end of `text` may be the beginning of a tag; its length if none is."""
        at = text.find("<", max(0, len(text) - _LONGEST))
        while at >= 0:
            prefix = _CUT.match(text, at)
            if prefix is not None and prefix.end() == len(text) and _TAG.match(text, at) is None:
                return at
            at = text.find("<", at + 1)
        return len(text)


_TAGS = _Tags()


def _attributes(tag: str) -> dict[str, str]:
    return {key: _ENTITY.sub(lambda found: _ENTITIES[found[0]], text) for key, text in _ATTRIBUTE.findall(tag)}


class XtmlCandidate(TaggedText):
    """One call between its tokens, as `promptools.parsing.parts.Candidate`."""

    def __init__(self, head: str, rules: Rules, place: Place, *, firm: bool) -> None:
        begin = max(0, head.find(f"{OPEN}call"))
        super().__init__(head[:begin], "", _TAGS, rules, place, firm=firm)
        self._pieces, self._base = [head[begin:]], len(head) - begin
        self._step = self._between
        self._key: str | None = None
        self._kind = ""
        self._reason: str | None = None
        self._name = _attributes(head).get("tool", "")
        self._known = False
        self._inner = 0
        """The number of calls inside the value that are not closed yet."""
        self._undone = False
        """A closing tag inside the value closed nothing."""
        self._begin = self._base

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        return super().feed(piece, start) if self._named() else start

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._reason = finish_reason
        if not self._named():
            return
        self._run(self._held, final=True)
        if self._over:
            return
        raw, rest = "".join(self._pieces), self._spoken().strip()
        whole = self._step == self._between and finish_reason != "length" and len(raw) > self._begin
        if whole and not rest and finish_reason in STOPPED:
            self._finish(self._base, self._base, Fix("closer", f"no {END_CALL!r}"))
        elif whole and rest.startswith(_CLOSES) and END_CALL.startswith(rest):
            self._finish(self._base - len(rest), self._base, Fix("closer", f"only {rest!r} of {END_CALL!r}"))
        else:
            self._tell([self._malformed(self._call.truncated(), raw)], self._base)

    def _named(self) -> bool:
        if not self._known:
            self._known = True
            started = self._call.take_name(self._name)
            if started is None:
                self._give_up(f"{self._name!r} is no tool", self._begin)
                return False
            self.live += started
        return True

    def _last(self, rest: str) -> None:
        self._say(rest)

    def _between(self, kind: str, _text: str, found: re.Match[str], _final: bool) -> bool:
        if self._spoken().strip():
            self._call.wrong = "words stand between its arguments"
        end = self._base + len(found[0])
        if kind == "argument":
            self._begin_value(found[0])
        elif kind == "end_argument":
            self._fix(f"{found[0]!r} too many")
        elif kind == "end_call":
            self._finish(self._base, end, None)
        elif kind == "end_tools":
            self._finish(self._base, end, Fix("closer", f"closed by {found[0]!r}"))
        else:
            self._finish(self._base, self._base, Fix("closer", f"no {END_CALL!r}"))
        return True

    def _begin_value(self, tag: str) -> None:
        attributes = _attributes(tag)
        self._key, self._kind, self._undone = attributes.get("key"), attributes.get("type", ""), False
        if self._key is None:
            self._call.wrong = "a value has no key"
        self._step = self._in_value

    def _in_value(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        """Accept a closing tag if structure follows, the next argument if its parameter is new; the rest is text.

        A call quoted inside the value consumes its own closing tags.
        """
        if kind == "call" and (is_call := self._begins_call(text, found.start(), final)) is not False:
            if is_call is None:
                return False
            self._inner += 1
        if self._inner:
            self._inner -= kind == "end_call"
            self._say(found[0])
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
        elif kind == "argument" and self._call.is_new(key := _attributes(found[0]).get("key", "")) and key != self._key:
            self._close_value()
            self._begin_value(found[0])
        else:
            if kind == "argument":
                self._refuse_if_undone()
            self._undone = self._undone or kind == "end_argument"
            self._say(found[0])
        return True

    def _close_value(self) -> None:
        """End a value that has no closing tag of its own."""
        self._refuse_if_undone()
        self._fix(f"the value of {self._key!r} had no closer")
        self._end_value()

    def _refuse_if_undone(self) -> None:
        """Mark the call as malformed if its value may belong to two calls."""
        if self._undone:
            self._call.wrong = f"the closers in {self._key!r} belong to no tags of its own: it may be of two calls"

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
        cut = _CUT.match(text, gap.end())
        return None if gap.end() == len(text) or (cut is not None and cut.end() == len(text)) else ""

    def _end_value(self) -> None:
        text = self._spoken()
        if self._undone and _ANOTHER.search(text):
            self._refuse_if_undone()
        if self._key is None:
            pass
        elif self._kind in ("", "string"):
            self.live += self._call.add(self._key, text, self._kind)
        else:
            value, fixes = _json(text)
            self.live += self._call.put(self._key, value, fixes)
        self._step = self._between


def _json(text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Parse JSON, with the fixes made; any other text stays a string, for the schema to judge."""
    try:
        value = read(text.strip())
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
            either(then(token(TOOLS), r"\s{0,64}+", _CALL), _CALL) + r"\s{0,64}+",
            opens="<",
        ),
    )
    closers = (END_TOOLS, END_CALL, TOOLS)

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the arguments after the name."""
        return XtmlCandidate(head, rules, place, firm=firm)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return explain(self.render_calls, tools, lines(tools), parallel=parallel, required=required)

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
        kind, text = ("json", guarded(value)) if "<|" in value else ("string", value)
    else:
        kind, text = _TYPES.get(value.__class__, "null"), guarded(value)
    return f'{OPEN}argument key="{_escape(key)}" type="{kind}"{SEP}{text}{END_ARGUMENT}'
