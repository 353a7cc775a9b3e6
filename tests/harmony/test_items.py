"""Nearly every piece of a reply is content and takes the short way: it must give what the long way gives."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptools.errors import ModelError
from promptools.harmony.parser import Detokenizer, ItemParser
from promptools.harmony.tokens import TOKEN_IDS, TOKEN_NAMES, HarmonyToken, HarmonyTokenizer

WORDS = [
    "assistant",
    "analysis",
    "commentary",
    "final",
    " to=functions.f",
    "json",
    '{"a": 1}',
    "a",
    "as",
    "an ant",
    "\n",
]
pieces = st.lists(
    st.sampled_from([*WORDS, *(f"<|{name}|>" for name in TOKEN_NAMES), "<", "<|", "", "x<y"]), max_size=12
)
cuts = st.lists(st.integers(0, 60), max_size=8)


def items(chunks, *, strict):
    parser = ItemParser("assistant", strict=strict)
    items = []
    try:
        for chunk in chunks:
            items += parser.feed(chunk)
        items += parser.close()
    except ModelError as error:
        items.append(str(error))
    return items


@pytest.mark.parametrize("strict", [False, True])
@settings(deadline=None)
@given(pieces, cuts)
def test_the_short_way_says_what_the_long_way_says(strict, words, at):
    words = ["<|channel|>final<|message|>", *words]
    text = "".join(words)
    bounds = sorted({0, len(text), *(cut for cut in at if cut < len(text))})
    for chunks in (words, [text[a:b] for a, b in pairwise(bounds)], list(text)):
        short = items(chunks, strict=strict)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HarmonyTokenizer, "is_plain", lambda self, text: False)
            assert items(chunks, strict=strict) == short


def test_words_take_the_short_way(monkeypatch):
    parser = ItemParser("assistant")
    parser.feed("<|channel|>final<|message|>")
    monkeypatch.setattr(HarmonyTokenizer, "feed", lambda self, text: pytest.fail(f"{text!r} went the long way"))
    assert [item.raw for word in ("It ", "rains", ".") for item in parser.feed(word)] == ["It ", "rains", "."]
    with pytest.raises(pytest.fail.Exception):
        parser.feed("an assist")


def test_ids_of_no_ordinary_token_are_shown_by_their_names():
    tokens = Detokenizer({0: b"\xf0\x9f", 1: b"\xa7\xa5"}.__getitem__)
    assert list(tokens.feed([0, 1, TOKEN_IDS["startoftext"], 200_014, 0])) == [
        "🧥",
        "<|startoftext|>",
        "<|reserved_200014|>",
    ]
    assert list(tokens.feed([TOKEN_IDS["end"]])) == ["\ufffd", HarmonyToken("end", "<|end|>")]
    assert list(tokens.close()) == []
