"""A logits processor that makes any model speak a script: `--logits-processors scripted.words:Words`.

The next token of the reply is made far likelier than all others. What the server itself forbids stays forbidden, as
with a real model: what a grammar does not let through is left out of the reply, and where it wants more than the reply
has, the model says what it likes. PROMPTOOLS_LINES names the script.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# the first two have no types where this project is checked, and the name of our own package depends on where it is
_LogitsProcessor: Any = importlib.import_module("vllm.v1.sample.logits_processor").LogitsProcessor
_tokenizer_of: Any = importlib.import_module("vllm.tokenizers").cached_tokenizer_from_config
_Script: Any = importlib.import_module(".lines", __package__).Script
_Reply: Any = importlib.import_module(".reply", __package__).Reply

_ENDS = ("<|im_end|>", "<|return|>", "<|call|>", "<|endoftext|>")
"""As in `promptools.lab.script.ENDS`."""

_CUT = "\0"
"""Is not said, and no token goes across it: a marker that it cuts is said in tokens of ordinary text."""

_PUSH = 1e5
"""Added to a logit: more than any model gives, and nothing beside the minus infinity of what is forbidden."""


class Words(_LogitsProcessor):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]
    """The processor; vLLM keeps one for all requests, which it tells apart by their row in the batch."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:  # noqa: ARG002 - vLLM gives them
        self._tokenizer: Any = _tokenizer_of(vllm_config.model_config)
        self._script: Any = _Script(Path(os.environ["PROMPTOOLS_LINES"]))
        self._rows: dict[int, Any] = {}
        known: dict[str, int] = self._tokenizer.get_vocab()
        self._ends = {end: known[end] for end in _ENDS if end in known}
        self._end: int = self._tokenizer.eos_token_id
        self._markers: set[int] = {*self._tokenizer.get_added_vocab().values()}

    def is_argmax_invariant(self) -> bool:
        """Tell that it changes what is said even where nothing is left to chance."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow which request sits in which row; the order of the three kinds of change is vLLM's."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, _, prompt, out in batch_update.added:
            # a request that was put aside comes back with what it had said
            tokens = self._tokens(prompt or ())
            self._rows[row] = _Reply(tokens, out, at=min(len(out), len(tokens) - 1), said=len(out), splits=self._splits)
        for one, other, direction in batch_update.moved:
            first, second = self._rows.pop(one, None), self._rows.pop(other, None)
            if first is not None:
                self._rows[other] = first
            if second is not None and direction.name == "SWAP":
                self._rows[one] = second

    def apply(self, logits: Any) -> Any:
        """Push the next token of every row."""
        for row, reply in self._rows.items():
            scores = logits[row]
            token: int | None = reply.next(scores)
            if token is not None:
                scores[token] += _PUSH
        return logits

    def _tokens(self, prompt: Any) -> list[int]:
        """Give the ids of the reply to a prompt; markers are the vocabulary's own tokens, and an end comes last."""
        says: str = self._script.answer(self._tokenizer.decode(prompt, skip_special_tokens=False))
        written = next((end for end in _ENDS if says.endswith(end)), "")
        end = self._ends.get(written, self._end)
        parts = says.removesuffix(written).split(_CUT)
        return [*(each for part in parts for each in self._tokenizer.encode(part, add_special_tokens=False)), end]

    def _splits(self, token: int) -> Iterator[list[int]]:
        """Give the ways to say a token of text as several."""
        text: str = "" if token in self._markers else self._tokenizer.decode([token])
        for size in range(len(text) - 1, 0, -1):
            parts: list[list[int]] = [
                self._tokenizer.encode(part, add_special_tokens=False) for part in (text[:size], text[size:])
            ]
            if len(parts[0]) == 1:
                yield [*parts[0], *parts[1]]
