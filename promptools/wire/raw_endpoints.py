"""Raw endpoints: the server lets the model continue a prompt, without a chat template or a reply parser.

Requests are encoded for each endpoint. Replies are decoded to the deltas of Chat Completions, with the model's raw text
as content. The module `parameters` says what happens to each parameter of a Chat Completions body on each endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from promptools.harmony.tokens import TOKEN_IDS
from promptools.json_values import is_array, is_object
from promptools.numbers import as_count, as_int
from promptools.wire import chat_decoder
from promptools.wire import ollama_upstream as ollama
from promptools.wire.chat_decoder import Delta, Envelope, error_of, is_error
from promptools.wire.json_body import as_list, as_object, as_text, is_shallow
from promptools.wire.parameters import apply_rules, merge_options

if TYPE_CHECKING:
    from promptools.harmony.bpe_vocabulary import Decode


# What requests to all raw endpoints have in common: the prompt, and the strings that end the reply.


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """The prompt that the model continues."""

    content: str | tuple[int, ...]
    """The prompt as text, or as token ids if the endpoint accepts them."""
    max_tokens: int
    """The token limit to send if the request sets no limit and the endpoint's default would cut the answer off."""

    decode: Decode | None = None
    """Decodes the token ids of the reply. If given, the ids are requested; if None, the reply is read as text."""
    stops: tuple[str, ...] = ()
    """The strings that end the reply, in addition to those of the request."""
    stop_ids: tuple[int, ...] = ()
    """The tokens that end the reply, for an endpoint that accepts token ids."""
    constraint: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The keys and values, such as `json_schema`, with which this endpoint enforces the form of the answer."""
    preserved: tuple[str, ...] = ()
    """The control tokens that the reply may contain as text. llama.cpp strips control tokens that are not listed."""

    add_special_tokens: bool = False
    """Whether the server adds the beginning-of-text token, which templates rendered by promptools leave out."""
    text: str | None = None
    """The prompt as text, if the server rendered it as token ids and also returned its text; otherwise None.

    The text lacks the prefill: the beginning of the reply, if promptools appended one to the prompt.
    """

    @property
    def as_json(self) -> str | list[int]:
        """The prompt as a JSON value."""
        return self.content if isinstance(self.content, str) else list(self.content)


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request for a raw endpoint."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What was left out, as sentences for the trace."""


END_OF_TURN_TOKENS = ("<|return|>", "<|call|>")
"""The tokens that end a turn of gpt-oss."""
END_OF_TURN_IDS: Mapping[int, str] = MappingProxyType(
    {TOKEN_IDS["return"]: END_OF_TURN_TOKENS[0], TOKEN_IDS["call"]: END_OF_TURN_TOKENS[1]}
)


def stop_strings(requested: Any, prompt: RawPrompt) -> list[str]:
    """Return the stop strings of the request, followed by the stop strings of the prompt, each once."""
    own = [requested] if isinstance(requested, str) else [stop for stop in as_list(requested) if isinstance(stop, str)]
    return list(dict.fromkeys((*own, *prompt.stops)))


# OpenAI's older endpoint, `/v1/completions`, as in vLLM, SGLang, LM Studio and others.
#
# Formats of vLLM 0.32.0. Replies are the same as in Chat Completions, with `text` instead of a message.


COMPLETIONS_PATH = "completions"
"""The route of the completions endpoint, relative to the API's base URL."""


def encode_completions_request(body: Mapping[str, Any], prompt: RawPrompt, *, ids: bool) -> RawRequest:
    """Encode a Chat Completions body, with `prompt` in place of the messages.

    `ids` says whether the server accepts token ids. The request always has a token limit, because vLLM and SGLang stop
    after 16 tokens without one. The reply must keep its special tokens, which vLLM and SGLang strip by default.
    """
    kept, _, notes = apply_rules(body, "completions")
    encoded: dict[str, Any] = {"max_tokens": prompt.max_tokens, **kept, **prompt.constraint, "prompt": prompt.as_json}
    if ids:
        stop_ids = dict.fromkeys((*as_list(body.get("stop_token_ids")), *prompt.stop_ids))
        encoded |= {
            "stop_token_ids": list(stop_ids),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "add_special_tokens": prompt.add_special_tokens,
        }
        if prompt.decode is not None:
            encoded["return_token_ids"] = True
    elif body.get("stop_token_ids") is not None:
        encoded["stop_token_ids"] = body["stop_token_ids"]
    stops = stop_strings(body.get("stop"), prompt)
    if stops:
        encoded["stop"] = stops
    return RawRequest(encoded, notes)


def decode_completions_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or a chunk of a stream; an error body becomes a single delta with `error`."""
    return [_restore_end_of_turn(delta) for delta in chat_decoder.decode_chunk(body)]


def _restore_end_of_turn(delta: Delta) -> Delta:
    """Append to the text the token that ended the turn.

    The server reports this token as the stop reason, but omits it from the text, although vLLM includes it in the token
    ids.
    """
    stop = END_OF_TURN_IDS.get(as_int(delta.stop_reason) or 0)
    return replace(delta, content=delta.content + stop) if stop else delta


# llama.cpp's own endpoint, `/completion` (b11549).
#
# A reply is an object, or a list of objects for several choices. In a stream each event is a part of a choice, and the
# last event of the choice has `stop`. No `[DONE]` follows.


LLAMACPP_PATH = "/completion"
"""The route of llama.cpp's raw endpoint, relative to the server's root."""


def encode_llamacpp_request(body: Mapping[str, Any], prompt: RawPrompt) -> RawRequest:
    """Encode a Chat Completions body, with `prompt` in place of the messages.

    If the request sets no limit, the answer may fill the context.
    """
    kept, _, notes = apply_rules(body, "llamacpp")
    stop = stop_strings(body.get("stop"), prompt)
    encoded = {**kept, **prompt.constraint, "prompt": prompt.as_json}
    return RawRequest({**encoded, "stop": stop, "preserved_tokens": list(prompt.preserved)}, notes)


def decode_llamacpp_envelope(body: Any) -> Envelope:
    """Decode the fields around the choices: only the model and the timings. The other fields repeat the request."""
    data = as_object(body[0] if is_array(body) and body else body)
    extra = {key: data[key] for key in ("timings",) if key in data and is_shallow(data[key])}
    return Envelope(model=as_text(data.get("model")), extra=extra)


def decode_llamacpp_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or an event of a stream; an error body becomes a single delta with `error`.

    The usage is stated for each choice, so it is in the delta of the choice.
    """
    problem = None if _is_reply(body) else error_of(body)
    if problem is not None:
        return [Delta(index=None, error=problem)]
    return [_decode_choice(as_object(choice)) for choice in (body if is_array(body) else [body])]


def _is_reply(body: Any) -> bool:
    first = as_object(body[0] if is_array(body) and body else body)
    return "content" in first and not is_error(first.get("error"))


def _decode_choice(raw_choice: Mapping[str, Any]) -> Delta:
    text, ended = as_text(raw_choice.get("content")), raw_choice.get("stop") is True
    stop_word = as_text(raw_choice.get("stopping_word"))
    return Delta(
        index=as_int(raw_choice.get("index")) or 0,
        content=text + stop_word if stop_word in END_OF_TURN_TOKENS else text,
        finish_reason=_finish_reason(raw_choice) if ended else None,
        usage=_usage(raw_choice) if ended else None,
    )


def _finish_reason(raw_choice: Mapping[str, Any]) -> str:
    return "length" if raw_choice.get("stop_type") == "limit" else "stop"


def _usage(raw_choice: Mapping[str, Any]) -> dict[str, Any]:
    read, written = as_count(raw_choice.get("tokens_evaluated")) or 0, as_count(raw_choice.get("tokens_predicted")) or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


# Ollama's `/api/generate` with `raw`: no template and no parser (0.32.15).
#
# A reply is an object; in a stream, each line is an object. The last object has `done`, the reason and the usage. Any
# line may be an error. Ollama leaves out the token that ended the turn.


GENERATE_PATH = "/api/generate"
"""The route of Ollama's raw endpoint, relative to the server's root."""
_DECODED_KEYS = frozenset({"response", "thinking", "tool_calls", "context"})


def encode_generate_request(body: Mapping[str, Any], prompt: RawPrompt, *, num_ctx: int | None = None) -> RawRequest:
    """Encode a Chat Completions body, with `prompt` in place of the messages.

    `num_ctx` is the context size to request, in tokens, unless the request's own `options` set a size. If the request
    sets no limit, the answer may fill the context.
    """
    kept, options, notes = apply_rules(body, "generate")
    encoded = {"stream": False, "truncate": False, **kept, **prompt.constraint, "raw": True, "prompt": prompt.as_json}
    merged = merge_options(kept, options, num_ctx)
    if is_object(merged):
        stops = stop_strings(merged.get("stop"), prompt)
        encoded["options"] = {**merged, **({"stop": stops} if stops else {})}
    return RawRequest(encoded, notes)


def decode_generate_envelope(body: Any) -> Envelope:
    """Decode the fields around the text. Ollama sends no id; the durations of the last line, in ns, are kept."""
    envelope = ollama.decode_envelope(body)
    return replace(envelope, extra={key: value for key, value in envelope.extra.items() if key not in _DECODED_KEYS})


def decode_generate_reply(body: Any) -> list[Delta]:
    """Decode a complete reply, or a line of a stream, to deltas.

    There is one delta for the only choice and, if the usage is stated, one for the usage. An error becomes a single
    delta with `error`.
    """
    data = as_object(body)
    if "response" not in data:
        return ollama.decode_reply(body)
    return ollama.decode_reply({**data, "message": {**data, "content": as_text(data["response"])}})
