"""Run exchanges over HTTP: httpx or httpx2, sync or async, with one set of rules for all four."""

from promptools.transport.answer import guarded
from promptools.transport.carriers import Carrier, Start, carry
from promptools.transport.doors import CHAT_DOOR, OLLAMA_DOOR, OLLAMA_DOORS, Door
from promptools.transport.family import Family, family_of, installed, is_http_client
from promptools.transport.pump import AsyncPump, SyncPump
from promptools.transport.session import Session, Settings

__all__ = [
    "CHAT_DOOR",
    "OLLAMA_DOOR",
    "OLLAMA_DOORS",
    "AsyncPump",
    "Carrier",
    "Door",
    "Family",
    "Session",
    "Settings",
    "Start",
    "SyncPump",
    "carry",
    "family_of",
    "guarded",
    "installed",
    "is_http_client",
]
