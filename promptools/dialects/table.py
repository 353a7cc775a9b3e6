"""Read a dialect from a TOML table, which declares a format of calls without code.

The package and apps declare dialects in this form:

    kind = "json"                           # or "named", "tags", "nested", "key_value", "python", "braces"
    name = "acme"
    models = "Acme 7B"
    tier = "S"                              # "S": tokens, never in prose; "A": ordinary tags; "B": ordinary text

    [openers]
    "<|acme_call|>" = "<|/acme_call|>"      # "": nothing closes it

This module defines the types of values and the kinds of dialects with their keys, and it reads tables.
docs/tasks/add-a-dialect.md also explains the keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prompt import Instructions, fill
from promptools.dialects.readers.block_markers import GAP_CHARACTERS
from promptools.dialects.readers.brace_calls import BraceCalls
from promptools.dialects.readers.gemma_object import STRING_DELIMITERS
from promptools.dialects.readers.marked_json import MarkedJson, NamedMarkerJson, is_call_template
from promptools.dialects.readers.marked_python import MarkedPythonCalls
from promptools.dialects.readers.nested_dialect import NestedDialect
from promptools.dialects.readers.nested_dialect import is_call as is_nested_call
from promptools.dialects.readers.nested_dialect import is_wrapper as is_nested_wrapper
from promptools.dialects.readers.pair_dialect import PairDialect, is_argument, is_call, is_wrapper
from promptools.dialects.readers.python_reader import FENCE
from promptools.dialects.readers.tag_dialect import (
    TagDialect,
    is_header,
    read_call,
    read_parameter_template,
    read_wrapper,
    word_of,
)
from promptools.dialects.table_file import DialectTable, read_table
from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object, is_text_list, try_json

if TYPE_CHECKING:
    import os


# What a value in a dialect's table may be: predicates, and texts that describe valid values.
#
# The predicates take any value that TOML can hold, and never raise.


MIN_MARKER: Final = 2
MAX_MARKER: Final = 128
"""Maximum length of a marker, in characters. It limits how much text has to be held back."""
SUFFIX: Final = "{suffix}>"
"""Written at the end of a reasoning tag in a table to allow any suffix: `<think:{suffix}>` matches `<think:abc>`."""


class TableKey(NamedTuple):
    """Describes a key of a table: what a value must be, the function that checks a value, and what the key means."""

    expected: str
    is_valid: Callable[[Any], bool]
    meaning: str = ""

    def means(self, meaning: str) -> TableKey:
        """Return this key with the given meaning."""
        return self._replace(meaning=meaning)


def is_text(value: Any) -> bool:
    """Return whether a value is text."""
    return isinstance(value, str)


def is_marker(value: Any) -> bool:
    """Return whether a value can be a marker: a text of 2 to 128 characters without white space around it."""
    return isinstance(value, str) and MIN_MARKER <= len(value) <= MAX_MARKER and value == value.strip()


def is_name(value: Any) -> bool:
    """Return whether a value can be the name of a dialect, which must be a valid identifier."""
    return isinstance(value, str) and value.isidentifier()


def is_label(value: Any) -> bool:
    """Return whether a value can be a label that begins a line: it must consist of words and begin with a letter."""
    return is_marker(value) and value[0].isalpha() and all(char.isalnum() or char in " _.:/-" for char in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_white_space(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _is_openers(value: Any) -> bool:
    if not is_object(value) or not value:
        return False
    return all(is_marker(opener) and (closer == "" or is_marker(closer)) for opener, closer in value.items())


def _is_bare_openers(value: Any) -> bool:
    """Return whether a value is a table of openers. It may have the entry `"" = ""`, for calls without markers."""
    if not is_object(value) or not value:
        return False
    marked = {opener: closer for opener, closer in value.items() if opener or closer}
    return not marked or _is_openers(marked)


def _is_json_openers(value: Any) -> bool:
    return _is_bare_openers(value) and are_json_closers(list(value.values()))


def are_json_closers(value: Any) -> bool:
    """Return whether a value is a list of texts that can follow JSON: none may begin with `,`, `;`, `}` or `]`."""
    return is_text_list(value) and not any(text.lstrip().startswith(tuple(GAP_CHARACTERS)) for text in value)


def _is_text_not_empty(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_texts_not_empty(value: Any) -> bool:
    return is_text_list(value) and bool(value)


def _is_literal(value: Any) -> bool:
    return isinstance(value, str) and MIN_MARKER <= len(value) <= MAX_MARKER and bool(value.strip())


def _are_literals(value: Any) -> bool:
    return is_array(value) and all(map(_is_literal, value))


def _are_tags(value: Any) -> bool:
    return is_object(value) and all(is_marker(closer) and _is_tag(opener, closer) for opener, closer in value.items())


def _are_optional_tags(value: Any) -> bool:
    return is_object(value) and all(
        is_marker(opener) and (closer == "" or is_marker(closer)) for opener, closer in value.items()
    )


def _is_tag(opener: str, closer: str) -> bool:
    """Return whether `opener` and `closer` can be a pair of reasoning tags: both end with `SUFFIX`, or neither does."""
    starts = opener.removesuffix(SUFFIX), closer.removesuffix(SUFFIX)
    return all(map(is_marker, starts)) and opener.endswith(SUFFIX) == closer.endswith(SUFFIX)


def _are_markers(value: Any) -> bool:
    return is_array(value) and all(map(is_marker, value))


SIZES: Final = f"{MIN_MARKER} to {MAX_MARKER} characters without white space around"
TEXT: Final = TableKey("a text", is_text)
TEXT_NOT_EMPTY: Final = TableKey("a text that is not empty", _is_text_not_empty)
TEXTS: Final = TableKey("a list of texts", is_text_list)
TEXTS_NOT_EMPTY: Final = TableKey("a list of texts that is not empty", _is_texts_not_empty)
FLAG: Final = TableKey("true or false", _is_flag)
NAME: Final = TableKey("a name of letters, digits and _", is_name)
WHITE_SPACE: Final = TableKey("a text of white space", _is_white_space)
LABEL: Final = TableKey(f"words that begin with a letter, {SIZES}", is_label)
MARKERS: Final = TableKey(f"a list of texts, each {SIZES}", _are_markers)
LITERALS: Final = TableKey(f"a list of texts, each {MIN_MARKER} to {MAX_MARKER} characters", _are_literals)
TAGS: Final = TableKey(f"a table of opening tags and their closing tags, each {SIZES}", _are_tags)
OPTIONAL_TAGS: Final = TableKey(f"a table of opening tags and their closing tags, each {SIZES}", _are_optional_tags)
NO_BRACKET: Final = f"beginning with none of {' '.join(GAP_CHARACTERS)}"
JSON_OPENERS: Final = TableKey(
    f"a table of openers and their closers, each {SIZES}, the closers {NO_BRACKET}", _is_json_openers
)
JSON_CLOSERS: Final = TableKey(f"a list of texts {NO_BRACKET}", are_json_closers)
OPENERS: Final = TableKey(f"a table of openers and their closers, each {SIZES}", _is_openers)
BARE_OPENERS: Final = TableKey(f"{OPENERS.expected}; an opener and its closer may both be empty", _is_bare_openers)


def one_of(*words: str) -> TableKey:
    """Return a key whose value must be one of the given words."""

    def is_one(value: Any) -> bool:
        return isinstance(value, str) and value in words

    *others, last = map(repr, words)
    return TableKey(f"{', '.join(others)} or {last}", is_one)


def texts(*sizes: int) -> TableKey:
    """Return a key whose value must be a list of texts; `sizes` are the allowed numbers of texts."""
    numbers = {1: "one text", 2: "two texts", 3: "three texts"}

    def are_texts(value: Any) -> bool:
        return is_text_list(value) and len(value) in sizes

    return TableKey(f"a list of {' or '.join(numbers[size].removesuffix(' texts') for size in sizes)} texts", are_texts)


def template(*keys: str) -> TableKey:
    """Return a key whose value must be a template that contains at least one of the given placeholders."""

    def is_template(value: Any) -> bool:
        return isinstance(value, str) and any(f"{{{key}}}" in value for key in keys)

    return TableKey(f"a text with {' or '.join(f'{{{key}}}' for key in keys)} in it", is_template)


def text_table(*keys: str) -> TableKey:
    """Return a key whose value must be a table of texts; only `keys` are allowed in that table."""

    def is_table(value: Any) -> bool:
        return is_object(value) and all(key in keys and isinstance(text, str) for key, text in value.items())

    return TableKey(f"a table of texts; its keys are {', '.join(keys)}", is_table)


# The kinds of dialects that a table may declare: the constructor of each, and its keys.
#
# `kind = "json"` only means that the table's values are checked and passed to `MarkedJson`.


def _no_problem(_values: Mapping[str, Any]) -> str:
    return ""


class Kind(NamedTuple):
    """Describes a kind of dialect: its constructor, its keys besides `COMMON_KEYS`, and its required keys."""

    make: Callable[..., DeclaredDialect]
    keys: Mapping[str, TableKey]
    required: tuple[str, ...]
    problem: Callable[[Mapping[str, Any]], str] = _no_problem
    """Returns an error message if values that are valid alone do not fit together; else an empty text."""


COMMON_KEYS: Final[dict[str, TableKey]] = {
    "name": NAME.means("the dialect's name"),
    "models": TEXT.means("the models that write it, for people"),
    "kind": one_of("json", "named", "tags", "nested", "key_value", "python", "braces").means(
        "the kind of format; default: `json`"
    ),
    "source": TEXT.means("where the format is defined, with its date"),
    "tier": one_of("S", "A", "B").means(
        "how distinctive the markers are: special tokens, readable tags, ordinary text"
    ),
    "stop": TEXTS.means("strings at which a server may stop generation in prompt mode"),
    "closers": MARKERS.means("markers that may be left alone after a call; default: the closing markers"),
    "reasoning_tags": TAGS.means("tags around reasoning; `{suffix}>` at the end of both matches any suffix"),
    "answer_tags": OPTIONAL_TAGS.means("tags around an answer; the closing tag may be empty"),
    "result_openers": LITERALS.means("how a result begins, or the turn that has it: after a call it is made up"),
    "end_tokens": LITERALS.means("tokens that end a turn"),
    "control_tokens": LITERALS.means("other tokens of its calls, results and messages, which prose never contains"),
    "turn_tokens": LITERALS.means("tokens of turns and prompts: no text next to a call and after the end of a turn"),
    "tokens_before_text": LITERALS.means("openers that a program or a name may follow, and are text then"),
    "rescues": FLAG.means("a call that ends the reasoning of an otherwise empty reply was meant"),
    "tool": template("json", "function", "signature", "name").means(
        "how the prompt declares a tool: `{json}`, `{function}`, `{signature}`, `{name}`, `{description}`,"
        " `{parameters}`"
    ),
    "tools": texts(2, 3).means("the text before and after the tools; or before, between and after them"),
    "instructions": text_table(*Instructions._fields).means(
        "the prompt: `text` with `{tools}`, `{format}`, `{how_many}`, `{when}`, `{call}` and `{calls}`"
    ),
    "result": template("content", "json").means("a result: `{content}` or `{json}`, `{name}`, `{id}`"),
    "error": template("content", "json").means("a failed result; default: as any other"),
    "results": texts(3).means("the text before, between and after the results of a turn"),
}
"""The keys that a table of any kind may have."""


def _is_wrapper(value: Any) -> bool:
    before, calls, after = value.partition("{calls}") if isinstance(value, str) else ("", "", "")
    return bool(calls) and is_marker(before.strip()) and is_marker(after.strip()) and are_json_closers([after])


def _is_call_template(value: Any) -> bool:
    if not isinstance(value, str) or "{arguments}" not in value:
        return False
    return is_call_template(value) and are_json_closers([value.partition("{arguments}")[2]])


def _is_object_template(value: Any) -> bool:
    """Return whether a value is the template of a JSON object that is a call."""
    if not isinstance(value, str) or "{name}" not in value or ("{arguments}" in value) == ("{text}" in value):
        return False
    filled = fill(value, {"name": '"n"', "arguments": "{}", "text": '"{}"', "id": "1", "index": "1"})
    return is_object(try_json(filled))


def _are_spellings(value: Any) -> bool:
    return is_array(value) and all(isinstance(item, str) and is_call_template(item) for item in value)


def _is_tag_call(value: Any) -> bool:
    return isinstance(value, str) and read_call(value) is not None


def _is_tag_parameter(value: Any) -> bool:
    return isinstance(value, str) and read_parameter_template(value) is not None


def _is_tag_header(value: Any) -> bool:
    return isinstance(value, str) and is_header(value) and is_marker(value.partition("{name}")[0].strip())


def _is_tag_wrapper(value: Any) -> bool:
    return isinstance(value, str) and read_wrapper(value) is not None


def _is_pair_argument(value: Any) -> bool:
    """Return whether a value of a table is an argument's template with no white space around its `{value}`."""
    return is_argument(value) and _space_around_value(value) == ("", "")


def _is_name_end(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_MARKER and value == value.strip()


def _space_around_value(parameter: str) -> tuple[str, str]:
    """Return the white space before and after `{value}` in a template."""
    before, _, after = parameter.partition("{value}")
    return before[len(before.rstrip()) :], after[: len(after) - len(after.lstrip())]


def _are_opening_tags(value: Any) -> bool:
    return is_array(value) and all(isinstance(item, str) and word_of(item) for item in value)


def _python_problem(values: Mapping[str, Any]) -> str:
    """Return an error message if the openers contradict each other or the other keys; else ""."""
    if len(values["openers"]) > 1 and any(opener.startswith(FENCE) for opener in values["openers"]):
        return "a code fence is the only one of its 'openers'"
    unfit = [opener for opener in values["openers"] if values.get("at_line_start") and not is_label(opener)]
    if unfit:
        return f"with 'at_line_start' openers are words that begin with a letter, {unfit[0]!r} is not"
    if next(iter(values["openers"])):
        return ""
    brackets = [text.strip() for text in values.get("spaces", ())]
    if brackets == ["[", "]"] and values.get("separator", "").strip() == ",":
        return ""
    return "'openers' without markers are those of a list: 'spaces' are its brackets, 'separator' has a comma"


def _tags_problem(values: Mapping[str, Any]) -> str:
    """Return an error message if `header`, `separator` or the white space around `{value}` is wrong; else "".

    A separator without a header would be read as text between two calls. White space around a value must not be read
    as part of the value.
    """
    if "header" in values and "{calls}" in values.get("wrapper", ""):
        return "with 'header' the 'wrapper' is around one call: it has {call}"
    if "header" not in values and values.get("separator", "").strip():
        return "without 'header' the 'separator' is white space"
    trim, around = values.get("trim"), {*_space_around_value(values["parameter"])}
    allowed = {"": ({""}, {"\n"}), "line": ({""}, {"\n"}, {"", "\n"}), "verbatim": ({""},)}
    if trim == "strip" or around in allowed[trim or ""]:
        return ""
    return "'parameter' has white space around {value} that is not left out: with 'trim' it can be"


def _key_value_problem(values: Mapping[str, Any]) -> str:
    """Return an error message if tags may have a suffix but there is no wrapper to show the suffix; else ""."""
    return "with 'suffix' there is a 'wrapper', too" if values.get("suffix") and not values.get("wrapper") else ""


_OPENERS_MEANING: Final = "opening markers and their closing markers, which may be empty; the first are written"
_WRITTEN_VALUES: Final = "as JSON; as JSON, but `True`, `False` and `None`; as Python prints them"

KINDS: Final[dict[str, Kind]] = {
    "json": Kind(
        MarkedJson,
        {
            "openers": JSON_OPENERS.means(
                f'{_OPENERS_MEANING}; `"" = ""` is JSON without markers, read only if the request asked for it'
            ),
            "also": JSON_CLOSERS.means("closing markers that other writers use"),
            "stripped": LABEL.means("what is left of the opener at the beginning of a line if special tokens are lost"),
            "shape": one_of("object", "list", "lines").means("what is between the markers"),
            "body_starts": one_of("{[", "{", "[").means("the brackets that may follow the opener"),
            "space": WHITE_SPACE.means("the white space between the markers and the JSON"),
            "fence_label": LABEL.means(
                "the label of the code fence that is written around the JSON, between the markers"
            ),
            "separator": TEXT.means("the text between two calls that have their own markers"),
            "name_key": TableKey("a text; empty: the name is the only key", is_text, "the key of the tool's name"),
            "arguments_key": TEXT_NOT_EMPTY.means("the key of the arguments"),
            "id_key": TEXT.means("the key of the call's number"),
            "call": TableKey(
                "a text of JSON with {name} and {arguments}, or {text}, in it",
                _is_object_template,
                "a call as it is written, where that is more than its keys: `{name}`, `{arguments}` or, where they are"
                " JSON in a string, `{text}`, `{id}` and `{index}`",
            ),
            "wrapper": TableKey(
                f"a text with {{calls}} between two markers, the second {NO_BRACKET}",
                _is_wrapper,
                "the markers around all calls of a turn",
            ),
            "on_request": FLAG.means(
                "another dialect has the same markers, so it is read only if the request asked for it"
            ),
        },
        ("openers",),
    ),
    "named": Kind(
        NamedMarkerJson,
        {
            "call": TableKey(
                "a text with {name} and then {arguments} in it, a marker before them, text between keys, and after"
                f" them text {NO_BRACKET}",
                _is_call_template,
                "a call: `{name}`, `{arguments}` and, if calls have them, `{id}` and `{index}`",
            ),
            "spellings": TableKey(
                "a list of texts with {name} in each, as in 'call'",
                _are_spellings,
                "other forms of what comes before the arguments, which are only read",
            ),
            "separator": TEXT.means("the text between two calls"),
            "one_line": FLAG.means("the arguments are written in one line, whatever line breaks they came with"),
            "wrapper": TableKey(
                f"a text with {{calls}} between two markers, the second {NO_BRACKET}",
                _is_wrapper,
                "the markers around all calls of a turn",
            ),
        },
        ("call",),
    ),
    "tags": Kind(
        TagDialect,
        {
            "call": TableKey(
                "a tag with {name} in an attribute, after '=' or in an element, and {parameters} before its closing"
                " tag",
                _is_tag_call,
                "a call: `{name}` and `{parameters}`",
            ),
            "parameter": TableKey(
                "a tag with {key} in an attribute or after '=', or the element <{key}>, and {value} before its closing"
                " tag",
                _is_tag_parameter,
                "a parameter: `{key}`, `{value}` and, if strings are told from JSON, `{string}`: true or false",
            ),
            "wrapper": TableKey(
                "a text with {call} or {calls} between two markers",
                _is_tag_wrapper,
                "the markers around one call, `{call}`, or around all of a turn, `{calls}`",
            ),
            "prefixes": TEXTS_NOT_EMPTY.means("what `{prefix}` in a tag stands for; the first is written"),
            "wrappers": TableKey(
                "a list of tags", _are_opening_tags, "other opening tags of the wrapper that the family writes"
            ),
            "odd_wrappers": TableKey(
                "a list of tags",
                _are_opening_tags,
                "opening tags of the wrapper that count only before a call, with a fix",
            ),
            "bare": one_of("never", "anywhere", "line").means("where calls count without their wrapper"),
            "trim": one_of("line", "verbatim", "strip").means(
                "the white space around a value that is not part of it: a line break on each side, none, or all"
            ),
            "cdata": FLAG.means("values with markup are in CDATA sections"),
            "json_calls": FLAG.means("the wrapper may hold calls as JSON"),
            "namespaced": FLAG.means("the names of tools may have a namespace before them"),
            "values": one_of("json", "constants", "python").means(
                f"how values other than texts are written: {_WRITTEN_VALUES}"
            ),
            "header": TableKey(
                f"a text with {{name}} after a marker of {SIZES}, and before another text",
                _is_tag_header,
                "the text before each call, which names its tool, too: `{name}`",
            ),
            "separator": TEXT.means("the text between two calls; without `header` white space"),
        },
        ("call", "parameter"),
        _tags_problem,
    ),
    "nested": Kind(
        NestedDialect,
        {
            "mark": TableKey(f"a text of {SIZES}", is_marker, "the marker before each tag, `{mark}` in the others"),
            "call": TableKey(
                "{mark}, a tag with {name} in an attribute, {parameters}, {mark} and the closing tag",
                is_nested_call,
                "a call: `{name}` and `{parameters}`, each of which is an element, and so are its items and members",
            ),
            "wrapper": TableKey(
                "{mark}, a tag, {calls}, {mark} and the closing tag",
                is_nested_wrapper,
                "the tags around all calls of a turn",
            ),
            "odd_wrappers": TableKey(
                "a list of tags", _are_opening_tags, "other opening tags of the wrapper, which are read with a fix"
            ),
            "item": TableKey("a name of letters, digits and _", is_name, "the name of the elements of a list"),
            "separator": WHITE_SPACE.means("the white space between two calls"),
        },
        ("mark", "call"),
    ),
    "key_value": Kind(
        PairDialect,
        {
            "call": TableKey(
                "a marker, {name}, perhaps a marker, {arguments} and a marker",
                is_call,
                "a call: `{name}`, and `{arguments}` with the white space around each",
            ),
            "argument": TableKey(
                "a tag, {key}, its closing tag, perhaps the same for {type}, a tag, {value}, its closing tag; a key may"
                " lack its closing tag, and no white space is around {value}",
                _is_pair_argument,
                "an argument: `{key}`, `{value}` and, if values carry their types, `{type}` between the two",
            ),
            "wrapper": TableKey(
                "a text with {calls} between two markers", is_wrapper, "the markers around all calls of a turn"
            ),
            "suffix": TEXT.means(
                "what begins the suffix that each tag of a reply may have, as in `<tool_call:6124c78e>`"
            ),
            "json_after": TableKey(
                f"a text of 1 to {MAX_MARKER} characters without white space around",
                _is_name_end,
                "what comes between a name and arguments that are JSON, as the `>` in `<tool_call>get_weather>{}`; such"
                " a call may lack its closing marker",
            ),
            "stripped": FLAG.means(
                "the opening tag is a special token that servers strip: then a call begins with its tool's name"
            ),
        },
        ("call", "argument"),
        _key_value_problem,
    ),
    "python": Kind(
        MarkedPythonCalls,
        {
            "openers": BARE_OPENERS.means(
                f"{_OPENERS_MEANING}; ```` ```label ```` begins a code fence, and is the only opener; "
                '`"" = ""` is a list of calls without markers, read only if the request asked for it, and has'
                ' `spaces = ["[", "]"]`'
            ),
            "at_line_start": FLAG.means("the openers are labels, which count only at the beginning of a line"),
            "spaces": texts(2).means("the text after the opening and before the closing marker"),
            "separator": TEXT.means("the text between two calls"),
            "also": TEXTS.means("closing markers that other writers use"),
            "json": FLAG.means("objects may be between the markers, too"),
            "bare_list": FLAG.means("a list without its markers is read, too, if the request asked for it"),
            "statements": FLAG.means(
                "a program of calls; it is read only in lenient parsing, or if the request asked for it"
            ),
            "repeats": FLAG.means("the calls may be repeated after their closing marker, with another one"),
            "closer_is_final": FLAG.means("the closing marker cannot be prose: anything may follow it"),
            "fence_label": LABEL.means("the label of the code fence that may be around the calls, between the markers"),
            "values": one_of("literals", "json", "python").means(
                "how values are written: as literals, texts in double quotes; as JSON; as Python prints them, most"
                " texts in single quotes"
            ),
        },
        ("openers",),
        _python_problem,
    ),
    "braces": Kind(
        BraceCalls,
        {
            "openers": OPENERS.means(_OPENERS_MEANING),
            "quote": one_of(*STRING_DELIMITERS).means("the token around each text"),
            "sorted_keys": FLAG.means("keys are written in the order of the alphabet"),
            "null": one_of("null", "None").means("how null is written"),
            "values": one_of("json", "constants", "python").means(
                f"the token is around arguments of other types, too, and how these are written: {_WRITTEN_VALUES}"
            ),
        },
        ("openers",),
    ),
}


# Read a table.


DEFAULT_KIND: Final = "json"
MAX_ENTRIES: Final = 64
"""Maximum number of entries in the list or table of one key; the tables in the package have up to 6."""
MAX_TEXT: Final = 2048
"""Maximum length, in characters, of a string that is part of the format. The longest in the package has 249."""
PACKAGE: Final = Path(__file__).parent
"""The folder of this package, which contains the tables."""


def read_family(name: str, make: Callable[..., DeclaredDialect] | None = None) -> DeclaredDialect:
    """Read the dialect of a model family from the family's table in the package.

    `make`: the class of the dialect if it is not the class of its kind. The table is not checked, since checking all
    tables would delay the first reply; the tests check them.
    """
    return _new_dialect(tomllib.loads(read_table(PACKAGE / "families" / f"{name}.toml").text), make)


def read_dialect(path: str | os.PathLike[str]) -> DeclaredDialect:
    """Read a dialect from a TOML file. Raises UsageError for an unreadable file or an invalid key."""
    return parse_table(read_table(path))


def parse_table(table: DialectTable) -> DeclaredDialect:
    """Make a dialect from a table's text. Raises UsageError for text that is not TOML, and for an invalid key."""
    try:
        values = tomllib.loads(table.text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The dialect {table.file!r} is not valid TOML: {error}.") from error
    return make_dialect(values, table.file)


def make_dialect(table: Mapping[str, Any], origin: str) -> DeclaredDialect:
    """Make a dialect from a table that was read from the file `origin`. Raises UsageError for an invalid key."""
    values = dict(table)
    kind_name = values.pop("kind", DEFAULT_KIND)
    if not COMMON_KEYS["kind"].is_valid(kind_name):
        raise _wrong_value(origin, "kind", kind_name, COMMON_KEYS["kind"].expected)
    kind = KINDS[kind_name]
    keys = {**COMMON_KEYS, **kind.keys}
    for key in ("name", *kind.required):
        if key not in values:
            raise UsageError(f"The dialect {origin!r} has no {key!r}; expected {keys[key].expected}.")
    for key, value in values.items():
        if key not in keys:
            raise UsageError(
                f"The dialect {origin!r} has a key {key!r}; the keys are {', '.join(keys)}, for the kind {kind_name!r}."
            )
        if not keys[key].is_valid(value):
            raise _wrong_value(origin, key, value, keys[key].expected)
        too_large = _too_large(value, is_format=key in kind.keys)
        if too_large:
            raise UsageError(f"The dialect {origin!r}: {key!r} has {too_large}.")
    problem = kind.problem(values)
    if problem:
        raise UsageError(f"The dialect {origin!r}: {problem}.")
    return _new_dialect(table)


def _new_dialect(table: Mapping[str, Any], make: Callable[..., DeclaredDialect] | None = None) -> DeclaredDialect:
    """Make a dialect from a valid table."""
    kind = KINDS[table.get("kind", DEFAULT_KIND)]
    values = {key: tuple(value) if is_array(value) else value for key, value in table.items() if key != "kind"}
    return (make or kind.make)(**values)


def _too_large(value: Any, *, is_format: bool) -> str:
    """Return what makes a value too large, or "" if it is not too large.

    `is_format`: whether the value is part of the format, not of the prompt. Texts of the prompt are not limited. Texts
    of the format are limited because they become patterns: one for each combination of a prefix and a tag, and some
    patterns grow with the square of a text's length.
    """
    if (is_array(value) or is_object(value)) and len(value) > MAX_ENTRIES:
        return f"{len(value)} entries; at most {MAX_ENTRIES} are allowed"
    texts = value if is_array(value) else (value,)
    longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
    return f"{longest} characters; at most {MAX_TEXT} are allowed" if is_format and longest > MAX_TEXT else ""


def _wrong_value(origin: str, key: str, value: object, expected: str) -> UsageError:
    return UsageError(f"The dialect {origin!r}: {key!r} is {clip(repr(value))}; expected {expected}.")
