"""Render a conversation as Harmony text or, with a vocabulary, as token ids; and count the tokens of each message.

The text is the same as openai-harmony's (0.0.8), byte for byte, with two exceptions. Some declarations of tools differ:
the module `tool_declarations` lists the differences. Control tokens in content from users, tools or files are escaped
in text, and are ordinary text in ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from promptools.errors import UsageError
from promptools.harmony.recipients import FUNCTIONS
from promptools.harmony.tokens import CHANNELS, CONTROL_MARKUP, TOKEN_IDS, Role
from promptools.harmony.tool_declarations import FunctionDeclaration, line_comments, render_namespace
from promptools.patterns import lazy_pattern

Effort: TypeAlias = Literal["low", "medium", "high"]
Encode: TypeAlias = Callable[[str], Sequence[int]]
"""A function that returns the token ids of a text. It treats control tokens in the text as ordinary text."""

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
CUTOFF = "2024-06"

_WORD = lazy_pattern(r"[^\s<>|]+")
_HEADER_TOKENS = lazy_pattern(r"<\|(channel|constrain)\|>")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of tools that the system or developer message declares."""

    name: str
    functions: tuple[FunctionDeclaration, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class SystemContent:
    """The content of the system message. Fields that are None or empty are left out of the message."""

    identity: str | None = IDENTITY
    cutoff: str | None = CUTOFF
    date: str | None = None
    """Today's date, in the form `2025-06-28`."""
    effort: Effort | None = "medium"
    channels: tuple[str, ...] = CHANNELS
    namespaces: tuple[Namespace, ...] = ()


class AnswerFormat(NamedTuple):
    """A format of the answer: the name of the format, and its JSON Schema as text."""

    name: str
    schema: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class DeveloperContent:
    """The content of the developer message: instructions, functions, and formats of the answer."""

    instructions: str = ""
    functions: tuple[FunctionDeclaration, ...] | None = None
    """The functions. If None, the section for functions is left out; if empty, the section is empty."""
    formats: tuple[AnswerFormat, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    """Tools other than functions, in separate namespaces."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation.

    In a tool's result, `name` is the tool (`functions.get_weather`); else it is the user's name.
    """

    role: Role
    content: str | SystemContent | DeveloperContent
    name: str = ""
    channel: str = ""
    recipient: str = ""
    content_type: str = ""
    """The type of the content: `json`, `code`, or `<|constrain|>json`."""
    header: str = field(default="", repr=False, compare=False)
    """The header of an assistant's message as the model wrote it, from the role up to `<|message|>`.

    If given, this header is rendered instead of a header made from the fields.
    """


class ControlToken(NamedTuple):
    """A control token, identified by its name, such as `start`."""

    name: str


RenderedPiece: TypeAlias = "str | ControlToken"


def render_messages(
    messages: Iterable[Message],
    *,
    reply_role: Role | None = "assistant",
    escape: Callable[[str], str] = CONTROL_MARKUP.escape,
) -> str:
    """Render a conversation as text that ends with the beginning of the reply, `<|start|>assistant`.

    `reply_role` is the role in this beginning; None leaves the beginning out. `escape` makes control tokens in content
    harmless. Raises UsageError for a field that a header cannot contain. O(n) in characters.
    """
    return "".join(
        f"<|{piece.name}|>" if isinstance(piece, ControlToken) else escape(piece)
        for piece in render_pieces(messages, reply_role=reply_role)
    )


def encode_messages(messages: Iterable[Message], encode: Encode, *, reply_role: Role | None = "assistant") -> list[int]:
    """Render a conversation as token ids. Raises the same errors as `render_messages`."""
    ids: list[int] = []
    for piece in render_pieces(messages, reply_role=reply_role):
        if isinstance(piece, ControlToken):
            ids.append(TOKEN_IDS[piece.name])
        elif piece:
            ids.extend(encode(piece))
    return ids


def render_pieces(messages: Iterable[Message], *, reply_role: Role | None = "assistant") -> Iterator[RenderedPiece]:
    """Yield a conversation as control tokens and the ordinary text between them."""
    given = list(messages)
    calls = any(isinstance(message.content, DeveloperContent) and _has_functions(message.content) for message in given)
    for message in given:
        yield from _message(message, functions=calls)
    if reply_role is not None:
        yield from (ControlToken("start"), reply_role)


def _has_functions(content: DeveloperContent) -> bool:
    return bool(content.functions) or any(space.name == FUNCTIONS and space.functions for space in content.namespaces)


def _message(message: Message, *, functions: bool) -> Iterator[RenderedPiece]:
    yield ControlToken("start")
    yield from _written_header(message.header) if message.header else _header(message)
    yield ControlToken("message")
    yield content_text(message, functions=functions)
    yield ControlToken("call" if message.role == "assistant" and message.recipient else "end")


def _written_header(header: str) -> Iterator[RenderedPiece]:
    for at, piece in enumerate(_HEADER_TOKENS.split(header)):
        if piece:
            yield ControlToken(piece) if at % 2 else piece


def _header(message: Message) -> Iterator[RenderedPiece]:
    recipient = _header_field(message.recipient, "recipient")
    kind = message.content_type.removeprefix("<|constrain|>")
    yield _author(message) + (f" to={recipient}" if recipient not in {"", "all"} else "")
    if message.channel:
        yield ControlToken("channel")
    before = _header_field(message.channel, "channel")
    if kind and kind != message.content_type:
        yield f"{before} "
        yield ControlToken("constrain")
        yield _header_field(kind, "content type")
    else:
        yield before + (f" {_header_field(kind, 'content type')}" if kind else "")


def _author(message: Message) -> str:
    name = _header_field(message.name, "name")
    if message.role == "tool":
        if not name:
            raise UsageError("A tool's message has no name: say which tool's result it is, as `functions.get_weather`.")
        return name
    return f"{message.role}:{name}" if name else message.role


def is_header_field(text: str) -> bool:
    """Return whether a text may be a field of a header: it is not empty and has no white space, `<`, `>` or `|`."""
    return _WORD.fullmatch(text) is not None


def _header_field(text: str, what: str) -> str:
    """Return `text` if it may be a field of a header; else raise UsageError, since headers are not escaped."""
    if text and not is_header_field(text):
        raise UsageError(f"The {what} {text!r} cannot be in a Harmony header: leave out white space, '<', '>', '|'.")
    return text


def content_text(message: Message, *, functions: bool = False) -> str:
    """Return a message's content as text. With `functions`, a system message names the channel for function calls."""
    match message.content:
        case SystemContent() as content:
            return _system(content, functions=functions)
        case DeveloperContent() as content:
            return _developer(content)
        case text:
            return text


def _system(content: SystemContent, *, functions: bool) -> str:
    about = [
        *([content.identity] if content.identity is not None else []),
        *([f"Knowledge cutoff: {content.cutoff}"] if content.cutoff is not None else []),
        *([f"Current date: {content.date}"] if content.date is not None else []),
    ]
    parts = ["\n".join(about)] if about else []
    if content.effort is not None:
        parts.append(f"Reasoning: {content.effort}")
    if content.namespaces:
        parts.append(_tool_sections(content.namespaces))
    if content.channels:
        line = f"# Valid channels: {', '.join(content.channels)}. Channel must be included for every message."
        go = f"\nCalls to these tools must go to the commentary channel: '{FUNCTIONS}'." if functions else ""
        parts.append(line + go)
    return "\n\n".join(parts)


def _developer(content: DeveloperContent) -> str:
    parts = [f"# Instructions\n\n{content.instructions}"] if content.instructions else []
    functions = () if content.functions is None else (Namespace(FUNCTIONS, content.functions),)
    if functions or content.namespaces:
        parts.append(_tool_sections([*functions, *content.namespaces]))
    if content.formats:
        parts.append("# Response Formats")
        parts += (f"## {form.name}\n\n{line_comments(form.description)}{form.schema}" for form in content.formats)
    return "\n\n".join(parts)


def _tool_sections(spaces: Iterable[Namespace]) -> str:
    ordered = sorted(spaces, key=lambda namespace: namespace.name)
    return "\n\n".join(
        ("# Tools", *(render_namespace(space.name, space.functions, space.description) for space in ordered))
    )


# Token counts of a prompt, message by message.


TokenCounter: TypeAlias = Callable[[str], int]
"""A function that returns the number of tokens of ordinary text."""

_CONTROL = lazy_pattern(rf"(<\|(?:{'|'.join(TOKEN_IDS)})\|>)")
_WORDS = lazy_pattern(
    r" ?[A-Za-z]{1,7}"  # few English words take two tokens
    r"|[0-9]{1,3}"
    r"|[\u3040-\u9fff\uac00-\ud7a3]"
    r"| ?[^\W\d_]{1,3}"
    r"| ?[!-/:-@\[-`{-~]{1,3}"
    r"|\s*\n|\s+|."
)
"""Matches pieces of about one token each, modeled on how o200k_base splits text before it merges pieces."""


class Part(NamedTuple):
    """One message in a list of token counts: the rendered header without `<|start|>`, and the number of tokens."""

    header: str
    tokens: int


def exact_counter(encode: Encode) -> TokenCounter:
    """Return a function that counts tokens exactly, with the vocabulary."""
    return lambda text: len(encode(text)) if text else 0


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens without the vocabulary. O(n): about a second for a million characters.

    The estimate is 1.0 to 1.3 times the real number for prose, code and JSON, and up to 1.4 times for other languages.
    For text that is not language, the estimate is too low: half the real number for base64.
    """
    return len(_WORDS.findall(text))


def count_messages(text: str, count_tokens: TokenCounter) -> tuple[Part, ...]:
    """Count the tokens of each message of a rendered prompt; the last part is the beginning of the reply.

    The sum of all counts is the number of tokens of the prompt.
    """
    return tuple(_iter_parts(text, count_tokens))


def _iter_parts(text: str, measure: TokenCounter) -> Iterator[Part]:
    header, tokens, in_header = "", 0, True
    for at, piece in enumerate(_CONTROL.split(text)):
        control = at % 2 == 1
        if piece == "<|start|>" and tokens:
            yield Part(header, tokens)
            header, tokens, in_header = "", 0, True
        tokens += 1 if control else measure(CONTROL_MARKUP.unescape(piece))
        in_header = in_header and piece != "<|message|>"
        if in_header and piece != "<|start|>":
            header += piece
    if tokens:
        yield Part(header, tokens)
