"""Values that cross module borders: frozen, comparable, and free of behaviour beyond their own JSON form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

Json: TypeAlias = "dict[str, Any] | list[Any] | str | int | float | bool | None"
Schema: TypeAlias = "dict[str, Any]"
Strictness = Literal["strict", "balanced", "lenient"]
ModeName = Literal["native", "prompt", "harmony"]
FinishReason: TypeAlias = str
NewId: TypeAlias = Callable[[], str]
RestoreArguments: TypeAlias = "Callable[[dict[str, Any]], tuple[dict[str, Any], tuple[Fix, ...]]]"
"""Undoes in a call's arguments what was escaped in the request, and returns them with what it did."""

FixKind = Literal[
    "json",  # the JSON was not strict: `detail` names the liberty (trailing comma, single quotes, ...)
    "closer",  # a closing bracket, tag or fence was missing
    "unwrap",  # a call inside a call, or arguments encoded twice
    "alias",  # a parameter was named by a known alias
    "name",  # the tool's name was spelled another way
    "infer",  # no tool was named: the arguments fit exactly one
    "coerce",  # a value was turned into the type that the schema wants
    "marker",  # a marker was broken, missing or another dialect's
    "duplicate",  # a key stood twice: the last one holds
    "escape",  # what was escaped in the request is as it was before: `<\\|im_end|>` is `<|im_end|>` again
    "unchecked",  # the arguments were not validated: `detail` says why
]
MalformedReason = Literal[
    "truncated",  # the text ended, or was cut, inside the call
    "invalid_json",  # the arguments cannot be read even with every liberty
    "invalid_arguments",  # readable, but they do not fit the tool's schema
    "unknown_tool",  # no tool can be told; through a client, one that was not offered
    "not_an_object",  # the arguments are JSON, but no object
    "limit",  # too deep, or a number too long to read
]


class Span(NamedTuple):
    """Half-open range of characters in the model's text: `text[start:end]`."""

    start: int
    end: int


def _spanned(data: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the JSON form of a value with its span made again."""
    return {key: Span(*value) if key == "span" else value for key, value in data.items()}


@dataclass(frozen=True, slots=True)
class Tool:
    """One offered tool, as prepared by `promptools.Tools`; `parameters` is the caller's own JSON Schema."""

    name: str
    description: str
    parameters: Schema
    strict: bool = False
    dangerous: bool = False
    """Never inferred from arguments alone, never salvaged without its name."""
    infer: bool | None = None
    """May arguments without a name stand for this tool? None: at `lenient` only; True: at every level; False: never."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameter spellings of models to the schema's own: `{"file": "filepath"}`."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One liberty that the parser took to read a call."""

    kind: FixKind
    detail: str
    path: str = ""
    """JSON pointer of the value inside the arguments; empty for the call itself."""

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {"kind": self.kind, "detail": self.detail, "path": self.path}


@dataclass(frozen=True, slots=True)
class Call:
    """One complete tool call. `arguments_json` is valid JSON equal to `arguments`, the model's own text if unfixed."""

    id: str
    name: str
    arguments: dict[str, Any]
    arguments_json: str
    fixes: tuple[Fix, ...] = ()
    span: Span = Span(0, 0)
    dialect: str = ""
    unknown_tool: bool = False
    """The tool was not offered; only unmistakable markers give such a call."""

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "id": self.id,
            "name": self.name,
            "arguments": self.arguments,
            "arguments_json": self.arguments_json,
            "fixes": [fix.to_dict() for fix in self.fixes],
            "span": list(self.span),
            "dialect": self.dialect,
            "unknown_tool": self.unknown_tool,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Call:
        """Read what `to_dict` wrote."""
        return cls(
            id=data["id"],
            name=data["name"],
            arguments=data["arguments"],
            arguments_json=data["arguments_json"],
            fixes=tuple(Fix(**fix) for fix in data["fixes"]),
            span=Span(*data["span"]),
            dialect=data["dialect"],
            unknown_tool=data["unknown_tool"],
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back for one call."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """A call that cannot be used; also the event that ends it.

    `message` tells the model what to mend; `call` is there when the JSON is whole but does not fit the tool.
    """

    index: int
    raw: str
    reason: MalformedReason
    message: str
    span: Span = Span(0, 0)
    name: str | None = None
    dialect: str = ""
    call: Call | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "index": self.index,
            "raw": self.raw,
            "reason": self.reason,
            "message": self.message,
            "span": list(self.span),
            "name": self.name,
            "dialect": self.dialect,
            "call": self.call.to_dict() if self.call else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Malformed:
        """Read what `to_dict` wrote."""
        call = Call.from_dict(data["call"]) if data["call"] else None
        rest = _spanned(data)
        rest["call"] = call
        return cls(**rest)


DiscardWhy = Literal["markup", "space", "debris", "result", "repeat"]


@dataclass(frozen=True, slots=True)
class Discarded:
    """Text that is neither content nor call: markup around a call, end-of-turn debris, a made-up result."""

    raw: str
    why: DiscardWhy
    span: Span = Span(0, 0)

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {"raw": self.raw, "why": self.why, "span": list(self.span)}


@dataclass(frozen=True, slots=True)
class Try:
    """One strategy on one place in the text: what came of it, why, and how many characters it looked at."""

    strategy: str
    span: Span
    outcome: Literal["call", "malformed", "text"]
    why: str
    cost: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "strategy": self.strategy,
            "span": list(self.span),
            "outcome": self.outcome,
            "why": self.why,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class Attempt:
    """One upstream request of an exchange: the mode, what the server said, what came of it."""

    mode: str
    status: int | None
    outcome: str
    """`answered`, or the class of the failure (`harmony`, `no_native_tools`, `truncated`, ...)."""
    why: str
    seconds: float = 0.0
    usage: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "mode": self.mode,
            "status": self.status,
            "outcome": self.outcome,
            "why": self.why,
            "seconds": self.seconds,
            "usage": self.usage,
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at a server found out: its kind and version, what its model can do, and how that is known."""

    kind: str | None = None
    """None: nothing that it answered says so."""
    version: str | None = None
    capabilities: tuple[str, ...] | None = None
    """The model's, in the server's words; None: not told."""
    context: int | None = None
    """Tokens that the model was made for, or that its server was started with; None: not told."""
    num_ctx: int | None = None
    """Tokens that an Ollama gives the model unless it is asked for more; None: not told."""
    parser: str | None = None
    """The parser of an Ollama's own that reads the model's replies; None: not told."""
    family: str | None = None
    """The model's family, from what the server says of the model; None: not told."""
    family_why: str = ""
    """What tells the family."""
    template_tools: bool = True
    """Whether the model's chat template shows it the tools of a request; true where the server does not tell."""
    asked: tuple[tuple[str, str], ...] = ()
    """Each question, and what came of it: `("GET /api/version", "HTTP 200")`."""
    why: str = ""
    seconds: float = 0.0
    """What the look cost this request; 0 when it was remembered."""

    @property
    def answered(self) -> bool:
        """Whether any question came back with an HTTP status."""
        return any(answer.startswith("HTTP") for _, answer in self.asked)

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "kind": self.kind,
            "version": self.version,
            "capabilities": None if self.capabilities is None else list(self.capabilities),
            "context": self.context,
            "num_ctx": self.num_ctx,
            "parser": self.parser,
            "family": self.family,
            "family_why": self.family_why,
            "template_tools": self.template_tools,
            "asked": [list(each) for each in self.asked],
            "why": self.why,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Seen:
        """Read what `to_dict` wrote."""
        rest = dict(data)
        rest["asked"] = tuple((question, answer) for question, answer in data["asked"])
        rest["capabilities"] = None if data["capabilities"] is None else tuple(data["capabilities"])
        return cls(**rest)


@dataclass(frozen=True, slots=True)
class Trace:
    """How a reply came to be: strategies tried, upstream attempts, the mode that answered, and what was left out."""

    tries: tuple[Try, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    mode: str | None = None
    notes: tuple[str, ...] = ()
    seen: Seen | None = None
    """What a look at the server found out; None: there was no look."""

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "tries": [each.to_dict() for each in self.tries],
            "attempts": [each.to_dict() for each in self.attempts],
            "mode": self.mode,
            "notes": list(self.notes),
            "seen": self.seen.to_dict() if self.seen else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trace:
        """Read what `to_dict` wrote."""
        return cls(
            tries=tuple(Try(**_spanned(each)) for each in data["tries"]),
            attempts=tuple(Attempt(**each) for each in data["attempts"]),
            mode=data["mode"],
            notes=tuple(data["notes"]),
            seen=Seen.from_dict(data["seen"]) if data.get("seen") else None,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """Everything that one model reply holds; nothing that the model said is lost."""

    calls: tuple[Call, ...] = ()
    content: str = ""
    reasoning: str = ""
    malformed: tuple[Malformed, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    finish_reason: FinishReason | None = None
    fixes: tuple[Fix, ...] = ()
    """Liberties taken with the reply itself; those taken with a call are the call's own."""
    trace: Trace = field(default_factory=Trace)

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form; `from_dict` reads it back equal."""
        return {
            "calls": [call.to_dict() for call in self.calls],
            "content": self.content,
            "reasoning": self.reasoning,
            "malformed": [each.to_dict() for each in self.malformed],
            "discarded": [each.to_dict() for each in self.discarded],
            "finish_reason": self.finish_reason,
            "fixes": [fix.to_dict() for fix in self.fixes],
            "trace": self.trace.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reply:
        """Read what `to_dict` wrote."""
        return cls(
            calls=tuple(Call.from_dict(call) for call in data["calls"]),
            content=data["content"],
            reasoning=data["reasoning"],
            malformed=tuple(Malformed.from_dict(each) for each in data["malformed"]),
            discarded=tuple(Discarded(**_spanned(each)) for each in data["discarded"]),
            finish_reason=data["finish_reason"],
            fixes=tuple(Fix(**fix) for fix in data.get("fixes", ())),
            trace=Trace.from_dict(data["trace"]),
        )

    def with_trace(self, **changes: Any) -> Reply:
        """Copy with some fields of the trace replaced."""
        return replace(self, trace=replace(self.trace, **changes))
