"""A request as raw mode sends it: the server renders the prompt, or a chat template does here."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.cli.shared_arguments import add_endpoint, given_key, server_key
from promptools.cli.synchronous_exchange import run_exchange
from promptools.cli.terminal_output import print_json, print_progress
from promptools.dialects import using_own
from promptools.errors import UsageError
from promptools.wire.json_body import as_object, as_text

if TYPE_CHECKING:
    from promptools.exchange import Headers, Route
    from promptools.exchange.runner import PromptPreview
    from promptools.transport import Session

RAW_ARGUMENTS = ("provider", "base_url", "api_key", "api_key_env", "model", "config", "chat_template")
"""The arguments that only raw mode has."""
_NO_SERVER = "http://127.0.0.1/v1"
"""The address of a request that is not sent anywhere, since the template is rendered here."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of raw mode."""
    add_endpoint(parser)
    parser.add_argument(
        "--chat-template",
        metavar="TEMPLATE",
        help="mode raw: the model's Jinja chat template or tokenizer_config.json, rendered here without a server",
    )


def run(arguments: argparse.Namespace, body: dict[str, Any]) -> int:
    """Show the prompt, how a required call is begun in it, and what ends the reply."""
    if arguments.count:
        raise UsageError("--count counts what gpt-oss reads; in mode raw ask for --ids, which vLLM and SGLang report")
    preview = _render(arguments, body)
    prompt, rendered = preview.prepared.prompt, preview.request.rendered
    assert prompt is not None, "raw mode sends a prompt"
    assert rendered is not None, "the prompt was rendered"
    text: str | None = prompt.content if isinstance(prompt.content, str) else rendered.text
    ids = None if isinstance(prompt.content, str) else list(prompt.content)
    if ids is not None and text is not None:
        text += rendered.prefill  # the text of token ids is that of the template alone
    if arguments.ids and ids is None:
        raise UsageError("--ids: the prompt is rendered as text here, only vLLM and SGLang render token ids")
    ends = prompt.stops or prompt.stop_ids
    if arguments.json:
        notes = preview.notes
        print_json({"text": text, "ids": ids, "prefill": rendered.prefill, "ends": ends, "notes": notes})
        return 0
    for note in preview.notes:
        print_progress(f"note: {note}")
    if text is None:
        print_progress("note: the server reports no text of its token ids")
    if rendered.prefill:
        print_progress(f"note: the prompt ends with the beginning of the call: {json.dumps(rendered.prefill)}")
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
    """Return the server's base URL and the header fields for it.

    Raises UsageError if none is named, and none is needed.
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
