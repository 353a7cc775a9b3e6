"""An ASGI proxy in front of any OpenAI-compatible server.

`app` is the proxy. A request is checked by `access` and `admission`, represented by `incoming_request`, tracked by
`in_flight`, routed by `routing`, and sent by `request_sender` through `upstream_client`. `served_config` holds
everything that a reload replaces; `operations`, `shared_state` and `inspector` contain extensions.
"""

from promptools.proxy.app import Proxy
from promptools.proxy.extension import Extension

__all__ = ["Extension", "Proxy"]
