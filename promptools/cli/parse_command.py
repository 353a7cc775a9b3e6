"""The command `promptools parse`: read a model's reply, and show the calls in it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import get_args

from promptools.cli.shared_arguments import add_dialect_files, add_json, add_tools, read_text, read_tools
from promptools.cli.terminal_output import print_json, print_styled, print_table
from promptools.engine.parser import ExplainingParser, Explanation, PartKind, describe_place, explain
from promptools.errors import clip
from promptools.types import Fix, Reply, Strictness

STYLES: dict[PartKind, str] = {
    "content": "",
    "reasoning": "italic dim",
    "call": "bold green",
    "malformed": "bold red",
    "discarded": "yellow",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", nargs="?", help="the reply (default: stdin)")
    add_tools(parser)
    parser.add_argument("--dialect", metavar="NAME", help="read this dialect only; `promptools dialects` lists them")
    parser.add_argument("--expect", metavar="NAME", help="the dialect that the request asked the model to use")
    parser.add_argument(
        "--accept", action="append", metavar="NAME", help="a dialect to read, in addition to the expected one"
    )
    add_dialect_files(parser)
    parser.add_argument(
        "--strictness",
        choices=get_args(Strictness),
        default="balanced",
        help="how much evidence a call needs (default: balanced)",
    )
    parser.add_argument("--finish-reason", metavar="WHY", help="the server's finish reason: stop, length, ...")
    parser.add_argument("--in-reasoning", action="store_true", help="the reply starts inside a reasoning block")
    parser.add_argument(
        "--json-answer", action="store_true", help="a JSON answer was requested: do not read bare JSON as a call"
    )
    parser.add_argument(
        "--rescue", action="store_true", help="accept a call at the end of the reasoning, if nothing follows"
    )
    parser.add_argument("--explain", action="store_true", help="show every strategy that was tried, with its result")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Parse the reply and print the result."""
    text = read_text(arguments.file)
    parser = ExplainingParser(
        read_tools(arguments.tools),
        dialect=arguments.dialect,
        expect=arguments.expect,
        strictness=arguments.strictness,
        in_reasoning=arguments.in_reasoning,
        json_answer=arguments.json_answer,
        rescue=arguments.rescue or None,
        accept=arguments.accept,
    )
    explanation = explain(parser, text, arguments.finish_reason)
    if arguments.json:
        print_json(explanation.reply.to_dict())
        return 0
    if arguments.explain:
        _explain(explanation)
    _show(explanation.reply)
    return 0


def _show(reply: Reply) -> None:
    print_table(
        "Calls",
        ("tool", "arguments", "dialect", "fixes"),
        ((call.name, call.arguments_json, call.dialect, _fixes(call.fixes)) for call in reply.calls),
    )
    print_table(
        "Malformed calls",
        ("tool", "reason", "what the model should correct"),
        ((call.name or "?", call.reason, call.message) for call in reply.malformed),
    )
    for title, text in (("Reasoning", reply.reasoning), ("Content", reply.content)):
        if text.strip():
            print_styled([(f"{title}\n", "bold"), (text.rstrip("\n"), "")])
    if not reply.calls and not reply.malformed:
        print_styled([("No call in this reply.", "dim")])


def _explain(explanation: Explanation) -> None:
    """Print an explanation of a reply.

    It consists of a legend of styles, the reply with its parts in these styles, a table of the parts, and a table of
    all attempts at parsing.
    """
    text, parts = explanation.text, explanation.parts
    print_styled([("The reply: ", "bold"), *((f"{kind} ", style) for kind, style in STYLES.items())])
    print_styled([(text[span.start : span.end], STYLES[kind]) for span, kind in parts])
    print_table(
        "Its parts, in order",
        ("what", "where", "text"),
        ((kind, f"{span.start}-{span.end}", clip(repr(text[span.start : span.end]), 80)) for span, kind in parts),
    )
    print_table(
        "Strategies, in order",
        ("strategy", "on", "where", "outcome", "why", "characters"),
        (
            (
                attempt.strategy,
                describe_place(text, attempt.span),
                f"{attempt.span.start}-{attempt.span.end}",
                attempt.outcome,
                clip(attempt.why),
                str(attempt.cost),
            )
            for attempt in explanation.tries
        ),
    )


def _fixes(fixes: Iterable[Fix]) -> str:
    return "\n".join(f"{fix.kind}: {fix.detail}" for fix in fixes) or "none"
