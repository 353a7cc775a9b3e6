"""Hermes: JSON between `<tool_call>` tags, the trained format of Qwen 2.5, Qwen 3 and many fine-tunes.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}
    </tool_call>

Source: NousResearch/Hermes-Function-Calling (2024-03), the chat templates of Hermes 2 Pro, Qwen2.5 and Qwen3.
"""

from __future__ import annotations

from functools import lru_cache

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prefix_patterns import any_literal_text, any_of, literal_text, sequence
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import MarkedJson
from promptools.dialects.readers.yaml_reader import YAML_ALIAS, YamlReader, yaml_head
from promptools.dialects.reply_markers import WRONG_CLOSERS
from promptools.dialects.table import read_family
from promptools.parsing.parts import Candidate
from promptools.patterns import lazy_pattern
from promptools.types import Fix

TAGS = (
    "tool_call",
    "function_call",
    "function_calls",
    "tool_use",
    "toolcall",
    "functioncall",
    "tool-use",
    "tools",
    "tool",
    "call",
    "function",
    "action",
)
"""Tags that models put around the JSON of a call. Models are trained on the first of them."""

AMBIGUOUS_TAGS = ("json", "JSON", "xml", "response", "invoke", "functions", "tool_request")
"""Tags that have other uses too, so JSON in them needs as much evidence of a call as JSON without tags."""

_TAG = lazy_pattern(rf"<({'|'.join((*TAGS, *AMBIGUOUS_TAGS))})\b")

_BEFORE = (
    r"(?:\Z|`{1,3}\Z|(?=[{\[])"
    r"|```[\w+-]{0,16}\s{0,16}(?:\Z|(?=[{\[]))"
    r"|[A-Za-z_][\w.:-]{0,63}\s{0,8}(?:\Z|(?=[{\[])))"
)
"""Matches what is between the tag and the bracket of the JSON: nothing, a code fence, or the name of the tool."""
_NO_BRACKET = r"(?<=\n)(?=[{\[])"
"""Matches the position between a tag that lacks its `>` and JSON at the beginning of the next line."""
_ELEMENTS = sequence(
    literal_text("<tool_call>"),
    r"\s{0,64}",
    any_literal_text(("<name>", "<tool_name>")),
    r"\s{0,16}",
    r"[^\W\d][\w.:/-]{0,127}+",
    r"\s{0,16}",
    any_literal_text(("</name>", "</tool_name>")),
    r"\s{0,16}",
    any_literal_text(("<arguments>", "<parameters>")),
    r"\s{0,64}",
)
"""Matches `<tool_call>`, an element that contains the name, and a tag such as `<arguments>` before the arguments."""
_NAMED = lazy_pattern(r"<tool_call>\s*<(?:tool_)?name>\s*([\w.:/-]+)")
_CHANNELS = ("commentary", "analysis")
_HEADED = sequence(
    literal_text("<tool_call>"),
    r"\s{0,16}",
    any_of(r"(?=[tc]|an|<(?:\Z|\|(?:\Z|c)))", literal_text("assistant")),
    r"\s{0,4}",
    any_of(r"(?=t|\Z)", any_literal_text((*_CHANNELS, *(f"<|channel|>{channel}" for channel in _CHANNELS)))),
    r"\s{0,4}",
    literal_text("to="),
    r"[^\W\d][\w.-]{0,127}+",
    r"\s{0,4}",
    any_of(r"(?=[\s{jc]|<\|(?:co|m))", any_literal_text(f"<|channel|>{channel}" for channel in _CHANNELS)),
    r"\s{0,4}",
    any_of(r"(?=[\s{]|<\|m)", any_literal_text(("json", "code", "<|constrain|>json", "<|constrain|>code"))),
    r"\s{0,4}",
    any_of(r"(?=[\s{])", literal_text("<|message|>")),
    r"\s{0,16}",
)
"""Matches `<tool_call>` and a Harmony header, with or without its tokens; models trained on both formats write this."""
_ADDRESSED = lazy_pattern(
    rf"<tool_call>\s*(?:assistant)?\s*(?:(?:<\|channel\|>)?(?:{'|'.join(_CHANNELS)}))?\s*to=(?:functions\.)?([\w.-]+)"
)
_IN_ELEMENTS = Closers(right=("</arguments>", "</parameters>"), wrong=("</tool_call>",), openers=("<tool_call>",))


@lru_cache(maxsize=32)
def _closers(marker: str) -> Closers:
    others = tuple(f"</{tag}>" for tag in TAGS if tag != marker)
    return Closers(
        right=(f"</{marker}>",),
        wrong=tuple(closer for closer in (*others, "</tool_calls>", *WRONG_CLOSERS) if closer != f"</{marker}>"),
        openers=(f"<{marker}>",),
        # granite-20b-functioncalling and glaive-function-calling are trained without a closer
        line_end_closes=marker in {"function_call", "functioncall"},
    )


def closers_of(head: str) -> Closers:
    """Return the texts that may close a call, including wrong ones such as `</think>` (GLM) and `</function>`."""
    tag = _TAG.match(head)
    assert tag is not None
    return _closers(tag[1])


HEADS = (
    Head(
        tuple(f"<{tag}{end}" for tag in TAGS for end in "> \n"),
        rf"<(?:{'|'.join(TAGS)})(?:\Z|(?:[ \n][^<>{{}}]{{0,200}})?(?:\Z|>\s{{0,64}}{_BEFORE}|{_NO_BRACKET}))",
    ),
    Head(("<tool_call>",), _ELEMENTS, body_starts="{"),
    Head(("<tool_call>",), _HEADED, body_starts="{"),
    Head(
        tuple(f"<{tag}>" for tag in AMBIGUOUS_TAGS),
        any_of(*(sequence(literal_text(f"<{tag}>"), r"\s{0,64}") for tag in AMBIGUOUS_TAGS)),
        tier="B",
    ),
    yaml_head("<tool_call>"),
    yaml_head("<tool_calls>"),
)


class Hermes(MarkedJson):
    """The dialect of Hermes and Qwen 2.5: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the JSON or YAML after the tag `head`."""
        if head.startswith(YAML_ALIAS):
            return YamlReader(head.removeprefix(YAML_ALIAS), options, evidence, definite=definite)
        named = _NAMED.match(head)
        if named is not None:
            return JsonBlockReader(
                head,
                _IN_ELEMENTS,
                options,
                evidence,
                definite=definite,
                name=named[1],
                fixes=[Fix("marker", "its name is an element")],
            )
        addressed = _ADDRESSED.match(head)
        name = addressed[1] if addressed is not None else None
        fixes = [Fix("marker", "a Harmony header is in its tag")] if addressed is not None else []
        if ">" not in head:
            fixes.append(Fix("marker", f"{head.strip()!r} has no bracket at its end"))
        return JsonBlockReader(head, closers_of(head), options, evidence, definite=definite, name=name, fixes=fixes)


def hermes() -> DeclaredDialect:
    """Return the dialect of Hermes."""
    dialect = read_family("hermes", Hermes)
    dialect.heads = HEADS
    return dialect
