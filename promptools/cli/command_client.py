"""Build the client for the server that a command's arguments name, and choose the model."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from promptools.cli.command_log import log_if_healed
from promptools.cli.config_command import describe_source
from promptools.cli.server_errors import require_server
from promptools.cli.shared_arguments import (
    given_key,
    read_config,
    server_key,
)
from promptools.cli.terminal_output import print_progress
from promptools.errors import UpstreamError, UsageError, clip, without_credentials
from promptools.json_values import is_array
from promptools.masking import mask_url
from promptools.profiles import Config
from promptools.profiles.config_reach import shown_text
from promptools.wire.json_body import as_object, as_text, parse_object

if TYPE_CHECKING:
    import openai

    from promptools.client import AsyncOpenAI


_Client = TypeVar("_Client")


def connect(arguments: argparse.Namespace) -> openai.OpenAI:
    """Build a client for the server that the arguments name."""
    from promptools.client import OpenAI

    return _build_client(OpenAI, arguments, {})


def connect_async(arguments: argparse.Namespace, **options: Any) -> AsyncOpenAI:
    """Build an async client for the server that the arguments name; `options` are passed to the client."""
    from promptools.client import AsyncOpenAI

    return _build_client(AsyncOpenAI, arguments, options)


def print_destination(arguments: argparse.Namespace, client: openai.OpenAI | AsyncOpenAI) -> None:
    """Print to stderr where requests go and what decided this. Print nothing if `--base-url` decided it."""
    if arguments.base_url:
        return
    session: Any = getattr(client, "promptools")  # noqa: B009 - openai's class has no such attribute
    by = describe_source(session.config, arguments.provider, session.provider)
    address = mask_url(str(client.base_url)).rstrip("/")
    print_progress(f"requests go to {shown_text(address)} ({by})")


def _build_client(client: Callable[..., _Client], arguments: argparse.Namespace, options: Mapping[str, Any]) -> _Client:
    """Build a client.

    Raises `UsageError` if the SDK finds no key, which means that nothing names a server either. A server that is named
    by `--base-url` or `OPENAI_BASE_URL` needs no key.
    """
    import openai

    from promptools.transport.session import PLACEHOLDER_KEY

    settings = {**_client_options(arguments), **options}
    try:
        return client(**settings)
    except openai.OpenAIError:
        if os.environ.get("OPENAI_BASE_URL"):
            return client(**settings, api_key=PLACEHOLDER_KEY)
        named = "name a server with --base-url or --provider, or set OPENAI_API_KEY for OpenAI's"
        raise UsageError(f"{named}; {_why_none_is_known(arguments.config)}") from None


def _why_none_is_known(name: str | None) -> str:
    """Return why no config names a server: there is no config, or the config that was found has no providers."""
    config = read_config(name)
    if config.file == Config().file:
        return "there is no config that names one (docs: reference/config.md)"
    return f"{config.file} has no providers"


def _client_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a client for the server that the arguments name."""
    from promptools.transport.session import PLACEHOLDER_KEY

    options: dict[str, Any] = {}
    if arguments.base_url:
        options = {"base_url": arguments.base_url, "api_key": server_key(arguments) or PLACEHOLDER_KEY}
    elif key := given_key(arguments):
        options = {"api_key": key}
    if arguments.verbose:
        options["on_reply"] = log_if_healed
    return {
        "provider": arguments.provider,
        "config": arguments.config,
        "dialects": arguments.dialect_files,
        "detect": arguments.detect,
        **options,
    }


def default_model(client: Any) -> str:
    """Return the default model of the provider, or else the only model that the server lists.

    Raises `UsageError` if the provider has no default model and the server does not list exactly one.
    """
    session = client.promptools
    configured: str = session.resolve_target(None, base_url=str(client.base_url), provider=session.provider).model
    if configured:
        return configured
    return only_model(client)


def only_model(client: Any) -> str:
    """Return the only model that the server lists; raise `UsageError` if it lists several models or none."""
    listed = _listed_models(client)
    if len(listed) == 1:
        return listed[0]
    raise UsageError(f"name a model with --model; the server lists {', '.join(map(repr, listed)) or 'none'}")


def choose_model(arguments: argparse.Namespace, client: Any) -> str:
    """Return the model for a command that sends many requests.

    Raises `UpstreamError` immediately if the server cannot be reached.
    """
    require_server(str(client.base_url))
    return arguments.model or default_model(client)


def _listed_models(client: Any) -> list[str]:
    """Return the names of the models that the server lists.

    Raises `UpstreamError` for a malformed response, for which the SDK itself would raise an unhelpful error.
    """
    answer = client.models.with_raw_response.list().http_response
    models = parse_object(answer.content).get("data")
    if not is_array(models):
        raise UpstreamError(
            f"{without_credentials(str(answer.url))} did not answer with a list of models"
            f" ({clip(repr(answer.text), 80)}); check that its address is the root of the API, with /v1,"
            " or name a model with --model"
        )
    return [name for name in (as_text(as_object(model).get("id")) for model in models) if name]
