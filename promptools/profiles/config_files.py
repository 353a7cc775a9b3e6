"""Read a config file: `promptools.toml`, or an unmodified `ppxai-config.json`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from promptools.dialects.table_file import read_table
from promptools.errors import UsageError, suggest
from promptools.profiles.config import (
    Config,
    Descriptions,
    KeyOptions,
    Model,
    ModelKeys,
    Provider,
    ProviderKeys,
    ProxyOptions,
    ToolModePolicy,
    split_provider,
)
from promptools.profiles.facts import check_facts
from promptools.profiles.profile import Placement
from promptools.profiles.tables import (
    Location,
    NamedTables,
    OneOrMore,
    OpenTable,
    Strings,
    Table,
    is_array,
    is_table,
    named_tables,
    set_fields,
    unknown_keys,
    validate_table,
)

# Read an unmodified `ppxai-config.json` (ppxai 1.10 to 1.19).
#
# Keys on where a provider is and how tools are requested from it are used. Other documented keys are ignored, and
# unknown keys are listed as warnings. Keys that begin with `__comment` are comments. Some keys are promptools' own, and
# ppxai ignores them: `kind`, `server_version`, `detect` and `profile` of a provider, and `aliases`, `family` and
# `profile` of a model.


class _Capabilities(OpenTable):
    web_search: Any = None
    web_fetch: Any = None
    weather: Any = None
    realtime_info: Any = None
    citations: Any = None
    streaming: Any = None
    native_tool_calling: bool | None = None


class ToolCalling(OpenTable):
    """The table `tool_calling` of a ppxai config: how tools are requested."""

    mode: Literal["native", "prompt_based", "auto"] = "auto"
    fallback_on_empty: bool = True
    fallback_on_failure: bool = True
    strip_json_from_text: bool = True
    parallel_tool_calls: bool = True
    api_path: str = ""


class _Model(ModelKeys, OpenTable):
    name: Any = None
    description: Any = None
    context_limit: int | None = None
    max_tokens: int | None = None
    generation_params: dict[str, Any] = Field(default_factory=dict)
    tool_calling: ToolCalling = Field(default_factory=ToolCalling)
    extra_body: dict[str, Any] = Field(default_factory=dict)


class _Provider(ProviderKeys, OpenTable):
    name: Any = None
    models: NamedTables[_Model] = Field(default_factory=dict)
    coding_model: Any = None
    pricing: Any = None
    capabilities: _Capabilities = Field(default_factory=_Capabilities)
    system_prompt_mode: Placement | None = None
    generation_params: dict[str, Any] = Field(default_factory=dict)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    options: Any = None
    web_search: Any = None
    tool_calling: ToolCalling = Field(default_factory=ToolCalling)


class _Tools(BaseModel):
    """The table of tool descriptions; further keys, which ppxai uses, are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    overrides: dict[str, str] = Field(default_factory=dict)
    provider_overrides: dict[str, dict[str, str]] = Field(default_factory=dict)
    model_overrides: dict[str, dict[str, str]] = Field(default_factory=dict)


class _PpxaiFile(OpenTable):
    schema_: Any = Field(None, alias="$schema")
    version: Any = None
    default_provider: str | None = None
    system_prompt: str | None = None
    system_prompt_mode: Placement | None = None
    server: Any = None
    session: Any = None
    context: Any = None
    bootstrap: Any = None
    paths: Any = None
    tui: Any = None
    visualization: Any = None
    providers: dict[str, _Provider] = Field(default_factory=dict)
    tools: _Tools = Field(default_factory=_Tools)


def read_ppxai(data: Any, location: Location) -> Config:
    """Build a config from the data of a `ppxai-config.json`."""
    file = validate_table(_PpxaiFile, without_comments(data), location)
    tools = file.tools
    return Config(
        file=location.file,
        default_provider=file.default_provider or None,
        providers={
            name: _ppxai_provider(name, table, file, location / "providers" / name)
            for name, table in file.providers.items()
        },
        descriptions=Descriptions(tools.overrides, tools.provider_overrides, tools.model_overrides),
        warnings=tuple(f"{key}: unknown key, ignored" for key in unknown_keys(file, location)),
    )


def _ppxai_provider(name: str, table: _Provider, file: _PpxaiFile, location: Location) -> Provider:
    """Build a provider from its table. If the table has no system prompt, the one at the top of the file is used."""
    calling, native = set_fields(table.tool_calling), table.capabilities.native_tool_calling
    placement = table.system_prompt_mode or file.system_prompt_mode
    models = [
        _model(entry.model(model, location / "models" / model), entry, calling, native, location / "models" / model)
        for model, entry in named_tables(table.models, _Model).items()
    ]
    provider = table.provider(name, models, location)
    return replace(
        provider,
        default_model=provider.default_model or (models[0].name if models else None),
        system_prompt=provider.system_prompt or file.system_prompt or None,
        facts={
            **({"system_prompt_placement": placement} if placement else {}),
            **tool_facts(calling),
            **provider.facts,
        },
        defaults={**table.generation_params, **table.extra_body, **_parallel(calling)},
        calling=tool_mode_policy(calling, native),
    )


def _model(
    model: Model, table: _Model, provider_calling: Mapping[str, Any], native: bool | None, location: Location
) -> Model:
    """Return `model` with what ppxai's own keys add to it; the model's `tool_calling` overrides the provider's."""
    own, limit = set_fields(table.tool_calling), table.max_tokens
    context = check_facts({} if table.context_limit is None else {"context": table.context_limit}, location)
    return replace(
        model,
        facts={**context, **tool_facts(own), **model.facts},
        defaults={
            **({} if limit is None else {"max_tokens": limit}),
            **table.generation_params,
            **table.extra_body,
            **_parallel(own),
        },
        calling=tool_mode_policy({**provider_calling, **own}, native) if own else None,
    )


def without_comments(data: Any) -> Any:
    """Return a copy of JSON data without comment keys, at any depth."""
    if is_table(data):
        return {key: without_comments(value) for key, value in data.items() if not key.startswith("__comment")}
    return [without_comments(item) for item in data] if is_array(data) else data


def tool_mode_policy(calling: Mapping[str, Any], native: bool | None) -> ToolModePolicy | None:
    """Return how a ppxai config requests tools; None if the config leaves this to the profile.

    `calling` is the table `tool_calling`, and `native` is the provider's capability `native_tool_calling`. If the table
    has a mode other than `auto`, this mode decides; otherwise the capability decides. If both are missing, the profile
    decides.
    """
    mode = calling.get("mode", "auto")
    if mode == "auto" and native is None:
        return None
    return ToolModePolicy(
        native is True if mode == "auto" else mode == "native", calling.get("fallback_on_failure", True)
    )


def tool_facts(calling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile facts, except the modes, that follow from a `tool_calling` table."""
    return {"swallows": calling["fallback_on_empty"]} if "fallback_on_empty" in calling else {}


def _parallel(calling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request parameter that `tool_calling.parallel_tool_calls` sets; empty if this option is absent."""
    return {key: calling[key] for key in ("parallel_tool_calls",) if key in calling}


# promptools.toml.


Count = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class MarksTable(Table):
    """The table of one tool in `promptools.toml`: its settings (marks)."""

    dangerous: bool = False
    infer: bool | None = None
    aliases: dict[str, str] = Field(default_factory=dict)
    names: Strings = ()
    free_text: str | None = None


class ModelTable(ModelKeys, Table):
    """The table of one model of a provider in `promptools.toml`."""

    defaults: dict[str, Any] = Field(default_factory=dict)


class ProviderTable(ProviderKeys, Table):
    """The table of one provider in `promptools.toml`."""

    models: NamedTables[ModelTable] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    failover: Strings = ()


class KeyTable(Table):
    """The table in `promptools.toml` for one of the proxy's named API keys."""

    env: str | None = None
    requests_per_minute: Count | None = None
    concurrency: Count | None = None


class ProxyTable(Table):
    """The table `[proxy]` of a `promptools.toml`: the options of the proxy itself."""

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
    """Read a config file: a `promptools.toml`, or an unmodified `ppxai-config.json`.

    A file with the suffix `.json` is read as a `ppxai-config.json`. So is any file without the suffix `.toml` whose
    content begins with `{`.

    Raises `UsageError`, which names the file and the key, if the file cannot be read or is not valid. Unknown keys of a
    `ppxai-config.json` are listed in `Config.warnings`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Location(str(path)).error(f"cannot be read: {error.strerror}") from None
    return read_dialects(parse_config(data, path))


def read_dialects(config: Config) -> Config:
    """Return the config with its dialect files loaded into `dialects`; raise `UsageError` if one is invalid."""
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
    """Parse the content of the config file at `path`, as `load_config` does, but without reading dialect files."""
    location = Location(str(path))
    try:
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()  # with line ends as in a text file
    except UnicodeDecodeError as error:
        raise location.error(f"is not UTF-8: {error}") from None
    if path.suffix == ".json" or (path.suffix != ".toml" and text.lstrip().startswith("{")):
        return read_ppxai(_parse(json.loads, "JSON", text, location), location)
    return _read_toml(text, location)


def _parse(parser: Callable[[str], Any], what: str, text: str, location: Location) -> Any:
    """Parse a file's text with `parser`; raise `UsageError` if that fails. `what` names the format, JSON or TOML."""
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
    """Build the proxy's options; the path of the key file is relative to the config's folder."""
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
    """Raise `UsageError` if the `names` of two tools have a name in common."""
    tool_of: dict[str, str] = {}
    for name, marks in tools.items():
        for other in marks.names:
            if tool_of.setdefault(other, name) != name:
                raise (location / "tools" / name / "names").error(f"{other!r} is given to {tool_of[other]!r} too")


def _check_destinations(file: FileTable, location: Location) -> None:
    """Raise `UsageError` for an invalid entry in a provider's `failover` or in `[proxy.models]`.

    An entry is `PROVIDER/MODEL`, with a provider of this file. In `failover` the provider must be a different one, and
    `PROVIDER` alone is valid too.
    """
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
