"""The states inside a value of markup: every tag is part of the value, except for those that end it.

Nothing in a value is escaped. What looks like its end (a closing tag of the parameter, the call or the wrapper) is
kept in `_closing` and the state becomes `_ending`; the tokens that follow decide:

- If another tag of the call, or the end, follows, the value ends (`_ended`), and the kept tags are replayed.
- If text, or a tag that cannot follow, comes, the kept tokens become part of the value again (`_not_ended`).
- A call inside the value takes its own closing tags (`_depth`), and so do parameters inside it (`_inner_tags`).

Where closing tags remain that fit no opening tag, the value may be that of two calls. Such a call is refused as
malformed (`_refuse`): a guess would run a tool with wrong arguments.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from promptools.dialects.markup.block import Block
from promptools.dialects.markup.collected import Collected, Grammar
from promptools.dialects.markup.tags import Tag, begins_another, blank, is_broken
from promptools.dialects.settle import Place, Rules
from promptools.errors import clip
from promptools.types import Fix

NAMING = frozenset(("tool_name", "name", "parameters"))
"""Elements of Anthropic's format of 2023."""


class Valued(Block):
    """The states of a parameter and its value, and the fixes of tags that are not as the family writes them."""

    def __init__(self, grammar: Grammar, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(grammar, rules, place, firm=firm)
        self._wrapped = False
        self._wrapper_name: str | None = None
        self._words: list[str] = []
        """The text between the tags outside of values."""
        self._call: Collected | None = None
        self._key = ""
        self._style: Literal["tag", "nameless", "element"] = "tag"
        self._string: str | None = None
        self._value: list[str] = []
        self._closing: list[tuple[int, Tag | str]] = []
        """What looks like the end of the value: tokens and their indexes."""
        self._depth = 0
        """Calls that are open inside the value."""
        self._nested = False
        self._inner_tags = 0
        """Parameters inside the value that were opened, and not closed."""
        self._inner_closed = False
        """One of them was closed."""
        self._undone = False
        """A closing tag has come inside it that closes nothing."""
        self._left = False
        """Its own closing tag has come as well, and that of its call right after."""
        self._maybe = False
        """A call's opening tag has just come inside the value; the next tag decides whether it is a call."""
        self._reopen: int | None = None
        """The index at which the last value began, while text after its call may still be part of it."""
        self._certain = self._may_go_live = firm and place.meant
        """A call of the block may be emitted before the next one begins, or even while it comes."""
        self._cut = ""
        """What the text ended in that may have become a tag."""
        self._why = ""
        self._tags.cdata = grammar.cdata
        self._tags.words = NAMING | rules.tools.all_keys if rules.tools is not None else None

    @property
    def _quoted(self) -> bool:
        """Whether nothing but its tags makes this a call: it has no wrapper, and the request asked for none."""
        return not (self._wrapped or self._place.meant)

    @abstractmethod
    def _in_call(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _give_up(self, why: str, token: Tag | str | None) -> None: ...

    def _open_value(self, tag: Tag, call: Collected) -> None:
        if tag.kind == "element" and tag.name in NAMING and not (call.tool is not None and call.declares(tag.name)):
            return
        if tag.kind == "element" and not call.declares(tag.name or ""):
            self._give_up(f"{clip(tag.raw, 40)!r} stands in the call", tag)
            return
        if self._quoted and not tag.attributes.keys() <= {"name", "string", "value"}:
            self._give_up(f"{clip(tag.raw, 40)!r} is another format's", tag)
            return
        self._style = "element" if tag.kind == "element" else "tag" if tag.name is not None else "nameless"
        if self._style == "element":
            call.note(Fix("marker", f"a parameter stood in {clip(tag.raw, 40)!r}"))
        else:
            self._odd(tag)
        self._key = tag.name or ""
        self._string = tag.attributes.get("string")
        self._value, self._closing = [], []
        self._depth, self._nested, self._maybe, self._undone, self._left = 0, False, False, False, False
        self._inner_tags, self._inner_closed = 0, False
        self._reopen = None
        if self._style != "nameless":
            self._tell(self._key, as_it_is=not tag.empty and self._string != "false")
        if tag.empty:
            call.add(self._key, given_in(tag) or "", inline=True)
        else:
            self._state = self._keying if self._style == "nameless" else self._in_value

    def _keying(self, token: Tag | str) -> None:
        """After a parameter's opening tag without a name: the name is the text that follows."""
        if isinstance(token, str):
            self._value.append(token)
            return
        key = "".join(self._value).strip()
        call = self._call
        assert call is not None
        if token.kind != "param" or not token.close or "\n" in key or not (key and call.declares(key)):
            self._give_up("a parameter has no name", token)
            return
        self._key, self._value = key, []
        self._tell(key, as_it_is=True)
        self._state = self._in_value

    def _tell(self, key: str, *, as_it_is: bool) -> None:
        if self._live is not None:
            self._live.open(key, as_it_is=as_it_is and not self._grammar.cdata)

    def _in_value(self, token: Tag | str) -> None:
        """In a value: every token is part of it, except for those that end it."""
        if isinstance(token, str):
            self._maybe = self._maybe and blank(token)
            self._keep(token)
            return
        if self._maybe and _makes_call(token):
            self._depth += 1
            self._nested = True
        elif self._left and token.kind == "param" and not token.close:
            self._refuse()
        self._maybe = token.kind == "call" and not token.close
        if token.kind == "cdata":
            self._keep(token.raw)
        elif self._doubles(token):
            self._note(Fix("marker", f"{clip(token.raw, 60)!r} stood twice"))
        elif self._depth:
            self._depth -= token.kind == "call" and token.close
            self._keep(token.raw)
        elif self._closes(token) or (token.close and token.kind in ("call", "wrap")):
            self._closing = [(self._at, token)]
            self._state = self._ending
        elif self._next_begins(token):
            self._end_value(self._missing(1) if self._style == "tag" else None)
            self._in_call(token)
        else:
            self._inner_tags += token.kind == "param" and not token.close and not token.empty and self._style == "tag"
            self._keep(token.raw)

    def _keep(self, words: str) -> None:
        self._value.append(words)
        if self._live is not None:
            self._live.take(words)

    def _doubles(self, tag: Tag) -> bool:
        """Return whether a tag repeats the value's opening tag, with nothing between."""
        return tag.kind == "param" and not tag.close and tag.name == self._key and not self._value

    def _closes(self, tag: Tag) -> bool:
        """Return whether a tag is the value's own closing tag."""
        if self._style == "element":
            return tag.kind == "element" and tag.close and tag.name == self._key
        return tag.kind == "param" and tag.close

    def _next_begins(self, tag: Tag) -> bool:
        """Return whether the next parameter begins, so that this one's closing tag is missing."""
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
        """After what looks like the end of a value: the next token decides."""
        if isinstance(token, str):
            if is_broken(token) and self._closes_own():  # no value ends like this by chance
                self._ended()
                self._state(token)
                return
            self._closing.append((self._at, token))
            if not blank(token):
                self._not_ended()
        elif self._closes_inner(token):
            self._inner_tags -= 1
            self._inner_closed = True
            self._keep_closing()
            self._in_value(token)
        elif token.kind == "cut" or (self._closes(token) and self._closes_own()):
            self._closing.append((self._at, token))
        elif self._follows(token):
            self._ended()
            if not self._over:  # else the token is read again
                self._state(token)
        else:
            self._not_ended()
            self._in_value(token)

    def _closes_inner(self, tag: Tag) -> bool:
        """Return whether what looked like the end of the value closes a parameter inside it, judged by the next tag."""
        if not (self._inner_tags and self._closes_own()) or tag.kind != "param":
            return False
        call = self._call
        assert call is not None
        return tag.close or not self._begins_next(tag, call)

    def _begins_next(self, tag: Tag, call: Collected) -> bool:
        """Return whether a tag opens a parameter of the tool that the call has not given yet."""
        return tag.name not in (None, self._key, *call.values) and call.declares(tag.name or "")

    def _closes_own(self) -> bool:
        first = self._closing[0][1]
        return isinstance(first, Tag) and self._closes(first)

    def _follows(self, tag: Tag) -> bool:
        """Return whether a tag may follow the end of a value."""
        first = self._closing[-1][1] if isinstance(self._closing[-1][1], Tag) else self._closing[0][1]
        assert isinstance(first, Tag)
        if self._closes_own():
            if tag.kind == "element":
                return self._style == "element" or tag.name == "parameters"
            return tag.kind != "noise" or "end" in tag.raw
        if self._nested or (self._quoted and self._undone) or tag.kind in ("param", "element"):
            return False
        if first.kind == "call":
            return tag.kind in ("wrap", "end") or not tag.close
        return tag.kind == "end" or (tag.kind == "wrap" and not tag.close)

    def _not_ended(self) -> None:
        self._undone = True
        tags = (token for _, token in self._closing if isinstance(token, Tag))
        self._left = self._left or (self._closes_own() and any(tag.kind == "call" for tag in tags))
        self._keep_closing()

    def _keep_closing(self) -> None:
        """Make what looked like the end of the value part of it."""
        for _, token in self._closing:
            self._keep(token if isinstance(token, str) else token.raw)
        self._closing = []
        self._state = self._in_value

    def _ended(self) -> None:
        """End the value at the tags that closed it, and replay them."""
        closing, self._closing = self._closing, []
        begin, first = closing[0][0] - len(self._value), closing[0][1]
        assert isinstance(first, Tag)
        own = self._closes(first)
        self._end_value(None if own or self._style == "nameless" else self._missing(1))
        if own and self._style == "tag":
            self._odd(first)
        current = self._at
        for at, token in closing[1 if own else 0 :]:
            if not self._over and isinstance(token, Tag):
                self._at = at
                self._state(token)
        self._at = current
        self._reopen = begin if own else None

    def _refuse(self) -> None:
        """Refuse the call: its value may be that of two calls."""
        assert self._call is not None
        self._call.wrong = f"the closers in {self._key!r} belong to no tags of its own: it may be of two calls"

    def _end_value(self, fix: Fix | None) -> None:
        call = self._call
        assert call is not None
        if fix is not None:
            if self._undone:
                self._refuse()
            call.note(fix)
            self._value = [
                "".join(self._value).removesuffix("\n").removesuffix("\r")
            ]  # the line break before the next tag
        value = "".join(self._value)
        call.holds_opener = call.holds_opener or bool(self._inner_tags)
        if self._inner_tags and self._inner_closed:  # one closing tag too few: any of them may be the value's
            self._refuse()
        if not (self._grammar.cdata and "<![CDATA[" in value) and begins_another(value):
            self._refuse()
        call.add_last(self._key, self._value, string=self._string)
        self._state = self._in_call

    # --- what is missing, or odd ---------------------------------------------------------------------------------

    def _missing(self, which: int) -> Fix:
        return Fix("closer", f"no {self._grammar.closers[which]!r}")

    def _odd_fix(self, tag: Tag) -> Fix | None:
        if self._grammar.canonical.fullmatch(tag.raw):
            return None
        return Fix("marker", f"the tag was written {clip(tag.raw, 60)!r}")

    def _odd(self, tag: Tag) -> None:
        """Record a tag that is not as the family is trained to write it."""
        fix = self._odd_fix(tag)
        if fix is not None:
            self._note(fix)

    def _note(self, fix: Fix) -> None:
        if self._call is not None:
            self._call.note(fix)
        else:
            self._early.append(fix)

    def _no_wrapper_closer(self) -> Fix | None:
        return Fix("closer", f"no {self._grammar.wrapper[1]!r}") if self._wrapped else None


def _makes_call(tag: Tag) -> bool:
    """Return whether a tag after a call's opening tag makes it a call: a parameter, its own closing tag, or a name."""
    if tag.kind == "call":
        return tag.close
    return not tag.close and (tag.kind == "param" or (tag.kind == "element" and tag.name in NAMING))


def given_in(tag: Tag) -> str | None:
    """Return the value that a parameter's tag itself holds, or None."""
    for key in ("string", "value"):
        if key in tag.attributes and tag.attributes[key] not in ("true", "false"):
            return tag.attributes[key]
    return None
