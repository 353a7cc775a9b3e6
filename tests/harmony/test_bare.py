"""Headers without their tokens, found in words."""

import pytest

from promptools.harmony.stripped_headers import StrippedHeaderFinder
from promptools.harmony.tokens import HarmonyToken, HarmonyTokenizer


def pieces(chunks, known=None):
    """Find the headers; a header as a tuple, words that stand side by side joined."""
    scanner, bare = HarmonyTokenizer(), StrippedHeaderFinder(known)
    given = [piece for chunk in chunks for piece in scanner.feed(chunk)] + list(scanner.close())
    out = []
    for item in [*(replaced for piece in given for replaced in bare.feed(piece)), *bare.close()]:
        if isinstance(item, str) and out and isinstance(out[-1], str):
            out[-1] += item
        else:
            out.append(item)
    return [item.raw or f"({item.name})" if isinstance(item, HarmonyToken) else item for item in out]


def header(words):
    return ["(start)", words, "(message)"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("words", ["words"]),
        ("analysisWe", [*header("analysis"), "We"]),
        ("  analysisWe", ["  ", *header("analysis"), "We"]),
        ("assistantanalysisWe", [*header("assistantanalysis"), "We"]),
        ("commentaryI look", [*header("commentary"), "I look"]),
        ('final{"a": 1}', [*header("final"), '{"a": 1}']),
        ("finally", ["finally"]),
        ("analysis of it", ["analysis of it"]),
        ("x.assistantfinalFour", ["x.", *header("assistantfinal"), "Four"]),
        ("x.assistantfinal", ["x.", *header("assistantfinal")]),
        ("x.assistantfinal  ", ["x.", *header("assistantfinal"), "  "]),
        ("x assistantfinal is y", ["x assistantfinal is y"]),
        ('assistantfinal json {"a": 1}', [*header("assistantfinal json"), ' {"a": 1}']),
        ("assistantfinal jsonish", ["assistantfinal jsonish"]),
        ('x to=functions.f json{"a": 1}', ["x", *header(" to=functions.f json"), '{"a": 1}']),
        ("assistantcommentary to=f code{", [*header("assistantcommentary to=f code"), "{"]),
        ("to=f {", [*header("to=f "), "{"]),
        ("x to=f and words", ["x to=f and words"]),
        ("an assistant", ["an assistant"]),
        (". analysis to=f {", [".", *header(" analysis to=f "), "{"]),
        ("an assistant finally X", ["an assistant finally X"]),
        ("assistant assistantfinalX", ["assistant ", *header("assistantfinal"), "X"]),
        ("x assistant commentary to=f {", ["x ", *header("assistant commentary to=f "), "{"]),
    ],
)
def test_headers_in_words(text, expected):
    for chunks in ([text], text, *([text[:at], text[at:]] for at in range(1, len(text)))):
        assert pieces(chunks) == expected


def test_a_recipient_alone_must_be_a_tool():
    known = {"f"}.__contains__
    assert pieces(["x to=f {"], known) == ["x", *header(" to=f "), "{"]
    assert pieces(["x to=g {"], known) == ["x to=g {"]
    assert pieces(["x to=functions.g {"], known) == ["x", *header(" to=functions.g "), "{"]
    assert pieces(["commentary to=g {"], known) == [*header("commentary to=g "), "{"]


def test_what_looks_like_a_long_header_is_let_go():
    text = "x to=f " + "word " * 100
    assert pieces([text]) == pieces(text) == [text]


def test_text_that_has_its_tokens_means_what_they_say():
    text = "<|channel|>final<|message|>An assistantfinalX<|end|>assistantfinalY"
    assert pieces([text])[-1] == "assistantfinalY"
    assert pieces(["a<|end|>assistantfinalX"]) == ["a", "<|end|>", *header("assistantfinal"), "X"]
