r"""A call as its name, then keys and values between tags, as GLM and its relatives write it.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Oslo</arg_value>
    </tool_call>

Nothing in a value is escaped, so a value may hold any of these tags. Of the calls of a server under load 5 to 17 % have
tags that are missing, doubled or of another kind (GLM 4.5).

One method per state takes each tag: `_in_name`, `_between` (two arguments), `_in_key`, `_keyed` (after a key),
`_in_type` and `_in_value`. Outside of values a wrong tag is repaired and recorded as a fix, or makes the call
malformed. Inside a value these rules hold:

- A closing tag ends the value only where structure follows: another tag, a key with its closing tag, or the end.
- A whole call quoted in the value (`_quoted`), and a value opened in it (`_inner`), take their own closing tags.
- A key's opening tag, or the call's closing tag, ends a value without its closing tag only where the schema and what
  follows allow it. A possible end that is not certain yet is kept as `_ending` and applied if nothing better comes.

A call that was repaired is malformed if a value still holds a tag: then where the value ends is uncertain.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from promptools.dialects.fields.pair_tags import Tags
from promptools.dialects.fields.tagged import TaggedText
from promptools.dialects.settle import STOPPED, Place, Rules
from promptools.types import Fix

KEY_LIMIT = 256
"""Longest key in characters."""

_ENDS = ("call/", "outer/", "think/", "stop", "call")
_AFTER_VALUE = frozenset((*_ENDS, "key", "value/", "key/"))
_AFTER_CALL = frozenset(("call", "call/", "outer/", "stop"))


class Ending(NamedTuple):
    """Where a value may have ended, if nothing better comes: its size, and the index just past the call's text.

    `sure`: the call ended there in any case; else only if the server reports that the model was done.
    """

    size: int
    at: int
    sure: bool


class PairsCandidate(TaggedText):
    """Reads one call between two markers, as a `promptools.parsing.parts.Candidate`."""

    def __init__(self, head: str, tags: Tags, rules: Rules, place: Place, *, firm: bool) -> None:
        opener = tags.opener(tags.call)
        begin = head.find(opener) + len(opener)
        name = head[begin:].lstrip() if begin >= len(opener) else ""
        super().__init__(head[: len(head) - len(name)], name, tags, rules, place, firm=firm)
        self._tags = tags
        self._reason: str | None = None
        self._step = self._in_name
        self._key = self._kind = ""
        self._quoted = self._inner = 0
        """Calls, and values, that are open inside the value."""
        self._ending: Ending | None = None
        self._since = 0
        """Length of `_words` when the closing tag of the possible ending came."""

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._reason = finish_reason
        self._run(self._held, final=True)
        if self._over:
            return
        ending = self._ending
        done = finish_reason in STOPPED
        if self._step == self._between and done and not self._rest():
            self._finish(self._base, self._base, self._no_closer())
        elif (
            ending is not None and self._step == self._in_value and finish_reason != "length" and (ending.sure or done)
        ):
            self._end_value_at(ending)
        elif self._step == self._in_name and not self._call.may_become("".join(self._words).strip()):
            self._give_up("what stands where the name belongs is none", self._base)
        else:
            self._tell([self._malformed(self._call.truncated(), "".join(self._pieces))], self._base)

    def _last(self, rest: str) -> None:
        """Read what the text ends with: a closing tag that was cut short, or text."""
        closer = self._tags.closer(self._tags.call)
        cut = len(rest) > 2 and closer.startswith(rest) and self._reason != "length"
        if cut and (self._step == self._between or (self._step == self._in_name and self._named())):
            self._finish(self._base, self._base + len(rest), Fix("closer", f"only {rest!r} of {closer!r}"))
        elif not self._over:
            self._say(rest)

    # --- what a tag means in each state --------------------------------------------------------------------------

    def _in_name(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        if kind == "call" and self._key_ahead(text, found.end()) is None and not final:
            return False
        if kind == "key/":
            return self._glued()
        if not self._named():
            return True
        self._step = self._between
        return self._between(kind, text, found, final)

    def _named(self) -> bool:
        name = self._spoken().strip().removesuffix("\\n").rstrip()
        started = self._call.take_name(name)
        if started is None:
            self._give_up(f"{name!r} is no tool", self._base)
            return False
        self.live += started
        return True

    def _glued(self) -> bool:
        """Split the name from the first key, whose opening tag is missing."""
        parted = self._call.glued(self._spoken().strip())
        if parted is None:
            self._give_up("what stands where the name belongs is none", self._base)
            return True
        self.live += self._call.take_name(parted[0]) or []
        self._key = parted[1]
        self._fix("the first key had no opener")
        self._step = self._keyed
        return True

    def _between(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        if kind == "call":
            ahead = self._key_ahead(text, found.end())
            if ahead is None and not final:
                return False
            if ahead:
                self._fix(f"{found[0]!r} stood where a key's opener belongs")
                kind = "key"
        rest = self._rest()
        self._spoken()
        if kind == "key/" and self._is_next(rest):
            self._key = rest
            self._fix(f"the key {rest!r} had no opener")
            self._step = self._keyed
            return True
        if rest:
            self._call.wrong = "words stand between its arguments"
        if kind in _ENDS:
            return self._end(kind, text, found, final)
        if kind in ("key", "value", "type"):
            self._key = self._kind = ""
            self._step = {"key": self._in_key, "value": self._in_value, "type": self._in_type}[kind]
            if kind == "value":
                self._call.wrong = "a value has no key"
        elif kind != "sep" or self._call.arguments:
            self._fix(f"{found[0]!r} too many")
        return True

    def _rest(self) -> str:
        """Return the text between two tags, without layout."""
        return "".join(self._words).replace("\\n", "").strip()

    def _end(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        """End the call at a tag."""
        end = self._base + len(found[0])
        if kind == "call/":
            if self._tags.suffix:  # its wrapper's closer cannot be known beforehand
                after = self._tags.kind_at(text, found.end())
                if after is None and not final:
                    return False
                if after == "outer/":
                    end = self._base + text.index(">", text.index("<", found.end())) + 1 - found.start()
            self._finish(self._base, end, None)
        elif kind in ("call", "stop"):
            self._finish(self._base, self._base, self._no_closer())
        else:
            self._finish(self._base, end, Fix("closer", f"closed by {found[0]!r}"))
        return True

    def _in_key(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        key = self._spoken().replace("\\n", "").strip()
        if kind in ("key", *_ENDS):
            return self._orphan(kind, text, found, final)
        self._key = key
        self._call.wrong = self._call.wrong or ("" if key and len(key) <= KEY_LIMIT else "a key is no key")
        if kind in ("key/", "value/", "type"):
            self._step = self._in_type if kind == "type" else self._keyed
        else:
            self._step = self._in_value
        if kind != "key/":
            self._fix(f"the key {key!r} was ended by {found[0]!r}")
        return True

    def _orphan(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        """Drop a key that has no value."""
        if kind == "call" and self._key_ahead(text, found.end()) is None and not final:
            return False
        self._fix("a key had no value")
        self._step = self._between
        return self._between(kind, text, found, final)

    def _keyed(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        between = "".join(self._words)
        if not between.replace("\\n", "").strip():
            if kind in ("key", *_ENDS):
                return self._orphan(kind, text, found, final)
            if kind in ("value", "type"):
                self._spoken()
                self._step = self._in_value if kind == "value" else self._in_type
                return True
            if kind in ("key/", "type/", "sep"):
                self._fix(f"{found[0]!r} too many")
                return True
        elif kind == "value":
            self._call.wrong = "words stand between a key and its value"
        self._words, self._size = [between.lstrip()], len(between.lstrip())
        self._fix(f"the value of {self._key!r} had no opener")
        self._step = self._in_value
        return self._in_value(kind, text, found, final)

    def _in_type(self, kind: str, _text: str, found: re.Match[str], _final: bool) -> bool:
        type_name = self._spoken().strip()
        if kind == "type/":
            self._kind, self._step = type_name, self._keyed
        else:
            self._call.wrong = "a type has no closer"
            self._words, self._step = [found[0]], self._in_value
        return True

    # --- inside a value ------------------------------------------------------------------------------------------

    def _in_value(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        taken: bool | None = False
        if kind == "value/":
            taken = self._value_closer(text, found, final)
        elif kind == "call":
            taken = self._call_opener(text, found, final)
        elif self._quoted:
            self._quoted -= kind == "call/"
        elif kind in ("call/", "outer/"):
            taken = self._call_closer(text, found, final)
        elif kind == "key":
            taken = self._next_key(text, found, final)
        elif kind == "value":
            self._inner += 1
        if taken is False:
            self._say(found[0])
        return taken is not None

    def _value_closer(self, text: str, found: re.Match[str], final: bool) -> bool | None:
        """Treat a value's closing tag as its end if structure follows and nothing inside is open.

        None if more text is needed.
        """
        after = self._tags.kind_at(text, found.end())
        if after is None and not final:
            return None
        ahead = self._key_ahead(text, found.end()) if after == "" else ""
        if ahead is None and not final:
            return None
        structural = after is None or after in _AFTER_VALUE or self._is_next(ahead or "")
        if structural and not self._inner and not self._quoted:
            self._end_value()
            return True
        if not self._quoted:
            self._inner -= 1 if self._inner else 0
        if self._ending is None or not self._ending.sure:
            self._ending = Ending(self._size, self._base + len(found[0]), sure=False)
            self._since = len(self._words) + 1
        return False

    def _call_opener(self, text: str, found: re.Match[str], final: bool) -> bool | None:
        """Treat the next call as the end of one that was closed, or count a call that is quoted in the value."""
        begins = self._tags.begins(text, found.end())
        if begins is None and not final:
            return None
        if not begins:
            return False
        if self._ending is not None and self._ending.sure and not self._quoted:
            self._end_value_at(self._ending)
            return True
        self._quoted += 1
        return False

    def _call_closer(self, text: str, found: re.Match[str], final: bool) -> bool | None:
        """Treat the call's closing tag as the value's end if nothing but structure follows."""
        after = self._tags.kind_at(text, found.end())
        if after is None and not final:
            return None
        end = self._base + len(found[0])
        ending = Ending(self._bare_size(), end, sure=True)
        if self._ending is not None and self._is_beside(self._ending):
            ending = self._ending._replace(at=end, sure=True)
        if (after is None and self._reason != "length") or after in _AFTER_CALL:
            self._end_value_at(ending)
            return True
        if self._ending is None or not self._ending.sure:
            self._ending = ending
        return False

    def _is_beside(self, ending: Ending) -> bool:
        """Return whether only white space has come since a closing tag in the value."""
        near = self._size - ending.size < KEY_LIMIT
        return near and not ending.sure and not "".join(self._words[self._since :]).strip()

    def _next_key(self, text: str, found: re.Match[str], final: bool) -> bool | None:
        """Treat the next key as the end of a value without its closing tag, if the tool has it and the call has not."""
        ahead = self._key_ahead(text, found.end())
        if ahead is None and not final:
            return None
        if not ahead or not self._call.is_new(ahead) or ahead == self._key:
            return False
        self._call.fixes.append(Fix("closer", f"no {self._tags.closer('arg_value')!r}"))
        self._end_value(self._bare_size())
        self._step = self._in_key
        return True

    def _is_next(self, key: str) -> bool:
        """Return whether this is a parameter of the tool that may come next, only without its opening tag."""
        return self._call.tool is not None and key not in (self._key, "") and self._call.is_new(key)

    def _key_ahead(self, text: str, at: int) -> str | None:
        """Return the key at `text[at]` with its closing tag; "" if there is none, None if more text is needed."""
        match = self._tags.ahead.match(text, at)
        if match is None:
            return None if at == len(text) else ""
        if match[0].endswith(self._tags.closer("arg_key")):
            return match[1].strip()
        return None if match.end() == len(text) else ""

    def _bare_size(self) -> int:
        """Return the size of a value without its closing tag: a line break before the next tag is layout."""
        last = "".join(self._words[-2:])
        return self._size - (len(last) - len(last.removesuffix("\n").removesuffix("\r")))

    def _end_value(self, size: int | None = None) -> None:
        value = self._spoken()
        if self._key:
            self.live += self._call.add(self._key, value if size is None else value[:size], self._kind)
        self._key = self._kind = ""
        self._inner = self._quoted = 0
        self._ending = None
        self._step = self._between

    def _end_value_at(self, ending: Ending) -> None:
        """End the value, and the call, where both may have ended."""
        self._end_value(ending.size)
        self._finish(ending.at, ending.at, Fix("closer", f"no {self._tags.closer('arg_value')!r} before the end"))

    def _check(self) -> None:
        values = [value for value in self._call.arguments.values() if isinstance(value, str)]
        tags = [tag for text in (*values, *self._call.arguments) for tag in self._tags.pattern.findall(text)]
        if self._call.fixes and any("arg_" in tag for tag in tags):
            self._call.wrong = "what stands in it is not certain: a tag is part of a value"

    def _no_closer(self) -> Fix:
        return Fix("closer", f"no {self._tags.closer(self._tags.call)!r}")
