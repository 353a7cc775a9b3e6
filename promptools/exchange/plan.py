"""Choose the next attempt: the modes in their order, the remedies for a failure, and the circuit breaker.

A plan is the current attempt (`mode`, and `ask`, the request with all adaptations so far) and what is left to try.
After a failure, `after` takes the first remedy in `REMEDIES` that changes anything: move to the next mode, adapt the
request, feed the error back to the model (`correct`), or send the same again.

Each remedy uses something up, so a plan ends even without a stop policy: a mode, one of the corrections, an adaptation
(once per mode; `tool_choice` a few times, each with a weaker choice), or the single repetition.

The breaker is consulted when a mode is chosen. It records every success, and of the failures those in `COUNTED` that
the plan answers with another mode, a repetition or nothing. It is ignored if a mode is forced, or if it would leave no
mode at all.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.exchange.mend import mend
from promptools.exchange.registry import mode_of
from promptools.fallback import COUNTED, LASTING, REMEDIES, Key, Mend, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange.context import Context
    from promptools.exchange.failure import Failure
    from promptools.modes.ask import Ask
    from promptools.types import ModeName

WORDS: dict[Mend, str] = {
    "relax_schema": "sent again with relaxed schemas",
    "tool_choice": "sent again asking for less by `tool_choice`",
    "functions_only": "sent again without the tools that are no functions",
    "ids": "sent again with call ids of nine letters and digits",
    "object_history": "sent again with past arguments as objects",
    "roles": "sent again with roles that alternate",
    "no_reasoning": "sent again without the reasoning parameters",
    "null_content": "sent again with empty strings in place of null",
    "plain_content": "sent again with content as plain strings",
    "no_stream_options": "sent again without `stream_options`",
    "no_parallel": "sent again without `parallel_tool_calls`",
    "format": "the answer is asked for again in its form, without tools",
    "fit": "sent again with a context that holds the prompt",
}


def _raw_last(ask: Ask, modes: Sequence[ModeName]) -> bool:
    """Whether harmony mode may be tried last although it is not among the modes."""
    return ask.profile.raw_last and ask.profile.raw is not None and "harmony" not in modes


class Plan:
    """What to send now (`mode`, `ask`), and what to send next after a failure."""

    def __init__(
        self, ask: Ask, modes: Sequence[ModeName], place: tuple[str, str], context: Context, at: float
    ) -> None:
        self.ask = ask
        self.notes: list[str] = []
        self._place = place
        self._context = context
        self._breaker = context.breaker
        self._corrections = ask.options.most_corrections
        self._forced = ask.options.mode is not None
        self._again = False
        self._used: set[tuple[ModeName, Mend]] = set()
        self._raw_left = _raw_last(ask, modes) and not self._forced
        self._before: ModeName | None = None
        self._rest = list(modes)
        self._recalled: int | None = None
        self._remember(context.windows.size(place, at))
        self._heeds = not self._forced
        self.mode: ModeName = self._next(at) or self._unheeded(modes)

    def _remember(self, size: int | None) -> None:
        """Apply the context size known from an earlier request: what it was raised to, or what the server reported."""
        if size is None:
            return
        if self.ask.profile.raw == "completions":
            self.ask = replace(self.ask, profile=replace(self.ask.profile, context=size))
        elif self.ask.profile.num_ctx == "fit":
            self.ask = replace(self.ask, num_ctx=size)
            self._recalled = size

    def asked_for_context(self) -> None:
        """Add a note, once, that the context of an earlier request is requested again."""
        if self._recalled is not None:
            reason = "an earlier request needed it, and another makes the model load anew"
            self.notes.append(f"num_ctx {self._recalled} was asked for: {reason}")
        self._recalled = None

    @property
    def key(self) -> Key:
        """The breaker's key for the current mode."""
        return self._key(self.mode)

    def _key(self, mode: ModeName) -> Key:
        return Key(*self._place, mode)

    def single(self, ask: Ask) -> Plan:
        """Return a copy of this plan, in its current state, for one choice alone."""
        shared = {id(instance): instance for instance in (self._context, self._breaker)}
        plan = deepcopy(self, {**shared, id(self.ask): ask})
        plan.notes = []
        return plan

    def worked(self, at: float) -> None:
        """Record a good reply in the current mode."""
        self._breaker.worked(self.key)
        if self.ask.num_ctx is not None:
            self._context.windows.raised(self._place, self.ask.num_ctx, at)

    def failed(self, failure: Failure, at: float) -> None:
        """Record a failure that is the server's with the breaker, not one that the model may correct."""
        if failure.kind not in COUNTED or (failure.verdict is not None and failure.verdict.again):
            return
        self._breaker.failed(self.key, at, why=failure.kind, lasting=failure.kind in LASTING)

    def after(self, failure: Failure, at: float) -> str | None:
        """Choose what to send after a failure, and return a description of it; None if nothing is left to try."""
        steps = REMEDIES[failure.kind]
        if failure.kind == "harmony" and self._raw_left:
            self._raw_left = False
            self._rest.append("harmony")
        for step in steps:
            description = self._take(step, failure, at)
            if description:
                return description
        if "next" in steps:
            self.failed(failure, at)
        return self._back(failure)

    def pass_over(self, why: str, at: float) -> bool:
        """Skip harmony mode, which cannot render this request; return whether there is another mode to try."""
        mode = self._next(at) if self.mode == "harmony" and not self._forced else None
        if mode is None:
            return False
        self.notes.append(f"harmony mode was passed over: {why}")
        self.mode = mode
        return True

    def _take(self, step: Step, failure: Failure, at: float) -> str | None:
        match step:
            case "salvage":
                return None
            case "correct":
                return self._correct(failure)
            case "next":
                return self._move(failure, at)
            case "again":
                return self._once_more(failure, at)
            case _:
                return self._mend(step, failure, at)

    def _correct(self, failure: Failure) -> str | None:
        verdict = failure.verdict
        if verdict is None or not verdict.again or self._corrections < 1:
            return None
        self._corrections -= 1
        self.ask = self.ask.corrected(verdict.feedback)
        return "the model is asked to mend it"

    def _mend(self, step: Mend, failure: Failure, at: float) -> str | None:
        # `tool_choice` may be applied repeatedly, each time weaker; `mend` returns None when it cannot get weaker
        if step != "tool_choice" and (self.mode, step) in self._used:
            return None
        adapted = mend(step, self.ask, failure, self.mode)
        if adapted is None:
            return None
        if adapted.profile.context != self.ask.profile.context and adapted.profile.context is not None:
            self._context.windows.raised(self._place, adapted.profile.context, at)
        self._used.add((self.mode, step))
        self.ask = adapted
        if step == "fit" and adapted.num_ctx is None:
            room = f"{adapted.room} tokens" if adapted.room is not None else "what is left"
            return f"sent again for an answer of {room}"
        return f"{WORDS[step]} (num_ctx {adapted.num_ctx})" if step == "fit" else WORDS[step]

    def _move(self, failure: Failure, at: float) -> str | None:
        if not self._rest or (failure.verdict and not failure.verdict.elsewhere):
            return None
        self.failed(failure, at)
        mode = self._next(at)
        if mode == "harmony" and not self._can_render():
            mode = self._next(at)
        if mode is None:
            return None
        self._before, self.mode = self.mode if "again" in REMEDIES[failure.kind] else None, mode
        self.ask = replace(self.ask, feedback=())
        return f"{mode} mode is tried"

    def _can_render(self) -> bool:
        """Whether harmony mode can render a request that another mode failed on."""
        profile = self.ask.profile
        if profile.raw == "completions" and "harmony" not in profile.modes:
            # only vLLM and SGLang fail in this way, and both strip the markers from a reply unless asked for token ids
            self.ask = replace(self.ask, profile=replace(profile, raw_ids=True))
        try:
            mode_of("harmony").body(self.ask)
        except UsageError as error:
            self.notes.append(f"harmony mode was passed over: {error}")
            return False
        return True

    def _back(self, failure: Failure) -> str | None:
        """Return from a missing raw endpoint to the previous mode, once: another sample may succeed there."""
        if failure.kind != "no_raw" or self._before is None or self._again:
            return None
        self._again = True
        self.mode = self._before
        return f"{self.mode} mode is tried once more"

    def _once_more(self, failure: Failure, at: float) -> str | None:
        if self._again:
            return None
        self._again = True
        self.failed(failure, at)
        return "the same is sent once more"

    def _next(self, at: float) -> ModeName | None:
        """Remove and return the next mode that the breaker admits; the next at all if the breaker is ignored."""
        while self._rest:
            mode = self._rest.pop(0)
            key = self._key(mode)
            if not self._heeds or self._breaker.admits(key, at):
                return mode
            self.notes.append(f"{mode} mode was skipped: it failed lately ({self._breaker.why(key)})")
        return None

    def _unheeded(self, modes: Sequence[ModeName]) -> ModeName:
        """Return the first mode although all are open: there is a request to serve, so the breaker is ignored."""
        self._heeds = False
        first, *self._rest = modes
        self.notes[:] = [
            f"every mode failed lately ({self._breaker.why(self._key(first))}): they are tried all the same"
        ]
        return first
