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
  opened inside the value (`_inner` of the same parameter, `_quoted` of the same tool) take their closing tags first.

A file may itself end like a call, so the last end that fits wins: if prose follows the tool's closing tag the end is
kept as `_ending`, and applied when the next call begins or the text ends.

There are two states: between values (`_between`) and in one (`_in_value`). Instead of elements the body may be a
JSON object, lines of YAML, or the bare text of the tool's only parameter (`_take_body`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from promptools.dialects.fields.element_tags import ATTRIBUTE, HTML, element_tags
from promptools.dialects.fields.element_value import element_list, element_value, free_elements, json_body
from promptools.dialects.fields.tagged import FIRST_LOOK, TaggedText
from promptools.dialects.fields.yaml_lines import mapping
from promptools.dialects.labelled import only_parameter
from promptools.dialects.settle import STOPPED, Place, Rules
from promptools.dialects.values import value_of
from promptools.parsing.parts import Part
from promptools.parsing.zones import TAGS
from promptools.types import Fix

MCP = "use_mcp_tool"
"""Cline's way to call a tool of an MCP server: the tool's name and its arguments are elements."""
ARGS = "args"
"""Roo Code's element around the arguments."""
XML, YAML = "tool_name_xml", "tool_name_yaml"
"""The dialects of a call: XML, or YAML where its body turns out to be lines of YAML."""
_MCP_KEYS = frozenset(("server_name", "tool_name", "arguments"))
_ROOT = re.compile(r"\s*<?\s*([\w.-]+)")
_KEY = re.compile(r"([\w.-]{1,80}+)(?::|(\Z))")
"""The key at the beginning of a line of YAML, or what there is of it at the end of the text."""


class _Ending(NamedTuple):
    """Where a value may have ended: its size, and the index just past the tool's closing tag."""

    size: int
    at: int


class ElementCandidate(TaggedText):
    """Reads one element, as a `promptools.parsing.parts.Candidate`; fed the text after its opening tag."""

    def __init__(self, head: str, tag: str, rules: Rules, place: Place, *, firm: bool) -> None:
        match = _ROOT.match(tag)
        self._root = root = match[1] if match else ""
        declared = rules.tools.keys(root) if rules.tools is not None else frozenset[str]()
        self._keys = _MCP_KEYS if root == MCP and not declared else declared
        self._tags = element_tags(root, self._keys | {ARGS})
        self._reserved = tag in TAGS
        """The tag has another meaning too: it is a call only once its whole content fits the tool, and never before."""
        super().__init__(head, "", self._tags, rules, place, firm=firm and not self._reserved)
        self._pieces, self._base = [tag], len(tag)
        if "<" not in tag:
            self._fix("the brackets of its first tag were lost")
        self._rules = rules
        self._tag = tag
        self._step = self._between
        self._key = ""
        self._values: dict[str, str] = {}
        self._listed = ""
        self._list: list[str] = []
        """Items of the list that was named last: each further element of its name adds one."""
        self._inner = self._quoted = 0
        """Elements of the same name, and calls of the same tool, that are open inside the value."""
        self._ending: _Ending | None = None
        self._surplus = 0
        """Characters of a second closing tag of the tool, after the one that ended the call."""
        self._args = False
        """An element around the arguments is open."""
        self._closed = False
        """The tool's closing tag has come inside a value."""
        self._reason: str | None = None
        self._began = False
        self._filled = False
        """Text has come since the last tag that counted."""
        self._looked = False
        """The content has been seen to begin like arguments."""

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        if not self._begin():
            return start
        if self._reserved and not self._looked and not self._begins_arguments(piece, start):
            self._give_up("no arguments begin in it", len(self._tag))
            return start
        return super().feed(piece, start)

    def _begins_arguments(self, piece: str, start: int) -> bool:
        """Return whether the content may begin like arguments, as far as it is known."""
        beginning = ("".join(self._pieces)[len(self._tag) :] + piece[start : start + FIRST_LOOK]).lstrip()
        if not beginning:
            return True
        match = _KEY.match(beginning)
        if match is not None and match[2] is not None:
            return any(parameter.startswith(match[1]) for parameter in self._keys)
        self._looked = beginning[0] in "<{" or (match is not None and match[1] in self._keys)
        return self._looked

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._reason = finish_reason
        if not self._begin():
            return
        self._run(self._held, final=True)
        if self._over:
            return
        if self._ending is not None and finish_reason != "length":
            self._end_at(self._ending)
        elif not self._call.meant and (self._closed or (not self._values and self._step == self._between)):
            self._give_up("nothing of a call stands in it", len(self._tag))
        elif self._closes(finish_reason):
            self._finish(self._base, self._base, Fix("closer", f"no '</{self._root}>'"))
        else:
            self._tell([self._malformed(self._call.truncated(), "".join(self._pieces))], self._base)

    def _closes(self, finish_reason: str | None) -> bool:
        """Return whether the closing tag may be supplied: the model was done, and nothing but that tag was begun."""
        begun = "".join(self._words).strip()
        whole = not begun or begun.startswith("</")
        return self._step == self._between and bool(self._values) and whole and finish_reason in STOPPED

    def _begin(self) -> bool:
        """Consume the opening tag; return whether the call goes on after it."""
        if self._began:
            return True
        self._began = True
        if self._root != MCP:
            self.live += self._call.take_name(self._root) or []
        for key, double, single in ATTRIBUTE.findall(self._tag):
            if key in self._keys:
                self._put(key, double or single)
            elif not self._call.meant:
                self._give_up(f"{key!r} is no parameter", len(self._tag))
                return False
        if self._tag.endswith("/>"):
            self._finish(len(self._tag), len(self._tag), None)
        return not self._over

    def _last(self, rest: str) -> None:
        self._say(rest)

    def _say(self, words: str) -> None:
        super()._say(words)
        self._filled = self._filled or bool(words.strip())

    # --- what a tag means ----------------------------------------------------------------------------------------

    def _between(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        name = found["name"]
        has_text = self._filled
        if name == ARGS and self._around(kind):
            return True
        if kind == "close" and name == self._root:
            return self._root_closed(text, found, final)
        if kind == "close" or name not in self._keys or has_text:
            if name == self._root and kind != "close" and self._values:  # the next call of the tool
                self._finish(self._base, self._base, Fix("closer", f"no '</{self._root}>'"))
            elif not self._values and not self._call.meant:
                self._give_up("something else stands in it", len(self._tag))
            elif kind == "close":
                self._fix(f"{found[0]!r} too many")
            else:
                self._call.wrong = "something else stands between its arguments"
                self._say(found[0])
            return True
        self._spoken()
        self._key = name
        if kind == "empty":
            self._put(name, "")
        else:
            self._step = self._in_value
        return True

    def _around(self, kind: str) -> bool:
        """Consume a tag of the element around the arguments; return whether it is one."""
        opens = kind == "open" and not (self._values or self._args)
        if ARGS in self._keys or self._filled or not (opens or (kind == "close" and self._args)):
            return False
        if opens:
            self._fix(f"the arguments stood in '<{ARGS}>'")
        self._args = opens
        return True

    def _root_closed(self, text: str, found: re.Match[str], final: bool) -> bool:
        """End the call at its closing tag, and at a second one after it."""
        if self._keys and not self._quoted:
            after = self._tags.next(text, found.end())
            if after is None and not final:
                return False
            if after == f"/{self._root}":
                self._surplus = text.index(">", found.end()) + 1 - found.end()
        body = self._spoken()
        if body.strip() and not self._take_body(body):
            if not self._call.meant:
                self._give_up("what stands in it are no arguments", len(self._tag))
                return True
            self._call.wrong = "what stands in it are no arguments"
        surplus = Fix("closer", f"'</{self._root}>' too many") if self._surplus else None
        self._finish(self._base, self._base + len(found[0]) + self._surplus, surplus)
        return True

    def _take_body(self, words: str) -> bool:
        """Read a body that has no elements; return whether it can be read as arguments."""
        if self._values or self._root == MCP:
            return False
        if words.lstrip().startswith("{"):
            return self._take_object(json_body(words))
        if words.lstrip().startswith("<") and self._is_free():
            return self._take_object(free_elements(words))
        lines = mapping(words, self._keys)
        if lines is not None:
            self._take_lines(lines)
            return True
        tool = self._call.tool
        key = only_parameter(tool) if tool is not None and len(self._keys) == 1 else None
        if key is None or self._reserved or (self._root in HTML and not self._call.meant):
            return False
        self._call.fixes.append(Fix("unwrap", f"the body was bare words: taken as {key!r}"))
        self._put(key, words)
        return True

    def _is_free(self) -> bool:
        """Return whether the tool takes arguments that its schema does not declare."""
        tool = self._call.tool
        named = self._root in HTML and not self._call.meant
        takes = tool is not None and tool.parameters.get("additionalProperties") is not False
        return takes and not (self._keys or named or self._reserved)

    def _take_object(self, found: tuple[dict[str, Any], tuple[Fix, ...]] | None) -> bool:
        if found is None or (self._reserved and not self._keys.issuperset(found[0])):
            return False
        self._call.coerced += found[1]
        for key, value in found[0].items():
            self._values.setdefault(key, "")
            self.live += self._call.put(key, value)
        return True

    def _take_lines(self, lines: dict[str, Any]) -> None:
        """Add the values of lines of YAML; strings among them are typed by the schema."""
        place = self._call.place
        self._call.place = place._replace(dialect=YAML) if place.dialect == XML and lines else place
        for key, text in lines.items():
            value, fixes = value_of(self._rules, self._root, key, text) if isinstance(text, str) else (text, ())
            self._values[key] = ""
            self.live += self._call.put(key, value, fixes)

    def _in_value(self, kind: str, text: str, found: re.Match[str], final: bool) -> bool:
        name = found["name"]
        if name == self._key and kind == "close":
            ends = self._value_closed(text, found, final)
            if ends is None:
                return False
            if ends:
                self._end_value()
                return True
        elif name == self._root and kind == "open" and self._ending is not None and not self._quoted:
            self._end_at(self._ending)
            return True
        elif name == self._root and kind != "empty":
            self._closed = self._closed or (kind == "close" and not self._quoted)
            self._quoted = max(0, self._quoted + (1 if kind == "open" else -1))
        elif kind == "open" and name in self._keys:
            if self._ending is not None and not self._quoted:
                self._call.wrong = f"the closers in {self._key!r} belong to no tags of its own: it may be of two calls"
            self._inner += name == self._key
        self._say(found[0])
        return True

    def _value_closed(self, text: str, found: re.Match[str], final: bool) -> bool | None:
        """Return whether the value ends at its closing tag; None if more text is needed."""
        if self._quoted:
            return False
        after = self._tags.next(text, found.end())
        if after is None and not final:
            return None
        if after == f"/{self._root}":
            return self._call_ends(text, found, final, found.start())
        if after == f"/{ARGS}" and ARGS not in self._keys:
            after = self._tags.next(text, text.index(">", found.end()) + 1)
            if after is None and not final:
                return None
            after = None if after == f"/{self._root}" else after
        if self._inner:
            self._inner -= 1
            return False
        if after == f"/{self._key}":
            return self._closed_twice(text, found, final)
        return after is None or (after in self._keys and self._may_follow(after))

    def _may_follow(self, key: str) -> bool:
        """Return whether an element of this parameter may follow the value, rather than be part of its text."""
        if key == self._key or key not in self._values or self._is_list(key):
            return True
        types = self._types(self._key)
        return bool(types) and "string" not in types

    def _closed_twice(self, text: str, found: re.Match[str], final: bool) -> bool | None:
        """Return whether the value ends at a closing tag doubled before the tool's; None: more text is needed."""
        second = self._tags.pattern.match(text, text.index("<", found.end()))
        assert second is not None
        after = self._tags.next(text, second.end())
        if after is None and not final:
            return None
        return after == f"/{self._root}" and self._call_ends(text, second, final, found.start())

    def _call_ends(self, text: str, found: re.Match[str], final: bool, begins: int) -> bool | None:
        """Return whether the tool's closing tag after a value's is the last one; None if more text is needed.

        Text after it may still be part of the value.
        """
        end = self._tags.end.match(text, found.end())
        if end is None or (end.end() == len(text) and not final):
            return None if end is not None or not final else False
        last = end.end() == len(text) or text[end.end()] in "<`"
        inner, self._inner = self._inner, max(0, self._inner - 1)
        if last and not inner:
            return True
        closer = text.index(">", text.index("<", found.end())) + 1
        self._ending = _Ending(self._size, self._base + closer - begins)
        return False

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _is_list(self, key: str) -> bool:
        """Return whether a parameter is a list, so that its element may repeat."""
        types = self._types(key)
        return "array" in types and "string" not in types

    def _types(self, key: str) -> frozenset[str]:
        return self._rules.tools.types(self._root, key) if self._rules.tools is not None else frozenset[str]()

    def _put(self, key: str, text: str) -> None:
        if self._list and key == self._listed:
            self._list.append(text)
            return
        self._end_list()
        if key in self._values and self._is_list(key):
            self._call.wrong = f"{key!r} stood twice, apart from each other"
        self._values[key] = text
        if self._root == MCP and self._call.tool is None:
            return  # their tool is known only at the end
        if self._is_list(key):
            self._listed, self._list = key, [text]
            return
        value, fixes = element_value(self._rules, self._root, key, text)
        self.live += self._call.put(key, value, fixes)

    def _end_list(self) -> None:
        """Add the list that is now complete."""
        items, self._list = self._list, []
        if len(items) == 1:
            value, fixes = element_value(self._rules, self._root, self._listed, items[0])
            self.live += self._call.put(self._listed, value, fixes)
        elif items:
            self.live += self._call.put(self._listed, element_list(self._rules, self._root, self._listed, items))

    def _end_value(self, size: int | None = None) -> None:
        value = self._spoken()
        self._put(self._key, value if size is None else value[:size])
        self._inner, self._filled = 0, False
        self._ending = None
        self._step = self._between

    def _end_at(self, ending: _Ending) -> None:
        self._end_value(ending.size)
        self._finish(ending.at, ending.at, None)

    def _refuses(self) -> bool:
        return not self._values

    def _tell(self, parts: Sequence[Part], end: int) -> None:
        if self._reserved and (not self._values or any(part.malformed is not None for part in parts)):
            self._give_up("what is in it does not fit the tool", end)
            return
        super()._tell(parts, end)

    def _give_up(self, why: str, end: int) -> None:
        super()._give_up(why, len(self._tag) if self._reserved else end)

    def _check(self) -> None:
        self._end_list()
        if self._root != MCP:
            return
        tools, name = self._rules.tools, self._values.get("tool_name", "").strip()
        if tools is not None and tools.find(name) is None and tools.get(MCP) is not None:
            self.live += self._call.take_name(MCP) or []
            for key, text in self._values.items():
                self.live += self._call.put(key, *element_value(self._rules, MCP, key, text))
            return
        self.live += self._call.take_name(name) or []
        if not self._take_object(json_body(self._values.get("arguments", "").strip() or "{}")):
            self._call.wrong = "its arguments are no JSON object"
