"""The error shown when a server does not answer: one line, with the address and what to do."""

from __future__ import annotations

import re
import socket
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from promptools.errors import UpstreamError, clip, without_credentials
from promptools.exchange.state import DEFAULT_PORTS, api_base

if TYPE_CHECKING:
    import openai

_ERROR_NUMBER = re.compile(r"\[Errno -?\d+\] ")
_CONNECT_SECONDS = 10.0
WHAT_TO_DO = "start the server there, or name another with --base-url"


def no_answer(base_url: str, why: str) -> UpstreamError:
    """Return the error for a server that cannot be reached."""
    cause = clip(without_credentials(_ERROR_NUMBER.sub("", why)))
    reason = f" ({cause})" if cause else ""
    return UpstreamError(f"no answer from {without_credentials(base_url).rstrip('/')}{reason}; {WHAT_TO_DO}")


def require_server(base_url: str) -> None:
    """Raise `UpstreamError` if nothing listens at a base URL.

    Commands that send many requests check this first. Without the check, each request would fail, with an entry in the
    log and the report. If the environment configures an HTTP proxy, nothing is checked: only a request would show
    whether the server can be reached through the HTTP proxy.
    """
    parts = urlsplit(base_url)
    if parts.hostname is None or getproxies().keys() & {parts.scheme, "all"}:
        return
    port = parts.port or DEFAULT_PORTS.get(parts.scheme, 80)
    try:
        socket.create_connection((parts.hostname, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise no_answer(base_url, error.strerror or str(error)) from error


def describe_failure(error: Exception) -> UpstreamError | None:
    """Return the error to show for an error of the `openai` package; None for any other error."""
    if "openai" not in sys.modules:
        return None
    import openai

    if isinstance(error, openai.APIConnectionError):
        return no_answer(api_base(str(error.request.url)).removesuffix("/models"), _reason(error))
    if not isinstance(error, openai.APIError):
        return None
    return UpstreamError(" ".join(clip(without_credentials(str(error)), 500).split()))


def _reason(error: openai.APIConnectionError) -> str:
    """Return why there was no answer: the SDK's own text, or the cause's text if the SDK gives no details."""
    text = str(error)
    return str(error.__cause__ or "") if text == "Connection error." else text
