"""The user's config as values, and where it is looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, represent

if TYPE_CHECKING:
    from pathlib import Path

    from promptools.profiles.shape import Place
    from promptools.types import ModeName

DEFAULT = "default"
"""The model name that stands for a provider's `default_model`."""


@dataclass(frozen=True, slots=True)
class Calling:
    """How a config of ppxai's wants tools to be asked for; it has no word for harmony mode."""

    native: bool
    """By the server's own tools, or by the prompt?"""
    fallback: bool = True
    """May another mode be tried after a failure?"""

    def modes(self, order: tuple[ModeName, ...]) -> tuple[ModeName, ...]:
        """Return the modes for a model whose own order is this: one that has harmony mode keeps it."""
        first: ModeName = "native" if self.native else "prompt"
        if not self.fallback:
            return (first,)
        if "harmony" in order:
            return order if self.native else ("prompt", "harmony")
        return ("native", "prompt") if self.native else ("prompt",)


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a provider; `facts` patch its profile."""

    name: str
    aliases: tuple[str, ...] = ()
    family: str | None = None
    """Overrides the family that the name matches; "none": no family."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])

    """Request keys that are set when the request does not set them."""
    calling: Calling | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """One endpoint of the config; `facts` patch the profile of all its models."""

    name: str
    kind: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    default_model: str | None = None
    server_version: str | None = None
    detect: bool | None = None
    """May its server be looked at? None: for its version and its models, not to find out its kind."""
    system_prompt: str | None = None
    models: Mapping[str, Model] = field(default_factory=dict[str, Model])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    calling: Calling | None = None

    def __repr__(self) -> str:
        """Show all but the credentials of the base URL."""
        return represent(self)


@dataclass(frozen=True, slots=True)
class Descriptions:
    """Descriptions of tools that go over those in a request, by tool name: of all, by provider, by model."""

    everywhere: Mapping[str, str] = field(default_factory=dict[str, str])
    by_provider: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    by_model: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])

    def of(self, provider: str, model: str) -> dict[str, str]:
        """Return those that hold for a provider's model; the nearest decides."""
        return {**self.everywhere, **self.by_provider.get(provider, {}), **self.by_model.get(model, {})}


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What the config says of the proxy itself."""

    api_key_env: str | None = None
    """Name of the environment variable with the API keys that it asks for."""
    allowed_hosts: tuple[str, ...] = ()
    allow_provider: bool = False
    max_body: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """One config file, checked. `warnings` names keys that were not understood and are not in the way."""

    file: str = "(no file)"
    default_provider: str | None = None
    providers: Mapping[str, Provider] = field(default_factory=dict[str, Provider])
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Marks by tool name: `dangerous`, `infer`, `aliases`."""
    descriptions: Descriptions = field(default_factory=Descriptions)
    proxy: ProxyOptions = field(default_factory=ProxyOptions)
    warnings: tuple[str, ...] = ()


def by_name(models: Iterable[Model], place: Place) -> dict[str, Model]:
    """Index models by name; an alias may mean one model only, and neither a model's name nor `default`."""
    found = {each.name: each for each in models}
    taken = {name: f"the name of model {name!r}" for name in found}
    taken[DEFAULT] = "the word for the provider's default_model"
    for each in found.values():
        for alias in each.aliases:
            if alias in taken:
                raise (place / each.name / "aliases").error(
                    f"{alias!r} is already {taken[alias]}; choose another alias"
                )
            taken[alias] = f"an alias of model {each.name!r}"
    return found


def find_config(environ: Mapping[str, str], cwd: Path, home: Path) -> Path | None:
    """Find the config file; the first of the places that holds one wins whole, nothing is merged.

    In order: the file that PROMPTOOLS_CONFIG names (which must be there), `promptools.toml` in `cwd`, the file that
    PPXAI_CONFIG_FILE names if it is there, `ppxai-config.json` in `cwd`, `promptools/promptools.toml` in
    XDG_CONFIG_HOME (else `~/.config`), and `~/.ppxai/ppxai-config.json`.
    """
    named = environ.get("PROMPTOOLS_CONFIG")
    if named:
        path = _named_path(named, cwd, home)
        if not path.is_file():
            raise UsageError(f"PROMPTOOLS_CONFIG={named!r}: there is no such file; correct the variable or unset it")
        return path
    ppxai, xdg = environ.get("PPXAI_CONFIG_FILE"), environ.get("XDG_CONFIG_HOME")
    places = (
        cwd / "promptools.toml",
        _named_path(ppxai, cwd, home) if ppxai else None,
        cwd / "ppxai-config.json",
        (home / xdg if xdg else home / ".config") / "promptools" / "promptools.toml",
        home / ".ppxai" / "ppxai-config.json",
    )
    return next((path for path in places if path and path.is_file()), None)


def _named_path(named: str, cwd: Path, home: Path) -> Path:
    """Make a path of what a variable holds."""
    return home / named[2:] if named.startswith("~/") else cwd / named
