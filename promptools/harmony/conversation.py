"""Convert a Chat Completions request into a Harmony conversation.

The rules are the same as in vLLM's conversion (PR 28729), except where a comment names a difference. A conversation has
one system message and at most one developer message. The client's system and developer messages are all joined into
the developer message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from promptools.errors import BadHeader, MissingSentinel, UsageError, clip
from promptools.harmony.recipients import FUNCTIONS, RecipientNames, clean_name
from promptools.harmony.renderer import (
    CUTOFF,
    IDENTITY,
    AnswerFormat,
    DeveloperContent,
    Effort,
    Message,
    Namespace,
    SystemContent,
    is_header_field,
)
from promptools.harmony.tool_declarations import FunctionDeclaration
from promptools.harmony.transcript import parse
from promptools.json_values import is_array, is_object, try_json, write_json
from promptools.types import Schema, Tool, ToolPlacement

# Which past reasoning stays in a conversation: four policies, each a function from messages to messages.
#
# Reasoning is a message of the assistant on `analysis` without a recipient. Calls on `analysis` (of built-in tools) and
# their results are not reasoning. They stay under every policy, since a model that does not see what it has done does
# it again.


ReasoningPolicy: TypeAlias = Literal["last-final", "first-final", "turn", "keep"]


def is_reasoning(message: Message) -> bool:
    """Return whether a message is the assistant's reasoning: on the channel `analysis`, and without a recipient."""
    return message.role == "assistant" and message.channel == "analysis" and not message.recipient


def last_final(messages: Sequence[Message]) -> list[Message]:
    """Drop reasoning before the last final answer.

    vLLM's PR 28729 does the same, and also drops calls to built-in tools.
    """
    return _without_reasoning_before(messages, max(_finals(messages), default=0))


def first_final(messages: Sequence[Message]) -> list[Message]:
    """Drop reasoning before the first final answer, but only if the assistant's last message is a final answer.

    openai-harmony 0.0.8 does the same.
    """
    finals = _finals(messages)
    by_assistant = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return _without_reasoning_before(messages, finals[0] if finals and finals[-1] == by_assistant[-1] else 0)


def current_turn(messages: Sequence[Message]) -> list[Message]:
    """Drop reasoning before the user's last message."""
    return _without_reasoning_before(
        messages, max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    )


REASONING_POLICIES: Mapping[ReasoningPolicy, Callable[[Sequence[Message]], list[Message]]] = MappingProxyType(
    {"last-final": last_final, "first-final": first_final, "turn": current_turn, "keep": list}
)


def _finals(messages: Sequence[Message]) -> list[int]:
    return [at for at, message in enumerate(messages) if message.role == "assistant" and message.channel == "final"]


def _without_reasoning_before(messages: Sequence[Message], start: int) -> list[Message]:
    return [message for at, message in enumerate(messages) if at >= start or not is_reasoning(message)]


# The conversion.


CallOrder: TypeAlias = Literal["analysis-first", "commentary-first"]

IN_DISTRIBUTION = frozenset(("browser", "container", "python", "repo_browser"))
"""Namespaces of the tools that gpt-oss was trained with; in training, the system message declared them all."""
REASONING_INPUT_KEYS = ("reasoning", "reasoning_content", "thinking")
"""The keys that servers use for reasoning, in the order in which they are looked up."""
FREE_TEXT: Schema = {"type": "string"}
"""The schema declared as the parameters of a function that takes free text, such as openai/gpt-oss's apply_patch."""
PARAGRAPH_BREAK = "\n\n"
WRITTEN = "written_in_harmony"
"""The key for the raw reply in an assistant's message. `convert` uses it to write the message as the model wrote it."""
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
"""Maps a value of `reasoning_effort`, or of Ollama's `think`, to the nearest of the three efforts of gpt-oss."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options for rendering a request."""

    identity: str | None = IDENTITY
    cutoff: str | None = CUTOFF
    date: str | None = None
    """Today's date, in the form `2025-06-28`."""
    effort: Effort | None = "medium"
    tools_in: ToolPlacement = "developer"
    """Which message declares the tools: `developer`, `system` or `auto`.

    In its training, gpt-oss saw its own tools declared in the system message. With `auto` the system message declares
    these tools (`trained`), and the developer message all others.
    """
    trained: frozenset[str] = IN_DISTRIBUTION
    """The namespaces that `auto` puts into the system message."""
    namespaces: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps the name of a namespace to its description."""
    thoughts: ReasoningPolicy = "last-final"
    order: CallOrder = "analysis-first"
    """Whether the reasoning or the text comes first in a message with calls.

    Models reason first; vLLM's PR 28729 puts the text first.
    """


@dataclass(frozen=True, slots=True)
class ConvertedRequest:
    """A conversation, and `notes` on what could not be converted."""

    messages: tuple[Message, ...]
    notes: tuple[str, ...] = ()


def convert(
    messages: Iterable[Mapping[str, Any]],
    tools: Iterable[Tool] = (),
    *,
    response_format: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> ConvertedRequest:
    """Convert a request into a conversation. O(n) in the size of the request.

    Raises UsageError for a role that Chat Completions does not have, and for a result whose tool cannot be determined.
    """
    chosen = options or Options()
    given, offered = list(messages), list(tools)
    free_text = {tool.name: tool.free_text for tool in offered if tool.free_text is not None}
    names = RecipientNames((tool.name for tool in offered), _names_in_history(given), free_text=free_text)
    reader = _MessageConverter(given, names, chosen.order, free_text)
    converted = [item for at, message in enumerate(given) for item in reader.convert(at, message)]
    namespaces = _namespaces(offered, names, chosen.namespaces)
    own = tuple(space for space in namespaces if _is_in_system(space, chosen))
    head = [_system(chosen, own)]
    others = tuple(space for space in namespaces if space not in own)
    developer = _developer(PARAGRAPH_BREAK.join(reader.instructions), others, answer_formats(response_format))
    if developer != DeveloperContent():
        head.append(Message("developer", developer))
    return ConvertedRequest((*head, *REASONING_POLICIES[chosen.thoughts](converted)), tuple(reader.notes))


def parse_effort(value: Any) -> Effort:
    """Return gpt-oss's reasoning effort for a value of `reasoning_effort` or of Ollama's `think`.

    Raises UsageError for an unknown value.
    """
    effort = EFFORTS.get(value) if value is None or isinstance(value, str | bool) else None
    if effort is None:
        known = ", ".join(effort for effort in EFFORTS if isinstance(effort, str))
        raise UsageError(f"The reasoning effort {value!r} is not known: use one of {known}.")
    return effort


def answer_formats(response_format: Mapping[str, Any] | None) -> tuple[AnswerFormat, ...]:
    """Return the answer format that a request's `response_format` asks for, in a tuple; empty if there is none."""
    match (response_format or {}).get("type"):
        case "json_schema":
            given = (response_format or {}).get("json_schema")
            inner: Mapping[str, Any] = given if is_object(given) else {}
            schema = write_json(inner.get("schema", {}), "the schema of response_format", compact=True)
            return (AnswerFormat(_string(inner.get("name")) or "answer", schema, _string(inner.get("description"))),)
        case "json_object":
            return (AnswerFormat("answer", '{"type":"object"}'),)
        case _:
            return ()


def _is_in_system(space: Namespace, options: Options) -> bool:
    """Return whether the system message declares a namespace."""
    return options.tools_in == "system" or (options.tools_in == "auto" and space.name in options.trained)


def _system(options: Options, own: tuple[Namespace, ...]) -> Message:
    about = SystemContent(options.identity, options.cutoff, options.date, options.effort, namespaces=own)
    return Message("system", about)


def _developer(instructions: str, spaces: tuple[Namespace, ...], forms: tuple[AnswerFormat, ...]) -> DeveloperContent:
    functions = next((space.functions for space in spaces if _is_plain(space)), None)
    others = tuple(space for space in spaces if not _is_plain(space))
    return DeveloperContent(instructions, functions, forms, others)


def _is_plain(space: Namespace) -> bool:
    return space.name == FUNCTIONS and not space.description


def _namespaces(tools: Sequence[Tool], names: RecipientNames, described: Mapping[str, str]) -> tuple[Namespace, ...]:
    namespaces: defaultdict[str, list[FunctionDeclaration]] = defaultdict(list)
    descriptions: dict[str, str] = {}
    for tool in tools:
        address = names.address_of(tool.name)
        if not address.name:
            descriptions[address.namespace] = tool.description
        parameters = FREE_TEXT if tool.free_text is not None else _nonempty_parameters(tool.parameters)
        functions = [FunctionDeclaration(address.name, tool.description, parameters)] if address.name else []
        namespaces[address.namespace] += functions
    return tuple(
        Namespace(name, tuple(functions), described.get(name) or descriptions.get(name, ""))
        for name, functions in namespaces.items()
    )


def _nonempty_parameters(schema: Schema) -> Schema | None:
    """Return the schema, or None if it has no parameters.

    In the training of gpt-oss, a function without parameters was declared as `() => any`. Source: openai/harmony,
    format.md.
    """
    keywords = {key for key, value in schema.items() if value not in ({}, [], False)}
    return schema if keywords - {"type", "title", "$schema"} or schema.get("type", "object") != "object" else None


@dataclass(slots=True)
class _MessageConverter:
    """Converts messages in order. Remembers the calls, and which of them still wait for a result."""

    messages: Sequence[Mapping[str, Any]]
    names: RecipientNames
    order: CallOrder
    free_text: Mapping[str, str]
    """Maps the name of a tool to its parameter that takes free text."""
    instructions: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    names_by_id: dict[str, str] = field(default_factory=dict[str, str])
    """Maps the id of each call, in any message, to the name of the called tool.

    If several calls have the same id, the last one before the current message counts.
    """
    open_calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    last_tool: str = ""
    written_calls: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Maps the id of a call to its recipient and channel, as the model wrote them."""

    def __post_init__(self) -> None:
        for message in reversed(self.messages):
            self.names_by_id.update((call_id, name) for call_id, name, _ in _iter_calls(message))

    def convert(self, at: int, message: Mapping[str, Any]) -> Iterator[Message]:
        match message.get("role"):
            case "system" | "developer":
                self._drop_name(at, message)
                self.instructions += filter(None, [self._text(at, message)])
            case "user":
                yield Message("user", self._text(at, message), self._name(at, message))
            case "assistant":
                self._drop_name(at, message)
                yield from self._assistant(at, message)
            case "tool" | "function":
                yield self._result(at, message)
            case other:
                raise UsageError(
                    f"Message {at} has the role {other!r}: use system, developer, user, assistant or tool."
                )

    def _text(self, at: int, message: Mapping[str, Any]) -> str:
        text, others = _content_text(message.get("content"))
        if others:
            self.notes.append(f"message {at}: {others} parts that are not text were left out; Harmony has only text")
        return text

    def _name(self, at: int, message: Mapping[str, Any]) -> str:
        """Return a user's name for the header (`user:ann`, as in openai-harmony). Note and drop an invalid name."""
        name = _string(message.get("name"))
        if not name or is_header_field(name):
            return name
        self.notes.append(f"message {at}: the user's name {clip(name)!r} was left out; it cannot be in a header")
        return ""

    def _drop_name(self, at: int, message: Mapping[str, Any]) -> None:
        if message.get("name"):
            self.notes.append(f"message {at}: its name was left out; only a user's is written")

    def _assistant(self, at: int, message: Mapping[str, Any]) -> Iterator[Message]:
        text = self._text(at, message) or _string(message.get("refusal"))
        reasoning = next((value for key in REASONING_INPUT_KEYS if (value := _string(message.get(key)))), "")
        calls = list(_iter_calls(message))
        own = written_messages(_string(message.get(WRITTEN)))
        if own and sum(bool(item.recipient) for item in own) == len(calls):
            self._note_written(calls, [item for item in own if item.recipient])
            yield from own
            return
        analysis = [Message("assistant", reasoning, channel="analysis")] if reasoning else []
        content = [Message("assistant", text, channel="commentary" if calls else "final")] if text else []
        yield from [*content, *analysis] if calls and self.order == "commentary-first" else [*analysis, *content]
        if calls:
            self.open_calls = [(call_id, name) for call_id, name, _ in calls]
        for call_id, name, arguments in calls:
            self.last_tool = self.names_by_id[call_id] = name
            recipient = self.names.address_of(name).recipient
            channel, kind = _channel_and_type(recipient)
            parameter = self.free_text.get(name)
            if parameter is not None:
                arguments = _free_text_body(arguments, parameter)  # noqa: PLW2901  as a model writes free text
            yield Message("assistant", arguments, channel=channel, recipient=recipient, content_type=kind)

    def _note_written(self, calls: Sequence[tuple[str, str, str]], written: Sequence[Message]) -> None:
        """Remember the calls of a message that is rendered as the model wrote it.

        The results of these calls are matched to them later.
        """
        self.open_calls = [(call_id, name) for call_id, name, _ in calls]
        for (call_id, name, _), item in zip(calls, written, strict=True):
            self.last_tool = self.names_by_id[call_id] = name
            self.written_calls[call_id] = item.recipient, item.channel

    def _result(self, at: int, message: Mapping[str, Any]) -> Message:
        name = self._result_tool(at, message)
        written = self.written_calls.get(_string(message.get("tool_call_id")))
        if written is not None:
            return Message("tool", self._text(at, message), written[0], written[1], "assistant")
        address = self.names.address_of(name)
        channel = _channel_and_type(address.recipient)[0]
        return Message("tool", self._text(at, message), address.recipient, channel, "assistant")

    def _result_tool(self, at: int, message: Mapping[str, Any]) -> str:
        """Return the name of the tool that a result comes from.

        The name is taken from the call with the result's id, from the result's `name`, or else from an earlier call.
        """
        call_id = _string(message.get("tool_call_id"))
        name = self.names_by_id.get(call_id, "") if call_id else ""
        name = name or _string(message.get("name"))
        matching = [call for call in self.open_calls if call_id and call[0] == call_id]
        matching = matching or [call for call in self.open_calls if name in {call[1], ""}]
        if matching:
            self.open_calls.remove(matching[0])
        name = name or (matching[0][1] if matching else self.last_tool)
        if not name:
            raise UsageError(
                f"Message {at} is the result of a call that nobody made: no call has the id {clip(call_id)!r}, and the "
                f"message has no name. Put the call before it, or give it the tool's `name`."
            )
        return name


def written_messages(text: str) -> list[Message]:
    """Return the messages of a reply, with the headers that the model wrote; empty unless the reply is strict Harmony.

    If a header needs repairs, the result is empty, because in the history such a header would teach the model to write
    more headers like it.
    """
    try:
        parsed = parse(text, "assistant", strict=True).messages if text else ()
    except (MissingSentinel, BadHeader):
        return []
    messages: list[Message] = []
    for item in parsed:
        header = text[item.span.start : item.span.end].partition("<|message|>")[0]
        begun = header.removeprefix("<|start|>")
        header = begun if begun != header else f"assistant{header}"
        if item.message.role != "assistant" or not item.message.channel or item.repairs:
            return []
        messages.append(replace(item.message, header=header))
    return messages


def _names_in_history(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        yield from (name for _, name, _ in _iter_calls(message))
        if message.get("role") in {"tool", "function"} and (name := _string(message.get("name"))):
            yield name


def _iter_calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the id, the name and the arguments of each call in an assistant's message.

    A missing name becomes a placeholder.
    """
    if message.get("role") != "assistant":
        return
    given = message.get("tool_calls")
    calls: list[Any] = given if is_array(given) else []
    if not calls and is_object(message.get("function_call")):
        calls = [{"function": message["function_call"]}]
    for call in filter(is_object, calls):
        inner = call.get("function") or call.get("custom")
        function = inner if is_object(inner) else {}
        value = function.get("arguments", function.get("input"))
        arguments = (
            value
            if isinstance(value, str)
            else ""
            if value is None
            else write_json(value, "the arguments of a past call")
        )
        yield _string(call.get("id")), _string(function.get("name")) or clean_name(""), arguments


def _free_text_body(arguments: str, parameter: str) -> str:
    """Return the body of a past call to a free-text tool: the text if it is the only argument, else the arguments.

    A text that begins with a brace is not taken out of the arguments, since it could be mistaken for JSON arguments.
    """
    value = try_json(arguments)
    text = value.get(parameter) if is_object(value) and len(value) == 1 else None
    return text if isinstance(text, str) and not text.lstrip().startswith("{") else arguments


def _channel_and_type(recipient: str) -> tuple[str, str]:
    """Return the channel and content type of a call.

    Functions are called on `commentary` with `json`: in vLLM's measurements this is better than `<|constrain|>json`.
    Tools in separate namespaces are called on `analysis` with `code`, as gpt-oss itself does in 50 of 61 real calls to
    container.exec and repo_browser.
    """
    return ("commentary", "json") if recipient.startswith(f"{FUNCTIONS}.") else ("analysis", "code")


def _content_text(content: Any) -> tuple[str, int]:
    """Return the text of a message's content, with all its parts joined, and the number of parts that are not text."""
    if content is None or isinstance(content, str):
        return content or "", 0
    if not is_array(content):
        return write_json(content, "the content of a message"), 0
    texts: list[str] = []
    others = 0
    for part in content:
        data: dict[str, Any] = part if is_object(part) else {}
        text = part if isinstance(part, str) else data.get("text")
        if isinstance(text, str):
            texts.append(text)
        others += text is None and data.get("type") != "text"
    return "".join(texts), others


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
