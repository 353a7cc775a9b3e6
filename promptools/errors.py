"""The exceptions of promptools.

    PromptoolsError
    ├── UsageError      the caller's fault: a bad tool, schema, option or config file
    ├── ModelError      the model's fault: its reply cannot be used (raised by `run_tools`, not by parsers)
    │   ├── MissingSentinel     Harmony read strictly: a control token is missing
    │   └── BadHeader           Harmony read strictly: a header that cannot be read
    ├── UpstreamError   the server's fault: it refused, broke off or answered with an error
    └── Exhausted       every attempt failed; lists all attempts

Each message says what is wrong, where, and what to do about it. The underlying data are attributes of the exception.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from promptools.types import Attempt, Reply

DISTRIBUTION: Final = "promptools-compat"
"""The name of the distribution; `promptools` is another project in the registry."""
MAX_QUOTED = 200
"""Maximum number of characters of raw text that a message quotes."""


def clip(text: str, limit: int = MAX_QUOTED) -> str:
    """Shorten `text` to `limit` characters if it is longer, and append how many characters were left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text) - limit} more characters)"


def install_command(extras: str) -> str:
    """Return the command that installs `extras`, such as `batch,ray`.

    If promptools was installed from a folder, such as a checkout, the command names this folder, because the registry
    may not have this version. Do not send the command to clients of a proxy, since it may hold a path of this machine.
    """
    from shlex import quote

    return f"pip install {quote(f'{_installed_from()}[{extras}]')}"


@cache
def _installed_from() -> str:
    """Return the folder from which promptools was installed; the distribution's name if it was no folder."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    try:
        origin = distribution(DISTRIBUTION).read_text("direct_url.json")  # PEP 610; None if it came from a registry
    except PackageNotFoundError:
        return DISTRIBUTION
    url = urlsplit(json.loads(origin)["url"] if origin else "")
    folder = Path(unquote(url.path))
    return str(folder) if url.scheme == "file" and folder.is_dir() else DISTRIBUTION


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'WORD'? ` with the most similar known word; an empty string if no known word is similar."""
    from difflib import get_close_matches  # only errors need it

    close = get_close_matches(clip(word), [*known])
    swapped = [match for match in close if sorted(match) == sorted(word)]  # `--modle` is meant to be `--model`
    return f"did you mean {(swapped or close)[0]!r}? " if close else ""


def suggest(word: str, known: Collection[str]) -> str:
    """Return a hint for an error message: the most similar known word, if any, and a list of all known words."""
    return f"{did_you_mean(word, known)}known: {', '.join(sorted(known)) or 'none'}"


_USERINFO = lazy_pattern(r"(?:^|(?<=:/)|(?<=://))[^/?#\s]*@")


def without_credentials(text: str) -> str:
    """Return `text` (a URL, or a message with URLs) without the user names and passwords in its URLs."""
    return _USERINFO.sub("***@", text) if "@" in text else text


_BARE_ADDRESS = lazy_pattern(
    r"(?://)?(?P<authority>(?:\*\*\*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?P<port>:[0-9]{1,5})?)(?P<path>/[^?#\s]*)?"
)


def bad_url_message(text: str) -> str:
    """Return the error message for an invalid base URL; it suggests a valid URL if only the scheme is missing."""
    shown = without_credentials(text)
    found = _BARE_ADDRESS.fullmatch(shown)
    if found is None:
        return f"{shown!r} is not a valid HTTP URL; write it as http://HOST:PORT/v1 or https://HOST/v1"
    # a server on this machine or in the local network has a port, or a host without a domain; other servers use TLS
    is_remote = not found["port"] and "." in found["host"] and found["host"][-1].isalpha()
    path = (found["path"] or "").rstrip("/") or "/v1"
    meant = f"{'https' if is_remote else 'http'}://{found['authority']}{path}"
    return f"{shown!r} is not a URL; did you mean {meant!r}?"


def safe_repr(instance: Any) -> str:
    """Return the `repr` of a dataclass, without the user names and passwords in URLs."""
    shown = (
        f"{field.name}={_without_credentials(getattr(instance, field.name))!r}"
        for field in fields(instance)
        if field.repr
    )
    return f"{type(instance).__qualname__}({', '.join(shown)})"


def _without_credentials(value: object) -> object:
    return without_credentials(value) if isinstance(value, str) and "://" in value else value


class PromptoolsError(Exception):
    """Base class of all errors that promptools raises on purpose."""


class UsageError(PromptoolsError):
    """The caller passed something invalid. The message says what, where and what to do; `code` identifies the error."""

    def __init__(self, message: str, *, code: str = "usage") -> None:
        super().__init__(message)
        self.code = code


class ModelError(PromptoolsError):
    """The model's reply cannot be used; `reply` is that reply, or None if no reply was read."""

    def __init__(self, message: str, *, reply: Reply | None = None) -> None:
        super().__init__(message)
        self.reply = reply


class MissingSentinel(ModelError):
    """Harmony text that is parsed strictly lacks a control token."""


class BadHeader(ModelError):
    """Harmony text that is parsed strictly has an invalid message header, or text outside of its messages.

    `deviations` says what is wrong with the header.
    """

    def __init__(self, message: str, *, deviations: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.deviations = tuple(deviations)


class UpstreamError(PromptoolsError):
    """The server failed.

    `status` is the HTTP status of the response, or None if there was no response. `body` is the text of the response.
    `kind` is the kind of failure, such as `context_length_exceeded`.
    """

    def __init__(self, message: str, *, status: int | None = None, body: str = "", kind: str = "unknown") -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.kind = kind


class Exhausted(PromptoolsError):
    """Every attempt failed. `attempts` lists them in order; `reply` is the last reply that was read, if any."""

    def __init__(self, message: str, *, attempts: Sequence[Attempt] = (), reply: Reply | None = None) -> None:
        super().__init__(message)
        self.attempts = tuple(attempts)
        self.reply = reply
