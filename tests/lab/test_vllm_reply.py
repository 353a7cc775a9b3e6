"""A scripted reply under a grammar: what is forbidden is left out, and what the grammar writes itself is let happen."""

import math

import numpy as np
import pytest
from rig.inside_vllm.scripted.reply import ReplyProgress

ALPHABET = [chr(code) for code in range(32, 127)]
END = len(ALPHABET)
IDS = {letter: at for at, letter in enumerate(ALPHABET)}


def speak(text, grammar, most=60):
    """Return what comes out: `grammar` says which letters may follow what was said, "" for the end; None for all."""
    out: list[int] = []
    reply = ReplyProgress([*(IDS[letter] for letter in text), END], out)
    said = ""
    while len(said) < most:
        may = grammar(said)
        scores = np.full(END + 1, 0.0 if may is None else -math.inf)
        for letter in may or ():
            scores[END if letter == "" else IDS[letter]] = 0.0
        token = reply.next(scores)
        assert reply.next(scores) == token, "asked again before anything came out it says the same"
        if token is None:
            token = int(np.flatnonzero(scores == 0)[0])
        assert scores[token] == 0
        if token == END:
            return said
        out.append(token)
        said += ALPHABET[token]
    return said


def dictated(*parts):
    """Make a grammar of fixed texts, and None for any letters up to a `.`"""

    def grammar(said):
        at = 0
        for part in parts:
            if part is None:
                stop = said.find(".", at)
                if stop < 0:
                    return None
                at = stop + 1
            elif said[at : at + len(part)] == part:
                at += len(part)
            else:
                return [part[len(said) - at]]
        return [""]

    return grammar


def test_what_is_free_comes_word_for_word():
    assert speak("Hello, you.", lambda said: None) == "Hello, you."


def test_what_a_grammar_does_not_want_is_left_out():
    letters = [*ALPHABET[33:59], ""]  # A to Z
    assert speak("a Big, Red, cAr", lambda said: letters) == "BRA"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<call>\n{name: x.", "<call>{name: x."),
        ("<call>{name: x.", "<call>{name: x."),
        ("x.", "<call>{name: x."),
    ],
)
def test_a_text_that_the_grammar_has_is_not_said_twice(text, said):
    assert speak(text.replace("\n", " "), dictated("<call>{name: ", None)) == said


def test_a_fence_that_the_grammar_does_not_want_is_left_out():
    # few letters may come: that alone does not say that the grammar speaks
    def grammar(said):
        return ["{", " "] if not said.strip() else None if not said.endswith("}") else ["", " "]

    assert speak("```json {a: b}```", grammar) == " {a: b}"


def test_what_a_grammar_wants_comes_from_the_grammar():
    assert speak("<m>free.", dictated("<m>", "json ", None)) == "<m>json free."


def test_where_the_reply_is_over_the_model_says_what_it_likes():
    assert speak("ab", lambda said: ["x"] if len(said) < 5 else [""]) == "xxxxx"


def test_a_token_of_which_a_grammar_wants_only_the_beginning_is_said_in_parts():
    # 0 `a`, 1 `b`, 2 `ab`, 3 the end
    reply = ReplyProgress([2, 3], [], splits=lambda token: [[0, 1]] if token == 2 else [])
    assert reply.next(np.array([0, -math.inf, -math.inf, 0])) == 0
    assert reply.tokens == [0, 1, 3]
    reply.generated.append(0)
    assert reply.next(np.array([-math.inf, -math.inf, -math.inf, 0])) == 3


def test_a_reply_that_was_put_aside_goes_on():
    out = [IDS[letter] for letter in "Hel"]
    reply = ReplyProgress([*(IDS[letter] for letter in "Hello"), END], out, next_index=3, generated_count=3)
    scores = np.zeros(END + 1)
    assert reply.next(scores) == IDS["l"]
