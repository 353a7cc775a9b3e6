"""A Chat Completions request as a Harmony conversation.

The rules are those of vLLM's conversion (PR 28729), but for what is said beside them. There is one system message and
at most one developer message: what a client says as either is joined into the latter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from promptools.errors import UsageError, clip
from promptools.harmony.declare import Declared
from promptools.harmony.names import FUNCTIONS, Names, tidy
from promptools.harmony.render import CUTOFF, IDENTITY, Developer, Effort, Format, Message, Namespace, System, is_word
from promptools.harmony.thoughts import POLICIES, Policy
from promptools.schema.graph import is_array, is_object
from promptools.types import Schema, Tool

ToolsIn: TypeAlias = Literal["developer", "system"]
Order: TypeAlias = Literal["analysis-first", "commentary-first"]

REASONING = ("reasoning", "reasoning_content", "thinking")
"""What servers call thoughts, in the order in which they are looked for."""
GAP = "\n\n"
EFFORTS: Mapping[Any, Effort] = MappingProxyType({
    None: "medium",
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
    False: "low",
    True: "medium",
})  # fmt: skip
"""What a request says of effort, or Ollama's `think`, and the nearest of the three that gpt-oss knows."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a request is told."""

    identity: str | None = IDENTITY
    cutoff: str | None = CUTOFF
    date: str | None = None
    """Today, as `2025-06-28`."""
    effort: Effort | None = "medium"
    tools_in: ToolsIn = "developer"
    """`system`: as the tools that gpt-oss was trained on were declared; it calls those by these names more readily."""
    thoughts: Policy = "last-final"
    order: Order = "analysis-first"
    """What comes first before a call, thoughts or words: models think first; PR 28729 puts the words first."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A conversation, the names in it, and what could not be told (`notes`)."""

    messages: tuple[Message, ...]
    names: Names
    notes: tuple[str, ...] = ()


def convert(
    messages: Iterable[Mapping[str, Any]],
    tools: Iterable[Tool] = (),
    *,
    response_format: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Converted:
    """Convert a request. O(n) in its size.

    Raises UsageError for a role that Chat Completions does not know, and for a result of which nobody knows the tool.
    """
    chosen = options or Options()
    given, offered = list(messages), list(tools)
    names = Names((tool.name for tool in offered), _heard(given))
    reader = _Reader(given, names, chosen.order)
    said = [each for at, message in enumerate(given) for each in reader.read(at, message)]
    spaces = _spaces(offered, names)
    head = [_system(chosen, spaces)]
    developer = _developer(chosen, GAP.join(reader.instructions), spaces, formats(response_format))
    if developer != Developer():
        head.append(Message("developer", developer))
    return Converted((*head, *POLICIES[chosen.thoughts](said)), names, tuple(reader.notes))


def effort_of(said: Any) -> Effort:
    """Give the effort that a request asks for by `reasoning_effort` or `think`."""
    effort = EFFORTS.get(said) if said is None or isinstance(said, str | bool) else None
    if effort is None:
        known = ", ".join(each for each in EFFORTS if isinstance(each, str))
        raise UsageError(f"The reasoning effort {said!r} is none that we know: use one of {known}.")
    return effort


def formats(response_format: Mapping[str, Any] | None) -> tuple[Format, ...]:
    """Give the form that a request's `response_format` asks for."""
    match (response_format or {}).get("type"):
        case "json_schema":
            given = (response_format or {}).get("json_schema")
            inner: Mapping[str, Any] = given if is_object(given) else {}
            schema = json.dumps(inner.get("schema", {}), ensure_ascii=False, separators=(",", ":"))
            return (Format(_string(inner.get("name")) or "answer", schema, _string(inner.get("description"))),)
        case "json_object":
            return (Format("answer", '{"type":"object"}'),)
        case _:
            return ()


def _system(options: Options, spaces: tuple[Namespace, ...]) -> Message:
    own = spaces if options.tools_in == "system" else ()
    about = System(options.identity, options.cutoff, options.date, options.effort, namespaces=own)
    return Message("system", about)


def _developer(
    options: Options, instructions: str, spaces: tuple[Namespace, ...], forms: tuple[Format, ...]
) -> Developer:
    if options.tools_in == "system":
        return Developer(instructions, formats=forms)
    functions = next((each.functions for each in spaces if each.name == FUNCTIONS), None)
    others = tuple(each for each in spaces if each.name != FUNCTIONS)
    return Developer(instructions, functions, forms, others)


def _spaces(tools: Sequence[Tool], names: Names) -> tuple[Namespace, ...]:
    spaces: defaultdict[str, list[Declared]] = defaultdict(list)
    for tool in tools:
        place = names.place(tool.name)
        spaces[place.space].append(Declared(place.name, tool.description, _parameters(tool.parameters)))
    return tuple(Namespace(name, tuple(functions)) for name, functions in spaces.items())


def _parameters(schema: Schema) -> Schema | None:
    """Give the parameters; a function that takes none was `() => any` in training (openai/harmony, format.md)."""
    says = {key for key, value in schema.items() if value not in ({}, [], False)}
    return schema if says - {"type", "title", "$schema"} or schema.get("type", "object") != "object" else None


@dataclass(slots=True)
class _Reader:
    """Reads messages from the front; knows which calls were made and which of them wait for a result."""

    messages: Sequence[Mapping[str, Any]]
    names: Names
    order: Order
    instructions: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    known: dict[str, str] = field(default_factory=dict[str, str])
    """The names of calls by id: of all messages, those read already over later ones."""
    waiting: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    last: str = ""

    def __post_init__(self) -> None:
        for message in reversed(self.messages):
            self.known.update((call_id, name) for call_id, name, _ in _calls(message))

    def read(self, at: int, message: Mapping[str, Any]) -> Iterator[Message]:
        match message.get("role"):
            case "system" | "developer":
                self._nameless(at, message)
                self.instructions += filter(None, [self._text(at, message)])
            case "user":
                yield Message("user", self._text(at, message), self._name(at, message))
            case "assistant":
                self._nameless(at, message)
                yield from self._assistant(at, message)
            case "tool" | "function":
                yield self._result(at, message)
            case other:
                raise UsageError(
                    f"Message {at} has the role {other!r}: use system, developer, user, assistant or tool."
                )

    def _text(self, at: int, message: Mapping[str, Any]) -> str:
        text, others = _content(message.get("content"))
        if others:
            self.notes.append(f"message {at}: {others} parts that are no text were left out; Harmony has text alone")
        return text

    def _name(self, at: int, message: Mapping[str, Any]) -> str:
        """Give a user's name, which stands in the header (openai-harmony writes `user:ann`)."""
        name = _string(message.get("name"))
        if not name or is_word(name):
            return name
        self.notes.append(f"message {at}: the user's name {clip(name)!r} was left out; it cannot stand in a header")
        return ""

    def _nameless(self, at: int, message: Mapping[str, Any]) -> None:
        if message.get("name"):
            self.notes.append(f"message {at}: its name was left out; a user's alone is told")

    def _assistant(self, at: int, message: Mapping[str, Any]) -> Iterator[Message]:
        words = self._text(at, message) or _string(message.get("refusal"))
        thoughts = next((said for key in REASONING if (said := _string(message.get(key)))), "")
        calls = list(_calls(message))
        thought = [Message("assistant", thoughts, channel="analysis")] if thoughts else []
        spoken = [Message("assistant", words, channel="commentary" if calls else "final")] if words else []
        yield from [*spoken, *thought] if calls and self.order == "commentary-first" else [*thought, *spoken]
        if calls:
            self.waiting = [(call_id, name) for call_id, name, _ in calls]
        for call_id, name, arguments in calls:
            self.last = self.known[call_id] = name
            yield _call(self.names.place(name).recipient, arguments)

    def _result(self, at: int, message: Mapping[str, Any]) -> Message:
        name = self._answered(at, message)
        place = self.names.place(name)
        channel = _manner(place.recipient)[0]
        return Message("tool", self._text(at, message), place.recipient, channel, "assistant")

    def _answered(self, at: int, message: Mapping[str, Any]) -> str:
        """Find the tool of a result: by the id of its call, by its own name, by the call that it follows."""
        call_id = _string(message.get("tool_call_id"))
        name = self.known.get(call_id, "") if call_id else ""
        name = name or _string(message.get("name"))
        mine = [each for each in self.waiting if call_id and each[0] == call_id]
        mine = mine or [each for each in self.waiting if name in {each[1], ""}]
        if mine:
            self.waiting.remove(mine[0])
        name = name or (mine[0][1] if mine else self.last)
        if not name:
            raise UsageError(
                f"Message {at} is the result of a call that nobody made: no call has the id {clip(call_id)!r}, and the "
                f"message has no name. Put the call before it, or give it the tool's `name`."
            )
        return name


def _heard(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        yield from (name for _, name, _ in _calls(message))
        if message.get("role") in {"tool", "function"} and (name := _string(message.get("name"))):
            yield name


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield id, name and arguments of an assistant's calls; one without a name gets the name for such."""
    if message.get("role") != "assistant":
        return
    given = message.get("tool_calls")
    calls: list[Any] = given if is_array(given) else []
    if not calls and is_object(message.get("function_call")):
        calls = [{"function": message["function_call"]}]
    for call in filter(is_object, calls):
        inner = call.get("function") or call.get("custom")
        function = inner if is_object(inner) else {}
        said = function.get("arguments", function.get("input"))
        arguments = said if isinstance(said, str) else "" if said is None else json.dumps(said, ensure_ascii=False)
        yield _string(call.get("id")), _string(function.get("name")) or tidy(""), arguments


def _call(recipient: str, arguments: str) -> Message:
    channel, kind = _manner(recipient)
    return Message("assistant", arguments, channel=channel, recipient=recipient, content_type=kind)


def _manner(recipient: str) -> tuple[str, str]:
    """Give channel and content type of a call.

    Functions are called on `commentary` with `json` (vLLM measured it better than `<|constrain|>json`); tools in
    namespaces of their own on `analysis` with `code`, as gpt-oss itself does (50 of 61 real calls of container.exec
    and repo_browser).
    """
    return ("commentary", "json") if recipient.startswith(f"{FUNCTIONS}.") else ("analysis", "code")


def _content(content: Any) -> tuple[str, int]:
    """Give the text of a content, its parts one behind the other, and the number of parts that are no text."""
    if content is None or isinstance(content, str):
        return content or "", 0
    if not is_array(content):
        return json.dumps(content, ensure_ascii=False), 0
    parts = [part if isinstance(part, str) else part.get("text") if is_object(part) else None for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    others = [part for part, text in zip(content, parts, strict=True) if text is None and _kind(part) != "text"]
    return "".join(texts), len(others)


def _kind(part: Any) -> Any:
    return part.get("type") if is_object(part) else None


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
