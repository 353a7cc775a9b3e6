"""Families that write keys and values as GLM does, with tags of their own.

    <tool_calls>
    <tool_call>get_weather<tool_sep>
    <arg_key>city</arg_key>
    <arg_value>Oslo</arg_value>
    </tool_call>
    </tool_calls>

is Hunyuan 3; Hunyuan 4 has no separator, but the same suffix on every tag (`<tool_call:6124c78e>`). K2 Horizon writes
the type of each argument. Source: the parsers of vLLM 0.32 (`hy_v3`, `hy_v4`, `k2_horizon`, `poolside_v1`) and SGLang
0.5.23 (`iquest_q1`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from promptools.dialects.calls.resolve import ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.families.glm import Glm
from promptools.dialects.prefix_patterns import literal_text
from promptools.dialects.readers.key_value.pair_tags import PairTags, json_opening_pattern, opening_pattern, pair_tags
from promptools.types import Call, Result

_SUFFIX = r"[\w-]{1,32}+"
_SUFFIXED = re.compile(rf"<tool_calls?(:{_SUFFIX})>")
_CALL = rf"{literal_text('<tool_call:')}(?:\Z|{_SUFFIX}(?:\Z|>))"
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class Laguna(Glm):
    """GLM's tags, and a list of tools in tags of its own."""

    name = "laguna"
    models = "Laguna (poolside)"
    list_tag = "available_tools"


class Iquest(Glm):
    """`<iquest_tool_call>NAME<arg_key>...</iquest_tool_call>`."""

    name = "iquest"
    models = "IQuest"
    tier = "S"
    heads = (
        Head(("<iquest_tool_call>",), opening_pattern("<iquest_tool_call>", "iquest_tool_call"), body_starts="<"),
        Head(("<iquest_tool_call>",), json_opening_pattern("<iquest_tool_call>")),
    )
    closers = ("</iquest_tool_call>", "<iquest_tool_call>")
    tag_set = pair_tags("iquest_tool_call")


def _within(wrapper: str, call: str) -> str:
    """Return the pattern of a call's opening tag after its wrapper's."""
    return rf"{re.escape(wrapper)}\s{{0,64}}+(?:\Z|{literal_text(call)})"


class _WrappedGlm(Glm):
    """Calls in a wrapper: the head of the first call includes the wrapper's opening tag."""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them; one that tags cannot express is JSON between its own."""
        return self._wrapped(super().render_calls(calls))

    def _wrapped(self, inner: str) -> str:
        return f"{self.tag_set.opener('tool_calls')}\n{inner}\n{self.tag_set.closer('tool_calls')}"

    def render_example(self) -> str:
        """Return an example of the format."""
        return self._wrapped(super().render_example())


class K2Horizon(_WrappedGlm):
    """`<ifm|tool_call>NAME<ifm|arg_key>...`, with the type of each argument."""

    name = "k2_horizon"
    models = "K2 Horizon (IFM)"
    tier = "S"
    typed = True
    heads = (
        Head(
            ("<ifm|tool_calls>",),
            opening_pattern(_within("<ifm|tool_calls>", "<ifm|tool_call>"), prefix="ifm|"),
            body_starts="<",
        ),
        Head(("<ifm|tool_call>",), opening_pattern(re.escape("<ifm|tool_call>"), prefix="ifm|"), body_starts="<"),
        Head(("<ifm|tool_calls>",), json_opening_pattern(_within("<ifm|tool_calls>", "<ifm|tool_call>"))),
        Head(("<ifm|tool_call>",), json_opening_pattern(re.escape("<ifm|tool_call>"))),
    )
    closers = ("</ifm|tool_calls>", "</ifm|tool_call>", "<ifm|tool_calls>", "<ifm|tool_call>")
    stop = ()
    reasoning_tags: Mapping[str, str] = {  # it thinks at three speeds
        "<ifm|think>": "</ifm|think>",
        "<ifm|think_fast>": "</ifm|think_fast>",
        "<ifm|think_faster>": "</ifm|think_faster>",
    }
    tag_set = pair_tags(prefix="ifm|")

    def before_value(self, value: Any) -> str:
        """Return the type of the argument in its tags."""
        kind = "null" if value is None else _KINDS[value.__class__]
        return f"{self.tag_set.opener('arg_type')}{kind}{self.tag_set.closer('arg_type')}{self.separator}"


def _same_suffix(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether the wrapper and the call have the same suffix, by which a checkpoint marks its own tags."""
    del fresh, rules
    if end == len(text):
        return None
    return text[end] == "<" and len(set(_SUFFIXED.findall(text, start, end))) == 1


class Hunyuan(_WrappedGlm):
    """`<tool_calls><tool_call>NAME<tool_sep><arg_key>...`, or the same with a suffix on every tag."""

    name = "hunyuan"
    models = "Hunyuan 3 and 4"
    heads = (
        Head(("<tool_calls>",), opening_pattern(_within("<tool_calls>", "<tool_call>")), body_starts="<"),
        Head(("<tool_call>",), opening_pattern("<tool_call>", after=("<tool_sep>",)), body_starts="<"),
        Head(
            ("<tool_calls:", "<tool_call:"),
            opening_pattern(rf"(?:<tool_calls:(?:\Z|{_SUFFIX}(?:\Z|>\s{{0,64}}+(?:\Z|{_CALL})))|{_CALL})"),
            body_starts="<",
            begins=_same_suffix,
        ),
        Head(("<tool_calls>",), json_opening_pattern(_within("<tool_calls>", "<tool_call>"))),
        Head(("<tool_call>",), json_opening_pattern("<tool_call>")),
    )
    closers = ("</tool_calls>", "</tool_call>", "<tool_calls>", "<tool_call>")
    stop = ("<tool_responses>",)
    reasoning_tags: Mapping[str, str] = {"<think:{suffix}>": "</think:{suffix}>"}  # Hunyuan 4
    result_openers = ("<tool_responses>",)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        inner = "\n".join(f"<tool_response>{result.content}</tool_response>" for result in results)
        return f"<tool_responses>\n{inner}\n</tool_responses>"

    def after_name(self) -> str:
        """Return the separator."""
        return self.tag_set.opener("tool_sep")

    def _tags_in(self, head: str) -> PairTags:
        suffix = _SUFFIXED.search(head)
        return pair_tags(suffix=suffix[1]) if suffix else self.tag_set
