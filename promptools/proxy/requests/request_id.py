"""The id of a request: in the response, in errors, in log lines and in the inspector.

Gateways and clients that already have an id for a request send it in `x-request-id`; one that is valid is kept, so that
their logs and those of the proxy can be matched. All other requests get an id here.
"""

from __future__ import annotations

import re
from secrets import token_hex
from typing import TYPE_CHECKING

from promptools.masking import key_in, keys_in

if TYPE_CHECKING:
    from promptools.proxy.asgi import Fields, Scope

FIELD = b"x-request-id"
MESSAGES_FIELD = b"request-id"
"""The field in which Anthropic's SDKs look for it."""
UPSTREAM_FIELD = b"x-promptools-upstream-request-id"
"""Holds the server's own id, if it is another one."""
_VALID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_RANDOM_BYTES = 12


def request_id(scope: Scope) -> str:
    """Return the id that a request came with, if there is one that is valid and no key; else a new one."""
    given = [value for name, value in scope["headers"] if name.lower() == FIELD]
    if len(given) == 1 and _VALID.fullmatch(given[0]):
        text: str = given[0].decode("ascii")
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        if key_in("", text) not in keys_in(fields):
            return text
    return f"req_{token_hex(_RANDOM_BYTES)}"


def with_request_id(fields: Fields, request_id: str, *, messages: bool) -> list[tuple[bytes, bytes]]:
    """Return the fields of a response with the request's id; that of the server moves to another field."""
    own = request_id.encode("ascii")
    kept = [
        (UPSTREAM_FIELD if name == FIELD else name, value)
        for name, value in fields
        if not (name == FIELD and value == own) and not (messages and name == MESSAGES_FIELD)
    ]
    return [*kept, (FIELD, own), *([(MESSAGES_FIELD, own)] if messages else [])]
