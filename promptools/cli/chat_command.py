"""The command `promptools chat`: chat with a model through promptools."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from promptools.cli.collected_reply import CollectedReply
from promptools.cli.command_client import connect, default_model, print_destination
from promptools.cli.shared_arguments import (
    add_endpoint,
    add_json,
    add_tools,
    read_tools,
)
from promptools.cli.terminal_output import print_json, print_styled, printable, shows_progress
from promptools.errors import UsageError
from promptools.harness.agent.run_events import ReasoningEvent, TextEvent
from promptools.types import ModeName

if TYPE_CHECKING:
    import openai


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


def _stream_reply(
    client: openai.OpenAI,
    model: str,
    messages: list[Any],
    tools: list[Any] | None,
    options: dict[str, Any],
    *,
    quiet: bool,
) -> tuple[dict[str, Any], Any]:
    """Stream a reply, and print it unless `quiet`; return the reply as a message for the history, and its trace."""
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
            print_styled([("call ", "bold green"), (printable(f"{call.name}({call.arguments})"), "")])
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
    """Yield the lines of the input that are not blank."""
    while True:
        try:
            line = input(prompt if sys.stdin.isatty() else "")
        except EOFError:
            return
        if line.strip():
            yield line


def _write(event: TextEvent | ReasoningEvent) -> None:
    dim = isinstance(event, ReasoningEvent) and sys.stdout.isatty()
    text = printable(event.text)
    sys.stdout.write(f"{_DIM}{text}{_RESET}" if dim else text)
    sys.stdout.flush()
