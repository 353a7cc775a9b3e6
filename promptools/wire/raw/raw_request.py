"""What every raw endpoint is asked with: the prompt, the encoded request, and the strings that end the reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from promptools.harmony.tokens import TOKEN_IDS
from promptools.wire.json_types import as_list

if TYPE_CHECKING:
    from promptools.harmony.bpe_vocabulary import Decode


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """The prompt that the model continues."""

    content: str | tuple[int, ...]
    """Text, or token ids where the endpoint accepts them."""
    max_tokens: int
    """The token limit to send, where the request sets none and the endpoint's default would cut the answer."""

    decode: Decode | None = None
    """Decodes the token ids of the reply, which are then requested; None: the reply is read as text."""
    stops: tuple[str, ...] = ()
    """The strings that end the reply, beside those of the request."""
    stop_ids: tuple[int, ...] = ()
    """The tokens that end the reply, for an endpoint that takes ids."""
    constraint: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The endpoint's own keys that force the form of the answer."""
    preserved: tuple[str, ...] = ()
    """The control tokens that the reply may hold as text; llama.cpp strips those that it is not told to keep."""

    add_special_tokens: bool = False
    """Whether the server adds the token that a text begins with: a template that is rendered here leaves it out."""

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
    """Return the request's stop strings, followed by the prompt's."""
    own = [requested] if isinstance(requested, str) else [stop for stop in as_list(requested) if isinstance(stop, str)]
    return list(dict.fromkeys((*own, *prompt.stops)))
