"""The vocabulary of gpt-oss: find its file, convert text to ids (with openai-harmony), and convert ids to bytes.

Rendering a conversation as text needs none of this. Converting text to ids needs the file and the extra
`promptools-compat[harmony]`; converting ids to bytes needs only the file. This module never downloads the file.
openai-harmony downloads the file, unless an environment variable (`FOLDER_VARIABLE`) names the folder that contains it.
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
"""A function that returns the bytes of an ordinary token, which may be only part of a character.

Raises KeyError for other tokens.
"""


class TokenCodec(NamedTuple):
    """Holds two functions: from text to token ids, and from a token id to bytes."""

    encode: Encode
    decode: Decode


FILE_NAME = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""The SHA-256 of the vocabulary's file; openai-harmony checks it too."""
FILE_URL = f"https://openaipublic.blob.core.windows.net/encodings/{FILE_NAME}"
"""OpenAI's URL of the vocabulary's file."""
FOLDER_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
"""The environment variable from which openai-harmony takes the folder of the vocabulary's file."""
CACHE_VARIABLE = "PROMPTOOLS_CACHE"
INSTALL_COMMAND = "promptools harmony vocab --from FILE"
"""The command that installs the vocabulary's file."""


def cache_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the cache folder, which may not exist: PROMPTOOLS_CACHE, else `~/.cache/promptools`."""
    folder = environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else home / ".cache" / "promptools"


def cached_file(environ: Mapping[str, str], home: Path) -> Path:
    """Return the path of promptools' own copy of the vocabulary's file. The file may not exist."""
    return cache_folder(environ, home) / "harmony" / FILE_NAME


def search_paths(environ: Mapping[str, str], home: Path) -> dict[str, Path]:
    """Return the paths at which the vocabulary's file is looked for: a dict, in the order of the search.

    The key of each path says where the path comes from: an environment variable, or the command that installs the file.
    """
    folder = environ.get(FOLDER_VARIABLE)
    return {
        **({FOLDER_VARIABLE: Path(folder) / FILE_NAME} if folder else {}),
        INSTALL_COMMAND: cached_file(environ, home),
    }


def find_file(environ: Mapping[str, str], home: Path) -> Path | None:
    """Return the first of the `search_paths` at which a file exists; None if there is none.

    The content of the file is not checked.
    """
    return next((path for path in search_paths(environ, home).values() if path.is_file()), None)


def configure_library(environ: MutableMapping[str, str], home: Path) -> Path | None:
    """Find the vocabulary's file, and tell openai-harmony its folder through a variable in `environ`.

    `environ` must be the environment of the process. A program calls this once when it starts, so that `load_encode`
    works anywhere. Returns the path of the file; None if the file was not found.
    """
    file = find_file(environ, home)
    if file is not None:
        environ[FOLDER_VARIABLE] = str(file.parent)
    return file


def check_digest(data: bytes, where: str) -> None:
    """Raise UsageError unless `data` is the content of the vocabulary's file.

    `where` names the source of the data in the error message.
    """
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise UsageError(
            f"{where!r} is not the vocabulary of gpt-oss: its sha256 is {digest}, not {SHA256}. "
            f"Take {FILE_NAME} from {FILE_URL}."
        )


def load_codec(file: Path) -> TokenCodec:
    """Load a `TokenCodec`; `file` is the path from `configure_library`. Raises the same errors as `load_encode`."""
    return TokenCodec(load_encode(), load_decode(file))


def load_encode() -> Encode:
    """Return a function from text to token ids; control tokens in the text are treated as ordinary text.

    openai-harmony looks for the file in the folder that `TIKTOKEN_ENCODINGS_BASE` names (see `configure_library`). If
    the variable is not set, openai-harmony downloads the file. The first call takes about a second, later calls take no
    time. Raises UsageError if openai-harmony is not installed or cannot load the vocabulary.
    """
    encoding = load_encoding()

    def encode(text: str) -> list[int]:
        ids: list[int] = encoding.encode(text, disallowed_special=())
        return ids

    return encode


@cache
def load_encoding() -> Any:
    """Return openai-harmony's encoding object. Raises the same errors as `load_encode`."""
    try:
        library = import_module("openai_harmony")
    except ImportError:
        # not `install_command`: clients of a proxy may get this error
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
    """Return a function from the id of an ordinary token to its bytes; for control tokens see `TOKEN_IDS`.

    The bytes are read from the file, without openai-harmony. The first call takes about 0.2 seconds, later calls take
    no time. Raises UsageError if the file cannot be read or is not the vocabulary.
    """
    return _token_bytes(file).__getitem__


@cache
def _token_bytes(file: Path) -> dict[int, bytes]:
    """Return the bytes of each token id. Each line of the file has base64 and a rank, which is the id (0, 1, 2 ...)."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the vocabulary {str(file)!r}: {error.strerror}; run {INSTALL_COMMAND!r}"
        ) from error
    check_digest(data, str(file))
    return {rank: b64decode(line.partition(b" ")[0]) for rank, line in enumerate(data.splitlines())}
