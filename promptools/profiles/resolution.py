"""Resolve where a request goes and what is known about the endpoint; combine all facts, and keep the reasons.

Facts come in layers, and for each key the last layer takes precedence: the defaults of `Profile`, the packaged facts
about the server's kind, those about the model's family, what the server said in a probe, the config's provider, the
config's model, and the request's override. `resolve` chooses the provider, model, kind, address and family, applies the
layers, and records the reason for each decision and each fact in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from promptools import dialects
from promptools.dialects.own_dialects import read_own
from promptools.errors import UsageError, bad_url_message, did_you_mean, safe_repr, suggest, without_credentials
from promptools.profiles.config import DEFAULT, NO_FILE, Config, Model, Provider, ToolModePolicy
from promptools.profiles.config_reach import is_loopback_url, require_trust, same_url
from promptools.profiles.facts import NO_FAMILY, check_facts, family_of, kind_of, kinds, load_builtin, size_in_name
from promptools.profiles.profile import GENERIC, Profile
from promptools.profiles.server_detection import PATHS_BY_KIND, detected_facts
from promptools.profiles.tables import Location
from promptools.types import ModeName, ServerInfo

ProbeScope = Literal["server", "model"]
"""What a probe (small requests to the server) should find out.

`server`: the kind of the server, and its model. `model`: only the model and the server's version, since the kind of the
server is configured.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes: a server, a model, and what is known about them.

    `reasons` has a sentence for each decision and each fact.
    """

    provider: str | None
    """Name of the provider; None if neither the config nor the caller names one."""
    base_url: str | None
    """Base URL of the server's API, as the OpenAI client takes it; None means the client's own base URL."""
    model: str
    """The model's own name, not an alias; empty if no model was requested and there is no default."""
    api_key_env: str | None
    """Name of the environment variable that holds the key."""
    profile: Profile
    reasons: tuple[str, ...] = ()
    marks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Settings of tools (marks) by tool name, in the form that `Tools(marks=...)` takes."""
    descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Descriptions of tools, by tool name, which replace those in the request."""
    system_prompt: str | None = None
    """The config's system prompt, which is put where `profile.system_prompt_placement` says."""
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Default values for keys of the request's body."""
    server_version: str | None = None
    probe: ProbeScope | None = None
    """What small requests to the server (a probe) should find out; None if none are sent."""
    local_key: bool = False
    """Whether the key may be sent only to this machine.

    That is so if the config that names the key was merely found in the current folder, and is not trusted.
    """

    def __repr__(self) -> str:
        """Return the repr without the credentials of the base URL."""
        return safe_repr(self)


class _ProfileBuilder:
    """Builds a profile from layers of facts, each overriding the earlier ones, and keeps the reason for each value."""

    def __init__(self, kind: str, family: str | None, parameters: float | None) -> None:
        self.kind, self.family, self.parameters = kind, family, parameters
        self.facts: dict[str, Any] = {}
        self.reason_by_key: dict[str, str] = {}
        self._modes_are_configured = False

    def add(self, facts: Mapping[str, Any], why: str) -> None:
        """Add a layer of facts that all have the same reason."""
        self.facts.update(facts)
        self.reason_by_key.update(dict.fromkeys(facts, why))

    def add_configured(
        self,
        facts: Mapping[str, Any],
        why: str,
        calling: ToolModePolicy | None = None,
        order: tuple[ModeName, ...] = (),
    ) -> None:
        """Add facts from a config or a request. If they list modes, only these modes may be tried."""
        self._modes_are_configured |= "modes" in facts or (calling is not None and not calling.fallback)
        if calling or "modes" in facts:  # the modes that the user lists are for agents too
            self.facts.pop("agent_modes", None)
            self.reason_by_key.pop("agent_modes", None)
        if calling:
            self.add({"modes": calling.modes(order), "harmony_last": calling.fallback}, why)
        self.add({"harmony_last": False, **facts} if "modes" in facts else facts, why)

    def add_packaged(self, version: str | None, url: str | None) -> None:
        """Add the packaged facts about the kind, then those about the family, if they hold for this server."""
        self.add_builtin(self.kind, version)
        if self.kind == GENERIC and is_local(url):
            self.add({"needs_key": False}, "the address is on this machine or a private network")
        if self.family:
            self.add_builtin(self.family, version)

    def add_detected(self, seen: ServerInfo) -> None:
        """Add the facts that follow from what the server stated about the model."""
        for key, value, why in detected_facts(seen, self.modes):
            self.add({key: value}, why)

    @property
    def modes(self) -> tuple[ModeName, ...]:
        """The modes according to the facts added so far, or else the default modes."""
        modes: tuple[ModeName, ...] = self.facts.get("modes", Profile().modes)
        return modes

    def add_builtin(self, name: str, version: str | None) -> None:
        """Add the packaged facts about a kind or family that hold for this server."""
        for fact in load_builtin(name).facts:
            if fact.holds(self.kind, version, self.parameters):
                self.add({fact.key: fact.value}, f"{name}: {fact.why} ({fact.source}, {fact.date})")

    def add_raw_mode(self, order: tuple[ModeName, ...]) -> str:
        """Add raw mode after native mode if the chat template can be rendered; return why it is offered, or why not.

        Raw mode avoids faults of the server's parser. It is not added if the config lists the modes, or for gpt-oss,
        whose harmony mode avoids them too. `order` holds the modes before the config's facts were added. If native mode
        is not the first of these, the chat template does not show tools to the model, so raw mode is not added either.
        """
        modes, endpoint = self.modes, self.facts.get("chat_template") or self.facts.get("template_endpoint")
        if not endpoint:
            return "raw mode is not offered: nothing is known that renders the model's chat template"
        if not self.facts.get("raw"):
            return "raw mode is not offered: no raw endpoint is known that would continue the prompt"
        if "raw" in modes:
            return f"raw mode is offered, as `modes` lists it: its prompt is rendered by {endpoint!r}"
        if self._modes_are_configured:
            return "raw mode is not offered: `modes` is configured, and does not list it"
        if "harmony" in modes:
            return "raw mode is not offered: harmony mode renders this family's own format"
        if {modes[:1], order[:1]} != {("native",)}:
            return "raw mode is not offered: the model's template shows it no tools, or native mode is not the first"
        self.facts["modes"] = ("native", "raw", *modes[1:])
        self.reason_by_key.setdefault("modes", "the default")
        return f"raw mode is offered after native mode: its prompt is rendered by {endpoint!r}"

    def build(self) -> Profile:
        """Build the profile."""
        return Profile(kind=self.kind, family=self.family, **self.facts)

    def reasons(self) -> list[str]:
        """Return a sentence for each fact, with the reason for it."""
        return [f"{key} = {_format_value(self.facts[key])}: {why}" for key, why in self.reason_by_key.items()]


def resolve(
    model: str | None = None,
    *,
    base_url: str | None = None,
    provider: str | None = None,
    config: Config | None = None,
    overrides: Mapping[str, Any] | None = None,
    server_version: str | None = None,
    seen: ServerInfo | None = None,
) -> Target:
    """Return where a request for `model` goes and what is known about the endpoint, without sending anything.

    Facts come in layers, and the last layer takes precedence: the defaults, the server's kind, the model's family, what
    was `seen` in a probe, the config's provider, the config's model, and `overrides`. Some facts hold only for some
    versions of the server. The version is `server_version`, or else the provider's, or else the version that was seen.
    If none of these is given, the newest version is assumed. Raises `UsageError` for unknown names, including unknown
    dialects, for invalid overrides, and for an untrusted config that would have an effect.
    """
    config = _usable(config or Config(), base_url, provider)
    chosen, provider_why = _provider(provider, base_url, config)
    entry, model_why = _model(model, chosen, config)
    kind, kind_why = _kind(chosen, seen)
    url, url_why = _base_url(base_url, chosen, kind, config)
    family, family_why = _family(entry, seen)
    version = server_version or chosen.server_version or (seen.version if seen and seen.kind == kind else None)
    size = (seen and seen.parameters) or size_in_name(entry.name)
    draft = _start_profile(_ProfileBuilder(kind, family, size), version, url, seen)
    with dialects.using_own(read_own(config.dialects)):
        raw_why = _add_configured(draft, config, chosen, entry, overrides or {})
    return Target(
        provider=chosen.name or None,
        base_url=url,
        model=entry.name,
        api_key_env=chosen.api_key_env,
        profile=draft.build(),
        reasons=(provider_why, url_why, kind_why, model_why, family_why, raw_why, *draft.reasons()),
        marks=config.tools,
        descriptions=config.descriptions.of(chosen.name, entry.name),
        system_prompt=chosen.system_prompt,
        defaults={**chosen.defaults, **entry.defaults},
        server_version=version,
        probe=_probe_scope(chosen),
        local_key=config.standing == "local",
    )


def _usable(config: Config, base_url: str | None, provider: str | None) -> Config:
    """Return the config, or an empty config if it is untrusted.

    Raises `UntrustedConfig` if an untrusted config would affect the request.
    """
    require_trust(config, base_url, provider)
    return Config() if config.standing == "untrusted" else config


def _start_profile(
    draft: _ProfileBuilder, version: str | None, url: str | None, seen: ServerInfo | None
) -> _ProfileBuilder:
    """Add the packaged facts and what the server reported to `draft`, and return `draft`."""
    draft.add_packaged(version, url)
    if seen:
        draft.add_detected(seen)
    return draft


def _add_configured(
    draft: _ProfileBuilder, config: Config, provider: Provider, model: Model, overrides: Mapping[str, Any]
) -> str:
    """Add the facts of the config and the request, then raw mode if possible; return why raw mode is offered or not."""
    location = Location(config.file) / "providers" / provider.name
    if config.dialects or not config.dialect_files:  # an untrusted config is only shown, without reading its dialects
        _check_dialect(provider.facts, location / "profile")
        _check_dialect(model.facts, location / "models" / model.name / "profile")
    order = draft.modes
    folder = Path(config.file).parent
    in_provider, in_model = _relative_to_config(provider.facts, folder), _relative_to_config(model.facts, folder)
    draft.add_configured(in_provider, f"{config.file}, provider {provider.name!r}", provider.calling, order)
    draft.add_configured(in_model, f"{config.file}, model {model.name!r}", model.calling, order)
    facts = check_facts(overrides, Location("overrides"))
    _check_dialect(facts, Location("overrides"))
    draft.add_configured(facts, "the request's override")
    return draft.add_raw_mode(order)


def _relative_to_config(facts: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return facts with the path of the chat template resolved relative to the config's folder."""
    template = facts.get("chat_template")
    return facts if template is None else {**facts, "chat_template": str(folder / Path(template).expanduser())}


def api_key(target: Target, environ: Mapping[str, str]) -> str | None:
    """Return the target's key from the environment; None if no key is needed, or the caller must supply it.

    Raises `UsageError` if a key that is needed is not set, or must not be sent to this address.
    """
    variable = target.api_key_env
    key = environ.get(variable) if variable else None
    if key and target.local_key and not is_loopback_url(target.base_url or ""):
        raise UsageError(
            f"provider {target.provider!r} names the key in {variable!r} for a server on this machine, in a config that"
            f" was only found: it is not sent to {without_credentials(target.base_url or '')}. Pass api_key=, name the"
            " config with config=, --config or PROMPTOOLS_CONFIG, or trust it with `promptools config trust`"
        )
    if key or not variable or not target.profile.needs_key:
        return key or None
    raise UsageError(
        f"provider {target.provider!r}: the environment variable {variable!r} is not set; set it to the key of"
        f" {without_credentials(target.base_url or '')}, or set needs_key = false in the provider's profile if the"
        " server takes requests without"
    )


def is_local(url: str | None) -> bool:
    """Return whether a URL is on this machine or a private network."""
    from ipaddress import ip_address  # only for servers of unknown kind
    from urllib.parse import urlsplit

    try:
        host = (urlsplit(url or "").hostname or "").lower()
        return host == "localhost" or host.endswith((".localhost", ".local")) or ip_address(host).is_private
    except ValueError:
        return False


def _provider(name: str | None, base_url: str | None, config: Config) -> tuple[Provider, str]:
    """Return `(provider, reason)`: the requested provider, the one at `base_url`, or the config's default."""
    if name is not None:
        return _named(name, config)
    if base_url is not None:
        same = [
            entry
            for entry in config.providers.values()
            if any(url and same_url(url, base_url) for url in (entry.base_url, *entry.replicas))
        ]
        if len(same) == 1:
            return same[0], f"provider {same[0].name!r}: {config.file} has it at {without_credentials(base_url)}"
        count = "several" if same else "none"
        return Provider(""), f"no provider: {_place(config)} has {count} at {without_credentials(base_url)}"
    if config.default_provider is None and not config.providers:
        return Provider(""), f"no provider: {_place(config)} has none"
    return _default(config)


def _place(config: Config) -> str:
    return "the config" if config.file == NO_FILE else config.file


def _default(config: Config) -> tuple[Provider, str]:
    """Return `(provider, reason)`: the config's default provider, or else its only one."""
    name, location = config.default_provider, Location(config.file) / "default_provider"
    if name is None and len(config.providers) > 1:
        raise location.error(
            f"missing, and there are several providers: name one of {', '.join(sorted(config.providers))}"
        )
    if name is None:
        only = next(iter(config.providers.values()))
        return only, f"provider {only.name!r}: the only one in {config.file}"
    if name not in config.providers:
        raise location.error(f"no provider {name!r} in this file; {suggest(name, config.providers)}")
    return config.providers[name], f"provider {name!r}: the default of {config.file}"


def _named(name: str, config: Config) -> tuple[Provider, str]:
    """Return `(provider, reason)` for the name of a provider or of a kind of server, such as `vllm`.

    The provider is the config's provider with this name or, for a kind of server, a new one. The reason says which.
    Raises UsageError for any other name.
    """
    if name in config.providers:
        return config.providers[name], f"provider {name!r}: asked for, in {config.file}"
    kind = kind_of(name)
    if kind is None:
        known = suggest(name, (*config.providers, *kinds()))
        raise UsageError(f"provider {name!r}: neither a provider of {config.file} nor a kind of server; {known}")
    return Provider(name, kind=kind), f"provider {name!r}: asked for, a kind of server"


def _kind(provider: Provider, seen: ServerInfo | None) -> tuple[str, str]:
    """Return `(kind, reason)`: the configured kind of server, else the provider's name, else the detected kind."""
    if provider.kind:
        return provider.kind, f"kind {provider.kind!r}: of provider {provider.name!r}"
    kind = kind_of(provider.name)
    if kind:
        return kind, f"kind {kind!r}: the provider's name"
    if seen and seen.kind:
        version = f", version {seen.version!r}" if seen.version else ""
        return seen.kind, f"kind {seen.kind!r}{version}: {seen.why}"
    return GENERIC, f"kind {GENERIC!r}: {seen.why if seen else 'nothing says what server it is'}"


def _probe_scope(provider: Provider) -> ProbeScope | None:
    """Return what a probe has to find out; None if probing is forbidden or would find out nothing."""
    if provider.detect is False:
        return None
    kind = provider.kind or kind_of(provider.name)
    if kind:
        return "model" if kind in PATHS_BY_KIND else None
    return "server" if provider.detect or not provider.name else None


def _base_url(asked: str | None, provider: Provider, kind: str, config: Config) -> tuple[str | None, str]:
    """Return `(base URL, reason)`: the requested URL, the provider's URL, or the default for the kind of server."""
    location = Location(config.file) / "providers" / provider.name / "base_url"
    if asked is not None:
        return _checked_url(asked, Location("base_url")), f"base_url {without_credentials(asked)!r}: asked for"
    if provider.base_url:
        shown = without_credentials(provider.base_url)
        return _checked_url(provider.base_url, location), f"base_url {shown!r}: of provider {provider.name!r}"
    if not provider.name:
        return None, "base_url: the client's own"
    default = load_builtin(kind).base_url
    if default is None:
        raise location.error(
            f"missing; a server of kind {kind!r} has no default address, so set the URL where it listens"
        )
    return default, f"base_url {default!r}: where {kind} listens by default"


def _checked_url(text: str, location: Location) -> str:
    """Return a base URL; raise UsageError if it does not begin with `http://` or `https://`."""
    if not text.startswith(("http://", "https://")):
        raise location.error(bad_url_message(text))
    return text


def _model(asked: str | None, provider: Provider, config: Config) -> tuple[Model, str]:
    """Return `(model, reason)` for a name or an alias; `default` and None mean the provider's default model."""
    name, by = asked, "asked for"
    if asked is None or (asked == DEFAULT and provider.name and DEFAULT not in provider.models):
        name, by = provider.default_model, f"the default of provider {provider.name!r}"
    if name is None:
        if asked is None:
            return Model(""), "model: none asked for"
        location = Location(config.file) / "providers" / provider.name / "default_model"
        raise location.error(f"missing, so {DEFAULT!r} names no model; set it, or ask for a model by name")
    if name in provider.models:
        return provider.models[name], f"model {name!r}: {by}, listed in {config.file}"
    for entry in provider.models.values():
        if name in entry.aliases:
            return entry, f"model {entry.name!r}: {by}, by its alias {name!r} in {config.file}"
    return Model(name), f"model {name!r}: {by}, sent as it is"


def _family(entry: Model, seen: ServerInfo | None) -> tuple[str | None, str]:
    """Return `(family, reason)`: the configured family, or else the one implied by the server's answers or the name."""
    if entry.family:
        return None if entry.family == NO_FAMILY else entry.family, f"family {entry.family!r}: of model {entry.name!r}"
    if seen and seen.family:
        return seen.family, f"family {seen.family!r}: by {seen.family_why}"
    if seen and seen.family_evidence:
        return None, "family: none that all the server's evidence allows"
    family = family_of(entry.name)
    return family, f"family {family!r}: by the model's name" if family else "family: none matches the model's name"


def _check_dialect(facts: Mapping[str, Any], location: Location) -> None:
    """Raise `UsageError` if the facts name an unknown dialect (format of calls).

    Names of dialects are not checked when a config is read, since an app may register its own dialects later.
    """
    wrong = dialects.unknown(facts.get("accept") or ())
    if wrong:
        raise (location / "accept").error(wrong)
    for key in ("dialect", "template_dialect"):
        name = facts.get(key)
        if name is not None and name not in dialects.names():
            raise (location / key).error(
                f"there is no dialect {name!r}; {did_you_mean(name, dialects.names())}`promptools dialects` lists all"
                " of them; one of your own is named in the config's `dialects`, or registered first"
            )


def _format_value(value: Any) -> str:
    """Return a fact's value as text; the members of a set are sorted."""
    return repr(sorted(value)) if value.__class__ is frozenset else repr(value)
