"""Run exchanges over HTTP: httpx or httpx2, sync or async, with one set of rules for all four."""

from promptools.transport.driver.async_driver import AsyncDriver
from promptools.transport.driver.http_library import HttpLibrary, installed_library, is_http_client, library_of
from promptools.transport.driver.sync_driver import SyncDriver
from promptools.transport.endpoints import CHAT_ENDPOINT, OLLAMA_CHAT_ENDPOINT, OLLAMA_ENDPOINTS, Endpoint
from promptools.transport.error_boundary import with_error_boundary
from promptools.transport.interceptor import InterceptingTransport, StartExchange, intercept
from promptools.transport.session import Session, Settings

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
