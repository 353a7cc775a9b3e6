"""Ollama's own API: encode responses for a client, complete or as lines of a stream, and models (Ollama 0.32.15).

A line contains a part of the message; the last line contains the `done_reason` and the usage. Calls are sent complete,
with their arguments as an object. If there are calls, `done_reason` is `stop`, as in Ollama itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from promptools.numbers import as_count, as_number, as_timestamp
from promptools.parsing.events import CallEnd, Event, Reasoning, Text
from promptools.wire.chat_encoder import finish_reason
from promptools.wire.json_body import as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptools.types import Call, Reply
    from promptools.wire.chat_decoder import Envelope


_FORWARDED_FIELDS = {
    "load_duration": int,
    "prompt_eval_duration": int,
    "eval_duration": int,
    "remote_model": str,
    "remote_host": str,
}
"""Fields of an Ollama server's reply that are passed on to the client, each with its type.

They override the values that promptools measures.
"""
_TIMINGS = {"prompt_eval_duration": "prompt_ms", "eval_duration": "predicted_ms"}
"""Maps Ollama's durations to the fields of llama.cpp's `timings` that state them in milliseconds."""


def encode_message(
    content: str = "", thinking: str = "", calls: Sequence[Call] = (), *, first: int = 0
) -> dict[str, Any]:
    """Encode a message or a part of one; `first` is the index of the first of `calls` among all calls of the reply."""
    encoded: dict[str, Any] = {"role": "assistant", "content": content}
    if thinking:
        encoded["thinking"] = thinking
    if calls:
        encoded["tool_calls"] = [_encode_call(call, index) for index, call in enumerate(calls, first)]
    return encoded


def _encode_call(call: Call, index: int) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": index, "name": call.name, "arguments": call.arguments}}


def encode_line(envelope: Envelope, message: Mapping[str, Any], *, logprobs: Any = None) -> dict[str, Any]:
    """Encode a line of a stream; `mark_done` makes it the last line.

    `logprobs` are the log probabilities in the form of Chat Completions.
    """
    body: dict[str, Any] = {"model": envelope.model}
    if envelope.created:
        body["created_at"] = datetime.fromtimestamp(envelope.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body |= {"message": dict(message), "done": False}
    tokens = as_list(as_object(logprobs).get("content"))
    return body | {"logprobs": tokens} if tokens else body


def encode_generated(line: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a line or a whole response to the form of `/api/generate`, which has the text outside of a message."""
    body = {key: value for key, value in line.items() if key != "message"}
    message = as_object(line.get("message"))
    thinking = {"thinking": message["thinking"]} if message.get("thinking") else {}
    at = {"model": body.pop("model", ""), "created_at": body.pop("created_at", "")}
    return {**at, "response": message.get("content", ""), **thinking, **body}


def mark_done(body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """Return a copy of the last line, or of a whole response, with `done` and `done_reason` set."""
    reason = finish_reason(reply)
    return {**body, "done": True, "done_reason": "stop" if reason == "tool_calls" else reason}


def encode_usage(
    usage: Mapping[str, Any] | None, extra: Mapping[str, Any], seconds: float, phases: tuple[float, float]
) -> dict[str, Any]:
    """Encode the usage: counts of tokens, and durations in nanoseconds. The server's own values take precedence.

    `seconds` is the total time. `phases` are the times before and after the first byte of the last reply; apps compute
    tokens per second from them.
    """
    encoded: dict[str, Any] = {"total_duration": int(seconds * 1e9)}
    for key, measured in zip(_TIMINGS, phases, strict=True):
        if measured:
            encoded[key] = int(measured * 1e9)
    timings = as_object(extra.get("timings"))
    for key, name in _TIMINGS.items():
        if (milliseconds := as_number(timings.get(name))) is not None:
            encoded[key] = int(milliseconds * 1e6)
    encoded |= {key: extra[key] for key, kind in _FORWARDED_FIELDS.items() if isinstance(extra.get(key), kind)}
    spent = usage or {}
    for key, name in (("prompt_eval_count", "prompt_tokens"), ("eval_count", "completion_tokens")):
        if (count := as_count(spent.get(name))) is not None:
            encoded[key] = count
    return encoded


class LineWriter:
    """Encodes the parser's events as lines of an Ollama stream."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._calls = 0

    def role(self, content: str | None = "") -> None:  # noqa: ARG002 one signature for all writers
        """Return None, since every line states the role."""
        return

    def write(self, event: Event, logprobs: Any = None) -> list[dict[str, Any]]:
        """Encode a parser event. Return no lines for events that clients do not receive.

        If the event is a text, `logprobs` are the log probabilities of its tokens.
        """
        match event:
            case Text(text=text):
                return [encode_line(self._envelope, encode_message(text), logprobs=logprobs)]
            case Reasoning(text=text):
                return [encode_line(self._envelope, encode_message(thinking=text))]
            case CallEnd(call=call):
                self._calls += 1
                return [encode_line(self._envelope, encode_message(calls=(call,), first=self._calls - 1))]
            case _:
                return []

    def discard_attempt(self) -> None:
        """Do nothing after a failed attempt, because the reasoning of the next attempt follows in the same field."""

    def finish(self, reply: Reply, *, logprobs: Any = None) -> dict[str, Any]:
        """Encode the last line, without the usage."""
        return mark_done(encode_line(self._envelope, encode_message(), logprobs=logprobs), reply)


# Encode models for a client of Ollama, from a server's `/v1/models`: listed, running and shown (Ollama 0.32.15).
#
# Apps read some fields without checking whether they exist. So all of Ollama's fields are sent, with empty values where
# the server states nothing. The digest, by which apps distinguish models, is a hash of the model's name.


UNKNOWN_TIME = "0001-01-01T00:00:00Z"
"""The zero time of Go, which Ollama itself writes for an unknown time."""
NEVER = "9999-12-31T23:59:59Z"
UNKNOWN_ARCHITECTURE = "unknown"
_THINKING_FAMILIES = frozenset({"gpt-oss", "qwen-thinking", "deepseek-r1"})
"""Families that always think. Servers do not state whether a model of another family can think."""
_UNITS = ((10**9, "{:.1f}B"), (10**6, "{:.2f}M"), (10**3, "{:.0f}K"))


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model in a server's list."""

    entry: Mapping[str, Any]
    family: str = ""
    """The model's family; empty if it is not known."""

    @property
    def name(self) -> str:
        """The model's name in requests."""
        return as_text(self.entry.get("id"))

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the model that requests may use: its name and its aliases."""
        return (self.name, *filter(None, map(as_text, as_list(self.entry.get("aliases")))))

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a prompt and its answer together; None if the server does not state it.

        vLLM, SGLang and llama.cpp state it.
        """
        return as_count(self.entry.get("max_model_len")) or as_count(self._meta.get("n_ctx"))

    @property
    def capabilities(self) -> list[str]:
        """The model's capabilities, as Ollama names them. They always include `tools`, which promptools provides."""
        modalities = as_list(as_object(self.entry.get("architecture")).get("input_modalities"))
        seen = [name for name, known in (("vision", "image" in modalities), ("thinking", self._thinks)) if known]
        return ["completion", "tools", *seen]

    @property
    def _thinks(self) -> bool:
        return self.family in _THINKING_FAMILIES

    @property
    def _meta(self) -> dict[str, Any]:
        """The facts about the model that only llama.cpp states."""
        return as_object(self.entry.get("meta"))

    @property
    def _size(self) -> int:
        return as_count(self._meta.get("size")) or 0

    @property
    def _digest(self) -> str:
        return sha256(self.name.encode("utf-8", "replace")).hexdigest()

    @property
    def _modified_at(self) -> str:
        created = as_timestamp(self.entry.get("created"))
        return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if created else UNKNOWN_TIME

    @property
    def _details(self) -> dict[str, Any]:
        return {
            "parent_model": "",
            "format": "gguf" if self._meta else "",
            "family": self.family,
            "families": [self.family] if self.family else [],
            "parameter_size": _human_number(as_count(self._meta.get("n_params")) or 0),
            "quantization_level": as_text(self._meta.get("ftype")),
        }

    def encode_listed(self) -> dict[str, Any]:
        """Encode an entry of `/api/tags`."""
        sizes = {"context_length": self.context, "embedding_length": as_count(self._meta.get("n_embd"))}
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": self._modified_at,
            "size": self._size,
            "digest": self._digest,
            "details": {**self._details, **{key: value for key, value in sizes.items() if value}},
            "capabilities": self.capabilities,
        }

    def encode_running(self) -> dict[str, Any]:
        """Encode an entry of `/api/ps`. The entry never expires, since a served model is never unloaded."""
        return {
            "name": self.name,
            "model": self.name,
            "size": self._size,
            "digest": self._digest,
            "details": self._details,
            "expires_at": NEVER,
            "size_vram": self._size,
            "context_length": self.context or 0,
        }

    def encode_shown(self, context: int | None) -> dict[str, Any]:
        """Encode the response of `/api/show`; `context`, from the profile, is used if the server states no context."""
        architecture = self.family or UNKNOWN_ARCHITECTURE
        stated = {
            "general.parameter_count": as_count(self._meta.get("n_params")),
            f"{architecture}.context_length": self.context or context,
            f"{architecture}.embedding_length": as_count(self._meta.get("n_embd")),
        }
        return {
            "modelfile": "",
            "parameters": "",
            "template": "",
            "details": self._details,
            "model_info": {
                "general.architecture": architecture,
                "general.basename": self.name,
                **{key: value for key, value in stated.items() if value},
            },
            "capabilities": self.capabilities,
            "modified_at": self._modified_at,
        }


def _human_number(number: int) -> str:
    """Return a number of parameters in Ollama's form (`7.6B`); empty for 0."""
    unit = next(((size, form) for size, form in _UNITS if number >= size), None)
    if unit is None:
        return str(number) if number else ""
    size, form = unit
    return form.format(number / size)
