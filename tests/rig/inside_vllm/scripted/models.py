"""Two tiny models with random weights, in the form that vLLM loads: `python -m scripted.models KIND FOLDER [RANKS]`.

`llama` reads and writes bytes, with the markers of ChatML and Hermes. `gptoss` is gpt-oss in small: its architecture
and its whole vocabulary, every Harmony marker under its true id; RANKS is the file `o200k_base.tiktoken`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

_tokenizers: Any = importlib.import_module("tokenizers")
_transformers: Any = importlib.import_module("transformers")
_torch: Any = importlib.import_module("torch")

CONTEXT = 16384

_CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_HERMES = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# openai/harmony, docs/format.md; ids missing in the list of o200k_harmony are reserved there too
_HARMONY = {
    199998: "<|startoftext|>",
    199999: "<|endoftext|>",
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
    200018: "<|endofprompt|>",
}
_HARMONY_SIZE = 201088
_RANKS_SIZE = 199998

# how o200k_base splits text before it merges: js-tiktoken 1.0.21, `pat_str`
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_WORDS = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}*{_CASED[1]}+{_CASED[2]}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}+{_CASED[1]}*{_CASED[2]}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def make_llama(folder: Path) -> None:
    """Create the model whose tokens are bytes."""
    letters = sorted(_tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = _tokenizers.Tokenizer(_tokenizers.models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = _tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = _tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_CHATML))
    tokenizer.add_tokens([_tokenizers.AddedToken(token, normalized=False, special=False) for token in _HERMES])
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    fast = _transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    end, pad = fast.convert_tokens_to_ids([*names.values()])
    config = _transformers.LlamaConfig(
        vocab_size=-(-len(fast) // 32) * 32,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        bos_token_id=pad,
        eos_token_id=end,
        pad_token_id=pad,
    )
    _save(_transformers.LlamaForCausalLM(config), fast, folder, ends=[end, pad], pad=pad)


def make_gptoss(folder: Path, ranks: Path) -> None:
    """Create the model with gpt-oss's vocabulary."""
    converter = importlib.import_module("transformers.convert_slow_tokenizer").TikTokenConverter
    markers = [_HARMONY.get(at, f"<|reserved_{at}|>") for at in range(_RANKS_SIZE, _HARMONY_SIZE)]
    tokenizer = converter(str(ranks), pattern=_WORDS, extra_special_tokens=markers).converted()
    names = {"bos_token": "<|startoftext|>", "eos_token": "<|return|>", "pad_token": "<|endoftext|>"}
    fast = _transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    ids = {text: at for at, text in _HARMONY.items()}
    actual = {text: fast.convert_tokens_to_ids(text) for text in ids}
    if actual != ids:
        raise SystemExit(f"the vocabulary {ranks} is not o200k_base: its markers would be {actual}")
    end, pad, call = (ids[token] for token in ("<|return|>", "<|endoftext|>", "<|call|>"))
    config = _transformers.GptOssConfig(
        vocab_size=_HARMONY_SIZE,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        sliding_window=128,
        max_position_embeddings=CONTEXT,
        initial_context_length=CONTEXT,
        rope_scaling=None,
        bos_token_id=ids["<|startoftext|>"],
        eos_token_id=end,
        pad_token_id=pad,
    )
    # gpt-oss's own generation_config.json ends a turn at these three
    _save(_transformers.GptOssForCausalLM(config), fast, folder, ends=[end, pad, call], pad=pad)


def _save(model: Any, tokenizer: Any, folder: Path, *, ends: list[int], pad: int) -> None:
    tokenizer.save_pretrained(folder)
    model = model.to(_torch.bfloat16)
    model.generation_config.eos_token_id = ends
    model.generation_config.pad_token_id = pad
    model.save_pretrained(folder)


if __name__ == "__main__":
    _torch.manual_seed(0)
    match sys.argv[1:]:
        case ["llama", folder]:
            make_llama(Path(folder))
        case ["gptoss", folder, ranks]:
            make_gptoss(Path(folder), Path(ranks))
        case _:
            raise SystemExit(__doc__)
