"""Which model runs in which engine, and how; plain values that another process can be given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_object


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine, and of the client before it. They can be pickled if the options can."""

    model: str
    """A name on the Hugging Face hub, or a folder."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `vllm serve` with `_` for `-`, such as `{"tensor_parallel_size": 2}`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the client: `mode`, `config`, `attempt_timeout` and so on."""


def read_engine_arguments(words: Iterable[str]) -> dict[str, Any]:
    """Parse words that are JSON objects or `KEY=VALUE`; a value is JSON if it can be, else text.

    Raises `UsageError` for anything else, and for a key that occurs twice.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        for key, value in _read_word(word).items():
            name = key.removeprefix("--").replace("-", "_")
            if name in arguments:
                raise UsageError(f"engine argument {clip(name)!r} is given twice; leave one out")
            arguments[name] = value
    return arguments


def _read_word(word: str) -> dict[str, Any]:
    if word.lstrip().startswith("{"):
        value = _read_json(word)
        if is_object(value):
            return value
    key, equals, text = word.partition("=")
    if word.lstrip().startswith("{") or not equals or not key:
        # the word is not quoted: it may hold a token for the hub
        raise UsageError(
            f"the engine argument that begins with {clip(key.lstrip(), 20)!r} is neither a JSON object nor KEY=VALUE;"
            " write for example max_model_len=8192"
        )
    value = _read_json(text)
    return {key: text if value is None else value}


def _read_json(text: str) -> Any:
    """Parse JSON; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
