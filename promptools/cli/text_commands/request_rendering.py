"""A whole request as `promptools render` shows it: as a body, as a prompt's text or token ids, or as token counts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, get_args

from promptools.cli.shared_arguments import read_json
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table
from promptools.cli.text_commands import raw_rendering
from promptools.cli.text_commands.raw_rendering import RAW_ARGUMENTS
from promptools.errors import UsageError
from promptools.harmony import bpe_vocabulary
from promptools.harmony.conversation import ReasoningPolicy, ToolPlacement
from promptools.harmony.renderer import Effort, TokenCounter, count_messages, estimate_tokens, exact_counter
from promptools.json_values import is_object
from promptools.modes.mode import Mode
from promptools.modes.options import Options
from promptools.modes.registry import get_mode
from promptools.modes.tool_request import ToolChoice, ToolRequest, parse_request
from promptools.profiles import resolve
from promptools.schema import Tools
from promptools.types import ModeName
from promptools.wire.json_body import as_text

NO_DATE = "none"
MODES: tuple[ModeName, ...] = ("harmony", "native", "prompt", "raw")
REQUEST_ARGUMENTS = ("ids", "count", "mode", "tools_in", "thoughts", "effort", "date", *RAW_ARGUMENTS)
"""The arguments that are for a whole request."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a whole request."""
    group = parser.add_argument_group("what becomes of FILE")
    shown = group.add_mutually_exclusive_group()
    shown.add_argument(
        "--ids", action="store_true", help="show token ids; harmony's need the vocabulary (promptools harmony)"
    )
    shown.add_argument(
        "--count", action="store_true", help="count tokens: with the vocabulary exactly, without it by estimate"
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        help="how tools are requested (default: the request's, with --dialect prompt, else harmony); raw: by a server",
    )
    group.add_argument("--tools-in", choices=get_args(ToolPlacement), help="the message that declares them")
    group.add_argument("--thoughts", choices=get_args(ReasoningPolicy), help="which past reasoning to keep")
    group.add_argument(
        "--effort", choices=get_args(Effort), help="reasoning effort (default: the request's, else medium)"
    )
    group.add_argument(
        "--date",
        metavar="DAY",
        help=f"the current date given in the prompt, as 2026-11-21, or {NO_DATE} (default: today)",
    )
    raw_rendering.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the request in the form that the arguments name."""
    body = _read_body(arguments)
    ask = _parse(body)
    mode = get_mode(arguments.mode or ask.options.mode or ("prompt" if arguments.dialect else "harmony"))
    if arguments.dialect and mode.name != "prompt":
        raise UsageError(f"--dialect is what mode prompt writes in, mode {mode.name} does not: leave one of them out")
    if mode.name == "raw":
        return raw_rendering.run(arguments, body)
    reject_arguments(arguments, RAW_ARGUMENTS, "--mode raw")
    if arguments.count:
        _show_count(ask, mode, as_json=arguments.json)
        return 0
    if arguments.ids:
        if mode.name != "harmony":
            raise UsageError(f"--ids are what mode harmony sends; mode {mode.name} sends messages: ask for --count")
        loaded = _vocabulary()
        ask = replace(ask, vocabulary=lambda: loaded, profile=replace(ask.profile, raw_ids=True))
    upstream = mode.prepare(ask)
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
    """Raise `UsageError` for arguments that would have no effect."""
    flags = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) not in (None, False)]
    if flags:
        raise UsageError(f"{' and '.join(flags)} {'needs' if len(flags) == 1 else 'need'} {needed}")


def _read_body(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the request; the arguments override its own options."""
    body = read_json(arguments.file)
    if not is_object(body):
        raise UsageError(f"{arguments.file!r} holds no request: write the body of a chat completion, an object")
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
    """Normalize a date; `NO_DATE` becomes the empty string."""
    try:
        return "" if text == NO_DATE else text and date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UsageError(f"--date {text!r} is not a date: write it as 2026-11-21, or {NO_DATE!r}") from error


def _prompt_text(ask: ToolRequest, mode: Mode) -> str:
    """Return the prompt that gpt-oss reads; for other modes, with the messages rendered as its own template does."""
    upstream = mode.prepare(ask)
    if upstream.prompt is None:
        body = {key: value for key, value in upstream.body.items() if key != "tool_choice"}
        upstream = get_mode("harmony").prepare(parse_request(body, ask.profile, Options(date=ask.today or "")))
    assert upstream.prompt is not None
    assert isinstance(upstream.prompt.content, str)
    return upstream.prompt.content


def _show_count(ask: ToolRequest, mode: Mode, *, as_json: bool) -> None:
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
    title = f"Tokens that gpt-oss reads in mode {mode.name}{', estimated' if why_not else ''}"
    print_table(title, ("what", "tokens"), ((what, str(tokens)) for what, tokens in rows))
    if why_not:
        print_styled([("An estimate: ", "bold"), (why_not, "")])


def _vocabulary() -> bpe_vocabulary.TokenCodec:
    """Load the vocabulary from this machine; nothing is downloaded."""
    file = bpe_vocabulary.configure_library(os.environ, Path.home())
    if file is None:
        raise UsageError(
            f"token ids need the vocabulary: get it from {bpe_vocabulary.FILE_URL} and "
            f"run {bpe_vocabulary.INSTALL_COMMAND!r}"
        )
    return bpe_vocabulary.load_codec(file)


def _token_counter() -> tuple[TokenCounter, str]:
    """Return the token counter, and why it only estimates (empty: it counts exactly)."""
    try:
        return exact_counter(_vocabulary().encode), ""
    except UsageError as missing:
        return estimate_tokens, str(missing)
