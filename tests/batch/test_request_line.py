"""What a line of a batch file may be, and what is said of the others."""

import json

import pytest

from promptools.batch.answering import BatchRequest, LineProblem, read_request

VALID = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}}


@pytest.mark.parametrize("url", ["/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings"])
def test_requests(url):
    request = read_request(json.dumps({**VALID, "url": url}).encode(), 3)
    assert request == BatchRequest(3, "a", url, VALID["body"])


def test_a_body_that_is_json_as_a_string():
    line = json.dumps({**VALID, "body": json.dumps({"model": "m", "stop": None})})
    assert read_request(line.encode(), 3) == BatchRequest(3, "a", VALID["url"], {"model": "m", "stop": None})


def test_a_byte_order_mark_and_no_method():
    line = json.dumps({name: value for name, value in VALID.items() if name != "method"})
    assert isinstance(read_request(b"\xef\xbb\xbf" + line.encode(), 1), BatchRequest)


@pytest.mark.parametrize(
    ("line", "custom_id", "message"),
    [
        (b"", None, "not valid JSON"),
        (b"{", None, "not valid JSON"),
        (b"\xff\xfe", None, "not valid JSON"),
        (b"[" * 100_000, None, "not valid JSON"),
        (b"[1]", None, "not a JSON object"),
        ({**VALID, "custom_id": ""}, None, "'custom_id' is ''"),
        ({**VALID, "custom_id": 7}, None, "'custom_id' is 7"),
        ({**VALID, "method": "GET"}, "a", "'method' is 'GET'"),
        ({**VALID, "url": "/v1/files"}, "a", "'url' is '/v1/files'"),
        ({**VALID, "url": ["/v1/embeddings"]}, "a", "'url' is ["),
        ({**VALID, "body": None}, "a", "'body' is None"),
        ({**VALID, "body": "{"}, "a", "'body' is not valid JSON: Expecting property name"),
        ({**VALID, "body": "[1]"}, "a", "'body' is [1]"),
        ({**VALID, "body": "[" * 100_000}, "a", "'body' is not valid JSON"),
        ({**VALID, "body": {"temperature": float("nan")}}, None, "not valid JSON: NaN is not a JSON number"),
        (
            {**VALID, "body": '{"temperature": -Infinity}'},
            "a",
            "'body' is not valid JSON: -Infinity is not a JSON number",
        ),
        ({**VALID, "body": {"stream": True}}, "a", "'stream' is set"),
        ({**VALID, "body": {"model": 1}}, "a", "'model' is 1"),
    ],
)
def test_invalid_lines(line, custom_id, message):
    problem = read_request(line if isinstance(line, bytes) else json.dumps(line).encode(), 9)
    assert isinstance(problem, LineProblem)
    assert (problem.line, problem.custom_id, problem.code) == (9, custom_id, "invalid_line")
    assert message in problem.message
    assert problem.advice
