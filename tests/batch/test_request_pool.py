"""How often a request is sent, how long the server is waited for, and what ends a run."""

import asyncio
import itertools

import pytest

from promptools.batch import request_pool
from promptools.batch.answering import BatchAnswer, BatchRequest, LineProblem, TemporaryFailureError, read_retry_after
from promptools.batch.request_pool import AdaptiveLimit, RequestPool
from promptools.errors import PromptoolsError, UpstreamError

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def short_waits(monkeypatch):
    monkeypatch.setattr(request_pool, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(request_pool, "LONGEST_WAIT", 0.01)


def requests(count):
    return (BatchRequest(line, f"r{line}", "/v1/chat/completions", {}) for line in range(1, count + 1))


def success(request):
    return BatchAnswer(request.line, {"custom_id": request.custom_id})


def run(send, given, *, patience=60.0, most=4):
    """Run a pool; return its answers by line."""
    answers = []

    async def go():
        async with asyncio.timeout(300):
            await RequestPool(send, AdaptiveLimit(most), patience=patience).run(iter(given), answers.append)

    try:
        asyncio.run(go())
    finally:
        assert len({answer.line for answer in answers}) == len(answers)
    return {answer.line: answer for answer in answers}


def test_what_fails_for_now_is_sent_again():
    tries = {}

    async def send(request):
        tries[request.line] = tries.get(request.line, 0) + 1
        if tries[request.line] < request.line % 5:
            raise TemporaryFailureError("busy", retry_after=0.001 if request.line % 2 else None)
        return success(request)

    answers = run(send, requests(50))
    assert len(answers) == 50
    assert not any(answer.problem for answer in answers.values())
    assert tries == {line: max(1, line % 5) for line in range(1, 51)}


def test_a_server_that_is_away_for_too_long_ends_the_run():
    async def send(request):
        raise TemporaryFailureError("connection refused")

    with pytest.raises(UpstreamError, match=r"no request for 0\.05 s: connection refused"):
        run(send, requests(10), patience=0.05)


def test_a_request_that_alone_is_not_answered_has_failed():
    async def send(request):
        await asyncio.sleep(0.001)
        if request.line == 2:
            raise TemporaryFailureError("timed out")
        return success(request)

    answers = run(send, requests(400), patience=0.05)
    assert len(answers) == 400
    assert answers[2].problem.code == "no_response"
    assert answers[2].result["error"]["message"] == "no response: timed out"
    assert [line for line, answer in answers.items() if answer.problem] == [2]


def test_a_request_that_may_be_the_reason_is_sent_three_times():
    sent = []

    async def send(request):
        sent.append(request.line)
        if request.line == 2:
            failure = TemporaryFailureError("HTTP 500", may_be_request=True)
            failure.answer = BatchAnswer(2, {"response": {"status_code": 500}})
            raise failure
        return success(request)

    answers = run(send, requests(3))
    assert sent.count(2) == 3
    assert answers[2].result == {"response": {"status_code": 500}}


def test_invalid_lines_are_recorded_and_not_sent():
    async def send(request):
        assert request.line != 2
        return success(request)

    given = [
        *requests(1),
        LineProblem(2, "x", "invalid_line", "no url", "write one"),
        *itertools.islice(requests(4), 2, 4),
    ]
    answers = run(send, given)
    assert sorted(answers) == [1, 2, 3, 4]
    assert answers[2].result["error"] == {"code": "invalid_line", "message": "no url"}


def test_what_cannot_be_recorded_ends_the_run():
    sent = []

    async def send(request):
        sent.append(request.line)
        return success(request)

    def record(answer):
        raise PromptoolsError("the disk is full")

    async def go():
        await RequestPool(send, AdaptiveLimit(4), patience=60).run(requests(1000), record)

    with pytest.raises(PromptoolsError, match="the disk is full"):
        asyncio.run(go())
    assert len(sent) <= 4


def test_no_more_are_read_than_may_be_under_way():
    read = answered = 0
    ahead = 0

    def given():
        nonlocal read
        for request in requests(300):
            read += 1
            yield request

    async def send(request):
        nonlocal ahead, answered
        ahead = max(ahead, read - answered)
        await asyncio.sleep(0)
        answered += 1
        return success(request)

    assert len(run(send, given(), most=5)) == 300
    assert ahead <= 10


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_retry_after(headers, seconds):
    assert read_retry_after(headers) == seconds


def test_retry_after_as_a_date():
    assert read_retry_after({"retry-after": "Fri, 31 Dec 2199 23:59:59 GMT"}) > 1e9
