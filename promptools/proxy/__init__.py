"""An ASGI proxy in front of any OpenAI-compatible server.

`app` is the proxy. A request passes `access` and `admission`, is an `incoming_request` that is in `in_flight`, goes
where `routing` sends it, and is sent by `request_sender` through an `upstream_client`. `served_config` is all that a
reload replaces; `operations`, `shared_state` and the `inspector` are extensions.
"""

from promptools.proxy.app import Proxy
from promptools.proxy.extension import Extension

__all__ = ["Extension", "Proxy"]
