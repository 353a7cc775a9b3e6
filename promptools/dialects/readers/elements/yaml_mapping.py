"""The subset of YAML that models write as arguments: `key: value` lines, `|` blocks, lists of `- item`, and JSON."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from promptools.jsontext.read import Unreadable, read_value
from promptools.patterns import lazy_pattern

_LINE = lazy_pattern(r"([\"']?)([\w.-]{1,80})\1:(?:[ \t]+(.*)|[ \t]*)")
_BLOCK = lazy_pattern(r"([|>])[-+]?\d?\s*")
_COMMENT = lazy_pattern(r"(?<!\s)\s++#.*")
NULLS = frozenset(("", "null", "~"))
MAX_DEPTH = 8


def read_mapping(text: str, keys: Collection[str]) -> dict[str, Any] | None:
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
        value = _read_value(entry[3] or "", lines[at + 1 : end], 0)
        if value is None:
            return None
        members[entry[2]] = value[0]
        at = end
    return members


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_item(line: str, indent: int) -> bool:
    return _indent(line) == indent and line.lstrip().startswith("- ")


def _belongs_to(line: str, indent: int) -> bool:
    return not line.strip() or _indent(line) > indent or _is_item(line, indent)


def _read_value(text: str, below: list[str], depth: int) -> tuple[Any] | None:
    """Read the value after a key and the lines below it, as a one-tuple; None if this YAML is not supported."""
    block = _BLOCK.fullmatch(text)
    if block is not None:
        return (_read_block(below, folded=block[1] == ">"),)
    filled = [line for line in below if line.strip()]
    if text and not filled:
        return (_read_scalar(text, depth),)
    if text and text[0] in "\"'{[":  # a value that continues on the lines below
        return (_read_scalar("\n".join((text, *below)).rstrip(), depth),)
    if text:
        return None
    if not filled:
        return ("",)
    if depth > MAX_DEPTH:
        return None
    return _read_list(below, depth) if filled[0].lstrip().startswith("- ") else _read_inner_mapping(below, depth)


def _read_scalar(text: str, depth: int) -> Any:
    """Read a scalar. Plain text stays a string, and so does JSON at the top level, for the schema to type."""
    if text[0] in "\"'":
        end = len(text) - 1
        if text[0] == text[end] and end:
            if text[0] == "'":
                return text[1:end].replace("''", "'")
            try:
                return json.loads(text, strict=False)
            except ValueError:
                return text[1:end]
        return text
    if text[0] in "{[" and not depth:
        return text
    if text[0] in "{[":
        try:
            value = read_value(text)
        except Unreadable:
            return text
        return value.value if value.end == len(text) else text
    return _COMMENT.sub("", text).rstrip()


def _read_block(below: list[str], *, folded: bool) -> str:
    filled = [line for line in below if line.strip()]
    indent = min(map(_indent, filled), default=0)
    lines = [line[indent:] for line in below]
    while lines and not lines[-1].strip():
        lines.pop()
    return (" " if folded else "\n").join(lines)


def _read_list(below: list[str], depth: int) -> tuple[Any] | None:
    filled = [line for line in below if line.strip()]
    indent = _indent(filled[0])
    items: list[Any] = []
    group: list[str] = []
    for line in [*filled, None]:
        if line is None or _is_item(line, indent):
            if group:
                item = _read_item(group, indent, depth)
                if item is None:
                    return None
                items.append(item[0])
            group = [line] if line is not None else []
        else:
            group.append(line)
    return (items,)


def _read_item(group: list[str], indent: int, depth: int) -> tuple[Any] | None:
    first = group[0][indent + 2 :]
    if _LINE.fullmatch(first.lstrip()):
        return _read_inner_mapping([" " * (indent + 2) + first, *group[1:]], depth + 1)
    return _read_value(first.strip(), group[1:], depth + 1)


def _read_inner_mapping(below: list[str], depth: int) -> tuple[Any] | None:
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
        while end < len(filled) and _belongs_to(filled[end], indent):
            end += 1
        value = _read_value(entry[3] or "", filled[at + 1 : end], depth + 1)
        if value is None:
            return None
        members[entry[2]] = _type_by_look(value[0])
        at = end
    return (members,)


def _type_by_look(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value[:1] not in ('"', "") else value
    except (ValueError, RecursionError):
        return value
