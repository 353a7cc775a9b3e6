"""What a config says of each kind of server."""

import json

from promptools.profiles import Config, Provider

FACTS = {"vllm": {"context": 16384}}
"""It says so itself, but on a loaded machine not always within the two seconds of a look."""


def config_of(kind: str, url: str) -> Config:
    """Return a config that knows one server, by the name of its kind."""
    return Config(providers={kind: Provider(kind, kind=kind, base_url=url, facts=FACTS.get(kind, {}))})


def told_of(kind: str, url: str) -> str:
    """Write the same as the keys of a provider in a file."""
    facts = "".join(f"profile.{key} = {json.dumps(value)}\n" for key, value in FACTS.get(kind, {}).items())
    return f"kind = {json.dumps(kind)}\nbase_url = {json.dumps(url)}\n{facts}"


def default_config(server, kind: str = "llamacpp") -> Config:
    """Return a config whose default provider is a running server of the lab, with its model."""
    box = Provider("box", kind=kind, base_url=server.base_url, default_model=server.name)
    return Config(default_provider="box", providers={"box": box})
