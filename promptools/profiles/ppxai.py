"""Read a `ppxai-config.json` as it stands (ppxai 1.10 to 1.19).

What says where a provider is and how it does tools is used; other documented keys are left alone; keys that are neither
are warned about by name. Keys that begin with `__comment` are comments. A provider may hold our own `kind`,
`server_version`, `detect` and `profile`, a model our own `aliases`, `family` and `profile`: ppxai passes over them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from promptools.profiles.config import Config, Model, Provider, by_name
from promptools.profiles.facts import take_facts, take_family, take_kind
from promptools.profiles.profile import Placement
from promptools.profiles.shape import Place, Section, is_array, is_table, read, table

TOP = frozenset((
    "$schema", "version", "default_provider", "system_prompt", "system_prompt_mode", "server", "session", "context",
    "bootstrap", "paths", "tui", "visualization", "providers", "tools",
))  # fmt: skip
PROVIDER = frozenset((
    "name", "base_url", "api_key_env", "models", "default_model", "coding_model", "pricing", "capabilities",
    "system_prompt", "system_prompt_mode", "generation_params", "extra_body", "options", "web_search", "tool_calling",
    "kind", "server_version", "detect", "profile",
))  # fmt: skip
MODEL = frozenset((
    "name", "description", "context_limit", "max_tokens", "generation_params", "tool_calling", "extra_body",
    "aliases", "family", "profile",
))  # fmt: skip
CAPABILITIES = frozenset((
    "web_search", "web_fetch", "weather", "realtime_info", "citations", "streaming", "native_tool_calling",
))  # fmt: skip
TOOL_CALLING: Mapping[str, Any] = {
    "mode": Literal["native", "prompt_based", "auto"],
    "fallback_on_empty": bool,
    "fallback_on_failure": bool,
    "strip_json_from_text": bool,
    "parallel_tool_calls": bool,
    "api_path": str,
}


class _Reader:
    """Reads one file and collects the warnings about it."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def section(self, value: Any, place: Place, known: Collection[str]) -> Section:
        """Take a table; unknown keys go and are warned about."""
        data = table(value, place)
        for key in data:
            if key not in known:
                self.warnings.append(f"{place / key}: unknown key, ignored")
        return Section({key: each for key, each in data.items() if key in known}, place)

    def part(self, section: Section, key: str, known: Collection[str]) -> Section:
        """Take a table inside a section; empty where it is not there."""
        return self.section(section.data.get(key, {}), section.place / key, known)

    def provider(self, name: str, section: Section, top: Section) -> Provider:
        """Read one provider; what it does not say about system prompts, the top of the file says."""
        calling = self.calling(section)
        native = self.part(section, "capabilities", CAPABILITIES).get(bool, "native_tool_calling")
        placement = section.get(Placement, "system_prompt_mode") or top.get(Placement, "system_prompt_mode")
        models = list(self.models(section, calling, native))
        return Provider(
            name=name,
            kind=take_kind(section),
            base_url=section.text("base_url"),
            api_key_env=section.text("api_key_env"),
            default_model=section.text("default_model") or (models[0].name if models else None),
            server_version=section.text("server_version"),
            detect=section.get(bool, "detect"),
            system_prompt=section.text("system_prompt") or top.text("system_prompt"),
            models=by_name(models, section.place / "models"),
            facts={
                **({"prompt_placement": placement} if placement else {}),
                **tool_facts(calling, native),
                **take_facts(section),
            },
            defaults={**section.table("generation_params"), **section.table("extra_body"), **_parallel(calling)},
        )

    def models(self, section: Section, calling: Mapping[str, Any], native: bool | None) -> list[Model]:
        """Read a provider's models: a table, or only their names in an array."""
        if is_array(section.data.get("models")):
            return [Model(each) for each in section.get(tuple[str, ...], "models")]
        entries = self.part(section, "models", section.table("models"))
        found = [(name, self.section(each, entries.place / name, MODEL)) for name, each in entries.data.items()]
        return [self.model(name, each, calling, native) for name, each in found]

    def model(self, name: str, section: Section, above: Mapping[str, Any], native: bool | None) -> Model:
        """Read one model; its own `tool_calling` goes over its provider's."""
        own = self.calling(section)
        limit = section.get(int, "max_tokens")
        return Model(
            name=name,
            aliases=section.get(tuple[str, ...], "aliases", ()),
            family=take_family(section),
            facts={**(tool_facts({**above, **own}, native) if own else {}), **take_facts(section)},
            defaults={
                **({} if limit is None else {"max_tokens": limit}),
                **section.table("generation_params"),
                **section.table("extra_body"),
                **_parallel(own),
            },
        )

    def calling(self, section: Section) -> dict[str, Any]:
        """Read a section's `tool_calling`."""
        part = self.part(section, "tool_calling", TOOL_CALLING)
        return {key: read(TOOL_CALLING[key], each, part.place / key) for key, each in part.data.items()}


def read_ppxai(data: Any, place: Place) -> Config:
    """Read the whole file's data."""
    reader = _Reader()
    top = reader.section(uncommented(data), place, TOP)
    entries = reader.part(top, "providers", top.table("providers"))
    providers = {
        name: reader.provider(name, reader.section(each, entries.place / name, PROVIDER), top)
        for name, each in entries.data.items()
    }
    return Config(
        file=place.file,
        default_provider=top.text("default_provider"),
        providers=providers,
        warnings=tuple(reader.warnings),
    )


def uncommented(data: Any) -> Any:
    """Copy JSON data without the keys that are comments, at any depth."""
    if is_table(data):
        return {key: uncommented(each) for key, each in data.items() if not key.startswith("__comment")}
    return [uncommented(each) for each in data] if is_array(data) else data


def tool_facts(calling: Mapping[str, Any], native: bool | None) -> dict[str, Any]:
    """Say in facts what `tool_calling` and `capabilities.native_tool_calling` say; the first goes first.

    `auto` and a missing mode leave it to the capability, a missing capability to the profile.
    """
    facts: dict[str, Any] = {}
    mode = calling.get("mode", "auto")
    if mode == "auto" and native is not None:
        mode = "native" if native else "prompt_based"
    if mode == "native":
        facts["modes"] = ("native", "prompt") if calling.get("fallback_on_failure", True) else ("native",)
    elif mode == "prompt_based":
        facts["modes"] = ("prompt",)
    if "fallback_on_empty" in calling:
        facts["swallows"] = calling["fallback_on_empty"]
    return facts


def _parallel(calling: Mapping[str, Any]) -> dict[str, Any]:
    """Give the request key that `tool_calling.parallel_tool_calls` stands for."""
    return {key: calling[key] for key in ("parallel_tool_calls",) if key in calling}
