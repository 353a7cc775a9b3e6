"""The command `promptools probe`: run the checks of `promptools.probing` on a server, and show the findings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptools.cli.detect_command import detect_server
from promptools.cli.proxy_addresses import refuse_proxy
from promptools.cli.server_errors import no_answer, require_server
from promptools.cli.shared_arguments import (
    DEFAULT_KEY_VARIABLE,
    add_api_key,
    add_base_url,
    add_dialect_files,
    add_json,
    at_least,
    named_url,
    seconds,
    server_key,
)
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table
from promptools.errors import UsageError, without_credentials
from promptools.probing.checks import GROUPS
from promptools.probing.findings import PROBLEMS, Finding, Subject
from promptools.probing.recommendation import Recommendation, recommend, write_provider
from promptools.profiles import parse_config, reach_of
from promptools.transport.found_config import keep_trust
from promptools.transport.http_library import split_credentials

if TYPE_CHECKING:
    from promptools.probing.probe_runner import Cost
    from promptools.types import ServerInfo


MAX_TOKENS = 512
"""Default for the maximum number of tokens in an answer: enough for a call after some reasoning."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_base_url(parser)
    add_api_key(parser)
    add_dialect_files(parser)
    parser.add_argument("--model", metavar="M", help="model to ask (default: the only one that the server lists)")
    parser.add_argument(
        "--checks", metavar="LIST", default=",".join(GROUPS), help=f"what to check (default: {','.join(GROUPS)})"
    )
    parser.add_argument("--context", action="store_true", help="measure the context, with one very long prompt")
    parser.add_argument(
        "--max-tokens", type=at_least(16, "tokens"), metavar="N", default=MAX_TOKENS, help="limit of each answer"
    )
    parser.add_argument("--timeout", type=seconds, metavar="S", default=60.0, help="seconds for each answer")
    parser.add_argument(
        "--write", metavar="FILE", help="write a config with this server as a provider into a new file ('-': to stdout)"
    )
    parser.add_argument("--name", metavar="NAME", default="probed", help="name of that provider (default: probed)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Probe the server and show the findings; return 1 if there is a problem with native tools."""
    from promptools.exchange import DetectionCache
    from promptools.probing.probe_runner import Prober

    groups = _groups(arguments.checks)
    if arguments.json and arguments.write == "-":
        raise UsageError("--json and --write - both print to stdout: leave one of them out, or write a file")
    _check_file(arguments.write)
    url, basic = split_credentials(named_url(arguments).rstrip("/"))
    key = server_key(arguments)
    require_server(url)
    authorization = basic or (f"Bearer {key}" if key else None)
    refuse_proxy(named_url(arguments), key)
    detections = DetectionCache()
    with Prober(url, authorization, timeout=arguments.timeout, detections=detections) as prober:
        model = arguments.model or prober.find_model()
        target, seen = detect_server(url, model, authorization, detections, learn=True)
        if not seen.answered:
            raise no_answer(url, "")
        prober.cost.requests += 1 + len(seen.asked)  # the first is that of `refuse_proxy`
        subject = Subject(model, target.profile, arguments.max_tokens, measure_context=arguments.context)
        prober.check_plain_chat(subject)
        findings = prober.run(subject, groups, lambda finding: print_progress(f"{finding.check}: {finding.verdict}"))
    recommendation = recommend(findings, target.profile)
    if arguments.write:
        variable = (arguments.api_key_env or DEFAULT_KEY_VARIABLE) if key and not arguments.api_key else None
        write_config(
            arguments.write, write_provider(arguments.name, without_credentials(url), variable, subject, recommendation)
        )
    if arguments.json:
        print_json(_as_json(url, subject, findings, recommendation, prober.cost, seen))
    elif arguments.write != "-":
        _show(url, subject, findings, recommendation, prober.cost, seen)
    return int(any(finding.check == "native tools" and finding.verdict in PROBLEMS for finding in findings))


def _check_file(path: str | None) -> None:
    """Raise `UsageError` if the file that `--write` names exists, because a config is never overwritten."""
    if path not in {None, "-"} and Path(str(path)).exists():
        raise UsageError(f"{path!r} exists, and is not changed; --write - prints what could be added to it")


def write_config(path: str, text: str) -> None:
    """Write a config to a new file and trust the file, or write the config to stdout if `path` is `-`."""
    if path == "-":
        print(text, end="")
        return
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {path!r}: {error.strerror}; --write - prints it") from error
    written = Path(path).parent.resolve() / Path(path).name
    try:
        keep_trust(written, reach_of(parse_config(text.encode(), written)))
    except UsageError as error:  # the file was written, and can still be used with --config
        print_progress(f"warning: {error}")


def _groups(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",")) - {""}
    unknown = sorted(names - set(GROUPS))
    if unknown or not names:
        raise UsageError(f"--checks {text!r}: name some of {', '.join(GROUPS)}, with commas between")
    return names


def _show(
    url: str,
    subject: Subject,
    findings: list[Finding],
    recommendation: Recommendation,
    cost: Cost,
    seen: ServerInfo,
) -> None:
    rows = [(finding.check, finding.verdict, finding.reason) for finding in findings]
    print_table(f"{subject.model} at {without_credentials(url)}", ("check", "verdict", "reason"), rows)
    lines = [("Modes, in this order\n", "bold")]
    lines += [(f"{position}. {mode}: {why}\n", "") for position, (mode, why) in enumerate(recommendation.modes, 1)]
    lines += [(f"not {mode}: {why}\n", "") for mode, why in recommendation.left_out]
    lines += [(f"\n{seen.template_why}\n", "")] if seen.template_why else []
    lines += [(f"\n{_describe_cost(cost)}", "dim")]
    print_styled(lines)


def _describe_cost(cost: Cost) -> str:
    return f"{cost.requests} requests, {cost.prompt_tokens} tokens of prompts, {cost.completion_tokens} generated"


def _as_json(
    url: str,
    subject: Subject,
    findings: list[Finding],
    recommendation: Recommendation,
    cost: Cost,
    seen: ServerInfo,
) -> dict[str, Any]:
    return {
        "base_url": without_credentials(url),
        "model": subject.model,
        "kind": subject.profile.kind,
        "family": subject.profile.family,
        "template_dialect": seen.template_dialect,
        "template_why": seen.template_why,
        "findings": [finding.to_dict() for finding in findings],
        "modes": [{"mode": mode, "why": why} for mode, why in recommendation.modes],
        "left_out": [{"mode": mode, "why": why} for mode, why in recommendation.left_out],
        "facts": dict(recommendation.facts),
        "cost": {
            "requests": cost.requests,
            "prompt_tokens": cost.prompt_tokens,
            "completion_tokens": cost.completion_tokens,
        },
    }
