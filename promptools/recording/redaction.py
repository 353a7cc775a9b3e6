"""Redaction: replace credentials, and text that matches the user's patterns, in every string of a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.masking import SecretMask, mask_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REDACTED = "[redacted]"


class Redactor:
    """Replaces secrets, and text that matches any of the patterns."""

    def __init__(self, patterns: Iterable[str | re.Pattern[str]] = (), secrets: Iterable[str] = ()) -> None:
        self._given = [_compile(pattern) for pattern in patterns]
        exact = SecretMask(secrets).pattern
        self._patterns = [*([exact] if exact is not None else []), *self._given]

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """Return a redactor with the same patterns, but with these secrets."""
        return Redactor(self._given, secrets)

    def matches(self, text: str) -> bool:
        """Return whether `text` contains something to replace."""
        return any(pattern.search(text) for pattern in self._patterns)

    def text(self, text: str) -> str:
        """Return `text` with secrets and matches replaced."""
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces of a text with secrets and matches replaced, even those that span several pieces."""
        redacted = list(pieces)
        for pattern in self._patterns:
            redacted = mask_pieces(redacted, pattern, lambda _: REDACTED)
        return redacted

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it redacted, including the keys of objects."""
        if not self._patterns:
            return value
        if isinstance(value, str):
            return self.text(value)
        if is_array(value):
            return [self.value(item) for item in value]
        if is_object(value):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return value


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if isinstance(pattern, re.Pattern):
        return pattern
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"redact: {clip(pattern)!r} is not a valid regular expression: {error}") from None
    if compiled.match(""):
        raise UsageError(f"redact: {clip(pattern)!r} matches the empty text; write the text to replace")
    return compiled
