"""The classes that hold the user's config, and the search for the config file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from promptools.errors import UsageError, safe_repr
from promptools.profiles.facts import check_facts, check_family, check_kind
from promptools.profiles.tables import Location, OneOrMore, Strings

if TYPE_CHECKING:
    from promptools.dialects.table_file import DialectTable
    from promptools.types import ModeName


SYSTEM_FOLDER = Path("/etc/promptools")
"""The folder of the config that applies to all users of a machine or a container."""

TOML_NAME = "promptools.toml"
PPXAI_NAME = "ppxai-config.json"
NO_FILE = "(no file)"
"""The value of `Config.file` if the config was not read from a file."""
DEFAULT = "default"
"""The model name that means a provider's `default_model`."""


@dataclass(frozen=True, slots=True)
class ToolModePolicy:
    """How a ppxai config (`ppxai-config.json`) requests tools; such a config cannot ask for harmony mode."""

    native: bool
    """Whether native mode may be tried. If not, the first attempt uses prompt mode."""
    fallback: bool = True
    """Whether another mode may be tried after a failure."""

    def modes(self, order: tuple[ModeName, ...]) -> tuple[ModeName, ...]:
        """Return the modes for a model whose profile lists the modes `order`.

        With `fallback`, harmony mode is kept if `order` contains it. Without `fallback`, a single mode is returned.
        """
        first: ModeName = "native" if self.native else "prompt"
        if not self.fallback:
            return (first,)
        if "harmony" in order:
            return order if self.native else ("prompt", "harmony")
        return ("native", "prompt") if self.native else ("prompt",)


@dataclass(frozen=True, slots=True)
class Model:
    """A model of a provider in the config; `facts` override the facts in the model's profile."""

    name: str
    aliases: tuple[str, ...] = ()
    family: str | None = None
    """The model's family; "none" means no family. This setting overrides the family that the model's name matches."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Default values for keys that a request does not set itself."""
    calling: ToolModePolicy | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider in the config: one or several servers with the same models. `facts` override the models' profiles."""

    name: str
    kind: str | None = None
    base_url: str | None = None
    replicas: tuple[str, ...] = field(default=(), repr=False)
    """Base URLs of further servers with the same models; the proxy and batches use them."""
    api_key_env: str | None = None
    default_model: str | None = None
    server_version: str | None = None
    detect: bool | None = None
    """Whether the server may be probed for its kind, version and models.

    If None, the server is not probed for its kind, and it is asked for its version and models only if the kind is
    known.
    """
    system_prompt: str | None = None
    models: Mapping[str, Model] = field(default_factory=dict[str, Model])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    calling: ToolModePolicy | None = None
    failover: tuple[str, ...] = ()
    """Where the proxy sends a request that failed at this provider: `PROVIDER/MODEL`, or `PROVIDER` (same model)."""

    def __repr__(self) -> str:
        """Return the repr without the credentials of the base URL."""
        return safe_repr(self)


@dataclass(frozen=True, slots=True)
class Descriptions:
    """Descriptions of tools that replace those in a request, by tool name.

    Some descriptions apply to all models, others only to one provider or one model.
    """

    everywhere: Mapping[str, str] = field(default_factory=dict[str, str])
    by_provider: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    by_model: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])

    def of(self, provider: str, model: str) -> dict[str, str]:
        """Return the descriptions for a provider's model; those for the model take precedence over the provider's."""
        return {**self.everywhere, **self.by_provider.get(provider, {}), **self.by_model.get(model, {})}


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """A named API key of the proxy, and its limits."""

    env: str | None = None
    """Name of the environment variable that holds the key; None if the key is in the `key_file` of the proxy."""
    requests_per_minute: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The options of the proxy itself, from the config."""

    api_key_env: str | None = None
    """Name of the environment variable with the API keys that the proxy accepts."""
    allowed_hosts: tuple[str, ...] = ()
    allow_provider: bool = False
    max_body: int | None = None
    key_file: str | None = None
    """Path of a file with API keys that the proxy accepts, as lines `NAME = KEY` or as keys without names."""
    keys: Mapping[str, KeyOptions] = field(default_factory=dict[str, KeyOptions])
    """Maps the name of each named API key to the key's options."""
    requests_per_minute: int | None = None
    concurrency: int | None = None
    queue: int | None = None
    queue_timeout: float | None = None
    attempt_timeout: float | None = None
    cors_origins: tuple[str, ...] = ()
    redis_url: str | None = field(default=None, repr=False)
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Model names that the proxy defines. Each means one `PROVIDER/MODEL`, or several, which are tried in order."""
    redact: tuple[str, ...] = ()
    """Regular expressions that match texts which must not be recorded."""


Standing: TypeAlias = Literal["given", "own", "trusted", "local", "untrusted"]
"""Why the servers of a config may be used; `untrusted` if they may not.

`given`: an argument or an environment variable names the config. `own`: it was found in the folder of the user or the
system. The other values are for a config that was found in the current folder. `trusted`: the user trusts it. `local`:
it reaches nothing beyond this machine. `untrusted`: its servers may not be used.
"""


@dataclass(frozen=True, slots=True)
class Config:
    """A validated config file. `warnings` name the unknown keys that were ignored."""

    file: str = NO_FILE
    standing: Standing = field(default="given", kw_only=True)
    default_provider: str | None = None
    providers: Mapping[str, Provider] = field(default_factory=dict[str, Provider])
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Settings of tools (marks), by the tool's name: `dangerous`, `infer`, `aliases`, `names`, `free_text`."""
    descriptions: Descriptions = field(default_factory=Descriptions)
    proxy: ProxyOptions = field(default_factory=ProxyOptions)
    dialect_files: tuple[str, ...] = ()
    """Paths of files that define formats of calls (dialects)."""
    dialects: tuple[DialectTable, ...] = ()
    """The dialects in `dialect_files`; the files are read only if the config may be used."""
    warnings: tuple[str, ...] = ()


class ModelKeys(BaseModel):
    """The keys of a model that `promptools.toml` and `ppxai-config.json` have in common."""

    aliases: Strings = ()
    family: str | None = None
    profile: Any = Field(default_factory=dict)

    def model(self, name: str, location: Location) -> Model:
        """Build the model that the keys describe."""
        family = check_family(self.family, location)
        return Model(name, self.aliases, family, check_facts(self.profile, location / "profile"))


class ProviderKeys(BaseModel):
    """The keys of a provider that both kinds of config file have in common; an empty string means no value."""

    kind: str | None = None
    base_url: OneOrMore = ()
    api_key_env: str | None = None
    default_model: str | None = None
    server_version: str | None = None
    detect: bool | None = None
    system_prompt: str | None = None
    profile: Any = Field(default_factory=dict)

    def provider(self, name: str, models: Iterable[Model], location: Location) -> Provider:
        """Build the provider that the keys describe, with its models."""
        base_urls = tuple(filter(None, self.base_url))
        return Provider(
            name=name,
            kind=check_kind(self.kind, location),
            base_url=next(iter(base_urls), None),
            replicas=base_urls[1:],
            api_key_env=self.api_key_env or None,
            default_model=self.default_model or None,
            server_version=self.server_version or None,
            detect=self.detect,
            system_prompt=self.system_prompt or None,
            models=index_models(models, location / "models"),
            facts=check_facts(self.profile, location / "profile"),
        )


def index_models(models: Iterable[Model], location: Location) -> dict[str, Model]:
    """Return models by name; raise `UsageError` for an alias that is used twice, is a model's name, or is `default`."""
    index = {model.name: model for model in models}
    taken = {name: f"the name of model {name!r}" for name in index}
    taken[DEFAULT] = "the word for the provider's default_model"
    for model in index.values():
        for alias in model.aliases:
            if alias in taken:
                raise (location / model.name / "aliases").error(
                    f"{alias!r} is already {taken[alias]}; choose another alias"
                )
            taken[alias] = f"an alias of model {model.name!r}"
    return index


def split_provider(name: str, providers: Iterable[str]) -> tuple[str, str]:
    """Split `PROVIDER/MODEL` into its two parts; the first part is empty if no name in `providers` matches.

    Names may contain slashes, so the longest name that matches is used. For `PROVIDER` alone, the model is empty.
    """
    matches = (provider for provider in providers if name == provider or name.startswith(f"{provider}/"))
    provider = max(matches, key=len, default="")
    return provider, name[len(provider) + 1 :] if provider else name


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config file that was found by the search, and how it was found."""

    path: Path
    by: str
    """What led to the file: the name of an environment variable, or a description of the folder."""
    standing: Standing
    """`given`, `own` or `untrusted`; `untrusted` may change once the contents of the file have been examined."""


def find_config(environ: Mapping[str, str], cwd: Path, home: Path | None) -> ConfigFile | None:
    """Return the first config file that is found, or None; files are never merged.

    The order is: the file that PROMPTOOLS_CONFIG names (which must exist), the file that PPXAI_CONFIG_FILE names if it
    exists, `promptools.toml` and `ppxai-config.json` in `cwd`, `promptools/promptools.toml` in XDG_CONFIG_HOME (else
    `~/.config`), `~/.ppxai/ppxai-config.json`, and `/etc/promptools/promptools.toml`.
    """
    return next(iter(find_configs(environ, cwd, home)), None)


def find_configs(environ: Mapping[str, str], cwd: Path, home: Path | None) -> list[ConfigFile]:
    """Return all config files that exist, in the order of `find_config`; only the first one is used."""
    named, ppxai = environ.get("PROMPTOOLS_CONFIG"), environ.get("PPXAI_CONFIG_FILE")
    if named and not _named_path(named, cwd, home).is_file():
        raise UsageError(f"PROMPTOOLS_CONFIG={named!r}: there is no such file; correct the variable or unset it")
    folders = user_folders(environ, home)
    is_own = any(cwd.resolve().is_relative_to(folder.resolve()) for folder in folders)
    here: Standing = "own" if is_own else "untrusted"
    places = [
        *([ConfigFile(_named_path(named, cwd, home), "PROMPTOOLS_CONFIG", "given")] if named else []),
        *([ConfigFile(_named_path(ppxai, cwd, home), "PPXAI_CONFIG_FILE", "given")] if ppxai else []),
        ConfigFile(cwd / TOML_NAME, "the current folder", here),
        ConfigFile(cwd / PPXAI_NAME, "the current folder", here),
        *(
            ConfigFile(folder / (PPXAI_NAME if folder.name == ".ppxai" else TOML_NAME), _describe(folder), "own")
            for folder in folders
        ),
    ]
    return [place for place in places if place.path.is_file()]


def user_folders(environ: Mapping[str, str], home: Path | None) -> list[Path]:
    """Return the folders that are searched for the config of the user and then of the system, in this order."""
    xdg = environ.get("XDG_CONFIG_HOME")
    folders: list[Path] = []
    if home is not None:
        folders += [(home / xdg if xdg else home / ".config") / "promptools", home / ".ppxai"]
    elif xdg and Path(xdg).is_absolute():
        folders.append(Path(xdg) / "promptools")
    return [*folders, SYSTEM_FOLDER]


def _describe(folder: Path) -> str:
    return "the system's config folder" if folder == SYSTEM_FOLDER else "the user's config folder"


def _named_path(named: str, cwd: Path, home: Path | None) -> Path:
    """Return the path that an environment variable gives: relative to `cwd`, or to `home` if it begins with `~/`."""
    return home / named[2:] if home is not None and named.startswith("~/") else cwd / named
