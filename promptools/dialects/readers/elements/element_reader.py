r"""A call that is an element named after its tool, with an element for each argument.

    <write_file>
    <path>a.txt</path>
    <content>
    x < y && z
    </content>
    </write_file>

This is not XML: nothing is escaped, so a value may hold any tag, also those of its own call. Two rules decide:

- Only tags of the tool and of its parameters are tags; everything else is text.
- A closing tag ends a value only where another of these tags, or the tool's closing tag, follows. Tags that were
  opened inside the value (`_open_values` of the same parameter, `_open_calls` of the same tool) take their closing tags
  first.

A file may itself end like a call, so the last end that fits wins: if prose follows the tool's closing tag the end is
kept as `_possible_end`, and applied when the next call begins or the text ends.

There are two states: between values (`_between`) and in one (`_in_value`). Instead of elements the body may be a
JSON object, lines of YAML, or the bare text of the tool's only parameter (`_read_body`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.readers.elements.element_tags import ATTRIBUTE, HTML_ELEMENTS, element_tags
from promptools.dialects.readers.elements.element_value import (
    ElementArguments,
    element_value,
    read_json_object,
    read_undeclared,
)
from promptools.dialects.readers.elements.yaml_mapping import read_mapping
from promptools.dialects.readers.key_value.labelled_reader import main_parameter
from promptools.dialects.readers.tags.single_call_reader import (
    FIRST_CHUNK,
    NeedMore,
    TaggedTextReader,
    ValueEnd,
    settled,
)
from promptools.dialects.reply_markers import reply_markers
from promptools.parsing.parts import Part
from promptools.types import Fix

MCP_TOOL = "use_mcp_tool"
"""Cline's way to call a tool of an MCP server: the tool's name and its arguments are elements."""
ARGS_TAG = "args"
"""Roo Code's element around the arguments."""
XML_DIALECT, YAML_DIALECT = "tool_name_xml", "tool_name_yaml"
"""The dialects of a call: XML, or YAML where its body turns out to be lines of YAML."""
_MCP_KEYS = frozenset(("server_name", "tool_name", "arguments"))
_ROOT = re.compile(r"\s*<?\s*([\w.-]+)")
_KEY = re.compile(r"([\w.-]{1,80}+)(?::|(\Z))")
"""The key at the beginning of a line of YAML, or what there is of it at the end of the text."""


class ElementReader(TaggedTextReader):
    """Reads one element, as a `promptools.parsing.parts.Candidate`; fed the text after its opening tag."""

    def __init__(self, head: str, tag: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        match = _ROOT.match(tag)
        self._root = root = match[1] if match else ""
        declared = rules.tools.keys(root) if rules.tools is not None else frozenset[str]()
        self._keys = _MCP_KEYS if root == MCP_TOOL and not declared else declared
        self._tags = element_tags(root, self._keys | {ARGS_TAG})
        self._is_ambiguous = tag in reply_markers().reserved_tags
        """The tag has another meaning too: it is a call only once its whole content fits the tool, and never before."""
        super().__init__(head, "", self._tags, rules, place, definite=definite and not self._is_ambiguous)
        self._pieces, self._base_offset = [tag], len(tag)
        if "<" not in tag:
            self._record_fix("the brackets of its first tag were lost")
        self._rules = rules
        self._tag = tag
        self._state = self._between
        self._arguments = ElementArguments(self._call, root)
        self._values = self._arguments.texts
        self._extra_closer_size = 0
        """Characters of a second closing tag of the tool, after the one that ended the call."""
        self._in_args = False
        """An element around the arguments is open."""
        self._saw_call_closer = False
        """The tool's closing tag has come inside a value."""
        self._finish_reason: str | None = None
        self._is_open = False
        self._has_text = False
        """Text has come since the last tag that counted."""
        self._begins_like_arguments = False
        """The content has been seen to begin like arguments."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        if not self._open_call():
            return start
        if self._is_ambiguous and not self._begins_like_arguments and not self._begins_arguments(piece, start):
            self._give_up("no arguments begin in it", len(self._tag))
            return start
        return super().feed(piece, start)

    def _begins_arguments(self, piece: str, start: int) -> bool:
        """Return whether the content may begin like arguments, as far as it is known."""
        beginning = ("".join(self._pieces)[len(self._tag) :] + piece[start : start + FIRST_CHUNK]).lstrip()
        if not beginning:
            return True
        match = _KEY.match(beginning)
        if match is not None and match[2] is not None:
            return any(parameter.startswith(match[1]) for parameter in self._keys)
        self._begins_like_arguments = beginning[0] in "<{" or (match is not None and match[1] in self._keys)
        return self._begins_like_arguments

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._finish_reason = finish_reason
        if not self._open_call():
            return
        self._run(self._held_text, final=True)
        if self._decided:
            return
        if self._possible_end is not None and finish_reason != "length":
            self._end_at(self._possible_end)
        elif not self._call.meant and (self._saw_call_closer or (not self._values and self._state == self._between)):
            self._give_up("it holds nothing of a call", len(self._tag))
        elif self._may_supply_closer(finish_reason):
            self._finish(self._base_offset, self._base_offset, Fix("closer", f"no '</{self._root}>'"))
        else:
            self._finish_parts(
                [self._malformed_part(self._call.as_truncated(), "".join(self._pieces))], self._base_offset
            )

    def _may_supply_closer(self, finish_reason: str | None) -> bool:
        """Return whether the closing tag may be supplied: the model was done, and nothing but that tag was begun."""
        begun = "".join(self._text_pieces).strip()
        whole = not begun or begun.startswith("</")
        return (
            self._state == self._between and bool(self._values) and whole and finish_reason in COMPLETE_FINISH_REASONS
        )

    def _open_call(self) -> bool:
        """Consume the opening tag; return whether the call goes on after it."""
        if self._is_open:
            return True
        self._is_open = True
        if self._root != MCP_TOOL:
            self.early += self._call.set_name(self._root) or []
        for key, double, single in ATTRIBUTE.findall(self._tag):
            if key in self._keys:
                self._add_argument(key, double or single)
            elif not self._call.meant:
                self._give_up(f"{key!r} is no parameter", len(self._tag))
                return False
        if self._tag.endswith("/>"):
            self._finish(len(self._tag), len(self._tag), None)
        return not self._decided

    def _on_last_text(self, rest: str) -> None:
        self._add_text(rest)

    def _add_text(self, text: str) -> None:
        super()._add_text(text)
        self._has_text = self._has_text or bool(text.strip())

    # --- what a tag means ----------------------------------------------------------------------------------------

    def _between(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        name = match["name"]
        has_text = self._has_text
        if name == ARGS_TAG and self._on_args_tag(kind):
            return
        if kind == "close" and name == self._root:
            self._on_call_closer(text, match, final)
            return
        if kind == "close" or name not in self._keys or has_text:
            if name == self._root and kind != "close" and self._values:  # the next call of the tool
                self._finish(self._base_offset, self._base_offset, Fix("closer", f"no '</{self._root}>'"))
            elif not self._values and not self._call.meant:
                self._give_up("it holds something else", len(self._tag))
            elif kind == "close":
                self._record_fix(f"{match[0]!r} too many")
            else:
                self._call.error = "something else is between its arguments"
                self._add_text(match[0])
            return
        self._take_text()
        self._key = name
        if kind == "empty":
            self._add_argument(name, "")
        else:
            self._state = self._in_value

    def _on_args_tag(self, kind: str) -> bool:
        """Consume a tag of the element around the arguments; return whether it is one."""
        opens = kind == "open" and not (self._values or self._in_args)
        if ARGS_TAG in self._keys or self._has_text or not (opens or (kind == "close" and self._in_args)):
            return False
        if opens:
            self._record_fix(f"the arguments were in '<{ARGS_TAG}>'")
        self._in_args = opens
        return True

    def _on_call_closer(self, text: str, match: re.Match[str], final: bool) -> None:
        """End the call at its closing tag, and at a second one after it."""
        if self._keys and not self._open_calls:
            after = settled(self._tags.next_name(text, match.end()), final=final)
            if after == f"/{self._root}":
                self._extra_closer_size = text.index(">", match.end()) + 1 - match.end()
        body = self._take_text()
        if body.strip() and not self._read_body(body):
            if not self._call.meant:
                self._give_up("what it holds are no arguments", len(self._tag))
                return
            self._call.error = "what it holds are no arguments"
        surplus = Fix("closer", f"'</{self._root}>' too many") if self._extra_closer_size else None
        self._finish(self._base_offset, self._base_offset + len(match[0]) + self._extra_closer_size, surplus)

    def _read_body(self, body: str) -> bool:
        """Read a body that has no elements; return whether it can be read as arguments."""
        if self._values or self._root == MCP_TOOL:
            return False
        if body.lstrip().startswith("{"):
            return self._add_object(read_json_object(body))
        if body.lstrip().startswith("<") and self._accepts_undeclared():
            return self._add_object(read_undeclared(body))
        lines = read_mapping(body, self._keys)
        if lines is not None:
            self._add_yaml(lines)
            return True
        tool = self._call.tool
        key = main_parameter(tool) if tool is not None and len(self._keys) == 1 else None
        if key is None or self._is_ambiguous or (self._root in HTML_ELEMENTS and not self._call.meant):
            return False
        self._call.fixes.append(Fix("unwrap", f"the body was plain text, read as {key!r}"))
        self._add_argument(key, body)
        return True

    def _accepts_undeclared(self) -> bool:
        """Return whether the tool takes arguments that its schema does not declare."""
        tool = self._call.tool
        named = self._root in HTML_ELEMENTS and not self._call.meant
        takes = tool is not None and tool.parameters.get("additionalProperties") is not False
        return takes and not (self._keys or named or self._is_ambiguous)

    def _add_object(self, object_and_fixes: tuple[dict[str, Any], tuple[Fix, ...]] | None) -> bool:
        if object_and_fixes is None or (self._is_ambiguous and not self._keys.issuperset(object_and_fixes[0])):
            return False
        self._call.value_fixes += object_and_fixes[1]
        for key, value in object_and_fixes[0].items():
            self._values.setdefault(key, "")
            self.early += self._call.add_value(key, value)
        return True

    def _add_yaml(self, lines: dict[str, Any]) -> None:
        """Add the values of lines of YAML; strings among them are typed by the schema."""
        place = self._call.place
        self._call.place = place._replace(dialect=YAML_DIALECT) if place.dialect == XML_DIALECT and lines else place
        for key, text in lines.items():
            value, fixes = read_parameter(self._rules, self._root, key, text) if isinstance(text, str) else (text, ())
            self._values[key] = ""
            self.early += self._call.add_value(key, value, fixes)

    def _in_value(self, kind: str, text: str, match: re.Match[str], final: bool) -> None:
        name = match["name"]
        if name == self._key and kind == "close":
            if self._value_ends(text, match, final):
                self._end_value()
                return
        elif name == self._root and kind == "open" and self._possible_end is not None and not self._open_calls:
            self._end_at(self._possible_end)
            return
        elif name == self._root and kind != "empty":
            self._saw_call_closer = self._saw_call_closer or (kind == "close" and not self._open_calls)
            self._open_calls = max(0, self._open_calls + (1 if kind == "open" else -1))
        elif kind == "open" and name in self._keys:
            if self._possible_end is not None and not self._open_calls:
                self._call.error = f"the closers in {self._key!r} belong to no tags of its own: it may be of two calls"
            self._open_values += name == self._key
        self._add_text(match[0])

    def _value_ends(self, text: str, match: re.Match[str], final: bool) -> bool:
        """Return whether the value ends at its closing tag."""
        if self._open_calls:
            return False
        after = settled(self._tags.next_name(text, match.end()), final=final)
        if after == f"/{self._root}":
            return self._ends_with_call(text, match, final, match.start())
        if after == f"/{ARGS_TAG}" and ARGS_TAG not in self._keys:
            after = settled(self._tags.next_name(text, text.index(">", match.end()) + 1), final=final)
            after = None if after == f"/{self._root}" else after
        if self._open_values:
            self._open_values -= 1
            return False
        if after == f"/{self._key}":
            return self._ends_at_doubled_closer(text, match, final)
        return after is None or (after in self._keys and self._may_follow_value(after))

    def _may_follow_value(self, key: str) -> bool:
        """Return whether an element of this parameter may follow the value, rather than be part of its text."""
        if key == self._key or key not in self._values or self._arguments.is_list(key):
            return True
        types = self._arguments.types(self._key)
        return bool(types) and "string" not in types

    def _ends_at_doubled_closer(self, text: str, match: re.Match[str], final: bool) -> bool:
        """Return whether the value ends at a closing tag doubled before the tool's."""
        second = self._tags.pattern.match(text, text.index("<", match.end()))
        assert second is not None
        after = settled(self._tags.next_name(text, second.end()), final=final)
        return after == f"/{self._root}" and self._ends_with_call(text, second, final, match.start())

    def _ends_with_call(self, text: str, match: re.Match[str], final: bool, value_end: int) -> bool:
        """Return whether the tool's closing tag after a value's is the last one.

        Text after it may still be part of the value.
        """
        end = self._tags.call_end.match(text, match.end())
        if end is None or (end.end() == len(text) and not final):
            if not final:
                raise NeedMore
            return False
        last = end.end() == len(text) or text[end.end()] in "<`"
        inner, self._open_values = self._open_values, max(0, self._open_values - 1)
        if last and not inner:
            return True
        closer = text.index(">", text.index("<", match.end())) + 1
        self._possible_end = ValueEnd(self._text_size, self._base_offset + closer - value_end, sure=True)
        return False

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _add_argument(self, key: str, text: str) -> None:
        self._has_text = False
        self.early += self._arguments.add(key, text, read=self._root != MCP_TOOL or self._call.tool is not None)

    def _end_at(self, ending: ValueEnd) -> None:
        self._end_value(ending.size)
        self._finish(ending.at, ending.at, None)

    def _is_too_little(self) -> bool:
        return not self._values

    def _finish_parts(self, parts: Sequence[Part], end: int) -> None:
        if self._is_ambiguous and (not self._values or any(part.malformed is not None for part in parts)):
            self._give_up("what is in it does not fit the tool", end)
            return
        super()._finish_parts(parts, end)

    def _give_up(self, why: str, end: int) -> None:
        super()._give_up(why, len(self._tag) if self._is_ambiguous else end)

    def _check_call(self) -> None:
        self.early += self._arguments.end_list()
        if self._root != MCP_TOOL:
            return
        tools, name = self._rules.tools, self._values.get("tool_name", "").strip()
        if tools is not None and tools.find(name) is None and tools.get(MCP_TOOL) is not None:
            self.early += self._call.set_name(MCP_TOOL) or []
            for key, text in self._values.items():
                self.early += self._call.add_value(key, *element_value(self._rules, MCP_TOOL, key, text))
            return
        self.early += self._call.set_name(name) or []
        if not self._add_object(read_json_object(self._values.get("arguments", "").strip() or "{}")):
            self._call.error = "its arguments are no JSON object"
