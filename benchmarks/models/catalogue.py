"""The models of the page; their files are in tools/recipes/models.py."""

from __future__ import annotations

from typing import NamedTuple


class Model(NamedTuple):
    """One model of the page."""

    title: str
    dialects: tuple[str, ...]
    """The dialects that it is asked in besides the one that promptools chooses."""


MODELS = {
    "qwen-0.5b": Model("Qwen2.5-Coder-0.5B-Instruct, Q4_K_M", ("hermes", "llama3_json", "pythonic")),
    "qwen-1.5b": Model("Qwen2.5-Coder-1.5B-Instruct, Q4_K_M", ("hermes",)),
    "smollm2": Model("SmolLM2-135M-Instruct, Q4_1", ("hermes",)),
    "gemma-270m": Model("Gemma 3 270M (not tuned to follow instructions), Q4_K_M", ("tool_code",)),
}
