"""Read a call that consists of a name, then keys and values between tags, as GLM and its relatives write it.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Oslo</arg_value>
    </tool_call>

Nothing in a value is escaped, so a value may contain any of these tags. Of the calls that GLM 4.5 wrote on a server
under load, 5% to 17% have tags that are missing, doubled or of another kind.

Each state is a method that takes a tag: `_in_name`, `_in_call` (between arguments), `_in_key`, `_after_key`, `_in_type`
and `_in_value`. Outside of values, a wrong tag is repaired and recorded as a fix, or makes the call malformed. Inside a
value, these rules apply:

- A closing tag ends the value only if another tag, a key with its closing tag, or the end of the text follows.
- A whole call quoted in the value (`_open_calls`), and a value opened in it (`_open_values`), take their own closing
  tags.
- If the value's closing tag is missing, a key's opening tag or the call's closing tag ends the value, but only where
  the schema and what follows allow that. A possible end that is not certain yet is kept as `_possible_end` and applied
  if no more certain end follows.

A call that was repaired is malformed if a value still contains a tag, because the end of the value is then uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.readers.tag_reader import PossibleEnd, SingleCallReader
from promptools.dialects.readers.tags import PatternTokenizer, Tag, TagKind, TokenBuffer
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.types import Fix

# The tags around keys and values of one format, and the patterns that find them.


STOP_TOKENS: Final = (
    "<tool_response>",
    "<tool_responses>",
    "<|observation|>",
    "<|user|>",
    "<|im_end|>",
    "<|endoftext|>",
)
"""Tokens that end a call without its closing tag, and are not part of the call."""

FOREIGN_TAGS: Final[dict[str, TagKind]] = {"</tool_calls>": "wrap", "<tool_sep>": "separator", "</think>": "reasoning"}
"""Tags of other formats that models also write in calls of this format."""

_GAP = r"\s{0,64}+"

KEY_LENGTH: Final = 128
"""The maximum length of a key in the patterns that search for keys."""


class TagPair(NamedTuple):
    """An opening tag and its closing tag. A tag that the format does not have is empty."""

    opener: str
    closer: str


_NONE = TagPair("", "")


@dataclass(frozen=True)
class PairTags:
    """The tags of one format, or of one spelling of the format.

    `separator`: the tag between a name and the arguments. If keys have no closing tag in a format, the next opening tag
    ends a key.
    """

    call: TagPair
    key: TagPair
    value: TagPair
    type: TagPair = _NONE
    wrapper: TagPair = _NONE
    separator: str = ""
    suffixed: bool = False
    """Whether each tag has a suffix, as in `<tool_call:6124c78e>`. Each checkpoint of Hunyuan 4 has its own suffix."""

    @cached_property
    def _own_tags(self) -> dict[str, Tag]:
        kinds: dict[TagKind, TagPair] = {
            "call": self.call, "key": self.key, "type": self.type, "value": self.value,
        }  # fmt: skip
        tags = [Tag(pair.opener, kind) for kind, pair in kinds.items()]
        tags += [Tag(pair.closer, kind, close=True) for kind, pair in kinds.items()]
        tags += [Tag(self.wrapper.closer, "wrap", close=True), Tag(self.separator, "separator")]
        return {tag.raw: tag for tag in tags if tag.raw}

    @cached_property
    def tags(self) -> dict[str, Tag]:
        """Maps the text of each recognized tag to the tag: the format's own tags, `FOREIGN_TAGS` and `STOP_TOKENS`."""
        foreign = [Tag(raw, kind, close=raw.startswith("</")) for raw, kind in FOREIGN_TAGS.items()]
        return {tag.raw: tag for tag in (*foreign, *(Tag(raw, "end") for raw in STOP_TOKENS))} | self._own_tags

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of any tag."""
        return re.compile("|".join(map(re.escape, sorted(self.tags, key=len, reverse=True))))

    @cached_property
    def tokenizer(self) -> PatternTokenizer:
        """The tokenizer that splits text at `tags`."""
        unfinished = re.compile(rf"{_prefixes_pattern(self.tags)}|\\\Z")  # a backslash may begin `\n`, a line break
        return PatternTokenizer(self.pattern, unfinished, max(map(len, self.tags)), lambda match: self.tags[match[0]])

    @cached_property
    def key_pattern(self) -> re.Pattern[str]:
        """The pattern of a key."""
        return re.compile(rf"[^{_set_of_firsts(self._own_tags)}]{{1,{KEY_LENGTH}}}")

    def only_beginning(self, text: str) -> str:
        """Return the tag of the format that begins with `text`; empty if no tag does, or more than one."""
        begun = [tag for tag in self._own_tags if tag.startswith(text)]
        return begun[0] if len(begun) == 1 else ""

    @property
    def key_end(self) -> str:
        """The tag that ends a key."""
        return self.key.closer or self.type.opener or self.value.opener

    @cached_property
    def own_tags(self) -> tuple[str, ...]:
        """The tags that may follow a name.

        They include `FOREIGN_TAGS`, a key's opening tag without its last bracket, and the call's closing tag cut short.
        """
        pairs = (self.key, self.type, self.value, self.call)
        cut = self.call.closer[:-4] if len(self.call.closer) > 7 else ""
        tags = (*(tag for pair in pairs for tag in pair), self.key.opener[:-1], cut, self.separator, *FOREIGN_TAGS)
        return tuple(filter(None, tags))

    @cached_property
    def name_pattern(self) -> re.Pattern[str]:
        """The pattern of a tool's name before a tag; at the end of the text, the name or the tag may be incomplete."""
        return re.compile(self.opening_pattern(""))

    def begins_call(self, text: str) -> bool | NeedMore:
        """Return whether a text begins with a name and a tag, like the text after a call's opening tag.

        If the tag is the closing tag of a value, the text before it belongs to the value, and is not a name.
        """
        match = self.name_pattern.match(text)
        if match is None:
            return False
        return NEED_MORE if match.end() == len(text) else not text.startswith(self.value.closer, match.end())

    def opening_pattern(self, opener: str, after: Sequence[str] = ()) -> str:
        """Return the pattern of a call's opening tag and name, up to the tag after the name.

        `opener`: the pattern of the opening tag. `after`: the tags that may come after the name; if empty, any tag of
        the format.
        """
        firsts = _set_of_firsts(self.own_tags)
        name = rf"""\w[^{firsts}<>{{}}\n"'`]{{0,159}}+"""
        following = after or self.own_tags
        begins = rf"(?={'|'.join(map(re.escape, following))})"
        ends = rf"\Z|{begins}|{_prefixes_pattern(following)}"
        if not after and self.key.closer:  # a first key without its opening tag, after the name
            unfinished = _prefixes_pattern([self.key.closer])
            ends += rf"|\w[\w.-]{{0,63}}+(?:\Z|(?={re.escape(self.key.closer)})|{unfinished})"
        return rf"{opener}{_GAP}(?:\Z|{name}{_GAP}(?:{ends}))"


def is_blank(text: str) -> bool:
    r"""Return whether a text is only white space.

    An escaped `\n` is taken for white space as well, since some servers escape the reply.
    """
    # SGLang 0.5.23's parser glm45 takes escaped line breaks for layout too.
    return not text.replace("\\n", "").strip()


@lru_cache(maxsize=64)
def with_suffix(tags: PairTags, suffix: str) -> PairTags:
    """Return the tags with a suffix before the last character of each; the result is cached."""
    pairs = (tags.call, tags.key, tags.value, tags.type, tags.wrapper)
    call, key, value, kind, wrapper = (TagPair(*(_suffixed(tag, suffix) for tag in pair)) for pair in pairs)
    return PairTags(call, key, value, kind, wrapper, _suffixed(tags.separator, suffix), suffixed=True)


def json_opening_pattern(opener: str) -> str:
    """Return the pattern of a call's opening tag before JSON; `opener`: the pattern of the tag."""
    return rf"{opener}{_GAP}"


def _prefixes_pattern(literals: Iterable[str]) -> str:
    """Return a pattern that matches, at the end of the text, a proper prefix of one of the literals."""
    cut = {tag[:size] for tag in literals for size in range(1, len(tag))}
    return rf"(?:{'|'.join(map(re.escape, sorted(cut, key=len, reverse=True)))})\Z"


def _set_of_firsts(tags: Iterable[str]) -> str:
    """Return the first characters of tags, escaped for a character set in a pattern."""
    return "".join(map(re.escape, sorted({tag[0] for tag in tags if tag})))


def _suffixed(tag: str, suffix: str) -> str:
    return f"{tag[:-1]}{suffix}{tag[-1]}" if tag else ""


# The reader.


KEY_LIMIT = 256
"""The maximum length of a valid key."""

_CALL_ENDS = frozenset(("call/", "wrap/", "reasoning/", "end", "call"))
_AFTER_VALUE = _CALL_ENDS | {"key", "value/", "key/"}
_OF_ARGUMENTS = frozenset(("key", "type", "value"))
_AFTER_CALL = frozenset(("call", "call/", "wrap/", "end"))


class PairReader(SingleCallReader):
    """Reads one call between two markers, as a `promptools.parsing.parts.Candidate`."""

    def __init__(self, head: str, tags: PairTags, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        opener = tags.call.opener
        opened = opener in head
        name = head[head.find(opener) + len(opener) :].lstrip() if opened else head
        buffer = TokenBuffer(tags.tokenizer, name, is_blank)
        super().__init__(head[: len(head) - len(name)], buffer, options, evidence, definite=definite)
        self._tags = tags
        # GLM's `<tool_call>` is a special token, and was stripped with the others.
        if not opened:
            self._record_fix(f"no {opener!r} before its name")
        self._tag_state = self._in_name
        self._type_name = ""
        self._spaced = opened and head.endswith(f"{opener} {name}")
        self._is_word = False
        """Whether the name is only a word between spaces, as in `between <tool_call> and </tool_call>`."""
        self._pieces_at_end = 0
        """The length of `_text_pieces` just after the closing tag at which the value may have ended."""

    def _on_end_of_text(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        ending = self._possible_end if self._tag_state == self._in_value else None
        done = finish_reason in COMPLETE_FINISH_REASONS
        whole = self._tag_state == self._in_call and not self._text_between()
        if whole and self._call.may_lack_only_its_closer(finish_reason):
            self._finish(self._index, self._index, self._missing_closer_fix())
        elif ending is not None and finish_reason != "length" and (ending.sure or done):
            self._end_value_at(ending)
        elif self._tag_state == self._in_name and not self._call.may_be_tool_name("".join(self._text_pieces).strip()):
            self._finish_as_text(self._index, "what is in the name's place is not a name")
        else:
            self._truncate()

    def _on_cut(self, tag: Tag) -> None:
        """Handle an unfinished tag at the end of the text: it is the closing tag of the call, or text."""
        closer = self._tags.call.closer
        sure = len(tag.raw) > 2 and self._tags.only_beginning(tag.raw) == closer
        cut = sure and self._finish_reason != "length"
        if cut and (self._tag_state == self._in_call or (self._tag_state == self._in_name and self._set_name())):
            self._finish(self._index, self._index + 1, Fix("closer", f"only {tag.raw!r} of {closer!r}"))
        elif not self._decided:
            super()._on_cut(tag)

    # --- what a tag means in each state --------------------------------------------------------------------------

    def _in_name(self, tag: Tag) -> NeedMore | None:
        if tag.role == "key/":
            self._split_glued_name()
            return None
        if not self._set_name():
            return None
        self._tag_state = self._in_call
        return self._in_call(tag)

    def _set_name(self) -> bool:
        text = self._take_text()
        name = text.strip().removesuffix("\\n").rstrip()
        if not self._call.set_name(name):
            self._finish_as_text(self._index, f"{name!r} is not a tool")
            return False
        self._is_word = self._spaced and text[-1:] == " " and self._call.tool is None
        return True

    def _split_glued_name(self) -> None:
        """Split the name from the first key, whose opening tag is missing."""
        parted = self._call.split_glued_key(self._take_text().replace(_cut(self._tags.key.opener), "", 1).strip())
        if parted is None:
            self._finish_as_text(self._index, "what is in the name's place is not a name")
            return
        self._call.set_name(parted[0])
        self._key = parted[1]
        self._record_fix("the first key had no opener")
        self._tag_state = self._after_key

    def _in_call(self, tag: Tag) -> NeedMore | None:
        kind = tag.role
        if kind == "call":
            ahead = self._key_after()
            if ahead is NEED_MORE:
                return NEED_MORE
            if ahead:
                self._record_fix(f"{tag.raw!r} was in the place of a key's opener")
                kind = "key"
        rest = self._text_between().removeprefix(_cut(self._tags.key.opener)).lstrip()
        self._take_text()
        # Ollama 0.32's parser of GLM 4.7 finds such a key as well.
        if kind == "key/" and self._may_be_next_key(rest):
            self._key = rest
            self._record_fix(f"the key {rest!r} had no opener")
            self._tag_state = self._after_key
            return None
        if rest:
            self._call.error = "there is text between its arguments"
        if kind in _CALL_ENDS:
            return self._end_call(tag)
        if kind in ("key", "value", "type"):
            self._key = self._type_name = ""
            self._tag_state = {"key": self._in_key, "value": self._in_value, "type": self._in_type}[kind]
            if kind == "value":
                self._call.error = "a value has no key"
        elif kind != "separator" or self._call.arguments:
            self._record_fix(f"{tag.raw!r} too many")
        return None

    def _text_between(self) -> str:
        """Return the text between two tags, without escaped line breaks and without white space around it."""
        return "".join(self._text_pieces).replace("\\n", "").strip()

    def _end_call(self, tag: Tag) -> NeedMore | None:
        """End the call at `tag`, which closes the call or shows that its closing tag is missing."""
        start, end = self._index, self._index + 1
        if self._is_word and not self._call.arguments:
            self._finish_as_text(start, "a word between two tags is not a tool")
        elif tag.role == "call/":
            # Hunyuan 4 puts the suffix of its checkpoint into each tag.
            after = self._buffer.after(start) if self._tags.suffixed else None
            if after is NEED_MORE:  # its wrapper's closer cannot be known beforehand
                return NEED_MORE
            wrapper = self._tokens[after] if after is not None else None
            closes_wrapper = after is not None and isinstance(wrapper, Tag) and wrapper.role == "wrap/"
            self._finish(start, after + 1 if after is not None and closes_wrapper else end, None)
        elif tag.kind in ("call", "end"):
            self._finish(start, start, self._missing_closer_fix())
        else:
            # GLM 4.7 closes calls with `</think>` (ai-sdk-tool-call-middleware).
            self._finish(start, end, Fix("closer", f"closed by {tag.raw!r}"))
        return None

    def _in_key(self, tag: Tag) -> NeedMore | None:
        text = self._take_text()
        key = text.replace("\\n", "").strip()
        key = key.removesuffix(_cut(self._tags.key.closer)).rstrip() if self._tags.key.closer else key
        if tag.role == "key" or tag.role in _CALL_ENDS:
            return self._drop_key(tag)
        if tag.role == "value/" and self._add_pair(*text.partition("=")):
            return None
        self._key = key
        self._call.error = self._call.error or ("" if key and len(key) <= KEY_LIMIT else "a key is not a valid key")
        if tag.role in ("key/", "value/", "type"):
            self._tag_state = self._in_type if tag.role == "type" else self._after_key
        else:
            self._tag_state = self._in_value
        if tag.raw != self._tags.key_end:
            self._record_fix(f"the key {key!r} was ended by {tag.raw!r}")
        return None

    def _add_pair(self, key: str, equals: str, value: str) -> bool:
        """Add an argument if its key and value are in one tag; return whether it was added.

        GLM 5.3 Flash writes `<arg_key>k=v</arg_value>`.
        """
        key = key.strip()
        if not (equals and self._tags.key_pattern.fullmatch(key) and self._call.lacks(key)):
            return False
        self._record_fix(f"the value of {key!r} was in the tag of its key")
        self._add_argument(key, value)
        self._tag_state = self._in_call
        return True

    def _drop_key(self, tag: Tag) -> NeedMore | None:
        """Drop a key that has no value."""
        self._record_fix("a key had no value")
        self._tag_state = self._in_call
        return self._in_call(tag)

    def _after_key(self, tag: Tag) -> NeedMore | None:
        between = "".join(self._text_pieces)
        if not between.replace("\\n", "").strip():
            if tag.role == "key" or tag.role in _CALL_ENDS:
                return self._drop_key(tag)
            if tag.role in ("value", "type"):
                self._take_text()
                self._tag_state = self._in_value if tag.role == "value" else self._in_type
                return None
            if tag.role in ("key/", "type/", "separator"):
                self._record_fix(f"{tag.raw!r} too many")
                return None
        elif tag.role == "value":
            self._call.error = "there is text between a key and its value"
        between = between.lstrip().removeprefix(_cut(self._tags.value.opener))
        self._text_pieces, self._text_size = [between], len(between)
        # GLM 4.5 and 4.6 leave this tag out, on vLLM under load.
        self._record_fix(f"the value of {self._key!r} had no opener")
        self._tag_state = self._in_value
        return self._in_value(tag)

    def _in_type(self, tag: Tag) -> None:
        type_name = self._take_text().strip()
        # K2 Horizon writes a type beside each key.
        if tag.role == "type/":
            self._type_name, self._tag_state = type_name, self._after_key
        else:
            self._call.error = "a type has no closer"
            self._add_text(tag.raw)
            self._tag_state = self._in_value

    # --- inside a value ------------------------------------------------------------------------------------------

    def _in_value(self, tag: Tag) -> NeedMore | None:
        ends: bool | NeedMore = False
        if tag.role == "value/":
            ends = self._on_value_closer()
        elif tag.role == "call":
            ends = self._on_call_opener()
        elif self._open_calls:
            self._open_calls -= tag.role == "call/"
        elif tag.role in ("call/", "wrap/"):
            ends = self._on_call_closer()
        elif tag.role == "key":
            ends = self._on_next_key()
        elif tag.role == "value":
            self._open_values += 1
        if ends is NEED_MORE:
            return NEED_MORE
        if not ends:
            self._add_text(tag.raw)
        return None

    def _on_value_closer(self) -> bool | NeedMore:
        """End the value at its closing tag; return whether the value ended.

        It ends only if nothing is open inside it, and if a tag that may follow a value, the next key, or the end of the
        text comes next.
        """
        following = self._token_after(self._index)
        key = self._key_after() if isinstance(following, str) else ""
        if following is NEED_MORE or key is NEED_MORE:
            return NEED_MORE
        structural = following is None or (isinstance(following, Tag) and following.role in _AFTER_VALUE)
        if (structural or self._may_be_next_key(key)) and not self._open_values and not self._open_calls:
            self._end_value()
            return True
        if not self._open_calls:
            self._open_values -= 1 if self._open_values else 0
        if self._possible_end is None or not self._possible_end.sure:
            self._possible_end = PossibleEnd(self._text_size, self._index + 1, sure=False)
            self._pieces_at_end = len(self._text_pieces) + 1
        return False

    def _on_call_opener(self) -> bool | NeedMore:
        """Handle a call's opening tag inside the value; return whether the value had ended before this tag.

        The value had ended if the current call was closed before. Otherwise the new call is part of the value, and is
        counted in `_open_calls`.
        """
        begins = self._begins_call_after()
        if not begins:
            return begins
        if self._possible_end is not None and self._possible_end.sure and not self._open_calls:
            self._end_value_at(self._possible_end)
            return True
        self._open_calls += 1
        return False

    def _begins_call_after(self) -> bool | NeedMore:
        """Return whether a name and another tag follow the current tag, which opens a call."""
        while (begins := self._tags.begins_call(self._buffer.text(self._index + 1))) is NEED_MORE:
            if not self._buffer.read():
                return False if self._buffer.final else NEED_MORE
        return begins

    def _on_call_closer(self) -> bool | NeedMore:
        """End the value and the call at the call's closing tag; return whether they ended.

        They end only before a tag that may follow a call, or at the end of a text that was not cut off.
        """
        following = self._token_after(self._index)
        if following is NEED_MORE:
            return NEED_MORE
        end = self._index + 1
        ending = PossibleEnd(self._size_without_layout(), end, sure=True)
        if self._possible_end is not None and self._only_space_since(self._possible_end):
            ending = self._possible_end._replace(at=end, sure=True)
        ends = following is None and self._finish_reason != "length"
        if ends or (isinstance(following, Tag) and following.role in _AFTER_CALL):
            self._end_value_at(ending)
            return True
        if self._possible_end is None or not self._possible_end.sure:
            self._possible_end = ending
        return False

    def _only_space_since(self, ending: PossibleEnd) -> bool:
        """Return whether only white space has come since `ending`, a closing tag that may have ended the value."""
        near = self._text_size - ending.size < KEY_LIMIT
        return near and not ending.sure and not "".join(self._text_pieces[self._pieces_at_end :]).strip()

    def _on_next_key(self) -> bool | NeedMore:
        """End a value that lacks its closing tag at the next key; return whether the value ended.

        The value ends only if the tool has a parameter with this key, and the call has not given this parameter yet.
        """
        key = self._key_after()
        if key is NEED_MORE:
            return NEED_MORE
        if not key or not self._call.lacks(key) or key == self._key:
            return False
        self._call.fixes.append(Fix("closer", f"no {self._tags.value.closer!r}"))
        self._end_value(self._size_without_layout())
        self._tag_state = self._in_key
        return True

    def _may_be_next_key(self, key: str) -> bool:
        """Return whether `key` may come next: it must be a parameter that the call has not given yet."""
        return self._call.tool is not None and key not in (self._key, "") and self._call.lacks(key)

    def _key_after(self) -> str | NeedMore:
        """Return the key that comes next, if the tag that ends a key follows it; else an empty string."""
        at, size = self._index + 1, 0
        while size <= KEY_LENGTH:
            if at == len(self._tokens) and not self._buffer.read():
                return "" if self._buffer.final else NEED_MORE
            token = self._tokens[at]
            if isinstance(token, Tag):
                key = self._buffer.text(self._index + 1, at).lstrip().removeprefix(_cut(self._tags.key.opener))
                whole = token.raw == self._tags.key_end and self._tags.key_pattern.fullmatch(key) is not None
                return key.strip() if whole else ""
            at, size = at + 1, size + len(token)
        return ""

    def _size_without_layout(self) -> int:
        """Return the length of a value that lacks its closing tag, not counting a line break before the next tag."""
        last = "".join(self._text_pieces[-2:])
        return self._text_size - (len(last) - len(last.removesuffix("\n").removesuffix("\r")))

    def _add_argument(self, key: str, text: str) -> None:
        if key:
            self._call.put(key, *self._call.read(key, text, self._type_name))
        self._key = self._type_name = ""

    def _end_value(self, size: int | None = None) -> None:
        """End the value after the first `size` characters of its text, or after all of its text if `size` is None.

        If `size` is given, a closing tag that lacks its last bracket is removed from the end of the text.
        """
        if size is not None:
            text = self._take_text()[:size]
            bare = text.rstrip().removesuffix(_cut(self._tags.value.closer))
            self._add_text(bare.removesuffix("\n").removesuffix("\r") if len(bare) < len(text.rstrip()) else text)
        super()._end_value()

    def _end_value_at(self, ending: PossibleEnd) -> None:
        """End the value and the call at `ending`, a place where both may have ended."""
        self._end_value(ending.size)
        self._finish(ending.at, ending.at, Fix("closer", f"no {self._tags.value.closer!r} before the end"))

    def _check_call(self) -> None:
        values = [value for value in self._call.arguments.values() if isinstance(value, str)]
        tags = [tag for text in (*values, *self._call.arguments) for tag in self._tags.pattern.findall(text)]
        # exo drops such calls of GLM as well.
        if self._call.fixes and any(self._tags.tags[tag].kind in _OF_ARGUMENTS for tag in tags):
            self._call.error = "what it holds is not certain: a tag is part of a value"

    def _missing_closer_fix(self) -> Fix:
        return Fix("closer", f"no {self._tags.call.closer!r}")


def _cut(tag: str) -> str:
    """Return a tag without its last bracket, which models sometimes leave out."""
    return tag[:-1]
