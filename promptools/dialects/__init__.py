"""The registry of dialects, in search order: where two may begin at the same offset, the earlier one is tried first.

Each is imported when the first reply is parsed, not before, so that importing the library stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from promptools.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from promptools.dialects.base import Dialect

BUILT_IN: Final[dict[str, str]] = {
    # messages with headers
    "muse": "muse:Muse",
    "harmony": "harmony:Harmony",
    # sentinels
    "dsml": "dsml:Dsml",
    "step3": "step3:Step3",
    "minimax_m3": "minimax_m3:MiniMaxM3",
    "minimax": "minimax:MiniMax",
    "seed_oss": "seed_oss:SeedOss",
    "mistral": "mistral:Mistral",
    "deepseek": "deepseek:DeepSeek",
    "kimi_k2": "kimi_k2:KimiK2",
    "llama3_json": "bare_json:Llama3Json",
    "granite": "families:granite",
    "cohere": "families:cohere",
    "apertus": "families:apertus",
    "internlm2": "families:internlm2",
    "inkling": "inkling:Inkling",
    "longcat": "families:longcat",
    "solar": "families:solar",
    "plamo": "families:plamo",
    "gigachat": "gigachat:GigaChat",
    "kimi_k3": "kimi_k3:KimiK3",
    "k2_horizon": "glm_kin:K2Horizon",
    "iquest": "glm_kin:Iquest",
    "gemma4": "gemma4:Gemma4",
    "functiongemma": "gemma4:FunctionGemma",
    "lfm2": "lfm2:Lfm2",
    "llama_python": "llama_python:LlamaPython",
    # readable tags
    "pythonic": "pythonic:Pythonic",
    "olmo3": "olmo3:Olmo3",
    "execute_tool": "execute_tool:ExecuteTool",
    "gorilla": "nexusraven:Gorilla",
    "smolagents": "tool_code:Smolagents",
    "tool_code": "tool_code:ToolCode",
    "hermes": "hermes:Hermes",
    "qwen3_coder": "qwen3_coder:Qwen3Coder",
    "minicpm": "minicpm:MiniCpm",
    "anthropic": "anthropic:Anthropic",
    "goose": "goose:Goose",
    "toolbridge": "toolbridge:ToolBridge",
    "qwen_agent": "qwen_agent:QwenAgent",
    "exaone": "families:exaone",
    "jamba": "families:jamba",
    "minimax_m1": "families:minimax_m1",
    "nemotron": "families:nemotron",
    "lmstudio": "lmstudio:LmStudio",
    "phi4": "families:phi4",
    "firefunction": "families:firefunction",
    "hyperclova": "families:hyperclova",
    "functionary": "functionary:Functionary",
    "hunyuan": "glm_kin:Hunyuan",
    "glm": "glm:Glm",
    "laguna": "glm_kin:Laguna",
    # ordinary text at the beginning of a line, or anywhere
    "tool_name_xml": "tool_name_xml:ToolNameXml",
    "tool_name_yaml": "tool_name_xml:ToolNameYaml",
    "nexusraven": "nexusraven:NexusRaven",
    "command_r": "command_r:CommandR",
    "bare": "bare:Bare",
    "json": "json:Json",
    "react": "react:React",
    "mimicry": "mimicry:Mimicry",
    "xlam": "bare_json:Xlam",
}
"""Each dialect's name, and where its class is: module of this package, then class or factory."""

_loaded: dict[str, Dialect] = {}
_added: dict[str, Dialect] = {}
_editions = [0]


def edition() -> int:
    """Return a number that changes whenever the app adds or removes a dialect: a cache key."""
    return _editions[0]


def names() -> tuple[str, ...]:
    """Return the names of all dialects in search order, those added by the app first."""
    return (*_added, *BUILT_IN)


def get(name: str) -> Dialect:
    """Return a dialect by name. Raises UsageError for an unknown name."""
    cached = _loaded.get(name) if isinstance(name, str) else None
    if cached is not None:
        return cached
    if not isinstance(name, str) or name not in BUILT_IN:
        raise UsageError(f"There is no dialect {name!r}; `promptools dialects` lists those there are.")
    module, _, factory = BUILT_IN[name].partition(":")
    dialect: Dialect = getattr(import_module(f"{__name__}.{module}"), factory)()
    _loaded[name] = dialect
    return dialect


def unknown(given: Iterable[str]) -> str:
    """Return the error message for the first unknown name among those given; empty if all are known."""
    missing = [name for name in given if name not in names()]
    return f"{missing[0]!r} is no dialect; known: {', '.join(sorted(names()))}" if missing else ""


def register(dialect: Dialect) -> Dialect:
    """Add a dialect of the app's own, searched for before the others. Raises UsageError for a name that is taken."""
    if dialect.name in names():
        raise UsageError(f"There is a dialect {dialect.name!r} already; give yours another name.")
    _added[dialect.name] = _loaded[dialect.name] = dialect
    _editions[0] += 1
    return dialect


def load(path: str | Path) -> Dialect:
    """Add a dialect declared in a TOML table: its markers and the keys of its JSON; see `promptools.dialects.table`.

    Raises UsageError for a file that cannot be read, an invalid key, and a name that is taken.
    """
    from promptools.dialects.table import read

    return register(read(path))


def unregister(name: str) -> None:
    """Remove a dialect that `register` added. Raises UsageError for any other name."""
    if name not in _added:
        raise UsageError(f"No dialect {name!r} was added; those added are {', '.join(_added) or 'none'}.")
    del _added[name], _loaded[name]
    _editions[0] += 1


__all__ = ["BUILT_IN", "edition", "get", "load", "names", "register", "unknown", "unregister"]
