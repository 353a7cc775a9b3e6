"""Derive candidates from what a template writes for calls: dialect tables that may describe the format.

A table declares a dialect by keys and values, as in a TOML file. A candidate is a guess, based on the places of names,
ids, keys and values in a few renderings. There are one or more candidates of each kind of table that may match.
`promptools.learning.validation` decides whether a candidate is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from promptools.dialects.readers.gemma_object import STRING_DELIMITERS
from promptools.json_values import is_array, is_object, try_json
from promptools.learning.renderings import CallOf, Frame, Renderings, Variant, common_prefix, common_suffix
from promptools.patterns import lazy_pattern

Table: TypeAlias = dict[str, Any]

ONE: Final = CallOf("Zq1id0001", "zq_first_tool", {"zq_key": "zq value", "zq_count": 7})
VALUES: Final = CallOf("Zq4id0004", "zq_first_tool", {"zq_key": True, "zq_count": ["zq item"]})
NOTHING: Final = CallOf("Zq6id0006", "zq_first_tool", {"zq_key": "zq value", "zq_count": None})
MARKUP: Final = CallOf("Zq5id0005", "zq_first_tool", {"zq_key": "<b> & more", "zq_count": 7})
OTHER: Final = CallOf("Zq2id0002", "zq_other_tool", {"zq_word": "zq text", "zq_size": 3})

_DECODER = json.JSONDecoder()
_FENCE = lazy_pattern(r"```([\w+-]*)\n\Z")


class Samples(NamedTuple):
    """What a template writes for one call, for two calls in a turn, and for calls with other values."""

    one: str
    two: str | None
    values: str
    markup: str
    nothing: str


def read_samples(renderings: Renderings, frame: Frame, variant: Variant) -> Samples | None:
    """Render the calls from which tables are derived; return None if the template does not render a call."""

    def calls_in(*calls: CallOf) -> str | None:
        rendering = renderings.of_calls(calls, variant)
        return None if rendering is None else frame.calls_in(rendering)

    one = calls_in(ONE)
    if one is None:
        return None
    values, markup, nothing = (calls_in(call) or "" for call in (VALUES, MARKUP, NOTHING))
    return Samples(one, calls_in(ONE, OTHER), values, markup, nothing)


def candidates(renderings: Renderings, samples: Samples) -> Iterator[Table]:
    """Yield dialect tables that may describe the format in which the samples are written."""
    found = _find_json(samples.one)
    if found is not None and found.is_envelope:
        yield from _json_tables(renderings, samples, found)
    elif found is not None:
        yield from _named_tables(renderings, samples, found)
    yield from _python_tables(samples)
    yield from _brace_tables(samples)
    yield from _nested_tables(renderings, samples)
    yield from _pair_tables(renderings, samples)
    yield from _headed_tables(renderings, samples)


# JSON that holds a whole call, or only its arguments.


class _FoundJson(NamedTuple):
    start: int
    end: int
    value: Any
    is_envelope: bool
    """Whether the value contains the tool's name as well as the arguments."""


def _find_json(text: str, start: int = 0, call: CallOf = ONE) -> _FoundJson | None:
    """Search a text for the first JSON value that contains the arguments of a call; return it, or None."""
    for match in re.finditer(r"[\[{]", text[start:]):
        at = start + match.start()
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if value == call.arguments:
            return _FoundJson(at, end, value, is_envelope=False)
        if call.name in text[at:end] and _holds(value, call.arguments):
            return _FoundJson(at, end, value, is_envelope=True)
    return None


def _holds(value: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether a value is the arguments or contains them, either as an object or as JSON in a string."""
    if value == arguments or (isinstance(value, str) and try_json(value) == arguments):
        return True
    inner = value.values() if is_object(value) else value if is_array(value) else ()
    return any(_holds(item, arguments) for item in inner)


def _json_tables(renderings: Renderings, samples: Samples, found: _FoundJson) -> Iterator[Table]:
    """Yield the candidate tables of the kind `json`, for calls that are JSON between two markers."""
    is_list = is_array(found.value)
    envelope = found.value[0] if is_list and len(found.value) == 1 else found.value
    if not is_object(envelope):
        return
    before, after = samples.one[: found.start], samples.one[found.end :]
    shape: Table = {"shape": "list"} if is_list else {}
    source = samples.one[found.start : found.end]
    written = _object_template(source[1:-1].strip() if is_list else source)
    keys = _envelope_keys(envelope)
    spelled = [keys] if keys is not None else []
    if written is not None:
        spelled.append({**(keys or {}), "call": written})
    for each in spelled:
        yield from _with_separator(renderings, samples, found, {"kind": "json", **each, **shape}, before, after)


def _object_template(source: str) -> str | None:
    """Return the JSON of a call with placeholders in it; None if the JSON lacks the name or the arguments."""
    for match in re.finditer(r"[{\"]", source):
        try:
            value, end = _DECODER.raw_decode(source, match.start())
        except (ValueError, RecursionError):
            continue
        as_text = isinstance(value, str) and try_json(value) == ONE.arguments
        if as_text or value == ONE.arguments:
            before, after = source[: match.start()], source[end:]
            placed = f"{_named(before)}{'{text}' if as_text else '{arguments}'}{_named(after)}"
            return placed if "{name}" in placed else None
    return None


def _named(text: str) -> str:
    return text.replace(json.dumps(ONE.name), "{name}").replace(ONE.id, "{id}")


def _envelope_keys(envelope: Mapping[str, Any]) -> Table | None:
    """Return the table keys that describe the JSON object of a call; None if no keys can describe the object."""
    if envelope.get(ONE.name) == ONE.arguments:
        return {"name_key": ""}
    names = [key for key, value in envelope.items() if value == ONE.name]
    arguments = [key for key, value in envelope.items() if value == ONE.arguments]
    if not names or not arguments:
        return None
    keys: Table = {"name_key": names[0], "arguments_key": arguments[0]}
    ids = [key for key, value in envelope.items() if key not in (names[0], arguments[0]) and _is_id(value)]
    return {**keys, "id_key": ids[0]} if ids else keys


def _is_id(value: Any) -> bool:
    return value == ONE.id or (isinstance(value, int | str) and str(value).isdigit())


def _with_separator(
    renderings: Renderings, samples: Samples, found: _FoundJson, table: Table, before: str, after: str
) -> Iterator[Table]:
    """Yield `table`, extended with the keys that say how several calls in a turn are written.

    Either each call has its own block (with its own markers), or one block contains one call per line.
    """
    one_block = {**table, **_block(before, after)}
    if "shape" in table or samples.two is None:
        yield one_block
        return
    second = _find_json(samples.two, found.end, OTHER)
    if second is None:
        yield one_block
        return
    between = samples.two[found.end : second.start]
    if not between.strip():
        yield {**one_block, "shape": "lines"}
        return
    around = _split(renderings, before, after, between)
    if not around.outer_before.strip() and not around.outer_after.strip():
        yield {**one_block, "separator": around.separator}
    else:
        yield {
            **table,
            **_block(around.before, around.after),
            "separator": around.separator,
            "wrapper": f"{around.outer_before}{{calls}}{around.outer_after}".strip(),
        }


def _block(before: str, after: str) -> Table:
    """Return the table keys for the texts `before` and `after` the JSON of a call."""
    fence = _FENCE.search(before)
    keys: Table = {}
    if fence is not None and after.lstrip().startswith("```"):
        keys["fence_label"] = fence[1] or "json"
        before, after = before[: fence.start()], after.lstrip().removeprefix("```")
    space = before[len(before.rstrip()) :]
    if space and not fence:
        keys["space"] = space
    return {**keys, "openers": {before.strip(): after.strip()}}


def _named_tables(renderings: Renderings, samples: Samples, found: _FoundJson) -> Iterator[Table]:
    """Yield the candidate tables of the kind `named`: the name is outside the JSON, which holds only the arguments."""
    second = None if samples.two is None else _find_json(samples.two, found.end, OTHER)
    for numbered in (False, True):
        before = _placed(samples.one[: found.start], ONE, 0 if numbered else None)
        after = _placed(samples.one[found.end :], ONE, None)
        if "{name}" not in before or ("{index}" in before) != numbered:
            continue
        if samples.two is None or second is None:
            yield {"kind": "named", "call": f"{before}{{arguments}}{after}".strip()}
            continue
        between = _placed(samples.two[found.end : second.start], OTHER, 1 if numbered else None)
        around = _split(renderings, before, after, between)
        table: Table = {
            "kind": "named",
            "call": f"{around.before.lstrip()}{{arguments}}{around.after.rstrip()}",
            "separator": around.separator,
        }
        if around.outer_before.strip() or around.outer_after.strip():
            table["wrapper"] = f"{around.outer_before}{{calls}}{around.outer_after}".strip()
        yield table


def _placed(text: str, call: CallOf, number: int | None) -> str:
    """Return `text` with placeholders for the call's name and id, and for its `number` in the turn if not None."""
    placed = text.replace(call.name, "{name}").replace(call.id, "{id}")
    return placed if number is None else re.sub(rf"(?<!\w){number}(?!\w)", "{index}", placed)


class _Around(NamedTuple):
    """The texts around each call, around all calls of a turn, and between two calls."""

    outer_before: str
    before: str
    after: str
    outer_after: str
    separator: str


def _split(renderings: Renderings, before: str, after: str, between: str) -> _Around:
    """Separate the markers of each call from those around all calls, using the text between two calls.

    `before` and `after` are the texts around the call of a turn with one call, so they contain both kinds of markers.
    """
    shared = common_suffix(before, between)
    own_start = renderings.edge_after(before, len(before) - shared)
    left = between[: len(between) - (len(before) - own_start)]
    shared = common_prefix(after, left)
    own_end = renderings.edge_before(after, shared)
    own_before, own_after, separator = before[own_start:], after[:own_end], left[own_end:]
    outer_before, outer_after = before[:own_start], after[own_end:]
    lead = own_before[: len(own_before) - len(own_before.lstrip())]
    own_before, separator = own_before.lstrip(), separator + lead
    if not outer_before.strip() and not outer_after.strip():
        return _Around("", own_before, (own_after + outer_after).rstrip(), "", separator)
    return _Around(outer_before + lead, own_before, own_after, outer_after, separator)


# Arguments that are written one by one, as keys and values between markers.


_VALUE: Final = "zq value"


def _pair_tables(renderings: Renderings, samples: Samples) -> Iterator[Table]:
    """Yield the candidate tables of the kinds `tags` and `key_value`: a name, then keys and values between markers."""
    text = samples.one
    key, count = text.find("zq_key"), text.find("zq_count")
    value, name = text.find(_VALUE), text.find(ONE.name)
    seven = text.find("7", count + len("zq_count")) if count >= 0 else -1
    if min(key, value, name, count, seven) < 0 or not name < key < value < count < seven:
        return
    after_name = name + len(ONE.name)
    middle = text[key + len("zq_key") : value]
    between, after = text[value + len(_VALUE) : count], text[seven + 1 :]
    key_start = renderings.edge_after(text[:key], max(key - common_suffix(text[after_name:key], between), after_name))
    before_key, lead = text[key_start:key], text[after_name:key_start]
    left = between[: len(between) - len(before_key)]
    end = renderings.edge_before(after, common_prefix(after, left))
    typed = text[count + len("zq_count") : seven]
    if middle != typed and middle.replace("true", "{string}") == typed.replace("false", "{string}"):
        middle = middle.replace("true", "{string}")
    elif middle != typed and middle.replace("string", "{type}") == typed.replace("integer", "{type}"):
        middle = middle.replace("string", "{type}")
    argument = f"{before_key}{{key}}{middle}{{value}}{left[:end]}"
    yield from _pair_wrapped(renderings, samples, text[:name], lead, argument, left[end:], after[end:])


def _pair_wrapped(
    renderings: Renderings, samples: Samples, before: str, lead: str, argument: str, gap: str, tail: str
) -> Iterator[Table]:
    """Yield the tables of `_pair_tables`, given the texts around the parts of a call.

    `before` and `lead` are the texts before and after the tool's name, `gap` is the text between two arguments, and
    `tail` is the text after the last argument. The sample turn with two calls, if there is one, is used to tell the
    markers around each call from those around all calls.
    """
    second = -1 if samples.two is None else samples.two.find(OTHER.name)
    around = _Around("", before.lstrip(), tail.rstrip(), "", "\n")
    if samples.two is not None and second >= 0:
        end = len(samples.one) - len(tail)
        around = _split(renderings, before, tail, samples.two[end:second])
    values = _written_values(samples)
    if "<![CDATA[" in samples.markup:
        values["cdata"] = True
    for table in _tags_table(around, lead, argument, gap):
        yield {**_with_prefix(table), **values}
    yield from _key_value_table(around, lead, argument)


_NESTED = lazy_pattern(
    rf"(?s)(?P<before>.*){ONE.name}(?P<lead>.*?)(?P<mark>[^<\s]\S{{1,80}}?)<zq_key>{_VALUE}(?P=mark)</zq_key>"
    r"(?P=mark)<zq_count>7(?P=mark)</zq_count>(?P<after>.*)\Z"
)
_ITEM = lazy_pattern(r"<zq_count>\S*<([A-Za-z_][\w.-]*)>zq item\S*</\1>\S*</zq_count>")


def _nested_tables(renderings: Renderings, samples: Samples) -> Iterator[Table]:
    """Yield a candidate table of the kind `nested` if arguments are elements with the same marker before every tag."""
    match, item = _NESTED.match(samples.one), _ITEM.search(samples.values)
    second = -1 if samples.two is None else samples.two.find(OTHER.name)
    if match is None or item is None or samples.two is None or second < 0:
        return
    between = samples.two[match.start("after") : second]
    around = _split(renderings, match["before"].lstrip(), match["after"].rstrip(), between)
    texts = {"call": f"{around.before}{{name}}{match['lead']}{{parameters}}{around.after}"}
    if around.outer_before.strip() or around.outer_after.strip():
        texts["wrapper"] = f"{around.outer_before}{{calls}}{around.outer_after}"
    marked = {key: text.strip().replace(match["mark"], "{mark}") for key, text in texts.items()}
    table: Table = {"kind": "nested", "mark": match["mark"], **marked, "separator": around.separator}
    yield table if item[1] == "item" else {**table, "item": item[1]}


def _headed_tables(renderings: Renderings, samples: Samples) -> Iterator[Table]:
    """Yield candidate tables of the kind `tags` for calls that name the tool twice: in a header, and in their own tag.

    The tables are derived from the calls without their headers. Then the header is added to each table.
    """
    at = samples.one.find(ONE.name)
    after = samples.one[at + len(ONE.name) :]
    token = next((after[:end] for start, end in renderings.tokens_in(after) if start == 0), "")
    if at <= 0 or not token or ONE.name not in after:
        return
    header = f"{samples.one[:at]}{{name}}{token}"
    one = samples.one.removeprefix(header.replace("{name}", ONE.name))
    keys: Table = {"header": header.lstrip()}
    two = None
    if samples.two is not None and samples.two.startswith(samples.one):
        other = header.strip().replace("{name}", OTHER.name)
        separator, _, second = samples.two[len(samples.one) :].partition(other)
        keys["separator"] = separator
        two = f"{one}\n{second}"
    for table in _pair_tables(renderings, samples._replace(one=one, two=two)):
        if table["kind"] == "tags":
            yield {**table, **keys}


def _written_values(samples: Samples) -> Table:
    """Return the table key that says how values other than strings are written; empty if they are written as JSON."""
    if "True" not in samples.values:
        return {}
    return {"values": "python" if "['zq item']" in samples.values else "constants"}


def tables_of_pairs(before: str, lead: str, argument: str, after: str) -> Iterator[Table]:
    """Yield candidate tables of the kinds `tags` and `key_value` for calls that are written with these texts.

    `before` and `lead` are the texts before and after the tool's name. `argument` is the text of one argument, with
    `{key}` and `{value}` in it. `after` is the text after the last argument.
    """
    around = _Around("", before, after, "", "\n")
    yield from map(_with_prefix, _tags_table(around, lead, argument, ""))
    yield from _key_value_table(around, lead, argument)


def _tags_table(around: _Around, lead: str, argument: str, gap: str) -> Iterator[Table]:
    """Yield candidate tables of the kind `tags`, with a wrapper around all calls or each call, or without one."""
    inner, end = f"{argument}{gap}", around.after
    if inner.startswith("\n") and end.startswith("\n"):  # the line break goes after each parameter, for people
        inner, lead, end = f"{inner[1:]}\n", f"{lead}\n", end[1:]
    call = f"{around.before}{{name}}{lead}{{parameters}}{end}".strip()
    table: Table = {"kind": "tags", "call": call, "parameter": inner}
    if around.outer_before.strip():
        wrapper = f"{around.outer_before}{{calls}}{around.outer_after}".strip()
        yield {**table, "wrapper": wrapper}
        return
    yield table
    for match in re.finditer(r"(?s)\A(\S+?>|\S+)(\s*)(<.*>)(\s*)(\S+)\Z", call):
        opener, space, inside, end_space, closer = match.groups()
        yield {**table, "call": inside, "wrapper": f"{opener}{space}{{call}}{end_space}{closer}"}


_PREFIX = lazy_pattern(r"<([^\w<>\s/]\w+[^\w<>\s])\w")


def _with_prefix(table: Table) -> Table:
    """Return the table with a tag name prefix, such as `｜DSML｜`, replaced by `{prefix}` and listed under `prefixes`.

    A table whose tags have no such prefix is returned unchanged.
    """
    match = _PREFIX.search(table["call"])
    if match is None:
        return table
    texts = {key: value.replace(match[1], "{prefix}") for key, value in table.items() if key != "kind"}
    return {"kind": table["kind"], "prefixes": [match[1]], **texts}


def _key_value_table(around: _Around, lead: str, argument: str) -> Iterator[Table]:
    """Yield a candidate table of the kind `key_value`, for arguments written as keys and values between markers."""
    call = f"{around.before}{{name}}{lead.strip()}{_space(lead)}{{arguments}}{_space(lead)}{around.after}".strip()
    table: Table = {"kind": "key_value", "call": call, "argument": argument.strip()}
    if around.outer_before.strip() or around.outer_after.strip():
        table["wrapper"] = f"{around.outer_before}{{calls}}{around.outer_after}".strip()
    yield table


def _space(text: str) -> str:
    return text[len(text.rstrip()) :]


# Python: `name(key="value")`.


_PYTHON = lazy_pattern(rf"(?s)(.*?)(\[?){ONE.name}\((.*?)\)(\]?)(.*)\Z")


def _python_tables(samples: Samples) -> Iterator[Table]:
    """Yield a candidate table of the kind `python` if the calls are written as in Python."""
    match = _PYTHON.match(samples.one)
    if match is None or "zq_key=" not in match[3].replace(" ", ""):
        return
    before, bracket, _, end_bracket, after = match.groups()
    opener, closer = before.strip(), after.strip()
    table: Table = {"kind": "python", "openers": {opener: closer}}
    if "true" in samples.values:
        table["values"] = "json"
    elif f"'{_VALUE}'" in samples.one:
        table["values"] = "python"
    spaces = [_space(before) + bracket, end_bracket + after[: len(after) - len(after.lstrip())]]
    if any(spaces):
        table["spaces"] = spaces
    second = None if samples.two is None else samples.two.find(f"{OTHER.name}(")
    if samples.two is not None and second is not None and second > 0:
        first_end = match.end(3) + 1
        table["separator"] = samples.two[first_end:second]
    elif not opener:  # a list without markers
        table["separator"] = ", "
    yield table


# Braces: `call:name{key:<|"|>text<|"|>}`.


def _brace_tables(samples: Samples) -> Iterator[Table]:
    """Yield a candidate table of the kind `braces`, for calls such as `call:name{key:value}`.

    The table has `sorted_keys` if the template sorts the keys.
    """
    quote = next((quote for quote in STRING_DELIMITERS if f"{quote}{_VALUE}{quote}" in samples.one), "")
    before, found, rest = samples.one.partition(f"call:{ONE.name}{{")
    closer = rest.rpartition("}")[2].strip()
    if quote and found and before.strip() and closer:
        table: Table = {"kind": "braces", "openers": {before.strip(): closer}, "quote": quote}
        in_order = rest.find("zq_count") < rest.find("zq_key")
        if in_order:
            table["sorted_keys"] = True
        if f"zq_count:{quote}7{quote}" in rest:
            yield {**table, "values": "json", **_written_values(samples)}
            return
        yield {**table, "null": "None"} if "None" in samples.nothing else table
