"""A logits processor that makes any model generate a script: `--logits-processors scripted.words:Words`.

It makes the next token of the reply far likelier than all others. Tokens that the server forbids stay forbidden, as
with a real model: what a grammar does not allow is left out of the reply, and where the grammar forces more text than
the reply has, the model chooses it. PROMPTOOLS_LINES names the script.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# the first two have no types where this project is checked; the name of this package depends on where it is imported
_LogitsProcessor: Any = importlib.import_module("vllm.v1.sample.logits_processor").LogitsProcessor
_tokenizer_of: Any = importlib.import_module("vllm.tokenizers").cached_tokenizer_from_config
_Script: Any = importlib.import_module(".lines", __package__).ScriptFile
_Reply: Any = importlib.import_module(".reply", __package__).ReplyProgress

_ENDS = ("<|im_end|>", "<|return|>", "<|call|>", "<|endoftext|>")
"""As in `promptools.lab.script.ENDS`."""

_CUT = "\0"
"""A separator that is not generated, and that no token crosses: a marker that it cuts is tokenized as plain text."""

_PUSH = 1e5
"""Added to a logit: more than any model outputs, and without effect on the minus infinity of forbidden tokens."""


class Words(_LogitsProcessor):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]
    """The processor; vLLM has one for all requests, which are identified by their row in the batch."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:  # vLLM passes them
        self._tokenizer: Any = _tokenizer_of(vllm_config.model_config)
        self._script: Any = _Script(Path(os.environ["PROMPTOOLS_LINES"]))
        self._rows: dict[int, Any] = {}
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        self._ends = {end: vocabulary[end] for end in _ENDS if end in vocabulary}
        self._end: int = self._tokenizer.eos_token_id
        self._markers: set[int] = {*self._tokenizer.get_added_vocab().values()}

    def is_argmax_invariant(self) -> bool:
        """Return False: it changes the result of greedy sampling, too."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Track which request is in which row; the order of the three kinds of change is vLLM's."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, _, prompt, out in batch_update.added:
            # a preempted request comes back with the tokens that it had generated
            tokens = self._tokens(prompt or ())
            self._rows[row] = _Reply(
                tokens, out, next_index=min(len(out), len(tokens) - 1), generated_count=len(out), splits=self._splits
            )
        for source, target, direction in batch_update.moved:
            first, second = self._rows.pop(source, None), self._rows.pop(target, None)
            if first is not None:
                self._rows[target] = first
            if second is not None and direction.name == "SWAP":
                self._rows[source] = second

    def apply(self, logits: Any) -> Any:
        """Raise the logit of the next token in every row."""
        for row, reply in self._rows.items():
            scores = logits[row]
            token: int | None = reply.next(scores)
            if token is not None:
                scores[token] += _PUSH
        return logits

    def _tokens(self, prompt: Any) -> list[int]:
        """Return the token ids of the reply to a prompt; markers are single tokens, and the last is an end token."""
        says: str = self._script.answer(self._tokenizer.decode(prompt, skip_special_tokens=False))
        written = next((end for end in _ENDS if says.endswith(end)), "")
        end = self._ends.get(written, self._end)
        parts = says.removesuffix(written).split(_CUT)
        return [*(token for part in parts for token in self._tokenizer.encode(part, add_special_tokens=False)), end]

    def _splits(self, token: int) -> Iterator[list[int]]:
        """Yield the ways to split a text token into several."""
        text: str = "" if token in self._markers else self._tokenizer.decode([token])
        for size in range(len(text) - 1, 0, -1):
            parts: list[list[int]] = [
                self._tokenizer.encode(part, add_special_tokens=False) for part in (text[:size], text[size:])
            ]
            if len(parts[0]) == 1:
                yield [*parts[0], *parts[1]]
