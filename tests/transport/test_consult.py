"""Computations that ask the server while they run, over real sockets, with blocking calls and on an event loop."""

import asyncio
import threading

import pytest
from upstream import Answer, running
from waiting import LONG

from promptools.exchange import Consult, Emit, Request, ResponseHead
from promptools.transport import installed_library, intercept

HEADERS = (("user-agent", "promptools"), ("connection", "close"))


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


def consult(colour, work, timeout=LONG, meanwhile=None):
    """Return what the work returns, or raises, in an exchange that does no more."""
    library, results = installed_library(), []

    def start(request, door):
        result = yield Consult(work, timeout)
        results.append(result)
        yield Emit(ResponseHead(200, ()))

    url = "http://127.0.0.1:9/v1/chat/completions"

    async def go():
        async with intercept(library.module.AsyncClient(), start) as http, asyncio.TaskGroup() as tasks:
            if meanwhile is not None:
                tasks.create_task(meanwhile())
            await http.post(url)

    if colour == "async":
        asyncio.run(go())
    else:
        with intercept(library.module.Client(), start) as http:
            http.post(url)
    (result,) = results
    if result.error is not None:
        raise result.error
    return result.value


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_each_question_may_depend_on_the_answer_before(server, colour):
    server.about = {"/v1/1": {"next": 2}, "/v1/2": {"next": 3}, "/v1/3": Answer(400, (b"{}",))}

    def work(ask):
        first = ask(Request("GET", f"{server.url}/1", HEADERS, b""))
        second = ask(Request("GET", f"{server.url}/{first.body.decode()[-2]}", HEADERS, b""))
        third = ask(Request("GET", f"{server.url}/{second.body.decode()[-2]}", HEADERS, b""))
        return third.status

    assert consult(colour, work) == 400
    assert [each.path for each in server.looks] == ["/v1/1", "/v1/2", "/v1/3"]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_what_it_raises_is_raised_where_it_was_asked_for(colour):
    def work(ask):
        raise ValueError("odd template")

    with pytest.raises(ValueError, match="odd template"):
        consult(colour, work)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_question_that_gets_no_answer_is_none(colour):
    nobody = Request("GET", "http://127.0.0.1:9/v1/1", HEADERS, b"")
    assert consult(colour, lambda ask: ask(nobody)) is None


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_when_the_time_is_up_nothing_is_sent(server, colour):
    asked = Request("GET", f"{server.url}/1", HEADERS, b"")
    assert consult(colour, lambda ask: [ask(asked), ask(asked)], timeout=0.0) == [None, None]
    assert server.looks == []


def test_the_event_loop_goes_on_meanwhile():
    begun, released = threading.Event(), threading.Event()

    def work(ask):
        begun.set()
        return released.wait(LONG)

    async def meanwhile():
        while not begun.is_set():
            await asyncio.sleep(0.001)
        released.set()

    assert consult("async", work, meanwhile=meanwhile)
