"""Read a config file: `promptools.toml`, or an unmodified `ppxai-config.json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag

from promptools.profiles.config_files.config import Config, Model, Provider, ProxyOptions, index_models
from promptools.profiles.config_files.ppxai_json import read_ppxai
from promptools.profiles.facts import check_facts, check_family, check_kind
from promptools.profiles.tables import Location, Strings, Table, array_or_table, set_fields, validate_table

if TYPE_CHECKING:
    from pathlib import Path


class MarksTable(Table):
    """The marks of one tool."""

    dangerous: bool = False
    infer: bool | None = None
    aliases: dict[str, str] = Field(default_factory=dict)


class ModelTable(Table):
    """One model of a provider."""

    aliases: Strings = ()
    family: str | None = None
    profile: Any = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)


Models = Annotated[
    Annotated[Strings, Tag("[array]")] | Annotated[dict[str, ModelTable], Tag("[table]")], Discriminator(array_or_table)
]
"""A table of models, or only their names."""


class ProviderTable(Table):
    """One provider."""

    kind: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    default_model: str | None = None
    server_version: str | None = None
    detect: bool | None = None
    system_prompt: str | None = None
    models: Models = Field(default_factory=dict)
    profile: Any = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)


class ProxyTable(Table):
    """The options of the proxy itself."""

    api_key_env: str | None = None
    allowed_hosts: Strings = ()
    allow_provider: bool = False
    max_body: int | None = None


class FileTable(Table):
    """A whole `promptools.toml`."""

    default_provider: str | None = None
    providers: dict[str, ProviderTable] = Field(default_factory=dict)
    tools: dict[str, MarksTable] = Field(default_factory=dict)
    proxy: ProxyTable = Field(default_factory=ProxyTable)


def load_config(path: Path) -> Config:
    """Read a config file: JSON (by suffix, else by content) is a `ppxai-config.json`, all else is `promptools.toml`.

    Raises `UsageError`, naming the file and the key, for what cannot be read or is not valid. Unknown keys of a
    ppxai-config.json are listed in `Config.warnings`.
    """
    place = Location(str(path))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise place.error(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise place.error(f"is not UTF-8: {error}") from None
    if path.suffix == ".json" or (path.suffix != ".toml" and text.lstrip().startswith("{")):
        return read_ppxai(_parse(json.loads, "JSON", text, place), place)
    return _read_toml(text, place)


def _parse(parser: Callable[[str], Any], what: str, text: str, location: Location) -> Any:
    """Parse a file's text."""
    try:
        return parser(text)
    except (ValueError, RecursionError) as error:
        raise location.error(f"is not valid {what}: {error}") from None


def _read_toml(text: str, location: Location) -> Config:
    """Read the text of a `promptools.toml`."""
    import tomllib  # only for a file in TOML

    file = validate_table(FileTable, _parse(tomllib.loads, "TOML", text, location), location)
    return Config(
        file=location.file,
        default_provider=file.default_provider or None,
        providers={
            name: _provider(name, table, location / "providers" / name) for name, table in file.providers.items()
        },
        tools={name: set_fields(marks) for name, marks in file.tools.items()},
        proxy=_proxy(file.proxy),
    )


def _proxy(table: ProxyTable) -> ProxyOptions:
    """Build the proxy's options from their table."""
    return ProxyOptions(table.api_key_env or None, table.allowed_hosts, table.allow_provider, table.max_body)


def _provider(name: str, table: ProviderTable, location: Location) -> Provider:
    """Build a provider from its table."""
    models = table.models.items() if isinstance(table.models, dict) else ((each, ModelTable()) for each in table.models)
    return Provider(
        name=name,
        kind=check_kind(table.kind, location),
        base_url=table.base_url or None,
        api_key_env=table.api_key_env or None,
        default_model=table.default_model or None,
        server_version=table.server_version or None,
        detect=table.detect,
        system_prompt=table.system_prompt or None,
        models=index_models(
            (_model(model, entry, location / "models") for model, entry in models), location / "models"
        ),
        facts=check_facts(table.profile, location / "profile"),
        defaults=table.defaults,
    )


def _model(name: str, table: ModelTable, models: Location) -> Model:
    """Build a model from its table."""
    place = models / name
    return Model(
        name=name,
        aliases=table.aliases,
        family=check_family(table.family, place),
        facts=check_facts(table.profile, place / "profile"),
        defaults=table.defaults,
    )
