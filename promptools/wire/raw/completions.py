"""OpenAI's older endpoint, `/v1/completions`, as vLLM, SGLang, LM Studio and others have it.

Shapes of vLLM 0.32.0. Its replies are those of Chat Completions with `text` in place of a message.
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
    """Write a Chat Completions body without its messages; `ids`: the server knows token ids.

    A limit is always sent: without one vLLM and SGLang stop after 16 tokens. What the model says must come with its
    markers, which vLLM and SGLang take out unless told otherwise.
    """
    kept, _, notes = carry(body, "completions")
    said: dict[str, Any] = {"max_tokens": prompt.room, **kept, "prompt": prompt.sent}
    if ids:
        wanted = dict.fromkeys((*as_list(body.get("stop_token_ids")), *STOP_IDS))
        said |= {
            "stop_token_ids": list(wanted),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "add_special_tokens": False,
        }
        if prompt.decode is not None:
            said["return_token_ids"] = True
        if body.get("stop") is not None:
            said["stop"] = body["stop"]
    else:
        said["stop"] = stops(body.get("stop"))
    return Written(said, notes)


def read_reply(body: Any) -> list[Delta]:
    """Read a whole reply, or a chunk of a stream; an error body gives one delta with `error`."""
    return [_ended(delta) for delta in chat.read_chunk(body)]


def _ended(delta: Delta) -> Delta:
    """Put back the token that ended the turn: the server says which it was, and leaves it out of the text.

    It is among the ids, as vLLM tells them.
    """
    stop = STOP_IDS.get(as_int(delta.stop_reason) or 0)
    return replace(delta, content=delta.content + stop) if stop else delta
