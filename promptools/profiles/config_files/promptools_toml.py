"""Read a config file: `promptools.toml`, or an unmodified `ppxai-config.json`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from promptools.dialects.table_file import read_table
from promptools.errors import UsageError, suggest
from promptools.profiles.config_files.config import (
    Config,
    KeyOptions,
    ModelKeys,
    Provider,
    ProviderKeys,
    ProxyOptions,
    split_provider,
)
from promptools.profiles.config_files.ppxai_json import read_ppxai
from promptools.profiles.tables import (
    Location,
    NamedTables,
    OneOrMore,
    Strings,
    Table,
    named_tables,
    set_fields,
    validate_table,
)

Count = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class MarksTable(Table):
    """The marks of one tool."""

    dangerous: bool = False
    infer: bool | None = None
    aliases: dict[str, str] = Field(default_factory=dict)
    names: Strings = ()
    free_text: str | None = None


class ModelTable(ModelKeys, Table):
    """One model of a provider."""

    defaults: dict[str, Any] = Field(default_factory=dict)


class ProviderTable(ProviderKeys, Table):
    """One provider."""

    models: NamedTables[ModelTable] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    failover: Strings = ()


class KeyTable(Table):
    """One API key of the proxy."""

    env: str | None = None
    requests_per_minute: Count | None = None
    concurrency: Count | None = None


class ProxyTable(Table):
    """The options of the proxy itself."""

    api_key_env: str | None = None
    allowed_hosts: Strings = ()
    allow_provider: bool = False
    max_body: int | None = None
    key_file: str | None = None
    keys: dict[str, KeyTable] = Field(default_factory=dict)
    requests_per_minute: Count | None = None
    concurrency: Count | None = None
    queue: Annotated[int, Field(ge=0)] | None = None
    queue_timeout: Seconds | None = None
    attempt_timeout: Seconds | None = None
    cors_origins: Strings = ()
    redis_url: str | None = None
    models: dict[str, OneOrMore] = Field(default_factory=dict)
    redact: Strings = ()


class FileTable(Table):
    """A whole `promptools.toml`."""

    default_provider: str | None = None
    providers: dict[str, ProviderTable] = Field(default_factory=dict)
    tools: dict[str, MarksTable] = Field(default_factory=dict)
    proxy: ProxyTable = Field(default_factory=ProxyTable)
    dialects: Strings = ()


def load_config(path: Path) -> Config:
    """Read a config file: JSON (by suffix, else by content) is a `ppxai-config.json`, all else is `promptools.toml`.

    Raises `UsageError`, naming the file and the key, for what cannot be read or is not valid. Unknown keys of a
    ppxai-config.json are listed in `Config.warnings`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Location(str(path)).error(f"cannot be read: {error.strerror}") from None
    return read_dialects(parse_config(data, path))


def read_dialects(config: Config) -> Config:
    """Return a config with the tables of its dialects; raise `UsageError` for one that is not valid."""
    if not config.dialect_files:
        return config
    from promptools.dialects.own_dialects import read_own  # few configs have any

    try:
        tables = tuple(map(read_table, config.dialect_files))
        read_own(tables)
    except UsageError as error:
        raise (Location(config.file) / "dialects").error(str(error)) from None
    return replace(config, dialects=tables)


def parse_config(data: bytes, path: Path) -> Config:
    """Parse what the file at `path` holds; of its dialects only the paths. See `load_config`."""
    location = Location(str(path))
    try:
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()  # with line endings as in a text file
    except UnicodeDecodeError as error:
        raise location.error(f"is not UTF-8: {error}") from None
    if path.suffix == ".json" or (path.suffix != ".toml" and text.lstrip().startswith("{")):
        return read_ppxai(_parse(json.loads, "JSON", text, location), location)
    return _read_toml(text, location)


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
    _check_destinations(file, location)
    _check_other_names(file.tools, location)
    return Config(
        file=location.file,
        default_provider=file.default_provider or None,
        providers={
            name: _provider(name, table, location / "providers" / name) for name, table in file.providers.items()
        },
        tools={name: set_fields(marks) for name, marks in file.tools.items()},
        proxy=_proxy(file.proxy, location),
        dialect_files=tuple(str(Path(location.file).parent / Path(name).expanduser()) for name in file.dialects),
    )


def _proxy(table: ProxyTable, location: Location) -> ProxyOptions:
    """Build the proxy's options; the file of keys is relative to the config."""
    options = set_fields(table)
    options["keys"] = {name: KeyOptions(**set_fields(key)) for name, key in table.keys.items()}
    if table.key_file:
        options["key_file"] = str(Path(location.file).parent / table.key_file)
    return ProxyOptions(**options)


def _provider(name: str, table: ProviderTable, location: Location) -> Provider:
    """Build a provider from its table."""
    models = [
        replace(entry.model(model, location / "models" / model), defaults=entry.defaults)
        for model, entry in named_tables(table.models, ModelTable).items()
    ]
    return replace(table.provider(name, models, location), defaults=table.defaults, failover=table.failover)


def _check_other_names(tools: Mapping[str, MarksTable], location: Location) -> None:
    """Raise `UsageError` for another name that two tools have."""
    tool_of: dict[str, str] = {}
    for name, marks in tools.items():
        for other in marks.names:
            if tool_of.setdefault(other, name) != name:
                raise (location / "tools" / name / "names").error(f"{other!r} is given to {tool_of[other]!r} too")


def _check_destinations(file: FileTable, location: Location) -> None:
    """Raise `UsageError` for a destination of the proxy's requests that is not `PROVIDER/MODEL`."""
    names = set(file.providers)
    for name, table in file.providers.items():
        for entry in table.failover:
            _check_destination(entry, names - {name}, location / "providers" / name / "failover", needs_model=False)
    for name, entries in file.proxy.models.items():
        if not entries:
            raise (location / "proxy" / "models" / name).error("an empty array; name a model as PROVIDER/MODEL")
        for entry in entries:
            _check_destination(entry, names, location / "proxy" / "models" / name, needs_model=True)


def _check_destination(entry: str, providers: set[str], location: Location, *, needs_model: bool) -> None:
    provider, model = split_provider(entry, providers)
    if not provider:
        raise location.error(
            f"{entry!r} does not begin with a provider of this file; {suggest(entry.partition('/')[0], providers)}"
        )
    if (needs_model or entry != provider) and not model:
        raise location.error(f"{entry!r} names no model; write it as {provider}/MODEL")
