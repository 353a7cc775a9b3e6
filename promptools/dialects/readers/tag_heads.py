"""Decide from the first tags in a text whether a call begins there; this is for formats whose calls are tags."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.resolve import PLAUSIBLE_NAME
from promptools.dialects.readers.tags import SHARED_NAMES, Tag, TagNames, TagTokenizer, is_blank
from promptools.parsing.parts import NEED_MORE, NeedMore

LOOKAHEAD = 400
"""How many characters are examined, at most, to decide whether a call begins."""
LOOKAHEAD_PATTERN = rf"[\s\S]{{0,{LOOKAHEAD}}}"
"""The last part of a head's pattern. It makes the scanner wait for `LOOKAHEAD` characters."""
_MAY_BE_NAME = re.compile(r"[\w.:/-]{0,128}\Z")


class FirstTags(NamedTuple):
    """Holds the first tags of a block, the text after each tag, and whether more text may change them."""

    tags: list[Tag]
    texts: list[str]
    incomplete: bool


@dataclass(frozen=True, slots=True)
class TagHeads:
    """Decides whether a call begins at a place in the text. Each method `begins_...` is a `HeadPredicate`."""

    names: TagNames = SHARED_NAMES
    own_call: re.Pattern[str] = re.compile("")
    """Matches the opening tag of a call as the family writes it."""
    other_wrapper: re.Pattern[str] = re.compile("(?!)")
    """Matches a wrapper's opening tag that is accepted only before a call in the family's own spelling."""
    noise_texts: tuple[str, ...] = ()
    """Texts that may come between the tokens around a call."""

    def begins_block(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether a wrapper, or a call with a name, begins at `start`.

        This method is for tags that never occur in prose.
        """
        del fresh
        first = self._read(text, start, end, options)
        if not first.tags:
            return NEED_MORE if first.incomplete else False
        tag = first.tags[0]
        return not tag.close and (tag.kind == "wrap" or (tag.kind == "call" and tag.name is not None))

    def begins_wrapped(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether a wrapper with calls of this format begins at `start`.

        The tag after the wrapper's opening tag decides, since several formats have the same wrapper.
        """
        del fresh
        first = self._read(text, start, end, options)
        if not first.tags or first.tags[0].kind != "wrap" or first.tags[0].close:
            return NEED_MORE if first.incomplete and not first.tags else False
        wrapper, between = first.tags[0], first.texts[0].strip()
        if between[:1] in ("{", "[", "(") or '{"' in between:  # JSON, perhaps after a name: tags in it are words
            return False
        if self.names.lost_opening_tag.match(between):
            return True
        if len(first.tags) == 1:
            return NEED_MORE if first.incomplete else False
        tag = first.tags[1]
        if tag.close:
            return False
        if tag.kind == "call":
            return not self.other_wrapper.match(wrapper.raw) or self.own_call.match(tag.raw) is not None
        if tag.kind == "param":
            return may_be_tool(wrapper.name, options) or may_be_tool(between.removesuffix(">"), options)
        tools = options.tools
        known = tools is not None and tools.get(between) is not None and tag.name in tools.keys(between)
        return tag.kind == "element" and known

    def begins_tokens(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether a call begins here whose first tokens are shared with other formats.

        After these tokens, the call must be in this family's spelling.
        """
        del fresh
        first = self._read(text, start, end, options, count=6)
        if not first.tags:
            return NEED_MORE if first.incomplete else False
        for tag, between in zip(first.tags, ("", *first.texts), strict=False):
            if self._begins_own_call(between):  # its tag cannot be read, but a call was begun
                return True
            if between.strip() not in ("", *self.noise_texts):
                return False
            if tag.kind not in ("wrap", "noise") or tag.close:
                return self.own_call.match(tag.raw) is not None
        last = first.texts[-1].strip()
        unread = start + sum(len(tag.raw) for tag in first.tags) + sum(map(len, first.texts))
        if self._begins_own_call(first.texts[-1] + text[unread:end]):
            return True
        may_go_on = first.incomplete and any(text.startswith(last) for text in ("", *self.noise_texts))
        return NEED_MORE if may_go_on else False

    def _begins_own_call(self, text: str) -> bool:
        """Return whether a text between tokens begins like the opening tag of a call, which may be damaged."""
        starts = (text.lstrip().removeprefix(noise).lstrip() for noise in ("", *self.noise_texts))
        return any(map(self.own_call.match, starts))

    def begins_bare(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether a call without its wrapper begins at `start`.

        The call must name an offered tool, or any plausible tool if the tools are unknown. A parameter, a JSON object
        or a closing tag must follow.
        """
        del fresh
        first = self._read(text, start, end, options)
        if not first.tags:
            return NEED_MORE if first.incomplete else False
        tag = first.tags[0]
        # `<function=task>` without `<tool_call>`: opencode#33959.
        if tag.kind != "call" or tag.close:
            return False
        if tag.name is None:
            return self._begins_nameless(first, options)
        if not may_be_tool(tag.name, options):
            return False
        if not is_blank(first.texts[0]):
            return first.texts[0].lstrip()[:1] == "{"
        if len(first.tags) == 1:
            return NEED_MORE if first.incomplete else False
        following = first.tags[1]
        return (
            following.kind == "param"
            or (following.kind in ("call", "wrap") and following.close)
            or (following.kind == "element" and not following.close)
        )

    def _begins_nameless(self, first: FirstTags, options: ParseOptions) -> bool | NeedMore:
        """Return whether a call begins at a tag without a name.

        There are two cases: an element names the tool, or the text after the tag is the name and a parameter follows.
        """
        name = first.texts[0].strip()
        if not _MAY_BE_NAME.match(name):
            return False
        undecided = NEED_MORE if first.incomplete else False
        if len(first.tags) == 1:
            return undecided
        following = first.tags[1]
        if following.kind == "call" and following.close and is_blank(first.texts[1]):  # `<function>NAME</function>`
            if len(first.tags) == 2:
                return undecided
            following = first.tags[2]
        if following.kind == "element" and not name:
            return following.name in self.names.naming_elements
        return following.kind == "param" and not following.close and may_be_tool(name, options)

    def _read(self, text: str, start: int, end: int, options: ParseOptions, count: int = 3) -> FirstTags:
        """Read the first `count` tags in `text[start:end]`."""
        tags = TagTokenizer(self.names)
        tags.spaced_keys = options.tools.spaced_keys if options.tools is not None else ()
        tags.elements = None
        first = FirstTags([], [], incomplete=True)
        window = text[start:end]
        at = 0
        while at < len(window):
            token = tags.next(window, at, final=False)
            if token is None:
                break
            if isinstance(token, str):
                if not first.tags:
                    return first._replace(incomplete=False)
                first.texts[-1] += token
                at += len(token)
            else:
                if len(first.tags) == count:
                    return first._replace(incomplete=False)
                first.tags.append(token)
                first.texts.append("")
                at += len(token.raw)
        return first


def may_be_tool(name: str | None, options: ParseOptions) -> bool:
    """Return whether a name is the name of an offered tool or, if the tools are unknown, a plausible name of a tool."""
    if not name:
        return False
    if options.tools is None:
        return PLAUSIBLE_NAME.match(name) is not None
    return options.tools.find(name) is not None
