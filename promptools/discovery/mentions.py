"""Names that a reply mentions in words: of tools, and of parameters."""

from __future__ import annotations

import re
from collections.abc import Collection

from promptools.dialects.reply_markers import reply_markers
from promptools.harmony.tokens import TOKEN_IDS
from promptools.parsing.special_tokens import SPECIAL_TOKEN

_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_LISTED = re.compile(rf"^[ \t]*(?:[-*•+]|[0-9]+[.)])[ \t]+[`*]*({_NAME})[`*]*(?=[ \t]*(?:$|[:(–—,-]))", re.MULTILINE)
"""The first word of an item, if it is followed by nothing or by an explanation."""
_ALONE = re.compile(rf"^[ \t]*[`*]*({_NAME})[`*]*[ \t]*$", re.MULTILINE)
_QUOTED = re.compile(rf"`({_NAME})(?:\([^`]*\))?`")
_DOTTED = re.compile(rf"(?<![\w./])({_NAME})(?![\w/])")
_KEY = re.compile(rf'"({_NAME})"\s*:')
_EXTENSIONS = frozenset({"py", "md", "txt", "json", "toml", "yaml", "yml", "js", "ts", "sh", "cfg", "html", "css"})

_WORDS = """
type description properties required items enum default title name parameters object string number
integer boolean array null function additionalproperties arguments example examples optional returns
return schema minimum maximum format none true false int str bool float list dict note
"""
SCHEMA_WORDS = frozenset(_WORDS.split())
"""Words of JSON Schema and of explanations, which are no parameters."""


def mentioned_tools(text: str, called: Collection[str] = ()) -> set[str]:
    """Return what is named like a tool: an item of a list, code, or a word with an underscore or a dot in it.

    Names of special tokens, such as `im_end`, are left out unless they are among the tools `called`.
    """
    names = {*_LISTED.findall(text), *_ALONE.findall(text), *_QUOTED.findall(text)}
    names |= {name for name in _DOTTED.findall(text) if "_" in name.strip("_") or "." in name}
    tokens = reply_markers().special_token_names.union(TOKEN_IDS, SPECIAL_TOKEN.findall(text)).difference(called)
    return {name for name in names if not _is_file(name) and name.lower() not in SCHEMA_WORDS and name not in tokens}


def mentioned_parameters(text: str, tool: str) -> set[str]:
    """Return what is named like a parameter in a description of the tool."""
    names = {*_LISTED.findall(text), *_QUOTED.findall(text), *_KEY.findall(text)}
    own = {tool, *tool.split(".")}
    return {name for name in names if "." not in name and name not in own and name.lower() not in SCHEMA_WORDS}


def _is_file(name: str) -> bool:
    return name.rpartition(".")[2].lower() in _EXTENSIONS
