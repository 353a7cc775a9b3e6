"""The command `promptools chat`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from promptools.cli.collected_reply import CollectedReply
from promptools.cli.command_log import log_if_healed
from promptools.cli.config_command import describe_source
from promptools.cli.server_errors import require_server
from promptools.cli.shared_arguments import (
    add_endpoint,
    add_json,
    add_tools,
    given_key,
    read_config,
    read_tools,
    server_key,
)
from promptools.cli.terminal_output import print_json, print_progress, print_styled, shows_progress
from promptools.errors import UpstreamError, UsageError, clip, without_credentials
from promptools.harness.agent.run_events import ReasoningEvent, TextEvent
from promptools.json_values import is_array
from promptools.masking import mask_url
from promptools.profiles import Config
from promptools.profiles.config_reach import shown_text
from promptools.types import ModeName
from promptools.wire.json_body import as_object, as_text

if TYPE_CHECKING:
    import openai

    from promptools.client import AsyncOpenAI


_Client = TypeVar("_Client")

_DIM = "\x1b[2m"
_RESET = "\x1b[0m"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "message", nargs="?", help="send this message and exit after the answer (default: a conversation)"
    )
    add_endpoint(parser)
    add_tools(parser)
    parser.add_argument("--mode", choices=get_args(ModeName), help="request tools in this mode only")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the conversation."""
    if arguments.json and not arguments.message:
        raise UsageError("--json answers one message: give it as an argument")
    with connect(arguments) as client:
        if not arguments.json:
            print_destination(arguments, client)
        _run_conversation(arguments, client, arguments.model or default_model(client))
    return 0


def _run_conversation(arguments: argparse.Namespace, client: openai.OpenAI, model: str) -> None:
    tools = read_tools(arguments.tools)
    messages: list[Any] = [{"role": "system", "content": arguments.system}] if arguments.system else []
    options = {"mode": arguments.mode} if arguments.mode else {}
    for line in [arguments.message] if arguments.message else _read_lines("you> "):
        messages.append({"role": "user", "content": line})
        while True:
            message, trace = _stream_reply(client, model, messages, tools, options, quiet=arguments.json)
            messages.append(message)
            if arguments.json:
                print_json({"message": message, "promptools": trace})
            if not message.get("tool_calls") or arguments.message:
                break
            messages.extend(_read_results(message["tool_calls"]))


def connect(arguments: argparse.Namespace) -> openai.OpenAI:
    """Build a client for the server that the arguments name."""
    from promptools.client import OpenAI

    return _build_client(OpenAI, arguments, {})


def connect_async(arguments: argparse.Namespace, **options: Any) -> AsyncOpenAI:
    """Build an async client for the server that the arguments name; `options` are passed to the client."""
    from promptools.client import AsyncOpenAI

    return _build_client(AsyncOpenAI, arguments, options)


def print_destination(arguments: argparse.Namespace, client: openai.OpenAI | AsyncOpenAI) -> None:
    """Print to stderr where requests go and what decided that, unless an argument did."""
    if arguments.base_url:
        return
    session: Any = getattr(client, "promptools")  # noqa: B009 - openai's class has no such attribute
    by = describe_source(session.config, arguments.provider, session.provider)
    address = mask_url(str(client.base_url)).rstrip("/")
    print_progress(f"requests go to {shown_text(address)} ({by})")


def _build_client(client: Callable[..., _Client], arguments: argparse.Namespace, options: Mapping[str, Any]) -> _Client:
    """Build a client; raise `UsageError` if the SDK finds no key, which means that no server is named either.

    A server that `OPENAI_BASE_URL` names needs no key, just as one that `--base-url` names.
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
    """Return how the search for a config ended."""
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
    """Return the provider's default model, or the only one that the server lists; else raise `UsageError`."""
    session = client.promptools
    configured: str = session.resolve_target(None, base_url=str(client.base_url), provider=session.provider).model
    if configured:
        return configured
    listed = _listed_models(client)
    if len(listed) == 1:
        return listed[0]
    raise UsageError(f"name a model with --model; the server lists {', '.join(map(repr, listed)) or 'none'}")


def choose_model(arguments: argparse.Namespace, client: Any) -> str:
    """Return the model of a command that sends many requests; raise `UpstreamError` at once if its server is down."""
    require_server(str(client.base_url))
    return arguments.model or default_model(client)


def _listed_models(client: Any) -> list[str]:
    """Return the models that the server lists; the SDK itself raises unhelpful errors for malformed responses."""
    answer = client.models.with_raw_response.list().http_response
    try:
        models = as_object(answer.json()).get("data")
    except (ValueError, RecursionError):
        models = None
    if not is_array(models):
        raise UpstreamError(
            f"{without_credentials(str(answer.url))} did not answer with a list of models"
            f" ({clip(repr(answer.text), 80)}); check that its address is the root of the API, with /v1,"
            " or name a model with --model"
        )
    return [name for name in (as_text(as_object(model).get("id")) for model in models) if name]


def _stream_reply(
    client: openai.OpenAI,
    model: str,
    messages: list[Any],
    tools: list[Any] | None,
    options: dict[str, Any],
    *,
    quiet: bool,
) -> tuple[dict[str, Any], Any]:
    """Stream one reply to the terminal; return it as a message for the history, with its trace."""
    arguments: dict[str, Any] = {"tools": tools} if tools else {}
    stream: Any = client.chat.completions.create(
        model=model,
        messages=messages,
        stream=True,
        extra_body={"promptools": {**options, "trace": True}},
        **arguments,
    )
    answer = CollectedReply()
    for chunk in stream:
        for event in answer.add(chunk):
            if not quiet:
                _write(event)
    if not quiet:
        print()
        for call in answer.reply.calls:
            print_styled([("call ", "bold green"), (f"{call.name}({call.arguments})", "")])
        steps = [f"{attempt['mode']}: {attempt['outcome']}" for attempt in answer.attempts]
        if steps and shows_progress():
            print_styled([(f"[{' -> '.join(steps)}]", "dim")])
    return answer.reply.message(reasoning=False), answer.trace_report


def _read_results(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for call in calls:
        prompt = f"result of {call['function']['name']}> "
        content = next(_read_lines(prompt), json.dumps({"error": "no result"}))
        yield {"role": "tool", "tool_call_id": call["id"], "content": content}


def _read_lines(prompt: str) -> Iterator[str]:
    """Yield lines until the input ends, without the blank ones."""
    while True:
        try:
            line = input(prompt if sys.stdin.isatty() else "")
        except EOFError:
            return
        if line.strip():
            yield line


def _write(event: TextEvent | ReasoningEvent) -> None:
    dim = isinstance(event, ReasoningEvent) and sys.stdout.isatty()
    sys.stdout.write(f"{_DIM}{event.text}{_RESET}" if dim else event.text)
    sys.stdout.flush()
