"""Encode models for a client of Ollama, from a server's `/v1/models`: listed, running and shown (Ollama 0.32.15).

Apps read some fields without looking whether they are there, so all of Ollama's are, with empty values where the server
does not say. The digest, which apps use to tell models apart, is a hash of the model's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from promptools.wire.json_types import as_count, as_list, as_object, as_text, as_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN_TIME = "0001-01-01T00:00:00Z"
"""Go's zero time, which Ollama itself writes for a time that it does not know."""
NEVER = "9999-12-31T23:59:59Z"
UNKNOWN_ARCHITECTURE = "unknown"
_THINKING_FAMILIES = frozenset({"gpt-oss", "qwen-thinking", "deepseek-r1"})
"""Families that always think. For others the server does not say it, and an app need not ask them to."""
_UNITS = ((10**9, "{:.1f}B"), (10**6, "{:.2f}M"), (10**3, "{:.0f}K"))


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model of the list of a server."""

    entry: Mapping[str, Any]
    family: str = ""
    """Its family; empty if it is not known."""

    @property
    def name(self) -> str:
        """The name that requests use."""
        return as_text(self.entry.get("id"))

    @property
    def names(self) -> tuple[str, ...]:
        """All names that requests may use."""
        return (self.name, *filter(None, map(as_text, as_list(self.entry.get("aliases")))))

    @property
    def context(self) -> int | None:
        """Tokens that a prompt and its answer may have together (vLLM, SGLang, llama.cpp); None if not stated."""
        return as_count(self.entry.get("max_model_len")) or as_count(self._meta.get("n_ctx"))

    @property
    def capabilities(self) -> list[str]:
        """What the model can do. Tools are always among it: promptools provides them."""
        modalities = as_list(as_object(self.entry.get("architecture")).get("input_modalities"))
        seen = [name for name, known in (("vision", "image" in modalities), ("thinking", self._thinks)) if known]
        return ["completion", "tools", *seen]

    @property
    def _thinks(self) -> bool:
        return self.family in _THINKING_FAMILIES

    @property
    def _meta(self) -> dict[str, Any]:
        """What llama.cpp alone states."""
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
        """Encode an entry of `/api/ps`; a model that is served is never unloaded."""
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
        """Encode the response of `/api/show`; `context` is the profile's, which counts if the list states none."""
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
    """Write a number of parameters as Ollama does; empty for none."""
    unit = next(((size, form) for size, form in _UNITS if number >= size), None)
    if unit is None:
        return str(number) if number else ""
    size, form = unit
    return form.format(number / size)
