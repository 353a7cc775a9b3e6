"""Data classes that the modules of promptools exchange. They are frozen; most of them have a JSON form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from promptools.numbers import as_count

Json: TypeAlias = "dict[str, Any] | list[Any] | str | int | float | bool | None"
Schema: TypeAlias = "dict[str, Any]"
Strictness = Literal["strict", "balanced", "lenient"]
ModeName = Literal["native", "prompt", "harmony", "raw"]
ToolPlacement = Literal["developer", "system", "auto"]
FinishReason: TypeAlias = str
NewId: TypeAlias = Callable[[], str]
RestoreArguments: TypeAlias = "Callable[[dict[str, Any]], tuple[dict[str, Any], tuple[Fix, ...]]]"
"""A function that undoes the request's escaping in a call's arguments: `<\\|im_end|>` becomes `<|im_end|>`.

It returns the arguments, and a fix for each escaped form that it replaced.
"""

FixKind = Literal[
    "json",  # the JSON was not strict: `detail` names the deviation (trailing comma, single quotes, ...)
    "closer",  # a closing bracket, tag or fence was missing
    "unwrap",  # a call inside a call, or arguments encoded twice
    "alias",  # a parameter had the name of a known alias
    "split",  # a key contained the value too: `{"command=ls": ""}`
    "name",  # the tool's name was spelled differently
    "infer",  # no tool was named: the arguments fit exactly one
    "coerce",  # a value was converted to the type that the schema wants
    "marker",  # a marker was broken, missing or another dialect's
    "duplicate",  # a key occurred twice: its last value is used
    "escape",  # text that was escaped in the request was restored: `<\\|im_end|>` is `<|im_end|>` again
    "unchecked",  # the arguments were not validated: `detail` says why
]
MalformedReason = Literal[
    "truncated",  # the text ended, or was cut, inside the call
    "invalid_json",  # the arguments cannot be parsed even with every repair
    "invalid_arguments",  # parsed, but they do not fit the tool's schema
    "unknown_tool",  # the tool cannot be identified; through a client, also a tool that was not offered
    "not_an_object",  # the arguments are JSON, but not an object
    "limit",  # nested too deeply, or a number too long to parse
]


class Span(NamedTuple):
    """A half-open range of characters in the model's text: `text[start:end]`."""

    start: int
    end: int


def _with_span(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a value's JSON form, with `span` as a `Span` instead of a list."""
    return {key: Span(*value) if key == "span" else value for key, value in data.items()}


@dataclass(frozen=True, slots=True)
class Tool:
    """An offered tool, as prepared by `promptools.Tools`; `parameters` is the caller's own JSON Schema."""

    name: str
    description: str
    parameters: Schema
    strict: bool = False
    dangerous: bool = False
    """Whether the tool may do harm. A call to a dangerous tool must name the tool: arguments alone never imply it."""
    infer: bool | None = None
    """Whether a call that names no tool may be read as a call to this tool.

    True: at every strictness. False: never. None: at the strictness `lenient`, inside unmistakable call markers, and if
    the request forces a call.
    """
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps parameter names that models use to the schema's own names: `{"file": "filepath"}`."""
    names: tuple[str, ...] = ()
    """Other names that models use for the tool: `("repo_browser.read_file",)`. They are never declared to a model."""
    free_text: str | None = None
    """The parameter that receives the whole body of a call, in formats that allow free text there, such as Harmony."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A deviation from the strict format that was repaired in order to read a call or an answer."""

    kind: FixKind
    detail: str
    path: str = ""
    """JSON pointer to the repaired value inside the arguments; empty if the fix concerns the call itself."""

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
        return {"kind": self.kind, "detail": self.detail, "path": self.path}


@dataclass(frozen=True, slots=True)
class Call:
    """A complete call. `arguments_json` is `arguments` as JSON; if there are no fixes, it is the model's own text."""

    id: str
    name: str
    arguments: dict[str, Any]
    arguments_json: str
    fixes: tuple[Fix, ...] = ()
    span: Span = Span(0, 0)
    dialect: str = ""
    unknown_tool: bool = False
    """Whether the tool was not offered. Such a call is read only if markers or its position show that it is a call."""

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
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
        """Return an instance made from a dict that `to_dict` returned."""
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
    """The result that a tool returned for one call."""

    call_id: str
    name: str
    content: str
    is_error: bool = False
    images: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The images, as `image_url` parts of Chat Completions."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A call that cannot be used; also the parser's event for the end of such a call.

    `message` tells the model what to correct. `call` is set if a complete call names a tool that is not offered, or has
    arguments that violate the tool's schema.
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
        """Return the value as a dict that can be written as JSON."""
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
        """Return an instance made from a dict that `to_dict` returned."""
        call = Call.from_dict(data["call"]) if data["call"] else None
        fields = _with_span(data)
        fields["call"] = call
        return cls(**fields)


DiscardWhy = Literal["markup", "space", "debris", "result", "repeat", "turn", "around"]


@dataclass(frozen=True, slots=True)
class Discarded:
    """Text that is neither content nor a call: markup around a call, end-of-turn tokens, a made-up result or turn.

    Text around an answer in a requested format is discarded too, with `around` as the value of `why`.
    """

    raw: str
    why: DiscardWhy
    span: Span = Span(0, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
        return {"raw": self.raw, "why": self.why, "span": list(self.span)}


@dataclass(frozen=True, slots=True)
class ParseAttempt:
    """An attempt to parse a call at one position of the text; `cost` is the number of characters that were read."""

    strategy: str
    span: Span
    outcome: Literal["call", "malformed", "text"]
    why: str
    cost: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
        return {
            "strategy": self.strategy,
            "span": list(self.span),
            "outcome": self.outcome,
            "why": self.why,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class Attempt:
    """One upstream request of an exchange: its mode, the server's HTTP status, and the outcome."""

    mode: str
    status: int | None
    outcome: str
    """`answered`, or the kind of the failure (`harmony`, `no_native_tools`, `truncated`, ...)."""
    why: str
    seconds: float = 0.0
    usage: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
        return {
            "mode": self.mode,
            "status": self.status,
            "outcome": self.outcome,
            "why": self.why,
            "seconds": self.seconds,
            "usage": self.usage,
        }


ANSWERED = "answered"
"""The outcome of an attempt whose reply was used."""


def replaced_attempts(attempts: Sequence[Attempt]) -> Iterator[tuple[Attempt, Attempt]]:
    """Yield pairs of attempts: one that failed, and the attempt that followed it."""
    return ((failed, following) for failed, following in pairwise(attempts) if failed.outcome != ANSWERED)


@dataclass(frozen=True, slots=True)
class HealingCost:
    """The extra cost of promptools: requests, tokens and time of failed attempts that were followed by another attempt.

    The last attempt is never included, since without promptools its request would have been sent too. In a request for
    several choices, a failed attempt is included as a whole, even if some of its choices were used.
    """

    requests: int = 0
    input_tokens: int = 0
    """Number of prompt tokens that the server counted; if it answered with an error, it counted none."""
    output_tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, attempts: Sequence[Attempt]) -> HealingCost:
        """Return the extra cost of an exchange with these attempts."""
        failed = [attempt for attempt, _ in replaced_attempts(attempts)]
        return cls(
            len(failed),
            sum(as_count((attempt.usage or {}).get("prompt_tokens")) or 0 for attempt in failed),
            sum(as_count((attempt.usage or {}).get("completion_tokens")) or 0 for attempt in failed),
            sum(attempt.seconds for attempt in failed),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The result of probing a server: its kind and version, what its model can do, and how this was found out."""

    kind: str | None = None
    """The kind of server; None if no response identified it."""
    version: str | None = None
    capabilities: tuple[str, ...] | None = None
    """The model's capabilities, as the server names them; None if the server states none."""
    context: int | None = None
    """The context size, in tokens, for which the model was trained or the server is configured; None if not stated."""
    num_ctx: int | None = None
    """Number of tokens of context that Ollama gives the model by default; None if Ollama does not state it."""
    parser: str | None = None
    """The parser that Ollama itself uses for the model's replies; None if Ollama does not state it."""
    family: str | None = None
    """The model's family; None if no evidence implies a family, or if the evidence is contradicted."""
    family_by: str = ""
    """The evidence that determined the family.

    It is `chat template`, the name of a field in the server's response (`general.basename`), or `name` for the model's
    name in the request.
    """
    family_why: str = ""
    """The reason why `family` has this value, as text."""
    family_evidence: tuple[tuple[str, str], ...] = ()
    """Each piece of evidence that was considered, in order, with the families that it implies.

    For example: `("name 'llama3'", "llama, contradicted")`.
    """
    parameters: float | None = None
    """The model's parameter count, as stated by the server or by a name of the model; None if it is not stated."""
    template_tools: bool = True
    """Whether the model's chat template renders a request's tools; true if this is unknown."""
    template_dialect: str | None = None
    """The dialect in which the model's chat template writes calls, found by rendering it; None if it was not found."""
    template_why: str = ""
    """How `template_dialect` was found, or why it was not; empty if the template was not rendered."""
    asked: tuple[tuple[str, str], ...] = ()
    """Each request of the probe with its outcome: `("GET /api/version", "HTTP 200")`."""
    why: str = ""
    seconds: float = 0.0
    """How many seconds the probe delayed this request; 0 if the result was cached."""

    @property
    def answered(self) -> bool:
        """Whether at least one request of the probe got a response with an HTTP status."""
        return any(answer.startswith("HTTP") for _, answer in self.asked)

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
        return {
            "kind": self.kind,
            "version": self.version,
            "capabilities": None if self.capabilities is None else list(self.capabilities),
            "context": self.context,
            "num_ctx": self.num_ctx,
            "parser": self.parser,
            "family": self.family,
            "family_by": self.family_by,
            "family_why": self.family_why,
            "family_evidence": [list(pair) for pair in self.family_evidence],
            "parameters": self.parameters,
            "template_tools": self.template_tools,
            "template_dialect": self.template_dialect,
            "template_why": self.template_why,
            "asked": [list(pair) for pair in self.asked],
            "why": self.why,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ServerInfo:
        """Return an instance made from a dict that `to_dict` returned."""
        fields = dict(data)
        fields["asked"] = tuple((question, answer) for question, answer in data["asked"])
        fields["family_evidence"] = tuple((label, says) for label, says in data.get("family_evidence", ()))
        fields["capabilities"] = None if data["capabilities"] is None else tuple(data["capabilities"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Trace:
    """How a reply was obtained: attempts to parse it, upstream requests, the mode that succeeded, and notes."""

    tries: tuple[ParseAttempt, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    mode: str | None = None
    notes: tuple[str, ...] = ()
    seen: ServerInfo | None = None
    """The result of probing the server; None if the server was not probed."""

    @property
    def healing(self) -> HealingCost:
        """The extra cost of the failed attempts that were followed by another attempt."""
        return HealingCost.of(self.attempts)

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dict that can be written as JSON."""
        return {
            "tries": [entry.to_dict() for entry in self.tries],
            "attempts": [attempt.to_dict() for attempt in self.attempts],
            "mode": self.mode,
            "notes": list(self.notes),
            "seen": self.seen.to_dict() if self.seen else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trace:
        """Return an instance made from a dict that `to_dict` returned."""
        return cls(
            tries=tuple(ParseAttempt(**_with_span(entry)) for entry in data["tries"]),
            attempts=tuple(Attempt(**attempt) for attempt in data["attempts"]),
            mode=data["mode"],
            notes=tuple(data["notes"]),
            seen=ServerInfo.from_dict(data["seen"]) if data.get("seen") else None,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """One complete reply of the model. No text of the reply is lost: unused parts are in `malformed` or `discarded`."""

    calls: tuple[Call, ...] = ()
    content: str = ""
    reasoning: str = ""
    malformed: tuple[Malformed, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    finish_reason: FinishReason | None = None
    fixes: tuple[Fix, ...] = ()
    """Fixes to the reply as a whole; the fixes to a call are in its `Call`."""
    trace: Trace = field(default_factory=Trace)

    def to_dict(self) -> dict[str, Any]:
        """Return the reply as a dict that can be written as JSON; `from_dict` restores an equal reply."""
        return {
            "calls": [call.to_dict() for call in self.calls],
            "content": self.content,
            "reasoning": self.reasoning,
            "malformed": [entry.to_dict() for entry in self.malformed],
            "discarded": [entry.to_dict() for entry in self.discarded],
            "finish_reason": self.finish_reason,
            "fixes": [fix.to_dict() for fix in self.fixes],
            "trace": self.trace.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reply:
        """Return an instance made from a dict that `to_dict` returned."""
        return cls(
            calls=tuple(Call.from_dict(call) for call in data["calls"]),
            content=data["content"],
            reasoning=data["reasoning"],
            malformed=tuple(Malformed.from_dict(entry) for entry in data["malformed"]),
            discarded=tuple(Discarded(**_with_span(entry)) for entry in data["discarded"]),
            finish_reason=data["finish_reason"],
            fixes=tuple(Fix(**fix) for fix in data.get("fixes", ())),
            trace=Trace.from_dict(data["trace"]),
        )

    def with_trace(self, **changes: Any) -> Reply:
        """Return a copy with some fields of the trace replaced."""
        trace = replace(self.trace, **changes)
        return Reply(  # `dataclasses.replace` takes four times as long
            self.calls,
            self.content,
            self.reasoning,
            self.malformed,
            self.discarded,
            self.finish_reason,
            self.fixes,
            trace,
        )
