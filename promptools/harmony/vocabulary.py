"""The vocabulary of gpt-oss: where its file is, ids for text by way of openai-harmony, and bytes for ids.

The text of a conversation needs none of this. Ids for text need the file and the extra `promptools-compat[harmony]`,
bytes for ids the file alone. Nothing here downloads it; openai-harmony does, where nobody told it of a folder.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from promptools.errors import UsageError, clip
from promptools.harmony.render import Encode

Decode: TypeAlias = Callable[[int], bytes]
"""Gives the bytes of an ordinary token, which may be part of a character; KeyError for one that is not ordinary."""


class Vocabulary(NamedTuple):
    """Both ways at once."""

    encode: Encode
    decode: Decode


FILE = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the file; openai-harmony checks it."""
SOURCE = f"https://openaipublic.blob.core.windows.net/encodings/{FILE}"
"""Where OpenAI publishes the file."""
FOLDER = "TIKTOKEN_ENCODINGS_BASE"
"""The environment variable by which openai-harmony finds the folder that the file lies in."""
CACHE = "PROMPTOOLS_CACHE"
KEEP = "promptools harmony vocab --from FILE"
"""The command that puts the file where it is found."""


def own_file(environ: Mapping[str, str], home: Path) -> Path:
    """Give the place of our own, there or not: in PROMPTOOLS_CACHE, else in `~/.cache/promptools`."""
    told = environ.get(CACHE)
    cache_folder = Path(told).expanduser() if told else home / ".cache" / "promptools"
    return cache_folder / "harmony" / FILE


def places(environ: Mapping[str, str], home: Path) -> dict[str, Path]:
    """Give the files that are looked for, in order, and who says so."""
    told = environ.get(FOLDER)
    return {**({FOLDER: Path(told) / FILE} if told else {}), KEEP: own_file(environ, home)}


def find(environ: Mapping[str, str], home: Path) -> Path | None:
    """Find the file; the first place that holds one wins, whatever is in it."""
    return next((path for path in places(environ, home).values() if path.is_file()), None)


def tell(environ: MutableMapping[str, str], home: Path) -> Path | None:
    """Find the file, and have openai-harmony find it too: by the variable in `environ`, which must be the process's.

    Whoever starts promptools does this once; `load_encode` can then be called anywhere.
    """
    found = find(environ, home)
    if found is not None:
        environ[FOLDER] = str(found.parent)
    return found


def check(data: bytes, where: str) -> None:
    """Raise UsageError for bytes that are not the file."""
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise UsageError(
            f"{where!r} is not the vocabulary of gpt-oss: its sha256 is {digest}, not {SHA256}. "
            f"Take {FILE} from {SOURCE}."
        )


def load(file: Path) -> Vocabulary:
    """Load both; `file` is the one that was found by `tell`. Errors as in `load_encode` and `load_decode`."""
    return Vocabulary(load_encode(), load_decode(file))


def load_encode() -> Encode:
    """Give the ids of ordinary text: control tokens in it are recognised no more than other words.

    The library looks for the file in the folder that `TIKTOKEN_ENCODINGS_BASE` names (see `tell`), and without it
    downloads the file. Takes about a second the first time, and nothing after. Raises UsageError where there is no
    vocabulary.
    """
    encoding = load_encoding()

    def encode(text: str) -> list[int]:
        ids: list[int] = encoding.encode(text, disallowed_special=())
        return ids

    return encode


@cache
def load_encoding() -> Any:
    """Load openai-harmony's own encoding; errors as in `load_encode`."""
    try:
        library = import_module("openai_harmony")
    except ImportError:
        raise UsageError(
            "Token ids need openai-harmony, which is not installed: pip install 'promptools-compat[harmony]'. "
            "The text of a conversation needs nothing."
        ) from None
    try:
        return library.load_harmony_encoding(library.HarmonyEncodingName.HARMONY_GPT_OSS)
    except library.HarmonyError as error:
        raise UsageError(
            f"Token ids need the vocabulary {FILE} (sha256 {SHA256[:8]}...), and openai-harmony cannot load it: "
            f"{clip(str(error))}. Get the file from {SOURCE} and run {KEEP!r}, or put its folder's path into {FOLDER}."
        ) from error


def load_decode(file: Path) -> Decode:
    """Read the bytes of each ordinary token from the file (see `find`); control tokens are in `tokens.IDS`.

    Needs no library. Takes about 0.2 seconds the first time, and nothing after. Raises UsageError for a file that is
    another, or cannot be read.
    """
    return _words(file).__getitem__


@cache
def _words(file: Path) -> dict[int, bytes]:
    """Read lines of base64 and rank; the ranks are the ids, from 0 without a gap."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the vocabulary {str(file)!r}: {error.strerror}; run {KEEP!r}") from error
    check(data, str(file))
    return {rank: b64decode(line.partition(b" ")[0]) for rank, line in enumerate(data.splitlines())}
