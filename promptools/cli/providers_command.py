"""The command `promptools providers`: list the providers and the known kinds of server, or explain one."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, replace
from typing import Any, cast

from promptools.cli.shared_arguments import add_base_url, add_config, add_json, read_config
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table
from promptools.json_values import is_array
from promptools.masking import mask_url
from promptools.profiles import Config, Provider, Target, families, kinds, load_builtin, resolve
from promptools.profiles.config_reach import shown_text


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", help="explain this provider, or this kind of server")
    parser.add_argument("--model", metavar="M", help="explain this model there")
    add_base_url(parser)
    add_config(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List all providers, kinds of server and families of models, or explain what the arguments name."""
    config = read_config(arguments.config)
    if config.standing == "untrusted":
        print_progress(f"{shown_text(config.file)} is shown, and not used: see `promptools config trust`")
        config = replace(config, standing="given")  # nothing is sent
    if arguments.name or arguments.model or arguments.base_url:
        target = resolve(arguments.model, provider=arguments.name, base_url=arguments.base_url, config=config)
        if arguments.json:
            print_json(_as_json(target))
        else:
            _explain(target)
    elif arguments.json:
        print_json(
            {
                "file": None if config.file == Config().file else config.file,
                "default_provider": config.default_provider,
                "providers": [_provider(provider) for provider in config.providers.values()],
                "kinds": list(kinds()),
                "families": list(families()),
            }
        )
    else:
        _list(config)
    return 0


def _list(config: Config) -> None:
    if config.providers:
        print_table(
            f"Providers of {config.file}",
            ("provider", "kind", "base_url", "models", "key"),
            (_row(provider, config.default_provider) for provider in config.providers.values()),
        )
    else:
        where = "there is no config" if config.file == Config().file else config.file
        print_styled([(f"No providers: {where}", "dim")])
    profiles = [load_builtin(kind) for kind in kinds()]
    print_table(
        "Kinds of server that promptools has facts about",
        ("kind", "server", "listens by default", "facts"),
        ((kind.name, kind.title, kind.base_url or "", str(len(kind.facts))) for kind in profiles),
    )
    print_table(
        "Families of models",
        ("family", "models", "facts"),
        ((family.name, family.title, str(len(family.facts))) for family in map(load_builtin, families())),
    )


def _explain(target: Target) -> None:
    """Print the settings of `target` that have a value, and the reasons for them."""
    values = ((key, _text(value)) for key, value in asdict(target.profile).items())
    print_table(
        f"{target.provider or 'No provider'}: {target.model or 'no model named'}",
        ("setting", "is"),
        (row for row in values if row[1]),
    )
    why = "\n".join(f"- {reason}" for reason in target.reasons)
    print_styled([("Why\n", "bold"), (f"{why}\n", ""), ("No server was asked: promptools detect URL asks one", "dim")])


def _row(provider: Provider, default: str | None) -> tuple[str, ...]:
    name = f"{provider.name} (default)" if provider.name == default else provider.name
    models = [f"{model} (default)" if model == provider.default_model else model for model in provider.models]
    if provider.default_model and provider.default_model not in provider.models:
        models.append(f"{provider.default_model} (default)")
    return name, provider.kind or "", mask_url(provider.base_url or ""), "\n".join(models), _key(provider)


def _key(provider: Provider) -> str:
    if not provider.api_key_env:
        return "none named"
    return f"{provider.api_key_env} ({'set' if os.environ.get(provider.api_key_env) else 'not set'})"


def _provider(provider: Provider) -> dict[str, Any]:
    data = asdict(provider)
    data["base_url"] = provider.base_url and mask_url(provider.base_url)
    data["key_set"] = bool(provider.api_key_env and os.environ.get(provider.api_key_env))
    return data


def _as_json(target: Target) -> dict[str, Any]:
    data = asdict(target)
    data["base_url"] = target.base_url and mask_url(target.base_url)
    data["profile"] = {key: _to_json_value(value) for key, value in data["profile"].items()}
    return data


def _text(value: Any) -> str:
    value = _to_json_value(value)
    if is_array(value):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _to_json_value(value: Any) -> Any:
    """Return a set or tuple as a list, and any other value unchanged."""
    if isinstance(value, frozenset):
        return sorted(cast("frozenset[str]", value))
    return [*value] if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownVariableType] - JSON values
