"""Text as tokens and words, however it is cut."""

import pytest

from promptools.harmony.tokens import TOKEN_NAMES, HarmonyToken, HarmonyTokenizer


def pieces(chunks, **options):
    """Scan; words that stand side by side are joined."""
    scanner = HarmonyTokenizer(**options)
    split = [piece for chunk in chunks for piece in scanner.feed(chunk)] + list(scanner.close())
    out = []
    for piece in split:
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        else:
            out.append(piece)
    return out


def token(name, raw=""):
    return HarmonyToken(name, raw or f"<|{name}|>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("words", ["words"]),
        *((f"a<|{name}|>b", ["a", token(name), "b"]) for name in TOKEN_NAMES),
        ("<|start|><|start|>", [token("start"), token("start")]),
        ("<|<|end|>|>", ["<|", token("end"), "|>"]),
        ("<|en", ["<|en"]),
        ("a <", ["a <"]),
        ("<|end|", ["<|end|"]),
        ("<|END|>", ["<|END|>"]),
        ("<|end |>", ["<|end |>"]),
        ("<|refusal|>", ["<|refusal|>"]),
        ("<|endof|><|endoftext|>", ["<|endof|>", token("endoftext")]),
        ("<|sta\nrt|>", ["<|sta\nrt|>"]),
    ],
)
def test_tokens_and_words(text, expected):
    assert pieces([text]) == expected
    assert pieces(text) == expected
    for at in range(1, len(text)):
        assert pieces([text[:at], text[at:]]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|sta\nrt|>a", [token("start", "<|sta\nrt|>"), "a"]),
        ("<\r\n|end|\n\n>", [token("end", "<\r\n|end|\n\n>")]),
        ("<\n", ["<\n"]),
        ("a<\nb", ["a<\nb"]),
        ("<\n<|end|>", ["<\n", token("end")]),
    ],
)
def test_line_ends_inside_a_token(text, expected):
    for chunks in ([text], text, *([text[:at], text[at:]] for at in range(1, len(text)))):
        assert pieces(chunks, broken=True) == expected


def test_words_go_out_at_once_but_for_what_may_become_a_token():
    scanner = HarmonyTokenizer()
    assert list(scanner.feed("It rains <|cha")) == ["It rains "]
    assert not scanner.is_plain("t")
    assert list(scanner.feed("t")) == ["<|chat"]
    assert scanner.is_plain("words")
    assert not scanner.is_plain("a < b")
