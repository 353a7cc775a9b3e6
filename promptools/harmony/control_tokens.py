"""The vocabulary of Harmony: control tokens, their ids and their escaping; roles; channels."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal, TypeAlias

from promptools.parsing.escape import markup_escaper

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
CHANNELS = ("analysis", "commentary", "final")

TOKEN_IDS = MappingProxyType({
    "startoftext": 199998,
    "endoftext": 199999,
    "return": 200002,
    "constrain": 200003,
    "channel": 200005,
    "start": 200006,
    "end": 200007,
    "message": 200008,
    "call": 200012,
    "endofprompt": 200018,
})  # fmt: skip
"""Ids in the vocabulary `o200k_harmony`; the others up to 201087 are named `reserved_N`.

openai-harmony 0.0.8 calls 200018 reserved as well; gpt-oss' own tokenizer.json has the name.
"""

CONTROL_MARKUP = markup_escaper(frozenset((*(f"<|{name}|>" for name in TOKEN_IDS), "<|reserved_{n}|>")))
r"""Escapes control tokens in a text, so that no tokenizer recognises them: `<|end|>` becomes `<\|end|>`."""
