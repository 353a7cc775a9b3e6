"""A whole request as `promptools render` shows it: the Harmony text it becomes, its ids, or its tokens, counted."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, get_args

from promptools.cli.arguments import read_json
from promptools.cli.screen import print_json, print_styled, print_table, say
from promptools.errors import UsageError
from promptools.exchange.registry import mode_of
from promptools.harmony import vocabulary
from promptools.harmony.convert import Converted, Options, ToolsIn, convert, effort_of
from promptools.harmony.count import Measure, count, estimate, exact
from promptools.harmony.render import Effort, Encode, render, render_ids
from promptools.harmony.thoughts import Policy
from promptools.modes.ask import Ask, Choice, read_ask
from promptools.modes.ask import Options as Asking
from promptools.profiles import resolve
from promptools.schema import Tools
from promptools.wire.shapes import as_object, as_text, is_object

NO_DATE = "none"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    of = parser.add_argument_group("what becomes of FILE")
    shown = of.add_mutually_exclusive_group()
    shown.add_argument("--ids", action="store_true", help="show token ids; needs the vocabulary (promptools harmony)")
    shown.add_argument(
        "--count", action="store_true", help="count tokens: with the vocabulary exactly, without it by estimate"
    )
    of.add_argument(
        "--mode", choices=("harmony", "prompt", "native"), default="harmony", help="how tools are asked for"
    )
    of.add_argument("--tools-in", choices=get_args(ToolsIn), default="developer", help="the message that declares them")
    of.add_argument("--thoughts", choices=get_args(Policy), default="last-final", help="which past thoughts stay")
    of.add_argument("--effort", choices=get_args(Effort), help="reasoning effort (default: the request's, else medium)")
    of.add_argument(
        "--date", metavar="DAY", help=f"the day that the prompt tells, as 2026-11-21, or {NO_DATE} (default: today)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the request that the arguments name."""
    ask, mode = _read(arguments), arguments.mode
    if arguments.count:
        _show_count(ask, arguments)
    elif mode == "harmony":
        said = _converted(ask, arguments)
        _note(said.notes)
        what = "ids" if arguments.ids else "text"
        shown = render_ids(said.messages, _encode()) if arguments.ids else render(said.messages)
        if arguments.json:
            print_json({what: shown})
        else:
            print(shown)
    elif arguments.ids:
        raise UsageError(f"--ids are what mode harmony sends; mode {mode} sends messages: ask for --count")
    else:
        upstream = mode_of(mode).body(ask)
        _note(upstream.notes)
        print_json(upstream.body)
    return 0


def _read(arguments: argparse.Namespace) -> Ask:
    body = read_json(arguments.file)
    if not is_object(body):
        raise UsageError(f"{arguments.file!r} holds no request: write the body of a chat completion, an object")
    profile = resolve(as_text(body.get("model")) or None).profile
    return read_ask(body, profile, Asking(dialect=arguments.dialect))


def _told(ask: Ask, arguments: argparse.Namespace) -> Options:
    """Give how the request is to be told."""
    return Options(
        date=_day(arguments.date),
        effort=arguments.effort or effort_of(_effort(ask.body)),
        tools_in=arguments.tools_in,
        thoughts=arguments.thoughts,
    )


def _day(said: str | None) -> str | None:
    if said == NO_DATE:
        return None
    try:
        return (date.fromisoformat(said) if said else date.today()).isoformat()
    except ValueError as error:
        raise UsageError(f"--date {said!r} is no day: write it as 2026-11-21, or {NO_DATE!r}") from error


def _effort(body: Mapping[str, Any]) -> Any:
    """Find what a request says of effort, in OpenAI's words or Ollama's."""
    said = (body.get("reasoning_effort"), as_object(body.get("reasoning")).get("effort"), body.get("think"))
    return next((each for each in said if each is not None), None)


def _format(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    form = body.get("response_format")
    return form if is_object(form) else None


def _converted(ask: Ask, arguments: argparse.Namespace) -> Converted:
    """Give the conversation that gpt-oss reads; the messages of other modes as its template writes them."""
    body, tools = ask.body, ask.offered
    messages = ask.messages
    if arguments.mode != "harmony":
        body = mode_of(arguments.mode).body(ask).body
        messages, tools = body["messages"], Tools(body.get("tools") or [])
    return convert(messages, tools, response_format=_format(body), options=_told(ask, arguments))


def _show_count(ask: Ask, arguments: argparse.Namespace) -> None:
    """Show the tokens of the prompt, of its messages, and how many fewer they were without tools."""
    measure, why_not = _measure()
    bare = replace(ask, tools=Tools([]), offered=Tools([]), others=(), choice=Choice())
    parts, without = (count(render(_converted(each, arguments).messages), measure) for each in (ask, bare))
    whole = sum(part.tokens for part in parts)
    tools = whole - sum(part.tokens for part in without)
    if arguments.json:
        listed = [part._asdict() for part in parts]
        print_json({"estimated": why_not or None, "whole": whole, "tools": tools, "parts": listed})
        return
    rows = [("the whole prompt", whole), ("of that, declaring the tools", tools), *parts]
    title = f"Tokens that gpt-oss reads in mode {arguments.mode}{', estimated' if why_not else ''}"
    print_table(title, ("what", "tokens"), ((what, str(tokens)) for what, tokens in rows))
    if why_not:
        print_styled([("An estimate: ", "bold"), (why_not, "")])


def _encode() -> Encode:
    """Load the vocabulary, which must be at hand: nothing is downloaded for a look."""
    if vocabulary.tell(os.environ, Path.home()) is None:
        raise UsageError(f"token ids need the vocabulary: get it from {vocabulary.SOURCE} and run {vocabulary.KEEP!r}")
    return vocabulary.load_encode()


def _measure() -> tuple[Measure, str]:
    """Give what counts, and why it can but guess (empty: it need not)."""
    try:
        return exact(_encode()), ""
    except UsageError as missing:
        return estimate, str(missing)


def _note(notes: tuple[str, ...]) -> None:
    for note in notes:
        say(f"note: {note}")
