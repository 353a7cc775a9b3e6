"""Read a call that is an element named after its tool, with an element for each argument.

    <write_file>
    <path>a.txt</path>
    <content>
    x < y && z
    </content>
    </write_file>

This is not XML: nothing is escaped, so a value may contain any tag, even those of its call. Two rules apply:

- Only the tags of the tool and of its parameters count as tags; everything else is text.
- A closing tag ends a value only if the opening tag of a parameter, the tool's closing tag or the end of the text
  follows, perhaps after `</args>` or the same closing tag again. If the value itself contains an opening tag, the next
  closing tag of the same name belongs to that tag: `_open_values` counts such tags of the same parameter, `_open_calls`
  those of the same tool.

A file in a value may itself end with the closing tags of a call, so the call ends at the last possible end. If prose
follows the tool's closing tag, the call may or may not have ended there. Such an end is kept as `_possible_end`, and
applied when the next call begins or the text ends.

There are two states: between values (`_in_call`) and in a value (`_in_value`). Instead of elements, the body may be a
JSON object, lines of YAML, or the bare text of the tool's only parameter (`_read_body`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.element_value import (
    ATTRIBUTE,
    HTML_ELEMENTS,
    ElementArguments,
    element_tokenizer,
    element_value,
    read_json_object,
    read_undeclared,
)
from promptools.dialects.readers.free_text import main_parameter
from promptools.dialects.readers.tag_reader import PossibleEnd, SingleCallReader, Transition
from promptools.dialects.readers.tags import Tag, TokenBuffer, raw_text
from promptools.dialects.readers.yaml_reader import read_mapping
from promptools.dialects.reply_markers import reply_markers
from promptools.parsing.parts import NEED_MORE, SPACE, NeedMore, Part
from promptools.patterns import lazy_pattern
from promptools.types import Fix

MCP_TOOL = "use_mcp_tool"
"""The tool with which Cline calls tools of MCP servers. Its elements contain the MCP tool's name and arguments."""
ARGS_TAG = "args"
"""The name of the element that Roo Code puts around the arguments."""
XML_DIALECT, YAML_DIALECT = "tool_name_xml", "tool_name_yaml"
"""The names of two dialects. The body of a call is elements in the first, and lines of YAML in the second."""
_MCP_KEYS = frozenset(("server_name", "tool_name", "arguments"))
_ROOT = lazy_pattern(r"\s*<?\s*([\w.-]+)")
_VISIBLE = lazy_pattern(r"\S")
_KEY_WINDOW = 128
"""How many characters at the beginning of an element's content are searched for a YAML key."""
_KEY = lazy_pattern(r"([\w.-]{1,80}+)(?::|(\Z))")
"""Matches the key at the beginning of a line of YAML; at the end of the text, the key may be incomplete."""


class ElementReader(SingleCallReader):
    """Reads one call that is written as an element. It is a `promptools.parsing.parts.Candidate`.

    `tag`: the opening tag of the element. The text to read starts after this tag.
    """

    def __init__(self, head: str, tag: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        match = _ROOT.match(tag)
        self._root = root = match[1] if match else ""
        declared = options.tools.keys(root) if options.tools is not None else frozenset[str]()
        self._keys = _MCP_KEYS if root == MCP_TOOL and not declared else declared
        self._is_ambiguous = tag in reply_markers().reserved_tags
        """Whether the tag also has another meaning, as `<think>` does.

        If so, the element is read as a call only if it contains nothing but declared parameters of the tool.
        """
        buffer = TokenBuffer(element_tokenizer(root, self._keys | {ARGS_TAG}))
        super().__init__(head, buffer, options, evidence, definite=definite and not self._is_ambiguous)
        self._tokens.append(tag)
        buffer.advance()
        # Devstral loses the brackets (ai-sdk-tool-call-middleware).
        if "<" not in tag:
            self._record_fix("the brackets of its first tag were lost")
        self._options = options
        self._tag = tag
        self._tag_state = self._in_call
        self._arguments = ElementArguments(self._call, root)
        self._values = self._arguments.texts
        self._in_args = False
        """Whether the element around the arguments, `<args>`, is open."""
        self._saw_call_closer = False
        """Whether the tool's closing tag has come inside a value."""
        self._is_open = False
        self._has_text = False
        """Whether text other than white space has come since the last argument."""
        self._beginning: str | None = "" if self._is_ambiguous else None
        """The beginning of the content, until it is known whether arguments begin there; None once this is known.

        It is always None if the tag is not ambiguous, because the content of an unambiguous tag is not checked.
        """

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        if self._open_call() and self._beginning is not None and not self._may_begin_arguments(piece, start):
            self._finish_as_text(1, "no arguments begin in it")
        return super().feed(piece, start)

    def _may_begin_arguments(self, piece: str, start: int) -> bool:
        """Return whether the text after the opening tag may be the beginning of arguments."""
        assert self._beginning is not None
        begin = _VISIBLE.search(piece, start) if not self._beginning else None
        at = start if self._beginning else begin.start() if begin is not None else len(piece)
        self._beginning = beginning = self._beginning + piece[at : at + _KEY_WINDOW]
        if not beginning:
            return True
        match = _KEY.match(beginning)
        if match is not None and match[2] is not None:
            return any(parameter.startswith(match[1]) for parameter in self._keys)
        self._beginning = None
        return beginning[0] in "<{" or (match is not None and match[1] in self._keys)

    def transitions(self, text: str) -> Iterator[Transition]:
        """Read a whole text. For each tag, yield the state of the reader before and after the tag."""
        return super().transitions(text) if self._open_call() else iter(())

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        self._open_call()
        super().close(finish_reason)

    def _on_end_of_text(self, finish_reason: str | None) -> None:
        if self._possible_end is not None and finish_reason != "length":
            self._end_at(self._possible_end)
        elif not self._call.meant and (self._saw_call_closer or self._is_empty):
            self._finish_as_text(1, "it holds nothing of a call")
        elif self._may_supply_closer(finish_reason):
            self._finish(self._index, self._index, Fix("closer", f"no '</{self._root}>'"))
        else:
            self._truncate()

    def _may_supply_closer(self, finish_reason: str | None) -> bool:
        """Return whether a call at the end of the text lacks only its closing tag, or a part of that tag."""
        begun = "".join(self._text_pieces).strip()
        whole = self._tag_state == self._in_call and (not begun or begun.startswith("</"))
        return whole and bool(self._values) and self._call.may_lack_only_its_closer(finish_reason)

    @property
    def _is_empty(self) -> bool:
        """Whether no argument has begun."""
        return not self._values and self._tag_state == self._in_call

    def _open_call(self) -> bool:
        """Consume the call's opening tag; return whether the call continues after the tag."""
        if self._is_open:
            return True
        self._is_open = True
        if self._root != MCP_TOOL:
            self._call.set_name(self._root)
        for key, double, single in ATTRIBUTE.findall(self._tag):
            if key in self._keys:
                self._add_argument(key, double or single)
            elif not self._call.meant:
                self._finish_as_text(1, f"{key!r} is not a parameter")
                return False
        if self._tag.endswith("/>"):
            self._finish(1, 1, None)
        return not self._decided

    def _add_text(self, text: str) -> None:
        super()._add_text(text)
        self._has_text = self._has_text or bool(text.strip())

    # --- what a tag means ----------------------------------------------------------------------------------------

    def _in_call(self, tag: Tag) -> NeedMore | None:
        name = tag.name or ""
        if name == ARGS_TAG and self._on_args_tag(tag):
            return None
        if tag.close and name == self._root:
            return self._on_call_closer()
        if tag.close or name not in self._keys or self._has_text:
            self._on_other_tag(tag)
            return None
        self._take_text()
        self._key = name
        if tag.empty:
            self._add_argument(name, "")
        else:
            self._tag_state = self._in_value
        return None

    def _on_other_tag(self, tag: Tag) -> None:
        """Handle a tag that opens no parameter: it begins the next call of the tool, or is out of place."""
        if tag.name == self._root and not tag.close and self._values:
            self._finish(self._index, self._index, Fix("closer", f"no '</{self._root}>'"))
        elif not self._values and not self._call.meant:
            self._finish_as_text(1, "it holds something else")
        elif tag.close:
            self._record_fix(f"{tag.raw!r} too many")
        else:
            self._call.error = "something else is between its arguments"
            self._add_text(tag.raw)

    def _on_args_tag(self, tag: Tag) -> bool:
        """Consume `tag` if it opens or closes `<args>` around the arguments; return whether `tag` was consumed."""
        opens = not (tag.close or tag.empty or self._values or self._in_args)
        if ARGS_TAG in self._keys or self._has_text or not (opens or (tag.close and self._in_args)):
            return False
        if opens:
            self._record_fix(f"the arguments were in '<{ARGS_TAG}>'")
        self._in_args = opens
        return True

    def _on_call_closer(self) -> NeedMore | None:
        """End the call at its closing tag. A repetition of this tag may belong to the call, too."""
        end, surplus = self._index + 1, None
        if self._keys and not self._open_calls:
            after = self._buffer.after(self._index)
            if after is NEED_MORE:
                return NEED_MORE
            if after is not None and self._closes(after, self._root):
                end, surplus = after + 1, Fix("closer", f"'</{self._root}>' too many")
        body = self._take_text()
        if body.strip() and not self._read_body(body):
            if not self._call.meant:
                self._finish_as_text(1, "its content is not arguments")
                return None
            self._call.error = "its content is not arguments"
        self._finish(self._index, end, surplus)
        return None

    def _closes(self, index: int, name: str) -> bool:
        """Return whether the token at an index is the closing tag of the element `name`."""
        token = self._tokens[index]
        return isinstance(token, Tag) and token.kind == "element" and token.close and token.name == name

    def _read_body(self, body: str) -> bool:
        """Read the content of a call that has no elements for parameters. Return whether it could be read."""
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
        """Return whether the call may contain arguments that the schema of the tool does not declare."""
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
            self._call.put(key, value)
        return True

    def _add_yaml(self, lines: dict[str, Any]) -> None:
        """Add arguments that were read from lines of YAML. A value that is text gets its type from the schema."""
        evidence = self._call.evidence
        self._call.evidence = (
            evidence._replace(dialect=YAML_DIALECT) if evidence.dialect == XML_DIALECT and lines else evidence
        )
        for key, text in lines.items():
            value, fixes = read_parameter(self._options, self._root, key, text) if isinstance(text, str) else (text, ())
            self._values[key] = ""
            self._call.put(key, value, fixes)

    def _in_value(self, tag: Tag) -> NeedMore | None:
        name, opens = tag.name, not (tag.close or tag.empty)
        if name == self._key and tag.close:
            ends = self._value_ends()
            if ends is NEED_MORE:
                return NEED_MORE
            if ends:
                self._end_value()
                return None
        elif name == self._root and opens and self._possible_end is not None and not self._open_calls:
            self._end_at(self._possible_end)
            return None
        elif name == self._root and (opens or tag.close):
            self._saw_call_closer = self._saw_call_closer or (tag.close and not self._open_calls)
            self._open_calls = max(0, self._open_calls + (1 if opens else -1))
        elif opens and name in self._keys:
            if self._possible_end is not None and not self._open_calls:
                self._call.error = f"the closers in {self._key!r} belong to no tags of its own: it may be of two calls"
            self._open_values += name == self._key
        self._add_text(tag.raw)
        return None

    def _value_ends(self) -> bool | NeedMore:
        """Return whether the current tag, a closing tag of the value's parameter, ends the value or is part of it."""
        if self._open_calls:
            return False
        at = self._buffer.after(self._index)
        if at is NEED_MORE:
            return NEED_MORE
        if at is not None and self._closes(at, self._root):
            return self._ends_with_call(at)
        if at is not None and self._closes(at, ARGS_TAG) and ARGS_TAG not in self._keys:
            at = self._buffer.after(at)
            if at is NEED_MORE:
                return NEED_MORE
            at = None if at is not None and self._closes(at, self._root) else at
        if self._open_values:
            self._open_values -= 1
            return False
        if at is None:
            return True
        if self._closes(at, self._key):
            return self._ends_at_doubled_closer(at)
        following = self._tokens[at]
        if isinstance(following, str) or following.kind == "cut":
            return not isinstance(following, str)
        return not following.close and following.name in self._keys and self._may_follow_value(following.name or "")

    def _may_follow_value(self, key: str) -> bool:
        """Return whether an element of the parameter `key` may come after the value, instead of being part of it."""
        if key == self._key or key not in self._values or self._arguments.is_list(key):
            return True
        types = self._arguments.types(self._key)
        return bool(types) and "string" not in types

    def _ends_at_doubled_closer(self, second: int) -> bool | NeedMore:
        """Return whether the value ends at the first of two closing tags of its parameter.

        The first one ends the value if the tool's closing tag follows the second one and ends the call. `second`: the
        index of the second closing tag.
        """
        at = self._buffer.after(second)
        if at is NEED_MORE:
            return NEED_MORE
        return at is not None and self._closes(at, self._root) and self._ends_with_call(at)

    def _ends_with_call(self, closer: int) -> bool | NeedMore:
        """Return whether both the value and the call end here.

        `closer`: the index of the tool's closing tag, which follows the value's closing tag. If prose follows the two
        tags, both tags may still be part of the value, so the end is only recorded as `_possible_end`.
        """
        following = self._buffer.after(closer)
        if following is NEED_MORE:
            return NEED_MORE
        inner, self._open_values = self._open_values, max(0, self._open_values - 1)
        if not inner and (following is None or raw_text(self._tokens[following]).lstrip(SPACE).startswith(("<", "`"))):
            return True
        self._possible_end = PossibleEnd(self._text_size, closer + 1, sure=True)
        return False

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _add_argument(self, key: str, text: str) -> None:
        self._has_text = False
        self._arguments.add(key, text, read=self._root != MCP_TOOL or self._call.tool is not None)

    def _end_at(self, ending: PossibleEnd) -> None:
        self._end_value(ending.size)
        self._finish(ending.at, ending.at, None)

    def _is_too_little(self) -> bool:
        return not self._values

    def _finish_parts(self, parts: Sequence[Part], end: int) -> None:
        if self._is_ambiguous and (not self._values or any(part.malformed is not None for part in parts)):
            self._finish_as_text(end, "what is in it does not fit the tool")
            return
        super()._finish_parts(parts, end)

    def _finish_as_text(self, end: int, why: str) -> None:
        super()._finish_as_text(1 if self._is_ambiguous else end, why)

    def _check_call(self) -> None:
        self._arguments.end_list()
        if self._root != MCP_TOOL:
            return
        tools, name = self._options.tools, self._values.get("tool_name", "").strip()
        if tools is not None and tools.find(name) is None and tools.get(MCP_TOOL) is not None:
            self._call.set_name(MCP_TOOL)
            for key, text in self._values.items():
                self._call.put(key, *element_value(self._options, MCP_TOOL, key, text))
            return
        self._call.set_name(name)
        if not self._add_object(read_json_object(self._values.get("arguments", "").strip() or "{}")):
            self._call.error = "its arguments are not a JSON object"
