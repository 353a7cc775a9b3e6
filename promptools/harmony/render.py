"""A conversation as Harmony text, or with a vocabulary as token ids.

The text is openai-harmony's (0.0.8), byte for byte, except for what `declare` lists, and for control tokens in content
(of users, tools, files): in text they are escaped, in ids they are ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from promptools.errors import UsageError
from promptools.harmony.declare import Declared, comments, namespace
from promptools.harmony.names import FUNCTIONS
from promptools.harmony.tokens import CHANNELS, IDS, Role, escape

Effort: TypeAlias = Literal["low", "medium", "high"]
Encode: TypeAlias = Callable[[str], Sequence[int]]
"""Returns the ids of ordinary text, in which no control token is recognised."""

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
CUTOFF = "2024-06"

_WORD = re.compile(r"[^\s<>|]+")


@dataclass(frozen=True, slots=True)
class Namespace:
    """Tools that the system message declares, in a namespace of their own."""

    name: str
    functions: tuple[Declared, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class System:
    """The content of the system message. A field that is None or empty is left out."""

    identity: str | None = IDENTITY
    cutoff: str | None = CUTOFF
    date: str | None = None
    """Today, as `2025-06-28`."""
    effort: Effort | None = "medium"
    channels: tuple[str, ...] = CHANNELS
    namespaces: tuple[Namespace, ...] = ()


class Format(NamedTuple):
    """A format of the answer: a name, and its JSON Schema as text."""

    name: str
    schema: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Developer:
    """The content of the developer message: instructions, functions, formats of the answer."""

    instructions: str = ""
    functions: tuple[Declared, ...] | None = None
    """None: no section; empty: an empty section."""
    formats: tuple[Format, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    """Tools beside `functions`, in namespaces of their own."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `name` is that of the tool whose result it is (`functions.get_weather`), or a user's."""

    role: Role
    content: str | System | Developer
    name: str = ""
    channel: str = ""
    recipient: str = ""
    content_type: str = ""
    """`json`, `code`, or `<|constrain|>json`."""


class Control(NamedTuple):
    """One control token."""

    name: str


Piece: TypeAlias = "str | Control"


def render(
    messages: Iterable[Message], *, then: Role | None = "assistant", escape: Callable[[str], str] = escape
) -> str:
    """Render a conversation as text, up to the header of the reply of `then` (None: no reply is asked for).

    `escape` makes control tokens in content harmless. Raises UsageError for a field that no header can hold. O(n) in
    characters.
    """
    return "".join(
        f"<|{piece.name}|>" if isinstance(piece, Control) else escape(piece) for piece in pieces(messages, then=then)
    )


def render_ids(messages: Iterable[Message], encode: Encode, *, then: Role | None = "assistant") -> list[int]:
    """Render a conversation as token ids; errors as in `render`."""
    ids: list[int] = []
    for piece in pieces(messages, then=then):
        if isinstance(piece, Control):
            ids.append(IDS[piece.name])
        elif piece:
            ids.extend(encode(piece))
    return ids


def pieces(messages: Iterable[Message], *, then: Role | None = "assistant") -> Iterator[Piece]:
    """Yield a conversation as control tokens and the ordinary text between them."""
    given = list(messages)
    calls = any(isinstance(each.content, Developer) and each.content.functions for each in given)
    for message in given:
        yield from _message(message, functions=calls)
    if then is not None:
        yield from (Control("start"), then)


def _message(message: Message, *, functions: bool) -> Iterator[Piece]:
    yield Control("start")
    recipient = _word(message.recipient, "recipient")
    kind = message.content_type.removeprefix("<|constrain|>")
    yield _author(message) + (f" to={recipient}" if recipient not in {"", "all"} else "")
    if message.channel:
        yield Control("channel")
    before = _word(message.channel, "channel")
    if kind and kind != message.content_type:
        yield f"{before} "
        yield Control("constrain")
        yield _word(kind, "content type")
    else:
        yield before + (f" {_word(kind, 'content type')}" if kind else "")
    yield Control("message")
    yield text_of(message, functions=functions)
    yield Control("call" if message.role == "assistant" and message.recipient else "end")


def _author(message: Message) -> str:
    name = _word(message.name, "name")
    if message.role == "tool":
        if not name:
            raise UsageError("A tool's message has no name: say which tool's result it is, as `functions.get_weather`.")
        return name
    return f"{message.role}:{name}" if name else message.role


def is_word(text: str) -> bool:
    """Whether a text may be a field of a header."""
    return _WORD.fullmatch(text) is not None


def _word(text: str, what: str) -> str:
    """Return a field of a header. Raises UsageError if it could end the field, since headers are not escaped."""
    if text and not is_word(text):
        raise UsageError(f"The {what} {text!r} cannot stand in a Harmony header: leave out white space, '<', '>', '|'.")
    return text


def text_of(message: Message, *, functions: bool = False) -> str:
    """Return a message's content as text; `functions`: the system message names the channel for calls of functions."""
    match message.content:
        case System() as said:
            return _system(said, functions=functions)
        case Developer() as said:
            return _developer(said)
        case text:
            return text


def _system(said: System, *, functions: bool) -> str:
    about = [
        *([said.identity] if said.identity is not None else []),
        *([f"Knowledge cutoff: {said.cutoff}"] if said.cutoff is not None else []),
        *([f"Current date: {said.date}"] if said.date is not None else []),
    ]
    parts = ["\n".join(about)] if about else []
    if said.effort is not None:
        parts.append(f"Reasoning: {said.effort}")
    if said.namespaces:
        parts.append(_tools(said.namespaces))
    if said.channels:
        line = f"# Valid channels: {', '.join(said.channels)}. Channel must be included for every message."
        go = f"\nCalls to these tools must go to the commentary channel: '{FUNCTIONS}'." if functions else ""
        parts.append(line + go)
    return "\n\n".join(parts)


def _developer(said: Developer) -> str:
    parts = [f"# Instructions\n\n{said.instructions}"] if said.instructions else []
    functions = () if said.functions is None else (Namespace(FUNCTIONS, said.functions),)
    if functions or said.namespaces:
        parts.append(_tools([*functions, *said.namespaces]))
    if said.formats:
        parts.append("# Response Formats")
        parts += (f"## {each.name}\n\n{comments(each.description)}{each.schema}" for each in said.formats)
    return "\n\n".join(parts)


def _tools(spaces: Iterable[Namespace]) -> str:
    ordered = sorted(spaces, key=lambda each: each.name)
    return "\n\n".join(("# Tools", *(namespace(each.name, each.functions, each.description) for each in ordered)))
