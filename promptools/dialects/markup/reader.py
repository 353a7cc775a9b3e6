"""Calls as markup, `call(name) / parameter(key) value / end`, read as they come: the reader of the XML families.

The format has no escaping, so a value may hold any tag. What ends a value is judged by what follows: a closing tag
counts only before another tag of the call, or the end; a parameter's opening tag counts only if the tool has such a
parameter and it is still missing; a call inside a value takes its own closing tags. A value that nothing closes is
never an argument.

The states, one method each, and the modules that hold them:

    _outside    before the first call: wrapper, call, a name outside of its tag, JSON        here
    _naming     after a call's opening tag without a name                                    here
    _in_call    between parameters                                                           here
    _keying     after a parameter's opening tag without a name                               block_value
    _in_value   in a value                                                                   block_value
    _ending     after what looks like the end of a value                                     block_value
    _between    after a call; its last value may be reopened if its closing tag comes here   here
    _skipping   in what is not a call, up to its end                                         block_end
"""

from __future__ import annotations

import re

from promptools.dialects.base import Textual
from promptools.dialects.markup.block import Segment
from promptools.dialects.markup.block_end import Ended
from promptools.dialects.markup.block_value import NAMING, given_in
from promptools.dialects.markup.collected import Collected, Grammar
from promptools.dialects.markup.live import LiveMarkup
from promptools.dialects.markup.tags import Tag, blank, is_broken, read_tag, unblank
from promptools.dialects.settle import Place, Rules
from promptools.errors import clip
from promptools.parsing.parts import Candidate
from promptools.types import Fix

JUNK = 1000
"""Characters of text between calls, inside their wrapper, before the block is given up."""
LOST = re.compile(r"\s*(?:function|invoke)\s*=\s*[\"']?([^\s<>\"'={}]{1,128})[\"']?\s*>")


class MarkupCandidate(Ended):
    """Reads a block of calls, or one call without a wrapper, as a `promptools.parsing.parts.Candidate`."""

    # --- around calls --------------------------------------------------------------------------------------------

    def _outside(self, token: Tag | str) -> None:
        """In the wrapper, before its first call."""
        if isinstance(token, str):
            self._words_outside(token)
            return
        name = self._named_by_words() if token.kind == "element" else self._wrapper_name
        match token.kind:
            case "noise":
                self._words = []
            case "cut":
                self._cut = token.raw
            case "wrap" if not token.close:
                self._odd(token)
                self._wrapped, self._wrapper_name = True, token.name
                self._words = self._words if self._spoke() else []
            case "call" if not token.close and (token.name is not None or not self._spoke()):
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
        text = "".join(self._words)
        lost = LOST.match(text)
        if lost is not None:
            self._put_back(len(text) - lost.end())
            self._early.append(Fix("marker", f"no '<' before {clip(lost[0].strip(), 40)!r}"))
            self._open_call(self._at - len(self._words) + 1, lost[1])  # it may have come in several tokens
        elif self._grammar.objects and text.strip()[:1] in ("{", "["):
            self._put_back(len(unblank(words)))
            self._read_json(None)
        elif len(text) > JUNK:
            self._put_back(len(text) - JUNK)
            self._text(self._at + 1, "no call follows the opener")

    def _named_by_words(self) -> str | None:
        """Return the tool that the text before a tag names, or None."""
        name = "".join(self._words).strip()
        known = self._rules.tools is not None and self._rules.tools.get(name) is not None
        return name if known else None

    def _between(self, token: Tag | str) -> None:
        """In the wrapper, after a call."""
        if isinstance(token, str):
            self._words.append(token)
            if not blank(token) and sum(map(len, self._words)) > JUNK:
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
            return
        match token.kind:
            case "noise":
                self._words = []
            case "wrap" if token.close:
                self._finish(self._at + 1, self._odd_fix(token))
            case "call" if not token.close:
                self._early += [Fix("marker", "words stood between the calls")] if self._spoke() else []
                self._odd(token)
                self._open_call(self._at, token.name)
                if token.empty:
                    self._end_call(self._at + 1)
            case "param" | "element" if token.close and self._reopen is not None and self._spoke():
                if is_broken("".join(self._words)) or self._parameter_began():
                    self._call, self._start = None, self._segments[-1].end
                    self._give_up("its first tag cannot be read", token)
                else:
                    self._reopen_value(token)
            case "cut":
                self._cut = token.raw
            case "wrap" | "end":
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
            case _:
                self._words.append(token.raw)

    def _spoke(self) -> bool:
        return any(not blank(text) for text in self._words)

    def _parameter_began(self) -> bool:
        """Return whether a parameter has begun since the last call, so that another call follows it."""
        tags = (read_tag(raw, 0) for raw in self._tokens[self._segments[-1].end : self._at])
        return any(tag is not None and tag.kind == "param" and not tag.close for tag in tags)

    def _reopen_value(self, token: Tag) -> None:
        """Make the text after the call the rest of its last value, which is closed only here."""
        assert self._reopen is not None
        begin = self._reopen
        call = self._segments.pop().call
        assert isinstance(call, Collected)
        call.take_back()
        self._call = call
        for raw in self._tokens[begin + len(self._value) : self._at]:
            self._keep(raw)
        self._state = self._in_value
        self._in_value(token)

    def _open_call(self, at: int, name: str | None) -> None:
        self._start = at
        self._words = []
        self._reopen = None
        if self._certain and self._segments:
            self._go_before(at)
        if name is None:
            self._state = self._naming
            return
        self._call = call = Collected(name, self._grammar, self._rules)
        for fix in self._early:
            call.note(fix)
        self._early = []
        self._live = LiveMarkup(call, self._grammar.trim) if self._may_go_live else None
        if self._rules.tools is not None:
            keys = self._rules.tools.keys(call.tool.name) if call.tool is not None else self._rules.tools.all_keys
            self._tags.words = NAMING | keys | {name}
        self._state = self._in_call

    def _naming(self, token: Tag | str) -> None:
        """After a call's opening tag without a name: the name is the text that follows."""
        if isinstance(token, str):
            self._words.append(token)
            return
        name = "".join(self._words).strip()
        if token.kind == "element" and not token.close and not name and token.name in NAMING:
            self._words = []
        elif name and (token.kind in ("call", "element") if token.close else token.kind == "param"):
            self._early.append(Fix("marker", "the name stood outside of the tag"))
            self._open_call(self._start, name)
            if not token.close:
                self._in_call(token)
        else:
            self._give_up("the call has no name", token)

    def _end_call(self, end: int, fix: Fix | None = None) -> None:
        """End the call before index `end`."""
        call = self._call
        assert call is not None
        if fix is not None:
            call.note(fix)
        if not self._wrapped and not self._grammar.bare and not self._segments:
            call.note(Fix("marker", f"no {self._grammar.wrapper[0]!r}"))
        self._segments.append(Segment(self._start, end, call, [], self._live))
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
                if call.holds_opener:
                    call.wrong = "a value holds the opener of a parameter, whose closer may be this one"
            case "element" if token.name != call.said:
                pass
            case "call" if not token.close and token.empty and token.name and given_in(token) is not None:
                call.note(Fix("marker", f"the parameter {token.name!r} was written as a call"))
                self._tell(token.name, as_it_is=False)
                call.add(token.name, given_in(token) or "", inline=True)
            case "noise":
                pass
            case "cut":
                self._cut = token.raw
            case _:
                self._ends_call(token, call)

    def _ends_call(self, tag: Tag, call: Collected) -> None:
        """Consume a tag that ends the call: its own closing tag, or one that shows that it is missing."""
        if tag.close and tag.kind in ("call", "element"):
            self._odd(tag)
            self._end_call(self._at + 1)
        elif tag.kind in ("call", "wrap") or (tag.kind == "end" and call.values):
            self._end_call(self._at, self._missing(0))
            if not self._over:
                self._between(tag)
        else:
            self._give_up(f"{clip(tag.raw, 40)!r} stands in the call", tag)

    def _words_in_call(self, words: str, call: Collected) -> None:
        if blank(words):
            return
        bare = unblank(words)
        if bare[0] == "{" and not call.values:
            self._put_back(len(bare))
            self._read_json(call.said)
        else:
            self._give_up("words stand between the parameters", words)


class Markup(Textual):
    """A dialect of the XML family, defined by its `grammar`."""

    grammar: Grammar

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Start reading at the first tag, the wrapper's or the call's."""
        del head
        return MarkupCandidate(self.grammar, rules, place, firm=firm)
