"""Where the model's turn ends in text that goes on: the pieces in which it comes do not matter."""

from hypothesis import given
from hypothesis import strategies as st

from promptools.modes.reply_reader import TurnEnd

ENDS = ("<|im_end|>\n<|im_start|>", "<|im_end|>\n<|x", "</s>", "ababc")


def read(pieces, ends=ENDS):
    turn = TurnEnd(ends)
    passed = [turn.feed(piece) for piece in pieces]
    return "".join(passed) + turn.close(), turn.discarded


def test_the_first_end_counts():
    assert read(["Hi</s>a<|im_end|>\n<|im_start|>b"]) == ("Hi", "</s>a<|im_end|>\n<|im_start|>b")
    assert read(["Hi<|im_end|>\n", "<|im_start|>", "b"]) == ("Hi", "<|im_end|>\n<|im_start|>b")
    assert read(["</s>"]) == ("", "</s>")


def test_what_is_not_an_end_is_passed_on():
    assert read(["<|im_end|>\n<|im_", "end|>"]) == ("<|im_end|>\n<|im_end|>", "")
    assert read(["a<"]) == ("a<", "")
    assert read([]) == ("", "")
    assert read(["</s>"], ends=()) == ("</s>", "")


def test_no_more_is_held_back_than_may_be_an_end():
    turn = TurnEnd(ENDS)
    assert turn.feed("Hi <") == "Hi "
    assert turn.feed("b> <|im_end|>") == "<b> "
    assert turn.feed("\n<|y") == "<|im_end|>\n<|y"
    assert turn.feed("abab") == ""
    assert turn.feed("abab") == "abab"
    assert turn.feed("c, and more") == ""
    assert (turn.close(), turn.discarded) == ("", "ababc, and more")
    assert turn.feed("after") == ""


def test_an_end_inside_another_that_began_before_it():
    ends = ("abc", "b")
    assert read(["ab", "c"], ends) == read(["abc"], ends) == ("", "abc")
    assert read(["ab", "d"], ends) == read(["abd"], ends) == ("a", "bd")
    assert read(["ab"], ends) == ("a", "b")


LETTERS = st.sampled_from(
    ["<|im_end|>", "\n", "<|im_start|>", "<|x", "</s>", "<", "|", "a", "b", "ab", "c", "im_end|>"]
)


@given(st.lists(LETTERS, max_size=30).map("".join), st.lists(st.integers(1, 40), max_size=40))
def test_pieces_do_not_matter(text, sizes):
    whole = read([text])
    pieces, rest = [], text
    for size in sizes:
        pieces, rest = [*pieces, rest[:size]], rest[size:]
    assert read([*pieces, rest]) == whole
    assert read(list(text)) == whole
    passed, cut = whole
    assert passed + cut == text
    first = min((at for end in ENDS if (at := text.find(end)) >= 0), default=len(text))
    assert len(passed) == first


@given(
    st.text(alphabet="<|ab\n", max_size=60), st.lists(st.text(alphabet="<|ab\n", min_size=1, max_size=6), max_size=4)
)
def test_any_ends(text, ends):
    passed, cut = read(list(text), tuple(ends))
    assert passed + cut == text
    assert len(passed) == min((at for end in ends if (at := text.find(end)) >= 0), default=len(text))


def test_long_text_costs_what_it_is_long():
    size = 200_000
    passed, cut = read(["<|im_end|>\n<|im_"] * (size // 16))
    assert (len(passed), cut) == (16 * (size // 16), "")
