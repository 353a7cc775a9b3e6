"""What is long is done while the event loop goes on: told by threads and by what happens before what."""

import asyncio
import json
import threading
import zlib
from types import SimpleNamespace

import pytest
from upstream import Answer, running

from promptools import AsyncOpenAI
from promptools.exchange import attempt, passthrough, retry
from promptools.exchange.attempt import AttemptRunner
from promptools.proxy import key_masking
from promptools.proxy.key_masking import mask_error
from promptools.transport import installed_library
from promptools.transport.async_driver import MAX_READ
from promptools.transport.response_content import MAX_PIECE, aiter_content

PATIENCE = 120
"""Seconds after which a test that hangs has failed."""
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
ARGUMENTS = json.dumps({"a": "x" * 100_000})
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}
ERROR = {"error": {"message": f"error parsing tool call: raw='{ARGUMENTS}', err=x", "type": "api_error"}}
REPLY = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [CALL]}, "finish_reason": "tool_calls"}],
}


class Watch:
    """Lets a function wait until the event loop has run another callback, and records the threads that it ran in."""

    def __init__(self, monkeypatch, owner, name):
        self.threads = []
        self.went_on = []
        self.loop = None
        original = getattr(owner, name)

        def watched(*args, **named):
            self.threads.append(threading.get_ident())
            ran = threading.Event()
            self.loop.call_soon_threadsafe(ran.set)
            self.went_on.append(threading.get_ident() != self.thread and ran.wait(PATIENCE))
            return original(*args, **named)

        monkeypatch.setattr(owner, name, watched)

    def begin(self):
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()


PARTS = {
    "what kind of error it is": (attempt, "failure_of_status", 500, ERROR),
    "the calls in an error": (retry, "recover_calls", 500, ERROR),
    "the kind of an error that passes": (passthrough, "failure_of_status", 400, ERROR),
    "the end of a reply": (AttemptRunner, "_close_choices", 200, REPLY),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_event_loop_goes_on_during_what_is_long(monkeypatch, name):
    owner, function, status, body = PARTS[name]
    watch = Watch(monkeypatch, owner, function)

    async def go(url):
        watch.begin()
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, detect=False) as client:
            tools = {} if owner is passthrough else {"tools": [TOOL]}
            request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            answer = await client.chat.completions.with_raw_response.create(**request, **tools, timeout=PATIENCE)
            return json.loads(answer.content)

    with running() as server:
        server.play(Answer(status, (json.dumps(body).encode(),)))
        said = asyncio.run(go(server.url))["choices"][0]["message"]
        if status == 400:  # without tools, what the model wrote is the content
            assert said["content"] == ARGUMENTS
        else:
            assert said["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    assert watch.went_on
    assert all(watch.went_on)


# -- decompression


def bomb(size):
    return zlib.compress(b" " * size, 9)


def response(raws, status=200):
    async def aiter_raw():
        for raw in raws:
            yield raw

    library = installed_library()
    headers = library.module.Headers([("content-encoding", "deflate")])
    return SimpleNamespace(
        is_stream_consumed=False, headers=headers, aiter_raw=aiter_raw, stream=aiter_raw(), status_code=status
    )


async def turns_between_pieces(content):
    """Return the sizes of all pieces, and how often the event loop ran another callback before each of them."""
    loop, turns, sizes = asyncio.get_running_loop(), [0], []

    def turn():
        turns[-1] += 1
        loop.call_soon(turn)

    loop.call_soon(turn)
    async for piece in content:
        sizes.append(len(piece))
        turns.append(0)
    return sizes, turns[:-1]


@pytest.mark.parametrize("kind", ["content", "masked"])
def test_other_tasks_run_between_the_pieces_that_one_read_decompresses_to(kind):
    async def go():
        library = installed_library()
        if kind == "content":
            return await turns_between_pieces(aiter_content(response([bomb(50 * MAX_PIECE)]), library))
        masked = mask_error(response([bomb(50 * MAX_PIECE)], 500), library, "Bearer sk-operators-4242")
        return await turns_between_pieces(aiter(masked.stream))

    sizes, turns = asyncio.run(go())
    assert sum(sizes) == 50 * MAX_PIECE
    assert max(sizes) <= MAX_PIECE + 100
    assert min(turns[1:50]) >= 1


def test_of_a_compressed_error_so_much_is_decompressed_and_no_more(monkeypatch):
    monkeypatch.setattr(key_masking, "MAX_DECOMPRESSED", 10 * MAX_PIECE)
    library, sizes = installed_library(), []

    async def go(pieces):
        masked = mask_error(response([bomb(pieces * MAX_PIECE)], 500), library, "Bearer sk-operators-4242")
        async for piece in masked.stream:
            sizes.append(len(piece))

    asyncio.run(go(10))
    assert sum(sizes) == 10 * MAX_PIECE
    sizes.clear()
    with pytest.raises(library.module.DecodingError, match="when decompressed"):
        asyncio.run(go(1000))
    assert sum(sizes) <= 10 * MAX_PIECE


def test_an_exchange_gets_no_more_of_a_piece_at_a_time(monkeypatch):
    seen = []
    advance = AttemptRunner._advance

    def watched(self, chunk):
        seen.append(len(chunk or b""))
        return advance(self, chunk)

    monkeypatch.setattr(AttemptRunner, "_advance", watched)

    async def go(url):
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, detect=False) as client:
            request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
            return await client.chat.completions.create(**request, timeout=PATIENCE)

    with running() as server:
        server.play(Answer(200, (json.dumps(REPLY).encode(),)))
        answer = asyncio.run(go(server.url))
    assert answer.choices[0].message.tool_calls[0].function.arguments == ARGUMENTS
    assert max(seen) <= MAX_READ
    assert sum(seen) == len(json.dumps(REPLY).encode())
