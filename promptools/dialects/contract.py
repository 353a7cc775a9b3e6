"""The contract of a dialect.

A dialect is a text format for tool calls. Parsing one takes two steps, so that text can be streamed:

1. The scanner searches the text for the dialect's `heads`. A `Head` matches the beginning of a call up to the first
   character of its body, or a prefix of that at the end of the buffer, which the scanner holds back until more text
   comes. `Head.begins` then returns whether the match may be a call: yes, no, or `NEED_MORE`.
2. `Dialect.candidate` makes a `Candidate` for the match, which is fed the body until it is decided whether this
   is a call. The candidate leaves parts that tile the text that it took: calls, malformed calls and markup, or plain
   text if there was no call.

A format in which every token belongs to a message with a header has `channels`, which split the reply into messages:
Harmony has only channels, Muse also has heads inside its messages. A dialect also declares the markers that its family
writes apart from calls (`reasoning_tags`, `answer_tags`, `result_openers`, `end_tokens`). These count in every reply,
whatever the dialect of its calls. The `render_*` methods write the format for prompt mode; a dialect without them can
only be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypedDict, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.errors import UsageError, clip
from promptools.parsing.parts import Candidate, NeedMore, Part, Segment, TriedStrategy
from promptools.parsing.scanner import RareLiteralMarker
from promptools.types import Call, Malformed, Result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.harmony.tokens import Piece
    from promptools.schema import Tools

Tier = Literal["S", "A", "B", "C"]
NAME_GATE: Final = r"[^\W\d]"
"""The gate of a line head that begins with the name of an offered tool, perhaps in a namespace."""
TAG_GATE: Final = r"<(?:[^\W\d]|\Z)"
"""The gate of a line head that is a tag named after an offered tool."""


class HeadPredicate(Protocol):
    """Decides whether the head `text[start:end]` may begin a call.

    `fresh`: no text comes before the head, or the request asked for this dialect.
    """

    def __call__(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether the head may begin a call; `NEED_MORE` if only more text can tell."""
        ...


class Head(NamedTuple):
    r"""Describes how a call begins, up to the first character of its body.

    `pattern` starts with one of `literals` and matches the whole head, or a prefix of it at the end of the text (`\Z`),
    so that the scanner knows what to hold back. The pattern may look ahead a few hundred characters at most, and must
    not contain groups. `body_starts` are the characters that a body may start with: a match before any other
    character is not a head. If there is `begins`, that decides instead whether the match may begin a call. A head
    without a marker is itself the beginning of the body, and its `body_starts` are empty.
    """

    literals: tuple[str, ...]
    pattern: str
    body_starts: str = "{["
    gate: str = ""
    """A cheap pattern that must match where the head begins.

    If it is empty, the text must begin with the first two characters of a literal.
    """
    begins: HeadPredicate | None = None
    fenced: bool = False
    """A code fence before the head is its marker, and is passed to the candidate as the head."""
    alias: str = ""
    """The text that is passed to the candidate as the head if the head has no marker."""
    at_start: bool = False
    """The head counts only where no text came before it."""
    at_line_start: bool = False
    r"""The head counts only at the beginning of a line, or of the content.

    `pattern` starts after the line's indent, and marks with `\Z` where the text may be cut. `literals` are the labels
    that the head may begin with, if any. A `gate` is fastest as literal text, or after a lookahead at the first
    character, `(?=[...])`: then lines that begin differently cost next to nothing.
    """
    first_words: tuple[str, ...] = ()
    """What a line head may begin with, besides its literals and the names of offered tools in any namespace."""
    unindented: bool = False
    """After other text, the line head counts only without an indent: indented text is code."""
    fence_labels: tuple[str | None, ...] = ()
    """The labels of the code fences in which the head counts. None among them means outside of fences.

    If the tuple is empty, the head counts anywhere.
    """
    tier: Tier | None = None
    """The head's tier, if it differs from the dialect's: the remains of stripped special tokens are weaker evidence."""
    on_request: bool = False
    """The head has no distinct marker: it is searched for only if the request asked for this dialect."""
    sure_pattern: str = ""
    """The pattern of a head so specific that a call has certainly begun, even if the text ends right after the head."""


class MessageFormat(NamedTuple):
    """Describes how a reply that consists of messages with headers is recognized, and split into its messages."""

    markers: tuple[str, ...]
    """The tokens that a header may begin with."""
    stripped_header: RareLiteralMarker
    """Matches what may be a header whose tokens were stripped."""
    begins: HeaderPredicate
    make_splitter: Callable[[ParseOptions, bool], MessageSplitter]
    """Makes a message splitter; the second argument says whether the text begins inside a header."""
    takes_text: Callable[[str, ParseOptions], bool] | None = None
    """Returns whether the body of a call of the named tool is free text, which cannot be streamed as JSON."""
    read_body: BodyReader | None = None
    """Reads the bodies of calls that are not JSON; None if all bodies are JSON."""


class MessageSplitter(Protocol):
    """Splits a reply into segments that tile the reply."""

    def feed(self, text: str) -> list[Segment]:
        """Consume a chunk of text; return the segments that became certain."""
        ...

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Segment]:
        """Consume pieces whose control tokens are already identified; return the segments that became certain."""
        ...

    def close(self, *, cut: bool) -> list[Segment]:
        """End the text; return the remaining segments. `cut`: the server cut the text off."""
        ...


class BodyReader(Protocol):
    """Reads the body of a call in a message if the body is not JSON. `ended`: the body is complete, not cut off."""

    def __call__(
        self, name: str, body: str, options: ParseOptions, evidence: Evidence, *, ended: bool
    ) -> Call | Malformed | None:
        """Return the call, or a malformed call; None if the body must be read as JSON."""
        ...


class HeaderPredicate(Protocol):
    """Decides whether a header begins at `text[at]`. `first`: no text precedes it; `final`: no more text will come."""

    def __call__(self, text: str, at: int, options: ParseOptions, *, first: bool, final: bool) -> bool | NeedMore:
        """Return whether a header begins at `text[at]`; `NEED_MORE` if only more text can tell."""
        ...


class Dialect(Protocol):
    """A text format for declaring tools, calling them and returning their results."""

    @property
    def name(self) -> str:
        """The name by which requests and configuration refer to the dialect."""
        ...

    @property
    def models(self) -> str:
        """The models that use the dialect, as text for people."""
        ...

    @property
    def typed(self) -> bool:
        """Whether calls show the types of their arguments; if False, only the tool's schema gives the types."""
        ...

    @property
    def tier(self) -> Tier:
        """How unmistakable the markers are: "S" special tokens, "A" readable tags, "B" ordinary text, "C" labels."""
        ...

    @property
    def heads(self) -> tuple[Head, ...]:
        """The texts with which calls begin, in search order."""
        ...

    @property
    def channels(self) -> MessageFormat | None:
        """How messages are recognized, if a reply consists of messages with headers; else None."""
        ...

    @property
    def closers(self) -> tuple[str, ...]:
        """Closing markers that may occur alone, after a call whose opener was lost."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings at which a server may stop generation in prompt mode."""
        ...

    @property
    def reasoning_tags(self) -> Mapping[str, str]:
        """The closing tag for each opening tag of reasoning; `{suffix}>` at the end of both matches any suffix."""
        ...

    @property
    def answer_tags(self) -> Mapping[str, str]:
        """The closing tag for each opening tag of an answer; an empty text if the format has no closing tag.

        An opening tag counts if no text came since the last tag or call. A closing tag counts after its opening tag.
        """
        ...

    @property
    def result_openers(self) -> tuple[str, ...]:
        """The texts with which a tool's result, or its turn, begins.

        A result after a call is made up, and so is all text after it.
        """
        ...

    @property
    def end_tokens(self) -> tuple[str, ...]:
        """Tokens that end a turn and that some server leaves in the text."""
        ...

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Other tokens of calls, results and messages. Prose never contains them; alone, they do not begin a call."""
        ...

    @property
    def turn_tokens(self) -> tuple[str, ...]:
        """Tokens of turns and prompts: dropped next to a call or after the end of a turn, kept as text elsewhere."""
        ...

    @property
    def tokens_before_text(self) -> tuple[str, ...]:
        """Tokens of heads that precede a program or a name. If no call follows, the tokens are part of the text."""
        ...

    @property
    def rescues(self) -> bool:
        """Whether a call at the end of the reasoning counts if the reply is otherwise empty."""
        ...

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a candidate for the text after `head`, to be fed from the first character of the body on.

        `definite`: if the candidate is read as a call, it stays a call, whatever text follows.
        """
        ...

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        ...

    def example_calls(self, tools: Tools) -> tuple[Call, Call]:
        """Return the calls that the prompt shows as examples; a copy of an example is not a call."""
        ...

    def call_id(self, call: Call, number: int) -> str:
        """Return the id by which the model knows a call; `number` counts the earlier calls in the conversation."""
        ...

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        ...

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        ...


class MarkerDeclarations(TypedDict, total=False):
    """The keyword arguments for the markers of a dialect that are not part of calls."""

    reasoning_tags: Mapping[str, str]
    answer_tags: Mapping[str, str]
    result_openers: tuple[str, ...]
    end_tokens: tuple[str, ...]
    control_tokens: tuple[str, ...]
    turn_tokens: tuple[str, ...]
    tokens_before_text: tuple[str, ...]
    rescues: bool


class Textual:
    """Base class of most dialects, with defaults for everything optional.

    A dialect without render methods can only be read: requesting it raises UsageError.
    """

    name: str
    models: str = ""
    typed: bool = True
    """Whether the text of an argument shows its type, such as number or string; if False, only the schema does."""
    tier: Tier = "A"
    heads: tuple[Head, ...] = ()
    channels: MessageFormat | None = None
    closers: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    reasoning_tags: Mapping[str, str] = {}
    answer_tags: Mapping[str, str] = {}
    result_openers: tuple[str, ...] = ()
    end_tokens: tuple[str, ...] = ()
    control_tokens: tuple[str, ...] = ()
    turn_tokens: tuple[str, ...] = ()
    tokens_before_text: tuple[str, ...] = ()
    rescues: bool = False

    def declare_markers(self, **declared: Unpack[MarkerDeclarations]) -> None:
        """Set the markers that are not part of calls, for a dialect without a class."""
        for member, value in declared.items():
            setattr(self, member, value)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Raise UsageError: the dialect can only be read."""
        del tools, parallel, required
        raise self._read_only_error("render_tools")

    def example_calls(self, tools: Tools) -> tuple[Call, Call]:
        """Return calls of offered tools, with placeholders for strings."""
        from promptools.dialects.prompt import example_calls  # for prompts alone

        return example_calls(tools)

    def call_id(self, call: Call, number: int) -> str:
        """Return the call's own id, since most formats contain no ids."""
        del number
        return call.id

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Raise UsageError: the dialect can only be read."""
        del calls
        raise self._read_only_error("render_calls")

    def render_results(self, results: Sequence[Result]) -> str:
        """Raise UsageError: the dialect can only be read."""
        del results
        raise self._read_only_error("render_results")

    def _read_only_error(self, missing: str) -> UsageError:
        return UsageError(
            f"The dialect {self.name!r} can only be read, not requested: request another one, or write its method"
            f" {missing!r}."
        )


def trace_entry(strategy: str, size: int, parts: Sequence[Part]) -> TriedStrategy:
    """Return the trace entry for a candidate that examined `size` characters and produced `parts`."""
    names: list[str] = []
    for part in parts:
        if part.malformed is not None:
            return TriedStrategy(strategy, "malformed", clip(part.malformed.message), size)
        if part.call is not None:
            names.append(part.call.name)
    return TriedStrategy(strategy, "call", ", ".join(names), size)
