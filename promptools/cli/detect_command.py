"""The command `promptools detect`: ask a server what it is, and show the result."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from promptools.cli.server_errors import no_answer
from promptools.cli.shared_arguments import add_api_key, add_base_url, add_json, named_url, server_key
from promptools.cli.synchronous_exchange import run_exchange
from promptools.cli.terminal_output import print_json, print_styled, print_table
from promptools.profiles import Config, Target, load_builtin
from promptools.profiles.profile import GENERIC
from promptools.transport.http_library import split_credentials

if TYPE_CHECKING:
    from promptools.exchange import DetectionCache
    from promptools.types import ServerInfo


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_base_url(parser)
    parser.add_argument(
        "--model", metavar="M", help="also detect this model; an Ollama server also reports its capabilities"
    )
    add_api_key(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Detect the server and show the result.

    If nothing answered, raise `UpstreamError`, or with `--json` return 1.
    """
    base_url, basic = split_credentials(named_url(arguments).rstrip("/"))
    key = server_key(arguments)
    authorization = basic or (f"Bearer {key}" if key else None)
    target, seen = detect_server(base_url, arguments.model or "", authorization, learn=True)
    if arguments.json:
        print_json(
            {"base_url": base_url, **seen.to_dict(), "modes": target.profile.modes, "raw_mode": _raw_mode(target)}
        )
    elif seen.answered:
        _show(base_url, target, seen)
    else:
        raise no_answer(base_url, "")
    return 0 if seen.answered else 1


def detect_server(
    base_url: str,
    model: str,
    authorization: str | None,
    detections: DetectionCache | None = None,
    *,
    learn: bool = False,
) -> tuple[Target, ServerInfo]:
    """Detect which server is at `base_url`, in at most 2 s, and cache the result in `detections`.

    If `learn` is true and the model's family is unknown, also learn the dialect of the model's chat template. This
    takes at most another 2 s.
    """
    from promptools.transport import Session

    session = Session({"config": Config()}, detections)
    headers = (("authorization", authorization),) if authorization else ()
    route, seen = run_exchange(session.detect_server(base_url, model, headers, learn=learn))
    return route.target, seen


def _show(base_url: str, target: Target, detection: ServerInfo) -> None:
    """Print what the server is, and then the answers by which it was recognized."""
    kind = target.profile.kind
    version = f", version {detection.version}" if detection.version else ""
    server = load_builtin(kind).title if detection.kind else f"Treated as {GENERIC!r}"
    lines = [(f"{server}{version}", "bold"), (f": {detection.why}", "")]
    if detection.capabilities is not None:
        training_context = f", made for {detection.context} tokens" if detection.context else ""
        lines.append((f"\n{target.model}: {', '.join(detection.capabilities)}{training_context}", ""))
    model = target.model or "its model"
    if detection.family is not None:
        lines.append((f"\n{model}: family {detection.family}, by {detection.family_why}", ""))
    elif detection.family_evidence:
        lines.append((f"\n{model}: no known family matches", ""))
    if detection.template_why:
        lines.append((f"\n{model}: {detection.template_why}", ""))
    lines.append((f"\nmodes: {', then '.join(target.profile.modes)}\n{_raw_mode(target)}", ""))
    print_styled(lines)
    print_table(f"What {base_url} was asked, to tell servers apart", ("asked", "answered"), detection.asked)
    rows = [(label, says or "-") for label, says in detection.family_evidence or ()]
    print_table("Which family of models it is", ("evidence", "families that it fits"), rows)


def _raw_mode(target: Target) -> str:
    """Return a text that says whether raw mode is possible with this server, and how, or why not."""
    offered = next(reason for reason in target.reasons if reason.startswith("raw mode is"))
    how = next((reason for reason in target.reasons if reason.startswith("template_endpoint = ")), None)
    return f"{offered}\n{how}" if how else offered
