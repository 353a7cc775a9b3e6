"""An ASGI proxy before any OpenAI-compatible server."""

from promptools.proxy.app import Proxy

__all__ = ["Proxy"]
