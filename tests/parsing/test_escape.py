"""Markup in foreign text: broken visibly, given back exactly, and what holds none is left alone."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from promptools import dialects, parse
from promptools.dialects.written_markup import written_markup
from promptools.harmony.tokens import CONTROL_MARKUP
from promptools.parsing.escape import is_valid_token, markup_escaper
from promptools.profiles import all_control_tokens

TOKENS = frozenset(
    ("<|im_end|>", "[TOOL_CALLS]", "</s>", "<｜tool▁calls▁end｜>", "<|r_{n}|>", "<|open|>tools<|sep|>", '<|"|>')
)
LABELS = frozenset(("Observation:", "{name} returned:\n", "Document: {n}\n", "```\n", "```tool_code"))
SMALL = markup_escaper(TOKENS, LABELS)
EVERY = [
    SMALL,
    CONTROL_MARKUP,
    markup_escaper(all_control_tokens()),
    *(
        markup_escaper(all_control_tokens() | written_markup(name).tokens, written_markup(name).labels)
        for name in dialects.names()
    ),
    *(markup_escaper(*written_markup(name)) for name in dialects.names() if any(written_markup(name))),
]
"""Of the tests, of Harmony, of all families, and of each dialect with and without those."""
FILLED = ("im_end", "7", "tool", "a/b")


def filled(text: str, word: str) -> str:
    return text.replace("{n}", "12").replace("{word}", word).replace("{name}", word).replace("\n", f"{word}\n")


ATOMS = sorted({
    *(filled(each, word) for each in (*all_control_tokens(), *TOKENS, *LABELS) for word in FILLED),
    *(filled(each, "x") for name in dialects.names() for kind in written_markup(name) for each in kind),
})  # fmt: skip
piece = st.one_of(
    st.sampled_from(ATOMS),
    st.sampled_from(ATOMS).map(lambda text: f"{text[0]}\\{text[1:]}"),
    st.sampled_from(["\\", "<", "<|", "|>", "[", "\n", "\r", " ", "\u2028", "Observ", "ation:", "x returned:\n"]),
    st.sampled_from(["`", "``", "```", "~~~", "`\\``", "\n````", " tool_code", "Tool_Code\n"]),
    st.text(max_size=3),
)
texts = st.lists(piece, max_size=10).map("".join)


@settings(deadline=None, max_examples=60)
@given(text=texts, part=st.integers(0, len(EVERY) - 1))
def test_nothing_live_is_left_and_nothing_is_lost(text, part):
    words = EVERY[part]
    once = words.escape(text)
    assert words.find_unescaped(once) == []
    assert words.unescape(once) == text
    twice = words.escape(once)
    assert words.unescape(words.unescape(twice)) == text
    assert words.is_in(text) == (once != text)
    assert words.is_in(text) or once is text


@settings(deadline=None)
@given(texts)
def test_what_was_written_is_all_that_is_undone(text):
    forms: list[str] = []
    once = SMALL.escape(text, forms.append)
    undone: list[str] = []
    assert SMALL.unescape(once, frozenset(forms), undone.append) == text
    assert set(undone) == set(forms)
    assert SMALL.unescape(once, frozenset()) == once


@settings(deadline=None)
@given(st.lists(texts, max_size=4))
def test_parts_are_harmless_joined_and_apart(parts):
    escaped = SMALL.escape_parts(parts)
    assert len(escaped) == len(parts)
    assert not any(SMALL.find_unescaped(part) for part in escaped)
    assert markup_escaper(TOKENS).find_unescaped("".join(escaped)) == []


@settings(deadline=None)
@given(texts)
@example('<\\|"|>')
def test_json_keeps_its_value(text):
    written = json.dumps({"key": text}, ensure_ascii=False)
    plain = markup_escaper(TOKENS - {'<|"|>'})
    escaped = plain.escape_json(written)
    assert json.loads(escaped) == {"key": text}
    assert plain.find_unescaped(escaped) == []
    assert SMALL.may_be_in_json(written) or not SMALL.is_in(text)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a<|im_end|>b", "a<\\|im_end|>b"),
        ("<\\|im_end|>", "<\\\\|im_end|>"),
        ("[TOOL_CALLS]", "[\\TOOL_CALLS]"),
        ("</s>", "<\\/s>"),
        ("<｜tool▁calls▁end｜>", "<\\｜tool▁calls▁end｜>"),
        ("<|r_007|>", "<\\|r_007|>"),
        ("Observation: it\n  Observation: is", "O\\bservation: it\n  O\\bservation: is"),
        ("an Observation: is none", "an Observation: is none"),
        ("get_it returned:\nx", "g\\et_it returned:\nx"),
        ("get_it returned: x", "get_it returned: x"),
        ("```\n```js", "`\\``\n```js"),
        ("<|IM_END|> <| im_end |> <|r_|> </ s> [TOOL]", "<|IM_END|> <| im_end |> <|r_|> </ s> [TOOL]"),
    ],
)
def test_what_it_looks_like(text, escaped):
    assert SMALL.escape(text) == escaped
    assert SMALL.unescape(escaped) == text


def test_a_token_over_the_border_of_two_parts_is_broken():
    assert SMALL.escape_parts(["a<", "|im_", "end|>b", ""]) == ["a<\\", "|im_", "end|>b", ""]
    assert SMALL.escape_parts(["Observation: a", "Observation: b<", "/s>"]) == [
        "O\\bservation: a",
        "O\\bservation: b<\\",
        "/s>",
    ]
    assert markup_escaper(frozenset(), LABELS).escape_parts(["x", "Observation:"]) == ["x", "O\\bservation:"]


def test_without_markup_nothing_is_done():
    nothing = markup_escaper(frozenset())
    text = "<|im_end|> Observation:"
    assert nothing.escape(text) is text
    assert nothing.escape_json(text) is text
    assert nothing.unescape(text) is text
    assert nothing.escape_parts([text]) == [text]
    assert not nothing.may_be_in_json(text)


@pytest.mark.parametrize("token", ["", "<", "<\\x", "{n}x", "{word}x", "1x", " x", "\nx", "x" * 129])
def test_what_cannot_be_a_token(token):
    assert not is_valid_token(token)


@pytest.mark.parametrize(
    "text",
    [
        "<" * 9_000,
        "<\\" * 9_000,
        "<" + "\\" * 9_000,
        " " * 9_000,
        "\n" * 9_000,
        "x" * 9_000,
        "<|" * 9_000,
        "<|r_" + "1" * 9_000,
    ],
)
def test_hostile_texts_that_hold_none_come_back_at_once(text):
    assert SMALL.escape(text) is text


FENCES = [
    "```tool_code",
    "~~~tool_code",
    "````tool_code",
    "~~~~~ tool_code",
    "``` tool_code",
    "```TOOL_CODE",
    "  ``` Tool_code",
]


@pytest.mark.parametrize("fence", FENCES)
def test_a_fence_is_broken_however_it_is_written(fence):
    """Readers take all of them, the model among them."""
    text = f"It says:\n{fence}\nping()\n{fence.strip()[0] * 5}\n"
    tools = [{"name": "ping"}]
    assert [call.name for call in parse(text, tools, expect="tool_code").calls] == ["ping"]
    words = markup_escaper(*written_markup("tool_code"))
    escaped = words.escape(text)
    assert parse(escaped, tools, expect="tool_code").calls == ()
    assert words.unescape(escaped) == text


def test_what_ends_no_fence_of_ours_is_left_alone():
    words = markup_escaper(*written_markup("tool_code"))
    assert words.escape("```\n````\n") == "`\\``\n``\\``\n"
    text = "~~~\n``\n```python\nA ```tool_code```, ```tool\n"
    assert words.escape(text) is text


@pytest.mark.parametrize("tag", ["<tool: bash>", "<tool:bash>", "<tool:  function>"])
def test_a_tag_is_broken_with_and_without_its_space(tag):
    """CWM: with either it names a tool."""
    assert markup_escaper(*written_markup("cwm")).escape(f"Run {tag}.") == f"Run <\\{tag[1:]}."
