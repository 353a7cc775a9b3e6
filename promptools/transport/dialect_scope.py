"""Exchanges of a session with dialects of its own: those are known while the exchange runs, and nowhere else."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.dialects import using_own
from promptools.exchange import Compute, EffectResult, Exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.dialects.own_dialects import OwnDialects
    from promptools.types import Reply


def with_own_dialects(exchange: Exchange, own: OwnDialects) -> Exchange:
    """Run `exchange`, and the work that it asks for, with dialects that others do not know."""
    outcome: EffectResult | None = None
    try:
        while True:
            with using_own(own):
                try:
                    effect = next(exchange) if outcome is None else exchange.send(outcome)
                except StopIteration as stop:
                    reply: Reply | None = stop.value
                    return reply
            outcome = yield Compute(partial(_work_with, own, effect.work)) if isinstance(effect, Compute) else effect
    finally:
        with using_own(own):  # the observers are told of the end
            exchange.close()


def _work_with(own: OwnDialects, work: Callable[[], Any]) -> Any:
    with using_own(own):
        return work()
