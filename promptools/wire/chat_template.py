"""Endpoints that make a server render its own chat template, with tools, without generating anything.

    llamacpp    POST /apply-template, which returns text (b11549)
    tokenize    POST /tokenize, which returns token ids (vLLM 0.28 to 0.32; SGLang 0.5.12 to 0.5.23, from its source)
    ollama      POST /api/chat with `_debug_render_only`, which returns text (0.11.11 to 0.32.15)

These endpoints accept the same conversation as the chat endpoints, so raw mode sends it as native mode does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array
from promptools.numbers import as_int
from promptools.patterns import lazy_pattern
from promptools.wire.json_body import as_list, as_object, as_text
from promptools.wire.ollama_upstream import PATH as OLLAMA_PATH
from promptools.wire.ollama_upstream import encode_chat_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptools.profiles.profile import TemplateEndpoint


TEMPLATE_KEYS = (
    "model",
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "documents",
    "reasoning_effort",
    "think",
    "reasoning",
)
"""The parameters of a Chat Completions body that affect how the chat template renders the prompt."""
_IN_KWARGS = ("documents", "reasoning_effort")
"""Parameters that vLLM's /tokenize takes only in `chat_template_kwargs`."""
_MANY_TOKENS = 1 << 30
"""A number of tokens that is larger than any context. Tokenizers without a limit state such a number as their limit."""
_LOADING = ("options", "num_ctx", "keep_alive", "truncate")
"""Parameters with which Ollama loads the model.

Ollama loads the model even to render a conversation. So a request to render has the same values as the request for the
reply; with different values, Ollama would have to load the model twice.
"""
_UNUSED_BY_TOKENIZE = ("think", "reasoning")
_RENDER_ONLY = "_debug_render_only"
_BYTE = lazy_pattern(r"<0x([0-9A-F]{2})>")
"""Matches a token for a single byte in SentencePiece vocabularies, such as `<0xE2>`."""


def _byte_letters() -> list[str]:
    """Return the letter for each byte value, as used in GPT-2's byte-level vocabulary (openai/gpt-2, encoder.py)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


BYTE_LETTERS = _byte_letters()
_BYTES_BY_LETTER = {letter: bytes([byte]) for byte, letter in enumerate(BYTE_LETTERS)}


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A conversation as the model's template renders it, up to the beginning of the reply."""

    content: str | tuple[int, ...]
    """The prompt, as text or as token ids."""
    text: str | None
    """The prompt as text.

    If `content` is token ids, the text is joined from the tokens' strings, or is None if the server sends no strings.
    """
    prefill: str = ""
    """The start of the reply, such as that of a required call, if `content` already ends with this text."""
    context: int | None = None
    """Maximum number of tokens of a prompt and its reply together; None if the server does not state it."""
    notes: tuple[str, ...] = ()
    """Sentences for the trace that say what was left out when the conversation was rendered."""


@dataclass(frozen=True, slots=True)
class TemplateRequest:
    """A request to render a conversation."""

    path: str
    """The route, below the server's root."""
    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What was left out of the request, as sentences for the trace."""


def encode_template_request(
    body: Mapping[str, Any], endpoint: TemplateEndpoint, *, num_ctx: int | None = None
) -> TemplateRequest | None:
    """Encode a request that asks the server to render the conversation of a Chat Completions body.

    Return None if Ollama's API cannot express the conversation.
    """
    given = {key: body[key] for key in TEMPLATE_KEYS if body.get(key) is not None}
    match endpoint:
        case "llamacpp":
            return TemplateRequest("/apply-template", given)
        case "tokenize":
            unused = [key for key in _UNUSED_BY_TOKENIZE if key in given]
            notes = (f"not sent: {', '.join(unused)}; /tokenize does not know it",) if unused else ()
            return TemplateRequest("/tokenize", _tokenize_body(given), notes)
        case "ollama":
            loading = {key: body[key] for key in _LOADING if body.get(key) is not None}
            written = encode_chat_request({**given, **loading}, num_ctx=num_ctx)
            if written.body is None:
                return None
            return TemplateRequest(OLLAMA_PATH, {**written.body, _RENDER_ONLY: True}, written.notes)


def encode_tokenize_request(model: str, text: str) -> TemplateRequest:
    """Return the request for the token ids of a text that will be appended to a prompt."""
    return TemplateRequest("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})


def _tokenize_body(given: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = {**{key: given[key] for key in _IN_KWARGS if key in given}, **as_object(given.get("chat_template_kwargs"))}
    body = {key: value for key, value in given.items() if key not in {*_IN_KWARGS, *_UNUSED_BY_TOKENIZE}}
    if kwargs:
        body["chat_template_kwargs"] = kwargs
    if body.get("continue_final_message") is True:
        body["add_generation_prompt"] = False  # the default is true, and vLLM refuses both together
    return {**body, "return_token_strs": True}


def decode_rendered_prompt(reply: Any, endpoint: TemplateEndpoint) -> RenderedPrompt | None:
    """Decode the server's reply; return None if it has no prompt, because the server ignored the request to render."""
    data = as_object(reply)
    match endpoint:
        case "llamacpp":
            return _text_prompt(data.get("prompt"))
        case "ollama":
            return _text_prompt(as_object(data.get("_debug_info")).get("rendered_template"))
        case "tokenize":
            return _ids_prompt(data)


def _text_prompt(text: Any) -> RenderedPrompt | None:
    return RenderedPrompt(text, text) if isinstance(text, str) and text else None


def _tokens_text(strings: Sequence[str]) -> str:
    """Return the text of tokens, given as their strings in the vocabulary; control tokens are kept unchanged."""
    of_bytes = any("Ġ" in string or "Ċ" in string for string in strings)
    return b"".join(_token_bytes(string, of_bytes=of_bytes) for string in strings).decode("utf-8", "replace")


def _token_bytes(string: str, *, of_bytes: bool) -> bytes:
    """Return the bytes of a token. If `of_bytes`, each letter in the vocabulary's strings represents a byte."""
    if string.startswith("<") and string.endswith(">"):
        byte = _BYTE.fullmatch(string)
        return string.encode() if byte is None else bytes([int(byte[1], 16)])
    text = string.replace("▁", " ")
    if not of_bytes:
        return text.encode()
    return b"".join(_BYTES_BY_LETTER[letter] if letter in _BYTES_BY_LETTER else letter.encode() for letter in text)


def _ids_prompt(data: Mapping[str, Any]) -> RenderedPrompt | None:
    ids = tuple(number for number in as_list(data.get("tokens")) if as_int(number) is not None)
    if not ids or len(ids) != len(as_list(data.get("tokens"))):
        return None
    strings = data.get("token_strs")
    text = _tokens_text([as_text(string) for string in strings]) if is_array(strings) else None
    context = as_int(data.get("max_model_len")) or 0
    return RenderedPrompt(ids, text, context=context if 0 < context < _MANY_TOKENS else None)
