"""The plan of one request, as a generator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, TypeAlias

from promptools.exchange.effects import Effect, Emit, Ended, Failed, Happening, Head, Opened, Piece, Read, Send
from promptools.types import Reply

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context

Exchange: TypeAlias = Generator[Effect, Happening, Reply | None]


def run(request: ClientRequest, context: Context) -> Exchange:
    """Carry one request out: yields effects, is sent happenings, returns the reply (None: it was passed untouched).

    Raises only what a shell handed in as `Failed.error`, and only before anything was emitted.
    """
    opened = yield Send(request.request)
    if isinstance(opened, Failed) and opened.error:
        raise opened.error
    assert isinstance(opened, Opened)
    yield Emit(Head(opened.status, opened.headers))
    while True:
        piece = yield Read()
        if isinstance(piece, Ended):
            return None
        assert isinstance(piece, Piece)
        yield Emit(piece.data)
