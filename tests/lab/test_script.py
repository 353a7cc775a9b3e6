import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.errors import UsageError
from promptools.lab.script import ScriptedReply, SpecialTokens, cues, cut_pieces, read_script, settings
from promptools.lab.scripted_model import make_vocabulary


@given(st.binary(min_size=2, max_size=2000) | st.text("ab", min_size=2).map(str.encode))
def test_pieces_join_to_the_text_and_no_two_are_alike(text):
    pieces = cut_pieces(text)
    assert b"".join(pieces) == text
    assert len(set(pieces)) == len(pieces)
    assert all(len(piece) >= 2 for piece in pieces)


def test_the_same_text_is_always_cut_the_same_way():
    assert cut_pieces(b"It is sunny in Paris.") == cut_pieces(b"It is sunny in Paris.")


def test_nothing_to_say_is_not_a_piece():
    assert cut_pieces(b"") == ()


def test_an_end_token_closes_the_line_and_is_no_part_of_it():
    (call, said) = read_script([ScriptedReply("a", "text<|call|>"), ScriptedReply("b", "text")])
    assert (call.end, b"".join(call.pieces)) == ("<|call|>", b"text")
    assert said.end == "<|im_end|>"


def test_cues_and_settings_are_listed_once():
    script = read_script(
        [
            ScriptedReply("a", "xx"),
            ScriptedReply("a", "yy", setting="s"),
            ScriptedReply("b", "zz", setting="s"),
            ScriptedReply(None, "??"),
        ]
    )
    assert (cues(script), settings(script)) == (("a", "b"), ("s",))


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([], "no lines"),
        ([ScriptedReply("a", "xx"), ScriptedReply("a", "yy")], "two lines answer cue 'a'"),
        ([ScriptedReply("", "xx")], "empty"),
        ([ScriptedReply("a", "xx", setting="")], "empty"),
        ([ScriptedReply(None, "xx", setting="s")], "has no cue"),
        ([ScriptedReply("a", "x")], "one byte"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused(lines, wrong):
    with pytest.raises(UsageError, match=wrong):
        read_script(lines)


def test_special_tokens_are_pieces_of_their_own():
    special = SpecialTokens(("[CALL]",), bos="<s>", eos="</s>")
    (reply,) = read_script([ScriptedReply("a", "[CALL]get it now</s>")], special)
    assert (reply.pieces[0], b"".join(reply.pieces), reply.end) == (b"[CALL]", b"[CALL]get it now", "</s>")
    assert read_script([ScriptedReply("a", "well")], special)[0].end == "</s>"


def test_a_special_token_that_comes_twice_is_refused():
    with pytest.raises(UsageError, match="twice in the reply"):
        read_script([ScriptedReply("a", "[CALL]one[CALL]two")], SpecialTokens(("[CALL]",)))


def test_words_are_tokens_of_a_prompt_and_of_no_reply():
    said = "It is sunny in Paris, and it rains in Rome."
    words = tuple(piece.decode() for piece in cut_pieces(said.encode())[:3])
    special = SpecialTokens(words=words)
    vocabulary = make_vocabulary(read_script([ScriptedReply(None, said)], special), special)
    kinds = dict(zip(vocabulary.texts, vocabulary.kinds, strict=True))
    assert {kinds[word] for word in words} == {"marker"}
    assert not {word.encode() for word in words} & {*vocabulary.pieces}
