"""ReAct: a thought, an action and its input, each after a label at the beginning of a line.

    Thought: I need the weather.
    Action: get_weather
    Action Input: {"city": "Oslo"}

The app writes `Observation:` and the result. Source: Yao et al. 2022 (arXiv:2210.03629), LangChain's ReAct and
structured chat agents, LlamaIndex's ReActAgent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import PLAUSIBLE_NAME
from promptools.dialects.contract import Head, Textual, Tier
from promptools.dialects.prefix_patterns import any_literal_text, sequence
from promptools.dialects.prompt import describe
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.free_text import AnswerLabel, ByFirstCharacter, LabelledCandidate
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.python_reader import CallLayout, PythonFallbackReader
from promptools.jsontext.text import dump
from promptools.parsing.parts import NEED_MORE, Candidate, CandidateBase, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_GATE = rf"(?=[*_ATF])(?:[*_]{{0,2}}{any_literal_text(('Action', 'Tool', 'Func'))}|[*_]{{1,2}}\Z)"
_COLON = r"[ _#]?\d{0,3}[*_]{0,2}[ \t]{0,4}(?:\Z|:[*_]{0,2})"
_ACTION = sequence(r"[*_]{0,2}", any_literal_text(("Action", "Tool", "Function")), _COLON)
_GAP = r"[ \t]{0,8}"
_QUOTE = r"[`\"']?"
_NAME = rf"{_QUOTE}[^\W\d][\w.-]{{0,80}}+{_QUOTE}"
_INPUTS: Final = (
    "Action Input",
    "Action_Input",
    "ActionInput",
    "Action Arguments",
    "Tool Input",
    "Tool_Input",
    "Function Input",
    "Arguments",
    "Args",
    "Parameters",
    "Input",
)
_INPUT = sequence(r"[*_]{0,2}", any_literal_text(_INPUTS), _COLON)
_FENCE = r"(?:`{1,2}\Z|```(?:\Z|[a-z]{0,8}\s{0,8}))?"
_PAIR = sequence(_ACTION, r"[ \t]{0,8}", _NAME, r"[ \t]{0,8}\r?", r"\n", r"\s{0,8}", _INPUT)
_CLOSERS = Closers(right=("```",), wrong=(), openers=(), required=False, next_call_markers=("\nAction:",))
_BLOB_CLOSERS = Closers(right=("```", "<end_action>", "<end_code>"), wrong=(), openers=(), required=False)
"""The closing markers of an object that names its tool, including stop strings of smolagents' ToolCallingAgent."""
_NAMED = lazy_pattern(rf"[^:]*:[*_]{{0,2}}\s*{_QUOTE}(\w[\w.-]*)")
_FINAL = r"[*_]{0,2}F"
_ANSWER = sequence(r"[*_]{0,2}", any_literal_text(("Final Answer",)), _COLON)
_TEXT_LABELS = lazy_pattern(r"[*_]{0,2}Action[^:]{0,8}:[^\n]*\n\s*[*_]{0,2}Action[ _]?Input")
"""Matches labels after which plain text is taken as a tool's input: `Action` and `Action Input`.

After other labels, it is taken as input only if the request asked for this dialect, because those labels also occur in
manuals.
"""
_NO_INPUT = rf"{_TEXT_LABELS.pattern}[^\n:]{{0,8}}:[*_]{{0,2}}[ \t]*"
"""Matches the labels of `_TEXT_LABELS` at the end of the text, with no input after them."""
_CALL = r"[^\W\d][\w.-]{0,80}+[ \t]{0,4}\("
_CALLEE = lazy_pattern(r"[^\W\d][\w.-]{0,80}")
_INLINE = CallLayout(brackets=False)


def _is_offered(text: str, start: int, end: int, options: ParseOptions) -> bool:
    """Return whether the label at `text[start]` names an offered tool.

    If the offered tools are unknown, any name that a tool could have counts.
    """
    match = _NAMED.match(text, start, end)
    if match is None:
        return False
    if options.tools is None:
        return PLAUSIBLE_NAME.match(match[1]) is not None
    return options.tools.find(match[1]) is not None


def _is_action(text: str, start: int, options: ParseOptions) -> bool:
    """Return whether the label is enough evidence of a call.

    Only `Action` is enough, unless the request asked for this dialect; other labels also occur in manuals.
    """
    return options.expect == "react" or text.startswith(("Action", "**Action", "__Action"), start)


def _object_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the labels name an offered tool and a JSON object follows them."""
    del fresh
    return NEED_MORE if end == len(text) else text[end] == "{" and _is_offered(text, start, end, options)


def _blob_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a JSON object follows the label. This object must name the tool, which is checked later."""
    del start, fresh, options
    return NEED_MORE if end == len(text) else text[end] == "{"


def _text_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the labels name an offered tool and plain text follows them as its input."""
    del fresh
    if end == len(text):
        return NEED_MORE
    sure = options.expect == "react" or _TEXT_LABELS.match(text, start, end) is not None
    return sure and options.tools is not None and text[end] not in "{`" and _is_offered(text, start, end, options)


def _call_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a Python call to an offered tool follows the label, as in `Action: get_weather(city="Oslo")`."""
    del fresh
    if end == len(text):
        return NEED_MORE
    callee = _CALLEE.match(text, end) if _is_action(text, start, options) else None
    return options.tools is not None and callee is not None and options.tools.find(callee[0]) is not None


def _answer_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the label of a final answer is complete, with no text before it."""
    del start, options
    return NEED_MORE if end == len(text) else fresh


def _brackets_begin(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether an offered tool's name and a bracket follow the label, as in `Action: search[Oslo]`."""
    del fresh
    if end == len(text):
        return NEED_MORE
    sure = options.tools is not None and _is_action(text, start, options)
    return sure and text[end] == "[" and _is_offered(text, start, end, options)


class _WithoutInputCandidate(CandidateBase):
    """Reads labels without input at the end of the text, such as `Action: ping` and an empty `Action Input:`."""

    def __init__(self, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._context = options, evidence
        self._pieces: list[str] = []

    def feed(self, piece: str, start: int) -> int | None:
        """Keep the text until the end, and return None."""
        self._pieces.append(piece[start:])
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text is a call, since no more text will come."""
        labels = "".join(self._pieces)
        named = _NAMED.match(labels)
        inner = LabelledCandidate(labels, named[1] if named else "", *self._context, definite=self.definite)
        inner.close(finish_reason)
        self.parts, self.unread, self.tries = inner.parts, inner.unread, inner.tries


_LABEL = Head((), _ACTION, body_starts="{", gate=_GATE, at_line_start=True)
_FINAL_ANSWER = Head(
    (), _ANSWER, body_starts="\n", gate=_FINAL, begins=_answer_begins, at_line_start=True, on_request=True
)
_HEADS = (
    _LABEL._replace(pattern=sequence(_PAIR, r"\s{0,16}", _FENCE), begins=_object_begins),
    _LABEL._replace(pattern=sequence(_PAIR, _GAP), body_starts="\n", begins=_text_begins),
    _LABEL._replace(pattern=sequence(_PAIR, _GAP), body_starts="", sure_pattern=_NO_INPUT),
    _LABEL._replace(pattern=sequence(_ACTION, r"\s{0,16}", _FENCE), begins=_blob_begins),
    _LABEL._replace(pattern=sequence(_ACTION, _GAP, _NAME), body_starts="[", begins=_brackets_begin),
    _LABEL._replace(
        pattern=sequence(_ACTION, rf"{_GAP}(?:(?={_CALL})|{_NAME}\Z)"), body_starts="(", begins=_call_begins
    ),
    _FINAL_ANSWER._replace(pattern=sequence(_ANSWER, _GAP), at_start=True),
    _FINAL_ANSWER,
)


class React(Textual):
    """The dialect of ReAct agents: `Action: NAME`, then `Action Input: {...}` on the next line."""

    name = "react"
    models = "any model that is told to in its prompt: LangChain's and LlamaIndex's ReAct agents"
    tier: Tier = "C"
    heads = _HEADS
    stop = ("Observation:",)
    result_openers = ("Observation:",)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the input after the labels in `head`.

        If `head` is empty, the `Candidate` reads labels without input. If `head` is the label of a final answer, the
        `Candidate` reads only that label.
        """
        if not head:
            return _WithoutInputCandidate(options, evidence, definite=definite)
        if head.lstrip("*_").startswith("Final"):
            return AnswerLabel(definite=definite, head=head)
        return ByFirstCharacter(
            head, lambda first: self._body(first, head, options, evidence, definite=definite), definite=definite
        )

    def _body(self, first: str, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        named = _NAMED.match(head)
        name = named[1] if named else None
        if first == "{":
            # an answer may be an object that looks like a call: without a name before it, it must name a tool
            evidence = evidence if name is not None else evidence._replace(expected=False)
            closers = _CLOSERS if name is not None else _BLOB_CLOSERS
            return JsonBlockReader(head, closers, options, evidence, definite=definite, name=name)
        if name is None:
            return PythonFallbackReader(head, _INLINE, options, evidence, definite=definite)
        return LabelledCandidate(head, name, options, evidence, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n\n".join(describe(tool) for tool in tools)
        several = " To use several at once, write one pair of lines for each." if parallel else ""
        when = "You must use a tool in this turn." if required else "If no tool is needed, answer in plain text."
        return f"""# Tools

You can use tools. These are the tools:

{listed}

To use one, say what you are about to do, then end your message with these two lines, the input as one JSON object:

Action: <the name of the tool>
Action Input: {{"parameter": "value"}}

Then stop: what the tool gives is told to you behind "Observation:", which you never write yourself.{several} {when}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "\n".join(f"Action: {call.name}\nAction Input: {dump(call.arguments)}" for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        return "\n".join(f"Observation: {result.content}" for result in results)
