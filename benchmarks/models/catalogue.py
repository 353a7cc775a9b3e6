"""The models of the page; their files are in tools/recipes/models.py."""

from __future__ import annotations

from typing import NamedTuple


class Model(NamedTuple):
    """One model of the page."""

    title: str
    file: str
    """The name of its file without `.gguf`, by which llama.cpp also calls the model unless it is given another name."""
    dialects: tuple[str, ...]
    """The dialects in which it is asked, besides the dialect that promptools chooses."""
    tools: bool = True
    """Whether its chat template shows tools to the model."""


MODELS = {
    "qwen-0.5b": Model(
        "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
        "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M",
        ("hermes", "llama3_json", "pythonic"),
    ),
    "qwen-1.5b": Model("Qwen2.5-Coder-1.5B-Instruct, Q4_K_M", "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M", ("hermes",)),
    "smollm2": Model("SmolLM2-135M-Instruct, Q4_1", "SmolLM2-135M-Instruct.Q4_1", ("hermes",), tools=False),
    "gemma-270m": Model(
        "Gemma 3 270M (not tuned to follow instructions), Q4_K_M", "gemma-3-270m.Q4_K_M", ("tool_code",), tools=False
    ),
}
