"""What endpoints and models can do: packaged facts, the user's config, and the overlay of both."""

from promptools.profiles.config import Config, Model, Provider, ProxyOptions, find_config
from promptools.profiles.facts import Builtin, Fact, all_control_tokens, families, kinds, load_builtin
from promptools.profiles.load import load_config
from promptools.profiles.profile import Profile
from promptools.profiles.target import Target, api_key, resolve

__all__ = [
    "Builtin",
    "Config",
    "Fact",
    "Model",
    "Profile",
    "Provider",
    "ProxyOptions",
    "Target",
    "all_control_tokens",
    "api_key",
    "families",
    "find_config",
    "kinds",
    "load_builtin",
    "load_config",
    "resolve",
]
