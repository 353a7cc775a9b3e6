"""Strict JSON is read as Python's own parser reads it, whichever parser did."""

from __future__ import annotations

import json
import math

import pytest

from promptools.exchange.response_writer import encode_json
from promptools.wire.json_body import parse_json, parse_object

SURROGATE = "\ud800"


def read(parser, data):
    try:
        return repr(parser(data))
    except (ValueError, RecursionError):
        return "refused"


@pytest.mark.parametrize(
    "text",
    [
        b"NaN", b"-Infinity", b"-NaN", b"Inf", b"-0", b"-0.0", b"1e999", b"01", b"1.", b".5", b"+1", b"1_0", b"0x10",
        b"123456789012345678901234567890", b"1.0000000000000002", b"5e-324", b"9007199254740993.0", b"9" * 4300,
        b"9" * 4301, b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\ude00\\ud83d"', b'"a\x00b"', b'"\x7f"', b'"\xff"',
        b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", b'{"a": 1, "b": 2, "a": 3}', b"\x0b{}", b"{}\x00", b"[1,]", b"[1 2]", b"",
        b'{"a": 1}{"b": 2}', b'"\\x41"', b"'a'", b"True", b"nul", b'"\n"', b"\xc2\xa01", b"[" * 150 + b"]" * 150,
        b"[" * 500 + b"]" * 500, b"[" * 100_000, '{"a": 1}'.encode("utf-16"), '["ä"]'.encode("utf-32"),
    ],
)  # fmt: skip
def test_as_python_reads_it(text):
    assert read(parse_json, text) == read(json.loads, text)


def test_text_with_a_lone_surrogate():
    assert parse_json(f'["{SURROGATE}"]') == [SURROGATE]


@pytest.mark.parametrize(
    "value",
    [1e22, 0.1, -0.0, 5e-324, 1.7976931348623157e308, 2**70, -(2**70), True, None, "ä\x00\x7f\u2028", SURROGATE, [[]]],
)
def test_encoded_and_read_again(value):
    assert repr(json.loads(encode_json({"value": value}))) == repr({"value": value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beside", ["", SURROGATE])
def test_numbers_that_json_lacks(value, beside):
    assert json.loads(encode_json({"value": value, "beside": beside}))["value"] is None


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '"a"', '{"a": 1', "{}{}", '{"a": ' + "[" * 501 + "]" * 501 + "}", b"\xff"]
)
def test_what_is_not_an_object_is_an_empty_one(text):
    assert parse_object(text) == {}


def test_an_object_is_itself():
    assert parse_object(b'{"a": [null]}') == {"a": [None]}
