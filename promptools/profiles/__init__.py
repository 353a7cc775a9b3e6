"""What endpoints and models can do: packaged facts, the user's config, and the overlay of both."""

from promptools.profiles.config_files.config import Config, KeyOptions, Model, Provider, ProxyOptions, find_config
from promptools.profiles.config_files.promptools_toml import load_config
from promptools.profiles.facts import Builtin, Fact, all_control_tokens, families, family_dialect, kinds, load_builtin
from promptools.profiles.profile import Profile
from promptools.profiles.resolution import Target, api_key, resolve

__all__ = [
    "Builtin",
    "Config",
    "Fact",
    "KeyOptions",
    "Model",
    "Profile",
    "Provider",
    "ProxyOptions",
    "Target",
    "all_control_tokens",
    "api_key",
    "families",
    "family_dialect",
    "find_config",
    "kinds",
    "load_builtin",
    "load_config",
    "resolve",
]
