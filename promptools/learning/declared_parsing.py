"""Derive dialect tables from a model's config, which may state how replies are parsed.

transformers reads the key `response_template` of `tokenizer_config.json` from 5.13 on, and `response_schema` before
that. Both find calls with regular expressions. These are only analyzed, never run, since an expression from an
untrusted source may take forever. The resulting table is a candidate like any other, and the chat template decides
whether it is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from promptools.json_values import is_array, is_object, is_text_list
from promptools.learning.candidates import Table, tables_of_pairs
from promptools.patterns import lazy_pattern

MAX_PATTERN: Final = 500
"""Maximum length of a regular expression from a config. It is limited because the expression is read recursively."""
MAX_MARKERS: Final = 4
"""Maximum number of opening markers, and of closing markers, that are tried for one field of the config."""


class Declaration(NamedTuple):
    """What a model's config says about the format of calls."""

    key: str = ""
    """The key of the config that says how replies are parsed, such as `response_template`; empty if there is none."""
    tables: tuple[Table, ...] = ()
    problem: str = ""
    """Why the declared format cannot be used (for example, no table can express it); empty if there is no problem."""


def read_declaration(config: Mapping[str, Any]) -> Declaration:
    """Return what a tokenizer's config says about the format of calls, as dialect tables.

    The key `response_schema` is read only if the config has no `response_template`.
    """
    for key, read in (("response_template", _read_template), ("response_schema", _read_schema)):
        declared = config.get(key)
        if declared is None:
            continue
        try:
            tables = tuple(table for form in read(declared) for table in _tables(form))
        except _InexpressibleError as error:
            return Declaration(key, problem=str(error))
        return Declaration(key, tables, "" if tables else "it does not say how calls begin")
    return Declaration()


def as_declared(declaration: Declaration, candidates: Iterable[Table]) -> Iterator[Table]:
    """Yield the tables of a declaration, each preceded by the candidates that agree with that table.

    These candidates come first, because they may also say what a declaration cannot express, such as white space.
    """
    known = [*candidates]
    for table in declaration.tables:
        yield from (each for each in known if _said(each) == _said(table))
        yield table


_UNSAID: Final = frozenset(("space", "spaces", "separator", "id_key", "values", "cdata", "sorted_keys", "null"))
"""Table keys that a config need not declare: white space, separators, ids, and the spelling of values."""


def _said(table: Table) -> Table:
    """Return what a dialect table states about things that a config must declare, so that tables can be compared.

    Default keys are added, a wrapper around all calls is left out, and white space is removed from the values.
    """
    given = {"name_key": "name", "arguments_key": "arguments"} if table["kind"] == "json" else {}
    said = {key: value for key, value in {**given, **table}.items() if key not in _UNSAID}
    if "{calls}" in said.get("wrapper", ""):  # a parser looks for calls wherever they are
        del said["wrapper"]
    return {key: "".join(str(value).replace("\\n", "").split()) for key, value in said.items()}


class _InexpressibleError(Exception):
    """Raised if a dialect table cannot express what the config says about calls, or if the config says too little."""


class _Form(NamedTuple):
    """How the declared parser finds calls: the texts before and after a call, and the kind of content between them.

    `{name}` in a text is the captured name of the tool.
    """

    before: str
    after: str
    content: str
    """The kind of content: `json`, `braces`, `pairs` or `python`."""
    name: str
    """Where the name is: `{name}` if it is in `before`; otherwise the key of the name in the content."""
    arguments: str = ""
    """The key of the arguments in the content; empty if the whole content is the arguments."""
    id_key: str = ""
    is_list: bool = False
    argument: str = ""
    """How one argument is written, with `{key}` and `{value}`, if the content is `pairs`."""
    quote: str = ""


def _tables(form: _Form) -> Iterator[Table]:
    """Yield the dialect tables that find calls in the way that `form` describes."""
    before, after = form.before.strip(), form.after.strip()
    if form.content == "python":
        for values in ({}, {"values": "json"}):
            yield {"kind": "python", "openers": {before: after}, **values, "spaces": ["[", "]"], "separator": ", "}
    elif form.content == "braces":
        marker, found, rest = before.partition("call:{name}")
        if not found or rest or not form.quote:
            raise _InexpressibleError("only 'call:' and a name may be before braces, and texts need a delimiter")
        table: Table = {"kind": "braces", "openers": {marker: after}, "quote": form.quote}
        yield from ({**table, **detail} for detail in ({}, {"sorted_keys": True}))
    elif form.content == "pairs":
        marker, _, lead = form.before.lstrip().partition("{name}")
        yield from tables_of_pairs(marker, lead, form.argument, form.after.rstrip())
    elif form.name == "{name}":
        yield {"kind": "named", "call": f"{before}{{arguments}}{after}"}
    else:
        keys = {"name_key": form.name, "arguments_key": form.arguments, "id_key": form.id_key}
        shape = {"shape": "list"} if form.is_list else {}
        yield {"kind": "json", **{key: text for key, text in keys.items() if text}, **shape, "openers": {before: after}}


# `response_template`.


def _read_template(declared: Any) -> Iterator[_Form]:
    """Yield a form for each pair of an opening and a closing marker in the field `tool_calls`."""
    if not is_object(declared) or declared.get("version", 1) != 1:
        raise _InexpressibleError("it is of a version that is not known")
    field = _inner(declared, "fields", "tool_calls")
    if not field:
        raise _InexpressibleError("it has no field 'tool_calls'")
    for opener in _markers(field, "open"):
        for closer in _markers(field, "close") or [""]:
            yield _form_of_field(field, opener, closer)


def _markers(field: Mapping[str, Any], key: str) -> list[str]:
    literal: Any = field.get(key)
    pattern = field.get(f"{key}_pattern")
    if isinstance(pattern, str):
        marker = template_of(pattern)
        if "{}" in marker:
            raise _InexpressibleError("a pattern matches more than one text: a group without a name")
        return [marker]
    if isinstance(literal, str):
        return [literal]
    return list(literal[:MAX_MARKERS]) if is_text_list(literal) else []


def _form_of_field(field: Mapping[str, Any], opener: str, closer: str) -> _Form:
    content, details = field.get("content", "text"), _inner(field, "content_args")
    if content == "python-call-list":
        return _Form(opener, closer, "python", "name")
    parts = _parts_of(field.get("transform"), of_each=field.get("transform_each") is True)
    before, after = (_with_roles(text, parts) for text in (opener, closer))
    if parts.captured != ("{name}" in before):
        raise _InexpressibleError("the name of a call is in a place that no table can express")
    if content == "json" and not details.keys() & {"unquoted_keys", "string_delims"}:
        if parts.captured:
            return _Form(before, after, "json", "{name}")
        return _Form(before, after, "json", parts.name, parts.arguments, parts.id, is_list=parts.of_each)
    if content == "json" and parts.captured:
        delimiters = details.get("string_delims")
        first: Any = delimiters[0] if is_array(delimiters) and delimiters else None
        return _Form(before, after, "braces", "{name}", quote=first[0] if is_text_list(first) and first else "")
    if content == "xml-inline" and parts.captured:
        return _Form(before, after, "pairs", "{name}", argument=_argument(details.get("tag_pattern")))
    raise _InexpressibleError(f"no kind of table reads the content {content!r} in that way")


def _with_roles(text: str, parts: _Parts) -> str:
    """Return the marker `text` with the placeholders for a call's name and id renamed to `{name}` and `{id}`.

    In `text`, these placeholders have the names of the regex groups that capture the name and the id.
    """
    for role, group in (("{name}", parts.name), ("{id}", parts.id)):
        if parts.captured and group:
            text = text.replace(f"{{{group}}}", role)
    return text


class _Parts(NamedTuple):
    """Where the parts of a call are: in groups of the opening marker's pattern, or under keys of the content."""

    name: str
    arguments: str
    id: str = ""
    captured: bool = False
    """Whether a group of the opening marker's pattern captures the name; if so, the whole content is the arguments."""
    of_each: bool = False
    """Whether the content is a list of calls."""


def _parts_of(transform: Any, *, of_each: bool) -> _Parts:
    """Return where the name, the arguments and the id of a call are, according to the config's `transform`."""
    function = transform.get("function") if is_object(transform) else transform
    if function == "{content}" and not of_each:
        return _Parts("name", "arguments")
    if not is_object(transform) or not is_object(function):
        raise _InexpressibleError("it does not say where a call has its name")
    name, arguments, given_id = (
        str(each or "").strip("{}") for each in (function.get("name"), function.get("arguments"), transform.get("id"))
    )
    if not of_each and arguments == "content" and not name.startswith("content."):
        return _Parts(name, "", given_id, captured=True)
    within = "" if of_each else "content."
    parts = [part.removeprefix(within) for part in (name, arguments, given_id)]
    if not (name.startswith(within) and arguments.startswith(within)) or "." in "".join(parts):
        raise _InexpressibleError(
            "the parts of a call are in different places, or deeper in JSON than a table can express"
        )
    return _Parts(parts[0], parts[1], parts[2], of_each=of_each)


def _argument(pattern: Any) -> str:
    argument = template_of(pattern if isinstance(pattern, str) else "")
    if argument.count("{key}") != 1 or argument.count("{value}") != 1:
        raise _InexpressibleError("it does not say where a pair has its key and its value")
    return argument


# `response_schema`.


_TAKEN = lazy_pattern(r"\bfunction:\s*(@|\{\s*name:\s*(\w+)\s*,\s*arguments:\s*(\w+)\s*\})")
"""Matches the value of `function` in a JMESPath expression: the whole JSON value (`@`), or two of its keys.

Groups 2 and 3 capture the two keys, which hold the name and the arguments.
"""


def _read_schema(declared: Any) -> Iterator[_Form]:
    """Yield the form of calls that the property `tool_calls` describes."""
    calls = _inner(declared, "properties", "tool_calls")
    pattern, item = calls.get("x-regex-iterator"), _inner(calls, "items")
    if not isinstance(pattern, str):
        raise _InexpressibleError("it has no pattern ('x-regex-iterator') that finds the calls one by one")
    written = template_of(pattern)
    if written.count("{}") == 1 and item.get("x-parser") == "json":
        taken = _TAKEN.search(str(_inner(item, "x-parser-args").get("transform", "function: @")))
        if taken is None:
            raise _InexpressibleError("it does not say where a call has its name")
        before, _, after = written.partition("{}")
        yield _Form(before, after, "json", taken[2] or "name", taken[3] or "arguments")
        return
    before, found, after = written.partition("{arguments}")
    arguments = _inner(item, "properties", "function", "properties", "arguments") or _inner(
        item, "properties", "arguments"
    )
    if not found or "{name}" not in before:
        raise _InexpressibleError("its pattern does not say where a call has its name and its arguments")
    if arguments.get("x-parser") == "json":
        yield _Form(before, after, "json", "{name}")
    elif arguments.get("x-parser") == "gemma4-tool-call":
        yield _Form(before, after, "braces", "{name}", quote='<|"|>')
    else:
        yield _Form(before, after, "pairs", "{name}", argument=_argument(arguments.get("x-regex-key-value")))


def _inner(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of keys; empty if there is none."""
    for key in path:
        value = value.get(key) if is_object(value) else None
    return value if is_object(value) else {}


# Regular expressions.


_PIECE = lazy_pattern(r"(?s)\(\?P<\w+>|\(\?(?:[=!:]|<[=!])|\(|\)|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.")
_NO_TEXT: Final = frozenset(("^", "$", r"\s", r"\A", r"\Z", r"\b"))
_WHITE_SPACE: Final = {r"\n": "\n", r"\t": "\t", r"\r": "\r"}


def template_of(pattern: str) -> str:
    r"""Return the text that a regular expression matches, with placeholders for its groups.

    The placeholder of a group named `key` is `{key}`, and a group without a name becomes `{}`. Optional parts are left
    out, including optional white space. Raises an error if the rest of the expression does not match one fixed text.
    """
    if len(pattern) > MAX_PATTERN:
        raise _InexpressibleError("a pattern is too long")
    return _written(_PIECE.findall(pattern))


def _written(pieces: list[str]) -> str:
    texts: list[str] = []
    at = 0
    while at < len(pieces):
        end = _end_of_group(pieces, at) if pieces[at].startswith("(") else at
        captures = pieces[at] == "(" or pieces[at].startswith("(?P")
        text = _text_of(pieces[at : end + 1])
        at = end + 1
        repeated = ""
        while at < len(pieces) and pieces[at] in ("?", "*", "+"):
            repeated += pieces[at]
            at += 1
        if captures or not repeated:
            texts.append(text)
        elif repeated[0] == "+" and text.strip():
            raise _InexpressibleError("a pattern repeats a text")
    return "".join(texts)


def _end_of_group(pieces: list[str], start: int) -> int:
    depth = 0
    for at in range(start, len(pieces)):
        depth += pieces[at].startswith("(") - (pieces[at] == ")")
        if depth == 0:
            return at
    raise _InexpressibleError("a pattern has a group without an end")


def _text_of(pieces: list[str]) -> str:
    """Return the one text that a part of a regular expression matches.

    `pieces` are the tokens of that part, which is a whole group or a single character. For a capturing group, return
    its placeholder, such as `{name}` or `{}`.
    """
    first = pieces[0]
    if first.startswith("(?P<"):
        return f"{{{first[4:-1]}}}"
    if first == "(":
        return "{}"
    if first == "(?:":
        return _written(pieces[1:-1])
    if first.startswith("(?") or first in _NO_TEXT:
        return ""
    if first in _WHITE_SPACE:
        return _WHITE_SPACE[first]
    if first in (".", "|", ")") or first.startswith("[") or (first.startswith("\\") and first[1:].isalnum()):
        raise _InexpressibleError(f"a pattern matches more than one text: {first}")
    return first.removeprefix("\\") or "\\"
