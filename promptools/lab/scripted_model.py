"""A scripted model: its tokens, its computed weights, and the GGUF file that holds both."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptools.errors import UsageError, install_command
from promptools.lab.script import (
    BLANK,
    ENDS,
    MARKERS,
    ScriptedReply,
    SpecialTokens,
    TokenizedReply,
    cues,
    read_script,
    settings,
)
from promptools.wire.chat_template import BYTE_LETTERS

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFWriter
    from numpy.typing import NDArray


# The tokens: bytes, end tokens, markers, cues, settings and the pieces of the replies.


TokenKind = Literal["normal", "control", "marker"]

_NO_SPECIAL_TOKENS = SpecialTokens()
_CONTROL = (*ENDS, "<|im_start|>", "<|startoftext|>")
_HARMONY_TURN_ENDS = ("<|return|>", "<|call|>")
_HARMONY_END = "<|end|>"
"""A token that a scripted model has only if its script is in Harmony, the format of gpt-oss.

Other scripted models must not have it. If a grammar forces the end of a reply, llama.cpp allows this token, but does
not stop at it if the vocabulary contains `<|call|>`, as that of every scripted model does. The model would therefore go
on generating.
"""


@dataclass(frozen=True, slots=True)
class ModelVocabulary:
    """The tokens of a model: their texts and types as in GGUF, and the ids of the tokens that the weights use."""

    texts: tuple[str, ...]
    kinds: tuple[TokenKind, ...]
    cues: dict[str, int]
    settings: dict[str, int]
    pieces: dict[bytes, int]
    ends: dict[str, int]
    blank: int


def make_vocabulary(script: Sequence[TokenizedReply], special: SpecialTokens = _NO_SPECIAL_TOKENS) -> ModelVocabulary:
    """Collect the tokens that `script` needs.

    Four kinds of text are user-defined tokens: cues and settings, which are the phrases in a prompt that select a
    reply; markers; and words. The server's tokenizer finds user-defined tokens anywhere in a prompt, the longest first.
    Apart from control tokens and pairs of spaces, all other text in a prompt is split into tokens of one byte. The
    longer tokens, called pieces, occur only in replies: the model generates them, but the tokenizer never finds them in
    a prompt.
    """
    texts: list[str] = []
    kinds: list[TokenKind] = []

    def add(text: str, kind: TokenKind) -> int:
        texts.append(text)
        kinds.append(kind)
        return len(texts) - 1

    for byte in range(256):
        add(BYTE_LETTERS[byte], "normal")
    add(_to_letters(b"  "), "normal")  # the result of the one merge rule: a tokenizer of this type needs at least one
    controls = {text: add(text, "control") for text in dict.fromkeys((*_CONTROL, *special.all))}
    is_harmony = any(spoken.end in _HARMONY_TURN_ENDS for spoken in script)
    for text in (*MARKERS, *special.words):
        if text not in controls and (is_harmony or text != _HARMONY_END):
            add(text, "marker")
    cue_ids = {text: add(text, "marker") for text in cues(script)}
    setting_ids = {text: add(text, "marker") for text in settings(script)}
    whole = {text.encode(): controls[text] for text in special.all}
    pieces: dict[bytes, int] = {}
    for piece in (piece for spoken in script for piece in spoken.pieces):
        if piece not in pieces:
            pieces[piece] = whole[piece] if piece in whole else add(_to_letters(piece), "normal")
    blank = add(_to_letters(BLANK), "normal")
    _check_distinct(texts)
    ends = {end: controls[end] for end in dict.fromkeys((special.eos, *ENDS))}
    return ModelVocabulary(tuple(texts), tuple(kinds), cue_ids, setting_ids, pieces, ends, blank)


def _check_distinct(texts: Sequence[str]) -> None:
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise UsageError(f"{text!r} would be two tokens: a cue, setting and reply piece must not be the same text")
        seen.add(text)


def _to_letters(data: bytes) -> str:
    return "".join(BYTE_LETTERS[byte] for byte in data)


MERGE = f"{BYTE_LETTERS[0x20]} {BYTE_LETTERS[0x20]}"
"""The only merge rule, which makes a token of two spaces."""


# The weights of a scripted model: one Llama layer, computed instead of trained.
#
# The residual stream is divided into named sections. The embedding of a token encodes which cue or setting it is (a
# flag and a one-hot code), and its position in a reply (a random unit code). Every token that is not a piece has the
# position "the start". One attention head carries the code of the latest cue to the current position, and the other
# head carries the code of the latest setting there. For each step, one feed-forward unit matches "this cue, this
# setting, this position" and writes the code of the next token. The output matrix turns this code into logits.
#
# To find the *latest* cue, a head uses rotary position embeddings: the angle between query and key grows slowly with
# their distance, so the nearest flagged token scores highest. A second, nearly unrotated pair of dimensions raises
# every flagged token above the others.


if TYPE_CHECKING:
    Array: TypeAlias = NDArray[np.float32]
    Random: TypeAlias = np.random.Generator

ROPE_BASE = 1e9
_RADIANS_PER_TOKEN = 1.5e-4  # radians per token on the recency pair: scores fall for 15,000 tokens; f16 blurs 3 tokens
_PHASE = 0.8  # initial angle: steep enough to distinguish neighbours
_SHARPNESS = 8e3  # attention score of a flagged token at distance zero, before softmax
_KEY_SCALE = 8.0  # the key's factor of this score, so that neither query nor key leaves the range of f16
_NORM = 2.5  # norm of every embedding; without its ballast, the embedding of a flagged token has norm 2
_GATE_SLOPE = 60.0  # slope of a feed-forward gate: half a match above or below the threshold opens or closes it fully
_CODE_NORM = 10.0  # norm of the next token's code in the residual stream
_TOKEN_LOGIT = 200.0  # logit of the chosen token
_MAX_SIMILARITY = 0.45  # maximum similarity of two position codes: above it, a wrong gate could open


@dataclass(frozen=True, slots=True)
class Shape:
    """The model's sizes, which the metadata of its file must state."""

    width: int
    head: int
    units: int


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a model by their names in GGUF, and the sizes of the model."""

    shape: Shape
    tensors: dict[str, Array]


@dataclass(frozen=True, slots=True)
class _Sections:
    """The layout of the residual stream: which columns hold what, such as the latest cue or the position."""

    head: int
    position_size: int
    bias = 0
    ballast = 1

    def cue(self) -> slice:
        return self._at(0, self.head)

    def setting(self) -> slice:
        return self._at(self.head, self.head)

    def latest_cue(self) -> slice:
        return self._at(2 * self.head, self.head)

    def latest_setting(self) -> slice:
        return self._at(3 * self.head, self.head)

    def position(self) -> slice:
        return self._at(4 * self.head, self.position_size)

    def next_token(self) -> slice:
        return self._at(4 * self.head + self.position_size, self.position_size)

    def _at(self, start: int, length: int) -> slice:
        return slice(2 + start, 2 + start + length)

    @property
    def width(self) -> int:
        return _round_up(2 + 4 * self.head + 2 * self.position_size)


def make_weights(script: Sequence[TokenizedReply], vocabulary: ModelVocabulary) -> Weights:
    """Compute the weights that make a Llama generate the replies of `script`.

    The number of weights grows with the number of pieces times the width of the model.
    """
    import numpy as np

    random = np.random.default_rng(0)
    # in the code of a cue or setting, the first number is the flag, and the others are one-hot
    head = _round_up(1 + max(len(vocabulary.cues), len(vocabulary.settings)))
    spoken = [*vocabulary.pieces.values(), *vocabulary.ends.values(), vocabulary.blank]
    codes = _unit_codes(len(spoken) + 1, random)
    start, places = codes[0], dict(zip(spoken, codes[1:], strict=True))
    at = _Sections(head, codes.shape[1])
    gate, up, down = _feed_forward(script, vocabulary, at, places, start)
    query, key, value, out = _attention(at)
    flat = np.ones(at.width, np.float32) / math.sqrt(at.width)
    return Weights(
        Shape(at.width, head, gate.shape[0]),
        {
            "token_embd.weight": _embeddings(vocabulary, at, places, start),
            "blk.0.attn_norm.weight": flat * _NORM,
            "blk.0.attn_q.weight": query,
            "blk.0.attn_k.weight": key,
            "blk.0.attn_v.weight": value,
            "blk.0.attn_output.weight": out,
            "blk.0.ffn_norm.weight": flat * _NORM,
            "blk.0.ffn_gate.weight": gate,
            "blk.0.ffn_up.weight": up,
            "blk.0.ffn_down.weight": down,
            "output_norm.weight": flat * _CODE_NORM,
            "output.weight": _output(script, vocabulary, at, places),
        },
    )


def _embeddings(vocabulary: ModelVocabulary, at: _Sections, position_codes: dict[int, Any], start: Any) -> Array:
    import numpy as np

    table = np.zeros((len(vocabulary.texts), at.width), np.float32)
    table[:, at.bias] = 1
    table[:, at.position()] = start
    for token in (*vocabulary.pieces.values(), vocabulary.blank):
        table[token, at.position()] = position_codes[token]
    for section, tokens in ((at.cue(), vocabulary.cues), (at.setting(), vocabulary.settings)):
        for order, token in enumerate(tokens.values()):
            table[token, section.start] = 1  # the flag
            table[token, section.start + 1 + order] = 1
    # flagged tokens have a larger norm; the ballast equalizes all norms, so that the normalization before attention
    # scales all embeddings equally
    squares = (table.astype(np.float64) ** 2).sum(axis=1)
    table[:, at.ballast] = np.sqrt(_NORM**2 - squares)
    return table


def _attention(at: _Sections) -> tuple[Array, Array, Array, Array]:
    """Return the query, key, value and output weights of two heads.

    One head copies the section of the latest cue, and the other head copies the section of the latest setting.
    """
    import numpy as np

    head, pairs = at.head, at.head // 2
    recency = round(-math.log(_RADIANS_PER_TOKEN, ROPE_BASE) * pairs)
    lift = pairs - 1
    query = np.zeros((2 * head, at.width), np.float32)
    key = np.zeros((2 * head, at.width), np.float32)
    value = np.zeros((2 * head, at.width), np.float32)
    out = np.zeros((at.width, 2 * head), np.float32)
    strength = _SHARPNESS * math.sqrt(head) / _KEY_SCALE
    for row, section, target in ((0, at.cue(), at.latest_cue()), (head, at.setting(), at.latest_setting())):
        query[row + 2 * recency, at.bias] = strength * math.cos(_PHASE)
        query[row + 2 * recency + 1, at.bias] = strength * math.sin(_PHASE)
        key[row + 2 * recency, section.start] = _KEY_SCALE
        query[row + 2 * lift, at.bias] = 2 * strength
        key[row + 2 * lift, section.start] = _KEY_SCALE
        for column in range(head):
            value[row + column, section.start + column] = 1
            out[target.start + column, row + column] = 1
    return query, key, value, out


def _feed_forward(
    script: Sequence[TokenizedReply],
    vocabulary: ModelVocabulary,
    at: _Sections,
    position_codes: dict[int, Any],
    start: Any,
) -> tuple[Array, Array, Array]:
    """Return the gate, up and down weights of the feed-forward layer, with one unit for each step of a reply.

    The input of a unit's gate, before scaling, is +1/2 if all conditions of the step hold, and at most -1/2 if one
    does not.
    """
    import numpy as np

    steps = _steps(script, vocabulary)
    count = _round_up(1 + len(steps))
    gate = np.zeros((count, at.width), np.float32)
    up = np.zeros((count, at.width), np.float32)
    down = np.zeros((at.width, count), np.float32)
    up[: 1 + len(steps), at.bias] = 1
    for unit, (step, asked) in enumerate(steps.items()):
        gate[unit] = _gate_conditions(step, asked, vocabulary, at)
        gate[unit, at.position()] = start if step.before is None else position_codes[step.before]
        gate[unit] *= _GATE_SLOPE
        down[at.next_token(), unit] = position_codes[step.token] * (_CODE_NORM / (_GATE_SLOPE * 0.5))
    unit = len(steps)
    end = next(iter(vocabulary.ends.values()))
    gate[unit, at.position()] = position_codes[vocabulary.blank] * _GATE_SLOPE  # after a blank the reply is still over
    gate[unit, at.bias] = -0.5 * _GATE_SLOPE
    down[at.next_token(), unit] = position_codes[end] * (_CODE_NORM / (_GATE_SLOPE * 0.5))
    return gate, up, down


@dataclass(frozen=True, slots=True)
class _Step:
    """A step from one token of a scripted reply to the next, with the conditions under which it is made.

    A setting is a phrase in the prompt that helps to select the reply. If the step has a `setting`, this must be the
    latest setting in the prompt. If it has none, the latest setting must not be one of the `rivals`, for which another
    line of the script answers the same cue.
    """

    before: int | None
    token: int
    has_cue: bool
    setting: str | None
    rivals: frozenset[str]


def _steps(script: Sequence[TokenizedReply], vocabulary: ModelVocabulary) -> dict[_Step, list[str]]:
    """Map each distinct step to the cues of all replies that contain it, so that a shared step needs only one unit."""
    steps: dict[_Step, list[str]] = {}
    rivals: dict[str | None, set[str]] = {}
    for spoken in script:
        if spoken.line.setting is not None:
            rivals.setdefault(spoken.line.cue, set()).add(spoken.line.setting)
    for spoken in script:
        cue, setting = spoken.line.cue, spoken.line.setting
        others = frozenset(rivals.get(cue, ())) if setting is None else frozenset[str]()
        tokens = [*(vocabulary.pieces[piece] for piece in spoken.pieces), vocabulary.ends[spoken.end]]
        for before, token in zip([None, *tokens], tokens, strict=False):
            step = _Step(before, token, cue is not None, setting, others)
            steps.setdefault(step, []).extend(() if cue is None else (cue,))
    return steps


def _gate_conditions(step: _Step, asked: Sequence[str], vocabulary: ModelVocabulary, at: _Sections) -> Array:
    """Return the gate's weights for the conditions of a step, except the condition on the position.

    There are three conditions. The latest cue must be one of those in `asked`; if the step has no cue, there must be no
    cue. If the step has a setting, this must be the latest setting. The latest setting must not be one of the `rivals`.
    """
    import numpy as np

    cue_order = {cue: order for order, cue in enumerate(vocabulary.cues)}
    setting_order = {setting: order for order, setting in enumerate(vocabulary.settings)}
    asks = np.zeros(at.width, np.float32)
    if not step.has_cue:
        asks[at.latest_cue().start] = -1
    for cue in asked:
        asks[at.latest_cue().start + 1 + cue_order[cue]] = 1
    if step.setting is not None:
        asks[at.latest_setting().start + 1 + setting_order[step.setting]] = 1
    for rival in step.rivals:
        asks[at.latest_setting().start + 1 + setting_order[rival]] = -1
    conditions = 1 + step.has_cue + (step.setting is not None)  # the position is the first
    asks[at.bias] = 0.5 - conditions
    return asks


def _output(
    script: Sequence[TokenizedReply], vocabulary: ModelVocabulary, at: _Sections, position_codes: dict[int, Any]
) -> Array:
    import numpy as np

    table = np.zeros((len(vocabulary.texts), at.width), np.float32)
    for token, code in position_codes.items():
        table[token, at.next_token()] = code * _TOKEN_LOGIT
    end = next(iter(vocabulary.ends.values()))
    table[end, at.bias] = 0.1 * _TOKEN_LOGIT  # if no unit fires, the model has no reply: it ends its turn
    table[vocabulary.blank, at.bias] = -0.2 * _TOKEN_LOGIT
    if any(spoken.line.endless_blanks for spoken in script):
        table[vocabulary.blank, at.next_token()] = position_codes[end] * (
            0.8 * _TOKEN_LOGIT
        )  # if the model may not end its turn, it generates blanks
    return table


def _unit_codes(count: int, random: Random) -> Array:
    """Return `count` nearly orthogonal unit vectors, in the first tried dimension that is large enough for them."""
    import numpy as np

    for size in range(192, 2048, 64):
        codes = random.standard_normal((count, size)).astype(np.float32)
        codes /= np.linalg.norm(codes, axis=1, keepdims=True)
        alike = np.abs(codes @ codes.T)
        np.fill_diagonal(alike, 0)
        if alike.max() < _MAX_SIMILARITY:
            return codes
    raise AssertionError("unreachable: random codes of 2,048 numbers are nearly orthogonal")


def _round_up(number: int) -> int:
    """Round up to a multiple of 32, the block size of llama.cpp's kernels."""
    return -(-number // 32) * 32


# The file.


CONTEXT = 16384
"""Context length of a scripted model in tokens. Most tokens are single bytes."""
_FORMAT = 12  # increment when the weights of the same script change

_QUANTIZED = ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "output.weight")
"""The tensors that are quantized to eight bits. They cause most of the work for every token. Low precision does no harm
here, because the inputs of the feed-forward gates are far from 0, the threshold at which a gate opens. Attention keeps
full precision, because it distinguishes phrases by small angles."""


def write_model(
    lines: Iterable[ScriptedReply],
    folder: Path,
    *,
    template: str | None = None,
    special: SpecialTokens = _NO_SPECIAL_TOKENS,
) -> Path:
    """Write a model with the replies `lines` to a file in `folder`, unless the file exists; return its path.

    `template` is the chat template (Jinja) in the file, for servers that are started without one. The file's name
    contains a digest of the lines, the template and the special tokens. The file is written atomically. Writing takes
    less than a second, and the file takes 2 to 20 MB.
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
        raise UsageError(f"writing a scripted model needs gguf and numpy: {install_command('demo')}") from error

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
