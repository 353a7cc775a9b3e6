"""What a dialect is, and the two candidates that most of them need: bare JSON, and marker + JSON + marker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from promptools.dialects.body import JsonBody
from promptools.dialects.envelope import NoCall
from promptools.dialects.live import LiveArguments
from promptools.dialects.settle import STOPPED, Place, Rules, broken
from promptools.errors import UsageError, clip
from promptools.parsing.parts import Candidate, Part, Tried, Undecided, note, size_of
from promptools.parsing.scanner import RareMarker
from promptools.parsing.segments import Cutter
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

Tier = Literal["S", "A", "B", "C"]
A_NAME: Final = r"[^\W\d]"
"""The gate of a line's head that begins with an offered tool's name, perhaps in a namespace."""
A_TAG: Final = r"<(?:[^\W\d]|\Z)"
"""The gate of a line's head that is a tag named as an offered tool."""
SURPLUS = 3
"""Closers behind a whole value that are taken for its own."""


class Begins(Protocol):
    """Tell whether `text[start:end]` may begin a call; None when its end is missing.

    `fresh`: nothing was said before it, or a call was asked for.
    """

    def __call__(self, text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
        """Tell."""
        ...


class Head(NamedTuple):
    r"""How a candidate begins, up to the character that its body starts with.

    `pattern` starts with one of `literals` and matches the whole head, or what there is of it at the end of the text
    (`\Z`), so that the scanner knows what to hold; it may not look further than a few hundred characters, and has no
    groups. `opens` are the characters that a body starts with: a match that does not stand before one is unfinished.
    A head without a marker of its own is the beginning of the body, and `begins` tells whether that may be a call.
    """

    literals: tuple[str, ...]
    pattern: str
    opens: str = "{["
    gate: str = ""
    """What must stand where it begins, as a cheap pattern; empty: the first two characters of a literal."""
    begins: Begins | None = None
    fenced: bool = False
    """A fence before it is its marker, and goes to the candidate."""
    alias: str = ""
    """What goes to the candidate as the marker of a head that has none."""
    first: bool = False
    """It stands only where nothing was said before it."""
    line: bool = False
    r"""It stands only at the beginning of a line, or of what is said: `pattern` starts behind the line's indent, and
    says by `\Z` what may go on; `literals` are left out. Its `gate` is quickest as words, or behind a look at the first
    character, `(?=[...])`: then lines that begin otherwise cost next to nothing."""
    flush: bool = False
    """A line's head before which no indent may stand once words were said: what is indented is code."""
    labels: tuple[str | None, ...] = ()
    """The words behind the backticks of a fence in which it may stand, None for no fence; empty: anywhere."""
    tier: Tier | None = None
    """How sure it is, where that is another tier than the dialect's: what is left when a server strips sentinels."""
    asked: bool = False
    """Its marker is another dialect's as well, or none: it is looked for only where the request asked for this one."""
    alone: str = ""
    """The pattern of a head that says so much that a call was begun even where the text ends behind it."""


class Channels(NamedTuple):
    """How a reply whose every word belongs to a message with a header is known, and cut."""

    markers: tuple[str, ...]
    """Tokens of a header, one of which it begins with."""
    bare: RareMarker
    """What may be a header that has lost its tokens."""
    begins: HeaderBegins
    cutter: Callable[[Rules, bool], Cutter]
    """Makes a cutter; true: the text begins inside a header."""


class HeaderBegins(Protocol):
    """Tell whether a header stands at `text[at]`; None: more text must tell. `first`: nothing was said before it."""

    def __call__(self, text: str, at: int, rules: Rules, *, first: bool, final: bool) -> bool | None:
        """Tell."""
        ...


class Dialect(Protocol):
    """A text format for declaring tools, calling them and feeding results back."""

    @property
    def name(self) -> str:
        """The name by which it is asked for."""
        ...

    @property
    def models(self) -> str:
        """Who speaks it, for people."""
        ...

    @property
    def typed(self) -> bool:
        """Whether its arguments have types of their own."""
        ...

    @property
    def tier(self) -> Tier:
        """How sure its markers are."""
        ...

    @property
    def heads(self) -> tuple[Head, ...]:
        """What its calls begin with."""
        ...

    @property
    def channels(self) -> Channels | None:
        """How its messages are told apart, where every word of a reply belongs to one."""
        ...

    @property
    def closers(self) -> tuple[str, ...]:
        """Closers that may stand alone after a call whose opener was lost."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings at which a server may stop generation in prompt mode."""
        ...

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Start reading behind `head`: what is fed first is the first character of the body."""
        ...

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        ...

    def call_id(self, call: Call, number: int) -> str:
        """Give the id by which the model knows a call; `number` calls were made before it in the conversation."""
        ...

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls as the model would have."""
        ...

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        ...


class Textual:
    """What most dialects share: words between markers, and nothing else to say.

    One that writes nothing is only read: to ask for it is a UsageError.
    """

    name: str
    models: str = ""
    typed: bool = True
    """Its arguments say themselves whether they are numbers or words; False: only the tool's schema tells."""
    tier: Tier = "A"
    heads: tuple[Head, ...] = ()
    channels: Channels | None = None
    closers: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Refuse."""
        del tools, parallel, required
        raise self._only_read("render_tools")

    def call_id(self, call: Call, number: int) -> str:
        """Give its own: most formats tell none."""
        del number
        return call.id

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Refuse."""
        del calls
        raise self._only_read("render_calls")

    def render_results(self, results: Sequence[Result]) -> str:
        """Refuse."""
        del results
        raise self._only_read("render_results")

    def _only_read(self, missing: str) -> UsageError:
        return UsageError(
            f"The dialect {self.name!r} is only read, it cannot be asked for: ask in another one, or write its method"
            f" {missing!r}."
        )


class JsonCandidate(Undecided):
    """One JSON value that may be calls, and closers too many behind it; decided one character later."""

    def __init__(self, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(firm=firm)
        self._rules = rules
        self._place = place
        self._body = JsonBody()
        self._live = LiveArguments(rules) if firm and place.expected else None
        self._ended = False
        self._surplus = ""

    def feed(self, piece: str, start: int) -> int | None:
        """Take more of the value."""
        at: int | None = start
        if not self._ended:
            at = self._body.feed(piece, start, len(piece))
            self._ended = at is not None
            if self._live is not None:
                self.live += self._live.feed(piece[start:at], last=self._ended)
        while at is not None and at < len(piece):
            if piece[at] not in "}]" or len(self._surplus) == SURPLUS:
                self._decide(close=False, finish_reason=None)
                return at
            self._surplus += piece[at]
            at += 1
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide: the text is over."""
        self._decide(close=not self._ended, finish_reason=finish_reason)

    def _decide(self, *, close: bool, finish_reason: str | None) -> None:
        raw = self._body.raw
        lossy = close and finish_reason == "length"
        try:
            stopped = finish_reason in STOPPED
            place = self._place if raw.startswith("{") else self._place._replace(first=False)
            parts = self._body.calls(self._rules, place, close=close and not lossy, stopped=stopped)
            self.parts = self._live.begun(parts) if self._live is not None else parts
            self.tries.append(tried("json", len(raw), self.parts))
            self.rest = raw[size_of(self.parts) :]
            if self._surplus and not self.rest:
                note(reversed(self.parts), Fix("closer", f"{self._surplus!r} too many"))
                self.parts.append(Part("markup", self._surplus))
            else:
                self.rest += self._surplus
        except NoCall as no:
            self.parts = [self._refused(raw + self._surplus, str(no))]
            self.tries.append(Tried("json", "text", str(no), len(raw)))

    def _refused(self, raw: str, why: str) -> Part:
        """Make it text; or, where its name has gone out, the malformed call that it is."""
        if self._live is not None and self._live.started:
            return Part("malformed", raw, malformed=broken("invalid_json", why, self._place.dialect, None))
        return Part("text", raw)


def tried(strategy: str, size: int, parts: Sequence[Part]) -> Tried:
    """Note what came of a candidate of `size` characters."""
    named: list[str] = []
    for part in parts:
        if part.malformed is not None:
            return Tried(strategy, "malformed", clip(part.malformed.message), size)
        if part.call is not None:
            named.append(part.call.name)
    return Tried(strategy, "call", ", ".join(named), size)
