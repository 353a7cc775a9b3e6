"""Read elements such as `<city>Oslo</city>`: their tags, their nesting, and their values according to the schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from promptools.dialects.calls.bare_values import read_parameter, read_typed
from promptools.dialects.calls.bare_values import read_typed as read_as
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.prompt import resolve_reference
from promptools.dialects.readers.tag_reader import FieldCall
from promptools.dialects.readers.tags import PatternTokenizer, Tag
from promptools.json_values import is_array, is_object
from promptools.jsontext.read import Unreadable, read_value
from promptools.patterns import lazy_pattern
from promptools.schema.documents import type_name
from promptools.types import Fix, Tool

# The tags of a call that is an element named after its tool: the tool's own tag, and the tags of its parameters.


_LONGEST = 400
"""The maximum length of a tag, including its attributes."""
_UNFINISHED_TAG = lazy_pattern(r"<[\s/]{0,4}(?:[\w.:-]{1,80}(?:\s[^<>]{0,300})?)?/?\Z")
ATTRIBUTE: Final = lazy_pattern(r"""\s([\w.:-]{1,80})\s{0,4}=\s{0,4}(?:"([^"\n]*)"|'([^'\n]*)')""")

_HTML: Final = (
    "a abbr address article aside audio b base blockquote body br button canvas caption cite code col data dd "
    "del details dfn dialog div dl dt em embed fieldset figure footer form h1 h2 h3 h4 h5 h6 head header hr "
    "html i iframe img input ins kbd label legend li link main map mark menu meta meter nav object ol option "
    "output p param picture pre progress q s samp script search section select slot small source span strong "
    "style sub summary sup svg table tbody td template text textarea tfoot th thead time title tr track u ul "
    "var video wbr"
)
HTML_ELEMENTS: Final = frozenset(re.findall(r"\w+", _HTML))
"""Names of HTML elements.

A tool may have the same name as such an element, for example `search`. Plain text in the element is then read as a call
only if its position shows that a call is intended.
"""


@lru_cache(maxsize=256)
def element_tokenizer(root: str, keys: frozenset[str]) -> PatternTokenizer:
    """Return the tokenizer for the tags of a tool and its parameters; all other tags are text. The result is cached."""
    names = "|".join(map(re.escape, sorted({root, *keys}, key=len, reverse=True)))
    pattern = rf"<\s{{0,2}}(?P<close>/?)\s{{0,2}}(?P<name>{names})(?:\s[^<>]{{0,300}}?)?\s{{0,2}}(?P<empty>/?)>"
    return PatternTokenizer(re.compile(pattern), _UNFINISHED_TAG, _LONGEST, _make_tag)


def _make_tag(match: re.Match[str]) -> Tag:
    return Tag(match[0], "element", bool(match["close"]), match["name"], empty=bool(match["empty"]))


# Parameters as elements inside elements, read by their schemas.
#
# A list is written as elements of one name, which the format fixes (`item`), or which is that of the list; an object as
# an element for each of its members.


MAX_ELEMENT_DEPTH = 64
"""The maximum depth of the tree of elements that `build_tree` makes."""
MAX_UNMARKED_DEPTH = 8
"""The maximum depth of nested elements whose tags lack the format's marker.

The depth is limited because the text is searched once more for each level.
"""
_OPENING_TAG = lazy_pattern(r"\s*<([A-Za-z_][\w.-]{0,63})>")


@dataclass(slots=True)
class Element:
    """One element: its name, the text between its tags, and the elements in it."""

    name: str
    text: list[str] = field(default_factory=list[str])
    children: list[Element] = field(default_factory=list["Element"])

    def has_stray_text(self, mark: str) -> bool:
        """Return whether there is text beside child elements, at any level of nesting.

        White space does not count. Neither does `mark`, the format's marker before each tag, since a lost closing tag
        may leave its marker behind.
        """
        beside = self.children and "".join(self.text).replace(mark, "").strip()
        return bool(beside) or any(child.has_stray_text(mark) for child in self.children)


def build_tree(tokens: Sequence[Tag | str], tag_prefix: str) -> tuple[Element, list[Fix]]:
    """Build a tree of elements from tokens, in O(n); return the root and the fixes, which describe repaired tags.

    Tags that do not begin with `tag_prefix` are text.
    """
    root = Element("")
    stack = [root]
    fixes: list[Fix] = []
    for token in tokens:
        # MiniMax M3 repeats closing tags; SGLang 0.5.23 drops the second one too.
        if not isinstance(token, str) and token.close and _is_repeated_closer(token, stack):
            fixes.append(Fix("closer", f"{token.raw!r} too many"))
        elif isinstance(token, str) or token.kind != "element" or not token.raw.startswith(tag_prefix):
            stack[-1].text.append(token if isinstance(token, str) else token.raw)
        elif not token.close:
            made = Element(token.name or "")
            stack[-1].children.append(made)
            if not token.empty and len(stack) < MAX_ELEMENT_DEPTH:
                stack.append(made)
        else:
            open_names = [element.name for element in stack[1:]]
            if token.name not in open_names:
                fixes.append(Fix("closer", f"{token.raw!r} too many"))
                continue
            while (element := stack.pop()).name != token.name:
                _remove_lone_mark(element, tag_prefix)
                fixes.append(Fix("closer", f"closed by {token.raw!r}"))
    for element in stack[1:]:
        _remove_lone_mark(element, tag_prefix)
        fixes.append(Fix("closer", f"no closer of {element.name!r}"))
    return root, fixes


def _remove_lone_mark(element: Element, mark: str) -> None:
    """Remove a lone marker, the remains of a lost closing tag, from the end of an element."""
    if mark != "<" and element.text[-1:] == [mark]:
        element.text.pop()


def _is_repeated_closer(token: Tag, stack: list[Element]) -> bool:
    """Return whether `token` repeats the closing tag of the last top-level element, with or without its marker."""
    last = stack[-1].children[-1:]
    return token.kind == "element" and len(stack) == 1 and bool(last) and last[0].name == token.name


def read_members(
    element: Element, schema: Any, root: dict[str, Any], *, item: str, allow_any: bool = True
) -> dict[str, Any]:
    """Read the children of an element as the members of an object, with types from `schema`.

    `root`: the whole schema, in which references are looked up. `item`: the name of elements that are items of a list.
    `allow_any`: whether members that the schema does not declare may have any type.
    """
    groups: dict[str, list[Element]] = {}
    for child in element.children:
        groups.setdefault(child.name, []).append(child)
    properties = _variant(schema, root, "properties").get("properties")
    known: dict[str, Any] = properties if is_object(properties) else {}
    values: dict[str, Any] = {}
    for name, elements in groups.items():
        inner = known.get(name, {} if allow_any or not known else {"type": "string"})
        if len(elements) == 1:
            values[name] = _read_value(elements[0], inner, root, item)
        else:
            items = _variant(inner, root, "items").get("items", {})
            values[name] = [_read_value(element, items, root, item) for element in elements]
    return values


def _read_value(element: Element, schema: Any, root: dict[str, Any], item: str) -> Any:
    kinds = schema_types(schema, root)
    if element.children:
        if "array" in kinds or ("object" not in kinds and all(child.name == item for child in element.children)):
            items = _variant(schema, root, "items").get("items", {})
            return [_read_value(child, items, root, item) for child in element.children]
        return read_members(element, schema, root, item=item)
    text = "".join(element.text)
    if not text.strip() and kinds and "string" not in kinds:
        if "array" in kinds:
            return []
        if "object" in kinds:
            return {}
    # Hosted MiniMax M3 loses the mark of inner tags.
    if "<" in text and kinds and "string" not in kinds and (unmarked := read_unmarked(text)) is not None:
        return _read_value(unmarked, schema, root, item)
    if text.strip().lower() in ("none", "null") and text.strip() != "null":
        kinds = kinds or frozenset(("string",))  # only `null` spells the null value
        kinds -= {"null"}
    return read_typed(text, kinds)[0]


def read_unmarked(text: str, depth: int = 0) -> Element | None:
    """Read elements whose tags lack the format's marker, each up to the next closing tag of the same name.

    Return None if the text contains anything else.
    """
    root = Element("")
    at = 0
    while (match := _OPENING_TAG.match(text, at)) is not None:
        end = text.find(f"</{match[1]}>", match.end())
        if end < 0:
            return None
        inside = text[match.end() : end]
        inner = read_unmarked(inside, depth + 1) if "<" in inside and depth < MAX_UNMARKED_DEPTH else None
        if inner is not None:
            inner.name = match[1]
        root.children.append(inner if inner is not None else Element(match[1], [inside]))
        at = end + len(match[1]) + 3
    return root if root.children and not text[at:].strip() else None


def schema_types(schema: Any, root: dict[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema names, in itself or in its variants; empty if it names none."""
    node = resolve_reference(schema, root)
    kind = node.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    if is_array(kind):
        return frozenset(name for name in kind if isinstance(name, str))
    kinds: set[str] = set()
    for keyword in ("anyOf", "oneOf", "allOf"):
        for variant in node.get(keyword, ()):
            kinds |= schema_types(variant, root) if variant is not schema else frozenset()
    constants = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
    kinds |= {type_name(value) for value in constants}
    kinds |= {kind for keyword, kind in (("properties", "object"), ("items", "array")) if keyword in node}
    return frozenset(kinds)


def item_types(tool: Tool | None, key: str) -> frozenset[str]:
    """Return the JSON types of the items of a list parameter; empty if the schema names none."""
    schema = tool.parameters if tool is not None else {}
    properties = _variant(schema, schema, "properties").get("properties")
    known = properties.get(key) if is_object(properties) else None
    return schema_types(_variant(known, schema, "items").get("items"), schema)


def _variant(schema: Any, root: dict[str, Any], keyword: str) -> dict[str, Any]:
    """Return the first of the schema and its variants that has the keyword; the schema itself if none has it."""
    node = resolve_reference(schema, root)
    if keyword in node:
        return node
    variants = [
        resolve_reference(variant, root) for key in ("anyOf", "oneOf", "allOf") for variant in node.get(key, ())
    ]
    return next((variant for variant in variants if keyword in variant), node)


# The content of an element: bare text, nested elements, or a mapping in JSON or in lines of YAML.


_OPENER = lazy_pattern(r"\s*<([\w.-]{1,80})>")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}
_ENTITY = lazy_pattern("|".join(_ENTITIES))
MAX_DEPTH = 8
"""The maximum depth of nested elements in one value."""


class ElementArguments:
    """Collects the arguments of a call whose parameters are elements.

    A list may be written as several elements with the same name, one for each item.
    """

    def __init__(self, call: FieldCall, tool: str) -> None:
        self._call = call
        self._tool = tool
        self.texts: dict[str, str] = {}
        """The text of each argument that has been added, by its name."""
        self._list_key = ""
        self._items: list[str] = []
        """Texts of the items of the last list parameter. Each element with the parameter's name adds one item."""

    def types(self, key: str) -> frozenset[str]:
        """Return the JSON types of a parameter."""
        tools = self._call.options.tools
        return tools.types(self._tool, key) if tools is not None else frozenset()

    def is_list(self, key: str) -> bool:
        """Return whether a parameter takes a list. If so, its element may be repeated, once for each item."""
        types = self.types(key)
        return "array" in types and "string" not in types

    def add(self, key: str, text: str, *, read: bool) -> None:
        """Add the text of an element as the argument `key`.

        `read`: whether to read the value from the text. If False, the text is only kept, because it is not known yet
        which tool is called.
        """
        if self._items and key == self._list_key:
            self._items.append(text)
            return
        self.end_list()
        if key in self.texts and self.is_list(key):
            self._call.error = f"{key!r} came twice, apart from each other"
        self.texts[key] = text
        if read and self.is_list(key):
            self._list_key, self._items = key, [text]
        elif read:
            self._call.put(key, *element_value(self._call.options, self._tool, key, text))

    def end_list(self) -> None:
        """Add the list that is being collected, if there is one, as an argument."""
        items, self._items = self._items, []
        options, key = self._call.options, self._list_key
        if len(items) > 1:
            self._call.put(key, list_value(options, self._tool, key, items))
        elif items:
            self._call.put(key, *element_value(options, self._tool, key, items[0]))


def element_value(options: ParseOptions, tool: str, key: str, text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Read the text of a parameter; return the value and the fixes. One line break on each side is dropped."""
    text = strip_outer_newlines(text)
    declared = options.tools is not None and key in options.tools.keys(tool)
    types = options.tools.types(tool, key) if declared and options.tools is not None else frozenset[str]()
    if types & {"array", "object"} and "string" not in types and text.lstrip().startswith("<"):
        nested = _read_elements(text, as_list="array" in types, depth=0)
        if nested is not None:
            return nested, ()
    if "&lt;" in text and "<" not in text:
        unescaped = _ENTITY.sub(lambda match: _ENTITIES[match[0]], text)
        value, fixes = read_parameter(options, tool, key, unescaped)
        return value, (Fix("marker", "its entities were decoded"), *fixes)
    return read_parameter(options, tool, key, text)


def list_value(options: ParseOptions, tool: str, key: str, texts: list[str]) -> list[Any]:
    """Read the items of a list. Each text is the content of an element that is named after the parameter."""
    types = item_types(options.tools.get(tool), key) if options.tools is not None else frozenset[str]()
    return [_read_item(strip_outer_newlines(text), types) for text in texts]


def _read_item(text: str, types: frozenset[str]) -> Any:
    if text.lstrip().startswith("<") and "string" not in types:
        nested = _read_elements(text, as_list="array" in types, depth=0)
        if nested is not None:
            return nested
    return read_as(text, types)[0]


def strip_outer_newlines(text: str) -> str:
    """Strip one line break from each side of a text."""
    text = text.removeprefix("\r").removeprefix("\n")
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def read_json_object(text: str) -> tuple[dict[str, Any], tuple[Fix, ...]] | None:
    """Read a text that is one JSON object; return its members and the fixes, or None for any other text."""
    body = text.strip()
    try:
        value = read_value(body)
    except Unreadable:
        return None
    return (value.value, value.fixes) if is_object(value.value) and value.end == len(body) else None


def read_undeclared(text: str) -> tuple[dict[str, Any], tuple[Fix, ...]] | None:
    """Read a body of elements as arguments that the schema does not declare.

    Return None if the body contains anything else, if a name comes twice, or if an element is an HTML element.
    """
    children = _split_elements(text)
    names = {name for name, _ in children or ()}
    if children is None or len(names) < len(children) or not names.isdisjoint(HTML_ELEMENTS):
        return None
    return {name: _read_item(strip_outer_newlines(inner), frozenset()) for name, inner in children}, ()


def _read_elements(text: str, *, as_list: bool, depth: int) -> Any:
    """Read elements as an object, or as a list of their contents; return None if the text is anything else."""
    children = _split_elements(text)
    if children is None or depth > MAX_DEPTH:
        return None
    values = [(name, _read_content(inner, depth + 1)) for name, inner in children]
    names = {name for name, _ in values}
    if as_list and (len(names) <= 1 or _are_index_named(values)):
        return [value for _, value in values]
    if len(names) == len(values):
        return dict(values)
    return {name: _one_or_all([value for key, value in values if key == name]) for name, _ in values}


def _one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _read_content(text: str, depth: int) -> Any:
    children = _split_elements(text)
    if children is None:
        return strip_outer_newlines(text)
    names = {name for name, _ in children}
    return _read_elements(text, as_list=names == {"item"} or _are_index_named(children), depth=depth)


def _are_index_named(children: list[tuple[str, Any]]) -> bool:
    """Return whether elements are named by their index: `<0>`, `<1>` and so on, as in MorphXML."""
    return [name for name, _ in children] == [str(index) for index in range(len(children))]


def _split_elements(text: str) -> list[tuple[str, str]] | None:
    """Return the name and content of each element in a text; None if the text contains anything else.

    O(n) for each level of nesting.
    """
    children: list[tuple[str, str]] = []
    at = 0
    while (opener := _OPENER.match(text, at)) is not None:
        end = _find_closing_tag(text, opener[1], opener.end())
        if end < 0:
            return None
        children.append((opener[1], text[opener.end() : end]))
        at = text.index(">", end) + 1
    return None if text[at:].strip() or not children else children


def _find_closing_tag(text: str, name: str, at: int) -> int:
    """Return the offset of the closing tag that matches an opening tag; -1 if there is none."""
    depth = 1
    for tag in re.compile(rf"<(/?){re.escape(name)}\s*>").finditer(text, at):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag.start()
    return -1
