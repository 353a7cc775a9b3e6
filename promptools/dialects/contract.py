"""Define the interface of a dialect, a text format in which models write tool calls.

Reading a call takes two steps, so that text can be streamed:

1. The scanner searches the text for the dialect's `heads`. A `Head` describes the text that begins a call, such as
   `<tool_call>`, up to the first character of the call's body. If the buffer ends inside a head, the scanner holds the
   incomplete head back until more text comes. `Head.begins` then decides whether the text may begin a call: yes, no, or
   `NEED_MORE`.
2. `Dialect.candidate` makes a `Candidate`, which reads the body until it is clear whether this is a call. The result is
   a list of parts, which together make up the text that was read: calls, malformed calls and markup, or plain text if
   there was no call.

In some formats, a reply is a series of messages with headers. Dialects of such formats have `channels`, which split the
reply into messages. Harmony has only channels; Muse also has heads inside its messages.

A dialect also declares the markers that its models write outside of calls, such as `reasoning_tags` and `end_tokens`.
These markers are recognized in every reply, whichever dialect its calls are written in. The `render_*` methods write
the format for prompt mode; a dialect without them can only be read.
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
"""The `Head.gate` for calls whose line begins with an offered tool's name, perhaps with a namespace before the name."""
TAG_GATE: Final = r"<(?:[^\W\d]|\Z)"
"""The `Head.gate` for calls whose line begins with a tag named after an offered tool, such as `<get_weather>`."""


class HeadPredicate(Protocol):
    """Decides whether `text[start:end]`, which matches the pattern of a `Head`, may begin a call.

    `fresh` is true in three cases: the match is at the beginning of the content or of a code fence; the match directly
    follows a call; or the request asked for this dialect and the head is not `at_start`.
    """

    def __call__(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether `text[start:end]` may begin a call; `NEED_MORE` if that depends on text still to come."""
        ...


class Head(NamedTuple):
    r"""Describes the text that begins a call, such as `<tool_call>`, up to the first character of the call's body.

    `pattern` starts with one of `literals` and matches the whole head. At the end of the text (`\Z`), it also matches
    the beginning of a head, so that the scanner knows what to hold back. The pattern may look ahead a few hundred
    characters at most, and must not contain groups. `body_starts` are the characters with which a body may start: a
    match begins a call only if one of them follows. If `begins` is given, that function decides instead. If a call has
    no marker, the matched text is itself part of the body, and `body_starts` is empty.
    """

    literals: tuple[str, ...]
    pattern: str
    body_starts: str = "{["
    gate: str = ""
    """A cheap pattern that is tried before `pattern`, at the same offset. If it does not match, no call begins there.

    If `gate` is empty, the first two characters of each string in `literals` are used instead.
    """
    begins: HeadPredicate | None = None
    fenced: bool = False
    """Whether a code fence before the call serves as the call's marker.

    If so, `Dialect.candidate` gets the fence as `head`.
    """
    alias: str = ""
    """The text that is passed to `Dialect.candidate` as `head` if `body_starts` is empty.

    The matched text is then part of the body.
    """
    at_start: bool = False
    """Whether a match begins a call only if no text came before it."""
    at_line_start: bool = False
    r"""Whether a match begins a call only at the beginning of a line, or of the content.

    If so, three other fields have these rules:

    - `pattern` starts after the line's indent, and allows `\Z` wherever the text may be cut off.
    - `literals` are labels with which the line may begin, such as `Action:`; there may be none.
    - `gate` should be literal text, or a pattern that begins with a lookahead at the first character, `(?=[...])`.
      Lines that begin with another character then cost next to nothing.
    """
    first_words: tuple[str, ...] = ()
    """Words, besides `literals` and tool names, with which a call's line may begin. Used only with `at_line_start`."""
    unindented: bool = False
    """Whether a call's line must have no indent if text comes before the line, because indented text may be code."""
    fence_labels: tuple[str | None, ...] = ()
    """Labels of the code fences inside which a match may begin a call.

    None in the tuple stands for text outside of fences. If the tuple is empty, a match may begin a call anywhere.
    """
    tier: Tier | None = None
    """Tier of the calls that this head finds: how distinctive their markers are (see `Dialect.tier`).

    None stands for the tier of the dialect itself. For example, a head that finds calls whose special tokens were
    stripped may have a weaker tier than its dialect.
    """
    on_request: bool = False
    """Whether `pattern` is searched for only if the request asked for the dialect.

    This is for patterns that contain no marker that distinguishes the dialect from others.
    """
    sure_pattern: str = ""
    """A pattern for text that is certainly the beginning of a call, even if the reply ends right after it."""


class MessageFormat(NamedTuple):
    """Describes a reply that is a series of messages with headers: how to recognize it, and how to split it."""

    markers: tuple[str, ...]
    """The tokens that a header may begin with."""
    stripped_header: RareLiteralMarker
    """Matches text that may be a header whose special tokens a server has stripped."""
    begins: HeaderPredicate
    make_splitter: Callable[[ParseOptions, bool], MessageSplitter]
    """Makes a message splitter; the second argument says whether the text begins inside a header."""
    takes_text: Callable[[str, ParseOptions], bool] | None = None
    """Returns whether calls to the named tool have a body of free text, which cannot be streamed as JSON."""
    read_body: BodyReader | None = None
    """Reads those call bodies that are not JSON; None if all bodies are JSON."""


class MessageSplitter(Protocol):
    """Splits a reply into segments; together, the segments are the whole reply."""

    def feed(self, text: str) -> list[Segment]:
        """Read a piece of text; return the segments that no later text can change."""
        ...

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Segment]:
        """Read pieces that are either text or control tokens; return the segments that no later text can change."""
        ...

    def close(self, *, cut: bool) -> list[Segment]:
        """Signal the end of the text; return the remaining segments. `cut`: whether the server cut the text off."""
        ...


class BodyReader(Protocol):
    """Reads the body of a call in a message if the body is not JSON.

    `ended` is true if the body is complete, and false if it was cut off.
    """

    def __call__(
        self, name: str, body: str, options: ParseOptions, evidence: Evidence, *, ended: bool
    ) -> Call | Malformed | None:
        """Return the call, or a malformed call; None if the body must be read as JSON."""
        ...


class HeaderPredicate(Protocol):
    """Decides whether the header of a message begins at `text[at]`.

    `first` is true if no text precedes the header. `final` is true if no more text will come.
    """

    def __call__(self, text: str, at: int, options: ParseOptions, *, first: bool, final: bool) -> bool | NeedMore:
        """Return whether a header begins at `text[at]`; `NEED_MORE` if that depends on text still to come."""
        ...


class Dialect(Protocol):
    """A text format for declaring tools, calling them and returning their results."""

    @property
    def name(self) -> str:
        """The name by which requests and configuration refer to the dialect."""
        ...

    @property
    def models(self) -> str:
        """The models that use the dialect, as human-readable text."""
        ...

    @property
    def typed(self) -> bool:
        """Whether calls show the types of arguments, as JSON does; if False, only the tool's schema gives the types."""
        ...

    @property
    def tier(self) -> Tier:
        """How distinctive the markers of calls are.

        "S": special tokens, which prose never contains. "A": tags in ordinary characters, such as `<tool_call>`. "B":
        ordinary text. "C": labels, such as `Action:`.
        """
        ...

    @property
    def heads(self) -> tuple[Head, ...]:
        """Descriptions of the texts that begin calls, in search order."""
        ...

    @property
    def channels(self) -> MessageFormat | None:
        """How to recognize and split the messages of a reply; None if replies are not messages with headers."""
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
        """Maps each opening reasoning tag to its closing tag.

        If both tags end with `{suffix}>`, this end matches any suffix: `<think:{suffix}>` matches `<think:abc>`.
        """
        ...

    @property
    def answer_tags(self) -> Mapping[str, str]:
        """Maps each opening answer tag to its closing tag, which is empty if the format has no closing tag.

        An opening tag is recognized only if no text has come since the last tag or call, and a closing tag only after
        its opening tag.
        """
        ...

    @property
    def result_openers(self) -> tuple[str, ...]:
        """Markers that begin a tool's result, or the turn that contains the result.

        If the model writes a result after a call, it made up the result and all text after it.
        """
        ...

    @property
    def end_tokens(self) -> tuple[str, ...]:
        """Tokens that end a turn. Some servers leave them in the text."""
        ...

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Tokens in calls, results and messages, besides the markers in the other attributes.

        Prose never contains these tokens, but such a token alone does not begin a call.
        """
        ...

    @property
    def turn_tokens(self) -> tuple[str, ...]:
        """Tokens that mark turns or belong to a prompt.

        They are dropped next to a call and after the end of a turn, and kept as text elsewhere.
        """
        ...

    @property
    def tokens_before_text(self) -> tuple[str, ...]:
        """Tokens that begin a call but may also introduce a program or a name, such as `<|python_tag|>`.

        If text follows instead of a call, the token is kept as part of that text.
        """
        ...

    @property
    def rescues(self) -> bool:
        """Whether a call at the end of the reasoning is accepted as a call if the reply is otherwise empty."""
        ...

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the body of a possible call after `head`, the text that begins the call.

        Feed the candidate the text from the first character of the body on. `definite` is true if no text that follows
        the body can change the decision that the body is a call.
        """
        ...

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        ...

    def example_calls(self, tools: Tools) -> tuple[Call, Call]:
        """Return the calls that the prompt shows as examples. A copy of one in a reply is not read as a call."""
        ...

    def call_id(self, call: Call, number: int) -> str:
        """Return the id by which the model knows a call. `number`: how many calls precede it in the conversation."""
        ...

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        ...

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        ...


class MarkerDeclarations(TypedDict, total=False):
    """Keyword arguments that declare the markers that a dialect has outside of calls, such as reasoning tags."""

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
        """Set markers that are not part of calls, such as `reasoning_tags`, as attributes of the dialect."""
        for member, value in declared.items():
            setattr(self, member, value)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Raise UsageError: the dialect can only be read."""
        del tools, parallel, required
        raise self._read_only_error("render_tools")

    def example_calls(self, tools: Tools) -> tuple[Call, Call]:
        """Return two calls to offered tools, with placeholders as string arguments."""
        from promptools.dialects.prompt import example_calls  # for prompts alone

        return example_calls(tools)

    def call_id(self, call: Call, number: int) -> str:
        """Return the call's own id, since most formats define no ids for calls."""
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
    """Return the trace entry for a possible call: `strategy` read `size` characters of it and produced `parts`.

    `strategy`: a name for the way of reading, usually the name of the dialect.
    """
    names: list[str] = []
    for part in parts:
        if part.malformed is not None:
            return TriedStrategy(strategy, "malformed", clip(part.malformed.message), size)
        if part.call is not None:
            names.append(part.call.name)
    return TriedStrategy(strategy, "call", ", ".join(names), size)
