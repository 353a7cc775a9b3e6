"""Where Harmony begins in any text: what is certain from its first characters stays certain."""

import pytest

from promptools.harmony.messages import harmony_header_begins
from promptools.harmony.stripped_headers import stripped_header_begins
from promptools.parsing.parts import NEED_MORE

TRUE = [
    "<|channel|>final<|message|>x",
    "<|channel|>??<|message|>x",
    "<|start|>user<|message|>x",
    "<|start|>assistant to=f<|channel|>commentary json<|message|>{}",
    "<|channel|>commentary to=functions.f json{",
    '<|channel|>final {"a": 1}',
    "<|channel|>final words<|end|>",
    "<|start|>assistant<|end|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>x",
    "<|end|>\n<|channel|>??<|message|>x",
    "<|end|>assistant<|channel|>final",
    "<|message|>x",
    "<|start|>\n to=f {",
]
FALSE = [
    "<|channel|> is a token",
    "<|channel|> goes before <|message|>",
    "<|channel|>hm",
    "<|channel|>hm\n",
    "<|start|>hm<|end|>",
    "<|start|>assistant replies.",
    "<|start|>json {",
    "<|constrain|>json {",
    "<|end|> and so on",
    "<|end|>assist me",
    "<|end|><|end|>",
    "<|channel|>final" + " x" * 200,
]


@pytest.mark.parametrize("text", TRUE)
def test_a_header_begins(text):
    assert harmony_header_begins(text, 0, first=True, final=False) is True


@pytest.mark.parametrize("text", FALSE)
def test_tokens_are_named(text):
    assert harmony_header_begins(text, 0, first=True, final=True) is False
    assert harmony_header_begins(text + " x" * 200, 0, first=True, final=False) is False


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("text", [*TRUE, *FALSE])
def test_what_is_certain_stays_certain(text, first):
    known = NEED_MORE
    for end in range(1, len(text) + 1):
        if text[:end].startswith(("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>")):
            now = harmony_header_begins(text[:end], 0, first=first, final=False)
            assert known is NEED_MORE or now is known, text[:end]
            known = now


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|end|>", False),
        ("<|channel|>", False),
        ("<|channel|>final", True),
        ("<|channel|>final words", False),
        ("<|start|>assistant", False),
        ("<|channel|>final<|mess", False),
        ("<|end|>assistant<|cha", False),
    ],
)
def test_at_the_end_of_the_text_nothing_more_is_awaited(text, expected):
    assert harmony_header_begins(text, 0, first=True, final=False) is NEED_MORE
    assert harmony_header_begins(text, 0, first=True, final=True) is expected


def test_behind_words_more_is_asked_for():
    for text in ("<|message|>x", "<|channel|>??<|message|>x"):
        assert harmony_header_begins(f"hm {text}", 3, first=False, final=False) is False
    assert harmony_header_begins("hm <|channel|>final<|message|>x", 3, first=False, final=False) is True


@pytest.mark.parametrize(
    ("text", "first", "expected"),
    [
        ("analysisWe need", True, True),
        ("analysis", True, NEED_MORE),
        ("analysis of", True, False),
        ("assistantfinalFour", False, True),
        ("assistantfinal", False, NEED_MORE),
        ("assistantfinal is", False, False),
        ("assistantfinal ", False, NEED_MORE),
        ("assistantfinal\nFour", False, True),
        ("assistant<|channel|>", False, True),
        (" to=functions.f {", False, True),
        (" to=functions.f js", False, NEED_MORE),
        (" to=f {", False, True),
        (" to=g {", False, False),
        (" to=f and", False, NEED_MORE),
        (" to=f and so it goes on for ever, with more words.", False, False),
        ("assistant", False, NEED_MORE),
        ("comm", True, NEED_MORE),
        ("comma", True, False),
    ],
)
def test_words_that_have_lost_their_tokens(text, first, expected):
    assert stripped_header_begins(text, 0, {"f"}.__contains__, first=first, final=False) is expected
    assert stripped_header_begins(text, 0, {"f"}.__contains__, first=first, final=True) is (expected or False)
