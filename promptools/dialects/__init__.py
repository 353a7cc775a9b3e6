"""Look up dialects, the text formats in which models write tool calls, and add an app's own dialects.

Dialects have a search order. If a text may begin a call in two dialects, the earlier dialect is tried first. Dialects
are imported when the first reply is parsed, so that importing the library stays fast.

`load` and `register` add a dialect for the whole process; `using` adds dialects for one `with` block. A client, a proxy
or a command adds the dialects in its config and arguments for its own code only, so that others in the process do not
see them.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from promptools.errors import UsageError, did_you_mean, suggest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from promptools.dialects.contract import Dialect, Head, Textual
    from promptools.dialects.own_dialects import GivenDialect, OwnDialects
    from promptools.dialects.readers.block_markers import Closers
    from promptools.dialects.readers.json_block import JsonBlockReader
    from promptools.dialects.table_file import read_table
    from promptools.jsontext.text import dump
    from promptools.parsing.parts import NEED_MORE, NeedMore

BUILT_IN: Final[dict[str, str]] = {
    # messages with headers
    "muse": "families.muse:muse",
    "harmony": "families.harmony_dialect:HarmonyDialect",
    # sentinels
    "dsml": "families.dsml:dsml",
    "step3": "families/step3.toml",
    "minimax_m3": "families/minimax_m3.toml",
    "minimax": "families/minimax.toml",
    "seed_oss": "families/seed_oss.toml",
    "mistral": "families.mistral:mistral",
    "deepseek": "families.deepseek:deepseek",
    "kimi_k2": "families.kimi_k2:KimiK2",
    "llama3_json": "families/llama3_json.toml",
    "granite": "families/granite.toml",
    "cohere": "families/cohere.toml",
    "apertus": "families/apertus.toml",
    "internlm2": "families/internlm2.toml",
    "inkling": "families.inkling:inkling",
    "longcat": "families/longcat.toml",
    "longcat_tags": "families/longcat_tags.toml",
    "solar": "families/solar.toml",
    "solar_open2": "families/solar_open2.toml",
    "pangu": "families/pangu.toml",
    "plamo": "families/plamo.toml",
    "gigachat": "families/gigachat.toml",
    "kimi_k3": "families.kimi_k3:KimiK3",
    "k2_horizon": "families/k2_horizon.toml",
    "iquest": "families/iquest.toml",
    "gemma4": "families.gemma4:Gemma4",
    "functiongemma": "families.gemma4:FunctionGemma",
    "lfm2": "families/lfm2.toml",
    "llama_python": "families.llama_python:llama_python",
    # readable tags
    "pythonic": "families.pythonic:Pythonic",
    "olmo3": "families/olmo3.toml",
    "execute_tool": "families/execute_tool.toml",
    "gorilla": "families/gorilla.toml",
    "smolagents": "families/smolagents.toml",
    "tool_code": "families/tool_code.toml",
    "hermes": "families.hermes:hermes",
    "qwen3_coder": "families/qwen3_coder.toml",
    "minicpm": "families/minicpm.toml",
    "anthropic": "families/anthropic.toml",
    "goose": "families/goose.toml",
    "toolbridge": "families.toolbridge:ToolBridge",
    "qwen_agent": "families/qwen_agent.toml",
    "exaone": "families/exaone.toml",
    "jamba": "families/jamba.toml",
    "minimax_m1": "families/minimax_m1.toml",
    "nemotron": "families/nemotron.toml",
    "lmstudio": "families.lmstudio:lmstudio",
    "phi4": "families/phi4.toml",
    "firefunction": "families/firefunction.toml",
    "hyperclova": "families/hyperclova.toml",
    "functionary": "families.functionary:functionary",
    "hunyuan": "families/hunyuan.toml",
    "glm": "families/glm.toml",
    "laguna": "families/laguna.toml",
    "telechat": "families/telechat.toml",
    "step_audio": "families/step_audio.toml",
    "cwm": "families.cwm:cwm",
    # ordinary text at the beginning of a line, or anywhere
    "tool_name_xml": "families.tool_name_xml:ToolNameXml",
    "tool_name_yaml": "families.tool_name_xml:ToolNameYaml",
    "nexusraven": "families/nexusraven.toml",
    "command_r": "families.command_r:CommandR",
    "bare": "families.named_line:NamedLine",
    "json": "families.generic_json:GenericJson",
    "rwkv": "families/rwkv.toml",
    "react": "families.react:React",
    "mimicry": "families.history_echo:HistoryEcho",
    "xlam": "families/xlam.toml",
}
"""Where each built-in dialect is defined: a TOML table, or `module:name` of a function or class that makes it."""

_loaded: dict[str, Dialect] = {}
_added: dict[str, Dialect] = {}
_editions = [0]
_own: ContextVar[OwnDialects | None] = ContextVar("promptools_own_dialects", default=None)
"""The dialects that are known only inside the current `using` block."""

Edition: TypeAlias = tuple[int, int]


def edition() -> Edition:
    """Return a cache key for the set of known dialects, which the app can change with `register` and `using`."""
    own = _own.get()
    return _editions[0], 0 if own is None else own.number


def names() -> tuple[str, ...]:
    """Return the names of all dialects in search order; the app's own dialects come first."""
    own = _own.get()
    if own is None:
        return (*_added, *BUILT_IN)
    return (*own.by_name, *(name for name in _added if name not in own.by_name), *BUILT_IN)


def get(name: str) -> Dialect:
    """Return a dialect by name. Raises UsageError for an unknown name."""
    own = _own.get()
    if own is not None and isinstance(name, str) and name in own.by_name:
        return own.by_name[name]
    cached = _loaded.get(name) if isinstance(name, str) else None
    if cached is not None:
        return cached
    if not isinstance(name, str) or name not in BUILT_IN:
        hint = did_you_mean(name, names()) if isinstance(name, str) else ""
        raise UsageError(f"There is no dialect {name!r}; {hint}`promptools dialects` lists all of them.")
    _loaded[name] = dialect = _load_built_in(name)
    return dialect


def _load_built_in(name: str) -> Dialect:
    """Load a built-in dialect from its TOML table or its Python module."""
    module, _, factory = BUILT_IN[name].partition(":")
    if factory:
        dialect: Dialect = getattr(import_module(f"{__name__}.{module}"), factory)()
    else:
        dialect = _tables().read_family(name)
    return dialect


def _tables() -> Any:
    """Return the module `promptools.dialects.table`. It is imported late because its own imports need this package."""
    return import_module(f"{__name__}.table")


def unknown(given: Iterable[str]) -> str:
    """Return an error message for the first name that is not a known dialect; empty if all names are known."""
    missing = [name for name in given if name not in names()]
    return f"{missing[0]!r} is not a known dialect; {suggest(missing[0], names())}" if missing else ""


def register(dialect: Dialect) -> Dialect:
    """Add an app's own dialect, which is tried before the built-in ones. Raises UsageError if the name is taken."""
    if dialect.name in names():
        raise UsageError(f"There is a dialect {dialect.name!r} already; give yours another name.")
    _added[dialect.name] = _loaded[dialect.name] = dialect
    _editions[0] += 1
    return dialect


def load(path: str | Path) -> Dialect:
    """Add a dialect declared in a TOML table; see `promptools.dialects.table`.

    Raises UsageError if the file cannot be read, a key is invalid, or the name is taken.
    """
    return register(_tables().read_dialect(path))


def unregister(name: str) -> None:
    """Remove a dialect that `register` added. Raises UsageError for any other name."""
    if name not in _added:
        raise UsageError(f"No dialect {name!r} was added; those added are {', '.join(_added) or 'none'}.")
    del _added[name], _loaded[name]
    _editions[0] += 1


@contextmanager
def using(*given: GivenDialect) -> Generator[None]:
    """Add an app's own dialects for the code inside a `with` block.

    Pass each dialect as the path of its TOML table, as a `DialectTable`, or as the dialect object. These dialects are
    tried before all others, and replace dialects of an outer block that have the same names. Threads and processes that
    are started inside the block do not know these dialects. Raises UsageError as `load` does.
    """
    with using_own(import_module(f"{__name__}.own_dialects").read_own(given)):
        yield


@contextmanager
def using_own(own: OwnDialects, *, last: bool = False) -> Generator[None]:
    """Add the dialects in `own` inside a `with` block.

    These dialects are tried before the dialects of outer blocks or, if `last` is true, after them.
    """
    outer = _own.get()
    if outer is None or not own.given:
        token = _own.set(own if own.given else outer)
    else:
        pair = (own, outer) if last else (outer, own)
        token = _own.set(import_module(f"{__name__}.own_dialects").together(*pair))
    try:
        yield
    finally:
        _own.reset(token)


_ON_FIRST_USE = {
    "Closers": "promptools.dialects.readers.block_markers",
    "Head": "promptools.dialects.contract",
    "Learned": "promptools.learning",
    "JsonBlockReader": "promptools.dialects.readers.json_block",
    "NEED_MORE": "promptools.parsing.parts",
    "NeedMore": "promptools.parsing.parts",
    "Textual": "promptools.dialects.contract",
    "dump": "promptools.jsontext.text",
    "learn": "promptools.learning",
    "read_table": "promptools.dialects.table_file",
}
"""Names that an app may need to write its own dialect, each with the module that defines it."""


def __getattr__(name: str) -> Any:
    """Import a name in `_ON_FIRST_USE` when it is first used, since few apps need any of these names."""
    if name in _ON_FIRST_USE:
        return getattr(import_module(_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BUILT_IN",
    "NEED_MORE",
    "Closers",
    "Head",
    "JsonBlockReader",
    "NeedMore",
    "Textual",
    "dump",
    "edition",
    "get",
    "load",
    "names",
    "read_table",
    "register",
    "unknown",
    "unregister",
    "using",
]
