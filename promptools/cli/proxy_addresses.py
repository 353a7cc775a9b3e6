"""Refuse the address of a promptools proxy where a command needs the server behind it."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from promptools.errors import UsageError, without_credentials
from promptools.exchange.state import DEFAULT_PORTS

if TYPE_CHECKING:
    from promptools.proxy import Proxy

_WAIT_SECONDS = 10.0


def refuse_itself(proxy: Proxy, listener: socket.socket) -> None:
    """Raise `UsageError` if a server is the proxy itself, since each request would be forwarded in an endless loop."""
    from promptools.proxy.access import is_loopback

    host, port = listener.getsockname()[:2]
    names = (host, "localhost") if is_loopback(host) else (host,)
    table = proxy.served.table
    for base_url in [proxy.base_url] if table is None else [each.address.base_url for each in table.replicas()]:
        server = urlsplit(base_url)
        name = server.hostname or ""
        own = name in names or (is_loopback(name) and ip_address(host).is_unspecified)
        if own and (server.port or DEFAULT_PORTS.get(server.scheme)) == port:
            listener.close()
            raise UsageError(
                f"{base_url} is the address of this proxy: name the server behind it, or another port with --port"
            )


def refuse_proxy(base_url: str, key: str | None) -> None:
    """Raise `UsageError` if a promptools proxy answers at a base URL.

    Commands that find out what a server does by itself call this first, since otherwise they would attribute to the
    server what the proxy does. All responses of a proxy have `PROXY_FIELD`, even refusals. If nothing answers, nothing
    is raised, because the command's next request fails and shows the reason.
    """
    from promptools.profiles.server_detection import MODELS_PATH
    from promptools.proxy.in_flight import PROXY_FIELD
    from promptools.transport import installed_library
    from promptools.transport.http_library import split_credentials

    url, basic = split_credentials(base_url.rstrip("/"))
    headers = {"accept": "application/json", "user-agent": "promptools"}
    if authorization := basic or (f"Bearer {key}" if key else None):
        headers["authorization"] = authorization
    library = installed_library().module
    try:
        with (
            library.Client(timeout=_WAIT_SECONDS, follow_redirects=False) as http,
            http.stream("GET", f"{url}{MODELS_PATH}", headers=headers) as response,
        ):
            is_proxy = PROXY_FIELD.decode() in response.headers
    except library.HTTPError:
        return
    if is_proxy:
        raise UsageError(
            f"{without_credentials(url)} is a promptools proxy, whose answers are not the server's own:"
            " name the server behind it"
        )
