"""The command `promptools render`: show parts of a prompt, or a whole request as a mode sends it."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from promptools import dialects
from promptools.cli.shared_arguments import (
    add_endpoint,
    add_json,
    add_tools,
    given_key,
    read_json,
    read_tools,
    server_key,
)
from promptools.cli.synchronous_exchange import run_exchange
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table
from promptools.dialects import using_own
from promptools.errors import UsageError, clip
from promptools.harmony import bpe_vocabulary
from promptools.harmony.conversation import ReasoningPolicy
from promptools.harmony.renderer import Effort, TokenCounter, count_messages, estimate_tokens, exact_counter
from promptools.json_values import is_array, is_object
from promptools.modes.options import Options
from promptools.modes.prompt_mode import JSON_DIALECT, render
from promptools.modes.registry import PREPARE, OneStepMode
from promptools.modes.tool_request import ToolChoice, ToolRequest, parse_request
from promptools.profiles import resolve
from promptools.schema import Tools
from promptools.types import ModeName, ToolPlacement
from promptools.wire.json_body import as_object, as_text

if TYPE_CHECKING:
    from promptools.exchange import Headers, Route
    from promptools.exchange.runner import PromptPreview
    from promptools.transport import Session


# A request as raw mode sends it. The server renders the prompt, or the prompt is rendered here with a chat template.


RAW_ARGUMENTS = ("provider", "base_url", "api_key", "api_key_env", "model", "config", "chat_template")
"""The arguments that apply to raw mode only."""
_NO_SERVER = "http://127.0.0.1/v1"
"""Placeholder for the server's address if a template is rendered without a server. Nothing is sent to it."""


def add_raw(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of raw mode."""
    add_endpoint(parser)
    parser.add_argument(
        "--chat-template",
        metavar="TEMPLATE",
        help="mode raw: the model's Jinja chat template or tokenizer_config.json, rendered here without a server",
    )


def run_raw(arguments: argparse.Namespace, body: dict[str, Any]) -> int:
    """Show the prompt of raw mode, the beginning of a call at its end (if any), and what ends the reply."""
    if arguments.count:
        raise UsageError("--count counts what gpt-oss reads; in mode raw ask for --ids, which vLLM and SGLang report")
    preview = _render(arguments, body)
    prompt, prefill = preview.prepared.prompt, preview.prepared.prefill
    assert prompt is not None, "raw mode sends a prompt"
    text: str | None = prompt.content if isinstance(prompt.content, str) else prompt.text
    ids = None if isinstance(prompt.content, str) else list(prompt.content)
    if ids is not None and text is not None:
        text += prefill  # the server's text of the token ids ends before the beginning of the call
    if arguments.ids and ids is None:
        raise UsageError("--ids: the prompt is rendered as text here, only vLLM and SGLang render token ids")
    ends = prompt.stops or prompt.stop_ids
    if arguments.json:
        notes = preview.notes
        print_json({"text": text, "ids": ids, "prefill": prefill, "ends": ends, "notes": notes})
        return 0
    for note in preview.notes:
        print_progress(f"note: {note}")
    if text is None:
        print_progress("note: the server reports no text of its token ids")
    if prefill:
        print_progress(f"note: the prompt ends with the beginning of the call: {json.dumps(prefill)}")
    if ends:
        print_progress(f"note: the reply ends at {', '.join(map(json.dumps, ends))}")
    print(ids if arguments.ids or text is None else text)
    return 0


def _render(arguments: argparse.Namespace, body: dict[str, Any]) -> PromptPreview:
    from promptools.exchange import ClientRequest, Request
    from promptools.exchange.runner import preview_prompt
    from promptools.transport import Session

    template = arguments.chat_template
    options = as_object(body.get("promptools"))
    session = Session(
        {
            "provider": arguments.provider or options.get("provider"),
            "config": arguments.config,
            "dialects": arguments.dialect_files,
            "detect": arguments.detect,
            "overrides": {"chat_template": template} if template else None,
        }
    )
    model = arguments.model or as_text(body.get("model"))
    base_url, headers = _find_server(arguments, session, model)

    def route(name: str | None, _provider: str | None) -> Route:
        route = session.route(name, base_url, session.provider)
        return replace(route, resolve=None) if base_url == _NO_SERVER else route

    body = {**body, "model": model, "promptools": {**options, "provider": None, "mode": "raw"}}
    url = f"{base_url.rstrip('/')}/chat/completions"
    request = ClientRequest(Request("POST", url, headers, json.dumps(body).encode()), time.monotonic())
    with using_own(session.own_dialects):
        return run_exchange(preview_prompt(request, replace(session.context, route=route)))


def _find_server(arguments: argparse.Namespace, session: Session, model: str) -> tuple[str, Headers]:
    """Return the base URL of the server, and the header fields of requests to it.

    Raises `UsageError` if a server is needed, but neither the arguments nor the config name one.
    """
    from promptools.transport.http_library import split_credentials

    named = arguments.base_url or session.environment_address()
    target = session.resolve_target(model or None, base_url=named, provider=session.provider)
    url = named or target.base_url
    if url is None and arguments.chat_template:
        return _NO_SERVER, ()
    if url is None:
        raise UsageError(
            "in mode raw the server renders the prompt: name it with --base-url or --provider, or give the model's own"
            " template with --chat-template"
        )
    base_url, basic = split_credentials(url)
    without_provider = arguments.base_url or target.provider is None
    key = server_key(arguments) if without_provider else given_key(arguments) or session.find_key(target)
    authorization = basic or (f"Bearer {key}" if key else None)
    fields = (("content-type", "application/json"), *((("authorization", authorization),) if authorization else ()))
    return base_url, fields


# A whole request: it is shown as a body, as the text or token ids of a prompt, or as counts of tokens.


NO_DATE = "none"
MODES: tuple[ModeName, ...] = ("harmony", "native", "prompt", "raw")
REQUEST_ARGUMENTS = ("ids", "count", "mode", "tools_in", "thoughts", "effort", "date", *RAW_ARGUMENTS)
"""The arguments that apply only to a whole request."""


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a whole request."""
    group = parser.add_argument_group("how FILE is shown")
    shown = group.add_mutually_exclusive_group()
    shown.add_argument(
        "--ids", action="store_true", help="show token ids; harmony's need the vocabulary (promptools harmony)"
    )
    shown.add_argument(
        "--count",
        action="store_true",
        help="count tokens: exactly if the vocabulary is on this machine, otherwise as an estimate",
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        help="how tools are requested (default: the request's, with --dialect prompt, else harmony); raw: by a server",
    )
    group.add_argument("--tools-in", choices=get_args(ToolPlacement), help="the message that declares the tools")
    group.add_argument("--thoughts", choices=get_args(ReasoningPolicy), help="which past reasoning to keep")
    group.add_argument(
        "--effort", choices=get_args(Effort), help="reasoning effort (default: the request's, else medium)"
    )
    group.add_argument(
        "--date",
        metavar="DAY",
        help=f"the current date given in the prompt, as 2026-11-21, or {NO_DATE} (default: today)",
    )
    add_raw(parser)


def run_request(arguments: argparse.Namespace) -> int:
    """Show a whole request in the form that the arguments ask for."""
    body = _read_body(arguments)
    ask = _parse(body)
    mode: ModeName = arguments.mode or ask.options.mode or ("prompt" if arguments.dialect else "harmony")
    if arguments.dialect and mode != "prompt":
        raise UsageError(f"--dialect is what mode prompt writes in, mode {mode} does not: leave one of them out")
    if mode == "raw":
        return run_raw(arguments, body)
    reject_arguments(arguments, RAW_ARGUMENTS, "--mode raw")
    if arguments.count:
        _show_count(ask, mode, as_json=arguments.json)
        return 0
    if arguments.ids:
        if mode != "harmony":
            raise UsageError(f"--ids are what mode harmony sends; mode {mode} sends messages: ask for --count")
        loaded = _vocabulary()
        ask = replace(ask, vocabulary=lambda: loaded, profile=replace(ask.profile, raw_ids=True))
    upstream = PREPARE[mode](ask)
    for note in upstream.notes:
        print_progress(f"note: {note}")
    if upstream.prompt is None:
        print_json(upstream.body)
    elif arguments.json:
        print_json({"ids" if arguments.ids else "text": upstream.prompt.as_json})
    else:
        print(upstream.prompt.as_json)
    return 0


def reject_arguments(arguments: argparse.Namespace, names: Sequence[str], needed: str) -> None:
    """Raise `UsageError` if any of the arguments `names` is given.

    `needed`, a part of the error message, says what these arguments need to have an effect, such as `--mode raw`.
    """
    flags = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) not in (None, False)]
    if flags:
        raise UsageError(f"{' and '.join(flags)} {'needs' if len(flags) == 1 else 'need'} {needed}")


def _read_body(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the body of the request. The command's arguments override the options in the body."""
    body = read_json(arguments.file)
    if not is_object(body):
        raise UsageError(f"{arguments.file!r} contains no request: write the body of a chat completion, an object")
    day = _parse_date(arguments.date)
    overrides = {
        "dialect": arguments.dialect,
        "tools_in": arguments.tools_in,
        "thoughts": arguments.thoughts,
        "date": day,
    }
    given = {key: value for key, value in overrides.items() if value is not None}
    options: Any = body.get("promptools") or {}
    effort = {"reasoning_effort": arguments.effort} if arguments.effort else {}
    return {**body, **effort, "promptools": {**options, **given} if is_object(options) else options}


def _parse(body: dict[str, Any]) -> ToolRequest:
    profile = resolve(as_text(body.get("model")) or None).profile
    return parse_request(body, profile, clock=datetime.now)


def _parse_date(text: str | None) -> str | None:
    """Return the given date, checked and in ISO format; an empty text for `NO_DATE`, and None if no date is given."""
    try:
        return "" if text == NO_DATE else text and date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UsageError(f"--date {text!r} is not a date: write it as 2026-11-21, or {NO_DATE!r}") from error


def _prompt_text(ask: ToolRequest, mode: OneStepMode) -> str:
    """Return the prompt that gpt-oss reads.

    If the mode sends messages, they are rendered as gpt-oss's chat template would render them.
    """
    upstream = PREPARE[mode](ask)
    if upstream.prompt is None:
        body = {key: value for key, value in upstream.body.items() if key != "tool_choice"}
        upstream = PREPARE["harmony"](parse_request(body, ask.profile, Options(date=ask.today or "")))
    assert upstream.prompt is not None
    assert isinstance(upstream.prompt.content, str)
    return upstream.prompt.content


def _show_count(ask: ToolRequest, mode: OneStepMode, *, as_json: bool) -> None:
    measure, why_not = _token_counter()
    bare = replace(ask, tools=Tools([]), offered=Tools([]), other_tools=(), choice=ToolChoice())
    parts, without = (count_messages(_prompt_text(request, mode), measure) for request in (ask, bare))
    total = sum(part.tokens for part in parts)
    tools = total - sum(part.tokens for part in without)
    if as_json:
        listed = [part._asdict() for part in parts]
        print_json({"estimated": why_not or None, "whole": total, "tools": tools, "parts": listed})
        return
    rows = [("the whole prompt", total), ("of that, declaring the tools", tools), *parts]
    title = f"Tokens that gpt-oss reads in mode {mode}{', estimated' if why_not else ''}"
    print_table(title, ("what", "tokens"), ((what, str(tokens)) for what, tokens in rows))
    if why_not:
        print_styled([("An estimate: ", "bold"), (why_not, "")])


def _vocabulary() -> bpe_vocabulary.TokenCodec:
    """Load the vocabulary from a file on this machine; nothing is downloaded."""
    file = bpe_vocabulary.configure_library(os.environ, Path.home())
    if file is None:
        raise UsageError(
            f"token ids need the vocabulary: get it from {bpe_vocabulary.FILE_URL} and "
            f"run {bpe_vocabulary.INSTALL_COMMAND!r}"
        )
    return bpe_vocabulary.load_codec(file)


def _token_counter() -> tuple[TokenCounter, str]:
    """Return a token counter, and why it can only estimate; the reason is empty if it counts exactly."""
    try:
        return exact_counter(_vocabulary().encode), ""
    except UsageError as missing:
        return estimate_tokens, str(missing)


# The command.


PART_ARGUMENTS = ("tools", "calls", "results", "single", "required")
"""The arguments that apply only to parts of a prompt."""
PART_BY_ROLE = {"system": "tools", "assistant": "calls", "user": "results"}
"""Maps the role of a rendered message to the part of the prompt that the message contains."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", nargs="?", help="JSON: the body of a chat completion (-: stdin)")
    add_request(parser)
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        help="write in this dialect; `promptools dialects` lists them (default: json, or that of FILE's model)",
    )
    add_tools(parser)
    parser.add_argument("--single", action="store_true", help="ask for at most one call")
    parser.add_argument("--required", action="store_true", help="require a call")
    parser.add_argument(
        "--calls", metavar="FILE", help='JSON list of {"name", "arguments"}, or of tool_calls: as the model writes them'
    )
    parser.add_argument(
        "--results", metavar="FILE", help='JSON list of {"name", "content"}: the turn that answers calls'
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Render the request, or the given parts in the order of a conversation."""
    if arguments.file is None:
        reject_arguments(arguments, REQUEST_ARGUMENTS, "a request: give FILE")
        return _render_parts(arguments)
    reject_arguments(arguments, PART_ARGUMENTS, "no FILE: a request says all this itself")
    return run_request(arguments)


def _render_parts(arguments: argparse.Namespace) -> int:
    dialect = dialects.get(arguments.dialect or JSON_DIALECT)
    calls = _read_list(arguments.calls, _to_tool_call)
    messages = [{"role": "assistant", "tool_calls": calls}] if calls else []
    sent = render(
        [*messages, *_read_list(arguments.results, _to_tool_message)],
        read_tools(arguments.tools),
        dialect=dialect.name,
        tool_choice="required" if arguments.required else None,
        parallel_tool_calls=not arguments.single,
    )
    parts = {PART_BY_ROLE[message["role"]]: message["content"] for message in sent}
    if not parts:
        raise UsageError("nothing to render: give a request, or --tools, --calls or --results")
    if arguments.json:
        print_json({"dialect": dialect.name, "stop": list(dialect.stop), **parts})
    else:
        print("\n\n".join(parts.values()))
    return 0


def _read_list(name: str | None, read: Callable[[dict[str, Any], str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Read the JSON list in a file, and convert each entry with `read`. Without a file, return an empty list."""
    data: Any = [] if name is None else read_json(name)
    if not is_array(data):
        raise UsageError(f"{name!r} must hold a list")
    return [read(as_object(entry), f"{name!r}, entry {at}") for at, entry in enumerate(data)]


def _to_tool_call(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert `{"name", "arguments"}` to a tool call of Chat Completions. `data` may already be such a call."""
    function = as_object(data.get("function")) or data
    name: Any = function.get("name")
    arguments: Any = function.get("arguments")
    if not isinstance(name, str):
        raise UsageError(f"{where}: a call must be an object with a 'name', not {clip(repr(data))}")
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise UsageError(f"{where}: the arguments are not valid JSON: {error}") from error
    if arguments is None:
        arguments = {}
    if not is_object(arguments):
        raise UsageError(f"{where}: the arguments must be an object, or the JSON of one, not {clip(repr(arguments))}")
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": str(data.get("id", "")), "type": "function", "function": function}


def _to_tool_message(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert `{"name", "content"}` to a tool message of Chat Completions. `data` may already be such a message."""
    fields = {"tool_call_id": str(data.get("tool_call_id", data.get("id", ""))), "name": data.get("name")}
    if not isinstance(fields["name"], str) and not fields["tool_call_id"]:
        raise UsageError(f"{where}: a result must be an object with a 'name', not {clip(repr(data))}")
    content = data.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {"role": "tool", **fields, "content": text}
