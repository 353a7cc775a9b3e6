"""OpenAI's older endpoint, `/v1/completions`, as in vLLM, SGLang, LM Studio and others.

Formats of vLLM 0.32.0. Replies are those of Chat Completions with `text` in place of a message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.wire import chat
from promptools.wire.raw.fates import STOP_IDS, Prompt, Written, carry, stops
from promptools.wire.shapes import as_int, as_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.wire.chat import Delta

PATH = "completions"
"""The route, below the API's base URL."""


def write_request(body: Mapping[str, Any], prompt: Prompt, *, ids: bool) -> Written:
    """Encode a Chat Completions body without its messages; `ids`: whether the server accepts token ids.

    A limit is always sent: without one vLLM and SGLang stop after 16 tokens. The reply must keep its special tokens,
    which vLLM and SGLang strip by default.
    """
    kept, _, notes = carry(body, "completions")
    encoded: dict[str, Any] = {"max_tokens": prompt.room, **kept, "prompt": prompt.sent}
    if ids:
        stop_ids = dict.fromkeys((*as_list(body.get("stop_token_ids")), *STOP_IDS))
        encoded |= {
            "stop_token_ids": list(stop_ids),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "add_special_tokens": False,
        }
        if prompt.decode is not None:
            encoded["return_token_ids"] = True
        if body.get("stop") is not None:
            encoded["stop"] = body["stop"]
    else:
        encoded["stop"] = stops(body.get("stop"))
    return Written(encoded, notes)


def read_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or a chunk of a stream; an error body is one delta with `error`."""
    return [_ended(delta) for delta in chat.read_chunk(body)]


def _ended(delta: Delta) -> Delta:
    """Restore the token that ended the turn, which the server reports but leaves out of the text.

    vLLM's token ids include it.
    """
    stop = STOP_IDS.get(as_int(delta.stop_reason) or 0)
    return replace(delta, content=delta.content + stop) if stop else delta
