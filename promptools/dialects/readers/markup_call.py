"""One call in markup, such as `<function=f><parameter=k>v`: its parameters so far, and the value being read."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from promptools.dialects.calls.bare_values import ANY_JSON, CallBuilder
from promptools.dialects.calls.call_streamer import LAYOUT, MemberStreamer, Trim
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.tags import SHARED_NAMES, Tag, TagNames, TokenBuffer, is_blank
from promptools.errors import clip
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

# The call: its parameters so far, and the call that is built from them.


STRING_ATTRIBUTE: Final = {"true": "string", "false": ANY_JSON}
"""Maps each value of the attribute `string`, with which DeepSeek marks strings, to the type of the argument."""
_CDATA = lazy_pattern(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_VALUE = lazy_pattern(r"\s*<value>(.*)</value>\s*", re.DOTALL)


class MarkupGrammar(NamedTuple):
    """The tags of one family's format, and the variations that are accepted."""

    canonical: re.Pattern[str]
    """Matches every tag that is spelled as the family is trained to write it."""
    wrapper: tuple[str, str]
    """The opening and the closing tag of the wrapper around calls."""
    closers: tuple[str, str]
    """The closing tags of a call and of a parameter."""
    trim: Trim = "verbatim"
    unwrapped: bool = False
    """Whether calls come without a wrapper."""
    cdata: bool = False
    """Whether values may be in CDATA sections."""
    json_calls: bool = False
    """Whether the wrapper may contain calls as JSON."""
    namespaced: bool = False
    """Whether tool names may have any namespace before them."""
    json_closer: str = ""
    """The closing tag of a call's arguments, if these are a JSON object between separate tags."""
    other_wrappers: tuple[tuple[str, str], ...] = ()
    """The opening and closing tags of other wrappers that the family writes around calls."""
    unclosed_value: Literal["closer", "marker"] = "closer"
    """The kind of fix that is recorded for a value without its closing tag."""
    elements: bool = False
    """Whether each parameter is an element with the parameter's name, such as `<city>`."""
    has_header: bool = False
    """Whether each call comes after a header. The token that ends a message may come before the header."""
    names: TagNames = SHARED_NAMES
    """The names of the format's tags."""

    def spelling_fix(self, tag: Tag) -> Fix | None:
        """Return the fix for a tag that is not spelled as the family is trained to write it; else None."""
        if self.canonical.fullmatch(tag.raw):
            return None
        return Fix("marker", f"the tag was written {clip(tag.raw, 60)!r}")

    def missing_value_closer(self) -> Fix:
        """Return the fix for a value without its closing tag."""
        return Fix(self.unclosed_value, f"no {self.closers[1]!r}")

    def missing_call_closer(self) -> Fix | None:
        """Return the fix for a call without its closing tag; None if calls of the format have no closing tag."""
        return Fix("closer", f"no {self.closers[0]!r}") if self.closers[0] else None


class MarkupCall(CallBuilder):
    """Holds a call whose name is known, and the parameters that have arrived so far."""

    def __init__(self, name: str, grammar: MarkupGrammar, options: ParseOptions) -> None:
        super().__init__(options)
        resolved = options.tools.find(name) if options.tools is not None else None
        last = name.rpartition(".")[2]
        if (
            # Muse Glimmer puts the namespace of the tools before the name.
            resolved is None
            and grammar.namespaced
            and options.tools is not None
            and options.tools.get(last) is not None
        ):
            self.fixes.append(Fix("name", f"{clip(name)!r} to {last!r}"))
            name, resolved = last, options.tools.find(last)
        self.name = name
        self.tool = resolved[0] if resolved is not None else None
        self._last: tuple[str, list[str], str] | None = None
        """The last parameter: its key, the pieces of its value, and its type.

        The value is read later, because text after the call may still be part of the value.
        """
        self.unclosed = False
        """Whether the text ended before the closing tag of the call."""
        self.holds_opener = False
        """Whether a value contains a parameter's opening tag without the matching closing tag."""
        self._grammar = grammar

    @property
    def values(self) -> dict[str, Any]:
        """The values of the parameters by name. After access to this property, `revoke_last` has no effect."""
        if self._last is not None:
            (key, pieces, type_name), self._last = self._last, None
            self.add(key, "".join(pieces), type_name)
        return self.arguments

    def split_key(self, text: str) -> tuple[str, str]:
        """Split a key from the value after the key.

        The two run together in a tag that has lost its bracket: `<parameter=path/etc/hosts`.
        """
        tools = self.options.tools
        keys = tools.keys(self.tool.name) if tools is not None and self.tool is not None else ()
        for key in sorted(keys, key=len, reverse=True):
            if text.startswith(key) and key not in self.values and re.match(r"[^\w.-]", text[len(key) :]):
                return key, text[len(key) :]
        return text, ""

    def add_revocable(self, key: str, pieces: list[str], type_name: str) -> None:
        """Add a parameter that `revoke_last` may take back."""
        assert self.values is self.arguments
        self._last = key, pieces, type_name

    def revoke_last(self) -> None:
        """Take back the last parameter that `add_revocable` added, because it has not ended yet."""
        self._last = None

    def add(self, key: str, text: str, type_name: str = "", *, inline: bool = False) -> None:
        """Add a parameter.

        `type_name`: the type that the parameter's tag gives. `inline`: whether the value is in the tag itself.
        """
        self.put(key, *self.read(key, text if inline else self._strip_layout(text), type_name))

    def _strip_layout(self, text: str) -> str:
        """Return the text of a value without CDATA markers, `<value>` tags, and white space that is only layout."""
        # MiniCPM5's template writes values in CDATA sections.
        if self._grammar.cdata and "<![CDATA[" in text:
            sections: list[str] = _CDATA.findall(text)
            outside = _CDATA.sub("", text)
            return "".join(sections) if not outside.strip() else _CDATA.sub(r"\1", text)
        wrapped = _VALUE.fullmatch(text)
        if wrapped is not None and "<value>" not in wrapped[1]:
            self.record_fix(Fix("unwrap", "the value was in <value>"))
            text = wrapped[1]
        if self._grammar.trim == "strip":
            return text.strip(LAYOUT)
        if self._grammar.trim == "verbatim":
            return text
        # Qwen3-Coder puts a value on separate lines. MiMo V2 writes it inline, where a line break is part of it.
        return strip_matching_newlines(text)

    def resolve(self, evidence: Evidence) -> Call | Malformed:
        """Build the call. Raises `NotACall` if the text is not a call; for example, if the tool is not offered."""
        assert self.values is self.arguments
        return self.resolve_in(evidence)


def strip_matching_newlines(text: str) -> str:
    """Strip one line break from each side of a value that is on lines of its own."""
    for opening in ("\n", "\r\n"):
        if text.startswith(opening):
            return text.removeprefix(opening).removesuffix(opening)
    return text


# A value of markup while it is read: every tag is part of the value, except for a tag that ends it.
#
# Nothing in a value is escaped. A closing tag of the parameter, the call or the wrapper may end the value. The token
# that follows decides:
#
# - If another tag of the call follows, or the end of the call, the value ends.
# - If text follows, or a tag that cannot come there, the closing tag is part of the value.
# - A call inside the value takes its own closing tags (`_open_calls`), and so do parameters inside it (`_open_params`).
#
# If a closing tag in the value fits no opening tag there, the value may be parts of two calls. Such a call is refused
# as malformed: a guess would run a tool with wrong arguments.


ValueStyle: TypeAlias = Literal["tag", "nameless", "element"]
"""How an opening tag names its parameter.

"tag": in an attribute or after an equals sign; "nameless": by the text after the tag; "element": by its own name.
"""
ValueEnd: TypeAlias = Literal["at", "before"]
"""Where a value ended: "at" its closing tag, or "before" a tag that is still to be handled."""


class OpenValue:
    """Reads one value from tokens until the value has ended."""

    def __init__(
        self,
        key: str,
        style: ValueStyle,
        call: MarkupCall,
        grammar: MarkupGrammar,
        streamer: MemberStreamer | None,
        *,
        type_name: str,
        may_be_quoted: bool,
    ) -> None:
        self.key = key
        self._style = style
        self._call = call
        self._grammar = grammar
        self._streamer = streamer
        self._type_name = type_name
        self._may_be_quoted = may_be_quoted
        """Whether the text may merely quote a call: there is no wrapper, and the position does not imply a call."""
        self._pieces: list[str] = []
        self._open_calls = 0
        """The number of calls that are open inside the value."""
        self._contains_call = False
        self._open_params = 0
        """The number of parameters that are open inside the value."""
        self._closed_inner_param = False
        """Whether a parameter inside the value was closed."""
        self.unmatched_closer = False
        """Whether the value contains a closing tag that closes nothing."""
        self._call_just_opened = False
        """Whether a call's opening tag has just come inside the value; the next tag decides whether a call begins."""
        self._skipped_to = 0
        """The index of the last token that was skipped in the search for what follows a closing tag."""
        self._rejected_to = 0
        """The index up to which all closing tags are known to be part of the value."""
        self._searched_pieces = 0
        """How many pieces of the value have been searched for damaged tags.

        If a later closing tag turns out to be the value's own, the value is reopened and gets more pieces. The search
        then goes on from here.
        """
        self._not_searched = ""
        """The text with which the next search for damaged tags starts: the end of the text that was searched last.

        It is searched again together with the next piece, because a damaged tag may have begun in it.
        """
        self._holds_cdata = False
        self.end = 0
        """The index of the closing tag at which the value ended; 0 if it ended without one, or has not ended."""

    def feed(self, token: Tag | str, buffer: TokenBuffer, finish_reason: str | None) -> ValueEnd | NeedMore | None:
        """Read the current token; return where the value ended, or None if it continues."""
        if isinstance(token, str):
            self._call_just_opened = self._call_just_opened and is_blank(token)
            self.add(token)
            return None
        if self._call_just_opened and self._confirms_call(token):
            self._open_calls += 1
            self._contains_call = True
        self._call_just_opened = token.kind == "call" and not token.close
        if token.kind == "cdata":
            self.add(token.raw)
        # Qwen3-Coder and Step 3 repeat the tag; the parsers of SGLang 0.5.23 repair that too.
        elif self._repeats_opener(token):
            self._call.record_fix(Fix("marker", f"{clip(token.raw, 60)!r} came twice"))
        elif self._open_calls:
            self._open_calls -= token.kind == "call" and token.close
            self.add(token.raw)
        elif self._closes_value(token) or (token.close and token.kind in ("call", "wrap")):
            return self._on_closer(token, buffer, length=finish_reason == "length")
        elif self._opens_next_param(token):
            self._finish(closed=False)
            return "before"
        else:
            self._open_params += token.kind == "param" and not token.close and not token.empty and self._style == "tag"
            self.add(token.raw)
        return None

    def add(self, text: str) -> None:
        """Add text to the value, even if it contains tags."""
        self._pieces.append(text)
        if self._streamer is not None:
            self._streamer.add_text(text)

    def _confirms_call(self, tag: Tag) -> bool:
        """Return whether a tag shows that a call began at the opening tag before it.

        Three kinds of tags do: the call's closing tag, a tag that opens a parameter, and an element that gives a name.
        """
        if tag.kind == "call":
            return tag.close
        names = tag.kind == "element" and (self._grammar.elements or tag.name in self._grammar.names.naming_elements)
        return not tag.close and (tag.kind == "param" or names)

    def _repeats_opener(self, tag: Tag) -> bool:
        """Return whether a tag repeats the value's opening tag, with nothing in between."""
        return tag.kind == "param" and not tag.close and tag.name == self.key and not self._pieces

    def _closes_value(self, tag: Tag) -> bool:
        """Return whether a tag is the value's own closing tag."""
        if self._style == "element":
            return tag.kind == "element" and tag.close and tag.name == self.key
        return tag.kind == "param" and tag.close

    def _opens_next_param(self, tag: Tag) -> bool:
        """Return whether a tag opens the next parameter, which shows that the closing tag of this value is missing."""
        if tag.kind != "param" or tag.close or self._contains_call or self._style == "element":
            return False
        if self._style == "nameless" or tag.name is None:
            return self._style == "nameless" and tag.name is None
        call = self._call
        if not self._opens_missing_param(tag):
            return False
        return call.tool is not None or (bool(self._pieces) and self._pieces[-1].endswith("\n"))

    def _opens_missing_param(self, tag: Tag) -> bool:
        """Return whether a tag opens a parameter that the tool has and the call does not have yet."""
        return tag.name not in (None, self.key, *self._call.values) and self._call.declares(tag.name or "")

    # --- what looks like its end -------------------------------------------------------------------------------------

    def _on_closer(self, tag: Tag, buffer: TokenBuffer, *, length: bool) -> ValueEnd | NeedMore | None:
        """Read a tag that may end the value. The next token decides whether the value ends."""
        own = self._closes_value(tag)
        if buffer.index <= self._rejected_to:  # one of several in a row, the first of which did not end the value
            self.add(tag.raw)
            return None
        following = self._token_after(buffer, own)
        if following is NEED_MORE:
            return NEED_MORE
        if own and isinstance(following, Tag) and self._closes_inner_param(following):
            self._open_params -= 1
            self._closed_inner_param = True
        elif self._may_follow(tag, following, length=length):
            self._end_at(tag, buffer.index if own else 0)
            return "at" if own else "before"
        else:
            self.unmatched_closer = True
            self._rejected_to = self._skipped_to
            self._streamer = self._streamer if following is not None else None  # the rest may be anything
        self.add(tag.raw)
        return None

    def _token_after(self, buffer: TokenBuffer, own: bool) -> Tag | str | NeedMore | None:
        """Return the first token after the current one that shows whether the value ends; None at the end of the text.

        White space and unfinished tags are skipped. If `own` is true, the current tag is the value's closing tag, and
        repetitions of this tag are skipped as well.
        """
        at = buffer.after(max(buffer.index, self._skipped_to))
        while not (at is NEED_MORE or at is None):
            token = buffer.tokens[at]
            doubled = own and isinstance(token, Tag) and not self._open_params and self._closes_value(token)
            if not doubled and not (isinstance(token, Tag) and token.kind == "cut"):
                return token
            self._skipped_to = at
            at = buffer.after(at)
        return at

    def _closes_inner_param(self, following: Tag) -> bool:
        """Return whether the current tag closes a parameter inside the value, judged by the tag that follows."""
        if not self._open_params or following.kind != "param":
            return False
        return following.close or not self._opens_missing_param(following)

    def _may_follow(self, closer: Tag, following: Tag | str | None, *, length: bool) -> bool:
        """Return whether a value may end at `closer`, or before it, if `following` is the next token.

        `following` is None if the text ends. `length`: whether the text was cut off at the length limit.
        """
        own = self._closes_value(closer)
        certain = not (self._contains_call or (self._may_be_quoted and self.unmatched_closer))
        if following is None:
            return own or (certain and not length)
        if isinstance(following, str):  # a closing tag and then a broken tag are no coincidence
            return own and self._grammar.names.begins_broken_tag(following)
        if own and following.kind == "element":
            # Anthropic's form of 2023 closes `<parameters>` here.
            return self._style == "element" or following.name == "parameters"
        if own:
            return following.kind != "noise" or "end" in following.raw
        if not certain or following.kind in ("param", "element"):
            return False
        if closer.kind == "call":
            return following.kind in ("wrap", "end") or not following.close
        return following.kind == "end" or (following.kind == "wrap" and not following.close)

    # --- its end -----------------------------------------------------------------------------------------------------

    def _end_at(self, tag: Tag, end: int) -> None:
        """End the value at a tag. `end`: the index of the tag if it is the value's own closing tag, else 0."""
        self._finish(closed=end != 0)
        spelling = self._grammar.spelling_fix(tag) if end and self._style == "tag" else None
        if spelling is not None:
            self._call.record_fix(spelling)
        self.end = end

    def _finish(self, *, closed: bool) -> None:
        """Add the value to its call. `closed`: whether the value was ended by its own closing tag."""
        call, is_damaged = self._call, self._holds_damaged_tag()
        if not closed:
            if self._style != "nameless":  # such a value has no closing tag of its own
                if self.unmatched_closer:
                    self._reject_call()
                call.record_fix(self._grammar.missing_value_closer())
            # the line break before the next tag is layout
            self._pieces = ["".join(self._pieces).removesuffix("\n").removesuffix("\r")]
        call.holds_opener = call.holds_opener or bool(self._open_params)
        if self._open_params and self._closed_inner_param:  # too few closing tags: any may be the value's
            self._reject_call()
        if is_damaged:
            self._reject_call()
        call.add_revocable(self.key, self._pieces, self._type_name)

    def _holds_damaged_tag(self) -> bool:
        """Return whether the text that has not been searched yet contains a damaged tag."""
        text = self._not_searched + "".join(self._pieces[self._searched_pieces :])
        self._searched_pieces = len(self._pieces)
        self._holds_cdata = self._holds_cdata or (self._grammar.cdata and "<![CDATA[" in text)
        is_damaged, searched_to = self._grammar.names.find_damaged_tag(text)
        self._not_searched = text[searched_to:]
        return is_damaged and not self._holds_cdata

    def _reject_call(self) -> None:
        """Refuse the call, because parts of two calls may be mixed in the value."""
        self._call.error = f"the closers in {self.key!r} belong to no tags of its own: it may be of two calls"


def inline_value(tag: Tag) -> str | None:
    """Return the value that a parameter's tag gives in an attribute `string` or `value`; None if there is none."""
    for key in ("string", "value"):
        if key in tag.attributes and tag.attributes[key] not in ("true", "false"):
            return tag.attributes[key]
    return None
