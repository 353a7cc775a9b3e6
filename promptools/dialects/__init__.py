"""The dialects, in the order in which they are looked for: where two may begin at one place the earlier is tried first.

Each is loaded when the first reply is read, not before: an app that imports the library should not wait for them.
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
    # what stands at the beginning of a line, or anywhere
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
"""Each name, and where its class is: module of this package, then class."""

_loaded: dict[str, Dialect] = {}
_added: dict[str, Dialect] = {}
_editions = [0]


def edition() -> int:
    """Give a number that changes with the dialects that the app has added."""
    return _editions[0]


def names() -> tuple[str, ...]:
    """Give the names of all dialects; those that the app added come first."""
    return (*_added, *BUILT_IN)


def get(name: str) -> Dialect:
    """Give a dialect by name. Raises UsageError for a name that is none."""
    found = _loaded.get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    if not isinstance(name, str) or name not in BUILT_IN:
        raise UsageError(f"There is no dialect {name!r}; `promptools dialects` lists those there are.")
    module, _, kind = BUILT_IN[name].partition(":")
    made: Dialect = getattr(import_module(f"{__name__}.{module}"), kind)()
    _loaded[name] = made
    return made


def unknown(given: Iterable[str]) -> str:
    """Return what is wrong with a list of dialects' names, with those there are; empty: nothing is."""
    wrong = [each for each in given if each not in names()]
    return f"{wrong[0]!r} is no dialect; known: {', '.join(sorted(names()))}" if wrong else ""


def register(dialect: Dialect) -> Dialect:
    """Add a dialect of the app's own, looked for before the others. Raises UsageError for a name that is taken."""
    if dialect.name in names():
        raise UsageError(f"There is a dialect {dialect.name!r} already; give yours another name.")
    _added[dialect.name] = _loaded[dialect.name] = dialect
    _editions[0] += 1
    return dialect


def load(path: str | Path) -> Dialect:
    """Add a dialect that a TOML table tells: its markers and the keys of its JSON; see `promptools.dialects.table`.

    Raises UsageError for a file that cannot be read, a key that is not as it must be, and a name that is taken.
    """
    from promptools.dialects.table import read

    return register(read(path))


def unregister(name: str) -> None:
    """Take a dialect that `register` added out again. Raises UsageError for any other name."""
    if name not in _added:
        raise UsageError(f"No dialect {name!r} was added; those added are {', '.join(_added) or 'none'}.")
    del _added[name], _loaded[name]
    _editions[0] += 1


__all__ = ["BUILT_IN", "edition", "get", "load", "names", "register", "unknown", "unregister"]
