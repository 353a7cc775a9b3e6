"""Run exchanges over HTTP, with httpx or httpx2, sync or async. An exchange serves one request of a client.

interceptor                  the transports of a client; they decide which requests go through an exchange
session                      the state kept between requests, and how an exchange begins; `settings`, `endpoints`,
                             `found_config`
driver                       performs the effects of an exchange: `sync_driver`, `async_driver`
http_library                 the two libraries; `response_content` reads what they receive
"""

from promptools.transport.async_driver import AsyncDriver
from promptools.transport.endpoints import CHAT_ENDPOINT, OLLAMA_CHAT_ENDPOINT, OLLAMA_ENDPOINTS, Endpoint
from promptools.transport.http_library import HttpLibrary, installed_library, is_http_client, library_of
from promptools.transport.interceptor import InterceptingTransport, StartExchange, intercept, with_error_boundary
from promptools.transport.session import Session
from promptools.transport.settings import Settings
from promptools.transport.sync_driver import SyncDriver

__all__ = [
    "CHAT_ENDPOINT",
    "OLLAMA_CHAT_ENDPOINT",
    "OLLAMA_ENDPOINTS",
    "AsyncDriver",
    "Endpoint",
    "HttpLibrary",
    "InterceptingTransport",
    "Session",
    "Settings",
    "StartExchange",
    "SyncDriver",
    "installed_library",
    "intercept",
    "is_http_client",
    "library_of",
    "with_error_boundary",
]
