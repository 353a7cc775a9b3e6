"""OpenAI's older endpoint, `/v1/completions`, as in vLLM, SGLang, LM Studio and others.

Formats of vLLM 0.32.0. Replies are those of Chat Completions with `text` in place of a message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.wire import chat_decoder
from promptools.wire.json_types import as_int, as_list
from promptools.wire.parameters import apply_rules
from promptools.wire.raw.raw_request import END_OF_TURN_IDS, RawPrompt, RawRequest, stop_strings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.wire.chat_decoder import Delta

PATH = "completions"
"""The route, below the API's base URL."""


def encode_request(body: Mapping[str, Any], prompt: RawPrompt, *, ids: bool) -> RawRequest:
    """Encode a Chat Completions body without its messages; `ids`: whether the server accepts token ids.

    A limit is always sent: without one vLLM and SGLang stop after 16 tokens. The reply must keep its special tokens,
    which vLLM and SGLang strip by default.
    """
    kept, _, notes = apply_rules(body, "completions")
    encoded: dict[str, Any] = {"max_tokens": prompt.max_tokens, **kept, **prompt.constraint, "prompt": prompt.as_json}
    if ids:
        stop_ids = dict.fromkeys((*as_list(body.get("stop_token_ids")), *prompt.stop_ids))
        encoded |= {
            "stop_token_ids": list(stop_ids),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "add_special_tokens": prompt.add_special_tokens,
        }
        if prompt.decode is not None:
            encoded["return_token_ids"] = True
    elif body.get("stop_token_ids") is not None:
        encoded["stop_token_ids"] = body["stop_token_ids"]
    stops = stop_strings(body.get("stop"), prompt)
    if stops:
        encoded["stop"] = stops
    return RawRequest(encoded, notes)


def decode_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or a chunk of a stream; an error body is one delta with `error`."""
    return [_restore_end_of_turn(delta) for delta in chat_decoder.decode_chunk(body)]


def _restore_end_of_turn(delta: Delta) -> Delta:
    """Restore the token that ended the turn, which the server reports but leaves out of the text.

    vLLM's token ids include it.
    """
    stop = END_OF_TURN_IDS.get(as_int(delta.stop_reason) or 0)
    return replace(delta, content=delta.content + stop) if stop else delta
