"""What the parser knows about a reply while reading it, and the contract of the parser's states.

A state is a function `(state, text, at, final) -> Progress`. It consumes some of `text[at:]`, writes what is certain to
`state.out` and returns the offset at which to continue. When only more text can decide, it returns
`state.hold(offset)`, which is `NEED_MORE`: the text from there on is kept in `state.carry` and prepended to the next
chunk. With `final`, no more text will come, so the state must decide. `state.next` names the state that takes the text
that follows.

    prose      reply_start, prose, first_word, after_call, made_up_result         prose.py
    code       inline_start, inline_code, fenced_code, after_fenced_call, in_run  prose.py
    reasoning  reasoning_start, reasoning, holding_call, holding_trailing_calls   reasoning.py
    candidate  in_candidate                                                       candidates.py

`promptools.engine.machine` has the table of the states, and the loop that runs them.

Invariant: each character fed is in exactly one of the output, `carry`, the candidate and the held lists
(`code.fence_markup`, `reasoning.held_call`, `reasoning.trailing_calls`, `reasoning.rescue_tail`), and reaches the
output once and in order, so that the spans tile the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from promptools.parsing.emitter import Emitter
from promptools.parsing.parts import NEED_MORE, SPACE, Candidate, NeedMore, Part
from promptools.parsing.scanner import ForwardSearch, MarkerScanner
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from promptools.dialects.calls.parse_options import ParseOptions
    from promptools.dialects.contract import Dialect
    from promptools.engine.reasoning import CloserIndex
    from promptools.engine.scan_plan import ScanPlan


Progress: TypeAlias = int | NeedMore
"""The result of a state: the offset at which to continue, or `NEED_MORE`."""
Decision: TypeAlias = bool | NeedMore


def as_decision(answer: bool | NeedMore | None) -> Decision:
    """Convert a predicate's answer to a decision: None, which an app's own dialect may return, becomes `NEED_MORE`."""
    return NEED_MORE if answer is None else answer


StateName: TypeAlias = Literal[
    "reply_start",
    "prose",
    "first_word",
    "after_call",
    "made_up_result",
    "inline_start",
    "inline_code",
    "fenced_code",
    "after_fenced_call",
    "in_run",
    "reasoning_start",
    "reasoning",
    "holding_call",
    "holding_trailing_calls",
    "in_candidate",
]
RUNS: Final = {"`": lazy_pattern(r"`+"), "~": lazy_pattern(r"~+")}
"""For each character that can form a code fence, the pattern that matches a run of the character."""


class CodeState:
    """Holds what is known about the open inline code or the open fence."""

    def __init__(self) -> None:
        self.run_length = 0
        self.run_pattern = RUNS["`"]
        self.after_run: StateName = "prose"
        """The state after a run of backticks."""
        self.searched = 0
        """Number of characters at the beginning of the inline code that are known not to contain its end."""
        self.fence_markup: list[Part] = []
        """The opening markup of a fence, held until it is decided whether the fence begins with a call."""
        self.at_fence_start = False
        """Whether no text came before the fence. The value has a meaning only while the fence is open."""
        self.fence_label = ""
        """The label of the last fence, such as `json`."""


class ReasoningState:
    """Holds what is known about the reasoning in the reply."""

    def __init__(self) -> None:
        self.closer = ""
        """The closing tag of the open reasoning.

        If the chat template opened the reasoning, this is empty until a closing tag is read.
        """
        self.closed = False
        """Whether any reasoning in the reply has been closed."""
        self.scanner: MarkerScanner | None = None
        self.mentions_call = False
        """Whether a call in the open reasoning was only mentioned. If so, no later call in this reasoning counts."""
        self.closer_overlap = ""
        """The end of the held text. The closing tag may begin there and continue in the next chunk."""
        self.held_call: list[str] = []
        """A call inside open reasoning, and all text after it."""
        self.trailing_calls: list[str] = []
        """The last calls of closed reasoning, the closing tag, and white space. The calls count if no text follows."""
        self.rescue_tail: list[str] = []
        """The closing tag and the white space after the calls that end the reasoning, until those calls are parsed."""
        self.mentioned_tags: dict[str, int] = {}
        """Maps a closing tag to the number of its opening tags that the answer only mentioned as words.

        The same number of closing tags will be words too.
        """
        self.standalone_parses = 0
        self.verdicts: dict[int, bool] = {}
        """`StandaloneResult.verdicts` of the last held text that was parsed as a separate reply."""
        self.closers: CloserIndex | None = None
        """Finds the closing tags in the text that is being read."""


@dataclass(slots=True)
class OpenCandidate:
    """Holds a candidate that is still being read, and where it was found. A candidate is text that may be a call."""

    reader: Candidate
    group: str
    """The scanner's regex group of the marker that began the candidate."""
    start: int
    """The offset in the reply at which the candidate begins."""
    mentioned: bool
    """Whether the text before the candidate shows that the candidate is only talked about."""
    shown_in_fence: bool
    """Whether the candidate was in a fence and not definite when found. If so, text after it makes it an example."""
    on_call: StateName
    on_text: StateName
    """The state to go to if the candidate is not a call. If it is a call, the next state is `on_call`."""
    amid_words: bool = False
    """Whether there are words before the candidate, in a text that must consist only of calls for them to count."""
    quote_stem: str | None = None
    """The candidate's beginning, which is compared with the conversation; None if no quotation is possible."""
    stem_end: int = 0
    """Length of the part of `quote_stem` that is compared: up to the first character that may end the call.

    If no such character has arrived, this is the whole text so far, up to about `MAX_STEM` characters.
    """
    compared_size: int = 0
    """The length of `quote_stem` when it was last searched for in the conversation."""


class StandaloneResult(NamedTuple):
    """Describes what a text contains when it is parsed as a separate reply."""

    has_calls: bool
    has_text: bool
    has_malformed: bool
    has_truncated: bool
    """Whether one of the malformed calls lacks its end."""
    dialects: frozenset[str]
    """The dialects of the calls."""
    verdicts: dict[int, bool]
    """Maps the length of each examined suffix of the text to whether the suffix consists of calls and nothing else.

    One suffix is the whole text. Each call in unclosed reasoning begins another suffix, which ends with the text.
    """


@dataclass(slots=True)
class Levels:
    """Holds the levels of a text that is parsed as a separate reply.

    A level is a piece of the text that has its own output. The first level begins where the text begins. Each
    call in unclosed reasoning begins another level; see `machine.parse_standalone`.
    """

    size: int
    """The number of characters from the beginning of the current level to the end of the text."""
    finished: list[tuple[Emitter, int]] = field(default_factory=list[tuple[Emitter, int]])
    """The output and the size of each finished level."""


class SearchState:
    """Holds what is known about the chunk in which markers are searched for."""

    def __init__(self) -> None:
        self.text = ""
        """The chunk in which markers of prose were last searched for."""
        self.checked_text = ""
        """The chunk to which `has_rare_word` applies."""
        self.has_rare_word = False
        """Whether `checked_text` contains a word of `ScanPlan.rare_words`. If not, it cannot contain a rare marker."""
        self.swept_text = ""
        self.sweeps: dict[MarkerScanner, ForwardSearch] = {}
        """The searches through `swept_text`, one for each scanner."""

    def sweep_over(self, scanner: MarkerScanner, text: str) -> ForwardSearch:
        """Return the scanner's search through this text. The search is kept, so all its steps together are O(n)."""
        if text is not self.swept_text:
            self.swept_text = text
            self.sweeps.clear()
        known = self.sweeps.get(scanner)
        if known is None:
            known = self.sweeps[scanner] = ForwardSearch(scanner, text)
        return known


class ParserState:
    """Holds the state of one text: a reply, or a message's content. The text begins at offset `at` of the reply."""

    __slots__ = (
        "alone",
        "at_line_start",
        "candidate",
        "carry",
        "code",
        "comment_follows",
        "fed",
        "follows_text",
        "found_header",
        "frame_closer",
        "held_from",
        "last_named_end",
        "levels",
        "next",
        "options",
        "out",
        "parse_standalone",
        "plan",
        "reasoning",
        "search",
        "tool_scanners",
        "truncated",
        "unread",
        "words_before",
    )

    def __init__(
        self,
        options: ParseOptions,
        plan: ScanPlan,
        out: Emitter,
        parse_standalone: ParseStandalone,
        at: int = 0,
        *,
        alone: bool = False,
    ) -> None:
        self.options = options
        self.plan = plan
        self.tool_scanners = plan.scanners_for(options.tools.all_names if options.tools is not None else None)
        self.out = out
        self.parse_standalone = parse_standalone
        self.next: StateName
        self.begin()
        self.carry = ""
        """Text that is held back until more comes."""
        self.held_from = 0
        self.fed = at
        self.unread = ""
        """Text that the last candidate read but did not take."""
        self.found_header: tuple[Dialect, str] | None = None
        """The dialect of the first message with a header, and the text from the header on; None until then."""
        self.candidate: OpenCandidate | None = None
        self.comment_follows = False
        """Whether the reply began with a call in Python syntax that has just ended. If so, a comment may follow."""
        self.last_named_end: int | None = None
        """The offset at which the last candidate that began with a tool's name ended; None if there was none."""
        self.alone = alone
        """Whether calls count only if the text contains nothing else. True for a message that is the final answer."""
        self.words_before = len(out.record.pieces["text"])
        """Number of pieces of text that the output contained before this text."""
        self.follows_text = False
        """Whether this text is part of a larger one in which other text precedes it."""
        self.truncated = False
        """Whether the text has ended because it was truncated at the server's token limit."""
        self.at_line_start = True
        """Whether the next word is the first word of a line, or of the content."""
        self.frame_closer = ""
        """The closing tag for the open tag around the answer; empty if there is none."""
        self.code = CodeState()
        self.reasoning = ReasoningState()
        self.levels: Levels | None = None
        """The levels of a text that is parsed as a separate reply; None for any other text."""
        self.search = SearchState()

    def hold(self, at: int) -> NeedMore:
        """Hold back the text from `at` on, until more arrives."""
        self.held_from = at
        return NEED_MORE

    @property
    def in_fence(self) -> bool:
        """Whether the current offset is in a code fence, at a place where a call may begin."""
        return bool(self.code.fence_markup) or self.next == "after_fenced_call"

    @property
    def fence_label(self) -> str | None:
        """The label of the open fence, such as `json`; None outside of fences."""
        return self.code.fence_label if self.in_fence else None

    @property
    def has_words(self) -> bool:
        """Whether any part of this text has been written to the output as plain text."""
        return len(self.out.record.pieces["text"]) > self.words_before

    def begin(self) -> None:
        """Go to the state in which a text begins."""
        self.next = "reply_start" if self.plan.header_dialects else "prose"

    def begin_level(self, size: int) -> None:
        """Begin another level, `size` characters before the end of a text that is parsed as a separate reply."""
        assert self.levels is not None
        self.levels.finished.append((self.out, self.levels.size))
        self.levels.size = size
        self.out = self.out.silent()
        self.frame_closer, self.at_line_start = "", True
        self.reasoning.closed, self.reasoning.mentioned_tags = False, {}
        self.begin()

    def write_space(self, text: str, at: int) -> int:
        """Write white space at `text[at]` to the output, and return where it ends."""
        bare = at
        while bare < len(text) and text[bare] in SPACE:
            bare += 1
        if bare > at:
            self.out.add_text(text[at:bare])
        return bare

    def line_heads(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Yield the scanner's regex group and the end of each head that matches at `text[at]`.

        The first word of a line begins there.
        """
        if self.tool_scanners.first_words.begins(text, at):
            yield from self.plan.line_heads.match(text, at)


StateFunction: TypeAlias = Callable[[ParserState, str, int, bool], Progress]
"""A state: it consumes some of `text[at:]`, and returns the offset at which to continue, or `state.hold(offset)`."""
ParseStandalone: TypeAlias = Callable[[ParserState, str, "str | None"], StandaloneResult]
"""A function that parses a text as a separate reply, given a state with the options, the text and a finish reason."""
