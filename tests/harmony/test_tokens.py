"""Control tokens in what people, tools and files said."""

import re

import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptools.harmony.tokens import CONTROL_MARKUP, TOKEN_IDS

NAMES = [*TOKEN_IDS, "reserved_200014", "reserved_7"]
LIVE = re.compile("|".join(re.escape(f"<|{name}|>") for name in TOKEN_IDS) + r"|<\|reserved_[0-9]+\|>")
pieces = st.sampled_from(["<", "|", ">", "\\", "<|", "|>", *NAMES, *(f"<|{name}|>" for name in NAMES), "<\\|end|>"])
texts = st.lists(pieces | st.text(max_size=3), max_size=12).map("".join)


@pytest.mark.parametrize("name", NAMES)
def test_a_control_token_is_broken_visibly(name):
    assert CONTROL_MARKUP.escape(f"a<|{name}|>b") == f"a<\\|{name}|>b"


@pytest.mark.parametrize(
    "text", ["", "plain", "<|", "|>", "<|endx|>", "<|END|>", "<| end |>", "<|refusal|>", "a < b | c > d", "<\\|", "\\"]
)
def test_what_is_none_stays(text):
    assert CONTROL_MARKUP.escape(text) == CONTROL_MARKUP.unescape(text) == text


def test_every_further_escape_adds_a_stroke():
    assert CONTROL_MARKUP.escape("<\\|end|>") == "<\\\\|end|>"
    assert CONTROL_MARKUP.unescape("<\\\\|end|>") == "<\\|end|>"
    assert CONTROL_MARKUP.unescape("<|end|>") == "<|end|>"


@settings(deadline=None)
@given(texts)
def test_nothing_live_is_left_and_nothing_is_lost(text):
    once = CONTROL_MARKUP.escape(text)
    assert not LIVE.search(once)
    assert CONTROL_MARKUP.unescape(once) == text
    twice = CONTROL_MARKUP.escape(once)
    assert not LIVE.search(twice)
    assert CONTROL_MARKUP.unescape(CONTROL_MARKUP.unescape(twice)) == text
    assert (once == text) == (LIVE.search(text) is None and CONTROL_MARKUP.unescape(text) == text)


@pytest.mark.oracle
def test_the_ids_are_the_vocabulary_s():
    encoding = oracle.encoding()
    names = {**{name: name for name in TOKEN_IDS}, "endofprompt": "reserved_200018"}
    given = {name: encoding.encode(f"<|{its}|>", allowed_special="all") for name, its in names.items()}
    assert given == {name: [value] for name, value in TOKEN_IDS.items()}


@pytest.mark.oracle
def test_no_special_token_has_another_name():
    special = oracle.encoding().special_tokens_set
    assert {name for name in special if "reserved" not in name} == {f"<|{name}|>" for name in TOKEN_IDS} - {
        "<|endofprompt|>"
    }
    assert all(LIVE.fullmatch(name) for name in special)
