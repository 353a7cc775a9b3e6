"""The vocabulary of gpt-oss, by way of openai-harmony: token ids for text.

The text of a conversation needs none of this; `pip install 'promptools[harmony]'` is for token ids.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip

if TYPE_CHECKING:
    from promptools.harmony.render import Encode

FILE = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the file; openai-harmony checks it."""
FOLDER = "TIKTOKEN_ENCODINGS_BASE"
"""The environment variable by which openai-harmony finds the folder that the file lies in."""


def load_encode() -> Encode:
    """Give the ids of ordinary text: control tokens in it are recognised no more than other words.

    The library looks for the file in the folder that `TIKTOKEN_ENCODINGS_BASE` names, and without it downloads the
    file. Takes about a second the first time, and nothing after. Raises UsageError where there is no vocabulary.
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
            "Token ids need openai-harmony, which is not installed: pip install 'promptools[harmony]'. "
            "The text of a conversation needs nothing."
        ) from None
    try:
        return library.load_harmony_encoding(library.HarmonyEncodingName.HARMONY_GPT_OSS)
    except library.HarmonyError as error:
        raise UsageError(
            f"Token ids need the vocabulary {FILE} (sha256 {SHA256[:8]}...), and openai-harmony cannot load it: "
            f"{clip(str(error))}. Put the file into a folder, and the folder's path into {FOLDER}."
        ) from error
