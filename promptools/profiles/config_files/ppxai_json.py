"""Read an unmodified `ppxai-config.json` (ppxai 1.10 to 1.19).

The keys that say where a provider is and how it does tools are used, other documented keys are ignored, and unknown
keys are listed as warnings. Keys that begin with `__comment` are comments. A provider may have promptools' own `kind`,
`server_version`, `detect` and `profile`, a model promptools' own `aliases`, `family` and `profile`; ppxai ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from promptools.profiles.config_files.config import Config, Descriptions, Model, Provider, ToolModePolicy, index_models
from promptools.profiles.facts import check_facts, check_family, check_kind
from promptools.profiles.profile import Placement
from promptools.profiles.tables import (
    Location,
    OpenTable,
    Strings,
    array_or_table,
    is_array,
    is_table,
    set_fields,
    unknown_keys,
    validate_table,
)


class _Capabilities(OpenTable):
    web_search: Any = None
    web_fetch: Any = None
    weather: Any = None
    realtime_info: Any = None
    citations: Any = None
    streaming: Any = None
    native_tool_calling: bool | None = None


class ToolCalling(OpenTable):
    """How tools are requested."""

    mode: Literal["native", "prompt_based", "auto"] = "auto"
    fallback_on_empty: bool = True
    fallback_on_failure: bool = True
    strip_json_from_text: bool = True
    parallel_tool_calls: bool = True
    api_path: str = ""


class _Model(OpenTable):
    name: Any = None
    description: Any = None
    context_limit: int | None = None
    max_tokens: int | None = None
    generation_params: dict[str, Any] = Field(default_factory=dict)
    tool_calling: ToolCalling = Field(default_factory=ToolCalling)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    aliases: Strings = ()
    family: str | None = None
    profile: Any = Field(default_factory=dict)


Models = Annotated[
    Annotated[Strings, Tag("[array]")] | Annotated[dict[str, _Model], Tag("[table]")], Discriminator(array_or_table)
]
"""A table of models, or only their names."""


class _Provider(OpenTable):
    name: Any = None
    base_url: str | None = None
    api_key_env: str | None = None
    models: Models = Field(default_factory=dict)
    default_model: str | None = None
    coding_model: Any = None
    pricing: Any = None
    capabilities: _Capabilities = Field(default_factory=_Capabilities)
    system_prompt: str | None = None
    system_prompt_mode: Placement | None = None
    generation_params: dict[str, Any] = Field(default_factory=dict)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    options: Any = None
    web_search: Any = None
    tool_calling: ToolCalling = Field(default_factory=ToolCalling)
    kind: str | None = None
    server_version: str | None = None
    detect: bool | None = None
    profile: Any = Field(default_factory=dict)


class _Tools(BaseModel):
    """The descriptions of tools; ppxai keeps more in this table."""

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
    """Build a config from the file's data."""
    file = validate_table(_PpxaiFile, without_comments(data), location)
    tools = file.tools
    return Config(
        file=location.file,
        default_provider=file.default_provider or None,
        providers={
            name: _provider(name, table, file, location / "providers" / name) for name, table in file.providers.items()
        },
        descriptions=Descriptions(tools.overrides, tools.provider_overrides, tools.model_overrides),
        warnings=tuple(f"{key}: unknown key, ignored" for key in unknown_keys(file, location)),
    )


def _provider(name: str, table: _Provider, file: _PpxaiFile, location: Location) -> Provider:
    """Build a provider from its table; its system prompt defaults to that at the top of the file."""
    calling, native = set_fields(table.tool_calling), table.capabilities.native_tool_calling
    placement = table.system_prompt_mode or file.system_prompt_mode
    entries = table.models.items() if isinstance(table.models, dict) else ((model, _Model()) for model in table.models)
    models = [_model(model, entry, calling, native, location / "models" / model) for model, entry in entries]
    return Provider(
        name=name,
        kind=check_kind(table.kind, location),
        base_url=table.base_url or None,
        api_key_env=table.api_key_env or None,
        default_model=table.default_model or (models[0].name if models else None),
        server_version=table.server_version or None,
        detect=table.detect,
        system_prompt=table.system_prompt or file.system_prompt or None,
        models=index_models(models, location / "models"),
        facts={
            **({"prompt_placement": placement} if placement else {}),
            **tool_facts(calling),
            **check_facts(table.profile, location / "profile"),
        },
        defaults={**table.generation_params, **table.extra_body, **_parallel(calling)},
        calling=tool_mode_policy(calling, native),
    )


def _model(
    name: str, table: _Model, provider_calling: Mapping[str, Any], native: bool | None, location: Location
) -> Model:
    """Build a model from its table; its own `tool_calling` overrides its provider's."""
    own, limit = set_fields(table.tool_calling), table.max_tokens
    context = check_facts({} if table.context_limit is None else {"context": table.context_limit}, location)
    return Model(
        name=name,
        aliases=table.aliases,
        family=check_family(table.family, location),
        facts={**context, **tool_facts(own), **check_facts(table.profile, location / "profile")},
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
    """Return the modes that `tool_calling` and `capabilities.native_tool_calling` ask for; the former wins.

    `auto` and a missing mode leave it to the capability; None, without a capability, leaves it to the profile.
    """
    mode = calling.get("mode", "auto")
    if mode == "auto" and native is None:
        return None
    return ToolModePolicy(
        native is True if mode == "auto" else mode == "native", calling.get("fallback_on_failure", True)
    )


def tool_facts(calling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that `tool_calling` states beside modes."""
    return {"swallows": calling["fallback_on_empty"]} if "fallback_on_empty" in calling else {}


def _parallel(calling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request key that `tool_calling.parallel_tool_calls` sets, if it is there."""
    return {key: calling[key] for key in ("parallel_tool_calls",) if key in calling}
