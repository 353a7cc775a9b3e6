"""The finding as a provider of a config, in TOML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from promptools.profiles.profile import GENERIC

if TYPE_CHECKING:
    from promptools.probing.findings import Subject
    from promptools.probing.recommendation import Recommendation


def write_provider(
    name: str, base_url: str, key_variable: str | None, subject: Subject, recommendation: Recommendation
) -> str:
    """Return a config with the server as its provider, and its model with the facts that differ from those known.

    `base_url` has no credentials; `key_variable` is the environment variable of the key, if one was sent.
    """
    kind = subject.profile.kind
    provider = {
        **({"kind": kind} if kind != GENERIC else {}),
        "base_url": base_url,
        **({"api_key_env": key_variable} if key_variable else {}),
        "default_model": subject.model,
    }
    lines = [f"[providers.{_encode(name)}]", *_pairs(provider)]
    if recommendation.facts:
        table = f"[providers.{_encode(name)}.models.{_encode(subject.model)}.profile]"
        lines += ["", table, *_pairs(recommendation.facts)]
    return "\n".join(lines) + "\n"


def _pairs(table: Any) -> list[str]:
    return [f"{key} = {_encode(value)}" for key, value in table.items()]


def _encode(value: Any) -> str:
    """Encode a text, number, truth value or list of texts: all of JSON's forms of them are TOML's too."""
    return json.dumps(value, ensure_ascii=False)
