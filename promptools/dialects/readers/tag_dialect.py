r"""The dialect kind `tags`: a call is a tag around other tags. Templates show what the family writes.

    wrapper = "<tool_call>\n{call}\n</tool_call>"
    call = "<function={name}>\n{parameters}</function>"
    parameter = "<parameter={key}>\n{value}\n</parameter>\n"

The templates define the tags, the white space around values, how calls are found and written, and which markers may
occur without a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, Unpack

from promptools.dialects.calls.call_streamer import Trim
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head, HeadPredicate
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import any_literal_text, literal_text, sequence
from promptools.dialects.prompt import (
    DEFAULT_INSTRUCTIONS,
    GENERIC_CALL,
    NAME_SLOT,
    Instructions,
    default_text,
    fill,
)
from promptools.dialects.readers.markup_call import MarkupGrammar
from promptools.dialects.readers.markup_reader import MarkupReader
from promptools.dialects.readers.tag_heads import LOOKAHEAD_PATTERN, TagHeads
from promptools.dialects.readers.tags import SHARED_NAMES, TagKind, TagNames
from promptools.dialects.written_calls import PARAMETER_SLOT, WrittenValues, render_parameters, wrap_cdata
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call

# The templates by which a format of tags is declared: `<invoke name="{name}">\n{parameters}</invoke>`.
#
# A template shows what the family writes, and defines how its tags are read. The name of a tool or the key of a
# parameter is in an attribute, after an equals sign, or in a separate element. A parameter may also be an element that
# is named after its key: `<{key}>{value}</{key}>`.


_WORD = r"(?:\{prefix\})?[A-Za-z_][\w.:-]*"
_TAG = rf"<(?P<word>{_WORD})(?P<rest>(?:\s[^<>]*|=[^<>]*)?)>"
_CALL = lazy_pattern(
    rf"(?s:(?P<before>(?:(?!\{{name\}}).)*?){_TAG}(?P<lead>(?:\s*<(?P<naming>[A-Za-z_][\w.-]*)>\{{name\}}</(?P=naming)>)?)"
    r"(?P<inside>.*\{parameters\}.*)</(?P=word)>(?P<after>.*))"
)
_PARAMETER = lazy_pattern(
    rf"(?s:\s*(?:<\{{key\}}>|{_TAG})(?P<before>\s*)\{{value\}}(?P<after>\s*)</(?(word)(?P=word)|\{{key\}})>\s*)"
)
_WRAPPER = lazy_pattern(rf"(?s:(?P<opener><{_WORD}>|\S+)\s*\{{calls?\}}\s*(?P<closer>\S+)\s*)")
_NAMED = lazy_pattern(r"""=["']?\{(?:name|key)\}["']?|\s(?P<attribute>[A-Za-z_][\w:-]*)=["']?\{(?:name|key)\}["']?""")
_OPENING_WORD = lazy_pattern(rf"<(?P<word>{_WORD})[>\s]?")
_PLACEHOLDER = lazy_pattern(r"\{\w+\}")
_TOKEN = lazy_pattern(r"(<[^<>]*>)")


class TagTemplate(NamedTuple):
    """A tag in a template, and what its name and attributes mean."""

    word: str
    """The name of the tag, perhaps after `{prefix}`; empty for an element that is named after its key."""
    opener: str
    """The opening tag, with its placeholders."""
    attribute: str = ""
    """The attribute that names the tool or the parameter; empty if the name follows an equals sign, or is elsewhere."""
    has_equals: bool = False
    naming: str = ""
    """The name of the element inside the call that names the tool; empty if the opening tag names it."""
    noise: tuple[str, ...] = ()
    """Tokens around a call that carry no meaning."""
    noise_texts: tuple[str, ...] = ()
    """The texts between the tokens in `noise`."""


def read_call(template: str) -> TagTemplate | None:
    """Read the template of a call; return None if it is not valid."""
    match = _CALL.fullmatch(template)
    if match is None:
        return None
    named = _NAMED.search(match["rest"])
    if (named is None) == (match["naming"] is None):
        return None
    noise = tuple(token for text in (match["before"], match["after"]) for token in _TOKEN.findall(text))
    texts = tuple(text.strip() for text in _TOKEN.sub("\0", match["before"]).split("\0") if text.strip())
    attribute = (named["attribute"] or "") if named is not None else ""
    has_equals = named is not None and named["attribute"] is None
    opener = f"<{match['word']}{match['rest']}>"
    return TagTemplate(match["word"], opener, attribute, has_equals, match["naming"] or "", noise, texts)


def read_parameter_template(template: str) -> TagTemplate | None:
    """Read the template of a parameter; return None if it is not valid."""
    match = _PARAMETER.fullmatch(template)
    if match is None:
        return None
    if match["word"] is None:
        return TagTemplate("", "<{key}>")
    named = _NAMED.search(match["rest"])
    if named is None:
        return None
    opener = f"<{match['word']}{match['rest']}>"
    return TagTemplate(match["word"], opener, named["attribute"] or "", named["attribute"] is None)


def has_value_lines(template: str) -> bool:
    """Return whether the template of a parameter puts the value on separate lines."""
    return "\n{value}\n" in template


class WrapperTemplate(NamedTuple):
    """The opening tag and the closing tag of a wrapper around one call, or around all calls of a turn."""

    opener: str
    closer: str


def read_wrapper(template: str) -> WrapperTemplate | None:
    """Read the template of a wrapper; return None if it is not valid."""
    match = _WRAPPER.fullmatch(template)
    if match is None:
        return None
    return WrapperTemplate(match["opener"], match["closer"])


def is_header(template: str) -> bool:
    """Return whether a text is a valid template of a header: `{name}` with other text before and after it."""
    before, named, after = template.partition("{name}")
    return bool(named and before.strip() and after.strip()) and "{" not in before + after and before == before.lstrip()


class FormatTemplates(NamedTuple):
    """All templates of a format, in the form that `TagDialect` takes."""

    call: TagTemplate
    parameter: TagTemplate
    wrapper: WrapperTemplate | None
    wrappers: Sequence[str]
    odd_wrappers: Sequence[str]
    prefixes: Sequence[str]

    def spelled(self, text: str) -> tuple[str, ...]:
        """Return a text once for each of the format's prefixes, with `{prefix}` replaced by the prefix."""
        return spelled(text, self.prefixes)


def read_templates(
    call: str,
    parameter: str,
    wrapper: str,
    wrappers: Sequence[str],
    odd_wrappers: Sequence[str],
    prefixes: Sequence[str],
) -> FormatTemplates:
    """Read the templates of a format. They must be valid; an empty `wrapper` means that the format has no wrapper."""
    call_tag, param_tag = read_call(call), read_parameter_template(parameter)
    assert call_tag is not None
    assert param_tag is not None
    around = read_wrapper(wrapper) if wrapper else None
    return FormatTemplates(call_tag, param_tag, around, wrappers, odd_wrappers, prefixes)


def word_of(opener: str) -> str:
    """Return the name of an opening tag; empty for a token without a name."""
    match = _OPENING_WORD.fullmatch(opener)
    return match["word"] if match is not None else ""


def spelled(text: str, prefixes: Iterable[str]) -> tuple[str, ...]:
    """Return a text once for each prefix, with `{prefix}` replaced by the prefix."""
    return tuple(dict.fromkeys(text.replace("{prefix}", prefix) for prefix in prefixes))


def opener_pattern(tag: TagTemplate, prefixes: Sequence[str]) -> str:
    """Return the pattern of a template's opening tag, as the family writes the tag."""
    pieces = _PLACEHOLDER.split(tag.opener)
    keys = _PLACEHOLDER.findall(tag.opener)
    held = r"[^\"<>]+" if tag.attribute else r"[^\s<>\"'=]+"
    values = {"{prefix}": f"(?:{'|'.join(map(re.escape, prefixes))})", "{string}": "(?:true|false)"}
    pattern = re.escape(pieces[0])
    for key, piece in zip(keys, pieces[1:], strict=True):
        pattern += values.get(key, held) + re.escape(piece)
    return pattern


def closer_pattern(word: str, prefixes: Sequence[str]) -> str:
    """Return the pattern of the closing tag with the name `word`."""
    return "|".join(f"</{re.escape(name)}>" for name in spelled(word, prefixes))


# The kind.


_HEADER_NAME: Final = r"[\w.:/-]{1,128}"
Bare: TypeAlias = Literal["never", "anywhere", "line"]
"""Where calls without their wrapper are recognized: nowhere, anywhere, or at the beginning of a line."""

TAGS_WORDING: Final = Instructions(
    text="",
    parallel="Several calls follow one another.",
    single="Make one call at a time.",
    required="Call a tool in this turn.",
    optional="If no tool is needed, answer in plain text.",
)
"""The default wording of a prompt whose main text comes from the dialect's table."""
_VALUES: Final = "Values go between the tags as they are, objects and lists as JSON."
_VALUES_IN_CDATA: Final = f"{_VALUES} A text with markup or line breaks in it is a CDATA section."


class TagDialect(DeclaredDialect):
    """A dialect whose calls are tags around other tags.

    `call`, `parameter` and `wrapper`: the templates of a call, of a parameter, and of the tags around one call
    (`{call}`) or all calls (`{calls}`). `prefixes`: the texts that may replace `{prefix}` in a template; calls are
    written with the first. `wrappers`: further opening tags of the wrapper that the family writes. `odd_wrappers`:
    opening tags that are accepted as the wrapper's only before a call in the family's own spelling, with a recorded
    fix. `bare`: where calls are recognized without their wrapper. `trim`: the white space to remove around a value: one
    line break ("line"), none ("verbatim") or all of it ("strip"). `cdata`: whether values with markup are in CDATA
    sections. `json_calls`: whether the wrapper may contain calls as JSON. `namespaced`: whether any namespace may
    precede the name of a tool. `values`: how values other than texts are written: as JSON, as JSON with Python's
    constants, or as Python prints them. `header`: the template of a text that precedes each call and also names the
    tool. `separator`: the text between two calls.
    """

    wording = TAGS_WORDING

    def __init__(
        self,
        name: str,
        call: str,
        parameter: str,
        *,
        wrapper: str = "",
        prefixes: Sequence[str] = ("",),
        wrappers: Sequence[str] = (),
        odd_wrappers: Sequence[str] = (),
        bare: Bare | None = None,
        trim: Trim | None = None,
        cdata: bool = False,
        json_calls: bool = False,
        namespaced: bool = False,
        values: WrittenValues = "json",
        header: str = "",
        separator: str = "\n",
        **common: Unpack[CommonKeys],
    ) -> None:
        templates = read_templates(call, parameter, wrapper, wrappers, odd_wrappers, prefixes)
        call_tag, param_tag, around, *_ = templates
        self.grammar = MarkupGrammar(
            canonical=_canonical(templates),
            wrapper=(_first(around.opener, prefixes), _first(around.closer, prefixes)) if around else ("", ""),
            closers=(f"</{_first(call_tag.word, prefixes)}>", f"</{_first(param_tag.word, prefixes)}>"),
            trim=trim or ("line" if has_value_lines(parameter) else "verbatim"),
            unwrapped=around is None,
            cdata=cdata,
            json_calls=json_calls,
            namespaced=namespaced,
            other_wrappers=tuple(_other_wrappers(templates)),
            elements=not param_tag.word,
            has_header=bool(header),
            names=_names(templates),
        )
        self._call_template, self._parameter_template = _first(call, prefixes), _first(parameter, prefixes)
        self._wrapper_template = _first(wrapper, prefixes)
        self._header, self._separator = header, separator
        self._values: WrittenValues = values
        self._keeps_space = not (cdata or self.grammar.trim == "strip")
        common.setdefault("closers", tuple(_closers(templates)))
        super().__init__(name, **common)
        self._instructions = self._complete(common.get("instructions", {}))
        where = bare or ("anywhere" if around is None or self.grammar.names is not SHARED_NAMES else "never")
        self.heads = (*self._wrapper_heads(templates), *self._bare_heads(templates, where))
        if header:  # as good as a wrapper: whatever `where` says, a call counts after it
            after_header = (*self._wrapper_heads(templates), *self._bare_heads(templates, "anywhere"))[0]
            self.heads = (_header_head(header, separator, after_header), *self.heads)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a reader of a block of calls.

        The text to read starts at the first header or tag. The first tag is usually the wrapper's or a call's.
        """
        del head
        return MarkupReader(self.grammar, options, evidence, definite=definite)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Return calls as text in the model's own format.

        If a value could be misread between tags, the arguments of its call are written as JSON.
        """
        return self._wrapped([(call.name, self._render_call(call)) for call in calls])

    def _wrapped(self, written: Sequence[tuple[str, str]]) -> str:
        """Return the text of calls with headers and wrapper. `written`: the tool's name and the text of each call."""
        each = self._header + (self._wrapper_template if "{call}" in self._wrapper_template else "{call}")
        listed = self._separator.join(fill(each, {"name": name, "call": text}) for name, text in written)
        return self._wrapper_template.replace("{calls}", listed) if "{calls}" in self._wrapper_template else listed

    def _render_call(self, call: Call) -> str:
        parameters = self._render_parameters(call)
        if parameters is None:
            parameters = f"{call.arguments_json}\n" if self._keeps_space else call.arguments_json
        return fill(self._call_template, {"name": call.name, "parameters": parameters})

    def _render_parameters(self, call: Call) -> str | None:
        """Return the parameters in their tags; None if a value could be misread between tags."""
        return render_parameters(
            call,
            self._render_parameter,
            has_type="{string}" in self._parameter_template,
            keeps_space=self._keeps_space,
            may_hold_tags=self.grammar.cdata,
            values=self._values,
        )

    def _render_parameter(self, key: str, text: str, string: bool) -> str:
        if self.grammar.cdata:
            text = wrap_cdata(text)
        elif self.grammar.trim == "line" and text.startswith("\n") and not has_value_lines(self._parameter_template):
            text = f"\n{text}\n"  # a line break at the beginning would be read as layout
        return fill(self._parameter_template, {"key": key, "value": text, "string": "true" if string else "false"})

    def _complete(self, given: Mapping[str, str]) -> Instructions:
        """Return the instructions from a dialect's table, completed with the default texts for this kind of dialect."""
        if given.get("text"):
            return TAGS_WORDING._replace(**{"format": self._wrapped([(NAME_SLOT, self._generic_call())]), **given})
        values = _VALUES_IN_CDATA if self.grammar.cdata else _VALUES
        return DEFAULT_INSTRUCTIONS._replace(**{**given, "text": default_text(values)})

    def _shows(self, call: Call) -> bool:
        """Return whether a call can serve as an example.

        Its arguments must have no tags, and must all be written as bare text.
        """
        return "<" not in call.arguments_json and self._render_parameters(call) is not None

    def _render_examples(self, calls: Sequence[Call]) -> str:
        """Return the example calls of a prompt as text.

        A call may be `GENERIC_CALL`, for which `_generic_call` returns the text.
        """
        return self._wrapped(
            [(call.name, self._generic_call() if call is GENERIC_CALL else self._render_call(call)) for call in calls]
        )

    def _generic_call(self) -> str:
        """Return the text of `GENERIC_CALL`, which has a placeholder in place of a tool's name.

        If the model copies this text into a reply, the copy is not read as a call.
        """
        values = {"key": PARAMETER_SLOT, "value": "its value", "string": "true or false"}
        return fill(self._call_template, {"name": NAME_SLOT, "parameters": fill(self._parameter_template, values)})

    # --- heads -------------------------------------------------------------------------------------------------------

    def _wrapper_heads(self, templates: FormatTemplates) -> Iterator[Head]:
        """Yield a `Head` that finds a wrapper, if the format has wrappers.

        The tags after the wrapper's opening tag decide whether a call begins, unless that tag alone is unmistakable.
        """
        around, call = templates.wrapper, templates.call
        if around is None:
            return
        openers = [opener for text in (around.opener, *templates.wrappers) for opener in templates.spelled(text)]
        literals = tuple(dict.fromkeys(opener.removesuffix(">") for opener in (*openers, *templates.odd_wrappers)))
        odd = _any_of(opener.removesuffix(">") for opener in templates.odd_wrappers)
        heads = TagHeads(
            self.grammar.names,
            own_call=lazy_pattern(rf"<\s*(?:{'|'.join(map(re.escape, templates.spelled(call.word)))})\b"),
            other_wrapper=lazy_pattern(rf"(?:{odd})\b" if odd else "(?!)"),
            noise_texts=call.noise_texts,
        )
        is_token = not word_of(around.opener)
        literals += call.noise[:1] if is_token else ()
        begins: HeadPredicate = heads.begins_block if self.tier == "S" else heads.begins_wrapped
        if is_token and self.grammar.names is SHARED_NAMES:
            begins = heads.begins_tokens
        boundary = "" if is_token else r"(?=[\s>]|\Z)"
        yield Head(literals, f"(?:{_any_of(literals)}){boundary}{LOOKAHEAD_PATTERN}", body_starts="", begins=begins)

    def _bare_heads(self, templates: FormatTemplates, where: Bare) -> Iterator[Head]:
        """Yield `Head` objects that find a call without its wrapper. `where`: where such calls are recognized."""
        call = templates.call
        if where == "never":
            return
        heads = TagHeads(self.grammar.names)
        begins: HeadPredicate = heads.begins_block if self.tier == "S" else heads.begins_bare
        words = [f"<{word}" for word in templates.spelled(call.word)]
        if where == "line":
            end = "[\\s>/=]" if call.has_equals else "[\\s>/]"
            pattern = rf"{any_literal_text(words)}(?={end}|\Z){LOOKAHEAD_PATTERN}"
            gate = rf"(?=[<])<(?:{_any_of(dict.fromkeys(word[1:2] for word in words))}|\Z)"
            yield Head(tuple(words), pattern, body_starts="", gate=gate, begins=begins, at_line_start=True, tier="B")
            return
        any_word = _any_of(words)
        if call.has_equals:
            literals = tuple(word + end for word in words for end in "= ")
            yield Head(literals, rf"(?:{any_word}) {{0,8}}={LOOKAHEAD_PATTERN}", body_starts="", begins=begins)
            whole = tuple(f"{word}>" for word in words)
            yield Head(whole, f"(?:{_any_of(whole)}){LOOKAHEAD_PATTERN}", body_starts="", begins=begins)
        else:
            end = rf"(?=[\s>/Ġ]|{literal_text(call.attribute)}|\Z)" if call.attribute else r"(?=[\s>/]|\Z)"
            yield Head(tuple(words), f"(?:{any_word}){end}{LOOKAHEAD_PATTERN}", body_starts="", begins=begins)


def _header_head(header: str, separator: str, inner: Head) -> Head:
    """Return a `Head` that finds a header and the call after it. `inner`: the head that finds the call.

    `separator`, the text between two calls, may come before the header. If the header and the call name different
    tools, the header is text.
    """
    before, after = (part.strip() for part in header.split("{name}"))
    between = separator.strip()
    starts = (f"{separator.lstrip()}{before}", f"{between}{before}", f"{between} {before}") if between else ()
    starts = tuple(dict.fromkeys((*starts, before)))
    whole = lazy_pattern(rf"(?:{_any_of(starts)})\s*(?P<name>{_HEADER_NAME})\s*{re.escape(after)}\s*")
    begins_inner = inner.begins
    assert begins_inner is not None

    def begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        found = whole.match(text, start, end)
        if found is None:
            return NEED_MORE if end == len(text) else False
        ready = begins_inner(text, found.end(), end, fresh=fresh, options=options)
        name = re.split(r"[.:/]", found["name"])[-1]  # without its namespace, which the call may lack
        if ready is True and name not in text[found.end() : end]:
            return NEED_MORE if end == len(text) else False
        return ready

    pattern = sequence(
        any_literal_text(starts), r"\s{0,16}", _HEADER_NAME, r"\s{0,16}", literal_text(after), LOOKAHEAD_PATTERN
    )
    return inner._replace(literals=starts, pattern=pattern, gate="", begins=begins)


def _first(text: str, prefixes: Sequence[str]) -> str:
    return text.replace("{prefix}", prefixes[0])


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, texts))


def _other_wrappers(templates: FormatTemplates) -> Iterator[tuple[str, str]]:
    """Yield the opening and closing tags of the wrappers besides the main one."""
    for opener in templates.wrappers:
        yield from ((text, f"</{word_of(text)}>") for text in templates.spelled(opener))


def _closers(templates: FormatTemplates) -> Iterator[str]:
    """Yield the markers that may occur alone, without their call: the tags of wrappers, and a call's closing tag."""
    around = templates.wrapper
    if around is not None:
        yield from templates.spelled(around.closer)
        yield from (f"</{word}>" for text in templates.wrappers for word in templates.spelled(word_of(text)) if word)
        yield from templates.spelled(around.opener)
    yield from (f"</{word}>" for word in templates.spelled(templates.call.word))


def _canonical(templates: FormatTemplates) -> re.Pattern[str]:
    """Return the pattern of all tags as the family writes them."""
    call, param, around, wrappers, _, prefixes = templates
    patterns = [opener_pattern(call, prefixes), closer_pattern(call.word, prefixes)]
    if param.word:
        patterns += [opener_pattern(param, prefixes), closer_pattern(param.word, prefixes)]
    if around is not None:
        tags = [around.opener, around.closer, *wrappers]
        patterns += [re.escape(text) for tag in tags for text in templates.spelled(tag)]
        patterns += [closer_pattern(word_of(tag), prefixes) for tag in wrappers if word_of(tag)]
    return lazy_pattern("|".join(patterns))


def _names(templates: FormatTemplates) -> TagNames:
    """Return `SHARED_NAMES` if they include the names of all tags in the format; else only the format's own names."""
    call, param, around, wrappers, odd_wrappers, prefixes = templates
    openers = [around.opener, *wrappers, *odd_wrappers] if around is not None else []
    shared = (
        _is_shared(call.opener, "call", prefixes)
        and _is_shared(param.opener, "param", prefixes)
        and all(_is_shared(opener, "wrap", prefixes) for opener in openers)
    )
    if shared:
        return SHARED_NAMES
    tokens: dict[str, tuple[TagKind, bool]] = dict.fromkeys(call.noise, ("noise", False))
    if around is not None and not word_of(around.opener):
        tokens |= {around.opener: ("wrap", False), around.closer: ("wrap", True)}
    return TagNames(
        wrappers=tuple(word for opener in openers for word in templates.spelled(word_of(opener)) if word),
        calls=templates.spelled(call.word),
        params=templates.spelled(param.word) if param.word else (),
        name_attribute=call.attribute or "name",
        key_attribute=param.attribute or "name",
        naming_element=call.naming,
        naming_elements=frozenset((call.naming,)) if call.naming else frozenset(),
        tokens=tokens,
    )


def _is_shared(opener: str, kind: TagKind, prefixes: Sequence[str]) -> bool:
    """Return whether `SHARED_NAMES` reads an opening tag as a tag of the given kind, and finds a name in the tag.

    The tag of a wrapper needs no name.
    """
    for text in spelled(opener.replace("{name}", "x").replace("{key}", "x"), prefixes):
        tag = SHARED_NAMES.read_tag(text, 0) or SHARED_NAMES.read_token(text, 0)
        if tag is None or tag.kind != kind or (kind != "wrap" and tag.name is None):
            return False
    return True
