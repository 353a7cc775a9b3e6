import numpy as np
import pytest

from promptools.errors import UsageError
from promptools.lab.script import ScriptedReply, read_script
from promptools.lab.scripted_model import make_vocabulary, make_weights, write_model

pytestmark = pytest.mark.exhaustive

LINES = [
    ScriptedReply("What is the weather?", "Let me look at the weather for you, Grüße 🙂."),
    ScriptedReply("What is the weather?", "In another setting.", setting="Answer in JSON."),
    ScriptedReply("And in Rome?", "Sunny.<|return|>"),
    ScriptedReply(None, "I know only the weather."),
]


def forward(script, words, weights, prompt):
    """Run the model in NumPy, greedily, to the end token: an implementation of Llama that shares nothing with ours."""
    tensors, head = weights.tensors, weights.shape.head
    ends, tokens, said = set(words.ends.values()), list(prompt), []

    def norm(rows, weight):
        return rows / np.sqrt((rows**2).mean(axis=1, keepdims=True)) * weight

    def rope(rows):
        turned = rows.astype(np.float64).reshape(len(rows), 2, head // 2, 2)
        angles = np.arange(len(rows))[:, None] * 1e9 ** (-np.arange(head // 2) / (head // 2))
        cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
        a, b = turned[..., 0], turned[..., 1]
        return np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(len(rows), 2, head)

    while not said or said[-1] not in ends:
        stream = tensors["token_embd.weight"][tokens]
        seen = norm(stream, tensors["blk.0.attn_norm.weight"])
        query = rope(seen @ tensors["blk.0.attn_q.weight"].T)[-1]
        key = rope(seen @ tensors["blk.0.attn_k.weight"].T)
        value = (seen @ tensors["blk.0.attn_v.weight"].T).reshape(len(tokens), 2, head)
        scores = np.einsum("hd,nhd->hn", query, key) / np.sqrt(head)
        share = np.exp(scores - scores.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        got = np.einsum("hn,nhd->hd", share, value).reshape(1, -1)
        last = stream[-1:] + got @ tensors["blk.0.attn_output.weight"].T
        seen = norm(last, tensors["blk.0.ffn_norm.weight"])
        gate = seen @ tensors["blk.0.ffn_gate.weight"].T
        opened = gate / (1 + np.exp(-np.clip(gate, -80, 80))) * (seen @ tensors["blk.0.ffn_up.weight"].T)
        last = last + opened @ tensors["blk.0.ffn_down.weight"].T
        logits = norm(last, tensors["output_norm.weight"]) @ tensors["output.weight"].T
        said.append(int(logits[0].argmax()))
        tokens.append(said[-1])
    return said


def tokenize(words, text):
    """Find markers, longest first, and take the rest byte by byte, as llama.cpp does."""
    marks = sorted((text for text, kind in zip(words.texts, words.kinds, strict=True) if kind == "marker"), key=len)
    ids, at = [], 0
    while at < len(text):
        mark = next((mark for mark in reversed(marks) if text.startswith(mark, at)), None)
        if mark is not None:
            ids.append(words.texts.index(mark))
            at += len(mark)
        else:
            ids.extend(text[at].encode())
            at += 1
    return ids


@pytest.fixture(scope="module")
def model():
    script = read_script(LINES)
    words = make_vocabulary(script)
    return script, words, make_weights(script, words)


@pytest.mark.parametrize(
    ("prompt", "line"),
    [
        ("user: What is the weather?\nassistant: ", 0),
        ("system: Answer in JSON.\nuser: What is the weather?\n", 1),
        ("user: What is the weather? " + "x" * 300 + "And in Rome?", 2),
        ("And in Rome? or rather: What is the weather?", 0),
        ("What is the weather?" + " more words" * 900, 0),
        ("Answer in JSON. And in Rome?", 2),
        ("hello", 3),
    ],
)
def test_the_latest_cue_and_setting_choose_the_line(model, prompt, line):
    script, words, weights = model
    spoken = script[line]
    expected = [*(words.pieces[piece] for piece in spoken.pieces), words.ends[spoken.end]]
    assert forward(script, words, weights, tokenize(words, prompt)) == expected


def test_a_file_that_is_there_is_kept(tmp_path):
    path = write_model(LINES, tmp_path)
    before = path.stat().st_mtime_ns
    assert write_model(LINES, tmp_path) == path
    assert path.stat().st_mtime_ns == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes()[:4] == b"GGUF"


def test_another_script_is_another_file(tmp_path):
    assert write_model(LINES[:1], tmp_path) != write_model(LINES[1:], tmp_path)


def test_a_cue_that_is_also_a_piece_of_a_reply_is_refused(tmp_path):
    piece = read_script([ScriptedReply("a", "hello there")])[0].pieces[0].decode()
    with pytest.raises(UsageError, match="would be two tokens"):
        write_model([ScriptedReply("a", "hello there"), ScriptedReply(piece, "well")], tmp_path)
