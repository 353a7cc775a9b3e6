"""The vocabulary of gpt-oss: the location of its file, ids for text (with openai-harmony), and bytes for ids.

Rendering a conversation as text needs none of this. Ids for text need the file and the extra
`promptools-compat[harmony]`, bytes for ids only the file. This module never downloads it; openai-harmony does, unless
its environment variable names a folder.
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
from promptools.harmony.renderer import Encode

Decode: TypeAlias = Callable[[int], bytes]
"""Returns the bytes of an ordinary token, which may be part of a character; raises KeyError for any other token."""


class TokenCodec(NamedTuple):
    """Text to ids, and ids to bytes."""

    encode: Encode
    decode: Decode


FILE_NAME = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""The file's digest, which openai-harmony checks too."""
FILE_URL = f"https://openaipublic.blob.core.windows.net/encodings/{FILE_NAME}"
"""OpenAI's URL of the file."""
FOLDER_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
"""The environment variable in which openai-harmony looks for the file's folder."""
CACHE_VARIABLE = "PROMPTOOLS_CACHE"
INSTALL_COMMAND = "promptools harmony vocab --from FILE"
"""The command that installs the file."""


def cache_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the cache folder, existing or not: PROMPTOOLS_CACHE, else `~/.cache/promptools`."""
    folder = environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else home / ".cache" / "promptools"


def cached_file(environ: Mapping[str, str], home: Path) -> Path:
    """Return the path of promptools' own copy, existing or not, in the cache folder."""
    return cache_folder(environ, home) / "harmony" / FILE_NAME


def search_paths(environ: Mapping[str, str], home: Path) -> dict[str, Path]:
    """Return the paths that are searched, in order, by the variable or command that sets them."""
    folder = environ.get(FOLDER_VARIABLE)
    return {
        **({FOLDER_VARIABLE: Path(folder) / FILE_NAME} if folder else {}),
        INSTALL_COMMAND: cached_file(environ, home),
    }


def find_file(environ: Mapping[str, str], home: Path) -> Path | None:
    """Return the first path that is a file, whatever its content; None if there is none."""
    return next((path for path in search_paths(environ, home).values() if path.is_file()), None)


def configure_library(environ: MutableMapping[str, str], home: Path) -> Path | None:
    """Find the file, and point openai-harmony to it with a variable in `environ`, which must be the process's own.

    Called once when a program starts; `load_encode` then works anywhere. Returns the path, None if there is no file.
    """
    file = find_file(environ, home)
    if file is not None:
        environ[FOLDER_VARIABLE] = str(file.parent)
    return file


def check_digest(data: bytes, where: str) -> None:
    """Raise UsageError unless `data` is the vocabulary; `where` is its origin, for the message."""
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise UsageError(
            f"{where!r} is not the vocabulary of gpt-oss: its sha256 is {digest}, not {SHA256}. "
            f"Take {FILE_NAME} from {FILE_URL}."
        )


def load_codec(file: Path) -> TokenCodec:
    """Load both directions; `file` comes from `configure_library`. Raises the same errors as `load_encode`."""
    return TokenCodec(load_encode(), load_decode(file))


def load_encode() -> Encode:
    """Return a function from text to token ids, which does not recognise control tokens in the text.

    The library looks for the file in the folder that `TIKTOKEN_ENCODINGS_BASE` names (see `configure_library`), and
    downloads it if that is not set. Takes about a second the first time, and nothing after. Raises UsageError without
    openai-harmony or if it cannot load the vocabulary.
    """
    encoding = load_encoding()

    def encode(text: str) -> list[int]:
        ids: list[int] = encoding.encode(text, disallowed_special=())
        return ids

    return encode


@cache
def load_encoding() -> Any:
    """Load openai-harmony's own encoding. Raises the same errors as `load_encode`."""
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
            f"Token ids need the vocabulary {FILE_NAME} (sha256 {SHA256[:8]}...), and openai-harmony cannot load it: "
            f"{clip(str(error))}. Get the file from {FILE_URL} and run {INSTALL_COMMAND!r}, "
            f"or put its folder's path into {FOLDER_VARIABLE}."
        ) from error


def load_decode(file: Path) -> Decode:
    """Return a function from ordinary tokens to their bytes, read from the file; for others see `TOKEN_IDS`.

    Needs no library. Takes about 0.2 seconds the first time, and nothing after. Raises UsageError if the file is a
    different one or cannot be read.
    """
    return _token_bytes(file).__getitem__


@cache
def _token_bytes(file: Path) -> dict[int, bytes]:
    """Return the bytes by id, from lines of base64 and rank; the ranks are the ids, from 0 without a gap."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the vocabulary {str(file)!r}: {error.strerror}; run {INSTALL_COMMAND!r}"
        ) from error
    check_digest(data, str(file))
    return {rank: b64decode(line.partition(b" ")[0]) for rank, line in enumerate(data.splitlines())}
