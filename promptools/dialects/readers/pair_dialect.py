r"""The dialect kind `key_value`: a call consists of the tool's name, then keys and values, each between tags.

    call = "<tool_call>{name}\n{arguments}\n</tool_call>"
    argument = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>"

The templates show what the family writes. They define the tags, how calls are found, and which markers may occur
without a call. The white space around `{arguments}` separates arguments, and is left out of a call without arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head, Tier
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import any_of, literal_text, sequence
from promptools.dialects.prompt import GENERIC_CALL, NAME_SLOT, Instructions, fill
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.pair_reader import PairReader, PairTags, TagPair, json_opening_pattern, with_suffix
from promptools.dialects.written_calls import PLAIN_NAME, escaped_json, value_text
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.schema.documents import type_name
from promptools.types import Call

_CALL = lazy_pattern(
    r"(?s:(?P<opener>[^{}]+)\{name\}(?P<separator>[^{}\s]*)(?P<gap>\s*)\{arguments\}\s*(?P<closer>[^{}]+))"
)
_ARGUMENT = lazy_pattern(
    r"(?s:(?P<before>[^{}]+)\{key\}(?P<after_key>[^{}]+)(?:\{type\}(?P<after_type>[^{}]+))?\{value\}(?P<after>[^{}]+))"
)
_WRAPPER = lazy_pattern(r"(?s:(?P<opener>[^{}]+)\{calls\}(?P<closer>[^{}]+))")
_BOUNDARY = lazy_pattern(r"\s+|(?<=[>\])}])(?=[<\[({])")
"""Matches where one tag ends and the next begins."""
_GAP: Final = r"\s{0,64}+"
_NAME: Final = r"[^\W\d][\w.:/-]{0,127}+"
_SUFFIX_END: Final = r"[\w-]{1,32}+"

WORDING: Final = Instructions(
    text="""# Tools

You may call {how_many} to help with the user's request.

The functions are described here, one JSON object a line:
{tools}

Write each call so, with a key and a value for each argument and nothing escaped in the values:
{format}
Strings are written as they are, all other values as JSON.{when}""",
    parallel="one or more of these functions",
    single="one of these functions at a time",
    required=" You must call a function in this turn.",
)


class PairTemplates(NamedTuple):
    """The tags of a format, and the white space between its arguments, both taken from the templates of the format."""

    tags: PairTags
    gap: str
    """The white space before each argument, and after the last argument."""


class PairDialect(DeclaredDialect):
    """A dialect whose calls are keys and values between tags.

    `call` and `argument`: the templates of a call and of an argument; the latter may contain the argument's `{type}`.
    `wrapper`: the template of the tags around all calls (`{calls}`). `suffix`: the beginning of a suffix that all tags
    of a reply may have, such as ":" in `<tool_call:6124c78e>`. `json_after`: the text between a name and JSON
    arguments, such as ">" in `<tool_call>get_weather>{}`; such a call needs no closing tag. `stripped`: whether the
    opening tag is a special token, which servers strip.
    """

    wording = WORDING

    def __init__(
        self,
        name: str,
        call: str,
        argument: str,
        *,
        wrapper: str = "",
        suffix: str = "",
        json_after: str = "",
        stripped: bool = False,
        **common: Unpack[CommonKeys],
    ) -> None:
        templates = read_templates(call, argument, wrapper)
        assert templates is not None
        self._tags = tags = templates.tags
        self._gap = templates.gap
        self._stripped = stripped
        self._argument, self._wrapper = argument.strip(), wrapper
        self.typed = "{type}" in argument
        around = tuple(filter(None, tags.wrapper))
        common.setdefault("closers", (*around[1:], tags.call.closer, *around[:1], tags.call.opener))
        super().__init__(name, **common)
        if not self._instructions.format:
            self._instructions = self._instructions._replace(format="{call}")
        opener, outer = re.escape(tags.call.opener), re.escape(tags.wrapper.opener)
        tagged = rf"(?:{_before_suffix(outer)}|{_before_suffix(opener)})({re.escape(suffix)}{_SUFFIX_END})"
        self._suffixed = lazy_pattern(tagged if suffix else "(?!)")
        self._named_json = lazy_pattern(rf"{opener}\s*({_NAME})\s*{re.escape(json_after)}\s*" if json_after else "(?!)")
        self.heads = tuple(self._heads(suffix, json_after))

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a reader of one call, whose arguments are keys and values between tags, or JSON instead."""
        suffix = self._suffixed.search(head)
        tags = with_suffix(self._tags, suffix[1]) if suffix is not None else self._tags
        named = self._named_json.fullmatch(head)
        if named is not None:
            closers = Closers((tags.call.closer,), ("</think>",), (tags.call.opener,), required=False)
            return JsonBlockReader(head, closers, options, evidence, definite=definite, name=named[1])
        if not head.strip() or head.rstrip().endswith(tags.call.opener):  # JSON instead of a name
            closers = Closers((tags.call.closer,), ("</think>",), (tags.call.opener,))
            return JsonBlockReader(head, closers, options, evidence, definite=definite)
        return PairReader(head, tags, options, evidence, definite=definite)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Return calls as text in the model's own format.

        Tags cannot be escaped, so a call with a tag in a string is written as one JSON object between the call's tags.
        """
        return self._wrapped("\n".join(self._render_call(call.name, call.arguments) for call in calls))

    def _wrapped(self, listed: str) -> str:
        return fill(self._wrapper or "{calls}", {"calls": listed})

    def _render_call(self, name: str, arguments: dict[str, Any]) -> str:
        pairs = self._render_arguments(arguments)
        if pairs is None or not PLAIN_NAME.match(name):
            opener, closer = self._tags.call
            return f'{opener}\n{{"name": {escaped_json(name)}, "arguments": {escaped_json(arguments)}}}\n{closer}'
        return self._filled(name, pairs)

    def _filled(self, name: str, pairs: Sequence[str]) -> str:
        """Return a call in the format; `pairs` are the texts of its arguments."""
        opener, closer = self._tags.call
        inner = "".join(f"{self._gap}{pair}" for pair in pairs)
        return f"{opener}{name}{self._tags.separator}{inner}{self._gap if inner else ''}{closer}"

    def _render_arguments(self, arguments: dict[str, Any]) -> list[str] | None:
        """Return the arguments in the format; None if one of them would not be read back unchanged."""
        pairs = [self._render_argument(key, value) for key, value in arguments.items()]
        return None if None in pairs else [pair for pair in pairs if pair is not None]

    def _render_argument(self, key: str, value: Any) -> str | None:
        """Return one argument in the format; None if the argument would not be read back unchanged."""
        text = value_text(value)
        if not PLAIN_NAME.match(key) or self._tags.pattern.search(text):
            return None
        return fill(self._argument, {"key": key, "type": type_name(value), "value": text})

    def _shows(self, call: Call) -> bool:
        """Return whether a call can serve as an example: its values have no tags, and it is not written as JSON."""
        has_tag, is_plain = "<" in call.arguments_json, PLAIN_NAME.match(call.name) is not None
        return is_plain and not has_tag and self._render_arguments(call.arguments) is not None

    def _render_examples(self, calls: Sequence[Call]) -> str:
        """Return the example calls of a prompt as text.

        If no offered tool can serve as an example, `calls` contains `GENERIC_CALL`. Its text has a placeholder in place
        of a tool's name, so it is not read as a call if the model copies it into a reply.
        """
        if calls[0] is not GENERIC_CALL:
            return self.render_calls(calls)
        values = {"key": "parameter", "type": "string", "value": "its value"}
        return self._wrapped("\n".join([self._filled(NAME_SLOT, [fill(self._argument, values)])] * len(calls)))

    # --- heads -------------------------------------------------------------------------------------------------------

    def _heads(self, suffix: str, json_after: str) -> Iterator[Head]:
        """Yield `Head` objects that find a call: first a call with a name, then JSON in place of the name."""
        tags = self._tags
        opener, outer = tags.call.opener, tags.wrapper.opener
        firsts = "".join(sorted({tag[0] for tag in tags.own_tags}))
        wrapped = rf"{literal_text(outer)}\s{{0,64}}+(?:\Z|{literal_text(opener)})" if outer else ""
        if outer:
            yield Head((outer,), tags.opening_pattern(wrapped), body_starts=firsts)
        # without its wrapper, a call must have its separator: other formats with the same tag have none
        after = (tags.separator,) if outer and tags.separator else ()
        yield Head((opener,), tags.opening_pattern(re.escape(opener), after), body_starts=firsts)
        if suffix:
            yield self._suffixed_head(suffix, firsts)
        if json_after:
            named = sequence(re.escape(opener), _GAP, _NAME, _GAP, literal_text(json_after), _GAP)
            yield Head((opener,), named, body_starts="{<")
        if self._stripped:
            yield from self._stripped_heads()
        if outer:
            yield Head((outer,), json_opening_pattern(wrapped))
        yield Head((opener,), json_opening_pattern(re.escape(opener)))

    def _stripped_heads(self) -> Iterator[Head]:
        """Yield `Head` objects that find a call without its opening tag, by a tool's name and the tag after the name.

        This tag must be the separator, begin a whole key, or close the call. If it closes the call, the text is a call
        only if nothing but calls follows it, because prose may begin with a name and mention the tag.
        """
        tags = self._tags
        key = (tags.key.opener, tags.key_pattern, tags.key_end)
        first = [(tags.separator,), key] if tags.separator else [key]
        tiers: tuple[Tier | None, ...] = (None, "B")
        for follows, tier in zip((first, [(tags.call.closer,)]), tiers, strict=True):
            whole = any_of(*("".join(map(_whole, steps)) for steps in follows))
            cut = any_of(*(sequence(*map(_cut, steps)) for steps in follows))
            yield Head(
                (),
                rf"\w[\w.:/-]{{0,127}}+\s{{0,64}}+(?:\Z|(?={whole})|{cut}\Z)",
                body_starts=tags.call.closer[0],
                gate=NAME_GATE,
                begins=self._stripped_begins,
                at_line_start=True,
                fence_labels=(None,),
                tier=tier,
            )

    def _stripped_begins(
        self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions
    ) -> bool | NeedMore:
        """Return whether the text is the name of an offered tool, followed by one of a call's tags."""
        del fresh
        if options.tools is None:
            return False
        name, tag, _ = text[start:end].partition(self._tags.call.closer[0])
        if end < len(text):
            return options.tools.get(name.strip()) is not None
        begun = name.strip()
        near = (
            options.tools.get(begun) if tag else any(offered.startswith(begun) for offered in options.tools.all_names)
        )
        return NEED_MORE if near else False

    def _suffixed_head(self, suffix: str, firsts: str) -> Head:
        """Return a `Head` that finds a call whose tags have a suffix."""
        tags = self._tags
        opener, outer = (tag[:-1] + suffix for tag in (tags.call.opener, tags.wrapper.opener) if tag)
        last = re.escape(tags.call.opener[-1])
        call = rf"{literal_text(opener)}(?:\Z|{_SUFFIX_END}(?:\Z|{last}))"
        pattern = rf"(?:{re.escape(outer)}(?:\Z|{_SUFFIX_END}(?:\Z|{last}\s{{0,64}}+(?:\Z|{call})))|{call})"
        after = tuple(tag[:-1] + suffix for tag in tags.own_tags)
        return Head((outer, opener), tags.opening_pattern(pattern, after), body_starts=firsts, begins=self._same_suffix)

    def _same_suffix(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether the tags of the wrapper and the call have the same suffix.

        Each checkpoint of a model has its own suffix, so all tags of a reply must have the same one.
        """
        del fresh, options
        if end == len(text):
            return NEED_MORE
        return text[end] == self._tags.key.opener[0] and len(set(self._suffixed.findall(text, start, end))) == 1


def is_call(value: Any) -> bool:
    """Return whether a value is the template of a call."""
    return isinstance(value, str) and read_templates(value, "<k>{key}<v>{value}</v>") is not None


def is_argument(value: Any) -> bool:
    """Return whether a value is the template of an argument."""
    return isinstance(value, str) and read_templates("<call>{name}{arguments}</call>", value) is not None


def is_wrapper(value: Any) -> bool:
    """Return whether a value is the template of a wrapper."""
    return isinstance(value, str) and _WRAPPER.fullmatch(value) is not None


def read_templates(call: str, argument: str, wrapper: str = "") -> PairTemplates | None:
    """Read the templates of a format; return None if they are not valid."""
    spelled, pair = _CALL.fullmatch(call), _ARGUMENT.fullmatch(argument)
    around = _WRAPPER.fullmatch(wrapper)
    if spelled is None or pair is None or (wrapper and around is None):
        return None
    ends_key = _tags_of(pair["after_key"])
    ends_type = _tags_of(pair["after_type"] or "")
    before, after = _tags_of(pair["before"]), _tags_of(pair["after"])
    opener, closer = _tags_of(spelled["opener"]), _tags_of(spelled["closer"])
    one_each = all(len(tags) == 1 for tags in (before, after, opener, closer))
    if not one_each or len(ends_key) not in (1, 2) or (pair["after_type"] is not None and len(ends_type) != 2):
        return None
    key_closer = ends_key[0] if len(ends_key) == 2 else ""
    value_opener = ends_type[1] if ends_type else ends_key[-1]
    tags = PairTags(
        call=TagPair(opener[0], closer[0]),
        key=TagPair(before[0], key_closer),
        type=TagPair(ends_key[-1], ends_type[0]) if ends_type else TagPair("", ""),
        value=TagPair(value_opener, after[0]),
        wrapper=TagPair(around["opener"].strip(), around["closer"].strip()) if around is not None else TagPair("", ""),
        separator=spelled["separator"],
    )
    return PairTemplates(tags, spelled["gap"])


def _tags_of(text: str) -> list[str]:
    return [tag for tag in _BOUNDARY.split(text) if tag]


def _before_suffix(tag: str) -> str:
    """Return the pattern of a tag without its last character. For an empty tag, the pattern matches nothing."""
    return tag[:-1] if tag else "(?!)"


def _whole(step: str | re.Pattern[str]) -> str:
    """Return the pattern of a complete tag, or of the text between two tags."""
    return re.escape(step) if isinstance(step, str) else step.pattern


def _cut(step: str | re.Pattern[str]) -> str:
    """Return the pattern of a tag that the end of the text may cut off, or of the text between two tags."""
    return literal_text(step) if isinstance(step, str) else step.pattern
