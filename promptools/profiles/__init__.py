"""State what endpoints and models can do: packaged facts, the user's config, and the rules that combine both."""

from promptools.profiles.config import (
    Config,
    ConfigFile,
    KeyOptions,
    Model,
    Provider,
    ProxyOptions,
    find_config,
    find_configs,
)
from promptools.profiles.config_files import load_config, parse_config, read_dialects
from promptools.profiles.config_reach import ConfigReach, UntrustedConfig, reach_of, require_trust
from promptools.profiles.facts import Builtin, Fact, all_control_tokens, families, family_dialect, kinds, load_builtin
from promptools.profiles.profile import Profile
from promptools.profiles.resolution import Target, api_key, resolve

__all__ = [
    "Builtin",
    "Config",
    "ConfigFile",
    "ConfigReach",
    "Fact",
    "KeyOptions",
    "Model",
    "Profile",
    "Provider",
    "ProxyOptions",
    "Target",
    "UntrustedConfig",
    "all_control_tokens",
    "api_key",
    "families",
    "family_dialect",
    "find_config",
    "find_configs",
    "kinds",
    "load_builtin",
    "load_config",
    "parse_config",
    "reach_of",
    "read_dialects",
    "require_trust",
    "resolve",
]
