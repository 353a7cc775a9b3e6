"""Calls as markup, `call(name) / parameter(key) value / end`, read as they come: the machine of the XML family.

The grammar has no escaping, so a value may hold every tag. What ends it is told from what follows: a closer counts
only before another tag of the call, or the end; a parameter's opener only if the tool has such a parameter and it is
still missing; a call inside a value takes its own closers. A value that nothing closes is never an argument.
"""

from __future__ import annotations

import re
from typing import Literal

from promptools.dialects.block import Block, Segment
from promptools.dialects.collected import Collected, Grammar
from promptools.dialects.settle import Place, Rules, broken
from promptools.dialects.tags import Tag
from promptools.errors import clip
from promptools.parsing.parts import note
from promptools.types import Fix, Malformed, MalformedReason

JUNK = 1000
"""Characters between calls, inside their wrapper, that are looked through."""
NAMING = frozenset(("tool_name", "name", "parameters"))
"""Elements of Anthropic's format of 2023."""
LOST = re.compile(r"\s*(?:function|invoke)\s*=\s*[\"']?([^\s<>\"'={}]{1,128})[\"']?\s*>")


class MarkupCandidate(Block):
    """A block of calls, or one call without a wrapper, as `promptools.parsing.parts.Candidate`."""

    def __init__(self, grammar: Grammar, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(grammar, rules, place, firm=firm)
        self._wrapped = False
        self._wrapper_name: str | None = None
        self._words: list[str] = []
        """What stands between the tags outside of values."""
        self._early: list[Fix] = []
        self._call: Collected | None = None
        self._start = 0
        """Where the call begins."""
        self._key = ""
        self._style: Literal["tag", "nameless", "element"] = "tag"
        self._string: str | None = None
        self._value: list[str] = []
        self._closing: list[tuple[int, Tag | str]] = []
        """What looks like the end of the value, and where it stands."""
        self._depth = 0
        """Calls inside the value that are open."""
        self._nested = False
        self._maybe = False
        """A call's opener has just come inside the value: a parameter's next to it makes it a call."""
        self._reopen: int | None = None
        """Where the last value began, while words that follow its call may still be its own."""
        self._why = ""
        self._tags.words = NAMING | rules.tools.all_keys if rules.tools is not None else None

    # --- around calls --------------------------------------------------------------------------------------------

    def _outside(self, token: Tag | str) -> None:
        """In the wrapper, before its first call."""
        if isinstance(token, str):
            self._words_outside(token)
            return
        name = self._named_by_words() if token.kind == "element" else self._wrapper_name
        match token.kind:
            case "wrap" if not token.close:
                self._odd(token)
                self._wrapped, self._wrapper_name = True, token.name
            case "call" if not token.close:
                self._odd(token)
                self._open_call(self._at, token.name)
                if token.empty:
                    self._end_call(self._at + 1)
            case "param" | "element" if not token.close and name is not None:
                self._early.append(Fix("marker", "the name stood outside of the tag"))
                self._open_call(self._at, name)
                self._in_call(token)
            case _:
                self._text(self._at, f"{clip(token.raw, 40)!r} stands where a call belongs")

    def _words_outside(self, words: str) -> None:
        self._words.append(words)
        said = "".join(self._words)
        lost = LOST.match(said)
        if lost is not None:
            self._put_back(len(said) - lost.end())
            self._early.append(Fix("marker", f"no '<' before {clip(lost[0].strip(), 40)!r}"))
            self._open_call(self._at, lost[1])
        elif self._grammar.objects and said.strip()[:1] in ("{", "["):
            self._put_back(len(words.lstrip()))
            self._read_json(None)
        elif len(said) > JUNK:
            self._text(self._at + 1, "no call follows the opener")

    def _named_by_words(self) -> str | None:
        """Give the tool that the words before a tag name."""
        said = "".join(self._words).strip()
        known = self._rules.tools is not None and self._rules.tools.get(said) is not None
        return said if known else None

    def _between(self, token: Tag | str) -> None:
        """In the wrapper, after a call."""
        if isinstance(token, str):
            self._words.append(token)
            if token.strip() and sum(map(len, self._words)) > JUNK:
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
            return
        match token.kind:
            case "wrap" if token.close:
                self._finish(self._at + 1, self._odd_fix(token))
            case "call" if not token.close:
                self._early += [Fix("marker", "words stood between the calls")] if self._spoke() else []
                self._odd(token)
                self._open_call(self._at, token.name)
                if token.empty:
                    self._end_call(self._at + 1)
            case "param" | "element" if token.close and self._reopen is not None and self._spoke():
                self._reopen_value(token)
            case "cut" if token.raw.startswith("</") and not self._spoke():
                self._finish(self._at + 1, Fix("closer", f"no {self._grammar.wrapper[1]!r}, only {token.raw!r}"))
            case "wrap" | "end" | "cut":
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
            case _:
                self._words.append(token.raw)

    def _spoke(self) -> bool:
        return any(not each.isspace() for each in self._words)

    def _reopen_value(self, token: Tag) -> None:
        """Take what followed the call for the rest of its last value: it is closed here, not before."""
        assert self._reopen is not None
        begin = self._reopen
        call = self._segments.pop().call
        assert isinstance(call, Collected)
        call.take_back(self._key)
        self._call = call
        self._value = self._tokens[begin : self._at]
        self._state = self._in_value
        self._in_value(token)

    def _open_call(self, at: int, name: str | None) -> None:
        self._start = at
        self._words = []
        self._reopen = None
        if name is None:
            self._state = self._naming
            return
        self._call = call = Collected(name, self._grammar, self._rules)
        for fix in self._early:
            call.note(fix)
        self._early = []
        if self._rules.tools is not None:
            keys = self._rules.tools.keys(call.tool.name) if call.tool is not None else self._rules.tools.all_keys
            self._tags.words = NAMING | keys | {name}
        self._state = self._in_call

    def _naming(self, token: Tag | str) -> None:
        """After a call's opener without a name: it stands in the words that follow."""
        if isinstance(token, str):
            self._words.append(token)
            return
        said = "".join(self._words).strip()
        if token.kind == "element" and not token.close and not said and token.name in NAMING:
            self._words = []
        elif token.close and said and token.kind in ("call", "element"):
            self._early.append(Fix("marker", "the name stood outside of the tag"))
            self._open_call(self._start, said)
        else:
            self._give_up("the call has no name", token)

    def _end_call(self, end: int, fix: Fix | None = None) -> None:
        """End the call before the place `end`."""
        call = self._call
        assert call is not None
        if fix is not None:
            call.note(fix)
        if not self._wrapped and not self._grammar.bare and not self._segments:
            call.note(Fix("marker", f"no {self._grammar.wrapper[0]!r}"))
        self._segments.append(Segment(self._start, end, call, []))
        self._call = None
        self._words = []
        self._state = self._between
        if not self._wrapped:
            self._finish(end)

    # --- in a call -----------------------------------------------------------------------------------------------

    def _in_call(self, token: Tag | str) -> None:
        """In a call, outside of values."""
        call = self._call
        assert call is not None
        if isinstance(token, str):
            self._words_in_call(token, call)
            return
        match token.kind:
            case "param" | "element" if not token.close:
                self._open_value(token, call)
            case "param":
                call.note(Fix("closer", f"{clip(token.raw, 40)!r} too many"))
            case "element" if token.name != call.said:
                pass
            case "call" if not token.close and token.empty and token.name and _given(token) is not None:
                call.note(Fix("marker", f"the parameter {token.name!r} was written as a call"))
                call.add(token.name, _given(token) or "", inline=True)
            case "call" | "element" if token.close:
                self._odd(token)
                self._end_call(self._at + 1)
            case "call" | "wrap":
                self._end_call(self._at, self._missing(0))
                if not self._over:
                    self._between(token)
            case "end" if call.values:
                self._end_call(self._at, self._missing(0))
                if not self._over:
                    self._between(token)
            case "cut":
                self._words.append(token.raw)
            case _:
                self._give_up(f"{clip(token.raw, 40)!r} stands in the call", token)

    def _words_in_call(self, words: str, call: Collected) -> None:
        bare = words.lstrip()
        if not bare:
            return
        if bare[0] == "{" and not call.values:
            self._put_back(len(bare))
            self._read_json(call.said)
        else:
            self._give_up("words stand between the parameters", words)

    def _open_value(self, tag: Tag, call: Collected) -> None:
        if tag.kind == "element" and tag.name in NAMING and not (call.tool is not None and call.declares(tag.name)):
            return
        if tag.kind == "element" and not call.declares(tag.name or ""):
            self._give_up(f"{clip(tag.raw, 40)!r} stands in the call", tag)
            return
        self._style = "element" if tag.kind == "element" else "tag" if tag.name is not None else "nameless"
        if self._style == "element":
            call.note(Fix("marker", f"a parameter stood in {clip(tag.raw, 40)!r}"))
        else:
            self._odd(tag)
        self._key = tag.name or ""
        self._string = tag.attributes.get("string")
        self._value, self._closing = [], []
        self._depth, self._nested, self._maybe = 0, False, False
        self._reopen = None
        if tag.empty:
            call.add(self._key, _given(tag) or "", inline=True)
        else:
            self._state = self._keying if self._style == "nameless" else self._in_value

    def _keying(self, token: Tag | str) -> None:
        """After a parameter's opener without a name: it stands in the words that follow."""
        if isinstance(token, str):
            self._value.append(token)
            return
        key = "".join(self._value).strip()
        if token.kind != "param" or not token.close or not key or "\n" in key:
            self._give_up("a parameter has no name", token)
            return
        self._key, self._value = key, []
        self._state = self._in_value

    # --- in a value ----------------------------------------------------------------------------------------------

    def _in_value(self, token: Tag | str) -> None:
        """In a value: everything is its own, but for what ends it."""
        if isinstance(token, str):
            self._maybe = self._maybe and token.isspace()
            self._value.append(token)
            return
        if self._maybe and ((token.kind == "param" and not token.close) or (token.kind == "call" and token.close)):
            self._depth += 1
            self._nested = True
        self._maybe = token.kind == "call" and not token.close
        if self._depth:
            self._depth -= token.kind == "call" and token.close
            self._value.append(token.raw)
        elif self._closes(token) or (token.close and token.kind in ("call", "wrap")):
            self._closing = [(self._at, token)]
            self._state = self._ending
        elif self._next_begins(token):
            self._end_value(self._missing(1) if self._style == "tag" else None)
            self._in_call(token)
        else:
            self._value.append(token.raw)

    def _closes(self, tag: Tag) -> bool:
        """Tell whether a tag is the value's own closer."""
        if self._style == "element":
            return tag.kind == "element" and tag.close and tag.name == self._key
        return tag.kind == "param" and tag.close

    def _next_begins(self, tag: Tag) -> bool:
        """Tell whether the next parameter begins, so that this one's closer is missing."""
        if tag.kind != "param" or tag.close or self._nested or self._style == "element":
            return False
        if self._style == "nameless" or tag.name is None:
            return self._style == "nameless" and tag.name is None
        call = self._call
        assert call is not None
        if tag.name == self._key or tag.name in call.values or not call.declares(tag.name):
            return False
        return call.tool is not None or (bool(self._value) and self._value[-1].endswith("\n"))

    def _ending(self, token: Tag | str) -> None:
        """After what looks like the end of a value: what follows tells."""
        if isinstance(token, str):
            self._closing.append((self._at, token))
            if not token.isspace():
                self._not_ended()
        elif token.kind == "cut" or (self._closes(token) and self._closes_own()):
            self._closing.append((self._at, token))
        elif self._follows(token):
            self._ended()
            if not self._over:  # else the token is read again
                self._state(token)
        else:
            self._not_ended()
            self._in_value(token)

    def _closes_own(self) -> bool:
        first = self._closing[0][1]
        return isinstance(first, Tag) and self._closes(first)

    def _follows(self, tag: Tag) -> bool:
        """Tell whether a tag may follow the end of a value."""
        first = self._closing[-1][1] if isinstance(self._closing[-1][1], Tag) else self._closing[0][1]
        assert isinstance(first, Tag)
        if self._closes_own():
            if tag.kind == "element":
                return self._style == "element" or tag.name == "parameters"
            return True
        if self._nested or tag.kind in ("param", "element"):
            return False
        if first.kind == "call":
            return tag.kind in ("wrap", "end") or not tag.close
        return tag.kind == "end" or (tag.kind == "wrap" and not tag.close)

    def _not_ended(self) -> None:
        self._value += [each if isinstance(each, str) else each.raw for _, each in self._closing]
        self._closing = []
        self._state = self._in_value

    def _ended(self) -> None:
        """Take the value, and what closed it."""
        closing, self._closing = self._closing, []
        begin, first = closing[0][0] - len(self._value), closing[0][1]
        assert isinstance(first, Tag)
        own = self._closes(first)
        self._end_value(None if own or self._style == "nameless" else self._missing(1))
        if own and self._style == "tag":
            self._odd(first)
        here = self._at
        for at, token in closing[1 if own else 0 :]:
            if not self._over and isinstance(token, Tag):
                self._at = at
                self._state(token)
        self._at = here
        self._reopen = begin if own else None

    def _end_value(self, fix: Fix | None) -> None:
        call = self._call
        assert call is not None
        if fix is not None:
            call.note(fix)
        call.add(self._key, "".join(self._value), string=self._string)
        self._state = self._in_call

    # --- what is missing, or odd ---------------------------------------------------------------------------------

    def _missing(self, which: int) -> Fix:
        return Fix("closer", f"no {self._grammar.closers[which]!r}")

    def _no_wrapper_closer(self) -> Fix | None:
        return Fix("closer", f"no {self._grammar.wrapper[1]!r}") if self._wrapped else None

    def _odd_fix(self, tag: Tag) -> Fix | None:
        if self._grammar.canonical.fullmatch(tag.raw):
            return None
        return Fix("marker", f"the tag was written {clip(tag.raw, 60)!r}")

    def _odd(self, tag: Tag) -> None:
        """Note a tag that is not as the family is trained to write it."""
        fix = self._odd_fix(tag)
        if fix is not None and self._call is not None:
            self._call.note(fix)
        elif fix is not None:
            self._early.append(fix)

    def _inner_decided(self) -> None:
        """Take what the reader of JSON made of a body."""
        inner, self._inner = self._inner, None
        assert inner is not None
        self.tries += inner.tries
        self._at = len(self._tokens)
        self._tokens.append("".join(part.raw for part in inner.parts))
        if all(part.kind == "text" for part in inner.parts):
            self._give_up("the JSON in it is no call", self._tokens[-1])
            return
        call, self._call = self._call, None
        for fix in call.fixes if call is not None else self._early:
            note(inner.parts, fix)
        self._segments.append(Segment(self._at, self._at + 1, None, inner.parts))
        self._words = []
        self._state = self._between
        if not self._wrapped or call is None:
            self._finish(self._at + 1)

    def _give_up(self, why: str, token: Tag | str) -> None:
        """Go on to the end of what is no call; where a call is meant it is a broken one, else it is text."""
        named = self._call is not None and self._call.tool is not None
        if self._place.sentinel or (self._place.expected and named):
            self._why = why
            self._state = self._skipping
            if isinstance(token, Tag):
                self._skipping(token)
        elif self._segments:
            self._finish(self._segments[-1].end, self._no_wrapper_closer())
        else:
            self._text(self._at + isinstance(token, str), why)

    def _skipping(self, token: Tag | str) -> None:
        """In what is no call, up to its end."""
        if isinstance(token, str) or not token.close or token.kind not in ("call", "wrap"):
            return
        end = self._at + (token.kind == "call")
        self._segments.append(Segment(self._start, end, self._broken("invalid_json", self._why), []))
        self._call, self._words, self._reopen = None, [], None
        self._state = self._between
        if token.kind == "wrap":
            self._between(token)
        elif not self._wrapped:
            self._finish(end)

    def _broken(self, reason: MalformedReason, why: str) -> Malformed:
        call = self._call
        name = None if call is None else call.tool.name if call.tool is not None else call.said
        return broken(reason, why, self._place.dialect, name)

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self, finish_reason: str | None) -> None:
        """Decide: the text is over."""
        self._at = len(self._tokens)
        length = finish_reason == "length"
        if self._state == self._ending:
            if self._closes_own() or not (self._nested or length):
                self._ended()
            else:
                self._not_ended()
        if self._over:
            return
        if self._state == self._in_call:
            self._end_in_call(finish_reason)
        elif self._state == self._between:
            if length and self._wrapped and self._reopen is not None:  # the value may go on
                self._call = self._segments[-1].call if isinstance(self._segments[-1].call, Collected) else None
                self._start = self._segments.pop().start
                self._truncate("the text ended before its wrapper did")
            else:
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
        elif self._state == self._skipping:
            self._segments.append(Segment(self._start, self._at, self._broken("invalid_json", self._why), []))
            self._finish(self._at)
        elif self._state == self._outside and not (self._place.expected or (self._place.sentinel and length)):
            self._text(self._at, "no call follows the opener")
        else:
            self._truncate(f"the text ended inside {self._key!r}" if self._key else "the text ended inside it")

    def _end_in_call(self, finish_reason: str | None) -> None:
        call = self._call
        assert call is not None
        stopped = finish_reason in ("stop", "tool_calls")
        meant = self._wrapped or self._place.expected or self._place.sentinel
        cut = any(not each.startswith("</") for each in self._words)
        if not call.values and not meant:
            self._text(self._at, "only the beginning of a call is there")
        elif cut or finish_reason == "length" or not (call.values or stopped):
            self._truncate("the text ended before its closer")
        else:
            call.unclosed = True
            self._end_call(self._at, self._missing(0))
            if not self._over:
                self._finish(self._at, self._no_wrapper_closer())

    def _truncate(self, why: str) -> None:
        """Say of the call that the text ended in that it is cut; or take it for text, where none is certain."""
        call = self._call
        known = self._rules.tools is None or (call is not None and call.tool is not None)
        if not (self._place.sentinel or self._place.expected or (call is not None and known)):
            if self._segments:
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
            else:
                self._text(self._at, f"{why}, and no offered tool is named")
            return
        said = self._broken("truncated", why)
        self._segments.append(Segment(self._start, self._at, said, []))
        self._finish(self._at)


def _given(tag: Tag) -> str | None:
    """Give the value that stands in the tag of a parameter itself."""
    for key in ("string", "value"):
        if key in tag.attributes and tag.attributes[key] not in ("true", "false"):
            return tag.attributes[key]
    return None
