"""The subset of YAML that models write as arguments: `key: value` lines, `|` blocks, lists of `- item`, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from promptools.parsing.tolerant import Unreadable, read

_LINE = re.compile(r"([\"']?)([\w.-]{1,80})\1:(?:[ \t]+(.*)|[ \t]*)")
_BLOCK = re.compile(r"([|>])[-+]?\d?\s*")
_COMMENT = re.compile(r"(?<!\s)\s++#.*")
NULLS = frozenset(("", "null", "~"))
NESTING = 8


def mapping(text: str, keys: Collection[str]) -> dict[str, Any] | None:
    """Read lines that map parameters to values, or return None if they do not. Scalars stay strings. O(n)."""
    lines = [line.rstrip("\r") for line in text.strip("\r\n").split("\n")]
    filled = [line for line in lines if line.strip()]
    if not filled or " ".join(line.strip() for line in filled) in NULLS:
        return {}
    indent = _indent(filled[0])
    members: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            at += 1
            continue
        entry = _LINE.fullmatch(line[indent:]) if _indent(line) == indent else None
        if entry is None or entry[2] not in keys or entry[2] in members:
            return None
        end = at + 1
        while end < len(lines) and (
            not lines[end].strip() or _indent(lines[end]) > indent or _is_item(lines[end], indent)
        ):
            end += 1
        value = _value(entry[3] or "", lines[at + 1 : end], 0)
        if value is None:
            return None
        members[entry[2]] = value[0]
        at = end
    return members


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_item(line: str, indent: int) -> bool:
    return _indent(line) == indent and line.lstrip().startswith("- ")


def _is_below(line: str, indent: int) -> bool:
    return not line.strip() or _indent(line) > indent or _is_item(line, indent)


def _value(said: str, below: list[str], depth: int) -> tuple[Any] | None:
    """Read the value after a key and the lines below it, as a one-tuple; None if this YAML is not supported."""
    block = _BLOCK.fullmatch(said)
    if block is not None:
        return (_block(below, folded=block[1] == ">"),)
    filled = [line for line in below if line.strip()]
    if said and not filled:
        return (_scalar(said, depth),)
    if said and said[0] in "\"'{[":  # a value that continues on the lines below
        return (_scalar("\n".join((said, *below)).rstrip(), depth),)
    if said:
        return None
    if not filled:
        return ("",)
    if depth > NESTING:
        return None
    return _list(below, depth) if filled[0].lstrip().startswith("- ") else _inner(below, depth)


def _scalar(said: str, depth: int) -> Any:
    """Read a scalar. Plain text stays a string, and so does JSON at the top level, for the schema to type."""
    if said[0] in "\"'":
        end = len(said) - 1
        if said[0] == said[end] and end:
            if said[0] == "'":
                return said[1:end].replace("''", "'")
            try:
                return json.loads(said, strict=False)
            except ValueError:
                return said[1:end]
        return said
    if said[0] in "{[" and not depth:
        return said
    if said[0] in "{[":
        try:
            value = read(said)
        except Unreadable:
            return said
        return value.value if value.end == len(said) else said
    return _COMMENT.sub("", said).rstrip()


def _block(below: list[str], *, folded: bool) -> str:
    filled = [line for line in below if line.strip()]
    indent = min(map(_indent, filled), default=0)
    lines = [line[indent:] for line in below]
    while lines and not lines[-1].strip():
        lines.pop()
    return (" " if folded else "\n").join(lines)


def _list(below: list[str], depth: int) -> tuple[Any] | None:
    filled = [line for line in below if line.strip()]
    indent = _indent(filled[0])
    items: list[Any] = []
    group: list[str] = []
    for line in [*filled, None]:
        if line is None or _is_item(line, indent):
            if group:
                item = _item(group, indent, depth)
                if item is None:
                    return None
                items.append(item[0])
            group = [line] if line is not None else []
        else:
            group.append(line)
    return (items,)


def _item(group: list[str], indent: int, depth: int) -> tuple[Any] | None:
    first = group[0][indent + 2 :]
    if _LINE.fullmatch(first.lstrip()):
        return _inner([" " * (indent + 2) + first, *group[1:]], depth + 1)
    return _value(first.strip(), group[1:], depth + 1)


def _inner(below: list[str], depth: int) -> tuple[Any] | None:
    """Read a mapping inside a value; its scalars are typed by how they look."""
    filled = [line for line in below if line.strip()]
    indent = _indent(filled[0])
    members: dict[str, Any] = {}
    at = 0
    while at < len(filled):
        entry = _LINE.fullmatch(filled[at][indent:]) if _indent(filled[at]) == indent else None
        if entry is None:
            return None
        end = at + 1
        while end < len(filled) and _is_below(filled[end], indent):
            end += 1
        value = _value(entry[3] or "", filled[at + 1 : end], depth + 1)
        if value is None:
            return None
        members[entry[2]] = _typed(value[0])
        at = end
    return (members,)


def _typed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value[:1] not in ('"', "") else value
    except (ValueError, RecursionError):
        return value
