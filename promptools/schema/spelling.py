"""Match what models write to what tools declare: the names of tools, and the keys of their arguments.

A tool's name is found in any spelling (`fold_name`, `name_candidates`), or under another name that models were trained
on (`OtherNames`). A key is renamed to the parameter that it means (`Spellings`, `rename_keys`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from promptools.errors import UsageError, clip
from promptools.json_values import is_object
from promptools.patterns import lazy_pattern
from promptools.schema.documents import pointer
from promptools.types import Fix, Tool

if TYPE_CHECKING:
    from promptools.schema import Tools


# Names of tools, as models write them.


MOST_LISTED = 200
"""Maximum number of names that a message to the model lists."""
LONGEST_NAME = 300
"""Maximum number of characters of a called name from which layers such as namespaces are removed.

No tool's name is longer, even with everything that models add around the name.
"""

NAMESPACES: Final = (
    *(f"{word}." for word in ("functions", "function", "tools", "tool", "multi_tool_use", "default_api")),
    "default_api:",
)
"""Namespaces that models put before a tool's name, since OpenAI's and Gemini's prompts declare tools in a namespace."""
_NAMESPACE = lazy_pattern("|".join(map(re.escape, NAMESPACES)))
# `.call` follows the names of Llama 3.1's built-in tools; a number follows the names in Kimi K2's ids:
# `functions.get_weather:0`.
_TAIL = lazy_pattern(r"(?:\(\s*\)|\.call|:\d*)$")
# gpt-oss glues the constraint of the arguments to the name: `shelljson` (llama.cpp#15158).
_WORD = lazy_pattern(r"(?:\s+|(?<=[^\s_.:-]))(?:commentary|analysis|final|json)$")
_OF_SERVER = lazy_pattern(r"\w[\w.-]*(?:/\w[\w.-]*)+")
"""Matches a tool name that includes the name of an MCP server, such as `Files/read_file` (GLM 5.3 Flash).

Such a name means a tool that is declared as `read_file` or `files__read_file`.
"""
_CLEANED_ID = lazy_pattern(r"functions[._-](.+?)([._-]\d{1,4})?\Z", re.DOTALL)
"""Matches a Kimi call id, such as `functions.Bash:2`, that was changed to a form such as `functions_Bash_2`.

Clients that allow no dots or colons in ids send the changed id in the history, and the model copies it as a tool name.
"""
_QUOTES = " \t\r\n\f\v\"'`“”‘’"
_ESCAPED = lazy_pattern(r"\\([_.-])")
_SEPARATORS = lazy_pattern(r"[-_.\s]+")


def format_names(names: Sequence[str]) -> str:
    """Return the names for a message to the model: the first `MOST_LISTED`, and how many more there are."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def fold_name(name: str) -> str:
    """Return a name without `-`, `_`, `.` and spaces, case-folded."""
    return _SEPARATORS.sub("", name).casefold()


def unique_by_spelling(names: Iterable[str], spelling: Callable[[str], str]) -> dict[str, str]:
    """Return a dict from `spelling(name)` to the name; a spelling that several names share is left out."""
    by_spelling: dict[str, str] = {}
    twice: set[str] = {""}
    for name in names:
        key = spelling(name)
        twice.update({key} & by_spelling.keys())
        by_spelling[key] = name
    return {key: name for key, name in by_spelling.items() if key not in twice}


def name_candidates(written: str) -> Iterable[str]:
    """Yield what a name in a reply may mean: the name, then the name with one more layer removed each time.

    For example `tools.get_weather()`, then `get_weather()`, then `get_weather`.
    """
    name = written.strip(_QUOTES)
    yield name
    # vLLM 0.13 leaves `<|channel|>commentary` at the end of gpt-oss' names (vllm#32587).
    cut = name.partition("<")[0].strip(_QUOTES)
    if cut != name:
        name = cut
        yield name
    if len(name) > LONGEST_NAME:
        return
    cleaned = _CLEANED_ID.match(name)
    while (shorter := _strip_layer(name)) != name:
        name = shorter
        yield name
    if _OF_SERVER.fullmatch(name):
        yield name.replace("/", "_")
        yield name.rpartition("/")[2]
    if cleaned is not None:
        yield cleaned[1] + (cleaned[2] or "")
        yield cleaned[1]


def _strip_layer(name: str) -> str:
    """Remove one layer around a name: a namespace, an index, a call's parentheses, or a Harmony channel."""
    for pattern in (_NAMESPACE, _TAIL, _WORD):
        match = pattern.match(name) if pattern is _NAMESPACE else pattern.search(name)
        if match:
            return (name[match.end() :] if pattern is _NAMESPACE else name[: match.start()]).strip(_QUOTES)
    return name


def unescape_name(name: str) -> str:
    """Return the name without backslashes that escape Markdown's special characters; tools' names have no backslash."""
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name


def escape_fixes(name: str) -> tuple[Fix, ...]:
    """Return the fix for a name with Markdown's escapes; empty if the name has no escapes."""
    bare = unescape_name(name)
    return () if bare == name else (Fix("name", f"{clip(name)!r} to {clip(bare)!r}"),)


def is_offered_name(name: str, tools: Tools | None) -> bool:
    """Return whether a name means an offered tool, as declared or with a namespace (`functions.`) before it."""
    if tools is None:
        return False
    bare = unescape_name(name)
    return tools.get(bare) is not None or ("." in bare and tools.find(bare) is not None)


# The other names of tools: names that models were trained on, mapped to the tools that an app declares.
#
# A tool's own name always takes precedence. So another name is not used if it is a spelling of a declared tool's name.
# It is not used either if two tools have it, since nobody could know which of them is meant.


class OtherNames:
    """Finds the tools of one request by their other names: names that models use instead of the declared ones."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.by_name: dict[str, str] = {}
        """Maps each usable other name to the declared name of its tool."""
        self._folded: dict[str, str] = {}
        self._ambiguous: dict[str, list[str]] = {}
        given = [(other, tool.name) for tool in tools for other in tool.names if other != tool.name]
        if given:
            self._fill(given, {fold_name(tool.name): tool.name for tool in tools})

    def _fill(self, given: Sequence[tuple[str, str]], declared: dict[str, str]) -> None:
        tools_of: dict[str, list[str]] = {}
        for other, name in given:
            tools_of.setdefault(other, []).append(name)
        for other, names in tools_of.items():
            owner = declared.get(fold_name(other))
            if owner is not None and names != [owner]:
                continue
            if len(names) > 1:
                self._ambiguous[other] = names
            else:
                self.by_name[other] = names[0]
        targets: dict[str, set[str]] = {}
        for other, name in self.by_name.items():
            targets.setdefault(fold_name(other), set()).add(name)
        self._folded = {key: names.pop() for key, names in targets.items() if len(names) == 1}

    def find(self, name: str) -> str | None:
        """Return the name of the tool that has this other name, in any spelling; None if no tool has it."""
        return self.by_name.get(name) or (self._folded.get(fold_name(name)) if self._folded else None)

    def reject_ambiguous(self) -> None:
        """Raise UsageError if several tools share one of their other names."""
        for other, names in self._ambiguous.items():
            raise UsageError(
                f"The other name {clip(other)!r} is given to {' and '.join(map(repr, names))}; give it to one tool."
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on other names that are not used, because several tools have them."""
        return tuple(
            f"the other name {other!r} is not used: {' and '.join(map(repr, names))} have it"
            for other, names in self._ambiguous.items()
        )


# The keys of arguments, as models write them, and the parameters that a schema declares.


SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "filepath file_path filePath file",
        "path directory dir_path dirPath dir folder",
        "path filepath",
        "command cmd shell_command",
        "query query_text search_query",
        "unified_diff diff patch",
        "url link webpage uri",
        "location city place",
        "container container_id container_name",
        "pod pod_name pod_id",
        "text content body",
        "search find old_text original",
        "replace replacement new_text",
    )
)
"""Groups of synonyms. If a schema declares exactly one name of a group, the others of the group mean that name."""

DIRECTED_SYNONYMS: Mapping[str, frozenset[str]] = {
    "num_results": frozenset(("top_n", "count", "limit", "max_results")),
    "query": frozenset(("pattern",)),
    "line_start": frozenset(("start_line",)),
    "line_end": frozenset(("end_line",)),
}
"""Maps declared names to other names that may mean them, such as `num_results` to `limit`.

The other names of one declared name are not synonyms of each other.
"""

GUESSED_SYNONYMS: tuple[frozenset[str], ...] = (*SYNONYMS, frozenset(("path", "file", "filename", "file_name")))
"""Groups of synonyms for `guess_key`: `SYNONYMS`, and a group that is used only if one parameter is missing."""
GENERIC_WORDS = frozenset((
    "arg", "array", "field", "input", "list", "name", "param", "parameter", "str", "string", "text", "value",
))  # fmt: skip
"""Words that add nothing after a name: a `city_name` is a city."""
DISTINGUISHING_WORDS = frozenset((
    "after", "base", "before", "begin", "cc", "dest", "destination", "dst", "end", "exclude", "first", "from",
    "ignore", "in", "last", "max", "min", "new", "next", "no", "not", "old", "other", "out", "output", "parent",
    "previous", "prior", "reply", "second", "source", "src", "start", "target", "to",
))  # fmt: skip
"""Words before a name that change what it means: an `old_path` is not the path."""

_CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATOR = lazy_pattern(r"[-_.\s]+")
_BEFORE_NAME = lazy_pattern(r"[\s,;\"']")
"""Matches a character that may come before a parameter's name in a text."""
_AMBIGUOUS_STARTS = "=\"'"
"""Characters that make a key ambiguous if they come right after its `=`: they may or may not belong to the value."""
LONGEST_KEY = 128
"""Maximum number of characters of a key that is split into words."""

WRAPPER = "properties"
"""The schema keyword under which models wrap arguments by mistake."""
_WRAPPER_SIBLINGS = frozenset(("type", "required", "additionalProperties"))
"""Schema keywords that may stand beside `properties` if models wrap arguments in it."""
_TYPES = frozenset((
    "any", "array", "bool", "boolean", "dict", "float", "int", "integer", "list", "null", "number", "object",
    "str", "string",
))  # fmt: skip
_SCHEMA_KEYWORDS = frozenset(("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "description", "properties", "items"))


_WITH_SYNONYMS = frozenset[str]().union(*SYNONYMS)


def alias_table(declared: Collection[str], own_aliases: Mapping[str, str]) -> dict[str, str]:
    """Return a map from each alias to the only declared parameter that it can mean.

    A declared name is never an alias. The tool's `own_aliases` take precedence over the built-in synonyms.
    """
    meant: dict[str, set[str]] = {}
    for group in SYNONYMS if not _WITH_SYNONYMS.isdisjoint(declared) else ():
        members = group.intersection(declared)
        if len(members) == 1:
            for alias in group:
                meant.setdefault(alias, set()).update(members)
    for name, aliases in DIRECTED_SYNONYMS.items():
        if name in declared:
            for alias in aliases:
                meant.setdefault(alias, set()).add(name)
    table = {alias: next(iter(names)) for alias, names in meant.items() if len(names) == 1}
    table.update(own_aliases)
    return {alias: name for alias, name in table.items() if alias not in declared}


class Spellings:
    """Indexes a schema's declared names by their form in lower case, with and without separators."""

    def __init__(self, declared: frozenset[str]) -> None:
        self.declared = declared
        self._cased = unique_by_spelling(declared, str.casefold)
        self._folded = unique_by_spelling(declared, fold_name)

    def match(self, key: str) -> str | None:
        """Return the only declared name that differs from a key only in case, `-`, `_`, `.`, spaces or camel case."""
        return self._cased.get(key.casefold()) or self._folded.get(fold_name(key))


def rename_keys(
    arguments: dict[str, Any],
    spellings: Spellings,
    aliases: Mapping[str, str],
    own_aliases: Mapping[str, str],
    allowed: Collection[str] | None,
) -> tuple[dict[str, Any], tuple[Fix, ...]]:
    """Return arguments under their declared names, in the same order, with a fix for each renamed key.

    A tool's `own_aliases` take precedence over other spellings of declared names, which take precedence over the
    built-in `aliases`. A key is not renamed if its parameter is given, or if another key means the same parameter. Keys
    are renamed only to parameters in `allowed`; None allows all.
    """
    wanted: dict[str, str] = {}
    for key in arguments:
        if key not in spellings.declared:
            name = own_aliases.get(key) or spellings.match(key) or aliases.get(key)
            if name is not None and name not in arguments:
                wanted[key] = name
    times = Counter(wanted.values())
    return _renamed(
        arguments,
        {key: name for key, name in wanted.items() if times[name] == 1 and (allowed is None or name in allowed)},
    )


def guess_key(
    arguments: dict[str, Any], declared: Collection[str], required: Collection[str]
) -> tuple[dict[str, Any], tuple[Fix, ...]]:
    """Rename the only undeclared key to the only missing required parameter, if their names mean the same.

    Two names mean the same if one is the other with additional words, or if they are synonyms. Nothing is renamed if
    the key could also mean another parameter that is not given. The caller must check whether the value is valid for
    the parameter.
    """
    unknown = [key for key in arguments if key not in declared]
    missing = [name for name in required if name not in arguments]
    if len(unknown) != 1 or len(missing) != 1:
        return arguments, ()
    key = unknown[0]
    words = _split_words(key)
    meant = [name for name in declared if name not in arguments and _same_meaning(words, _split_words(name))]
    return _renamed(arguments, {key: missing[0]} if meant == missing else {})


def split_keys(arguments: dict[str, Any], declared: frozenset[str]) -> tuple[dict[str, Any], tuple[Fix, ...]]:
    """Split keys such as `command=ls` in `{"command=ls": ""}` into a key and a value, if the key's own value is empty.

    Servers produce such keys from `<parameter=command=ls</parameter>`, a Qwen3-Coder call in which `>` was written as
    `=`. This was seen under speculative decoding. The name must be declared exactly as written. The text must not be
    quoted, begin with `=`, or contain another parameter in the same form, because each of these would be ambiguous.
    """
    split: dict[str, tuple[str, str]] = {}
    for key, value in arguments.items():
        name, _, text = key.partition("=")
        if value == "" and text and key not in declared and name in declared and name not in arguments:
            assigned = (_BEFORE_NAME.split(piece)[-1] for piece in text.split("=")[:-1])
            if not declared.isdisjoint(assigned) or text[0] in _AMBIGUOUS_STARTS:
                return arguments, ()
            split[key] = name, text
    if not split or len({name for name, _ in split.values()}) < len(split):
        return arguments, ()
    fixes = tuple(
        Fix("split", f"{clip(repr(key), 60)} to {name!r}", pointer([name])) for key, (name, _) in split.items()
    )
    return dict(split.get(key, (key, value)) for key, value in arguments.items()), fixes


def _renamed(arguments: dict[str, Any], renames: Mapping[str, str]) -> tuple[dict[str, Any], tuple[Fix, ...]]:
    if not renames:
        return arguments, ()
    fixes = tuple(Fix("alias", f"{clip(repr(key), 60)} to {name!r}", pointer([name])) for key, name in renames.items())
    return {renames.get(key, key): value for key, value in arguments.items()}, fixes


def _split_words(key: str) -> list[str]:
    return _SEPARATOR.sub(" ", _CAMEL.sub(" ", key)).casefold().split() if len(key) <= LONGEST_KEY else []


def _same_meaning(key: list[str], name: list[str]) -> bool:
    """Return whether a key means the parameter `name`; both are given as words.

    Synonyms mean the same. So do two names if the longer one is the shorter one with generic words after it
    (`city_name`, `city`), or with any words before it (`file_path`, `path`). But a key with a distinguishing word
    before the name (`old_path`) means something else.
    """
    short, long = sorted((key, name), key=len)
    if not short:
        return False
    joined = {"_".join(key), "_".join(name)}
    if any(joined <= group for group in GUESSED_SYNONYMS):
        return True
    more = len(long) - len(short)
    if long[more:] == short:
        return long is name or DISTINGUISHING_WORDS.isdisjoint(long[:more])
    return long[: len(short)] == short and GENERIC_WORDS.issuperset(long[len(short) :])


def unwrap_arguments(arguments: Mapping[str, Any], declared: Collection[str]) -> dict[str, Any] | None:
    """Return the arguments that a model wrapped in `properties`, as in a schema; None if they are not wrapped.

    None is also returned if a member is a schema or the name of a type, because the model then repeated the tool's
    schema.
    """
    inner = arguments.get(WRAPPER)
    if (
        WRAPPER in declared
        or not is_object(inner)
        or not inner
        or not _WRAPPER_SIBLINGS.issuperset(arguments.keys() - {WRAPPER})
    ):
        return None
    if arguments.get("type", "object") != "object" or any(map(_is_schema_or_type, inner.values())):
        return None
    return dict(inner)


def _is_schema_or_type(value: Any) -> bool:
    """Return whether a member is a parameter's schema or the name of a type, and so not a value."""
    if isinstance(value, str):
        return value in _TYPES
    return is_object(value) and not _SCHEMA_KEYWORDS.isdisjoint(value)
