"""Redaction: credentials and whatever the operator's patterns match are replaced in every string of a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.schema.documents.json_guards import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.exchange import Headers

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 8
"""Length from which a credential of the request is searched for: dummies such as `EMPTY` are ordinary words."""
_CREDENTIAL_FIELDS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)


class Redactor:
    """Replaces what any of its patterns matches."""

    def __init__(self, patterns: Iterable[str | re.Pattern[str]] = (), secrets: Iterable[str] = ()) -> None:
        self._patterns = [_compile(pattern) for pattern in patterns]
        exact = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}, key=len, reverse=True)
        if exact:
            self._patterns.insert(0, re.compile("|".join(map(re.escape, exact))))

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """Return a copy that replaces these credentials too."""
        return Redactor(self._patterns, secrets)

    def matches(self, text: str) -> bool:
        """Whether anything in `text` is to be replaced."""
        return any(pattern.search(text) for pattern in self._patterns)

    def text(self, text: str) -> str:
        """Return `text` without what is to be replaced."""
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it redacted, the keys of objects included."""
        if not self._patterns:
            return value
        if isinstance(value, str):
            return self.text(value)
        if is_array(value):
            return [self.value(item) for item in value]
        if is_object(value):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return value


def credentials_in(*headers: Headers) -> set[str]:
    """Return the credentials in header fields, without their schemes."""
    return {
        value.rpartition(" ")[2] if name.lower() != "cookie" else value
        for fields in headers
        for name, value in fields
        if name.lower() in _CREDENTIAL_FIELDS
    }


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if isinstance(pattern, re.Pattern):
        return pattern
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"redact: {clip(pattern)!r} is no regular expression: {error}") from None
    if compiled.match(""):
        raise UsageError(f"redact: {clip(pattern)!r} matches an empty text; write what is to be replaced")
    return compiled
