"""Read a config file: `promptools.toml`, or a `ppxai-config.json` as it stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from promptools.profiles.config import Config, Model, Provider, ProxyOptions, by_name
from promptools.profiles.facts import take_facts, take_family, take_kind
from promptools.profiles.ppxai import read_ppxai
from promptools.profiles.shape import Place, Section, is_array, read, table

if TYPE_CHECKING:
    from pathlib import Path

TOP = ("default_provider", "providers", "tools", "proxy")
PROXY = ("api_key_env", "allowed_hosts", "allow_provider", "max_body")
PROVIDER = (
    "kind",
    "base_url",
    "api_key_env",
    "default_model",
    "server_version",
    "detect",
    "system_prompt",
    "models",
    "profile",
    "defaults",
)
MODEL = ("aliases", "family", "profile", "defaults")
MARKS: Mapping[str, Any] = {"dangerous": bool, "infer": bool, "aliases": Mapping[str, str]}


def load_config(path: Path) -> Config:
    """Read a config file: JSON (by suffix, else by content) is a `ppxai-config.json`, all else is `promptools.toml`.

    Raises `UsageError`, naming the file and the key, for what cannot be read or understood. Keys of a ppxai-config.json
    that mean nothing are named in `Config.warnings`.
    """
    place = Place(str(path))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise place.error(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise place.error(f"is not UTF-8: {error}") from None
    if path.suffix == ".json" or (path.suffix != ".toml" and text.lstrip().startswith("{")):
        return read_ppxai(_parse(json.loads, "JSON", text, place), place)
    return _read_toml(text, place)


def _parse(parser: Callable[[str], Any], what: str, text: str, place: Place) -> Any:
    """Parse a file's text."""
    try:
        return parser(text)
    except (ValueError, RecursionError) as error:
        raise place.error(f"is not valid {what}: {error}") from None


def _read_toml(text: str, place: Place) -> Config:
    """Read the text of a `promptools.toml`."""
    import tomllib  # only for a file in TOML

    top = Section(table(_parse(tomllib.loads, "TOML", text, place), place, TOP), place)
    return Config(
        file=place.file,
        default_provider=top.text("default_provider"),
        providers={name: _provider(name, each) for name, each in top.sections("providers", PROVIDER)},
        tools={name: _marks(each) for name, each in top.sections("tools", tuple(MARKS))},
        proxy=_proxy(Section(table(top.data.get("proxy", {}), place / "proxy", PROXY), place / "proxy")),
    )


def _proxy(section: Section) -> ProxyOptions:
    """Read what is said of the proxy."""
    return ProxyOptions(
        api_key_env=section.text("api_key_env"),
        allowed_hosts=section.get(tuple[str, ...], "allowed_hosts", ()),
        allow_provider=section.get(bool, "allow_provider", default=False),
        max_body=section.get(int, "max_body"),
    )


def _provider(name: str, section: Section) -> Provider:
    """Read one provider."""
    if is_array(section.data.get("models")):
        models = [Model(each) for each in section.get(tuple[str, ...], "models")]
    else:
        models = [_model(each, sub) for each, sub in section.sections("models", MODEL)]
    return Provider(
        name=name,
        kind=take_kind(section),
        base_url=section.text("base_url"),
        api_key_env=section.text("api_key_env"),
        default_model=section.text("default_model"),
        server_version=section.text("server_version"),
        detect=section.get(bool, "detect"),
        system_prompt=section.text("system_prompt"),
        models=by_name(models, section.place / "models"),
        facts=take_facts(section),
        defaults=section.table("defaults"),
    )


def _model(name: str, section: Section) -> Model:
    """Read one model of a provider."""
    return Model(
        name=name,
        aliases=section.get(tuple[str, ...], "aliases", ()),
        family=take_family(section),
        facts=take_facts(section),
        defaults=section.table("defaults"),
    )


def _marks(section: Section) -> dict[str, Any]:
    """Read the marks of one tool."""
    return {key: read(MARKS[key], value, section.place / key) for key, value in section.data.items()}
