"""Write a scripted model as a GGUF file."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.lab.model_vocabulary import MERGE, ModelVocabulary, make_vocabulary
from promptools.lab.model_weights import ROPE_BASE, Weights, make_weights
from promptools.lab.script import ENDS, ScriptedReply, SpecialTokens, read_script

if TYPE_CHECKING:
    from gguf import GGUFWriter

CONTEXT = 16384
"""Context length of a scripted model in tokens, most of which are single bytes."""
_FORMAT = 10  # increment when the weights of the same script change
_NO_SPECIAL_TOKENS = SpecialTokens()
_QUANTIZED = ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "output.weight")
"""Tensors that are quantized to eight bits: they are most of the work of every token, and their gates are far from the
threshold. Attention distinguishes phrases by small angles, and keeps full precision."""


def write_model(
    lines: Iterable[ScriptedReply],
    folder: Path,
    *,
    template: str | None = None,
    special: SpecialTokens = _NO_SPECIAL_TOKENS,
) -> Path:
    """Write the model with the replies `lines` into `folder` and return its path; an existing file is kept.

    `template` is the chat template (Jinja) in the file, for servers that are started without one. The file name holds
    a digest of them all, and the file is written atomically. Takes less than a second; 2 to 20 MB.
    """
    lines = tuple(lines)
    script = read_script(lines, special)
    identity = json.dumps([_FORMAT, [astuple(line) for line in lines], template, astuple(special)])
    path = folder / f"scripted-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.gguf"
    if path.exists():
        return path
    vocabulary = make_vocabulary(script, special)
    folder.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=path.stem, suffix=".part", dir=folder)
    os.close(handle)
    try:
        _write(Path(unfinished), vocabulary, make_weights(script, vocabulary), template, special)
        Path(unfinished).replace(path)
    finally:
        Path(unfinished).unlink(missing_ok=True)
    return path


def _write(
    path: Path, vocabulary: ModelVocabulary, weights: Weights, template: str | None, special: SpecialTokens
) -> None:
    try:
        import gguf
    except ImportError as error:
        raise UsageError(
            "writing a scripted model needs gguf and numpy: pip install 'promptools-compat[demo]'"
        ) from error

    writer = gguf.GGUFWriter(path, "llama")
    _add_architecture(writer, weights)
    _add_vocabulary(writer, vocabulary, special)
    if template is not None:
        writer.add_chat_template(template)
    small = gguf.GGMLQuantizationType.Q8_0
    for name, tensor in weights.tensors.items():
        if name in _QUANTIZED:
            writer.add_tensor(name, gguf.quants.quantize(tensor, small), raw_dtype=small)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_architecture(writer: GGUFWriter, weights: Weights) -> None:
    import gguf

    writer.add_name("promptools scripted model")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(weights.shape.width)
    writer.add_feed_forward_length(weights.shape.units)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_key_length(weights.shape.head)
    writer.add_value_length(weights.shape.head)
    writer.add_rope_dimension_count(weights.shape.head)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(1e-9)


def _add_vocabulary(writer: GGUFWriter, vocabulary: ModelVocabulary, special: SpecialTokens) -> None:
    import gguf

    kinds = {
        "normal": gguf.TokenType.NORMAL,
        "control": gguf.TokenType.CONTROL,
        "marker": gguf.TokenType.USER_DEFINED,
    }
    writer.add_vocab_size(len(vocabulary.texts))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocabulary.texts))
    writer.add_token_types([kinds[kind] for kind in vocabulary.kinds])
    writer.add_token_merges([MERGE])
    writer.add_eos_token_id(vocabulary.ends[special.eos])
    if special.bos is not None:
        writer.add_bos_token_id(vocabulary.texts.index(special.bos))
    writer.add_pad_token_id(vocabulary.ends[ENDS[-1]])
    writer.add_add_bos_token(special.bos is not None)
    writer.add_add_eos_token(False)
