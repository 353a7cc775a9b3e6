r"""The templates by which a format of tags is declared: `<invoke name="{name}">\n{parameters}</invoke>`.

A template is what the family writes, and what its tags are read by. A tag has its name or key in an attribute, after an
equals sign, or in an element of its own; a parameter may be an element of its key, `<{key}>{value}</{key}>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from promptools.patterns import lazy_pattern

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
    """One tag of a template."""

    word: str
    """Its name, perhaps after `{prefix}`; empty for an element of its key."""
    opener: str
    """The opening tag, with its keys."""
    attribute: str = ""
    """The attribute that names the tool or the parameter; empty: an equals sign does, or nothing."""
    has_equals: bool = False
    naming: str = ""
    """The element that names the tool."""
    noise: tuple[str, ...] = ()
    """Tokens beside the tags of a call, which carry no meaning."""
    noise_texts: tuple[str, ...] = ()
    """The text between these."""


def read_call(template: str) -> TagTemplate | None:
    """Read the template of a call; None if it is none."""
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
    """Read the template of a parameter; None if it is none."""
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
    """Return whether the template of a parameter puts the value on lines of its own."""
    return "\n{value}\n" in template


class WrapperTemplate(NamedTuple):
    """The tags around one call, or around all calls of a turn."""

    opener: str
    closer: str


def read_wrapper(template: str) -> WrapperTemplate | None:
    """Read the template of a wrapper; None if it is none."""
    match = _WRAPPER.fullmatch(template)
    if match is None:
        return None
    return WrapperTemplate(match["opener"], match["closer"])


class FormatTemplates(NamedTuple):
    """All templates of a format, as `TagDialect` takes them."""

    call: TagTemplate
    parameter: TagTemplate
    wrapper: WrapperTemplate | None
    wrappers: Sequence[str]
    odd_wrappers: Sequence[str]
    prefixes: Sequence[str]

    def spelled(self, text: str) -> tuple[str, ...]:
        """Return a text with each of the prefixes filled in."""
        return spelled(text, self.prefixes)


def read_templates(
    call: str,
    parameter: str,
    wrapper: str,
    wrappers: Sequence[str],
    odd_wrappers: Sequence[str],
    prefixes: Sequence[str],
) -> FormatTemplates:
    """Read the templates of a format, which are known to be valid; an empty `wrapper` is none."""
    call_tag, param_tag = read_call(call), read_parameter_template(parameter)
    assert call_tag is not None
    assert param_tag is not None
    around = read_wrapper(wrapper) if wrapper else None
    return FormatTemplates(call_tag, param_tag, around, wrappers, odd_wrappers, prefixes)


def word_of(opener: str) -> str:
    """Return the name of an opening tag; empty for a token without one."""
    match = _OPENING_WORD.fullmatch(opener)
    return match["word"] if match is not None else ""


def spelled(text: str, prefixes: Iterable[str]) -> tuple[str, ...]:
    """Return a text with each of the prefixes filled in."""
    return tuple(dict.fromkeys(text.replace("{prefix}", prefix) for prefix in prefixes))


def opener_pattern(tag: TagTemplate, prefixes: Sequence[str]) -> str:
    """Return the pattern of a tag's opening tag as the family writes it."""
    pieces = _PLACEHOLDER.split(tag.opener)
    keys = _PLACEHOLDER.findall(tag.opener)
    held = r"[^\"<>]+" if tag.attribute else r"[^\s<>\"'=]+"
    values = {"{prefix}": f"(?:{'|'.join(map(re.escape, prefixes))})", "{string}": "(?:true|false)"}
    pattern = re.escape(pieces[0])
    for key, piece in zip(keys, pieces[1:], strict=True):
        pattern += values.get(key, held) + re.escape(piece)
    return pattern


def closer_pattern(word: str, prefixes: Sequence[str]) -> str:
    """Return the pattern of the closing tag of a name."""
    return "|".join(f"</{re.escape(name)}>" for name in spelled(word, prefixes))
