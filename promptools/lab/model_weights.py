"""The weights of a scripted model: one Llama layer, computed instead of trained.

The residual stream is divided into named sections. An embedding encodes what a token is: a cue or setting (a flag and a
one-hot code) and its position in a reply (a random unit code; every token that is no piece means "the start"). One
attention head carries the code of the latest cue to the current position, the other that of the latest setting. One
feed-forward unit per step then matches "this cue, this setting, this position" and writes the code of the next token,
which the output matrix turns into logits.

*Latest* uses rotary position embeddings: the angle between query and key grows slowly with their distance, so that the
nearest flagged token scores highest. A second, nearly unrotated pair raises every flagged token above the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.lab.model_vocabulary import ModelVocabulary
from promptools.lab.script import TokenizedReply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float32]
    Random: TypeAlias = np.random.Generator

ROPE_BASE = 1e9
_RADIANS_PER_TOKEN = (
    1.5e-4  # radians per token on the recency pair: falls for 15,000 tokens, with f16 noise of 3 tokens
)
_PHASE = 0.8  # initial angle: steep enough to distinguish neighbours
_SHARPNESS = 8e3  # attention score of a flagged token at distance zero, before softmax
_KEY_SCALE = 8.0  # the key's factor of it, so that neither side leaves the range of f16
_NORM = 2.5  # norm of every embedding; a flagged one has norm 2 without its ballast
_GATE_SLOPE = 60.0  # slope of a feed-forward gate: half a match above or below the threshold opens or closes it fully
_CODE_NORM = 10.0  # norm of the next token's code in the residual stream
_TOKEN_LOGIT = 200.0  # logit of the chosen token
_MAX_SIMILARITY = 0.45  # maximum similarity of two position codes: above it, a wrong gate could open


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes for the file's metadata."""

    width: int
    head: int
    units: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors by their GGUF name, and their sizes."""

    shape: Shape
    tensors: dict[str, Array]


@dataclass(frozen=True, slots=True)
class _Sections:
    """Columns of the residual stream."""

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
    """Compute the weights that make a Llama generate the replies of `script`; `O(pieces x width)` numbers."""
    import numpy as np

    random = np.random.default_rng(0)
    # in a head's code, the first number is the flag, the others are one-hot: the codes are orthogonal
    head = _round_up(1 + max(len(vocabulary.cues), len(vocabulary.settings)), at_least=64)
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
    # flagged tokens have a larger norm: the ballast equalizes them, so that the norm before attention scales all alike
    squares = (table.astype(np.float64) ** 2).sum(axis=1)
    table[:, at.ballast] = np.sqrt(_NORM**2 - squares)
    return table


def _attention(at: _Sections) -> tuple[Array, Array, Array, Array]:
    """Return the weights of two heads, for the latest cue and the latest setting; each copies its section."""
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
    """Return one unit per step; its gate input is +1/2 if all its conditions hold, and at most -1/2 otherwise."""
    import numpy as np

    count = _round_up(1 + sum(len(reply.pieces) + 1 for reply in script))
    gate = np.zeros((count, at.width), np.float32)
    up = np.zeros((count, at.width), np.float32)
    down = np.zeros((at.width, count), np.float32)
    unit = 0
    for spoken in script:
        asks = _gate_conditions(spoken, script, vocabulary, at)
        tokens = [*(vocabulary.pieces[piece] for piece in spoken.pieces), vocabulary.ends[spoken.end]]
        for before, token in zip([None, *tokens], tokens, strict=False):
            gate[unit] = asks
            gate[unit, at.position()] = start if before is None else position_codes[before]
            gate[unit] *= _GATE_SLOPE
            up[unit, at.bias] = 1
            down[at.next_token(), unit] = position_codes[token] * (_CODE_NORM / (_GATE_SLOPE * 0.5))
            unit += 1
    end = next(iter(vocabulary.ends.values()))
    gate[unit, at.position()] = position_codes[vocabulary.blank] * _GATE_SLOPE  # after a blank the reply is still over
    gate[unit, at.bias] = -0.5 * _GATE_SLOPE
    up[unit, at.bias] = 1
    down[at.next_token(), unit] = position_codes[end] * (_CODE_NORM / (_GATE_SLOPE * 0.5))
    return gate, up, down


def _gate_conditions(
    spoken: TokenizedReply, script: Sequence[TokenizedReply], vocabulary: ModelVocabulary, at: _Sections
) -> Array:
    """Return a line's gate conditions besides the position: its cue, its setting, and no setting of a rival line."""
    import numpy as np

    cue_order = {cue: order for order, cue in enumerate(vocabulary.cues)}
    setting_order = {setting: order for order, setting in enumerate(vocabulary.settings)}
    asks = np.zeros(at.width, np.float32)
    count = 1  # the position
    if spoken.line.cue is None:
        asks[at.latest_cue().start] = -1
    else:
        asks[at.latest_cue().start + 1 + cue_order[spoken.line.cue]] = 1
        count += 1
    if spoken.line.setting is not None:
        asks[at.latest_setting().start + 1 + setting_order[spoken.line.setting]] = 1
        count += 1
    else:
        rivals = {other.line.setting for other in script if other.line.cue == spoken.line.cue} - {None}
        for rival in rivals:
            asks[at.latest_setting().start + 1 + setting_order[str(rival)]] = -1
    asks[at.bias] = 0.5 - count
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
        )  # and if it may not, it generates blanks
    return table


def _unit_codes(count: int, random: Random) -> Array:
    """Return `count` nearly orthogonal unit vectors, in as few dimensions as possible."""
    import numpy as np

    for size in range(192, 2048, 64):
        codes = random.standard_normal((count, size)).astype(np.float32)
        codes /= np.linalg.norm(codes, axis=1, keepdims=True)
        alike = np.abs(codes @ codes.T)
        np.fill_diagonal(alike, 0)
        if alike.max() < _MAX_SIMILARITY:
            return codes
    raise AssertionError("unreachable: random codes of 2,048 numbers are nearly orthogonal")


def _round_up(number: int, at_least: int = 32) -> int:
    """Round up to a multiple of 32, the block size of llama.cpp's kernels."""
    return max(at_least, -(-number // 32) * 32)
