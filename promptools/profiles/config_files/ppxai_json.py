"""Read an unmodified `ppxai-config.json` (ppxai 1.10 to 1.19).

The keys that say where a provider is and how it does tools are used, other documented keys are ignored, and unknown
keys are listed as warnings. Keys that begin with `__comment` are comments. A provider may have promptools' own `kind`,
`server_version`, `detect` and `profile`, a model promptools' own `aliases`, `family` and `profile`; ppxai ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from promptools.profiles.config_files.config import (
    Config,
    Descriptions,
    Model,
    ModelKeys,
    Provider,
    ProviderKeys,
    ToolModePolicy,
)
from promptools.profiles.facts import check_facts
from promptools.profiles.profile import Placement
from promptools.profiles.tables import (
    Location,
    NamedTables,
    OpenTable,
    is_array,
    is_table,
    named_tables,
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
    models = [
        _model(entry.model(model, location / "models" / model), entry, calling, native, location / "models" / model)
        for model, entry in named_tables(table.models, _Model).items()
    ]
    provider = table.provider(name, models, location)
    return replace(
        provider,
        default_model=provider.default_model or (models[0].name if models else None),
        system_prompt=provider.system_prompt or file.system_prompt or None,
        facts={**({"prompt_placement": placement} if placement else {}), **tool_facts(calling), **provider.facts},
        defaults={**table.generation_params, **table.extra_body, **_parallel(calling)},
        calling=tool_mode_policy(calling, native),
    )


def _model(
    model: Model, table: _Model, provider_calling: Mapping[str, Any], native: bool | None, location: Location
) -> Model:
    """Complete a model with ppxai's own keys; its own `tool_calling` overrides its provider's."""
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
