"""An ASGI proxy in front of any OpenAI-compatible server."""

from promptools.proxy.extension import Extension
from promptools.proxy.proxy_app import Proxy

__all__ = ["Extension", "Proxy"]
