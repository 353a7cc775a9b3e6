"""The API keys that the proxy accepts, from the environment, a file and the config; some have a name, and own limits.

A name may have several keys, so that a key can be replaced while clients still use the old one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from promptools.errors import UsageError, clip

if TYPE_CHECKING:
    from promptools.profiles import ProxyOptions

API_KEY_VARIABLE = "PROMPTOOLS_API_KEY"
"""Environment variable with the API keys that the proxy accepts, separated by blanks or commas."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NAMED_LINE = re.compile(r"(\S+)\s+=\s+(\"?)(\S+)\2")
"""`NAME = KEY`, with blanks around the `=`, which may occur in a key; quotes make the file valid TOML."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One API key; `name` is empty if it has none."""

    key: str = field(repr=False)
    name: str = ""


def read_key_file(text: str, source: str) -> list[ApiKey]:
    """Read the keys of a file: on each line `NAME = KEY`, or keys without a name; `#` begins a comment."""
    keys: list[ApiKey] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            continue
        named = _NAMED_LINE.fullmatch(stripped)
        keys += [ApiKey(named[3], named[1])] if named else [ApiKey(word) for word in stripped.split()]
    if not keys:
        raise UsageError(f"{source!r} holds no API key; write one a line, or NAME = KEY")
    return keys


def read_keys(variable: str) -> list[str]:
    """Return the keys in an environment variable; raise `UsageError` if it holds none."""
    keys = _split(os.environ.get(variable, ""))
    if not keys:
        raise UsageError(f"the environment variable {variable!r} is not set; set it to the API keys")
    return keys


def collect_keys(given: Iterable[str | ApiKey] | str, options: ProxyOptions) -> list[ApiKey]:
    """Return the keys of the arguments, the config and the environment; raise `UsageError` if one is missing."""
    values = [given] if isinstance(given, str) else given
    keys = [ApiKey(value) if isinstance(value, str) else value for value in values]
    if options.key_file is not None:
        keys += _read_config_file(options.key_file)
    if options.api_key_env is not None:
        keys += [ApiKey(key) for key in _variable(options.api_key_env, "api_key_env")]
    for name, key_options in options.keys.items():
        if key_options.env is not None:
            keys += [ApiKey(key, name) for key in _variable(key_options.env, f"keys.{name}.env")]
    keys += [ApiKey(key) for key in _split(os.environ.get(API_KEY_VARIABLE, ""))]
    _check_names(keys, options.keys)
    return keys


def _read_config_file(path: str) -> list[ApiKey]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"[proxy] key_file: cannot read {path!r}: {error}") from None
    return read_key_file(text, path)


def _variable(variable: str, option: str) -> list[str]:
    keys = _split(os.environ.get(variable, ""))
    if not keys:
        raise UsageError(f"[proxy] {option}: the environment variable {variable!r} is not set; set it to the API keys")
    return keys


def _split(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _check_names(keys: list[ApiKey], named: Mapping[str, object]) -> None:
    """Raise `UsageError` for an invalid name, a name without a key, and a key with two names."""
    names: dict[str, str] = {}
    for key in keys:
        if key.name and not _NAME.fullmatch(key.name):
            raise UsageError(f"{clip(key.name)!r} cannot be the name of an API key: use letters, digits and `._-`")
        if key.name and names.setdefault(key.key, key.name) != key.name:
            raise UsageError(f"{names[key.key]!r} and {key.name!r} have the same API key; each needs its own")
    missing = [name for name in named if name not in names.values()]
    if missing:
        raise UsageError(
            f"[proxy] keys.{missing[0]}: it has no key; name the variable that holds it with `env`,"
            f" or write `{missing[0]} = KEY` into the file of keys"
        )
