"""Find API keys and other credentials in requests, and mask them in text.

Everything that must not reveal a key uses this module: errors that the proxy passes on, recordings, tapes (recorded
agent runs), the inspector, log lines. Masking by field names alone is not enough, because servers repeat keys in their
responses. So the text is searched for the values of the credentials, both verbatim and escaped as in JSON, HTML and
URLs.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from promptools.errors import without_credentials
from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KEY_FIELDS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""The header fields that contain an API key, whether for the proxy or for the server."""
MASK = "***"
MIN_KEY_LENGTH = 12
"""Minimum length of a key to mask in data that an app receives; shorter keys may be words (`EMPTY`, `lm-studio`)."""
MIN_SECRET_LENGTH = 8
"""Minimum length of a credential to mask in data that is stored or shown, where masking too much does no harm."""
MAX_SECRETS = 64
"""Maximum number of credentials of one request to search for, API keys first; a client can send any number."""
_MAX_LENGTH = 512
"""Maximum number of characters of a credential that are compared.

If a credential is longer, the text after these characters is masked too, up to the next blank, quote or angle bracket.
"""
_MAX_ESCAPABLE = 256
"""Maximum number of special characters for which a mask also searches the escaped forms, such as `%2F` for `/`.

All credentials of the mask share this number, and the shortest credentials use it up first. Special characters beyond
this number are found only verbatim.
"""

_OTHER_SECRET_FIELDS = frozenset({"openai-organization", "openai-project"})
_SECRET_NAME = lazy_pattern(
    r"auth|cookie|secret|passw|credential|session|api-?key|signature|(?:^|[-_])(?:key|token|sig)$"
)
_BEARER = "bearer "
_SCHEME = lazy_pattern(r"(?:bearer|basic|digest|token) +", re.IGNORECASE)
_COOKIE_PAIR = lazy_pattern(r"[;,\s]+")
_QUERY = lazy_pattern(r"([?&])([^=&#]*)=([^&#]*)")
_PARTIAL_FORM = lazy_pattern(r"\\{1,8}(?:u[0-9a-fA-F]{0,3})?|%[0-9a-fA-F]{0,5}|&(?:#?[xX]?[0-9a-zA-Z]{0,4})?")
"""Matches an incomplete escape of one character, such as `%2` (of `%2F`) or `&am` (of `&amp;`)."""
_REST = r"[^\s\"<>]*+"
_PART = lazy_pattern(r"\\+|[^\\]", re.DOTALL)
_MAX_FORM = 13
"""Length of the longest escaped form of one character: eight backslashes and `u002f`."""


def key_in(name: str, value: str) -> str:
    """Return the API key in a header field of `KEY_FIELDS`; `Bearer` before the key is left out."""
    value = value.strip()
    bearer = name.lower() == "authorization" and value[: len(_BEARER)].lower() == _BEARER
    return value[len(_BEARER) :].strip() if bearer else value


def keys_in(headers: Iterable[tuple[str, str]]) -> set[str]:
    """Return the API keys in the header fields."""
    keys = {key_in(name, value) for name, value in headers if name.lower() in KEY_FIELDS}
    return keys - {""}


def is_secret(name: str) -> bool:
    """Return whether a header field or URL parameter with this name holds a credential."""
    name = name.lower()
    return name in KEY_FIELDS or name in _OTHER_SECRET_FIELDS or _SECRET_NAME.search(name) is not None


def secrets_in(headers: Iterable[tuple[str, str]], url: str = "", *, min_length: int = MIN_SECRET_LENGTH) -> set[str]:
    """Return the credentials in header fields and a URL, at most `MAX_SECRETS` of them.

    Credentials with fewer than `min_length` characters are omitted, because they might occur in text by accident.
    """
    # keys come first, so that many cookies do not push them out
    fields = sorted(headers, key=lambda pair: pair[0].lower() not in KEY_FIELDS)
    values = [value for name, field in fields if is_secret(name) for value in _values(field)]
    values += [*_password_of(url)]
    values += [unquote(pair[3]) for pair in _QUERY.finditer(url) if is_secret(unquote(pair[2]))]
    return {*[value for value in dict.fromkeys(values) if len(value) >= min_length][:MAX_SECRETS]}


def mask_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the header fields with credentials masked; the scheme before a credential (`Bearer`) is kept."""
    return tuple(
        (name, _mask_field(value) if is_secret(name) else without_credentials(value)) for name, value in headers
    )


def mask_url(url: str) -> str:
    """Return a URL with its credentials masked: user name, password, and the parameters that hold credentials."""
    return _QUERY.sub(
        lambda pair: f"{pair[1]}{pair[2]}={MASK if is_secret(unquote(pair[2])) else pair[3]}", without_credentials(url)
    )


class SecretMask:
    """Replaces secrets in text, in JSON values, and in text that comes in pieces.

    A secret is replaced by asterisks, or by the result of `mask` for the text that was found. If `bounded` is true,
    only a part of a very long secret is compared. Without this limit, clients could choose secrets that make the search
    slow.
    """

    def __init__(
        self, secrets: Iterable[str], mask: Callable[[str], str] | None = None, *, bounded: bool = True
    ) -> None:
        self._secrets = sorted(set(secrets) - {""}, key=len, reverse=True)  # a secret may be part of a longer secret
        self._bounded = bounded
        self._mask = mask or _asterisks

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern that matches all secrets, verbatim and escaped; None if the mask has no secrets."""
        if not self._bounded:
            return re.compile("|".join(_pattern_of(secret) for secret in self._secrets)) if self._secrets else None
        left, patterns = _MAX_ESCAPABLE, list[str]()
        for secret in reversed(self._secrets):
            rest = _REST if len(secret) > _MAX_LENGTH else ""
            patterns.append(_pattern_of(secret[:_MAX_LENGTH], left) + rest)
            left = max(0, left - sum(map(_is_escapable, secret[:_MAX_LENGTH])))
        return re.compile("|".join(reversed(patterns))) if patterns else None

    def text(self, text: str) -> str:
        """Return `text` with the secrets replaced."""
        return text if self.pattern is None else self.pattern.sub(lambda found: self._mask(found[0]), text)

    def value(self, value: Any) -> Any:
        """Return a JSON value with the secrets replaced in all its strings, including the keys of objects."""
        if self.pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if is_object(value):
            return {self.text(key): self.value(entry) for key, entry in value.items()}
        if is_array(value):
            return [self.value(entry) for entry in value]
        return value

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces of a text with the secrets replaced, even secrets that span several pieces."""
        return mask_pieces(pieces, self.pattern, self._mask)


def mask_pieces(pieces: Sequence[str], pattern: re.Pattern[str] | None, mask: Callable[[str], str]) -> list[str]:
    """Replace all matches in a text that is in pieces; a replacement goes into the piece in which its match begins."""
    masked: list[str] = []
    matches = [] if pattern is None else [(found.span(), mask(found[0])) for found in pattern.finditer("".join(pieces))]
    start = index = 0
    for piece in pieces:
        end, at, parts = start + len(piece), start, list[str]()
        while index < len(matches) and matches[index][0][0] < end:
            (begins, ends), shown = matches[index]
            if begins >= start:
                parts += [piece[at - start : begins - start], shown]
            at = min(ends, end)
            if ends > end:  # the match goes on in the next piece
                break
            index += 1
        masked.append("".join((*parts, piece[at - start :])))
        start = end
    return masked


class PartialSecret:
    """Finds the part at the end of a text that may be the beginning of a secret."""

    def __init__(self, secret: str) -> None:
        self._forms = [[re.compile(form) for form in _forms_of(part)] for part in _parts_of(secret)]
        self._window = _MAX_FORM * len(secret)
        escaped = "" if secret.isalnum() else "\\u0123456789abcdefABCDEFxX%&#;quotampltgs"
        self._characters = frozenset(secret + escaped)
        self._first = re.compile(
            "|".join(_forms_of(_parts_of(secret)[0])) + ("" if secret[0].isalnum() else r"|[\\%&]")
        )

    def hold_from(self, text: str) -> int:
        """Return where in `text` an incomplete secret at its end may begin; `len(text)` if there is no such secret."""
        if not text or text[-1] not in self._characters:  # a quick check, mostly true at the end of an event
            return len(text)
        for found in self._first.finditer(text, max(0, len(text) - self._window)):
            if self._may_go_on(text, found.start()):
                return found.start()
        return len(text)

    def _may_go_on(self, text: str, at: int) -> bool:
        places = {at}  # several places if a character of the secret can be read in more than one way
        for forms in self._forms:
            if any(place == len(text) or _PARTIAL_FORM.fullmatch(text, place) for place in places):
                return True
            matches = (form.match(text, place) for place in places for form in forms)
            places = {found.end() for found in matches if found}
            if not places:
                return False
        return False


def _asterisks(found: str) -> str:
    return "*" * len(found)


def _pattern_of(secret: str, escapable: float = math.inf) -> str:
    """Return a pattern that matches a secret, even if special characters of the secret are escaped.

    Only the first `escapable` special characters may be escaped, because compiling the forms of more would take too
    long.
    """
    parts = list[str]()
    for part in _parts_of(secret):
        as_is = escapable <= 0 or not _is_escapable(part[0])
        parts.append(re.escape(part) if as_is else f"(?:{'|'.join(_forms_of(part))})")
        escapable -= not as_is
    return "".join(parts)


def _is_escapable(character: str) -> bool:
    return character.isascii() and not character.isalnum()


def _parts_of(secret: str) -> list[str]:
    """Split a secret into single characters and runs of backslashes."""
    return _PART.findall(secret)


def _forms_of(part: str) -> list[str]:
    """Return patterns for one part of a secret (see `_parts_of`): verbatim, and escaped as in HTML, URLs and JSON.

    JSON and URL escapes may be nested three levels deep, because a gateway may quote the error that it got from another
    gateway. A run of backslashes matches possessively (`++`), so that a key full of backslashes, which any client can
    send, does not cause exponential backtracking.
    """
    if not _is_escapable(part[0]):
        return [re.escape(part)]
    code = ord(part[0])
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:02x}")
    named = {'"': "quot", "&": "amp", "<": "lt", ">": "gt", "'": "apos"}.get(part)
    forms = [
        *([f"&{named};"] if named else []),
        f"&#[xX]{digits};",
        f"&#0?{code};",
        f"%2525{digits}",
        f"%25{digits}",
        f"%{digits}",
        rf"\\{{1,8}}+u00{digits}",
    ]
    if part[0] == "\\":
        return [rf"(?:{'|'.join(forms)}|\\++)++"]
    return [*forms, rf"\\{{0,7}}+{re.escape(part)}"]


def _mask_field(value: str) -> str:
    scheme = _SCHEME.match(value)
    return f"{scheme[0]}{MASK}" if scheme else MASK


def _values(field: str) -> list[str]:
    """Return the possible credentials in a header field.

    These are its value without a scheme (`Bearer`), the values of cookies, and the password of Basic authorization.
    """
    scheme = _SCHEME.match(field)
    bare = field[scheme.end() if scheme else 0 :].strip()
    pairs = [pair.partition("=")[2] for pair in _COOKIE_PAIR.split(bare)]
    return [bare, *pairs, *_password(bare)]


def _password(text: str) -> list[str]:
    """If the text is a Basic authorization value, return its password in a list; if not, return an empty list."""
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return []
    return [decoded.partition(":")[2]]


def _password_of(url: str) -> set[str]:
    """Return the password in a URL."""
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return set()
    return {unquote(password)}
