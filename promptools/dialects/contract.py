"""Define the interface of a dialect, a text format in which models write tool calls.

Reading a call takes two steps, so that text can be streamed:

1. The scanner searches the text for the dialect's `heads`. A `Head` describes the text that begins a call, such as
   `<tool_call>`, up to the first character of the call's body. If the buffer ends inside a head, the scanner holds that
   end back until more text comes. `Head.begins` then decides whether the text may begin a call: yes, no, or
   `NEED_MORE`.
2. `Dialect.candidate` makes a `Candidate`, which reads the body until it knows whether this is a call. Its result is a
   list of parts that together are the text that it read: calls, malformed calls and markup, or plain text if there was
   no call.

In some formats, a reply is a series of messages with headers. Dialects of such formats have `channels`, which split the
reply into messages. Harmony has only channels; Muse also has heads inside its messages.

A dialect also declares the markers that its models write outside of calls, such as `reasoning_tags` and `end_tokens`.
These markers count in every reply, whatever the dialect of its calls. The `render_*` methods write the format for
prompt mode; a dialect without them can only be read.
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
"""The `Head.gate` for calls that begin a line with an offered tool's name, which may have a namespace before it."""
TAG_GATE: Final = r"<(?:[^\W\d]|\Z)"
"""The `Head.gate` for calls that begin a line with a tag named after an offered tool, such as `<get_weather>`."""


class HeadPredicate(Protocol):
    """Decides whether `text[start:end]`, which matches the pattern of a `Head`, may begin a call.

    `fresh`: the match begins the content or a code fence, or directly follows a call; or the request asked for this
    dialect.
    """

    def __call__(self, text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
        """Return whether `text[start:end]` may begin a call; `NEED_MORE` if only more text can tell."""
        ...


class Head(NamedTuple):
    r"""Describes the text that begins a call, such as `<tool_call>`, up to the first character of the call's body.

    `pattern` starts with one of `literals` and matches the whole head. At the end of the text (`\Z`), it also matches
    the beginning of a head, so that the scanner knows what to hold back. The pattern may look ahead a few hundred
    characters at most, and must not contain groups. `body_starts` are the characters with which a body may start: the
    match counts only before one of them. If `begins` is given, this function decides instead. If a call has no marker,
    the text that matches is already part of the body, and `body_starts` is empty.
    """

    literals: tuple[str, ...]
    pattern: str
    body_starts: str = "{["
    gate: str = ""
    """A cheap pattern that is tried before `pattern`, at the same offset. If it does not match, no call begins there.

    If it is empty, the first two characters of the literals are used instead.
    """
    begins: HeadPredicate | None = None
    fenced: bool = False
    """Whether a code fence before the call is its marker, and is passed to `Dialect.candidate` as `head`."""
    alias: str = ""
    """The text that is passed to `Dialect.candidate` as `head` if the call has no marker."""
    at_start: bool = False
    """Whether a match begins a call only if no text came before it."""
    at_line_start: bool = False
    r"""Whether a match begins a call only at the beginning of a line, or of the content.

    If so, three other fields have these rules:

    - `pattern` starts after the line's indent, and allows `\Z` wherever the text may be cut off.
    - `literals` are labels with which the line may begin, such as `Action:`; there may be none.
    - `gate` should be literal text, or a pattern that begins with a lookahead at the first character, `(?=[...])`. A
      line with another first character then costs next to nothing.
    """
    first_words: tuple[str, ...] = ()
    """Words with which the line of a call may begin, besides `literals` and the names of tools; for `at_line_start`."""
    unindented: bool = False
    """Whether the line of a call must have no indent if text precedes it, since indented text is code."""
    fence_labels: tuple[str | None, ...] = ()
    """The labels of the code fences in which a match begins a call; None stands for text outside of fences.

    If the tuple is empty, a match may be anywhere.
    """
    tier: Tier | None = None
    """The tier of these calls, if not `Dialect.tier`: calls whose special tokens were stripped are weaker evidence."""
    on_request: bool = False
    """Whether `pattern` is searched for only if the request asked for the dialect, since no marker is distinct."""
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
    """Returns whether the body of a call of the named tool is free text, which cannot be streamed as JSON."""
    read_body: BodyReader | None = None
    """Reads the bodies of calls that are not JSON; None if all bodies are JSON."""


class MessageSplitter(Protocol):
    """Splits a reply into segments; together, the segments are the whole reply."""

    def feed(self, text: str) -> list[Segment]:
        """Read a piece of text; return the segments that have become certain."""
        ...

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Segment]:
        """Read pieces that are either text or control tokens; return the segments that have become certain."""
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
    """Decides whether the header of a message begins at `text[at]`.

    `first`: no text precedes the header. `final`: no more text will come.
    """

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
        """Whether calls show the types of arguments, as JSON does; if False, only the tool's schema gives them."""
        ...

    @property
    def tier(self) -> Tier:
        """How distinctive the markers are: "S" special tokens, "A" readable tags, "B" ordinary text, or "C" labels."""
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

        An opening tag counts only if no text has come since the last tag or call. A closing tag counts only after its
        opening tag.
        """
        ...

    @property
    def result_openers(self) -> tuple[str, ...]:
        """The texts with which a tool's result, or its turn, begins.

        If the model writes a result after a call, it made up the result and all text after it.
        """
        ...

    @property
    def end_tokens(self) -> tuple[str, ...]:
        """Tokens that end a turn. Some servers leave them in the text."""
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
        """Opening tokens of calls that may also precede a program or a name. If so, they are part of the text."""
        ...

    @property
    def rescues(self) -> bool:
        """Whether a call at the end of the reasoning counts if the reply is otherwise empty."""
        ...

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the body of a possible call after `head`, the text that begins the call.

        Feed it from the first character of the body on. `definite`: if the body is a call, it stays one, whatever text
        follows.
        """
        ...

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        ...

    def example_calls(self, tools: Tools) -> tuple[Call, Call]:
        """Return the calls that the prompt shows as examples. If the model copies one, the copy is not a call."""
        ...

    def call_id(self, call: Call, number: int) -> str:
        """Return the id by which the model knows a call; `number` counts the earlier calls in the conversation."""
        ...

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        ...

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        ...


class MarkerDeclarations(TypedDict, total=False):
    """The keyword arguments for the markers that a dialect has outside of calls, such as reasoning tags."""

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
    """Return the trace entry for a strategy that read `size` characters of a possible call and produced `parts`."""
    names: list[str] = []
    for part in parts:
        if part.malformed is not None:
            return TriedStrategy(strategy, "malformed", clip(part.malformed.message), size)
        if part.call is not None:
            names.append(part.call.name)
    return TriedStrategy(strategy, "call", ", ".join(names), size)
