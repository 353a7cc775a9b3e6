r"""A call as its name, then keys and values between tags, as GLM and its relatives write it.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Oslo</arg_value>
    </tool_call>

Nothing in a value is escaped, so a value may hold any of these tags. Of the calls of a server under load 5 to 17 % have
tags that are missing, doubled or of another kind (GLM 4.5).

One method per state takes each tag: `_in_name`, `_between` (two arguments), `_in_key`, `_after_key` (after a key),
`_in_type` and `_in_value`. Outside of values a wrong tag is repaired and recorded as a fix, or makes the call
malformed. Inside a value these rules hold:

- A closing tag ends the value only where structure follows: another tag, a key with its closing tag, or the end.
- A whole call quoted in the value (`_open_calls`), and a value opened in it (`_open_values`), take their own closing
  tags.
- A key's opening tag, or the call's closing tag, ends a value without its closing tag only where the schema and what
  follows allow it. A possible end that is not certain yet is kept as `_possible_end` and applied if nothing better
  comes.

A call that was repaired is malformed if a value still holds a tag: then where the value ends is uncertain.
"""

from __future__ import annotations

import re

from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.readers.key_value.pair_tags import PairTags
from promptools.dialects.readers.tags.single_call_reader import TaggedTextReader, ValueEnd, settled
from promptools.types import Fix

KEY_LIMIT = 256
"""Longest key in characters."""

_CALL_ENDS = ("call/", "outer/", "think/", "stop", "call")
_AFTER_VALUE = frozenset((*_CALL_ENDS, "key", "value/", "key/"))
_OF_ARGUMENTS = frozenset(("key", "key/", "type", "type/", "value", "value/"))
_AFTER_CALL = frozenset(("call", "call/", "outer/", "stop"))


class PairReader(TaggedTextReader):
    """Reads one call between two markers, as a `promptools.parsing.parts.Candidate`."""

    def __init__(self, head: str, tags: PairTags, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        opener = tags.call.opener
        begin = head.find(opener) + len(opener)
        name = head[begin:].lstrip() if begin >= len(opener) else ""
        super().__init__(head[: len(head) - len(name)], name, tags, rules, place, definite=definite)
        self._tags = tags
        self._finish_reason: str | None = None
        self._state = self._in_name
        self._type_name = ""
        self._pieces_at_end = 0
        """Length of `_text_pieces` when the closing tag of the possible ending came."""

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._finish_reason = finish_reason
        self._run(self._held_text, final=True)
        if self._decided:
            return
        ending = self._possible_end
        done = finish_reason in COMPLETE_FINISH_REASONS
        if self._state == self._between and done and not self._text_between():
            self._finish(self._base_offset, self._base_offset, self._missing_closer_fix())
        elif (
            ending is not None and self._state == self._in_value and finish_reason != "length" and (ending.sure or done)
        ):
            self._end_value_at(ending)
        elif self._state == self._in_name and not self._call.may_be_tool_name("".join(self._text_pieces).strip()):
            self._give_up("what is in the name's place is no name", self._base_offset)
        else:
            self._finish_parts(
                [self._malformed_part(self._call.as_truncated(), "".join(self._pieces))], self._base_offset
            )

    def _on_last_text(self, rest: str) -> None:
        """Read what the text ends with: a closing tag that was cut short, or text."""
        closer = self._tags.call.closer
        cut = len(rest) > 2 and closer.startswith(rest) and self._finish_reason != "length"
        if cut and (self._state == self._between or (self._state == self._in_name and self._set_name())):
            self._finish(
                self._base_offset, self._base_offset + len(rest), Fix("closer", f"only {rest!r} of {closer!r}")
            )
        elif not self._decided:
            self._add_text(rest)

    # --- what a tag means in each state --------------------------------------------------------------------------

    def _in_name(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        if kind == "call":
            settled(self._key_ahead(text, match.end()), final=final)
        if kind == "key/":
            self._split_glued_name()
            return
        if not self._set_name():
            return
        self._state = self._between
        self._between(kind, text, match, final)

    def _set_name(self) -> bool:
        name = self._take_text().strip().removesuffix("\\n").rstrip()
        started = self._call.set_name(name)
        if started is None:
            self._give_up(f"{name!r} is no tool", self._base_offset)
            return False
        self.early += started
        return True

    def _split_glued_name(self) -> None:
        """Split the name from the first key, whose opening tag is missing."""
        parted = self._call.split_glued_key(self._take_text().strip())
        if parted is None:
            self._give_up("what is in the name's place is no name", self._base_offset)
            return
        self.early += self._call.set_name(parted[0]) or []
        self._key = parted[1]
        self._record_fix("the first key had no opener")
        self._state = self._after_key

    def _between(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        if kind == "call":
            ahead = settled(self._key_ahead(text, match.end()), final=final)
            if ahead:
                self._record_fix(f"{match[0]!r} was in the place of a key's opener")
                kind = "key"
        rest = self._text_between()
        self._take_text()
        if kind == "key/" and self._may_be_next_key(rest):
            self._key = rest
            self._record_fix(f"the key {rest!r} had no opener")
            self._state = self._after_key
            return
        if rest:
            self._call.error = "there is text between its arguments"
        if kind in _CALL_ENDS:
            self._end_call(kind, text, match, final)
            return
        if kind in ("key", "value", "type"):
            self._key = self._type_name = ""
            self._state = {"key": self._in_key, "value": self._in_value, "type": self._in_type}[kind]
            if kind == "value":
                self._call.error = "a value has no key"
        elif kind != "sep" or self._call.arguments:
            self._record_fix(f"{match[0]!r} too many")

    def _text_between(self) -> str:
        """Return the text between two tags, without layout."""
        return "".join(self._text_pieces).replace("\\n", "").strip()

    def _end_call(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        """End the call at a tag."""
        end = self._base_offset + len(match[0])
        if kind == "call/":
            if self._tags.suffixed:  # its wrapper's closer cannot be known beforehand
                after = settled(self._tags.kind_at(text, match.end()), final=final)
                if after == "outer/":
                    end = self._base_offset + text.index(">", text.index("<", match.end())) + 1 - match.start()
            self._finish(self._base_offset, end, None)
        elif kind in ("call", "stop"):
            self._finish(self._base_offset, self._base_offset, self._missing_closer_fix())
        else:
            self._finish(self._base_offset, end, Fix("closer", f"closed by {match[0]!r}"))

    def _in_key(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        key = self._take_text().replace("\\n", "").strip()
        if kind in ("key", *_CALL_ENDS):
            self._drop_key(kind, text, match, final)
            return
        self._key = key
        self._call.error = self._call.error or ("" if key and len(key) <= KEY_LIMIT else "a key is no key")
        if kind in ("key/", "value/", "type"):
            self._state = self._in_type if kind == "type" else self._after_key
        else:
            self._state = self._in_value
        if match[0] != self._tags.key_end:
            self._record_fix(f"the key {key!r} was ended by {match[0]!r}")

    def _drop_key(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        """Drop a key that has no value."""
        if kind == "call":
            settled(self._key_ahead(text, match.end()), final=final)
        self._record_fix("a key had no value")
        self._state = self._between
        self._between(kind, text, match, final)

    def _after_key(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        between = "".join(self._text_pieces)
        if not between.replace("\\n", "").strip():
            if kind in ("key", *_CALL_ENDS):
                self._drop_key(kind, text, match, final)
                return
            if kind in ("value", "type"):
                self._take_text()
                self._state = self._in_value if kind == "value" else self._in_type
                return
            if kind in ("key/", "type/", "sep"):
                self._record_fix(f"{match[0]!r} too many")
                return
        elif kind == "value":
            self._call.error = "there is text between a key and its value"
        self._text_pieces, self._text_size = [between.lstrip()], len(between.lstrip())
        self._record_fix(f"the value of {self._key!r} had no opener")
        self._state = self._in_value
        self._in_value(kind, text, match, final)

    def _in_type(self, kind: str, _text: str, match: re.Match[str], _final: bool) -> None:
        type_name = self._take_text().strip()
        if kind == "type/":
            self._type_name, self._state = type_name, self._after_key
        else:
            self._call.error = "a type has no closer"
            self._text_pieces, self._state = [match[0]], self._in_value

    # --- inside a value ------------------------------------------------------------------------------------------

    def _in_value(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        taken = False
        if kind == "value/":
            taken = self._on_value_closer(text, match, final)
        elif kind == "call":
            taken = self._on_call_opener(text, match, final)
        elif self._open_calls:
            self._open_calls -= kind == "call/"
        elif kind in ("call/", "outer/"):
            taken = self._on_call_closer(text, match, final)
        elif kind == "key":
            taken = self._on_next_key(text, match, final)
        elif kind == "value":
            self._open_values += 1
        if not taken:
            self._add_text(match[0])

    def _on_value_closer(self, text: str, match: re.Match[str], final: bool) -> bool:
        """Treat a value's closing tag as its end if structure follows and nothing inside is open."""
        after = settled(self._tags.kind_at(text, match.end()), final=final)
        ahead = settled(self._key_ahead(text, match.end()) if after == "" else "", final=final)
        structural = after is None or after in _AFTER_VALUE or self._may_be_next_key(ahead or "")
        if structural and not self._open_values and not self._open_calls:
            self._end_value()
            return True
        if not self._open_calls:
            self._open_values -= 1 if self._open_values else 0
        if self._possible_end is None or not self._possible_end.sure:
            self._possible_end = ValueEnd(self._text_size, self._base_offset + len(match[0]), sure=False)
            self._pieces_at_end = len(self._text_pieces) + 1
        return False

    def _on_call_opener(self, text: str, match: re.Match[str], final: bool) -> bool:
        """Treat the next call as the end of one that was closed, or count a call that is quoted in the value."""
        begins = settled(self._tags.begins_call(text, match.end()), final=final)
        if not begins:
            return False
        if self._possible_end is not None and self._possible_end.sure and not self._open_calls:
            self._end_value_at(self._possible_end)
            return True
        self._open_calls += 1
        return False

    def _on_call_closer(self, text: str, match: re.Match[str], final: bool) -> bool:
        """Treat the call's closing tag as the value's end if nothing but structure follows."""
        after = settled(self._tags.kind_at(text, match.end()), final=final)
        end = self._base_offset + len(match[0])
        ending = ValueEnd(self._size_without_layout(), end, sure=True)
        if self._possible_end is not None and self._only_space_since(self._possible_end):
            ending = self._possible_end._replace(at=end, sure=True)
        if (after is None and self._finish_reason != "length") or after in _AFTER_CALL:
            self._end_value_at(ending)
            return True
        if self._possible_end is None or not self._possible_end.sure:
            self._possible_end = ending
        return False

    def _only_space_since(self, ending: ValueEnd) -> bool:
        """Return whether only white space has come since a closing tag in the value."""
        near = self._text_size - ending.size < KEY_LIMIT
        return near and not ending.sure and not "".join(self._text_pieces[self._pieces_at_end :]).strip()

    def _on_next_key(self, text: str, match: re.Match[str], final: bool) -> bool:
        """Treat the next key as the end of a value without its closing tag, if the tool has it and the call has not."""
        ahead = settled(self._key_ahead(text, match.end()), final=final)
        if not ahead or not self._call.lacks(ahead) or ahead == self._key:
            return False
        self._call.fixes.append(Fix("closer", f"no {self._tags.value.closer!r}"))
        self._end_value(self._size_without_layout())
        self._state = self._in_key
        return True

    def _may_be_next_key(self, key: str) -> bool:
        """Return whether this is a parameter of the tool that may come next, only without its opening tag."""
        return self._call.tool is not None and key not in (self._key, "") and self._call.lacks(key)

    def _key_ahead(self, text: str, at: int) -> str | None:
        """Return the key at `text[at]` with its closing tag; "" if there is none, None if more text is needed."""
        match = self._tags.key_pattern.match(text, at)
        if match is None:
            return None if at == len(text) else ""
        if match[0].endswith(self._tags.key_end):
            return match[1].strip()
        return None if match.end() == len(text) else ""

    def _size_without_layout(self) -> int:
        """Return the size of a value without its closing tag: a line break before the next tag is layout."""
        last = "".join(self._text_pieces[-2:])
        return self._text_size - (len(last) - len(last.removesuffix("\n").removesuffix("\r")))

    def _add_argument(self, key: str, text: str) -> None:
        if key:
            self.early += self._call.add_text(key, text, self._type_name)
        self._key = self._type_name = ""

    def _end_value_at(self, ending: ValueEnd) -> None:
        """End the value, and the call, where both may have ended."""
        self._end_value(ending.size)
        self._finish(ending.at, ending.at, Fix("closer", f"no {self._tags.value.closer!r} before the end"))

    def _check_call(self) -> None:
        values = [value for value in self._call.arguments.values() if isinstance(value, str)]
        tags = [tag for text in (*values, *self._call.arguments) for tag in self._tags.pattern.findall(text)]
        if self._call.fixes and any(self._tags.kinds[tag] in _OF_ARGUMENTS for tag in tags):
            self._call.error = "what it holds is not certain: a tag is part of a value"

    def _missing_closer_fix(self) -> Fix:
        return Fix("closer", f"no {self._tags.call.closer!r}")
