"""Ask a server what it is, as the first request to a server that nobody named does, and show what it told."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from promptools.cli.arguments import add_json
from promptools.cli.screen import print_json, print_styled, print_table
from promptools.errors import UsageError, without_credentials
from promptools.profiles import Config, Target, load_builtin
from promptools.profiles.profile import GENERIC
from promptools.transport.credentials import split_credentials

if TYPE_CHECKING:
    from promptools.exchange import Exchange
    from promptools.types import Seen

NAME = "detect"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("base_url", metavar="URL", help="root of the server's API, with /v1")
    parser.add_argument("--model", metavar="M", help="ask an Ollama what this model can do")
    parser.add_argument("--api-key", metavar="KEY", help="key for it (default: OPENAI_API_KEY, if set)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look, and show it; 1 when nothing answered."""
    base_url, basic = split_credentials(_base_url(arguments.base_url))
    key = arguments.api_key or os.environ.get("OPENAI_API_KEY")
    target, seen = _look(base_url, arguments.model or "", basic or (f"Bearer {key}" if key else None))
    if arguments.json:
        print_json({"base_url": base_url, **seen.to_dict()})
    else:
        _show(base_url, target, seen)
    return 0 if any(answer.startswith("HTTP") for _, answer in seen.asked) else 1


def _base_url(given: str) -> str:
    """Take an address; one without a path is the server's root."""
    if not given.startswith(("http://", "https://")):
        raise UsageError(
            f"{without_credentials(given)!r} is no address of a server; write it as http://HOST:PORT/v1 or https://HOST/v1"
        )
    return given.rstrip("/") if urlsplit(given).path.strip("/") else given.rstrip("/") + "/v1"


def _look(base_url: str, model: str, authorization: str | None) -> tuple[Target, Seen]:
    from promptools.transport import Session, SyncPump, installed

    family = installed()
    session = Session({"config": Config()})
    found: list[tuple[Target, Seen]] = []

    def exchange() -> Exchange:
        headers = (("authorization", authorization),) if authorization else ()
        route, seen = yield from session.examine(base_url, model, headers)
        found.append((route.target, seen))
        return None

    with family.module.Client() as http:

        def send(request: Any) -> Any:
            return http.send(request, stream=True, follow_redirects=False)

        SyncPump(exchange(), family, send).head()
    return found[0]


def _show(base_url: str, target: Target, seen: Seen) -> None:
    print_table(base_url, ("asked", "answered"), seen.asked)
    kind = target.profile.kind
    version = f", version {seen.version}" if seen.version else ""
    taken = load_builtin(kind).title if seen.kind else f"It is taken for {GENERIC!r}"
    lines = [(f"{taken}{version}", "bold"), (f": {seen.why}", "")]
    if seen.capabilities is not None:
        made = f", made for {seen.context} tokens" if seen.context else ""
        lines.append((f"\n{target.model}: {', '.join(seen.capabilities)}{made}", ""))
    print_styled(lines)
