"""Answers in a form as text, whole and in pieces: what is read, what is left alone, and what it costs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.modes.response_format import AnswerStream, Healed, Unhealed, heal_answer

SKY = {"type": "object", "properties": {"sky": {"type": "string"}, "n": {"type": "integer"}}, "required": ["sky"]}
FITS = '{"sky": "grey"}'
ANYTHING: dict = {}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = st.lists(JSON, max_size=4) | st.dictionaries(st.text(max_size=5), JSON, max_size=4)


def streamed(text, cuts, schema):
    """Return the stream of a text in pieces, and what went out before the end."""
    stream, out = AnswerStream(schema), ""
    ends = [*sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    for start, end in zip([0, *ends], ends, strict=False):
        out += stream.feed(text[start:end])
    return stream, out


@given(CONTAINERS, st.sampled_from([None, 1, "\t"]), st.booleans(), st.lists(st.integers(0, 400), max_size=9))
def test_every_value_goes_out_as_it_is(value, indent, ascii_only, cuts):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    stream, out = streamed(f" {text}", cuts, ANYTHING)
    assert (out, stream.is_plain, stream.is_complete, stream.is_holding) == (f" {text}", True, True, False)
    assert heal_answer(f" {text}\n", ANYTHING) == Healed(f" {text}\n")
    stream, out = streamed(f"```json\n{text}\n```", cuts, ANYTHING)
    assert (out, stream.is_plain) == (text, False)
    fenced = heal_answer(f"```json\n{text}\n```", ANYTHING)
    assert (fenced.text, fenced.cut) == (text, ("```json\n", "\n```"))


@given(
    st.lists(
        st.sampled_from([*'{}[]":, \n`', "'", "```json\n", FITS, "True", "1", "a:", '"sky"', "\\", "\\u00"]), max_size=9
    ),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_what_went_out_is_part_of_the_answer_and_nothing_is_lost(parts, cuts):
    text = "".join(parts)
    whole = heal_answer(text, SKY, convert=False)
    healed = whole.text if isinstance(whole, Healed) else text
    stream, out = streamed(text, cuts, SKY)
    sent = out + stream.rest(healed)
    if isinstance(whole, Healed):
        assert json.loads(sent) == json.loads(whole.text)
    assert sent == healed or (text.endswith(sent) and not text.removesuffix(sent).strip().strip("`~json \n"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("```json\n5\n```", 5),
        ('```\n"grey"\n```', "grey"),
        ("```\n[1, 2]\n```", [1, 2]),
        ("[1, 2,]", [1, 2]),
        ("The list:\n[True, None]", [True, None]),
        ("\ufeff" + FITS, {"sky": "grey"}),
        (FITS + ".", {"sky": "grey"}),
        (f"Hier ist das JSON:\n\n{FITS}\n\nViel Erfolg!", {"sky": "grey"}),
    ],
)
def test_any_value_may_be_the_answer(text, value):
    assert json.loads(heal_answer(text, ANYTHING).text) == value


@pytest.mark.parametrize(
    "text",
    [
        "five", "```\nfive\n```", "```json\n5\n```\n```json\n6\n```", "NaN", "[NaN]", f"{FITS} is it", f"{FITS} [1]",
        f"```json\n{FITS}\n```\nor {{}}", f"It may be {FITS}", f"Sorry, only a sample:\n{FITS}",
        f"{FITS}\nThis is only an example.", f"{FITS}\n{'x' * 301}", f"{'x' * 300}:\n\n{FITS}", "[1, 2", '{"sky": "a',
        "[" * 300, "", " ", "```", "```json\n",
    ],
)  # fmt: skip
def test_nothing_else_is(text):
    assert isinstance(heal_answer(text, SKY), Unhealed)
    assert isinstance(heal_answer(text, None), Unhealed)


def test_what_does_not_fit_is_told_and_kept():
    wrong = heal_answer('```\n{"n": []}\n```', SKY)
    assert (wrong.value.text, wrong.value.cut) == ('{"n": []}', ("```\n", "\n```"))
    assert "/n: [] is an array; wanted an integer" in wrong.why
    assert "answer: the required 'sky' is missing" in wrong.why
    assert heal_answer("[]", None) == Unhealed("the answer is not a JSON object", Healed("[]"))
    assert heal_answer('{"sky": 1}', SKY).text == '{"sky": "1"}'
    assert isinstance(heal_answer('{"sky": 1}', SKY, convert=False), Unhealed)
    assert isinstance(heal_answer("7", {"type": "array"}), Unhealed), "the value itself is not converted"
    assert heal_answer("{}", {"type": "object", "$ref": "#/nowhere"}).text == "{}", "no schema to fit"


@pytest.mark.parametrize(
    "text",
    [
        " " * 20_000, "`" * 20_000, "{" + " " * 20_000, '{"' + "a" * 20_000, "[" + "1," * 10_000, "[" + "1" * 20_000,
        "{" * 20_000, "```json\n" + " " * 20_000, '{"a": 1}' + " \n" * 10_000, '["' + "\\u12" * 5_000,
        "Words: " * 3_000,
    ],
)  # fmt: skip
def test_a_stream_costs_what_it_is_long(text):
    """What is not read yet is short, so no character is joined or matched again and again."""
    stream, read = AnswerStream(ANYTHING), 0
    for char in text:
        read += len(stream._open) + 1
        stream.feed(char)
    assert read <= 401 * 401 + 70 * 70 + 2 * len(text)
