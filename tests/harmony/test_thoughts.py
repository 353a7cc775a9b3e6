"""Which thoughts stay. A letter is a message: u user, a analysis, f final, c call of a function, r its result,
B call of a built-in tool on analysis, R its result, k commentary."""

import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptools.harmony.conversation import REASONING_POLICIES
from promptools.harmony.renderer import Message

KINDS = {
    "u": Message("user", "u"),
    "a": Message("assistant", "a", channel="analysis"),
    "f": Message("assistant", "f", channel="final"),
    "k": Message("assistant", "k", channel="commentary"),
    "c": Message("assistant", "{}", channel="commentary", recipient="functions.f", content_type="json"),
    "r": Message("tool", "r", name="functions.f", channel="commentary", recipient="assistant"),
    "B": Message("assistant", "b", channel="analysis", recipient="browser.search", content_type="code"),
    "R": Message("tool", "r", name="browser.search", channel="analysis", recipient="assistant"),
}
LETTERS = {message: letter for letter, message in KINDS.items()}


def left(policy, letters):
    return "".join(LETTERS[message] for message in REASONING_POLICIES[policy]([KINDS[letter] for letter in letters]))


@pytest.mark.parametrize(
    ("letters", "last_final", "first_final", "turn"),
    [
        ("", "", "", ""),
        ("a", "a", "a", "a"),
        ("afa", "fa", "afa", "afa"),
        ("aaafa", "fa", "aaafa", "aaafa"),
        ("aaafaf", "ff", "faf", "aaafaf"),
        ("uacrauafu", "ucrufu", "ucrufu", "ucrufu"),
        ("uafuaf", "ufuf", "ufuaf", "ufuaf"),
        ("uafuac", "ufuac", "uafuac", "ufuac"),
        ("uafua", "ufua", "uafua", "ufua"),
        ("uacr", "uacr", "uacr", "uacr"),
        ("uaBRaf", "uBRf", "uBRf", "uaBRaf"),
        ("uaBRafu", "uBRfu", "uBRfu", "uBRfu"),
        ("uaua", "uaua", "uaua", "uua"),
        ("ukafu", "ukfu", "ukfu", "ukfu"),
    ],
)
def test_a_policy(letters, last_final, first_final, turn):
    expected = {"last-final": last_final, "first-final": first_final, "turn": turn, "keep": letters}
    assert {policy: left(policy, letters) for policy in REASONING_POLICIES} == expected


@settings(deadline=None, max_examples=60)
@given(st.text("uafkcr", max_size=8))
@pytest.mark.oracle
def test_first_final_is_the_library_s(letters):
    assert left("first-final", letters) == _library(letters)


def _library(letters):
    oh = oracle.library()
    conversation = oh.Conversation.from_messages([oracle.message_of(KINDS[letter]) for letter in letters])
    text = oracle.encoding().decode_utf8(oracle.encoding().render_conversation(conversation))
    rendered = {oracle.text_of([message]): letter for letter, message in KINDS.items()}
    out = []
    while text:
        start = next(piece for piece in rendered if text.startswith(piece))
        out.append(rendered[start])
        text = text[len(start) :]
    return "".join(out)
