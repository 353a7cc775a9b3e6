"""A large request is prepared while others go on: on real event loops, told by what happens before what."""

import asyncio
import threading
from importlib.util import find_spec

import anyio
import pytest
from upstream import completion, running

from promptools import AsyncOpenAI
from promptools.exchange import Compute, Computed, Emit, ResponseHead
from promptools.transport import intercept
from promptools.transport.http_library import import_library

FAMILIES = [name for name in ("httpx", "httpx2") if find_spec(name)]
PATIENCE = 300
"""Seconds after which a test that hangs has failed."""


@pytest.fixture(params=FAMILIES)
def family(request):
    return import_library(request.param)


def computing(work):
    """An exchange that has something computed, and answers with what came of it."""

    def start(request, door):
        told = yield Compute(work)
        assert isinstance(told, Computed)
        yield Emit(ResponseHead(200, ()))
        yield Emit(repr(told.error or told.value).encode())

    return start


def test_the_event_loop_goes_on_while_something_is_computed(family):
    ticked = threading.Event()

    async def tick():
        await anyio.sleep(0)
        ticked.set()

    async def go():
        with anyio.fail_after(PATIENCE):
            async with intercept(family.module.AsyncClient(), computing(lambda: ticked.wait(PATIENCE))) as http:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(tick)
                    answer = await http.post("http://nowhere/v1/chat/completions", json={})
                return answer.text

    assert anyio.run(go) == "True"  # had the work held the loop, nothing would have ticked


def test_what_the_work_raises_reaches_the_exchange_in_both_colours(family):
    def broken():
        raise ValueError("odd")

    with intercept(family.module.Client(), computing(broken)) as http:
        assert http.post("http://nowhere/v1/chat/completions", json={}).text == "ValueError('odd')"

    async def go():
        async with intercept(family.module.AsyncClient(), computing(broken)) as http:
            return (await http.post("http://nowhere/v1/chat/completions", json={})).text

    assert asyncio.run(go()) == "ValueError('odd')"


def test_a_task_that_is_cancelled_waits_for_the_work_and_ends(family):
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        return go_on.wait(PATIENCE)

    async def go():
        async with intercept(family.module.AsyncClient(), computing(work)) as http:
            task = asyncio.create_task(http.post("http://nowhere/v1/chat/completions", json={}))
            await asyncio.to_thread(begun.wait, PATIENCE)
            task.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(go())


def many_tools(number):
    parameters = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20)}}
    return [
        {"type": "function", "function": {"name": f"unseen_{n}", "parameters": {**parameters, "title": f"{n}"}}}
        for n in range(number)
    ]


def test_a_small_request_that_comes_after_a_large_one_is_answered_before_it():
    async def go(url):
        done = []
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, detect=False) as client:

            async def ask(what, **more):
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": what}], timeout=PATIENCE, **more
                )
                done.append(what)

            await ask("warm")
            tools = many_tools(1500)
            large = asyncio.create_task(ask("large", tools=tools))
            await asyncio.sleep(0)  # the large one begins first
            await ask("small", tools=tools[:1])
            await large
        return done

    with running() as server:
        server.play(completion("hello"))
        assert asyncio.run(go(server.url)) == ["warm", "small", "large"]
        assert [each.json["messages"][0]["content"] for each in server.seen] == ["warm", "small", "large"]
