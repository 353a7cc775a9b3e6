r"""The dialect kind `nested`: a marker precedes every tag, and parameters are elements, nested like the arguments.

    mark = "]<]minimax[>["
    wrapper = "{mark}<tool_call>\n{calls}\n{mark}</tool_call>"
    call = "{mark}<invoke name=\"{name}\">{parameters}{mark}</invoke>"

A parameter is `{mark}<key>value{mark}</key>`. The items of a list are elements with the name `item`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prompt import DEFAULT_INSTRUCTIONS, GENERIC_CALL, NAME_SLOT, Instructions, fill
from promptools.dialects.readers.element_value import build_tree, read_members
from promptools.dialects.readers.nested_reader import MarkedTagTokenizer, NestedReader, NestedTags
from promptools.dialects.readers.tag_dialect import TAGS_WORDING, word_of
from promptools.dialects.readers.tag_heads import LOOKAHEAD_PATTERN, may_be_tool
from promptools.dialects.readers.tags import Tag, TokenBuffer, is_blank, raw_text
from promptools.dialects.written_calls import PARAMETER_SLOT, may_hold_tag
from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call

_CALL = lazy_pattern(
    r'\{mark\}<(?P<word>[A-Za-z_][\w.-]*) (?P<attribute>[A-Za-z_][\w:-]*)="\{name\}">\{parameters\}\{mark\}</(?P=word)>'
)
_WRAPPER = lazy_pattern(r"\{mark\}<(?P<word>[A-Za-z_][\w.-]*)>\s*\{calls\}\s*\{mark\}</(?P=word)>")
_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)


def is_call(template: object) -> bool:
    """Return whether a value is a valid template of a call."""
    return isinstance(template, str) and _CALL.fullmatch(template) is not None


def is_wrapper(template: object) -> bool:
    """Return whether a value is a valid template of the tags around all calls."""
    return isinstance(template, str) and _WRAPPER.fullmatch(template) is not None


class NestedDialect(DeclaredDialect):
    """A dialect whose calls are nested elements, with a marker before each tag.

    `mark`: the marker, which is `{mark}` in the templates. `call` and `wrapper`: the templates of a call, and of the
    tags around all calls. `odd_wrappers`: other opening tags that are accepted as the wrapper's, with a recorded fix.
    `item`: the name of the element that holds one item of a list. `separator`: the white space between two calls.
    """

    wording = TAGS_WORDING

    def __init__(
        self,
        name: str,
        mark: str,
        call: str,
        *,
        wrapper: str = "",
        odd_wrappers: Sequence[str] = (),
        item: str = "item",
        separator: str = "\n",
        **common: Unpack[CommonKeys],
    ) -> None:
        found, around = _CALL.fullmatch(call), _WRAPPER.fullmatch(wrapper)
        assert found is not None
        self.tags = NestedTags(
            mark=mark,
            call=found["word"],
            attribute=found["attribute"],
            wrapper=around["word"] if around is not None else "",
            odd_wrappers=tuple(map(word_of, odd_wrappers)),
            item=item,
        )
        self.grammar = self.tags.grammar()
        self._call_template, self._wrapper_template, self._separator = call, wrapper or "{calls}", separator
        common.setdefault("closers", tuple(filter(None, (self.grammar.wrapper[1], self.grammar.closers[0]))))
        super().__init__(name, **common)
        self._instructions = self._complete(common.get("instructions", {}))
        self.heads = (Head((mark,), re.escape(mark) + LOOKAHEAD_PATTERN, body_starts="", begins=self._begins),)

    def _begins(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether a wrapper or a call begins at the marker.

        In tier "S" (special tokens), the opening tag is enough. In other tiers, a call must follow the opening tag of a
        wrapper, and a call without a wrapper must name an offered tool, or any plausible tool if the tools are unknown.
        """
        del fresh
        tokenizer, at, window = MarkedTagTokenizer(self.tags), 0, text[start:end]
        wrapped = False
        while at < len(window):
            token = tokenizer.next(window, at, final=False)
            if token is None:
                break
            if isinstance(token, Tag):
                if token.close or token.kind not in ("wrap", "call") or not token.raw.startswith(self.tags.mark):
                    return False
                if self.tier == "S":
                    return True
                if token.kind == "call":
                    return wrapped or may_be_tool(token.name, options)
                wrapped = True
            elif not is_blank(token):
                return False
            at += len(raw_text(token))
        return NEED_MORE if end == len(text) else False

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a reader of a block of calls. The text to read starts at the first marker."""
        del head
        return NestedReader(self.tags, self.grammar, options, evidence, definite=definite)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Return calls as text in the model's own format.

        If a call's arguments would not be read back unchanged from elements, they are written as JSON.
        """
        return self._wrapped([self._render_call(call) for call in calls])

    def _wrapped(self, written: Sequence[str]) -> str:
        values = {"calls": self._separator.join(written), "mark": self.tags.mark}
        return fill(self._wrapper_template, values)

    def _render_call(self, call: Call) -> str:
        elements = self._written_elements(call)
        return self._with_parameters(call.name, call.arguments_json if elements is None else elements)

    def _with_parameters(self, name: str, parameters: str) -> str:
        return fill(self._call_template, {"name": name, "parameters": parameters, "mark": self.tags.mark})

    def _written_elements(self, call: Call) -> str | None:
        """Return the arguments as elements; None if they would not be read back unchanged from these elements."""
        given = dump(call.arguments)
        if may_hold_tag(given) or self.tags.mark in given:
            return None
        text = self._inside(call.arguments)
        return text if self._reads_back(text, call) else None

    def _element(self, name: str, value: Any) -> str:
        mark = self.tags.mark
        return f"{mark}<{name}>{self._inside(value)}{mark}</{name}>"

    def _inside(self, value: Any) -> str:
        if is_object(value):
            return "".join(self._element(key, member) for key, member in value.items())
        if is_array(value):
            return "".join(self._element(self.tags.item, item) for item in value)
        return value if isinstance(value, str) else dump(value)

    def _reads_back(self, text: str, call: Call) -> bool:
        """Return whether `text`, a call's arguments written as elements, is read back as the same arguments.

        The text is read without a schema. Empty texts, lists and objects count as equal, because each of them is
        written as an element without content.
        """
        if not all(map(_NAME.match, call.arguments)):
            return False
        buffer = TokenBuffer(MarkedTagTokenizer(self.tags), text)
        buffer.final = True
        while buffer.read():
            pass
        root, fixes = build_tree(buffer.tokens, self.tags.mark)
        found = read_members(root, {}, {}, item=self.tags.item)
        return not fixes and json.dumps(_blanked(found)) == json.dumps(_blanked(call.arguments))

    def _complete(self, given: Mapping[str, str]) -> Instructions:
        """Return the instructions from a dialect's table, completed with the default texts for this kind of dialect."""
        if given.get("text"):
            return TAGS_WORDING._replace(**{"format": self._wrapped([self._generic_call()]), **given})
        return DEFAULT_INSTRUCTIONS._replace(**given)

    def _shows(self, call: Call) -> bool:
        return self._written_elements(call) is not None

    def _render_examples(self, calls: Sequence[Call]) -> str:
        """Return the example calls of a prompt as text.

        A call may be `GENERIC_CALL`, for which `_generic_call` returns the text.
        """
        return self._wrapped(
            [self._generic_call() if call is GENERIC_CALL else self._render_call(call) for call in calls]
        )

    def _generic_call(self) -> str:
        """Return the text of `GENERIC_CALL`, which has a placeholder in place of a tool's name.

        If the model copies this text into a reply, the copy is not read as a call.
        """
        return self._with_parameters(NAME_SLOT, self._element(PARAMETER_SLOT, "its value"))


def _blanked(value: Any) -> Any:
    """Return a value with an empty text in place of each empty list and object."""
    if is_object(value):
        return {key: _blanked(member) for key, member in value.items()} or ""
    return ([_blanked(item) for item in value] or "") if is_array(value) else value
